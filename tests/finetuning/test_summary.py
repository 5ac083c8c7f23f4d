"""The summary of results on disk: statistics by plain loops, comparisons with baselines in words, pages, what is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.errors import DataError
from electra_trainer.experiments.cell import Cell, Declared, DeclaredRow, Result, write_declared, write_result
from electra_trainer.experiments.summary import Summary, remarks, summarize, write_summary

SEEDS = (1, 2, 3, 4, 5, 6)
MAIN = "dev/matthews"
BASELINES = {"untrained": "the untrained encoder", "majority": "the majority class", "tf_idf": "TF-IDF"}


def declare(out: Path, *tasks: str, seeds: tuple[int, ...] = SEEDS) -> None:
    rows: dict[str, DeclaredRow] = {}
    for task in tasks:
        rows[task] = DeclaredRow(settings={}, metrics=(MAIN,), notes=(f"{task} is made up",))
        for name, title in BASELINES.items():
            rows[f"{task}+{name}"] = DeclaredRow(
                settings={}, metrics=(MAIN,), reference=task, baseline=title, seeded=name == "untrained"
            )
    out.mkdir(exist_ok=True)
    facts = {"model_sha256": "0" * 64, "recipe": "paper", "device": "cpu", "threads": 1}
    write_declared(out, Declared(verb="finetune", facts=facts, seeds=seeds, about={"model": "runs/tiny"}, rows=rows))


def put(out: Path, row: str, seed: int, score: float | None, **more: Any) -> None:
    cell = Cell(root=out, key=row, seed=seed)
    cell.folder.mkdir(parents=True)
    scores = {}
    if score is not None:
        scores = {
            f"{split}/{m}": score / d for split in ("dev", "other") for m, d in (("matthews", 1), ("accuracy", 2))
        }
    failed = "the gradient was not a finite number" if score is None else None
    facts = {"steps": 9, "rows": 100, "seconds": 2.0}
    write_result(cell.folder, Result(key=row, seed=seed, facts=facts, scores=scores, failed=failed, **more))


def experiment(out: Path, scores: list[float], *, fresh: list[float], majority: float, words: float) -> Summary:
    declare(out, "cola")
    for seed, score, low in zip(SEEDS, scores, fresh, strict=True):
        put(out, "cola", seed, score)
        put(out, "cola+untrained", seed, low)
    put(out, "cola+majority", 0, majority)
    put(out, "cola+tf_idf", 0, words)
    return summarize(out)


def declared_contrasts(summary: Summary) -> dict[tuple[str, str], Any]:
    return {(one.reference, one.row.partition("+")[2]): one for one in summary.contrasts}


def test_p_values_are_corrected_over_all_baselines_and_tasks(tmp_path: Path) -> None:
    declare(tmp_path, "cola", "rte")
    for task, step in (("cola", 0.01), ("rte", 0.05)):
        for seed in SEEDS:
            put(tmp_path, task, seed, 0.2 + step * (seed % 3))
            put(tmp_path, f"{task}+untrained", seed, 0.15)
    found = declared_contrasts(summarize(tmp_path))
    p = {key: one.found.p for key, one in found.items()}
    first, second = sorted(p, key=lambda key: p[key] or 0.0)
    # six were asked for: of each task fresh weights, which are there, and two baselines, which are not yet
    assert found[first].p_holm == pytest.approx(6 * (p[first] or 0.0))
    assert found[second].p_holm == pytest.approx(max(6 * (p[first] or 0.0), 5 * (p[second] or 0.0)))
    assert "## Contrasts" in summarize(tmp_path).markdown()
    for task in ("cola", "rte"):
        put(tmp_path, f"{task}+majority", 0, 0.0)
    measured = declared_contrasts(summarize(tmp_path))
    least = min(two.found.p or 1.0 for two in measured.values())
    assert len(measured) == 4 and min(two.p_holm or 1.0 for two in measured.values()) == pytest.approx(6 * least)
    page = summarize(tmp_path).markdown()
    assert "- cola: missing: TF-IDF." in page
    assert "counted by Holm's correction: dev/matthews of cola+tf_idf, dev/matthews of rte+tf_idf." in page


@pytest.mark.parametrize(
    ("scores", "verdict", "sentence"),
    [
        ([0.02, 0.021, 0.021, 0.021, 0.03, 0.01], "does not beat", "cola: does not beat TF-IDF (median 0.021 against 0.107, over the seeds on dev rows)."),
        ([0.107] * 6, "does not beat", "cola: does not beat TF-IDF (median 0.107 against 0.107, over the seeds on dev rows)."),
        ([0.2] * 6, "beats", "cola: beats TF-IDF (median 0.200 against 0.107, over the seeds on dev rows)."),
        ([0.2, 0.21, 0.22, 0.2, 0.21, 0.22], "beats", "cola: beats TF-IDF (median 0.210 against 0.107, over the seeds on dev rows)."),
        ([0.0, 0.11, 0.12, 0.11, 0.13, 0.0], "perhaps", "cola: is above, not beyond doubt, TF-IDF (median 0.110 against 0.107, over the seeds on dev rows)."),
    ],
    ids=["below", "equal", "above, all equal", "above", "perhaps"],
)  # fmt: skip
def test_what_a_comparison_says(tmp_path: Path, scores: list[float], verdict: str, sentence: str) -> None:
    found = experiment(tmp_path, scores, fresh=[0.0] * 6, majority=0.0, words=0.107)
    assert declared_contrasts(found)["cola", "tf_idf"].verdict == verdict
    assert f"- {sentence}" in found.markdown().splitlines()


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    declare(tmp_path, "sts", seeds=(3,))
    put(tmp_path, "sts", 3, 0.6)
    put(tmp_path, "sts+majority", 0, 0.0)
    found = summarize(tmp_path)
    main = found.main("sts")
    assert main is not None and main.sd is None and main.best_seed == 3
    assert "sts: beats the majority class (median 0.600 against 0.000, over the seeds on dev rows)." in [
        *remarks(found)
    ]
    assert (found.missing("sts+untrained"), found.missing("sts+tf_idf")) == ([3], [0])


def test_what_failed_what_is_missing_and_what_is_doubtful(tmp_path: Path) -> None:
    declare(tmp_path, "cola", "rte")
    put(tmp_path, "cola", 1, 0.1, doubts=("dev: collapsed",))
    put(tmp_path, "cola", 2, None)
    put(tmp_path, "cola", 4, 0.3, doubts=("dev: collapsed", "other: collapsed"))
    put(tmp_path, "cola+untrained", 1, None)
    put(tmp_path, "cola+untrained", 4, 0.2, doubts=("dev: collapsed",))
    found = summarize(tmp_path)
    main = found.main("cola")
    assert main is not None and main.by_seed == {1: 0.1, 4: 0.3} and main.n == 2
    assert set(found.failed["cola"]) == {2} and found.missing("cola") == [3, 5, 6]
    assert declared_contrasts(found)["cola", "untrained"].found.n == 1  # only seed 4 has both
    assert found.main("rte") is None and found.missing("rte") == [*SEEDS]
    lines = [*remarks(found)]
    assert "cola: DOUBTFUL: seed 1: dev: collapsed" in lines
    assert "cola: DOUBTFUL: seed 4: other: collapsed" in lines
    assert "cola: FAILED: the untrained encoder, seed 1: the gradient was not a finite number" in lines
    assert "cola: FAILED: seed 2: the gradient was not a finite number" in lines
    assert "cola: missing: seed 3, 5, 6." in lines and "cola: missing: the untrained encoder, seed 2, 3, 5, 6." in lines
    page = found.markdown()
    assert "| cola | 2 | failed |" in page and "| cola | 3 | missing |" in page
    assert "[cells/cola/seed-4](cells/cola/seed-4)" in page


def test_pages_have_the_numbers_and_the_notes(tmp_path: Path) -> None:
    found = experiment(tmp_path, [0.2] * 5 + [0.3], fresh=[0.1] * 6, majority=0.0, words=0.15)
    write_summary(tmp_path)
    page = (tmp_path / "summary.md").read_text()
    assert "recipe paper; device cpu; threads 1; seeds 1, 2, 3, 4, 5, 6." in page
    assert "| cola | dev/matthews | 6 | 0.2 | 0.2167 | 0.04082 | 0.3 | 6 |" in page
    assert "| cola+majority | dev/matthews | 1 | 0 | 0 |" in page and "- cola is made up" in page
    plain = json.loads((tmp_path / "summary.json").read_text())
    assert plain["version"] == 3 and plain["rows"]["cola"][MAIN]["by_seed"]["6"] == 0.3
    assert plain["contrasts"][0]["n"] == 6 and "seconds" not in plain["rows"]["cola"]
    shown = found.text()
    assert "cola" in shown and "0.2167" in shown and "beats TF-IDF" in shown


@pytest.mark.parametrize("lost", ["settings", "metrics", "reference", "notes", "verb", "about"])
def test_a_damaged_experiment_is_refused(tmp_path: Path, lost: str) -> None:
    """A sentence that names the field, instead of a traceback where it is used."""
    declare(tmp_path, "cola")
    path = tmp_path / "experiment.json"
    table = json.loads(path.read_text())
    del (table if lost in table else table["rows"]["cola"])[lost]
    path.write_text(json.dumps(table))
    with pytest.raises(DataError, match=f"field {lost} is missing"):
        summarize(tmp_path)
