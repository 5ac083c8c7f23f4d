"""Gradient-disentangled embedding sharing (DeBERTaV3; He et al., 2023): one network trains a table, the other its
difference from it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SharedTable(nn.Module):
    """Another network's table without its gradient, plus a trained difference that begins at 0: [rows, E].

    The other network owns `base`; a state_dict has the sum, as one table.
    """

    def __init__(self, base: "nn.Embedding | SharedTable") -> None:
        super().__init__()
        self.num_embeddings: int = base.num_embeddings
        self._base = (base,)  # in a tuple: not a part of this module
        self.delta = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def base(self) -> "nn.Embedding | SharedTable":
        """The other network's table."""
        return self._base[0]

    @property
    def weight(self) -> Tensor:
        """The whole table."""
        return self.base.weight.detach() + self.delta

    def forward(self, ids_BT: Tensor) -> Tensor:
        return F.embedding(ids_BT, self.base.weight.detach()) + F.embedding(ids_BT, self.delta)

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight if keep_vars else self.weight.detach()
