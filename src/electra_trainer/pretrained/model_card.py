"""Model cards: the Hub's header by huggingface_hub, with what only the owner knows, and a page on the network."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from electra_trainer.errors import ConfigError
from electra_trainer.files.wording import render
from electra_trainer.presets.arms import objective_title
from electra_trainer.version import __version__

if TYPE_CHECKING:
    from electra_trainer.objectives import Exported
    from electra_trainer.settings.config import Config

TAG = "electra-trainer"
"""A tag of every card of this program."""
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class CardFields:
    """Facts on a model card that only its owner knows. ConfigError: the Hub would not accept them."""

    license: str | None = None
    """The Hub's identifier: mit, apache-2.0, cc-by-4.0, other."""
    language: tuple[str, ...] = ()
    """ISO 639 codes of two or three letters, or multilingual."""
    name: str | None = None
    """OWNER/NAME on the Hub; `hub_name` says how the networks are called."""

    def __post_init__(self) -> None:
        if self.license is not None and not _LICENSE.fullmatch(self.license):
            raise ConfigError(
                f"--license {self.license!r}: expected an identifier of the Hub, in lower case: mit, apache-2.0, "
                "cc-by-4.0, other. All: https://huggingface.co/docs/hub/repositories-licenses"
            )
        for code in self.language:
            if not _LANGUAGE.fullmatch(code):
                raise ConfigError(f"--language {code!r}: expected codes of ISO 639, such as en or tr, or multilingual.")
        if (name := self.name) is None:
            return
        if not _HUB_NAME.fullmatch(name) or len(name) > 80 or "--" in name or ".." in name:
            raise ConfigError(
                f"--name {name!r}: expected OWNER/NAME of letters, digits, -, _ and ., at most 80 in all, such as "
                "me/electra-tr."
            )


def hub_name(name: str, network: str, *, alone: bool) -> str:
    """The repository of a network: OWNER/NAME, or OWNER/NAME-NETWORK unless it is the only one."""
    return name if alone else f"{name}-{network}"


def is_on_hub(name: str) -> bool:
    """Whether a model's name can only be one of the Hub: OWNER/NAME, and no folder OWNER is here."""
    return _HUB_NAME.fullmatch(name) is not None and not Path(name).parent.exists()


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
    step: int | None = None
    """Step of the weights; None: the last one."""
    tokens: int | None = None
    """Tokens up to there; None: as many as the config's steps read."""
    init: str | None = None
    """The model whose weights the run began with, or DISCRIMINATOR,GENERATOR; None: fresh weights."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Held-out metrics."""
    data_sets: tuple[str, ...] = ()
    """Data sets of the Hub in the training rows."""


def model_card(
    exported: "Exported",
    training: Training,
    *,
    fields: CardFields | None = None,
    networks: Sequence[str] = (),
    bert: bool = False,
    dtype: str = "float32",
) -> str:
    """Markdown with the Hub's header.

    Args:
        exported: the network.
        training: its run.
        fields: what its owner says.
        networks: names of those that are exported, this one among them; empty: it is alone.
        bert: it is written as a BERT.
        dtype: of the stored weights.
    """
    config, fields = training.config, fields or CardFields()
    objective, steps = objective_title(config), config.schedule.steps
    step = steps if training.step is None else training.step
    tokens = step * config.tokens_per_step if training.tokens is None else training.tokens
    began = training.init.split(",") if training.init else []
    on_hub = [one for one in began if is_on_hub(one)]
    names = networks or (exported.name,)
    paths = {name: hub_name(fields.name, name, alone=len(names) == 1) if fields.name else "PATH" for name in names}
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
        name=exported.name,
        model=exported.model,
        config=config,
        objective=objective,
        bert=bert,
        dtype=dtype,
        path=paths[exported.name],
        generator=paths.get("generator"),
        length=config.batch.sequence_length,
        steps=steps,
        step=step,
        tokens=tokens,
        init=", ".join(one if one in on_hub else PurePath(one).name for one in began),
        data_sets=training.data_sets,
        metrics=training.metrics,
        version=__version__,
    )
