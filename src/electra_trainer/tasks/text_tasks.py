"""Classification and regression of a text or a pair: a head on [CLS], the mean of all tokens, or a pair's features.

[CLS] is the paper's (§3.1; released). Classification learns by cross-entropy, regression by squared error (released for
STS-B).

Their baselines are the most frequent label or the mean value, and linear models: on TF-IDF of words and of characters,
and of two texts on what they share (pair_head.py). Metrics are scikit-learn's and SciPy's; a correlation with a
constant is 0. `OwnTask` reads either from .csv, .tsv or .jsonl files.
"""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.experiments.by_class import ClassReport, class_report
from electra_trainer.files.tables import NUMBER, SEVERAL, Table, labels, numbers, printed_lists, read_table_file, shown
from electra_trainer.files.wording import render
from electra_trainer.pretrained.embedding import pooled
from electra_trainer.settings.calls import checked_class
from electra_trainer.settings.config import Model
from electra_trainer.tasks import examples as files
from electra_trainer.tasks import task as tasks
from electra_trainer.tasks.examples import WARNING, Columns, Prediction, TextExample, label_names, meaning
from electra_trainer.tasks.heads import output_head
from electra_trainer.tasks.pair_head import PairHead, Reads, chosen, overlap_features, start_from_probe, words
from electra_trainer.tasks.recipe import FEWEST_EPOCHS, SMALL, Recipe, for_own_rows
from electra_trainer.tasks.task import Baseline, CardWords, ReadRows, Row, Task, TaskData, TransformersHead

Pooling = Literal["cls", "mean", "pair"]
"""`cls`: the hidden state of [CLS], as in the paper. `mean`: the mean over all tokens of the row, [CLS] and [SEP]
included. `pair`: two texts compared (pair_head.py).
"""


_LATER = ("class_weights", "windows")
"""Fields of tasks that are described only where they are set."""
_IN_WINDOWS = (
    "read in windows of that length, a quarter of which overlaps, and the outputs of the windows are averaged "
    "(electra-trainer); transformers and ONNX Runtime read one row"
)


