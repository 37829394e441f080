"""A linear layer and complement cross entropy in one, for many classes: the logits are never stored at once."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from evenhand.losses._cce import complement_factor
from evenhand.losses._counts import Counts, logit_offset
from evenhand.losses._input import check, check_device, check_number, check_per_class, check_tensor, class_indices
from evenhand.losses.kernels import _class_major
from evenhand.losses.kernels.fused import Terms, compute, refuse_learned

CHUNK = 6 << 20  # logits held at a time


class Settings(NamedTuple):
    """The settings of the loss, as in `Terms`; `reduction` is `"mean"` or `"sum"`."""

    target: Tensor
    class_weight: Tensor | None
    offset: Tensor | None
    margin: Tensor | None
    share: float | Tensor
    ignore_index: int
    reduction: str


def linear_complement_cross_entropy(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    *,
    gamma: float | str | None = None,
    share: float | Tensor | None = None,
    offset: Tensor | None = None,
    margin: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Complement cross entropy of `features @ weight.T + bias`, without storing the N x K logits.

    The gradients are computed with the loss, so the forward pass takes the time of both and the backward pass none. It
    can be differentiated once. Half-precision features are cast to the dtype of the weights.

    Args:
        features: (N, D).
        target: class indices, (N).
        weight: the weights of the layer, (K, D).
        bias: of the layer, (K).
        class_weight: a weight per class, (K).
        gamma: the weight of the complement entropy; -1 as in the paper.
        share: the weight of C independent of the number of classes, instead of gamma.
        offset: added to the logits in H, (K).
        margin: subtracted in H from the logit of a class where it is the correct one, (K).
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"` or `"sum"`.

    Returns:
        A scalar, in float32 at least.

    Example:
        >>> import torch
        >>> from evenhand.losses import linear_complement_cross_entropy
        >>> features, weight = torch.eye(3, 4), torch.zeros(5, 4, requires_grad=True)
        >>> linear_complement_cross_entropy(features, torch.tensor([0, 1, 4]), weight)  # ln 5 - ln 4 / 4
        tensor(1.2629, grad_fn=...)
    """
    settings = Settings(target, class_weight, offset, margin, 0.0, ignore_index, reduction)
    check_linear(features, weight, bias, settings)
    factor = complement_factor(gamma, share, len(weight))
    # Not `_replace`, which torch 2.5 does not compile.
    settings = Settings(target, class_weight, offset, margin, factor, ignore_index, reduction)
    refuse_learned(torch.is_grad_enabled() and isinstance(x, Tensor) and x.requires_grad for x in settings)
    if torch.compiler.is_compiling():
        from evenhand.losses.kernels.linear_operator import operator_loss

        return operator_loss(features, weight, bias, settings)
    return cast(Tensor, _LinearLoss.apply(features, weight, bias, settings))


def check_linear(features: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings) -> None:
    """Refuse what does not fit together."""
    target, class_weight, offset, margin, share, _, reduction = settings
    check_tensor(features, "features")
    check_tensor(weight, "weight")
    if features.dim() != 2 or weight.dim() != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features (N, D) and weight (K, D) must share D, got {tuple(features.shape)} and {tuple(weight.shape)}."
        )
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum' here, got {reduction!r}.")
    for dtype in (features.dtype, weight.dtype):
        logits = features.new_empty((1, len(weight)), dtype=dtype).expand(len(features), -1)
        classes = check(logits, target, class_weight, reduction)
    if target.is_floating_point():
        raise ValueError("target must hold class indices here, got class probabilities.")
    vectors = {"bias": bias, "offset": offset, "margin": margin, "share": share if isinstance(share, Tensor) else None}
    if not isinstance(share, Tensor):
        check_number(share, "share")
    for name, vector in vectors.items():
        check_per_class(vector, name, classes)
    for name, value in {**vectors, "weight": weight, "target": target, "class_weight": class_weight}.items():
        check_device(value, name, features.device)


