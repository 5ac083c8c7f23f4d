"""Tagging with files of your own or a treebank's folder, and checks of the files: part of speech, named entities, chunks.

An impossible file is a DataError with file and line; other findings are notes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_trainer.data.conllu import treebank_file
from electra_trainer.errors import DataError, did_you_mean, require
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging import column_files, spans, tagging
from electra_trainer.finetuning.task import TaskData, hash_files
from electra_trainer.finetuning.texts.splits import WARNING, hold_out_sentences, require_other_file

UNSEEN_SHARE = 0.1
"""Of the development words: when more have labels that training lacks, the files do not belong together. Rich morphology has a few in a hundred."""
_LONG = 1_000
"""Words of a sentence that looks like several without blank lines between them."""
_NOT_BY_CHANCE = 5
"""Words of a sentence that hardly occurs twice by chance."""


@dataclass(frozen=True, kw_only=True)
class TaggingTask:
    """Column files or `.conllu` files (finetuning/tagging/column_files.py), or a treebank's folder with a file for each split."""

    train: str | Path
    dev: str | Path | None = None
    """None: the dev file of the folder `train`; of a file a tenth of its sentences is held out."""
    predict: str | Path | None = None
    """Sentences to be tagged; its labels are ignored. For a folder it is the test file."""
    column: str | int | None = None
    """Of the labels; None: the last one, of a treebank upos."""
    words: int = 1
    """Column of the words in a column file, counted from 1."""
    scheme: Literal["detect"] | spans.Scheme = "detect"
    """How labels mark spans; "detect" asks the labels."""
    limit: int | None = None
    """Largest number of training sentences, at equal distances."""
    name: str = "tagging"
    epochs: float = 3.0

    def __post_init__(self) -> None:
        require(self.words >= 1, "words", self.words, "a column counted from 1")
        require(self.limit is None or self.limit >= 1, "limit", self.limit, "at least 1 sentence")

    def load(self) -> TaskData:
        """Read the files; see `TaskSource.load`.

        Raises:
            ConfigError: a column that cannot be, labels that are not of the scheme asked for, a development file that is the training
            file.
        """
        paths = self._paths()
        if "dev" in paths:
            require_other_file(paths["train"], paths["dev"])
        read = {split: self._read(path, labelled=split != "predict") for split, path in paths.items()}
        train, predict = read["train"], read.get("predict", [])
        labels = tuple(sorted({label for sentence in train for label in sentence.labels if label is not None}))
        check_labels(labels, paths["train"])
        scheme: spans.Scheme = spans.scheme_of(labels) if self.scheme == "detect" else self.scheme
        notes = []
        for sentences in (read[split] for split in ("train", "dev") if split in read):
            check_scheme(sentences, scheme)
            notes += odd_sentences(sentences, scheme)
        if "dev" in read:
            dev = read["dev"]
            notes += [*unseen_labels(dev, labels, paths["train"]), *overlap(train, dev)]
        else:
            train, dev = hold_out_sentences(train, where=str(paths["train"]))
            notes.append(
                f"no development file: {len(dev):,} of {len(read['train']):,} sentences were held out, chosen by a hash of their words; "
                "no sentence is on both sides."
            )
        if self.limit is not None and self.limit < len(train):
            notes.append(f"{self.limit:,} of {len(train):,} training sentences were used.")
            train = [train[index * len(train) // self.limit] for index in range(self.limit)]
        return TaskData(
            task=tagging.Tagging(labels=labels, scheme=scheme, name=self.name),
            train=train,
            dev={"dev": dev},
            test={"test": predict} if predict else {},
            notes=tuple(notes),
            sha256=self._sha256(paths),
        )

    def _paths(self) -> dict[str, Path]:
        named: dict[Literal["train", "dev", "test"], str | Path | None] = {
            "train": self.train, "dev": self.dev, "test": self.predict,
        }  # fmt: skip
        if self.dev is None and Path(self.train).is_dir():
            named["dev"] = self.train
        found: dict[str, Path] = {}
        for split, given in named.items():
            if given is not None:
                path = Path(given)
                found["predict" if split == "test" else split] = treebank_file(path, split) if path.is_dir() else path
        return found

    def _read(self, path: Path, *, labelled: bool) -> list[TaggedSentence]:
        return column_files.read_tagged(path, words=self.words, column=self.column, labelled=labelled)

    def _sha256(self, paths: dict[str, Path]) -> str:
        chosen = f"words {self.words}, labels {self.column}, limit {self.limit}"
        return hash_files({"columns": chosen.encode(), **{split: path.read_bytes() for split, path in paths.items()}})


def check_labels(labels: Sequence[str], path: Path) -> None:
    """DataError unless there are two labels."""
    if len(labels) < 2:
        found = f"every word has the label {labels[0]!r}" if labels else "no word has a label"
        raise DataError(f"{path}: {found}, so there is nothing to learn. Is it the right label column?")


def check_scheme(sentences: Sequence[TaggedSentence], scheme: spans.Scheme) -> None:
    """DataError at the first label that is not of the scheme."""
    good: set[str | None] = {None}
    for sentence in sentences:
        for index, label in enumerate(sentence.labels):
            if label in good:
                continue
            if wrong := spans.fault(str(label), scheme):
                raise DataError(f"{sentence.place_of(index)}: {wrong} For labels without spans: --scheme none.")
            good.add(label)


def odd_sentences(sentences: Sequence[TaggedSentence], scheme: spans.Scheme) -> list[str]:
    """Notes on a file: words without labels, spans that begin with I or E, sentences that are too long to be one."""
    file = Path(sentences[0].file).name
    notes = []
    blank = [(s, i) for s in sentences for i, label in enumerate(s.labels) if label is None]
    if blank:
        notes.append(
            f"{_count(len(blank), 'word')} of {file} without a label (first at {_at(blank)}): not learned, not scored."
        )
    if scheme != "none":
        begun = [
            (sentence, span.first)
            for sentence in sentences
            for tags in [[label or "O" for label in sentence.labels]]
            for span in spans.spans_of(tags)
            if spans.split_tag(tags[span.first])[0] in ("I", "E")
        ]
        if begun:
            notes.append(
                f"{_count(len(begun), 'span')} of {file} that an I- or E- begins (first at {_at(begun)}): counted, as conlleval does. "
                "They are usual in IOB1, and slips elsewhere."
            )
    longest = max(sentences, key=lambda sentence: len(sentence.words))
    if len(longest.words) > _LONG:
        notes.append(f"{_at([(longest, 0)])}: a sentence of {len(longest.words):,} words. Are blank lines missing?")
    return notes


def unseen_labels(dev: Sequence[TaggedSentence], labels: Sequence[str], train: Path) -> list[str]:
    """A note on labels that training lacks; DataError if there are many, or no labels at all."""
    known = {*labels, None}
    unseen = [(s, i) for s in dev for i, label in enumerate(s.labels) if label not in known]
    words = sum(label is not None for sentence in dev for label in sentence.labels)
    if not words:
        raise DataError(f"{dev[0].file}: no word has a label, so nothing can be scored. Is it the right label column?")
    if not unseen:
        return []
    sentence, index = unseen[0]
    first = str(sentence.labels[index])
    what = f"label {first!r} does not occur in {train.name}.{did_you_mean(first, labels)}"
    if len(unseen) > UNSEEN_SHARE * words:
        raise DataError(
            f"{sentence.place_of(index)}: {what} {len(unseen):,} of {words:,} words have such labels. Expected the training "
            "file's labels in the same column: mend them, write _ where a word is not to be scored, or add sentences with them "
            "to the training file."
        )
    return [
        f"{_at(unseen)}: {what} {_count(len(unseen), 'word')} of {words:,} with such labels: scored, and never right."
    ]


def overlap(train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence]) -> list[str]:
    """A note on development sentences that occur in training, word for word; a warning if one is too long for chance."""
    seen = {sentence.words for sentence in train}
    twice = [sentence for sentence in dev if sentence.words in seen]
    long = [sentence for sentence in twice if len(sentence.words) >= _NOT_BY_CHANCE]
    if not twice:
        return []
    first = f" (first at {_at([(long[0], 0)])})" if long else ""
    return [
        f"{WARNING if long else ''}{len(twice):,} of {_count(len(dev), 'sentence')} in {Path(dev[0].file).name} are in training too, "
        f"{len(long):,} of them with {_NOT_BY_CHANCE} words or more{first}."
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _at(found: Sequence[tuple[TaggedSentence, int]]) -> str:
    """The first place, for notes: without its folder, so that a moved file leaves a result as it is."""
    sentence, index = found[0]
    return Path(sentence.place_of(index)).name
