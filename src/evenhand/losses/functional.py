"""Losses for imbalanced classification, as pure functions with the keywords of `torch.nn.functional.cross_entropy`.

To add a loss that knows the class counts: write the function here, as :func:`adjusted_cross_entropy` with a scale, an
offset or a margin computed from the counts; its module in `modules`; and its part in `evenhand.objectives`.
"""

from torch import Tensor

from evenhand.losses._adjusted import adjust_logits, adjusted_cross_entropy
from evenhand.losses._cce import complement_cross_entropy, complement_entropy
from evenhand.losses._counts import Counts, check_counts, class_weights, frequent_rivals, ldam_margins, logit_offset
from evenhand.losses._focal import focal_loss
from evenhand.losses._input import check, check_number, check_scale

__all__ = [
    "adjust_logits",
    "adjusted_cross_entropy",
    "balanced_softmax_loss",
    "class_weights",
    "complement_cross_entropy",
    "complement_entropy",
    "focal_loss",
    "frequent_rivals",
    "ldam_loss",
    "ldam_margins",
    "logit_adjusted_cross_entropy",
    "logit_offset",
    "vs_factors",
    "vs_loss",
]


def logit_adjusted_cross_entropy(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    weight: Tensor | None = None,
    *,
    tau: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy of logits shifted by tau times the log prior of their classes, in training only.

    .. math::
        \mathrm{LA} = -\log \frac{\exp(z_g + \tau \log \pi_g)}{\sum_j \exp(z_j + \tau \log \pi_j)},
        \qquad \pi_k = \frac{n_k}{\sum_j n_j}

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.) The network predicts with its logits as they are.
    With equal counts it is cross entropy.

    When to use it: where classes are rare in training but equally important in use. A larger tau favours rare classes
    more; tune it on validation images.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        counts: training images per class, (K). A count of 0 is treated like the smallest positive count.
        weight: a weight per class, (K).
        tau: the multiple of the log prior, 0 or more; 0 is cross entropy.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the shifted logits.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes, counts or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import logit_adjusted_cross_entropy
        >>> logits, target = torch.zeros(2, 2), torch.tensor([0, 1])
        >>> logit_adjusted_cross_entropy(logits, target, [90, 10], reduction="none")  # a rare class costs more
        tensor([0.1054, 2.3026])
    """
    n = check_counts(counts, check(input, target, weight, reduction))
    return adjusted_cross_entropy(
        input,
        target,
        weight,
        offset=logit_offset(n, tau).to(input.device),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def balanced_softmax_loss(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Balanced softmax: cross entropy with each class weighted by its count inside the softmax, in training only.

    .. math::
        \mathrm{BS} = -\log \frac{n_g \exp(z_g)}{\sum_j n_j \exp(z_j)}

    (Ren et al. 2020, *Balanced Meta-Softmax for Long-Tailed Visual Recognition*.) It is
    :func:`logit_adjusted_cross_entropy` at tau = 1.

    When to use it: as the first choice where classes are rare in training but equally important in use; there is
    nothing to tune.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        counts: training images per class, (K). A count of 0 is treated like the smallest positive count.
        weight: a weight per class, (K).
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the shifted logits.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes, counts or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import balanced_softmax_loss
        >>> balanced_softmax_loss(torch.zeros(1, 4), torch.tensor([3]), counts=[5, 2, 2, 1])  # -ln(1 / 10)
        tensor(2.3026)
    """
    return logit_adjusted_cross_entropy(
        input,
        target,
        counts,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def ldam_loss(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    weight: Tensor | None = None,
    *,
    max_margin: float = 0.5,
    scale: float = 30.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Label-distribution-aware margin loss (LDAM): cross entropy with a margin that is wider for rarer classes.

    .. math::
        \mathrm{LDAM} = -\log \frac{\exp(s (z_g - m_g))}{\exp(s (z_g - m_g)) + \sum_{j \ne g} \exp(s z_j)},
        \qquad m_k = m_{\max} \left( \frac{\min_j n_j}{n_k} \right)^{1/4}

    (Cao et al. 2019, *Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss*.) The input are cosines
    between -1 and 1: the outputs of a last layer whose weights and features are both normalised. With unbounded logits
    a margin has no effect: the network can scale them up.

    When to use it: together with deferred re-weighting (DRW), as its authors do.

    Args:
        input: cosines, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities t of the input's shape. The loss of a row
            of probabilities is the sum over classes k of t_k times its loss as class k.
        counts: training images per class, (K). A count of 0 is treated like the smallest positive count.
        weight: a weight per class, (K).
        max_margin: the margin of the rarest class, 0 or more.
        scale: the factor that turns cosines into logits, above 0.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the logits with their margin.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes, counts or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import ldam_loss
        >>> cosines, target = torch.tensor([[0.9, 0.5], [0.5, 0.9]]), torch.tensor([0, 1])
        >>> ldam_loss(cosines, target, [1600, 100], reduction="none")  # the lead of 0.4 is less than the margin of 0.5
        tensor([0.0110, 3.0486])
    """
    n = check_counts(counts, check(input, target, weight, reduction))
    return adjusted_cross_entropy(
        input,
        target,
        weight,
        margin=check_scale(scale) * ldam_margins(n, max_margin).to(input.device),
        scale=scale,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def vs_factors(counts: Counts, gamma: float = 0.3) -> Tensor:
    r"""Return the factor of each class in the vector-scaling loss; rarer classes have smaller factors.

    .. math::
        \Delta_k = \left( \frac{n_k}{\max_j n_j} \right)^\gamma

    (Kini et al. 2021, *Label-Imbalanced and Group-Sensitive Classification under Overparameterization*.)

    Args:
        counts: training images per class, (K).
        gamma: the exponent, 0 or more.

    Returns:
        (K), float64.

    Example:
        >>> from evenhand.losses.functional import vs_factors
        >>> vs_factors([10000, 100], gamma=0.5)
        tensor([1.0000, 0.1000], dtype=torch.float64)
    """
    n = check_counts(counts)
    return (n / n.amax()) ** check_number(gamma, "gamma", least=0)


def vs_loss(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    weight: Tensor | None = None,
    *,
    gamma: float = 0.3,
    tau: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Vector-scaling loss (VS): cross entropy of logits scaled and shifted by class, in training only.

    .. math::
        \mathrm{VS} = -\log \frac{\exp(\Delta_g z_g + \tau \log \pi_g)}{\sum_j \exp(\Delta_j z_j + \tau \log \pi_j)},
        \qquad \Delta_k = \left( \frac{n_k}{\max_j n_j} \right)^\gamma, \qquad \pi_k = \frac{n_k}{\sum_j n_j}

    (Kini et al. 2021, *Label-Imbalanced and Group-Sensitive Classification under Overparameterization*; the defaults
    are those of public implementations.) With `gamma=0` it is :func:`logit_adjusted_cross_entropy`.

    When to use it: where training reaches zero error. Offsets then lose their effect as the logits grow; a factor keeps
    its effect, since a rare class needs larger logits for the same loss. Tune both settings on validation images.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        counts: training images per class, (K). A count of 0 is treated like the smallest positive count.
        weight: a weight per class, (K).
        gamma: the exponent of the factors, 0 or more.
        tau: the multiple of the log prior, 0 or more.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the adjusted logits.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes, counts or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import vs_loss
        >>> logits, target = torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1])
        >>> vs_loss(logits, target, [900, 100], reduction="none")  # the same logits cost a rare class more
        tensor([0.0020, 0.7592])
    """
    n = check_counts(counts, check(input, target, weight, reduction))
    return adjusted_cross_entropy(
        input,
        target,
        weight,
        scale=vs_factors(n, gamma).to(input.device),
        offset=logit_offset(n, tau).to(input.device),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
