"""Files and JSON that anybody may have written: nothing hangs, nothing fills the memory, and what is wrong is a sentence."""

from __future__ import annotations

import errno
import json
import os
import stat
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
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except ValueError:  # NUL in a name
        raise MissingInputError(f"{str(path)!r}: is no file name. Check the path.") from None
    except OSError as refused:
        raise _unopened(refused, path, error) from None
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise error(f"{path}: is a folder, a file was expected. Name a file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: {_IRREGULAR}")
        try:
            content = _at_most(file, limit) if status.st_size <= limit else None
        except OSError as refused:
            raise storage_error(refused, path) from None
    if content is None:
        raise error(f"{path}: is over {limit >> 20:,} MiB, which no such file is. Check the path.")
    return content


_IRREGULAR = "is not a regular file (a pipe, socket or device). Write its content to a file first."


def _unopened(refused: OSError, path: Path, error: type[ElectraError]) -> ElectraError:
    if refused.errno == errno.ENXIO:  # a socket
        return error(f"{path}: {_IRREGULAR}")
    if refused.errno == errno.ENOTDIR:
        return MissingInputError(f"{path}: no such file; part of its path is a file. Check the path.")
    return storage_error(refused, path)


def _at_most(file: Any, limit: int) -> bytes | None:
    """Content up to `limit` bytes, None beyond: a file may grow, and those of /proc say nothing of their size."""
    parts: list[bytes] = []
    taken = 0
    while part := file.read(_CHUNK):
        parts.append(part)
        taken += len(part)
        if taken > limit:
            return None
    return b"".join(parts)


def parse_json(
    content: bytes | str, *, where: str, remedy: str, error: type[ElectraError] = DataError, most: int = MOST_VALUES
) -> Any:
    """The value of a JSON document, in UTF-8 with or without a byte order mark.

    Args:
        content: the document.
        where: what it is called in a message: a file, or file:line.
        remedy: sentences that end a message, such as what was expected.
        error: what is raised.
        most: values in it; larger ones would fill the memory.

    Raises:
        `error`: not JSON, nested too deeply, more than `most` values, or a number too long.
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    data = data.removeprefix(_BOM)
    if len(data) > most and sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise error(f"{where}: holds more than {most:,} values. {remedy}")
    try:
        return json.loads(data.decode("utf-8", "strict" if isinstance(content, bytes) else "surrogatepass"))
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        raise error(f"{where}{_line(where, line)}: is not UTF-8 at byte {bad.start:,}. {remedy}") from None
    except json.JSONDecodeError as bad:
        raise error(
            f"{where}{_line(where, bad.lineno)}: is not valid JSON ({bad.msg}, column {bad.colno}). {remedy}"
        ) from None
    except RecursionError:
        raise error(f"{where}: is JSON nested too deeply. {remedy}") from None
    except ValueError:  # int() has a limit
        raise error(f"{where}: holds a number of thousands of digits. {remedy}") from None


def _line(where: str, line: int) -> str:
    """`:line` of a file; nothing where `where` has a line already."""
    return "" if where.rpartition(":")[2].isdecimal() else f":{line}"


def short(value: object) -> str:
    """A value in at most 60 characters, for a message: it may be a megabyte, or nested to the brim."""
    try:
        words = repr(value)
    except (RecursionError, ValueError):  # too deep; a number of thousands of digits
        return f"a {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."
