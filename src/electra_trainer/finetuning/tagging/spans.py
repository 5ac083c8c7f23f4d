"""Span labels: their notation, the spans that they mark, F1 over them, and checks of labels. No torch here.

    IO      PER                      adjacent words of one type are one span
    BIO     B-PER, I-PER             IOB2; or IOB1, where B- only parts two adjacent spans of one type
    BIOES   B-PER, I-PER, E-PER      S-PER is a span of one word. BILOU: L for E, U for S. BMES, BMEWO: M for I, W for S

The mark is a capital before the type; one of - _ : / | parts the two, and types may be missing. Every label is read as
one of BIOES with a dash. F1 is seqeval's by default, which is that of conlleval (CoNLL-2000 to 2003): an I or E that
continues nothing begins a span, as does a change of type; E and S end one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.finetuning.examples import WARNING, TaggedSentence

Scheme = Literal["none", "io", "bio", "bioes"]
_MEANT = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
"""Mark as written -> mark of BIOES."""
_LABEL = re.compile(r"([BIESLUMW])(?:[-_:/|](.+))?", re.DOTALL)
_OUTSIDE = re.compile("o|0|out|outside|other|none|null", re.IGNORECASE)
"""Labels of words outside of spans."""
_MARK = r"(?:(?P<begin>b(?:eginning|egin|eg)?|start|first)|(?:i(?:ntermediate|nside|n)?|middle|cont))"
_UNREAD = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (rf"\W*{_MARK}[\W_]*(?P<kind>.+?)\W*", rf"\W*(?P<kind>.+?)[\W_]+{_MARK}\W*")
)
"""Marks in notations that are not read, such as BEGIN-PER or PER-B."""
_TAG = re.compile("O|[BIES](-.+)?", re.DOTALL)
UNSEEN_SHARE = 0.1
"""Share of the development words: when more have labels that training lacks, the files do not belong together. Rich
morphology has a few in a hundred.
"""
_LONG = 1_000
"""Words of a sentence that looks like several without blank lines between them."""
_NOT_BY_CHANCE = 5
"""Words of a sentence that hardly occurs twice by chance."""
_SHOWN = 12
"""Types that a note lists."""


@dataclass(frozen=True, kw_only=True)
class Notation:
    """How labels are written."""

    scheme: Scheme
    outside: str = "O"

    def read(self, label: str) -> str | None:
        """A label as a BIOES tag, such as "B-PER" or "O"; None: not a label of this notation."""
        if label == self.outside:
            return "O"
        mark, kind = _parts(label)
        known = mark in (_MEANT if self.scheme == "bioes" else ("B", "I"))
        if self.scheme == "io" and not (known and kind):
            return f"I-{label}"
        if not known:
            return None
        return f"{_MEANT[mark]}-{kind}" if kind else _MEANT[mark]

    def fault(self, label: str) -> str:
        """The fault of a label and what was expected; an empty string if it is right."""
        if self.scheme == "none" or self.read(label) is not None:
            return ""
        expected = ", ".join([self.outside, *(f"{mark}-TYPE" for mark in "BIES"[: 2 if self.scheme == "bio" else 4])])
        return f"label {label!r} is none of {self.scheme.upper()}: expected {expected}."


def _parts(label: str) -> tuple[str, str]:
    """Mark and type of a label; without a mark ("", "")."""
    found = _LABEL.fullmatch(label)
    return (found[1], found[2] or "") if found else ("", "")


def notation_of(labels: Collection[str], scheme: Scheme) -> Notation:
    """The notation of labels of a scheme."""
    numbers = all(label.lstrip("-").isdecimal() for label in labels)
    others = [] if numbers or "O" in labels else [label for label in labels if _OUTSIDE.fullmatch(label)]
    return Notation(scheme=scheme, outside=min(others, default="O"))


def scheme_of(labels: Collection[str]) -> Scheme:
    """The scheme of most labels. A few malformed ones do not matter.

    Args:
        labels: different labels, or a Counter of them: labels without marks are types if O is the most frequent.
    """
    counts = labels if isinstance(labels, Counter) else Counter(labels)
    outside = notation_of(counts, "bioes").outside
    others = [label for label in counts if label != outside]
    read = [parts for label in others if (parts := _parts(label))[0]]
    marks, typed = {mark for mark, _ in read}, any(kind for _, kind in read)
    ends, complete = outside in counts, len(read) == len(others)
    bare = complete and not typed and ((ends and marks & {"B", "I"}) or {"B", "E", "S"} < marks)
    begins = marks & {*"BIESUW"} if ends else complete and "B" in marks
    if bare or (typed and begins and 2 * (len(read) + ends) >= len(counts)):
        return "bioes" if marks - {"B", "I"} else "bio"
    most = ends and counts[outside] == max(counts.values())
    return "io" if others and most and not typed and all(len(label) > 1 for label in others) else "none"


def check_scheme(sentences: Sequence[TaggedSentence], notation: Notation) -> None:
    """DataError at the first label that is not of the notation."""
    for sentence in sentences:
        for index, label in enumerate(sentence.labels):
            if label is not None and (wrong := notation.fault(label)):
                raise DataError(f"{sentence.place_of(index)}: {wrong} For labels without spans: --scheme plain.")


def require_no_marks(types: Iterable[str], path: Path) -> None:
    """DataError if types of spans hold marks that no notation has, such as BEGIN-PER with INSIDE-PER, or PER-B with
    PER-I.
    """
    for form in _UNREAD:
        parts = [(label, found["begin"], found["kind"]) for label in types if (found := form.fullmatch(label))]
        begins = {kind: label for label, begin, kind in parts if begin}
        for label, begin, kind in parts:
            if not begin and kind in begins:
                raise DataError(
                    f"{path}: {begins[kind]!r} seems to begin spans that {label!r} continues. Expected marks before "
                    f"the type: write B-{kind} and I-{kind}. --scheme io takes such labels as types, plain as labels "
                    "without spans."
                )


def described(counts: Counter[str], notation: Notation) -> str:
    """A sentence on the labels: their notation and types, and how they are scored.

    Args:
        counts: labels of the training words.
        notation: of these labels.
    """
    if notation.scheme == "none":
        spans = " If they are types of spans: --scheme io." if notation.outside in counts else ""
        return f"labels: {len(counts)} without spans, scored by accuracy.{spans}"
    types = sorted({tag[2:] for label in counts if (tag := notation.read(label) or "O")[2:]})
    example = next((label for label in counts if _parts(label)[1]), types[0] if types else "B")
    shown = ", ".join(types[:_SHOWN]) + (f" and {len(types) - _SHOWN} more" if len(types) > _SHOWN else "")
    outside = "" if notation.outside == "O" else f"; {notation.outside!r} is read as O"
    return (
        f"labels: {notation.scheme.upper()}, such as {example!r}{outside}; {_count(len(types), 'type')}: {shown}. "
        "Spans are scored by seqeval's definition (conlleval's): same words, same type."
    )


class Span(NamedTuple):
    """Words `first` up to, not including, `stop`."""

    type: str
    first: int
    stop: int


class SpanCounts(NamedTuple):
    """The counts behind precision and recall. A share of nothing is 0, as in conlleval."""

    true: int = 0
    """Spans in the truth."""
    predicted: int = 0
    """Spans in the predictions."""
    right: int = 0
    """Spans in both: same words, same type."""

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right."""
        return self.right / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        """Share of the true spans that were found."""
        return self.right / max(self.true, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        return 2 * self.right / max(self.predicted + self.true, 1)


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


def count_spans(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, SpanCounts]:
    """Counts by type over all sentences; types in alphabetical order.

    Args:
        truth, predicted: the tags of each sentence, equally many in both.
    """
    true_of, predicted_of, right_of = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, predicted_tags in zip(truth, predicted, strict=True):
        if len(true_tags) != len(predicted_tags):
            raise ValueError(f"{len(true_tags)} true tags and {len(predicted_tags)} predicted ones of one sentence.")
        true_spans, predicted_spans = set(spans_of(true_tags)), set(spans_of(predicted_tags))
        true_of.update(span.type for span in true_spans)
        predicted_of.update(span.type for span in predicted_spans)
        right_of.update(span.type for span in true_spans & predicted_spans)
    return {
        kind: SpanCounts(true=true_of[kind], predicted=predicted_of[kind], right=right_of[kind])
        for kind in sorted(true_of.keys() | predicted_of.keys())
    }


def total(counts: Mapping[str, SpanCounts]) -> SpanCounts:
    """All types together: the micro average, which is the one that papers report."""
    return SpanCounts(*map(sum, zip(*counts.values(), strict=True)))


def check_labels(labels: Sequence[str], path: Path) -> None:
    """DataError unless there are two labels."""
    if len(labels) < 2:
        found = f"every word has the label {labels[0]!r}" if labels else "no word has a label"
        raise DataError(f"{path}: {found}, so there is nothing to learn. Is it the right label column?")


def odd_sentences(sentences: Sequence[TaggedSentence]) -> Iterator[str]:
    """Notes on a file: words without labels, sentences that are too long to be one."""
    file = Path(sentences[0].file).name
    blank = [(s, i) for s in sentences for i, label in enumerate(s.labels) if label is None]
    if blank:
        yield (
            f"{_count(len(blank), 'word')} of {file} without a label (first at {_at(blank)}): not learned, not scored."
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
            "training file's labels in the same column: mend them, write _ where a word is not to be scored, or add "
            "sentences with them to the training file."
        )
    yield f"{_at(unseen)}: {what} {_count(len(unseen), 'word')} of {words:,} with such labels: scored, and never right."


def sentence_overlap(train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence]) -> Iterator[str]:
    """A note on development sentences that occur in training, word for word; a warning if one is too long for
    chance.
    """
    known = {sentence.words for sentence in train}
    twice = [sentence for sentence in dev if sentence.words in known]
    long = [sentence for sentence in twice if len(sentence.words) >= _NOT_BY_CHANCE]
    first = f" (first at {_at([(long[0], 0)])})" if long else ""
    if twice:
        yield (
            f"{WARNING if long else ''}{len(twice):,} of {_count(len(dev), 'sentence')} in {Path(dev[0].file).name} "
            f"are in training too, {len(long):,} of them with {_NOT_BY_CHANCE} words or more{first}."
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _at(found: Sequence[tuple[TaggedSentence, int]]) -> str:
    """The first place, for notes: without its folder, so that a moved file leaves a result as it is."""
    sentence, index = found[0]
    return Path(sentence.place_of(index)).name
