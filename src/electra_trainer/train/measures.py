"""Metrics of a step or an evaluation from its sums; health.py says whether they look healthy."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from electra_trainer.batch import Losses, Term
from electra_trainer.settings.config import Config

_MEANS_AT_SLOTS = {
    "generator_correct_K": "generator_accuracy",
    "generator_entropy_K": "generator_entropy",
    "encoder_correct_K": "encoder_accuracy",
    "encoder_entropy_K": "encoder_entropy",
}
_READ = (
    *_MEANS_AT_SLOTS,
    *"used_K replaced_BT counted_BT real_BT replaced_logit_BT".split(),
    *"sentence_counted sentence_corrupted sentence_logit".split(),
)
"""The diagnostics that metrics are made of."""


def keep_measured(losses: Losses) -> Losses:
    """The step's results on the CPU, with only the diagnostics that `measure` reads: unused slots and padding dropped,
    no [B, T] kept.
    """
    read = {name: losses.diagnostics[name] for name in _READ if name in losses.diagnostics}
    diagnostics = read | {f"sum/{name}": term.sum.detach() for name, term in losses.terms.items()}
    if any(tensor.device.type != "cpu" for tensor in diagnostics.values()):
        diagnostics = in_one_copy(diagnostics)
    kept = {name: diagnostics[name][diagnostics["used_K"]] for name in _MEANS_AT_SLOTS if name in diagnostics}
    if "replaced_BT" in diagnostics:
        counted_BT = diagnostics["counted_BT"]
        kept["replaced_N"] = diagnostics["replaced_BT"][diagnostics["real_BT"]]
        kept["counted_replaced_N"] = diagnostics["replaced_BT"][counted_BT]
        kept["counted_logit_N"] = diagnostics["replaced_logit_BT"][counted_BT]
    if "sentence_counted" in diagnostics:
        counted = diagnostics["sentence_counted"]
        kept["corrupted_S"] = diagnostics["sentence_corrupted"][counted]
        kept["corrupted_logit_S"] = diagnostics["sentence_logit"][counted]
    terms = {name: replace(term, sum=diagnostics[f"sum/{name}"]) for name, term in losses.terms.items()}
    return Losses(terms=terms, diagnostics=kept)


def in_one_copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU. A GPU is waited for once, not once a tensor or mask.

    They are packed into one block of bytes, the widest elements first, so that each lies as its type wants.
    """
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    block = torch.cat([tensors[name].detach().contiguous().view(-1).view(torch.uint8) for name in order]).cpu()
    parts = torch.split(block, [tensors[name].nbytes for name in order])
    return {n: part.view(tensors[n].dtype).view(tensors[n].shape) for n, part in zip(order, parts, strict=True)}


def to_bytes(lanes: Sequence[Losses]) -> bytes:
    """Lanes after `keep_measured` as a safetensors file, which ranks send one another."""
    tensors: dict[str, Tensor] = {}
    for index, lane in enumerate(lanes):
        tensors |= {f"{index}/sum/{name}": term.sum.detach().cpu() for name, term in lane.terms.items()}
        tensors |= {f"{index}/diagnostics/{name}": value.contiguous().cpu() for name, value in lane.diagnostics.items()}
    terms = [[(name, term.count, term.weight) for name, term in lane.terms.items()] for lane in lanes]
    header = [*zip(terms, [list(lane.diagnostics) for lane in lanes], strict=True)]
    return safetensors.torch.save(tensors, metadata={"lanes": json.dumps(header)})


def from_bytes(content: bytes) -> list[Losses]:
    """The lanes of `to_bytes`, on the CPU, in the same order."""
    tensors = safetensors.torch.load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    lanes = []
    for index, (terms, names) in enumerate(json.loads(header["lanes"])):
        sums = {n: Term(sum=tensors[f"{index}/sum/{n}"], count=c, weight=w) for n, c, w in terms}
        diagnostics = {name: tensors[f"{index}/diagnostics/{name}"] for name in names}
        lanes.append(Losses(terms=sums, diagnostics=diagnostics))
    return lanes


