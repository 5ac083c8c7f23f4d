"""Made-up text for the tests of this folder."""

from __future__ import annotations

import random

from electra_trainer.data.tokenizer import Specials

SPECIALS = Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
WORDS = [a + b + c for a in SYLLABLES[::3] for b in SYLLABLES[1::7] for c in ("", "s", "ning", "pé", "rum")]


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Lines of made-up words, some long, some short, some odd."""
    draw = random.Random(seed)
    odd = ["[MASK]", "[CLS] and [SEP]", "naïve", "中文", "x" * 210, "U.S.A.", "\u2028", "3,14"]
    lines = []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.choice([1, 3, 8, 20, 60]))
        lines.append(" ".join([*words, draw.choice(odd)] if draw.random() < 0.2 else words))
    return lines
