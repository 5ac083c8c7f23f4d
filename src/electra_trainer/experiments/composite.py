"""Q: one number for what frozen encoders of an experiment know, where arms are compared by probes of minutes.

The mean of four z-scores: tags, similarity of sentences beyond that of random words, sentiment, minimal pairs. Each is
centred on the mean of the reference's seeds and divided by their standard deviation, so Q is in units of the noise
between seeds; the reference has 0.
"""

from collections.abc import Mapping
from statistics import mean, stdev

NAME = "q"
PROBES = {"pos", "sentences", "minimal-pairs"}
"""What it is made of."""
_GRAMMAR = ("minimal-pairs/discriminator", "minimal-pairs/pseudo-likelihood", "minimal-pairs/encoder")
"""The score of an arm is the first that its networks have."""
BySeed = dict[int, float]


def composite(arms: Mapping[str, Mapping[str, BySeed]], *, reference: str) -> dict[str, BySeed]:
    """Q of every arm and seed that has all four; nothing where the reference has fewer than two such seeds, or no
    spread.

    Args:
        arms: arm -> metric -> seed -> value.
    """
    parts = {arm: _parts(values) for arm, values in arms.items()}
    base = list(parts[reference].values())
    if len(base) < 2:
        return {}
    scales = [(mean(column), stdev(column)) for column in zip(*base, strict=True)]
    if not all(spread for _, spread in scales):
        return {}
    return {
        arm: {
            seed: mean((value - centre) / spread for value, (centre, spread) in zip(values, scales, strict=True))
            for seed, values in by_seed.items()
        }
        for arm, by_seed in parts.items()
        if by_seed
    }


def _parts(values: Mapping[str, BySeed]) -> dict[int, tuple[float, ...]]:
    """Tags, similarity less that of random words, sentiment, minimal pairs: by seed, of seeds that have all."""
    grammar = next((values[name] for name in _GRAMMAR if name in values), {})
    columns = [values.get(name, {}) for name in ("pos/accuracy", "sentences/stsb", "sentences/sst2")] + [grammar]
    random = values.get("sentences/stsb_random", {})
    shared = set(random).intersection(*columns)
    return {
        seed: (columns[0][seed], columns[1][seed] - random[seed], columns[2][seed], grammar[seed])
        for seed in sorted(shared)
    }
