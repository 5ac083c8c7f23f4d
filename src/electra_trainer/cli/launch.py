"""`electra launch slurm JOB.sbatch --nodes 2 --gpus 4 -- pretrain DATA --preset base --out RUN`."""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from electra_trainer.cli import main as cli
from electra_trainer.errors import ConfigError
from electra_trainer.files.durable import write_output
from electra_trainer.runs.signals import FORWARDS, WAITS

_NAME = re.compile(r"[\w.-]{1,64}")
_MOST_WARNING = 65535
"""Seconds; Slurm's own limit."""
_USELESS = 3
"""Starts in a row without a new checkpoint after which the job is not queued again."""
_LINE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class LaunchArguments:
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
    """Seconds before the end at which the run is told to save: more than a save takes, which is tried twice where the disk fails."""
    name: str = "electra"
    """Of the job."""
    partition: str | None = None
    """Where to run."""
    options: tuple[str, ...] = ()
    """Further lines for sbatch, for example --options account=nlp mem=64G."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()
    """What follows `--`."""


def parse_launch(words: Sequence[str]) -> LaunchArguments:
    """Flags -> Arguments; what follows `--` is kept as it is."""
    words = list(words)
    cut = words.index("--") if "--" in words else len(words)
    arguments: LaunchArguments = cli.parse(LaunchArguments, words[:cut], verb="launch")
    return replace(arguments, command=tuple(words[cut + 1 :]))


def run_launch(arguments: LaunchArguments) -> None:
    """Check, and write the file."""
    _check(arguments)
    write_output(arguments.file, sbatch(arguments).encode())
    print(f"electra: {arguments.file}: type: sbatch {shlex.quote(str(arguments.file))}", file=sys.stderr)


def _check(arguments: LaunchArguments) -> None:
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
    seconds = _seconds(arguments.time)
    if arguments.warning > _MOST_WARNING or 0 < seconds <= arguments.warning:  # 0: without a limit
        raise ConfigError(
            f"--warning {arguments.warning}: expected fewer seconds than --time {arguments.time} has ({seconds}), and at most "
            f"{_MOST_WARNING}."
        )
    for name, text in (("name", arguments.name), ("partition", arguments.partition or "x")):
        if not _NAME.fullmatch(text):
            raise ConfigError(f"--{name} {text!r}: expected letters, digits, dots and hyphens.")
    for option in arguments.options:
        if not _LINE.fullmatch(option) or option.startswith("-"):
            raise ConfigError(f"--options {option!r}: expected name=value as sbatch has it, without hyphens in front.")


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
    out = str(Path(_value_of(arguments.command, "--out")))
    variables = {**FORWARDS, **{name: max(int(value), arguments.warning) for name, value in WAITS.items()}}
    return f"""#!/bin/bash
{flags}
# Slurm tells the run (USR1) {arguments.warning} s before its time is up; it saves and ends with code 75, which torchrun hides and
# status.json says; then the job is queued again and goes on.
set -u
export {" ".join(f"{name}={value}" for name, value in variables.items())}
export OMP_NUM_THREADS={arguments.cores} OMP_WAIT_POLICY=passive
export ELECTRA_LAUNCH="$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}"
# Jobs that share a machine need ports of their own
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) port=$((20000 + SLURM_JOB_ID % 12000))

srun --kill-on-bad-exit=1 torchrun \\
  --nnodes="$SLURM_NNODES" --nproc-per-node={processes} \\
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port" \\
  -m electra_trainer {shlex.join(arguments.command)}
code=$?

{_ending(out)}"""


def _ending(out: str) -> str:
    """What the job does with the code: `code` holds that of torchrun."""
    return f"""run={shlex.quote(out)}
if grep -qs "\\"launch\\": \\"$ELECTRA_LAUNCH\\"" "$run/status.json"; then
  said=$(sed -n 's/.*"exit_code": *\\([0-9]*\\).*/\\1/p' "$run/status.json" | head -n 1)
  code=${{said:-$code}} # none in it: the run was killed
fi
echo "electra: ended with code $code"
case "$code" in
  0 | 65 | 66 | 76 | 78) exit "$code" ;; # done, or an error that would come again
  126 | 127) echo "electra: a program is missing; not queued again" >&2; exit "$code" ;;
  75) ;; # told to stop, and saved
  *) # a crash: is there a newer checkpoint than after the crash before?
    newest=$(cd "$run/checkpoints" 2>/dev/null && ls -d step-* 2>/dev/null | tail -n 1)
    before=start useless=0
    [ -r "$run/.crashes" ] && read -r before useless < "$run/.crashes"
    case "$useless" in "" | *[!0-9]*) useless=0 ;; esac
    if [ "$before" = "${{newest:-start}}" ]; then useless=$((useless + 1)); else useless=0; fi
    # where nothing can be written, starts are counted by Slurm
    {{ mkdir -p "$run" && echo "${{newest:-start}} $useless" > "$run/.crashes"; }} || useless=$((${{SLURM_RESTART_COUNT:-0}} + 1))
    if [ "$useless" -ge {_USELESS} ]; then
      echo "electra: {_USELESS} starts in a row without a new checkpoint; not queued again" >&2
      rm -f "$run/.crashes"
      exit "$code"
    fi ;;
esac
scontrol requeue "$SLURM_JOB_ID"
"""


def _value_of(words: Sequence[str], flag: str) -> str:
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
    raise ConfigError(f"launch: {flag} has no value.")
