"""Which device a process takes, and on which one it waits; GPUs are pretended by their numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from electra_trainer.errors import ConfigError
from electra_trainer.ranks.world import local_device
from electra_trainer.train import static_step
from electra_trainer.train.device import choose_device, choose_precision


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Two GPUs; notes which one is made the current one."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
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
        ("cuda:0", 0, 2, "--device cuda:0: the 2 processes of this machine would all compute on one GPU"),
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
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu" and choose_device("mps").type == "mps"
    assert choose_precision("auto", torch.device("mps")) == "fp32"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"--device mps: .* Use --device cpu"):
        choose_device("mps")
