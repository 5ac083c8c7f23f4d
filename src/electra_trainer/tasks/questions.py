"""SQuAD as a task: which files, which version, which of the choices that the paper and the released code make
differently.

Extractive question answering (§3.1): the answer is a span of the context, or there is none.

The head is XLNet's ("joint"), as the paper says, or BERT's ("independent"), which transformers loads.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import ConfigError, require
from electra_trainer.files.wording import render
from electra_trainer.settings.config import Model
from electra_trainer.tasks import heads, squad_files, squad_score
from electra_trainer.tasks import task as tasks
from electra_trainer.tasks.examples import WARNING, Prediction, by_id, jsonl, strings
from electra_trainer.tasks.heads import JointHead, Places, output_head
from electra_trainer.tasks.squad_files import Question, read_squad
from electra_trainer.tasks.task import Baseline, Row, TaskData, TransformersHead, copied_head


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering(tasks.Task):
    """The span of a context that answers a question. `version` 2: there may be none."""

    whole_text: ClassVar[bool] = False
    endings: ClassVar[Sequence[str]] = (".json", ".jsonl")

    version: Literal[1, 2] = 1
    head_kind: Literal["joint", "independent"] = "joint"
    """The paper: joint, the end given the start and an answerability classifier. Independent: BERT's linear layer,
    which transformers has."""
    answerability: Literal["2.0", "always"] = "2.0"
    """Where the joint head has its classifier: the paper for 2.0, the released code also for 1.1."""
    answerability_of: Literal["window", "question"] = "window"
    """Rows that are unanswerable to the classifier: for XLNet windows without the answer, for the released code only
    questions without one.
    """
    answerability_weight: float = 0.5
    """Weight of the classifier's loss (released)."""
    width: int = 512
    """Units of the joint head's hidden layers (released; XLNet: as many as the encoder has)."""
    beam: int = 20
    """Starts that are followed up (released)."""
    n_best: int = 20
    """Answers that are kept of each question (released)."""
    max_answer: int = 30
    """Longest answer, in tokens (released)."""
    max_query: int = 64
    """Tokens of a question that are read (released)."""
    stride: int = 128
    """Tokens between the beginnings of two windows (released, for rows of 512); at most half of what a row has for the
    context.
    """
    null_threshold: float | None = None
    """2.0: no answer is given where its score is above this. None: -2.75 for the joint head (released), 0 for
    BERT's.
    """
    name: str = "squad"

    def __post_init__(self) -> None:
        given = self.null_threshold
        require(given is None or math.isfinite(given), "null_threshold", given, "a finite number")
        require(given is None or self.version == 2, "null_threshold", given, "none in SQuAD 1.1")

    @property
    def metric(self) -> str:
        """2.0: at the best threshold, as XLNet's code reports. The fixed one suits the released weights; a weaker
        encoder may not answer at all there, which scores the same whatever it has learned.
        """
        return "f1" if self.version == 1 else "best_f1"

    @property
    def threshold(self) -> float:
        """The `null_threshold` that holds."""
        default = -2.75 if self.head_kind == "joint" else 0.0
        return default if self.null_threshold is None else self.null_threshold

    def head(self, model: Model) -> nn.Module:
        """See heads.py; independent: [B, T, D] -> [B, T, 2], that of transformers' classes."""
        if self.head_kind == "independent":
            return output_head(model, 2)
        answerable = self.version == 2 or self.answerability == "always"
        return JointHead(model.hidden_size, width=self.width, answerable=answerable)

    def rows(self, examples: Sequence[Question], text: Text, *, training: bool) -> list[Row]:
        return squad_score.window_rows(examples, text, max_query=self.max_query, stride=self.stride, training=training)

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        targets = [cast(squad_score.Target, row.target) for row in rows]
        span_B2 = torch.tensor([target[:2] for target in targets], device=hidden_BTD.device)
        if not isinstance(head, JointHead):
            return heads.independent_loss(head, hidden_BTD, batch.real_BT, span_B2=span_B2), len(rows)
        none = [target.unanswerable if self.answerability_of == "question" else target.start == 0 for target in targets]
        no_answer_B = torch.tensor(none, dtype=torch.float32, device=hidden_BTD.device)
        allowed_BT, weight = places_of(rows, batch).allowed_BT, self.answerability_weight
        loss = heads.joint_loss(head, hidden_BTD, allowed_BT, span_B2=span_B2, no_answer_B=no_answer_B, weight=weight)
        return loss, len(rows)

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """The best spans of each row: `heads.Spans`."""
        places = places_of(rows, batch)
        if isinstance(head, JointHead):
            beam = heads.joint_beam(head, hidden_BTD, places, beam=self.beam)
        else:
            beam = heads.independent_beam(head, hidden_BTD, places, batch.real_BT, beam=self.beam)
        return list(heads.best_spans(beam, places.allowed_BT, max_answer=self.max_answer, count=self.n_best))

    def predict(self, examples: Sequence[Question], rows: Sequence[Row], predicted: Sequence[Any]) -> list[Prediction]:
        threshold, bert = self.threshold if self.version == 2 else None, self.head_kind == "independent"
        return squad_score.decode(
            examples, rows, predicted, n_best=self.n_best, null_threshold=threshold, null_against_best=bert
        )

    def hold_out(self, train: Sequence[Question], *, where: str) -> tuple[Sequence[Question], Sequence[Question]]:
        """See `Task`; whole articles."""
        return squad_files.split_by_article(train, dev_share=0.1, where=where)

    def score(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        golds = [[answer.text for answer in example.answers] for example in examples]
        best = [str(one["nbest"][0]["text"]) if one["nbest"] else "" for one in predictions]
        if self.version == 1:
            return squad_score.score_v1(golds, best)
        no_answer = [float(one["no_answer_score"]) for one in predictions]
        return squad_score.score_v2(golds, best, no_answer, threshold=self.threshold)

    def doubts(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> list[str]:
        if self.version == 1 or len(predictions) < 2:
            return []
        best = self.score(examples, predictions)["best_f1_threshold"]
        silent = all(one["no_answer_score"] > best for one in predictions)
        return ["collapsed: at every threshold its answers score no better than none."] * silent

    def settled(self, scores: Mapping[str, Mapping[str, float]]) -> Self:
        """2.0: with the threshold that was best on the main dev split, if none was given."""
        best = next(iter(scores.values()), {}).get("best_f1_threshold")
        return self if best is None or self.null_threshold is not None else replace(self, null_threshold=best)

    def with_threshold(self, value: float) -> Self:
        """2.0: answers where the "no answer" score is not above `value`."""
        return replace(self, null_threshold=value) if self.version == 2 else super().with_threshold(value)

    def baselines(self, train: Sequence[Question]) -> dict[str, Baseline]:
        """The sentence with most words of the question; 2.0: never answering."""
        never = Baseline(title="never answering", predict=squad_score.never)
        alike = Baseline(title="the sentence with most words of the question", predict=squad_score.most_alike)
        return {"majority": never, "word_overlap": alike} if self.version == 2 else {"word_overlap": alike}

    def examples_from(self, texts: Sequence[Any], *, pair: bool) -> list[Question]:
        """From pairs (question, context)."""
        asked = [strings(text, index, "a question and its context", count=2) for index, text in enumerate(texts)]
        return [Question(id=str(index), question=one, context=two) for index, (one, two) in enumerate(asked)]

    def examples_in(
        self, path: Path, *, text: str | None, text_pair: str | None, as_json: bool, **others: Any
    ) -> tasks.Unlabelled:
        """The questions of a file of SQuAD's layout; written as the official scripts read answers and "no answer"
        scores.
        """
        for flag, given in (("--text", text), ("--text-pair", text_pair)):
            if given is not None:
                raise ConfigError(f"{flag} {given}: a file of questions has no columns. Leave it out.")

        def written(predicted: Sequence[Prediction]) -> dict[str, str]:
            if as_json:
                return {"": jsonl(predicted)}
            silence = {"-no-answer": by_id(predicted, "no_answer_score")} if self.version == 2 else {}
            return {"": by_id(predicted, "text"), **silence}

        return tasks.Unlabelled(examples=read_squad(path, version=None).questions, written=written)

    def onnx_logits(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """The start and the end of the answer, [B, T, 2]."""
        if isinstance(head, JointHead):
            raise ConfigError(
                "--to onnx: the joint head searches for ends of each start, which is not one function of a row. "
                "Fine-tune with --head independent."
            )
        return super().onnx_logits(head, hidden_BTD, batch)

    def onnx_shares(self, logits: Tensor, batch: Batch) -> Tensor:
        return logits.masked_fill(~batch.real_BT[..., None], float("-inf")).transpose(1, 2).softmax(-1)

    second_text: ClassVar[str] = "Question"

    def as_transformers(self, model: Model) -> TransformersHead:
        joint = self.head_kind == "joint"
        return TransformersHead() if joint else copied_head(model, "QuestionAnswering", "qa_outputs.")

    def card(self, *, pair: bool) -> tasks.CardWords:
        above = f"above {self.threshold:.4g} (`null_threshold`)"
        silence = f", or says that there is none: where its no-answer score is {above}"
        return tasks.CardWords(
            says="Finds the answer to a question in a text" + (silence if self.version == 2 else ""),
            pipeline="question-answering",
            longer="; electra-trainer reads a longer context in several windows that overlap",
            sample='[("who cooked it?", "the chef cooked the meal")]',
            code=render("card_questions.py"),
        )


def places_of(rows: Sequence[Row], batch: Batch) -> Places:
    """Passage, [CLS] and possible beginnings of each row; the rows' places are `Window`s."""
    windows = [row.place for row in rows]
    ranges = [(one.before, one.before + one.count, *one.startable) for one in windows]
    first_B, end_B, startable_B, unstartable_B = torch.tensor(ranges, device=batch.ids_BT.device).T[..., None]
    columns_T = torch.arange(batch.ids_BT.shape[1], device=batch.ids_BT.device)
    return Places(
        allowed_BT=(columns_T >= first_B) & (columns_T < end_B) | (columns_T == 0),
        startable_BT=(columns_T >= startable_B) & (columns_T < unstartable_B),
    )


@dataclass(frozen=True, kw_only=True)
class SquadTask(tasks.TaskSource):
    """Two files of SQuAD 1.1 or 2.0, or one that is split by article."""

    train: str | Path
    dev: str | Path | None = None
    version: Literal[1, 2] = 1
    head: Literal["joint", "independent"] = "joint"
    """See `QuestionAnswering.head_kind`."""
    follow: Literal["paper", "released"] = "paper"
    """Released: the answerability classifier also for 1.1, and taught by whole questions instead of windows."""
    null_threshold: float | None = None
    """See `QuestionAnswering.null_threshold`; 2.0 only."""
    split: float | None = None
    """Without `dev`: the share of the questions of `train` that are kept for evaluation, whole articles."""
    kind: ClassVar[type[tasks.Task]] = QuestionAnswering
    epochs: ClassVar[float] = 2.0
    max_length: ClassVar[int | None] = 512
    """Tokens of a row where nothing else is asked for (released); at most what the encoder was trained on."""

    def __post_init__(self) -> None:
        if (self.dev is None) == (self.split is None):
            raise ConfigError("--dev FILE or --split 0.1: give one of the two, a second file or a share of the first.")
        if self.null_threshold is not None and self.version == 1:
            raise ConfigError("--null-threshold: SQuAD 1.1 always has an answer. Leave it out, or type --version 2.")
        require(self.split is None or 0 < self.split < 1, "split", self.split, "a share between 0 and 1")

    @property
    def name(self) -> str:
        return "squad-1.1" if self.version == 1 else "squad-2.0"

    @property
    def task(self) -> QuestionAnswering:
        """The task that is learned."""
        released = self.follow == "released"
        return QuestionAnswering(
            name=self.name,
            version=self.version,
            head_kind=self.head,
            null_threshold=self.null_threshold,
            answerability="always" if released else "2.0",
            answerability_of="question" if released else "window",
        )

    def load(self) -> TaskData:
        files = {"train": read_squad(self.train, version=self.version)}
        if self.dev is not None:
            files["dev"] = read_squad(self.dev, version=self.version)
        train, dev = (files["train"].questions, [*files.values()][-1].questions)  # the same of one file
        notes = [note for file in files.values() for note in file.notes]
        if self.split is not None:
            train, dev = squad_files.split_by_article(train, dev_share=self.split, where=str(self.train))
            whole = "article" if train[0].article != dev[0].article else "paragraph"
            notes.append(
                f"{Path(self.train).name} is split by {whole}: {len(train):,} questions to train on, {len(dev):,} to "
                "evaluate."
            )
        known = {(one.question, one.context) for one in train}
        if twice := sum((one.question, one.context) in known for one in dev):
            where = f"questions in {Path(self.dev or self.train).name} are in training too"
            notes.append(f"{WARNING}{twice:,} of {len(dev):,} {where}, so the scores are too good.")
        return TaskData(
            task=self.task,
            train=train,
            dev={"dev": dev},
            notes=tuple(dict.fromkeys(notes)),
            sha256=tasks.hash_files({split: file.content for split, file in files.items()}),
        )
