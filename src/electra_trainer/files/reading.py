"""Files and JSON that anybody may have written: nothing hangs, nothing fills the memory, and what is wrong is a sentence."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError, ElectraError, MissingInputError, storage_error

MOST_SETTINGS = 1 << 24
"""Bytes of a file of settings, a manifest, a result."""
MOST_TEXT = 1 << 30
"""Bytes of a text or a data set that is read whole."""
MOST_VALUES = 1_000_000
"""Values of one JSON document that holds settings or a text: a short one of brackets takes fifty times its size in memory."""
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20


def read_file(path: Path, *, limit: int = MOST_SETTINGS, error: type[ElectraError] = DataError) -> bytes:
    """A regular file's bytes. Pipes and devices are refused without waiting for them; a link to a file is followed.

    Args:
        path: the file.
        limit: most bytes.
        error: raised where it is no regular file, or too large.

    Raises:
        MissingInputError: nothing is there. StorageError: cannot be read. DataError: a folder. `error`: see above.
    """
    descriptor = open_regular(path, limit=limit, error=error)
    try:
        content = _at_most(descriptor, limit)
    except OSError as refused:
        raise storage_error(refused, path) from None
    finally:
        os.close(descriptor)
    if content is None:
        raise error(_too_large(path, limit))
    return content


def open_regular(path: Path, *, limit: int, error: type[ElectraError] = DataError) -> int:
    """The same, opened for reading: a descriptor, which the caller closes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except ValueError:  # NUL in a name
        raise MissingInputError(f"{str(path)!r}: is no file name. Check the path.") from None
    except OSError as refused:
        raise _unopened(refused, path, error) from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise error(f"{path}: is a folder, a file was expected. Name a file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: {_IRREGULAR}")
        if status.st_size > limit:
            raise error(_too_large(path, limit))
    except BaseException as refused:
        os.close(descriptor)
        if isinstance(refused, OSError):
            raise storage_error(refused, path) from None
        raise
    return descriptor


def _too_large(path: Path, limit: int) -> str:
    return f"{path}: is over {limit >> 20:,} MiB, which no such file is. Check the path."


_IRREGULAR = "is not a regular file (a pipe, socket or device). Write its content to a file first."


def _unopened(refused: OSError, path: Path, error: type[ElectraError]) -> ElectraError:
    if refused.errno == errno.ENXIO:  # a socket
        return error(f"{path}: {_IRREGULAR}")
    if refused.errno == errno.ENOTDIR:
        return MissingInputError(f"{path}: no such file; part of its path is a file. Check the path.")
    return storage_error(refused, path)


def _at_most(descriptor: int, limit: int) -> bytes | None:
    """Content up to `limit` bytes, None beyond: a file may grow, and those of /proc say nothing of their size."""
    parts: list[bytes] = []
    taken = 0
    while part := os.read(descriptor, _CHUNK):
        parts.append(part)
        taken += len(part)
        if taken > limit:
            return None
    return b"".join(parts)


def here(path: str, flags: int) -> int:
    """An opener for `open`: a file that is written in its folder, and not where a link in a folder of somebody's leads; a pipe is an error."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


class NotJson(ValueError):
    """Why a document is no JSON, in words that follow "is", and on which line of it, from 1."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


def json_value(
    document: bytes | str, *, most: int = MOST_VALUES, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """The value of a JSON document, in UTF-8 with or without a byte order mark.

    Args:
        document: its bytes, or its text.
        most: values in it.
        pairs: makes an object of its fields; a dictionary if None.

    Raises:
        NotJson: something else, nested too deeply, more than `most` values, or a number too long.
    """
    if len(document) > most < _values(document):
        raise NotJson(f"of more than {most:,} values")
    try:
        text = document if isinstance(document, str) else document.removeprefix(_BOM).decode()
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start:,}", error.object.count(b"\n", 0, error.start) + 1) from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON ({error.msg}, column {error.colno})", error.lineno) from None
    except RecursionError:
        raise NotJson("not valid JSON (nested too deeply)") from None
    except ValueError:  # what int() takes has a limit
        raise NotJson("not valid JSON (a number of thousands of digits)") from None


def _values(document: bytes | str) -> int:
    """About how many values; commas in texts count too."""
    if isinstance(document, str):
        return sum(map(document.count, ",[{"))
    return sum(map(document.count, (b",", b"[", b"{")))


def parse_json(
    document: bytes | str,
    *,
    where: str,
    remedy: str,
    error: type[ElectraError] = DataError,
    most: int = MOST_VALUES,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """The same, with an error that says `where` (a file, or file:line) and ends with `remedy`, a sentence or two."""
    try:
        return json_value(document, most=most, pairs=pairs)
    except NotJson as bad:
        has_line = bad.line is None or where.rpartition(":")[2].isdecimal()
        raise error(f"{where if has_line else f'{where}:{bad.line}'}: is {bad}. {remedy}") from None


def short(value: object) -> str:
    """A value in at most 60 characters, for a message: it may be a megabyte, or nested to the brim."""
    try:
        words = repr(value)
    except (RecursionError, ValueError):  # too deep; a number of thousands of digits
        return f"a {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."
