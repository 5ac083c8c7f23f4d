"""Export networks to folders that `transformers` loads as they are.

    DIR/discriminator   ElectraForPreTraining: the encoder to fine-tune
    DIR/generator       ElectraForMaskedLM
    DIR/encoder         ElectraForMaskedLM: what an MLM run exports instead of the two, and rtd-mlm beside them

The modern block is written as ModernBERT (as_modern.py).

Each holds config.json, model.safetensors, the tokenizer's files and a model card; encoders also the files of
embedding.py. Parameter names are those of transformers, so writing is a copy (the paper's printed head becomes the
released one, with the same output). The vocabulary's output weight is tied to the word embeddings and stored once, as
there.

An exported folder appears whole, read back and on the disk, or not at all.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.data.tokenizer import load_tokenizer, specials_of
from electra_trainer.errors import CheckpointError, ConfigError, storage_error, tell
from electra_trainer.files.durable import alone, make_folder, new_folder, scratch, sweep, sync_folder, write_durably
from electra_trainer.kernels.declared import other_class
from electra_trainer.model.encoder import Layers
from electra_trainer.model.networks import PrintedReplacedHead, build_encoder
from electra_trainer.objectives import Exported
from electra_trainer.pretrained import as_bert, as_modern
from electra_trainer.pretrained.embedding import vector_files
from electra_trainer.pretrained.read_back import ROLE, SHAPE_KEYS, read_tensors
from electra_trainer.settings.config import Model

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Number types of stored weights by the names that a command has for them."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How an export stores its networks."""

    dtype: str = "float32"
    """Type of the stored weights: float32, float16 or bfloat16. config.json asks for fp32 in any case."""
    bert: bool = False
    """Under BERT's names. A generator of a shape that BERT does not have stays an ELECTRA."""

    def is_bert(self, exported: Exported) -> bool:
        """Whether this network is written as a BERT."""
        return self.bert and as_bert.fits_bert(exported.model)


Compare = Callable[[Path, nn.Module, Tokenizer], object]
"""Function of an exported network's folder, and the network and tokenizer of the run."""


def shape_table(model: Model, *, pad_id: int, layers: Layers | None = None) -> dict[str, Any]:
    """The config.json of any network of that shape, in transformers' terms, without its architecture.

    It asks for fp32 whatever type the weights are stored in: transformers 5 loads the named type, and training in fp16
    diverges.

    Args:
        model: the shape.
        pad_id: id of [PAD].
        layers: the network's own; None: layers of that shape as this program builds them.

    Raises:
        ConfigError: the layers compute something that transformers' ELECTRA, or ModernBERT, does not.
    """
    if layers is None:
        with torch.device("meta"):
            layers = build_encoder(replace(model, num_hidden_layers=1)).encoder
    modern = model.block == "modern"
    if odd := other_class(layers, model.block):
        raise ConfigError(
            f"export: {odd} does not declare to be a part of {'ModernBERT' if modern else 'BERT'}'s block, and "
            "transformers would compute the old function with these weights. Use the run with this program."
        )
    if modern:
        return as_modern.modern_table(model, pad_id=pad_id)
    return {
        "model_type": "electra",
        **{name: getattr(model, name) for name in SHAPE_KEYS},
        "hidden_act": "gelu",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",  # its name before transformers 4.56
    }


