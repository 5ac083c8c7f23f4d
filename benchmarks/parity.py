"""The same batch on the CPU in fp32 and on a device: `python -m benchmarks.parity --device cuda`; one JSON line a precision.

Relative differences of both losses and of the whole gradient; samples are fixed, dropout is off.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import numpy as np
import torch

from electra_trainer.batch import Batch, Corrupted, Masked
from electra_trainer.config import Config
from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.rows import to_batch
from electra_trainer.objectives.corrupt import corrupt
from electra_trainer.objectives.losses import replaced_loss, token_loss
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.presets import small
from electra_trainer.randomness import Rng
from electra_trainer.train.device import autocast

PAD, CLS, SEP, MASK = 0, 2, 3, 4


def settings() -> Config:
    """ELECTRA-Small without dropout, four layers deep."""
    config = small()
    model = dataclasses.replace(
        config.model, num_hidden_layers=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return dataclasses.replace(config, model=model)


def inputs(config: Config) -> tuple[Masked, Corrupted]:
    """Sixteen rows of random words, masked, with random samples."""
    random = np.random.default_rng(1)
    rows = random.integers(5, config.model.vocab_size, (16, 128))
    rows[:, 0], rows[:, 60], rows[:, -1] = CLS, SEP, SEP
    mask = MaskTokens(
        masking=config.masking, vocab_size=config.model.vocab_size, mask_id=MASK, never=(PAD, CLS, SEP, MASK)
    )
    masked = mask(to_batch(rows, pad=PAD, cls=CLS, sep=SEP), Rng(1, 0, 0))
    samples = torch.from_numpy(random.integers(5, config.model.vocab_size, len(masked.slots_K)))
    return masked, corrupt(masked, samples)


def losses_and_gradient(config: Config, device: torch.device, precision: str) -> tuple[float, float, torch.Tensor]:
    """Both mean losses, and the gradient of their weighted sum as one vector on the CPU."""
    masked, corrupted = inputs(config)
    batch: Batch = masked.batch.to(device)
    objective = ReplacedTokenDetection(config, config.objective).to(device)  # type: ignore[arg-type]
    with autocast(precision, device):
        logits = objective.generator(masked.input_BT.to(device), batch, masked.slots_K.to(device))
        token = token_loss(logits, masked.labels_K.to(device)) / len(masked.slots_K)
        replaced_logits = objective.discriminator(corrupted.input_BT.to(device), batch)
        replaced = replaced_loss(replaced_logits, corrupted.replaced_BT.to(device), batch.real_BT) / batch.real_BT.sum()
    (token + 50 * replaced).backward()  # type: ignore[no-untyped-call]
    gradient = torch.cat([p.grad.flatten().cpu() for p in objective.parameters() if p.grad is not None])
    return float(token), float(replaced), gradient


def main() -> None:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device, config = torch.device(parser.parse_args().device), settings()
    expected = losses_and_gradient(config, torch.device("cpu"), "fp32")
    for precision in ("fp32", "bf16"):
        found = losses_and_gradient(config, device, precision)
        print(
            json.dumps(
                {
                    "device": str(device),
                    "precision": precision,
                    "generator_loss": abs(found[0] / expected[0] - 1),
                    "discriminator_loss": abs(found[1] / expected[1] - 1),
                    "gradient": float((found[2] - expected[2]).norm() / expected[2].norm()),
                }
            )
        )


if __name__ == "__main__":
    main()
