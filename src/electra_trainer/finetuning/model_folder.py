"""A fine-tuned run as a folder that `transformers` loads as it is, and that `electra predict` uses.

config.json         transformers' class, labels
model.safetensors   encoder and head
head.safetensors    the head as it was trained, which electra-trainer reads
electra_task.json   task, columns, recipe, seed, source, scores, SHA-256 of the weights
learned.txt         digests of the texts that it learned from, of own tables and tagged sentences
tokenizer.json, tokenizer_config.json, vocab.txt, README.md (model card)

Where transformers has no class for the head, nothing may take the folder for a classifier with a new, random one. Then
config.json refuses in one sentence that names what loads the folder, and the encoder with the tokenizer is a folder of
transformers in encoder/. Such heads are those of pairs (`pair`), of questions (`joint`)
and, on BERT's block, the mean of all tokens, which `--recipe auto` chooses for single texts.
"""

import hashlib
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from torch import Tensor, nn

from electra_trainer.data import tokenizer
from electra_trainer.data.legibility import Legibility
from electra_trainer.errors import CheckpointError, ConfigError, DataError, MissingInputError, tell
from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.experiments.cell import KEPT, OPTIMISTIC, RUN, SEEN, Result, printed, read_result
from electra_trainer.experiments.statistics import Spread, spread
from electra_trainer.files.reading import read_file, refuse_columns, short
from electra_trainer.files.wording import Table, render
from electra_trainer.finetuning.run import FineTunedNetwork, predict
from electra_trainer.pretrained import as_modern, export, read_back
from electra_trainer.pretrained.model_card import TAG, CardFields, card_head, is_on_hub
from electra_trainer.pretrained.source import load_source
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.settings import extensions, records
from electra_trainer.settings.calls import checked
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import LEARNED, TASK, read_table
from electra_trainer.tasks.examples import Prediction, digest_of
from electra_trainer.tasks.kinds import KINDS
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import Task, TaskData, TransformersHead
from electra_trainer.train.device import choose_precision, placed
from electra_trainer.version import __version__

