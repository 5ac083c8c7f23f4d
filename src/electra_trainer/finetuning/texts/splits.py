"""Training and development examples: a held-out tenth where no development file is given, and warnings about both. No
torch here.

The held-out tenth is the same on every machine and in every run. Rows with the same text (or pair) stay on one side.
Within each class texts are ordered by a hash, and the first are held out, so that class shares are kept; every class
keeps a text to learn from. Sentences are held out in hash order, except those that contain a label's only remaining
words.
"""

import filecmp
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

import numpy as np

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.tables import NUMBER
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


_BETWEEN = re.compile(r"[\W_]+")
WARNING = "warning: "
"""Marks a sentence as a warning among notes."""
MOSTLY, HARDLY = 0.9, 0.1
"""A label leaks if it occurs in the text of at least the first share of its own rows, and at most the second of the
others.
"""
_ENOUGH = 20
"""In fewer rows a rule that fits all of them says little."""
_RULE = 0.99
"""Share of rows that a simple rule must explain to be reported."""
_LOOKED_AT = 10_000
"""Rows, about, that are searched for leaks."""


def warnings(train: Sequence[TextExample], dev: Sequence[TextExample], *, held_out: bool) -> list[str]:
    """All checks of a training and a development set; `held_out` where the second is a part of the first file."""
    found = [*contradictions(train), *odd_texts(train)]
    if not held_out:
        found += [f"{sentence} Remove them from one of the files." for sentence in overlap(train, dev)]
    if train and train[0].label is not None:
        leaks = list(label_in_text(train))[:3]
        found += [*leaks, *([] if leaks else simple_rules(train)), *imbalance(train)]
    return [WARNING + sentence for sentence in found]


def warnings_of_a_benchmark(train: Sequence[TextExample], dev: Iterable[Sequence[TextExample]]) -> list[str]:
    """The same of data whose rows and classes are not ours to change: contradictions, and overlap with each development
    set.
    """
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
    told = f" Of these, {differ:,} with another label there." if differ else ""
    if both:
        yield (
            f"{len(both):,} of {len(dev):,} development rows ({_percent(len(both), len(dev))}) are in the training "
            "file too, so the scores "
            f"are too good: {examples}.{told}"
        )


