"""Export networks to folders that `transformers` loads as they are, and read them back.

    DIR/discriminator   ElectraForPreTraining: the encoder to fine-tune
    DIR/generator       ElectraForMaskedLM
    DIR/encoder         ElectraForMaskedLM: what an MLM run exports instead of the two, and rtd-mlm beside them

The modern block is written as ModernBERT (as_modern.py).

Each holds config.json, model.safetensors, the tokenizer's files and a model card; encoders also the files of serving.py. Parameter names
are those of transformers, so writing is a copy (the paper's printed head becomes the released one, with the same output). The
vocabulary's output weight is tied to the word embeddings and stored once, as there.

An exported folder appears whole, read back and on the disk, or not at all.
"""

import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from electra_trainer.data.tokenizer import TOKENIZER_FILES
from electra_trainer.errors import CheckpointError, ConfigError, MissingInputError, storage_error
from electra_trainer.files.durable import make_folder, sync_folder, write_durably
from electra_trainer.files.reading import MOST_TEXT, read_file, short
from electra_trainer.kernels.native.layers import other_arithmetic
from electra_trainer.model.encoder import Encoder, Layers
from electra_trainer.model.networks import Discriminator, PrintedReplacedHead, TokenPredictor, build_encoder
from electra_trainer.objectives import Exported
from electra_trainer.pretrained import as_bert, as_modern
from electra_trainer.pretrained.serving import embedding_files
from electra_trainer.settings import records
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table

