"""The two losses, as sums (§2). Means are taken once, by the loop."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def token_loss(logits_KV: Tensor, labels_K: Tensor) -> Tensor:
    """L_MLM: sum over chosen positions of -log p(x_t); fp32 scalar, 0 where nothing was chosen."""
    return F.cross_entropy(logits_KV.float(), labels_K, reduction="sum")


def replaced_loss(logits_BT: Tensor, replaced_BT: Tensor, counted_BT: Tensor) -> Tensor:
    """L_Disc: sum over counted tokens of the binary cross-entropy of "replaced"; fp32 scalar."""
    return (replaced_losses(logits_BT, replaced_BT) * counted_BT).sum()


def replaced_losses(logits_BT: Tensor, replaced_BT: Tensor) -> Tensor:
    """Binary cross-entropy of "replaced" at each token, fp32 [B, T]."""
    return F.binary_cross_entropy_with_logits(logits_BT.float(), replaced_BT.float(), reduction="none")


def entropy(logits_KV: Tensor) -> Tensor:
    """Entropy in nats of softmax(logits), fp32 [K]."""
    log_p_KV = logits_KV.detach().float().log_softmax(-1)
    return -(log_p_KV.exp() * log_p_KV).sum(-1)
