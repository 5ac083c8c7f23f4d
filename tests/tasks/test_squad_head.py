"""The heads: loss and gradient against a plain loop, the beam against all spans, and transformers' own for BERT's."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.tasks import squad_small
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.batches import to_batch
from electra_trainer.finetuning.run import build_network
from electra_trainer.tasks.heads import JointHead, Places, best_spans, independent_beam, joint_beam, joint_loss
from electra_trainer.tasks.questions import QuestionAnswering, places_of
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.squad_score import Target
from electra_trainer.tasks.task import Row

B, T, D, WIDTH = 4, 14, 6, 5
PASSAGE = [(3, 12), (5, 9), (2, 3), (4, 14)]  # columns; the last row has no padding and, to be odd, no [SEP]


def head(*, answerable: bool = True) -> JointHead:
    made = JointHead(D, width=WIDTH, answerable=answerable)
    generator = torch.Generator().manual_seed(3)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    return made.double()


def hidden() -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def allowed() -> Tensor:
    mask_BT = torch.zeros(B, T, dtype=torch.bool)
    mask_BT[:, 0] = True
    for row, (first, end) in zip(mask_BT, PASSAGE, strict=True):
        row[first:end] = True
    return mask_BT


def places() -> Places:
    startable_BT = allowed()
    startable_BT[:, 0] = False
    startable_BT[0, :5] = False
    return Places(allowed_BT=allowed(), startable_BT=startable_BT)


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def dense(linear: nn.Linear, x: list[float]) -> list[float]:
    weight, bias = linear.weight.tolist(), linear.bias.tolist()
    return [sum(w * one for w, one in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def log_softmax(scores: dict[int, float]) -> dict[int, float]:
    total = math.log(sum(math.exp(score) for score in scores.values()))
    return {column: score - total for column, score in scores.items()}


class PlainRow:
    """The joint head on one row, number by number."""

    def __init__(self, made: JointHead, row: int) -> None:
        self.made = made
        self.h = hidden()[row].tolist()
        self.columns = [0, *range(*PASSAGE[row])]

    def starts(self) -> dict[int, float]:
        return log_softmax({c: dense(self.made.start, self.h[c])[0] for c in self.columns})

    def ends(self, start: int) -> dict[int, float]:
        scores = {}
        for column in self.columns:
            units = [gelu(x) for x in dense(self.made.end_dense, [*self.h[start], *self.h[column]])]
            scores[column] = dense(self.made.end, units)[0]
        return log_softmax(scores)

    def no_answer(self) -> float:
        shares = {column: math.exp(score) for column, score in self.starts().items()}
        mean = [sum(share * self.h[column][d] for column, share in shares.items()) for d in range(D)]
        assert self.made.answerable_dense is not None and self.made.answerable is not None
        units = [gelu(x) for x in dense(self.made.answerable_dense, [*self.h[0], *mean])]
        return dense(self.made.answerable, units)[0]


SPANS = [(4, 6), (0, 0), (2, 2), (13, 13)]


@pytest.mark.parametrize("weight", [0.5, 0.0])
def test_joint_loss_number_by_number(weight: float) -> None:
    made = head()
    expected = 0.0
    for row, (start, end) in enumerate(SPANS):
        plain = PlainRow(made, row)
        expected -= (plain.starts()[start] + plain.ends(start)[end]) / 2
        share = 1 / (1 + math.exp(-plain.no_answer()))
        expected -= weight * math.log(share if start == 0 else 1 - share)
    found = joint_loss(made, hidden(), allowed(), span_B2=torch.tensor(SPANS), no_answer_B=no_answer(), weight=weight)
    assert found.item() == pytest.approx(expected, rel=1e-10)


def no_answer() -> Tensor:
    return torch.tensor([float(start == 0) for start, _ in SPANS], dtype=torch.float64)


def every_span(
    row: int, starts: dict[int, float], ends: dict[int, dict[int, float]], max_answer: int
) -> list[tuple[float, int, int]]:
    startable = places().startable_BT[row].tolist()
    first, end = PASSAGE[row]
    spans = [
        (starts[s] + ends[s][e], s, e)
        for s in range(first, end) if startable[s]
        for e in range(s, min(end, s + max_answer))
    ]  # fmt: skip
    return sorted(spans, reverse=True)


@pytest.mark.parametrize("max_answer", [30, 3, 1])
@pytest.mark.parametrize("beam", [T, 2])
def test_joint_beam_is_the_best_of_all_spans(beam: int, max_answer: int) -> None:
    made = head()
    found = best_spans(joint_beam(made, hidden(), places(), beam=beam), allowed(), max_answer=max_answer, count=7)
    for row, spans in enumerate(found):
        plain = PlainRow(made, row)
        starts = plain.starts()
        expected = every_span(row, starts, {s: plain.ends(s) for s in starts}, max_answer)
        kept = sorted((s for _, s, _ in expected), key=lambda s: -starts[s])
        followed = set(list(dict.fromkeys(kept))[:beam])
        expected = [span for span in expected if span[1] in followed][:7]
        assert [(s, e) for s, e in zip(spans.starts, spans.ends, strict=True)] == [(s, e) for _, s, e in expected]
        assert spans.scores == pytest.approx([score for score, _, _ in expected], rel=1e-9)
        assert spans.no_answer == pytest.approx(plain.no_answer(), rel=1e-9)


def test_without_the_classifier_no_answer_is_the_odds_of_cls() -> None:
    made = head(answerable=False)
    found = best_spans(joint_beam(made, hidden(), places(), beam=5), allowed(), max_answer=30, count=3)
    for row, spans in enumerate(found):
        share = math.exp(PlainRow(made, row).starts()[0])
        assert spans.no_answer == pytest.approx(math.log(share / (1 - share)), rel=1e-9)


def test_a_context_without_tokens_has_a_finite_score() -> None:
    """Strict JSON has no infinity."""
    allowed_BT = allowed()
    allowed_BT[:, 1:] = False
    empty = places()._replace(allowed_BT=allowed_BT)
    assert joint_beam(head(answerable=False), hidden(), empty, beam=2).no_answer_B.isfinite().all()


@pytest.mark.parametrize("max_answer", [30, 2])
def test_independent_beam_is_the_best_of_all_spans(max_answer: int) -> None:
    linear = nn.Linear(D, 2).double()
    real_BT = torch.ones(B, T, dtype=torch.bool)
    found = best_spans(
        independent_beam(linear, hidden(), places(), real_BT, beam=T), allowed(), max_answer=max_answer, count=6
    )
    for row, spans in enumerate(found):
        logits = [dense(linear, h) for h in hidden()[row].tolist()]
        starts = {column: one[0] for column, one in enumerate(logits)}
        ends = {column: one[1] for column, one in enumerate(logits)}
        expected = every_span(row, starts, dict.fromkeys(starts, ends), max_answer)[:6]
        assert list(zip(spans.starts, spans.ends, strict=True)) == [(s, e) for _, s, e in expected]
        assert spans.scores == pytest.approx([score for score, _, _ in expected])
        assert spans.no_answer == pytest.approx(starts[0] + ends[0])


def test_a_row_without_a_passage_has_no_spans() -> None:
    bare_BT = torch.zeros(B, T, dtype=torch.bool)
    bare_BT[:, 0] = True
    nowhere = Places(allowed_BT=bare_BT, startable_BT=torch.zeros_like(bare_BT))
    for spans in best_spans(joint_beam(head(), hidden(), nowhere, beam=4), bare_BT, max_answer=5, count=3):
        assert spans.starts == spans.ends == spans.scores == []


def window_rows(length: int) -> tuple[list[Row], Batch]:
    text = squad_small.text(length)
    asked = [
        squad_small.question("ab cd ef gh ij", "xyz?", "gh"),
        squad_small.question("ab", "x?", "ab"),
        squad_small.question("a b c", "yy?", None),
    ]
    task = QuestionAnswering()
    rows = task.rows(asked, text, training=True)
    rows = [
        dataclasses.replace(
            row, place=dataclasses.replace(row.place, startable=(row.place.before, row.place.before + row.place.count))
        )
        for row in rows
    ]
    return rows, collated(rows, max(len(row.ids) for row in rows))


def collated(rows: list[Row], width: int) -> Batch:
    ids_BT = np.zeros((len(rows), width), dtype=np.int64)
    for filled, row in zip(ids_BT, rows, strict=True):
        filled[: len(row.ids)] = row.ids
    specials = squad_small.text(9).specials
    return to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep)


def test_places_are_the_passage_and_cls() -> None:
    rows, batch = window_rows(16)
    found = places_of(rows, batch)
    for number, row in enumerate(rows):
        separators = [column for column, token in enumerate(row.ids) if token == squad_small.text(9).specials.sep]
        passage = set(range(separators[0] + 1, separators[1]))
        assert set(found.allowed_BT[number].nonzero().flatten().tolist()) == passage | {0}
        assert set(found.startable_BT[number].nonzero().flatten().tolist()) == passage


@pytest.mark.parametrize("kind", ["joint", "independent"])
def test_padding_changes_nothing(kind: str) -> None:
    source = squad_small.source()
    task = QuestionAnswering(head_kind=kind, version=2, width=8, n_best=4)  # type: ignore[arg-type]
    network = build_network(source, task, Recipe(), seed=2).eval()
    rows, batch = window_rows(16)
    wide = collated(rows, 40)
    with torch.no_grad():
        found = [
            (task.loss(network.head, network(one), one, rows), task.read(network.head, network(one), one, rows))
            for one in (batch, wide)
        ]
    (loss, count), said = found[0]
    (loss_wide, count_wide), said_wide = found[1]
    assert count == count_wide == len(rows)
    assert loss.item() == pytest.approx(loss_wide.item(), rel=1e-5)
    for one, other in zip(said, said_wide, strict=True):
        assert (one.starts, one.ends) == (other.starts, other.ends)
        assert one.scores == pytest.approx(other.scores, abs=1e-5) and one.no_answer == pytest.approx(
            other.no_answer, abs=1e-5
        )


def test_what_the_classifier_is_taught() -> None:
    """A window without the answer has none for XLNet; for the released code only a question without one."""
    source = squad_small.source()
    rows, batch = window_rows(16)
    targets = [row.target for row in rows]
    assert targets[0].start and targets[1].start and not targets[-1].start and targets[-1].unanswerable
    rows = [*rows, dataclasses.replace(rows[0], target=Target(0, 0, False))]
    batch = collated(rows, batch.ids_BT.shape[1])
    for of in ("window", "question"):
        task = QuestionAnswering(version=2, answerability_of=of, width=8)  # type: ignore[arg-type]
        network = build_network(source, task, Recipe(), seed=2).eval()
        with torch.no_grad():
            states_BTD = network(batch)
            whole, _ = task.loss(network.head, states_BTD, batch, rows)
            bare, _ = dataclasses.replace(task, answerability_weight=0.0).loss(network.head, states_BTD, batch, rows)
            said = task.read(network.head, states_BTD, batch, rows)
        none = [row.target.unanswerable or (of == "window" and row.target.start == 0) for row in rows]
        expected = sum(
            F.softplus(torch.tensor(one.no_answer * (-1 if no else 1))).item()
            for one, no in zip(said, none, strict=True)
        )
        assert (whole - bare).item() == pytest.approx(0.5 * expected, rel=1e-4)


@pytest.mark.parametrize(
    ("version", "answerability", "there"),
    [(1, "2.0", False), (1, "always", True), (2, "2.0", True), (2, "always", True)],
)
def test_where_the_classifier_is(version: int, answerability: str, there: bool) -> None:
    made = QuestionAnswering(version=version, answerability=answerability).head(squad_small.source().model)  # type: ignore[arg-type]
    assert any("answerable" in name for name, _ in made.named_parameters()) == there
