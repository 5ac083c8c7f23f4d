"""The errors a person can meet, each with the exit code that a shell or a scheduler sees.

    ElectraError           70  our bug, or something nobody foresaw
    ├── ProcessLost        70  another process of the run was killed or hangs
    ├── ConfigError        78  a flag, field or combination that cannot be
    ├── DataError          65  text, vocabulary or rows that cannot be used
    ├── MissingInputError  66  a file or folder that is not there
    ├── StorageError       74  the disk is full, read-only or failing
    ├── CheckpointError    65  a checkpoint or model folder that does not verify
    ├── Diverged           76  the loss or the gradient became NaN or infinite
    └── Interrupted        75  stopped by a signal; everything is saved

130 is Ctrl-C where nothing was being trained. A message says what was wrong, where, what was expected and what to type.
"""

import difflib
import errno
import itertools
import logging
import math
import re
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path


class ElectraError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 70
    reported = False
    """Whether another process of the same run reports it."""
    agreed = False
    """Whether every process of the run raises it at this point."""


Refusal = type[ElectraError]
"""Type of a parameter that selects which error a function raises."""


class ConfigError(ElectraError):
    """A setting, or a combination of settings, that cannot be."""

    exit_code = 78


class DataError(ElectraError):
    """Input text, a vocabulary or prepared rows that cannot be used."""

    exit_code = 65


class MissingInputError(ElectraError):
    """A file or folder that was named and is not there."""

    exit_code = 66


class StorageError(ElectraError):
    """The disk is full, read-only or failing."""

    exit_code = 74


class CheckpointError(ElectraError):
    """A checkpoint or an exported folder that does not verify."""

    exit_code = 65


class Diverged(ElectraError):
    """The loss or the gradient became NaN or infinite."""

    exit_code = 76


class ProcessLost(ElectraError):
    """Another process of the run was killed, hangs, or cannot be reached."""


class Interrupted(ElectraError):
    """Stopped by a signal after saving."""

    exit_code = 75


STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that ask to stop: Ctrl-C, a scheduler, a closed terminal, a warning before the end, a limit of computing
time.
"""

_MEMORY = (
    "not enough memory for this run. Divide the batch with --batch.lanes 2 (4, 8, ...), or take a smaller preset or "
    "shorter rows; --dry-run shows an estimate. In fine-tuning: --micro-batch 8, --parallel 1, --max-length 64."
)
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that do more on a terminal than appear there."""
_LONGEST = 100
"""Characters of a word that is compared with others: a file may hold a million names of a million letters."""


def install(extra: str = "") -> str:
    """The command that installs an extra, or the program itself: it is not on PyPI."""
    return f"in the clone of electra-trainer: pip install -c constraints.txt '.{f'[{extra}]' if extra else ''}'"


def need(what: str, packages: Iterable[str], *, extra: str) -> None:
    """Raise ConfigError, which says how they are installed, unless all packages of an extra are here. `what` begins the
    sentence.
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        raise ConfigError(f"{what} needs {', '.join(missing)}, of the extra [{extra}]. Type, {install(extra)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the nearest known word, or an empty string."""
    if len(word) > _LONGEST:
        return ""
    some = (name for name in itertools.islice(known, 1000) if len(name) <= _LONGEST)
    near = difflib.get_close_matches(word, list(some), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def require_known(what: str, name: str, known: Collection[str], *, hint: str = "") -> None:
    """Raise ConfigError, with the nearest known name, unless `name` is known. `what` begins the sentence."""
    if name not in known:
        raise ConfigError(f"{what}.{did_you_mean(name, known)} Known: {', '.join(known)}.{hint}")


_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def storage_error(error: OSError, path: Path | str, *, writing: bool = False) -> ElectraError:
    """Turn an `OSError` met while reading or writing `path` into a sentence with a remedy."""
    if isinstance(error, FileNotFoundError) and writing:
        return StorageError(f"{path}: cannot be created there. Choose another --out.")
    if isinstance(error, FileNotFoundError):
        return MissingInputError(f"{path}: no such file or folder. Check the path.")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path}: is a folder, a file was expected.")
    remedies = {
        errno.ENOSPC: "the disk is full. Free some space or choose another --out, then repeat the command",
        errno.EDQUOT: "the disk quota is used up. Free some space or choose another --out, then repeat the command",
        errno.EROFS: "the file system is read-only. Choose another --out",
        errno.EACCES: "permission denied. Choose another path or change its permissions",
        errno.ENOTDIR: "a file is where a folder was expected. Check the path, or choose another --out",
        errno.EEXIST: "a file is where a folder was expected. Choose another --out",
        **dict.fromkeys(_NO_LOCKS, "this file system has no locks (NFS without lockd?). Choose another --out"),
    }
    what = remedies.get(
        error.errno or 0, f"{error.strerror or error}. Check the path and the disk, then repeat the command"
    )
    return StorageError(f"{path}: {what}.")


