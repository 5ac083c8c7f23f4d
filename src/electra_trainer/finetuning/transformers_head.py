"""Our head as one of transformers', with the same output, and back.

    Classification, Regression   ElectraForSequenceClassification: dropout, dense [D, D], gelu, dropout, out_proj [C, D]
    on [CLS]
    Tagging                      ElectraForTokenClassification: dropout, one linear layer; a copy
    QuestionAnswering, BERT's    ElectraForQuestionAnswering: one linear layer; a copy

Our head for whole texts is one linear layer, w x + b, and gelu(z) - gelu(-z) = z for the exact GELU z Phi(z), as Phi(z)
+ Phi(-z) = 1. So dense gets the rows [w; -w; 0] and out_proj [1, -1, 0], which needs 2 C <= D. For a regression
out_proj also holds scale and shift, so transformers gives numbers in the file's own units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from electra_trainer.errors import CheckpointError
from electra_trainer.pretrained.as_modern import numbered

LINEAR = ("weight", "bias")
_ONLY_OURS = "Its encoder is in `encoder/` (ElectraModel), and our linear layer in head.safetensors."


@dataclass(frozen=True, kw_only=True)
class TransformersHead:
    """The class of transformers that can hold a task's head, and how it does."""

    architecture: str | None = None
    """None: transformers has no head like it."""
    note: str = (
        "transformers has no head like this task's, and refuses the folder. Its encoder is in `encoder/` "
        "(ElectraModel); the head, in head.safetensors, is read by electra-trainer."
    )
    """A sentence for the card."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For config.json."""
    copied: str = ""
    """The prefix under which the linear layer is copied; none: it is spread over dense and out_proj."""
    hidden_size: int = 0
    scale: float = 1.0
    """transformers' output is scale * ours + shift."""
    shift: float = 0.0

    def write(self, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A trained head (its state dict, fp32) by transformers' names."""
        if self.copied:
            return {self.copied + name: head[name] for name in LINEAR}
        weight_CD, bias_C = head["weight"], head["bias"]
        count, size = len(bias_C), self.hidden_size
        dense_DD, dense_D = weight_CD.new_zeros(size, size), bias_C.new_zeros(size)
        dense_DD[:count], dense_DD[count : 2 * count] = weight_CD, -weight_CD
        dense_D[:count], dense_D[count : 2 * count] = bias_C, -bias_C
        out_CD = torch.zeros_like(weight_CD)
        out_CD[:, :count], out_CD[:, count : 2 * count] = self.scale * torch.eye(count), -self.scale * torch.eye(count)
        return {
            "classifier.dense.weight": dense_DD,
            "classifier.dense.bias": dense_D,
            "classifier.out_proj.weight": out_CD,
            "classifier.out_proj.bias": torch.full_like(bias_C, self.shift),
        }

    def read(self, tensors: Mapping[str, Tensor], *, where: str) -> dict[str, Tensor]:
        """Our head from what `write` wrote, bit for bit; CheckpointError: it did not write these tensors."""
        try:
            if self.copied:
                return {name: tensors[self.copied + name] for name in LINEAR}
            count = tensors["classifier.out_proj.weight"].shape[0]
            return {name: tensors[f"classifier.dense.{name}"][:count].clone() for name in LINEAR}
        except (KeyError, IndexError) as error:
            raise CheckpointError(f"{where}: has no head of this task ({error}).") from None


def copied_head(architecture: str, prefix: str, *, labels: Sequence[str] = ()) -> TransformersHead:
    """One linear layer, as transformers has it."""
    note, settings = "The head is one linear layer, as in transformers.", numbered(labels) if labels else {}
    return TransformersHead(architecture=architecture, note=note, settings=settings, copied=prefix)


def text_head(
    labels: Sequence[str], problem: str, *, pooling: str, hidden_size: int, scale: float = 1.0, shift: float = 0.0
) -> TransformersHead:
    """One linear layer on a text's vector, spread over the two layers of ElectraForSequenceClassification where these
    can hold it.
    """
    if pooling == "pair":
        return TransformersHead()
    if pooling == "mean":
        note = "transformers' head for texts reads [CLS], and this one the mean over all tokens."
        return TransformersHead(note=f"{note} {_ONLY_OURS}")
    if 2 * len(labels) > hidden_size:
        return TransformersHead(
            note=f"transformers cannot carry the head: {len(labels)} labels need {2 * len(labels)} units in its dense "
            f"layer, which has {hidden_size}. {_ONLY_OURS}"
        )
    return TransformersHead(
        architecture="ElectraForSequenceClassification",
        settings={**numbered(labels), "problem_type": problem},
        note="The head is the paper's, one linear layer on [CLS], written as the two layers that transformers has in "
        "its place: gelu(z) - gelu(-z) = z, so its output is the same.",
        hidden_size=hidden_size,
        scale=scale,
        shift=shift,
    )
