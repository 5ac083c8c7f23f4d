"""A fine-tuned run as a folder that `transformers` loads as it is, and that `electra predict` uses.

config.json        transformers' class, labels          electra_task.json  task, columns, recipe, seed, source, scores, SHA-256 of the weights
model.safetensors  encoder and head                     README.md          model card
head.safetensors   our head, where transformers has none like it; then model.safetensors is the encoder alone
tokenizer.json, tokenizer_config.json, vocab.txt

The kinds of tasks by name: what `Task.described` wrote becomes a task again.
"""

import hashlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from electra_trainer.data.tokenizer import Text, as_plain_text, load_tokenizer, specials_of, tokenizer_files
from electra_trainer.errors import CheckpointError, DataError, MissingInputError, did_you_mean
from electra_trainer.files.reading import read_file, short
from electra_trainer.finetuning.card import Facts, Scores, finetuned_card
from electra_trainer.finetuning.examples import Prediction
from electra_trainer.finetuning.squad.squad_task import QuestionAnswering
from electra_trainer.finetuning.tagging.tagging import Tagging
from electra_trainer.finetuning.task import Task
from electra_trainer.finetuning.texts.columns import Columns
from electra_trainer.finetuning.texts.tasks import Classification, Regression
from electra_trainer.finetuning.training_step import FineTuned, predict
from electra_trainer.finetuning.transformers_head import TransformersHead
from electra_trainer.pretrained import export
from electra_trainer.pretrained.source import Source, load_source
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.settings import records
from electra_trainer.settings.records import read_table
from electra_trainer.train.device import choose_device, choose_precision
from electra_trainer.version import __version__

TASK = "electra_task.json"
_TENSOR_FILES = ("model.safetensors", "head.safetensors")
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A fine-tuned encoder, ready to use (loaded on the CPU, in fp32, in evaluation mode)."""

    network: FineTuned
    task: Task
    text: Text
    columns: Columns | None
    """Of the files that it was trained on, where these were tables of its user's."""
    pair: bool
    """Whether it learned from pairs of texts."""
    table: Mapping[str, Any]
    """electra_task.json."""
    precision: str = "auto"
    """Arithmetic of its predictions, the one of its scores."""

    def predict(self, texts: Sequence[Any], *, device: str = "auto") -> list[Prediction]:
        """One prediction per text, in the precision of its training and scores.

        Args:
            texts: strings; pairs of strings if it learned from pairs; lists of words for tagging; (question, context) for questions.
            device: auto, cpu, cuda or cuda:N.

        Raises:
            DataError: one of them is not a text, or not a pair.
        """
        if isinstance(texts, str):
            raise DataError("predict: expected a list of texts, found one text. Put it in brackets.")
        return self.predict_examples(self.task.examples_from(texts, pair=self.pair), device=device)

    def predict_examples(self, examples: Sequence[Any], *, device: str = "auto") -> list[Prediction]:
        """The same for the task's own examples."""
        where = choose_device(device)
        precision = choose_precision(self.precision, where)
        return predict(self.network.to(where), self.task, examples, text=self.text, device=where, precision=precision)

    def with_threshold(self, value: float) -> "Finetuned":
        """The same, answering questions of SQuAD 2.0 where their "no answer" score is not above `value`.

        Raises:
            ConfigError: it always answers, as it learned from SQuAD 1.1; or it learned something else.
        """
        return replace(self, task=self.task.with_threshold(value))


