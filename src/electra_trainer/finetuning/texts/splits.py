"""Training and development examples: a held-out tenth where no development file is given. No torch here.

The held-out tenth is the same on every machine and in every run. Rows with the same text (or pair) stay on one side.
Within each class texts are ordered by a hash, and the first are held out, so that class shares are kept; every class
keeps a text to learn from. Sentences are held out in hash order, except those that contain a label's only remaining
words.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

import numpy as np

from electra_trainer.errors import DataError
from electra_trainer.finetuning.examples import TaggedSentence, TextExample

SHARE = 0.1
_RANGES = 10
"""Most ranges of a regression's values; the same share of each is held out."""
E = TypeVar("E")


Split = tuple[list[E], list[E]]
"""Examples to learn from, and examples held out; each in the order of the file."""


def _split(examples: Sequence[E], chosen: Collection[int], *, where: str, what: str) -> Split[E]:
    if not chosen:
        raise DataError(f"{where}: has too few {what} to hold some out. Add {what}, or give a --dev file.")
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return train, [examples[index] for index in sorted(chosen)]


def _groups(texts: Iterable[str]) -> dict[str, list[int]]:
    """The places of each text."""
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(text, []).append(index)
    return groups


def same_text(example: TextExample) -> str:
    """The texts without regard to case and spaces: equal if two examples say the same."""
    first = " ".join(example.text.casefold().split())
    return first if example.pair is None else first + "\n" + " ".join(example.pair.casefold().split())


def hold_out(examples: Sequence[TextExample], *, where: str, share: float = SHARE) -> Split[TextExample]:
    """Split labelled examples; `where` is what they were read from.

    Raises:
        DataError: too few different texts, or too few in each class.
    """
    groups = _groups(map(same_text, examples))
    if len(groups) < 2:
        raise DataError(f"{where}: has one text only, so none can be held out. Add rows, or give a --dev file.")
    strata, texts = _strata(examples), list(groups)
    members = _groups(strata[groups[text][0]] for text in texts)
    chosen: set[int] = set()
    for stratum, count in _quotas({name: len(found) for name, found in members.items()}, share=share).items():
        ordered = sorted((texts[index] for index in members[stratum]), key=_hash)
        chosen.update(row for text in ordered[:count] for row in groups[text])
    if examples[0].value is None:
        chosen = _leave_every_class(groups, chosen, [str(example.label) for example in examples])
    return _split(examples, chosen, where=where, what="rows")


def hold_out_sentences(
    sentences: Sequence[TaggedSentence], *, where: str, share: float = SHARE
) -> Split[TaggedSentence]:
    """Split sentences; those with the same words are on one side.

    Raises:
        DataError: too few different sentences, or each of them has a label that no other has.
    """
    groups = _groups("\n".join(sentence.words).casefold() for sentence in sentences)
    left = Counter(label for sentence in sentences for label in sentence.labels if label is not None)
    chosen: set[int] = set()
    wanted = max(1, round(share * len(groups)))
    for text in sorted(groups, key=_hash):
        own = Counter(label for row in groups[text] for label in sentences[row].labels if label is not None)
        if wanted and own and all(left[label] > count for label, count in own.items()):
            left -= own
            chosen.update(groups[text])
            wanted -= 1
    return _split(sentences, chosen, where=where, what="sentences")


def _leave_every_class(groups: Mapping[str, list[int]], chosen: set[int], labels: Sequence[str]) -> set[int]:
    """`chosen` without texts that have the last rows of a class, such as a text that occurs with two labels."""
    left = {label for row, label in enumerate(labels) if row not in chosen}
    kept = set(chosen)
    for rows in groups.values():
        if rows[0] in kept and any(labels[row] not in left for row in rows):
            kept.difference_update(rows)
            left.update(labels[row] for row in rows)
    return kept


def _strata(examples: Sequence[TextExample]) -> list[str]:
    """The class of each example; for numbers, their range."""
    if examples[0].value is None:
        return [str(example.label) for example in examples]
    values = np.array([example.value for example in examples], dtype=np.float64)
    ranges = max(1, min(_RANGES, round(SHARE * len(values))))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, ranges + 1)[1:-1]))
    return [f"{number:02d}" for number in np.searchsorted(edges, values, side="right")]


def _quotas(sizes: dict[str, int], *, share: float) -> dict[str, int]:
    """Texts to hold out of each stratum: largest remainders, at least one in all, and never a whole stratum."""
    total = max(1, round(share * sum(sizes.values())))
    quotas = {name: min(int(size * share), size - 1) for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(sizes[name] * share - quotas[name]), -sizes[name], _hash(name)))
    for name in by_remainder:
        if sum(quotas.values()) < total and quotas[name] < sizes[name] - 1:
            quotas[name] += 1
    return quotas


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


WARNING = "warning: "
"""Marks a sentence as a warning among notes."""


def overlap(train: Sequence[TextExample], dev: Sequence[TextExample]) -> list[str]:
    """A warning about texts that occur in both files, if there are any."""
    first: dict[str, TextExample] = {}
    for example in train:
        first.setdefault(same_text(example), example)
    both = [(first[text], example) for example in dev if (text := same_text(example)) in first]
    if not both:
        return []
    places = "; ".join(f"{PurePath(two.place).name} is {PurePath(one.place).name}" for one, two in both[:3])
    return [
        f"{WARNING}{len(both):,} of {len(dev):,} development rows ({100 * len(both) / len(dev):.3g} %) are in the "
        f"training file too, so the scores are too good: {places}."
    ]
