"""The settings that flags name by preset, file and kind: the defaults of all flags for single settings."""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

from electra_trainer.errors import require_known
from electra_trainer.presets.models import PRESETS, preset
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config
from electra_trainer.settings.extensions import HINT
from electra_trainer.settings.request import taken

_FIRST = ("preset", "config", "objective", "generator", "phases", "continue_from", "init", "out")
_OF_WEIGHTS = ("model", "generator", "sharing", "objective")
"""Settings of a run that its weights belong to."""


def settings_from(words: Sequence[str]) -> Config:
    """Preset, file and members of tagged unions that the flags name; the file overrides the preset. `--init` of a run
    stands for a preset: that run's, with its networks and objective.

    Raises:
        ConfigError: an unknown name, or a file that holds other than settings.
    """
    first, _ = taken([word for word in words if word not in ("-h", "--help", "--help-all")], *_FIRST)
    objective = first.get("objective")
    files = [Path(first["config"])] if "config" in first else []
    if "continue_from" in first:  # the settings of that run come first; if it is gone, of the run that continued it
        folders = [records.run_and_step(first["continue_from"])[0], Path(first.get("out", ""))]
        files[:0] = [folder / "config.json" for folder in folders if (folder / "config.json").exists()][:1]
    if files or "init" in first or objective not in (None, *methods.ObjectiveSettings.kinds):
        import electra_trainer.objectives  # noqa: F401  registers objectives whose settings are in their own file
    config = _preset(first)
    for path in files:
        config = records.overlay(config, path)
    config = _choose(config, "objective", objective, methods.ObjectiveSettings.kinds)
    config = _choose(config, "generator", first.get("generator"), methods.generators())
    return _choose(config, "phases", first.get("phases"), methods.PHASES)


def _preset(first: Mapping[str, str]) -> Config:
    """The preset that is named; with `--init` of a run that of the run, with the settings that its weights belong to,
    and if it is gone, of the run that began with it.
    """
    if "init" in first and "preset" not in first:
        for folder in (records.run_and_step(first["init"])[0], Path(first.get("out", ""))):
            if (path := folder / "config.json").is_file() and records.is_run(folder):
                table = records.read_table(path)
                base = PRESETS.get(str(table.get("preset")), PRESETS["small"])()
                own = {part: table[part] for part in _OF_WEIGHTS if part in table}
                return records.read(Config, records.merge(records.to_dict(base), own), where=str(path))
    return preset(first.get("preset", "small"))


def _choose(config: Config, name: str, kind: str | None, known: Mapping[str, type]) -> Config:
    """`config` with the member of a tagged union that a flag names; the same member keeps its settings."""
    if kind is None:
        return config
    require_known(f"--{name} {kind!r}: unknown", kind, known, hint=HINT * (name != "phases"))
    if type(getattr(config, name)) is known[kind]:
        return config
    chosen = copy(config)
    object.__setattr__(chosen, name, known[kind]())  # unchecked: the settings that go with it may be in the other flags
    return chosen
