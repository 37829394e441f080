"""Convert images from PIL, numpy and torch to one form: uint8, (H, W, C)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from evenhand.core.errors import EvenhandError
from evenhand.data.decode import to_grey_or_rgb


def to_pixels(image: Any) -> NDArray[np.uint8]:
    """Return an image as uint8, (H, W, C), with 1 or 3 channels.

    Args:
        image: a PIL image of any mode; an array, uint8 of shape (H, W), (H, W, 1) or (H, W, 3); or a tensor as
            in torchvision, (C, H, W) or (H, W), uint8 or floats from 0 to 1.

    Raises:
        EvenhandError: it is none of these.

    Example:
        >>> import torch
        >>> from PIL import Image
        >>> from evenhand.data.pixels import to_pixels
        >>> to_pixels(Image.new("RGBA", (4, 3))).shape, to_pixels(torch.ones(3, 3, 4))[0, 0].tolist()
        ((3, 4, 3), [255, 255, 255])
    """
    if isinstance(image, Image.Image):
        try:
            array = np.array(to_grey_or_rgb(ImageOps.exif_transpose(image)))
        except ValueError as error:
            raise EvenhandError(f"Cannot use a PIL image of mode {image.mode}: {error}.") from error
    elif isinstance(image, torch.Tensor):
        array = _from_tensor(image.detach().cpu())
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise EvenhandError(f"An image must be a path, a PIL image, an array or a tensor, got {type(image).__name__}.")
    whole = array[:, :, None] if array.ndim == 2 else array
    if array.dtype != np.uint8 or whole.ndim != 3 or whole.shape[2] not in (1, 3) or not whole.size:
        raise EvenhandError(
            f"An image must be uint8 of shape (H, W), (H, W, 1) or (H, W, 3), got {array.dtype} of {array.shape}."
        )
    return whole


def is_one_image(images: Any) -> bool:
    """Return whether this is a single image, not several."""
    if isinstance(images, torch.Tensor):
        return images.ndim == 2 or (images.ndim == 3 and images.shape[0] in (1, 3))
    if isinstance(images, np.ndarray):
        return images.ndim == 3 and images.shape[2] in (1, 3)
    return isinstance(images, str | Path | Image.Image)


def _from_tensor(tensor: torch.Tensor) -> NDArray[np.uint8]:
    if tensor.ndim == 3:
        tensor = tensor.permute(1, 2, 0)
    if tensor.is_floating_point():
        low, high = (float(end) for end in tensor.aminmax()) if tensor.numel() else (0.0, 0.0)
        if not (low >= 0 and high <= 1):
            raise EvenhandError(
                f"A tensor of floats must be from 0 to 1, before any normalisation, got {low:.3g} to {high:.3g}."
            )
        tensor = (tensor.float() * 255).round().to(torch.uint8)
    if tensor.dtype != torch.uint8:
        raise EvenhandError(f"A tensor must be uint8, or floats from 0 to 1, got {tensor.dtype}.")
    array: NDArray[np.uint8] = tensor.contiguous().numpy()
    return array
