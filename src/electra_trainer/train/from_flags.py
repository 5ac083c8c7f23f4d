"""The settings that flags name by preset, file and kind: the defaults of all flags for single settings."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tyro

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets.models import preset
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config

T = TypeVar("T")
_OTHER_NAMES = {"electra": "rtd", "bert": "mlm"}
"""Objectives by the model that made them known."""


def taken(kind: type[T], words: Sequence[str]) -> tuple[T, list[str]]:
    """The flags that are fields of the dataclass `kind`, read out of a command line, and the other words."""
    asked = [word for word in words if word not in ("-h", "--help", "--help-all")]
    return tyro.cli(kind, args=asked, return_unknown_args=True, config=(tyro.conf.FlagCreatePairsOff,))


def dotted_names(words: Sequence[str]) -> set[str]:
    """Names of the settings that the flags of a command line give, be it with the preset's value."""
    return {word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--")}


@dataclass(frozen=True, kw_only=True)
class _First:
    preset: str = "small"
    config: Path | None = None
    objective: str | None = None
    generator: str | None = None
    phases: str | None = None
    continue_from: str | None = None
    out: str | None = None


def settings_from(words: Sequence[str]) -> Config:
    """Preset, file and members of tagged unions that the flags name; the file overrides the preset.

    Raises:
        ConfigError: an unknown name, or a file that holds other than settings.
    """
    first, _ = taken(_First, words)
    config = preset(first.preset)
    objective = _OTHER_NAMES.get(first.objective or "", first.objective)
    files = [path for path in (_settings_of_continued(first), first.config) if path]
    if files or objective not in (None, *methods.ObjectiveSettings.kinds):
        import electra_trainer.objectives  # noqa: F401  registers objectives whose settings are in their own file
    for path in files:
        config = records.overlay(config, path)
    config = _choose(config, "objective", objective, methods.ObjectiveSettings.kinds)
    config = _choose(config, "generator", first.generator, methods.GENERATORS)
    return _choose(config, "phases", first.phases, methods.PHASES)


def _settings_of_continued(first: _First) -> Path | None:
    """The config.json of the run that --continue-from names; if that is gone, that of the run which continued it."""
    if first.continue_from is None:
        return None
    folders = [records.run_and_step(first.continue_from)[0], *([Path(first.out)] if first.out else [])]
    return next((folder / "config.json" for folder in folders if (folder / "config.json").exists()), None)


def _choose(config: Config, name: str, kind: str | None, known: Mapping[str, type]) -> Config:
    """`config` with the member of a tagged union that a flag names; the same member keeps its settings."""
    if kind is None:
        return config
    if kind not in known:
        raise ConfigError(f"--{name} {kind!r}: unknown.{did_you_mean(kind, known)} Known: {', '.join(known)}.")
    if type(getattr(config, name)) is known[kind]:
        return config
    chosen = copy(config)
    object.__setattr__(chosen, name, known[kind]())  # unchecked: the settings that go with it may be in the other flags
    return chosen
