"""Read one input whole, as a table: its columns and rows, for labels, vectors and predictions."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError
from electra_trainer.files import columnar, reading, tables
from electra_trainer.files.formats import FORMATS, reader_of, separator_of
from electra_trainer.files.opening import TextFile, is_url, unpacked
from electra_trainer.files.sources import data_set, enumerated, remote_files

_LOST_SLASH = re.compile(r"^([a-z][a-z0-9+.-]+):/(?=[^/])", re.IGNORECASE)
"""A URL after `Path`."""
_NAMES = 1 << 20
"""Most bytes of a line of column names, with blank lines before it, that are searched for their separator."""


def read_rows(given: Any) -> tables.Table:
    """All rows of one input: a file of one of `FORMATS`, also compressed or at a URL; a data set of the Hub;
    or texts, mappings, a data set or a data frame in memory.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: the extra [hub] is missing. DataError: not such an
            input, or a malformed row; says file:line and what to do.
    """
    if not isinstance(given, str | Path):
        is_frame = hasattr(given, "to_dict") and hasattr(given, "iloc")
        return tables.of_rows(Path("rows"), enumerated(given.to_dict("records") if is_frame else given, None))
    name = _name(given)
    if (found := data_set(name)) is not None:
        return tables.of_rows(Path(str(found)), found.rows(None), digest=str(found))
    file = _file(name)
    if file.suffix not in FORMATS:
        raise DataError(
            f"{file}: the name ends in {file.suffix or 'nothing'!r}, expected {', '.join(FORMATS)}. Convert or rename "
            "it: .csv has commas between its columns, .tsv tabs, .jsonl one JSON object a line."
        )
    file = file if FORMATS[file.suffix] is columnar.rows else _held(file)
    content = file.content or b""
    digest = hashlib.sha256(content).hexdigest() if content else ""
    table = tables.of_rows(Path(str(file)), reader_of(file)(file, None, lambda _: None), digest=digest)
    head = content[:_NAMES].lstrip().partition(b"\n")[0].decode(errors="replace")
    semicolons = file.suffix == ".csv" and separator_of(head) == ";"
    return replace(table, semicolons=semicolons, marked=content.startswith(reading.BOM))


def _name(given: str | Path) -> str:
    if not isinstance(given, Path):
        return given
    return _LOST_SLASH.sub(lambda found: f"{found[1]}://{'/' * (found[1].lower() == 'file')}", str(given))


def _file(name: str) -> TextFile:
    """The one file that an input names."""
    if is_url(name):
        file, *more = remote_files(name)
        if more:
            raise DataError(f"{name}: names {1 + len(more)} files. Name one.")
        return file
    return TextFile(Path(name), reading.regular(Path(name), limit=reading.MOST_TEXT).st_size)


def _held(file: TextFile) -> TextFile:
    """A file with all its bytes in memory, decompressed."""
    with unpacked(file) as (stream, _):
        content = reading.read_all(stream, reading.MOST_TEXT)
    if len(content) > reading.MOST_TEXT:
        raise DataError(f"{file}: holds over {reading.MOST_TEXT >> 20:,} MiB. Give a smaller file.")
    return replace(file, content=content)


def read_bytes(given: str | Path) -> bytes:
    """The bytes of a file, decompressed, also at a URL; errors as for `read_rows`."""
    return _held(_file(_name(given))).content or b""


def has_named_columns(given: str | Path) -> bool:
    """Whether an input has rows of named fields, by its name, and not columns of words."""
    name = _name(given)
    return TextFile(Path(name), 0).suffix in {*FORMATS} - {".txt", ".csv", ".tsv"} or data_set(name) is not None
