"""Training and development examples: a held-out tenth where no development file is given, and warnings about both. No
torch here.

The held-out tenth is the same on every machine and in every run. Rows with the same text (or pair) stay on one side.
Within each class texts are ordered by a hash, and the first are held out, so that class shares are kept; every class
keeps a text to learn from. Sentences are held out in hash order, except those that contain a label's only remaining
words.
"""

import filecmp
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

import numpy as np

from electra_trainer.errors import ConfigError, DataError
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
    if not any(quotas.values()):
        quotas[max(sizes, key=lambda name: (sizes[name], _hash(name)))] = 1
    return quotas


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def require_other_file(
    train: Path, dev: Path, *, instead: str = "Leave --dev out, and a tenth of it is held out."
) -> None:
    """Refuse a development file that is the training file or a copy of it; unreadable files are for the reader to
    report.

    Args:
        instead: the remedy, a sentence.

    Raises:
        ConfigError: it is.
    """
    try:
        same = train.is_file() and dev.is_file() and (train.samefile(dev) or filecmp.cmp(train, dev, shallow=False))
    except OSError:
        return
    if same:
        raise ConfigError(f"--dev {dev}: is the training file {train}; scores would show what was memorized. {instead}")


WARNING = "warning: "
"""Marks a sentence as a warning among notes."""
_MOSTLY = 0.9
"""Share of rows of a class that makes accuracy say little."""


def warnings(train: Sequence[TextExample], dev: Sequence[TextExample], *, held_out: bool) -> list[str]:
    """All checks of a training and a development set; `held_out` where the second is a part of the first file."""
    found = [*contradictions(train)]
    if not held_out:
        found += [f"{sentence} Remove them from one of the files." for sentence in overlap(train, dev)]
    if train and train[0].label is not None:
        found += imbalance(train)
    return [WARNING + sentence for sentence in found]


def warnings_of_a_benchmark(train: Sequence[TextExample], dev: Iterable[Sequence[TextExample]]) -> list[str]:
    """Warnings for a fixed benchmark: contradictions, and overlap with each development set."""
    found = [*contradictions(train), *(sentence for rows in dev for sentence in overlap(train, rows))]
    return [WARNING + sentence for sentence in found]


def overlap(train: Sequence[TextExample], dev: Sequence[TextExample]) -> Iterator[str]:
    """Texts that occur in both files."""
    first: dict[str, TextExample] = {}
    for example in train:
        first.setdefault(same_text(example), example)
    both = [(first[text], example) for example in dev if (text := same_text(example)) in first]
    examples = "; ".join(f"{_at(other)} is {_at(mine)}" for mine, other in both[:3])
    differ = sum(_answer(mine) != _answer(other) for mine, other in both)
    other = f" Of these, {differ:,} with another label there." if differ else ""
    if both:
        yield (
            f"{len(both):,} of {len(dev):,} development rows ({_percent(len(both), len(dev))}) are in the training "
            f"file too, so the scores are too good: {examples}.{other}"
        )


def contradictions(train: Sequence[TextExample]) -> Iterator[str]:
    """Texts that occur with different labels, and many that are repeated."""
    first: dict[str, TextExample] = {}
    repeats = [(mine, one) for one in train if (mine := first.setdefault(same_text(one), one)) is not one]
    pairs = [(mine, other) for mine, other in repeats if _answer(mine) != _answer(other)]
    if pairs:
        one, two = pairs[0]
        yield (
            f"{len(pairs):,} training row{'' if len(pairs) == 1 else 's'} with the text of another and a different "
            f"label, for example {_at(two)} ({_answer(two)!r}) and {_at(one)} ({_answer(one)!r}). No model can be "
            "right about both."
        )
    if len(repeats) >= max(2, len(train) // 10):
        share = _percent(len(repeats), len(train))
        yield f"{len(repeats):,} of {len(train):,} training rows ({share}) repeat the text of another."


def imbalance(train: Sequence[TextExample]) -> Iterator[str]:
    """Classes that nearly all rows have, or nearly none."""
    counts = Counter(str(example.label) for example in train).most_common()
    (most, many), (least, few) = counts[0], counts[-1]
    single = [label for label, count in counts if count == 1]
    if single:
        names = ", ".join(map(repr, single[:5])) + (" and others" if len(single) > 5 else "")
        classes = f"{len(single)} class{'es' if len(single) > 1 else ''}"
        yield f"{classes} with a single training row ({names}): too few to learn from."
    if many >= _MOSTLY * len(train):
        share = _percent(many, len(train))
        yield f"{share} of the rows are {most!r}, so always saying that is as accurate. Read macro_f1 and matthews."
    elif 1 < few < 0.01 * len(train):
        yield f"{least!r} has {few} of {len(train):,} training rows. Read macro_f1, which weights all classes equally."


def _at(example: TextExample) -> str:
    """`file:line` without the folder."""
    return PurePath(example.place).name


def _answer(example: TextExample) -> str | float | None:
    return example.label if example.value is None else example.value


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"
