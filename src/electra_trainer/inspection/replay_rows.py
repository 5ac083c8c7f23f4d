"""The rows of one training step as the networks read them, with their documents."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from electra_trainer.batch import Losses, Masked
from electra_trainer.data.batches import batch_rows
from electra_trainer.data.documents import Passage
from electra_trainer.data.store import Store
from electra_trainer.data.text_files import Place
from electra_trainer.objectives import Objective
from electra_trainer.train import device, measures
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
    """Tokens of the document's text in earlier rows."""


@dataclass(frozen=True, kw_only=True)
class ReplayedRow:
    """A row of a batch; lists have one entry per token, without padding."""

    row: int
    """Its number in train.bin, from 0."""
    lane: int
    original: list[str]
    masked_input: list[str]
    """The input of the generator, or of an MLM."""
    corrupted: list[str] | None
    """The input of the discriminator (or of the encoder after a generator); None if the step has no such network."""
    masked: list[bool]
    """Whether the position was chosen for prediction."""
    finite: bool
    """Whether everything computed from it is finite."""
    documents: list[DocumentPart] | None
    """None where the store does not know."""

    @property
    def shown(self) -> list[str]:
        """The input of the main network."""
        return self.masked_input if self.corrupted is None else self.corrupted


def rows_of_step(
    objective: Objective, feed: Feed, store: Store, *, step: int
) -> tuple[list[ReplayedRow], dict[str, float]]:
    """The rows of a step and its metrics, from forward passes as training computes them; weights do not move.

    Args:
        objective: what the step trains, with the weights from before it, in training mode.
        feed: the run's.
        store: the run's.
        step: counted from 0.
    """
    config, tokenizer, documents = feed.config, store.tokenizer(), store.documents("train")
    picked = batch_rows(step, rows=len(feed.rows), size=config.batch.size, seed=config.seed)
    lanes = feed.lanes(step)
    counts = add_counts([objective.counts(masked) for masked, _ in lanes])

    def words(ids_T: Tensor) -> list[str]:
        return [tokenizer.id_to_token(number) or f"[{number}]" for number in ids_T.tolist()]

    measured: list[Losses] = []
    rows: list[ReplayedRow] = []
    for lane, (masked, rng) in enumerate(lanes):
        rng.seed_dropout()
        with device.autocast(feed.precision, feed.device):
            losses: Losses = objective(masked, rng, diagnose=True)
        losses = replace(losses, terms={n: replace(term, sum=term.sum.detach()) for n, term in losses.terms.items()})
        measured.append(measures.keep_measured(losses))
        numbers = picked[lane * config.lane_size : (lane + 1) * config.lane_size].tolist()
        corrupted_BT = losses.diagnostics.get("corrupted_BT")
        real_B, finite_B = masked.batch.real_BT.sum(1).tolist(), finite_rows(masked, losses).tolist()
        rows += [
            ReplayedRow(
                row=number,
                lane=lane,
                original=words(masked.batch.ids_BT[at, :real]),
                masked_input=words(masked.input_BT[at, :real]),
                corrupted=None if corrupted_BT is None else words(corrupted_BT[at, :real]),
                masked=masked.chosen_BT[at, :real].tolist(),
                finite=finite,
                documents=None if documents is None else _parts(documents.row(number), feed, row=number, real=real),
            )
            for at, (number, real, finite) in enumerate(zip(numbers, real_B, finite_B, strict=True))
        ]
    return rows, measures.measure(measured, counts)


def _parts(passages: list[Passage], feed: Feed, *, row: int, real: int) -> list[DocumentPart]:
    """The documents of a row of `real` tokens."""
    parts = []
    for one in passages:
        first, column = divmod(one.start, feed.rows.shape[1])
        before = feed.rows[first:row].reshape(-1)[column:]
        skipped = int((~np.isin(before, [feed.pad, feed.cls, feed.sep])).sum())
        parts.append(DocumentPart(place=one.place, begin=one.begin, end=min(one.end, real), skipped=skipped))
    return parts


def finite_rows(masked: Masked, losses: Losses) -> Tensor:
    """Bool [B]: rows all of whose values are finite; if the lane's losses are not and no row shows why, none is."""
    diagnostics = losses.diagnostics
    bad_BT = torch.zeros_like(masked.batch.ids_BT, dtype=torch.bool)
    if "replaced_logit_BT" in diagnostics:
        bad_BT |= ~diagnostics["replaced_logit_BT"].isfinite() & masked.batch.real_BT
    for name in ("generator_entropy_K", "encoder_entropy_K"):
        if name in diagnostics:
            bad_BT.view(-1)[masked.slots_K[~diagnostics[name].isfinite() & (masked.slots_K >= 0)]] = True
    bad_B = bad_BT.any(1)
    if not bad_B.any() and not all(bool(term.sum.isfinite()) for term in losses.terms.values()):
        return torch.zeros_like(bad_B)
    return ~bad_B
