"""Read networks back from folders, ELECTRA's, ModernBERT's and BERT's, and find their roles.

A network is what its config.json says, whatever its folder is called:

    ElectraForPreTraining   discriminator
    ElectraForMaskedLM      alone the encoder; else what `electra_role` says, which our exports write; where it says
                            nothing, the generator next to a discriminator, and the encoder without one

BERT's and ModernBERT's classes count as the ELECTRA's whose export they are.
"""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from electra_trainer.errors import CheckpointError, ConfigError, MissingInputError
from electra_trainer.files.reading import read_file, short
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.networks import Discriminator, TokenPredictor, build_encoder
from electra_trainer.pretrained import as_bert, as_modern
from electra_trainer.settings import records
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table

SHAPE_KEYS = (
    "vocab_size", "embedding_size", "hidden_size",
    "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "initializer_range",
)  # fmt: skip
"""Fields of config.json that are the shape, under our own names."""
DISCRIMINATOR, PREDICTOR = "ElectraForPreTraining", "ElectraForMaskedLM"
NETWORKS: dict[str | None, Callable[[Model], nn.Module]] = {
    DISCRIMINATOR: Discriminator,
    PREDICTOR: TokenPredictor,
    **dict.fromkeys(("ElectraModel", "BertModel", "ModernBertModel"), build_encoder),
}
_OURS = {
    **{theirs: ours for ours, theirs in as_modern.CLASSES.items()},
    **dict.fromkeys(as_bert.TOKEN_HEADS, PREDICTOR),
}
"""Class of ModernBERT or BERT with a pre-training head -> the ELECTRA's whose export it is."""
_ARITHMETIC = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Settings of an ELECTRA or BERT that have one value here."""
ROLE = "electra_role"
"""Field of config.json in which an export names the role of its network."""
_OUTPUT = "generator_lm_head.weight"
"""Weight of the output in a folder that stores it next to the word table, to which it is tied."""


def architecture(table: dict[str, Any]) -> str | None:
    """The class of transformers that a config.json names, the corresponding ELECTRA's where it has a pre-training head;
    None: it names none.
    """
    names = table.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name == as_modern.CLASSES[DISCRIMINATOR] and not as_modern.has_our_labels(table):  # the classifier of a task
        return name
    return _OURS.get(str(name), name)


def network_folders(folder: Path) -> dict[str, Path]:
    """Role -> folder of the networks that `folder` holds or is, of `discriminator`, `encoder` and `generator` those
    that are there, the main one first.

    Raises:
        ConfigError: two have the same role.
    """
    places = [folder] if (folder / "config.json").is_file() else sorted(folder.glob("[!.]*/"))
    tables = {one: read_table(one / "config.json") for one in places if (one / "config.json").is_file()}
    roles = {one: role for one, table in tables.items() if (role := _role(table)) is not None}
    unnamed = "generator" if "discriminator" in roles.values() else "encoder"
    found: dict[str, Path] = {}
    for place, role in roles.items():
        role = "encoder" if roles == {place: "generator"} else role or unnamed
        if role in found:
            raise ConfigError(f"{found[role]} and {place}: both are a {role}. Give one of them.")
        found[role] = place
    return dict(sorted(found.items()))


def _role(table: dict[str, Any]) -> str | None:
    """The role that a config.json names; empty: it predicts words, as a generator or an encoder; None: it has no
    pre-training head.
    """
    kind, named = architecture(table), str(table.get(ROLE))
    if kind == DISCRIMINATOR or (kind, named) == ("BertModel", "discriminator"):
        return "discriminator"
    return (named if named in ("generator", "encoder") else "") if kind == PREDICTOR else None


def read_network(folder: Path) -> tuple[nn.Module, Model]:
    """Read a network of an export, or of any local folder of transformers (ELECTRA, ModernBERT, BERT) with safetensors
    weights.

    Returns:
        A Discriminator, a TokenPredictor or an Encoder without a head, in evaluation mode, and its shape.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: the files are not a network that this program knows, or tensors are missing, odd or misshapen.
    """
    found = architecture(read_table(folder / "config.json"))
    if found not in NETWORKS:
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(found)}, expected one of {DISCRIMINATOR} or {PREDICTOR}, or "
            "a bare encoder. Give the run or its export; a fine-tuned model is for `electra predict` and `electra "
            "playground`, and the encoder under any head for `electra embed` and `electra finetune`."
        )
    return _built(NETWORKS[found], folder)


def read_encoder(folder: Path) -> tuple[Encoder, Model]:
    """Read the encoder, and no head, of any local folder of transformers (ELECTRA, ModernBERT, BERT) with safetensors
    weights.

    Raises:
        MissingInputError, CheckpointError: as `read_network`.
    """
    encoder, model = _built(build_encoder, folder)
    assert isinstance(encoder, Encoder)
    return encoder, model


def _contents(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The shape in a folder's config.json, as fields of `Model`, and its tensors by our names."""
    config, weights = folder / "config.json", folder / "model.safetensors"
    table = read_table(config)
    kind = table.get("model_type")
    if kind not in ("electra", as_modern.TYPE, "bert"):
        raise CheckpointError(
            f"{config}: describes {short(kind)} {short(architecture(table))}, expected 'electra', 'modernbert' or "
            "'bert'. Choose another model."
        )
    if kind == as_modern.TYPE:
        return as_modern.model_fields(table, where=config), as_modern.our_tensors(read_tensors(weights))
    for name, expected in _ARITHMETIC.items():
        if table.get(name, expected) != expected:
            raise CheckpointError(
                f"{config}: {name} {short(table[name])}, expected {expected!r}. Choose another model."
            )
    fields = {name: table[name] for name in SHAPE_KEYS if name in table}
    if kind == "bert":
        fields["embedding_size"] = table.get("hidden_size")
        return fields, as_bert.electra_tensors(read_tensors(weights))
    return fields, read_tensors(weights)