_SHAPE_KEYS = (
    "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps",
    "initializer_range",
)  # fmt: skip
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
NETWORKS: dict[str, type[Discriminator] | type[TokenPredictor]] = {
    "ElectraForPreTraining": Discriminator,
    "ElectraForMaskedLM": TokenPredictor,
    "ModernBertForTokenClassification": Discriminator,
    "ModernBertForMaskedLM": TokenPredictor,
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """How an export stores its networks."""

    dtype: str = "float32"
    """Of the weights: float32, float16 or bfloat16."""
    bert: bool = False
    """Under BERT's names. A generator of a shape that BERT does not have stays an ELECTRA."""

    def is_bert(self, exported: Exported) -> bool:
        """Whether this network is written as a BERT."""
        return self.bert and as_bert.fits_bert(exported.model)

    def renames(self, exported: Exported) -> bool:
        """Whether this network is written under other names than its own."""
        return exported.model.block == "modern" or self.is_bert(exported)


def shape_table(model: Model, *, pad_id: int, layers: Layers | None = None, dtype: str = "float32") -> dict[str, Any]:
    """The config.json of any network of that shape, in transformers' terms, without its architecture.

    Args:
        model: the shape.
        pad_id: id of [PAD].
        layers: the network's own; None: layers of that shape as this program builds them.
        dtype: that transformers loads the weights in, by its name there.

    Raises:
        ConfigError: the layers compute something that transformers' ELECTRA, or ModernBERT, does not.
    """
    if layers is None:
        with torch.device("meta"):
            layers = build_encoder(replace(model, num_hidden_layers=1)).encoder
    modern = model.block == "modern"
    if odd := (as_modern.strange_layers if modern else other_arithmetic)(layers):
        raise ConfigError(
            f"export: {odd} computes something else than {'ModernBERT' if modern else 'ELECTRA'}'s layers, and transformers would compute "
            "the old function with these weights. Use the run with this program."
        )
    if modern:
        return as_modern.modern_table(model, pad_id=pad_id, dtype=dtype)
    return {
        "model_type": "electra",
        **{name: getattr(model, name) for name in _SHAPE_KEYS},
        "hidden_act": "gelu",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": dtype,
    }


def export(
    networks: list[Exported],
    *,
    card: Callable[[Exported], str],
    tokenizer: Path,
    pad_id: int,
    length: int,
    out: Path,
    form: Form,
    compare: Callable[[Path, nn.Module], object] | None = None,
) -> list[Path]:
    """Write one folder a network under `out`.

    Args:
        networks: what the objective exports.
        card: the text of a network's README.md.
        tokenizer: folder with the tokenizer's files, which are copied.
        pad_id: id of [PAD].
        length: longest training row in tokens.
        out: a new or empty folder.
        form: how the weights are stored.
        compare: is given each folder with its network before they appear under `out`, and raises where they disagree.

    Raises:
        ConfigError: `out` holds something already, the layers are not those of transformers' ELECTRA, or `form` cannot be.
        StorageError: the disk is full or read-only; nothing is left behind.
        CheckpointError: what was written does not read back bit for bit.
    """
    if form.dtype not in _DTYPES:
        raise ConfigError(f"dtype {form.dtype!r}: expected {', '.join(_DTYPES)}.")
    if form.bert:
        as_bert.require_bert(networks[0].model)

    def files() -> Iterator[tuple[str, bytes]]:
        for exported in networks:
            contents = {
                **_tokenizer_files(tokenizer, exported),
                "config.json": (json.dumps(_table(exported, pad_id, form), indent=2) + "\n").encode(),
                "model.safetensors": safetensors_bytes(_stored(exported, form)),
                **_embedding_files(exported, length),
                "README.md": card(exported).encode(),
            }
            yield from ((f"{exported.name}/{name}", content) for name, content in contents.items())

    def check(folder: Path) -> None:
        for exported in networks:
            place, written = folder / exported.name, _stored(exported, form)
            found = read_tensors(place / "model.safetensors")
            if not form.renames(exported):
                found, written = (
                    read_network(place)[0].state_dict(),
                    {name: each.float() for name, each in written.items()},
                )
            check_equal(place, found, written)
            if compare is not None:
                compare(place, exported.network)

    publish(out, files(), check)
    return [out / exported.name for exported in networks]


def _tokenizer_files(tokenizer: Path, exported: Exported) -> dict[str, bytes]:
    """The files of a tokenizer, and nothing else that may be in its folder or that a link there may lead to."""
    names = [name for name in TOKENIZER_FILES if (tokenizer / name).exists()]
    files = {name: read_file(tokenizer / name, limit=MOST_TEXT) for name in names}
    return as_modern.without_segments(files) if exported.model.block == "modern" else files


def _table(exported: Exported, pad_id: int, form: Form) -> dict[str, Any]:
    shape = shape_table(exported.model, pad_id=pad_id, layers=_layers_of(exported.network), dtype=form.dtype)
    table = {"architectures": [exported.architecture], **shape}
    if exported.model.block == "modern":
        return table | as_modern.class_fields(exported.architecture)
    return as_bert.bert_table(table) if form.is_bert(exported) else table


def _embedding_files(exported: Exported, length: int) -> dict[str, bytes]:
    """Those of an encoder; nobody embeds texts with the generator."""
    return embedding_files(width=exported.model.hidden_size, length=length) if exported.name != "generator" else {}


def _stored(exported: Exported, form: Form) -> dict[str, Tensor]:
    """The tensors by transformers' names; it has the released head alone, which can hold the printed one."""
    tensors, part = exported.network.state_dict(), "discriminator_predictions."
    if isinstance(head := getattr(exported.network, part[:-1], None), PrintedReplacedHead):
        tensors.pop(f"{part}prediction.weight")
        tensors |= {part + name: tensor for name, tensor in head.as_released(exported.model).state_dict().items()}
    if exported.model.block == "modern":
        tensors = as_modern.modern_tensors(tensors)
    if form.is_bert(exported):
        tensors = as_bert.bert_tensors(tensors, exported.architecture)
    return {name: tensor.to(_DTYPES[form.dtype]) for name, tensor in tensors.items()}


def read_network(folder: Path) -> tuple[nn.Module, Model]:
    """Read an exported folder, or any local transformers ELECTRA folder with safetensors weights.

    Returns:
        A Discriminator or a TokenPredictor in evaluation mode, and its shape.

    Raises:
        MissingInputError: a file is not there.
        CheckpointError: the files are not an ELECTRA that this program knows, or tensors are missing, odd or misshapen.
    """
    table = _electra_table(folder)
    architecture = _architecture(table)
    if architecture not in NETWORKS or as_modern.is_of_a_task(table):
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table['model_type'])} {short(architecture)}, expected one of {' or '.join(NETWORKS)}. "
            "Give the run or its export; a fine-tuned model is for `electra predict` and `electra playground`."
        )
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    if table["model_type"] == as_modern.TYPE:
        tensors = as_modern.our_tensors(tensors, discriminator=NETWORKS[architecture] is Discriminator)
    network, model = _outline(NETWORKS[architecture], table, folder, most_layers=len(tensors))
    return _filled(network, tensors, where=path).eval(), model


