"""Requests, the verbs of the command: frozen dataclasses whose fields are flags, keys of a `--config` file and
arguments from Python.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from electra_trainer.errors import ConfigError, tell
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import in_the_box


@dataclass(frozen=True, kw_only=True)
class Request:
    """A verb's flags. `run()` returns the result that the command prints, or None."""

    typed: tyro.conf.Suppress[tuple[str, ...]] = field(default=(), compare=False, repr=False)
    """The command line that it was read from, with the flags of its file."""
    brief: ClassVar[str] = ""
    """The flags of the short help; empty: all."""

    def run(self) -> Any:
        """Do what was asked for."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(Request):
    """A request that holds the configuration of a run: preset, then --config, then flags."""

    config: Path | None = None
    """JSON or TOML file with settings, for example the config.json of another run; it need not hold all."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    """The configuration, which every flag with a dot belongs to."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Flags of the configuration that this verb decides itself, each with the sentence that says what to type."""


def taken(words: Sequence[str], *names: str, repeated: bool = False) -> tuple[dict[str, str], list[str]]:
    """Values of these flags in a command line, `--name VALUE` or `--name=VALUE`, and the other words. The last value
    of a flag counts, or if it may be `repeated` all of them, with commas between them.

    Raises:
        ConfigError: a flag without a value.
    """
    found, others, rest = dict[str, str](), list[str](), iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if name not in names or not flag.startswith("--"):
            others.append(word)
        elif not (value := value if equals else next(rest, "")):
            raise ConfigError(f"{flag}: expected a value after it.")
        else:
            found[name] = f"{found[name]},{value}" if repeated and name in found else value
    return found, others


def dotted_names(words: Sequence[str]) -> set[str]:
    """Names of the settings that the flags of a command line give, even if with the preset's value."""
    return {word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--")}


def announce(model: str | Path, text: str = "") -> None:
    """Report on standard error that an encoder of this package is used.

    Raises:
        ConfigError: the text is a folder, so a model that was given without a text.
    """
    if os.path.isdir(text):  # noqa: PTH112  a text may be longer than a path
        raise ConfigError(f"{text}: is a folder, expected a text. Give both: the folder, then the text.")
    if in_the_box(model):
        tell(f"encoder: {model}, of English, which comes with electra-trainer.")
