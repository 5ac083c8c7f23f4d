"""A tenth of the training rows held out where there is no development set: the same tenth on every machine, in every run.

Rows with the same text (or pair) stay on one side. Within each class texts are ordered by a hash of what they say, and the first are
held out, so that classes have the shares that they have in the whole; every class keeps a text to learn from. Of tagged sentences the
first by such a hash are held out, but none with the last words of a label.

A development file is another one than the training file, by whatever name.
"""

import filecmp
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetuning.tagging.spans import TaggedSentence
from electra_trainer.finetuning.task import TextExample

SHARE = 0.1
_RANGES = 10
"""Of a regression's values, at most, from each of which the same share is held out."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples to learn from, and examples held out; each in the order of the file."""

    train: list[TextExample]
    held_out: list[TextExample]


def same_text(example: TextExample) -> str:
    """What two examples share if they say the same: their texts without regard to case and spaces."""
    first = " ".join(example.text.casefold().split())
    return first if example.pair is None else first + "\n" + " ".join(example.pair.casefold().split())


def hold_out(examples: Sequence[TextExample], *, where: str, share: float = SHARE) -> Split:
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
    if not chosen:
        raise DataError(f"{where}: has too few rows to hold some out. Add rows, or give a --dev file.")
    return Split(
        train=[example for index, example in enumerate(examples) if index not in chosen],
        held_out=[examples[index] for index in sorted(chosen)],
    )


def hold_out_sentences(
    sentences: Sequence[TaggedSentence], *, where: str, share: float = SHARE
) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """Sentences to learn from and sentences held out, each in the order of the file; the same words are on one side.

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
    if not chosen:
        raise DataError(f"{where}: has too few sentences to hold some out. Add sentences, or give a --dev file.")
    return (
        [sentence for index, sentence in enumerate(sentences) if index not in chosen],
        [sentences[index] for index in sorted(chosen)],
    )


def _leave_every_class(groups: Mapping[str, list[int]], chosen: set[int], labels: Sequence[str]) -> set[int]:
    """`chosen` without the texts that bear the last rows of a class: a text that stands there with two labels, say."""
    left = {label for row, label in enumerate(labels) if row not in chosen}
    kept = set(chosen)
    for rows in groups.values():
        if rows[0] in kept and any(labels[row] not in left for row in rows):
            kept.difference_update(rows)
            left.update(labels[row] for row in rows)
    return kept


def _strata(examples: Sequence[TextExample]) -> list[str]:
    """The class of each example; of numbers, the range that it falls into."""
    if examples[0].value is None:
        return [str(example.label) for example in examples]
    values = np.array([example.value for example in examples], dtype=np.float64)
    ranges = max(1, min(_RANGES, round(SHARE * len(values))))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, ranges + 1)[1:-1]))
    return [f"{number:02d}" for number in np.searchsorted(edges, values, side="right")]


def _quotas(sizes: dict[str, int], *, share: float) -> dict[str, int]:
    """How many texts of each stratum: largest remainders, one at least in all, and never the whole of a stratum."""
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
    """See that `dev` is neither `train` nor a copy of it. What cannot be read is left to whoever reads it.

    Args:
        instead: what to do, a sentence.

    Raises:
        ConfigError: it is.
    """
    try:
        same = train.is_file() and dev.is_file() and (train.samefile(dev) or filecmp.cmp(train, dev, shallow=False))
    except OSError:
        return
    if same:
        raise ConfigError(
            f"--dev {dev}: is the training file {train}; its scores would say what was learned by heart. {instead}"
        )
