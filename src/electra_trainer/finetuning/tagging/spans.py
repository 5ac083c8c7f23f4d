"""Spans that the tags of a sentence mark, and F1 over them as conlleval counts it (CoNLL-2000 to 2003). No torch here.

Tags are O, or B, I, E or S with a type, `B-PER`; types may be missing. One reading serves IOB1, IOB2 (BIO) and BIOES and uses every tag:
an I or E that continues nothing begins a span, as does a change of type; E and S end one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MARKS = "BIES"


class Span(NamedTuple):
    """Words `first` up to, not including, `stop`."""

    type: str
    first: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class SpanCounts:
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
    mark, dash, kind = tag.partition("-")
    if mark not in (*MARKS, "O") or (mark == "O" and dash) or (dash and not kind):
        raise ValueError(f"{tag!r}: not a tag of a span. Expected O, or B, I, E, S with -TYPE.")
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
    return SpanCounts(
        true=sum(count.true for count in counts.values()),
        said=sum(count.said for count in counts.values()),
        right=sum(count.right for count in counts.values()),
    )


Scheme = Literal["none", "bio", "bioes"]
_MARKS: dict[str, str] = {"bio": "OBI", "bioes": "OBIES"}


def scheme_of(labels: Collection[str]) -> Scheme:
    """The scheme of most labels: marks that begin or continue a span, with O or alone. A few malformed ones do not matter."""
    good = [label for label in labels if _mark(label)]
    typed = [label for label in good if "-" in label]
    bare = len(good) == len(labels) and "O" in labels and bool({"B", "I"} & set(labels))
    if not bare and (not typed or 2 * len(good) < len(labels) or ("O" not in labels and len(good) < len(labels))):
        return "none"
    return "bioes" if {_mark(label) for label in good} & {"E", "S"} else "bio"


def fault(label: str, scheme: Scheme) -> str:
    """The fault of a label with expectation and remedy; an empty string if it is right."""
    if scheme == "none" or _mark(label) in tuple(_MARKS[scheme]):
        return ""
    marks = [mark for mark in _MARKS[scheme] if mark != "O"]
    expected = ", ".join(["O", *(f"{mark}-TYPE" for mark in marks)])
    meant = _upright(label)
    near = f" Did you mean {meant!r}?" if meant != label and not fault(meant, scheme) else ""
    bilou = " (BILOU: write E for L and S for U)" if label[:2] in ("L-", "U-") else ""
    return f"label {label!r} is none of {scheme.upper()}: expected {expected}{bilou}.{near}"


def _mark(label: str) -> str:
    try:
        return split_tag(label)[0]
    except ValueError:
        return ""


def _upright(label: str) -> str:
    """`b_per` -> `B-per`, the probable meaning."""
    return label[:1].upper() + ("-" if label[1:2] in ("_", "/", ":") else label[1:2]) + label[2:]
