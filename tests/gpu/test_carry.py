"""A run in few bytes: what a carried checkpoint keeps, and how little it needs."""

from pathlib import Path

import pytest
import torch
from benchmarks.gpu_carry import CARRIED, packed, rounded, unpacked
from tests.prepared import small_config, write_store

from electra_trainer.runs import checkpoint
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.train.loop import pretrain


def test_rounds_to_the_nearest() -> None:
    given = torch.tensor([0.0, 1.0, 1.124, 1.126, -1.126, 3.9, 1e-30, -0.0])
    assert rounded(given, 2).tolist() == [0.0, 1.0, 1.0, 1.25, -1.25, 4.0, pytest.approx(1e-30, rel=0.125), -0.0]
    assert torch.equal(rounded(given, 23), given) and not rounded(given, -1).any()
    whole = torch.tensor([3, 5])
    assert torch.equal(rounded(whole, 2), whole)


def test_a_run_is_carried(tmp_path: Path) -> None:
    data = write_store(tmp_path / "data")
    run = pretrain(small_config(steps=4), data, out=tmp_path / "run", quiet=True)
    content = packed(run, CARRIED)
    found = RunFolder(unpacked(content, tmp_path / "carried"))
    before, after = (
        checkpoint.of_step(one.checkpoints, origin=one.origin, timed=True) for one in (RunFolder(run), found)
    )
    assert (after.step, after.state, found.config()) == (before.step, before.state, RunFolder(run).config())
    assert after.weights.keys() == before.weights.keys() and after.optimizer.keys() == before.optimizer.keys()
    for name, value in before.weights.items():
        assert (after.weights[name] - value).abs().max() <= 2**-16 * value.abs().max(), name
    for name, value in before.optimizer.items():
        kind, there = name.rpartition("/")[2], after.optimizer[name]
        if kind == "exp_avg":
            assert value.any() and not there.any(), name
        elif kind == "exp_avg_sq":
            assert torch.allclose(there, value, rtol=0.126, atol=0), name
        else:
            assert torch.equal(there, value), name
    folder = run / "checkpoints" / "step-00000004"
    exact = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert len(content) < 0.45 * exact
