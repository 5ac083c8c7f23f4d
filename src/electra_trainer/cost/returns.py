"""Returns of reading: points that records measured with the preset `mini` on English, and answers about a text or a run
by interpolation. Nothing is extrapolated.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from electra_trainer.files.wording import duration, number

PASSES = 5
"""Most passes over the same text that were tried (records/2026-11-27-a-day)."""
BASELINE = 64.5
"""The best baseline of each of the six GLUE tasks, in the mean (records/2026-11-28-baselines)."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A pre-training of `mini` on Wikipedia and books. `tests/cost/test_returns.py` compares it with its record."""

    tokens: float
    products: float
    """FLOPs of matrix products."""
    record: str
    auc: float = math.nan
    """On standard fakes; NaN where it was not measured."""
    score: float = math.nan
    """Mean of six GLUE tasks by the plain head, x 100; the first two with fewer rows of SST-2. NaN as above."""


POINTS = (
    Point(tokens=2.05e6, products=6.42e13, record="2026-11-29-en-mini", auc=0.680),
    Point(tokens=9.6e6, products=3e14, record="2026-11-27-a-day", score=62.9),
    Point(tokens=10.2e6, products=3.21e14, record="2026-11-29-en-mini", auc=0.750),
    Point(tokens=60.6e6, products=1.9e15, record="2026-11-27-a-day", auc=0.812, score=65.1),
    Point(tokens=181.7e6, products=5.7e15, record="2026-11-27-a-day", auc=0.840, score=66.6),
    Point(tokens=366.7e6, products=1.15e16, record="2026-11-27-a-day", auc=0.853, score=67.8),
    Point(tokens=733e6, products=2.3e16, record="2026-11-27-a-day", auc=0.868, score=70.4),
)
"""Sorted by tokens. Those of en-mini were measured while the rate was flat, the others at the end of a run."""
SCORED = tuple(one for one in POINTS if not math.isnan(one.score))
_GLUE = f"in GLUE by preset mini in English (mean of six tasks; {BASELINE} without an encoder)"
_Amount = Literal["tokens", "products"]


def score(amount: float, *, of: _Amount) -> float:
    """The score between the two nearest points, on a logarithmic scale of `amount`; NaN outside of them."""
    known = [math.log(getattr(one, of)) for one in SCORED]
    return float(np.interp(math.log(max(amount, 1)), known, [one.score for one in SCORED], math.nan, math.nan))


def about(amount: float, *, of: _Amount = "tokens") -> str:
    """Phrase on the score after reading so much."""
    if not math.isnan(found := score(amount, of=of)):
        return f"about {found:.1f} {_GLUE}"
    few = amount < getattr(SCORED[0], of)
    end, than = (SCORED[0], "less than any") if few else (SCORED[-1], "more than any")
    return f"{than} run that was scored; {number(end.tokens)} tokens gave {end.score} {_GLUE}"


def enough(tokens: int) -> str:
    """Judge whether a text of `tokens` is enough, in words."""
    read = PASSES * tokens
    few = read < SCORED[0].tokens or score(read, of="tokens") < BASELINE
    remedy = ". More text helps, or begin with a trained encoder: --init, in English en-mini" if few else ""
    worth = f"{PASSES} passes, the most that were tried, read {number(read)}: {about(read)}"
    return f"{number(tokens)} tokens of text are {'few' if few else 'enough'}. {worth}{remedy}."


def ahead(tokens: float, speed: float) -> str:
    """Place a run of `mini` that has read `tokens` among the points, in words, with the time to the next one.

    Args:
        speed: tokens a second.
    """
    later = next((one for one in SCORED if one.tokens > 1.05 * tokens), None)
    read = f"{number(tokens)} tokens read: {about(tokens)}."
    if later is None:
        return read
    what = "They are" if later is SCORED[0] else f"{number(later.tokens)} gave {later.score}:"
    return f"{read} {what} {duration((later.tokens - tokens) / speed)} away at this speed."
