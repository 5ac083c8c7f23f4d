"""Training and development examples: a held-out tenth where no development file is given, and warnings about both. No torch here.

The held-out tenth is the same on every machine and in every run. Rows with the same text (or pair) stay on one side. Within each class
texts are ordered by a hash, and the first are held out, so that class shares are kept; every class keeps a text to learn from. Sentences
are held out in hash order, except those that contain a label's only remaining words.
"""

import filecmp
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.tables import NUMBER
from electra_trainer.finetuning.examples import TaggedSentence, TextExample

SHARE = 0.1
_RANGES = 10
"""Most ranges of a regression's values; the same share of each is held out."""
E = TypeVar("E")


class Split(NamedTuple, Generic[E]):
    """Examples to learn from, and examples held out; each in the order of the file."""

    train: list[E]
    held_out: list[E]


def _split(examples: Sequence[E], chosen: Collection[int], *, where: str, what: str) -> Split[E]:
    if not chosen:
        raise DataError(f"{where}: has too few {what} to hold some out. Add {what}, or give a --dev file.")
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return Split(train, [examples[index] for index in sorted(chosen)])


def same_text(example: TextExample) -> str:
    """The texts without regard to case and spaces: equal if two examples say the same."""
    first = " ".join(example.text.casefold().split())
    return first if example.pair is None else first + "\n" + " ".join(example.pair.casefold().split())


