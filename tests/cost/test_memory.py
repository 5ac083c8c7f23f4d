"""Memory against what was measured, and bytes that a step moves."""

import pytest

from electra_trainer.cost.parameters import memory_bytes, parameters
from electra_trainer.presets import models
from electra_trainer.settings.config import Config, changed


@pytest.mark.parametrize(
    ("name", "block", "rows", "measured"),
    [
        ("small", "modern", 16, 1.18),
        ("bert_small", "modern", 16, 1.04),
        ("small", "bert", 16, 1.27),
        ("bert_small", "bert", 16, 1.07),
        ("base", "bert", 2, 4.45),
    ],
)
def test_memory_is_near_what_was_measured(name: str, block: str, rows: int, measured: float) -> None:
    """GB that the process grew by in two or three steps with Adam on a CPU, fp32, without 0.3 that are the library's own."""
    config = changed(models.preset(name), model={"block": block}, batch={"size": rows, "lanes": 1})
    assert memory_bytes(config) / 1e9 == pytest.approx(measured, rel=0.25)


def test_memory_follows_the_lane_and_not_the_batch() -> None:
    small = models.small()
    halved, doubled = changed(small, batch={"lanes": 2}), changed(small, batch={"size": 256, "lanes": 2})
    assert memory_bytes(doubled) == memory_bytes(small)
    assert 16 * parameters(small).joint < memory_bytes(halved) < 0.6 * memory_bytes(small)


@pytest.mark.parametrize(
    ("name", "rows", "lanes", "reserved"), [("small", 128, 1, 3.03), ("base", 64, 1, 20.34), ("base", 64, 2, 12.18)]
)
def test_memory_of_a_gpu_is_near_what_the_allocator_reserved(name: str, rows: int, lanes: int, reserved: float) -> None:
    """GB of PyTorch 2.13's allocator on a pretended card: compiled, recorded, bf16. No real card has been measured."""
    config = changed(models.preset(name), batch={"size": rows, "lanes": lanes})
    assert memory_bytes(config, gpu=2) / 1e9 == pytest.approx(reserved, rel=0.1)
    assert memory_bytes(config, gpu=2) < 0.65 * memory_bytes(config, gpu=4) < memory_bytes(config)


def test_a_softmax_over_all_tokens_is_made_a_chunk_at_a_time() -> None:
    """10,000 more words cost their parameters' state and a generator's logits, nothing at the other tokens."""

    def with_words(words: int) -> Config:
        return changed(models.preset("base_all_tokens_mlm"), model={"vocab_size": words})

    few, many = with_words(20_000), with_words(30_000)
    state = 16 * (parameters(many).joint - parameters(few).joint)
    logits = 4 * 4 * 10_000 * 77 * few.lane_size
    assert memory_bytes(many) - memory_bytes(few) == state + logits
