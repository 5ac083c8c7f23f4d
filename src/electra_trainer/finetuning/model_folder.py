"""A fine-tuned run as a folder that `transformers` loads as it is, and that `electra predict` uses.

config.json        transformers' class, labels          electra_task.json  task, columns, recipe, seed, source, scores,
SHA-256 of the weights model.safetensors  encoder and head                     README.md          model card
tokenizer.json, tokenizer_config.json, vocab.txt

Where transformers has no class for the head, nothing there may take the folder for a classifier with a new, random one:
config.json then
refuses in one sentence, the head is head.safetensors, and the encoder with the tokenizer is a folder of transformers in
encoder/.
"""

import hashlib
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from torch import Tensor

from electra_trainer.data import tokenizer
from electra_trainer.data.legibility import Legibility
from electra_trainer.errors import CheckpointError, ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.result import Result, printed, read_result
from electra_trainer.experiments.statistics import spread
from electra_trainer.files.reading import read_file, short
from electra_trainer.files.wording import render
from electra_trainer.finetuning.examples import Prediction
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.squad_task import QuestionAnswering
from electra_trainer.finetuning.tagging import Tagging
from electra_trainer.finetuning.task import Task
from electra_trainer.finetuning.texts.tasks import Classification, Regression
from electra_trainer.finetuning.training_step import FineTuned, predict
from electra_trainer.finetuning.transformers_head import TransformersHead
from electra_trainer.pretrained import as_modern, export, read_back
from electra_trainer.pretrained.model_card import TAG, CardFields, card_head, is_on_hub
from electra_trainer.pretrained.source import load_source
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.settings import records
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table
from electra_trainer.train.device import choose_device, choose_precision
from electra_trainer.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

TASK = "electra_task.json"
FORMAT = 1
_KINDS: tuple[type[Task], ...] = (Classification, Regression, Tagging, QuestionAnswering)
KINDS = {kind.__name__: kind for kind in _KINDS}
"""The kinds of tasks that a file may name."""
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> metric -> seed -> score."""
_WHOLE, _HEAD = "model.safetensors", "head.safetensors"
_ENCODER = "encoder/"
"""Folder of the bare encoder, where transformers has no class for the head."""
_REFUSAL = (
    "transformers has no class for the head of this folder. Predict with electra_trainer.load_finetuned(FOLDER) or "
    "`electra predict`; the encoder alone is AutoModel.from_pretrained(FOLDER, subfolder='encoder')"
)
"""A key of `id2label` that is not a number: every version of transformers ends with it, whatever class is asked for."""
_AGAIN = "Export the run again."
_CONFIG: dict[str, Any] = {
    "model": str,
    "model_sha256": str,
    "task": dict,
    "data_sha256": str,
    "recipe": dict,
    "seed": int,
}
"""Fields of a run's config.json."""
_RECIPE = ("learning_rate", "layer_decay", "epochs", "batch_size", "weight_decay", "dropout", "pooling", "precision")
"""Fields of the recipe that a card shows."""
_ON_HUB = {
    "accuracy": "accuracy",
    "f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact_match": "exact_match",
}
"""Metrics -> their names on the Hub."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Content of a card beyond the folder itself."""

    scores: Scores = field(default_factory=dict)
    """Scores of all seeds; empty: of this run alone."""
    notes: tuple[str, ...] = ()
    """Notes on the data."""
    pair: bool = False
    """Whether it learned from pairs of texts."""


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A fine-tuned encoder, ready to use (loaded on the CPU, in fp32, in evaluation mode)."""

    network: FineTuned
    task: Task
    text: tokenizer.Text
    columns: Any
    """How its user's files were read, `Task.columns_type`; None for a fixed benchmark."""
    pair: bool
    """Whether it learned from pairs of texts."""
    table: Mapping[str, Any]
    """electra_task.json."""
    precision: str = "auto"
    """Arithmetic of its predictions, the one of its scores."""

    def predict(self, texts: Sequence[Any], *, device: str = "auto") -> list[Prediction]:
        """One prediction per text, in the precision of its training and scores.

        Args:
            texts: strings; pairs of strings if it learned from pairs; lists of words for tagging; (question, context)
                for questions.
            device: auto, cpu, cuda, cuda:N or mps.

        Raises:
            DataError: one of them is not a text, or not a pair.
        """
        if isinstance(texts, str):
            raise DataError("predict: expected a list of texts, found one text. Put it in brackets.")
        return self.predict_examples(self.task.examples_from(texts, pair=self.pair), device=device)

    def predict_examples(self, examples: Sequence[Any], *, device: str = "auto") -> list[Prediction]:
        """Predictions for the task's own examples."""
        where = choose_device(device)
        precision = choose_precision(self.precision, where)
        return predict(self.network.to(where), self.task, examples, text=self.text, device=where, precision=precision)

    def counting(self, tally: Legibility) -> "Finetuned":
        """A copy that counts in `tally` the letters and texts that its predictions cannot read."""
        return replace(self, text=replace(self.text, tally=tally))

    def with_threshold(self, value: float) -> "Finetuned":
        """A copy that answers questions of SQuAD 2.0 where their "no answer" score is not above `value`.

        Raises:
            ConfigError: it always answers, as it learned from SQuAD 1.1; or it learned something else.
        """
        return replace(self, task=self.task.with_threshold(value))


