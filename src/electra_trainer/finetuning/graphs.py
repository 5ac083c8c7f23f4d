"""Fine-tuning's network as CUDA graphs, one for each shape of rows: the step of a small encoder waits for its launches.

No card has judged it: `ELECTRA_GPU_TRY=tuning` asks for it. Head, loss and update are computed as without.
"""

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.train import levers
from electra_trainer.train.device import autocast

_SAME = 1e-2
"""Relative difference that is allowed of hidden states by a graph."""


class Rows(nn.Module):
    """A network that reads the tensors of a batch, in their order there."""

    def __init__(self, network: nn.Module, precision: str) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, *fields: Tensor) -> Tensor:
        """Hidden states, fp32 [B, T, D]."""
        with autocast(self.precision, fields[0].device):
            hidden_BTD: Tensor = self.network(Batch(**dict(zip(Batch.__annotations__, fields, strict=True))))
        return hidden_BTD


@dataclass(kw_only=True, eq=False)
class Graphs:
    """How a network that trains reads its batches; a graph is recorded for each shape when it comes first."""

    network: nn.Module
    precision: str
    device: torch.device
    made: dict[torch.Size, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plain = Rows(self.network, self.precision)
        self._wanted = self.device.type == "cuda" and levers.TUNING in levers.asked()
        self._pool = torch.cuda.graph_pool_handle() if self._wanted else None  # no two graphs run at once

    def of(self, batch: Batch) -> Rows:
        """The module that computes the hidden states of such a batch; asked for before dropout is seeded: recording
        draws.
        """
        shape = batch.ids_BT.shape
        if self._wanted and shape not in self.made:
            try:
                self.made[shape] = self._recorded(*vars(batch).values())
            except (RuntimeError, ArithmeticError) as error:
                self._wanted = False
                warnings.warn(f"{levers.TRY}={levers.TUNING} is left out: {error}", stacklevel=2)
        return self.made[shape] if self._wanted else self.plain

    def _recorded(self, *fields: Tensor) -> Rows:
        """A graph of both passes; its hidden states are those of a plain pass that drops the same."""
        warn_of_streams = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", id)
        warn_of_streams(False)  # gradients wait for the stream of the recording, which has nothing to do
        torch.manual_seed(0)
        expected_BTD = self.plain(*fields).detach()
        rows = Rows(self.network, self.precision)
        torch.cuda.make_graphed_callables(rows, fields, allow_unused_input=True, pool=self._pool)
        torch.manual_seed(0)
        if not (rows(*fields).detach() - expected_BTD).norm() <= _SAME * expected_BTD.norm():
            raise ArithmeticError("its hidden states differ")
        return rows
