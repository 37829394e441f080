"""The preprocessing that a pretrained network expects."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.data.decode import Interpolation

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class InputTransform:
    """Resize, centre crop and normalise, as in the evaluation of the pretrained weights.

    Example:
        >>> from evenhand.models.transform import InputTransform
        >>> InputTransform(resize_size=256, crop_size=224).interpolation
        'bilinear'
    """

    resize_size: int
    """Length in pixels that the shorter side is resized to."""
    crop_size: int
    """Height and width of the centre crop."""
    resize_rule: Literal["shorter", "stretch"] = "shorter"
    """`shorter`: the aspect ratio is kept. `stretch`: both sides are resized to this length."""
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, ...] = IMAGENET_MEAN
    """Per channel, for pixels from 0 to 1."""
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if not 1 <= self.crop_size <= self.resize_size:
            raise EvenhandError(
                f"The crop size must be from 1 to the resize size of {self.resize_size}, got {self.crop_size}."
            )
        if self.interpolation not in get_args(Interpolation):
            known = ", ".join(get_args(Interpolation))
            raise EvenhandError(f"There is no interpolation {self.interpolation!r}; there are {known}.")
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise EvenhandError(f"mean and std need one value per channel and std must be positive, got {self}.")

    def at(self, size: int) -> "InputTransform":
        """Return the preprocessing for another crop size, with the resize size in proportion.

        Example:
            >>> from evenhand.models.transform import InputTransform
            >>> InputTransform(resize_size=256, crop_size=224).at(112).resize_size
            128
        """
        return replace(self, crop_size=size, resize_size=max(size, round(size * self.resize_size / self.crop_size)))

    def fingerprint(self) -> str:
        """Return a short hash of the preprocessing."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def centre_crop(image: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the square of `size` pixels in the middle of an image, (H, W, C)."""
    top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
    return image[top : top + size, left : left + size]
