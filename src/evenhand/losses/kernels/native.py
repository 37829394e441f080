"""The C kernel for the CPU, called through ctypes with plain pointers: it is tied to no version of Python or torch."""

import ctypes
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evenhand.losses._input import check_stored

DTYPES = (torch.float32, torch.bfloat16)
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
LEVELS = {0: "none", 1: "AVX2", 2: "AVX-512"}

_INTERFACE = 3
_DONE, _NO_CLASS, _NO_MEMORY, _NOT_SUPPORTED, _NOT_STORED = range(5)
# The fields of `request` in cce.c as bytes: passing 22 arguments by ctypes takes longer than a small loss.
_pack = struct.Struct("P 6q P 2q 4P 2d 2q 3P q").pack


def _load() -> tuple[Any, int, str]:
    """Return the kernel, the best instruction set that it and this processor have, and the reason if there is none."""
    path = Path(__file__).with_name("_cce.dll" if sys.platform == "win32" else "_cce.so")
    if not path.exists():
        return None, 0, "it was not built: there was no suitable C compiler at installation"
    try:
        library = ctypes.CDLL(str(path))
        if library.evenhand_interface() != _INTERFACE:
            return None, 0, f"{path.name} was built from another version: install the package again"
        level = library.evenhand_level()
        if level == 0:
            return None, 0, "this processor has no AVX2 and FMA"
        kernel = library.evenhand_cce
    except (OSError, AttributeError) as error:
        return None, 0, f"{path.name} cannot be loaded: {error}"
    kernel.argtypes = [ctypes.c_char_p]
    return kernel, level, ""


def _torch_threads() -> int:
    """Return the address of torch's parallel loop, so that no second thread pool competes with it; 0: there is none."""
    folder = Path(torch.__file__).parent / "lib"
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    try:
        return ctypes.cast(ctypes.CDLL(str(folder / name)).torch_parallel_for, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):  # before torch 2.10
        return 0


_kernel, level, why_not = _load()
_NUMBER = torch.empty((), dtype=torch.float32, device="cpu")  # `empty_like` is the fastest way to a new tensor
_NULL = (0, 0, 0, 0)
threads = _torch_threads() if level else 0


def run(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    offset: Tensor | None,
    margin: Tensor | None,
    share: float | Tensor,
    with_cross_entropy: bool,
    ignore_index: int,
    reduction: str,
    with_gradient: bool,
    *,
    in_place: bool = False,
) -> tuple[Tensor, Tensor | None] | None:
    """Compute [H +] share * C of all rows, reduced, and the gradient of that.

    Args:
        logits: (N, K), float32 or bfloat16, on the CPU.
        target: (N), int64; every value is checked.
        weight: a weight per class, (K), float32.
        offset: added to the logits in H, (K), float32.
        margin: subtracted in H from the logit of a class where it is the correct one, (K), float32.
        share: the factor of the complement entropy C, a number or one per class, (K), float32.
        with_cross_entropy: add the cross entropy H.
        ignore_index: rows with this target are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        with_gradient: compute the gradient too.
        in_place: write the gradient over the logits, which must be contiguous.

    Returns:
        The loss, () or (N), in float32, and its gradient, (N, K), in the dtype of the logits; or None where the
        kernel does not apply: an invalid target, an ignore_index that is no int64, or an offset with too wide a range
        for H and C to share one exponential, or that masks a class.
    """
    dense = logits.is_contiguous()
    if not dense and logits.stride(1) != 1:
        check_stored(logits, "input")
        logits, dense = logits.contiguous(), True
    rows, classes = logits.shape
    loss = logits.new_empty(rows, dtype=torch.float32) if reduction == "none" else torch.empty_like(_NUMBER)
    gradient = None
    if with_gradient:
        gradient = logits if in_place else torch.empty_like(logits) if dense else logits.new_empty(logits.shape)
    if not target.is_contiguous() or target.is_neg():
        check_stored(target, "target")
        target = target.resolve_neg().contiguous()
    shares, share = (share, 0.0) if isinstance(share, Tensor) else (None, share)
    pointers: Iterable[int] = _NULL
    if weight is not None or offset is not None or margin is not None or shares is not None:
        vectors = (
            None if weight is None else _readable(weight, "weight", classes),
            None if offset is None else _readable(offset, "offset", classes),
            None if margin is None else _readable(margin, "margin", classes),
            None if shares is None else _readable(shares, "share", classes),
        )
        pointers = [0 if x is None else x.data_ptr() for x in vectors]
        if any(x is not None and not pointer for x, pointer in zip(vectors, pointers, strict=True)):
            return None  # a tensor that stands for another one: to the kernel it would be missing
    try:
        request = _pack(
            logits.data_ptr(),
            logits.untyped_storage().nbytes(),
            logits.storage_offset(),
            logits.dtype is torch.bfloat16,
            rows,
            classes,
            classes if dense else logits.stride(0),
            target.data_ptr(),
            target.untyped_storage().nbytes(),
            target.storage_offset(),
            *pointers,
            with_cross_entropy,
            share,
            ignore_index,
            REDUCTIONS[reduction],
            loss.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            threads,
            level,
        )
    except struct.error:  # an ignore_index that is no int64
        return None
    status = _kernel(request)
    if status == _DONE:
        return loss, gradient
    if status == _NO_MEMORY:
        raise MemoryError(f"no memory for the loss of {rows} rows of {classes} classes.")
    if status == _NOT_STORED:
        check_stored(logits, "input")
        check_stored(target, "target")
    return None


def _readable(vector: Tensor, name: str, classes: int) -> Tensor:
    """Return a vector as the kernel reads it: float32, without gaps, in memory, with its sign applied."""
    if (
        vector.dtype is torch.float32
        and vector.is_contiguous()
        and not vector.is_neg()
        and vector.untyped_storage().nbytes() >= 4 * (vector.storage_offset() + classes)
        and vector.data_ptr()
    ):
        return vector
    check_stored(vector, name)
    return vector.new_empty(vector.shape, dtype=torch.float32).copy_(vector)
