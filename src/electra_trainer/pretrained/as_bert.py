"""ELECTRA under BERT's names and BERT under ELECTRA's: the same function where the embeddings have the width of the
layers.

ElectraForPreTraining -> BertModel, the encoder alone; BERT's pooler is not part of it
ElectraForMaskedLM    -> BertForMaskedLM

BertForMaskedLM, BertForPreTraining -> ElectraForMaskedLM; another BERT -> its encoder
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.files.reading import short
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table

BERT_CLASSES = {"ElectraForPreTraining": "BertModel", "ElectraForMaskedLM": "BertForMaskedLM"}
_NAMES = {
    "electra.": "bert.",
    "generator_predictions.": "cls.predictions.transform.",
    "generator_lm_head.": "cls.predictions.",
}
_TOKEN_HEADS = ("BertForMaskedLM", "BertForPreTraining")
"""Classes with BERT's token head."""
_OTHER_ARITHMETIC = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Settings of a BERT that must have these values to be the encoder that ELECTRA has."""
_TAKEN = ("bert.embeddings.", "bert.encoder.", "cls.predictions.transform.", "cls.predictions.bias")
_NOT_TAKEN = {
    "pooler.": "its pooler",
    "cls.seq_relationship.": "its next-sentence head",
    "classifier.": "its classifier",
}


def fits_bert(model: Model) -> bool:
    """Whether BERT has a network of that shape: it has no projection between embeddings and layers, and no modern
    block.
    """
    return model.embedding_size == model.hidden_size and model.block == "bert"


def require_bert(model: Model) -> None:
    """Raise ConfigError, with what to do, unless BERT has a network of that shape."""
    if model.block != "bert":
        raise ConfigError(
            "--as bert: the layers of this encoder are ModernBERT's (model.block = modern). Leave --as bert out."
        )
    if not fits_bert(model):
        raise ConfigError(
            f"--as bert: the embeddings of this encoder are {model.embedding_size} wide and its layers "
            f"{model.hidden_size}, and BERT has no projection from {model.embedding_size} to {model.hidden_size}. "
            "Leave --as bert out; or pre-train with model.embedding_size = model.hidden_size, as the presets base, "
            "large and tiny do."
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


def is_bert(folder: Path) -> bool:
    """Whether the folder's config.json describes a BERT."""
    return (folder / "config.json").is_file() and read_table(folder / "config.json").get("model_type") == "bert"


def electra_table(table: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """The config.json of an ELECTRA from that of a BERT; without an architecture if the BERT has no token head.

    Raises:
        CheckpointError: it computes something else than ELECTRA's layers.
    """
    for name, expected in _OTHER_ARITHMETIC.items():
        if table.get(name, expected) != expected:
            raise CheckpointError(f"{where}: {name} {short(table[name])}, expected {expected!r}. Choose another BERT.")
    names = table.get("architectures")
    token_head = isinstance(names, list) and names[:1] and names[0] in _TOKEN_HEADS
    architectures = ["ElectraForMaskedLM"] if token_head else []
    width = table.get("hidden_size", 768)
    sizes = {"hidden_size": width, "embedding_size": width, "num_hidden_layers": 12, "num_attention_heads": 12}
    defaults = {**sizes, "intermediate_size": 3072}  # BERT's, where its config.json omits them
    return {**defaults, **table, "embedding_size": width, "model_type": "electra", "architectures": architectures}


def electra_tensors(tensors: Mapping[str, Tensor], *, where: str) -> dict[str, Tensor]:
    """The tensors of a BERT by ELECTRA's names: its encoder, and its token head if it has one.

    Raises:
        CheckpointError: the output weights of the token head are not the word embeddings.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        # names of BERT's TensorFlow release, which early exports kept
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        full = name if name.startswith(("bert.", "cls.")) else f"bert.{name}"
        if full.startswith(_TAKEN):
            ours = next(mine for mine, theirs in _NAMES.items() if full.startswith(theirs))
            found[ours + full.removeprefix(_NAMES[ours])] = tensor
    words, output = (
        found.get("electra.embeddings.word_embeddings.weight"),
        tensors.get("cls.predictions.decoder.weight"),
    )
    if words is not None and output is not None and not torch.equal(words, output):
        raise CheckpointError(
            f"{where}: the output weights (cls.predictions.decoder.weight) are not the word embeddings, and ELECTRA "
            "has one table for both. Save its encoder alone, by "
            "BertModel.from_pretrained(FOLDER).save_pretrained(DIR), and give DIR with the tokenizer's files."
        )
    return found


def not_taken(names: Collection[str]) -> list[str]:
    """The parts of a BERT that ELECTRA does not have, in words, from the names of its tensors."""
    return [
        part for prefix, part in _NOT_TAKEN.items() if any(n.removeprefix("bert.").startswith(prefix) for n in names)
    ]
