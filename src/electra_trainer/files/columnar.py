"""Read Parquet and Arrow files in a child process, which they may end.

pyarrow trusts lengths and offsets of a file until they are validated. The child has no more memory than the size
allows, and validates each batch of rows.
"""

import io
import itertools
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from electra_trainer import errors
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files import reading
from electra_trainer.files.opening import ROWS, Rows, TextFile, Tick, bound, is_url, opened, reason, unreached
from electra_trainer.files.processes import Connection, WorkerDied, Workers, serve

_MEMORY = 600 << 20
"""Bytes that the child may take beyond what its libraries take, plus four times the file's size."""
_RECORD = 256
"""Bytes that a row counts at least: it takes that much work."""
_CHUNK = 1 << 20
_BATCH = 100
"""Rows of Parquet that are decoded at once: a text may have megabytes."""


def rows(file: TextFile, column: str | None, tick: Tick) -> Rows:
    """The rows of a .parquet, .arrow or .feather, with one column if there is a column of that name."""
    if file.compression:
        raise DataError(f"{file}: is compressed as a whole. {reading.unpack_first(str(file))}")
    errors.need(f"Reading {file}", ["pyarrow"], extra="hub")
    numbers = itertools.count(1)
    setup = json.dumps([file.suffix, str(file), file.size, column]).encode()
    try:
        with Workers(f"{__name__}:_serve", setup=setup, count=1) as child:
            for answer in child.map(itertools.repeat(b"")):
                position, found = json.loads(answer)
                if not found:
                    return
                tick(position)
                yield from zip(found, numbers, strict=False)
    except WorkerDied as gone:
        what = f"the process that read it ended with status {gone.status}"
        raise DataError(f"{file}: is damaged: {what}. Fetch or write it again.") from None


def _serve(pipe: Connection) -> None:
    """In the child: answer with the bytes read and the next megabyte of rows, again and again; none after the last."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ prints when it ends the process
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # takes room only where it is needed

    def prepare(setup: bytes) -> Callable[[bytes], bytes]:
        answers = _answers(*json.loads(setup))
        return lambda _: next(answers, b"[0, []]")

    serve(pipe, prepare)


def _answers(form: str, file: str, size: int, column: str | None) -> Iterator[bytes]:
    import pyarrow.parquet  # before the limit: its libraries take what they take

    room = _MEMORY + 4 * size
    if (pages := Path("/proc/self/statm")).exists():  # other systems do not say what a process has
        most = int(pages.read_text().split()[0]) * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        raw = opened(file) if is_url(file) else io.FileIO(file)
        part: list[Any] = []
        held = total = 0
        for batch in (_of_parquet if form == ".parquet" else _of_arrow)(pyarrow, raw, file, size, column):
            batch.validate(full=True)
            for scalar in batch.to_struct_array():
                part.append(scalar.as_py())
                held += sum(len(cell) if isinstance(cell, str) else 8 for cell in part[-1].values())
                if held > _CHUNK or len(part) >= ROWS:
                    bound(file, size, total := total + held)
                    yield json.dumps([raw.tell(), part], default=str).encode()
                    part, held = [], 0
        if part:
            yield json.dumps([size, part], default=str).encode()
    except Exception as error:  # pyarrow has errors of every kind for what is not right
        if isinstance(error, ElectraError):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise unreached(file, error) from None
        what = f"is damaged, or a batch of its rows takes over {room >> 20:,} MiB of memory"
        raise DataError(f"{file}: {what} ({reason(error)}). Fetch or write it again.") from None


def _of_parquet(arrow: Any, raw: Any, file: str, size: int, column: str | None) -> Iterator[Any]:
    """Batches of rows; pages are read as they are needed."""
    with arrow.parquet.ParquetFile(raw, buffer_size=_CHUNK, pre_buffer=False) as table:
        asked = _asked(arrow, file, table.schema_arrow, column)
        bound(file, size, _RECORD * table.metadata.num_rows)
        yield from table.iter_batches(_BATCH, columns=asked, use_threads=False)


def _of_arrow(arrow: Any, raw: Any, file: str, size: int, column: str | None) -> Iterator[Any]:
    """The batches of a file, or of a stream."""
    is_file = raw.read(6) == b"ARROW1"
    open_it = arrow.ipc.open_file if is_file else arrow.ipc.open_stream
    raw.seek(0)
    schema = open_it(raw).schema
    fields = [schema.get_field_index(name) for name in _asked(arrow, file, schema, column)]
    raw.seek(0)
    source = open_it(raw, options=arrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
    yield from map(source.get_batch, range(source.num_record_batches)) if is_file else source


def _asked(arrow: Any, file: str, schema: Any, column: str | None) -> list[str]:
    """The column that is asked for, or all if it is not there. Raises DataError if it does not hold texts."""
    if column is None or column not in schema.names:
        return list(schema.names)
    found = schema.field(column).type
    found = found.value_type if arrow.types.is_dictionary(found) else found
    if str(found) not in ("string", "large_string", "string_view"):
        raise DataError(f"{file}: column {column!r} holds {found}, expected texts. Choose another with --text-field.")
    return [column]
