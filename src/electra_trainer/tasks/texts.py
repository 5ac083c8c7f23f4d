"""Classification and regression of a text or a pair: a head on [CLS], the mean of all tokens, or a pair's features.

[CLS] is the paper's (§3.1; released). Classification learns by cross-entropy, regression by squared error (released for
STS-B).

Metrics are scikit-learn's and SciPy's; a correlation with a constant is 0.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import DataError
from electra_trainer.experiments.by_class import ClassReport, class_report
from electra_trainer.files.tables import Table, labels, numbers, shown
from electra_trainer.files.wording import render
from electra_trainer.pretrained.embedding import pooled
from electra_trainer.settings.config import Model
from electra_trainer.tasks import examples as files
from electra_trainer.tasks import task as tasks
from electra_trainer.tasks.baselines import text_baselines
from electra_trainer.tasks.examples import Columns, Prediction, TextExample, label_names, meaning
from electra_trainer.tasks.heads import output_head
from electra_trainer.tasks.pair_head import PairHead, start_from_probe
from electra_trainer.tasks.task import Baseline, CardWords, ReadRows, Row, Task, TransformersHead

Pooling = Literal["cls", "mean", "pair"]
"""`cls`: the hidden state of [CLS], as in the paper. `mean`: the mean over all tokens of the row, [CLS] and [SEP]
included. `pair`: two texts compared (pair_head.py).
"""


ReadAnswers = Callable[[Sequence[TextExample], Table, Columns], list[TextExample]]
_IN_WINDOWS = "read in windows, whose outputs are averaged; transformers and ONNX Runtime read one row"


def labelled(examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
    """Examples with the labels of a file. Raises DataError if the file has no line of column names."""
    found = labels(table, str(columns.label))
    is_row = " " in f"{columns.text}{columns.pair or ''}"  # else `text,spam` over rows of spam and ham
    if columns.label in found and is_row and table.path.suffix.lower() != ".jsonl":
        remedy = "Put a line of column names on top of the file, as in text,label."
        raise DataError(f"{table.path}:1: {columns.label!r} is a label, not a column's name. {remedy}")
    return [replace(one, label=label) for one, label in zip(examples, found, strict=True)]


def valued(examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
    """Examples with the numbers of a file."""
    found = numbers(table, str(columns.label))
    return [replace(one, value=value) for one, value in zip(examples, found, strict=True)]


def known_labels(dev: Sequence[TextExample], known: Sequence[str], columns: Columns) -> None:
    """Raise DataError for a label that is not among those of training; numbers have none."""
    names = {*known}
    for example in dev if known else ():
        unknown = next((label for label in label_names(example) if label not in names), None)
        if unknown is not None:
            written = next((f", where {name!r} does" for name in known if meaning(name) == meaning(unknown)), "")
            raise DataError(
                f"{example.place}: label {unknown!r} in column {columns.label or unknown!r} never occurs in the "
                f"training file{written}. Its labels: {shown([*map(repr, known)])}."
            )


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Common part of classification and regression: `output_head` on the vector of a text or pair, or
    `PairHead`.
    """

    metrics: tuple[str, ...]
    pooling: Pooling = "cls"
    windows: bool = False
    """Read a text that is longer than a row in overlapping windows. In training each window is a row with the text's
    answer, and a text counts as much as a short one; the outputs of its windows are averaged to predict.
    """
    compares: ClassVar[bool] = True
    endings: ClassVar[Sequence[str]] = (".csv", ".jsonl", ".txt", "")

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """Its labels; of a number none."""
        return tuple(getattr(self, "labels", ()))

    @property
    def outputs(self) -> int:
        """Numbers that the head gives for a row, C: one for each label, or one."""
        return max(1, len(self.classes))

    def targets(self, examples: Sequence[TextExample]) -> list[Any]:
        """Targets of the loss, one for each example."""
        raise NotImplementedError

    def rows(self, examples: Sequence[TextExample], text: Text, *, training: bool) -> list[Row]:
        targets = self.targets(examples) if training else [None] * len(examples)
        if self.windows:
            read = [text.windows(ids) for ids in text.ids([example.text for example in examples])]
        else:
            read = [[ids] for ids in text_rows(examples, text)]
        mean = sum(map(len, read)) / max(len(read), 1)  # so that weights are 1 on average
        return [
            Row(ids=ids, example=index, target=target, weight=mean / len(windows))
            for index, (windows, target) in enumerate(zip(read, targets, strict=True))
            for ids in windows
        ]

    def answers_in(
        self, table: Table, columns: Columns, examples: Sequence[TextExample]
    ) -> tuple[Sequence[TextExample], Sequence[str]]:
        columns = files.as_written(table, columns)
        if not {*(columns.labels or (columns.label or "",))} <= {*table.columns}:
            return (), ()
        try:
            found = self.answered(examples, table, columns)
            empty = columns.separator and not any(one.labels for one in found)  # one empty cell means no label
            return ((), (f"not scored: column {columns.label!r} is empty.",)) if empty else (found, ())
        except DataError as error:
            return (), (f"not scored: {error}",)

    read_answers: ClassVar[ReadAnswers]
    """Gives examples the answers of their file."""

    def answered(self, examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
        """Examples with the answers of a file like the training file. Raises DataError for one that this task cannot
        score.
        """
        found = type(self).read_answers(examples, table, columns)
        known_labels(found, self.classes, columns)
        return found

    def head(self, model: Model) -> nn.Module:
        """[B, D] -> [B, C]; of a pair see `PairHead`."""
        return PairHead(model, self.outputs) if self.pooling == "pair" else output_head(model, self.outputs)

    def prepare(self, head: nn.Module, train: Sequence[TextExample], text: Text) -> None:
        if isinstance(head, PairHead):
            texts = [one for example in train for one in (example.text, example.pair) if one is not None]
            head.count(text.ids(texts), text.tokenizer.get_vocab())

    def fit_head(self, head: nn.Module, rows: Sequence[Row], read: ReadRows) -> None:
        if isinstance(head, PairHead):
            start_from_probe(head, rows, read)

    def output(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """The head's output, [B, C]."""
        read = (hidden_BTD, batch) if self.pooling == "pair" else (pooled(hidden_BTD, batch, self.pooling),)
        output_BC: Tensor = head(*read)
        return output_BC

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        """The losses of each row, [B, 1] or [B, C]."""
        raise NotImplementedError

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        losses = self.losses(self.output(head, hidden_BTD, batch), rows)
        weight_B1 = torch.tensor([[row.weight] for row in rows], device=losses.device)
        return (weight_B1 * losses).sum(), losses.numel()

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """The head's output for each row, C numbers."""
        return list(self.output(head, hidden_BTD, batch).tolist())

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        """Predictions from the head's output for each example."""
        raise NotImplementedError

    def predict(self, examples: Sequence[Any], rows: Sequence[Row], predicted: Sequence[Any]) -> list[Prediction]:
        output_RC = torch.tensor(predicted, dtype=torch.float32).view(len(rows), self.outputs)
        example_R = torch.tensor([row.example for row in rows], dtype=torch.long)
        windows_E1 = torch.bincount(example_R, minlength=len(examples))[:, None]
        output_EC = output_RC.new_zeros(len(examples), self.outputs).index_add_(0, example_R, output_RC)
        return self.decode(output_EC / windows_E1)

    def onnx_logits(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        return self.output(head, hidden_BTD, batch)

    def words(self, says: str, *, pair: bool, labels: Sequence[str] = (), top: str = "") -> CardWords:
        """The words of a card; `top`: how many labels transformers is asked for."""
        texts = '"one text", "another"' if pair else '"some text"'
        return CardWords(
            says=says.format("a pair of texts" if pair else "a text"),
            labels=labels,
            pipeline="text-classification",
            longer="; longer texts are " + (_IN_WINDOWS if self.windows else "cut"),
            sample=f"[({texts})]" if pair else f"[{texts}]",
            code=render("card_texts.py", texts=texts, pair=pair, top=top),
        )


@dataclass(frozen=True, kw_only=True)
class Classification(TextTask):
    """One of `labels` for each text or pair; C labels."""

    read_answers: ClassVar[ReadAnswers] = labelled

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    """See `classification_scores`; the first is the main one."""
    class_weights: tuple[float, ...] = ()
    """Weight of a row's loss by its label; empty: all are 1."""
    name: str = "classification"

    def targets(self, examples: Sequence[TextExample]) -> list[int | None]:
        number = {label: index for index, label in enumerate(self.labels)}
        return [None if example.label is None else number[example.label] for example in examples]

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        labels_B = torch.tensor([row.target for row in rows], device=output_BC.device)
        weight_C = torch.tensor(self.class_weights, device=output_BC.device) if self.class_weights else None
        return F.cross_entropy(output_BC, labels_B, weight_C, reduction="none")[:, None]

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        return self.with_shares(output_EC.softmax(-1))

    def with_shares(self, shares_EC: Any) -> list[Prediction]:
        """Predictions from the probabilities of the labels."""
        return [
            {"label": self.labels[p.index(max(p))], "probabilities": dict(zip(self.labels, p, strict=True))}
            for p in shares_EC.tolist()
        ]

    def shares(self, predictions: Sequence[Prediction]) -> NDArray[np.float64]:
        """The probabilities of the labels, [E, C]; 0 for one that a baseline has not seen."""
        return np.array([[one["probabilities"].get(name, 0.0) for name in self.labels] for one in predictions])

    def truths(self, examples: Sequence[TextExample]) -> NDArray[np.int64]:
        """Number of the label of each example."""
        return np.array(self.targets(examples))

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        guesses = [self.labels.index(one["label"]) for one in predictions]
        return classification_scores(self.truths(examples).tolist(), guesses, metrics=self.metrics)

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> ClassReport:
        return class_report(self.labels, [str(example.label) for example in examples], predictions)

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        counts = Counter(prediction["label"] for prediction in predictions)
        collapsed = len(counts) == 1 and len(predictions) > 1
        return [f"collapsed: {next(iter(counts))!r} for every example."] if collapsed else []

    def baselines(self, train: Sequence[TextExample]) -> dict[str, Baseline]:
        return text_baselines(train, "label", balanced=bool(self.class_weights))

    def as_transformers(self, model: Model) -> TransformersHead:
        return tasks.text_head(model, self.labels, "single_label_classification", pooling=self.pooling)

    def card(self, *, pair: bool) -> CardWords:
        return self.words("Says which label fits {}", pair=pair, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class Regression(TextTask):
    """A number for each text or pair, in the file's own units."""

    read_answers: ClassVar[ReadAnswers] = valued

    shift: float = 0.0
    """Subtracted from a value before it is learned."""
    scale: float = 1.0
    """The divisor of a value after that: 5 for STS-B, as released."""
    metrics: tuple[str, ...] = ("spearman", "pearson")
    """See `regression_scores`; the first is the main one."""
    name: str = "regression"

    def targets(self, examples: Sequence[TextExample]) -> list[float | None]:
        return [None if example.value is None else (example.value - self.shift) / self.scale for example in examples]

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        target_B1 = torch.tensor([[row.target] for row in rows], dtype=torch.float32, device=output_BC.device)
        return (output_BC - target_B1).square()

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        return [{"value": value * self.scale + self.shift} for (value,) in output_EC.tolist()]

    @property
    def onnx_unit(self) -> float:
        return self.scale

    def onnx_logits(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        return self.output(head, hidden_BTD, batch) * self.scale + self.shift

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [float(example.value) for example in examples if example.value is not None]
        return regression_scores(truth, [prediction["value"] for prediction in predictions], metrics=self.metrics)

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        values = [prediction["value"] for prediction in predictions]
        collapsed = len(values) > 1 and float(np.std(values)) < 1e-3 * self.scale
        return ["collapsed: the same value for every example."] if collapsed else []

    def baselines(self, train: Sequence[TextExample]) -> dict[str, Baseline]:
        return text_baselines(train, "value")

    def as_transformers(self, model: Model) -> TransformersHead:
        units = {"scale": self.scale, "shift": self.shift}
        return tasks.text_head(model, ("value",), "regression", pooling=self.pooling, **units)

    def card(self, *, pair: bool) -> CardWords:
        return self.words("Gives a number for {}, in the units of the training file", pair=pair)


def classification_scores(
    truth: Sequence[int], predicted: Sequence[int], *, metrics: Sequence[str]
) -> dict[str, float]:
    """Metrics of class numbers.

    Args:
        truth, predicted: class numbers from 0 on.
        metrics: `accuracy`, `matthews`, `f1`, `macro_f1`. `f1` is that of class 1 (GLUE's, for two classes); `macro_f1`
            the mean over classes that occur in either.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    f1 = partial(f1_score, truth, predicted, average="macro", zero_division=0.0)
    found: dict[str, Callable[[], Any]] = {
        "accuracy": lambda: np.mean(np.asarray(truth) == np.asarray(predicted)),
        "matthews": lambda: matthews_corrcoef(truth, predicted),
        "f1": lambda: f1(labels=[1]),
        "macro_f1": lambda: f1(labels=sorted({*truth, *predicted})),
    }
    return {metric: float(found[metric]()) for metric in metrics}


def regression_scores(
    truth: Sequence[float], predicted: Sequence[float], *, metrics: Sequence[str]
) -> dict[str, float]:
    """Rank (`spearman`) and linear (`pearson`) correlation."""
    from scipy import stats

    if len(set(truth)) < 2 or len(set(predicted)) < 2:
        return dict.fromkeys(metrics, 0.0)
    measures: dict[str, Any] = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}
    return {metric: float(measures[metric](truth, predicted).statistic) for metric in metrics}


def text_rows(examples: Sequence[TextExample], text: Text) -> list[tuple[int, ...]]:
    """Ids of each example's row."""
    first = text.ids([example.text for example in examples])
    paired = [example.pair for example in examples if example.pair is not None]
    second = iter(text.ids(paired))
    pairs = zip(examples, first, strict=True)
    return [text.row(ids, None if example.pair is None else next(second)) for example, ids in pairs]
