"""Read a treebank in CoNLL-U (https://universaldependencies.org/format.html): sentences of words with their tags.

Strict: a file that was cut short or saved with spaces for tabs is an error that says the line, since a tagger trained on half of it would
only look a little worse.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_trainer.errors import DataError, MissingInputError, did_you_mean
from electra_trainer.files import reading

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM",
    "VERB", "X",
)  # fmt: skip
"""The universal parts of speech."""
_COLUMNS = 10
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)
_EMPTY_NODE = re.compile(r"\d{1,9}\.\d{1,9}", re.ASCII)
_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Word:
    """A syntactic word: "don't" is the two words "do" and "n't"."""

    form: str
    upos: str | None
    """One of `UPOS`; None where the treebank has "_"."""
    xpos: str | None
    """The language's own tag."""
    feats: str | None = None
    """Morphological features, `Number=Sing|Person=3`; None where it has none."""
    deprel: str | None = None
    """Relation to its head."""
    line: int = 0
    """Its line in the file, counted from 1."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One sentence."""

    words: tuple[Word, ...]
    line: int
    """Line of its first word in the file, counted from 1."""


def treebank_file(folder: str | Path, split: Literal["train", "dev", "test"]) -> Path:
    """The one file of a split in a treebank's folder, for example `en_ewt-ud-train.conllu`.

    Raises:
        MissingInputError: there is none. DataError: there are several.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: no such folder. Give the folder of a treebank, with its .conllu files.")
    found = sorted(path for path in folder.glob("*.conllu") if split in re.split(r"[^a-z]+", path.stem.lower()))
    if not found:
        raise MissingInputError(f"{folder}: holds no {split} file. Expected a name such as xx-ud-{split}.conllu.")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{folder}: holds several {split} files ({names}). Leave one treebank a folder.")
    return found[0]


def read_conllu(path: str | Path) -> list[Sentence]:
    """All sentences of a file. Multiword tokens (`1-2`) and empty nodes (`1.1`) are checked and left out.

    Raises:
        MissingInputError, StorageError: cannot be read.
        DataError: not CoNLL-U; says file:line.
    """
    path = Path(path)
    data = reading.read_file(path, limit=reading.MOST_TEXT)
    last = data.count(b"\n")
    if data and not data.endswith(b"\n"):
        raise DataError(f"{path}:{last + 1}: the file ends within a line. It was cut short: fetch it again.")
    sentences: list[Sentence] = []
    block: list[tuple[int, str]] = []
    for number, line in reading.lines(data, path):
        if line:
            block.append((number, line))
        elif block:
            sentences.append(_sentence(block, path=path))
            block = []
    if block:
        raise DataError(f"{path}:{last}: the file ends within a sentence. It was cut short: fetch it again.")
    if not sentences:
        raise DataError(f"{path}: holds no sentences.")
    return sentences


def _sentence(block: list[tuple[int, str]], *, path: Path) -> Sentence:
    """The numbered lines between two blank ones: comments, then words."""
    comments = next((index for index, (_, line) in enumerate(block) if not line.startswith("#")), len(block))
    words: list[Word] = []
    for number, line in block[comments:]:
        if line.startswith("#"):
            raise DataError(f"{path}:{number}: a comment within a sentence. Expected a blank line after each sentence.")
        word = _word(line, path=path, number=number, expected=len(words) + 1)
        words += [word] if word is not None else []
    if not words:
        raise DataError(f"{path}:{block[-1][0]}: comments with no words after them. Remove them.")
    return Sentence(words=tuple(words), line=block[comments][0])


def _word(line: str, *, path: Path, number: int, expected: int) -> Word | None:
    """A line of a sentence; None for a multiword token or an empty node."""
    where = f"{path}:{number}"
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        tabs = "" if "\t" in line else " The line has no tabs: was the file saved by an editor that replaced them?"
        raise DataError(f"{where}: expected {_COLUMNS} fields between tabs, found {len(fields)}.{tabs}")
    if not all(map(str.strip, fields)):
        blank = 1 + next(index for index, value in enumerate(fields) if not value.strip())
        raise DataError(f"{where}: field {blank} is empty. Write _ for an unknown value.")
    name, form, _, upos, xpos, feats, _, deprel, _, _ = fields
    if span := _RANGE.fullmatch(name):
        first, last = int(span[1]), int(span[2])
        if first != expected or last < first:
            raise DataError(f"{where}: multiword token {name}: expected it before word {expected}, as {expected}-N.")
        return None
    if _EMPTY_NODE.fullmatch(name):
        return None
    if not _NUMBER.fullmatch(name) or int(name) != expected:
        raise DataError(f"{where}: word number {reading.short(name)}: expected {expected}.")
    if upos != "_" and upos not in UPOS:
        raise DataError(f"{where}: unknown part of speech {reading.short(upos)}.{did_you_mean(upos.upper(), UPOS)}")
    upos_, xpos_, feats_, deprel_ = (None if value == "_" else value for value in (upos, xpos, feats, deprel))
    return Word(form=form, line=number, upos=upos_, xpos=xpos_, feats=feats_, deprel=deprel_)
