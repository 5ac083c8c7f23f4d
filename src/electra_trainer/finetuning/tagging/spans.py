"""Spans that the tags of a sentence mark, F1 over them, and checks of labels. No torch here.

F1 is seqeval's by default, which is that of conlleval (CoNLL-2000 to 2003). Tags are O, or B, I, E or S with a type,
`B-PER`; types may be missing; notation.py reads other notations as these. An I or E that continues nothing begins a
span, as does a change of type; E and S end one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.notation import Notation
from electra_trainer.finetuning.texts.splits import WARNING

_TAG = re.compile("O|[BIES](-.+)?", re.DOTALL)
UNSEEN_SHARE = 0.1
"""Of the development words: when more have labels that training lacks, the files do not belong together. Rich
morphology has a few in a hundred.
"""
_LONG = 1_000
"""Words of a sentence that looks like several without blank lines between them."""
_NOT_BY_CHANCE = 5
"""Words of a sentence that hardly occurs twice by chance."""


class Span(NamedTuple):
    """Words `first` up to, not including, `stop`."""

    type: str
    first: int
    stop: int


class SpanCounts(NamedTuple):
    """The counts behind precision and recall. A share of nothing is 0, as in conlleval."""

    true: int = 0
    """Spans in the truth."""
    said: int = 0
    """Spans in the predictions."""
    right: int = 0
    """Spans in both: same words, same type."""

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right."""
        return self.right / max(self.said, 1)

    @property
    def recall(self) -> float:
        """Share of the true spans that were found."""
        return self.right / max(self.true, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        return 2 * self.right / max(self.said + self.true, 1)


def split_tag(tag: str) -> tuple[str, str]:
    """`B-PER` -> ("B", "PER"); `O` -> ("O", ""). ValueError: neither O nor a mark with or without a type."""
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r}: not a tag of a span. Expected O, or B, I, E, S with -TYPE.")
    mark, _, kind = tag.partition("-")
    return mark, kind


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, in order."""
    found: list[Span] = []
    first, open_type = 0, None
    for index, tag in enumerate(tags):
        mark, kind = split_tag(tag)
        if open_type is not None and not (mark in ("I", "E") and kind == open_type):
            found.append(Span(open_type, first, index))
            open_type = None
        if mark != "O" and open_type is None:
            first, open_type = index, kind
        if mark in ("E", "S"):
            found.append(Span(kind, first, index + 1))
            open_type = None
    if open_type is not None:
        found.append(Span(open_type, first, len(tags)))
    return found


def count_spans(truth: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, SpanCounts]:
    """Counts by type over all sentences; types in alphabetical order.

    Args:
        truth, said: the tags of each sentence, equally many in both.
    """
    true_of, said_of, right_of = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, said_tags in zip(truth, said, strict=True):
        if len(true_tags) != len(said_tags):
            raise ValueError(f"{len(true_tags)} true tags and {len(said_tags)} predicted ones of one sentence.")
        true_spans, said_spans = set(spans_of(true_tags)), set(spans_of(said_tags))
        true_of.update(span.type for span in true_spans)
        said_of.update(span.type for span in said_spans)
        right_of.update(span.type for span in true_spans & said_spans)
    return {
        kind: SpanCounts(true=true_of[kind], said=said_of[kind], right=right_of[kind])
        for kind in sorted(true_of.keys() | said_of.keys())
    }


def total(counts: Mapping[str, SpanCounts]) -> SpanCounts:
    """All types together: the micro average, which is the one that papers report."""
    return SpanCounts(*map(sum, zip(*counts.values(), strict=True)))


def check_labels(labels: Sequence[str], path: Path) -> None:
    """DataError unless there are two labels."""
    if len(labels) < 2:
        found = f"every word has the label {labels[0]!r}" if labels else "no word has a label"
        raise DataError(f"{path}: {found}, so there is nothing to learn. Is it the right label column?")


def begun_by(sentences: Sequence[TaggedSentence], notation: Notation, marks: str) -> list[tuple[TaggedSentence, int]]:
    """Spans that one of these marks begins, each as its sentence and its first word."""
    if notation.scheme == "none":
        return []
    read = [(one, [notation.read(label) or "O" if label else "O" for label in one.labels]) for one in sentences]
    return [(one, span.first) for one, tags in read for span in spans_of(tags) if tags[span.first][0] in marks]


def is_parted(sentences: Sequence[TaggedSentence], notation: Notation) -> bool:
    """Whether each B follows a word of the same type, as in IOB1."""
    return all(
        at > 0
        and (before := one.labels[at - 1])
        and (notation.read(before) or "")[1:] == (notation.read(str(one.labels[at])) or "")[1:]
        for one, at in begun_by(sentences, notation, "B")
    )


def odd_sentences(sentences: Sequence[TaggedSentence], notation: Notation) -> Iterator[str]:
    """Notes on a file: words without labels, spans that begin with I or E, sentences that are too long to be one."""
    file = Path(sentences[0].file).name
    blank = [(s, i) for s in sentences for i, label in enumerate(s.labels) if label is None]
    if blank:
        yield (
            f"{_count(len(blank), 'word')} of {file} without a label (first at {_at(blank)}): not learned, not scored."
        )
    begun = begun_by(sentences, notation, "IE") if "B" in notation.marks else []
    if begun:
        yield (
            f"{_count(len(begun), 'span')} of {file} that an I- or E- begins (first at {_at(begun)}): counted, as "
            "conlleval does. "
            "They are usual in IOB1, and slips elsewhere."
        )
    longest = max(sentences, key=lambda sentence: len(sentence.words))
    if len(longest.words) > _LONG:
        yield f"{_at([(longest, 0)])}: a sentence of {len(longest.words):,} words. Are blank lines missing?"


def unseen_labels(dev: Sequence[TaggedSentence], labels: Sequence[str], train: Path) -> Iterator[str]:
    """A note on labels that training lacks; DataError if there are many, or no labels at all."""
    known = {*labels, None}
    unseen = [(s, i) for s in dev for i, label in enumerate(s.labels) if label not in known]
    words = sum(label is not None for sentence in dev for label in sentence.labels)
    if not words:
        raise DataError(f"{dev[0].file}: no word has a label, so nothing can be scored. Is it the right label column?")
    if not unseen:
        return
    sentence, index = unseen[0]
    first = str(sentence.labels[index])
    what = f"label {first!r} does not occur in {train.name}.{did_you_mean(first, labels)}"
    if len(unseen) > UNSEEN_SHARE * words:
        raise DataError(
            f"{sentence.place_of(index)}: {what} {len(unseen):,} of {words:,} words have such labels. Expected the "
            "training "
            "file's labels in the same column: mend them, write _ where a word is not to be scored, or add sentences "
            "with them "
            "to the training file."
        )
    yield f"{_at(unseen)}: {what} {_count(len(unseen), 'word')} of {words:,} with such labels: scored, and never right."


def sentence_overlap(train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence]) -> Iterator[str]:
    """A note on development sentences that occur in training, word for word; a warning if one is too long for
    chance.
    """
    seen = {sentence.words for sentence in train}
    twice = [sentence for sentence in dev if sentence.words in seen]
    long = [sentence for sentence in twice if len(sentence.words) >= _NOT_BY_CHANCE]
    first = f" (first at {_at([(long[0], 0)])})" if long else ""
    if twice:
        yield (
            f"{WARNING if long else ''}{len(twice):,} of {_count(len(dev), 'sentence')} in {Path(dev[0].file).name} "
            "are in training too, "
            f"{len(long):,} of them with {_NOT_BY_CHANCE} words or more{first}."
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _at(found: Sequence[tuple[TaggedSentence, int]]) -> str:
    """The first place, for notes: without its folder, so that a moved file leaves a result as it is."""
    sentence, index = found[0]
    return Path(sentence.place_of(index)).name
