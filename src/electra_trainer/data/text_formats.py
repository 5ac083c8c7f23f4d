"""Texts of files that hold records: .csv, .tsv, WET, Parquet, Arrow. Readers yield each value with its line or row.

A value is a text, or None where a row has none. Files are read piece by piece. Parquet and Arrow files, and saved data
sets, are read by a child process that a malformed file may end: pyarrow trusts lengths and offsets of a file until they
are validated. The child has no more memory and time than the size allows, and validates each batch of rows.
"""

import io
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from electra_trainer.data import remote
from electra_trainer.data.text_files import LINE, Bound, TextFile, beginning, unpacked
from electra_trainer.errors import DataError, ElectraError, named
from electra_trainer.files import kinds, reading, tables
from electra_trainer.files.processes import Connection, Pool

Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
_LONGEST_FIELD = 1 << 24
"""Characters of a field: it is held whole."""
_LONGEST = 1 << 26
"""Bytes of a text of Parquet or Arrow, and of a WET record with its header."""
FORMATS = {kinds.PARQUET: "parquet", kinds.ARROW: "file", kinds.ARROW_STREAM: "stream"}
_CHUNK = 1 << 20
_MEMORY = 600 << 20
"""Bytes that the child may take beyond what its libraries take, plus four times the file's size."""
_SECONDS = 20
"""Seconds of computing for one batch of rows, plus one for each 16 MiB of the file."""
_BATCH = 1 << 24
"""Bytes of a batch of rows, as far as the file's own figures can be believed."""
_WRITE_AGAIN = "Fetch it again, or write its texts to a .jsonl file with the program that made it, and name that."
_NO_READER = {
    ".parquet": "a Parquet file",
    ".arrow": "an Arrow file",
    ".feather": "an Arrow file",
    ".wet": "a WET file",
}


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
    kind = kinds.kind_of(head, str(file).removesuffix(file.compression))
    if kind in FORMATS and not file.compression:
        return arrow_texts(file, column, tick, kind)
    if kind is kinds.WARC:
        return wet_texts(file, tick)
    if kind is None and file.suffix in _NO_READER:
        raise DataError(f"{file}: is not {_NO_READER[file.suffix]}, though it is named so. Fetch or write it again.")
    if kind is None and file.suffix in (".csv", ".tsv"):
        return table_texts(file, column, tick)
    kind = kind or kinds.unlike_text(head, is_whole=len(head) < kinds.HEAD, is_json=file.suffix in JSON_LINES)
    if kind is not None:
        raise DataError(kind.refusal(str(file)))
    return None


def table_texts(file: TextFile, column: str, tick: Tick) -> Values:
    """A column of a .csv or .tsv, with each row's first line; DataError as `tables.stream` says, or there is not such a
    column.
    """
    bound = Bound(str(file), file.size)

    def add(line: bytes) -> None:
        bound.add(len(line), least=LINE)

    with unpacked(file) as (stream, position):
        lines = reading.lines(stream, file, ends=True, hashed=add)
        rows = tables.stream(str(file), lines, suffix=file.suffix, longest=_LONGEST_FIELD)
        _, columns = next(rows)
        if column not in columns:
            raise remote.no_column(file, column, columns)
        at = columns.index(column)
        for count, (line, fields) in enumerate(rows):
            if count % remote.ROWS == 0:
                tick(position())
            yield fields[at], line


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
    with remote.extra(f"Reading {file}"):
        from warcio.archiveiterator import ArchiveIterator
        from warcio.exceptions import ArchiveLoadFailed
    with unpacked(file) as (stream, position):
        pages = _Pages(stream, file)
        try:
            for number, record in enumerate((archive := ArchiveIterator(pages, no_record_parse=True)), 1):
                if record.rec_type not in ("conversion", "warcinfo", "metadata"):
                    raise DataError(kinds.WARC.refusal(str(file)))
                body = record.raw_stream.read()
                if len(body) != record.length:
                    raise ValueError(f"record {number} is cut short")
                pages.taken = 0
                tick(position())
                if record.rec_type == "conversion":
                    yield body.decode("utf-8", "surrogateescape"), number
            if archive.err_count:
                raise ValueError("the length of a record is wrong")
        except (ArchiveLoadFailed, ValueError) as error:
            raise DataError(f"{file}: is damaged ({' '.join(str(error).split())[:200]}). Fetch it again.") from None


