"""`--search`: it chooses on training rows alone, for each arm by itself, and what it chose is what the seeds run with."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.finetuning import toy
from tests.finetuning.test_experiment import SMALL
from tests.finetuning.toy import Toy

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning import search
from electra_trainer.finetuning.experiment import Plan, run_plan
from electra_trainer.finetuning.task import TaskData
from electra_trainer.finetuning.task_summary import summarize
from electra_trainer.finetuning.texts.tasks import Classification

GIVEN = {name: value for name, value in SMALL.items() if name != "learning_rate"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy.write_model(tmp_path_factory.mktemp("model") / "encoder")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def found(asked: Plan, out: Path) -> Plan:
    return search.searched(asked, out=out, device="cpu", parallel=1, quiet=True)


def test_the_best_of_the_trials_is_what_the_seeds_run_with(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(Toy(rows=60),), changes=GIVEN, seeds=(1, 2), floors=True), tmp_path)
    run_plan(asked, out=tmp_path, device="cpu", parallel=1, quiet=True)
    for arm, kind in (("encoder", "seed"), ("untrained", "untrained")):
        tried = sorted((tmp_path / "search" / arm).iterdir())
        scores = {path.name: main.median for path in tried if (main := summarize(path).task("toy").main)}
        assert len(scores) == 7, "three rates with two decays, and the best of them for longer"
        best = [name for name in scores if scores[name] == max(scores.values())]
        recipes = [_config(tmp_path / "search" / arm / name / "cells/toy/seed-1")["recipe"] for name in best]
        for seed in (1, 2):
            assert _config(tmp_path / f"cells/toy/{kind}-{seed}")["recipe"] in recipes, arm
    fresh = _config(tmp_path / "search/untrained/longer/cells/toy/seed-1")["model"]
    assert fresh.startswith("untrained") and not _config(tmp_path / "cells/toy/seed-1")["model"].startswith("untrained")


def _config(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((run / "config.json").read_text())
    return table


def test_dev_sets_are_not_looked_at(tmp_path: Path) -> None:
    data = search.TrainingRows(source=Toy(rows=80)).load()
    texts = {example.text for example in Toy(rows=80).load().train}
    seen = [example.text for example in (*data.train, *data.dev["held-out"])]
    assert list(data.dev) == ["held-out"] and not data.test
    assert set(seen) == texts and not {e.text for e in data.train} & {e.text for e in data.dev["held-out"]}


def test_large_sets_are_searched_in_part_and_at_their_own_epochs(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_ROWS", 40)
    asked = found(Plan(model=model, tasks=(Toy(rows=60),), changes=GIVEN), tmp_path)
    assert len(search.TrainingRows(source=Toy(rows=60)).load().train) < 40
    assert asked.chosen["toy"].keys() == {"learning_rate", "layer_decay"}


def test_what_is_given_is_not_searched(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(Toy(rows=40),), changes=SMALL | {"epochs": 1.0}), tmp_path)
    assert asked.chosen["toy"].keys() == {"layer_decay"}
    with pytest.raises(ConfigError, match="--search: learning rate, layer decay and epochs are all given"):
        found(replace(asked, changes=SMALL | {"epochs": 1.0, "layer_decay": 1.0}), tmp_path / "all")


def test_a_search_that_is_done_is_read(model: str, tmp_path: Path) -> None:
    asked = Plan(model=model, tasks=(Toy(rows=40),), changes=GIVEN | {"epochs": 1.0})
    first = found(asked, tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert found(asked, tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")} == written


@dataclass(frozen=True, kw_only=True)
class _Hopeless(Toy):
    def load(self) -> TaskData:
        data = super().load()
        return replace(data, task=Diverging(labels=("bad", "good"), name=self.name))


class Diverging(Classification):
    def loss(self, *arguments: Any, **more: Any) -> Any:
        loss, count = super().loss(*arguments, **more)
        return loss * float("nan"), count


def test_where_every_trial_diverges_the_recipe_stays(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(_Hopeless(rows=40),), changes=GIVEN), tmp_path)
    assert asked.chosen.get("toy", {}) == {}
