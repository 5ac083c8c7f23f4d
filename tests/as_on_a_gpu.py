"""The encoder as it is on a GPU, on the CPU: PyTorch's dropout and attention, and no question whether rows are whole."""

import pytest
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.native import library
from electra_trainer.model import attention, encoder
from electra_trainer.objectives import sentence_contrast


def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor, dropout: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the rest of the test."""
    monkeypatch.setattr(library, "load", lambda precision: (None, "not in use"))
    monkeypatch.setattr(attention, "drop", lambda x, p: F.dropout(x, p))
    monkeypatch.setattr(encoder, "attend", attend)
    monkeypatch.setattr(attention, "whole_rows", lambda piece_BT: False)
    monkeypatch.setattr(sentence_contrast, "picks_out", lambda device: False)
