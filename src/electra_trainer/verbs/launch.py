"""`electra launch slurm JOB.sbatch --nodes 2 --gpus 4 -- pretrain DATA --preset base --out RUN`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from electra_trainer import cli
from electra_trainer.durable import write_output
from electra_trainer.errors import ConfigError
from electra_trainer.train.signals import FORWARDS

_NAME = re.compile(r"[\w.-]{1,64}")
_LINE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write a job file for a scheduler: pre-training on several machines that is told before its time is up, saves, and is queued again.

    What stands after `--` is a pretrain command as it would be typed on one machine.
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
    """Seconds before the end at which the run is told to save."""
    name: str = "electra"
    """Of the job."""
    partition: str | None = None
    """Where to run."""
    options: tuple[str, ...] = ()
    """Further lines for sbatch, for example --options account=nlp mem=64G."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()
    """What follows `--`."""


def parse(words: Sequence[str]) -> Arguments:
    """Flags -> Arguments; what follows `--` is kept as it is."""
    words = list(words)
    cut = words.index("--") if "--" in words else len(words)
    arguments: Arguments = cli.parse(Arguments, words[:cut], verb="launch")
    return replace(arguments, command=tuple(words[cut + 1 :]))


def run(arguments: Arguments) -> None:
    """Check, and write the file."""
    _check(arguments)
    write_output(arguments.file, sbatch(arguments).encode())
    print(f"electra: {arguments.file}: type: sbatch {shlex.quote(str(arguments.file))}", file=sys.stderr)


def _check(arguments: Arguments) -> None:
    command = arguments.command
    if not command or command[0] != "pretrain":
        raise ConfigError("launch: expected `-- pretrain DATA … --out RUN` after the flags.")
    if not any(word == "--out" or word.startswith("--out=") for word in command):
        raise ConfigError(
            "launch: the pretrain command has no --out RUN, which a job that is queued again goes on with."
        )
    if any(word.split("=")[0] in ("--restarts", "--processes") for word in command):
        raise ConfigError(
            "launch: leave --restarts and --processes out: the job starts the processes, and is queued again."
        )
    counts = (
        ("nodes", arguments.nodes, 1), ("gpus", arguments.gpus, 0), ("cores", arguments.cores, 1), ("warning", arguments.warning, 15),
    )  # fmt: skip
    for name, value, least in counts:
        if value < least:
            raise ConfigError(f"--{name} {value}: expected {least} or more.")
    if not re.fullmatch(r"(\d+-)?\d{1,2}(:\d{2}){0,2}", arguments.time):
        raise ConfigError(f"--time {arguments.time!r}: expected D-HH:MM:SS or HH:MM:SS.")
    for name, text in (("name", arguments.name), ("partition", arguments.partition or "x")):
        if not _NAME.fullmatch(text):
            raise ConfigError(f"--{name} {text!r}: expected letters, digits, dots and hyphens.")
    for option in arguments.options:
        if not _LINE.fullmatch(option) or option.startswith("-"):
            raise ConfigError(f"--options {option!r}: expected name=value as sbatch has it, without hyphens in front.")


def sbatch(arguments: Arguments) -> str:
    """The text of the file."""
    processes = max(1, arguments.gpus)
    lines = [
        f"--job-name={arguments.name}",
        f"--nodes={arguments.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={arguments.cores * processes}",
        *([f"--gpus-per-node={arguments.gpus}"] if arguments.gpus else []),
        f"--time={arguments.time}",
        f"--signal=USR1@{arguments.warning}",
        "--requeue",
        "--open-mode=append",
        f"--output={arguments.name}-%j.log",
        *([f"--partition={arguments.partition}"] if arguments.partition else []),
        *(f"--{option}" for option in arguments.options),
    ]
    flags = "\n".join(f"#SBATCH {line}" for line in lines)
    out = _value_of(arguments.command, "--out")
    return f"""#!/bin/bash
{flags}
# Slurm tells the run (USR1) {arguments.warning} s before its time is up; it saves and ends with code 75, which torchrun hides and
# status.json says; then the job is queued again and goes on.
set -u
export {" ".join(f"{name}={value}" for name, value in FORWARDS.items())}
export OMP_NUM_THREADS={arguments.cores} OMP_WAIT_POLICY=passive
export ELECTRA_LAUNCH="$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}"
# Jobs that share a machine need ports of their own
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) port=$((20000 + SLURM_JOB_ID % 12000))

srun --kill-on-bad-exit=1 torchrun \\
  --nnodes="$SLURM_NNODES" --nproc-per-node={processes} \\
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port" \\
  -m electra_trainer {shlex.join(arguments.command)}
code=$?

status={shlex.quote(str(Path(out) / "status.json"))}
if grep -qs "\\"launch\\": \\"$ELECTRA_LAUNCH\\"" "$status"; then
  code=$(sed -n 's/.*"exit_code": *\\([0-9]*\\).*/\\1/p' "$status" | head -n 1)
fi
echo "electra: ended with code $code"
case "$code" in
  0 | 65 | 66 | 76 | 78) exit "$code" ;; # done, or an error that would come again
  *) scontrol requeue "$SLURM_JOB_ID" ;;
esac
"""


def _value_of(words: Sequence[str], flag: str) -> str:
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    raise ConfigError(f"launch: {flag} has no value.")
