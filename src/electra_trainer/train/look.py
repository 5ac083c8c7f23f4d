"""A few held-out rows as the two networks saw them, for the report's page of sentences.

Which rows of a step were computed to something that is no number.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer.data.batches import batch_rows
from electra_trainer.objectives import Objective
from electra_trainer.ranks.world import gathered, world
from electra_trainer.train.device import autocast
from electra_trainer.train.step import Feed

ROWS = 8


@torch.no_grad()
def look_at_rows(objective: Objective, feed: Feed, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The first held-out rows: tokens, what was masked and sampled, and the discriminator's probability of "replaced".

    Empty for an objective that says nothing of each token.
    """
    was_training = objective.training
    objective.eval()
    try:
        masked, rng = next(iter(feed.held_out(ROWS)))
        with autocast(feed.precision, feed.device):
            diagnostics = objective(masked, rng, diagnose=True).diagnostics
    finally:
        objective.train(was_training)
    if "replaced_logit_BT" not in diagnostics:
        return []
    chosen_BT = torch.zeros_like(masked.batch.ids_BT, dtype=torch.bool)
    chosen_BT.view(-1)[masked.slots_K] = True
    rows = []
    for row in range(len(masked.batch.ids_BT)):
        real = int(masked.batch.real_BT[row].sum())
        rows.append(
            {
                "original": [tokenizer.id_to_token(i) for i in masked.batch.ids_BT[row, :real].tolist()],
                "input": [tokenizer.id_to_token(i) for i in diagnostics["corrupted_BT"][row, :real].tolist()],
                "masked": chosen_BT[row, :real].tolist(),
                "replaced": diagnostics["replaced_BT"][row, :real].tolist(),
                "probability": [round(p, 4) for p in diagnostics["replaced_logit_BT"][row, :real].sigmoid().tolist()],
            }
        )
    return rows


_SHOWN = 12
"""Row numbers in a message."""


@torch.no_grad()
def blame(objective: Objective, feed: Feed, *, step: int) -> str:
    """A sentence on the rows of a step (counted from 0) whose loss is no number; all of them where every loss is one. All ranks call this.

    The lanes are computed again, which gives what they gave: they are functions of weights, seed and step.
    """
    config = feed.config
    picked = batch_rows(step, rows=len(feed.rows), size=config.batch.size, seed=config.seed)
    found: list[int] = []
    for lane, (masked, rng) in zip(world().owned(config.batch.lanes), feed.lanes(step), strict=True):
        rng.seed_dropout()
        with autocast(feed.precision, feed.device):
            terms = objective(masked, rng).terms.values()
        if not all(bool(torch.isfinite(term.sum)) for term in terms):
            found += [int(row) for row in picked[lane * config.lane_size : (lane + 1) * config.lane_size]]
    found = [row for part in gathered(json.dumps(found).encode()) for row in json.loads(part)]
    what = "the loss is no number in" if found else "every loss is a number, the gradient is none; the step's"
    rows = found or [int(row) for row in picked]
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{what} rows {', '.join(map(str, rows[:_SHOWN]))}{more} of train.bin"


def no_number(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or infinity; None where all are numbers."""
    return next((name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())), None)
