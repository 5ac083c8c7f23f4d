"""Resolve paths to regular files and read their lines as bytes, in bounded memory; a document: lines, and where they
were read.
"""

import bz2
import glob
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from electra_trainer.data import remote
from electra_trainer.errors import DataError, ElectraError, MissingInputError, StorageError, storage_error
from electra_trainer.files.kinds import HEAD
from electra_trainer.files.reading import BOM, IRREGULAR

_CHUNK = 1 << 20


def _zstd(raw: IO[bytes], _: str) -> IO[bytes]:
    with remote.extra("Reading .zst"):
        import pyarrow
    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"), _CHUNK)


_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}
_TEXT = (".txt", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".wet")
_NAMED_ONLY = (".csv", ".tsv", ".json")
"""Tables and settings may lie next to a text; in a folder they are not taken for it."""


FREE = 1 << 29
"""Bytes that any file may hold."""
RATIO = 2000
"""Bytes that it may hold for each byte on disk, beyond these."""
RECORD = 256
"""Bytes that a row or a record counts at least: it takes that much work."""
LINE = 32
"""Bytes that a line of text counts at least."""


@dataclass
class Bound:
    """Running total of what a file has yielded, and its bound."""

    file: str
    size: int
    """Bytes on disk; 0: unknown, so that the file is not bounded."""
    held: int = 0

    def add(self, length: int, *, least: int) -> None:
        """Count lines or records of that many bytes, or as `least` where they are shorter; DataError if the file holds
        too much.
        """
        self.held += max(length, least)
        most = FREE + RATIO * self.size
        if self.held > most and self.size:
            claim = f"{most >> 20:,} MiB of text, {most // LINE:,} lines or {most // RECORD:,} rows"
            raise DataError(
                f"{self.file}: has {self.size:,} bytes on disk and unpacks to over {claim}, which is too much for its "
                "size. Is it damaged? If it is sound, write its text to a file that is not compressed, and name that."
            )


class Place(NamedTuple):
    """Where a document was read."""

    file: str
    """As it was named or found; `docstrings:` and a module for the embedded corpus."""
    number: int
    """Its number in the file, from 1."""
    line: int
    """Its first line in the file (decompressed), or its row in a file that has rows, from 1; 0: it has neither."""
    last: int
    """Its last line or row."""


class Document(tuple[str, ...]):
    """Lines of text, a tuple of them, with the attribute `place`."""

    place: Place

    def __new__(cls, lines: Iterable[str], place: Place) -> "Document":
        made = super().__new__(cls, lines)
        made.place = place
        return made


@dataclass(frozen=True)
class TextFile:
    """A regular file that is to be read, and its size on disk in bytes."""

    path: Path
    size: int
    url: str = ""
    """Where it is, if not on a disk of this machine; `path` has its name then."""

    def __str__(self) -> str:
        return self.url or str(self.path)

    @property
    def compression(self) -> str:
        """`.gz`, `.bz2`, `.xz`, `.zst` or nothing, from the name."""
        suffix = self.path.suffix.lower()
        return suffix if suffix in _OPENERS else ""

    @property
    def suffix(self) -> str:
        """Ending of the name without that of the compression, in small letters."""
        return (self.path.with_suffix("") if self.compression else self.path).suffix.lower()

    def open(self) -> IO[bytes]:
        """Its bytes as they are stored."""
        raw: Any = remote.opened(self.url) if self.url else self.path.open("rb", buffering=0)
        return io.BufferedReader(raw)


@dataclass(frozen=True)
class ByteLine:
    """A line, or a part of a line that is longer than the limit."""

    data: bytes  # without line end or byte order mark
    number: int  # counted from 1
    offset: int  # of its first byte in the (decompressed) file
    length: int  # bytes it takes in the file
    ends: bool  # it is the whole line, or the last part of one
    continued: bool  # it is not the first part


Source = TextFile | remote.DataSet | remote.Texts
"""Origin of documents."""


def data_set(name: str) -> remote.DataSet | None:
    """`remote.data_set` of an input; a name that ends as files do is a file's."""
    return remote.data_set(name, endings=(*_OPENERS, *_TEXT, *_NAMED_ONLY))


def find_sources(paths: Sequence[str | Path | remote.Texts]) -> tuple[list[Source], int, int]:
    """Resolve files, folders, glob patterns, URLs and names of data sets, in the order given and sorted within each.

    Returns:
        What is to be read; how many other files in folders were left out because of their names; how many were named
        again.

    Raises:
        MissingInputError: nothing there, or a pattern that matches nothing.
        DataError: no path at all, a folder without text, something that is not a regular file.
    """
    found: dict[Any, Source] = {}
    skipped = repeated = 0
    for name in [paths] if isinstance(paths, str | Path) else paths:
        named, left_out = _resolved(name)
        skipped += left_out
        for identity, source in named:
            repeated += identity in found
            found.setdefault(identity, source)
    return list(found.values()), skipped, repeated


