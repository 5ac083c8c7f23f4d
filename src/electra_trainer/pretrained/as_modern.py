"""The modern block in transformers' ModernBERT, and back: the same function under its names.

Discriminator    ModernBertForTokenClassification, labels `original` and `replaced`
TokenPredictor   ModernBertForMaskedLM

ModernBERT's word table is as wide as its layers, so a narrower one is multiplied with its projection. Our head has one
logit, the difference
of their two: `original` is written as 0. A folder that is read back is therefore as wide as the layers.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer.data import tokenizer
from electra_trainer.errors import CheckpointError
from electra_trainer.files.reading import short
from electra_trainer.settings.config import MODERN_NORM_EPS, Model

TYPE = "modernbert"
"""`model_type` in config.json."""
CLASSES = {"ElectraForPreTraining": "ModernBertForTokenClassification", "ElectraForMaskedLM": "ModernBertForMaskedLM"}
LABELS = ("original", "replaced")
_FIXED = {
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "norm_eps": MODERN_NORM_EPS,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
}
"""Settings of ModernBERT that have one value here."""
_EVERY = "global_attn_every_n_layers"
"""1: attention over the whole row in every layer, as 4.48 to 4.57 read it; version 5 reads `layer_types`."""
_DEFAULT_THETA = 160_000.0
"""Base of the angles of a ModernBERT whose config.json names none."""
_SAME = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_NAMES = {
    "electra.embeddings.word_embeddings.": "model.embeddings.tok_embeddings.",
    "electra.embeddings_norm.": "model.embeddings.norm.",
    "electra.encoder.layer.": "model.layers.",
    "electra.encoder.final_norm.": "model.final_norm.",
    "generator_lm_head.": "decoder.",
    "generator_predictions.": "head.",
    "discriminator_predictions.classifier.": "classifier.",
    "discriminator_predictions.": "head.",
}
"""Beginnings of names, ours and transformers'."""
_WORDS, _PROJECTION = "embeddings.word_embeddings.weight", "embeddings_project.weight"


