"""ELECTRA under BERT's names and BERT under ELECTRA's: the same function where the embeddings have the width of the
layers.

ElectraForPreTraining -> BertModel, the encoder alone; BERT's pooler is not part of it
ElectraForMaskedLM    -> BertForMaskedLM

BertForMaskedLM, BertForPreTraining -> ElectraForMaskedLM; another BERT -> its encoder
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from electra_trainer.settings.config import Model

_CLASSES = {"ElectraForPreTraining": "BertModel", "ElectraForMaskedLM": "BertForMaskedLM"}
_NAMES = {
    "electra.": "bert.",
    "generator_predictions.": "cls.predictions.transform.",
    "generator_lm_head.": "cls.predictions.",
}
TOKEN_HEADS = ("BertForMaskedLM", "BertForPreTraining")
"""Classes with BERT's token head."""
_TAKEN = ("bert.embeddings.", "bert.encoder.", "cls.predictions.")


def fits_bert(model: Model) -> bool:
    """Whether BERT has a network of that shape: it has no projection between embeddings and layers, and no modern
    block.
    """
    return model.embedding_size == model.hidden_size and model.block == "bert"


def bert_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a BERT from that of an ELECTRA."""
    kept = {name: value for name, value in table.items() if name != "embedding_size"}
    return kept | {"model_type": "bert", "architectures": [_CLASSES[table["architectures"][0]]]}


def bert_tensors(tensors: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """The tensors of an ELECTRA by BERT's names.

    Args:
        tensors: by transformers' names for ELECTRA.
        architecture: of the ELECTRA. From ElectraForPreTraining the head is left out.
    """
    if architecture == "ElectraForPreTraining":
        return {name.removeprefix("electra."): each for name, each in tensors.items() if name.startswith("electra.")}
    parts = {name: next(part for part in _NAMES if name.startswith(part)) for name in tensors}
    return {_NAMES[part] + name.removeprefix(part): tensors[name] for name, part in parts.items()}


def electra_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a BERT by ELECTRA's names: its encoder, and its token head if it has one."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        # names of BERT's TensorFlow release, which early exports kept
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        full = name if name.startswith(("bert.", "cls.")) else f"bert.{name}"
        full = full.replace("cls.predictions.decoder.", "cls.predictions.")
        if full.startswith(_TAKEN):
            ours, theirs = next(pair for pair in _NAMES.items() if full.startswith(pair[1]))
            found[ours + full.removeprefix(theirs)] = tensor
    return found
