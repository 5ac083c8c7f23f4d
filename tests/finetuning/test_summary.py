"""The summary of results on disk: statistics by plain loops, comparisons with floors in words, pages, what is missing."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from electra_trainer.errors import DataError
from electra_trainer.experiments.folder import Cell, Declared, write
from electra_trainer.experiments.results import Result, read_result, write_result
from electra_trainer.experiments.statistics import spread
from electra_trainer.finetuning.task_summary import (
    Summary,
    best_run,
    markdown,
    print_summary,
    remarks,
    summarize,
    timing,
    write_summary,
)
from electra_trainer.runs.run_folder import RunFolder

SEEDS = (1, 2, 3, 4, 5, 6)


TITLES = {
    "Classification": {"majority": "the majority class", "bag_of_words": "the bag of words"},
    "Regression": {"majority": "the mean value", "bag_of_words": "the bag of words"},
    "QuestionAnswering": {
        "majority": "never answering",
        "word_overlap": "the sentence with most words of the question",
    },
}
"""Of the baselines, by kind: `Baseline.title`."""


def declare(out: Path, *, tasks: dict[str, str], seeds: tuple[int, ...] = SEEDS, floors: bool = True) -> Declared:
    """Tasks: name -> kind."""
    declared = Declared(
        of="finetune", facts={"model_sha256": "0" * 64, "recipe": "paper", "device": "cpu", "threads": 1}, seeds=seeds,
        parts={"floors": {}} if floors else {}, about={"model": "runs/tiny"},
        rows={
            name: {
                "task": {"kind": kind, "name": name}, "data_sha256": "1" * 64, "recipe": {"epochs": 3.0, "precision": "fp32"},
                "metric": "matthews", "dev": ["dev", "other"], "train_rows": 100, "notes": [f"{name} is made up"], "changed": {},
                "baselines": TITLES[kind],
            }
            for name, kind in tasks.items()
        },
    )  # fmt: skip
    out.mkdir(exist_ok=True)
    write(out, declared)
    return declared


def put(out: Path, task: str, seed: int, score: float | None, *, kind: Any = "encoder", **more: Any) -> None:
    cell = Cell(root=out, key=task, kind=kind, seed=seed)
    cell.folder.mkdir(parents=True)
    scores = {} if score is None else {split: {"matthews": score, "accuracy": score / 2} for split in ("dev", "other")}
    failed = "the gradient was not a finite number" if score is None else None
    write_result(
        RunFolder(cell.folder),
        Result(task=task, seed=seed, steps=9, scores=scores, failed=failed, rows=100, seconds=2.0, **more),
    )


def put_floors(out: Path, task: str, *, majority: float, words: float | None, notes: tuple[str, ...] = ()) -> None:
    scores = {"dev": {"matthews": majority}}
    found = {"majority": scores, "bag_of_words": {"dev": {"matthews": words}} if words is not None else None}
    path = Cell(root=out, key=task, kind="floors").result
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**found, "notes": notes}))


def experiment(out: Path, scores: list[float], *, fresh: list[float], majority: float, words: float) -> Summary:
    declare(out, tasks={"cola": "Classification"})
    for seed, score, low in zip(SEEDS, scores, fresh, strict=True):
        put(out, "cola", seed, score)
        put(out, "cola", seed, low, kind="untrained")
    put_floors(out, "cola", majority=majority, words=words)
    return summarize(out)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11])
def test_statistics_are_those_of_plain_loops(count: int) -> None:
    values = [float(value) for value in np.random.default_rng(count).normal(size=count)]
    found = spread(dict(enumerate(values)))
    ordered, mean = sorted(values), sum(values) / count
    middle = ordered[count // 2] if count % 2 else (ordered[count // 2 - 1] + ordered[count // 2]) / 2
    assert found.n == count and found.best == ordered[-1] and found.worst == ordered[0]
    assert found.median == pytest.approx(middle, rel=1e-12) and found.mean == pytest.approx(mean, rel=1e-12)
    if count == 1:
        assert found.sd is None
    else:
        squares = sum((value - mean) ** 2 for value in values)
        assert found.sd == pytest.approx(math.sqrt(squares / (count - 1)), rel=1e-12)
    assert list(found.by_seed.values()) == values


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    fresh = [float(value) for value in random.uniform(0.1, 0.5, len(SEEDS))]
    scores = [low + 0.05 + 0.01 * number for number, low in enumerate(fresh)]
    found = experiment(tmp_path, scores, fresh=fresh, majority=0.0, words=0.05).task("cola")
    untrained, majority, words = found.comparisons
    assert [one.floor for one in found.comparisons] == ["untrained", "majority", "bag_of_words"]
    differences = [0.05 + 0.01 * number for number in range(len(SEEDS))]
    mean = sum(differences) / len(differences)
    sd = math.sqrt(sum((one - mean) ** 2 for one in differences) / (len(differences) - 1))
    half = 2.5705818366147395 * sd / math.sqrt(len(differences))  # Student's t, 5 degrees of freedom
    assert untrained.paired.n == len(SEEDS) and untrained.paired.mean == pytest.approx(mean)
    assert untrained.paired.t_interval == pytest.approx((mean - half, mean + half))
    assert untrained.paired.interval is not None and untrained.verdict == "beats"
    assert untrained.difference == pytest.approx(sorted_median(scores) - sorted_median(fresh))
    assert majority.paired.mean == pytest.approx(sum(scores) / len(scores))
    assert words.paired.mean == pytest.approx(sum(scores) / len(scores) - 0.05)
    assert words.floor_median == 0.05 and words.median == pytest.approx(sorted_median(scores))


def test_p_values_are_corrected_over_all_baselines_and_tasks(tmp_path: Path) -> None:
    declare(tmp_path, tasks={"cola": "Classification", "rte": "Classification"})
    for task, step in (("cola", 0.01), ("rte", 0.05)):
        for seed in SEEDS:
            put(tmp_path, task, seed, 0.2 + step * (seed % 3))
            put(tmp_path, task, seed, 0.15, kind="untrained")
    found = {(one.task, two.floor): two for one in summarize(tmp_path).tasks for two in one.comparisons}
    p = {key: one.paired.p for key, one in found.items()}
    first, second = sorted(p, key=lambda key: p[key] or 0.0)
    # six were asked for: of each task fresh weights, which are there, and two baselines, which are not yet
    assert found[first].p_holm == pytest.approx(6 * (p[first] or 0.0))
    assert found[second].p_holm == pytest.approx(max(6 * (p[first] or 0.0), 5 * (p[second] or 0.0)))
    assert "## Against the baselines" in markdown(summarize(tmp_path))
    for task in ("cola", "rte"):
        put_floors(tmp_path, task, majority=0.0, words=None)
    tasks = summarize(tmp_path).tasks
    measured = {(one.task, two.floor): two for one in tasks for two in one.comparisons}
    least = min(two.paired.p or 1.0 for two in measured.values())
    # a bag of words that gave no score was declared, counts, and is named
    assert len(measured) == 4 and min(two.p_holm or 1.0 for two in measured.values()) == pytest.approx(6 * least)
    assert "cola: missing: bag of words." in markdown(summarize(tmp_path))


def sorted_median(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[2] + ordered[3]) / 2


@pytest.mark.parametrize(
    ("scores", "verdict", "sentence"),
    [
        ([0.02, 0.021, 0.021, 0.021, 0.03, 0.01], "does not beat", "cola: does not beat the bag of words (median 0.021 against 0.107)."),
        ([0.107] * 6, "does not beat", "cola: does not beat the bag of words (median 0.107 against 0.107)."),
        ([0.2] * 6, "beats", "cola: beats the bag of words (median 0.200 against 0.107)."),
        (
            [0.2, 0.21, 0.22, 0.2, 0.21, 0.22], "beats",
            "cola: beats the bag of words (median 0.210 against 0.107, mean difference +0.103, 95 % from +0.094 to +0.112 over 6 seeds).",
        ),
        (
            [0.0, 0.11, 0.12, 0.11, 0.13, 0.0], "perhaps",
            "cola: is above the bag of words, not beyond doubt (median 0.110 against 0.107, mean difference -0.029, "
            "95 % from -0.093 to +0.035 over 6 seeds).",
        ),
    ],
    ids=["below", "equal", "above, all equal", "above", "perhaps"],
)  # fmt: skip
def test_what_a_comparison_says(tmp_path: Path, scores: list[float], verdict: str, sentence: str) -> None:
    found = experiment(tmp_path, scores, fresh=[0.0] * 6, majority=0.0, words=0.107).task("cola")
    words = found.comparisons[-1]
    assert (words.verdict, words.sentence) == (verdict, sentence)
    assert f"- {sentence}" in markdown(summarize(tmp_path)).splitlines()


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    declare(tmp_path, tasks={"sts": "Regression"}, seeds=(3,))
    put(tmp_path, "sts", 3, 0.6)
    put_floors(tmp_path, "sts", majority=0.0, words=None)
    found = summarize(tmp_path).task("sts")
    assert found.main is not None and found.main.sd is None
    assert [one.sentence for one in found.comparisons] == [
        "sts: beats the mean value, of a single seed (median 0.600 against 0.000)."
    ]
    assert found.best_seed == found.median_seed == 3
    assert found.unmeasured == ("untrained, seed 3", "bag of words")


def test_best_and_median_runs(tmp_path: Path) -> None:
    scores = [0.3, 0.5, 0.1, 0.5, 0.2, 0.4]
    found = experiment(tmp_path, scores, fresh=[0.0] * 6, majority=0.0, words=0.1).task("cola")
    assert found.best_seed == 2 and best_run(tmp_path, "cola") == tmp_path / "cells" / "cola" / "seed-2"
    assert found.median_seed == 1  # 0.3: the lower of the two in the middle
    assert found.runs[4] == "cells/cola/seed-4"


def test_what_failed_what_is_missing_and_what_is_doubtful(tmp_path: Path) -> None:
    declare(tmp_path, tasks={"cola": "Classification", "rte": "Classification"})
    put(tmp_path, "cola", 1, 0.1, doubts=("dev: collapsed",))
    put(tmp_path, "cola", 2, None)
    put(tmp_path, "cola", 4, 0.3, doubts=("dev: collapsed", "other: collapsed"))
    put(tmp_path, "cola", 1, None, kind="untrained")
    put(tmp_path, "cola", 4, 0.2, kind="untrained", doubts=("dev: collapsed",))
    summary = summarize(tmp_path)
    cola, rte = summary.tasks
    assert cola.main is not None and cola.main.by_seed == {1: 0.1, 4: 0.3} and cola.main.n == 2
    assert set(cola.failed) == {2} and cola.missing == (3, 5, 6) and set(cola.runs) == {1, 4}
    assert cola.comparisons[0].paired.n == 1  # only seed 4 has both
    assert rte.main is None and rte.missing == SEEDS and rte.best_seed is None and rte.comparisons == ()
    said = remarks(summary)
    assert "cola: DOUBTFUL: seeds 1, 4: dev: collapsed" in said
    assert "cola: DOUBTFUL: seed 4: other: collapsed" in said
    assert "cola: DOUBTFUL: untrained, seed 1: the gradient was not a finite number" in said
    assert "cola: FAILED: seed 2: the gradient was not a finite number" in said
    assert any(line.startswith("cola: missing: seed 3; seed 5; seed 6; untrained, seed 2;") for line in said)
    page = markdown(summary)
    assert "| seed 1 (median) | 10.0 |" in page and "| seed 4 (best) | 30.0 |" in page
    assert "| seed 2 | – | – | – | – | failed |" in page and "| seed 3 | – | – | – | – | missing |" in page
    assert "[cells/cola/seed-4](cells/cola/seed-4)" in page


def test_pages_print_hundredths_and_the_notes(tmp_path: Path) -> None:
    summary = experiment(tmp_path, [0.2] * 5 + [0.3], fresh=[0.1] * 6, majority=0.0, words=0.15)
    put_floors(tmp_path, "cola", majority=0.0, words=0.15, notes=("half of the words", "Co-LA: small"))
    write_summary(tmp_path)
    page = (tmp_path / "summary.md").read_text()
    assert "Recipe `paper`; fp32 on cpu; seeds 1, 2, 3, 4, 5, 6;" in page
    assert "| cola | matthews | 6 | 20.0 | 21.7 | 4.1 | 30.0 | 20.0 | 10.0 | 0.0 | 15.0 |" in page
    assert "- cola is made up" in page and "- cola: half of the words" in page and "- Co-LA: small" in page
    plain = json.loads((tmp_path / "summary.json").read_text())
    assert plain["version"] == 1 and plain["tasks"][0]["scores"]["dev"]["matthews"]["by_seed"]["6"] == 0.3
    assert plain["tasks"][0]["comparisons"][0]["paired"]["n"] == 6
    console = Console(width=80, file=io.StringIO(), record=True)
    print_summary(summary, console=console)
    shown = console.export_text()
    assert "cola  matthews  6    20.0  4.1  30.0" in shown and "beats the bag of words" in shown


def test_times_are_no_part_of_it(tmp_path: Path) -> None:
    declare(tmp_path, tasks={"cola": "Classification"}, floors=False)
    put(tmp_path, "cola", 1, 0.5)
    before = json.dumps(summarize(tmp_path).plain())
    run = tmp_path / "cells" / "cola" / "seed-1"
    (run / "timing.json").write_text('{"seconds": 40.0}')
    assert json.dumps(summarize(tmp_path).plain()) == before
    assert read_result(run).seconds == 40.0
    assert timing(tmp_path) == {
        "version": 1,
        "seconds": 40.0,
        "runs": {"cells/cola/seed-1": {"seconds": 40.0, "rows_per_second": 7.5}},
    }


def test_a_result_of_another_run_is_refused(tmp_path: Path) -> None:
    declare(tmp_path, tasks={"cola": "Classification"})
    put(tmp_path, "cola", 1, 0.5)
    (tmp_path / "cells" / "cola" / "seed-1").rename(tmp_path / "cells" / "cola" / "seed-2")
    with pytest.raises(DataError, match="is not the result of cola, seed 2"):
        summarize(tmp_path)


@pytest.mark.parametrize("lost", ["task", "recipe", "metric", "dev", "train_rows", "notes", "model"])
def test_a_damaged_experiment_is_refused(tmp_path: Path, lost: str) -> None:
    """A sentence that names the field, instead of a traceback where it is used."""
    declare(tmp_path, tasks={"cola": "Classification"})
    path = tmp_path / "experiment.json"
    table = json.loads(path.read_text())
    del (table["about"] if lost == "model" else table["rows"]["cola"])[lost]
    path.write_text(json.dumps(table))
    with pytest.raises(DataError, match=f"field {lost} is missing"):
        summarize(tmp_path)


def test_thresholds_stand_as_they_are_beside_the_scores_at_them(tmp_path: Path) -> None:
    """Questions that may have no answer: both scores and both thresholds in one line; no threshold is called the best."""
    declared = declare(tmp_path, tasks={"squad-2.0": "QuestionAnswering"}, seeds=(1, 2, 3))
    write(tmp_path, replace(declared, rows={"squad-2.0": {**declared.rows["squad-2.0"], "metric": "best_f1"}}))
    for seed, at in ((1, -1.0), (2, -1.5), (3, 0.25)):
        cell = Cell(root=tmp_path, key="squad-2.0", seed=seed)
        cell.folder.mkdir(parents=True)
        scores = {"best_f1": 0.6 + seed / 10, "f1": 0.5, "threshold": -2.75, "best_f1_threshold": at}
        write_result(RunFolder(cell.folder), Result(task="squad-2.0", seed=seed, steps=9, scores={"dev": scores}))
    assert any("word overlap." in line for line in remarks(summarize(tmp_path))), "floors are not measured yet"
    floors = {"majority": {"dev": {"best_f1": 0.5}}, "bag_of_words": None, "word_overlap": {"dev": {"best_f1": 0.8}}}
    Cell(root=tmp_path, key="squad-2.0", kind="floors").result.write_text(json.dumps({**floors, "notes": []}))
    summary = summarize(tmp_path)
    assert summary.task("squad-2.0").best_seed == 3
    silence, overlap = summary.task("squad-2.0").comparisons
    assert (silence.floor, silence.verdict) == ("majority", "beats")
    assert silence.sentence.startswith("squad-2.0: beats never answering (median 0.800 against 0.500")
    assert (overlap.floor, overlap.verdict) == ("word_overlap", "does not beat")
    assert "does not beat the sentence with most words of the question (median 0.800 against 0.800)" in overlap.sentence
    assert "| SD | best | worst | majority | word overlap |" in markdown(summary)
    assert (
        "squad-2.0: best_f1 80.0 at a threshold of -1.00, the best on dev; f1 50.0 at the given one, -2.75."
        in remarks(summary)
    )
    page = markdown(summary)
    assert "| squad-2.0 | dev | best_f1_threshold | 3 | -1.00 | -0.75 | 0.90 | – | – |" in page
    assert "| seed 2 (median) | 80.0 | 50.0 | -2.75 | -1.50 |" in page
