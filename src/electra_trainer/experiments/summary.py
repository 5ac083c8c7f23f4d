"""What the seeds of a row say together, and how two rows compare seed by seed. No torch here."""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from electra_trainer.experiments.statistics import Paired, holm

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over the seeds."""

    n: int
    median: float
    mean: float
    sd: float | None
    """Sample standard deviation; None for one seed."""
    best: float
    worst: float
    by_seed: dict[int, float]

    @property
    def best_seed(self) -> int:
        """The seed with the best value, the smallest of equals."""
        return min(seed for seed, value in self.by_seed.items() if value == self.best)

    @property
    def median_seed(self) -> int:
        """The seed in the middle; of an even number the lower of the two."""
        ordered = sorted(self.by_seed, key=lambda seed: (self.by_seed[seed], seed))
        return ordered[(len(ordered) - 1) // 2]


def spread(by_seed: Mapping[int, float], *, lower_is_better: bool = False) -> Spread:
    """Of at least one seed."""
    values = list(by_seed.values())
    best, worst = (min, max) if lower_is_better else (max, min)
    return Spread(
        n=len(values), median=statistics.median(values), mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None, best=best(values), worst=worst(values), by_seed=dict(by_seed),
    )  # fmt: skip


def spread_of(values: Sequence[float]) -> Spread | None:
    """The same of values without seeds; None of nothing."""
    return spread(dict(enumerate(values, start=1))) if values else None


def corrected(family: Mapping[K, Paired]) -> dict[K, float]:
    """Holm-corrected p-values of the contrasts of a family that have one."""
    return holm({key: pair.p for key, pair in family.items() if pair.p is not None})
