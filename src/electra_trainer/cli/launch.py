"""`electra launch slurm JOB.sbatch --nodes 2 --gpus 4 -- pretrain DATA --preset base --out RUN`."""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from electra_trainer.cli import main as cli
from electra_trainer.errors import ConfigError
from electra_trainer.files import durable, wording
from electra_trainer.runs.signals import FORWARDS, WAITS

_MOST_WARNING = 65535
"""Seconds; Slurm's own limit."""
_USELESS = 3
"""Starts in a row without a new checkpoint after which the job is not queued again."""


@dataclass(frozen=True, kw_only=True)
class LaunchArguments:
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

    @staticmethod
    def begin(words: Sequence[str]) -> dict[str, Any]:
        """The words after `--` are kept as they are."""
        return {"command": tuple(words[words.index("--") + 1 :])} if "--" in words else {}


def run_launch(arguments: LaunchArguments) -> None:
    """Check, and write the file."""
    _check(arguments)
    durable.write_output(arguments.file, sbatch(arguments).encode())
    print(f"electra: {arguments.file}: type: sbatch {shlex.quote(str(arguments.file))}", file=sys.stderr)


def _check(arguments: LaunchArguments) -> None:
    """ConfigError: the command is not one that can be queued again, or a value is not one that Slurm takes."""
    command = arguments.command
    if command[:1] != ("pretrain",):
        raise ConfigError("launch: expected `-- pretrain DATA … --out RUN` after the flags.")
    flags = {word.split("=")[0] for word in command}
    if "--out" not in flags:
        raise ConfigError("launch: the pretrain command has no --out RUN, from which the next job resumes.")
    if not cli.value_of(command, "--out"):
        raise ConfigError("launch: --out has no value.")
    if flags & {"--restarts", "--processes"}:
        raise ConfigError("launch: leave --restarts and --processes out: the job sees to processes and restarts.")
    for name, least in (("nodes", 1), ("gpus", 0), ("cores", 1), ("warning", 15)):
        if getattr(arguments, name) < least:
            raise ConfigError(f"--{name} {getattr(arguments, name)}: expected {least} or more.")
    if not re.fullmatch(r"(\d+-)?\d{1,2}(:\d{2}){0,2}", arguments.time):
        raise ConfigError(f"--time {arguments.time!r}: expected D-HH:MM:SS or HH:MM:SS.")
    seconds = _seconds(arguments.time)
    if arguments.warning > _MOST_WARNING or 0 < seconds <= arguments.warning:  # 0: without a limit
        raise ConfigError(
            f"--warning {arguments.warning}: expected fewer seconds than --time {arguments.time} has ({seconds}), and "
            "at most "
            f"{_MOST_WARNING}."
        )
    for name, text in (("name", arguments.name), ("partition", arguments.partition or "x")):
        if not re.fullmatch(r"[\w.-]{1,64}", text):
            raise ConfigError(f"--{name} {text!r}: expected letters, digits, dots and hyphens.")
    for option in arguments.options:
        if not re.fullmatch(r"[\x20-\x7e]+", option) or option.startswith("-"):
            raise ConfigError(f"--options {option!r}: expected name=value as sbatch takes it, without leading hyphens.")


def _seconds(time: str) -> int:
    """Slurm's M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def sbatch(arguments: LaunchArguments) -> str:
    """The text of the job file."""
    return wording.render(
        "job.sbatch",
        job=arguments,
        processes=max(1, arguments.gpus),
        out=str(Path(cli.value_of(arguments.command, "--out") or "")),
        variables={**FORWARDS, **{name: max(int(value), arguments.warning) for name, value in WAITS.items()}},
        useless_starts=_USELESS,
    )