class _Unfilled(TorchFunctionMode):
    """Skips `normal_` on meta tensors, for which PyTorch would import its compiler: four seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        return named.get("tensor", *args[:1]) if func is nn.init.normal_ else func(*args, **named)


def _built(kind: Callable[[Model], nn.Module], folder: Path) -> tuple[nn.Module, Model]:
    """A network of the shape in config.json with these tensors, in evaluation mode; for an encoder a head is ignored.
    It is outlined without memory: a config.json may ask for any size.
    """
    fields, tensors = _contents(folder)
    try:
        model = records.read(Model, fields, where="config.json")
        if model.num_hidden_layers > len(tensors):
            raise ConfigError(
                f"config.json: num_hidden_layers {model.num_hidden_layers:,}, and {len(tensors):,} tensors."
            )
        with torch.device("meta"), _Unfilled():
            network = kind(model)
    except (ConfigError, TypeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"{folder / 'config.json'}: no network can have that shape ({textwrap.shorten(str(error), 200)}). Put the "
            "right one next to the weights."
        ) from None
    if isinstance(network, Encoder):
        prefix = "electra." if any(name.startswith("electra.") for name in tensors) else ""
        tensors = {name: tensors[prefix + name] for name in network.state_dict() if prefix + name in tensors}
    output, table_VE = tensors.pop(_OUTPUT, None), tensors.get("electra.embeddings.word_embeddings.weight")
    if output is not None and (table_VE is None or not torch.equal(output, table_VE)):
        raise CheckpointError(
            f"{folder / 'model.safetensors'}: the output's weights are not the word embeddings (tie_word_embeddings = "
            "false), and here one table serves both. Save its encoder alone, by "
            "AutoModel.from_pretrained(FOLDER).save_pretrained(DIR), and give DIR with the tokenizer's files."
        )
    numbers = {name: tensor.float() for name, tensor in tensors.items() if tensor.is_floating_point()}
    try:
        network.load_state_dict(numbers, assign=True)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder / 'model.safetensors'}: the floating-point tensors do not match its config.json "
            f"({textwrap.shorten(str(error), 300)}). Put the right files together."
        ) from None
    return network.eval(), model


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        MissingInputError, StorageError: cannot be read. CheckpointError: not a safetensors file.
    """
    if not path.exists():
        raise MissingInputError(f"{path}: no such file. Expected an exported folder with safetensors weights.")
    content = read_file(path, limit=sys.maxsize, error=CheckpointError)
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file: {error}. Export it again; pickled weights are not read."
        ) from None
