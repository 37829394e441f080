"""Argument checks and reductions that all losses share."""

import math
import sys
from typing import Any

import torch
from torch import Tensor

# float64 and float32 are computed as they are, half precision in float32; narrower floats have no arithmetic.
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGEST = sys.float_info.max  # integers can be larger than any float


def check_number(value: Any, name: str, least: float = -math.inf) -> float:
    """Return a setting if it is a finite number of at least `least`; otherwise raise an error that shows it."""
    number = value if isinstance(value, (int, float)) else _as_float(value, name)
    if not -_LARGEST <= number <= _LARGEST or number < least:  # also works on a symbolic number while tracing
        limit = "" if least == -math.inf else f" of {least} or more"
        raise ValueError(f"{name} must be a finite number{limit}, got {number}.")
    return number


def _as_float(value: Any, name: str) -> float:
    try:
        return float("text" if isinstance(value, str) else value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None


def check_gamma(gamma: Any) -> float | str:
    """Return gamma if it is a finite number or `"released"`."""
    if isinstance(gamma, str):
        if gamma != "released":
            raise ValueError(f"gamma must be a finite number or 'released', got {gamma!r}.")
        return gamma
    return check_number(gamma, "gamma")


def check_scale(scale: Any) -> float:
    """Return the scale if it is a number above 0."""
    if check_number(scale, "scale") <= 0:
        raise ValueError(f"scale must be above 0, got {scale}.")
    return float(scale)


def check_focal_gamma(gamma: Any) -> float:
    """Return the gamma of a focal loss if it is a number of 0 or more."""
    return check_number(gamma, "the gamma of the focal loss", least=0)


def check_reduction(reduction: str) -> None:
    """Raise an error unless the reduction is known."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")


def check(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> int:
    """Return the number of classes, or raise an error if shapes, dtypes or the weight are invalid."""
    check_reduction(reduction)
    check_tensor(input, "input")
    check_tensor(target, "target")
    shape = tuple(input.shape)
    if input.dim() == 0 or input.dtype not in DTYPES:
        raise ValueError(
            f"input must be logits of shape (N, K) in float16, bfloat16, float32 or float64, "
            f"got {input.dtype} of shape {shape}."
        )
    classes = shape[0] if len(shape) == 1 else shape[1]
    if isinstance(
        classes, Tensor
    ):  # `torch.jit.trace` returns sizes as tensors, and a tensor would mean one factor per class
        classes = int(classes)
    if classes < 2:
        raise ValueError(f"input needs at least 2 classes, got {classes} (shape {shape}).")
    if target.shape == input.shape:
        if target.dtype not in DTYPES:
            raise ValueError(
                f"target has the input's shape {shape}, so it must hold class probabilities, got {target.dtype}."
            )
    else:
        rows = () if len(shape) == 1 else (shape[0], *shape[2:])
        if target.shape != rows:
            raise ValueError(
                f"target for an input of shape {shape} must have shape {rows} (class indices) or {shape} "
                f"(class probabilities), got {tuple(target.shape)}."
            )
        if target.dtype not in (torch.int64, torch.uint8):
            raise ValueError(f"class indices must be int64, got {target.dtype}.")
    check_device(target, "target", input.device)
    check_per_class(weight, "weight", classes, input.device)
    return classes


def check_finite(share: Tensor | None) -> None:
    """Refuse checked factors of the complement entropy, one per class, that are not finite."""
    if share is not None and holds_anywhere(~share.isfinite()):
        raise ValueError(f"share must be finite, got {share.tolist()}.")


def check_tensor(value: Any, name: str) -> None:
    """Refuse what is no tensor, or has lost its memory."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}: torch.as_tensor makes one.")
    _check_dense(value, name)
    check_stored(value, name)


def check_numbers(value: Any, name: str) -> None:
    """Refuse a tensor that holds no real numbers, where lists and numbers are taken too."""
    if not isinstance(value, Tensor):
        return
    check_tensor(value, name)
    if value.is_complex() or (value.is_floating_point() and value.dtype not in DTYPES):
        raise ValueError(f"{name} must be real numbers, got {value.dtype}.")


def _check_dense(value: Tensor, name: str) -> None:
    if value.layout is not torch.strided:
        raise ValueError(f"{name} must be a dense tensor, got {value.layout}: its to_dense() makes one.")
    if value.is_nested:
        raise ValueError(f"{name} must be a dense tensor, got a nested one: to_padded_tensor(0) makes one.")
    if value.is_quantized:
        raise ValueError(f"{name} must hold floating-point numbers, got {value.dtype}: its dequantize() makes them.")


def check_stored(value: Any, name: str) -> None:
    """Refuse a tensor whose storage was freed or cut, as by `untyped_storage().resize_(0)`: to read it can crash."""
    if not isinstance(value, Tensor) or torch.compiler.is_compiling() or torch._C._get_tracing_state():
        return
    if is_wrapper(value) or not value.numel():
        return
    try:
        held = value.untyped_storage().nbytes()
    except NotImplementedError:  # sparse, or inside a transform of `torch.func`
        return
    last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    needed = (last + 1) * value.element_size()
    if held < needed:
        shape = tuple(value.shape)
        raise RuntimeError(f"{name} of shape {shape} needs a storage of {needed} bytes, got {held}: restore it.")


