"""The scripts that make data sets out of git repositories, on small repositories made here."""

import io
import re
import subprocess
import sys
from pathlib import Path

import git_files
import make_cifar100
import make_svhn
import make_tiny_imagenet
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data._tiny_imagenet import load_tiny_imagenet, name_classes
from evenhand.data.decode import read_image
from evenhand.data.standard import CIFAR100, SVHN

TOOLS = Path(__file__).parents[2] / "tools"


def noise(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def png(pixels: NDArray[np.uint8], kind: str = "png") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    """Make a git repository with one commit."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "--force", "."], [*identity, "commit", "--quiet", "-m", "Files"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


def annotation(size: tuple[int, int], *objects: tuple[int, make_svhn.Box]) -> bytes:
    listed = "".join(
        f"<object><name>{label}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax>"
        f"<ymax>{box[3]}</ymax></bndbox></object>"
        for label, box in objects
    )
    return f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{listed}</annotation>".encode()


@pytest.mark.parametrize("bare", [False, True])
def test_files_are_read_from_a_checkout_and_from_its_git_directory(tmp_path: Path, bare: bool) -> None:
    contents = {"a/10.bin": b"ten\n\n", "a/9.bin": b"", "a/b/1.bin": bytes(range(256)), "a/x.txt": b"x", "c.bin": b"c"}
    made = repository(tmp_path, contents)
    git = made / ".git" if bare else made
    files = git_files.list_files(git, "a", ".bin")
    assert list(files) == ["10.bin", "9.bin", "b/1.bin"]
    assert list(git_files.read_files(git, list(files.values()))) == [contents[f"a/{path}"] for path in files]
    with pytest.raises(EvenhandError, match="lacks the content of a file"):
        list(git_files.read_files(git, ["0" * 40]))
    with pytest.raises(EvenhandError, match=r"has no \.png files in a"):
        git_files.list_files(git, "a", ".png")


@pytest.mark.parametrize(
    "box",
    [
        (10, 5, 22, 37),  # tall
        (10, 5, 21, 37),  # tall, by an odd number of pixels
        (4, 20, 36, 31),  # wide
        (8, 8, 40, 40),  # square
        (-3, -2, 9, 30),  # past two edges
        (50, 25, 62, 57),  # past the other two
    ],
)
def test_a_box_becomes_a_square_around_its_centre(box: make_svhn.Box) -> None:
    """The square has 32 pixels here, so the digit must be pixels of the picture, repeated beyond its edges."""
    picture, margin = noise(48, 60, 3), 40
    padded = Image.fromarray(np.pad(picture, ((margin, margin), (margin, margin), (0, 0)), mode="edge"))
    centre_x, centre_y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    corner = (np.ceil(centre_x - 16) + margin, np.ceil(centre_y - 16) + margin)
    expected = padded.crop((*corner, corner[0] + 32, corner[1] + 32))
    square = make_svhn.cut_square(picture, box)
    assert np.array_equal(square, np.asarray(expected))
    assert np.array_equal(make_svhn.resize(square), square)


@pytest.mark.parametrize("side", [11, 50, 100])
def test_a_square_is_resized_without_a_shift(side: int) -> None:
    """A linear ramp stays one: position i of 32 lies at (i + 1/2) * side / 32 - 1/2 of the square."""
    ramp = np.repeat(np.arange(side)[None], side, 0) * 2 + 20
    picture = np.stack([ramp, ramp.T, ramp], 2).astype(np.uint8)
    digit = make_svhn.resize(picture).astype(float)
    expected = 20 + 2 * ((np.arange(32) + 0.5) * side / 32 - 0.5)
    inside = slice(4, 28)  # near an edge a filter sees less than the ramp
    assert np.abs(digit[:, inside, 0] - expected[inside]).max() <= 0.51
    assert np.abs(digit[inside, :, 1].T - expected[inside]).max() <= 0.51


def test_digits_are_cut_in_the_order_of_the_numbers_of_their_pictures(tmp_path: Path) -> None:
    pictures = {number: noise(40, 90, 3, seed=number) for number in (2, 9, 10)}
    marks = {
        2: [(10, (0, 4, 12, 36)), (3, (20, 4, 36, 36))],
        9: [(0, (30, 2, 40, 34))],
        10: [(7, (30, 2, 40, 34)), (1, (60, 2, 66, 34))],
    }
    images = {f"SVHN/train/{number}.png": png(picture) for number, picture in pictures.items()}
    images["SVHN/train/cropped/2.png"] = png(noise(8, 8, 3))
    boxes = {f"annotation/train/{number}.xml": annotation((90, 40), *marks[number]) for number in pictures}
    pixels, labels = make_svhn.read_split(
        repository(tmp_path / "images", images), repository(tmp_path / "boxes", boxes), "train"
    )
    assert labels.tolist() == [0, 3, 0, 7, 1]
    assert np.array_equal(pixels[1], pictures[2][4:36, 12:44])
    assert np.array_equal(pixels[2], pictures[9][2:34, 19:51])
    assert np.array_equal(pixels[4], pictures[10][2:34, 47:79])


def test_pictures_that_do_not_fit_their_annotations_are_refused(tmp_path: Path) -> None:
    images = repository(tmp_path / "images", {"SVHN/test/1.png": png(noise(40, 90, 3))})
    for name, content, reason in (
        ("1.xml", annotation((91, 40), (1, (0, 0, 9, 9))), r"1\.png is 90x40, but its annotation says 91x40"),
        ("2.xml", annotation((90, 40), (1, (0, 0, 9, 9))), r"lacks SVHN/test/2\.png"),
        ("1.xml", annotation((90, 40), (11, (0, 0, 9, 9))), r"annotation/test/1\.xml .* 11 in the box"),
        ("1.xml", annotation((90, 40), (1, (9, 0, 9, 9))), r"annotation/test/1\.xml .* 9, 0, 9, 9"),
        ("1.xml", b"<annotation>", r"annotation/test/1\.xml is no annotation"),
    ):
        boxes = repository(tmp_path / f"boxes{reason}".replace("/", " "), {f"annotation/test/{name}": content})
        with pytest.raises(EvenhandError, match=reason):
            make_svhn.read_split(images, boxes, "test")


def test_cifar100_has_the_labels_of_its_folders(tmp_path: Path) -> None:
    pixels = {name: noise(32, 32, 3, seed=place) for place, name in enumerate(["worm/a", "apple/b", "apple/a"])}
    made = repository(tmp_path, {f"train/{name}.png": png(image) for name, image in pixels.items()})
    images, labels = make_cifar100.read_split(made, "train")
    assert labels.tolist() == [0, 0, 99]
    assert all(
        np.array_equal(image, pixels[name])
        for image, name in zip(images, ["apple/a", "apple/b", "worm/a"], strict=True)
    )
    repository(tmp_path, {"train/wurm/a.png": png(noise(32, 32, 3))})
    with pytest.raises(EvenhandError, match=r"train/wurm of .* is no class of CIFAR-100"):
        make_cifar100.read_split(made, "train")


def test_tiny_imagenet_is_read_as_its_folder_is(tmp_path: Path) -> None:
    files = {f"train/{wnid}/images/{wnid}_{n}.JPEG": noise(64, 64, 3, seed=n) for wnid in ("n2", "n1") for n in (2, 10)}
    files |= {f"val/images/val_{n}.JPEG": noise(64, 64, seed=n) for n in (2, 10)}
    content = {path: png(image, "jpeg") for path, image in files.items()}
    content["val/val_annotations.txt"] = b"val_2.JPEG\tn2\t0\t0\t9\t9\nval_10.JPEG\tn1\t0\t0\t9\t9\n"
    content["words.txt"] = b"n1\tgoldfish, carp\nn2\tbullfrog\n"
    made = repository(tmp_path, {f"tiny-imagenet-200/{path}": each for path, each in content.items()})
    (train, labels), wnids = make_tiny_imagenet.read_train(made)
    test, test_labels = make_tiny_imagenet.read_test(made, wnids)
    table = load_tiny_imagenet(made)
    assert table.labels.tolist() == [*labels, *test_labels]
    assert table.class_names == name_classes(make_tiny_imagenet.read_text(made, "words.txt"), wnids)
    decoded = [read_image(made / "tiny-imagenet-200" / path, channels=3) for path in table.ids.tolist()]
    assert np.array_equal(np.stack(decoded), np.concatenate([train, test]))


def test_only_the_whole_set_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "svhn.npz"
    labels = np.repeat(np.arange(10), SVHN.train_counts)
    test_labels = np.repeat(np.arange(10), make_svhn.TEST_COUNTS)
    assert (len(labels), len(test_labels)) == (73_257, SVHN.test)
    # A view of one image: the counts alone matter here.
    train, test = ((np.broadcast_to(noise(1, 1, 1, 3), (len(each), 1, 1, 3)), each) for each in (labels, test_labels))
    wrong = test[0], np.append(test_labels[1:], 9)
    refused = "Test images of SVHN: 26,032 images, not 26,032; class 0 has 1743, not 1744, and 1 more classes differ."
    with pytest.raises(EvenhandError, match=re.escape(refused)):
        git_files.write_dataset(out, SVHN, train, wrong, make_svhn.TEST_COUNTS, SVHN.class_names)
    short = train[0][1:], labels[1:]
    with pytest.raises(EvenhandError, match="73,256 images, not 73,257; class 0 has 4947, not 4948"):
        git_files.write_dataset(out, SVHN, short, test, make_svhn.TEST_COUNTS, SVHN.class_names)
    assert not out.exists()
    git_files.write_dataset(out, SVHN, train, test, make_svhn.TEST_COUNTS, SVHN.class_names)
    assert "73,257 training and 26,032 test images" in capsys.readouterr().out
    with np.load(out) as written:
        assert np.array_equal(written["train_labels"], labels)
        assert written["class_names"].tolist() == list("0123456789")


def test_a_script_says_in_one_sentence_what_is_missing(tmp_path: Path) -> None:
    made = repository(
        tmp_path, {f"{split}/{name}/a.png": png(noise(32, 32, 3)) for split in ("train", "test") for name in ("apple",)}
    )
    script = [sys.executable, str(TOOLS / "make_cifar100.py"), str(made), str(tmp_path / "cifar100.npz")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"Training images of {CIFAR100.title}: 1 images, not 50,000; class 0 has 1, not 500, and 99 more classes "
        "differ.\n"
    )