def export_finetuned(
    run: Path,
    *,
    out: Path,
    facts: Facts,
    columns: Any = None,
    model: str | None = None,
    own: Collection[type[Task]] = (),
) -> Path:
    """Export a finished run that kept its weights; an earlier export in `out` is replaced.

    Args:
        run: folder of finetuning/run.py.
        out: a new or empty folder, or an earlier export.
        facts: scores of all seeds and notes, for the card.
        columns: how the files that it learned from were read.
        model: where its encoder is now; None: where it was.
        own: classes of tasks outside this package that it may have.

    Raises:
        MissingInputError: the run kept no weights, or its encoder is gone. ConfigError: `out` holds something else.
        CheckpointError: the encoder has changed since, or the files do not read back bit for bit.
        StorageError: the disk is full or read-only; nothing is left behind.
    """
    with _repeatable(run):
        config, result = _finished(run)
    source, seed = load_source(model or config["model"]), config["seed"]
    if source.sha256 != config["model_sha256"]:
        raise CheckpointError(f"{source.name}: {run} began with another encoder. Restore it, or choose another --out.")
    with _repeatable(run):
        weights = checkpoint.newest(run / "weights", origin=run_folder.RunFolder(run).origin).weights
        task = task_from(config["task"], where=str(run / "config.json"), own=own).settled(result.by_split)
    length = source.text(int(config["recipe"]["max_length"])).length
    alone = {split: {name: {seed: score} for name, score in one.items()} for split, one in result.by_split.items()}
    facts = replace(facts, scores=facts.scores or alone)
    theirs = _as_transformers(task, source.model)
    shape = export.shape_table(source.model, pad_id=source.specials.pad)
    inner = "" if theirs.architecture else _ENCODER
    alone_as = "ModernBertModel" if source.model.block == "modern" else "ElectraModel"
    settings = {"architectures": [theirs.architecture or alone_as], **shape, **theirs.settings}
    refusal = {"model_type": settings["model_type"], "id2label": {_REFUSAL: "0"}}
    tensors = _tensors(theirs, weights, source.model)
    files = {name: export.safetensors_bytes(each) for name, each in tensors.items()}
    table = {
        "format": FORMAT,
        "task": task.described(),
        "pair": facts.pair,
        "columns": columns and asdict(columns),
        "max_length": length,
        "source": {"model": source.name, "sha256": source.sha256},
        **{name: config[name] for name in ("data_sha256", "recipe", "seed")},
        "scores": facts.scores,
        "notes": list(facts.notes),
        "electra_trainer": __version__,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    tables = {"config.json": refusal, f"{inner}config.json": settings}
    files |= {name: (json.dumps(table, indent=2) + "\n").encode() for name, table in tables.items()}
    files[TASK] = (json.dumps(table, indent=1) + "\n").encode()
    files["README.md"] = finetuned_card(task, head=theirs, table=table, length=length, facts=facts).encode()
    words = as_modern.tokenizer_files(source.tokenizer, source.model, max_length=length)
    files |= {inner + name: content for name, content in words.items()}

    def check(folder: Path) -> None:
        export.check_equal(folder, load_finetuned(folder, own=own).network.state_dict(), weights)

    export.publish(out, files.items(), check, replaces=TASK)
    return out


@contextmanager
def _repeatable(run: Path) -> Iterator[None]:
    """Add to errors of a run's files that the run can be repeated."""
    try:
        yield
    except (CheckpointError, ConfigError, DataError, MissingInputError) as error:
        again = f"If it cannot be restored, delete {run} and repeat the command: that run is done again."
        raise type(error)(f"{error} {again}") from None


def _finished(run: Path) -> tuple[dict[str, Any], Result]:
    """Settings and result of a run; MissingInputError, DataError."""
    config, where = records.read_object(run / "config.json", remedy=""), str(run / "config.json")
    records.require_fields(_CONFIG, config, where, remedy="")
    records.read(Recipe, config["recipe"], where=f"{where}: recipe", error=DataError)
    return config, read_result(run)


def _as_transformers(task: Task, model: Model) -> TransformersHead:
    """The class of transformers that can hold the task's head; none for the modern block."""
    if model.block == "bert":
        return task.as_transformers(hidden_size=model.hidden_size)
    return TransformersHead(
        note="transformers' heads on a ModernBERT have a dense layer and a norm that this head has not. The folder "
        "holds the encoder (ModernBertModel) and, in head.safetensors, the head, which electra-trainer reads."
    )


def _tensors(theirs: TransformersHead, weights: Mapping[str, Tensor], model: Model) -> dict[str, Mapping[str, Tensor]]:
    """The tensors of each file."""
    head = {name.removeprefix("head."): tensor for name, tensor in weights.items() if name.startswith("head.")}
    encoder = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    if model.block == "modern":
        encoder = {name.removeprefix("model."): one for name, one in as_modern.modern_tensors(encoder).items()}
    if theirs.architecture is not None:
        return {_WHOLE: encoder | theirs.write(head)}
    bare = {name.removeprefix("electra."): tensor for name, tensor in encoder.items()}
    return {_ENCODER + _WHOLE: bare, _HEAD: head}


def load_finetuned(folder: str | Path, *, own: Collection[type[Task]] = ()) -> Finetuned:
    """Read an exported fine-tuned model back, its head as it was trained.

    Args:
        folder: OUT/model of an experiment, or the experiment's folder.
        own: the class of its task, where that is one of yours (docs/extending.md).

    Raises:
        MissingInputError: the folder does not exist, or is not a fine-tuned model. CheckpointError: it does not verify.
        DataError: electra_task.json is not one of this version.
    """
    given = Path(folder)
    folder = next((place for place in (given, given / "model") if (place / TASK).is_file()), None) or given
    path = folder / TASK
    if not path.is_file():
        what = f"holds no {TASK}" if folder.exists() else "no such folder"
        raise MissingInputError(
            f"{folder}: {what}. Expected a fine-tuned model, such as DIR/model of `electra finetune --out DIR`."
        )
    table = read_table(path)
    _require_sound(folder, table)
    task = task_from(table.get("task"), where=str(path), own=own)
    place = folder if _WHOLE in table["files"] else folder / _ENCODER
    encoder, model = read_back.read_encoder(place)
    if _HEAD in table["files"]:
        tensors = read_back.read_tensors(folder / _HEAD)
    else:
        theirs = task.as_transformers(hidden_size=model.hidden_size)
        tensors = theirs.read(read_back.read_tensors(folder / _WHOLE), where=str(folder / _WHOLE))
    head = task.head(model)
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"{folder}: its head is not that of its task ({why}).") from None
    words, recipe, length = tokenizer.load_tokenizer(place), table.get("recipe"), table.get("max_length")
    if not isinstance(recipe, dict) or recipe.get("precision", "auto") not in ("auto", "fp32", "bf16"):
        raise CheckpointError(f"{path}: recipe {short(recipe)} cannot be. {_AGAIN}")
    if not isinstance(length, int) or not 3 < length <= model.max_position_embeddings:
        raise CheckpointError(f"{path}: max_length {short(length)} cannot be. {_AGAIN}")
    specials = tokenizer.specials_of(words, where=str(folder))
    tokenizer.require_rows(words, model.vocab_size, where=folder)
    columns = None
    if (named := table.get("columns")) is not None:
        columns = records.read(task.columns_type, named, where=f"{path}: columns", error=CheckpointError, remedy=_AGAIN)
    return Finetuned(
        network=FineTuned(encoder, head, dropout=0.0).eval(),
        task=task,
        columns=columns,
        pair=table.get("pair") is True,
        table=table,
        text=tokenizer.Text(tokenizer=tokenizer.as_plain_text(words), specials=specials, length=length),
        precision=recipe.get("precision", "auto"),
    )


