"""Read networks back from folders, ELECTRA's, ModernBERT's and BERT's, and find their roles.

A network is what its config.json (`architectures`) and its tensors say, whatever its folder is called:

    ElectraForPreTraining   discriminator
    ElectraForMaskedLM      encoder where it is the main network, generator next to one

BERT's and ModernBERT's classes count as the ELECTRA's whose export they are.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from electra_trainer.errors import CheckpointError, ConfigError, ElectraError, MissingInputError
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
NETWORKS: dict[str, type[Discriminator] | type[TokenPredictor]] = {
    DISCRIMINATOR: Discriminator,
    PREDICTOR: TokenPredictor,
}
_CLASSES = {
    "electra": {DISCRIMINATOR: DISCRIMINATOR, PREDICTOR: PREDICTOR},
    "bert": {theirs: ours for ours, theirs in as_bert.BERT_CLASSES.items()},
    as_modern.TYPE: {theirs: ours for ours, theirs in as_modern.CLASSES.items()},
}
"""`model_type` -> its classes with a pre-training head -> the ELECTRA's whose export they are."""
_HEADS = {
    "electra": {DISCRIMINATOR: "discriminator_predictions.", PREDICTOR: "generator_predictions."},
    as_modern.TYPE: {DISCRIMINATOR: "classifier.", PREDICTOR: "decoder."},
}
"""`model_type` -> an ELECTRA's class -> prefix of the names of its head's tensors."""
ROLE = "electra_role"
"""Field of config.json in which an export names the role of its network."""
_OUTPUT = "generator_lm_head.weight"
"""Weight of the output in a folder that stores it next to the word table, to which it is tied."""
_SHARED = ("encoder.layer.0.attention.self.query.weight", "layers.0.attn.Wqkv.weight")
"""Endings of the name of a tensor that two networks have in common only if they have the same encoder."""


def architecture(folder: Path) -> str | None:
    """The class of transformers in a network's folder, the corresponding ELECTRA's for a BERT or ModernBERT; None: a
    bare encoder, or unknown.

    Tensors of a pre-training head decide where config.json names no class, or the bare encoder's.

    Raises:
        CheckpointError: config.json names one pre-training head, and the tensors are those of another.
    """
    path = folder / "config.json"
    table = read_table(path)
    kind, listed = str(table.get("model_type")), table.get("architectures") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        return None
    classes, heads = dict(_CLASSES.get(kind, {})), dict(_HEADS.get(kind, {}))
    if kind == as_modern.TYPE and not as_modern.has_our_labels(table):  # the classifier of a task
        del classes[as_modern.CLASSES[DISCRIMINATOR]], heads[DISCRIMINATOR]
    names = _tensor_names(folder)
    held = [ours for ours, prefix in heads.items() if any(name.startswith(prefix) for name in names)]
    named = next((classes.get(one, one) for one in listed if one not in ("ElectraModel", "ModernBertModel")), None)
    if named is None:
        return held[0] if len(held) == 1 else None
    if named in NETWORKS and held and named not in held:
        raise CheckpointError(
            f"{path}: architectures names {short(named)}, and model.safetensors next to it has the head of {held[0]} "
            f"({heads[held[0]]}...). Write {held[0]} there, or put the right files together."
        )
    return named


def network_folders(folder: Path) -> list[Path]:
    """Folders of networks with a pre-training head in `folder`, whatever their names, the discriminator first; empty if
    it has none.
    """
    if (folder / "config.json").is_file() or not folder.is_dir():
        return []
    inner = sorted(one for one in folder.iterdir() if (one / "config.json").is_file() and not one.name.startswith("."))
    kinds = {one: architecture(one) for one in inner if _is_model(one)}
    return [one for kind in NETWORKS for one in kinds if kinds[one] == kind]


def _is_model(folder: Path) -> bool:
    """Whether config.json is that of a model of transformers, or cannot be read: then reading it names the fault."""
    try:
        return "model_type" in read_table(folder / "config.json")
    except ElectraError:
        return True