def modern_table(model: Model, *, pad_id: int) -> dict[str, Any]:
    """The config.json of a ModernBERT of that shape without its architecture, for transformers from 4.48 on."""
    theta = model.rotary_theta
    turned = {kind: {"rope_type": "default", "rope_theta": theta} for kind in ("full_attention", "sliding_attention")}
    return {
        "model_type": TYPE,
        **{name: getattr(model, name) for name in _SAME},
        "intermediate_size": model.inner_size,
        **_FIXED,
        _EVERY: 1,
        "layer_types": ["full_attention"] * model.num_hidden_layers,
        "global_rope_theta": theta,
        "local_rope_theta": theta,
        "rope_parameters": turned,
        "embedding_dropout": model.hidden_dropout_prob,
        "mlp_dropout": model.hidden_dropout_prob,
        "classifier_dropout": model.hidden_dropout_prob,
        "attention_dropout": model.attention_probs_dropout_prob,
        "initializer_range": model.initializer_range,
        "pad_token_id": pad_id,
        **{f"{name}_token_id": None for name in ("bos", "eos", "cls", "sep")},
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def numbered(labels: Sequence[str]) -> dict[str, Any]:
    """Settings of a classifier's labels in transformers."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def class_fields(architecture: str) -> dict[str, Any]:
    """The fields of config.json that name the class, and a discriminator's labels, of a network that is this class of
    ELECTRA's.
    """
    labels = numbered(LABELS) if architecture == "ElectraForPreTraining" else {}
    return {"architectures": [CLASSES[architecture]], **labels}


def has_our_labels(table: Mapping[str, Any]) -> bool:
    """Whether config.json has the labels of a discriminator."""
    return bool(table.get("id2label") == numbered(LABELS)["id2label"])


def model_fields(table: Mapping[str, Any], *, where: Path) -> dict[str, Any]:
    """The shape that a ModernBERT's config.json describes, as fields of `Model`.

    Raises:
        CheckpointError: it has something that the modern block does not have.
    """
    kinds, rope = table.get("layer_types"), table.get("rope_parameters")
    turned = rope.get("full_attention") if isinstance(rope, dict) else None
    turned = turned if isinstance(turned, dict) else {}
    for name, value in {**_FIXED, "rope_type": "default"}.items():
        found = turned.get(name, value) if name == "rope_type" else table.get(name, value)
        if found != value:
            raise CheckpointError(f"{where}: {name} {short(found)}, expected {value!r}. Choose another model.")
    full = set(map(str, kinds)) <= {"full_attention"} if isinstance(kinds, list) else table.get(_EVERY) == 1
    if not full:
        raise CheckpointError(
            f"{where}: some layers see a window alone, as in ModernBERT's own models; here every layer sees the whole "
            "row. Give an export of this program's modern block, or a ModernBERT that was trained with "
            f"{_EVERY} = 1; `--init` begins with an ELECTRA or a BERT too."
        )
    inner = table.get("intermediate_size")
    if isinstance(inner, int) and inner % 32:
        raise CheckpointError(f"{where}: intermediate_size {inner}, expected a multiple of 32. Choose another model.")
    dropped = {"hidden_dropout_prob": "mlp_dropout", "attention_probs_dropout_prob": "attention_dropout"}
    return {
        "block": "modern",
        **{name: table[name] for name in _SAME if name in table},
        **({"embedding_size": table["hidden_size"]} if "hidden_size" in table else {}),
        **({"intermediate_size": inner * 3 // 2 if isinstance(inner, int) else inner} if inner is not None else {}),
        **{mine: table.get(theirs, 0.0) for mine, theirs in dropped.items()},
        "rotary_theta": turned.get("rope_theta") or table.get("global_rope_theta", _DEFAULT_THETA),
    }


def tokenizer_files(words: Tokenizer, model: Model, *, max_length: int) -> dict[str, bytes]:
    """Files of an exported tokenizer. `AutoTokenizer` gives no `token_type_ids` for the modern block, which ModernBERT
    does not take.
    """
    files, name = tokenizer.tokenizer_files(words, max_length=max_length), "tokenizer_config.json"
    if model.block == "bert":
        return files
    table = json.loads(files[name]) | {"model_input_names": ["input_ids", "attention_mask"]}
    return {**files, name: (json.dumps(table, indent=2) + "\n").encode()}


def folded(tensors: Mapping[str, Tensor], *, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of an encoder (or, with its prefix, of a network) with the projection multiplied into the word
    table.
    """
    found = dict(tensors)
    projection_DE = found.pop(prefix + _PROJECTION, None)
    if projection_DE is not None:
        found[prefix + _WORDS] = found[prefix + _WORDS] @ projection_DE.t()
    return found


def modern_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a network by transformers' names, the word table folded; the tied output weight is stored once, as
    there.
    """
    found = {}
    for name, tensor in folded(tensors, prefix="electra.").items():
        mine = next(part for part in _NAMES if name.startswith(part))
        if _NAMES[mine] == "classifier.":
            tensor = torch.cat([torch.zeros_like(tensor), tensor])
        found[_NAMES[mine] + name.removeprefix(mine)] = tensor
    return found


def our_tensors(tensors: Mapping[str, Tensor], *, discriminator: bool = False) -> dict[str, Tensor]:
    """The tensors of a ModernBERT by our names; others keep theirs.

    Args:
        tensors: by transformers' names, those of the encoder with `model.` or, of a ModernBertModel, without.
        discriminator: the head is a discriminator's.
    """
    head = f"{'discriminator' if discriminator else 'generator'}_predictions."
    back = {theirs: mine for mine, theirs in _NAMES.items()} | {"head.": head}
    bare = {theirs.removeprefix("model."): mine for theirs, mine in back.items()}
    found = {}
    for name, tensor in tensors.items():
        theirs = next((part for part in (*back, *bare) if name.startswith(part)), "")
        if theirs == "classifier." and len(tensor) == len(LABELS):
            tensor = tensor[1:] - tensor[:1]
        if name != "decoder.weight":
            found[(back | bare).get(theirs, "") + name.removeprefix(theirs)] = tensor
    return found
