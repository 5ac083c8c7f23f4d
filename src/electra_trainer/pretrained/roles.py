"""Roles of exported networks by `architectures` in config.json and by their tensors, never by the names of their
folders.

ElectraForPreTraining   discriminator
ElectraForMaskedLM      encoder where it is the main network, generator beside one

BERT's and ModernBERT's classes count as the ELECTRA's whose export they are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from electra_trainer.errors import CheckpointError, ConfigError, ElectraError
from electra_trainer.files.reading import short
from electra_trainer.pretrained import as_modern
from electra_trainer.pretrained.as_bert import BERT_CLASSES
from electra_trainer.settings.records import read_table

NETWORKS = ("discriminator", "generator", "encoder")
"""Names of the networks of a run, and of the folders of its export."""
DISCRIMINATOR, PREDICTOR = "ElectraForPreTraining", "ElectraForMaskedLM"
HEADS = {DISCRIMINATOR: "discriminator_predictions.", PREDICTOR: "generator_predictions."}
"""Architecture with a pre-training head -> how the names of its head's tensors begin."""
_MODERN_HEADS = {DISCRIMINATOR: "classifier.", PREDICTOR: "decoder."}
"""Architecture -> how the names of its head's tensors begin in a ModernBERT."""
_SHARED = ("encoder.layer.0.attention.self.query.weight", "layers.0.attn.Wqkv.weight")
"""Endings of the name of a tensor that two networks have in common only if they have the same encoder."""


def architecture(folder: Path) -> str | None:
    """The class of transformers that a network's folder holds, an ELECTRA's for a BERT; None: a bare encoder, or
    unknown.

    Tensors of a pre-training head decide where config.json names no class, or the bare encoder's.

    Raises:
        CheckpointError: config.json names one pre-training head, and the tensors are those of another.
    """
    path = folder / "config.json"
    table = read_table(path)
    modern, listed = table.get("model_type") == as_modern.TYPE, table.get("architectures") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        return None
    ours, heads = _ours(table), _MODERN_HEADS if modern else HEADS
    names = [ours.get(one, one) for one in listed]
    held = [name for name in heads if any(one.startswith(heads[name]) for one in _tensor_names(folder))]
    if modern and DISCRIMINATOR not in ours.values():
        held = [name for name in held if name == PREDICTOR]  # the classifier of a task
    named = [name for name in names if name not in ("ElectraModel", "ModernBertModel")]
    if len(held) == 1 and not named:
        return held[0]
    if named and named[0] in HEADS and held and named[0] not in held:
        raise CheckpointError(
            f"{path}: architectures names {short(named[0])}, and model.safetensors next to it has the head of "
            f"{held[0]} ({heads[held[0]]}...). Write {held[0]} there, or put the right files together."
        )
    return named[0] if named else None


def _ours(table: Mapping[str, Any]) -> dict[str, str]:
    """Class of transformers -> the ELECTRA's whose export it is. A token classifier of ModernBERT is a discriminator by
    its labels.
    """
    found = {theirs: mine for classes in (BERT_CLASSES, as_modern.CLASSES) for mine, theirs in classes.items()}
    if not as_modern.has_our_labels(table):
        del found[as_modern.CLASSES[DISCRIMINATOR]]
    return found


def network_folders(folder: Path) -> list[Path]:
    """Folders of networks with a pre-training head in `folder`, whatever their names, the discriminator first; empty if
    it has none.
    """
    if (folder / "config.json").is_file() or not folder.is_dir():
        return []
    inner = sorted(one for one in folder.iterdir() if (one / "config.json").is_file() and not one.name.startswith("."))
    kinds = {one: architecture(one) for one in inner if _is_model(one)}
    return [one for kind in HEADS for one in kinds if kinds[one] == kind]


def roles(folders: Sequence[Path]) -> dict[str, Path]:
    """Role -> folder. A word predictor with the discriminator's own layers may be generator and encoder, and then is
    both.

    Raises:
        ConfigError: two folders have the same role. CheckpointError: as `architecture`.
    """
    kinds = {folder: architecture(folder) for folder in folders}
    discriminators, predictors = ([one for one in kinds if kinds[one] == kind] for kind in HEADS)
    if len(discriminators) > 1:
        raise ConfigError(f"{discriminators[0]} and {discriminators[1]} are both discriminators. Give one of them.")
    main = {"discriminator": discriminators[0]} if discriminators else {}
    if len(predictors) < 2:
        shares = bool(main) and bool(predictors) and _layer(predictors[0]).equal(_layer(discriminators[0]))
        names = [*(["generator"] if main else []), *(["encoder"] if shares or not main else [])]
        return main | {name: one for name in names for one in predictors}
    encoder = _main_predictor(discriminators, predictors)
    generator = next(one for one in predictors if one != encoder)
    return main | {"generator": generator, "encoder": encoder}


def _main_predictor(discriminators: Sequence[Path], predictors: Sequence[Path]) -> Path:
    """The predictor with the discriminator's layers; without a discriminator, the wider one. Equals of an export go by
    its names.
    """
    if len(predictors) == 2 and discriminators:
        same = [one for one in predictors if _layer(one).equal(_layer(discriminators[0]))]
    else:
        widest = max(len(_layer(one)) for one in predictors)
        same = [one for one in predictors if len(_layer(one)) == widest]
    if len(predictors) == 2 and len(same) == 1:
        return same[0]
    if sorted(one.name for one in predictors) == ["encoder", "generator"]:
        return next(one for one in predictors if one.name == "encoder")
    raise ConfigError(
        f"{' and '.join(str(one) for one in predictors[:2])} both predict words ({PREDICTOR}), and nothing tells the "
        "generator. Give one of them."
    )


def _is_model(folder: Path) -> bool:
    """Whether config.json is that of a model of transformers, or cannot be read: then reading it names the fault."""
    try:
        return "model_type" in read_table(folder / "config.json")
    except ElectraError:
        return True


def _tensor_names(folder: Path) -> list[str]:
    """Names of the tensors; empty if the file is missing or damaged, which reading the network reports."""
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError):
        return []


def _layer(folder: Path) -> Tensor:
    """One tensor of the first layer; missing: an empty one."""
    name = next((one for one in _tensor_names(folder) if one.endswith(_SHARED)), None)
    if name is None:
        return Tensor()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        found: Tensor = file.get_tensor(name)
    return found
