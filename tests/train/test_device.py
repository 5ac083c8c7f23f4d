"""Which device a process takes, and on which one it waits; GPUs are pretended by their numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from electra_trainer.errors import ConfigError
from electra_trainer.train import static_step
from electra_trainer.train.device import choose_device


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


def test_a_copy_is_waited_for_on_the_device_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []

    class Event:
        def record(self, stream: object = "the current device's") -> None:
            recorded.append(stream)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"that of {device}")
    static_step._reached(torch.device("cuda", 1))
    assert recorded == ["that of cuda:1"]
