"""Experiments: paired cells, interruption, extension, failure, and the command from end to end."""

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prepared import small_config, write_store
from tests.reliability.children import copy_workers

from electra_trainer import api
from electra_trainer.cli.main import main
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, Interrupted, MissingInputError
from electra_trainer.experiments.cell import Result, parse_seeds, parse_shard, read_declared
from electra_trainer.experiments.summary import Summary, summarize, write_summary
from electra_trainer.objectives import build
from electra_trainer.paper import compare as cells_module
from electra_trainer.paper.compare import arm_config
from electra_trainer.paper.probes import Probe, parse_probes
from electra_trainer.settings.config import Masking
from electra_trainer.settings.records import to_dict
from electra_trainer.train import fast_step
from electra_trainer.train.step import Feed

ROOT = Path(__file__).resolve().parents[2]
STEPS = 8


def run(data: Path, out: Path, **changes: Any) -> Summary:
    settings: dict[str, Any] = {"arms": ("electra", "mlm"), "seeds": 2, "steps": STEPS, **changes}
    if "probes" in settings:
        settings["probe"] = settings.pop("probes")
    return api.compare(data, out=out, preset=small_config(lanes=1), device="cpu", quiet=True, **settings)


def states(summary: Summary) -> list[str]:
    """States of all cells."""
    return [cell["state"] for cell in summary.as_json()["cells"]]


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms with two seeds, uninterrupted."""
    out = tmp_path_factory.mktemp("compare") / "whole"
    run(data, out)
    return out


def results(out: Path) -> dict[str, dict[str, Any]]:
    """Every result but its wall-clock and where it was computed."""
    found = {}
    for path in sorted(out.glob("cells/*/*/result.json")):
        result = json.loads(path.read_text())
        assert result["facts"].pop("seconds") >= 0 and result.pop("environment")
        found[f"{result['key']}-{result['seed']}"] = result
    return found


def of_seed(seed: int, out: Path) -> dict[str, dict[str, Any]]:
    """The results of one seed; the same as in an experiment of that seed alone."""
    found = {name: result for name, result in results(out).items() if result["seed"] == seed}
    assert len(found) == 2
    return found


def test_results_have_the_agreed_layout(whole: Path) -> None:
    found = results(whole)
    assert list(found) == ["electra-1", "electra-2", "mlm-1", "mlm-2"]
    result = found["electra-1"]
    facts = result["facts"]
    assert (whole / "cells/electra/seed-1/run/metrics.jsonl").is_file()
    assert (facts["steps"], facts["tokens"], result["failed"]) == (STEPS, STEPS * 8 * 32, None)
    assert facts["parameters"] == sum(p.numel() for p in build(small_config()).parameters())
    assert facts["flops_paper"] > facts["flops_real"] > 0
    assert {"held-out/generator_loss", "held-out/discriminator_auc"} <= result["scores"].keys()
    experiment = json.loads((whole / "experiment.json").read_text())
    facts, arms = experiment["facts"], experiment["rows"]
    assert (experiment["version"], facts["match"], facts["amount"], experiment["seeds"]) == (5, "steps", STEPS, [1, 2])
    assert arms["mlm"]["settings"]["objective"] == {"kind": "mlm"}
    assert experiment["parts"] == {"held-out": {"folder": None, "sha256": None}}
    assert facts["tokenizer_sha256"] and list(arms) == ["electra", "mlm"]


def test_held_out_numbers_are_those_of_evaluate(whole: Path, data: Path) -> None:
    metrics = api.evaluate(whole / "cells/mlm/seed-2/run", data, device="cpu").metrics
    assert {f"held-out/{name}": value for name, value in metrics.items()} == results(whole)["mlm-2"]["scores"]


def test_arms_with_one_seed_begin_alike_and_read_alike(data: Path) -> None:
    """Same generators, rows and masks; another seed has others. The kept networks are compared in tests/methods."""
    store, base = Store.open(data), small_config()
    one, two = (build(arm_config(name, base)).exported()[-1].network for name in ("electra", "replace-mlm"))
    assert all(torch.equal(two.get_parameter(name), weight) for name, weight in one.named_parameters())

    def lanes(config: Any) -> list[Any]:
        return [masked for masked, _ in Feed.of(config, store, device=torch.device("cpu"), precision="fp32").lanes(5)]

    for name in ("electra", "electra-15", "mlm", "replace-mlm", "all-tokens-mlm"):
        for mine, theirs in zip(lanes(arm_config(name, base)), lanes(base), strict=True):
            assert torch.equal(mine.batch.ids_BT, theirs.batch.ids_BT) and torch.equal(mine.input_BT, theirs.input_BT)
            assert torch.equal(mine.slots_K, theirs.slots_K)
    other = arm_config("mlm", replace(base, seed=2))
    assert not torch.equal(lanes(other)[0].batch.ids_BT, lanes(base)[0].batch.ids_BT)


@pytest.mark.parametrize("stop_at", [3, STEPS + 5])
def test_interrupted_it_resumes_to_the_same_results(
    data: Path, whole: Path, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the first or in the second cell: the summary says what is missing, the same call ends as if nothing had been."""
    real, done = fast_step.train_step, []

    def interrupted(*arguments: Any, **more: Any) -> Any:
        done.append(1)
        if len(done) == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments, **more)

    monkeypatch.setattr(fast_step, "train_step", interrupted)
    with pytest.raises(Interrupted, match="The same command continues"):
        run(data, tmp_path / "exp", seeds=1)
    finished = list(results(tmp_path / "exp"))
    assert finished == (["electra-1"] if stop_at > STEPS else [])
    assert ": missing: " in (tmp_path / "exp/summary.md").read_text()
    run(data, tmp_path / "exp", seeds=1)
    assert results(tmp_path / "exp") == of_seed(1, whole)
    assert len(done) == 2 * STEPS + 1  # the step in which the signal came was given up, no other was computed twice


