"""Is the run healthy? One line in words, and alarms (`what to watch` in docs/training.md).

The discriminator's loss and accuracy mean nothing alone: 90 % of the tokens are originals. So its loss is always put beside
that of the constant guess, and its ranking (AUC) beside chance.
"""

from __future__ import annotations

import math

BAD_STEPS_IN_A_ROW = 10
"""Steps without a finite gradient after which a run ends: it would not come back."""


def binary_entropy(rate: float) -> float:
    """Loss, in nats a token, of always guessing the share of replaced tokens: what a blind discriminator reaches."""
    if rate <= 0 or rate >= 1:
        return 0.0
    return -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


LEARNING, BEGINNING, GUESSING = "learning", "beginning to learn", "not better than the constant guess"


def verdict(loss: float, *, constant: float, auc: float) -> str:
    """What a discriminator's loss, beside that of the constant guess, and its AUC say; losses in nats a token."""
    if loss < 0.95 * constant and auc > 0.6:
        return LEARNING
    return BEGINNING if loss < constant and auc > 0.52 else GUESSING


def health_line(metrics: dict[str, float], *, vocab_size: int) -> str:
    """A sentence about held-out metrics."""
    parts = []
    if "discriminator_loss" in metrics:
        loss, constant, auc = (
            metrics["discriminator_loss"], metrics["discriminator_constant_loss"], metrics["discriminator_auc"],
        )  # fmt: skip
        words = verdict(loss, constant=constant, auc=auc)
        parts.append(f"discriminator {loss:.3f} vs {constant:.3f} for the constant guess, AUC {auc:.2f}: {words}")
    if "encoder_loss" in metrics:
        right = 100 * metrics["encoder_accuracy"]
        parts.append(f"encoder {metrics['encoder_loss']:.3f} nats, right {right:.0f} % of the time at chosen positions")
    if "generator_entropy" in metrics:
        share = metrics["generator_entropy"] / math.log(vocab_size)
        nats = f"{metrics['generator_loss']:.2f} nats, " if "generator_loss" in metrics else ""
        right = 100 * metrics["generator_accuracy"]
        parts.append(f"generator {nats}right {right:.0f} % of the time, entropy {100 * share:.0f} % of the most")
    return "; ".join(parts)


def alarms(metrics: dict[str, float], *, vocab_size: int, step: int, steps: int) -> list[str]:
    """What looks wrong at `step` of `steps`; an empty list in the first quarter, and before step 500.

    Thresholds follow the failures that users of ELECTRA met: a dead generator, one that is too strong, a discriminator that
    says "original" of everything.
    """
    if step < max(500, steps / 4):
        return []
    found = []
    if "generator_loss" in metrics and metrics["generator_entropy"] > 0.9 * math.log(vocab_size):
        found.append("the generator is still almost uniform: raise the learning rate or train longer")
    if "discriminator_loss" in metrics:
        if metrics["discriminator_auc"] < 0.55:
            found.append(
                "the discriminator does not rank replaced tokens above originals (AUC < 0.55): lower the learning rate, "
                "narrow the generator, or for a narrow model use --model.initializer fan-in"
            )
        if metrics["fake_rate"] < 0.04:
            found.append(
                f"only {100 * metrics['fake_rate']:.1f} % of the tokens are replaced, because the generator is right so often: "
                "use a smaller --generator.width or a higher --masking.fraction"
            )
        if metrics["discriminator_loss"] > 1.5 * metrics["discriminator_constant_loss"]:
            found.append("the discriminator is far worse than a constant guess: it diverged; lower the learning rate")
    return found