def roles(folders: Sequence[Path]) -> dict[str, Path]:
    """Role -> folder: `discriminator`, `generator`, `encoder`. Exports of this program name it in config.json, but a
    word predictor alone is an encoder; in other folders it is guessed.

    Raises:
        ConfigError: two folders have the same role. CheckpointError: as `architecture`.
    """
    kinds = {folder: architecture(folder) for folder in folders}
    discriminators, predictors = ([one for one in kinds if kinds[one] == kind] for kind in NETWORKS)
    if len(discriminators) > 1:
        raise ConfigError(f"{discriminators[0]} and {discriminators[1]} are both discriminators. Give one of them.")
    if len(predictors) == 1 and not discriminators:
        return {"encoder": predictors[0]}
    found = {"discriminator": discriminators[0]} if discriminators else {}
    named = {str(read_table(one / "config.json").get(ROLE)): one for one in predictors}
    sound = named.keys() <= {"generator", "encoder"} and len(named) == len(predictors)
    return found | (named if sound else _guessed(predictors, discriminators))


def _guessed(predictors: Sequence[Path], discriminators: Sequence[Path]) -> dict[str, Path]:
    """Roles of word predictors in folders of other programs. The encoder has the discriminator's layers, or is the
    wider one; equals go by their names. One next to a discriminator is its generator, with the same layers both.
    """
    layers = {one: _layer(one) for one in (*predictors, *discriminators)}
    widest = max(len(layers[one]) for one in predictors)
    main = [
        one
        for one in predictors
        if (layers[one].equal(layers[discriminators[0]]) if discriminators else len(layers[one]) == widest)
    ]
    if len(predictors) == 1:
        return dict.fromkeys(["generator", *["encoder"] * len(main)], predictors[0])
    if len(main) != 1 and sorted(one.name for one in predictors) == ["encoder", "generator"]:
        return {one.name: one for one in predictors}
    if len(predictors) > 2 or len(main) != 1:
        raise ConfigError(
            f"{' and '.join(str(one) for one in predictors[:2])} both predict words ({PREDICTOR}), and neither is "
            "known as the generator. Give one of them."
        )
    return {"generator": next(one for one in predictors if one != main[0]), "encoder": main[0]}


def _tensor_names(folder: Path) -> list[str]:
    """Names of the tensors; empty if the file is missing or damaged, which reading the network reports."""
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError):
        return []


def _layer(folder: Path) -> Tensor:
    """One tensor of the first layer; an empty one if it is missing."""
    name = next((one for one in _tensor_names(folder) if one.endswith(_SHARED)), None)
    if name is None:
        return Tensor()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        found: Tensor = file.get_tensor(name)
    return found


def read_network(folder: Path) -> tuple[nn.Module, Model]:
    """Read an exported folder, or any local transformers ELECTRA folder with safetensors weights.

    Returns:
        A Discriminator or a TokenPredictor in evaluation mode, and its shape.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: the files are not an ELECTRA that this program knows, or tensors are missing, odd or misshapen.
    """
    table, found = _electra_table(folder), architecture(folder)
    if found not in NETWORKS:
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table['model_type'])} {short(found or _class(table))}, "
            f"expected one of {' or '.join(NETWORKS)}. Give the run or its export; a fine-tuned model is for `electra "
            "predict` and `electra playground`, a bare encoder for `electra embed`, `electra finetune` and, in Python, "
            "electra_trainer.pretrained.source.load_source."
        )
    tensors = _our_tensors(folder, table, discriminator=found == DISCRIMINATOR)
    return _built(NETWORKS[found], table, tensors, folder)


def read_encoder(folder: Path) -> tuple[Encoder, Model]:
    """Read the encoder, and no head, of any local transformers ELECTRA folder with safetensors weights.

    Raises:
        MissingInputError, CheckpointError: as `read_network`.
    """
    table = _electra_table(folder)
    encoder, model = _built(build_encoder, table, _our_tensors(folder, table), folder)
    assert isinstance(encoder, Encoder)
    return encoder, model


def read_bert(folder: Path) -> tuple[Encoder | TokenPredictor, Model]:
    """Read a BERT that `transformers` saved: with its token head if it has one, else its encoder.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: it computes something else than an ELECTRA, or tensors are missing or misshapen.
    """
    path, config = folder / "model.safetensors", folder / "config.json"
    table = as_bert.electra_table(read_table(config), where=str(config))
    tensors = as_bert.electra_tensors(read_tensors(path), where=str(path))
    network, model = _built(TokenPredictor if table["architectures"] else Encoder, table, tensors, folder)
    assert isinstance(network, Encoder | TokenPredictor)
    return network, model


