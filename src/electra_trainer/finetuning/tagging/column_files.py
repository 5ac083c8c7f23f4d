"""Files with a word a line and its labels in columns, a blank line between sentences: CoNLL-2000, 2002, 2003 and their like, and CoNLL-U.

Columns are separated by tabs, if the first line of words has one, or by spaces. Lines with -DOCSTART- part documents and hold no
word. A line that begins with # is a comment where it stands before a sentence and has another number of columns, or an = in it: "#" is
also a word ("# # B-NP" in CoNLL-2000).
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from electra_trainer.data.conllu import Word, read_conllu
from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files import reading
from electra_trainer.finetuning.examples import TaggedSentence

TreebankColumn = Literal["upos", "xpos", "feats", "deprel"]
UNLABELLED = "_"
_DOCUMENT = "-DOCSTART-"


def read_tagged(
    path: str | Path, *, words: int = 1, column: str | int | None = None, labelled: bool = True
) -> list[TaggedSentence]:
    """The sentences of a column file or, by its name, of a `.conllu` treebank.

    Args:
        words: column of the words in a column file, counted from 1.
        column: of the labels: a number counted from 1 or "last" (which is meant by None) in a column file; upos (which is meant by
            None), xpos, feats or deprel in a treebank.
        labelled: False leaves the labels away; the file need not have them, and of a single column it is the words.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: no such column. DataError: malformed; says file:line.
    """
    path = Path(path)
    if path.suffix.lower() == ".conllu":
        name = "upos" if column is None or not labelled else str(column)
        if name not in get_args(TreebankColumn):
            raise ConfigError(
                f"{path}: label column {name!r}: expected {', '.join(get_args(TreebankColumn))} of a .conllu file."
                f"{did_you_mean(name.lower(), get_args(TreebankColumn))}"
            )
        return _read_treebank(path, name, labelled=labelled)
    return _read_columns(path, words, _number(column, path) if labelled else None)


def _read_treebank(path: Path, column: str, *, labelled: bool) -> list[TaggedSentence]:
    def label(word: Word) -> str | None:
        value: str | None = getattr(word, column)
        return UNLABELLED if value is None and column == "feats" else value  # no features is also an answer

    return [
        TaggedSentence(
            words=tuple(word.form for word in sentence.words),
            labels=tuple(label(word) if labelled else None for word in sentence.words),
            file=str(path),
            lines=tuple(word.line for word in sentence.words),
        )
        for sentence in read_conllu(path)
    ]


def _number(column: str | int | None, path: Path) -> int:
    """A label column as a number, 0 for the last one."""
    if column is None or column == "last":
        return 0
    if re.fullmatch(r"[1-9]\d{0,3}", str(column)):
        return int(column)
    names = f" {column} is a column of .conllu files." if column in get_args(TreebankColumn) else ""
    raise ConfigError(f"{path}: label column {column!r}: expected a number counted from 1, or last.{names}")


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """How the first line of words looks, as all others must."""

    line: int
    tabs: bool
    columns: int

    def split(self, line: str) -> list[str]:
        if self.tabs:
            return [field.strip(" ") for field in line.split("\t")]
        return [field for field in line.replace("\t", " ").split(" ") if field]


def _read_columns(path: Path, words: int, labels: int | None) -> list[TaggedSentence]:
    """Sentences of a column file; `labels` is a column, 0 the last one, None no column."""
    lines = [line for _, line in reading.lines(reading.read_file(path, limit=reading.MOST_TEXT), path)]
    layout = _layout(lines, path)
    last = layout.columns if labels == 0 else labels
    words = 1 if labels is None and layout.columns == 1 else words
    _check_columns(layout, words, last, f"{path}:{layout.line}")
    sentences: list[TaggedSentence] = []
    block: list[tuple[str, str | None]] = []
    for number, line in enumerate([*lines, ""], start=1):
        if _ends_sentence(line):
            if block:
                said, labelled = zip(*block, strict=True)
                at = tuple(range(number - len(block), number))
                sentences.append(TaggedSentence(words=said, labels=labelled, file=str(path), lines=at))
            block = []
            continue
        fields = layout.split(line)
        if line.startswith("#") and not block and (len(fields) != layout.columns or "=" in line):
            continue
        _check_fields(fields, line, layout, where=f"{path}:{number}")
        label = fields[last - 1] if last is not None else UNLABELLED
        block.append((fields[words - 1], None if label == UNLABELLED else label))
    return sentences


def _layout(lines: list[str], path: Path) -> _Layout:
    for number, line in enumerate(lines, start=1):
        if not _ends_sentence(line) and not line.startswith("#"):
            first = _Layout(line=number, tabs="\t" in line.strip(" \t"), columns=0)
            return replace(first, columns=len(first.split(line)))
    raise DataError(f"{path}: holds no sentences. Expected a word a line, its label in another column.")


def _ends_sentence(line: str) -> bool:
    return not line.strip(" \t") or line.startswith(_DOCUMENT)


def _check_columns(layout: _Layout, words: int, labels: int | None, where: str) -> None:
    if labels is not None and layout.columns == 1:
        raise DataError(f"{where}: has one column. Expected a word and its label on each line, tab or spaces between.")
    for what, flag, column in (("word", "--words", words), ("label", "--label", labels)):
        if column is not None and not 1 <= column <= layout.columns:
            raise DataError(f"{where}: {what} column {column}, and there are {layout.columns}. Choose one: {flag} 1.")
    if words == labels:
        raise ConfigError(f"{where}: column {words} holds words or labels, not both. Name both: --words 1 --label 2.")


def _check_fields(fields: list[str], line: str, layout: _Layout, *, where: str) -> None:
    if "" in fields and len(fields) == layout.columns:
        raise DataError(f"{where}: column {fields.index('') + 1} is empty. What is not known is written {UNLABELLED}.")
    if len(fields) == layout.columns:
        return
    why = ""
    if layout.tabs and "\t" not in line:
        why = " The line has no tabs: was the file saved by an editor that replaced them?"
    elif line.startswith("#"):
        why = " A comment may stand before a sentence only."
    elif not layout.tabs and len(fields) > layout.columns:
        why = " If a word has a space in it, put tabs between the columns."
    raise DataError(f"{where}: expected {layout.columns} columns, as line {layout.line} has, found {len(fields)}.{why}")