def export(
    networks: Sequence[Exported],
    *,
    card: Callable[[Exported], str],
    tokenizer: Path,
    length: int,
    out: Path,
    form: Form,
    compare: Compare | None = None,
) -> list[Path]:
    """Write one folder a network under `out`.

    Args:
        networks: what the objective exports.
        card: the text of a network's README.md.
        tokenizer: folder with the tokenizer's files.
        length: longest training row in tokens.
        out: a new or empty folder.
        form: how the weights are stored.
        compare: is given each folder with its network and tokenizer before they appear under `out`, and raises where
            they disagree.

    Raises:
        ConfigError: `out` holds something already, the layers are not those of transformers' ELECTRA, or `form` cannot
            be.
        StorageError: the disk is full or read-only; nothing is left behind.
        CheckpointError: what was written does not read back bit for bit.
    """
    if form.dtype not in DTYPES:
        raise ConfigError(f"dtype {form.dtype!r}: expected {', '.join(DTYPES)}.")
    model = networks[0].model
    if form.bert and not as_bert.fits_bert(model):
        raise ConfigError(
            "--as bert: expected BERT's block (model.block = bert) and embeddings as wide as the layers; this encoder "
            f"has block {model.block}, embeddings of width {model.embedding_size} and layers of {model.hidden_size}. "
            "Leave --as bert out, or pre-train with a preset such as base, large or tiny."
        )
    words = load_tokenizer(tokenizer)
    pad_id = specials_of(words).pad

    def files() -> Iterator[tuple[str, bytes]]:
        for exported in networks:
            contents = {
                **as_modern.tokenizer_files(words, exported.model, max_length=length),
                "config.json": (json.dumps(_table(exported, pad_id, form), indent=2) + "\n").encode(),
                "model.safetensors": safetensors_bytes(_stored(exported, form)),
                "README.md": card(exported).encode(),
            }
            if exported.name != "generator":  # nobody embeds texts with it
                contents |= vector_files(width=exported.model.hidden_size, length=length)
            yield from ((f"{exported.name}/{name}", content) for name, content in contents.items())

    def check(folder: Path) -> None:
        for exported in networks:
            place = folder / exported.name
            check_equal(place, read_tensors(place / "model.safetensors"), _stored(exported, form))
            if compare is not None:
                compare(place, exported.network, words)

    publish(out, files(), check)
    return [out / exported.name for exported in networks]


def _table(exported: Exported, pad_id: int, form: Form) -> dict[str, Any]:
    network: Any = exported.network
    shape = shape_table(exported.model, pad_id=pad_id, layers=network.electra.encoder)
    table = {"architectures": [exported.architecture], ROLE: exported.name, **shape}
    if exported.model.block == "modern":
        return table | as_modern.class_fields(exported.architecture)
    return as_bert.bert_table(table) if form.is_bert(exported) else table


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
    return {name: tensor.to(DTYPES[form.dtype]) for name, tensor in tensors.items()}


def publish(
    out: Path, files: Iterable[tuple[str, bytes]], check: Callable[[Path], None], *, replaces: str | None = None
) -> None:
    """Write files into a temporary folder, check them there, and rename it to `out`, unless the same is there already.

    Args:
        out: a new or empty folder, or an earlier export.
        files: (path in the folder, content), taken one at a time.
        check: reads the temporary folder back, and raises where it differs from what was to be written.
        replaces: the file that an earlier export holds; it is replaced once the new one is complete. None: nothing is
            replaced.

    Raises:
        ConfigError: `out` holds something else.
        StorageError: the disk is full or read-only; an earlier export is untouched and nothing is left behind.
    """
    other = "" if replaces is None else f" and holds no {replaces}"
    refused = ConfigError(f"--out {out}: is not an empty folder{other}. Choose another one.")
    with alone(out, patience=60.0 if replaces else 0.0):
        sweep(out.parent)
        earlier = replaces is not None and (out / replaces).is_file()
        taken = not earlier and _holds_anything(out)
        try:
            make_folder(out.parent)
            with scratch(out.parent) if taken else new_folder(out) as temporary:
                for name, content in files:
                    if taken and not ((out / name).is_file() and (out / name).read_bytes() == content):
                        raise refused
                    path = temporary / name
                    make_folder(path.parent)
                    write_durably(path, content)
                    sync_folder(path.parent)
                check(temporary)
                same = taken and _listed(temporary) == _listed(out)
                if not (earlier or same) and _holds_anything(out):
                    raise refused
        except OSError as error:
            raise storage_error(error, out, writing=True) from None
        if taken:
            tell(f"{out}: is there already, the same.")


def _holds_anything(out: Path) -> bool:
    return out.exists() and (not out.is_dir() or any(out.iterdir()))


def _listed(folder: Path) -> set[tuple[Path, int]]:
    """Files below a folder, with their sizes."""
    return {(path.relative_to(folder), path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A model.safetensors as transformers reads it."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def check_equal(folder: Path, found: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless every tensor that was read back from `folder` has the bits that were written."""
    for name, tensor in found.items():
        if name not in written or not torch.equal(tensor, written[name].cpu()):
            raise CheckpointError(f"{folder}: {name} does not read back as it was written. Check the disk.")
