"""Files that ONNX Runtime reads; embedding.py has those of sentence-transformers and Text Embeddings Inference.

onnx/model.onnx       last_hidden_state [B, T, D], and the logits of a network with a head, of input_ids,
                      attention_mask and, on BERT's block, token_type_ids, each int64 [B, T]
onnx/model_int8.onnx  the same with the matrices in 8 bits (dynamic quantization)
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.errors import CheckpointError, need
from electra_trainer.files.durable import make_folder, scratch, sync_folder, write_durably
from electra_trainer.files.reading import read_file
from electra_trainer.pretrained import as_modern
from electra_trainer.pretrained.agreement import outputs, own_outputs, text_rows, transformers_network
from electra_trainer.settings.records import read_table

_PACKAGES = ("transformers", "onnx", "onnxscript", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_LENGTHS = (5, 17, 64)
"""Tokens in the rows on which an ONNX file is compared, the last `_PADDING` of which are padding; two windows of
attention are longer."""
_PADDING = 2
_BOUND = 1e-3
"""Largest difference of logits that an ONNX file may have. 1e-5 is usual, 1e-4 where words have logits above ten."""
INT8_BOUND = 0.1
"""Largest mean distance that a file in 8 bits may have (`distance`); of a discriminator `INT8_REPLACED_BOUND`, since
most of its probabilities are small."""
INT8_REPLACED_BOUND = 0.02
MOST = 2 << 30
"""Bytes of an ONNX file: beyond 2 GiB its format needs a second file."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How far an ONNX file is from the run's own network, on text."""

    of: str = "logits"
    """The outputs that are compared: `agreement.outputs`."""
    largest: float
    """Largest absolute difference, in fp32."""
    int8: float | None = None
    """Mean distance with matrices in 8 bits, of logits as probabilities; None: no such file was asked for."""

    @property
    def line(self) -> str:
        """For people."""
        rough = "probabilities" if self.of == "logits" else self.of
        small = "" if self.int8 is None else f"; in 8 bits its {rough} are {self.int8:.1g} away on average"
        return f"ONNX Runtime has the run's {self.of} within {self.largest:.0e}, with and without padding{small}"


def need_onnx() -> None:
    """Refuse before any work if a package for ONNX is missing.

    Raises:
        ConfigError: names the missing packages and what to install.
    """
    need("--to onnx", _PACKAGES, extra="onnx")


def write_onnx(folder: Path, network: nn.Module, tokenizer: Tokenizer, *, int8: bool = False) -> Compared:
    """Write `onnx/model.onnx` into an exported folder, and compare what ONNX Runtime computes with the run's network.

    Args:
        folder: one network's exported folder.
        network, tokenizer: the run's, which it was written from, on the CPU.
        int8: write `onnx/model_int8.onnx` too.

    Raises:
        ConfigError: a package is missing. CheckpointError: its outputs differ by more than 1e-3, or in 8 bits by more
            than its bound; nothing is written. StorageError: the disk is full.
    """
    need_onnx()
    table = read_table(folder / "config.json")
    of = outputs(table)
    lengths = {*_LENGTHS, max(*_LENGTHS, 2 * table.get("local_attention", 0))}
    rows = [text_rows(tokenizer, table, length=length - _PADDING) for length in sorted(lengths)]
    names = ["last_hidden_state", "logits"][: 1 + (of == "logits")]
    expected = [torch.cat([own_outputs(network, folder, row, of=name).flatten(0, 1) for row in rows]) for name in names]
    with scratch() as place, quiet():
        plain, small = place / "model.onnx", place / "model_int8.onnx"
        modern, twofold = table["model_type"] == as_modern.TYPE, as_modern.has_our_labels(table)
        trace(_States(transformers_network(folder, table), of), plain, outputs=names, segments=not modern)
        files = {plain.name: read_file(plain, limit=MOST)}
        for name, right in zip(names, expected, strict=True):
            away = (_outputs_of(plain, rows, name, twofold=twofold) - right).abs()
            found = Compared(of=of, largest=float(away.max()))
            if not found.largest <= _BOUND:
                raise CheckpointError(
                    f"{folder}: ONNX Runtime's {name} differs by {found.largest:.1e}. Please report it."
                )
        if int8:
            quantize(plain, small)
            files[small.name] = read_file(small, limit=MOST)
            both, words = [_outputs_of(small, rows, name, twofold=twofold), right], right.dim() == 2
            if of == "logits":
                both = [each.softmax(-1) if words else each.sigmoid() for each in both]
            bound = INT8_BOUND if words else INT8_REPLACED_BOUND
            rough = distance(*both, distributions=words and of == "logits", bound=bound, where=folder)
            found = replace(found, int8=rough)
    make_folder(folder / "onnx")
    for name, content in files.items():
        write_durably(folder / "onnx" / name, content)
    sync_folder(folder / "onnx")
    return found


