"""Whether the metrics of a run look healthy: a line in words, and alarms.

The discriminator's loss and accuracy mean nothing alone, since 90 % of the tokens are originals. So its loss is always
shown next to that of the constant guess, and its ranking (AUC) next to chance. Both are on the run's own fakes, so
whether it learns is judged by its AUC on standard fakes (see "what to watch" in docs/training.md).
"""

import math
from collections.abc import Mapping

from electra_trainer.errors import ElectraError
from electra_trainer.files.wording import number
from electra_trainer.runs.metrics import curves
from electra_trainer.runs.run_folder import METRICS, RunFolder
from electra_trainer.settings.config import Model

LEARNING, BEGINNING, GUESSING, WORSE = "learning", "beginning to learn", "not better than chance", "worse than a guess"
RATES = "--optimizer.learning-rate (with Muon --optimizer.muon-learning-rate too)"
_FRESH = 50
"""Steps in which weights may still be about as good as new ones."""
_COIN = 1.5 * math.log(2)
"""The highest loss, in nats, of a network that answers yes or no and is about as good as a new one."""
Row = Mapping[str, float]
"""Metrics of a step or an evaluation."""


def chance(words: float) -> float:
    """The highest AUC on standard fakes that a discriminator which guesses may show by luck: three standard errors
    above 0.5, and 0.02 at least.

    A standard error is 0.7 / √words where a quarter of the words were sampled anew (a fifth differ). In the demo fresh
    weights have 0.485 to 0.506 and the first 90 steps 0.515 to 0.549 (records/2026-11-23-demo-recipe).
    """
    return min(1.0, 0.5 + max(0.02, 2.1 / math.sqrt(max(words, 1))))


def verdict(metrics: Row) -> str:
    """Judge a discriminator by its AUC on standard fakes, over `standard_words` words (absent: enough), unless its loss
    is beyond reason: diverged networks tell frequent words from rare ones, which is better than chance.
    """
    if metrics.get("discriminator_loss", 0.0) > max(_COIN, 1.5 * metrics.get("discriminator_constant_loss", 0.0)):
        return WORSE
    above = metrics["discriminator_standard_auc"] - chance(metrics.get("standard_words", math.inf))
    return LEARNING if above > 0.03 else BEGINNING if above > 0 else GUESSING


def health_line(metrics: Row, *, vocab_size: int) -> str:
    """Held-out metrics in words."""
    parts = []
    if "discriminator_loss" in metrics:
        loss, constant, auc = (metrics[f"discriminator_{name}"] for name in ("loss", "constant_loss", "auc"))
        parts.append(f"discriminator {loss:.3f} vs {constant:.3f} for the constant guess, AUC {auc:.2f}")
    if "discriminator_standard_auc" in metrics:
        now, words = verdict(metrics), metrics.get("standard_words")
        of = f" (of {words:,.0f} words, chance reaches {chance(words):.3f})" if words else ""
        parts.append(f"AUC on standard fakes {metrics['discriminator_standard_auc']:.3f}: {now}{of}")
    if "encoder_loss" in metrics:
        right = 100 * metrics["encoder_accuracy"]
        parts.append(f"encoder {metrics['encoder_loss']:.3f} nats, right {right:.0f} % of the time at chosen positions")
    if "generator_entropy" in metrics:
        share = metrics["generator_entropy"] / math.log(vocab_size)
        nats = f"{metrics['generator_loss']:.2f} nats, " if "generator_loss" in metrics else ""
        right = 100 * metrics["generator_accuracy"]
        parts.append(f"generator {nats}right {right:.0f} % of the time, entropy {100 * share:.0f} % of the most")
    return "; ".join(parts)


def begun(metrics: Row, *, step: float, turn: int) -> Row:
    """The metrics of what has begun to learn: before `turn`, the first of two stages, that is the generator alone."""
    return metrics if step > turn else {n: value for n, value in metrics.items() if n.startswith("generator_")}


