"""Spans and F1 as conlleval counts them."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_trainer.tasks.tagged_files import Span, span_scores, spans_of

TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-X"))])
SENTENCE = st.lists(TAGS, max_size=9)


@st.composite
def tagged(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Truth and predictions of some sentences."""
    truth = draw(st.lists(SENTENCE, max_size=4))
    return truth, [draw(st.lists(TAGS, min_size=len(tags), max_size=len(tags))) for tags in truth]


def by_definition(tags: list[str]) -> set[tuple[str, int, int]]:
    """All pairs of places, each held against what a span is: one word that continues nothing, then words that do, then one that does not."""
    types = [tag[2:] for tag in tags]

    def continues(at: int) -> bool:
        return (
            0 < at < len(tags)
            and tags[at][0] in "IE"
            and tags[at - 1][0] in "BI"
            and types[at] == types[at - 1]
        )  # fmt: skip

    return {
        (types[first], first, stop)
        for first in range(len(tags))
        for stop in range(first + 1, len(tags) + 1)
        if tags[first] != "O"
        and not continues(first)
        and all(continues(at) for at in range(first + 1, stop))
        and not continues(stop)
    }


@given(SENTENCE)
@settings(max_examples=400)
def test_spans_are_those_of_the_definition(tags: list[str]) -> None:
    found = spans_of(tags)
    assert set(found) == by_definition(tags) and len(found) == len(set(found))
    assert found == sorted(found, key=lambda span: span.first)
    covered = [word for span in found for word in range(span.first, span.stop)]
    assert covered == [index for index, tag in enumerate(tags) if tag != "O"]  # every word in a span is in one


GOLDENS: dict[str, tuple[str, str]] = {
    "IOB2": ("B-PER I-PER O B-LOC B-LOC", "PER 0 2, LOC 3 4, LOC 4 5"),
    "IOB1": ("I-PER I-PER O I-LOC B-LOC I-LOC", "PER 0 2, LOC 3 4, LOC 4 6"),
    "an I after another type": ("B-PER I-LOC I-LOC", "PER 0 1, LOC 1 3"),
    "an I after O": ("O I-PER O", "PER 1 2"),
    "BIOES": ("S-PER B-LOC I-LOC E-LOC O S-PER", "PER 0 1, LOC 1 4, PER 5 6"),
    "an E that ends nothing": ("E-PER E-PER I-PER", "PER 0 1, PER 1 2, PER 2 3"),
    "a B without an E": ("B-PER O", "PER 0 1"),
    "an S continues nothing": ("B-PER S-PER I-PER", "PER 0 1, PER 1 2, PER 2 3"),
    "the sentence ends within": ("O B-PER I-PER", "PER 1 3"),
    "a type with dashes": ("B-WORK-OF-ART I-WORK-OF-ART", "WORK-OF-ART 0 2"),
    "no types": ("O B I O I", " 1 3,  4 5"),
    "nothing": ("O O", ""),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens(name: str) -> None:
    tags, expected = GOLDENS[name]
    spans = [re.fullmatch(r" ?(\S*) (\d) (\d)", part) for part in expected.split(",") if part]
    assert spans_of(tags.split()) == [Span(m[1], int(m[2]), int(m[3])) for m in spans if m] and all(spans)


def test_f1_of_a_worked_example() -> None:
    """Two PER of three and one LOC of two found, one PER at other words, one LOC taken for PER."""
    truth = ["B-PER I-PER O B-LOC".split(), "B-PER O B-LOC B-PER I-PER".split()]
    said = ["B-PER I-PER O B-LOC".split(), "B-PER O B-PER B-PER O".split()]
    assert span_scores(truth, said) == {"f1": pytest.approx(0.6), "precision": 0.6, "recall": 0.6}


def test_nothing_to_find_scores_nothing() -> None:
    assert span_scores([["O", "O"]], [["O", "O"]]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


@given(tagged())
def test_scores_are_those_of_the_definition(both: tuple[list[list[str]], list[list[str]]]) -> None:
    truth, said = both
    true = {(index, *span) for index, tags in enumerate(truth) for span in by_definition(tags)}
    found = {(index, *span) for index, tags in enumerate(said) for span in by_definition(tags)}
    right = len(true & found)
    assert span_scores(truth, said) == {
        "f1": 2 * right / max(len(true) + len(found), 1),
        "precision": right / max(len(found), 1),
        "recall": right / max(len(true), 1),
    }


@given(SENTENCE)
def test_other_schemes_of_the_same_spans(tags: list[str]) -> None:
    """Written anew in IOB2 or BIOES, the spans are the same."""
    iob2, bioes = ["O"] * len(tags), ["O"] * len(tags)
    for kind, first, stop in spans_of(tags):
        iob2[first:stop] = [f"B-{kind}", *[f"I-{kind}"] * (stop - first - 1)]
        bioes[first:stop] = (
            [f"S-{kind}"] if stop - first == 1 else [f"B-{kind}", *[f"I-{kind}"] * (stop - first - 2), f"E-{kind}"]
        )
    assert spans_of(iob2) == spans_of(bioes) == spans_of(tags)