FORMAT = 2
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> metric -> seed -> score."""
_WHOLE, _HEAD = "model.safetensors", "head.safetensors"
_ENCODER = "encoder/"
"""Folder of the bare encoder, where transformers has no class for the head."""
_FILES = ({_WHOLE, _HEAD}, {_ENCODER + _WHOLE, _HEAD})
"""Files of tensors of a folder."""
_FIELDS = {"task": dict, "pair": bool, "max_length": int, "recipe": dict, "seed": int, "scores": dict}
"""Fields of electra_task.json that loading and `print` need."""
_REFUSAL = (
    "transformers has no class for the head of this folder. Predict with electra_trainer.load_finetuned(FOLDER) or "
    "`electra predict`; the encoder alone is AutoModel.from_pretrained(FOLDER, subfolder='encoder')"
)
"""A key of `id2label` that is not a number: every version of transformers ends with it, whatever class is asked for."""
_AGAIN = "Export the run again."
_RECIPE = ("learning_rate", "layer_decay", "epochs", "batch_size", "weight_decay", "dropout", "pooling", "precision")
"""Fields of the recipe that a card shows."""


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A fine-tuned encoder, ready to use (loaded on the CPU, in fp32, in evaluation mode)."""

    network: FineTunedNetwork
    task: Task
    text: tokenizer.Text
    columns: Any
    """How its user's files were read, `Task.columns_type`; None for a fixed benchmark."""
    pair: bool
    """Whether it learned from pairs of texts."""
    table: Mapping[str, Any]
    """electra_task.json."""
    learned: Set[str] | None = None
    """See `learned_from`."""
    precision: str = "auto"
    """Precision in which it predicts, and in which its scores were computed."""

    def __repr__(self) -> str:
        return f"<Finetuned: {self.task.name}, from {self.table['source']['model']}>"

    def __str__(self) -> str:
        if says := self.table.get("conclusion"):
            return f"{self!r}\n\n{says}"
        found = _score_rows(self.table["scores"], metric=self.task.metric, seed=self.table["seed"])
        rows = [(one["split"], one["metric"], *map(str, one["numbers"])) for one in found]
        table = Table(head=("split", "metric", "n", "median", "mean", "SD"), rows=rows, words=2)
        return f"{self!r}\n\n{table.text()}"

    @property
    def scores(self) -> Mapping[str, Mapping[str, Spread]]:
        """Scores of all seeds (n, median, mean, SD) by split, the main one first, and metric:
        `scores["dev"]["accuracy"].median`.
        """
        return {
            split: {name: spread({int(at): one for at, one in seeds.items()}) for name, seeds in found.items()}
            for split, found in self.table["scores"].items()
        }

    @checked
    def predict(self, texts: Iterable[Any], *, device: str = "auto") -> list[Prediction]:
        """One prediction per text, in the precision of its training and scores.

        Args:
            texts: strings; pairs of strings if it learned from pairs; lists of words for tagging; (question, context)
                for questions.
            device: auto, cpu, cuda, cuda:N or mps.

        Raises:
            DataError: one of them is not a text, or not a pair.
        """
        refuse_columns(texts, where="predict")
        return self.reporting(self.task.examples_from(list(texts), pair=self.pair), device=device, reader="this model")

    def predict_examples(self, examples: Sequence[Any], *, device: str = "auto") -> list[Prediction]:
        """Predictions for the task's own examples."""
        with placed(self.network, device) as where:
            precision = choose_precision(self.precision, where)
            return predict(self.network, self.task, examples, text=self.text, device=where, precision=precision)

    def reporting(self, examples: Sequence[Any], *, device: str, reader: str) -> list[Prediction]:
        """Predictions; letters that the model cannot read and texts that it cuts are reported.

        Args:
            reader: its name in messages.
        """
        tally = Legibility()
        counting = replace(self, text=replace(self.text, tally=tally))
        predictions = counting.predict_examples(examples, device=device)
        longer = "Fine-tune with a longer --max-length or, for single texts, --windows; or put first what matters."
        tally.report(reader=reader, longer=longer)
        return predictions

    def sure_from(self, accuracy: float) -> float:
        """The lowest probability from which on this share of held-out rows was right, of a class a text; infinity, with
        a line on standard error, if none is high enough.

        Raises:
            ConfigError: not a share, or the model keeps no such probabilities.
        """
        asked, tested = f"accuracy {accuracy:g}", self.table.get("tested", ())
        if not 0 < accuracy < 1:
            raise ConfigError(f"{asked}: expected a share of right rows between 0 and 1, such as 0.9.")
        known = next(
            (one.get("certain") for split, one in self.table.get("reports", {}).items() if split not in tested), None
        )
        if not known:
            raise ConfigError(
                f"{asked}: this model keeps no probabilities of held-out rows. Only classifiers of own tables do, of "
                "one class a text, that began with no fine-tuned model. Leave it out, or fine-tune again."
            )
        found = next((float(probability) for probability, share in known if share >= accuracy), math.inf)
        if found == math.inf:
            probability, share = known[-1]
            tell(
                f"{asked}: all rows are unsure: no probability is high enough, from {probability:.2f} on "
                f"{100 * share:.0f} % of the held-out rows were right. Ask for at most "
                f"{math.floor(100 * share) / 100:g}, or train on more rows."
            )
        return found

    def with_threshold(self, value: float) -> "Finetuned":
        """A copy that answers questions of SQuAD 2.0 where their "no answer" score is not above `value`.

        Raises:
            ConfigError: it always answers, as it learned from SQuAD 1.1; or it learned something else.
        """
        return replace(self, task=self.task.with_threshold(value))