class TextTask(Task):
    """Common part of classification and regression: `output_head` on the vector of a text or pair, or
    `PairHead`.
    """

    metrics: tuple[str, ...]
    pooling: Pooling
    windows: bool
    """Read a text that is longer than a row in overlapping windows. In training each window is a row with the text's
    answer, and a text counts as much as a short one; the outputs of its windows are averaged to predict.
    """
    endings: ClassVar[Sequence[str]] = (".csv", ".jsonl", ".txt", "")

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def outputs(self) -> int:
        """Numbers that the head gives for a row, C."""
        raise NotImplementedError

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
    ) -> tuple[Mapping[int, TextExample], Sequence[str]]:
        names = columns.labels or (columns.label or "",)
        if not {*names} <= {*table.columns}:
            return {}, ()
        cells = zip(*(table.column(name) for name in names), strict=True)
        filled = [
            row for row, own in enumerate(cells) if not any(cell is None or not str(cell).strip() for cell in own)
        ]
        if columns.separator is not None and filled:  # an empty cell says: no label
            filled = [*range(len(table.rows))]
        some = replace(table, rows=[table.rows[row] for row in filled], lines=[table.lines[row] for row in filled])
        try:
            found = self.answered([examples[row] for row in filled], some, columns)
        except DataError as error:
            return {}, (f"not scored: {error}",)
        return dict(zip(filled, found, strict=True)), ()

    def answered(self, examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
        """Examples with the answers of a file like the training file; DataError: one that this task cannot score."""
        raise DataError(f"{table.path}: {self.name} reads no answers from it.")

    def described(self) -> dict[str, Any]:
        """See `Task`; without empty fields that earlier versions had not."""
        return {name: value for name, value in super().described().items() if value or name not in _LATER}

    def head(self, model: Model) -> nn.Module:
        """[B, D] -> [B, C]; of a pair see `PairHead`."""
        return PairHead(model, self.outputs) if self.pooling == "pair" else output_head(model, self.outputs)

    def prepare(self, head: nn.Module, train: Sequence[TextExample], text: Text) -> None:
        if isinstance(head, PairHead):
            texts = [one for example in train for one in (example.text, example.pair) if one is not None]
            head.count(text.ids(texts), text.tokenizer.get_vocab())

    @property
    def balanced(self) -> bool:
        """Whether classes count alike."""
        return False

    def fit_head(self, head: nn.Module, rows: Sequence[Row], read: ReadRows) -> None:
        if isinstance(head, PairHead):
            start_from_probe(head, rows, read, balanced=self.balanced)

    def output(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """The head's output, [B, C]."""
        if self.pooling == "pair":
            both_BC: Tensor = head(hidden_BTD, batch)
            return both_BC
        output_BC: Tensor = head(text_vector(hidden_BTD, batch, self.pooling))
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

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    """See `classification_scores`; the first is the main one."""
    name: str = "classification"
    pooling: Pooling = "cls"
    class_weights: tuple[float, ...] = ()
    """Weight of each label's loss; empty: all alike. The sum is divided by the number of rows."""
    windows: bool = False

    @property
    def outputs(self) -> int:
        return len(self.labels)

    @property
    def balanced(self) -> bool:
        return bool(self.class_weights)

    def targets(self, examples: Sequence[TextExample]) -> list[int | None]:
        number = {label: index for index, label in enumerate(self.labels)}
        return [None if example.label is None else number[example.label] for example in examples]

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        labels_B = torch.tensor([row.target for row in rows], device=output_BC.device)
        weight_C = torch.tensor(self.class_weights, device=output_BC.device) if self.class_weights else None
        return F.cross_entropy(output_BC, labels_B, weight=weight_C, reduction="none")[:, None]

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        return [
            {"label": self.labels[p.index(max(p))], "probabilities": dict(zip(self.labels, p, strict=True))}
            for p in output_EC.softmax(-1).tolist()
        ]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        number = {label: index for index, label in enumerate(self.labels)}
        truth = [number[str(example.label)] for example in examples]
        return classification_scores(truth, [number[one["label"]] for one in predictions], metrics=self.metrics)

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> ClassReport:
        return class_report(self.labels, [str(example.label) for example in examples], predictions)

    def answered(self, examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
        found = _labelled(examples, table, columns)
        known_labels(found, self.labels, columns)
        return found

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        counts = Counter(prediction["label"] for prediction in predictions)
        collapsed = len(counts) == 1 and len(predictions) > 1
        return [f"collapsed: {next(iter(counts))!r} for every example."] if collapsed else []

    def baselines(self, train: Sequence[TextExample]) -> dict[str, Baseline]:
        return text_baselines(train, "label", balanced=self.balanced)

    def as_transformers(self, model: Model) -> TransformersHead:
        return tasks.text_head(model, self.labels, "single_label_classification", pooling=self.pooling)

    def card(self, *, pair: bool) -> CardWords:
        return self.words("Says which label fits {}", pair=pair, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class Regression(TextTask):
    """A number for each text or pair, in the file's own units."""

    shift: float = 0.0
    """Subtracted from a value before it is learned."""
    scale: float = 1.0
    """The divisor of a value after that: 5 for STS-B, as released."""
    metrics: tuple[str, ...] = ("spearman", "pearson")
    """See `regression_scores`; the first is the main one."""
    name: str = "regression"
    pooling: Pooling = "cls"
    windows: bool = False

    @property
    def outputs(self) -> int:
        return 1

    def targets(self, examples: Sequence[TextExample]) -> list[float | None]:
        return [None if example.value is None else (example.value - self.shift) / self.scale for example in examples]

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        target_B1 = torch.tensor([[row.target] for row in rows], dtype=torch.float32, device=output_BC.device)
        return (output_BC - target_B1).square()

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        return [{"value": value * self.scale + self.shift} for (value,) in output_EC.tolist()]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [float(example.value) for example in examples if example.value is not None]
        return regression_scores(truth, [prediction["value"] for prediction in predictions], metrics=self.metrics)

    def answered(self, examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
        return _valued(examples, table, columns)

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


def text_vector(hidden_BTD: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """[B, T, D] -> [B, D]. Each row of the batch is one text or one pair."""
    return pooled(hidden_BTD, batch, "cls" if pooling == "cls" else "mean")


def with_recipe(data: TaskData, recipe: Recipe) -> tuple[TaskData, Recipe]:
    """The data with the recipe's pooling and windows in its task; if the recipe names no pooling, the recipe with the
    task's. For one text `pair` is `mean`; `auto` is either.

    Raises:
        ConfigError: the recipe names a pooling, and the task has no field `pooling`; or `pair`, and the task has a head
            of another kind; or windows, and the task does not read them.
    """
    if recipe.windows:
        if not data.has_windows:
            raise ConfigError(
                f"--windows: {data.task.name} is not read in windows here. Only classification and regression of one "
                "text can be (contexts of questions always are). Leave it out."
            )
        data = replace(data, task=replace(cast(Any, data.task), windows=True))
    task = cast(Any, data.task)
    pools = "pooling" in {field.name for field in fields(task)}
    if not pools and recipe.pooling is None:
        return data, recipe
    pooling = recipe.pooling or task.pooling
    if pooling == "auto":
        if not pools:
            return data, replace(recipe, pooling=None)
        pooling = "pair" if isinstance(task, TextTask) else "mean"
    if pooling == "pair" and not data.pairs:
        pooling = "mean"
    if not pools or (pooling == "pair" and not isinstance(task, TextTask)):
        raise ConfigError(
            f"--pooling {pooling}: {task.name} has no such representation of a text; classification and regression "
            "have it. Leave it out."
        )
    return replace(data, task=replace(task, pooling=pooling)), replace(recipe, pooling=pooling)


def text_baselines(
    train: Sequence[TextExample], answer: Literal["label", "value"], *, balanced: bool = False
) -> dict[str, Baseline]:
    """The most frequent label (the mean value), TF-IDF, of pairs the overlap of words; none without answers.

    Args:
        balanced: classes count alike in the loss of the linear models.
    """
    answers = [getattr(one, answer) for one in train]
    if None in answers:
        return {}
    always = tasks.most_frequent(Counter(answers)) if answer == "label" else sum(answers) / len(answers)

    def learned(title: str, features: Learns) -> Baseline:
        # when it is asked for: it takes minutes
        model = cache(lambda: learn(train, answers, features, balanced=balanced))
        return Baseline(title=title, predict=lambda examples: [{answer: value} for value in model()(examples)])

    found = {
        "majority": Baseline(
            title="the majority class" if answer == "label" else "the mean value",
            predict=lambda examples: [{answer: always} for _ in examples],
        ),
        "tf_idf": learned("TF-IDF", tf_idf),
    }
    if train[0].pair is not None:
        found["word_overlap"] = learned("the word overlap", overlap_features)
    return found


LEARNED_ROWS, LEARNED_CHARACTERS = 100_000, 10_000_000
"""Most rows, and about the most characters, that a baseline learns from, a fixed sample: minutes on one core."""
TRIED_ROWS = 2_000
"""Most rows on which the weight of the penalty is chosen, a fixed sample."""
TERMS = 200_000
"""Most terms, and as many n-grams of characters: the most frequent ones."""
Learns = Callable[[Sequence[TextExample]], tuple[Any, Reads]]
"""Training examples -> the matrix of their features, and what gives those of others."""


def terms(text: str) -> list[str]:
    """Lower-case words and punctuation, and every two neighbours; an empty text has one term."""
    predicted = words(text)
    return predicted + [f"{one} {two}" for one, two in pairwise(predicted)] or [" "]


def learn(
    train: Sequence[TextExample], answers: Sequence[str | float], features: Learns, *, balanced: bool = False
) -> Callable[[Sequence[TextExample]], list[Any]]:
    """A linear model (logistic or ridge regression) on some features; the same for the same rows.

    The weight of its penalty is chosen by cross-validation on the training rows. It computes on one thread, because the
    order of sums depends on the number of threads.

    Args:
        answers: the label of each row, or its value.
        balanced: classes count alike, in its loss and in the choice of the penalty.
    """
    from threadpoolctl import threadpool_limits

    picked = learned_from(train)
    train, known = [train[index] for index in picked], np.array([answers[index] for index in picked])
    if len(set(known.tolist())) == 1:
        return lambda examples: [known[0].item() for _ in examples]
    kind: Any = {"classes": known.dtype.kind == "U", "balanced": balanced}
    model, read = fitted(train, known, features, partial(chosen, **kind), **kind)

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        with threadpool_limits(1):
            predicted: list[Any] = model.predict(read(examples)).tolist()
        return predicted

    return predict


def fitted(
    train: Sequence[TextExample], answers: NDArray[Any], features: Learns, choose: Callable[..., Any], **kind: bool
) -> tuple[Any, Reads]:
    """A linear model of some features, and what gives those of other examples.

    Args:
        choose: as `pair_head.chosen`: takes the weight of the penalty, by a sample of the rows.
        kind: see `linear`.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not exact to the last digit; a label that every row has, or none
        matrix, read = features(train)
        some = np.sort(np.random.default_rng(1).permutation(len(answers))[:TRIED_ROWS])
        model = choose(*linear(matrix, **kind), matrix[some], answers[some], some)
        return model.fit(matrix, answers), read


def learned_from(train: Sequence[TextExample]) -> NDArray[np.int64]:
    """The rows that a baseline learns from, in order: see `LEARNED_ROWS`."""
    letters = sum(len(one.text) + len(one.pair or "") for one in train)
    most = min(LEARNED_ROWS, len(train), len(train) * LEARNED_CHARACTERS // max(letters, 1) + 1)
    return np.sort(np.random.default_rng(0).permutation(len(train))[:most])


def linear(matrix: Any, *, classes: bool, balanced: bool = False) -> tuple[Any, dict[str, list[float]]]:
    """A linear model for a matrix of features, sparse or not, and the weights of its penalty to try."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    if not classes:
        return Ridge(solver="sparse_cg"), {"alpha": [0.1, 1.0, 10.0]}
    weights = "balanced" if balanced else None
    if not sparse.issparse(matrix):
        return LogisticRegression(max_iter=100, class_weight=weights), {"C": [0.1, 10.0, 1000.0]}
    # in the dual: there are more features than rows
    one = LogisticRegression(solver="liblinear", dual=True, random_state=0, class_weight=weights)
    model = OneVsRestClassifier(one)
    return model, {"estimator__C": [1.0, 10.0, 100.0]}


def tf_idf(train: Sequence[TextExample]) -> tuple[Any, Reads]:
    """TF-IDF of words and pairs of words, and of 2 to 5 characters within words; sparse.

    The two texts of a pair have separate features, and numbers that say how much they share: without these, tasks such
    as paraphrase would have no baseline.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    vectorizer = make_union(
        TfidfVectorizer(analyzer=terms, sublinear_tf=True, max_features=TERMS),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=TERMS),
    ).fit([_written(text) for example in train for text in (example.text, example.pair) if text is not None])
    return _counted(train, vectorizer), partial(_counted, vectorizer=vectorizer)


def _written(text: str) -> str:
    """The text; a sign in place of an empty one, for a vocabulary may not be empty."""
    return text if text.strip() else "∅"


def _counted(examples: Sequence[TextExample], vectorizer: Any) -> Any:
    """Sparse [examples, features]."""
    from scipy import sparse

    first = vectorizer.transform([_written(example.text) for example in examples])
    if all(example.pair is None for example in examples):
        return first
    second = vectorizer.transform([_written(example.pair or "") for example in examples])
    alike = np.asarray(first.multiply(second).sum(axis=1))
    shared = np.array([_shared(example.text, example.pair or "") for example in examples])
    return sparse.hstack([first, second, sparse.csr_matrix(np.hstack([alike, shared]))], format="csr")


def _shared(first: str, second: str) -> NDArray[np.float64]:
    """Common terms as shares of the first text's, the second's and all terms, float64 [3]."""
    one, two = set(terms(first)), set(terms(second))
    both = len(one & two)
    return np.array([both / len(one), both / len(two), both / len(one | two)])


_FEW_TO_SCORE = 50
"""A note says how little fewer rows than these tell."""
_ALWAYS = ("text", "pair", "label")
"""Fields of `Columns` that are hashed even where they are empty."""
EPOCHS = 3.0
"""For larger files."""


@checked_class
@dataclass(frozen=True, kw_only=True)
class OwnTask:
    """Files of texts, and whether their answers are labels or numbers."""

    train: str | Path
    dev: str | Path | None = None
    """None: a tenth of the training rows is held out."""
    test: str | Path | None = None
    """Rows with labels that are scored and choose nothing."""
    predict: str | Path | None = None
    """Texts without labels."""
    kind: Literal["classification", "regression"] = "classification"
    text: str | None = None
    """Columns; None: see examples.py."""
    text_pair: str | None = None
    label: str | None = None
    class_weights: Literal["balanced"] | None = None
    """balanced: the loss of a row has the inverse frequency of its class as its weight."""
    metric: str | None = None
    """The main score, one of its task's; None: the first."""

    def __post_init__(self) -> None:
        if self.class_weights is not None and self.name != "classification":
            raise ConfigError(f"--class-weights {self.class_weights}: {self.name} has no classes. Leave it out.")

    @property
    def name(self) -> str:
        return self.kind

    def columns(self, table: Table) -> Columns:
        """The columns of the training file."""
        return files.choose_columns(table, text=self.text, text_pair=self.text_pair, label=self.label)

    def answered(self, table: Table, columns: Columns) -> list[TextExample]:
        """The examples of a file with their answers."""
        answered = _valued if self.kind == "regression" else _labelled
        return answered(files.text_examples(table, columns), table, columns)

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[Task, str]:
        """The task that the training examples describe, and a note on it."""
        return (_classes if self.kind == "classification" else _range)(train, path)

    @cached_property
    def epochs(self) -> float:
        return FEWEST_EPOCHS if _lines_in(Path(self.train)) < SMALL else EPOCHS

    def recipe_for(self, rows: int, layers: int) -> dict[str, object]:
        """See `recipe.for_own_rows`."""
        return for_own_rows(rows, layers, classes=self.kind == "classification")

    def load(self) -> TaskData:
        """Read and check all files.

        Raises:
            MissingInputError, StorageError: a file cannot be read. ConfigError: a column is missing, or must be named.
            DataError: a row, or the labels as a whole, cannot be used; with file:line.
        """
        paths = {name: getattr(self, name) for name in ("train", "dev", "test", "predict")}
        read = {name: read_table_file(Path(path)) for name, path in paths.items() if path is not None}
        table, hashes = read["train"], {name: one.sha256 for name, one in read.items()}
        columns = self.columns(table)
        train = self.answered(table, columns)
        self.task(train, table.path)  # unusable labels are found before some are held out
        notes = [columns.described(), *files.contradictions(train), *files.repeats(train)]
        others = {name: one for name, one in read.items() if name in ("dev", "test")}
        tested = {name: self.answered(one, files.as_trained(one, columns)) for name, one in others.items()}
        if (dev := tested.pop("dev", None)) is None:
            train, dev = files.hold_out(train, where=str(table.path))
            notes.append(
                f"no development file: {len(dev):,} of {len(table.rows):,} rows were held out, chosen by a hash of the "
                "text; no text is on both sides."
            )
        else:
            notes += files.overlap(train, dev)
        for rows in tested.values():
            notes += [*files.overlap(train, rows, "test"), *files.overlap(dev, rows, "test", "development")]
        if (few := len(tested.get("test", dev))) < _FEW_TO_SCORE:
            known = f"shares are known to ± {98 / few**0.5:.0f} points"
            notes.append(f"{WARNING}{few} rows are few: {known}. Score more with --test FILE.")
        task, note = self.task(train, table.path)
        notes += files.odd_labels(getattr(task, "labels", ()), table, columns)
        if isinstance(task, Regression):
            notes += [note for one in (table, *others.values()) for note in files.odd_numbers(one, str(columns.label))]
        if self.class_weights is not None and isinstance(task, Classification):
            task = _balanced(task, train)
            weights = zip(task.labels, task.class_weights, strict=True)
            notes.append(f"class weights: {shown([f'{name} {weight:.3g}' for name, weight in weights])}.")
        task = _led_by(task, self.metric)
        much = max(Counter(example.label for example in train).values()) / len(train)
        if self.metric is None and isinstance(task, Classification) and much >= UNEVEN:
            notes.append(
                f"{WARNING}{100 * much:.0f} % of the training rows have the same label, so predicting it always has "
                f"about that accuracy. Seeds and epochs are chosen by accuracy; --metric macro_f1 counts classes alike."
            )
        if self.kind == "classification":
            known_labels([*dev, *tested.get("test", ())], task.labels, columns)  # type: ignore[attr-defined]
        test, written = {}, None
        if asked := read.get("predict"):
            test = {"predict": files.text_examples(asked, files.choose_texts(asked, columns))}
            written = "predictions.csv", partial(files.predicted_csv, asked, separator=columns.separator or ";")
        short = f"fewer than {SMALL:,} lines: without --epochs {self.epochs:g} epochs, for larger files {EPOCHS:g}."
        named = {name: value for name, value in asdict(columns).items() if value or name in _ALWAYS}
        hashes["columns"] = json.dumps(named)
        return TaskData(
            task=task,
            train=train,
            dev={"dev": dev},
            tested=tested,
            test=test,
            notes=(*notes, note),
            columns=columns,
            written=written,
            defaults={} if self.epochs == EPOCHS else {"epochs": short},
            sha256=tasks.hash_files({name: content.encode() for name, content in hashes.items()}),
        )


def _labelled(examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
    found = labels(table, str(columns.label))
    is_row = " " in f"{columns.text}{columns.pair or ''}"  # else `text,spam` over rows of spam and ham
    if columns.label in found and is_row and table.path.suffix.lower() != ".jsonl":
        remedy = "Put a line of column names on top of the file, as in text,label."
        raise DataError(f"{table.path}:1: {columns.label!r} is a label, not a column's name. {remedy}")
    return [replace(one, label=label) for one, label in zip(examples, found, strict=True)]


def _valued(examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
    found = numbers(table, str(columns.label))
    return [replace(one, value=value) for one, value in zip(examples, found, strict=True)]


def _classes(train: Sequence[TextExample], path: Path) -> tuple[Task, str]:
    """The task, its labels in order: numbers by size, others by letters."""
    counts = Counter(str(example.label) for example in train)
    names = sorted(counts)
    if len(names) == 1:
        raise DataError(f"{path}: all rows have the label {names[0]!r}. Expected two classes or more.")
    if len(names) == len(train) > 2 or len(names) > max(50, len(train) // 2):
        remedy = "Name the columns with --text and --label; numbers are learned with --task regression"
        raise DataError(
            f"{path}: {len(names):,} different labels in {len(train):,} rows, for example {names[0]!r} and "
            f"{names[1]!r}. {SEVERAL if printed_lists(names) else remedy}."
        )
    if all(NUMBER.fullmatch(name) for name in names):
        names.sort(key=lambda name: (float(name), name))
    each = shown([f"{name} {counts[name]:,}" for name in names])
    note = f"{len(names)} classes in {len(train):,} training rows: {each}."
    return Classification(labels=tuple(names), metrics=("accuracy", "macro_f1", "matthews")), note


def _balanced(task: Classification, train: Sequence[TextExample]) -> Classification:
    """The task with weights that are inverse to the frequencies of its classes, 1 on average over the rows."""
    from sklearn.utils.class_weight import compute_class_weight

    named = np.array([str(example.label) for example in train])
    weights = compute_class_weight("balanced", classes=np.array(task.labels), y=named)
    return replace(task, class_weights=tuple(weights.tolist()))


UNEVEN = 0.8
"""Share of the largest class from which on accuracy says little."""


def _led_by(task: Task, metric: str | None) -> Task:
    """The task with `metric` as its main score; ConfigError: it has no such score."""
    known: tuple[str, ...] = cast(Any, task).metrics
    if metric is None:
        return task
    if metric not in known:
        raise ConfigError(f"--metric {metric}: {task.name} has {', '.join(known)}.{did_you_mean(metric, known)}")
    return cast(Task, replace(cast(Any, task), metrics=(metric, *(one for one in known if one != metric))))


def _range(train: Sequence[TextExample], path: Path) -> tuple[Task, str]:
    """The task, its numbers scaled to mean 0 and standard deviation 1."""
    values = np.array([example.value for example in train], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scale, mean = float(np.std(values)), float(np.mean(values))
    if not 0 < scale < np.inf:
        raise DataError(
            f"{path}: values from {values.min():g} to {values.max():g}. Expected numbers that differ, below 1e150."
        )
    note = (
        f"{len(values):,} training rows with values from {values.min():g} to {values.max():g}, mean {mean:.4g}, "
        f"standard deviation {scale:.4g}."
    )
    return Regression(shift=mean, scale=scale), note


def known_labels(dev: Sequence[TextExample], known: Sequence[str], columns: Columns) -> None:
    """Raise DataError for a label that is not among those of training."""
    names = {*known}
    for example in dev:
        unknown = next((label for label in label_names(example) if label not in names), None)
        if unknown is not None:
            written = next((f", where {name!r} does" for name in known if meaning(name) == meaning(unknown)), "")
            raise DataError(
                f"{example.place}: label {unknown!r} in column {columns.label or unknown!r} never occurs in the "
                f"training file{written}. Its labels: {shown([*map(repr, known)])}."
            )


def _lines_in(path: Path) -> int:
    """Line ends in a file; 0 if it cannot be read, which `load` reports."""
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except (OSError, ValueError):
        return 0
