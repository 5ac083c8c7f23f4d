"""Files that ONNX Runtime reads: of an exported network, and of a fine-tuned model with its head.

onnx/model.onnx       of input_ids, attention_mask and, on BERT's block, token_type_ids, each int64 [B, T]:
                      last_hidden_state [B, T, D] of a network, and its logits if it has a head; of a fine-tuned model
                      its task's `onnx_logits`
onnx/model_int8.onnx  the same with the matrices in 8 bits (dynamic quantization)

Encoders are traced as transformers has them, the head of a task as it is here. What ONNX Runtime computes is compared
with the run's own network, or that of `electra predict`, before a file is written.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.batches import padded
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import CheckpointError, need
from electra_trainer.files.durable import make_folder, scratch, sync_folder, write_durably
from electra_trainer.files.reading import read_file
from electra_trainer.finetuning.model_folder import Finetuned, finetuned_folder, load_finetuned
from electra_trainer.pretrained import agreement, as_modern
from electra_trainer.pretrained.export import publish
from electra_trainer.settings.records import read_table

_PACKAGES = ("transformers", "onnx", "onnxscript", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_LENGTHS = (8, 20, 64)
"""Tokens in the rows that are compared, in one padded batch; of a network also two windows of attention."""
_BOUND, _TUNED_BOUND = 1e-3, 1e-4
"""Largest difference of a network's outputs, and of a fine-tuned model's logits. 1e-5 is usual, 1e-4 where words have
logits above ten."""
_INT8_BOUND, _INT8_REPLACED_BOUND = 0.1, 0.02
"""Largest mean distance of a file in 8 bits: half the sum of the differences of probabilities, or the difference of
numbers; of a discriminator, most of whose probabilities are small, less."""
_MOST = 2 << 30
"""Bytes of an ONNX file: beyond 2 GiB its format needs a second file."""


def need_onnx() -> None:
    """Refuse before any work if a package for ONNX is missing.

    Raises:
        ConfigError: names the missing packages and what to install.
    """
    need("--to onnx", _PACKAGES, extra="onnx")


def write_onnx(folder: Path, network: nn.Module, tokenizer: Tokenizer, *, int8: bool = False) -> str:
    """Write `onnx/model.onnx` into an exported folder, and compare what ONNX Runtime computes with the run's network.

    Args:
        folder: one network's exported folder.
        network, tokenizer: the run's, which it was written from, on the CPU.
        int8: write `onnx/model_int8.onnx` too.

    Returns:
        How far they are apart, for people.

    Raises:
        ConfigError: a package is missing. CheckpointError: its outputs differ by more than 1e-3, or in 8 bits by more
            than its bound; nothing is written. StorageError: the disk is full.
    """
    need_onnx()
    table = read_table(folder / "config.json")
    of = agreement.outputs(table)
    windows = max(*_LENGTHS, 2 * table.get("local_attention", 0))
    batch = _some_rows(Text.of(tokenizer, length=table["max_position_embeddings"]), (*_LENGTHS, windows) * 2)
    names = ["last_hidden_state", "logits"][: 1 + (of == "logits")]
    wanted = {name: agreement.own_outputs(network, folder, batch, of=name) for name in names}
    words = wanted[names[-1]].dim() == 3
    if as_modern.has_our_labels(table):
        wanted["logits"] = _twofold(wanted["logits"])

    def shares(logits: Tensor) -> Tensor:
        real = logits[batch.real_BT]
        return (real if real.dim() == 2 else _twofold(real)).softmax(-1)

    files, away = _compared(
        _States(agreement.transformers_network(folder, table), of),
        batch,
        wanted,
        where=folder,
        real=lambda output: output[batch.real_BT],
        shares=shares if of == "logits" else None,
        bound=_BOUND,
        int8_bound=(_INT8_BOUND if words else _INT8_REPLACED_BOUND) if int8 else None,
    )
    make_folder(folder / "onnx")
    for name, content in files.items():
        write_durably(folder / "onnx" / name, content)
    sync_folder(folder / "onnx")
    return f"ONNX Runtime has the run's {of} {away}"


def export_onnx(model: Path, out: Path, *, int8: bool = False) -> list[str]:
    """Write a copy of a fine-tuned model's folder with the whole model in ONNX.

    Args:
        model: DIR/model of `electra finetune`.
        out: a new or empty folder.
        int8: write onnx/model_int8.onnx too.

    Returns:
        What was written, in lines for people.

    Raises:
        ConfigError: a package is missing, `out` is not empty, or the head cannot be written. CheckpointError: ONNX
            Runtime computes something else, or something too far away in 8 bits. StorageError: the disk is full.
    """
    need_onnx()
    loaded, folder = load_finetuned(model), finetuned_folder(model) or model
    task = loaded.task
    batch = _some_rows(loaded.text, _LENGTHS * 8, paired=loaded.pair or bool(task.second_text))
    with torch.no_grad():
        wanted = task.onnx_logits(loaded.network.head, loaded.network(batch), batch)
    files, away = _compared(
        _Whole(loaded, folder).eval(),
        batch,
        {"logits": wanted},
        where=model,
        real=lambda logits: (logits if logits.dim() == 2 else logits[batch.real_BT]) / (task.onnx_unit or 1.0),
        shares=(lambda logits: task.onnx_shares(logits, batch)) if task.onnx_unit is None else None,
        bound=_TUNED_BOUND,
        int8_bound=_INT8_BOUND if int8 else None,
    )

    def contents() -> Iterator[tuple[str, bytes]]:
        yield from ((f"onnx/{name}", content) for name, content in files.items())
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(folder)), read_file(path, limit=_MOST)

    publish(out, contents(), lambda _: None)
    return [f"{out}: a copy of {folder}", f"{out}/onnx: ONNX Runtime has the logits of `electra predict` {away}"]


def _compared(
    graph: nn.Module,
    batch: Batch,
    wanted: Mapping[str, Tensor],
    *,
    where: Path,
    real: Callable[[Tensor], Tensor],
    shares: Callable[[Tensor], Tensor] | None,
    bound: float,
    int8_bound: float | None,
) -> tuple[dict[str, bytes], str]:
    """The ONNX files by name, and how far they are from the network here, in words.

    Args:
        graph: see `trace`.
        batch: rows that are compared.
        wanted: output -> its right values; the last one is compared in 8 bits.
        where: the model, for messages.
        real: an output -> its values that are compared.
        shares: the last output -> distributions over the last dimension, which are compared in 8 bits; None: the values
            themselves are.
        bound: largest absolute difference.
        int8_bound: largest mean distance in 8 bits; None: there is no such file.

    Raises:
        CheckpointError: something differs by more than its bound.
    """
    files, largest, (*_, last) = dict[str, bytes](), 0.0, wanted
    with ExitStack() as quiet:  # without the exporters' warnings, none of which is for a user
        quiet.enter_context(warnings.catch_warnings(action="ignore"))
        quiet.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        place = quiet.enter_context(scratch())
        plain, small = place / "model.onnx", place / "model_int8.onnx"
        trace(graph, plain, outputs=[*wanted])
        files[plain.name] = read_file(plain, limit=_MOST)
        found = run(plain, batch)
        for name, right in wanted.items():
            largest = float((real(found[name]) - real(right)).abs().max())
            if not largest <= bound:
                raise CheckpointError(f"{where}: ONNX Runtime's {name} differs by {largest:.1e}. Please report it.")
        away = f"within {largest:.0e}, with padding"
        if int8_bound is not None:
            quantize(plain, small)
            files[small.name] = read_file(small, limit=_MOST)
            rough, right = run(small, batch)[last], wanted[last]
            if shares is None:
                mean = float((real(rough) - real(right)).abs().mean())
            else:
                mean = float((shares(rough) - shares(right)).abs().sum(-1).mean() / 2)
            if not mean <= int8_bound:
                raise CheckpointError(
                    f"{where}: --int8: outputs in 8 bits are {mean:.2g} away on average, expected at most "
                    f"{int8_bound}. Leave it out: the file in 32 bits has the model's outputs."
                )
            away += f"; in 8 bits its {'values' if shares is None else 'probabilities'} are {mean:.1g} away on average"
    return files, away


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


class _Whole(nn.Module):
    """The logits of a fine-tuned model, from transformers' encoder and our head."""

    def __init__(self, loaded: Finetuned, folder: Path) -> None:
        import transformers

        super().__init__()
        transformers.utils.logging.set_verbosity_error()  # the head in the folder is not loaded
        place = folder if not (folder / "encoder" / "config.json").is_file() else folder / "encoder"
        self.model = transformers.AutoModel.from_pretrained(place).float()
        self.head, self.task, self.sep = loaded.network.head, loaded.task, loaded.text.specials.sep

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **segments)
        sep_BT = (input_ids == self.sep).long()
        batch = Batch(
            ids_BT=input_ids,
            segment_BT=(sep_BT.cumsum(1) - sep_BT).clamp(max=1) * attention_mask,
            position_BT=(attention_mask.cumsum(1) - 1).clamp(min=0),
            piece_BT=attention_mask,
        )
        states = found.last_hidden_state
        if read_states := getattr(self.head, "read_states", None):
            half = self.model.config.num_hidden_layers // 2
            middle = found.hidden_states[half]
            if self.model.config.model_type == "modernbert":
                middle = self.model.layers[half].attn_norm(middle)
            words = SimpleNamespace(word_embeddings=self.model.get_input_embeddings())
            states = read_states(SimpleNamespace(embeddings=words, halves=lambda *_: (middle, states)), batch)
        return self.task.onnx_logits(self.head, states, batch)


