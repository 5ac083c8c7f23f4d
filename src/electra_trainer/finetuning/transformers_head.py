"""A head of ours as one of transformers', with the same output, and back.

    Classification, Regression   ElectraForSequenceClassification: dropout, dense [D, D], gelu, dropout, out_proj [C, D] upon [CLS]
    Tagging                      ElectraForTokenClassification: dropout, one linear layer; a copy
    QuestionAnswering, BERT's    ElectraForQuestionAnswering: one linear layer; a copy

Ours for whole texts is one linear layer, w x + b, and gelu(z) - gelu(-z) = z for the exact GELU z Phi(z), as Phi(z) + Phi(-z) = 1. So dense
gets the rows [w; -w; 0], out_proj [1, -1, 0], which needs 2 C <= D. Of a regression out_proj also holds scale and shift: transformers then
gives numbers in the file's own units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra_trainer.errors import CheckpointError
from electra_trainer.finetuning.task import Task
from electra_trainer.finetuning.texts.tasks import Classification, Regression

LINEAR = ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What transformers needs to have our head."""

    architecture: str
    tensors: Mapping[str, Tensor]
    """By transformers' names."""
    settings: Mapping[str, Any]
    """For config.json."""


def architecture_of(task: Task, *, hidden_size: int) -> tuple[str | None, str]:
    """The class of transformers that can hold the head of a task, or None; and a sentence on the head."""
    kind = type(task).__name__
    if isinstance(task, Classification | Regression):
        if task.pooling == "mean":
            return None, (
                "transformers' head for texts reads [CLS], and this one the mean over all tokens. The folder holds the encoder (ElectraModel) "
                "and, in head.safetensors, our linear layer."
            )
        count = len(task.labels) if isinstance(task, Classification) else 1
        if 2 * count > hidden_size:
            return None, (
                f"transformers cannot carry the head: {count} labels need {2 * count} units in its dense layer, which has {hidden_size}. The "
                "folder holds the encoder (ElectraModel) and, in head.safetensors, our linear layer."
            )
        return "ElectraForSequenceClassification", (
            "The head is the paper's, one linear layer upon [CLS], written in the two layers that transformers has in its place: "
            "gelu(z) - gelu(-z) = z, so its output is the same."
        )
    copied = "The head is one linear layer, as in transformers."
    if kind == "Tagging":
        return "ElectraForTokenClassification", copied
    if kind == "QuestionAnswering" and getattr(task, "head_kind", None) == "independent":
        return "ElectraForQuestionAnswering", copied
    return None, (
        "transformers has no head like this task's. The folder holds the encoder (ElectraModel) and, in head.safetensors, the head, which "
        "electra-trainer reads."
    )


def to_transformers(task: Task, head: Mapping[str, Tensor], *, hidden_size: int) -> Handed | None:
    """A trained head (its state dict, fp32) in transformers' terms; None where it has none like it."""
    architecture, _ = architecture_of(task, hidden_size=hidden_size)
    if architecture is None:
        return None
    if architecture == "ElectraForQuestionAnswering":
        return Handed(
            architecture=architecture, tensors={f"qa_outputs.{name}": head[name] for name in LINEAR}, settings={}
        )
    if architecture == "ElectraForTokenClassification":
        tensors = {f"classifier.{name}": head[name] for name in LINEAR}
        return Handed(architecture=architecture, tensors=tensors, settings=_labels(getattr(task, "labels")))  # noqa: B009
    if isinstance(task, Regression):
        tensors = _spread(head, hidden_size, scale=task.scale, shift=task.shift)
        return Handed(
            architecture=architecture, tensors=tensors, settings={**_labels(("value",)), "problem_type": "regression"}
        )
    assert isinstance(task, Classification)
    settings = {**_labels(task.labels), "problem_type": "single_label_classification"}
    return Handed(architecture=architecture, tensors=_spread(head, hidden_size), settings=settings)


def from_transformers(task: Task, tensors: Mapping[str, Tensor], *, hidden_size: int, where: str) -> dict[str, Tensor]:
    """Our head out of what `to_transformers` wrote, bit for bit.

    Raises:
        CheckpointError: the tensors are not so made: transformers trained them on, say.
    """
    architecture, _ = architecture_of(task, hidden_size=hidden_size)
    prefix = {"ElectraForQuestionAnswering": "qa_outputs.", "ElectraForTokenClassification": "classifier."}.get(
        str(architecture)
    )
    try:
        if prefix is not None:
            return {name: tensors[prefix + name] for name in LINEAR}
        count = tensors["classifier.out_proj.weight"].shape[0]
        head = {name: tensors[f"classifier.dense.{name}"][:count].clone() for name in LINEAR}
    except (KeyError, IndexError) as error:
        raise CheckpointError(f"{where}: has no head of this task ({error}).") from None
    scale, shift = (task.scale, task.shift) if isinstance(task, Regression) else (1.0, 0.0)
    written = _spread(head, hidden_size, scale=scale, shift=shift) if 2 * count <= hidden_size else {}
    if not all(name in tensors and torch.equal(tensor, tensors[name]) for name, tensor in written.items()):
        raise CheckpointError(
            f"{where}: its head was trained on by transformers. Use it there, or export the run again."
        )
    return head


def _spread(
    head: Mapping[str, Tensor], hidden_size: int, *, scale: float = 1.0, shift: float = 0.0
) -> dict[str, Tensor]:
    """Layers dense [D, D] and out_proj [C, D] that give scale * (weight x + bias) + shift."""
    weight_CD, bias_C = head["weight"], head["bias"]
    count = len(bias_C)
    dense_DD, dense_D, out_CD = (
        weight_CD.new_zeros(hidden_size, hidden_size),
        bias_C.new_zeros(hidden_size),
        torch.zeros_like(weight_CD),
    )
    dense_DD[:count], dense_DD[count : 2 * count] = weight_CD, -weight_CD
    dense_D[:count], dense_D[count : 2 * count] = bias_C, -bias_C
    out_CD[:, :count], out_CD[:, count : 2 * count] = scale * torch.eye(count), -scale * torch.eye(count)
    return {
        "classifier.dense.weight": dense_DD,
        "classifier.dense.bias": dense_D,
        "classifier.out_proj.weight": out_CD,
        "classifier.out_proj.bias": torch.full_like(bias_C, shift),
    }


def _labels(labels: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
