"""Compare `linear_complement_cross_entropy` with `F.linear` followed by `F.cross_entropy`: time and memory.

    python benchmarks/linear.py [--rounds 7] [--shapes 256x512x200000 2048x512x21841] [--into FILE]

Forward and backward in float32, with gradients of features, weights and bias, on one thread. The two take turns; the
ratio of their CPU times is computed in each round, and its median is printed. Memory is the peak of what was allocated
beyond the operands, gradients included, relative to linear + cross entropy and to the gradient of the weights alone.
`--into` writes the numbers into a file, which tools/speed_tables.py reads.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from _kept import how_measured, keep
from losses import peak_memory
from torch import Tensor

from evenhand.losses import linear_complement_cross_entropy


def main() -> None:
    """Measure each shape and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", nargs="+", default=["256x512x200000", "2048x512x21841"], metavar="NxDxK")
    parser.add_argument("--into", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| N x D x K | linear + CE, s | fused, times that | memory, times that | times the weights' gradient |")
    print("|---|---|---|---|---|", flush=True)
    for shape in args.shapes:
        n, d, k = map(int, shape.split("x"))
        torch.manual_seed(0)
        leaves = [torch.randn(n, d), torch.randn(k, d) * d**-0.5, torch.zeros(k)]
        for leaf in leaves:
            leaf.requires_grad_()
        target = torch.randint(0, k, (n,))

        def step(fused: bool, leaves: list[Tensor] = leaves, target: Tensor = target) -> None:
            features, weight, bias = leaves
            if fused:
                loss = linear_complement_cross_entropy(features, target, weight, bias)
            else:
                loss = F.cross_entropy(F.linear(features, weight, bias), target)
            loss.backward()

        seconds: dict[bool, list[float]] = {False: [], True: []}
        for number in range(args.rounds + 1):
            for fused in (False, True):
                for leaf in leaves:
                    leaf.grad = None
                start = time.process_time()
                step(fused)
                if number:
                    seconds[fused].append(time.process_time() - start)
        memory = {}
        for fused in (False, True):
            for leaf in leaves:
                leaf.grad = None
            memory[fused] = peak_memory(lambda fused=fused: step(fused))
        row = {
            "seconds": statistics.median(seconds[False]),
            "ratio": statistics.median(b / a for a, b in zip(seconds[False], seconds[True], strict=True)),
            "memory": memory[True] / memory[False],
            "of_gradient": memory[True] / (4 * k * d),
        }
        cells = f"{row['seconds']:.3g} | {row['ratio']:.2f} | {row['memory']:.3f} | {row['of_gradient']:.3f}"
        print(f"| {shape.replace('x', ' x ')} | {cells} |", flush=True)
        if args.into is not None:
            keep(args.into, "linear", {shape: row})
            keep(args.into, "measured", {"linear": how_measured() | {"rounds": args.rounds}})


if __name__ == "__main__":
    main()
