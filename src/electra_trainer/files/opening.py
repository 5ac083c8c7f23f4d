"""Open inputs: files, compressed or not, and URLs; read their bytes and their lines, no more than their size allows.

URLs are read by fsspec, of the extra [hub], which is imported for them alone.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from electra_trainer import errors
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError
from electra_trainer.files import reading

ROWS = 1000
"""Rows that are asked for at once: one at a time takes forty times as long."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """Why a line, a row or a text cannot be read."""

    kind: str
    """A few words, which are counted."""
    detail: str = ""
    """More words, for a message."""

    def error(self, file: str, number: int, remedy: str) -> DataError:
        """The error that ends with a remedy."""
        if "UTF-8" in self.kind:
            remedy = f"{reading.not_utf8(file)} {remedy}"
        return DataError(f"{file}:{number}: {self.kind}{self.detail}. {remedy}")


Rows = Iterator[tuple[Mapping[str, Any] | Fault, int]]
"""Rows, each with its line or its number from 1; a `Fault` in place of a row that cannot be read."""
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""


def decoded(data: bytes) -> str | Fault:
    """The text of a line."""
    try:
        return sound(data.decode())
    except UnicodeDecodeError as error:
        return Fault("bytes that are not UTF-8", f" at byte {error.start + 1:,} of the line")


def sound(text: str) -> str | Fault:
    """The text, unless there is something in it that is not text."""
    if "\0" in text:
        return Fault("NUL characters")
    if (at := reading.half_character(text)) is not None:
        is_byte = "\udc80" <= text[at] <= "\udcff"  # as `surrogateescape` marks it
        return Fault("bytes that are not UTF-8" if is_byte else "half a surrogate pair", f" at character {at + 1:,}")
    return text


def is_url(name: str) -> bool:
    """Whether an input is a URL such as s3://bucket/text.txt."""
    return _URL.match(name) is not None


def reach(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its path there."""
    errors.need(f"Reading {url}", ["fsspec"], extra="hub")
    from fsspec import core

    try:
        return core.url_to_fs(url)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{url}: {url.partition('://')[0]}:// cannot be read ({error}).") from None


def unreached(url: str, error: Exception) -> ElectraError:
    """The sentence on an error of a package that reads from elsewhere."""
    if isinstance(error, ElectraError):
        return error
    if isinstance(error, FileNotFoundError):
        cause = f", or it cannot be reached ({error.__cause__})" if error.__cause__ else ""
        return MissingInputError(f"{url}: nothing is there{cause[:200]}. Check the address.")
    return StorageError(
        f"{url}: cannot be read ({reason(error)}). Check the address (OWNER/NAME:CONFIG where a data set has several "
        "configurations), your rights and the network, then try again."
    )


def reason(error: Exception) -> str:
    """The message of an error on one line, or else its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def opened(url: str) -> IO[bytes]:
    """The bytes of a file at a URL.

    Raises:
        ConfigError: a package is missing. MissingInputError: nothing is there. StorageError: it cannot be reached.
    """
    system, path = reach(url)
    try:
        return system.open(path, "rb")  # type: ignore[no-any-return]
    except Exception as error:
        raise unreached(url, error) from None


_CHUNK = 1 << 20


def _zstd(raw: IO[bytes], _: str) -> IO[bytes]:
    errors.need("Reading .zst", ["pyarrow"], extra="hub")
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"), _CHUNK)


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}
"""Endings of compressed files."""
FREE = 1 << 29
"""Bytes that any file may hold."""
RATIO = 2000
"""Bytes that it may hold for each byte on disk, beyond these."""


