"""`electra replay`: every method and precision, what is left of a run, what cannot be, and what it says."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.command import Electra
from tests.methods.every import METHODS
from tests.prepared import small_config, write_store
from tests.reliability.ranks import run_ranks

from electra_trainer.errors import CheckpointError, DataError, Diverged, MissingInputError
from electra_trainer.inspection.replay import Replayed, replay
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs import run_folder
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.settings.config import Checkpoint, Config, Evaluation
from electra_trainer.train.loop import pretrain


def config(*, steps: int = 4, **changes: Any) -> Config:
    made = small_config(steps=steps)
    changes = {"evaluation": Evaluation(every=steps, rows=0), "checkpoint": Checkpoint(every=2, keep=2), **changes}
    return dataclasses.replace(made, **changes)


@pytest.fixture(scope="module", autouse=True)
def one_revision() -> Iterator[None]:
    """Whoever edits the source while the tests run is not a difference between run and replay."""
    with mock.patch.object(run_folder, "git_revision", lambda: "revision"):
        yield


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps, of which every second is logged; the checkpoints of 4 and 6 are left."""
    out = tmp_path_factory.mktemp("replay") / "run"
    return pretrain(config(steps=6, log_every=2), data, out=out, device="cpu", quiet=True)


def shapes_agree(found: Replayed) -> None:
    for row in found.rows:
        size = len(row.original)
        assert len(row.masked_input) == len(row.shown) == len(row.masked) == size
        changed = [at for at in range(size) if row.shown[at] != row.original[at]]
        assert all(row.masked[at] for at in changed) and sum(row.masked) >= len(changed)
        assert row.documents and row.documents[0].begin == 0 and row.documents[-1].end == size


@pytest.mark.parametrize(
    "name",
    [
        "mlm", "replace-mlm", "all-tokens-mlm", "adversarial", "rtd-mlm", "sentence-contrast", "unigram", "rtd other",
        "two-stage", "rare", "sums", "hard-mlm",
    ],
)  # fmt: skip
def test_every_method(data: Path, tmp_path: Path, name: str) -> None:
    made = METHODS[name](config())
    pretrain(made, data, out=tmp_path / "run", device="cpu", quiet=True)
    for step in range(1, 5):
        found = replay(tmp_path / "run", step=step)
        assert found.identical and not found.reservations, (step, found.differences, found.reservations)
        shapes_agree(found)
        assert any(row.shown != row.original for row in found.rows)
        generator_alone = name == "mlm" or (name == "two-stage" and step <= 2)
        assert all((row.corrupted is None) == generator_alone for row in found.rows)


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"deterministic": True}], ids=str)
def test_as_the_run_ran(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    pretrain(config(steps=3, **changes), data, out=tmp_path / "run", device="cpu", quiet=True)
    found = replay(tmp_path / "run", step=2)
    assert found.identical and not found.reservations
    assert found.result.metrics["loss"] > 0


def test_a_run_of_two_processes(data: Path, tmp_path: Path) -> None:
    """One process computes the bits of two where gradients are added in a fixed tree; else it says what is different."""
    for deterministic in (True, False):
        made, out = config(steps=3, deterministic=deterministic), tmp_path / str(deterministic)
        codes = run_ranks(
            2, lambda _, made=made, out=out: pretrain(made, data, out=out, device="cpu", quiet=True) and None
        )
        assert codes == [0, 0]
        found = replay(out, step=3)
        assert len(found.rows) == 8 and {row.lane for row in found.rows} == {0, 1}
        if deterministic:
            assert found.identical and not found.reservations
        else:
            assert found.reservations == ["processes: 2 in the run, 1 here."]


def test_what_is_not_logged_has_nothing_to_compare_with(run: Path, electra: Electra) -> None:
    found = [replay(run, step=step) for step in (5, 6)]
    assert [one.identical for one in found] == [None, True] and found[0].recorded is None
    assert [one.began for one in found] == [4, 4]
    assert found[0].computed.keys() == found[1].computed.keys()
    code, out, _ = electra("replay", run, "--step", 5, "--rows", 0)
    assert code == 0 and "has no row of this step: nothing to compare with" in out and "0 of 8 rows" in out


def test_a_step_before_the_first_checkpoint(run: Path, electra: Electra) -> None:
    assert min(step for step, _ in numbered(run / "checkpoints")) == 4
    found = replay(run, step=2)
    assert (found.began, found.identical) == (0, True)
    code, out, err = electra("replay", run, "--step", 4, "--rows", 1)
    assert code == 0 and "training again from step 0 to 3 (3 steps)" in err
    assert "from the initial weights, 3 steps in between trained again" in out
    assert "were reproduced, to the last bit" in out


def test_what_a_person_reads(run: Path, electra: Electra) -> None:
    found = replay(run, step=6)
    code, out, _ = electra("replay", run, "--step", 6)
    assert code == 0 and out.count("\nrow ") == 4 and "4 of 8 rows" in out
    first = found.rows[0]
    assert first.documents is not None
    part = first.documents[0].place
    assert f"{part.file}:{part.line}, document {part.number} of the file" in out
    at = next(at for at in range(len(first.original)) if first.original[at] != first.shown[at])
    assert f"[{first.original[at]}→{first.shown[at]}]" in out


def test_what_a_machine_reads(run: Path, electra: Electra) -> None:
    found = replay(run, step=6)
    code, out, _ = electra("replay", run, "--step", 6, "--json")
    told = json.loads(out)
    assert code == 0 and told["identical"] is True and told["reservations"] == []
    assert (told["step"], told["checkpoint"]) == (6, 4)
    assert told["computed"] == found.computed and len(told["rows"]) == 8
    row, part = told["rows"][3], found.rows[3].documents[0]
    assert row["corrupted"] == found.rows[3].corrupted and row["documents"][0]["place"] == part.place._asdict()


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        (["--step", "0"], 78, "expected 1 to 6, the steps of"),
        (["--step", "7"], 78, "expected 1 to 6, the steps of"),
        (["--step", "6", "--rows", "-1"], 78, "expected 0 or more"),
        (["--step", "6", "--data", "nowhere"], 66, "nowhere: not the rows that"),
        ([], 78, "--step"),
    ],
)
def test_what_cannot_be(run: Path, electra: Electra, words: list[str], expected: int, said: str) -> None:
    code, out, err = electra("replay", run, *words)
    assert code == expected and said in (out + err).replace("\n", " ")


