"""Read rows wherever they are: files, URLs, data sets, memory; each value with its line or row. rows.py
makes tables of them.

A value of a file of records is a text, or None where a row has none. Files are read piece by piece. Parquet and Arrow
files, and saved data sets, are read by a child process that a malformed file may end: pyarrow trusts lengths and
offsets of a file until they are validated. The child has no more memory than the size allows, and validates each batch
of rows.

URLs are read by fsspec, data sets by `datasets`. These packages are the extra [hub]; nothing of them is imported before
an input of the kind is named.
"""

import bz2
import glob
import gzip
import io
import itertools
import json
import lzma
import os
import re
import resource
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from electra_trainer import errors
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError
from electra_trainer.files import reading, tables
from electra_trainer.files.processes import Connection, WorkerDied, Workers, serve

ROWS = 1000
"""Rows that are asked for at once: one at a time takes forty times as long."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
HUB_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?"
    r"(:(?P<config>[\w.-]*))?(:(?P<split>[\w.-]+))?"
)


def is_url(name: str) -> bool:
    """Whether an input is a URL such as s3://bucket/text.txt."""
    return _URL.match(name) is not None


def _reach(url: str) -> tuple[Any, str]:
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
        reason = f", or it cannot be reached ({error.__cause__})" if error.__cause__ else ""
        return MissingInputError(f"{url}: nothing is there{reason[:200]}. Check the address.")
    return StorageError(
        f"{url}: cannot be read ({_reason(error)}). Check the address (OWNER/NAME:CONFIG where a data set has several "
        "configurations), your rights and the network, then try again."
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def remote_files(url: str) -> list[tuple[str, int]]:
    """Files at a URL, sorted, with their bytes (0: unknown): itself, those that a pattern matches, or those of a folder
    that are text.

    Raises:
        ConfigError: a package is missing. MissingInputError: nothing is there. StorageError: it cannot be reached.
    """
    system, path = _reach(url)
    is_web = url.lower().startswith("http")  # a page has neither patterns nor folders
    try:
        if not is_web and any(character in path for character in "*?["):
            found = sorted(one for one in system.glob(path) if system.isfile(one))
        elif not is_web and system.isdir(path):
            found = sorted(one for one in system.find(path) if _is_text(one.rpartition("/")[2]))
        else:
            found = [path]
        sizes = [int(system.info(one).get("size") or 0) for one in found]
    except Exception as error:
        raise unreached(url, error) from None
    if not found:
        raise MissingInputError(f"{url}: no file of text is there. Check the address, and quote a pattern.")
    return [(one if is_web else system.unstrip_protocol(one), size) for one, size in zip(found, sizes, strict=True)]


def opened(url: str) -> IO[bytes]:
    """The bytes of a file at a URL; errors as for `remote_files`."""
    system, path = _reach(url)
    try:
        return system.open(path, "rb")  # type: ignore[no-any-return]
    except Exception as error:
        raise unreached(url, error) from None


@dataclass(frozen=True)
class DataSet:
    """A data set of the package `datasets`: of the Hub, or a folder that `save_to_disk` made."""

    name: str
    """A folder, or OWNER/NAME@COMMIT:CONFIG:SPLIT, which may be given as an input again."""
    is_folder: bool
    size: int = 0

    def __str__(self) -> str:
        return self.name

    def texts(self, column: str) -> Iterator[tuple[Any, int]]:
        """The values of a column, with their rows, from 1.

        Raises:
            DataError: there is not such a column. ElectraError: it is not there, or cannot be read.
        """
        try:
            yield from Texts(self.loaded(column)).texts(column)
        except Exception as error:
            raise unreached(self.name, error) from None

    def rows(self) -> Iterator[Any]:
        """All rows; errors as for `texts`."""
        try:
            yield from self.loaded(None)
        except Exception as error:
            raise unreached(self.name, error) from None

    def loaded(self, column: str | None) -> Any:
        """The data set with this column only, or with all; errors as for `texts`, and those of the package."""
        errors.need(f"Reading {self.name}", ["datasets"], extra="hub")
        import datasets

        if self.is_folder:
            data = datasets.load_from_disk(self.name, keep_in_memory=False)
        else:
            name, revision, config, split = _hub_parts(self.name)
            data = datasets.load_dataset(name, config, split=split, revision=revision, streaming=True)
        data = data["train"] if isinstance(data, dict) else data
        if column is None:
            return data
        columns = data.column_names
        if columns and column not in columns:
            raise no_column(self.name, column, columns)
        return data.select_columns([column]) if columns else data


@dataclass(frozen=True)
class Texts:
    """Documents that a program gives: texts, lists of lines, or mappings of which a field is one or the other."""

    items: Iterable[object]
    size: int = 0

    def __str__(self) -> str:
        return "documents"

    def texts(self, column: str) -> Iterator[tuple[Any, int]]:
        """Their texts, with their numbers from 1. Raises DataError for a mapping without that field."""
        items: Any = self.items
        if hasattr(items, "select_columns"):  # of the package datasets, where rows one at a time are slow
            items = (value for batch in items.iter(batch_size=ROWS) for value in batch.get(column) or [batch])
        for number, item in enumerate(items, 1):
            value: Any = item
            if isinstance(item, Mapping):
                if column not in item:
                    raise no_column(f"{self}:{number}", column, [*item])
                value = item[column]
            is_lines = isinstance(value, list | tuple) and all(isinstance(line, str) for line in value)
            yield "\n".join(value) if is_lines else value, number


def no_column(name: object, column: str, columns: Sequence[str]) -> DataError:
    """There is not a column of that name."""
    some = ", ".join(str(one)[:40] for one in columns[:12])
    return DataError(f"{name}: has no column {column!r}. The columns are: {some}. Choose one with --text-field.")


def data_set(name: str) -> DataSet | None:
    """The data set that an input names; None if it is of another kind.

    A name of the Hub is OWNER/NAME[@REVISION][:CONFIG[:SPLIT]], and nothing on the disk. The commit is settled here,
    once for the process, so that all passes read the same rows.

    Raises:
        ConfigError: a package is missing. StorageError: the Hub gave no such data set.
    """
    folder = Path(name)
    with suppress(OSError, ValueError):  # not a name that the disk can have
        if any((folder / mark).is_file() for mark in ("dataset_dict.json", "dataset_info.json")):
            return DataSet(name, True)
    if not HUB_NAME.fullmatch(name) or folder.parent.exists() or folder.suffix in _ENDINGS:
        return None
    owner, revision, config, split = _hub_parts(name)
    return DataSet(f"{owner}@{_commit(owner, revision)}:{config or ''}:{split}", False)


def _hub_parts(name: str) -> tuple[str, str | None, str | None, str]:
    found = HUB_NAME.fullmatch(name)
    assert found is not None
    return found["name"], found["revision"], found["config"] or None, found["split"] or "train"


@cache
def _commit(name: str, revision: str | None) -> str:
    errors.need(f"{name} is not on this disk; reading it from the Hub", ["huggingface_hub"], extra="hub")
    import huggingface_hub

    try:
        return str(huggingface_hub.HfApi().dataset_info(name, revision=revision).sha)
    except Exception as error:
        what = f"is not on this disk, and the Hub gave no data set of this name ({_reason(error)})"
        raise StorageError(f"{name}: {what}. Check the name, your login and the network.") from None


_CHUNK = 1 << 20


def _zstd(raw: IO[bytes], _: str) -> IO[bytes]:
    errors.need("Reading .zst", ["pyarrow"], extra="hub")
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"), _CHUNK)


_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}
_TEXT = (".txt", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".wet")
_ENDINGS = (*_OPENERS, *_TEXT, ".csv", ".tsv", ".json")
"""Endings of files, also of tables and settings, which in a folder are not taken for text."""
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
        """Count lines or records of that many bytes, or as `least` where they are shorter. Raises DataError if the file
        holds too much.
        """
        self.held += max(length, least)
        most = FREE + RATIO * self.size
        if self.held > most and self.size:
            claim = f"{most >> 20:,} MiB of text, {most // LINE:,} lines or {most // RECORD:,} rows"
            raise DataError(
                f"{self.file}: has {self.size:,} bytes on disk and unpacks to over {claim}, which is too much for its "
                "size. Is it damaged? If it is sound, write its text to a file that is not compressed, and name that."
            )


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
        raw: Any = opened(self.url) if self.url else self.path.open("rb", buffering=0)
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