def export_finetuned(
    run: Path,
    *,
    out: Path,
    facts: Facts,
    columns: Columns | None = None,
    model: str | None = None,
    own: Collection[type[Task]] = (),
) -> Path:
    """Export a finished run that kept its weights; an earlier export in `out` is replaced.

    Args:
        run: folder of finetuning/run.py.
        out: a new or empty folder, or an earlier export.
        facts: scores of all seeds and notes, for the card.
        columns: of the files that it learned from.
        model: where its encoder is now; None: where it was.
        own: classes of tasks outside this package that it may have.

    Raises:
        MissingInputError: the run kept no weights, or its encoder is gone. ConfigError: `out` holds something else.
        CheckpointError: the encoder has changed since, or the files do not read back bit for bit.
        StorageError: the disk is full or read-only; nothing is left behind.
    """
    config, result = read_table(run / "config.json"), read_table(run / "result.json")
    source = load_source(model or config["model"])
    if source.sha256 != config["model_sha256"]:
        raise CheckpointError(
            f"{source.name}: is not the encoder that {run} began with. Restore it, or train in another --out."
        )
    saved = checkpoint.newest(run / "weights", origin=run_folder.RunFolder(run).origin)
    task = task_from(config["task"], where=str(run / "config.json"), own=own).settled(result["scores"])
    config["task"] = task.described()
    length = source.text(int(config["recipe"]["max_length"])).length
    facts = facts if facts.scores else replace(facts, scores=_scores(result["scores"], seed=config["seed"]))
    table = _description(config, facts=facts, columns=columns, source=source, length=length)
    theirs = task.as_transformers(hidden_size=source.model.hidden_size)
    shape = export.shape_table(source.model, pad_id=source.specials.pad)
    files = _contents(theirs, saved.weights, config_table=shape, table=table)
    card = finetuned_card(task, head=theirs, table=table, length=length, facts=facts)
    files |= {"README.md": card.encode(), **tokenizer_files(source.tokenizer, max_length=length)}

    def check(folder: Path) -> None:
        export.check_equal(folder, load_finetuned(folder, own=own).network.state_dict(), saved.weights)

    export.publish(out, files.items(), check, replaces=TASK)
    return out


def load_finetuned(folder: str | Path, *, own: Collection[type[Task]] = ()) -> Finetuned:
    """Read an exported fine-tuned model back, its head as it was trained.

    Args:
        folder: OUT/model of an experiment, or the experiment's folder.
        own: the class of its task, where that is one of yours (docs/extending.md).

    Raises:
        MissingInputError: the folder does not exist, or is not a fine-tuned model. CheckpointError: it does not verify.
        DataError: electra_task.json is not one of this version.
    """
    folder = _model_in(Path(folder))
    table = read_table(folder / TASK)
    files = table.get("files")
    if table.get("format") != FORMAT or not isinstance(files, dict) or "model.safetensors" not in files:
        raise CheckpointError(
            f"{folder / TASK}: format {short(table.get('format'))}, this version reads {FORMAT}. Export the run again."
        )
    for name in files:
        if name not in _TENSOR_FILES:
            raise CheckpointError(
                f"{folder / TASK}: file {short(name)} is none of {', '.join(_TENSOR_FILES)}. Export the run again."
            )
    for name, sha256 in files.items():
        _verify(folder / name, sha256)
    task = task_from(table.get("task"), where=str(folder / TASK), own=own)
    encoder, model = export.read_encoder(folder)
    if "head.safetensors" in files:
        tensors = export.read_tensors(folder / "head.safetensors")
    else:
        path = folder / "model.safetensors"
        theirs = task.as_transformers(hidden_size=model.hidden_size)
        tensors = theirs.read(export.read_tensors(path), where=str(path))
    head = task.head(model)
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder}: its head is not that of its task ({str(error).splitlines()[-1].strip()})."
        ) from None
    tokenizer = load_tokenizer(folder)
    recipe, length = table.get("recipe"), table.get("max_length")
    if not isinstance(recipe, dict) or recipe.get("precision", "auto") not in ("auto", "fp32", "bf16"):
        raise CheckpointError(f"{folder / TASK}: recipe {short(recipe)} cannot be. Export the run again.")
    if not isinstance(length, int) or not 3 < length <= model.max_position_embeddings:
        raise CheckpointError(f"{folder / TASK}: max_length {short(length)} cannot be. Export the run again.")
    return Finetuned(
        network=FineTuned(encoder, head, dropout=0.0).eval(),
        task=task,
        text=Text(
            tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer, where=str(folder)), length=length
        ),
        columns=_columns(table.get("columns"), where=f"{folder / TASK}: columns"),
        pair=table.get("pair") is True,
        table=table,
        precision=recipe.get("precision", "auto"),
    )


