"""Use an exported model with nothing but onnxruntime, numpy and Pillow.

    evenhand export RUN --onnx model.onnx
    python examples/onnx_predict.py model.onnx PICTURE...

Prints the most probable class of each picture. How pictures are prepared stands in the file's metadata.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}


def prepare(path: Path | str, told: dict[str, Any]) -> NDArray[np.float32]:
    """Return a picture as the network takes it: resized, cut from the centre, normalised, (C, S, S)."""
    picture = upright(path).convert("RGB" if told["channels"] == 3 else "L")
    size, crop = told["image_size"], told["crop_size"]
    width, height = picture.size
    if told["resize_rule"] == "stretch":
        width, height = size, size
    else:
        # Of a very long picture the middle is taken before it is resized: the rest would be cut off anyway.
        longest = told["max_aspect"] * min(width, height)
        left, top = max(0, width - longest) // 2, max(0, height - longest) // 2
        width, height = min(width, longest), min(height, longest)
        picture = picture.crop((left, top, left + width, top + height))
        shorter = min(width, height)
        width, height = width * size // shorter, height * size // shorter
    picture = picture.resize((width, height), FILTERS[told["interpolation"]])
    left, top = (width - crop) // 2, (height - crop) // 2
    pixels = np.asarray(picture.crop((left, top, left + crop, top + crop)), np.float32).reshape(crop, crop, -1)
    normalised = (pixels / 255 - np.array(told["mean"], np.float32)) / np.array(told["std"], np.float32)
    return normalised.transpose(2, 0, 1)


def upright(path: Path | str) -> Image.Image:
    """Open a picture as evenhand does: turned as its EXIF data say, 16 bits scaled to 8, on white where transparent."""
    picture = ImageOps.exif_transpose(Image.open(path))
    if picture.mode == "I" or picture.mode.startswith("I;16"):
        return Image.fromarray(np.rint(np.asarray(picture) * (255 / 65535)).astype(np.uint8))
    if picture.has_transparency_data:
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture.convert("RGBA"))
    return picture


def load(path: Path | str) -> tuple[onnxruntime.InferenceSession, dict[str, Any]]:
    """Open a model and read what it says of itself."""
    session = onnxruntime.InferenceSession(str(path))
    metadata = session.get_modelmeta().custom_metadata_map
    return session, {key: json.loads(value) for key, value in metadata.items() if key not in ("model", "producer")}


def main() -> None:
    """Classify the pictures named on the command line."""
    model, *pictures = sys.argv[1:]
    session, told = load(model)
    for picture in pictures:
        (logits,) = session.run(["logits"], {"images": prepare(picture, told)[None]})
        print(f"{picture}: {told['class_names'][int(logits[0].argmax())]}")


if __name__ == "__main__":
    main()
