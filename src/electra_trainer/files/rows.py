"""Read one input whole, as a table: its columns and rows, for labels, vectors and predictions."""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from electra_trainer import errors
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files import reading, tables
from electra_trainer.files.sources import (
    FORMATS,
    JSON_LINES,
    NO_READER,
    Bound,
    DataSet,
    TextFile,
    Values,
    data_set,
    is_url,
    of_child,
    resolved,
    unpacked,
    wet_texts,
)

_LOST_SLASH = re.compile(r"^([a-z][a-z0-9+.-]+):/(?=[^/])", re.IGNORECASE)
"""A URL after `Path`."""
_TABLES = (*tables.SUFFIXES, ".json", ".ndjson", ".txt", ".parquet", ".arrow", ".feather", ".wet")


def read_rows(given: Any) -> tables.Table:
    """All rows of one input: .csv, .tsv, JSON lines, .txt (a text a line), Parquet, Arrow or WET, also compressed or at
    a URL; a data set of the Hub or of `save_to_disk`; or texts, mappings, a data set or a data frame in memory.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: the extra [hub] is missing. DataError: not such an
            input, or a malformed row; says file:line and what to do.
    """
    if not isinstance(given, str | Path):
        items = given.to_dict("records") if hasattr(given, "to_dict") and hasattr(given, "iloc") else given
        rows = (item if isinstance(item, Mapping) else {"text": item} for item in items)
        return tables.of_objects(Path("rows"), enumerate(rows, 1))
    source = _elsewhere(given)
    return _of_file(*_content(given)) if source is None else _of_data_set(source)


def _of_data_set(source: DataSet) -> tables.Table:
    named = Path(source.name)
    if not source.is_folder:
        return tables.of_objects(named, enumerate(source.rows(), 1), digest=source.name)
    size = sum(path.stat().st_size for path in named.rglob("*.arrow"))
    return _of_objects(named, of_child("folder", source.name, None, size, lambda _: None))


def _of_file(file: TextFile, content: bytes) -> tables.Table:
    kind, path = reading.kind_of(content[: reading.HEAD], str(file).removesuffix(file.compression)), Path(str(file))
    digest = hashlib.sha256(content).hexdigest()
    if kind in FORMATS and not file.compression:
        rows_of_file = of_child(FORMATS[kind], str(file), None, len(content), lambda _: None)
        return _of_objects(path, rows_of_file, digest=digest)
    if kind is reading.WARC:
        texts = (({"text": text}, number) for text, number in wet_texts(file, lambda _: None))
        return _of_objects(path, texts, digest=digest)
    if file.suffix in NO_READER and kind is None:
        raise DataError(
            f"{file}: is not {NO_READER[file.suffix]} file, though it is named so. Fetch or write it again."
        )
    if file.suffix not in _TABLES or file.suffix in NO_READER:
        advice = kind.advice(str(file)) if kind else ""
        raise DataError(
            f"{file}: the name ends in {file.suffix or 'nothing'!r}, expected {', '.join(_TABLES)}. Convert or rename "
            f"it: .csv has commas between its columns, .tsv tabs, .jsonl one JSON object a line. {advice}".rstrip()
        )
    if file.suffix == ".json" and kind is not None:
        raise DataError(kind.refusal(str(file)))
    if file.suffix == ".txt":
        return _of_lines(path, content, digest=digest)
    return tables.parse(content, path, suffix=".jsonl" if file.suffix in JSON_LINES else file.suffix)


def _of_lines(path: Path, content: bytes, *, digest: str) -> tables.Table:
    """A text a line."""
    numbered = [(number, line.strip()) for number, line in reading.lines(content, path)]
    full = [(number, {"text": line}) for number, line in numbered if line]
    if not full:
        raise DataError(f"{path}: is empty. Expected a text a line.")
    if len(full) < len(numbered):
        errors.tell(f"{path}: blank lines left out: {len(numbered) - len(full):,}.")
    return tables.of_objects(path, full, digest=digest)


def _of_objects(path: Path, rows: Values, *, digest: str = "") -> tables.Table:
    return tables.of_objects(path, ((number, row) for row, number in rows), digest=digest)


def _name(given: str | Path) -> str:
    if not isinstance(given, Path):
        return given
    return _LOST_SLASH.sub(lambda found: f"{found[1]}://{'/' * (found[1].lower() == 'file')}", str(given))


def _elsewhere(given: str | Path) -> DataSet | None:
    """The data set that an input names; None: it is a file, or a URL."""
    return None if is_url(_name(given)) else data_set(_name(given))


def _content(given: str | Path) -> tuple[TextFile, bytes]:
    """A file, also at a URL, and all its bytes, decompressed."""
    name = _name(given)
    if is_url(name):
        (_, source), *more = resolved(name)[0]
        if more or not isinstance(source, TextFile):
            raise DataError(f"{name}: names {1 + len(more)} files. Name one.")
        file = source
    else:
        stored = reading.read_file(Path(name), limit=reading.MOST_TEXT)
        file = TextFile(Path(name), len(stored))
        if not file.compression:
            return file, stored
    with unpacked(file) as (stream, _):
        content = stream.read(reading.MOST_TEXT + 1)
    Bound(str(file), file.size).add(len(content), least=0)
    if len(content) > reading.MOST_TEXT:
        raise DataError(f"{file}: holds over {reading.MOST_TEXT >> 20:,} MiB. Give a smaller file.")
    return file, content


def read_bytes(given: str | Path) -> bytes:
    """The bytes of a file, decompressed, also at a URL; errors as for `read_rows`."""
    return _content(given)[1]


def has_named_columns(given: Any) -> bool:
    """Whether an input has rows of named fields, by its name: JSON lines, Parquet, Arrow, data sets, memory."""
    if not isinstance(given, str | Path):
        return True
    suffix = TextFile(Path(given), 0).suffix
    return suffix in (*JSON_LINES, ".parquet", ".arrow", ".feather") or _elsewhere(given) is not None


def count_lines(given: Any) -> int:
    """Line ends of a file of text, rows of other inputs; 0 if it cannot be read, which `read_rows` reports."""
    with suppress(ElectraError):
        if isinstance(given, str | Path) and TextFile(Path(given), 0).suffix in (*tables.SUFFIXES, ".txt"):
            return read_bytes(given).count(b"\n")
        return len(read_rows(given).rows)
    return 0
