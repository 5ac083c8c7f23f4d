"""Whether labels mark spans, and how: none, BIO (IOB1 and IOB2 alike) or BIOES."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from electra_trainer.finetune.span_f1 import split_tag

Scheme = Literal["none", "bio", "bioes"]
_MARKS: dict[str, str] = {"bio": "OBI", "bioes": "OBIES"}


def scheme_of(labels: Collection[str]) -> Scheme:
    """What most of the labels say: marks that begin or continue a span, beside O or alone. A few malformed ones do not hide it."""
    good = [label for label in labels if _mark(label)]
    typed = [label for label in good if "-" in label]
    bare = len(good) == len(labels) and "O" in labels and bool({"B", "I"} & set(labels))
    if not bare and (not typed or 2 * len(good) < len(labels) or ("O" not in labels and len(good) < len(labels))):
        return "none"
    return "bioes" if {_mark(label) for label in good} & {"E", "S"} else "bio"


def fault(label: str, scheme: Scheme) -> str:
    """What is wrong with a label, expectation and remedy; an empty string where nothing is."""
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
    """`b_per` -> `B-per`: what was probably meant."""
    return label[:1].upper() + ("-" if label[1:2] in ("_", "/", ":") else label[1:2]) + label[2:]