def _resolved(name: str | Path | remote.Texts) -> tuple[list[tuple[Any, Source]], int]:
    """What one input names, each with what tells it from others; and how many files were left out."""
    if isinstance(name, remote.Texts):
        return [(id(name), name)], 0
    if remote.is_url(str(name)):
        found = remote.files(str(name), is_text=_is_text)
        return [(url, TextFile(Path(url.partition("?")[0].rpartition("/")[2]), size, url)) for url, size in found], 0
    if data := data_set(str(name)):
        return [(data.name, data)], 0
    paths, skipped = _expand(str(name))
    return [_regular(path) for path in paths], skipped


def _regular(path: Path) -> tuple[Any, Source]:
    try:
        status = path.stat()
    except OSError as error:
        raise storage_error(error, path) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: {IRREGULAR}")
    return (status.st_dev, status.st_ino), TextFile(path, status.st_size)


def _expand(name: str) -> tuple[list[Path], int]:
    """Files that a path or a pattern names, and how many others its folder holds."""
    if os.path.isdir(name):  # noqa: PTH112 - False for what cannot be a name
        return _in_folder(Path(name))
    if os.path.lexists(name):
        return [Path(name)], 0
    if not any(character in name for character in "*?["):
        remedy = "Check the path; `docstrings` names the embedded corpus, OWNER/NAME a data set of the Hub."
        raise MissingInputError(f"{name}: no such file or folder. {remedy}")
    matches = map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207 - absolute patterns too
    if not (kept := [match for match in matches if not match.is_dir()]):
        raise MissingInputError(f"{name}: the pattern matches no file. Check it, and quote it for the shell.")
    return kept, 0


def _in_folder(folder: Path) -> tuple[list[Path], int]:
    def refuse(error: OSError) -> None:
        raise storage_error(error, error.filename or folder)

    kept: list[Path] = []
    skipped = 0
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        texts = sorted(filter(_is_text, names))
        kept += [Path(root, name) for name in texts]
        skipped += len(names) - len(texts)
    if not kept:
        raise DataError(
            f"{folder}: holds no text, expected {', '.join(_TEXT)} (or those with {', '.join(_OPENERS)}). Name files "
            "of other names one by one, or with a pattern."
        )
    return kept, skipped


def _is_text(name: str) -> bool:
    """Whether a file in a folder is taken for text."""
    return TextFile(Path(name), 0).suffix in _TEXT and not name.startswith(".")


@contextmanager
def unpacked(file: TextFile) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """A file's bytes after decompression, and a function that says how many of its bytes on disk were read.

    Raises:
        DataError: a damaged compressed file. StorageError: a file that cannot be read. ConfigError: a package is
            missing.
    """
    opener = _OPENERS.get(file.compression)
    try:
        with file.open() as raw, opener(raw, "rb") if opener else raw as stream:
            yield stream, lambda: file.size if raw.closed else raw.tell()
    except ElectraError:
        raise
    except Exception as error:
        if isinstance(error, EOFError | zlib.error | lzma.LZMAError) or (
            isinstance(error, OSError) and error.errno is None and not file.url
        ):  # what gzip, bz2 and pyarrow raise about content
            what = f"is damaged or not a {file.compression} file" if file.compression else "is damaged"
            raise DataError(f"{file}: {what} ({error}). Fetch or compress it again.") from None
        if isinstance(error, OSError):
            raise storage_error(error, str(file)) from None
        if file.url:
            raise StorageError(f"{file}: {type(error).__name__}: {error}. Try again.") from None
        raise


def beginning(file: TextFile) -> bytes:
    """The first bytes of a file, decompressed: `kinds.HEAD`, or all that it has."""
    with unpacked(file) as (stream, _):
        return stream.read(HEAD)


def read_lines(file: TextFile, *, limit: int, on_progress: Callable[[int], None]) -> Iterator[ByteLine]:
    r"""Lines of a file, split at "\n" only, without "\r" at the end and without the byte order mark.

    A line of more than `limit` bytes comes in several parts, cut at a space or at least between characters.

    Raises:
        DataError: a damaged compressed file, or one that unpacks to too much. StorageError: a file that cannot be read.
    """
    number, offset, reported, continued = 1, 0, 0, False
    rest, bound = b"", Bound(str(file), file.size)
    with unpacked(file) as (stream, position):
        while part := rest + stream.readline(limit + 1 - len(rest)):
            ends = len(part) <= limit or part.endswith(b"\n")
            cut = len(part) if ends else _cut(part, limit)
            part, rest = part[:cut], part[cut:]
            bound.add(cut, least=LINE)
            if offset >= reported:
                on_progress(position())
                reported = offset + _CHUNK
            data = part.removeprefix(BOM) if offset == 0 else part
            if ends:
                data = data.removesuffix(b"\n").removesuffix(b"\r")
            yield ByteLine(data, number, offset, cut, ends, continued)
            number, offset, continued = number + ends, offset + cut, not ends


def _cut(line: bytes, limit: int) -> int:
    """Where to cut a line of more than `limit` bytes: after its last space before it, else before a character."""
    space = line.rfind(b" ", limit // 2, limit)
    if space >= 0:
        return space + 1
    for back in range(4):
        if line[limit - back] & 0xC0 != 0x80:
            return limit - back
    return limit
