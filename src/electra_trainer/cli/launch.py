"""`electra launch slurm JOB.sbatch --nodes 2 --gpus 4 -- pretrain DATA --preset base --out RUN`."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from electra_trainer.errors import ConfigError
from electra_trainer.files import durable, wording
from electra_trainer.runs.signals import FORWARDS, WAITS
from electra_trainer.train.from_flags import taken

_MOST_WARNING = 65535
"""Seconds; Slurm's own limit."""
_USELESS = 3
"""Starts in a row without a new checkpoint after which the job is not queued again."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Write a job file for a scheduler: pre-training on several machines that is signalled before its time is up,
    saves, and is queued again.

    After `--` comes a pretrain command as it would be typed on one machine.
    """

    scheduler: tyro.conf.Positional[Literal["slurm"]]
    """slurm: a file for sbatch."""
    file: tyro.conf.Positional[Path]
    """Where to write it."""
    nodes: int = 1
    """Machines."""
    gpus: int = 1
    """GPUs of each machine; 0: its cores, in one process."""
    cores: int = 8
    """Cores for each process."""
    time: str = "24:00:00"
    """Longest time of one job, as Slurm writes it (D-HH:MM:SS or HH:MM:SS); a job that is not done is queued again."""
    warning: int = 120
    """Seconds before the end at which the run is signalled to save: more than a save takes, which is tried twice if the
    disk fails.
    """
    name: str = "electra"
    """The job's name."""
    partition: str | None = None
    """Slurm partition."""
    options: tuple[str, ...] = ()
    """Further lines for sbatch, for example --options account=nlp mem=64G."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The words after `--`."""

    def run(self) -> None:
        """Check, and write the file."""
        _check(self)
        durable.write_output(self.file, sbatch(self).encode())
        print(f"electra: {self.file}: type: sbatch {shlex.quote(str(self.file))}", file=sys.stderr)


def _check(request: Launch) -> None:
    """ConfigError: the command is not one that can be queued again, or a value is not one that Slurm takes."""
    command = request.command
    if command[:1] != ("pretrain",):
        raise ConfigError("launch: expected `-- pretrain DATA … --out RUN` after the flags.")
    flags = {word.split("=")[0] for word in command}
    if "--out" not in flags:
        raise ConfigError("launch: the pretrain command has no --out RUN, from which the next job resumes.")
    if not _out(request):
        raise ConfigError("launch: --out has no value.")
    if flags & {"--restarts", "--processes"}:
        raise ConfigError("launch: leave --restarts and --processes out: the job sees to processes and restarts.")
    for name, least in (("nodes", 1), ("gpus", 0), ("cores", 1), ("warning", 15)):
        if getattr(request, name) < least:
            raise ConfigError(f"--{name} {getattr(request, name)}: expected {least} or more.")
    if not re.fullmatch(r"(\d+-)?\d{1,2}(:\d{2}){0,2}", request.time):
        raise ConfigError(f"--time {request.time!r}: expected D-HH:MM:SS or HH:MM:SS.")
    seconds = _seconds(request.time)
    if request.warning > _MOST_WARNING or 0 < seconds <= request.warning:  # 0: without a limit
        raise ConfigError(
            f"--warning {request.warning}: expected fewer seconds than --time {request.time} has ({seconds}), and at "
            f"most {_MOST_WARNING}."
        )
    for name, text in (("name", request.name), ("partition", request.partition or "x")):
        if not re.fullmatch(r"[\w.-]{1,64}", text):
            raise ConfigError(f"--{name} {text!r}: expected letters, digits, dots and hyphens.")
    for option in request.options:
        if not re.fullmatch(r"[\x20-\x7e]+", option) or option.startswith("-"):
            raise ConfigError(f"--options {option!r}: expected name=value as sbatch takes it, without leading hyphens.")


@dataclass(frozen=True)
class _Out:
    out: str | None = None


def _out(request: Launch) -> str:
    """The run folder that the command names; empty if its flag has no value."""
    out = None if request.command[-1] == "--out" else taken(_Out, request.command)[0].out
    return str(Path(out)) if out else ""


def _seconds(time: str) -> int:
    """Slurm's M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def sbatch(request: Launch) -> str:
    """The text of the job file."""
    return wording.render(
        "job.sbatch",
        job=request,
        processes=max(1, request.gpus),
        out=_out(request),
        variables={**FORWARDS, **{name: max(int(value), request.warning) for name, value in WAITS.items()}},
        useless_starts=_USELESS,
    )
