"""The folder of a run: how far the run came, and where its files are; their content is read by `Run`."""

import difflib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import LINK, is_regular, link_within
from evenhand.core.text import some
from evenhand.runs import filenames as names


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, which need not exist yet; nothing here is cached."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    # Progress

    @property
    def status(self) -> Literal["missing", "begun", "trained", "finished"]:
        """The progress of the run: no config yet, a config, the last epoch is done, or evaluated, the last step."""
        if self.has(names.SUMMARY):
            return "finished"
        if self.has(names.LAST_WEIGHTS):
            return "trained"
        return "begun" if self.begun else "missing"

    @property
    def finished(self) -> bool:
        """Whether it was evaluated."""
        return self.status == "finished"

    @property
    def begun(self) -> bool:
        """Whether the folder has a config."""
        return self.has(names.CONFIG)

    @property
    def can_resume(self) -> bool:
        """Whether an epoch was finished."""
        return self.has(names.STATE)

    @property
    def resume_command(self) -> str:
        """The command that continues it."""
        return shlex.join(["evenhand", "train", "--resume", str(self.path)])

    @property
    def changed(self) -> int:
        """When its config was written, in nanoseconds."""
        try:
            return (self.path / names.CONFIG).stat().st_mtime_ns
        except OSError as error:
            raise EvenhandError(f"{self.path} is no run: {reason(error)}.") from error

    @property
    def suggestion(self) -> str:
        """What to give instead if there is no such folder: a run or comparison next to it of a similar name, if any."""
        near = difflib.get_close_matches(self.path.name, _named_runs(self.path.parent), n=1)
        return f"did you mean {self.path.parent / near[0]}?" if near else "give the folder of a run."

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return is_regular(self.path / name, within=self.path)

    def refuse_links(self, *others: str) -> None:
        """Refuse a run in which a file or folder, or one of `others`, is a link: taken as missing, it would be made."""
        for name in (*names.FILES, *names.FOLDERS, *others):
            link = link_within(self.path / name, self.path)
            if link is not None:
                raise EvenhandError(f"Cannot use {link}: {LINK}; put the file itself there.")

    def require(self) -> None:
        """Refuse a folder without a run."""
        if self.begun:
            return
        raise EvenhandError(f"{self.path} is no run: {self._found_instead()}.")

    def _found_instead(self) -> str:
        if self.path.is_file():
            return "it is a file; give the folder of a run"
        if not self.path.is_dir():
            return "there is no such folder"
        if (self.path / names.COMPARISON).is_file():
            return "it is a comparison; give the folder of one of its runs"
        if self.has(names.MODEL_WEIGHTS):
            return "it is a model folder, for predict and load; give the run that it was exported from"
        if (self.path / names.CONFIG).is_symlink():
            return f"its {names.CONFIG} is a link, which is not followed"
        inside = some(_named_runs(self.path), 3)
        return f"it has no {names.CONFIG}" + (f"; it holds {inside}, give one of these" if inside else "")

    # Weights and state

    @property
    def best_weights(self) -> Path:
        """The file of the best epoch's weights so far; `training.checkpoint` reads and writes it."""
        return self.path / names.BEST_WEIGHTS

    @property
    def last_weights(self) -> Path:
        """The file of the last epoch's weights."""
        return self.path / names.LAST_WEIGHTS

    @property
    def refit_weights(self) -> Path:
        """The file of the weights trained again on training and validation images together."""
        return self.path / names.REFIT_WEIGHTS

    @property
    def state(self) -> Path:
        """The file of the state between two epochs."""
        return self.path / names.STATE

    @property
    def tensorboard(self) -> Path:
        """The folder for TensorBoard."""
        return self.path / names.TENSORBOARD


def _named_runs(folder: Path) -> list[str]:
    """Return the names of the runs and comparisons in a folder."""
    try:
        found = sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []
    return [each.name for each in found if any((each / name).is_file() for name in (names.CONFIG, names.COMPARISON))]
