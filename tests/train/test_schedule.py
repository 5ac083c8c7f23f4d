"""The learning rate at every step, against the formulas of the shapes."""

from __future__ import annotations

import pytest

from electra_trainer.settings.config import Schedule
from electra_trainer.train.optim import learning_rate

PEAK = 2e-4


def rates(schedule: Schedule) -> list[float]:
    return [learning_rate(step, peak=PEAK, schedule=schedule) for step in range(schedule.steps)]


def test_released_shape_is_the_product_of_both_ramps() -> None:
    for step, rate in enumerate(rates(Schedule(steps=1000, warmup_steps=100))):
        t = step + 1
        assert rate == pytest.approx(PEAK * (1 - t / 1000) * min(1.0, t / 100), rel=1e-9, abs=1e-20)


def test_linear_shape_reaches_the_peak_once() -> None:
    found = rates(Schedule(steps=1000, warmup_steps=100, shape="linear"))
    for step, rate in enumerate(found):
        t = step + 1
        expected = PEAK * t / 100 if t <= 100 else PEAK * (1000 - t) / 900
        assert rate == pytest.approx(expected, rel=1e-9, abs=1e-20)
    assert found.count(PEAK) == 1 and max(found) == PEAK


def test_wsd_is_flat_between_warm_up_and_decay() -> None:
    found = rates(Schedule(steps=1000, warmup_steps=100, shape="wsd", decay_share=0.2))
    assert found[:100] == pytest.approx([PEAK * t / 100 for t in range(1, 101)])
    assert found[99:800] == [PEAK] * 701
    assert found[800:] == pytest.approx([PEAK * (200 - t) / 200 for t in range(1, 201)], rel=1e-9)
    longer = rates(Schedule(steps=2000, warmup_steps=100, shape="wsd", decay_share=0.2))
    assert longer[:800] == found[:800]  # so a run can go on, or decay from any step


def test_wsd_decays_from_the_peak_where_warm_up_takes_the_rest() -> None:
    wsd, linear = (Schedule(steps=10, warmup_steps=4, shape=shape, decay_share=0.6) for shape in ("wsd", "linear"))  # type: ignore[arg-type]
    assert rates(wsd) == pytest.approx(rates(linear))


@pytest.mark.parametrize("shape", ["released", "linear", "wsd"])
@pytest.mark.parametrize(("steps", "warmup"), [(10, 0), (10, 10), (1, 0), (1, 1), (7, 3)])
def test_every_schedule(shape: str, steps: int, warmup: int) -> None:
    """Never negative, never above the peak, up to one point and down after it."""
    schedule = Schedule(steps=steps, warmup_steps=warmup, shape=shape)  # type: ignore[arg-type]
    found = rates(schedule)
    assert all(0 <= rate <= PEAK for rate in found)
    top = found.index(max(found))
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_the_first_step_moves_and_the_end_is_zero() -> None:
    for shape in ("released", "linear", "wsd"):
        schedule = Schedule(steps=50, warmup_steps=5, shape=shape)  # type: ignore[arg-type]
        assert learning_rate(0, peak=PEAK, schedule=schedule) > 0
        assert learning_rate(49, peak=PEAK, schedule=schedule) == 0
        assert learning_rate(60, peak=PEAK, schedule=schedule) == 0