def alarms_in(folder: RunFolder) -> list[str]:
    """Alarms of a run by its newest rows; none where these or its settings cannot be read."""
    try:
        config, rows = folder.config(), curves(folder.path / METRICS)
    except (ElectraError, RecursionError):
        return []
    train, valid = (one[-1] if one else {} for one in rows)
    step, turn, steps = max(train.get("step", 0), valid.get("step", 0)), config.first_stage_steps, config.schedule.steps
    held_out, trained = (begun(row, step=step, turn=turn) for row in (valid or train, train or valid))
    done, steps = (step - turn, steps - turn) if step > turn else (step, turn)
    warmup = min(config.schedule.warmup_steps, steps)
    return alarms(held_out, trained, model=config.model, step=done, steps=steps, warmup=warmup)


def alarms(
    metrics: Row, trained: Row | None = None, *, model: Model, step: float, steps: int, warmup: int = 0
) -> list[str]:
    """Warnings at `step` of `steps`, by held-out metrics; `trained` are those of the newest training step.

    A network that diverged is reported after the warm-up and at the end; anything else not in the first quarter, nor
    before step 500. Thresholds follow the failures that users of ELECTRA met: a dead generator, one that is too strong,
    a discriminator that calls everything original.
    """
    found = []
    if step >= warmup:
        found = _worse_than_guesses(metrics, trained or metrics, vocab_size=model.vocab_size, fresh=step < _FRESH)
    if step < max(500, steps / 4):
        return found
    if "generator_loss" in metrics and metrics.get("generator_entropy", 0.0) > 0.9 * math.log(model.vocab_size):
        found.append("the generator is still almost uniform: raise the learning rate or train longer")
    if "discriminator_loss" in metrics and metrics.get("discriminator_standard_auc", 1.0) <= 0.55:
        start = "" if model.initializer == "fan-in" else ", or for a narrow model use --model.initializer fan-in"
        plateau = "the discriminator has not left the plateau (AUC on standard fakes 0.55 at most)"
        found.append(f"{plateau}: train longer or lower the learning rate{start}")
    if "discriminator_loss" in metrics and (fakes := metrics.get("fake_rate", 1.0)) < 0.04:
        few = f"only {100 * fakes:.1f} % of the tokens are replaced, because the generator is right so often"
        found.append(f"{few}: use a smaller --generator.width or a higher --masking.fraction")
    return found


def _worse_than_guesses(metrics: Row, trained: Row, *, vocab_size: int, fresh: bool) -> list[str]:
    """The alarm of losses above those of a guess: networks that diverged, or that know their training rows alone.

    Words: ln V, a quarter more while weights are `fresh` (new ones have up to 7 % more). Discriminator: 1.5 times the
    constant guess, at least 0.1 nats, since that guess costs nothing where all tokens are fakes; new ones have ln 2.
    Adversarial networks (Appendix F) raise one another's losses, up to 2.6 times ln V without harm
    (records/2026-11-21-experiments), and get four times as much.
    """
    words, constant = math.log(vocab_size), metrics.get("discriminator_constant_loss", 0.0)
    most = dict.fromkeys(("generator_loss", "encoder_loss"), (1.25 * words if fresh else words, words))
    most |= dict.fromkeys(("sentence_loss", "baseline_loss"), (_COIN, math.log(2)))
    most["guess_loss"] = words**2, words**2
    most["discriminator_loss"] = max(1.5 * constant, _COIN if fresh else 0.1), constant
    worse, diverged = [], False
    for name, (limit, guess) in most.items():
        limit *= 4 if "policy_loss" in metrics else 1
        held_out = metrics.get(name, 0.0)
        training = trained.get(name, held_out)
        if not held_out <= limit:  # NaN too
            worse.append(f"{name} {number(held_out)}, in training {number(training)}, a guess {number(guess)}")
            diverged |= not training <= limit
    heart = "the run knows its training rows by heart. Prepare more text"
    why = f"the run diverged. Start again in another --out with a lower {RATES}" if diverged else heart
    return [f"losses are worse than those of guessing ({'; '.join(worse)}): {why}"] if worse else []
