"""The rows of one training step as the networks saw them, with the documents that they are from."""

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer.batch import Losses, Masked, Term
from electra_trainer.data.batches import batch_rows
from electra_trainer.data.documents import Passage, Place, RowDocuments
from electra_trainer.data.store import Store
from electra_trainer.objectives import Objective
from electra_trainer.train.device import autocast
from electra_trainer.train.measures import keep_measured, measure
from electra_trainer.train.step import Feed, add_counts


@dataclass(frozen=True, kw_only=True)
class DocumentPart:
    """A document's part of a row."""

    place: Place
    begin: int
    """Its first token in the row, from 0, a [CLS]."""
    end: int
    """The token after its last one."""
    skipped: int
    """Tokens of the document's text that stand in rows before this one."""


@dataclass(frozen=True, kw_only=True)
class ReplayedRow:
    """A row of a batch; lists have an entry a token, padding left out."""

    row: int
    """Its number in train.bin, from 0."""
    lane: int
    original: list[str]
    masked_input: list[str]
    """What the generator, or an MLM, read."""
    corrupted: list[str] | None
    """What the discriminator (or the encoder behind a generator) read; None where there is no such network in the step."""
    masked: list[bool]
    """Whether the position was chosen for prediction."""
    finite: bool
    """Whether all that was computed of it is a number."""
    documents: list[DocumentPart] | None
    """None where the store does not know."""

    @property
    def shown(self) -> list[str]:
        """The text as the network that is kept read it."""
        return self.masked_input if self.corrupted is None else self.corrupted


class StepRows:
    """The rows of a step, from forward passes as training computes them; weights are not moved.

    Args:
        objective: what the step trains, with the weights from before it, in training mode.
        feed: the run's.
        store: the run's.
        step: counted from 0.
    """

    def __init__(self, objective: Objective, feed: Feed, store: Store, *, step: int) -> None:
        config = feed.config
        self._tokenizer: Tokenizer = store.tokenizer()
        self._documents = store.documents("train")
        self._feed, self._specials = feed, [feed.pad, feed.cls, feed.sep]
        self.documents_known = self._documents is not None
        picked = batch_rows(step, rows=len(feed.rows), size=config.batch.size, seed=config.seed)
        lanes = feed.lanes(step)
        counts = add_counts([objective.counts(masked) for masked, _ in lanes])
        measured: list[Losses] = []
        self.rows: list[ReplayedRow] = []
        for lane, (masked, rng) in enumerate(lanes):
            rng.seed_dropout()
            with autocast(feed.precision, feed.device):
                losses: Losses = objective(masked, rng, diagnose=True)
            terms = {n: Term(sum=t.sum.detach(), count=t.count, weight=t.weight) for n, t in losses.terms.items()}
            losses = Losses(terms=terms, diagnostics=losses.diagnostics)
            measured.append(keep_measured(losses))
            numbers = picked[lane * config.lane_size : (lane + 1) * config.lane_size]
            self.rows += self._of_lane(lane, numbers.tolist(), masked, losses)
        self.metrics = measure(measured, counts)
        """What the step measures, from these passes."""

    def _of_lane(self, lane: int, numbers: list[int], masked: Masked, losses: Losses) -> list[ReplayedRow]:
        original_BT, input_BT, chosen_BT = masked.batch.ids_BT, masked.input_BT, masked.chosen_BT
        corrupted_BT = losses.diagnostics.get("corrupted_BT")
        real_B, finite_B = masked.batch.real_BT.sum(1).tolist(), finite_rows(masked, losses).tolist()
        return [
            ReplayedRow(
                row=number,
                lane=lane,
                original=self._tokens(original_BT[at, : real_B[at]]),
                masked_input=self._tokens(input_BT[at, : real_B[at]]),
                corrupted=None if corrupted_BT is None else self._tokens(corrupted_BT[at, : real_B[at]]),
                masked=chosen_BT[at, : real_B[at]].tolist(),
                finite=finite_B[at],
                documents=None if self._documents is None else self._parts(self._documents, number, real_B[at]),
            )
            for at, number in enumerate(numbers)
        ]

    def _tokens(self, ids_T: Tensor) -> list[str]:
        return [self._tokenizer.id_to_token(number) or f"[{number}]" for number in ids_T.tolist()]

    def _parts(self, documents: RowDocuments, row: int, real: int) -> list[DocumentPart]:
        return [
            DocumentPart(place=one.place, begin=one.begin, end=min(one.end, real), skipped=self._skipped(one, row))
            for one in documents.row(row)
        ]

    def _skipped(self, passage: Passage, row: int) -> int:
        rows = self._feed.rows
        length = rows.shape[1]
        first, column = divmod(passage.start, length)
        before = rows[first:row].reshape(-1)[column:]
        return int((~np.isin(before, self._specials)).sum())


def finite_rows(masked: Masked, losses: Losses) -> Tensor:
    """Bool [B]: rows all of whose numbers are finite; where the lane's losses are not and no row shows why, none is."""
    diagnostics, shape = losses.diagnostics, masked.batch.ids_BT.shape
    bad_BT = torch.zeros(shape, dtype=torch.bool, device=masked.batch.ids_BT.device)
    if "replaced_logit_BT" in diagnostics:
        bad_BT |= ~diagnostics["replaced_logit_BT"].isfinite() & masked.batch.real_BT
    for name in ("generator_entropy_K", "encoder_entropy_K"):
        if name in diagnostics:
            bad_BT.view(-1)[masked.slots_K[~diagnostics[name].isfinite() & (masked.slots_K >= 0)]] = True
    bad_B = bad_BT.any(1)
    if not bad_B.any() and not all(bool(term.sum.isfinite()) for term in losses.terms.values()):
        return torch.zeros_like(bad_B)
    return ~bad_B
