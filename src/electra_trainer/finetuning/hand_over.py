"""After an experiment: the best run as a folder to use, with the scores of all its seeds, and what it predicted."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.errors import storage_error
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.tables import read_table_file
from electra_trainer.finetuning import card
from electra_trainer.finetuning.card import Facts
from electra_trainer.finetuning.examples import Prediction, predicted_csv, tagged_text
from electra_trainer.finetuning.model_folder import export_finetuned
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.finetuning.task_summary import best_run
from electra_trainer.finetuning.texts.own_task import OwnTask
from electra_trainer.settings.records import read_table


@dataclass(frozen=True, kw_only=True)
class HandedOn:
    """What a person takes away from an experiment."""

    model: Path
    """Folder that transformers loads."""
    predictions: Path | None
    """Of the file that was to be predicted."""
    confusion: Counter[tuple[str, str]]
    """(truth, said) -> how often, of the best run on the main development split."""


def hand_on_best(source: TaskSource, data: TaskData, *, model: str, out: Path) -> HandedOn:
    """Write OUT/model from the best run of a task, and OUT/predictions.csv (of tagging predictions.conll) where a file was to be predicted.

    Args:
        source, data: the task and what it loaded.
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
    split = next(iter(data.dev))
    return HandedOn(
        model=folder,
        predictions=_write_predictions(source, data, run, out=out),
        confusion=card.counts(data.dev[split], read_predictions(run, split)),
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
    """What a run said of a split."""
    path = run / "predictions" / f"{split}.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise storage_error(error, path) from None


def _write_predictions(source: TaskSource, data: TaskData, run: Path, *, out: Path) -> Path | None:
    if not data.test:
        return None
    said: Sequence[Prediction] = read_predictions(run, next(iter(data.test)))
    if isinstance(source, OwnTask) and source.predict is not None:
        path, content = out / "predictions.csv", predicted_csv(read_table_file(Path(source.predict)), said)
    elif said and "tags" in said[0]:
        path, content = out / "predictions.conll", tagged_text(said)
    else:
        return None
    replace_durably(path, content.encode())
    return path
