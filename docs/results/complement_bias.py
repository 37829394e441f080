"""What minimising balanced softmax with the complement entropy C decides with an infinite sample.

Toy distribution: ten classes, each a Gaussian with unit covariance in ten dimensions, around random centres; training
counts are those of CIFAR-10 at ratio 100. At each point the expected loss under the true posterior is minimised over
free logits, so there is no sampling noise and no limit of a network. The balanced Bayes rule predicts the class of the
largest posterior divided by its count. Points are drawn with all classes equally frequent.

With C over all wrong classes the bias can be inverted: where the gradient of the expected loss is 0,

    (I - s A^T) eta = p,  A_gk = q_k (log q_k + C_g),  q the distribution over the wrong classes of g,

with p = softmax(z + log n), q from z without the offset, and s the share. Column "inverted" decides by that eta,
which is exact at the minimum only: elsewhere entries can be negative, and the last column counts them.

    python docs/results/complement_bias.py > docs/results/data/complement-bias.md
"""

import numpy as np
import torch
from torch import Tensor

from evenhand.losses.functional import complement_cross_entropy, frequent_rivals, logit_offset

COUNTS = torch.tensor([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50])
POINTS, CLASSES, DIMENSIONS = 500, 10, 10


def posterior(separation: float, seed: int) -> Tensor:
    """Return (N, K), the posterior of the training distribution at points drawn from balanced classes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, separation / DIMENSIONS**0.5, (CLASSES, DIMENSIONS))
    labels = np.arange(POINTS) % CLASSES
    points = centres[labels] + rng.normal(size=(POINTS, DIMENSIONS))
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    return torch.softmax(torch.from_numpy(-squares / 2) + COUNTS.double().log(), dim=1)


def minimiser(eta: Tensor, *, share: float, frequent: bool, counts_known: bool = True) -> Tensor:
    """Return (N, K), the logits that minimise the expected loss at each point."""
    offset = logit_offset(COUNTS, 1.0).double() if counts_known else None
    start = eta.log() - COUNTS.double().log() if counts_known else eta.log()
    logits = (start - start.mean(dim=1, keepdim=True)).clamp(-30, 30).requires_grad_()
    rivals = frequent_rivals(COUNTS) if frequent else None
    target = torch.arange(CLASSES).repeat(len(eta))
    optimizer = torch.optim.LBFGS([logits], lr=1, max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        rows = logits.repeat_interleave(CLASSES, dim=0)
        loss = complement_cross_entropy(
            rows, target, share=share, gamma=None, offset=offset, rivals=rivals, reduction="none"
        )
        total = (loss * eta.reshape(-1)).sum()
        total.backward()
        return total

    optimizer.step(closure)
    return logits.detach()


def inverted(logits: Tensor, share: float) -> Tensor:
    """Return (N, K), the posterior that these logits minimise the expected loss for."""
    p = torch.softmax(logits + COUNTS.double().log(), dim=1)
    wrong = logits[:, None].expand(-1, CLASSES, -1).masked_fill(torch.eye(CLASSES, dtype=torch.bool), -torch.inf)
    log_q = torch.log_softmax(wrong, dim=2)
    parts = torch.where(torch.isfinite(log_q), log_q.exp() * log_q, torch.zeros_like(log_q))
    a = parts - log_q.exp() * parts.sum(dim=2, keepdim=True)  # C_g is minus the sum
    return torch.linalg.solve(torch.eye(CLASSES, dtype=torch.float64) - share * a.transpose(1, 2), p[:, :, None])[
        :, :, 0
    ]


def main() -> None:
    """Print a row for each toy."""
    print(
        "| separation | balanced Bayes accuracy, % | loss | decided otherwise, % | rarest predicted | "
        "inverted, % | negative, % |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for separation in (2.0, 3.0):
        for name, share, frequent in (
            ("no C", 0.0, False),
            ("C, share 1/9", 1 / 9, False),
            ("C over frequent rivals, share 1/9", 1 / 9, True),
            ("C over frequent rivals, share 0.3", 0.3, True),
        ):
            other, rare, accuracy, after, negative = [], [], [], [], []
            for seed in range(2):
                eta = posterior(separation, seed)
                bayes = (eta / COUNTS).argmax(dim=1)
                logits = minimiser(eta, share=share, frequent=frequent)
                predicted = logits.argmax(dim=1)
                found = inverted(logits, share)
                again = (found / COUNTS).argmax(dim=1)
                negative.append(float((found < 0).double().mean()))
                after.append(float((again != bayes).double().mean()))
                other.append(float((predicted != bayes).double().mean()))
                rare.append(float((predicted == CLASSES - 1).sum() / (bayes == CLASSES - 1).sum()))
                accuracy.append(float((bayes == torch.arange(POINTS) % CLASSES).double().mean()))
            numbers = [100 * np.mean(accuracy), 100 * np.mean(other), np.mean(rare)]
            last = " | " if frequent else f"{100 * np.mean(after):.1f} | {100 * np.mean(negative):.1f}"
            print(
                f"| {separation:g} | {numbers[0]:.0f} | {name} | {numbers[1]:.1f} | {numbers[2]:.2f} | {last} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
