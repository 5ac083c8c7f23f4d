"""Metrics of texts against sums by hand, and against loops over all pairs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_trainer.experiments.by_class import class_report
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.texts import Regression, classification_scores, regression_scores


def matthews(truth: list[int], said: list[int], labels: int) -> float:
    """Correlation of two classifications: of all their one-hot columns together, in covariances."""
    n = len(truth)

    def covariance(a: list[int], b: list[int]) -> float:
        return sum(
            sum((x == label) * (y == label) for x, y in zip(a, b, strict=True)) / n
            - a.count(label) * b.count(label) / n**2
            for label in range(labels)
        )

    below = covariance(truth, truth) * covariance(said, said)
    return covariance(truth, said) / math.sqrt(below) if below > 1e-12 else 0.0


def f1(truth: list[int], said: list[int], label: int) -> float:
    right = sum(t == s == label for t, s in zip(truth, said, strict=True))
    return 2 * right / (truth.count(label) + said.count(label)) if right else 0.0


def pearson(x: list[float], y: list[float]) -> float:
    """Variance by differences of all pairs, which need no mean."""
    pairs = list(itertools.combinations(range(len(x)), 2))
    xy = math.fsum((x[i] - x[j]) * (y[i] - y[j]) for i, j in pairs)
    xx = math.fsum((x[i] - x[j]) ** 2 for i, j in pairs)
    yy = math.fsum((y[i] - y[j]) ** 2 for i, j in pairs)
    return xy / math.sqrt(xx) / math.sqrt(yy)


def ranks(x: list[float]) -> list[float]:
    """Equals share the mean of their places."""
    return [sum(other < one for other in x) + (x.count(one) + 1) / 2 for one in x]


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda c: st.tuples(st.just(c), st.lists(st.tuples(*[st.integers(0, c - 1)] * 2), min_size=1))
    )
)
def test_classification_equals_loops(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    labels, pairs = drawn
    truth, said = [one for one, _ in pairs], [two for _, two in pairs]
    found = classification_scores(truth, said, metrics=("accuracy", "matthews", "f1", "macro_f1"))
    seen = sorted({*truth, *said})
    assert found == pytest.approx(
        {
            "accuracy": sum(t == s for t, s in pairs) / len(pairs),
            "matthews": matthews(truth, said, labels),
            "f1": f1(truth, said, 1),
            "macro_f1": sum(f1(truth, said, label) for label in seen) / len(seen),
        },
        abs=1e-9,
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-9, 9)), min_size=2, max_size=30))
def test_regression_equals_loops(pairs: list[tuple[int, int]]) -> None:
    """With many ties, as STS-B's scores have them."""
    truth, said = [one / 4 for one, _ in pairs], [two / 7 for _, two in pairs]
    found = regression_scores(truth, said, metrics=("spearman", "pearson"))
    if len(set(truth)) < 2 or len(set(said)) < 2:
        assert found == {"spearman": 0.0, "pearson": 0.0}
        return
    expected = {"spearman": pearson(ranks(truth), ranks(said)), "pearson": pearson(truth, said)}
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_number_is_learned_in_its_scale_and_given_in_the_files() -> None:
    """STS-B's 0 to 5 as 0 to 1, as released."""
    task = Regression(shift=1.0, scale=5.0)
    examples = [TextExample(text="a", value=value) for value in (1.0, 3.0, 6.0)]
    targets = task.targets(examples)
    assert targets == pytest.approx([0.0, 0.4, 1.0])
    said = task.decode(torch.tensor(targets)[:, None])
    assert [one["value"] for one in said] == pytest.approx([1.0, 3.0, 6.0])


def test_what_is_constant_has_no_correlation() -> None:
    """One class for all: Matthews and F1 are 0, not undefined."""
    found = classification_scores([1, 0, 1], [0, 0, 0], metrics=("matthews", "f1"))
    assert found == {"matthews": 0.0, "f1": 0.0}
    with pytest.raises(KeyError, match="bleu"):
        classification_scores([1], [1], metrics=("bleu",))
    with pytest.raises(KeyError, match="f1"):
        regression_scores([1.0, 2.0], [1.0, 2.0], metrics=("f1",))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.integers(34, 100)), min_size=1))
def test_classes_and_calibration_equal_loops(rows: list[tuple[str, str, int]]) -> None:
    truth = [one for one, _, _ in rows]
    said = [{"label": label, "probabilities": {label: share / 100}} for _, label, share in rows]
    report = class_report(("a", "b", "c"), truth, said)
    gap = 0.0
    for low in range(10):
        mine = [row for row in rows if min(row[2] * 10 // 100, 9) == low]
        if mine:
            confidence, right = (
                sum(values) / len(mine) for values in ([s / 100 for *_, s in mine], [a == b for a, b, _ in mine])
            )
            gap += len(mine) / len(rows) * abs(confidence - right)
    assert report.calibration_error == pytest.approx(gap, abs=1e-9)
    for at, label in enumerate("abc"):
        hits = sum(a == b == label for a, b, _ in rows)
        assert report.confusion.get(label, {}).get(label, 0) == hits and report.support[at] == truth.count(label)
        assert report.recall[at] == pytest.approx(hits / max(truth.count(label), 1))
    assert len(report.rows()) == 3 and "| true \\\\ predicted | a | b | c |" in report.markdown()
