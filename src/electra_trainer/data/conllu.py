"""Read a treebank in CoNLL-U (https://universaldependencies.org/format.html): sentences of words with their tags.

Strict about what would lose words, such as spaces for tabs or a number that is missing, with the line; lenient about
what programs write
otherwise: no blank line at the end, numbers that continue from the sentence before or are _, words of spaces alone.
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
    """Part of speech, one of `UPOS` unless others were allowed; None where the treebank has "_"."""
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


def read_conllu(path: str | Path, *, own_upos: bool = False) -> list[Sentence]:
    """All sentences of a file. Multiword tokens (`1-2`) and empty nodes (`1.1`) are checked and left out.

    Args:
        path: the file.
        own_upos: allow parts of speech that are not in `UPOS`.

    Raises:
        MissingInputError, StorageError: cannot be read.
        DataError: not CoNLL-U; says file:line.
    """
    path = Path(path)
    data = reading.read_file(path, limit=reading.MOST_TEXT)
    numbered = list(reading.lines(data, path))
    if data and not data.endswith(b"\n") and numbered[-1][1].count("\t") + 1 < _COLUMNS:
        remedy = "Complete the line, or copy the file again."
        raise DataError(f"{path}:{numbered[-1][0]}: the file ends within a line, so it was cut short. {remedy}")
    sentences: list[Sentence] = []
    block: list[tuple[int, str]] = []
    words = 0  # numbered so far, where numbers continue from sentence to sentence
    for number, line in [*numbered, (0, "")]:
        if line:
            block.append((number, line))
        elif block:
            one, words = _sentence(block, path=path, before=words, own_upos=own_upos)
            sentences.append(one)
            block = []
    if not sentences:
        raise DataError(f"{path}: holds no sentences.")
    return sentences


def _sentence(block: list[tuple[int, str]], *, path: Path, before: int, own_upos: bool) -> tuple[Sentence, int]:
    """The numbered lines between two blank ones, comments and then words; and the number of its last word.

    Args:
        before: number of the last word of the sentence before, from which the numbers of this one may continue.
    """
    comments = next((index for index, (_, line) in enumerate(block) if not line.startswith("#")), len(block))
    words: list[Word] = []
    first = next((line.partition("\t")[0] for _, line in block[comments:]), "").partition("-")[0]
    skipped = before if before and first == str(before + 1) else 0
    for number, line in block[comments:]:
        if line.startswith("#"):
            raise DataError(f"{path}:{number}: a comment within a sentence. Expected a blank line after each sentence.")
        word = _word(line, path=path, number=number, expected=skipped + len(words) + 1, own_upos=own_upos)
        words += [word] if word is not None else []
    if not words:
        raise DataError(f"{path}:{block[-1][0]}: comments with no words after them. Remove them.")
    return Sentence(words=tuple(words), line=block[comments][0]), skipped + len(words)


def _word(line: str, *, path: Path, number: int, expected: int, own_upos: bool) -> Word | None:
    """A line of a sentence; None for a multiword token or an empty node."""
    where = f"{path}:{number}"
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        tabs = "" if "\t" in line else " The line has no tabs: was the file saved by an editor that replaced them?"
        raise DataError(f"{where}: expected {_COLUMNS} fields between tabs, found {len(fields)}.{tabs}")
    blank = next(
        (at for at, value in enumerate(fields, start=1) if not value.strip() and not (value and at in (2, 3))), 0
    )
    if blank:  # a word, and its lemma, may be spaces
        raise DataError(f"{where}: field {blank} is empty. Write _ for an unknown value.")
    name, form, _, upos, xpos, feats, _, deprel, _, _ = fields
    if span := _RANGE.fullmatch(name):
        first, last = int(span[1]), int(span[2])
        if first != expected or last < first:
            raise DataError(f"{where}: multiword token {name}: expected it before word {expected}, as {expected}-N.")
        return None
    if _EMPTY_NODE.fullmatch(name):
        return None
    if name != "_" and (not _NUMBER.fullmatch(name) or int(name) != expected):
        again = " Is the blank line before it missing?" if name == "1" else ""
        raise DataError(f"{where}: word number {reading.short(name)}: expected {expected}.{again}")
    if upos != "_" and upos not in UPOS and not own_upos:
        raise DataError(f"{where}: unknown part of speech {reading.short(upos)}.{did_you_mean(upos.upper(), UPOS)}")
    upos_, xpos_, feats_, deprel_ = (None if value == "_" else value for value in (upos, xpos, feats, deprel))
    return Word(form=form, line=number, upos=upos_, xpos=xpos_, feats=feats_, deprel=deprel_)
