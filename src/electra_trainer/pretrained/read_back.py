"""Read networks back from folders: an ELECTRA's, the modern block's as ModernBERT, and a BERT's to begin with."""

import sys
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
from electra_trainer.pretrained.roles import architecture
from electra_trainer.settings import records
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table

SHAPE_KEYS = (
    "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps",
    "initializer_range",
)  # fmt: skip
"""Fields of config.json that are the shape, under our own names."""
NETWORKS: dict[str, type[Discriminator] | type[TokenPredictor]] = {
    "ElectraForPreTraining": Discriminator,
    "ElectraForMaskedLM": TokenPredictor,
}


def read_network(folder: Path) -> tuple[nn.Module, Model]:
    """Read an exported folder, or any local transformers ELECTRA folder with safetensors weights.

    Returns:
        A Discriminator or a TokenPredictor in evaluation mode, and its shape.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: the files are not an ELECTRA that this program knows, or tensors are missing, odd or misshapen.
    """
    table = _electra_table(folder)
    found = architecture(folder)
    if found not in NETWORKS:
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table['model_type'])} {short(found or _architecture(table))}, "
            f"expected one of {' or '.join(NETWORKS)}. Give the run or its export; a fine-tuned model is for `electra "
            "predict` and `electra playground`."
        )
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    if table["model_type"] == as_modern.TYPE:
        tensors = as_modern.our_tensors(tensors, discriminator=NETWORKS[found] is Discriminator)
    network, model = _outline(NETWORKS[found], table, folder, most_layers=len(tensors))
    return _filled(network, tensors, where=path).eval(), model


def holds_network(folder: Path) -> bool:
    """Whether `read_network` knows the folder's architecture: a pre-training head, and not a classifier's or none."""
    _electra_table(folder)
    return architecture(folder) in NETWORKS


def read_encoder(folder: Path) -> tuple[Encoder, Model]:
    """Read the encoder, and no head, of any local transformers ELECTRA folder with safetensors weights.

    Raises:
        MissingInputError, CheckpointError: as `read_network`.
    """
    table = _electra_table(folder)
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    if table["model_type"] == as_modern.TYPE:
        tensors = as_modern.our_tensors(tensors)
    outline, model = _outline(build_encoder, table, folder, most_layers=len(tensors))
    prefix = "electra." if any(name.startswith("electra.") for name in tensors) else ""
    mine = {name: tensors[prefix + name] for name in outline.state_dict() if prefix + name in tensors}
    encoder = _filled(outline, mine, where=path)
    assert isinstance(encoder, Encoder)
    return encoder.eval(), model


def read_bert(folder: Path) -> tuple[Encoder | TokenPredictor, Model]:
    """Read a BERT that `transformers` saved: with its token head if it has one, else its encoder.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: it computes something else than an ELECTRA, or tensors are missing or misshapen.
    """
    path, config = folder / "model.safetensors", folder / "config.json"
    table = as_bert.electra_table(read_table(config), where=str(config))
    tensors = as_bert.electra_tensors(read_tensors(path), where=str(path))
    kind: type[Encoder | TokenPredictor] = TokenPredictor if table["architectures"] else Encoder
    outline, model = _outline(kind, table, folder, most_layers=len(tensors))
    names = outline.state_dict().keys()
    mine = (
        tensors if kind is TokenPredictor else {n: tensors[f"electra.{n}"] for n in names if f"electra.{n}" in tensors}
    )
    network = _filled(outline, mine, where=path).eval()
    assert isinstance(network, Encoder | TokenPredictor)
    return network, model


def _electra_table(folder: Path) -> dict[str, Any]:
    table = read_table(folder / "config.json")
    if table.get("model_type") not in ("electra", as_modern.TYPE):
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table.get('model_type'))} {short(_architecture(table))}, "
            "expected an 'electra' or a 'modernbert'. Choose another folder; of an export --as bert give the run, or "
            "export it without --as. `electra pretrain --init` begins with a BERT."
        )
    if table.get("hidden_act", "gelu") != "gelu":
        raise CheckpointError(
            f"{folder / 'config.json'}: hidden_act {short(table['hidden_act'])}, expected 'gelu' (exact). Choose "
            "another model."
        )
    return table


def _architecture(table: dict[str, Any]) -> str | None:
    """The first of `architectures`, where there is one."""
    names = table.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


class _Unfilled(TorchFunctionMode):
    """Skips `normal_` on meta tensors; otherwise PyTorch imports its compiler for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        return named.get("tensor", *args[:1]) if func is nn.init.normal_ else func(*args, **named)


def _outline(
    kind: Callable[[Model], nn.Module], table: dict[str, Any], folder: Path, *, most_layers: int
) -> tuple[nn.Module, Model]:
    """A network without memory behind its tensors: a config.json may ask for any size, the file of weights says what
    there is.
    """
    where = str(folder / "config.json")
    try:
        fields = {name: table[name] for name in SHAPE_KEYS if name in table}
        if table["model_type"] == as_modern.TYPE:
            fields = as_modern.model_fields(table, where=Path(where))
        model = records.read(Model, fields, where=where)
        if model.num_hidden_layers > most_layers:
            raise CheckpointError(
                f"{where}: num_hidden_layers {model.num_hidden_layers:,}, and the file of weights has {most_layers:,} "
                "tensors. Put the right files together."
            )
        with torch.device("meta"), _Unfilled():
            return kind(model), model
    except ConfigError as error:
        raise CheckpointError(f"{error} Put the right config.json next to the weights.") from None
    except (TypeError, RuntimeError, OverflowError) as error:
        why = str(error).splitlines()[0]
        raise CheckpointError(f"{where}: no network can have that shape ({why}). Put the right one back.") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        MissingInputError, StorageError: cannot be read. CheckpointError: is none.
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


def _filled(network: nn.Module, tensors: dict[str, Tensor], *, where: Path) -> nn.Module:
    """The outline with these tensors in it."""
    ignored = {"generator_lm_head.weight", "electra.embeddings.position_ids"}  # tied; a buffer of old versions
    mine = network.state_dict()
    odd = sorted((mine.keys() ^ tensors.keys()) - ignored)
    if odd:
        raise CheckpointError(f"{where}: tensors do not match its config.json, such as {short(', '.join(odd[:3]))}.")
    for name, tensor in mine.items():
        if tensor.shape != tensors[name].shape:
            raise CheckpointError(
                f"{where}: {name} has shape {tuple(tensors[name].shape)}, its config.json says {tuple(tensor.shape)}."
            )
        if not tensors[name].is_floating_point():
            raise CheckpointError(f"{where}: {name} holds {tensors[name].dtype}, expected floating-point numbers.")
    network.load_state_dict({name: tensors[name].float() for name in mine}, strict=True, assign=True)
    return network
