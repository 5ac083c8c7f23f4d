"""`electra demo`: vocabulary, rows, pre-training and scored sentences on text that is already installed."""

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from electra_trainer.settings.request import Request

if TYPE_CHECKING:
    from electra_trainer.settings.config import Config

_EXCHANGED = 1_000
"""Held-out sentences in which a word is exchanged, at most: a hundred would leave the share a standard error of 5
points.
"""
_SHOWN = 3
_BEYOND = 10.0
"""Seconds beyond the planned ones after which training ends: the machine may have become slower."""
_AFTERWARDS = 5.0
"""Seconds for the report and the sentences."""
_EVERY = 500
"""Steps from one evaluation and save to the next; twenty of both in a run would take a tenth of the time."""
_FEW = 250
"""Fewer steps have hardly begun to learn: 100 have an AUC on standard fakes of 0.545 (tests/cli/test_demo.py)."""
_LEAST = 20.0
"""The fewest seconds of training, however long the rest took."""


_say = partial(print, flush=True)


@dataclass(frozen=True, kw_only=True)
class Demo(Request):
    """Pre-train a tiny ELECTRA on this machine in a few minutes: vocabulary, rows, training, a report, and held-out
    sentences with a word exchanged.

    The text is the documentation of the Python packages installed with this program: nothing is downloaded.
    """

    out: Path = Path("runs/demo")
    """Run folder; the prepared data goes next to it."""
    budget: str = "265s"
    """Planned time for all of it, for example 2m; training gets what the rest leaves."""
    steps: int | None = None
    """Steps, however long they take, instead of those that fit."""

    def run(self) -> None:
        """Run all parts, and print what comes next."""
        from electra_trainer.data.corpus import PrepareSettings
        from electra_trainer.data.prepare import prepare, train_tokenizer_from
        from electra_trainer.data.store import MANIFEST
        from electra_trainer.inspection.report import write_report
        from electra_trainer.presets.models import demo
        from electra_trainer.runs.checkpoint import numbered
        from electra_trainer.runs.run_folder import RunFolder
        from electra_trainer.settings.config import changed
        from electra_trainer.train.plan import seconds

        start = time.monotonic()
        end = start + seconds(self.budget)
        config = changed(demo(), evaluation={"every": _EVERY}, checkpoint={"every": _EVERY})
        data = self.out.with_name(self.out.name + "-data")
        if not (data / MANIFEST).exists():
            _say("1/4  a vocabulary, from the documentation of the packages installed here")
            tokenizer, _ = train_tokenizer_from(["docstrings"], vocab_size=config.model.vocab_size)
            _say("2/4  rows of token ids")
            settings = PrepareSettings(valid_fraction=0.02)
            length = config.batch.sequence_length
            prepare(["docstrings"], tokenizer=tokenizer, sequence_length=length, out=data, settings=settings)
        _say("3/4  pre-training: a generator replaces words, the discriminator learns to tell which")
        remedy = _train(self, config, data, end=end)
        page = write_report([self.out])
        _say("4/4  what the discriminator says of unseen sentences: probability that each word was replaced")
        _score(self, data)
        if self.steps is None and (steps := numbered(RunFolder(self.out).checkpoints)[-1][0]) < _FEW:
            _say(f"     only {steps} steps fitted, too few to learn: this machine is busy. {remedy}")
        _say(f"report: {page}   ({time.monotonic() - start:.0f} s in all)")


def _train(request: Demo, config: "Config", data: Path, *, end: float) -> str:
    """As many steps as were asked for, or as fit until `end` at the speed that is measured first. Returns how to train
    more.
    """
    from electra_trainer.errors import Interrupted
    from electra_trainer.runs.run_folder import RunFolder
    from electra_trainer.train.loop import pretrain
    from electra_trainer.train.plan import Length

    folder, now = RunFolder(request.out), time.monotonic()
    left = max(_LEAST, end - _AFTERWARDS - now)
    latest = now + left + _BEYOND if request.steps is None else math.inf
    began = folder.environment().get("budget") if folder.exists else None
    length = Length(budget=began or f"{left:.0f}s") if request.steps is None else Length(steps=request.steps)
    try:
        pretrain(config, data, out=request.out, length=length, pause=lambda _: time.monotonic() >= latest)
    except Interrupted:
        if time.monotonic() < latest:
            raise
        remedy = "The same command resumes the training"
        _say(f"     the machine has become slower: training ends early. {remedy}")
        return remedy
    return "Say --budget 10m --out NEW"


def _score(request: Demo, data: Path) -> None:
    """Say how often the exchanged word of a held-out sentence is found, and show the first sentences."""
    from electra_trainer.cli.use import shown_scores
    from electra_trainer.data.store import Store
    from electra_trainer.inspection.exchanged import FREQUENT, exchange_words, suspect
    from electra_trainer.pretrained.pretrained import load

    store, loaded = Store.open(data), load(request.out)
    assert loaded.discriminator is not None
    found = suspect(loaded.discriminator, store, exchange_words(store, count=_EXCHANGED))
    right, chance = sum(one.found for one in found), sum(1 / len(one.scored.tokens) for one in found)
    for one in found[:_SHOWN]:
        _say("\n".join(shown_scores(one.scored)))
        outcome = "found" if one.found else f"not found, it suspects {one.suspect!r}"
        _say(f"  ^ {one.sentence.original!r} became {one.scored.tokens[one.sentence.place - 1]!r}: {outcome}")
    _say(
        f"     in {right} of {len(found)} held-out sentences the exchanged word, now a random one of the {FREQUENT} "
        f"most frequent, is suspected most ({100 * right / max(1, len(found)):.0f} %; "
        f"{100 * chance / max(1, len(found)):.0f} % by chance)"
    )
