"""What is reported of a step or of an evaluation: means, rates, AUC. Sums in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from electra_trainer.batch import Losses
from electra_trainer.train.health import binary_entropy

_SEEN_AT_SLOTS = ("generator_correct_K", "generator_entropy_K")


def keep_measured(losses: Losses) -> Losses:
    """The same, of what was seen only that which `measure` reads: unused slots and padding dropped, no [B, T] kept."""
    seen = losses.seen
    kept: dict[str, Tensor] = {name: seen[name][seen["used_K"]] for name in _SEEN_AT_SLOTS if name in seen}
    if "replaced_BT" in seen:
        real_BT = seen["real_BT"]
        kept |= {"replaced_N": seen["replaced_BT"][real_BT], "replaced_logit_N": seen["replaced_logit_BT"][real_BT]}
    return Losses(terms=losses.terms, seen=kept)


def measure(lanes: Sequence[Losses], counts: dict[str, float]) -> dict[str, float]:
    """Metrics over some lanes together.

    Args:
        lanes: losses computed with `look=True`, through `keep_measured`.
        counts: the objective's counts, added up over the lanes.

    Returns:
        The means of all terms; `loss`, their weighted sum; `generator_accuracy`, `generator_entropy` (nats); and, where there
        is a discriminator, `fake_rate`, `discriminator_auc` (0.5 where only one class is there) and
        `discriminator_constant_loss`.
    """
    first = lanes[0]
    sums = {name: sum(float(lane.terms[name].sum.detach()) for lane in lanes) for name in first.terms}
    means = {name: sums[name] / max(counts[term.count], 1.0) for name, term in first.terms.items()}
    metrics = {"loss": sum(first.terms[name].weight * mean for name, mean in means.items()), **means}
    if "generator_correct_K" in first.seen:
        metrics["generator_accuracy"] = _mean(_joined(lanes, "generator_correct_K"))
        metrics["generator_entropy"] = _mean(_joined(lanes, "generator_entropy_K"))
    if "replaced_N" in first.seen:
        replaced, logits = _joined(lanes, "replaced_N"), _joined(lanes, "replaced_logit_N")
        rate = _mean(replaced)
        metrics["fake_rate"] = rate
        both = 0.0 < rate < 1.0 and bool(torch.isfinite(logits).all())
        metrics["discriminator_auc"] = float(roc_auc_score(replaced.cpu(), logits.cpu())) if both else 0.5
        metrics["discriminator_constant_loss"] = binary_entropy(rate)
    return metrics


def _mean(values: torch.Tensor) -> float:
    """0 where there are none, as for the losses: rows may hold nothing that can be masked."""
    return values.float().mean().item() if len(values) else 0.0


def _joined(lanes: Sequence[Losses], name: str) -> torch.Tensor:
    return torch.cat([lane.seen[name] for lane in lanes])