def export_finetuned(
    run: Path, *, out: Path, data: TaskData, scores: Scores | None = None, model: str | None = None, says: str = ""
) -> Path:
    """Export a finished run that kept its weights; an earlier export in `out` is replaced.

    Args:
        run: folder of finetuning/run.py, or of a cell with one in `run`.
        out: a new or empty folder, or an earlier export.
        data: what it learned from: notes and tested splits for the card, columns and pairs for predictions, the class
            of a task outside this package.
        scores: those of all seeds, for the card; none: of this run alone.
        model: where its encoder is now; None: where it was.
        says: the experiment's conclusion, for the card.

    Raises:
        MissingInputError: the run kept no weights, or its encoder is gone. ConfigError: `out` holds something else.
        CheckpointError: the encoder has changed since, or the files do not read back bit for bit.
        StorageError: the disk is full or read-only; nothing is left behind.
    """
    own = [type(data.task)]
    config, task, result, weights = _finished(run, own=own)
    source, seed = load_source(model or config["model"]), config["seed"]
    if source.sha256 != config["model_sha256"]:
        raise CheckpointError(f"{source.name}: {run} began with another encoder. Restore it, or choose another --out.")
    weights = _cooled(weights, task.head(source.model), result)
    length = source.text(int(config["recipe"]["max_length"])).length
    alone = {split: {name: {seed: score} for name, score in one.items()} for split, one in result.by_split.items()}
    theirs = task.as_transformers(source.model)
    shape = export.shape_table(source.model, pad_id=source.specials.pad)
    inner = "" if theirs.architecture else _ENCODER
    alone_as = "ModernBertModel" if source.model.block == "modern" else "ElectraModel"
    settings = {"architectures": [theirs.architecture or alone_as], **shape, **theirs.settings}
    refusal = {"model_type": settings["model_type"], "id2label": {_REFUSAL: "0"}}
    tensors = _tensors(theirs, weights, source.model)
    files = {name: export.safetensors_bytes(each) for name, each in tensors.items()}
    files |= _digests(source.folder, data)
    table = {
        "format": FORMAT,
        "task": task.described(),
        "pair": data.pairs,
        "columns": data.columns and asdict(data.columns),
        "max_length": length,
        "source": {"model": source.name, "sha256": source.sha256, "length": source.length},
        **{name: config[name] for name in ("data_sha256", "recipe", "seed")},
        "scores": scores or alone,
        "conclusion": says,
        "tested": [*data.tested],
        "reports": {split: asdict(one) for split, one in result.reports.items() if SEEN not in says},
        "notes": [*data.notes, *[OPTIMISTIC] * (KEPT in result.facts)],
        "electra_trainer": __version__,
        **extensions.recorded(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    tables = {"config.json": refusal, f"{inner}config.json": settings}
    files |= {name: (json.dumps(table, indent=2) + "\n").encode() for name, table in tables.items()}
    files[TASK] = (json.dumps(table, indent=1) + "\n").encode()
    files["README.md"] = finetuned_card(task, head=theirs, table=table).encode()
    words = as_modern.tokenizer_files(source.tokenizer, source.model, max_length=length)
    files |= {inner + name: content for name, content in words.items()}

    def check(folder: Path) -> None:
        export.check_equal(folder, load_finetuned(folder, own=own).network.state_dict(), weights)

    export.publish(out, files.items(), check, replaces=TASK)
    return out


def _digests(encoder: Path | None, data: TaskData) -> dict[str, bytes]:
    """The file of what `learned_from` gives, unless it is not known of the encoder's folder, or of all examples."""
    earlier, learned = learned_from(encoder), {*map(digest_of, data.train)}
    if earlier is None or "" in learned:
        return {}
    return {LEARNED: "\n".join(sorted(earlier | learned)).encode()}


def _cooled(weights: Mapping[str, Tensor], head: nn.Module, result: Result) -> Mapping[str, Tensor]:
    """The weights with the last layer of the head divided by the temperature, if there is one."""
    if (temperature := next((one.temperature for one in result.reports.values()), None)) is None:
        return weights
    (*_, last) = (name for name, module in head.named_modules() if isinstance(module, nn.Linear))
    mine = {f"head.{last}.{name}".replace("..", ".") for name in ("weight", "bias")}
    return {name: tensor / temperature if name in mine else tensor for name, tensor in weights.items()}


def _finished(run: Path, *, own: Collection[type[Task]]) -> tuple[dict[str, Any], Task, Result, Mapping[str, Tensor]]:
    """Settings, task, result and weights of a finished run; errors add that it can be repeated."""
    place = run / RUN if (run / RUN).is_dir() else run
    path, needed = place / "config.json", {"model": str, "model_sha256": str, "data_sha256": str, "seed": int}
    try:
        config, result = records.read_object(path, remedy=""), read_result(run)
        records.require_fields({**needed, "task": dict, "recipe": dict}, config, str(path), remedy="")
        records.read(Recipe, config["recipe"], where=f"{path}: recipe", error=DataError)
        task = task_from(config["task"], where=str(path), own=own).settled(result.by_split)
        weights = checkpoint.of_step(place / "weights", origin=run_folder.RunFolder(place).origin).weights
    except (CheckpointError, ConfigError, DataError, MissingInputError) as error:
        again = f"If it cannot be restored, delete {run} and repeat the command: that run is done again."
        raise type(error)(f"{error} {again}") from None
    return config, task, result, weights


def _tensors(theirs: TransformersHead, weights: Mapping[str, Tensor], model: Model) -> dict[str, Mapping[str, Tensor]]:
    """The tensors of each file."""
    head = {name.removeprefix("head."): tensor for name, tensor in weights.items() if name.startswith("head.")}
    encoder = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    if model.block == "modern":
        encoder = as_modern.modern_tensors(encoder)
    if theirs.architecture is not None:
        return {_WHOLE: encoder | theirs.write(head), _HEAD: head}
    bare = {name.removeprefix("electra.").removeprefix("model."): tensor for name, tensor in encoder.items()}
    return {_ENCODER + _WHOLE: bare, _HEAD: head}


def finetuned_folder(given: str | Path) -> Path | None:
    """The folder of a fine-tuned model: this one, or `model` in it; None: neither is."""
    return next((place for place in (Path(given), Path(given) / "model") if (place / TASK).is_file()), None)


def learned_from(encoder: Path | None) -> Set[str] | None:
    """Digests of the texts that a fine-tuned model, and those that it began with, learned from; of another encoder
    none. None: its folder does not say, because it is of an earlier version or of another kind of task, or the file
    was deleted.

    Args:
        encoder: folder that it is read from, `Source.folder`.
    """
    if encoder is None or (folder := records.finetuned_from(encoder)) is None:
        return frozenset()
    path = folder / LEARNED
    content = read_file(path, limit=sys.maxsize, error=CheckpointError) if path.is_file() else None
    return None if content is None else frozenset(content.decode("ascii", "replace").split())


def count_learned(encoder: Path | None, examples: Sequence[Any], *, unknown: bool = True) -> int:
    """Number of examples that an encoder has learned from.

    Args:
        encoder: see `learned_from`.
        unknown: count all of them where its folder does not say.
    """
    if (learned := learned_from(encoder)) is None:
        return len(examples) * unknown
    return sum(digest_of(one) in learned for one in examples) if learned else 0


@checked
def load_finetuned(folder: str | Path, *, own: Collection[type[Task]] = ()) -> Finetuned:
    """Read an exported fine-tuned model back, its head as it was trained.

    Args:
        folder: OUT/model of an experiment, or the experiment's folder.
        own: the class of its task, where that is one of yours (docs/extending.md).

    Raises:
        MissingInputError: the folder does not exist, or is not a fine-tuned model. CheckpointError: it does not verify.
        DataError: electra_task.json is not one of this version.
    """
    folder = finetuned_folder(folder) or Path(folder)
    path = folder / TASK
    if not path.is_file():
        what = f"holds no {TASK}" if folder.exists() else "no such folder"
        raise MissingInputError(
            f"{folder}: {what}. Expected a fine-tuned model, such as DIR/model of `electra finetune --out DIR`."
        )
    table = read_table(path)
    _require_sound(folder, table)
    task = task_from(table["task"], where=str(path), own=own, began=table)
    recipe = records.read(Recipe, table["recipe"], where=f"{path}: recipe", error=CheckpointError, remedy=_AGAIN)
    place = folder if _WHOLE in table["files"] else folder / _ENCODER
    encoder, model = read_back.read_encoder(place)
    head = task.head(model)
    try:
        head.load_state_dict(read_back.read_tensors(folder / _HEAD))
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"{folder}: its head is not that of its task ({why}).") from None
    length = table["max_length"]
    if not 3 < length <= model.max_position_embeddings:
        raise CheckpointError(f"{path}: max_length {length} cannot be. {_AGAIN}")
    words, columns = tokenizer.load_tokenizer(place), None
    tokenizer.require_rows(words, model.vocab_size, where=folder)
    if (named := table.get("columns")) is not None:
        columns = records.read(task.columns_type, named, where=f"{path}: columns", error=CheckpointError, remedy=_AGAIN)
    return Finetuned(
        network=FineTunedNetwork(encoder, head, dropout=0.0).eval(),
        task=task,
        columns=columns,
        pair=table["pair"],
        table=table,
        text=tokenizer.Text.of(words, length=length),
        learned=learned_from(folder),
        precision=recipe.precision,
    )


def _require_sound(folder: Path, table: Mapping[str, Any]) -> None:
    """CheckpointError unless electra_task.json is of this version, and the files of tensors are those that it names."""
    files: Any = table.get("files")
    if table.get("format") != FORMAT or not isinstance(files, dict) or {*files} - {LEARNED} not in _FILES:
        raise CheckpointError(
            f"{folder / TASK}: format {short(table.get('format'))} with the files {short(files)}, this version reads "
            f"{FORMAT}. {_AGAIN}"
        )
    records.require_fields(_FIELDS, table, folder / TASK, remedy=_AGAIN)
    for name, digest in files.items():
        if name == LEARNED and not (folder / name).exists():  # not everybody wants to publish it
            continue
        content = read_file(folder / name, limit=sys.maxsize, error=CheckpointError)
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointError(f"{folder / name}: its bytes are not those that were exported. {_AGAIN}")


def task_from(
    description: object,
    *,
    where: str = "task",
    own: Collection[type[Task]] = (),
    began: Mapping[str, Any] | None = None,
) -> Task:
    """The task that `Task.described` described.

    Args:
        own: classes outside this package that it may be: a file names a task, and never chooses code.
        began: a table that names the extensions it was made with.

    Raises:
        DataError: an unknown kind or field, or a value that it cannot have; `where` says in which file.
    """
    table = dict(description) if isinstance(description, Mapping) else {}
    known = {made.__name__: made for made in (*own, *(source.kind for source in KINDS.values()))}
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in known:
        raise DataError(
            f"{where}: unknown kind of task {short(kind)}. Known: {', '.join(known)}. In Python a class of your own is "
            f"given with own=[...].{extensions.HINT} {extensions.differing(began or {})[0]}".rstrip()
        )
    try:
        return records.read(known[kind], table, where=f"{where}: {kind}", error=DataError, remedy=_AGAIN)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: not a {kind}: {error}") from None


def finetuned_card(task: Task, *, head: TransformersHead, table: Mapping[str, Any]) -> str:
    """Markdown with the Hub's header.

    Args:
        task: the task.
        head: transformers' head for it, if there is one.
        table: electra_task.json.
    """
    source, scores = str(table["source"]["model"]), table["scores"]
    on_hub, words = is_on_hub(source), task.card(pair=table["pair"])
    recipe = {name: value for name in _RECIPE if (value := table["recipe"].get(name)) is not None}
    header = card_head(
        CardFields(),
        library_name="transformers" if head.architecture else TAG,
        pipeline_tag=words.pipeline if head.architecture else None,
        base_model=source if on_hub else None,
    )
    return header + render(
        "finetuned_card.md",
        task=task,
        words=words,
        head=head,
        encoder=source if on_hub else PurePath(source).name,
        table=table,
        scores=list(_score_rows(scores, metric=task.metric, seed=table["seed"])),
        reports={split: ClassReport(**one) for split, one in table["reports"].items()},
        seeds=len({seed for metrics in scores.values() for by_seed in metrics.values() for seed in by_seed}),
        recipe={name: f"{value:g}" if isinstance(value, int | float) else value for name, value in recipe.items()},
        version=__version__,
    )


def _score_rows(scores: Scores, *, metric: str, seed: int) -> Iterator[dict[str, Any]]:
    """A row per split and metric, the main metric first; `own` is the score of `seed`."""
    for split, metrics in scores.items():
        for name in sorted(metrics, key=lambda name: name != metric):
            found = spread(metrics[name])
            numbers = ["-" if value is None else printed(value, name) for value in (found.median, found.mean, found.sd)]
            yield {
                "split": split,
                "metric": name,
                "own": printed(metrics[name][seed], name) if seed in metrics[name] else "-",
                "numbers": [found.n, *numbers],
            }
