"""The run folder: settings, environment, metrics, log and checkpoints of one run.

config.json       the complete resolved config        metrics.jsonl    one object a logged step
environment.json  versions, device, git, data         examples.jsonl   some held-out rows as the networks read them
tokenizer/        the tokenizer of the data           log.txt          every message
checkpoints/      see checkpoint.py                   report.html      see report.py
words.safetensors what word embeddings begin with, if that is from co-occurrence (train/begin/word_start.py)
"""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from electra_trainer.errors import CheckpointError, DataError, MissingInputError, storage_error, tell
from electra_trainer.files import durable
from electra_trainer.files.reading import here
from electra_trainer.runs.verified import Origin
from electra_trainer.settings import extensions, records
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import hash_of, read_table, to_dict

T = TypeVar("T")
WORDS = "words.safetensors"
_BEGUN, _BEFORE_CONFIG = {"config.json", "environment.json"}, {"environment.json", "tokenizer", WORDS}
METRICS, EXAMPLES = "metrics.jsonl", "examples.jsonl"
_ROWS = (METRICS, EXAMPLES)


class RunFolder:
    """A run on disk. Only one process at a time may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.tokenizer = path / "tokenizer"
        self._lock: IO[str] | None = None
        self._waiting: dict[str, bytes] = {}
        """Text that the disk did not take, by file; it is written before what comes next."""
        self._one_at_a_time = threading.Lock()

    @property
    def exists(self) -> bool:
        """True once a run has begun here."""
        return all((self.path / name).exists() for name in _BEGUN)

    def open_for_writing(self) -> None:
        """Create the folder and lock it.

        Raises:
            ConfigError: another process writes to it, or it holds something else than a run.
            StorageError: the disk is full or read-only.
        """
        self._lock = durable.open_lock(self.path, markers=_BEGUN, what="run", before=_BEFORE_CONFIG)
        durable.sweep(self.path)

    @property
    def locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock is not None and not self._lock.closed

    def close(self) -> None:
        """Release the lock before the process ends."""
        if self._lock is not None:
            self._lock.close()

    def begin(self, settings: object, data: dict[str, Any], **facts: Any) -> None:
        """Write the identity of the run: settings (a dataclass, or plain values), data, and further facts, as the
        weights it begins with.
        """
        self.write_json("environment.json", {"run_id": uuid.uuid4().hex, "data": data, **facts, **environment_facts()})
        self.write_json("config.json", to_dict(settings))  # last: its presence says that the run has begun

    @property
    def continued(self) -> dict[str, Any]:
        """Facts of the run that this one continues, from environment.json; empty where it continues none."""
        began = self.environment().get("init") or {}
        return began if "step" in began else {}

    def config(self) -> Config:
        """The resolved config of the run."""
        if not self.exists:
            raise MissingInputError(f"{self.path}: no run is here (no config.json). Check the path.")
        path, began = self.path / "config.json", self.environment()
        table = records.EARLIER | read_table(path)
        return records.read(Config, table, where=str(path), remedy=extensions.differing(began)[0])

    def fact(self, kind: type[T], *names: str) -> T:
        """A field of environment.json, or of a table in it; DataError if it is missing or of another type."""
        found: Any = self.environment()
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, kind):
            file, field = self.path / "environment.json", " in ".join(reversed(names))
            raise DataError(f"{file}: has no {field}: damaged, or changed by hand. Restore it, or choose another run.")
        return found

    @property
    def origin(self) -> Origin:
        """The mark of the run's checkpoints."""
        run_id, data = self.fact(str, "run_id"), self.fact(dict, "data")
        config = read_table(self.path / "config.json")
        return Origin(run_id=run_id, config_sha256=hash_of(config), data_sha256=hash_of(data), config=config, data=data)

    def environment(self) -> dict[str, Any]:
        """Run id, data and versions."""
        return read_table(self.path / "environment.json")

    def write_json(self, name: str, value: Any) -> None:
        """Replace a small file at once."""
        durable.replace_durably(self.path / name, (json.dumps(value, indent=1) + "\n").encode())

    def note(self, **facts: Any) -> None:
        """Add facts of this session to environment.json, in place of an earlier session's."""
        self.write_json("environment.json", {**self.environment(), **facts})

    def append(self, name: str, value: dict[str, Any]) -> None:
        """Add one line to a .jsonl file; it stays in memory while the disk does not take it."""
        self._append_text(name, json.dumps(value) + "\n")

    def log(self, line: str) -> None:
        """Add one line, with the time, to log.txt."""
        self._append_text("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")

    def _append_text(self, name: str, text: str) -> None:
        with self._one_at_a_time:
            noted = name in self._waiting
            self._waiting[name] = self._waiting.get(name, b"") + text.encode()
            try:
                self._write_waiting(name)
            except OSError as error:
                if not noted:
                    failure = storage_error(error, self.path / name, writing=True)
                    tell(f"{failure} Its lines are kept until they can be written.")

    def _write_waiting(self, name: str) -> None:
        """Write the waiting text, all or nothing. Raises OSError."""
        descriptor = here(str(self.path / name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            before = os.fstat(descriptor).st_size
            try:
                durable.write_all(descriptor, self._waiting[name])
            except OSError:
                os.ftruncate(descriptor, before)
                raise
            del self._waiting[name]
        finally:
            os.close(descriptor)

    def sync_rows(self) -> None:
        """Flush metrics.jsonl and examples.jsonl to the disk; StorageError."""
        for name in _ROWS:
            path = self.path / name
            try:
                with self._one_at_a_time:
                    if name in self._waiting:
                        self._write_waiting(name)
                if path.exists():
                    durable.sync_file(path)
                durable.sync_folder(self.path)  # its name too
            except OSError as error:
                raise storage_error(error, path, writing=True) from None

    def require_unsaved(self) -> None:
        """Refuse to begin at the first step where rows show that the run had a checkpoint.

        Raises:
            CheckpointError: there are rows, and the first checkpoint is older than any row: the checkpoints are gone.
        """
        for name in _ROWS:
            path = self.path / name
            if os.path.lexists(path) and not (path.is_file() and path.stat().st_size == 0):
                raise CheckpointError(
                    f"{self.checkpoints}: no checkpoint is there, but {name} says that the run had one. Nothing was "
                    "changed: put the folder back (is its disk mounted?) and repeat the command, or start again in "
                    "another --out."
                )


def environment_facts() -> dict[str, Any]:
    """Versions, device and source revision of this process."""
    import numpy
    import tokenizers
    import torch

    from electra_trainer.version import __version__

    return {
        "electra_trainer": __version__,
        "git": git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "tokenizers": tokenizers.__version__,
        "platform": platform.platform(),
        "cpu": _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": ["electra", *sys.argv[1:]],
        **extensions.recorded(),
    }


def remedy(environment: Mapping[str, Any], *, again: str | None = None) -> str:
    """Remedy where a run or an experiment exists that began with other settings: the command that it noted is the one
    to repeat.

    Args:
        again: what resumes it where that command was repeated, and so something that it names has changed.
    """
    words = environment.get("command")
    verb = words[1] if isinstance(words, list) and len(words) > 1 else None
    if verb not in ("pretrain", "compare", "finetune", "glue", "squad"):  # it was called from Python
        return "Repeat the command that it began with to resume, or choose another --out."
    if words == ["electra", *sys.argv[1:]]:  # so a preset is another one in this version, or a named file has changed
        return f"{f'To resume: {again}  Otherwise choose' if again else 'Choose'} another --out."
    return f"To resume, repeat what it began with: {shlex.join(map(str, words or ()))}  Otherwise choose another --out."


def _processor() -> str:
    """The CPU's name and its number of cores, as Linux has them."""
    noted = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", noted.read_text(errors="replace") if noted.exists() else "")
    return f"{named[1].strip() if named else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def git_revision() -> str | None:
    """Commit of the source, with `+changes` where files differ from it; None outside a repository."""
    here = Path(__file__).parents[1]  # the package: changes in any of its rooms count
    try:
        commit, dirty = (
            # without locks: a git that is killed with its run would leave .git/index.lock
            subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10).stdout
            for words in (["rev-parse", "HEAD"], ["--no-optional-locks", "status", "--porcelain", "--", "."])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("+changes" if dirty.strip() else "")
