"""After an experiment: export the best run, with the scores of all its seeds, and write what it predicted."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.errors import storage_error
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.tables import read_table_file
from electra_trainer.finetuning.card import Facts, counts
from electra_trainer.finetuning.examples import Prediction, predicted_csv, tagged_text
from electra_trainer.finetuning.model_folder import export_finetuned
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.finetuning.task_summary import best_run
from electra_trainer.finetuning.texts.own_task import OwnTask
from electra_trainer.settings.records import read_table


@dataclass(frozen=True, kw_only=True)
class BestExport:
    """The results of an experiment for its user."""

    model: Path
    """Folder that transformers loads."""
    predictions: Path | None
    """For the unlabelled file, if there was one."""
    confusion: Counter[tuple[str, str]]
    """(true, predicted) label -> count, of the best run on the main development split."""


def export_best(source: TaskSource, data: TaskData, *, model: str, out: Path) -> BestExport:
    """Write OUT/model from the best run of a task; for an unlabelled file also OUT/predictions.csv (predictions.conll for tagging).

    Args:
        source, data: the task and its data.
        model: the encoder, where it is now.
        out: the experiment's folder.

    Raises:
        ElectraError: as `export_finetuned`.
    """
    run = best_run(out, source.name)
    pair = getattr(data.train[0], "pair", None) is not None
    facts = Facts(scores=scores_of(out, source.name), notes=data.notes, pair=pair)
    columns = source.columns() if isinstance(source, OwnTask) else None
    folder = export_finetuned(run, out=out / "model", facts=facts, columns=columns, model=model, own=[type(data.task)])
    split, examples = next(iter(data.dev.items()))
    return BestExport(
        model=folder,
        predictions=_write_predictions(source, run, split=next(iter(data.test)), out=out) if data.test else None,
        confusion=counts(examples, read_predictions(run, split)),
    )


def scores_of(out: Path, task: str) -> dict[str, dict[str, dict[int, float]]]:
    """Split -> metric -> seed -> score, of the finished runs of a task."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    results = [read_table(path) for path in (out / "cells" / task).glob("seed-*/result.json")]
    for result in sorted(results, key=lambda result: int(result["seed"])):
        for split, metrics in result["scores"].items():
            for metric, score in metrics.items():
                found.setdefault(split, {}).setdefault(metric, {})[int(result["seed"])] = score
    return found


def read_predictions(run: Path, split: str) -> list[Prediction]:
    """A run's predictions for a split."""
    path = run / "predictions" / f"{split}.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise storage_error(error, path) from None


def _write_predictions(source: TaskSource, run: Path, *, split: str, out: Path) -> Path | None:
    predictions = read_predictions(run, split)
    if isinstance(source, OwnTask) and source.predict is not None:
        path, content = out / "predictions.csv", predicted_csv(read_table_file(Path(source.predict)), predictions)
    elif predictions and "tags" in predictions[0]:
        path, content = out / "predictions.conll", tagged_text(predictions)
    else:
        return None
    replace_durably(path, content.encode())
    return path
