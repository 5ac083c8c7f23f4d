"""Notations of spans: which labels begin, continue or end a span, and of which type. No torch here.

    IO      PER, or I-PER            adjacent words of one type are one span
    BIO     B-PER, I-PER             IOB2; or IOB1, where B- only parts two adjacent spans of one type
    BIOES   B-PER, I-PER, E-PER      S-PER is a span of one word. BILOU: L for E, U for S. BMES, BMEWO: M for I, W for
    S. IOE: without B, S

The mark comes before the type or after it (PER-B), as a capital or a small letter, and one of - _ : / | parts the two;
types may be missing. Every label is read as one of BIOES with a dash, which spans.py scores.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from electra_trainer.errors import DataError
from electra_trainer.finetuning.examples import TaggedSentence

Scheme = Literal["none", "io", "bio", "bioes"]
_MEANT = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
"""Mark as written -> mark of BIOES."""
_SEPARATORS = "-_:/|"
_OUTSIDE = ("O", "o", "0", "out", "outside", "other", "none", "null")
"""Labels of words outside of spans, in any case."""


@dataclass(frozen=True, kw_only=True)
class Notation:
    """How labels are written."""

    scheme: Scheme
    separator: str = "-"
    after: bool = False
    """The mark comes after the type."""
    lower: bool = False
    """Marks are small letters."""
    outside: str = "O"
    marked: bool = True
    """Labels have marks; False: they are types (IO)."""
    marks: frozenset[str] = frozenset()
    """Marks in use, as capitals."""

    def read(self, label: str) -> str | None:
        """A label as a BIOES tag, such as "B-PER" or "O"; None: not a label of this notation."""
        if label == self.outside:
            return "O"
        if not self.marked:
            return f"I-{label}"
        mark, kind = self._parts(label)
        if mark not in (_MEANT if self.scheme == "bioes" else ("B", "I")):
            return None
        return f"{_MEANT[mark]}-{kind}" if kind else _MEANT[mark]

    def _parts(self, label: str) -> tuple[str, str]:
        """Mark, as a capital, and type; without a mark ("", "")."""
        one, found, other = label.rpartition(self.separator) if self.after else label.partition(self.separator)
        mark, kind = (other, one) if self.after else (one, other)
        if not found:
            mark, kind = label, ""
        fits = len(mark) == 1 and mark == (mark.lower() if self.lower else mark.upper()) and (bool(kind) or not found)
        return (mark.upper(), kind) if fits and mark.upper() in _MEANT else ("", "")

    def typed(self, labels: Collection[str]) -> list[str]:
        """Labels with a mark and a type."""
        return [label for label in labels if self._parts(label)[1]]

    def written(self, mark: str, kind: str = "TYPE") -> str:
        """A label of this notation."""
        mark = mark.lower() if self.lower else mark
        return f"{kind}{self.separator}{mark}" if self.after else f"{mark}{self.separator}{kind}"

    @property
    def name(self) -> str:
        """The name that papers use."""
        if self.scheme == "bio":
            return "BIO" if "B" in self.marks or not self.marks else "IO"
        if self.scheme != "bioes":
            return self.scheme.upper()
        known = (
            ("W", "BMEWO"),
            ("M", "BMES"),
            ("L", "BILOU"),
            ("U", "BILOU"),
            ("B", "BIOES"),
            ("S", "BIOES"),
            ("E", "IOE"),
        )
        return next((name for mark, name in known if mark in self.marks), "BIOES")

    def fault(self, label: str) -> str:
        """The fault of a label with expectation and remedy; an empty string if it is right."""
        if self.scheme == "none" or self.read(label) is not None:
            return ""
        letters = {"BIO": "BI", "IO": "BI", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW", "IOE": "IE"}.get(
            self.name, "BIES"
        )
        expected = ", ".join([self.outside, *map(self.written, letters)])
        mark, kind = next((parts for style in _styles() if (parts := style._parts(label))[1]), ("", ""))
        meant = self.written(mark, kind) if mark else self.outside if label.casefold() in _OUTSIDE else ""
        near = f" Did you mean {meant!r}?" if meant and self.read(meant) is not None else ""
        return f"label {label!r} is none of {'BIO' if self.name == 'IO' else self.name}: expected {expected}.{near}"


@lru_cache
def _styles() -> tuple[Notation, ...]:
    """All ways to write marks and types, the most usual first."""
    bare = Notation(scheme="bioes")
    return tuple(
        replace(bare, separator=separator, after=after, lower=lower)
        for after in (False, True)
        for separator in _SEPARATORS
        for lower in (False, True)
    )


@lru_cache(maxsize=64)
def notation_of(labels: tuple[str, ...], scheme: Scheme) -> Notation:
    """The notation that fits most of the labels of a scheme; of equals the most usual."""
    style = max(_styles(), key=lambda style: len(style.typed(labels)))
    if not style.typed(labels) and {label.lower() for label in labels} <= {*"bieslumwo"}:
        style = replace(style, lower=all(map(str.islower, labels)))
    numbers = all(label.lstrip("-").isdecimal() for label in labels)
    outsides = (*_OUTSIDE, "_", "-") if style.typed(labels) else _OUTSIDE
    outside = next((one for known in outsides for one in labels if one in (known, known.upper(), known.title())), "O")
    if "O" in labels or (outside == "0" and numbers):
        outside = "O"
    marks = frozenset(mark for label in labels if label != outside and (mark := style._parts(label)[0]))
    marked = scheme != "io" or 2 * len(style.typed(labels)) > len(labels)
    return replace(style, scheme=scheme, outside=outside, marks=marks if marked else frozenset(), marked=marked)


def scheme_of(labels: Collection[str]) -> Scheme:
    """The scheme of most labels. A few malformed ones do not matter.

    Args:
        labels: different labels, or a Counter of them: labels without marks are types if O is the most frequent.
    """
    counts = labels if isinstance(labels, Counter) else Counter(labels)
    notation = notation_of(tuple(counts), "bioes")
    typed, good = notation.typed(counts), [label for label in counts if notation.read(label) is not None]
    outside, complete = notation.outside in counts, len(good) == len(counts)
    usual = notation.separator == "-" and not notation.after and not notation.lower
    bare = complete and not typed and ((outside and notation.marks & {"B", "I"}) or {"B", "E", "S"} < notation.marks)
    begins = notation.marks & {"B", "I", "E", "S", "U", "W"} if outside else "B" in notation.marks or usual
    if bare or (typed and begins and 2 * len(good) >= len(counts) and (outside or complete)):
        return "bioes" if notation.marks - {"B", "I"} else "bio"
    types = [label for label in counts if label != notation.outside]
    most = counts[notation.outside] == max(counts.values(), default=0)
    if outside and types and most and not typed and all(len(label) > 1 for label in types):
        return "io"
    return "none"


def check_scheme(sentences: Sequence[TaggedSentence], notation: Notation) -> None:
    """DataError at the first label that is not of the notation."""
    good: set[str | None] = {None}
    for sentence in sentences:
        for index, label in enumerate(sentence.labels):
            if label in good:
                continue
            if wrong := notation.fault(str(label)):
                raise DataError(f"{sentence.place_of(index)}: {wrong} For labels without spans: --scheme plain.")
            good.add(label)


_SHOWN = 12
"""Types that a note lists."""


def described(counts: Counter[str], notation: Notation, *, begun: int, parted: bool, asked: bool) -> str:
    """A sentence on the labels: their notation and types, and how they are scored.

    Args:
        counts: labels of the training words.
        notation: of these labels.
        begun: spans of training that an I begins.
        parted: every B follows a word of the same type (IOB1).
        asked: the scheme was given, not found.
    """
    if notation.scheme == "none":
        return f"labels: {len(counts)} without spans, scored by accuracy.{'' if asked else _nearest(counts)}"
    read = [notation.read(label) or "O" for label in counts]
    types = sorted({tag[2:] for tag in read if tag[2:]})
    name = notation.name
    if name == "BIO":
        name = "IOB1" if begun and parted else "BIO (IOB2)" if not begun else "BIO"
    example = next((label for label in notation.typed(counts)), None) if notation.marked else types[0]
    explained = ", ".join(f"{mark} is read as {_MEANT[mark]}" for mark in "LUMW" if mark in notation.marks)
    outside = "" if notation.outside == "O" else f"; {notation.outside!r} is read as O"
    shown = ", ".join(types[:_SHOWN]) + (f" and {len(types) - _SHOWN} more" if len(types) > _SHOWN else "")
    return (
        "labels: "
        f"{name}{f', such as {example!r}' if example else ''}{f' ({explained})' if explained else ''}{outside}; "
        f"{len(types) or 'no'} type{'s' if len(types) != 1 else ''}{f': {shown}' if types else ''}. Spans are scored "
        "by seqeval's "
        f"definition (conlleval's): same words, same type.{'' if notation.marked else _marked_otherwise(types)}"
    )


_OTHER_MARK = r"(?P<begin>b(?:eginning|egin|eg)?|start|first)|(?:i(?:ntermediate|nside|n)?|middle|cont)"
_MARKED_OTHERWISE = tuple(
    re.compile(form.replace("MARK", f"(?:{_OTHER_MARK})"), re.IGNORECASE)
    for form in (r"\W*MARK[\W_]*(?P<kind>.+?)\W*", r"\W*(?P<kind>.+?)[\W_]+MARK\W*")
)


def _marked_otherwise(types: Sequence[str]) -> str:
    """A sentence if types seem to hold marks that no notation has, such as BEGIN-PER with INSIDE-PER, or BPER with
    IPER.
    """
    for form in _MARKED_OTHERWISE:
        parts = [(label, match["begin"], match["kind"]) for label in types if (match := form.fullmatch(label))]
        begins = {kind: label for label, begin, kind in parts if begin}
        for label, begin, kind in parts:
            if not begin and kind in begins:
                return (
                    f" If {begins[kind]!r} begins spans that {label!r} continues, these scores are wrong: the nearest "
                    "notation is BIO, so "
                    f"write B-{kind} and I-{kind}."
                )
    return ""


def _nearest(counts: Counter[str]) -> str:
    """The scheme that labels nearly are, with what does not fit; an empty string where nothing looks like it."""
    notation = notation_of(tuple(counts), "bioes")
    typed = notation.typed(counts)
    bad = [label for label in counts if notation.read(label) is None]
    if typed and bad and "B" in notation.marks:
        scheme: Scheme = "bioes" if notation.marks - {"B", "I"} else "bio"
        misfits = f"the label {bad[0]!r} does" if len(bad) == 1 else f"{len(bad)} labels such as {bad[0]!r} do"
        return (
            f" The nearest notation of spans is {replace(notation, scheme=scheme).name}, and {misfits} not fit it: "
            "correct "
            f"{'it' if len(bad) == 1 else 'them'}, then --scheme {scheme}."
        )
    if notation.outside in counts:
        return (
            f" If they are types of spans, and {notation.outside} is outside, the nearest notation is IO: --scheme io."
        )
    return ""
