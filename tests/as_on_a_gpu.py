"""The encoder as it is on a GPU, on the CPU: PyTorch's dropout and attention, and no question whether rows are whole."""

import pytest
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.native import library
from electra_trainer.model import attention, encoder, modern
from electra_trainer.objectives import sentence_contrast


def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: attention.Bias, dropout: float) -> Tensor:
    if isinstance(bias_B1TT, attention.Pieces):
        return attention.attend(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the rest of the test."""
    monkeypatch.setattr(library, "load", lambda precision: (None, "not in use"))
    monkeypatch.setattr(attention, "drop", lambda x, p: F.dropout(x, p))
    for block in (encoder, modern):
        monkeypatch.setattr(block, "attend", attend)
    for module in (attention, modern):
        monkeypatch.setattr(module, "whole_rows", lambda piece_BT: False)
    monkeypatch.setattr(sentence_contrast, "picks_out", lambda device: False)
