"""Tagging with files of one's own, or a treebank's folder: part of speech, named entities, chunks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_trainer.data.conllu import treebank_file
from electra_trainer.errors import require
from electra_trainer.finetuning.tagging.column_files import read_tagged
from electra_trainer.finetuning.tagging.spans import Scheme, TaggedSentence, scheme_of
from electra_trainer.finetuning.tagging.tag_checks import (
    check_labels,
    check_scheme,
    odd_sentences,
    overlap,
    unseen_labels,
)
from electra_trainer.finetuning.tagging.tagging import Tagging
from electra_trainer.finetuning.task import TaskData, hash_files
from electra_trainer.finetuning.texts.hold_out import hold_out_sentences, require_other_file


@dataclass(frozen=True, kw_only=True)
class TaggingTask:
    """Column files or `.conllu` files (finetuning/tagging/column_files.py), or a treebank's folder with a file for each split."""

    train: str | Path
    dev: str | Path | None = None
    """None: the dev file of the folder `train`; of a file a tenth of its sentences is held out."""
    predict: str | Path | None = None
    """Sentences to be tagged; labels in it are not looked at. Of a folder it is the test file."""
    column: str | int | None = None
    """Of the labels; None: the last one, of a treebank upos."""
    words: int = 1
    """Column of the words in a column file, counted from 1."""
    scheme: Literal["detect"] | Scheme = "detect"
    """How labels mark spans; "detect" asks the labels."""
    limit: int | None = None
    """Only so many training sentences, at equal distances."""
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
        scheme: Scheme = scheme_of(labels) if self.scheme == "detect" else self.scheme
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
            task=Tagging(labels=labels, scheme=scheme, name=self.name),
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
        return read_tagged(path, words=self.words, column=self.column, labelled=labelled)

    def _sha256(self, paths: dict[str, Path]) -> str:
        chosen = f"words {self.words}, labels {self.column}, limit {self.limit}"
        return hash_files({"columns": chosen.encode(), **{split: path.read_bytes() for split, path in paths.items()}})
