"""Device and precision of a run, through Lightning Fabric."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.memory import keep_freed_memory
from evenhand.models.amx import avoid_missing_amx, lacks_amx
from evenhand.runs.config import Config

_LAUNCHED = ("MASTER_ADDR", "WORLD_SIZE", "SLURM_NTASKS")


def check_devices(config: Config) -> None:
    """Refuse more devices than this machine has, before anything is started on them.

    Example:
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.fabric import check_devices
        >>> check_devices(make_config(settings=["compute.devices=1"]))
        >>> check_devices(make_config(settings=["compute.devices=1000", "compute.accelerator=cpu"]))
        ... # doctest: +ELLIPSIS
        Traceback (most recent call last):
        evenhand.core.errors.EvenhandError: --devices 1000 is more than the ...; give at most ..., or auto.
    """
    asked, accelerator, nodes = config.compute.devices, _accelerator(config), config.compute.nodes
    if nodes > 1 and not any(name in os.environ for name in _LAUNCHED):  # it would wait for the others without end
        raise EvenhandError(f"--nodes {nodes} needs the address of the first machine; start it with torchrun or srun.")
    if asked == "auto":
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = torch.cuda.device_count() or int(torch.backends.mps.is_available())
    most, what = (cores, "core") if accelerator == "cpu" else (gpus, "GPU")
    if most and asked > most:
        found = f"{most} {what}{'s' * (most != 1)} of this machine"
        raise EvenhandError(f"--devices {asked} is more than the {found}; give at most {most}, or auto.")


def _accelerator(config: Config) -> str:
    accelerator: str = config.compute.accelerator
    if accelerator == "auto" and not torch.cuda.is_available() and not torch.backends.mps.is_available():
        return "cpu"
    return accelerator


def start_fabric(config: Config) -> Fabric:
    """Make and launch Fabric as a config asks."""
    compute = config.compute
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    check_devices(config)
    accelerator = _accelerator(config)
    warnings.filterwarnings("ignore", "The `srun` command is available")  # on a login node, where nobody needs srun
    devices: Any = compute.devices
    if devices == "auto" and accelerator == "cpu":
        devices = int(os.environ.get("WORLD_SIZE", "1")) // compute.nodes or 1
    if compute.sync_batchnorm and accelerator == "cpu":
        raise EvenhandError("--sync-batchnorm needs GPUs: torch cannot do it on CPUs.")
    avoid_missing_amx()
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=compute.nodes,
            precision=choose_precision(compute.precision, accelerator),
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise EvenhandError(f"Cannot run on {compute.devices} x {compute.accelerator}: {reason(error)}.") from error
    fabric.launch()
    if fabric.device.type == "cpu":
        keep_freed_memory()
    return fabric


def choose_precision(precision: str, accelerator: str) -> Any:
    """Return a precision in Fabric's words; `auto`: bfloat16 where it is faster than float32."""
    if precision == "auto":
        if accelerator == "cpu":
            faster = _cpu_has_bfloat16()
        else:
            faster = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if faster else "float32"
    return {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}[precision]


@contextmanager
def fast_products(fabric: Fabric) -> Iterator[None]:
    """Compute float32 matrix products with oneDNN in a run that computes in bfloat16 on a CPU.

    A cosine head stays in float32. With AVX-512 its results are as exact as those of MKL, in half the time on AMD; with
    AMX the factors of a product are rounded to bfloat16, but not the product.
    """
    before = torch.get_float32_matmul_precision()
    chosen = fabric.device.type == "cpu" and fabric._precision.precision == "bf16-mixed"
    torch.set_float32_matmul_precision("medium" if chosen else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _cpu_has_bfloat16() -> bool:
    """Return whether the CPU computes in bfloat16; emulation is slower than float32."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    # Where AMX is announced but missing, the rest of bfloat16 took twice as long as float32 on a small network.
    if not supported() or lacks_amx():
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