class _States(nn.Module):
    """Last hidden states, and the logits of a head, from transformers' network."""

    def __init__(self, model: Any, of: str) -> None:
        super().__init__()
        self.model, self.of = model, of

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        states: list[Tensor] = []  # `hidden_states[-1]` lacks ModernBERT's last normalization in transformers 4
        hook = self.model.base_model.register_forward_hook(lambda _, __, out: states.append(out[0]))
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, **segments)
        hook.remove()
        return (*states, found.logits) if self.of == "logits" else (*states,)


def trace(network: nn.Module, out: Path, *, outputs: list[str], segments: bool) -> None:
    """Write a network in ONNX, for any number of rows, of any length up to its positions.

    Args:
        network: its `model` is transformers' encoder, with or without a head; it is called with `input_ids`,
            `attention_mask` and, with `segments`, `token_type_ids`, each int64 [B, T].
        out: the file.
        outputs: their names.
    """
    config: Any = network.model.config  # type: ignore[union-attr]
    ids = torch.arange(18).view(2, 9) % config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=config.max_position_embeddings)}
    inputs = (ids, mask, torch.zeros_like(ids))[: 2 + segments]
    torch.onnx.export(
        network,
        inputs,
        out,
        dynamo=True,
        dynamic_shapes=(axes,) * len(inputs),
        input_names=list(INPUTS[: len(inputs)]),
        output_names=outputs,
        external_data=False,
        verbose=False,
    )


def quantize(plain: Path, small: Path) -> None:
    """Write an ONNX file again with its matrices in 8 bits."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(plain, small, per_channel=True)  # half the error of one scale a matrix, in 1 % more bytes


def answers(file: Path, inputs: list[dict[str, Tensor]], output: str = "logits") -> list[Tensor]:
    """An output of ONNX Runtime for each of some inputs, of which it takes those that the file names."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return [torch.from_numpy(session.run([output], {name: one[name].numpy() for name in names})[0]) for one in inputs]


def _outputs_of(file: Path, rows: list[Tensor], output: str, *, twofold: bool) -> Tensor:
    """An output at each token of `rows`, int64 [B, T] each: [N, ..]. Padding follows the rows here, and must
    change nothing.

    Args:
        file: in ONNX.
        rows: ids.
        output: its name.
        twofold: the file has two logits a token, whose difference is the run's.
    """
    asked = []
    for ids_BT in rows:
        padded = [nn.functional.pad(each, (0, _PADDING)) for each in (ids_BT, torch.ones_like(ids_BT))]
        asked.append(dict(zip(INPUTS, (*padded, torch.zeros_like(padded[0])), strict=True)))
    found = torch.cat([answer[:, :-_PADDING].flatten(0, 1) for answer in answers(file, asked, output)])
    return found[..., 1] - found[..., 0] if twofold and output == "logits" else found


def distance(rough: Tensor, exact: Tensor, *, distributions: bool, where: Path, bound: float = INT8_BOUND) -> float:
    """The mean distance of outputs in 8 bits from those in fp32: of distributions over the last dimension, half the sum
    of their differences (total variation), otherwise of single numbers.

    Raises:
        CheckpointError: it is above `bound`.
    """
    away = (rough - exact).abs()
    mean = float(away.sum(-1).mean() / 2 if distributions else away.mean())
    if not mean <= bound:
        raise CheckpointError(
            f"{where}: --int8: outputs in 8 bits are {mean:.2g} away on average, expected at most {bound}. Leave "
            "it out: the file in 32 bits has the model's outputs."
        )
    return mean


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' warnings, none of which is for a user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
