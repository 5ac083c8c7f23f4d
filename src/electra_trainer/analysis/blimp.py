"""Files of minimal pairs, in the format of BLiMP: one JSON object a line, one file a paradigm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.reading import MOST_TEXT, parse_json, read_file, short

_SENTENCES = ("sentence_good", "sentence_bad")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An acceptable sentence and one that differs from it as little as can be, and is not."""

    good: str
    bad: str
    paradigm: str
    field: str
    """BLiMP's `field`, such as "syntax"; "" where the file has none."""
    term: str
    """BLiMP's `linguistics_term`, such as "island_effects"; "" where the file has none."""
    where: str
    """file:line, for messages."""


def read_pairs(folder: str | Path, *, paradigms: Sequence[str] | None = None, limit: int | None = None) -> list[Pair]:
    """All pairs of the .jsonl files of a folder (or of one file), in the order of names and lines.

    `sentence_good` and `sentence_bad` must be there. `UID` names the paradigm, otherwise the file's name does.

    Args:
        paradigms: only these; None: all.
        limit: the first so many of each paradigm; None: all.

    Raises:
        MissingInputError: no such folder. DataError: no pairs, or a line that is none, with file:line. StorageError: cannot be read.
        ConfigError: an unknown paradigm, or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit}: expected at least 1 pair a paradigm.")
    folder = Path(folder)
    if not folder.exists():
        raise MissingInputError(f"{folder}: no such folder. Give the folder with BLiMP's .jsonl files.")
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else [folder]
    if not files:
        raise DataError(f"{folder}: holds no .jsonl file. Expected BLiMP's files, one a paradigm.")
    by_paradigm: dict[str, list[Pair]] = {}
    for path in files:
        for pair in _read_file(path):
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
    for name in paradigms or ():
        if name not in by_paradigm:
            raise ConfigError(f"--paradigms {name}: {folder} has no such paradigm.{did_you_mean(name, by_paradigm)}")
    return [pair for name in by_paradigm if not paradigms or name in paradigms for pair in by_paradigm[name][:limit]]


def _read_file(path: Path) -> Iterator[Pair]:
    data = read_file(path, limit=MOST_TEXT)
    found = False
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            found = True
            yield _read_line(line, where=f"{path}:{number}", paradigm=path.stem)
    if not found:
        raise DataError(f"{path}: is empty, expected one minimal pair a line.")


def _read_line(line: bytes, *, where: str, paradigm: str) -> Pair:
    expected = 'Expected a JSON object a line with "sentence_good" and "sentence_bad".'
    row = parse_json(line, where=where, remedy=expected)
    if not isinstance(row, dict):
        raise DataError(f"{where}: is not a JSON object. {expected}")
    for name in _SENTENCES:
        if name not in row:
            raise DataError(f"{where}: has no {name!r}.{did_you_mean(name, row)} {expected}")
    texts = {"UID": paradigm, "field": "", "linguistics_term": "", **row}
    for name in (*_SENTENCES, "UID", "field", "linguistics_term"):
        if not isinstance(texts[name], str):
            raise DataError(f"{where}: {name} = {short(texts[name])}, expected a text. Mend or remove the line.")
        if not texts[name].isascii() and any("\ud800" <= character <= "\udfff" for character in texts[name]):
            raise DataError(f"{where}: {name} holds half of a surrogate pair. Mend or remove the line.")
    return Pair(
        good=texts["sentence_good"],
        bad=texts["sentence_bad"],
        paradigm=texts["UID"],
        field=texts["field"].replace("/", "_"),  # BLiMP writes one of its fields in both ways
        term=texts["linguistics_term"],
        where=where,
    )
