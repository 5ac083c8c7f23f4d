"""Standard input as a file of rows to predict: `electra predict DIR/model -`."""

import csv
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files import reading

if TYPE_CHECKING:
    from electra_trainer.finetuning.model_folder import Finetuned

_TREEBANK = re.compile(rb"(?:\s*#.*\n)*1(?:-\d+)?(?:\t[^\t\n]+){9}\r?\n")
"""How a file in CoNLL-U begins: comments, and a first word with ten columns."""


@contextmanager
def from_standard_input(model: "Finetuned", named: Iterable[str | None]) -> Iterator[Path]:
    """Standard input as a file that the model's task reads; errors name it `standard input`.

    A table has the columns of training or the named ones on its first line. Other lines are a text each; for pairs, two
    with a tab between.

    Args:
        named: columns that flags name.

    Raises:
        DataError: it is empty. ElectraError: as the reader of the file.
    """
    content = sys.stdin.buffer.read(reading.MOST_TEXT + 1)
    if len(content) > reading.MOST_TEXT:
        raise DataError(
            f"standard input: more than {reading.MOST_TEXT >> 20:,} MiB. Write it to a file, and name that."
        )
    if not content.strip():
        raise DataError("standard input: is empty. Expected rows, for example: electra predict DIR/model - < new.csv")
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    suffix = ".jsonl" if first == b"{" else ".conllu" if _TREEBANK.match(content) else ".txt"
    if model.task.reads_tables and suffix == ".txt":
        like = (model.columns.text, model.columns.pair) if model.columns is not None else ()
        wanted = {name for name in (*named, *like) if name is not None}
        suffix = _table_suffix(content, wanted)
        if suffix == ".txt":
            suffix, content = ".jsonl", _as_rows(content, model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except ElectraError as error:
            raise type(error)(str(error).replace(str(path), "standard input")) from None


def _table_suffix(content: bytes, wanted: Collection[str]) -> str:
    """`.csv` or `.tsv` if the first line names all wanted columns; else `.txt`."""
    line = re.split(r"[\r\n]", content.decode("utf-8-sig", errors="replace").lstrip("\r\n"), maxsplit=1)[0]
    for suffix, separator in ((".tsv", "\t"), (".csv", ",")):
        try:
            names = {name.strip() for name in next(csv.reader([line], delimiter=separator), [])}
        except csv.Error:  # a field that is longer than a column's name
            return ".txt"
        if wanted and names.issuperset(wanted):
            return suffix
    return ".txt"


def _as_rows(content: bytes, model: "Finetuned") -> bytes:
    """Lines of text as JSON lines, with the columns of training."""
    columns = model.columns
    text, second = (columns.text, columns.pair or "text_pair") if columns is not None else ("text", "text_pair")
    rows = []
    for number, line in reading.lines(content, "standard input"):
        if not line.strip():
            rows.append("")
            continue
        cells = line.split("\t") if model.pair else [line]
        if model.pair and len(cells) != 2:
            raise DataError(f"standard input:{number}: expected two texts with a tab between them, found {len(cells)}.")
        rows.append(json.dumps(dict(zip((text, second), cells, strict=False))))
    return "\n".join(rows).encode()
