"""A few held-out rows as the two networks saw them, for the report's page of sentences."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer

from electra_trainer.objectives import Objective
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
            seen = objective(masked, rng, look=True).seen
    finally:
        objective.train(was_training)
    if "replaced_logit_BT" not in seen:
        return []
    chosen_BT = torch.zeros_like(masked.batch.ids_BT, dtype=torch.bool)
    chosen_BT.view(-1)[masked.slots_K] = True
    rows = []
    for row in range(len(masked.batch.ids_BT)):
        real = int(masked.batch.real_BT[row].sum())
        rows.append(
            {
                "original": [tokenizer.id_to_token(i) for i in masked.batch.ids_BT[row, :real].tolist()],
                "input": [tokenizer.id_to_token(i) for i in seen["corrupted_BT"][row, :real].tolist()],
                "masked": chosen_BT[row, :real].tolist(),
                "replaced": seen["replaced_BT"][row, :real].tolist(),
                "probability": [round(p, 4) for p in seen["replaced_logit_BT"][row, :real].sigmoid().tolist()],
            }
        )
    return rows
