"""SQuAD as a task: which files, which version, which of the choices that the paper and the released code make differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_trainer.checks import require
from electra_trainer.errors import ConfigError
from electra_trainer.finetune.dev_file import require_other_file
from electra_trainer.finetune.question_answering import QuestionAnswering
from electra_trainer.finetune.squad_files import Question, SquadFile, read_squad, sample, split_by_article
from electra_trainer.finetune.task import TaskData, hash_files


@dataclass(frozen=True, kw_only=True)
class Squad:
    """Two files of SQuAD 1.1 or 2.0, or one that is split by article."""

    train: Path
    dev: Path | None = None
    version: Literal[1, 2] = 1
    head: Literal["joint", "independent"] = "joint"
    """See `QuestionAnswering.head_kind`."""
    follow: Literal["paper", "released"] = "paper"
    """Released: the answerability classifier also for 1.1, and taught by whole questions instead of windows."""
    null_threshold: float | None = None
    """See `QuestionAnswering.null_threshold`; 2.0 only."""
    split: float | None = None
    """Without `dev`: the share of the questions of `train` that are kept for evaluation, whole articles."""
    limit: int | None = None
    """So many training questions, from all over the file."""
    dev_limit: int | None = None
    """The same of the questions of evaluation."""

    def __post_init__(self) -> None:
        if (self.dev is None) == (self.split is None):
            raise ConfigError("--dev FILE or --split 0.1: give one of the two, a second file or a share of the first.")
        if self.null_threshold is not None and self.version == 1:
            raise ConfigError(
                "--null-threshold: a question of SQuAD 1.1 always has an answer. Leave it out, or type --version 2."
            )
        require(self.split is None or 0 < self.split < 1, "split", self.split, "a share between 0 and 1")
        for name in ("limit", "dev_limit"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "at least 1")

    @property
    def name(self) -> str:
        return "squad-1.1" if self.version == 1 else "squad-2.0"

    @property
    def epochs(self) -> float:
        return 2.0

    @property
    def max_length(self) -> int:
        """Tokens of a row where nothing else is asked for (released); at most what the encoder was trained on."""
        return 512

    @property
    def task(self) -> QuestionAnswering:
        """What is learned."""
        released = self.follow == "released"
        return QuestionAnswering(
            name=self.name,
            version=self.version,
            head_kind=self.head,
            answerability="always" if released else "2.0",
            answerability_of="question" if released else "window",
            null_threshold=self.null_threshold,
        )

    def load(self) -> TaskData:
        file = read_squad(self.train, version=self.version)
        files, notes = {"train": file.content}, list(file.notes)
        if self.dev is None:
            assert self.split is not None
            train, dev = split_by_article(file.questions, dev_share=self.split, where=str(self.train))
            notes.append(
                f"{self.train.name} is split by article: {len(train):,} questions to train on, {len(dev):,} to evaluate."
            )
        else:
            require_other_file(self.train, self.dev, instead="Leave --dev out and give --split 0.1.")
            second = read_squad(self.dev, version=self.version)
            train, dev = file.questions, second.questions
            files["dev"] = second.content
            notes += [*second.notes, *_shared(file, second)]
        for name, all_of_them, limit in (("training", train, self.limit), ("evaluation", dev, self.dev_limit)):
            if limit is not None and limit < len(all_of_them):
                notes.append(f"{limit:,} of {len(all_of_them):,} {name} questions.")
        return TaskData(
            task=self.task,
            train=sample(train, self.limit),
            dev={"dev": sample(dev, self.dev_limit)},
            notes=tuple(dict.fromkeys(notes)),
            sha256=hash_files(files),
        )


def _shared(train: SquadFile, dev: SquadFile) -> list[str]:
    def contexts(questions: Sequence[Question]) -> set[str]:
        return {question.context for question in questions}

    known = contexts(train.questions)
    of_dev = contexts(dev.questions)
    both = len(known & of_dev)
    return [f"{both:,} of {len(of_dev):,} contexts to evaluate on are in the training file."] if both else []
