"""The plain way of what the package does in pieces: an oracle."""

import torch
from torch import Tensor

from electra_trainer.kernels.vocabulary_softmax import invert


def sample(logits_KV: Tensor, generator: torch.Generator) -> Tensor:
    """One draw from softmax(logits) for each row, int64 [K], in fp32; a uniform number a row, drawn where `generator` lives."""
    draws_K = torch.rand((len(logits_KV),), generator=generator, device=generator.device).to(logits_KV.device)
    return invert(logits_KV.detach().float().softmax(-1), draws_K)
