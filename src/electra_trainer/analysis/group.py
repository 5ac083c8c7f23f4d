"""A quantity over the seeds of an arm: mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Group:
    """One metric over the seeds of an arm."""

    n: int
    mean: float
    sd: float | None
    """Sample standard deviation; None for one seed."""


def describe(values: Sequence[float]) -> Group:
    """Mean and standard deviation of at least one value."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Group(n=len(values), mean=float(np.mean(values)), sd=sd)


def spread(values: Sequence[float]) -> Group | None:
    """The same where there may be none: None of nothing."""
    return describe(values) if values else None
