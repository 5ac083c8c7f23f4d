"""Checks of settings, in the words of a ConfigError."""

from __future__ import annotations

import math

from electra_trainer.errors import ConfigError


def require(condition: bool, field_name: str, value: object, expected: str) -> None:
    """Raise ConfigError unless `condition` holds and `value`, if it is a number, is finite."""
    if not condition or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{field_name} = {value!r}: expected {expected}.")


def probability(field_name: str, value: float) -> None:
    """Raise ConfigError unless `value` lies between 0 and 1."""
    require(0.0 <= value <= 1.0, field_name, value, "a share between 0 and 1")