def hold_out(examples: Sequence[TextExample], *, where: str, share: float = SHARE) -> Split[TextExample]:
    """Split labelled examples; `where` is what they were read from.

    Raises:
        DataError: too few different texts, or too few in each class.
    """
    groups: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(same_text(example), []).append(index)
    if len(groups) < 2:
        raise DataError(
            f"{where}: has fewer than two different texts, so none can be held out. Add rows, or give a --dev file."
        )
    strata = _strata(examples)
    texts: dict[str, list[str]] = {}
    for text, rows in groups.items():
        texts.setdefault(strata[rows[0]], []).append(text)
    chosen: set[int] = set()
    for stratum, count in _quotas({name: len(members) for name, members in texts.items()}, share=share).items():
        ordered = sorted(texts[stratum], key=_hash)
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
    groups: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        groups.setdefault("\n".join(sentence.words).casefold(), []).append(index)
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
    """Refuse a development file that is the training file or a copy of it; unreadable files are for the reader to report.

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
        raise ConfigError(
            f"--dev {dev}: is the training file {train}; its scores would show what was memorized. {instead}"
        )


_BETWEEN = re.compile(r"[\W_]+")
WARNING = "warning: "
"""Marks a sentence as a warning among notes."""
MOSTLY, HARDLY = 0.9, 0.1
"""A label leaks if it occurs in the text of at least the first share of its own rows, and at most the second of the others."""
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
        leaks = label_in_text(train)
        found += [*leaks, *([] if leaks else simple_rules(train)), *imbalance(train)]
    return [WARNING + sentence for sentence in found]


def warnings_of_a_benchmark(train: Sequence[TextExample], dev: Iterable[Sequence[TextExample]]) -> list[str]:
    """The same of data whose rows and classes are not ours to change: contradictions, and overlap with each development set."""
    found = [*contradictions(train), *(sentence for rows in dev for sentence in overlap(train, rows))]
    return [WARNING + sentence for sentence in found]


def overlap(train: Sequence[TextExample], dev: Sequence[TextExample]) -> list[str]:
    """Texts that occur in both files."""
    first: dict[str, TextExample] = {}
    for example in train:
        first.setdefault(same_text(example), example)
    both = [(first[text], example) for example in dev if (text := same_text(example)) in first]
    if not both:
        return []
    examples = "; ".join(f"{_at(other)} is {_at(mine)}" for mine, other in both[:3])
    differ = sum(_answer(mine) != _answer(other) for mine, other in both)
    told = f" Of these, {differ:,} with another label there." if differ else ""
    return [
        f"{len(both):,} of {len(dev):,} development rows ({_percent(len(both), len(dev))}) are in the training file too, so the scores "
        f"are too good: {examples}.{told}"
    ]


def contradictions(train: Sequence[TextExample]) -> list[str]:
    """The same text with different labels."""
    first: dict[str, TextExample] = {}
    repeats = [(mine, one) for one in train if (mine := first.setdefault(same_text(one), one)) is not one]
    pairs = [(mine, other) for mine, other in repeats if _answer(mine) != _answer(other)]
    found = []
    if pairs:
        one, two = pairs[0]
        found.append(
            f"{len(pairs):,} training row{'' if len(pairs) == 1 else 's'} with the text of another and a different label, for example "
            f"{_at(two)} ({_answer(two)!r}) and {_at(one)} ({_answer(one)!r}). No model can be right about both."
        )
    if len(repeats) >= max(2, len(train) // 10):
        share = _percent(len(repeats), len(train))
        found.append(f"{len(repeats):,} of {len(train):,} training rows ({share}) repeat the text of another.")
    return found


def odd_texts(train: Sequence[TextExample]) -> list[str]:
    """Columns that hold no text: ids, numbers, the same in all rows."""
    if len(train) < _ENOUGH:
        return []
    columns = {"text": [example.text for example in train]}
    if train[0].pair is not None:
        columns["text pair"] = [example.pair or "" for example in train]
    found = []
    for name, column in columns.items():
        first, words = _short(column[0]), [text.split() for text in column]
        if len(set(column)) == 1:
            found.append(f"the {name} is the same in all rows ({first}). Is it the right column?")
        elif sum(not any(letter.isalpha() for letter in text) for text in column) >= MOSTLY * len(column):
            found.append(f"the {name} holds no letters, for example {first}: numbers or ids? Is it the right column?")
        elif len(set(column)) == len(column) and all(len(w) == 1 and any(map(str.isdigit, w[0])) for w in words):
            found.append(f"the {name} is one word with digits, another one in each row ({first}): are these ids?")
    return found


def label_in_text(train: Sequence[TextExample]) -> list[str]:
    """Labels whose own words occur in the text of nearly all of their rows and hardly elsewhere."""
    rows = _some(train)
    counts = Counter(str(example.label) for example in rows)
    words = [f" {_words(example.text + ' ' + (example.pair or ''))} " for example in rows]
    sought = {label: f" {_words(label)} " for label in counts}
    own = Counter(str(row.label) for row, text in zip(rows, words, strict=True) if sought[str(row.label)] in text)
    suspects = [
        label
        for label, count in counts.most_common()
        if sought[label].strip() and 5 <= count < len(rows) and own[label] >= MOSTLY * count
    ]
    found = []
    for label in suspects[:20]:
        count, others = counts[label], len(rows) - counts[label]
        there = sum(sought[label] in text for row, text in zip(rows, words, strict=True) if row.label != label)
        if there <= HARDLY * others:
            found.append(
                f"the text of {_percent(own[label], count)} of the rows labelled {label!r} says {label!r} itself, and of "
                f"{_percent(there, others)} of the others: the label has leaked into the text."
            )
    return found[:3]


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


def imbalance(train: Sequence[TextExample]) -> list[str]:
    """Classes that nearly all rows have, or nearly none; labels that differ only in how they are written."""
    counts = Counter(str(example.label) for example in train).most_common()
    (most, many), (least, few) = counts[0], counts[-1]
    found = []
    single = [label for label, count in counts if count == 1]
    if single:
        names = ", ".join(map(repr, single[:5])) + (" and others" if len(single) > 5 else "")
        classes = f"{len(single)} class{'es' if len(single) > 1 else ''}"
        found.append(f"{classes} with a single training row ({names}): too few to learn from.")
    if many >= MOSTLY * len(train):
        share = _percent(many, len(train))
        found.append(
            f"{share} of the rows are {most!r}, so always saying that is as accurate. Read macro_f1 and matthews."
        )
    elif 1 < few < 0.01 * len(train):
        found.append(
            f"{least!r} has {few} of {len(train):,} training rows. Read macro_f1, which weights all classes equally."
        )
    values = Counter(float(label) for label, _ in counts if NUMBER.fullmatch(label))
    folded = Counter(label.casefold() for label, _ in counts)
    equal = sorted(label for label, _ in counts if NUMBER.fullmatch(label) and values[float(label)] > 1)
    alike = sorted(label for label, _ in counts if folded[label.casefold()] > 1)
    for labels, why in (
        (equal, "are numbers written in several ways, each a separate class. Write a number in one way."),
        (alike, "differ in capitals only. Are they the same class?"),
    ):
        if labels:
            found.append(f"the labels {', '.join(map(repr, labels[:4]))} {why}")
    return found


def _some(train: Sequence[TextExample]) -> Sequence[TextExample]:
    """Rows from all over the file, as many as a check needs."""
    return train[:: 1 + len(train) // _LOOKED_AT]


def _explained(said: Sequence[str], train: Sequence[TextExample]) -> int:
    """Right rows if each answer of a rule predicts its most frequent class."""
    both: dict[str, Counter[str]] = {}
    for answer, example in zip(said, train, strict=True):
        both.setdefault(answer, Counter())[str(example.label)] += 1
    return sum(max(counts.values()) for counts in both.values())


def _telling_words(train: Sequence[TextExample]) -> Iterator[tuple[str, int]]:
    """Frequent words, and right rows if the word's presence predicts the label."""
    classes = Counter(str(example.label) for example in train)
    with_word: dict[str, Counter[str]] = {}
    for example in train:
        for word in set(_words(example.text).split()):
            with_word.setdefault(word, Counter())[str(example.label)] += 1
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


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"
