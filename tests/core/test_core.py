"""Seeds, atomic files and the spec grammar."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing
from evenhand.core.seeds import stream
from evenhand.core.spec import SpecPart, parse


def test_streams_are_named_and_stable_across_processes() -> None:
    here = stream(5, "order", 2).integers(0, 2**31, 4).tolist()
    code = "from evenhand.core.seeds import stream; print(stream(5, 'order', 2).integers(0, 2**31, 4).tolist())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)
    different = [stream(6, "order", 2), stream(5, "subset", 2), stream(5, "order", 3), stream(5, "order")]
    assert all(other.integers(0, 2**31, 4).tolist() != here for other in different)


def test_streams_are_uncorrelated() -> None:
    a, b = stream(0, "order").random(20_000), stream(0, "augmentation").random(20_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    with replacing(target) as temporary:
        temporary.write_text("old")
    with pytest.raises(RuntimeError, match="cut short"), replacing(target) as temporary:  # noqa: PT012
        temporary.write_text("half of the n")
        raise RuntimeError("cut short")
    assert target.read_text() == "old"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_full_disk_and_a_bad_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match=r"Cannot write .*No space left"), replacing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    (tmp_path / "plain").write_text("")
    with pytest.raises(EvenhandError, match="Cannot write"), replacing(tmp_path / "plain" / "x"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["plain"]


def test_specs() -> None:
    assert parse("cce") == (SpecPart("cce"),)
    assert parse("step:10") == (SpecPart("step", "10"),)
    assert parse("balanced-softmax+cce:gamma=-2") == (
        SpecPart("balanced-softmax"),
        SpecPart("cce", None, {"gamma": "-2"}),
    )
    assert parse("cce:gamma=1e+2") == (SpecPart("cce", None, {"gamma": "1e+2"}),)


@pytest.mark.parametrize("text", ["", "a,,b", "CCE", "cce:gamma=", "cce:=1", "cce:g=1:g=2", "cce::", "a+", "a:1:2"])
def test_bad_specs_show_what_was_read(text: str) -> None:
    with pytest.raises(EvenhandError, match="Cannot read"):
        parse(text)


@given(text=st.text(max_size=40))
@settings(deadline=None, derandomize=True)
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    with contextlib.suppress(EvenhandError):
        parse(text)
