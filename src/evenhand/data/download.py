"""Download files: to a temporary name, checked by checksum, then renamed; and unpack them safely."""

import hashlib
import http.client
import os
import shutil
import socket
import stat
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from evenhand.core.errors import EvenhandError
from evenhand.core.files import cannot_write, replacing
from evenhand.core.opening import open_regular
from evenhand.data._arrays import reading

_CHUNK = 1 << 20
_TIMEOUT = 30.0
_MOST_BYTES = 4 << 30
_MOST_FILES = 500_000


class MissingData(EvenhandError):  # noqa: N818 - data are missing, not the program
    """The files of a data set are neither on this machine nor could they be downloaded."""


@dataclass(frozen=True)
class Remote:
    """A file to download, and its checksum."""

    url: str
    checksum: str
    """`md5:` or `sha256:` and the digits."""

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[-1]


def fetch(source: str, remotes: Sequence[Remote], folder: Path, *, download: bool = True) -> None:
    """Download the files that are not in the folder; each is verified before it gets its final name.

    Args:
        source: the data set, for messages.
        remotes: the files.
        folder: where they belong; created if missing.
        download: False: raise an error if any is missing.

    Raises:
        EvenhandError: a file cannot be downloaded; the message names the files and where to put them.

    Example:
        >>> from pathlib import Path
        >>> from evenhand.core.errors import EvenhandError
        >>> from evenhand.data.download import Remote, fetch
        >>> remote = Remote("http://example.org/cats.zip", "md5:d41d8cd98f00b204e9800998ecf8427e")
        >>> try:
        ...     fetch("cats", [remote], Path("/data"), download=False)
        ... except EvenhandError as error:
        ...     print(error)
        Cannot find cats, and it is not downloaded here; put cats.zip into /data.
    """
    missing = [remote for remote in remotes if not (folder / remote.file).is_file()]
    if not missing:
        return
    *others, last = [remote.file for remote in missing]
    remedy = f"put {', '.join(others)}{' and ' * bool(others)}{last} into {folder}."
    if not download:
        raise MissingData(f"Cannot find {source}, and it is not downloaded here; {remedy}")
    for remote in missing:
        with replacing(folder / remote.file) as temporary:
            with temporary.open("wb") as file:
                try:
                    _transfer(remote, file)
                except _BrokenTransferError as error:
                    raise MissingData(f"Cannot download {source} ({error}); {remedy}") from error
            if not verify(temporary, remote.checksum):
                kind = remote.checksum.split(":")[0]
                raise EvenhandError(
                    f"The file from {remote.url} is not the known {remote.file} of {source} (its {kind} differs); "
                    f"try again later, or {remedy}"
                )


def verify(path: Path, checksum: str) -> bool:
    """Return whether a file has this checksum.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.data.download import verify
        >>> path = Path(tempfile.mkdtemp()) / "empty"
        >>> path.touch()
        >>> verify(path, "md5:d41d8cd98f00b204e9800998ecf8427e")
        True
    """
    kind, digits = checksum.split(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    with open_regular(path) as file:
        while content := file.read(_CHUNK):
            digest.update(content)
    return digest.hexdigest() == digits


def unpack(archive: Path, target: Path) -> None:
    """Unpack the folder `target.name` of a zip file as `target`, all of it or nothing.

    Archives with members outside of it (`../`, absolute names, links) or of more than 4 GB are refused before anything
    is written.
    """
    with reading(archive), open_regular(archive) as file, zipfile.ZipFile(file) as opened:
        members = opened.infolist()
        _refuse_dangerous(archive, members)
        temporary = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
            with _progress(MofNCompleteColumn()) as progress:
                for member in progress.track(members, description=f"Unpacking {archive.name}"):
                    opened.extract(member, temporary)
            if not (temporary / target.name).is_dir():
                raise EvenhandError(f"{archive} does not have a folder {target.name}; download it again.")
            # Another process may have been faster and unpacked the same.
            if not target.is_dir():
                os.rename(temporary / target.name, target)
        except OSError as error:
            message = str(cannot_write(target.parent, error)).removeprefix("Cannot write ")
            raise EvenhandError(f"Cannot unpack {archive} into {message}") from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)


class _BrokenTransferError(Exception):
    """The reason why a download failed."""


def _transfer(remote: Remote, file: BinaryIO) -> None:
    """Download a URL into a file; network errors become a _BrokenTransferError."""
    request = urllib.request.Request(remote.url, headers={"User-Agent": "evenhand"})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenTransferError(_reason(error)) from error
    with response, _progress(DownloadColumn()) as progress:
        total = response.length
        task = progress.add_task(f"Downloading {remote.file}", total=total)
        arrived = 0
        while True:
            try:
                content = response.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _BrokenTransferError(_reason(error)) from error
            if not content:
                break
            file.write(content)
            arrived += len(content)
            progress.update(task, completed=arrived)
    if total is not None and arrived < total:
        raise _BrokenTransferError(f"the connection broke after {arrived:,} of {total:,} bytes")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}".rstrip()
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return "no network"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror[0].lower() + cause.strerror[1:]
    return str(cause).rstrip(".") or type(cause).__name__


def _refuse_dangerous(archive: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if is_link or name.is_absolute() or ".." in name.parts:
            raise EvenhandError(f"{archive} has {member.filename!r}, which would leave its folder; get another copy.")
    size = sum(member.file_size for member in members)
    if size > _MOST_BYTES or len(members) > _MOST_FILES:
        raise EvenhandError(
            f"{archive} would unpack to {size:,} bytes in {len(members):,} files, more than any known data set; "
            "get another copy."
        )


def _progress(amount: ProgressColumn) -> Progress:
    """Make a progress bar, disabled where stderr is a file or a pipe."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