def test_killed_while_probing_only_the_probe_is_repeated(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cells_module, "probe", killed)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "exp", seeds=1)
    monkeypatch.undo()
    monkeypatch.setattr(fast_step, "train_step", _counted(fast_step.train_step, steps := []))
    run(data, tmp_path / "exp", seeds=1)
    assert len(steps) == STEPS
    assert results(tmp_path / "exp") == of_seed(1, whole)


def _counted(real: Any, calls: list[int]) -> Any:
    def counted(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        return real(*arguments, **more)

    return counted


def test_a_seed_a_machine_makes_one_experiment(data: Path, whole: Path, tmp_path: Path) -> None:
    assert states(run(data, tmp_path / "exp", seeds=[2])) == ["done", "done"]
    assert states(run(data, tmp_path / "exp", seeds=[1])) == ["done"] * 4
    assert results(tmp_path / "exp") == results(whole)


@pytest.mark.slow
def test_a_signal_stops_runs_in_parallel(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent asks its workers to save; the same call comes to the same results as one run after another.

    Each run is in a separate process, with its share of the cores, so that sums may be rounded otherwise.
    """
    out = tmp_path / "exp"

    def cells_with(name: str) -> set[Path]:
        return {path.parents[name.count("/")] for path in out.glob(f"cells/*/*/{name}")}

    def in_its_first_steps() -> bool:
        begun = cells_with("run/metrics.jsonl") - cells_with("result.json")
        return any(0 < (cell / "run/metrics.jsonl").read_bytes().count(b"\n") <= 2 for cell in begun)

    def stop_when_training() -> None:
        """When one cell is done and another is in its first steps."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (cells_with("result.json") and in_its_first_steps()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(0.2, stop_when_training)
    with monkeypatch.context() as patch:  # workers whose steps are slow, so that the signal comes between them
        copy_workers(patch)
        step = fast_step.train_step
        patch.setattr(fast_step, "train_step", lambda *words, **more: (time.sleep(0.2), step(*words, **more))[1])
        timer.start()
        with pytest.raises(Interrupted, match="The same command resumes"):
            run(data, out, parallel=2)
        timer.join()
    assert ": missing: " in (out / "summary.md").read_text()
    done = cells_with("result.json")
    assert done and cells_with("run/checkpoints/step-*") - done
    summary = run(data, out, parallel=2)
    assert states(summary) == ["done"] * 4
    expected = results(whole)
    assert results(out).keys() == expected.keys()
    for name, found in results(out).items():
        assert {**found, "scores": None} == {**expected[name], "scores": None}
        assert found["scores"] == pytest.approx(expected[name]["scores"], rel=1e-3)


def test_medians_and_best_seeds(data: Path, whole: Path) -> None:
    summary = summarize(whole)
    found = results(whole)
    for name, better in (("held-out/loss", min), ("held-out/generator_accuracy", max)):
        by_seed = {seed: found[f"electra-{seed}"]["scores"][name] for seed in (1, 2)}
        one = summary.rows["electra"][name]
        assert one.by_seed == by_seed and one.median == pytest.approx(sum(by_seed.values()) / 2)
        assert by_seed[one.best_seed] == one.best == better(by_seed.values())
    assert "| best | best seed |" in (whole / "summary.md").read_text()


def test_more_seeds_arms_and_probes_extend(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "exp"
    first = run(data, out, arms=("electra",), seeds=1)
    assert first.contrasts == [] and first.rows["electra"]["held-out/loss"].sd is None
    before = (out / "cells/electra/seed-1/result.json").read_text()
    monkeypatch.setattr(fast_step, "train_step", _counted(fast_step.train_step, steps := []))
    second = run(data, out, arms=("untrained", "mlm", "electra"), seeds=[2, 1])
    assert len(steps) == 3 * STEPS
    apart = "Not compared with the first arm, because no declared metric is measured for both: mlm. Repeat the command"
    assert apart in second.text() and apart in (out / "summary.md").read_text()  # MLM has no AUC
    assert (
        second.declared.rows["mlm"].reference == "electra"
        and list(second.rows) == ["electra", "untrained", "mlm"]
        and second.declared.seeds == (1, 2)
    )
    assert (out / "cells/electra/seed-1/result.json").read_text() == before
    treebank = write_treebank(tmp_path / "treebank")
    third = run(data, out, arms=("electra", "untrained"), probes=(f"pos={treebank}",), probe_sentences=4000)
    assert len(steps) == 3 * STEPS  # kept runs are probed, not trained again
    assert third.rows["electra"]["pos/accuracy"].n == third.rows["electra"]["held-out/loss"].n == 2
    assert "pos/accuracy" not in third.rows["mlm"]  # it was not among this call's arms
    assert third.metrics == ("held-out/discriminator_standard_auc", "pos/accuracy") and apart not in third.text()
    untrained = results(out)["untrained-1"]["facts"]
    assert (untrained["steps"], untrained["tokens"], untrained["flops_paper"]) == (0, 0, 0)


def write_treebank(folder: Path) -> Path:
    folder.mkdir()
    words = [("the", "DET"), ("statement", "NOUN"), ("is", "AUX"), ("executed", "VERB"), (".", "PUNCT")]
    block = "\n".join("\t".join([str(i), form, "_", tag, *"______"]) for i, (form, tag) in enumerate(words, 1))
    for split in ("train", "dev"):
        (folder / f"x-ud-{split}.conllu").write_text((block + "\n\n") * 6)
    return folder


CHANGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "amount": ({"steps": 9}, ["amount: 8.0 -> 9.0"]),
    "match": ({"steps": None, "flops": 1e9}, ["match: 'steps' -> 'paper-flops'"]),
    "metrics": ({"metrics": "held-out/loss"}, ["metrics: () -> ('held-out/loss',)"]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_other_settings_are_named(name: str, data: Path, whole: Path) -> None:
    changes, words = CHANGED[name]
    before = (whole / "experiment.json").read_text()
    with pytest.raises(ConfigError, match="began with other settings") as caught:
        run(data, whole, **changes)
    assert all(word in str(caught.value) for word in words)
    assert (whole / "experiment.json").read_text() == before


def test_the_command_that_the_experiment_began_with_is_printed(data: Path, whole: Path, tmp_path: Path) -> None:
    again = shutil.copytree(whole, tmp_path / "again")
    for noted in again.glob("cells/*/*/run/environment.json"):
        words = ["electra", "compare", "my data", "--arms", "electra,mlm"]
        noted.write_text(json.dumps(json.loads(noted.read_text()) | {"command": words}))
    with pytest.raises(ConfigError, match="repeat what it began with: electra compare 'my data' --arms electra,mlm"):
        run(data, again, steps=9)


def test_other_data_and_other_config_are_named(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer_sha256"):
        run(write_store(tmp_path / "other", vocab_size=300), whole)
    with pytest.raises(ConfigError, match=r"masking.fraction: 0\.15 -> 0\.2 in electra, mlm"):
        config = replace(small_config(lanes=1), masking=Masking(fraction=0.2))
        api.compare(
            data, out=whole, arms=("electra", "mlm"), preset=config, seeds=2, steps=STEPS, device="cpu", quiet=True
        )
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").touch()
    with pytest.raises(ConfigError, match=r"holds 'notes\.txt' and no experiment"):
        run(data, tmp_path / "full")


def test_a_treebank_that_changed_is_named(data: Path, tmp_path: Path) -> None:
    """A treebank may move, its contents may not change; a broken one stops before training."""
    treebank = write_treebank(tmp_path / "one")
    run(data, tmp_path / "exp", arms=("untrained",), seeds=1, probes=(f"pos={treebank}",))
    moved = treebank.rename(tmp_path / "two")
    run(data, tmp_path / "exp", arms=("untrained",), seeds=1, probes=(f"pos={moved}",))
    dev = moved / "x-ud-dev.conllu"
    dev.write_text(dev.read_text().replace("the", "a"))
    with pytest.raises(ConfigError, match="the contents of probe pos"):
        run(data, tmp_path / "exp", arms=("untrained",), seeds=1, probes=(f"pos={moved}",))
    dev.write_text(dev.read_text().rstrip() + "\n2\tcut\n")
    with pytest.raises(DataError, match="expected 10"):
        run(data, tmp_path / "new", probes=(f"pos={moved}",))
    assert not (tmp_path / "new").exists()


def test_a_cell_that_diverges_is_reported_and_the_others_go_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fast_step.train_step

    def broken(objective: Any, optimizer: Any, feed: Any, **more: Any) -> Any:
        result = real(objective, optimizer, feed, **more)
        bad = feed.config.seed == 2 and not feed.config.objective.uses_generator
        return replace(result, finite=False) if bad else result

    monkeypatch.setattr(fast_step, "train_step", broken)
    summary = run(data, tmp_path / "exp", steps=12)
    assert states(summary) == ["done", "done", "done", "failed"]
    assert "not a finite number" in summary.failed["mlm"][2]
    result = results(tmp_path / "exp")["mlm-2"]
    assert result["scores"] == {} and result["facts"]["steps"] == 10
    assert summary.rows["mlm"]["held-out/loss"].n == 1 and summary.rows["electra"]["held-out/loss"].n == 2
    assert all(one.found.t_interval is None for one in summary.contrasts)
    assert "mlm: FAILED: seed 2: the gradient" in (tmp_path / "exp/summary.md").read_text()
    monkeypatch.setattr(fast_step, "train_step", None)
    assert run(data, tmp_path / "exp", steps=12).results == summary.results  # it would diverge again


def test_a_number_that_is_not_finite_is_a_failure(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cells_module.PROBES, "held-out", Probe(lambda _: {"loss": float("nan")}))
    summary = run(data, tmp_path / "exp", seeds=1, arms=("mlm",))
    assert states(summary)[0] == "failed" and "held-out gave loss = nan" in summary.failed["mlm"][1]


NAMES = ("held-out/generator_loss", "held-out/discriminator_auc")


@pytest.fixture(scope="module")
def declared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms and two declared metrics, one of which MLM cannot give."""
    out = tmp_path_factory.mktemp("compare") / "declared"
    run(data, out, arms=("electra", "mlm", "electra-15"), metrics=",".join(NAMES))
    return out


def test_differences_by_hand(declared: Path) -> None:
    """From the results on disk: arm minus reference by seed; Holm over the declared contrasts, those without results included."""
    name = NAMES[0]
    summary = json.loads((declared / "summary.json").read_text())
    found = results(declared)
    by_seed = [found[f"mlm-{seed}"]["scores"][name] - found[f"electra-{seed}"]["scores"][name] for seed in (1, 2)]
    contrasts = summary["contrasts"]
    assert [(row["row"], row["metric"]) for row in contrasts] == [
        ("mlm", NAMES[0]), ("electra-15", NAMES[0]), ("electra-15", NAMES[1]),
    ]  # fmt: skip
    one = contrasts[0]
    assert (one["reference"], one["n"]) == ("electra", 2)
    assert one["mean"] == pytest.approx(sum(by_seed) / 2)
    assert summary["rows"]["mlm"][name]["mean"] == pytest.approx(
        sum(found[f"mlm-{s}"]["scores"][name] for s in (1, 2)) / 2
    )
    ps = sorted(row["p"] for row in contrasts)
    for row in contrasts:  # Holm: the smallest p times 4, the next times 3, ..., and never less than one before
        expected = max(min(1.0, (4 - rank) * p) for rank, p in enumerate(ps) if p <= row["p"])
        assert row["p_holm"] == pytest.approx(expected)


@pytest.mark.parametrize("missing", [True, False])
def test_every_declared_comparison_is_counted_and_reported(declared: Path, tmp_path: Path, missing: bool) -> None:
    """A metric that an arm lacks, and an arm that is missing or failed: Holm counts them, and the page names them."""
    whole = shutil.copytree(declared, tmp_path / "exp")
    for seed in (1, 2):
        path = whole / "cells" / "electra-15" / f"seed-{seed}" / "result.json"
        if missing:
            path.unlink()
        else:
            path.write_text(json.dumps({**json.loads(path.read_text()), "scores": {}, "failed": "it diverged"}))
    left = write_summary(whole)
    assert set(left.unmeasured) == {(NAMES[1], "mlm"), *((name, "electra-15") for name in NAMES)}
    (one,) = left.contrasts
    assert one.p_holm == pytest.approx(min(1.0, 4 * one.found.p))
    page = (whole / "summary.md").read_text()
    assert f"{NAMES[1]} of mlm" in page and f"{NAMES[0]} of electra-15" in page
    assert "Declared and not measured, but counted by Holm's correction: " in page
    assert missing or f"| {NAMES[1]} |" in page


def test_a_default_metric_is_of_arms_that_can_give_it(whole: Path) -> None:
    """Not named: MLM has no discriminator to be declared; one that failed would have had it."""
    assert summarize(whole).unmeasured == []
    experiment, metric = read_declared(whole), "minimal-pairs/discriminator"
    rows = {name: replace(row, metrics=(metric,)) for name, row in experiment.rows.items()}
    declared = replace(experiment, rows=rows)
    given = {metric: 0.5}
    for failed, unmeasured in ((None, []), ("it diverged", [(metric, "mlm")])):
        other = Result(key="mlm", seed=1, scores={"minimal-pairs/pseudo-likelihood": 0.5}, failed=failed)
        results: Any = {"electra": {1: Result(key="electra", seed=1, scores=given)}, "mlm": {1: other}}
        assert Summary(path=whole, declared=declared, results=results).unmeasured == unmeasured


def test_unlike_things_are_not_compared(whole: Path) -> None:
    """MLM of the whole encoder against ELECTRA's small generator: no difference unless it was declared."""
    assert summarize(whole).contrasts == []


def test_words() -> None:
    assert parse_seeds("3") == (1, 2, 3) and parse_seeds("1,2,5") == (1, 2, 5) and parse_seeds("7,") == (7,)
    assert parse_shard("2/4") == (2, 4)
    for bad in ("", "0", "x", "1,,2", "1,1", "-3", ","):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(bad)
    for bad in ("", "0/2", "3/2", "1", "1/", "a/b"):
        with pytest.raises(ConfigError, match="--shard"):
            parse_shard(bad)


PROBE_WORDS = {
    "unknown": (["hold-out"], "Did you mean 'held-out'"),
    "no folder": (["pos"], "--probe pos=DIR"),
    "folder": (["held-out=x"], "reads no folder"),
    "twice": (["held-out", "held-out"], "given twice"),
}


@pytest.mark.parametrize("name", PROBE_WORDS)
def test_wrong_probes(name: str) -> None:
    words, message = PROBE_WORDS[name]
    with pytest.raises(ConfigError, match=message):
        parse_probes(words)


def test_probe_folders_are_looked_at_first(data: Path, tmp_path: Path) -> None:
    for probe in ("pos=nowhere", "minimal-pairs=nowhere"):
        with pytest.raises(MissingInputError, match="nowhere"):
            run(data, tmp_path / "exp", probes=(probe,))
    assert not (tmp_path / "exp").exists()


def test_declared_metrics_need_their_probe(data: Path, tmp_path: Path) -> None:
    """Said before anything is trained: what was declared cannot be changed afterwards."""
    with pytest.raises(ConfigError, match=r"--metrics pos/accuracy: its probe is not requested. Add pos to --probe"):
        run(data, tmp_path / "exp", metrics="pos/accuracy")
    assert not (tmp_path / "exp/experiment.json").exists()


def test_command_from_end_to_end(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Three arms, two seeds, two probes; the tables; the same line again; wrong words."""
    (tmp_path / "config.json").write_text(json.dumps(to_dict(small_config(lanes=1))))
    treebank = write_treebank(tmp_path / "treebank")
    words = [
        "compare", str(data), "--config", str(tmp_path / "config.json"), "--arms", "electra,mlm,untrained", "--flops", "6e8",
        "--seeds", "2", "--out", str(tmp_path / "exp"), "--probe", "held-out", "--probe", f"pos={treebank}", "--device", "cpu",
        "--metrics", "pos/accuracy,held-out/generator_loss", "--optimizer.learning-rate", "2e-3",
    ]  # fmt: skip
    assert main(words) == 0
    out, err = capfd.readouterr()
    assert "[6/6] untrained, seed 2" in err
    assert "pos/accuracy" in out and "95 % Student" in out and str(tmp_path / "exp/summary.md") in out
    found = results(tmp_path / "exp")
    facts = {name: result["facts"] for name, result in found.items()}
    assert facts["mlm-1"]["steps"] > facts["electra-1"]["steps"] > 1
    assert facts["mlm-1"]["flops_paper"] <= 6e8
    page = (tmp_path / "exp/summary.md").read_text()
    assert "| untrained | pos/accuracy |" in page and "cells/mlm/seed-2/run" in page and "amount 6e+08" in page
    assert main([*words, "--quiet"]) == 0
    assert "training" not in capfd.readouterr().err
    for more, message in (
        (["--seed", "3"], "--seeds"),
        (["--metrics", "pos/accuracy"], "metrics"),
        (["--steps", "3"], "--steps and --flops"),
        (["--metrics", "posaccuracy"], "--metrics posaccuracy: Did you mean 'pos/accuracy'?"),
        (["--metrics", "pos/acuracy"], "--metrics pos/acuracy: Did you mean 'pos/accuracy'?"),
        (["--metrics", "seconds,"], "metrics: ("),
    ):
        assert main([*words, *more]) == 78
        err = capfd.readouterr().err
        assert message in err and "Traceback" not in err, more