def test_the_rows_have_to_be_those_of_the_run(run: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the rows that"):
        replay(run, step=6, data=write_store(tmp_path / "other", length=16))
    moved = shutil.copytree(run, tmp_path / "moved")
    facts = json.loads((moved / "environment.json").read_text())
    (moved / "environment.json").write_text(json.dumps({**facts, "data_folder": "gone"}))
    with pytest.raises(
        MissingInputError, match=r"gone: not the rows that .*moved was trained on\. Give their folder with --data"
    ):
        replay(moved, step=6)
    assert replay(moved, step=6, data=data).identical


def test_a_damaged_checkpoint_is_passed_over_and_left_alone(run: Path, tmp_path: Path, electra: Electra) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    weights = copy / "checkpoints/step-00000004/weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-9] ^= 4
    weights.write_bytes(content)
    code, out, err = electra("replay", copy, "--step", 6, "--rows", 0)
    assert code == 0 and "Trying the checkpoint before it" in err and "from the initial weights, 5 steps" in out
    assert "to the last bit" in out and weights.read_bytes() == content


def test_it_says_what_is_different_here(run: Path, tmp_path: Path, electra: Electra) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    facts = json.loads((copy / "environment.json").read_text())
    other = {"torch": "1.0", "device": "cuda", "gpu": "GPU X", "processes": 4, "arithmetic": "fp32 with native kernels"}
    facts |= other
    (copy / "environment.json").write_text(json.dumps(facts))
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    rows[-1]["loss"] += 1e-6
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = replay(copy, step=6, device="cpu")
    assert list(found.differences) == ["loss"] and found.identical is False
    told = " ".join(found.reservations)
    assert all(f"{name}: {value} in the run, " in told for name, value in other.items())
    assert "device: cuda in the run, cpu here." in told and "processes: 4 in the run, 1 here." in told
    code, out, _ = electra("replay", copy, "--step", 6, "--rows", 0, "--device", "cpu")
    assert code == 0 and "NOT the same as in metrics.jsonl: loss" in out and "torch: 1.0" in out


def test_weights_that_a_run_began_with(run: Path, data: Path, tmp_path: Path) -> None:
    """Only checkpoints 2 and 4 are left; for step 1 the weights are read again where the run read them."""
    first = shutil.copytree(run, tmp_path / "first")
    init = InitFrom(name=str(first))
    pretrain(config(), data, out=tmp_path / "second", init=init, device="cpu", quiet=True)
    found = replay(tmp_path / "second", step=1)
    assert (found.began, found.identical) == (0, True)
    pretrain(config(seed=9), data, out=tmp_path / "third", device="cpu", quiet=True)
    shutil.rmtree(first)
    shutil.copytree(tmp_path / "third", first)
    assert replay(tmp_path / "second", step=3).identical
    with pytest.raises(CheckpointError, match="which have changed since"):
        replay(tmp_path / "second", step=1)


def test_the_step_that_stopped_a_run(data: Path, tmp_path: Path, electra: Electra) -> None:
    """A learning rate far too high: the message points here, and here the rows are named."""
    made = config(steps=30, log_every=1)
    made = dataclasses.replace(made, optimizer=dataclasses.replace(made.optimizer, learning_rate=1e30))
    out = tmp_path / "run"
    with pytest.raises(Diverged, match=r"shown by `electra replay \S+ --step \d+`") as stopped:
        pretrain(made, data, out=out, device="cpu", quiet=True)
    step = int(str(stopped.value).split("--step ")[1].split("`")[0])
    assert f"electra replay {out} --step {step}" in (out / "log.txt").read_text()
    before = numbered(out / "checkpoints")
    found = replay(out, step=step)
    assert not found.result.finite and found.identical is None and len(found.rows) == 8
    bad = [row.row for row in found.rows if not row.finite]
    assert bad
    shapes_agree(found)
    code, shown, _ = electra("replay", out, "--step", step)
    assert code == 0 and f"NaN or infinite in rows {bad[0]}" in shown and "NaN OR INFINITE" in shown
    told = json.loads(electra("replay", out, "--step", step, "--json")[1], parse_constant=pytest.fail)
    assert told["finite"] is False and "nan" in told["computed"].values()
    assert numbered(out / "checkpoints") == before


def test_from_python(run: Path) -> None:
    import electra_trainer

    found = electra_trainer.replay(run, step=6)
    assert found.identical and not torch.is_inference_mode_enabled()