def trace(network: nn.Module, out: Path, *, outputs: list[str]) -> None:
    """Write a network in ONNX, for any number of rows, of any length up to its positions.

    Args:
        network: its `model` is transformers' encoder, with or without a head; it is called with `input_ids`,
            `attention_mask` and, but for ModernBERT, `token_type_ids`, each int64 [B, T].
        out: the file.
        outputs: their names.
    """
    config: Any = network.model.config  # type: ignore[union-attr]
    ids = torch.arange(18).view(2, 9) % config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=config.max_position_embeddings)}
    inputs = (ids, mask, torch.zeros_like(ids))[: 2 if config.model_type == as_modern.TYPE else 3]
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
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # a scale a column: half the error, in 1 % more bytes; unsigned: signed ones saturate where the processor lacks VNNI
    quantize_dynamic(plain, small, per_channel=True, weight_type=QuantType.QUInt8)


def run(file: Path, batch: Batch) -> dict[str, Tensor]:
    """The outputs of ONNX Runtime for a batch, by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    asked = dict(zip(INPUTS, (batch.ids_BT, batch.real_BT.long(), batch.segment_BT), strict=True))
    found = session.run(None, {one.name: asked[one.name].numpy() for one in session.get_inputs()})
    return {one.name: torch.from_numpy(values) for one, values in zip(session.get_outputs(), found, strict=True)}


def _some_rows(text: Text, lengths: tuple[int, ...], *, paired: bool = False) -> Batch:
    """Rows of text of these lengths, or as long as a row may be, as a batch; of pairs of texts if `paired`."""
    flat, rows = chain.from_iterable(text.ids(agreement.some_lines())), []
    for length in (min(length, text.length) for length in lengths):
        ids = [next(flat) for _ in range(length - 3)]
        both = (ids[: length // 2], ids[length // 2 :]) if paired else (ids, None)
        rows.append(text.row(*both))
    return padded(rows, text.specials)


def _twofold(logits: Tensor) -> Tensor:
    """A discriminator's logits as those of two classes."""
    return torch.stack([torch.zeros_like(logits), logits], -1)
