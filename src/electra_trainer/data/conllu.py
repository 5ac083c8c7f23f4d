"""Read a treebank in CoNLL-U (https://universaldependencies.org/format.html): sentences of words with their tags.

Strict about what would lose words, such as spaces for tabs or a number that is missing, with the line; lenient about
what programs write otherwise: no blank line at the end, numbers that continue from the sentence before or are _, words
of spaces alone.
"""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.errors import DataError, MissingInputError, did_you_mean
from electra_trainer.files import reading
from electra_trainer.files.rows import read_bytes

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM",
    "VERB", "X",
)  # fmt: skip
"""The universal parts of speech."""
_COLUMNS = 10
_NO_WORD = re.compile(r"\d+[-.]\d+", re.ASCII)
"""Number of a multiword token or an empty node."""


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


Sentence = tuple[Word, ...]
"""One sentence."""


def treebank_file(folder: str | Path, split: str) -> Path:
    """The one file of a split (train, dev, test) in a treebank's folder, for example `en_ewt-ud-train.conllu`.

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


def file_lines(path: Path) -> list[str]:
    """The lines of a file of words, without their ends: LF, CR LF, or CR alone as in files of old Macs."""
    lines = reading.lines(read_bytes(path), path)
    return [part for _, line in lines for part in line.rstrip("\r").split("\r")]


def read_conllu(path: str | Path, *, own_upos: bool = False) -> list[Sentence]:
    """All sentences of a file. Comments, multiword tokens (`1-2`) and empty nodes (`1.1`) are left out.

    Args:
        path: the file.
        own_upos: allow parts of speech that are not in `UPOS`.

    Raises:
        MissingInputError, StorageError: cannot be read.
        DataError: not CoNLL-U; says file:line.
    """
    path = Path(path)
    lines = enumerate(file_lines(path), 1)
    sentences: list[Sentence] = []
    words: list[Word] = []
    last = 0
    for number, line in itertools.chain(lines, [(0, "")]):
        if not line and words:
            sentences.append(tuple(words))
            words = []
        if not line or line.startswith("#"):
            continue
        fields = _fields(line, f"{path}:{number}")
        if _NO_WORD.fullmatch(fields[0]):
            continue
        if not words and fields[0] != str(last + 1):
            last = 0
        last += 1
        if fields[0] not in ("_", str(last)):
            expected = f"expected {last}, or a blank line before it"
            raise DataError(f"{path}:{number}: word number {reading.short(fields[0])}: {expected}.")
        if fields[3] not in (*UPOS, "_") and not own_upos:
            near = did_you_mean(fields[3].upper(), UPOS)
            raise DataError(f"{path}:{number}: unknown part of speech {reading.short(fields[3])}.{near}")
        upos, xpos, feats, deprel = (None if fields[at] == "_" else fields[at] for at in (3, 4, 5, 7))
        words.append(Word(form=fields[1], line=number, upos=upos, xpos=xpos, feats=feats, deprel=deprel))
    if not sentences:
        raise DataError(f"{path}: holds no sentences.")
    return sentences


def _fields(line: str, where: str) -> list[str]:
    """Ten fields of a line; a word, and its lemma, may be spaces, and nothing may be empty."""
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        tabs = "" if "\t" in line else " The line has no tabs: was the file saved by an editor that replaced them?"
        raise DataError(f"{where}: expected {_COLUMNS} fields between tabs, found {len(fields)}.{tabs}")
    for at, value in enumerate(fields, 1):
        if not value.strip() and not (value and at in (2, 3)):
            raise DataError(f"{where}: field {at} is empty. Write _ for an unknown value.")
    return fields
