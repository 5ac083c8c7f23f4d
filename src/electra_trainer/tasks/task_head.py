"""The head that gives a task's outputs: one linear layer on BERT's block, ModernBERT's own head on the modern block."""

from torch import Tensor, nn

from electra_trainer.model.modern import PredictionHead
from electra_trainer.settings.config import Model


class ModernHead(PredictionHead):
    """Dense, GELU, LayerNorm and a linear layer, [.., D] -> [.., outputs]: the head of transformers' ModernBERT for
    texts, tokens and questions.
    """

    def __init__(self, model: Model, outputs: int) -> None:
        super().__init__(model)
        self.classifier = nn.Linear(model.hidden_size, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.classifier(super().forward(hidden))
        return logits


def output_head(model: Model, outputs: int) -> nn.Module:
    """The head of the encoder's block, [.., D] -> [.., outputs]."""
    return ModernHead(model, outputs) if model.block == "modern" else nn.Linear(model.hidden_size, outputs)
