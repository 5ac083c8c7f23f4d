"""The settings that flags name by preset, file and kind: the defaults of all flags for single settings."""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets.models import preset
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config
from electra_trainer.settings.request import taken

_OTHER_NAMES = {"electra": "rtd", "bert": "mlm"}
"""Objectives by the model that made them known."""


_FIRST = ("preset", "config", "objective", "generator", "phases", "continue_from", "out")


def settings_from(words: Sequence[str]) -> Config:
    """Preset, file and members of tagged unions that the flags name; the file overrides the preset.

    Raises:
        ConfigError: an unknown name, or a file that holds other than settings.
    """
    first, _ = taken([word for word in words if word not in ("-h", "--help", "--help-all")], *_FIRST)
    config, objective = preset(first.get("preset", "small")), first.get("objective")
    objective = _OTHER_NAMES.get(str(objective), objective)
    files = [path for path in (_settings_of_continued(first), first.get("config")) if path]
    if files or objective not in (None, *methods.ObjectiveSettings.kinds):
        import electra_trainer.objectives  # noqa: F401  registers objectives whose settings are in their own file
    for path in files:
        config = records.overlay(config, Path(path))
    config = _choose(config, "objective", objective, methods.ObjectiveSettings.kinds)
    config = _choose(config, "generator", first.get("generator"), methods.GENERATORS)
    return _choose(config, "phases", first.get("phases"), methods.PHASES)


def _settings_of_continued(first: Mapping[str, str]) -> Path | None:
    """The config.json of the run that --continue-from names; if that is gone, that of the run which continued it."""
    if "continue_from" not in first:
        return None
    folders = [records.run_and_step(first["continue_from"])[0], *map(Path, [first["out"]] if "out" in first else [])]
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
