"""The interface of a task, and the values that flow through one. No torch at import.

    examples -task.rows-> Row -collate-> Batch -encoder-> hidden -task.loss-> (sum, count)     in training
                                                          hidden -task.read-> one value per row
             -task.predict-> one prediction per example -task.score-> {metric: number}

A task is one short frozen dataclass in one file. Its fields (labels, metrics, a scheme) are written to JSON and read
back. It knows no optimizer, seed or device.

A task's head as one of transformers', with the same output, and back (`TransformersHead`):

    Classification, Regression   ElectraForSequenceClassification: dropout, dense [D, D], gelu, dropout, out_proj [C, D]
                                 on [CLS]
    Tagging                      ElectraForTokenClassification: dropout, one linear layer; a copy
    QuestionAnswering, BERT's    ElectraForQuestionAnswering: one linear layer; a copy

On the modern block the head is ModernBERT's own (`heads.py`), and all three are copies. On BERT's block our head
for whole texts is one linear layer, w x + b, and gelu(z) - gelu(-z) = z for the exact GELU z Phi(z), as Phi(z)
+ Phi(-z) = 1. So dense gets the rows [w; -w; 0] and out_proj [1, -1, 0], which needs 2 C <= D. For a regression
out_proj also holds scale and shift, so transformers gives numbers in the file's own units.
"""

import hashlib
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.legibility import Legibility, percent
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.experiments.cell import RUN, named_scores
from electra_trainer.experiments.statistics import Sample, jackknife
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import Table, with_content
from electra_trainer.tasks import examples as files
from electra_trainer.tasks.calibration import calibrated
from electra_trainer.tasks.examples import FOLDS, Columns, Prediction, TextExample, strings
from electra_trainer.tasks.recipe import Recipe, settle

