"""Which code computes the loss: torch's operations (`eager`), the C kernel (`native`) or the GPU kernel (`triton`)."""

import os
from importlib.util import find_spec

from evenhand.core.errors import EvenhandError
from evenhand.losses.kernels import native

BACKENDS = ("auto", "eager", "native", "triton")
VARIABLE = "EVENHAND_BACKEND"


class _Choice:
    """The backend for tensors on the CPU and on a GPU; plain attributes, since every call of the loss reads them."""

    name = "auto"
    cpu = gpu = "eager"


chosen = _Choice()


def set_backend(name: str) -> None:
    """Set the backend that computes complement cross entropy in this process.

    Args:
        name: `"auto"`: the native kernel on the CPU and the Triton kernel on a GPU, where they can run; `"eager"`:
            torch's operations everywhere; `"native"` or `"triton"`: that kernel, or an error where it cannot run. Input
            that no kernel takes (float64, class probabilities, logits (N, K, d1), ...) is always computed by `eager`.

    Raises:
        ValueError: for an unknown name.
        EvenhandError: if that kernel cannot run here.

    Example:
        >>> from evenhand.losses import get_backend, set_backend
        >>> set_backend("eager")
        >>> get_backend()
        'eager'
        >>> set_backend("auto")
    """
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}.")
    missing = why_not(name)
    if missing:
        raise EvenhandError(f"the backend {name!r} cannot be used: {missing}; choose 'auto' or 'eager'.")
    chosen.name = name
    chosen.cpu = "native" if name in ("auto", "native") and not why_not("native") else "eager"
    chosen.gpu = "triton" if name in ("auto", "triton") and not why_not("triton") else "eager"
    if name == "triton" and interpreting():
        chosen.cpu = "triton"


def get_backend() -> str:
    """Return the backend that was set; `"auto"` by default."""
    return chosen.name


def why_not(name: str) -> str:
    """Return the reason why a backend cannot run here; empty if it can."""
    if name == "native":
        return native.why_not
    if name == "triton":
        return "" if find_spec("triton") else "triton is not installed"
    return ""


def interpreting() -> bool:
    """Return whether Triton interprets its kernels on the CPU, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


try:
    set_backend(os.environ.get(VARIABLE) or "auto")
except ValueError as error:
    raise EvenhandError(f"{VARIABLE}: {error}") from None