def arrow_texts(file: TextFile, column: str, tick: Callable[[int], None], kind: kinds.Kind) -> Values:
    """A column of a Parquet or Arrow file, with the rows' numbers from 1. Other columns are not read.

    Args:
        file: on a disk or at a URL.
        column: name of the column of texts.
        tick: called with the number of bytes read.
        kind: its format.

    Raises:
        ConfigError: the extra [hub] is missing. DataError: damaged, larger than it may be, or without this column of
            texts.
    """
    return _asked({"entry": FORMATS[kind], "file": str(file), "column": column, "size": file.size}, "pyarrow", tick)


def folder_texts(folder: str, column: str) -> Values:
    """A column of a data set that `save_to_disk` wrote; errors as for `remote.DataSet.texts`, and a damaged file."""
    size = sum(path.stat().st_size for path in Path(folder).rglob("*.arrow"))
    return _asked({"entry": "folder", "file": folder, "column": column, "size": size}, "datasets", lambda _: None)


def _asked(request: Mapping[str, Any], package: str, tick: Callable[[int], None]) -> Values:
    """Values from a child."""
    with remote.extra(f"Reading {request['file']}"):
        if find_spec(package) is None:
            raise ImportError(name=package)
    row = 0
    with Pool(f"{__name__}:child", count=1) as pool:
        (child,) = pool.children
        try:
            child.pipe.send_bytes(json.dumps(request).encode())
            while message := child.pipe.recv_bytes():
                about, values = json.loads(message)
                if isinstance(about, str):
                    raise named(about)(values)
                tick(about)
                for value in values:
                    row += 1
                    yield value, row
        except (EOFError, BrokenPipeError, ConnectionResetError):
            status = child.exit_status()
            if status == -signal.SIGXCPU:
                what = f"a batch of its rows takes over {_seconds(request)} s to read. {_WRITE_AGAIN}"
            else:
                what = f"is damaged: the process that read it ended with status {status}. Fetch or write it again."
            raise DataError(f"{request['file']}: {what}") from None


def _seconds(request: Mapping[str, Any]) -> int:
    return _SECONDS + (int(request["size"]) >> 24)