def holds_network(folder: Path) -> bool:
    """Whether `read_network` knows the folder's architecture: a pre-training head, and not a classifier's or none."""
    table = _electra_table(folder)
    return _architecture(table) in NETWORKS and not as_modern.is_of_a_task(table)


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


def _electra_table(folder: Path) -> dict[str, Any]:
    table = read_table(folder / "config.json")
    if table.get("model_type") not in ("electra", as_modern.TYPE):
        raise CheckpointError(
            f"{folder / 'config.json'}: describes {short(table.get('model_type'))} {short(_architecture(table))}, "
            "expected an 'electra' or a 'modernbert'. Choose another folder; of an export --as bert give the run, or export it without --as."
        )
    if table.get("hidden_act", "gelu") != "gelu":
        raise CheckpointError(
            f"{folder / 'config.json'}: hidden_act {short(table['hidden_act'])}, expected 'gelu' (exact). Choose another model."
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
    """A network without memory behind its tensors: a config.json may ask for any size, the file of weights says what there is."""
    where = str(folder / "config.json")
    try:
        fields = {name: table[name] for name in _SHAPE_KEYS if name in table}
        if table["model_type"] == as_modern.TYPE:
            fields = as_modern.model_fields(table, where=Path(where))
        model = records.read(Model, fields, where=where)
        if model.num_hidden_layers > most_layers:
            raise CheckpointError(
                f"{where}: num_hidden_layers {model.num_hidden_layers:,}, and the file of weights has {most_layers:,} tensors. "
                "Put the right files together."
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


def _layers_of(network: nn.Module) -> Layers | None:
    layers = getattr(getattr(network, "electra", None), "encoder", None)
    return layers if isinstance(layers, Layers) else None


def publish(
    out: Path, files: Iterable[tuple[str, bytes]], check: Callable[[Path], None], *, replaces: str | None = None
) -> None:
    """Write files into a temporary folder, check them there, and rename it to `out`.

    Args:
        out: a new or empty folder, or an earlier export.
        files: (path in the folder, content), taken one at a time.
        check: reads the temporary folder back, and raises where it differs from what was to be written.
        replaces: the file that an earlier export holds; it is replaced once the new one is complete. None: nothing is replaced.

    Raises:
        ConfigError: `out` holds something else.
        StorageError: the disk is full or read-only; an earlier export is untouched and nothing is left behind.
    """
    earlier = replaces is not None and (out / replaces).is_file()
    if out.exists() and not earlier and (not out.is_dir() or any(out.iterdir())):
        other = "" if replaces is None else f" and holds no {replaces}"
        raise ConfigError(f"--out {out}: is not an empty folder{other}. Choose another one.")
    unique = uuid.uuid4().hex[:8]
    temporary, aside = out.with_name(f".{out.name}.{unique}"), out.with_name(f".{out.name}.old-{unique}")
    try:
        for name, content in files:
            path = temporary / name
            make_folder(path.parent)
            write_durably(path, content)
            sync_folder(path.parent)
        check(temporary)
        if earlier:
            out.rename(aside)
        elif out.exists():
            out.rmdir()
        temporary.rename(out)
        sync_folder(out.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise storage_error(error, out, writing=True) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A model.safetensors as transformers reads it."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def check_equal(folder: Path, found: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless every tensor that was read back from `folder` has the bits that were written."""
    for name, tensor in found.items():
        if name not in written or not torch.equal(tensor, written[name].cpu()):
            raise CheckpointError(f"{folder}: {name} does not read back as it was written. Check the disk.")