if TYPE_CHECKING:
    from torch import Tensor, nn

    from electra_trainer.batch import Batch
    from electra_trainer.settings.config import Model


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row that the encoder reads: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`. An example gives one row, or several
    windows.
    """

    ids: Sequence[int]
    example: int
    """Index of its example."""
    target: Any = None
    """Values that the loss needs; None for rows to be predicted."""
    weight: float = 1.0
    """Factor of its loss, in tasks that read a text in windows."""
    place: Any = None
    """Places for reading a prediction back: first tokens of words, offsets of a window."""


ReadRows = Callable[[Sequence[Row]], "Iterator[tuple[NDArray[np.int64], Tensor, Batch]]"]
"""Rows -> indices of some of them, what the head reads of these (fp32 [B, T, D]) and their batch, until all have been
read.
"""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A predictor without an encoder."""

    title: str
    """In words: "the majority class"."""
    predict: Callable[[Sequence[Any]], list[Prediction]]


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Examples of a file without answers."""

    examples: Sequence[Any]
    written: Callable[[Sequence[Prediction]], dict[str, str]]
    """Predictions -> contents of files, by what follows the stem of the file's name: `""` for the main one."""
    notes: tuple[str, ...] = ()
    """How the file was read, where that may be in doubt."""
    answers: Sequence[Any] = ()
    """`examples` with their answers, if the file has them all."""


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """Sentences of a model card on a task."""

    says: str
    """Purpose of the model, without the full stop; `labels` follow it."""
    labels: Sequence[str] = ()
    pipeline: str = "feature-extraction"
    """The Hub's pipeline tag."""
    longer: str = ""
    """Treatment of texts longer than a row: "; longer texts are cut"."""
    sample: str = '["some text"]'
    """Python: an argument of `Finetuned.predict`."""
    code: str = ""
    """Python: how transformers computes a prediction where it has a class for the head; PATH is the folder."""


_MODERN = {
    "dense.weight": "head.dense.weight",
    "norm.weight": "head.norm.weight",
    "classifier.weight": "classifier.weight",
    "classifier.bias": "classifier.bias",
}
"""Tensors of `heads.ModernHead`, and their names in transformers."""


@dataclass(frozen=True, kw_only=True)
class TransformersHead:
    """The class of transformers that can hold a task's head, and how it does."""

    architecture: str | None = None
    """None: transformers has no head like it."""
    note: str = (
        "transformers has no head like this task's, and refuses the folder. Its encoder is in `encoder/`; the head, in "
        "head.safetensors, is read by electra-trainer."
    )
    """A sentence for the card."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For config.json."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our tensors -> transformers' names, of a head that is copied; empty: it is spread over dense and out_proj."""
    scale: float = 1.0
    """transformers' output is scale * ours + shift."""
    shift: float = 0.0

    def write(self, head: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
        """A trained head (its state dict, fp32) by transformers' names."""
        import torch
        from torch.nn.functional import pad

        if self.names:
            found = {theirs: head[ours] for ours, theirs in self.names.items()}
            if (self.scale, self.shift) != (1.0, 0.0):
                found["classifier.weight"] = self.scale * found["classifier.weight"]
                found["classifier.bias"] = self.scale * found["classifier.bias"] + self.shift
            return found
        weight_CD, bias_C = head["weight"], head["bias"]
        out_CC, rest = self.scale * torch.eye(len(bias_C)), weight_CD.shape[1] - 2 * len(bias_C)
        return {
            "classifier.dense.weight": pad(torch.cat([weight_CD, -weight_CD]), (0, 0, 0, rest)),
            "classifier.dense.bias": pad(torch.cat([bias_C, -bias_C]), (0, rest)),
            "classifier.out_proj.weight": pad(torch.cat([out_CC, -out_CC], 1), (0, rest)),
            "classifier.out_proj.bias": torch.full_like(bias_C, self.shift),
        }


def copied_head(
    model: "Model", kind: str, prefix: str, *, labels: Sequence[str] = (), **fields: Any
) -> TransformersHead:
    """The head of `heads.output_head`, as transformers has it.

    Args:
        model: the encoder's shape.
        kind: the class of transformers without its beginning: `TokenClassification`.
        prefix: of the linear layer's tensors there, on BERT's block.
        labels: names of the outputs, if they have some.
        fields: others of `TransformersHead`.
    """
    from electra_trainer.pretrained.as_modern import numbered

    modern = model.block == "modern"
    says = "ModernBERT's: dense, GELU, LayerNorm and a linear layer" if modern else "one linear layer"
    return TransformersHead(
        architecture=f"{'ModernBertFor' if modern else 'ElectraFor'}{kind}",
        note=f"The head is {says}, as in transformers.",
        settings={**(numbered(labels) if labels else {}), **fields.pop("settings", {})},
        names=_MODERN if modern else {name: prefix + name for name in ("weight", "bias")},
        **fields,
    )


def text_head(
    model: "Model", labels: Sequence[str], problem: str, *, pooling: str, scale: float = 1.0, shift: float = 0.0
) -> TransformersHead:
    """The head on a text's vector as a sequence classifier; on BERT's block the linear layer is spread over the two of
    ElectraForSequenceClassification where these can hold it.
    """
    from electra_trainer.pretrained.as_modern import numbered

    if pooling == "pair" or (model.block != "modern" and (pooling == "mean" or 2 * len(labels) > model.hidden_size)):
        return TransformersHead()
    if model.block == "modern":
        fields = {"settings": {"problem_type": problem, "classifier_pooling": pooling}, "scale": scale, "shift": shift}
        return copied_head(model, "SequenceClassification", "", labels=labels, **fields)
    return TransformersHead(
        architecture="ElectraForSequenceClassification",
        settings={**numbered(labels), "problem_type": problem},
        note="The head is the paper's, one linear layer on [CLS], written as the two layers that transformers has in "
        "its place: gelu(z) - gelu(-z) = z, so its output is the same.",
        scale=scale,
        shift=shift,
    )


class Task(Protocol):
    """A task: rows, a head, a loss, predictions and scores. Scores are shares from 0 to 1, or correlations.

    Inherit from it: the nine members up to `doubts` are yours, the others have defaults. `name` and `metric` are fields
    with a default, or properties. A field `pooling` makes `--pooling` work.
    """

    @property
    def name(self) -> str:
        """Its name in folders and tables."""

    @property
    def metric(self) -> str:
        """Its main score, shown in tables."""

    @abstractmethod
    def head(self, model: "Model") -> "nn.Module":
        """The layers on top of the encoder. The engine draws their weights, and adds dropout before them if the recipe
        says so.
        """

    @abstractmethod
    def rows(self, examples: Sequence[Any], text: Text, *, training: bool) -> list[Row]:
        """Rows that the encoder reads, in the order of the examples; with targets if `training`."""

    @abstractmethod
    def loss(
        self, head: "nn.Module", hidden_BTD: "Tensor", batch: "Batch", rows: Sequence[Row]
    ) -> "tuple[Tensor, int]":
        """Sum of the losses of a batch (scalar, fp32), and the number of summed losses. `hidden_BTD` is fp32, the input
        of `head`.
        """

    @abstractmethod
    def read(self, head: "nn.Module", hidden_BTD: "Tensor", batch: "Batch", rows: Sequence[Row]) -> list[Any]:
        """The head's output for each row, as plain values or arrays."""

    @abstractmethod
    def predict(self, examples: Sequence[Any], rows: Sequence[Row], raw: Sequence[Any]) -> list[Prediction]:
        """One prediction per example, from the outputs for its rows."""

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics over examples that carry their answer."""

    @abstractmethod
    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        """Sentences on what looks wrong, for example one class everywhere. After "collapsed: ..." the engine adds what
        to try.
        """

    def report(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> ClassReport | None:
        """Scores class by class over examples that carry their answer; by default none."""
        return None

    def prepare(self, head: "nn.Module", train: Sequence[Any], text: Text) -> None:
        """Fill the buffers of a fresh head from the training examples; by default it has none."""
        return

    def fit_head(self, head: "nn.Module", rows: Sequence[Row], read: ReadRows) -> None:
        """Fit the head to the training rows before the first step, without gradients; by default it begins as it was
        drawn.
        """
        return

    def hold_out(self, train: Sequence[Any], *, where: str) -> tuple[Sequence[Any], Sequence[Any]]:
        """Split off about a tenth of the examples for scoring; no text is on both sides.

        Raises:
            DataError: `train`, which is named `where`, has too few.
        """
        return files.hold_out(train, where=where)

    pooling: Any = None
    """How a whole text is represented: see texts.py. None: it is not, so `--pooling` is refused."""
    compares: ClassVar[bool] = False
    """Whether `--pooling pair` gives it the head that compares two texts."""
    windows: bool | None = None
    """Whether long texts are read in windows; None: it cannot."""
    whole_text: ClassVar[bool] = True
    """True if it judges whole texts, so that it has dropout before its head under `head_dropout="texts"`."""
    columns_type: ClassVar[type[Any]] = Columns
    """Class of `TaskData.columns`, which is kept with the model."""
    endings: ClassVar[Sequence[str]] = ()
    """File name endings that a file of its predictions may have; none: any."""

    def described(self) -> dict[str, Any]:
        """Its kind and fields as plain values, which `model_folder.task_from` reads back."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {"kind": type(self).__name__, **plain}

    def settled(self, scores: Mapping[str, Mapping[str, float]]) -> Self:
        """The task as it is exported after a run with these scores, by split (the main one first) and metric."""
        return self

    def with_threshold(self, value: float) -> Self:
        """A copy of the task with another threshold below which it gives no answer.

        Raises:
            ConfigError: it has none.
        """
        raise ConfigError(f"--null-threshold {value:g}: {self.name} always answers. Leave it out.")

    def baselines(self, train: Sequence[Any]) -> dict[str, Baseline]:
        """Predictors without an encoder, learned from `train`; the encoder with fresh weights is a baseline of every
        task.
        """
        return {}

    def examples_from(self, texts: Sequence[Any], *, pair: bool) -> list[Any]:
        """Examples without answers from plain values: strings, or pairs of strings if `pair`.

        Raises:
            DataError: one of them is something else.
        """
        if pair:
            expected = "a pair of texts, as in training"
            both = [strings(text, index, expected, count=2) for index, text in enumerate(texts)]
            return [TextExample(text=one, pair=two) for one, two in both]
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataError(f"predict: item {index} is {text!r:.60}, expected a text.")
        return [TextExample(text=text) for text in texts]

    def examples_in(
        self, path: Path, *, like: Any, pair: bool, text: str | None, text_pair: str | None, as_json: bool
    ) -> Unlabelled:
        """Examples of a file without answers, here the rows of any input of `rows.read_rows`.

        Args:
            like: the columns of training (`columns_type`), or None if they are not known.
            pair: whether it learned from pairs.
            text, text_pair: columns named by flags.
            as_json: write JSON lines.

        Raises:
            ElectraError: the file cannot be read, or has no such columns.
        """
        table = read_rows(path)
        columns = files.choose_texts(table, like, text=text, text_pair=text_pair, pair=pair)
        separator = getattr(like, "separator", None) or ";"
        write = files.predicted_jsonl if as_json else partial(files.predicted_csv, separator=separator)
        full, places = with_content(table, columns.text, columns.pair)
        examples = files.text_examples(full, columns)
        answers, notes = self.answers_in(full, like, examples) if isinstance(like, Columns) else ((), ())
        if left := len(table.rows) - len(examples):
            notes = [*notes, f"{left:,} of {len(table.rows):,} rows have no text: their prediction is left empty."]

        def written(predictions: Sequence[Prediction]) -> dict[str, str]:
            found = dict(zip(places, predictions, strict=True))
            return {"": write(table, [found.get(at) for at in range(len(table.rows))])}

        return Unlabelled(examples=examples, written=written, answers=answers, notes=tuple(notes))

    def answers_in(
        self, table: Table, columns: Columns, examples: Sequence[TextExample]
    ) -> tuple[Sequence[Any], Sequence[str]]:
        """Examples with the answers in the column of training, if all rows have one, and notes; by default none. Never
        raises: predictions do not need answers.
        """
        return (), ()

    def as_transformers(self, model: "Model") -> TransformersHead:
        """The head of transformers that computes the same; by default there is none."""
        return TransformersHead()

    @property
    def onnx_unit(self) -> float | None:
        """The standard deviation of a task's numbers, in which files in ONNX are compared; None: it gives logits."""
        return None

    def onnx_logits(self, head: "nn.Module", hidden_BTD: "Tensor", batch: "Batch") -> "Tensor":
        """The output of a file in ONNX, [B, C] or [B, T, C]; of numbers in the units of predictions.

        Raises:
            ConfigError: its head cannot be written.
        """
        out: Tensor = head(hidden_BTD)
        return out

    def onnx_shares(self, logits: "Tensor", batch: "Batch") -> "Tensor":
        """Distributions over the last dimension from these logits."""
        return (logits[batch.real_BT] if logits.dim() == 3 else logits).softmax(-1)

    second_text: ClassVar[str] = ""
    """Title on a page of the text that every input also has, such as "Question"; empty: there is none."""

    def word_places(self, text: str, columns: Any) -> list[tuple[int, int]] | None:
        """The words of a text, [begin, end), of a task that predicts for each word; None: it predicts for texts.

        Args:
            columns: see `TaskData.columns`.
        """
        return None

    def card(self, *, pair: bool) -> CardWords:
        """The words of its model card; `pair`: it learned from pairs of texts."""
        return CardWords(says=self.name, sample='[("one text", "another")]' if pair else '["some text"]')


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its examples."""

    task: Task
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    """Examples by name of the split; the first is the main one."""
    tested: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Examples with answers by name of the split, scored at the end of a run; they choose nothing."""
    test: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Examples without answers, to be predicted."""
    folds: tuple[tuple[int, ...], ...] = ()
    """Cross-validation: numbers of the training examples of each part, which a run on the others predicts. The only dev
    split are all training examples.
    """
    learned: bool = False
    """The encoder may have learned from the dev examples before, so nothing is fitted to its probabilities of them."""
    unordered_pairs: bool = False
    """The two texts of a pair may be swapped (MRPC, STS-B): see `Recipe.double_unordered`."""
    notes: tuple[str, ...] = ()
    """Notes that a reader of the scores must know: a subset, a rebuild."""
    sha256: str = ""
    """SHA-256 of the files that it was read from."""
    columns: Any = None
    """How the user's own files were read, `Task.columns_type`; None for a fixed benchmark."""
    written: tuple[str, Callable[[Sequence[Prediction]], str]] | None = None
    """Name and content of the file that the predictions for `test` are written to, if there is one."""

    @property
    def pairs(self) -> bool:
        """Whether its examples are pairs of texts."""
        return any(getattr(example, "pair", None) is not None for example in self.train[:1])

    def judged(
        self, predict: "Callable[[str, Task], list[Prediction]]", *, others: Sequence[str] = (), encoder: bool = True
    ) -> tuple[dict[str, Any], dict[str, list[Prediction]]]:
        """Score the splits with answers, test splits by the task that the dev splits settled.

        Args:
            predict: split and task -> predictions of its examples.
            others: splits of `test` to be predicted too.
            encoder: look for doubts and, on files of one's own, give probabilities the temperature that fits the main
                dev split, unless it has learned from it; a baseline is scored as it is.

        Returns:
            Fields of a result, and the predictions by split.
        """
        task, own, fitted, doubts = self.task, self.columns is not None, None, list[str]()
        scores, reports = dict[str, dict[str, float]](), dict[str, ClassReport]()
        predicted = dict[str, list[Prediction]]()
        for split, examples in {**self.dev, **self.tested, **{name: self.test[name] for name in others}}.items():
            if split not in self.dev:
                task = self.task.settled({name: scores[name] for name in self.dev})
            found = predicted[split] = predict(split, task)
            if split in others:
                continue
            if encoder and split in self.dev:
                doubts += [f"{split}: {doubt}" for doubt in task.doubts(examples, found)]
            report = task.report(examples, found) if encoder or own else None
            if report is not None:
                if encoder and own and hasattr(task, "with_shares"):
                    found, report, fitted = calibrated(
                        task, examples, found, fold_E=self.fold_of(len(found)), fitted=fitted, learned=self.learned
                    )
                reports[split], predicted[split] = report, found
            scores[split] = task.score(examples, found)
            if own and report is not None:
                known = vars(report)
                scores[split] |= {"calibration_error": known["calibration_error"], "log_loss": known["log_loss"]}
        samples = self._samples(task, predicted)
        fields = {"scores": named_scores(scores), "reports": reports, "samples": samples, "doubts": tuple(doubts)}
        return fields, predicted

    def _samples(self, settled: Task, predicted: Mapping[str, Sequence[Prediction]]) -> dict[str, Sample]:
        """The main score as values of rows, named as in a result, of the split that files of one's own are judged by:
        rows that choose nothing, or else the main development rows. Nothing for a fixed benchmark.
        """
        if self.columns is None:
            return {}
        (split, rows), task = next(iter((self.tested or self.dev).items())), settled if self.tested else self.task
        return {f"{split}/{task.metric}": sample_of(task, rows, predicted[split])}

    def fold_of(self, rows: int) -> NDArray[np.int64]:
        """The part of each of the first `rows` dev examples, from 0: of `folds`, or else in turn."""
        found = np.arange(rows) % FOLDS
        for number, held in enumerate(self.folds):
            found[[*held]] = number
        return found

    @property
    def parts(self) -> tuple[str, ...]:
        """Runs that a cross-validation is made of: its folds, and `run`, which learns from all examples."""
        return (*(f"fold-{number}" for number, _ in enumerate(self.folds, 1)), RUN) if self.folds else ()

    def in_order(self, each: Sequence[Sequence[Prediction]]) -> list[Prediction]:
        """Predictions of each fold as those of all examples; without folds those of the only part."""
        if not self.folds:
            return [*each[0]]
        pairs = (pair for held, found in zip(self.folds, each, strict=True) for pair in zip(held, found, strict=True))
        return [found for _, found in sorted(pairs, key=lambda pair: pair[0])]

    def part(self, name: str) -> Self:
        """Data of one of `parts`. Only all folds together are judged as files of one's own."""
        held = {*self.folds[int(name.removeprefix("fold-")) - 1]} if name != RUN else set[int]()
        train = [example for index, example in enumerate(self.train) if index not in held]
        dev = {split: [self.train[index] for index in sorted(held)] for split in self.dev if held}
        return replace(self, train=train, dev=dev, folds=(), columns=None)

    @property
    def has_windows(self) -> bool:
        """Whether long texts can be read in windows: those of a task with such a field, one text an example."""
        return self.task.windows is not None and not self.pairs

    def under(self, recipe: Recipe) -> tuple[Self, Recipe]:
        """The data with the recipe's pooling and windows in its task, and the settled recipe: see `recipe.settle`."""
        task: Any = self.task
        ways: dict[str, Any] = {"pooling": task.pooling, "compares": task.compares, "pairs": self.pairs}
        settled = settle(recipe, task=task.name, windows=self.has_windows, **ways)
        changes = {name: value for name in ("pooling", "windows") if (value := getattr(settled, name))}
        return replace(self, task=replace(task, **changes)) if changes else self, settled


def sample_of(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Sample:
    """The main score of examples with answers, as values of rows."""
    both = [*zip(examples, predictions, strict=True)]
    if task.metric == "accuracy" and "label" in both[0][1]:
        return Sample(rows=len(both), values=tuple(float(one.label == found["label"]) for one, found in both))

    def score(some: Sequence[int]) -> float:
        return task.score([both[at][0] for at in some], [both[at][1] for at in some])[task.metric]

    return jackknife(score, len(both))


class TaskSource(Protocol):
    """Where a task comes from: a small frozen dataclass of paths and names, so that any process can load it. Inherit
    from it.
    """

    max_length: ClassVar[int | None] = None
    """Tokens per row by default, where the recipe's 128 are too few."""
    own_recipe: ClassVar[bool] = False
    """Whether `recipe_for` says what `--recipe auto` is; else it is the paper's."""

    @property
    def name(self) -> str:
        """The task's name, known before anything is read."""

    @property
    def epochs(self) -> float:
        """Passes over the training rows by default (Table 6)."""

    def load(self) -> TaskData:
        """Read the files.

        Raises:
            MissingInputError, DataError, StorageError: what is wrong, with file and line.
        """

    def recipe_for(self, rows: int, layers: int) -> Mapping[str, Any]:
        """Changes of the paper's recipe under `--recipe auto`; of a task with `own_recipe`.

        Args:
            rows: training rows.
            layers: of the encoder.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class OwnFiles(TaskSource):
    """Files of one's own, one for each split."""

    kind: ClassVar[type[Task]]
    """The class of its task."""
    epochs: ClassVar[float] = 3.0

    train: str | Path
    dev: str | Path | None = None
    """None: a tenth of the training examples is held out."""
    test: str | Path | None = None
    """Examples with answers that are scored and choose nothing."""
    predict: str | Path | None = None
    """Examples to be predicted; answers in it are ignored."""

    def given(self) -> dict[str, str | Path]:
        """The files by split."""
        paths = {split: vars(self)[split] for split in ("train", "dev", "test", "predict")}
        return {split: path for split, path in paths.items() if path is not None}


READ = 2_000
"""Largest number of examples from which `legibility_of` judges a file."""
IN_PIECES = 0.12
"""Share of the words in three pieces or more from which a vocabulary hardly knows them. Measured with en-mini's: 2.4 to
6.6 % of English texts and docstrings, 22 to 52 % of eight other languages in Latin letters; with BERT's 5.3 % of the
docstrings, 21 to 49 % of the others.
"""


def legibility_of(task: Task, examples: Sequence[Any], text: Text) -> Legibility:
    """Count unreadable letters, words in many pieces, cut texts and texts that are read alike, of at most `READ`
    examples drawn at random.
    """
    tally, some = Legibility(), random.Random(0).sample(examples, min(READ, len(examples)))
    read: list[tuple[int, ...]] = [()] * len(some)
    for row in task.rows(some, replace(text, tally=tally), training=False) if some else ():
        read[row.example] += tuple(row.ids)
    if some and isinstance(some[0], TextExample):
        tally.notes = files.contradictions(some, read)
        pieces = [count for one in some for count in _pieces(one.text, text)]
        if (many := sum(count > 2 for count in pieces)) > IN_PIECES * len(pieces) and not tally.is_much:
            tally.notes.append(
                f"{files.WARNING}{percent(many, len(pieces))} of the words are read in three pieces or more, so the "
                "encoder hardly knows this language or field. Name another MODEL, or pre-train one on such texts: "
                "`electra tokenizer` begins a language, `electra pretrain DATA --init RUN` learns a field."
            )
    return tally


def _pieces(read: str, text: Text) -> Iterable[int]:
    """The number of tokens of each word, without numbers and signs."""
    (found,) = text.encode([read])
    places = zip(found.word_ids, found.offsets, strict=True)
    return Counter(word for word, (begin, _) in places if read[begin : begin + 1].isalpha()).values()


def findings_of(data: TaskData, text: Text, *, reader: str, longest: int) -> list[str]:
    """Sentences on training texts that an encoder cannot read or that are cut.

    Args:
        text: as it is read for training.
        reader: the encoder.
        longest: longest row that it can read, in tokens.
    """
    windows = data.has_windows
    longer = (
        f"Read more with --max-length {longest}{', or all with --windows' if windows else ''}."
        if text.length < longest
        else f"The encoder was trained on rows of {longest} tokens: "
        f"{'read all with --windows' if windows else 'split the texts'}, or put first what matters."
    )
    return legibility_of(data.task, data.train, text).findings(reader=reader, longer=longer)


def most_frequent(counts: Mapping[str, int]) -> str:
    """The key with the largest count, of equals the first by name."""
    return min(counts, key=lambda value: (-counts[value], value))


def hash_files(files: Mapping[str, bytes]) -> str:
    """SHA-256 of named contents."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def lengths_of(rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Tokens of each row, int64 [rows]."""
    return np.fromiter((len(row.ids) for row in rows), dtype=np.int64, count=len(rows))
