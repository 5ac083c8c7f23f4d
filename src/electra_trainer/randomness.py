"""Randomness as a pure function of what it is for.

Every random number of a run comes from a generator seeded with hash(seed, purpose, step, lane). Nothing is carried from
step to step, so nothing needs saving, and any step can be computed again on its own.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


def key(seed: int, purpose: str, *numbers: int) -> int:
    """A 63-bit key for one purpose; the same arguments give the same key on every machine."""
    text = "/".join([str(seed), purpose, *map(str, numbers)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def drawn(purpose: str, *, count: int, total: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most `count` of the indices below `total`, in random order: the same for the same purpose and total."""
    return np.random.default_rng(key(0, purpose)).permutation(total)[:count]


@dataclass(frozen=True)
class Rng:
    """The randomness of one lane of one step."""

    seed: int
    step: int
    lane: int

    def generator(self, purpose: str, device: torch.device | None = None) -> torch.Generator:
        """A fresh generator for `purpose`, on the CPU by default; asking twice gives the same numbers twice."""
        return torch.Generator(device or "cpu").manual_seed(key(self.seed, purpose, self.step, self.lane))

    def bits(self, purpose: str) -> np.random.Philox:
        """A fresh source of raw 64-bit numbers (`random_raw`), which are the same with every NumPy."""
        return np.random.Philox(key=key(self.seed, purpose, self.step, self.lane))

    def uniform(self, purpose: str, count: int, device: torch.device) -> torch.Tensor:
        """`count` numbers in [0, 1), fp32, drawn on the CPU so that every device gets the same ones."""
        return torch.rand((count,), generator=self.generator(purpose)).to(device)

    def seed_dropout(self) -> None:
        """Seed PyTorch's own generators, which dropout draws from, on all devices in use: what `torch.manual_seed`
        does, in a tenth of its time.
        """
        number = key(self.seed, "dropout", self.step, self.lane)
        for generator in (torch.default_generator, *torch.cuda.default_generators):
            generator.manual_seed(number)
        if torch.backends.mps.is_available():
            torch.mps.manual_seed(number)
