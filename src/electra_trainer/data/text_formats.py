"""Texts of files that hold records: .csv, .tsv, WET, Parquet, Arrow. Readers yield each value with its line or row.

A value is a text, or None where a row has none. Files are read piece by piece. Parquet and Arrow files, and saved data
sets, are read by a child process that a malformed file may end: pyarrow trusts lengths and offsets of a file until they
are validated. The child has no more memory than the size allows, and validates each batch of rows.
"""

import io
import itertools
import json
import os
import resource
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from electra_trainer.data import remote
from electra_trainer.data.text_files import LINE, RECORD, Bound, TextFile, beginning, unpacked
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files import kinds, reading, tables
from electra_trainer.files.processes import Connection, WorkerDied, Workers, serve

Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
_LONGEST_FIELD = 1 << 24
"""Characters of a field: it is held whole."""
_LONGEST = 1 << 26
"""Bytes of a WET record with its header."""
FORMATS = {kinds.PARQUET: "parquet", kinds.ARROW: "file", kinds.ARROW_STREAM: "stream"}
_CHUNK = 1 << 20
_MEMORY = 600 << 20
"""Bytes that the child may take beyond what its libraries take, plus four times the file's size."""
_BATCH = 100
"""Rows of Parquet that are decoded at once: a text may have megabytes."""
_NO_READER = {".parquet": "a Parquet", ".arrow": "an Arrow", ".feather": "a Feather", ".wet": "a WET"}


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
        return _of_child(FORMATS[kind], str(file), column, file.size, tick)
    if kind is kinds.WARC:
        return wet_texts(file, tick)
    if kind is None and file.suffix in _NO_READER:
        raise DataError(
            f"{file}: is not {_NO_READER[file.suffix]} file, though it is named so. Fetch or write it again."
        )
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
    with unpacked(file) as (stream, position):

        def lines() -> Iterator[tuple[int, str]]:
            for number, line in reading.lines(stream, file, ends=True):
                bound.add(len(line), least=LINE)
                yield number, line

        rows = tables.stream(str(file), lines(), suffix=file.suffix, longest=_LONGEST_FIELD)
        _, columns = next(rows)
        if column not in columns:
            raise remote.no_column(file, column, columns)
        for count, (line, fields) in enumerate(rows):
            if count % remote.ROWS == 0:
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


def folder_texts(folder: str, column: str) -> Values:
    """A column of a data set that `save_to_disk` wrote; errors as for `remote.DataSet.texts`, and a damaged file."""
    size = sum(path.stat().st_size for path in Path(folder).rglob("*.arrow"))
    return _of_child("folder", folder, column, size, lambda _: None)


def _of_child(form: str, file: str, column: str, size: int, tick: Tick) -> Values:
    """A column, with the rows' numbers from 1, as a child reads it. Other columns are not read."""
    package = "datasets" if form == "folder" else "pyarrow"
    with remote.extra(f"Reading {file}"):
        if find_spec(package) is None:
            raise ImportError(name=package)
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


def _answers(form: str, file: str, column: str, size: int) -> Iterator[bytes]:
    room = _MEMORY + 4 * size
    try:
        part: list[Any] = []
        held = 0
        for position, values in _batches(form, file, column, size, room):
            values.validate(full=True)
            for scalar in values:
                part.append(scalar.as_py())
                held += len(part[-1]) if isinstance(part[-1], str) else 8
                if held > _CHUNK or len(part) >= remote.ROWS:
                    yield json.dumps([position(), part]).encode()
                    part, held = [], 0
        if part:
            yield json.dumps([size, part]).encode()
    except ElectraError:
        raise
    except MemoryError:
        allowed = f"a batch of its rows takes over {room >> 20:,} MiB of memory"
        remedy = "Fetch it again, or write its texts to a .jsonl file with the program that made it, and name that."
        raise DataError(f"{file}: has {size:,} bytes on disk, but {allowed}. {remedy}") from None
    except Exception as error:  # pyarrow has errors of every kind for what is not right
        if isinstance(error, OSError) and error.errno is not None:
            raise remote.unreached(file, error) from None
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{file}: is damaged ({reason}). Fetch or write it again.") from None


def _batches(form: str, file: str, column: str, size: int, room: int) -> Iterator[tuple[Callable[[], int], Any]]:
    """Arrays of a column, each with a function that says how many bytes were read; from the first on within `room`."""
    import pyarrow
    import pyarrow.parquet

    batches: Iterator[Any]
    if form == "folder":
        rows = remote.DataSet(file, True).loaded(column).with_format("arrow").iter(batch_size=remote.ROWS)
        position, batches = lambda: 0, (batch.column(column) for batch in rows)
    else:
        raw = remote.opened(file) if remote.is_url(file) else io.FileIO(file)
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


def _of_parquet(arrow: Any, raw: Any, file: str, column: str, size: int) -> Iterator[Any]:
    """Arrays of a column; pages are read as they are needed."""
    with arrow.parquet.ParquetFile(raw, buffer_size=_CHUNK, pre_buffer=False) as table:
        _check_column(arrow, file, table.schema_arrow, column)
        Bound(file, size).add(RECORD * table.metadata.num_rows, least=0)
        for batch in table.iter_batches(_BATCH, columns=[column], use_threads=False):
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
    found = schema.field(column).type
    found = found.value_type if arrow.types.is_dictionary(found) else found
    if str(found) not in ("string", "large_string", "string_view"):
        raise DataError(f"{file}: column {column!r} holds {found}, expected texts. Choose another with --text-field.")
