"""Classify images with an exported model: onnxruntime, numpy and Pillow are all it needs.

    evenhand export RUN --onnx model.onnx
    python examples/onnx_predict.py model.onnx IMAGE...

Prints the most probable class of each image; for a model exported with --costs that of least expected cost, with
--coverage the set of classes, and with --min-precision "unsure" where the answer is not sure enough. Preprocessing,
costs and thresholds are stored in the model's metadata.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import onnxruntime
    from numpy.typing import NDArray
    from PIL import Image, ImageOps
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"{error.name} is missing; install it with: pip install onnxruntime numpy pillow")

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}


def prepare(path: Path | str, metadata: dict[str, Any]) -> NDArray[np.float32]:
    """Return an image as the network expects it: resized, centre-cropped, normalised, (C, S, S)."""
    image = upright(path).convert("RGB" if metadata["channels"] == 3 else "L")
    size, crop = metadata["image_size"], metadata["crop_size"]
    width, height = image.size
    if metadata["resize_rule"] == "stretch":
        width, height = size, size
    else:
        # A very long image is cropped before it is resized: the rest would be cropped away anyway.
        longest = metadata["max_aspect"] * min(width, height)
        left, top = max(0, width - longest) // 2, max(0, height - longest) // 2
        width, height = min(width, longest), min(height, longest)
        image = image.crop((left, top, left + width, top + height))
        shorter = min(width, height)
        width, height = width * size // shorter, height * size // shorter
    image = image.resize((width, height), FILTERS[metadata["interpolation"]])
    left, top = (width - crop) // 2, (height - crop) // 2
    pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), np.float32).reshape(crop, crop, -1)
    normalised = (pixels / 255 - np.array(metadata["mean"], np.float32)) / np.array(metadata["std"], np.float32)
    return normalised.transpose(2, 0, 1)


def upright(path: Path | str) -> Image.Image:
    """Open an image as evenhand does: rotated by its EXIF data, 16 bits scaled to 8, transparency on white."""
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode == "I" or image.mode.startswith("I;16"):
        return Image.fromarray(np.rint(np.asarray(image) * (255 / 65535)).astype(np.uint8))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA"))
    return image


def load(path: Path | str) -> tuple[onnxruntime.InferenceSession, dict[str, Any]]:
    """Open a model and read its metadata."""
    session = onnxruntime.InferenceSession(str(path))
    metadata = session.get_modelmeta().custom_metadata_map
    return session, {key: json.loads(value) for key, value in metadata.items() if key not in ("model", "producer")}


def decide(logits: NDArray[np.float32], costs: list[list[float]] | None) -> int:
    """Return the most probable class, or with costs (true x predicted) the class of least expected cost."""
    if costs is None:
        return int(logits.argmax())
    return int((probabilities(logits) @ np.array(costs)).argmin())


def answer(logits: NDArray[np.float32], names: list[str], metadata: dict[str, Any]) -> str:
    """Return the class, the classes of the prediction set, or "unsure", as the model was exported."""
    sets, answers = metadata.get("set_thresholds"), metadata.get("answer_thresholds")
    p = probabilities(logits).astype(np.float32)
    best, found = int(p.argmax()), []
    if answers:
        found.append(names[best] if answers[best] is not None and p[best] >= answers[best] else "unsure")
    if sets:
        inside = [k for k in (-p).argsort() if k == best or sets[k] is None or p[k] >= sets[k]]
        found.append("|".join(names[k] for k in inside))
    return " ".join(found) or names[decide(logits, metadata.get("costs"))]


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the softmax of the logits of an image."""
    odds = np.exp(logits.astype(np.float64) - logits.max())
    return odds / odds.sum()


def main() -> None:
    """Classify the images named on the command line."""
    parser = argparse.ArgumentParser(description="Classify images with a model that evenhand exported to ONNX.")
    parser.add_argument("model", help="file that `evenhand export RUN --onnx FILE` wrote")
    parser.add_argument("images", nargs="+", help="image files")
    given = parser.parse_args()
    for file in (given.model, *given.images):
        if not Path(file).is_file():
            sys.exit(f"There is no file {file}.")
    try:
        session, metadata = load(given.model)
        class_names = metadata["class_names"]
    except Exception as error:  # onnxruntime has an error of its own for each fault
        sys.exit(f"Cannot use {given.model} ({type(error).__name__}); give a file that evenhand export wrote.")
    for image in given.images:
        try:
            pixels = prepare(image, metadata)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            sys.exit(f"Cannot read {image}: {error}.")
        (logits,) = session.run(["logits"], {"images": pixels[None]})
        print(f"{image}: {answer(logits[0], class_names, metadata)}")


if __name__ == "__main__":
    main()