Source = TextFile | DataSet | Texts
"""Origin of documents."""


def find_sources(paths: Sequence[str | Path | Texts]) -> tuple[list[Source], int, int]:
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
        named, left_out = resolved(name)
        skipped += left_out
        for identity, source in named:
            repeated += identity in found
            found.setdefault(identity, source)
    return list(found.values()), skipped, repeated


def resolved(name: str | Path | Texts) -> tuple[list[tuple[Any, Source]], int]:
    """Sources that one input names, each with what tells it from others; and how many files were left out."""
    if isinstance(name, Texts):
        return [(id(name), name)], 0
    if is_url(str(name)):
        found = remote_files(str(name))
        return [(url, TextFile(Path(url.partition("?")[0].rpartition("/")[2]), size, url)) for url, size in found], 0
    if data := data_set(str(name)):
        return [(data.name, data)], 0
    paths, skipped = _expand(str(name))
    return [_regular(path) for path in paths], skipped


def _regular(path: Path) -> tuple[Any, Source]:
    try:
        status = path.stat()
    except OSError as error:
        raise errors.storage_error(error, path) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: {reading.IRREGULAR}")
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
        raise errors.storage_error(error, error.filename or folder)

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
    rest, bound = b"", Bound(str(file), file.size)
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
                    bound.add(length, least=LINE)
                    data = line.removeprefix(reading.BOM) if offset == 0 else line
                    yield ByteLine(data, number, offset, length, whole, continued)
                    number, offset, continued = number + whole, offset + length, not whole