def _model_in(folder: Path) -> Path:
    """The folder of the model itself, given that or the experiment's."""
    for place in (folder, folder / "model"):
        if (place / TASK).is_file():
            return place
    what = "no such folder" if not folder.exists() else f"holds no {TASK}"
    raise MissingInputError(
        f"{folder}: {what}. Expected a fine-tuned model, such as DIR/model of `electra finetune --out DIR`."
    )


def _scores(scores: Mapping[str, Mapping[str, float]], *, seed: int) -> Scores:
    return {split: {metric: {seed: score} for metric, score in metrics.items()} for split, metrics in scores.items()}


def _description(
    config: Mapping[str, Any], *, facts: Facts, columns: Columns | None, source: Source, length: int
) -> dict[str, Any]:
    """electra_task.json without the hashes of the tensors."""
    return {
        "format": FORMAT,
        "task": config["task"],
        "pair": facts.pair,
        "columns": asdict(columns) if columns is not None else None,
        "max_length": length,
        "source": {"model": source.name, "sha256": source.sha256},
        "data_sha256": config["data_sha256"],
        "recipe": config["recipe"],
        "seed": config["seed"],
        "scores": facts.scores,
        "notes": list(facts.notes),
        "electra_trainer": __version__,
    }


def _contents(
    theirs: TransformersHead, weights: Mapping[str, Tensor], *, config_table: dict[str, Any], table: dict[str, Any]
) -> dict[str, bytes]:
    """The files of tensors, config.json and electra_task.json."""
    head = {name.removeprefix("head."): tensor for name, tensor in weights.items() if name.startswith("head.")}
    encoder = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    if theirs.architecture is not None:
        tensors = {"model.safetensors": {**encoder, **theirs.write(head)}}
        settings: dict[str, Any] = {"architectures": [theirs.architecture], **config_table, **theirs.settings}
    else:
        bare = {name.removeprefix("electra."): tensor for name, tensor in encoder.items()}
        tensors = {"model.safetensors": bare, "head.safetensors": head}
        settings = {"architectures": ["ElectraModel"], **config_table}
    files = {name: export.safetensors_bytes(group) for name, group in tensors.items()}
    table["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["config.json"] = (json.dumps(settings, indent=2) + "\n").encode()
    files[TASK] = (json.dumps(table, indent=1) + "\n").encode()
    return files


def _verify(path: Path, sha256: object) -> None:
    found = hashlib.sha256(read_file(path, limit=sys.maxsize, error=CheckpointError)).hexdigest()
    if found != sha256:
        raise CheckpointError(
            f"{path}: its bytes are not those that were exported. Export the run again, or load it with transformers."
        )


def _columns(table: object, *, where: str) -> Columns | None:
    remedy = "Export the run again."
    return None if table is None else records.read(Columns, table, where=where, error=CheckpointError, remedy=remedy)


KINDS: dict[str, type[Task]] = {
    kind.__name__: kind for kind in (Classification, Regression, Tagging, QuestionAnswering)
}
"""The kinds of tasks that a file may name."""


def task_from(description: object, *, where: str = "task", own: Collection[type[Task]] = ()) -> Task:
    """The task that `Task.described` described.

    Args:
        own: classes outside this package that it may be: a file names a task, and never chooses code.

    Raises:
        DataError: an unknown kind or field, or a value that it cannot have; `where` says in which file.
    """
    table = dict(description) if isinstance(description, Mapping) else {}
    kind = table.pop("kind", None)
    others = {made.__name__: made for made in own if made.__name__ not in KINDS}
    known = [*KINDS, *others]
    if not isinstance(kind, str) or kind not in known:
        raise DataError(
            f"{where}: unknown kind of task {short(kind)}.{did_you_mean(str(kind), known)} Known: {', '.join(known)}. A class of your own is "
            "given with own=[...]."
        )
    made: Any = others.get(kind) or KINDS[kind]
    try:
        return cast(
            Task, records.read(made, table, where=f"{where}: {kind}", error=DataError, remedy="Export the run again.")
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: not a {kind}: {error}") from None