def divisors(counts: dict[str, float], config: Config, *, rows: int | None = None) -> dict[str, float]:
    """Divisor of the sum of each term: its count, or with `losses = "sums"` the number of rows (§2).

    Args:
        counts: the objective's counts, summed over all lanes and ranks.
        config: the run.
        rows: how many; None: those of a step.
    """
    return counts if config.losses == "means" else dict.fromkeys(counts, float(rows or config.batch.size))


def measure(
    lanes: Sequence[Losses], counts: dict[str, float], divided_by: dict[str, float] | None = None
) -> dict[str, float]:
    """Metrics over some lanes together.

    Args:
        lanes: losses computed with `diagnose=True`, through `keep_measured`.
        counts: the objective's counts, summed over the lanes.
        divided_by: the divisors of the step's loss, if not the counts.

    Returns:
        The means of all terms; `loss`, what is minimised, the weighted sum of the means (or of the sums in a row);
        `generator_accuracy`, `generator_entropy` (nats); and, where there is a discriminator (or a copy layer),
        `fake_rate` among the real tokens, and over the tokens that its loss counts `discriminator_auc`
        (0.5 where only one class is there) and `discriminator_constant_loss`, the loss of the best constant guess;
        `encoder_accuracy` at the chosen positions where the main network predicts words from a corrupted input;
        `sentence_auc` where there is a head over inputs.
    """
    first = lanes[0]
    sums = {name: sum(float(lane.terms[name].sum.detach()) for lane in lanes) for name in first.terms}
    loss, means = (
        {name: sums[name] / max(by[term.count], 1.0) for name, term in first.terms.items()}
        for by in (divided_by or counts, counts)
    )
    metrics = {"loss": sum(first.terms[name].weight * part for name, part in loss.items()), **means}
    for name, metric in _MEANS_AT_SLOTS.items():
        if name in first.diagnostics:
            metrics[metric] = _mean(_joined(lanes, name))
    if "replaced_N" in first.diagnostics:
        replaced, logits = _joined(lanes, "counted_replaced_N"), _joined(lanes, "counted_logit_N")
        metrics["fake_rate"] = _mean(_joined(lanes, "replaced_N"))
        metrics["discriminator_auc"] = _auc(replaced, logits)
        metrics["discriminator_constant_loss"] = binary_entropy(_mean(replaced))
    if "corrupted_S" in first.diagnostics:
        metrics["sentence_auc"] = _auc(_joined(lanes, "corrupted_S"), _joined(lanes, "corrupted_logit_S"))
    return metrics


def _auc(truth: torch.Tensor, logits: torch.Tensor) -> float:
    """Area under the ROC curve; 0.5 if there is only one class or a logit is NaN or infinite.

    It is the share of pairs of a fake and an original in which the fake has the higher logit, ties counting half,
    computed from the fakes' ranks (Mann and Whitney). scikit-learn gives the same, but importing it doubled the
    start-up time of a command.
    """
    truth_N, logits_N = truth.bool().cpu().numpy(), logits.float().cpu().numpy()
    fakes, originals = int(truth_N.sum()), int((~truth_N).sum())
    if not (fakes and originals and np.isfinite(logits_N).all()):
        return 0.5
    _, value_N, ties_V = np.unique(logits_N, return_inverse=True, return_counts=True)
    rank_V = ties_V.cumsum() - (ties_V - 1) / 2  # from 1; equal values share their mean rank
    return float((rank_V[value_N[truth_N]].sum() - fakes * (fakes + 1) / 2) / (fakes * originals))


def _mean(values: torch.Tensor) -> float:
    """0 for no values, as for the losses: rows may hold nothing that can be masked."""
    return values.float().mean().item() if len(values) else 0.0


def _joined(lanes: Sequence[Losses], name: str) -> torch.Tensor:
    return torch.cat([lane.diagnostics[name] for lane in lanes])


def binary_entropy(rate: float) -> float:
    """Loss, in nats a token, of always guessing the share of replaced tokens: what a blind discriminator reaches."""
    return 0.0 if rate <= 0 or rate >= 1 else -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