def _electra_table(folder: Path) -> dict[str, Any]:
    table = read_table(folder / "config.json")
    if table.get("model_type") not in ("electra", as_modern.TYPE):
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table.get('model_type'))} {short(_class(table))}, expected an "
            "'electra' or a 'modernbert'. Choose another folder; of an export --as bert give the run. `electra "
            "pretrain --init` begins with a BERT."
        )
    if table.get("hidden_act", "gelu") != "gelu":
        raise CheckpointError(
            f"{folder / 'config.json'}: hidden_act {short(table['hidden_act'])}, expected 'gelu' (exact). Choose "
            "another model."
        )
    return table


def _class(table: dict[str, Any]) -> str | None:
    """The first of `architectures`, if there is one."""
    names = table.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _our_tensors(folder: Path, table: dict[str, Any], *, discriminator: bool = False) -> dict[str, Tensor]:
    tensors = read_tensors(folder / "model.safetensors")
    modern = table["model_type"] == as_modern.TYPE
    return as_modern.our_tensors(tensors, discriminator=discriminator) if modern else tensors


class _Unfilled(TorchFunctionMode):
    """Skips `normal_` on meta tensors, for which PyTorch would import its compiler: four seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        return named.get("tensor", *args[:1]) if func is nn.init.normal_ else func(*args, **named)


def _outline(
    kind: Callable[[Model], nn.Module], table: dict[str, Any], tensors: int, config: str
) -> tuple[nn.Module, Model]:
    """A network of the shape in `config`, without memory: a config.json may ask for any size, while the file of weights
    has that number of `tensors`.
    """
    try:
        fields = {name: table[name] for name in SHAPE_KEYS if name in table}
        if table["model_type"] == as_modern.TYPE:
            fields = as_modern.model_fields(table, where=Path(config))
        model = records.read(Model, fields, where=config)
        if model.num_hidden_layers > tensors:
            raise ConfigError(
                f"{config}: num_hidden_layers {model.num_hidden_layers:,}, and the file of weights has "
                f"{tensors:,} tensors."
            )
        with torch.device("meta"), _Unfilled():
            network = kind(model)
    except ConfigError as error:
        raise CheckpointError(f"{error} Put the right config.json next to the weights.") from None
    except (TypeError, RuntimeError, OverflowError) as error:
        why = str(error).splitlines()[0]
        raise CheckpointError(f"{config}: no network can have that shape ({why}). Put the right one back.") from None
    return network, model


def _built(
    kind: Callable[[Model], nn.Module], table: dict[str, Any], tensors: dict[str, Tensor], folder: Path
) -> tuple[nn.Module, Model]:
    """A network of the shape in config.json with these tensors, in evaluation mode; for an encoder a head is
    ignored.
    """
    where = folder / "model.safetensors"
    network, model = _outline(kind, table, len(tensors), str(folder / "config.json"))
    mine = network.state_dict()
    if isinstance(network, Encoder):
        prefix = "electra." if any(name.startswith("electra.") for name in tensors) else ""
        tensors = {name: tensors[prefix + name] for name in mine if prefix + name in tensors}
    ignored = {_OUTPUT, "electra.embeddings.position_ids"}  # tied; a buffer of old versions
    if odd := sorted((mine.keys() ^ tensors.keys()) - ignored):
        raise CheckpointError(f"{where}: tensors do not match its config.json, such as {short(', '.join(odd[:3]))}.")
    for name, tensor in mine.items():
        found = tensors[name]
        if tensor.shape != found.shape or not found.is_floating_point():
            raise CheckpointError(
                f"{where}: {name} has shape {tuple(found.shape)} and type {found.dtype}, expected floating-point "
                f"numbers of shape {tuple(tensor.shape)}."
            )
    table_VE, output = (tensors.get(name) for name in ("electra.embeddings.word_embeddings.weight", _OUTPUT))
    if output is not None and (table_VE is None or not torch.equal(output, table_VE)):
        raise CheckpointError(
            f"{where}: the output's weights are not the word embeddings (tie_word_embeddings = false), and here one "
            "table serves both. Save its encoder alone, by AutoModel.from_pretrained(FOLDER).save_pretrained(DIR), and "
            "give DIR with the tokenizer's files."
        )
    network.load_state_dict({name: tensors[name].float() for name in mine}, strict=True, assign=True)
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