def _cut(line: bytes, limit: int) -> int:
    """Where to cut a line of more than `limit` bytes: after its last space before it, else before a character."""
    space = line.rfind(b" ", limit // 2, limit)
    characters = (limit - back for back in range(4) if line[limit - back] & 0xC0 != 0x80)
    return space + 1 if space >= 0 else next(characters, limit)


Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
_LONGEST = 1 << 26
"""Bytes of a WET record with its header."""
FORMATS = {reading.PARQUET: "parquet", reading.ARROW: "file", reading.ARROW_STREAM: "stream"}
_MEMORY = 600 << 20
"""Bytes that the child may take beyond what its libraries take, plus four times the file's size."""
_BATCH = 100
"""Rows of Parquet that are decoded at once: a text may have megabytes."""
NO_READER = {".parquet": "a Parquet", ".arrow": "an Arrow", ".feather": "a Feather", ".wet": "a WET"}


def records(file: TextFile, column: str, tick: Tick) -> Values | None:
    """The values of a file of records; None if it holds lines of text, or JSON lines.

    Args:
        file: recognised by how it begins, and by its name where that does not say it.
        column: of .csv, .tsv, Parquet and Arrow.
        tick: for progress.

    Raises:
        DataError: a kind of file that is not read, with what to do; damaged; there is not such a column.
        ConfigError: the extra [hub] is missing. MissingInputError, StorageError: cannot be read.
    """
    head = beginning(file)
    kind = reading.kind_of(head, str(file).removesuffix(file.compression))
    if kind in FORMATS and not file.compression:
        return of_child(FORMATS[kind], str(file), column, file.size, tick)
    if kind is reading.WARC:
        return wet_texts(file, tick)
    if kind is None and file.suffix in NO_READER:
        raise DataError(
            f"{file}: is not {NO_READER[file.suffix]} file, though it is named so. Fetch or write it again."
        )
    if kind is None and file.suffix in (".csv", ".tsv"):
        return table_texts(file, column, tick)
    kind = kind or reading.unlike_text(head, is_whole=len(head) < reading.HEAD, is_json=file.suffix in JSON_LINES)
    if kind is not None:
        raise DataError(kind.refusal(str(file)))
    return None


def table_texts(file: TextFile, column: str, tick: Tick) -> Values:
    """A column of a .csv or .tsv, with each row's first line; DataError as `tables.stream` says, or there is not such a
    column.
    """
    bound = Bound(str(file), file.size)
    with unpacked(file) as (stream, position):

        def lines() -> Iterator[tuple[int, str]]:
            for number, line in reading.lines(stream, file, ends=True):
                bound.add(len(line), least=LINE)
                yield number, line

        rows = tables.stream(str(file), lines(), suffix=file.suffix)
        _, columns = next(rows)
        if column not in columns:
            raise no_column(file, column, columns)
        for count, (line, fields) in enumerate(rows):
            if count % ROWS == 0:
                tick(position())
            yield fields[columns.index(column)], line


class _Pages:
    """A stream for warcio that ends a record of more than `_LONGEST` bytes with a DataError."""

    def __init__(self, stream: IO[bytes], file: TextFile) -> None:
        self._stream, self._file, self.taken = stream, file, 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.taken += len(data)
        if self.taken > _LONGEST:
            raise DataError(f"{self._file}: a record of over {_LONGEST >> 20} MiB. Fetch the file again.")
        return data

    def tell(self) -> int:
        return 0


def wet_texts(file: TextFile, tick: Tick) -> Values:
    """The texts of a WET file (WARC records of the type conversion), with their numbers in it.

    Bytes that are not UTF-8 become halves of surrogate pairs. DataError: web pages instead of their text; damaged.
    """
    errors.need(f"Reading {file}", ["warcio"], extra="hub")
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    with unpacked(file) as (stream, position):
        pages = _Pages(stream, file)
        try:
            for number, record in enumerate((archive := ArchiveIterator(pages, no_record_parse=True)), 1):
                if record.rec_type not in ("conversion", "warcinfo", "metadata"):
                    raise DataError(reading.WARC.refusal(str(file)))
                body = record.raw_stream.read()
                if len(body) != record.length:
                    raise ValueError(f"record {number} is cut short")
                pages.taken = 0
                tick(position())
                if record.rec_type == "conversion":
                    yield body.decode("utf-8", "surrogateescape"), number
            if archive.err_count:
                raise ValueError("the length of a record is wrong")
        except (ArchiveLoadFailed, ValueError, OverflowError) as error:
            raise DataError(f"{file}: is damaged ({_reason(error)}). Fetch it again.") from None


def folder_texts(folder: str, column: str) -> Values:
    """A column of a data set that `save_to_disk` wrote; errors as for `DataSet.texts`, and a damaged file."""
    size = sum(path.stat().st_size for path in Path(folder).rglob("*.arrow"))
    return of_child("folder", folder, column, size, lambda _: None)


def of_child(form: str, file: str, column: str | None, size: int, tick: Tick) -> Values:
    """A column, with the rows' numbers from 1, as a child reads it; other columns are not read. None: rows of all."""
    errors.need(f"Reading {file}", ["datasets" if form == "folder" else "pyarrow"], extra="hub")
    numbers = itertools.count(1)
    try:
        with Workers(f"{__name__}:_serve", setup=json.dumps([form, file, column, size]).encode(), count=1) as child:
            for answer in child.map(itertools.repeat(b"")):
                position, values = json.loads(answer)
                if not values:
                    return
                tick(position)
                yield from zip(values, numbers, strict=False)
    except WorkerDied as gone:
        what = f"the process that read it ended with status {gone.status}"
        raise DataError(f"{file}: is damaged: {what}. Fetch or write it again.") from None


def _serve(pipe: Connection) -> None:
    """In the child: answer with the bytes read and the next megabyte of texts, again and again; none after the last."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ prints when it ends the process
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # takes room only where it is needed

    def prepare(setup: bytes) -> Callable[[bytes], bytes]:
        answers = _answers(*json.loads(setup))
        return lambda _: next(answers, b"[0, []]")

    serve(pipe, prepare)


def _answers(form: str, file: str, column: str | None, size: int) -> Iterator[bytes]:
    room = _MEMORY + 4 * size
    try:
        part: list[Any] = []
        held = 0
        for position, values in _batches(form, file, column, size, room):
            values.validate(full=True)
            for scalar in values:
                part.append(scalar.as_py())
                cells = part[-1].values() if isinstance(part[-1], dict) else part[-1:]
                held += sum(len(cell) if isinstance(cell, str) else 8 for cell in cells)
                if held > _CHUNK or len(part) >= ROWS:
                    yield json.dumps([position(), part], default=str).encode()
                    part, held = [], 0
        if part:
            yield json.dumps([size, part], default=str).encode()
    except Exception as error:  # pyarrow has errors of every kind for what is not right
        if isinstance(error, ElectraError):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise unreached(file, error) from None
        what = f"is damaged, or a batch of its rows takes over {room >> 20:,} MiB of memory"
        raise DataError(f"{file}: {what} ({_reason(error)}). Fetch or write it again.") from None


def _batches(form: str, file: str, column: str | None, size: int, room: int) -> Iterator[tuple[Callable[[], int], Any]]:
    """Arrays of a column, or of rows, each with a function that says how many bytes were read; from the first on within
    `room`.
    """
    import pyarrow
    import pyarrow.parquet

    batches: Iterator[Any]
    if form == "folder":
        rows = DataSet(file, True).loaded(column).with_format("arrow").iter(batch_size=ROWS)
        position, batches = lambda: 0, (_column(batch, column) for batch in rows)
    else:
        raw = opened(file) if is_url(file) else io.FileIO(file)
        position = raw.tell
        if form == "parquet":
            batches = _of_parquet(pyarrow, raw, file, column, size)
        else:
            batches = _of_arrow(pyarrow, raw, file, column, is_file=form == "file")
    if (pages := Path("/proc/self/statm")).exists():  # other systems do not say what a process has
        most = int(pages.read_text().split()[0]) * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for values in batches:
        yield position, values


def _of_parquet(arrow: Any, raw: Any, file: str, column: str | None, size: int) -> Iterator[Any]:
    """Arrays of a column; pages are read as they are needed."""
    with arrow.parquet.ParquetFile(raw, buffer_size=_CHUNK, pre_buffer=False) as table:
        _check_column(arrow, file, table.schema_arrow, column)
        Bound(file, size).add(RECORD * table.metadata.num_rows, least=0)
        for batch in table.iter_batches(_BATCH, columns=column and [column], use_threads=False):
            yield _column(batch, column)


def _of_arrow(arrow: Any, raw: Any, file: str, column: str | None, *, is_file: bool) -> Iterator[Any]:
    """Arrays of a column, one for each batch of the file."""
    opened = arrow.ipc.open_file if is_file else arrow.ipc.open_stream
    schema = opened(raw).schema
    _check_column(arrow, file, schema, column)
    raw.seek(0)
    fields = None if column is None else [schema.get_field_index(column)]
    options = arrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    source = opened(raw, options=options)
    for batch in map(source.get_batch, range(source.num_record_batches)) if is_file else source:
        yield _column(batch, column)


def _column(batch: Any, column: str | None) -> Any:
    return batch.to_struct_array() if column is None else batch.column(column)


def _check_column(arrow: Any, file: str, schema: Any, column: str | None) -> None:
    if column is None:
        return
    if column not in schema.names:
        raise no_column(file, column, schema.names)
    found = schema.field(column).type
    found = found.value_type if arrow.types.is_dictionary(found) else found
    if str(found) not in ("string", "large_string", "string_view"):
        raise DataError(f"{file}: column {column!r} holds {found}, expected texts. Choose another with --text-field.")
