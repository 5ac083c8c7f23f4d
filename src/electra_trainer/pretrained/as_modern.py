"""The modern block in transformers' ModernBERT, and back: the same function under its names.

Discriminator    ModernBertForTokenClassification, labels `original` and `replaced`
TokenPredictor   ModernBertForMaskedLM

ModernBERT's word table is as wide as its layers, so a narrower one is multiplied with its projection, and a folder that
is read back is as wide as the layers. Our head has one logit, the difference of their two: `original` is written as 0.
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
_EVERY, _WINDOW = "global_attn_every_n_layers", "local_attention"
"""Layers 0, n, 2n, .. see the whole row, as 4.48 to 4.57 read it; version 5 reads `layer_types`. Others see a window.
"""
_FULL, _LOCAL = "full_attention", "sliding_attention"
_THETA = {_FULL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
"""The base of a layer's angles by its names before version 5, and where config.json has none."""
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
    near, every = model.has_windows, model.global_attn_every_n_layers if model.has_windows else 1
    theta = {_FULL: model.rotary_theta, _LOCAL: model.local_rotary_theta if near else model.rotary_theta}
    return {
        "model_type": TYPE,
        **{name: getattr(model, name) for name in _SAME},
        "intermediate_size": model.inner_size,
        **_FIXED,
        _EVERY: every,
        **({_WINDOW: model.local_attention} if near else {}),
        "layer_types": _layer_types(every, model.num_hidden_layers),
        "global_rope_theta": theta[_FULL],
        "local_rope_theta": theta[_LOCAL],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in theta.items()},
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
    for name, value in _FIXED.items():
        if table.get(name, value) != value:
            raise CheckpointError(f"{where}: {name} {short(table[name])}, expected {value!r}. Choose another model.")
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
        **_attention_fields(table, where=where),
    }


def _layer_types(every: Any, layers: int) -> list[str]:
    """Names of the layers in version 5; empty where `every` is not a number of layers."""
    sound = isinstance(every, int) and every > 0
    return [_LOCAL if number % every else _FULL for number in range(layers)] if sound else []


def _distance(table: Mapping[str, Any], *, where: Path) -> Any:
    """Layers 0, n, 2n, .. see the whole row: n."""
    every, kinds = table.get(_EVERY, 3), table.get("layer_types")
    if not isinstance(kinds, list) or not kinds:
        return every
    fitting = [n for n in (every, *range(1, len(kinds) + 1)) if kinds == _layer_types(n, len(kinds))]
    if not fitting or len(kinds) != table.get("num_hidden_layers"):
        raise CheckpointError(
            f"{where}: layer_types {short(kinds)}, expected one a layer: {_FULL!r} at equal distances from the first "
            f"on, {_LOCAL!r} between them. Choose another model."
        )
    return fitting[0]


def _attention_fields(table: Mapping[str, Any], *, where: Path) -> dict[str, Any]:
    """How far tokens see in each layer, and the bases of their angles."""
    rope = table.get("rope_parameters")
    by_kind: Mapping[str, Any] = rope if isinstance(rope, dict) else {}
    for angles in (table.get("rope_scaling"), rope, *by_kind.values()):
        kind = angles.get("rope_type", angles.get("type", "default")) if isinstance(angles, dict) else "default"
        if kind != "default":
            raise CheckpointError(f"{where}: rope_type {short(kind)}, expected 'default'. Choose another model.")
    bases = {}
    for kind, (old, default) in _THETA.items():
        angles = by_kind.get(kind)
        bases[kind] = (angles.get("rope_theta") if isinstance(angles, dict) else None) or table.get(old, default)
    every, window = _distance(table, where=where), table.get(_WINDOW, 128)
    if every == 1 or table.get("num_hidden_layers") == 1:
        return {"rotary_theta": bases[_FULL]}
    if window == 0:
        raise CheckpointError(f"{where}: {_WINDOW} 0, expected at least 1. Choose another model.")
    base = bases[_FULL] if bases[_LOCAL] is None else bases[_LOCAL]  # before version 5 null: as in the other layers
    return {"rotary_theta": bases[_FULL], _EVERY: every, _WINDOW: window, "local_rotary_theta": base}


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
    if (projection_DE := found.pop(prefix + _PROJECTION, None)) is not None:
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


def our_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a ModernBERT by our names, those of the encoder with `model.` or, of a ModernBertModel, without;
    others keep theirs.
    """
    head = f"{'discriminator' if 'classifier.weight' in tensors else 'generator'}_predictions."
    back = {theirs: mine for mine, theirs in _NAMES.items()} | {"head.": head}
    back |= {theirs.removeprefix("model."): mine for theirs, mine in back.items()}
    found = {}
    for name, tensor in tensors.items():
        theirs = next((part for part in back if name.startswith(part)), "")
        if theirs == "classifier." and tensor.shape[:1] == (len(LABELS),):
            tensor = tensor[1:] - tensor[:1]
        found[back.get(theirs, "") + name.removeprefix(theirs)] = tensor
    return found
