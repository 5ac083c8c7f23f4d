"""`electra compare --sweep`: combinations as arms, their own cells, and a choice by a declared rule on rows that no table reports."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.experiments.test_compare import write_treebank
from tests.finetuning.glue_samples import labelled, write_glue
from tests.finetuning.test_question_answering import squad_file
from tests.prepared import small_config, write_store

from electra_trainer import api
from electra_trainer.errors import ConfigError
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.experiments.sweep import choices, parse_axes, require_choosable, require_fields, swept
from electra_trainer.finetuning.search import TrainingRows
from electra_trainer.paper import measured, probes
from electra_trainer.paper.paper_tables import build_table
from electra_trainer.presets.arms import arm
from electra_trainer.settings.methods import Learned
from electra_trainer.settings.records import to_dict
from electra_trainer.train import loop

STEPS = 4


def axes_of(words: list[str]) -> Any:
    return parse_axes(words, flag="--sweep", example="masking.fraction=0.15,0.3")


SWEEP = ("generator.width=0.5,1", "masking.fraction=0.15,0.3")


def test_combinations_are_arms() -> None:
    """All crossed; the arm's own first, under its own name; fields that an arm does not have, or use, are not crossed."""
    axes = axes_of(["generator.width=1,0.5", "optimizer.learning-rate=1e-4,2e-3", "objective.weight=10,50"])
    electra = arm("electra", small_config())
    electra = replace(electra, generator=Learned(width=0.5), optimizer=replace(electra.optimizer, learning_rate=1e-4))
    found = swept("electra", electra, axes)
    assert len(found) == 8 and next(iter(found.items())) == ("electra", electra)
    one = found["electra+generator.width=1+optimizer.learning-rate=0.002+objective.weight=10"]
    assert isinstance(one.generator, Learned)
    assert (one.generator.width, one.optimizer.learning_rate, one.objective.weight) == (1.0, 2e-3, 10.0)  # type: ignore[attr-defined]
    assert list(swept("mlm", arm("mlm", electra), axes)) == ["mlm", "mlm+optimizer.learning-rate=0.002"]
    assert len(swept("unigram", arm("unigram", electra), axes)) == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["optimizer.learning-rate"], "expected FIELD=VALUE,VALUE"),
        (["masking.fraction=0.1,0.10"], "VALUE,VALUE, each once"),
        (["masking.fraction=0.1", "masking.fraction=0.2"], "VALUE,VALUE, each once"),
        (["schedule.steps=10,20"], "no arm can vary this field"),
        (["optimizer.learningrate=1"], "no arm can vary this field"),
        (["objective.weight=high"], r"objective: weight = 'high': expected float"),
        (["generator.width=1.1"], r"generator\.width = 1\.1"),
    ],
)
def test_what_cannot_be_swept(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        axes = axes_of(words)
        require_fields(axes, [small_config()])
        swept("electra", small_config(), axes)


def test_the_rule() -> None:
    """The best mean over all seeds; lowest of a loss; never a row that diverged; nothing while a row waits."""
    found = {"e": {1: 0.5, 2: 0.5}, "e+a=1": {1: 0.9, 2: 0.2}, "e+a=2": {1: 0.1, 2: 0.1}, "m": {1: 9.0, 2: 9.0}}
    rows = [*found]
    assert choices(rows, "x/accuracy", found, seeds=(1, 2)) == {"e": "e+a=1"}
    assert choices(rows, "x/accuracy", found, seeds=(1, 2), failed=("e+a=1",)) == {"e": "e"}
    assert choices(rows, "x/loss", found, seeds=(1, 2)) == {"e": "e+a=2"}
    assert choices(rows, "x/accuracy", found, seeds=(1, 2, 3)) == {"e": None}
    with pytest.raises(ConfigError, match=r"tables report.*--probe nested-pos=TREEBANK"):
        require_choosable("glue/average", ["glue"])
    with pytest.raises(ConfigError, match="an easier task would win"):
        require_choosable("held-out/discriminator_auc", ["held-out"])
    with pytest.raises(ConfigError, match="--probe nested-pos"):
        require_choosable("nested-pos/accuracy", ["pos"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("sweep") / "data")


def write_squad(folder: Path) -> None:
    """Both versions by their official names."""
    folder.mkdir()
    for version in ("1.1", "2.0"):
        squad_file(folder, f"train-v{version}.json", 10)
        squad_file(folder, f"dev-v{version}.json", 2, start=20)


Run = Callable[..., Summary]


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Run:
    treebank = write_treebank(tmp_path / "treebank")

    def made(**changes: Any) -> Summary:
        asked: dict[str, Any] = {
            "arms": ("electra", "mlm"), "seeds": 2, "steps": STEPS, "sweep": SWEEP, "probe": (f"nested-pos={treebank}",),
            "choose": "nested-pos/accuracy", **changes,
        }  # fmt: skip
        return api.compare(data, out=tmp_path / "exp", preset=small_config(), device="cpu", quiet=True, **asked)

    return made


def test_a_sweep_is_an_experiment(run: Run, tmp_path: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six combinations with two seeds are twelve cells that are not done twice; more values extend it; the page says what was chosen."""
    values = iter(
        [0.1, 0.9, 0.2, 0.3, 0.5, 0.1] * 2
    )  # of the cells in their order: all rows of a seed before the next seed
    monkeypatch.setitem(probes.PROBES, "nested-pos", lambda _: {"accuracy": next(values)})
    summary = run()
    rows = ["electra", "electra+generator.width=0.5+masking.fraction=0.3", "electra+generator.width=1+masking.fraction=0.15",
            "electra+generator.width=1+masking.fraction=0.3", "mlm", "mlm+masking.fraction=0.3"]  # fmt: skip
    assert list(summary.rows) == rows and summary.declared.rows["mlm"].reference == "electra"
    assert summary.chosen == {"electra": rows[1], "mlm": "mlm"}
    page = (tmp_path / "exp/summary.md").read_text()
    assert "Declared before the first run: of each arm the values with the highest mean of nested-pos/accuracy" in page
    assert f"Chosen of 4 combinations of electra: {rows[1]}, 0.9" in page
    ran = json.loads((tmp_path / f"exp/cells/{rows[3]}/seed-2/run/config.json").read_text())
    assert (ran["generator"]["width"], ran["masking"]["fraction"], ran["seed"]) == (1.0, 0.3, 2)
    for row in build_table(4, [summarize(tmp_path / "exp")]).rows:
        if row.model == "ELECTRA" and "chosen" in row.source:  # its own values are in the paper's row as well
            assert row.values["nested-pos/accuracy"].number == pytest.approx(0.9)
            break
    else:
        pytest.fail("the chosen values are not in the row ELECTRA")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", None)
        assert run().results == summary.results
    with pytest.raises(ConfigError, match=r"choose: 'nested-pos/accuracy' -> None"):
        run(choose=None)
    values = iter([0.95] * 2)
    more = run(arms=("mlm",), sweep=("masking.fraction=0.2",))
    assert more.chosen == {"electra": rows[1], "mlm": "mlm+masking.fraction=0.2"}


def test_nothing_is_declared_on_a_run_s_own_fakes(run: Run, tmp_path: Path) -> None:
    """A worse generator makes easier fakes; and every row of the tables has its values, the arm's own too."""
    own = small_config().optimizer.learning_rate
    summary = run(arms=("electra",), sweep=(f"optimizer.learning-rate={own},4e-3",), probe=("held-out",), choose=None)
    assert summary.metrics == ("held-out/discriminator_standard_auc",)
    assert {one.metric for one in summary.contrasts} == set(summary.metrics)
    assert list(summary.rows) == ["electra", "electra+optimizer.learning-rate=0.004"]
    for shown in (summary.text(), (tmp_path / "exp/summary.md").read_text()):
        assert f"electra+optimizer.learning-rate={own}" in shown and "electra+optimizer.learning-rate=0.004" in shown
        assert "| electra |" not in shown


def test_a_choice_by_what_tables_report_is_refused(run: Run, tmp_path: Path) -> None:
    """Before anything is trained."""
    with pytest.raises(ConfigError, match="tables report this metric"):
        run(choose="pos/accuracy", probe=(f"pos={tmp_path / 'treebank'}",))
    assert not (tmp_path / "exp").exists()


def test_generator_widths_fill_figure_3(data: Path, tmp_path: Path, electra: Electra) -> None:
    """Each width is a place on the left of Figure 3, the unigram generator first."""
    out, settings = tmp_path / "exp", tmp_path / "settings.json"
    settings.write_text(json.dumps(to_dict(small_config())))
    code, said, err = electra(
        "compare", data, "--config", settings, "--arms", "electra,unigram", "--seeds", "1,", "--steps", STEPS, "--out", out, "--device",
        "cpu", "--quiet", "--sweep", "generator.width=0.25,0.5,1", "--choose", "held-out/discriminator_standard_auc",
    )  # fmt: skip
    assert code == 0, err
    assert "Chosen of 3 combinations of electra: electra" in said
    metric = "held-out/discriminator_standard_auc"
    shown = measured.readings([summarize(out)], metric)
    places = sorted(size for one in shown if (size := measured.generator_size(one)) is not None)
    hidden = small_config().model.hidden_size
    assert [place[0] for place in places] == [-1.0, hidden / 4, hidden / 2, hidden]
    code, _, err = electra("figure", "3", out, "--metric", metric, "--out", tmp_path / "figure.svg")
    assert code == 0, err


def test_nested_probes_read_training_rows_alone(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other dev files change nothing; what is scored is not trained on."""
    loop.pretrain(small_config(steps=3), data, out=tmp_path / "cell/run", device="cpu", quiet=True)
    subject = probes.Subject(
        run=tmp_path / "cell/run", data=data, folder=None, seed=1, device="cpu", sentences=100, pairs=2
    )
    glue, treebank = write_glue(tmp_path / "glue", ["sst2", "stsb"], train=60), write_treebank(tmp_path / "ud")
    asked = {"nested-pos": str(treebank), "nested-sentences": str(glue)}
    first = probes.probe(asked, subject)
    for task, folder in (("sst2", "SST-2"), ("stsb", "STS-B")):
        (glue / folder / "dev.tsv").write_text(labelled(task, 11, first=2000))
    (treebank / "x-ud-dev.conllu").write_text("")
    shutil.copytree(tmp_path / "cell/run", tmp_path / "another/run")
    assert probes.probe(asked, replace(subject, run=tmp_path / "another/run")) == first
    seen: dict[str, Any] = {}
    monkeypatch.setattr(probes, "probe_tags", lambda *_, **given: seen.update(given) or _scores())
    probes.probe({"nested-pos": str(treebank)}, subject)
    assert len(seen["dev"]) == 1 and len(seen["train"]) == 5
    rows = TrainingRows(source=probes._glue_tasks(glue)[0]).load()
    assert not {one.text for one in rows.train} & {one.text for one in rows.dev["held-out"]}


def _scores() -> Any:
    return {"accuracy": 0.0}


def test_medians_over_fine_tuning_seeds(data: Path, tmp_path: Path) -> None:
    """With --probe-seeds 3 a cell is fine-tuned with three seeds a task, each a folder of its own, and scored by their medians."""
    glue, squad = write_glue(tmp_path / "glue", ["rte"], train=40), tmp_path / "squad"
    write_squad(squad)
    summary = api.compare(
        data, out=tmp_path / "exp", preset=small_config(), arms=("electra",), seeds=[2], steps=STEPS, device="cpu", quiet=True,
        probe=(f"glue={glue}", f"squad1={squad}", f"squad2={squad}"), probe_seeds=3,
    )  # fmt: skip
    cell = tmp_path / "exp/cells/electra/seed-2"
    for folder, metric, name in (
        ("glue", "glue/rte", "accuracy"),
        ("squad1", "squad1/f1", "f1"),
        ("squad2", "squad2/em", "best_exact_match"),
    ):
        results = [json.loads(path.read_text()) for path in cell.glob(f"{folder}/*/result.json")]
        assert sorted(result["seed"] for result in results) == [2, 1002, 2002]
        median = statistics.median(result["scores"][f"dev/{name}"] for result in results)
        assert summary.rows["electra"][metric].mean == median
    assert json.loads((tmp_path / "exp/experiment.json").read_text())["facts"]["probe_seeds"] == 3
