"""Runs in one step against each alone: same weights, moments and metrics; in `compare` the same folders, also after a signal."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.prepared import small_config
from tests.small import config, feed

from electra_trainer import api
from electra_trainer.errors import Interrupted
from electra_trainer.experiments.summary import Summary
from electra_trainer.objectives import build
from electra_trainer.settings.config import BatchShape, Config, Masking
from electra_trainer.settings.methods import MLM, RTD, Learned, RtdMLM
from electra_trainer.train import stacked
from electra_trainer.train.optim import build_optimizer, optimizer_tensors
from electra_trainer.train.step import train_step

MODERN = replace(config().model, block="modern", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CASES: dict[str, dict[str, Any]] = {
    "rtd, dropout, adam, lanes": {"batch": BatchShape(size=12, sequence_length=24, lanes=2)},
    "mini": {"model": MODERN, "objective": RtdMLM(), "sharing": "disentangled", "optimizer": {"name": "muon"}},
    "demo": {"model": replace(MODERN, hidden_size=16), "objective": RtdMLM(), "masking": Masking(fraction=0.45)},
    "mlm, adamw, dropout": {"objective": MLM(), "optimizer": {"name": "adamw"}},
    "other tokens, lamb": {"objective": RTD(loss_over="other"), "optimizer": {"name": "lamb", "clip_norm": 0.01}},
    "warm": {"generator": Learned(width=0.5, temperature=1.5, disallow_correct=True)},
}


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No native kernels, whose dropout draws other numbers."""
    monkeypatch.setattr("electra_trainer.kernels.native.layers.kernels", lambda _: None)
    monkeypatch.setattr("electra_trainer.kernels.native.native_softmax.kernels", lambda _: None)


def test_a_loss_that_is_left_out_is_another_shape() -> None:
    its = replace(config(), objective=RtdMLM(), batch=BatchShape(size=5, sequence_length=24))
    other = replace(its, objective=RtdMLM(corrective_weight=0.3))
    pairs = replace(its, objective=RtdMLM(neighbour_weight=0.1), batch=BatchShape(size=4, sequence_length=24))
    assert stacked.shape_of(its) == stacked.shape_of(other)
    assert stacked.shape_of(replace(its, batch=pairs.batch)) != stacked.shape_of(pairs)


@pytest.mark.parametrize("case", CASES)
def test_each_run_equals_its_lone_one(case: str, plain: None) -> None:
    """Seeds, rates and weights of losses differ, and the second run is a step ahead; a gradient that is not finite stops its run alone."""
    changes = {**CASES[case]}
    optimizer = replace(config().optimizer, **changes.pop("optimizer", {}))
    settings = replace(config(), **changes)
    runs, lone = [], []
    for seed in (1, 2, 3):
        weight = {"weight": 50.0 / seed} if hasattr(settings.objective, "weight") else {}
        objective = replace(settings.objective, **weight)
        its = replace(settings, seed=seed, objective=objective, optimizer=replace(optimizer, learning_rate=1e-3 / seed))
        for found in (runs, lone):
            network = build(its).train()
            moves = build_optimizer(network, its.optimizer)
            found.append(SimpleNamespace(network=network, optimizer=moves, feed=feed(its), config=its, step=seed % 2))
    assert len({stacked.shape_of(run.config).objective for run in runs}) == 1
    together = stacked.StackedStep(runs)
    for number in range(4):
        if number == 2:  # a weight that makes no finite loss, in the second run
            for run in (runs[1], lone[1]):
                run.network.get_parameter(next(iter(dict(run.network.named_parameters())))).data[5] = float("nan")
        for run, other, result in zip(runs, lone, together(diagnose=True), strict=True):
            expected = train_step(other.network, other.optimizer, other.feed, step=other.step, diagnose=True)
            assert result.finite == expected.finite == (number < 2 or run is not runs[1])
            if result.finite:
                assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=2e-5)
                for (
                    name,
                    metric,
                ) in expected.metrics.items():  # the AUC counts pairs: a logit of the last bit may move one
                    assert result.metrics[name] == pytest.approx(metric, rel=1e-5, abs=1e-3 if "auc" in name else 1e-6)
            run.step, other.step = run.step + 1, other.step + 1
    for run, other in zip(runs, lone, strict=True):
        for name, weight in other.network.named_parameters():
            torch.testing.assert_close(run.network.get_parameter(name), weight, rtol=1e-5, atol=1e-6, equal_nan=True)
        moments = optimizer_tensors(run.network, run.optimizer)
        for name, moment in optimizer_tensors(other.network, other.optimizer).items():
            torch.testing.assert_close(moments[name], moment, rtol=1e-4, atol=1e-6)


def compared(data: Path, out: Path, **changes: Any) -> Summary:
    settings: Config = replace(small_config(lanes=1), precision=changes.pop("precision", "fp32"))
    words = {"arms": "electra,mlm", "seeds": 2, "steps": 8, "device": "cpu", "quiet": True, **changes}
    return api.compare(data, out=out, preset=settings, **words)


def test_compare_leaves_the_folders_of_lone_runs(
    data: Path, tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted once, with a rate that is swept: four runs of one shape in a step."""
    words: dict[str, Any] = {"sweep": ("optimizer.learning-rate=1e-3,2e-3",)}
    real, sizes = stacked.StackedStep.__call__, list[int]()

    def interrupted(step: stacked.StackedStep, **more: Any) -> Any:
        sizes.append(len(step.runs))
        if len(sizes) == 3:
            signal.raise_signal(signal.SIGTERM)
        return real(step, **more)

    monkeypatch.setattr(stacked.StackedStep, "__call__", interrupted)
    with pytest.raises(Interrupted, match="saved at step 3 of 8"):
        compared(data, tmp_path / "stacked", parallel="stacked", **words)
    compared(data, tmp_path / "stacked", parallel="stacked", **words)
    assert sizes == [4] * 8 * 2
    compared(data, tmp_path / "lone", **words)
    assert len(sizes) == 16
    files = {path.relative_to(tmp_path / "lone") for path in (tmp_path / "lone").rglob("*") if path.is_file()}
    assert files == {p.relative_to(tmp_path / "stacked") for p in (tmp_path / "stacked").rglob("*") if p.is_file()}
    for file in files:
        one, other = tmp_path / "stacked" / file, tmp_path / "lone" / file
        if file.name == "config.json":
            assert one.read_bytes() == other.read_bytes()
        if file.name == "weights.safetensors":
            torch.testing.assert_close(load_file(one), load_file(other), rtol=1e-5, atol=1e-6)
        if file.name == "metrics.jsonl":
            rows = [[json.loads(line)["step"] for line in path.read_text().splitlines()] for path in (one, other)]
            assert rows[0] == rows[1]
    log = (tmp_path / "stacked/cells/mlm+optimizer.learning-rate=0.002/seed-2/run/log.txt").read_text()
    assert "computed in one step with 3 other runs" in log


def test_what_is_not_stacked_is_trained_alone(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compared(data, tmp_path / "exp", arms="unigram", parallel="stacked", steps=2, quiet=False)
    assert (
        "trained alone: what is stacked is joint training by rtd, rtd-mlm, replace-mlm or mlm, with a learned"
        in capsys.readouterr().err
    )
