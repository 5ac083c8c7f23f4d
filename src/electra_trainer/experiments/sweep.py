"""Values of settings, crossed, as rows of an experiment.

`--sweep optimizer.learning-rate=1e-4,3e-4 objective.weight=10,50` of `electra compare` and `--search` of
fine-tuning. Each combination is a row with cells like any other, named `ROW+FIELD=VALUE+FIELD=VALUE`. This is how the
paper searched learning rates and λ (Appendix A), sizes of the generator (Figure 3 left) and the recipes of fine-tuning
(Appendix B).
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.cell import PLUS
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config

_SETTLED = ("seed", "preset", "schedule.steps", "batch.sequence_length", "model.vocab_size")
"""Fields that the seeds, the amount or the data decide."""

Axes = Mapping[str, Sequence[Any]]
"""Name of a field -> its values."""


def parse_axes(words: Iterable[str], *, flag: str, example: str) -> dict[str, tuple[Any, ...]]:
    """`["objective.weight=10,50"]` -> `{"objective.weight": (10, 50)}`; words that are not JSON are text.

    Raises:
        ConfigError: no values, or a field or value given twice.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        field = name.replace("-", "_")
        values = tuple(_value(one.strip()) for one in text.split(",") if one.strip())
        if not (name and values) or field in axes or len(set(values)) < len(values):
            raise ConfigError(f"{flag} {word}: expected FIELD=VALUE,VALUE, each once, for example {example}.")
        axes[field] = values
    return axes


def _value(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool) or (isinstance(found, int | float) and math.isfinite(found)) else text


def combinations(axes: Axes) -> Iterator[dict[str, Any]]:
    """Every combination of values."""
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def named(row: str, values: Mapping[str, Any]) -> str:
    """Name of a row with these values."""
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in values.items()}
    return row + "".join(f"{PLUS}{name.replace('_', '-')}={value}" for name, value in shown.items())


def swept(arm: str, config: Config, axes: Axes) -> dict[str, Config]:
    """An arm's configuration with every combination of the values of those fields that it has; its own combination
    first.

    Raises:
        ConfigError: a value that is impossible; says which.
    """
    found: dict[str, Config] = {}
    for values in combinations({name: values for name, values in axes.items() if _has(config, name)}):
        table = records.to_dict(config)
        for name, value in values.items():
            nested: Any = reduce(lambda inner, part: {part: inner}, reversed(name.split(".")), value)
            table = records.merge(table, nested)
        changed = records.read(Config, table, where=f"--sweep, arm {arm}")
        found[arm if changed == config else named(arm, values)] = changed
    return dict(sorted(found.items(), key=lambda pair: pair[0] != arm))


def title(row: str, config: Config, axes: Axes) -> str:
    """Name of a row in tables: an arm with its own values of the swept fields, like those of its combinations."""
    own = records.flat(records.to_dict(config))
    return row if PLUS in row else named(row, {name: own[name] for name in axes if _has(config, name)})


def _has(config: Config, name: str) -> bool:
    """Whether a field is there and decides anything: without a generator its settings do not, for example."""
    learned = isinstance(config.generator, methods.Learned)
    unused = {
        "generator": not config.objective.uses_generator,
        "sharing": not (config.objective.uses_generator and learned),
        "optimizer.muon_learning_rate": config.optimizer.name != "muon",
        "schedule.decay_share": config.schedule.shape != "wsd",
    }
    return (
        not (unused.get(name) or unused.get(name.partition(".")[0]))
        and name in records.flat(records.to_dict(config))
        and not name.endswith("kind")
    )


def require_fields(axes: Axes, arms: Sequence[Config]) -> None:
    """Refuse fields that no arm has, or that something else decides."""
    for name in axes:
        if name in _SETTLED or not any(_has(one, name) for one in arms):
            raise ConfigError(f"--sweep {name.replace('_', '-')}: no arm can vary this field (see electra show NAME).")
