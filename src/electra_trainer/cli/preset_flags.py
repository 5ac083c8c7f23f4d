"""Read the configuration that a command line begins from: preset, file, and the members of tagged unions that its flags name."""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets.paper_rows import preset
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config


def settings_from(words: Sequence[str]) -> Config:
    """Preset, file and choices of tagged unions that the flags name: the defaults of the flags for their fields."""
    config = preset(value_of(words, "--preset") or "small")
    objective, file = value_of(words, "--objective"), value_of(words, "--config")
    if file is not None or objective not in (None, *methods.ObjectiveSettings.kinds):
        import electra_trainer.objectives  # noqa: F401  makes objectives known that have their settings in their own file
    if file is not None:
        config = records.overlay(config, Path(file))
    config = _choose(config, "objective", objective, methods.ObjectiveSettings.kinds)
    config = _choose(config, "generator", value_of(words, "--generator"), methods.GENERATORS)
    return _choose(config, "phases", value_of(words, "--phases"), methods.PHASES)


def _choose(config: Config, name: str, kind: str | None, known: Mapping[str, type]) -> Config:
    """`config` with the member of a tagged union that a flag names, with its defaults; the same member keeps its settings."""
    if kind is None:
        return config
    if kind not in known:
        raise ConfigError(f"--{name} {kind!r}: unknown.{did_you_mean(kind, known)} Known: {', '.join(known)}.")
    if isinstance(getattr(config, name), known[kind]):
        return config
    chosen = copy(config)
    object.__setattr__(chosen, name, known[kind]())  # unchecked: the settings that go with it may be in the other flags
    return chosen


def part(words: Sequence[str], flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values of some flags (of each the first), before all flags are parsed; and the words without these flags."""
    values: dict[str, str] = {}
    rest: list[str] = []
    following = iter(words)
    for word in following:
        flag, equals, value = word.partition("=")
        if flag not in flags:
            rest.append(word)
        elif (given := value if equals else next(following, None)) is not None:
            values.setdefault(flag, given)
    return values, rest


def value_of(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before the flags are parsed."""
    return part(words, (flag,))[0].get(flag)