def bound(file: str, size: int, held: int) -> None:
    """Raise DataError if a file of `size` bytes on disk (0: unknown) holds too much for that."""
    if size and held > (most := FREE + RATIO * size):
        raise DataError(
            f"{file}: has {size:,} bytes on disk and unpacks to over {most >> 20:,} MiB, which is too much for its "
            "size. Is it damaged? If it is sound, write its text to a file that is not compressed, and name that."
        )


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends in a DataError where a file holds too much."""

    def __init__(self, stream: IO[bytes], file: "TextFile") -> None:
        self._stream, self._file, self._held = stream, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._held += len(data)
        bound(str(self._file), self._file.size, self._held)
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True)
class TextFile:
    """A regular file that is to be read, and its size on disk in bytes."""

    path: Path
    size: int
    url: str = ""
    """Where it is, if not on a disk of this machine; `path` has its name then."""
    content: bytes | None = None
    """Its bytes, decompressed, if they are in memory."""

    def __str__(self) -> str:
        return self.url or str(self.path)

    @property
    def compression(self) -> str:
        """`.gz`, `.bz2`, `.xz`, `.zst` or nothing, from the name."""
        suffix = self.path.suffix.lower()
        return suffix if suffix in OPENERS else ""

    @property
    def suffix(self) -> str:
        """Ending of the name without that of the compression, in small letters."""
        return (self.path.with_suffix("") if self.compression else self.path).suffix.lower()


@dataclass(frozen=True)
class ByteLine:
    """A line, or a part of a line that is longer than the limit."""

    data: bytes  # without line end or byte order mark
    number: int  # counted from 1
    offset: int  # of its first byte in the (decompressed) file
    length: int  # bytes it takes in the file
    ends: bool  # it is the whole line, or the last part of one
    continued: bool  # it is not the first part


@contextmanager
def unpacked(file: TextFile) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """A file's bytes after decompression, and a function that says how many of its bytes on disk were read.

    Raises:
        DataError: a damaged compressed file. StorageError: a file that cannot be read. ConfigError: a package is
            missing.
    """
    if file.content is not None:
        yield io.BytesIO(file.content), lambda: file.size
        return
    opener = OPENERS.get(file.compression)
    try:
        stored: Any = opened(file.url) if file.url else file.path.open("rb", buffering=0)
        with io.BufferedReader(stored) as raw, opener(raw, "rb") if opener else raw as stream:
            bytes_of = io.BufferedReader(_Bounded(stream, file), _CHUNK) if opener else stream
            yield bytes_of, lambda: file.size if raw.closed else raw.tell()
    except Exception as error:
        content = (EOFError, zlib.error, lzma.LZMAError)
        if isinstance(error, ElectraError):
            raise
        if file.url and not isinstance(error, content):
            raise unreached(file.url, error) from None
        if isinstance(error, OSError) and error.errno is not None:
            raise errors.storage_error(error, str(file)) from None
        if isinstance(error, (*content, OSError)):  # gzip, bz2 and pyarrow raise an OSError without a number
            what = f"is damaged or not a {file.compression} file" if file.compression else "is damaged"
            raise DataError(f"{file}: {what} ({error}). Fetch or compress it again.") from None
        raise


def beginning(file: TextFile) -> bytes:
    """The first bytes of a file, decompressed: `reading.HEAD`, or all that it has."""
    with unpacked(file) as (stream, _):
        return stream.read(reading.HEAD)


def read_lines(file: TextFile, *, limit: int, on_progress: Callable[[int], None]) -> Iterator[ByteLine]:
    r"""Lines of a file, which end in "\n", "\r\n" or "\r", also mixed; without their ends and the byte order mark.

    A line of more than `limit` bytes comes in several parts, cut at a space or at least between characters.

    Raises:
        DataError: a damaged compressed file, or one that unpacks to too much. StorageError: a file that cannot be read.
    """
    number, offset, reported, continued = 1, 0, 0, False
    rest = b""
    with unpacked(file) as (stream, position):
        while part := rest + stream.readline(limit + 1 - len(rest)):
            ends = len(part) <= limit or part.endswith(b"\n")
            cut = len(part) if ends else _cut(part, limit)
            cut = cut if ends else len(part[:cut].rstrip(b"\r")) or cut
            part, rest = part[:cut], part[cut:]
            if offset >= reported:
                on_progress(position())
                reported = offset + _CHUNK
            lines, stop = (part[:-1].rstrip(b"\r") if part.endswith(b"\n") else part).split(b"\r"), offset + cut
            for others, line in zip(range(len(lines) - 1, -1, -1), lines, strict=True):
                whole, length = others > 0 or ends, len(line) + 1 if others else stop - offset
                if length:
                    data = line.removeprefix(reading.BOM) if offset == 0 else line
                    yield ByteLine(data, number, offset, length, whole, continued)
                    number, offset, continued = number + whole, offset + length, not whole


def _cut(line: bytes, limit: int) -> int:
    """Where to cut a line of more than `limit` bytes: after its last space before it, else before a character."""
    space = line.rfind(b" ", limit // 2, limit)
    characters = (limit - back for back in range(4) if line[limit - back] & 0xC0 != 0x80)
    return space + 1 if space >= 0 else next(characters, limit)
