"""ELECTRA under BERT's names, for programs that know no ELECTRA: the same function where the embeddings have the width of the layers.

ElectraForPreTraining -> BertModel, the encoder alone; BERT's pooler is not part of it
ElectraForMaskedLM    -> BertForMaskedLM
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from electra_trainer.errors import ConfigError
from electra_trainer.settings.config import Model

BERT_CLASSES = {"ElectraForPreTraining": "BertModel", "ElectraForMaskedLM": "BertForMaskedLM"}
_NAMES = {
    "electra.": "bert.",
    "generator_predictions.": "cls.predictions.transform.",
    "generator_lm_head.": "cls.predictions.",
}


def fits_bert(model: Model) -> bool:
    """Whether BERT has a network of that shape: it has no projection between embeddings and layers, and no modern block."""
    return model.embedding_size == model.hidden_size and model.block == "bert"


def require_bert(model: Model) -> None:
    """Raise ConfigError, with what to do, unless BERT has a network of that shape."""
    if model.block != "bert":
        raise ConfigError(
            "--as bert: the layers of this encoder are ModernBERT's (model.block = modern). Leave --as bert out."
        )
    if not fits_bert(model):
        raise ConfigError(
            f"--as bert: the embeddings of this encoder are {model.embedding_size} wide and its layers {model.hidden_size}, and BERT has no "
            f"projection from {model.embedding_size} to {model.hidden_size}. Leave --as bert out; or pre-train with model.embedding_size = "
            "model.hidden_size, as the presets base, large and tiny do."
        )


def bert_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a BERT from that of an ELECTRA."""
    kept = {name: value for name, value in table.items() if name != "embedding_size"}
    return kept | {"model_type": "bert", "architectures": [BERT_CLASSES[table["architectures"][0]]]}


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
