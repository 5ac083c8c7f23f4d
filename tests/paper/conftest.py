"""Runs of a few steps on a small vocabulary, one of each kind that the analyses tell apart."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.prepared import small_config, write_store

from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.settings.config import Config, Evaluation
from electra_trainer.settings.methods import MLM, ReplaceMLM, Unigram
from electra_trainer.train.loop import pretrain

KINDS: dict[str, Callable[[Config], Config]] = {
    "electra": lambda config: config,
    "mlm": lambda config: dataclasses.replace(config, objective=MLM()),
    "replace-mlm": lambda config: dataclasses.replace(config, objective=ReplaceMLM()),
    "unigram": lambda config: dataclasses.replace(config, generator=Unigram()),
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, and a run folder of each kind."""
    folder = tmp_path_factory.mktemp("analysis")
    write_store(folder / "data")
    config = dataclasses.replace(small_config(steps=3), evaluation=Evaluation(rows=0))
    for name, change in KINDS.items():
        pretrain(change(config), folder / "data", out=folder / name, device="cpu", quiet=True)
    return folder


@pytest.fixture
def loud(trained: Path) -> Callable[[str], Pretrained]:
    """A run whose weights are made larger, so that its networks say something: fresh ones give every word nearly the same score."""

    def make(kind: str) -> Pretrained:
        pretrained = load(trained / kind)
        parameters = {
            id(p): p
            for network in (pretrained.discriminator, pretrained.generator, pretrained.encoder)
            if network is not None
            for p in network.parameters()
        }
        with torch.no_grad():
            for parameter in parameters.values():
                if parameter.dim() == 2:
                    parameter.mul_(6.0)
        return pretrained

    return make