_LOGGER = logging.getLogger("electra_trainer")
_commands: list[str] = []
"""Not empty while the command line runs in this process."""


@contextmanager
def as_command() -> Iterator[None]:
    """Show progress and notes on standard error, whatever is configured in `logging`, inside a `with`."""
    _commands.append("")
    try:
        yield
    finally:
        _commands.pop()


def runs_as_command() -> bool:
    """Whether the command line runs in this process, not a program of the user."""
    return bool(_commands)


def logs(line: str = "", level: int = logging.INFO) -> bool:
    """Send a line to the logger `electra_trainer` if it is the place for progress and notes: in Python, where `logging`
    has a handler. Returns whether it is; otherwise they are shown on standard error.
    """
    if runs_as_command() or not _LOGGER.hasHandlers():
        return False
    if line:
        _LOGGER.log(level, "%s", plain(line.strip()))
    return True


def tell(line: str) -> None:
    """Print a line to standard error, or log it as a warning (see `logs`); ignore a closed terminal and a full disk."""
    if logs(line, logging.WARNING):
        return
    with suppress(OSError):
        print(f"electra: {plain(line, keep=chr(10))}", file=sys.stderr, flush=True)


def named(kind: str) -> type[ElectraError]:
    """The class of that name, as another process wrote it. Raises ElectraError where there is none."""
    made = globals().get(kind)
    return made if isinstance(made, type) and issubclass(made, ElectraError) else ElectraError


def plain(text: str, *, keep: str = "") -> str:
    """`text` with what steers a terminal escaped, except the characters in `keep`: control and bidirectional
    characters, halves of pairs.
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    r"""An escape such as \x1b; from U+007F on \u009b, so that JSON, which has none of the first raw, stays JSON."""
    return character.encode("unicode_escape").decode() if character < "\x7f" else f"\\u{ord(character):04x}"


def as_known(error: Exception) -> ElectraError | None:
    """Convert a known failure (disk, memory, missing package) to an ElectraError; None for a bug."""
    if isinstance(error, ElectraError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith(__package__):
        package = error.name.partition(".")[0]
        return ConfigError(f"the Python package {package} is missing here, or incomplete ({error}). Type, {install()}")
    if isinstance(error, OSError):
        return storage_error(error, error.filename or "a file")
    return ConfigError(_MEMORY) if out_of_memory(error) else None


def out_of_memory(error: Exception) -> bool:
    """Whether Python or PyTorch found no memory; its errors are recognised by their words, since torch may not be
    loaded.
    """
    words = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and any(word in str(error) for word in words))


def require(condition: bool, field_name: str, value: object, expected: str) -> None:
    """Raise ConfigError unless `condition` holds and `value`, if it is a number, is finite."""
    if not condition or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{field_name} = {value!r}: expected {expected}.")


def probability(field_name: str, value: float) -> None:
    """Raise ConfigError unless `value` lies between 0 and 1."""
    require(0.0 <= value <= 1.0, field_name, value, "a share between 0 and 1")


def refuse_if(faults: Mapping[str, bool]) -> None:
    """Raise ConfigError with the first message whose condition is true."""
    for message, found in faults.items():
        if found:
            raise ConfigError(message)
