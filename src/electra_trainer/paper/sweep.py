"""`--sweep optimizer.learning-rate=1e-4,3e-4 objective.weight=10,50`: values of settings, crossed, as arms of `electra
compare`.

Each combination is an arm with cells like any other, named `ARM+FIELD=VALUE+FIELD=VALUE`; the one that an arm has
already is the arm itself. `--choose METRIC` declares, before anything is trained, by which metric the best of each
arm's combinations is chosen: one of rows that no table reports. This is how the paper searched learning rates and λ
(Appendix A) and sizes of the generator (Figure 3 left).
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.settings import records
from electra_trainer.settings.config import Config

PLUS = "+"
"""Between an arm's name and its values."""
NESTED = "nested-"
"""Begins the name of a probe that is scored on a part of its training rows."""
_SETTLED = ("seed", "preset", "schedule.steps", "batch.sequence_length", "model.vocab_size")
"""Fields that the seeds, the amount or the data decide."""
OWN_FAKES = ("loss", "discriminator_loss", "discriminator_auc", "discriminator_constant_loss", "fake_rate")
"""Held-out metrics that depend on the generator whose fakes are judged, or on the weights of the terms."""

Axes = Mapping[str, Sequence[Any]]
"""Dotted name of a field -> its values."""


def parse_sweep(words: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """`["objective.weight=10,50"]` -> `{"objective.weight": (10, 50)}`; words that are not JSON are text.

    Raises:
        ConfigError: no values, a field or value given twice, or a field that something else decides.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        field = name.replace("-", "_")
        values = tuple(_value(one.strip()) for one in text.split(",") if one.strip())
        faults = {
            "expected FIELD=VALUE,VALUE, for example optimizer.learning-rate=1e-4,3e-4.": not (name and values),
            "the field is given twice.": field in axes,
            "a value is given twice.": len(set(values)) < len(values),
            "the seeds, the amount or the data decide this field. Leave it out.": field in _SETTLED,
        }
        for fault in [fault for fault, wrong in faults.items() if wrong]:
            raise ConfigError(f"--sweep {word}: {fault}")
        axes[field] = values
    return axes


def _value(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool) or (isinstance(found, int | float) and math.isfinite(found)) else text


def swept(arm: str, config: Config, axes: Axes) -> dict[str, Config]:
    """An arm's configuration with every combination of the values of those fields that it has; its own combination
    first.

    Raises:
        ConfigError: a value that is impossible; says which.
    """
    own = {name: values for name, values in axes.items() if _has(config, name)}
    found: dict[str, Config] = {}
    for values in product(*own.values()):
        named = dict(zip(own, values, strict=True))
        table = records.to_dict(config)
        for name, value in named.items():
            *groups, field = name.split(".")
            inner = table
            for group in groups:
                inner = inner[group]
            inner[field] = value
        changed = records.read(Config, table, where=f"--sweep, arm {arm}")
        told = "".join(f"{PLUS}{name.replace('_', '-')}={value}" for name, value in named.items())
        found[arm if changed == config else arm + told] = changed
    return dict(sorted(found.items(), key=lambda pair: pair[0] != arm))


def _has(config: Config, name: str) -> bool:
    """Whether a field is there and decides anything: without a generator its settings do not."""
    unused = not config.objective.uses_generator and name.partition(".")[0] in ("generator", "sharing")
    return not unused and name in records.flat(records.to_dict(config)) and not name.endswith("kind")


def require_fields(axes: Axes, arms: Iterable[Config]) -> None:
    """Refuse fields that no arm has; ConfigError names the nearest."""
    known = list(dict.fromkeys(name for one in arms for name in records.flat(records.to_dict(one)) if _has(one, name)))
    for name in axes:
        if name not in known:
            flags = [one.replace("_", "-") for one in known if one not in _SETTLED]
            flag = name.replace("_", "-")
            raise ConfigError(
                f"--sweep {flag}: no arm has this field, or none makes use of it.{did_you_mean(flag, flags)} Known: "
                f"{', '.join(flags)}."
            )


def require_choosable(metric: str, parts: Iterable[str]) -> None:
    """Refuse to choose by a metric of rows that tables report, by one that the choice itself changes, or by one that is
    not measured.

    Raises:
        ConfigError: says what to choose by instead.
    """
    part, _, name = metric.partition("/")
    if part != "held-out" and not part.startswith(NESTED):
        raise ConfigError(
            f"--choose {metric}: tables report this metric, so that a choice by it would be judged by itself. Choose "
            "on a part of the "
            f"training rows, --probe {NESTED}{part}=DIR --choose {NESTED}{metric}, or by "
            "held-out/discriminator_standard_auc."
        )
    if part == "held-out" and name in OWN_FAKES:
        raise ConfigError(
            f"--choose {metric}: depends on the fakes of the arm's own generator and on the weights of the losses, so "
            "an easier task would "
            "win. Choose by held-out/discriminator_standard_auc, whose fakes are the same for all."
        )
    if part not in parts:
        raise ConfigError(f"--choose {metric}: its probe is not requested. Add --probe {part}.")


def arm_of_row(row: str) -> str:
    """The arm that a row of an experiment varies: `electra` of `electra+objective.weight=10`."""
    return row.partition(PLUS)[0]


def titles(rows: Mapping[str, Config]) -> dict[str, str]:
    """How each row of an experiment is shown: an arm with its own values of the fields that its combinations vary, like
    those.
    """
    varied: dict[str, dict[str, None]] = {}
    for row in rows:
        arm, *values = row.split(PLUS)
        varied.setdefault(arm, {}).update(dict.fromkeys(value.partition("=")[0] for value in values))
    found = {row: row for row in rows}
    for arm in varied.keys() & rows.keys():
        own = records.flat(records.to_dict(rows[arm]))
        found[arm] += "".join(f"{PLUS}{name}={own[name.replace('-', '_')]}" for name in varied[arm])
    return found


def choices(
    rows: Sequence[str],
    metric: str,
    found: Mapping[str, Mapping[int, float]],
    *,
    seeds: Sequence[int],
    failed: Collection[str] = (),
) -> dict[str, str | None]:
    """Arm -> its row with the best mean over all seeds, the first of equals; None while one waits for a seed.

    Args:
        rows: of the experiment; arms with a single one have no choice.
        found: row -> seed -> value; lower is better of losses, higher of all else.
        failed: rows with a run that diverged: they are not chosen.
    """
    by_arm: dict[str, list[str]] = {}
    for row in rows:
        by_arm.setdefault(arm_of_row(row), []).append(row)
    sign = -1 if metric.endswith("loss") else 1

    def best(own: Sequence[str]) -> str | None:
        able = [row for row in own if row not in failed]
        if not able or any(set(seeds) - found.get(row, {}).keys() for row in able):
            return None
        return max(able, key=lambda row: sign * math.fsum(found[row][seed] for seed in seeds))

    return {arm: best(own) for arm, own in by_arm.items() if len(own) > 1}