def is_wrapper(value: Any) -> bool:
    """Return whether a value is a tensor of a class that computes on its own, around tensors that it holds."""
    return isinstance(value, Tensor) and type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__


def check_device(value: Tensor | None, name: str, device: torch.device) -> None:
    """Refuse a tensor on another device than the logits: a meta tensor would be taken for numbers."""
    if value is not None:
        _check_dense(value, name)
    if value is not None and value.device != device:
        raise ValueError(f"{name} must be on the device of the input, {device}, got {value.device}.")


def check_per_class(value: Any, name: str, classes: int, device: torch.device | None = None) -> None:
    """Raise an error unless a value is None or one floating-point number per class, on this device if one is given."""
    if value is None:
        return
    check_tensor(value, name)
    if tuple(value.shape) != (classes,) or value.dtype not in DTYPES:
        raise ValueError(
            f"{name} must hold {classes} floating-point numbers, one per class, "
            f"got {value.dtype} of shape {tuple(value.shape)}."
        )
    if device is not None:
        check_device(value, name, device)


def check_smoothing(label_smoothing: Any) -> None:
    """Raise an error unless label smoothing is between 0 and 1."""
    if not isinstance(label_smoothing, (int, float)) or not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing!r}.")


def holds_anywhere(condition: Tensor) -> bool:
    """Return whether a condition holds anywhere; False where reading it would synchronise: off the CPU or compiling."""
    if torch.compiler.is_compiling() or condition.device.type != "cpu":
        return False
    try:
        return bool(condition.any())
    except RuntimeError:  # inside vmap, values cannot be read
        return False


def with_batch(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Add a batch dimension to logits (K) and their target."""
    return (input.unsqueeze(0), target.unsqueeze(0)) if input.dim() == 1 else (input, target)


def class_indices(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return indices valid for gather, and a mask of the rows that are not ignored (None: all)."""
    target = target.long().resolve_neg()  # torch looks up a negated view without its sign
    span = _span(target)
    if span is not None and span[0] >= 0 and span[1] < classes and not span[0] <= ignore_index <= span[1]:
        return target, None
    valid = target != ignore_index
    target = torch.where(valid, target, 0)
    span = span and _span(target)
    if span is not None and not (span[0] >= 0 and span[1] < classes):
        wrong = span[0] if span[0] < 0 else span[1]
        raise IndexError(f"target {wrong} is not a class: expected 0 to {classes - 1}, or ignore_index {ignore_index}.")
    return target, valid


def _span(target: Tensor) -> tuple[int, int] | None:
    """Return the smallest and largest index; None where reading them would synchronise: off the CPU or compiling."""
    if torch.compiler.is_compiling() or target.device.type != "cpu" or target.numel() == 0:
        return None
    try:
        low, high = target.aminmax()
        return int(low), int(high)
    except RuntimeError:  # inside vmap, values cannot be read
        return None


def refuse_ignore_index(ignore_index: int) -> None:
    """Raise an error if a class is to be ignored and targets are class probabilities."""
    if ignore_index >= 0:
        raise ValueError(f"ignore_index is for class indices, got {ignore_index} with class probabilities.")


def weigh(rows: Tensor, index: Tensor, valid: Tensor | None, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Multiply rows by their class weights and zero the ignored ones; return them and the divisor of the mean."""
    factor = None
    if weight is not None:
        factor = weight.to(rows.dtype)[index]
        rows = rows * factor
    if valid is not None:
        rows = torch.where(valid, rows, 0.0)
        factor = valid.to(rows.dtype) if factor is None else torch.where(valid, factor, 0.0)
    return rows, None if factor is None else factor.sum()


def reduce(rows: Tensor, total: Tensor | None, reduction: str, input: Tensor) -> Tensor:
    """Reduce the loss of the rows, with the dtype of cross entropy."""
    if reduction == "mean":
        loss = rows.mean() if total is None else rows.sum() / total
    elif reduction == "sum":
        loss = rows.sum()
    else:
        loss = rows.squeeze(0) if input.dim() == 1 else rows
    return like_cross_entropy(loss, input)


WITH_AUTOCAST = frozenset(filter(torch.amp.is_autocast_available, ("cpu", "cuda", "hpu", "mps", "xla", "xpu")))
"""Asked once: torch.compile of torch 2.5 cannot trace the question."""


def like_cross_entropy(loss: Tensor, input: Tensor) -> Tensor:
    """Cast a loss to the dtype that cross entropy of the input would have."""
    wide = input.device.type in WITH_AUTOCAST and torch.is_autocast_enabled(input.device.type)
    return loss if wide else loss.to(input.dtype)
