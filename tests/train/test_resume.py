"""A run that was stopped, however it was, ends where the uninterrupted run ends: same weights, same moments, same curve."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prepared import small_config, write_store
from tests.reliability.children import in_a_child
from tests.reliability.runs import curve
from tests.reliability.whole_runs import words

from electra_trainer.cli.main import main
from electra_trainer.errors import CheckpointError, ConfigError, DataError, Interrupted
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs import run_folder
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import to_dict
from electra_trainer.train import fast_step
from electra_trainer.train.loop import pretrain
from electra_trainer.train.plan import Length


def config(*, lanes: int = 2) -> Config:
    return small_config(lanes=lanes, layers=1)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(), data, out=tmp_path_factory.mktemp("resume") / "whole", device="cpu", quiet=True)


def assert_same_state(one: Path, two: Path) -> None:
    """Step, weights and moments of the newest checkpoints."""
    first, second = (read(numbered(run / "checkpoints")[-1][1]) for run in (one, two))
    assert first.step == second.step
    for mine, theirs in ((first.weights, second.weights), (first.optimizer, second.optimizer)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert torch.equal(mine[name], theirs[name]), name


def assert_same_end(one: Path, two: Path) -> None:
    assert_same_state(one, two)
    assert curve(one) == curve(two)
    assert 0 < curve(one)[-1]["discriminator_standard_auc"] < 1
    assert (one / "examples.jsonl").read_text() == (two / "examples.jsonl").read_text()


@pytest.mark.parametrize("stop_at", range(1, 12))
def test_stop_at_every_step(
    data: Path, whole: Path, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the middle of step `stop_at`: the step is given up, the state before it saved, and the same call resumes."""
    real = fast_step.train_step

    def interrupted(*arguments: Any, step: int, **more: Any) -> Any:
        if step + 1 == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments, step=step, **more)

    monkeypatch.setattr(fast_step, "train_step", interrupted)
    with pytest.raises(Interrupted, match=f"saved at step {stop_at - 1} of 12"):
        pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    monkeypatch.undo()
    pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    assert_same_end(whole, tmp_path / "run")


def test_another_arithmetic_is_reported(
    data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that began with other kernels resumes, and reports it on standard error and in its log; with the same ones it does not."""
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    pretrain(config(), data, out=run, device="cpu", quiet=True)
    assert "resuming in" not in capsys.readouterr().err
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps(facts | {"arithmetic": "bf16 with native kernels (amx)"}))
    pretrain(config(), data, out=run, device="cpu", quiet=True)
    told = f"started in bf16 with native kernels (amx), resuming in {facts['arithmetic']}"
    assert told in capsys.readouterr().err and told in (run / "log.txt").read_text()


def test_a_run_of_an_earlier_version_continues_as_it_began(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last layers are computed at all tokens, under the same command and to the bit."""
    earlier = replace(config(), last_layer="all")
    whole = pretrain(earlier, data, out=tmp_path / "whole", device="cpu", quiet=True)

    def saved(settings: Config) -> dict[str, Any]:
        return {name: value for name, value in to_dict(settings).items() if name != "last_layer"}

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(run_folder, "to_dict", saved)
        patch.setattr(fast_step, "train_step", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
        pretrain(earlier, data, out=tmp_path / "run", device="cpu", quiet=True)
    assert_same_end(whole, pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True))


def test_sigkill_between_checkpoints(data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed hard in another process after a step that no checkpoint holds; its logged rows are computed again, the same."""
    real, run = fast_step.train_step, tmp_path / "run"

    def killed(*arguments: Any, step: int, **more: Any) -> Any:
        if step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, step=step, **more)

    monkeypatch.setattr(fast_step, "train_step", killed)
    ended = in_a_child(lambda: pretrain(config(), data, out=run, device="cpu", quiet=True) and None)
    monkeypatch.undo()
    assert ended == -signal.SIGKILL
    before = curve(run)
    assert before[-1]["step"] == 7
    assert numbered(run / "checkpoints")[-1][0] == 4
    pretrain(config(), data, out=run, device="cpu", quiet=True)
    assert_same_end(whole, run)
    assert curve(run)[: len(before)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_command_saves_and_exits_75(data: Path, tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "electra_trainer", *words(config(), data, run, "--steps", "100000")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"{number.name}: saved at step" in said and "Traceback" not in said


def test_other_settings_or_data_are_refused(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"schedule.steps: 12 -> 13"):
        pretrain(config(), data, out=whole, length=Length(steps=13), device="cpu", quiet=True)
    with pytest.raises(ConfigError, match=r"batch.lanes: 2 -> 1"):
        pretrain(config(lanes=1), data, out=whole, device="cpu", quiet=True)
    other = write_store(tmp_path / "other", vocab_size=300)
    with pytest.raises(DataError, match="trained on other data"):
        pretrain(config(), other, out=whole, device="cpu", quiet=True)


def test_the_same_command_with_another_preset_is_refused(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preset may be another one in a newer version: the same command is no remedy then, the config in the folder is."""
    run = shutil.copytree(whole, tmp_path / "run")
    noted = run / "environment.json"
    began = {"command": ["electra", "pretrain", "D"], "init": {"name": str(whole)}}
    noted.write_text(json.dumps(json.loads(noted.read_text()) | began))
    monkeypatch.setattr(sys, "argv", ["bin/electra", "pretrain", "D"])
    again = f"To resume: electra pretrain {data} --config {run}/config.json --init {whole} --out {run} "
    with pytest.raises(ConfigError, match="began with other settings") as caught:
        pretrain(config(lanes=1), data, out=run, init=InitFrom(name=str(whole)), device="cpu", quiet=True)
    assert again in str(caught.value)
    assert main([*again.split()[3:], "--device", "cpu"]) == 0


def test_a_finished_run_stays_as_it_is(data: Path, whole: Path) -> None:
    before = (whole / "metrics.jsonl").read_bytes()
    pretrain(config(), data, out=whole, device="cpu", quiet=True)
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_damaged_newest_checkpoint_falls_back_loudly(
    data: Path, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    pretrain(config(), data, out=run, device="cpu", quiet=True)
    weights = numbered(run / "checkpoints")[-1][1] / "weights.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(bytes(damaged))
    pretrain(config(), data, out=run, device="cpu")
    assert "Set aside" in capfd.readouterr().err
    assert_same_end(whole, run)
    for _, path in numbered(run / "checkpoints"):
        (path / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match="none of its 3 checkpoints verifies"):
        pretrain(config(), data, out=run, device="cpu", quiet=True)


def test_two_processes_cannot_write_to_one_run(data: Path, tmp_path: Path) -> None:
    from electra_trainer.runs.run_folder import RunFolder

    first = RunFolder(tmp_path / "run")
    first.open_for_writing()
    with pytest.raises(ConfigError, match="another process"):
        pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
