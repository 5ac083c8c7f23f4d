"""Tables from encoders that were fine-tuned, as `electra glue`, `squad` and `finetune` leave them; test_rows.py makes some by command."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.paper.experiments import full_flops

from electra_trainer.experiments.cell import Declared, DeclaredRow, Result, write_declared, write_result
from electra_trainer.experiments.summary import summarize
from electra_trainer.finetuning.glue_table import COLUMNS
from electra_trainer.paper.paper_tables import build_table, entries
from electra_trainer.paper.published import TABLES
from electra_trainer.presets.arms import arm
from electra_trainer.presets.models import preset
from electra_trainer.settings.records import to_dict

RECORDS = Path(__file__).parents[2] / "records"
METRICS = {"cola": "matthews", "stsb": "spearman", "squad-1.1": "f1", "squad-2.0": "best_f1"}


def test_the_documented_record_fills_its_tables() -> None:
    """Tables 1, 2, 3 and 7: a run and a checkpoint of it, with scores, FLOPs and the hardware, though neither is there."""
    folders = sorted(path.parent for path in (RECORDS / "2026-11-24-rows-from-commands").glob("*/experiment.json"))
    experiments = [summarize(path) for path in folders]
    shown = [(1, "glue/average", 2), (2, "glue/rte", 2), (3, "squad1/f1", 1), (7, "glue/mnli", 2)]
    for number, column, scores in shown:
        rows = [row for row in build_table(number, experiments).rows if row.source.startswith("ours (tiny")]
        assert len(rows) == 3 and sum(column in row.values for row in rows) == scores, number
        assert len({row.values["train_flops"].number for row in rows}) == 2, number
    hardware = [row.values["time_and_hardware"].words for row in build_table(1, experiments).rows if row.seeds]
    assert all("(threads: 1)" in str(words) for words in hardware)
    ran = json.loads((folders[0] / "cells/rte/seed-1/result.json").read_text())["environment"]
    assert len(ran["git"]) >= 40


@pytest.mark.parametrize("path", sorted(RECORDS.rglob("experiment.json")), ids=lambda path: path.parent.name)
def test_experiments_of_the_records_are_read(path: Path) -> None:
    found = summarize(path.parent)
    assert [build_table(number, [found]).number for number in TABLES] == [*TABLES]
    assert None not in [entry.config for entry in entries([found])]


def tuned(out: Path, scores: dict[str, list[float]], **about: Any) -> Path:
    """A fine-tuning experiment with a score for each seed, of SQuAD with an exact match that is a tenth lower."""
    seeds = tuple(range(1, 1 + len(next(iter(scores.values())))))
    rows = {task: DeclaredRow(settings={}, metrics=(f"dev/{METRICS.get(task, 'accuracy')}",)) for task in scores}
    out.mkdir(exist_ok=True)
    write_declared(out, Declared(verb="finetune", facts={"recipe": "paper"}, rows=rows, seeds=seeds, about=about))
    for task, values in scores.items():
        for seed, value in zip(seeds, values, strict=True):
            (folder := out / f"cells/{task}/seed-{seed}").mkdir(parents=True)
            found = {rows[task].metrics[0]: value, "dev/exact_match": value - 0.1, "dev/best_exact_match": value - 0.1}
            write_result(folder, Result(key=task, seed=seed, scores=found))
    return out


def encoder(name: str, *, share: float = 1.0) -> dict[str, Any]:
    config = arm("electra", preset(name))
    steps = round(share * config.schedule.steps)
    return {"config": to_dict(config), "flops_paper": share * full_flops(name), "steps": steps}


def test_medians_of_the_tasks_and_their_mean(tmp_path: Path) -> None:
    """In the row of the encoder's size, as dev scores where the paper has the test set's."""
    scores = {task: [0.2 + at / 100, 0.6 + at / 90, 0.3 + at / 80] for at, task in enumerate(COLUMNS)}
    medians = {COLUMNS[task]: 100 * statistics.median(values) for task, values in scores.items()}
    found = summarize(tuned(tmp_path / "glue", scores, encoder=encoder("small")))
    for number, columns in ((1, ["glue/average"]), (2, [*medians, "glue/average"]), (7, [*medians, "glue/average"])):
        rows = build_table(number, [found]).rows
        (at,) = [index for index, row in enumerate(rows) if row.source == "ours (small)"]
        expected = medians | {"glue/average": statistics.fmean(medians.values())}
        assert {key: rows[at].values[key].number for key in columns} == pytest.approx(
            {key: expected[key] for key in columns}
        )
        assert len(rows[at].seeds) == 3 and rows[at].split == {1: "", 2: "dev", 7: "dev"}[number]
        assert number == 2 or (rows[at - 1].source, rows[at - 1].model) == ("paper", rows[at].model)


def test_squad_has_its_columns(tmp_path: Path) -> None:
    one = tuned(tmp_path / "one", {"squad-1.1": [0.5, 0.9, 0.6]}, encoder=encoder("small", share=0.5))
    two = tuned(tmp_path / "two", {"squad-2.0": [0.5, 0.9, 0.6]}, encoder=encoder("base"))
    half, base = (row for row in build_table(3, [summarize(two), summarize(one)]).rows[::-1] if row.seeds)
    assert base.model == "ELECTRA-Base" and "step" in half.source
    for row, version in ((half, 1), (base, 2)):
        found = {key: value.number for key, value in row.values.items() if key.startswith("squad")}
        assert found == pytest.approx({f"squad{version}/f1": 60.0, f"squad{version}/em": 50.0})


def test_an_encoder_without_a_run(tmp_path: Path) -> None:
    """Its pre-training is not known: no FLOPs; a task of one's own is a column by its name."""
    found = summarize(tuned(tmp_path, {"cola": [0.5], "mine": [0.5]}, model="runs/old"))
    (entry,) = entries([found])
    assert (entry.preset, entry.arm, entry.config) == ("old", "fine-tuned", None)
    assert [one.scores for one in entry.results] == [{"glue/cola": 0.5, "mine/accuracy": 0.5}]
    (row,) = [row for row in build_table(2, [found]).rows if row.source == "ours (old)"]
    assert row.values["glue/cola"].number == 50.0 and "train_flops" not in row.values


def test_an_encoder_of_another_version(tmp_path: Path) -> None:
    """Its scores are shown; what follows from its configuration is left out, as it is of an arm."""
    made = {"config": {"knob": 1}, "flops_paper": 1e12}
    (entry,) = entries([summarize(tuned(tmp_path, {"cola": [0.5]}, model="runs/new", encoder=made))])
    assert (entry.config, entry.preset, entry.results[0].scores) == (None, "new", {"glue/cola": 0.5})
