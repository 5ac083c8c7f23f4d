"""Read files, text lines and JSON that anybody may have written: nothing hangs, nothing fills the memory, every fault
is a sentence.
"""

import errno
import io
import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from electra_trainer.errors import DataError, MissingInputError, Refusal, storage_error
from electra_trainer.files.kinds import HEAD, OTHER, kind_of

MOST_SETTINGS = 1 << 24
"""Bytes of a file of settings, a manifest, a result."""
MOST_TEXT = 1 << 30
"""Bytes of a text or a data set that is read whole."""
MOST_VALUES = 1_000_000
"""Values of one JSON document that holds settings or a text: a short one of brackets takes fifty times its size in
memory.
"""
MOST_LINE = 1 << 24
"""Bytes of one line of text."""
BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
IRREGULAR = "is not a regular file (a pipe, socket or device). Write its content to a file first."


def read_file(path: Path, *, limit: int = MOST_SETTINGS, error: Refusal = DataError) -> bytes:
    """A regular file's bytes. Pipes and devices are refused without waiting for them; a link to a file is followed.

    Args:
        path: the file.
        limit: most bytes.
        error: raised if it is not a regular file, or too large.

    Raises:
        MissingInputError: nothing is there. StorageError: cannot be read. DataError: a folder. `error`: see above.
    """
    descriptor = open_regular(path, limit=limit, error=error)
    content = bytearray()
    try:  # a file may grow, and those of /proc say nothing of their size
        while len(content) <= limit and (part := os.read(descriptor, _CHUNK)):
            content += part
    except OSError as refused:
        raise storage_error(refused, path) from None
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise error(f"{path}: {_too_large(limit)}")
    return bytes(content)


def open_regular(path: Path, *, limit: int, error: Refusal = DataError) -> int:
    """Open a regular file for reading; returns a descriptor, which the caller closes. Errors as for `read_file`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except ValueError:  # NUL in a name
        raise MissingInputError(f"{str(path)!r}: is not a file name. Check the path.") from None
    except OSError as refused:
        if refused.errno == errno.ENXIO:  # a socket
            raise error(f"{path}: {IRREGULAR}") from None
        if refused.errno == errno.ENOTDIR:
            raise MissingInputError(f"{path}: no such file; part of its path is a file. Check the path.") from None
        raise storage_error(refused, path) from None
    status = os.fstat(descriptor)
    faults = {
        "is a folder, a file was expected. Name a file in it.": stat.S_ISDIR(status.st_mode),
        IRREGULAR: not stat.S_ISREG(status.st_mode),
        _too_large(limit): status.st_size > limit,
    }
    for fault, found in faults.items():
        if found:
            os.close(descriptor)
            raise error(f"{path}: {fault}")
    return descriptor


def _too_large(limit: int) -> str:
    return f"is over {limit >> 20:,} MiB, too large for such a file. Check the path."


def lines(text: bytes | IO[bytes], where: object, *, ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Numbered lines of UTF-8 text, split at "\n" only: U+2028, U+0085 and the like are ordinary characters.

    Args:
        text: all of it, or a file opened for reading bytes.
        where: name of the text in messages.
        ends: keep the line ends. Otherwise lines lose "\n" and a "\r" before it. The byte order mark is always removed.

    Raises:
        DataError: another kind of file, a line of more than `MOST_LINE` bytes, NUL, or not UTF-8; says the line.
            OSError: from reading.
    """
    stream = io.BytesIO(text) if isinstance(text, bytes) else text
    for number in itertools.count(1):
        if not (raw := stream.readline(MOST_LINE + 1)):
            return
        if number == 1:
            if (kind := kind_of(raw[:HEAD])) and not kind.is_text:
                raise DataError(kind.refusal(str(where)))
            raw = raw.removeprefix(BOM)
        if len(raw) > MOST_LINE:
            raise DataError(f"{where}:{number}: a line of more than {MOST_LINE >> 20} MiB. Expected lines of text.")
        if b"\0" in raw:
            found = f"NUL at byte {raw.index(0) + 1} of the line: UTF-16, or not text at all"
            raise DataError(f"{where}:{number}: {found}. Save it as UTF-8 text.")
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            found = f"not UTF-8 at byte {error.start + 1} of the line (0x{raw[error.start]:02x})"
            raise DataError(f"{where}:{number}: {found}. {OTHER.advice(str(where))}") from None
        yield number, line if ends else line.removesuffix("\n").removesuffix("\r")


def half_character(text: str) -> int | None:
    r"""Index of the first half of a surrogate pair, which UTF-8 cannot hold (JSON's "\ud800"); None in sound text."""
    if text.isascii():  # known at no cost
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def encodable(text: str, where: str) -> str:
    """Return a text; DataError if UTF-8 cannot hold it."""
    if (at := half_character(text)) is not None:
        raise DataError(f"{where} holds half of a surrogate pair at character {at + 1:,}. Repair the JSON.")
    return text


def here(path: str, flags: int) -> int:
    """An opener for `open`: a file that is written in its folder, and not where a link in a folder of somebody's leads;
    a pipe is an error.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


class NotJson(ValueError):
    """Why a document is not JSON, in words that follow "is", and its line in the document, from 1."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


def json_value(document: bytes | str, *, most: int = MOST_VALUES) -> Any:
    """The value of a JSON document, in UTF-8 with or without a byte order mark.

    Args:
        document: its bytes, or its text.
        most: values in it.

    Raises:
        NotJson: something else, nested too deeply, more than `most` values, or a number too long.
    """
    marks = ",[{" if isinstance(document, str) else (b",", b"[", b"{")  # about one a value; commas in texts count too
    if len(document) > most < sum(map(document.count, marks)):  # type: ignore[arg-type]
        raise NotJson(f"of more than {most:,} values")
    try:
        text = document if isinstance(document, str) else document.removeprefix(BOM).decode()
        return json.loads(text.removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start:,}", error.object.count(b"\n", 0, error.start) + 1) from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON ({error.msg}, column {error.colno})", error.lineno) from None
    except RecursionError:
        raise NotJson("not valid JSON (nested too deeply)") from None
    except ValueError:  # what int() takes has a limit
        raise NotJson("not valid JSON (a number of thousands of digits)") from None


def parse_json(
    document: bytes | str, *, where: str, remedy: str, error: Refusal = DataError, most: int = MOST_VALUES
) -> Any:
    """`json_value` with an error that begins with `where` (a file, or file:line) and ends with `remedy`, a sentence or
    two.
    """
    try:
        return json_value(document, most=most)
    except NotJson as bad:
        has_line = bad.line is None or where.rpartition(":")[2].isdecimal()
        raise error(f"{where if has_line else f'{where}:{bad.line}'}: is {bad}. {remedy}") from None


def json_object(document: bytes | str, *, where: str, remedy: str, error: Refusal = DataError) -> dict[str, Any]:
    """`parse_json` of a document that has to hold an object."""
    value = parse_json(document, where=where, remedy=remedy, error=error)
    if not isinstance(value, dict):
        raise error(f"{where}: is {short(value)}, expected a JSON object. {remedy}")
    return value


def short(value: object) -> str:
    """A value in at most 60 characters, for a message: it may be a megabyte, or nested to the brim."""
    try:
        words = repr(value)
    except (RecursionError, ValueError):  # too deep; a number of thousands of digits
        return f"a {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."
