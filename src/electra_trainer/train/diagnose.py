"""What a person needs to judge a run: held-out example rows for the report, the rows of a bad step, and tensors that are not finite."""

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

_EXAMPLES = 8
_SHOWN = 12
"""Row numbers in a message."""


@torch.no_grad()
def example_rows(objective: Objective, feed: Feed, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The first held-out rows: tokens, what was masked and sampled, and the discriminator's probability of "replaced".

    Empty for an objective that gives no logit for each token.
    """
    was_training = objective.training
    objective.eval()
    try:
        masked, rng = next(iter(feed.held_out(_EXAMPLES)))
        with autocast(feed.precision, feed.device):
            diagnostics = objective(masked, rng, diagnose=True).diagnostics
    finally:
        objective.train(was_training)
    if "replaced_logit_BT" not in diagnostics:
        return []
    chosen_BT, rows = masked.chosen_BT, []
    for row in range(len(masked.batch.ids_BT)):
        real = int(masked.batch.real_BT[row].sum())
        original, shown = masked.batch.ids_BT[row, :real].tolist(), diagnostics["corrupted_BT"][row, :real].tolist()
        probability = diagnostics["replaced_logit_BT"][row, :real].sigmoid().tolist()
        rows.append(
            {
                "original": [tokenizer.id_to_token(token) for token in original],
                "input": [tokenizer.id_to_token(token) for token in shown],
                "masked": chosen_BT[row, :real].tolist(),
                "replaced": diagnostics["replaced_BT"][row, :real].tolist(),
                "probability": [round(p, 4) for p in probability],
            }
        )
    return rows


@torch.no_grad()
def blame(objective: Objective, feed: Feed, *, step: int) -> str:
    """Describe which rows of a step (counted from 0) had a non-finite loss; if every loss is finite, list all rows. All ranks call this.

    The lanes are computed again with the same result, since they are functions of weights, seed and step.
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
    what = "the loss is NaN or infinite in" if found else "every loss is finite, the gradient is not; the step's"
    rows = found or [int(row) for row in picked]
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{what} rows {', '.join(map(str, rows[:_SHOWN]))}{more} of train.bin"


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or infinity; None where all are finite."""
    return next((name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())), None)
