r"""Tables of one's own, read strictly: .csv, .tsv and .jsonl. Each row knows its line, and what is wrong says where.

.csv    RFC 4180: commas; a field between double quotes may hold commas, line ends and doubled quotes. A quote within a field
        that does not begin with one is an ordinary character.
.tsv    One line a row, tabs between fields, quotes are ordinary characters, as in GLUE's files. But a field that is quoted
        whole, every quote within doubled, as pandas and spreadsheets write it, is taken out of its quotes. A tab or a line
        end within a field cannot be told from the end of one: that needs a .csv.
.jsonl  One object a line; columns are the keys in the order in which they first come.

UTF-8, with or without a byte order mark. Column names lose the spaces around them; blank lines are left out; a first column
without a name (pandas' index) is never taken for text or label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError, storage_error
from electra_trainer.finetune.json_lines import read_objects
from electra_trainer.finetune.separated import csv_records, read_records, tsv_records

SUFFIXES = (".csv", ".tsv", ".jsonl")
MAX_LINE = 1 << 24
"""Bytes."""
_BOM = b"\xef\xbb\xbf"
_FOREIGN = {
    b"\xff\xfe": "is UTF-16. Save it as UTF-8",
    b"\xfe\xff": "is UTF-16. Save it as UTF-8",
    b"PK\x03\x04": "is a zip or an Excel file. Save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "is an Excel file. Save the sheet as CSV in UTF-8",
    b"\x1f\x8b": "is compressed with gzip. Unpack it (gunzip)",
    b"PAR1": "is a Parquet file. Save it as CSV or JSON lines",
}
_ELSE = {
    ".json": "Write one object a line and call it .jsonl: "
    "python -c \"import json,sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))]\" FILE.json > FILE.jsonl",
    ".xlsx": "Save the sheet as CSV in UTF-8.",
    ".xls": "Save the sheet as CSV in UTF-8.",
    ".parquet": 'Convert it: python -c "import pandas; pandas.read_parquet(\'FILE\').to_csv(\'FILE.csv\', index=False)"',
    ".gz": "Unpack it (gunzip).",
    ".txt": "Name it .tsv if tabs stand between its columns, .csv if commas do.",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file's columns and rows."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    """Text in .csv and .tsv, JSON's values in .jsonl; a row may be shorter than the columns where keys came later."""
    lines: Sequence[int]
    """Line on which each row begins, counted from 1."""
    sha256: str

    def where(self, row: int) -> str:
        """`file:line` of a row."""
        return f"{self.path}:{self.lines[row]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""
        at = self.columns.index(name)
        return [row[at] if at < len(row) else None for row in self.rows]


def read_table_file(path: Path) -> Table:
    """Read a .csv, .tsv or .jsonl file whole.

    Raises:
        MissingInputError, StorageError: cannot be read.
        DataError: is not such a file, with file:line and what to do.
    """
    _check_name(path)
    digest = hashlib.sha256()
    lines = _lines(path, digest.update)
    try:
        if path.suffix.lower() == ".jsonl":
            columns, rows, numbers = read_objects(path, lines)
        else:
            records = csv_records(path, lines) if path.suffix.lower() == ".csv" else tsv_records(lines)
            columns, rows, numbers = read_records(path, records)
    except OSError as error:
        raise storage_error(error, path) from None
    return Table(path=path, columns=columns, rows=rows, lines=numbers, sha256=digest.hexdigest())


def _check_name(path: Path) -> None:
    try:
        path.stat()
        if path.is_dir():
            raise IsADirectoryError(21, "is a directory")
        if not path.is_file():
            raise DataError(f"{path}: is not a regular file (a pipe or device). Write its content to a file first.")
    except OSError as error:
        raise storage_error(error, path) from None
    except ValueError:  # a NUL in the name
        raise DataError(f"{str(path)!r}: is no file name.") from None
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path}: the name ends in {suffix or 'nothing'!r}, expected {', '.join(SUFFIXES)}. {_ELSE.get(suffix, 'Rename or convert it.')}"
        )


def _lines(path: Path, update: Callable[[bytes], None]) -> Iterator[tuple[int, str]]:
    r"""Numbered lines with their ends; split at "\n" only."""
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE + 1):
            number += 1
            update(raw)
            if number == 1:
                _check_kind(path, raw)
                raw = raw.removeprefix(_BOM)
            where = f"{path}:{number}"
            if len(raw) > MAX_LINE:
                raise DataError(f"{where}: a line of more than {MAX_LINE >> 20} MiB. Expected text, a row a line.")
            if b"\0" in raw:
                raise DataError(
                    f"{where}: NUL at byte {raw.index(0) + 1} of the line: UTF-16, or no text at all. Save it as UTF-8 text."
                )
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: byte {error.start + 1} of the line is 0x{raw[error.start]:02x}, which is not UTF-8 there. "
                    f"Save it as UTF-8, for example: iconv -f LATIN1 -t UTF-8 {path.name} > new{path.suffix}"
                ) from None


def _check_kind(path: Path, begin: bytes) -> None:
    for magic, what in _FOREIGN.items():
        if begin.startswith(magic):
            raise DataError(f"{path}: {what}.")
