"""The conclusion on files of one's own: intervals over rows against a bootstrap, the sentence, and older results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from electra_trainer.experiments.cell import (
    Cell,
    Declared,
    DeclaredRow,
    Result,
    read_result,
    write_declared,
    write_result,
)
from electra_trainer.experiments.statistics import Sample, difference_over_rows, jackknife, over_rows
from electra_trainer.experiments.summary import Summary, summarize

Values = NDArray[np.float64]
Score = Callable[[Values, Values], float]


def macro_f1(truth: Values, said: Values) -> float:
    pairs = [(truth > 0, said > 0), (truth <= 0, said <= 0)]
    return float(np.mean([2 * np.sum(one & other) / (np.sum(one) + np.sum(other)) for one, other in pairs]))


SCORES: dict[str, Score] = {
    "accuracy": lambda truth, said: float(np.mean((truth > 0) == (said > 0))),
    "macro_f1": macro_f1,
    "spearman": lambda truth, said: float(np.corrcoef(stats.rankdata(truth), stats.rankdata(said))[0, 1]),
}


@pytest.mark.parametrize("rows", [60, 400])
@pytest.mark.parametrize("name", SCORES)
def test_intervals_over_rows_are_those_of_a_paired_bootstrap(name: str, rows: int) -> None:
    random, score = np.random.default_rng(rows), SCORES[name]
    truth = random.normal(size=rows)
    one, other = (truth + random.normal(scale=scale, size=rows) for scale in (1.0, 1.5))

    def sample(said: Values) -> Sample:
        if name == "accuracy":
            return Sample(rows=rows, values=tuple(np.equal(truth > 0, said > 0).astype(float).tolist()))
        return jackknife(lambda some: score(truth[[*some]], said[[*some]]), rows)

    drawn = [random.integers(rows, size=rows) for _ in range(300)]
    mine, theirs = sample(one), sample(other)
    assert np.mean(mine.values) == pytest.approx(score(truth, one))
    found = difference_over_rows({1: mine}, {1: theirs})
    assert found is not None
    for (low, high), again in (
        (over_rows([mine]), [score(truth[at], one[at]) for at in drawn]),
        (found, [score(truth[at], one[at]) - score(truth[at], other[at]) for at in drawn]),
    ):
        assert high - low == pytest.approx(2 * 1.96 * np.std(again), rel=0.3)


def test_rows_and_seeds_are_in_the_interval_of_a_difference() -> None:
    def shares(right: int, rows: int = 100) -> Sample:
        return Sample(rows=rows, values=(1.0,) * right + (0.0,) * (rows - right))

    base = {0: shares(50)}
    alone, several = difference_over_rows({0: shares(60)}, base), [shares(50), shares(60), shares(70)]
    wider = difference_over_rows(dict(enumerate(several)), dict.fromkeys(range(3), shares(50)))
    assert alone and wider and sum(alone) == pytest.approx(sum(wider)) and alone[0] > 0 > wider[0]
    equal = difference_over_rows(base, base)
    assert equal is not None and equal[0] < 0 < equal[1], "rows that all agree do not prove equality"
    assert difference_over_rows({0: shares(1, 1)}, {0: shares(0, 1)}) == (-1.0, 1.0)
    for given in ({1: shares(60)}, {0: shares(60, 99)}, {}):
        assert difference_over_rows(given, base) is None
    few = difference_over_rows({0: shares(10, 10)}, {0: shares(6, 10)})
    assert few is not None and few[0] < 0, "McNemar: p = 0.125"
    assert over_rows([shares(20, 30)]) == pytest.approx((0.488, 0.808), abs=1e-3)  # Wilson
    assert over_rows([shares(30, 30)])[0] == pytest.approx(0.886, abs=1e-3)


def experiment(
    out: Path, right: list[int], others: dict[str, int], *, rows: int = 500, split: str = "test", kept: bool = True, metric: str = "accuracy", kind: str = "Classification",
    labels: int = 2000, doubts: tuple[str, ...] = (),
) -> Summary:  # fmt: skip
    """Results of as many seeds as `right`; its last rows are right, and the first ones of the others. `kept`: results have values of rows."""
    apart, main = (split,) if split == "test" else (), f"dev/{metric}"
    about = {"task": {"kind": kind}, "train_rows": labels, "recipe": {"learning_rate": 1e-3, "epochs": 3.0}}
    declared = {"t": DeclaredRow(settings=about, metrics=(main,), apart=apart)}
    for number, title in enumerate(others):
        rival = {"rival": "x"} if "/" in title else {}
        declared[f"t+{number}"] = DeclaredRow(
            settings=rival, metrics=(main,), apart=apart, reference="t", baseline=title, seeded=bool(rival)
        )
    seeds = tuple(range(1, len(right) + 1))
    out.mkdir(parents=True)
    write_declared(out, Declared(verb="finetune", facts={}, rows=declared, seeds=seeds, about={"model": "en-mini"}))
    for key, row in declared.items():
        counts = (
            dict(zip(seeds, right, strict=True))
            if key == "t"
            else dict.fromkeys(seeds if row.seeded else (0,), [*others.values()][int(key[2:])])
        )
        for seed, count in counts.items():
            cell = Cell(root=out, key=key, seed=seed)
            cell.folder.mkdir(parents=True)
            values = (0.0,) * (rows - count) + (1.0,) * count
            values = values if key == "t" else values[::-1]
            name = f"{split}/{metric}"
            samples = {name: Sample(rows=rows, values=values)} if kept else {}
            write_result(
                cell.folder,
                Result(key=key, seed=seed, scores={main: 0.5, name: count / rows}, samples=samples, doubts=doubts),
            )
    return summarize(out)


MAJORITY, TF_IDF, RIVAL = "the majority class", "TF-IDF", "google/electra"
SAID: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "level": ({"right": [343], "others": {TF_IDF: 335, MAJORITY: 250}}, "Right in 343 of 500 rows kept apart (68.6 %, 64 to 73).", "TF-IDF: 335 (67.0 %). Too close to call; TF-IDF is simpler. Better than the majority class, 250 (50.0 %).", ""),
    "open": ({"right": [5], "others": {TF_IDF: 4}}, "Right in 5 of 500 rows kept apart (1.0 %, 0 to 2).", "TF-IDF: 4 (0.8 %). Too close to call; TF-IDF is simpler.", ""),
    "the exported one": ({"right": [340, 343, 346], "others": {RIVAL: 343, TF_IDF: 400}}, "Right in 340 of 500 rows kept apart (68.0 %, 64 to 72).", "TF-IDF: 400 (80.0 %). Clearly better: take that. google/electra: 343 (68.6 %). Too close to call.", ""),
    "few labels": ({"right": [343], "others": {TF_IDF: 200}, "labels": 270}, "Right in 343 of 500 rows kept apart (68.6 %, 64 to 73).", "Better than TF-IDF, 200 (40.0 %).", "More labels than these 270 may help. How much: the same command with --dev in place of --test and --labels-curve 67,135,216 --out exp-curve"),
    "sure": ({"right": [499], "others": {}, "labels": 270}, "Right in 499 of 500 rows kept apart (99.8 %, 99 to 100).", "", ""),
    "every row": ({"right": [228, 232], "others": {TF_IDF: 170}, "rows": 300, "split": "folds", "labels": 300}, "Right in 230 of 300 rows, each by a model that had not seen it (76.7 %, 72 to 81).", "Better than TF-IDF, 170 (56.7 %).", "More labels than these 300 may help, or a larger encoder. To try one, which is downloaded and slower: the same command with finetune sentence-transformers/all-MiniLM-L6-v2 and --out exp-larger"),
    "numbers": ({"right": [343], "others": {"the mean value": 20}, "metric": "spearman"}, "Rank correlation with the true numbers: 0.69 on 500 rows kept apart (0.64 to 0.73; 1 is perfect).", "Better than the mean value, 0.04.", ""),
    "sentences": ({"right": [343], "others": {}, "kind": "Tagging", "labels": 400}, "Words with the right tag: 68.6 on 500 sentences kept apart (64 to 73; 100 is perfect).", "", ""),
    "few": ({"right": [19, 21], "others": {TF_IDF: 19}, "rows": 30, "split": "dev"}, "Right in 20 of 30 rows held out (66.7 %, 49 to 81).", "TF-IDF: 19 (63.3 %). Too close to call; TF-IDF is simpler.", "30 are too few for a number, 49 to 81 %: keep 100 apart, --test FILE."),
    "labels": ({"right": [10], "others": {"the most frequent labels": 10}, "metric": "micro_f1"}, "F1 of all labels: 2.0 on 500 rows kept apart (1 to 4; 100 is perfect).", "The most frequent labels: 2.0. Too close to call; the most frequent labels are simpler.", ""),
    "one row": ({"right": [1, 1], "others": {TF_IDF: 0}, "rows": 1}, "Right in 1 of 1 rows kept apart (100.0 %, 21 to 100).", "TF-IDF: 0 (0.0 %). Too close to call; TF-IDF is simpler.", "1 are too few for a number, 21 to 100 %: keep at least 100 apart."),
    "collapsed": ({"right": [250], "others": {TF_IDF: 300}, "doubts": ("dev: collapsed: 'a' for every example.",)}, "Right in 250 of 500 rows kept apart (50.0 %, 46 to 54).", "TF-IDF: 300 (60.0 %). Clearly better: take that.", "It says the same of every text. Try another --learning-rate (it was 0.001) or more --epochs (they were 3), another --out."),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_the_answer(tmp_path: Path, case: str) -> None:
    """On the rows kept apart, whatever dev says, or on every row; the same in every place."""
    given, *lines = SAID[case]
    found, said = experiment(tmp_path / "exp", **given), " ".join(filter(None, lines[:2]))
    assert [line.replace(f"{tmp_path}/", "") for line in found.answer] == lines
    assert found.text("after").endswith("\n\nafter\n\n" + "\n".join(found.answer))
    assert found.conclusion == found.as_json()["conclusion"] == said
    page = found.markdown().replace(r"\_", "_")
    assert all(line in page for line in found.answer)


def test_results_without_values_of_rows_are_judged_over_seeds(tmp_path: Path) -> None:
    found = experiment(tmp_path / "exp", [300, 310], {TF_IDF: 250}, kept=False)
    assert found.conclusion == "" and found.contrasts[0].over_rows is None
    assert (
        "t: is above, not beyond doubt, TF-IDF (median 0.610 against 0.500, over the seeds on test rows)."
        in found.text()
    )
    result = read_result(tmp_path / "exp" / "cells" / "t" / "seed-1")
    assert result.samples == {}
