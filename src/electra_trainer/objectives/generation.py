"""The generator's part of a step: its loss, its samples at the chosen positions, and the input x_corrupt = REPLACE(x,
m, x̂) (§2, §3.2).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from electra_trainer.batch import Corrupted, Masked, Term
from electra_trainer.kernels.vocabulary_softmax import token_softmax
from electra_trainer.model.networks import TokenPredictor, WordFrequencies
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Learned


class Generated(NamedTuple):
    """Output of a generator at K slots."""

    loss: Tensor | None
    """Scalar, fp32: sum of -log p(original word); None for one that does not learn."""
    sampled_K: Tensor
    correct_K: Tensor
    entropy_K: Tensor


def generate(
    generator: nn.Module, config: Config, masked: Masked, rng: Rng, *, diagnose: bool, project: Tensor | None = None
) -> Generated:
    """Sample a word for each slot.

    Args:
        generator: a TokenPredictor or WordFrequencies, as `config.generator` says.
        config: the run.
        masked: the lane.
        rng: its randomness; one uniform number a slot is taken for "sample".
        diagnose: also find correctness and entropy for the record.
        project: output of the token head's dense layer, where the caller has it already.
    """
    settings, labels_K = config.generator, masked.labels_K
    draws_K = rng.uniform("sample", len(masked.slots_K), masked.slots_K.device)
    if isinstance(generator, WordFrequencies):
        with torch.no_grad():
            without_K = labels_K.clamp(min=0) if settings.disallow_correct else None
            sampled_K = generator.sample(draws_K, without_K=without_K)
            entropy_K = generator.entropy().float().expand(len(labels_K))
            return Generated(None, sampled_K, labels_K == generator.probability_V.argmax(), entropy_K)
    assert isinstance(generator, TokenPredictor) and isinstance(settings, Learned)
    if project is None:
        project = generator.project(masked.input_BT, masked.batch, masked.slots_K)
    tokens = token_softmax(
        project,
        *generator.output(),
        labels_K=labels_K,
        draws_K=draws_K,
        temperature=settings.temperature,
        disallow_label=settings.disallow_correct,
        diagnose=diagnose,
    )
    return Generated(tokens.loss, tokens.sampled_K, tokens.correct_K, tokens.entropy_K)


def generator_terms(generated: Generated, weight: float) -> dict[str, Term]:
    """The generator's term of the loss; none for one that does not learn."""
    if generated.loss is None:
        return {}
    return {"generator_loss": Term(sum=generated.loss, count="masked", weight=weight)}


def generator_diagnostics(generated: Generated, masked: Masked) -> dict[str, Tensor]:
    """Diagnostics of a generator."""
    return {
        "used_K": masked.slots_K >= 0,
        "generator_correct_K": generated.correct_K,
        "generator_entropy_K": generated.entropy_K,
    }


def corrupt(masked: Masked, sampled_K: Tensor) -> Corrupted:
    """Put the sampled ids at the chosen positions, also where the generator's input has the original word.

    A sample that equals the original counts as original (§2). A position that was drawn twice gets the floored average
    of its sampled ids, as in the released code; with distinct positions there are none. Slots that are not used put in
    nothing.
    """
    ids_BT = masked.batch.ids_BT
    flat, used_K, place_K = ids_BT.flatten(), (masked.slots_K >= 0).long(), masked.slots_K.clamp(min=0)
    total = torch.zeros_like(flat).index_add_(0, place_K, sampled_K * used_K)
    times = torch.zeros_like(flat).index_add_(0, place_K, used_K)
    input_BT = torch.where(times > 0, total // times.clamp(min=1), flat).view_as(ids_BT)
    return Corrupted(batch=masked.batch, input_BT=input_BT, replaced_BT=input_BT != ids_BT, sampled_K=sampled_K)
