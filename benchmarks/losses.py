"""Compare complement cross entropy with cross entropy: time and memory of forward and backward.

    python benchmarks/losses.py [--processes 5] [--threads 1] [--avx2] [--shapes 128x10 4096x1000] [--into FILE]

Each process measures one shape in float32: cross entropy, CCE by the native kernel, CCE by torch's operations, and the
paper's equations as written, in turn. With one thread, CPU time is measured, which other processes affect least. The
ratio to `nn.CrossEntropyLoss` is computed in each round, so that other load affects both sides; the table has the
median over rounds and then over processes. Memory is the peak of what was allocated beyond the logits and targets, the
returned gradient included, in units of the logits' size. `--avx2` limits torch and the kernel to AVX2. `--into` writes
the numbers into a file, which tools/speed_tables.py reads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _kept import how_measured, keep

SHAPES = ["128x10", "128x100", "128x1000", "512x8142", "256x21841", "4096x1000"]


def measure(shape: str, threads: int, *, avx2: bool = False) -> dict[str, float]:
    """Measure time and memory of the losses at one shape, in this process."""
    import torch
    from torch import Tensor, nn

    from evenhand import ComplementCrossEntropyLoss
    from evenhand.losses import set_backend
    from evenhand.losses.kernels import native
    from evenhand.losses.kernels.backend import why_not

    if avx2:
        native.level = min(native.level, 1)

    def plain(logits: Tensor, target: Tensor) -> Tensor:
        """Compute eqs. 1-5 as the paper writes them."""
        p = logits.softmax(1)
        own = p.gather(1, target[:, None])
        q = p / (1 - own + 1e-7)
        entropy = -(q * torch.log(q + 1e-10)).scatter(1, target[:, None], 0.0).sum(1).mean()
        return -torch.log(own).mean() - entropy / (logits.shape[1] - 1)

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    n, k = map(int, shape.split("x"))
    logits = torch.randn(n, k, requires_grad=True)
    target = torch.randint(0, k, (n,))
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "ce": nn.CrossEntropyLoss(),
        "native": ComplementCrossEntropyLoss(),
        "eager": ComplementCrossEntropyLoss(),
        "plain": plain,
    }
    if why_not("native"):
        del losses["native"]

    def step(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        loss(logits, target).backward()

    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    rounds = max(25, min(500, 20_000_000 // (n * k)))
    for i in range(rounds + 5):
        for name, loss in losses.items():
            logits.grad = None
            set_backend(name if name in ("native", "eager") else "auto")
            start = clock()
            step(loss)
            if i >= 5:
                seconds[name].append(clock() - start)
    result = {"ce": statistics.median(seconds["ce"])}
    for name in (each for each in losses if each != "ce"):
        result[name] = statistics.median(a / b for a, b in zip(seconds[name], seconds["ce"], strict=True))
    for name, loss in losses.items():
        logits.grad = None
        set_backend(name if name in ("native", "eager") else "auto")
        result[f"{name}_memory"] = peak_memory(lambda loss=loss: step(loss)) / (n * k * 4)
    return result


def peak_memory(work: Callable[[], None]) -> int:
    """Return the peak of the bytes that torch allocated during `work`, beyond those allocated before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


def main() -> None:
    """Run the processes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.shapes[0], args.threads, avx2=args.avx2)))
        return
    print(
        "| N x K | cross entropy, ms | native, times that | eager | plain form | memory: CE | native | eager | plain |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads)}
    if args.avx2:
        environment["ATEN_CPU_CAPABILITY"] = "avx2"
    part = f"{args.threads} thread{'s' * (args.threads != 1)}{', AVX2' * args.avx2}"
    for shape in args.shapes:
        command = [sys.executable, __file__, "--child", "--threads", str(args.threads), "--shapes", shape]
        runs = []
        for _ in range(args.processes):
            done = subprocess.run(
                command + ["--avx2"] * args.avx2, check=True, capture_output=True, text=True, env=environment
            )
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        row = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        names = ("native", "eager", "plain", "ce_memory", "native_memory", "eager_memory", "plain_memory")
        numbers = [f"{row[name]:.2f}" if name in row else "" for name in names]
        cells = [shape.replace("x", " x "), f"{row['ce'] * 1e3:.3g}", *numbers]
        print(f"| {' | '.join(cells)} |", flush=True)
        if args.into is not None:
            keep(args.into, part, {shape: row})
            keep(args.into, "measured", {part: how_measured() | {"processes": args.processes}})
    print(f"\n{how_measured()['versions']}, {part}, {args.processes} processes per row")


if __name__ == "__main__":
    main()