class ComplementCrossEntropyHead(nn.Linear):
    """The last layer of a network and its loss: `head(features, target)` is the loss, `head(features)` the logits.

    Its parameters and state are those of `nn.Linear`. For so many classes that N x K logits need too much memory.

    Args:
        in_features: D, the width of the features.
        out_features: K, the number of classes.
        bias: whether the layer has one.
        class_weight: a weight per class, (K).
        gamma: the weight of the complement entropy; -1 as in the paper.
        share: the weight of C independent of the number of classes, instead of gamma.
        counts: training images per class, (K): H is computed from logits adjusted by them.
        tau: the multiple of the log prior that H adds.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"` or `"sum"`.

    Example:
        >>> import torch
        >>> from evenhand.losses import ComplementCrossEntropyHead
        >>> head = ComplementCrossEntropyHead(16, 1000)
        >>> head(torch.randn(4, 16), torch.tensor([1, 5, 7, 999])).backward()
        >>> head(torch.randn(4, 16)).shape
        torch.Size([4, 1000])
    """

    class_weight: Tensor | None
    offset: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        class_weight: Tensor | None = None,
        *,
        gamma: float | str | None = None,
        share: float | None = None,
        counts: Counts | None = None,
        tau: float = 1.0,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(in_features, out_features, bias)
        complement_factor(gamma, share, out_features)
        self.gamma, self.share, self.ignore_index, self.reduction = gamma, share, ignore_index, reduction
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.register_buffer("offset", None if counts is None else logit_offset(counts, tau).float(), persistent=False)

    def forward(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        """Return the loss of features (N, D) and their class indices; without indices the logits, (N, K)."""
        if target is None:
            return super().forward(input)
        return linear_complement_cross_entropy(
            input,
            target,
            self.weight,
            self.bias,
            self.class_weight,
            gamma=self.gamma,
            share=self.share,
            offset=self.offset,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


def loss_and_gradients(
    features: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings, wanted: tuple[bool, ...]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the loss and its gradients by features, weight and bias: at least those that are wanted."""
    target, class_weight, offset, margin, share, ignore_index, reduction = settings
    dtype = torch.promote_types(weight.dtype, torch.float32)
    offset, margin = (None if vector is None else vector.to(dtype) for vector in (offset, margin))
    share = share.to(dtype) if isinstance(share, Tensor) else share
    x = features.to(weight.dtype)
    index, valid = class_indices(target.clone(), len(weight), ignore_index)  # another thread may change the target
    scale = torch.ones_like(index, dtype=torch.float32) if class_weight is None else class_weight.float()[index]
    if valid is not None:  # an ignored row adds nothing, whatever its features are
        scale = torch.where(valid, scale, 0.0)
        x = torch.where(valid.unsqueeze(1), x, 0.0)
    whole = scale.new_ones(())
    if reduction == "mean":
        total = scale.sum()
        whole = total / total  # NaN where every row is ignored, as in cross entropy
        scale = torch.where(scale == 0, 0.0, scale / total)
    layer = _class_major.Layer(x, weight, bias)
    small = x.shape[0] * len(weight) <= CHUNK
    if wanted[1] and not small and _class_major.suits(layer, offset):
        by_row = share.float()[index] if isinstance(share, Tensor) else share
        back = None if margin is None else margin[index]
        rows = _class_major.Rows(index, valid, back, by_row, scale)
        loss, by_features, by_weight, by_bias = _class_major.loss_and_gradients(layer, rows, offset)
        return (loss * whole).float(), by_features.to(features.dtype), by_weight, by_bias
    counted = index if valid is None else torch.where(valid, index, -1)
    terms = Terms(counted, None, offset, margin, share, True, -1, "none")
    loss, *gradients = _in_chunks(layer, terms, scale, wanted, features.dtype)
    return loss * whole, gradients[0], gradients[1], gradients[2]


def _in_chunks(
    layer: _class_major.Layer, terms: Terms, scale: Tensor, wanted: tuple[bool, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Process a few rows at a time, so that their logits take little memory."""
    x, weight, bias = layer
    loss = torch.zeros((), dtype=torch.float64, device=x.device)
    by_features = torch.empty_like(x) if wanted[0] else None
    by_weight = torch.zeros_like(weight) if wanted[1] else None
    by_bias = torch.zeros_like(bias) if bias is not None and wanted[2] else None
    size = max(1, CHUNK // len(weight), min(len(x), x.shape[1] // 4))
    room = x.new_empty((min(size, len(x)), len(weight)))
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        logits = torch.mm(x[part], weight.t(), out=room[: len(x[part])])
        if bias is not None:
            logits += bias
        rows, gradient = compute(logits, terms._replace(target=terms.target[part]), any(wanted), in_place=True)
        loss += (rows.double() * scale[part]).sum()
        if gradient is None:
            continue
        if by_weight is not None:
            by_weight.addmm_(gradient.t(), x[part] * scale[part, None].to(x.dtype))
        if by_bias is not None:
            by_bias += scale[part].to(x.dtype) @ gradient
        if by_features is not None:
            by_features[part] = (gradient @ weight).mul_(scale[part, None])
    features_gradient = None if by_features is None else by_features.to(dtype)
    return loss.to(torch.promote_types(x.dtype, torch.float32)), features_gradient, by_weight, by_bias


def refuse_second_derivative() -> None:
    """Refuse `create_graph=True`: a kept gradient knows nothing of what it was computed from, so its own would be 0."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "linear_complement_cross_entropy can be differentiated once, got create_graph=True: "
            "use complement_cross_entropy of the logits."
        )


class _LinearLoss(torch.autograd.Function):
    """The loss; its gradients are computed in the forward pass and saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        with torch.autocast(features.device.type, enabled=False):
            loss, *gradients = loss_and_gradients(features, weight, bias, settings, wanted)
        ctx.save_for_backward(*(x if want else None for x, want in zip(gradients, wanted, strict=True)))
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        plain = grad_loss.is_cpu and grad_loss.item() == 1
        return *(x if x is None or plain else x * grad_loss.to(x.dtype) for x in ctx.saved_tensors), None
