"""Model cards: the Hub's header by huggingface_hub, with what only the owner knows, and a page on the network."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from electra_trainer.cost.returns import SCORED
from electra_trainer.errors import ConfigError
from electra_trainer.files.wording import render
from electra_trainer.presets.arms import objective_title
from electra_trainer.version import __version__

if TYPE_CHECKING:
    from electra_trainer.objectives import Exported
    from electra_trainer.pretrained.export import Form
    from electra_trainer.settings.config import Config

TAG = "electra-trainer"
"""A tag of every card of this program."""
HUB_NAME = re.compile(r"(?!.*(--|\.\.))(?=.{3,96}$)\w[\w.-]*/\w[\w.-]*", re.ASCII)
"""OWNER/NAME on the Hub."""
_FORMS = {
    "license": (
        re.compile(r"[a-z0-9][a-z0-9.+-]*"),
        "an identifier of the Hub, in lower case, such as mit or apache-2.0",
    ),
    "language": (re.compile(r"[a-z]{2,3}|multilingual|code"), "codes of ISO 639, such as en or tr, or multilingual"),
    "name": (HUB_NAME, "OWNER/NAME of letters, digits, -, _ and ., such as me/electra-tr"),
}
"""Form of a card's fields that the Hub accepts, and that form in words."""


@dataclass(frozen=True, kw_only=True)
class CardFields:
    """Facts on a model card that only its owner knows. ConfigError: the Hub would not accept them."""

    license: str | None = None
    """The Hub's identifier: mit, apache-2.0, cc-by-4.0, other."""
    language: tuple[str, ...] = ()
    """ISO 639 codes of two or three letters, or multilingual."""
    name: str | None = None
    """OWNER/NAME on the Hub. Of several networks each has OWNER/NAME-NETWORK."""

    def __post_init__(self) -> None:
        given = [("license", self.license), *(("language", code) for code in self.language), ("name", self.name)]
        for flag, value in given:
            form, expected = _FORMS[flag]
            if value is not None and not form.fullmatch(value):
                raise ConfigError(f"--{flag} {value!r}: expected {expected}.")


def is_on_hub(name: str) -> bool:
    """Whether a model's name can only be one of the Hub: OWNER/NAME, and no folder OWNER is here."""
    return HUB_NAME.fullmatch(name) is not None and not Path(name).parent.exists()


def card_head(fields: CardFields, *, tags: Sequence[str] = (), **known: Any) -> str:
    """The YAML between lines of three hyphens.

    Args:
        tags: in addition to those of every card.
        known: further arguments of huggingface_hub's `ModelCardData`.
    """
    from huggingface_hub import ModelCardData

    languages = list(fields.language) or None
    data = ModelCardData(license=fields.license, language=languages, tags=["electra", TAG, *tags], **known)
    return f"---\n{data.to_yaml()}\n---\n"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Facts on the training of a run's networks."""

    config: "Config"
    step: int
    """Step of the weights."""
    tokens: int
    """Tokens up to there."""
    init: str | None = None
    """The model whose weights the run began with, or DISCRIMINATOR,GENERATOR; None: fresh weights."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Held-out metrics."""
    data_sets: tuple[str, ...] = ()
    """Data sets of the Hub in the training rows."""


def model_card(
    exported: "Exported", training: Training, *, fields: CardFields, networks: Sequence[str], form: "Form"
) -> str:
    """Markdown with the Hub's header.

    Args:
        exported: the network.
        training: its run.
        fields: what its owner says.
        networks: names of those that are exported, this one among them.
        form: how it is stored.
    """
    objective = objective_title(training.config)
    began = training.init.split(",") if training.init else []
    on_hub = [one for one in began if is_on_hub(one)]
    paths = {
        name: f"{fields.name}-{name}" if fields.name and networks[1:] else fields.name or "PATH" for name in networks
    }
    head = card_head(
        fields,
        tags=[objective.replace(" ", "-")],
        library_name="transformers",
        datasets=list(training.data_sets) or None,
        pipeline_tag="feature-extraction" if exported.name == "discriminator" else "fill-mask",
        base_model=on_hub[0] if len(on_hub) == 1 else on_hub or None,
    )
    return head + render(
        "model_card.md",
        exported=exported,
        training=training,
        objective=objective,
        bert=form.is_bert(exported),
        dtype=form.dtype,
        paths=paths,
        init=", ".join(one if one in on_hub else PurePath(one).name for one in began),
        least=SCORED[0].tokens,
        version=__version__,
    )
