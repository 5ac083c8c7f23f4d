"""The network that is fine-tuned: the encoder and a task's head, and how fast each layer learns."""

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import Task
from electra_trainer.model.attention import Dropout
from electra_trainer.model.encoder import Encoder
from electra_trainer.pretrained.source import Source
from electra_trainer.randomness import key

_LAYER = re.compile(r"electra\.encoder\.layer\.(\d+)\.")


class FineTuned(nn.Module):
    """Encoder, dropout, head. Parameter names are transformers' own below `electra`."""

    def __init__(self, encoder: Encoder, head: nn.Module, *, dropout: float) -> None:
        super().__init__()
        self.electra = encoder
        self.dropout = Dropout(dropout)
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states for the head, fp32 [B, T, D]; the head itself is the task's to call, outside of autocast."""
        hidden_BTD: Tensor = self.electra(batch.ids_BT, batch)
        dropped: Tensor = self.dropout(hidden_BTD.float())
        return dropped


def build_network(source: Source, task: Task, recipe: Recipe, *, seed: int) -> FineTuned:
    """The source's encoder under a fresh head: Glorot-uniform weights, biases 0 (released), drawn by `seed`.

    Whether there is dropout between the two is the recipe's `head_dropout`.
    """
    encoder = source.encoder(dropout=recipe.dropout, attention_dropout=recipe.attention_dropout)
    head = task.head(source.model)
    for name, parameter in head.named_parameters():
        with torch.no_grad():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if "LayerNorm" in name and name.endswith("weight") else 0.0)
            else:
                generator = torch.Generator().manual_seed(key(seed, f"weights/head/{name}"))
                nn.init.xavier_uniform_(parameter, generator=generator)
    dropped = task.whole_text or recipe.head_dropout == "all"
    return FineTuned(encoder, head, dropout=recipe.dropout if dropped else 0.0)


def layer_share(recipe: Recipe, layers: int) -> Callable[[str], float]:
    """Parameter name -> its share of the learning rate (Appendix B; released `_get_layer_lrs`).

    The head has 1; layer i of n, counted from 0, layer_decay ** (n - 1 - i + top_layer_power); the embeddings and their projection
    one power more than layer 0. With a power of 2 these are the released code's multipliers.
    """

    def share(name: str) -> float:
        if name.startswith("head."):
            return 1.0
        found = _LAYER.match(name)
        depth = int(found[1]) if found else -1
        return float(recipe.layer_decay ** (layers - 1 - depth + recipe.top_layer_power))

    return share