def _require_sound(folder: Path, table: Mapping[str, Any]) -> None:
    """CheckpointError unless electra_task.json is of this version, and the files of tensors are those that it names."""
    files = table.get("files")
    written = short(table.get("format"))
    known = (_WHOLE, _HEAD, _ENCODER + _WHOLE)
    if (
        table.get("format") != FORMAT
        or not isinstance(files, dict)
        or files.keys().isdisjoint({_WHOLE, _ENCODER + _WHOLE})
    ):
        raise CheckpointError(f"{folder / TASK}: format {written}, this version reads {FORMAT}. {_AGAIN}")
    if strange := [name for name in files if name not in known]:
        raise CheckpointError(f"{folder / TASK}: file {short(strange[0])} is none of {', '.join(known)}. {_AGAIN}")
    for name, digest in files.items():
        path = folder / name
        content = read_file(path, limit=sys.maxsize, error=CheckpointError)
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointError(
                f"{path}: its bytes are not those that were exported. Export the run again, or load it with "
                "transformers."
            )


def task_from(description: object, *, where: str = "task", own: Collection[type[Task]] = ()) -> Task:
    """The task that `Task.described` described.

    Args:
        own: classes outside this package that it may be: a file names a task, and never chooses code.

    Raises:
        DataError: an unknown kind or field, or a value that it cannot have; `where` says in which file.
    """
    table = dict(description) if isinstance(description, Mapping) else {}
    kind, known = table.pop("kind", None), {made.__name__: made for made in own} | KINDS
    if not isinstance(kind, str) or kind not in known:
        names = [*KINDS, *(name for name in known if name not in KINDS)]
        raise DataError(
            f"{where}: unknown kind of task {short(kind)}.{did_you_mean(str(kind), names)} Known: {', '.join(names)}. "
            "A class of your own is given with own=[...]."
        )
    try:
        return records.read(known[kind], table, where=f"{where}: {kind}", error=DataError, remedy=_AGAIN)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: not a {kind}: {error}") from None


