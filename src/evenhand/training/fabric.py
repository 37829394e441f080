"""Device and precision of a run, through Lightning Fabric."""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.memory import keep_freed_memory
from evenhand.models.amx import avoid_missing_amx, lacks_amx
from evenhand.runs.config import Config


def start_fabric(config: Config) -> Fabric:
    """Make and launch Fabric as a config asks."""
    compute = config.compute
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", "The `srun` command is available")  # on a login node, where nobody needs srun
    accelerator = compute.accelerator
    if accelerator == "auto" and not torch.cuda.is_available() and not torch.backends.mps.is_available():
        accelerator = "cpu"
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


def _cpu_has_bfloat16() -> bool:
    """Whether the CPU computes in bfloat16; emulation is slower than float32."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    # Where AMX is announced but missing, the rest of bfloat16 took twice as long as float32 on a small network.
    if not supported() or lacks_amx():
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
