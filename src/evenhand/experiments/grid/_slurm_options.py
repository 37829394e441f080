"""The options of `--slurm`: what sbatch is asked for, checked before anything is submitted."""

import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from evenhand.core.errors import EvenhandError

_TIME = re.compile(r"(?:(?P<days>\d{1,4})-)?(?P<fields>\d{1,6}(?::\d{1,2}){0,2})")
_Text = Annotated[str, Field(max_length=200, pattern=r"^[\w.:@&|*\[\]()/%+-]+$")]
"""Without spaces and line breaks, which would be lines of the batch script."""


def parse_minutes(text: str | int) -> int:
    """Return a time limit in minutes, rounded up, from any form that sbatch takes.

    Example:
        >>> from evenhand.experiments.grid._slurm_options import parse_minutes
        >>> [parse_minutes(text) for text in ("90", "90:30", "2:00:00", "1-12", "1-12:30")]
        [90, 91, 120, 2160, 2190]
    """
    found = _TIME.fullmatch(str(text))
    if found is None:
        raise ValueError("must be minutes, HH:MM:SS or D-HH:MM:SS")
    fields = [int(each) for each in found["fields"].split(":")]
    if found["days"] is not None:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
        hours, minutes, seconds = (*fields, 0, 0)[:3]
        hours += 24 * int(found["days"])
    elif len(fields) == 3:
        hours, minutes, seconds = fields
    else:  # minutes, minutes:seconds
        hours, (minutes, seconds) = 0, (*fields, 0)[:2]
    total = 60 * hours + minutes + math.ceil(seconds / 60)
    if total < 1:
        raise ValueError("must be at least a minute")
    return total


class SlurmOptions(BaseModel):
    """What each job of a grid asks SLURM for; a job is one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: _Text | None = None
    time: Annotated[int, BeforeValidator(parse_minutes)] = 60
    """Time limit in minutes; a run that reaches it is requeued and continues after its last epoch."""
    account: _Text | None = None
    qos: _Text | None = None
    cpus: int | None = Field(None, ge=1, le=1024)
    """Processors of a job, and its threads; None: the threads of the grid's runs."""
    gpus: int | None = Field(None, ge=0, le=1)
    """GPUs of a job: a run of a grid uses one device."""
    mem: Annotated[str, Field(pattern=r"^\d{1,9}[KMGT]?$")] | None = None
    gres: _Text | None = None
    constraint: _Text | None = None
    reservation: _Text | None = None
    exclude: _Text | None = None

    def to_sbatch(self, threads: int) -> dict[str, Any]:
        """Return the parameters of submitit's executor.

        Args:
            threads: of each run.
        """
        wanted = {
            "partition": self.partition,
            "time": self.time,
            "account": self.account,
            "qos": self.qos,
            "cpus_per_task": self.cpus or threads,
            "gpus_per_node": self.gpus or None,
            "mem": self.mem,
            "gres": self.gres,
            "constraint": self.constraint,
            "exclude": self.exclude,
        }
        further = {"requeue": True} | ({} if self.reservation is None else {"reservation": self.reservation})
        # The signal before the limit leaves time to stop between two steps; epochs are on disk anyway.
        delay = min(90, 15 * self.time)
        given = {key: value for key, value in wanted.items() if value is not None}
        return {**given, "job_name": "evenhand", "signal_delay_s": delay, "additional_parameters": further}


def parse_slurm_options(text: str) -> SlurmOptions:
    """Read `--slurm`: KEY=VALUE joined by commas.

    Raises:
        EvenhandError: a key is unknown or given twice, or a value is not allowed.

    Example:
        >>> from evenhand.experiments.grid._slurm_options import parse_slurm_options
        >>> options = parse_slurm_options("partition=gpu,time=2:00:00,gpus=1")
        >>> options.partition, options.time, options.gpus
        ('gpu', 120, 1)
    """
    given: dict[str, str] = {}
    known = ", ".join(SlurmOptions.model_fields)
    for setting in text.split(",") if text.strip() else ():
        key, equals, value = (each.strip() for each in setting.partition("="))
        if not (equals and key and value):
            raise EvenhandError(f"--slurm is KEY=VALUE joined by commas, such as partition=gpu,time=60, got {text!r}.")
        if key not in SlurmOptions.model_fields:
            raise EvenhandError(f"--slurm has no key {key!r}; it has {known}.")
        if key in given:
            raise EvenhandError(f"--slurm has {key} twice, in {text!r}; leave one out.")
        given[key] = value
    try:
        return SlurmOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key, why = str(first["loc"][0]), _ALLOWED.get(str(first["loc"][0]), "a name without spaces")
        raise EvenhandError(f"The {key} of --slurm must be {why}, got {given[key]!r}.") from None


_ALLOWED = {
    "time": "a minute or more, as minutes, HH:MM:SS or D-HH:MM:SS",
    "cpus": "a whole number from 1 to 1024",
    "gpus": "0 or 1, since each run uses one device",
    "mem": "a whole number with K, M, G or T, such as 8G",
}