def child(pipe: Connection) -> None:
    """Answer one request: batches of texts, each after the bytes read, then the empty message; or an error's kind and
    sentence.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ prints when it ends the process
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # takes room only where it is needed
    request = json.loads(pipe.recv_bytes())
    try:
        _send_texts(pipe, request)
        pipe.send_bytes(b"")
    except ElectraError as error:
        _send(pipe, type(error).__name__, str(error))
    except MemoryError:
        allowed = f"a batch of its rows takes over {_room(request) >> 20:,} MiB of memory. {_WRITE_AGAIN}"
        _send(pipe, "DataError", f"{request['file']}: has {request['size']:,} bytes on disk, but {allowed}")
    except (BrokenPipeError, EOFError):  # the parent is gone
        os._exit(0)
    except Exception as error:  # pyarrow has errors of every kind for what is not right
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        known: ElectraError = DataError(f"{request['file']}: is damaged ({reason}). Fetch or write it again.")
        if isinstance(error, OSError) and error.errno is not None:
            known = remote.unreached(request["file"], error)
        _send(pipe, type(known).__name__, str(known))
    os._exit(0)


def _send(pipe: Connection, about: int | str, values: Any) -> None:
    pipe.send_bytes(json.dumps([about, values]).encode())


def _send_texts(pipe: Connection, request: Mapping[str, Any]) -> None:
    file, column = request["file"], request["column"]
    batches: Iterator[Any]
    with remote.extra(f"Reading {file}"):
        import pyarrow
        import pyarrow.parquet
    if request["entry"] == "folder":
        rows = remote.DataSet(file, True).loaded(column).with_format("arrow").iter(batch_size=remote.ROWS)
        raw, batches = None, (batch.column(column) for batch in rows)
    else:
        raw = remote.opened(file) if remote.is_url(file) else io.FileIO(file)
        if request["entry"] == "parquet":
            batches = _of_parquet(pyarrow, raw, file, column, Bound(file, request["size"]))
        else:
            batches = _of_arrow(pyarrow, raw, file, column, is_file=request["entry"] == "file")
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _limit_memory(_room(request))
    _limit_seconds(_seconds(request))
    for values in batches:
        values.validate(full=True)
        for texts in _parts(file, values):
            _send(pipe, raw.tell() if raw else 0, texts)
        _limit_seconds(_seconds(request))


def _room(request: Mapping[str, Any]) -> int:
    return _MEMORY + 4 * int(request["size"])


def _limit_memory(room: int) -> None:
    """Limit what this process takes from here on; nothing on systems that do not say what it has."""
    with_libraries = Path("/proc/self/statm")
    if with_libraries.exists():
        most = int(with_libraries.read_text().split()[0]) * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _limit_seconds(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _parts(file: str, values: Any) -> Iterator[list[Any]]:
    """Values of an array, about a megabyte of text at a time."""
    part: list[Any] = []
    size = 0
    for scalar in values:
        value = scalar.as_py()
        length = len(value) if isinstance(value, str) else 8
        if length > _LONGEST:
            raise DataError(
                f"{file}: holds a text of {length >> 20:,} MiB, more than {_LONGEST >> 20}. Divide it into several "
                "rows."
            )
        part.append(value)
        size += length
        if size > _CHUNK or len(part) >= remote.ROWS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _of_parquet(arrow: Any, raw: Any, file: str, column: str, bound: Bound) -> Iterator[Any]:
    """Arrays of a column, about 16 MiB of rows each; pages are read as they are needed."""
    with arrow.parquet.ParquetFile(raw, buffer_size=_CHUNK, pre_buffer=False) as table:
        _check_column(arrow, file, table.schema_arrow, column)
        about = table.metadata
        bound.claims(about.num_rows)
        groups = [about.row_group(number) for number in range(min(about.num_row_groups, 100))]
        longest = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=1)
        rows = max(1, min(remote.ROWS, _BATCH // max(1, longest)))
        for batch in table.iter_batches(rows, columns=[column], use_threads=False):
            yield batch.column(column)


def _of_arrow(arrow: Any, raw: Any, file: str, column: str, *, is_file: bool) -> Iterator[Any]:
    """Arrays of a column, one for each batch of the file."""
    opened = arrow.ipc.open_file if is_file else arrow.ipc.open_stream
    schema = opened(raw).schema
    _check_column(arrow, file, schema, column)
    raw.seek(0)
    options = arrow.ipc.IpcReadOptions(included_fields=[schema.get_field_index(column)], use_threads=False)
    source = opened(raw, options=options)
    for batch in map(source.get_batch, range(source.num_record_batches)) if is_file else source:
        yield batch.column(0)


def _check_column(arrow: Any, file: str, schema: Any, column: str) -> None:
    if column not in schema.names:
        raise remote.no_column(file, column, schema.names)
    if (count := schema.names.count(column)) > 1:
        raise DataError(
            f"{file}: has {count} columns named {column!r}. Rename one, or choose another with --text-field."
        )
    found = schema.field(column).type
    found = found.value_type if arrow.types.is_dictionary(found) else found
    if not (arrow.types.is_string(found) or arrow.types.is_large_string(found) or arrow.types.is_string_view(found)):
        raise DataError(
            f"{file}: column {column!r} holds {found}, expected texts. Choose another one with --text-field."
        )
