"""The live bar of a terminal, and the line for a pipe."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from electra_trainer.runs import progress
from electra_trainer.runs.progress import Display

LOSSES = {"loss": 2.5, "generator_loss": 1.25, "discriminator_loss": 0.125, "other": 9.0}
WORDS = "1,234 tokens/s  loss 2.500  gen 1.250  disc 0.125"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    seen = io.StringIO()
    monkeypatch.setattr(progress, "logs", lambda *_: False)
    monkeypatch.setattr(progress, "Terminal", lambda file, **more: Console(file=seen, width=200, **more))
    return seen


def test_a_terminal_has_a_bar(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Console(file=screen, width=200, force_terminal=True)
    monkeypatch.setattr(progress, "Terminal", lambda **_: shown)
    with Display(total=8) as display:
        display.step(3, LOSSES, tokens_per_second=1234.4)
        assert display._bar is not None and display._bar.live.is_started
    assert "3/8" in screen.getvalue() and WORDS in screen.getvalue()
    assert not display._bar.live.is_started
    before = screen.getvalue()
    with Display(total=8, quiet=True) as display:
        display.step(3, LOSSES, tokens_per_second=1.0)
    assert screen.getvalue() == before


def test_a_pipe_has_a_line_now_and_then_and_the_last(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100.0, 100.0, 109.9, 110.0, 110.0, 111.0))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Display(total=8) as display:
        for done in (1, 2, 3, 4):
            display.step(done, LOSSES, tokens_per_second=1234.4, last=done == 4)
    assert screen.getvalue().splitlines() == [f"step {done}/8  {WORDS}" for done in (1, 3, 4)]


@pytest.mark.parametrize(
    ("how", "lines"), [({}, ["said", "warned"]), ({"quiet": True}, ["warned"]), ({"silent": True}, [])]
)
def test_how_much_is_shown(screen: io.StringIO, how: dict[str, bool], lines: list[str]) -> None:
    display = Display(**how)
    display.say("said")
    display.warn("warned")
    assert screen.getvalue().splitlines() == lines
