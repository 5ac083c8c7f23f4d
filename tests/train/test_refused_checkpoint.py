"""A checkpoint that cannot be had now, or is of something else, stays as it is; one whose content is odd is a sentence that names the field."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from tests.train.test_checkpoint import FILES, RUN, assert_same, load, made, reseal, reseal_files, save_steps

from electra_trainer.errors import CheckpointError, StorageError
from electra_trainer.runs.checkpoint import numbered, of_step, save
from electra_trainer.runs.verified import PIECE, TensorFile, Unfit, read


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("file", FILES)
def test_a_disk_that_does_not_answer_costs_nothing(
    code: int, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_steps(tmp_path, 1, 2)
    real = os.open

    def ill(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(file):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **more)

    for look in (lambda: load(tmp_path), lambda: of_step(tmp_path, origin=RUN)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", ill)
            with pytest.raises(StorageError, match=f"step-00000002/{file}: cannot be read now .*Nothing was changed"):
                look()
        assert names(tmp_path) == ["step-00000001", "step-00000002"]
        assert_same(load(tmp_path), made(2))


def test_a_read_that_fails_half_way_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_steps(tmp_path, 1, 2)

    def ill(descriptor: int) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", ill)
        with pytest.raises(StorageError, match="cannot be read now"):
            load(tmp_path)
    assert_same(load(tmp_path), made(2))


SETTINGS = {"schedule": {"steps": 12, "warmup_steps": 3}, "seed": 7}
KNOWN = replace(RUN, config=SETTINGS, data={"train_sha256": "a"})


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"run_id": "run-2"}, "belongs to another run"),
        ({"config_sha256": "3" * 64}, "config.json of the run has now. Put config.json back"),
        (
            {"config_sha256": "3" * 64, "config": {"schedule": {"steps": 14, "warmup_steps": 3}, "seed": 7}},
            r"config.json of the run has now \(schedule.steps: 12 -> 14\). Put config.json back as it was",
        ),
        (
            {"data_sha256": "3" * 64, "data": {"train_sha256": "b"}},
            r"environment.json of the run has now \(train_sha256: 'a' -> 'b'\)",
        ),
    ],
)
def test_what_a_run_is_does_not_fit_and_nothing_is_renamed(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, made(step), origin=KNOWN, keep=9)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=said):
            load(tmp_path, origin=replace(KNOWN, **changes))
        assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert_same(load(tmp_path, origin=KNOWN), made(2))


def test_a_stranger_among_ones_own_is_passed_by_and_makes_room_when_its_name_is_needed(tmp_path: Path) -> None:
    save_steps(tmp_path, 1, 2)
    reseal(tmp_path / "step-00000002", run_id="run-2")
    warnings: list[str] = []
    assert_same(load(tmp_path, warnings), made(1))
    assert len(warnings) == 1 and "another run" in warnings[0] and "stays where it is; step 1 is taken" in warnings[0]
    save_steps(tmp_path, 2)
    assert_same(load(tmp_path, warnings), made(2))
    assert [name[: len(".other-step-00000002")] for name in names(tmp_path)] == [
        ".other-step-00000002",
        "step-00000001",
        "step-00000002",
    ]


def test_a_newer_format_is_left_to_the_version_that_wrote_it(tmp_path: Path) -> None:
    save_steps(tmp_path, 1)
    reseal(tmp_path / "step-00000001", format=3)
    with pytest.raises(CheckpointError, match="Use the version that wrote it"):
        load(tmp_path)
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize(
    "state, said",
    [
        (b"[]", r"is \[\], expected a JSON object"),
        (b"3", "is 3, expected a JSON object"),
        (b"{}", "seconds is None, expected"),
        (b'{"seconds": NaN}', "seconds is nan, expected"),
        (b'{"seconds": "1"}', "seconds is '1', expected"),
        (b'{"seconds": true}', "seconds is True, expected"),
        (b'{"seconds": -1}', "seconds is -1, expected"),
        (b'{"seconds": 1, "bad_steps": []}', r"bad_steps is \[\], expected"),
        (b"{", "not valid JSON"),
        (b"[" * 100_000, r"not valid JSON \(nested too deeply\)"),
    ],
)
def test_an_odd_state_is_reported_by_file_and_field(state: bytes, said: str, tmp_path: Path) -> None:
    _, new = save_steps(tmp_path, 1, 2)
    (new / "state.json").write_bytes(state)
    reseal_files(new)
    with pytest.raises(CheckpointError, match=rf"state\.json(:1)?: {said}|state\.json(:1)?: is {said}"):
        read(new, timed=True)
    assert_same(load(tmp_path), made(1))
    assert not new.exists()


def test_numbers_of_a_type_that_is_never_saved(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    weights = {**made(1).weights, "b.bias": torch.zeros(2, dtype=torch.float8_e5m2)}
    (path / "weights.safetensors").write_bytes(safetensors.torch.save(weights))
    reseal_files(path)
    with pytest.raises(CheckpointError, match=r"'b\.bias' holds torch\.float8_e5m2, which no checkpoint"):
        read(path)


def test_a_damaged_checkpoint_that_cannot_be_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = save_steps(tmp_path, 1)
    (path / "state.json").write_text("{")
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(StorageError, match="step-00000001"):
        load(tmp_path)
    assert path.exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_reported(value: float, tmp_path: Path) -> None:
    _, new = save_steps(tmp_path, 1, 2)
    weights = {**made(2).weights, "b.bias": torch.tensor(value)}
    (new / "weights.safetensors").write_bytes(safetensors.torch.save(weights))
    reseal_files(new)
    with pytest.raises(Unfit, match=r"weights\.safetensors: 'b\.bias' holds NaN or infinite values"):
        read(new)
    assert_same(of_step(tmp_path, origin=RUN), made(1))
    assert [step for step, _ in numbered(tmp_path)] == [1, 2]


def test_a_file_larger_than_its_network_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a manifest that fits: its size says enough."""
    network = torch.nn.Linear(3, 4)
    _, new = save_steps(tmp_path, 1, 2)
    entry = json.loads((new / "manifest.json").read_text())["files"]
    with (new / "weights.safetensors").open("wb") as sparse:
        sparse.truncate(1 << 40)
    reseal(new, files={**entry, "weights.safetensors": {"bytes": 1 << 40, "sha256": "0" * 64}})
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: has 1,099,511,627,776 bytes, .* It was not read"):
        read(new, network=lambda: network)
    assert new.exists()


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": torch.zeros(())},
        {"empty": torch.zeros(0, 3), "b": torch.arange(7)},
        {"z.é": torch.randn(5, 3).T, "a": torch.arange(5), "m": torch.randn(3).to(torch.bfloat16), "f": torch.tensor([True])},
        {"large": torch.randn(PIECE // 2 + 3), "small": torch.randn(3), "second": torch.randn(PIECE // 4)},
    ],
    ids=["none", "scalar", "empty", "mixed", "large"],
)  # fmt: skip
def test_a_tensor_file_is_byte_for_byte_the_librarys(tensors: dict[str, torch.Tensor]) -> None:
    pieces = list(TensorFile(tensors))
    whole = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
    assert b"".join(pieces) == whole
    assert all(len(piece) <= PIECE + len(TensorFile(tensors)._header) for piece in pieces)
