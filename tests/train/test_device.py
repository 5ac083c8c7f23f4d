"""Choice of a process's device, and of the one on which it waits; GPUs are pretended by their numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from electra_trainer.errors import ConfigError
from electra_trainer.randomness import Rng
from electra_trainer.ranks.world import local_device
from electra_trainer.train import device, static_step
from electra_trainer.train.device import choose_device, choose_precision


def card(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = (9, 0), built: str = "sm_80 sm_90") -> None:
    """GPUs of one architecture, and a PyTorch that was built for some."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", built.split)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Two GPUs; notes which one is made the current one."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    card(monkeypatch)
    return chosen


def test_a_gpu_with_a_number_becomes_the_current_one(current: list[torch.device]) -> None:
    assert choose_device("cuda").index is None and choose_device("cpu").type == "cpu" and not current
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1)]
    with pytest.raises(ConfigError, match="--device cuda:2: GPUs are counted from 0, and PyTorch finds 2 here"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("device", "rank", "processes", "found"),
    [
        ("cuda", 1, 2, torch.device("cuda", 1)),
        ("cpu", 5, 8, torch.device("cpu")),
        ("cuda:1", 0, 1, torch.device("cuda", 1)),
        ("cuda", 2, 4, "4 processes were started on this machine, and PyTorch finds 2 GPUs"),
    ],
)
def test_each_process_of_a_machine_has_a_gpu(
    device: str,
    rank: int,
    processes: int,
    found: torch.device | str,
    current: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    if isinstance(found, torch.device):
        assert local_device(torch.device(device)) == found
        assert current == [found] or device != "cuda"
    else:
        with pytest.raises(ConfigError, match=found):
            local_device(torch.device(device))


def test_a_copy_is_waited_for_on_the_device_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []

    class Event:
        def record(self, stream: object = "the current device's") -> None:
            recorded.append(stream)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"that of {device}")
    static_step._reached(torch.device("cuda", 1))
    assert recorded == ["that of cuda:1"]


def test_a_mac_s_gpu_is_taken_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.mps, "manual_seed", seeds.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"--device mps: .* Use --device cpu"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == "cpu" and choose_device("mps").type == "mps"
    assert choose_precision("auto", torch.device("mps")) == "fp32"
    for step in (3, 3, 4):
        Rng(seed=1, step=step, lane=0).seed_dropout()
    assert seeds[0] == seeds[1] != seeds[2] == torch.initial_seed()


@pytest.mark.parametrize("name", ["gpu", "cuda:x"])
def test_another_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--device '{name}': expected auto, cpu, cuda, cuda:N or mps"):
        choose_device(name)


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((7, 0), "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120", False),  # V100, PyPI's wheel
        ((6, 1), "sm_75 sm_80", False),  # Pascal
        ((7, 5), "sm_75 sm_80", True),  # T4
        ((8, 9), "sm_75 sm_80 sm_86", True),  # binaries run on the same major version
        ((8, 0), "sm_86 sm_90", False),  # and not on a lower minor one
        ((12, 0), "sm_80 sm_90 compute_90", True),  # the driver compiles for newer ones
        ((9, 0), "sm_90a", True),
    ],
)
def test_a_gpu_that_pytorch_has_no_code_for_is_refused(
    capability: tuple[int, int], built: str, runs: bool, current: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    card(monkeypatch, capability, built)
    if runs:
        assert choose_device("auto").type == "cuda"
    else:
        with pytest.raises(ConfigError, match=r"has no code for a card \(sm_.*pytorch.org.*--device cpu"):
            choose_device("auto")


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_driver_that_pytorch_cannot_use_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch finds no GPU then, and training on the CPU would be a surprise."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(device, "_CONTROL", (tmp_path / "nothing", tmp_path))  # the second as under WSL 2
    monkeypatch.setattr(device, "driver", lambda: "535.1")
    with pytest.raises(ConfigError, match=r"cannot use the NVIDIA driver 535.1 .* needs 580 or newer"):
        choose_device(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert choose_device("auto").type == "cpu"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(device, "_CONTROL", (tmp_path / "nothing",))  # a container that was given no GPU
    assert choose_device("auto").type == "cpu"


def test_a_gpu_is_described_with_those_that_stay_idle(current: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="a card", total_memory=80e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: properties)
    monkeypatch.setattr(device, "driver", lambda: "580.1")
    idle = "a card (80 GB, driver 580.1; 1 more GPU unused: --processes 2 takes all)"
    assert device.describe(torch.device("cuda")) == idle and not device.describe(torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert device.describe(torch.device("cuda")) == "a card (80 GB, driver 580.1)"


def test_a_gpu_that_is_slow_in_bf16_computes_in_fp32_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    where = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert choose_precision("auto", where) == "fp32"
    assert device.arithmetic("fp32", where) == "fp32, since this GPU is slow in bf16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert choose_precision("auto", where) == "bf16" and device.arithmetic("fp32", where) == "fp32"
