"""Every objective, generator, sharing mode and training algorithm, as a change to a small configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import (
    MLM,
    RTD,
    Adversarial,
    AllTokensMLM,
    Generator,
    HardMLM,
    Learned,
    ReplaceMLM,
    RtdMLM,
    SentenceContrast,
    TwoStage,
    Uniform,
    Unigram,
)


def _change(**changes: Any) -> Callable[[Config], Config]:
    return lambda config: dataclasses.replace(config, **changes)


def _learned(**changes: Any) -> Generator:
    return Learned(width=0.5, **changes)


def modern(config: Config) -> Config:
    """Config with ModernBERT's layers."""
    return dataclasses.replace(config, model=dataclasses.replace(config.model, block="modern"))


_SAME: Generator = Learned(width=1.0)
METHODS: dict[str, Callable[[Config], Config]] = {
    "rtd": _change(objective=RTD()),
    "rtd weights": _change(objective=RTD(weight=3.0, generator_weight=0.5)),
    "rtd masked": _change(objective=RTD(loss_over="masked")),
    "rtd other": _change(objective=RTD(loss_over="other")),
    "sums": _change(losses="sums"),
    "printed head": lambda config: dataclasses.replace(
        config, model=dataclasses.replace(config.model, replaced_head="linear")
    ),
    "mlm": _change(objective=MLM()),
    "hard-mlm": _change(objective=HardMLM(pool=2.0, width=0.5)),
    "replace-mlm": _change(objective=ReplaceMLM()),
    "replace-mlm all": _change(objective=ReplaceMLM(), generator=_SAME, sharing="all"),
    "all-tokens-mlm": _change(objective=AllTokensMLM()),
    "all-tokens-mlm plain": _change(objective=AllTokensMLM(copy=False)),
    "all-tokens-mlm unigram": _change(objective=AllTokensMLM(), generator=Unigram()),
    "adversarial": _change(objective=Adversarial()),
    "adversarial sharing none": _change(objective=Adversarial(), sharing="none"),
    "rtd-mlm": _change(objective=RtdMLM(corrective_weight=2.0)),
    "rtd-mlm unigram": _change(objective=RtdMLM(), generator=Unigram()),
    "rtd-mlm all": _change(objective=RtdMLM(), generator=_SAME, sharing="all"),
    "rtd-mlm two-stage": _change(objective=RtdMLM(), phases=TwoStage(share=0.5), generator=_SAME, sharing="none"),
    "sentence-contrast": _change(objective=SentenceContrast(unchanged=0.4)),
    "unigram": _change(generator=Unigram()),
    "uniform": _change(generator=Uniform(disallow_correct=True)),
    "temperature": _change(generator=_learned(temperature=2.0)),
    "disallow correct": _change(generator=_learned(disallow_correct=True)),
    "sharing none": _change(sharing="none"),
    "sharing tables": _change(sharing="tables"),
    "sharing disentangled": _change(sharing="disentangled"),
    "sharing all": _change(sharing="all", generator=_SAME),
    "two-stage": _change(phases=TwoStage(share=0.5), generator=_SAME, sharing="none"),
    "two-stage fresh": _change(phases=TwoStage(share=0.5, start="fresh"), sharing="none"),
    "rare": lambda config: dataclasses.replace(config, masking=dataclasses.replace(config.masking, rarity=0.5)),
    "whole words": lambda config: dataclasses.replace(config, masking=dataclasses.replace(config.masking, unit="word")),
    "spans": lambda config: dataclasses.replace(config, masking=dataclasses.replace(config.masking, unit="span")),
    "rounded up": lambda config: dataclasses.replace(
        config, masking=dataclasses.replace(config.masking, fraction=0.15, rounding="up")
    ),
    "80/10/10": lambda config: dataclasses.replace(
        config, objective=MLM(), masking=dataclasses.replace(config.masking, mask_share=0.8, random_share=0.1)
    ),
    "modern": modern,
    "modern sharing all": lambda config: dataclasses.replace(modern(config), sharing="all", generator=_SAME),
    "modern sharing disentangled": lambda config: dataclasses.replace(modern(config), sharing="disentangled"),
    "modern rtd-mlm two-stage": lambda config: METHODS["rtd-mlm two-stage"](modern(config)),
}
MODERN = [name for name in METHODS if "modern" not in name and name != "printed head"]
"""Methods that the modern block has too: its head is transformers'."""


def alternated(name: str, config: Config) -> Config:
    """The method, every second one on the modern block: for tests that are dear, and know nothing of a block."""
    made = METHODS[name](config)
    return modern(made) if name in MODERN and MODERN.index(name) % 2 else made


def without_dropout(config: Config) -> Config:
    """Config without dropout in the networks."""
    model = dataclasses.replace(config.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return dataclasses.replace(config, model=model)
