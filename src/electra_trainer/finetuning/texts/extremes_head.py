"""A head that reads the mean, the largest and the smallest of each unit over a row's tokens (`--pooling extremes`)."""

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.finetuning.texts.linear_probe import ProbedHead
from electra_trainer.model.attention import Dropout
from electra_trainer.model.encoder import Encoder
from electra_trainer.settings.config import Model


class ExtremesHead(ProbedHead):
    """`read_states` [B, T, D] -> [B, outputs]: one linear layer on dropout(LayerNorm([mean, max, min])), [B, 3 D].

    A mean over the row dilutes what stands at one token, such as a wrong form or a word that decides; the extremes keep it.
    """

    def __init__(self, model: Model, outputs: int) -> None:
        super().__init__()
        self.LayerNorm = nn.LayerNorm(3 * model.hidden_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)
        self.dense = nn.Linear(3 * model.hidden_size, outputs)

    def read_states(self, encoder: Encoder, batch: Batch) -> Tensor:
        """The last hidden states, fp32 [B, T, D]."""
        hidden_BTD: Tensor = encoder(batch.ids_BT, batch)
        return hidden_BTD.float()

    def features(self, states: Tensor, batch: Batch) -> Tensor:
        """[B, 3 D], over the tokens of the row, [CLS] and [SEP] included, without padding."""
        real_BT1 = batch.real_BT.unsqueeze(-1)
        mean_BD = (states * real_BT1).sum(1) / real_BT1.sum(1)
        largest_BD = states.masked_fill(~real_BT1, -torch.inf).amax(1)
        smallest_BD = states.masked_fill(~real_BT1, torch.inf).amin(1)
        normed: Tensor = self.LayerNorm(torch.cat([mean_BD, largest_BD, smallest_BD], -1))
        dropped: Tensor = self.dropout(normed)
        return dropped