def finetuned_card(task: Task, *, head: TransformersHead, table: Mapping[str, Any], length: int, facts: Facts) -> str:
    """Markdown with the Hub's header.

    Args:
        task: the task.
        head: transformers' head for it, if there is one.
        table: electra_task.json: source, recipe, seed.
        length: longest row in tokens.
        facts: scores and notes.
    """
    source = str(table["source"]["model"])
    on_hub, words = is_on_hub(source), task.card(pair=facts.pair)
    recipe = {name: table["recipe"][name] for name in _RECIPE if table["recipe"].get(name) is not None}
    if head.architecture and recipe.get("precision") == "bf16":
        recipe["precision"] = (
            "bf16, in scores too; transformers computes in fp32, so probabilities differ by about 0.005"
        )
    header = card_head(
        CardFields(),
        library_name="transformers" if head.architecture else TAG,
        pipeline_tag=words.pipeline if head.architecture else None,
        base_model=source if on_hub else None,
        model_name=_plain(task.name),
        eval_results=list(_results(facts.scores, task, kind=words.pipeline)) or None,
    )
    return header + render(
        "finetuned_card.md",
        task=task,
        words=words,
        head=head,
        encoder=source if on_hub else PurePath(source).name,
        length=length,
        scores=list(_score_rows(facts.scores, metric=task.metric)),
        seed=table["seed"],
        notes=facts.notes,
        seeds=len({seed for metrics in facts.scores.values() for scores in metrics.values() for seed in scores}),
        recipe={name: f"{value:g}" if isinstance(value, int | float) else value for name, value in recipe.items()},
        version=__version__,
    )


def _results(scores: Scores, task: Task, *, kind: str) -> Iterator["EvalResult"]:
    """The medians over seeds for the Hub's table, as shares from 0 to 1."""
    from huggingface_hub import EvalResult

    for split, metrics in scores.items():
        for name, values in metrics.items():
            found = spread(values)
            if name in (*_ON_HUB, task.metric):
                yield EvalResult(
                    task_type=kind,
                    dataset_type=_plain(task.name),
                    dataset_name=_plain(task.name),
                    dataset_split=_plain(split),
                    metric_type=_ON_HUB.get(name, _plain(name)),
                    metric_value=round(found.median, 4),
                    metric_name=f"{_plain(name)}, median of {found.n} seeds" if found.n > 1 else _plain(name),
                )


def _plain(text: str) -> str:
    """A name without characters that could be markup."""
    return re.sub(r"[^\w.-]+", " ", text).strip()


def _score_rows(scores: Scores, *, metric: str) -> Iterator[dict[str, Any]]:
    """A row per split and metric, the main metric first."""
    for split, metrics in scores.items():
        for name in sorted(metrics, key=lambda name: name != metric):
            found = spread(metrics[name])
            numbers = ["-" if value is None else printed(value, name) for value in (found.median, found.mean, found.sd)]
            yield {"split": split, "metric": name, "numbers": [found.n, *numbers]}