def contradictions(train: Sequence[TextExample]) -> Iterator[str]:
    """The same text with different labels."""
    first: dict[str, TextExample] = {}
    repeats = [(mine, one) for one in train if (mine := first.setdefault(same_text(one), one)) is not one]
    pairs = [(mine, other) for mine, other in repeats if _answer(mine) != _answer(other)]
    if pairs:
        one, two = pairs[0]
        yield (
            f"{len(pairs):,} training row{'' if len(pairs) == 1 else 's'} with the text of another and a different "
            "label, for example "
            f"{_at(two)} ({_answer(two)!r}) and {_at(one)} ({_answer(one)!r}). No model can be right about both."
        )
    if len(repeats) >= max(2, len(train) // 10):
        share = _percent(len(repeats), len(train))
        yield f"{len(repeats):,} of {len(train):,} training rows ({share}) repeat the text of another."


def odd_texts(train: Sequence[TextExample]) -> Iterator[str]:
    """Columns that hold no text: ids, numbers, the same in all rows."""
    columns = {"text": [example.text for example in train], "text pair": [example.pair or "" for example in train]}
    for name, column in columns.items():
        if len(train) < _ENOUGH or (name == "text pair" and train[0].pair is None):
            return
        text = column[0]
        first, words = repr(text if len(text) <= 40 else text[:37] + "..."), [text.split() for text in column]
        if len(set(column)) == 1:
            yield f"the {name} is the same in all rows ({first}). Is it the right column?"
        elif sum(not any(letter.isalpha() for letter in text) for text in column) >= MOSTLY * len(column):
            yield f"the {name} holds no letters, for example {first}: numbers or ids? Is it the right column?"
        elif len(set(column)) == len(column) and all(len(w) == 1 and any(map(str.isdigit, w[0])) for w in words):
            yield f"the {name} is one word with digits, another one in each row ({first}): are these ids?"


def label_in_text(train: Sequence[TextExample]) -> Iterator[str]:
    """Labels whose own words occur in the text of nearly all of their rows and hardly elsewhere."""
    rows = _some(train)
    counts = Counter(str(example.label) for example in rows)
    words = [(str(one.label), f" {_words(one.text + ' ' + (one.pair or ''))} ") for one in rows]
    sought = {label: f" {_words(label)} " for label in counts}
    own = Counter(label for label, text in words if sought[label] in text)
    suspects = [
        label
        for label, count in counts.most_common()
        if sought[label].strip() and 5 <= count < len(rows) and own[label] >= MOSTLY * count
    ]
    for label in suspects[:20]:
        count, others = counts[label], len(rows) - counts[label]
        there = sum(sought[label] in text for other, text in words if other != label)
        if there <= HARDLY * others:
            yield (
                f"the text of {_percent(own[label], count)} of the rows labelled {label!r} says {label!r} itself, and "
                "of "
                f"{_percent(there, others)} of the others: the label has leaked into the text."
            )


def simple_rules(train: Sequence[TextExample]) -> list[str]:
    """A rule without knowledge of language that predicts the label."""
    train = _some(train)
    counts = Counter(example.label for example in train)
    if len(train) < _ENOUGH or len(counts) < 2 or max(counts.values()) > MOSTLY * len(train):
        return []
    rules: dict[str, Callable[[TextExample], str]] = {
        "the first word of the text": lambda example: next(iter(example.text.split()), ""),
        "the last word of the text": lambda example: next(reversed(example.text.split()), ""),
        "the length of the text": lambda example: str(len(example.text)),
        "whether the two texts are the same": lambda example: str(example.text == example.pair),
    }
    said = {name: [rule(example) for example in train] for name, rule in rules.items()}
    explained = [(name, _explained(one, train)) for name, one in said.items() if len(set(one)) <= len(train) // 4]
    for name, right in (*explained, *((f"the word {word!r}", right) for word, right in _telling_words(train))):
        if right >= _RULE * len(train):
            return [f"{name} alone predicts the label in {_percent(right, len(train))} of the rows. Is that intended?"]
    return []


def imbalance(train: Sequence[TextExample]) -> Iterator[str]:
    """Classes that nearly all rows have, or nearly none; labels that differ only in how they are written."""
    counts = Counter(str(example.label) for example in train).most_common()
    (most, many), (least, few) = counts[0], counts[-1]
    single = [label for label, count in counts if count == 1]
    if single:
        names = ", ".join(map(repr, single[:5])) + (" and others" if len(single) > 5 else "")
        classes = f"{len(single)} class{'es' if len(single) > 1 else ''}"
        yield f"{classes} with a single training row ({names}): too few to learn from."
    if many >= MOSTLY * len(train):
        share = _percent(many, len(train))
        yield f"{share} of the rows are {most!r}, so always saying that is as accurate. Read macro_f1 and matthews."
    elif 1 < few < 0.01 * len(train):
        yield f"{least!r} has {few} of {len(train):,} training rows. Read macro_f1, which weights all classes equally."
    numeric = [label for label, _ in counts if NUMBER.fullmatch(label)]
    values, folded = Counter(map(float, numeric)), Counter(label.casefold() for label, _ in counts)
    equal = sorted(label for label in numeric if values[float(label)] > 1)
    alike = sorted(label for label, _ in counts if folded[label.casefold()] > 1)
    for labels, why in (
        (equal, "are numbers written in several ways, each a separate class. Write a number in one way."),
        (alike, "differ in capitals only. Are they the same class?"),
    ):
        if labels:
            yield f"the labels {', '.join(map(repr, labels[:4]))} {why}"


def _some(train: Sequence[TextExample]) -> Sequence[TextExample]:
    """Rows from all over the file, as many as a check needs."""
    return train[:: 1 + len(train) // _LOOKED_AT]


def _explained(said: Sequence[str], train: Sequence[TextExample]) -> int:
    """Right rows if each answer of a rule predicts its most frequent class."""
    both: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for answer, example in zip(said, train, strict=True):
        both[answer][str(example.label)] += 1
    return sum(max(counts.values()) for counts in both.values())


def _telling_words(train: Sequence[TextExample]) -> Iterator[tuple[str, int]]:
    """Frequent words, and right rows if the word's presence predicts the label."""
    classes = Counter(str(example.label) for example in train)
    with_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        for word in set(_words(example.text).split()):
            with_word[word][str(example.label)] += 1
    for word, counts in with_word.items():
        if sum(counts.values()) >= len(train) // 10:
            yield word, max(counts.values()) + max(classes[label] - counts[label] for label in classes)


def _words(text: str) -> str:
    return _BETWEEN.sub(" ", text.casefold()).strip()


def _at(example: TextExample) -> str:
    """`file:line` without the folder."""
    return PurePath(example.place).name


def _answer(example: TextExample) -> str | float | None:
    return example.label if example.value is None else example.value


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"
