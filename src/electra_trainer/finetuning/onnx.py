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
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.errors import CheckpointError, need
from electra_trainer.files.durable import make_folder, scratch, sync_folder, write_durably
from electra_trainer.files.reading import read_file
from electra_trainer.finetuning.model_folder import Finetuned, finetuned_folder, load_finetuned
from electra_trainer.finetuning.run import collate
from electra_trainer.pretrained import agreement, as_modern
from electra_trainer.pretrained.export import publish
from electra_trainer.settings.records import read_table
from electra_trainer.tasks.task import Row

_PACKAGES = ("transformers", "onnx", "onnxscript", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_LENGTHS = (5, 17, 64)
"""Tokens in the rows on which a network's file is compared, the last `_PADDING` of which are padding; two windows of
attention are longer. A fine-tuned model is compared on eight of each in one batch, cut to what it reads."""
_PADDING = 2
_BOUND, _TUNED_BOUND = 1e-3, 1e-4
"""Largest difference of a network's outputs, and of a fine-tuned model's logits. 1e-5 is usual, 1e-4 where words have
logits above ten."""
_INT8_BOUND = 0.1
"""Largest mean distance that a file in 8 bits may have (`distance`); of a discriminator `_INT8_REPLACED_BOUND`, since
most of its probabilities are small."""
_INT8_REPLACED_BOUND = 0.02
_MOST = 2 << 30
"""Bytes of an ONNX file: beyond 2 GiB its format needs a second file."""


@dataclass(frozen=True, kw_only=True)
class Rough:
    """How a file in 8 bits is compared."""

    of: str
    """Name of the compared values, for people."""
    shown: Callable[[Tensor], Tensor]
    """Outputs -> what is compared."""
    distributions: bool
    """Whether these values are distributions over the last dimension; else single numbers."""
    bound: float = _INT8_BOUND


@dataclass(frozen=True, kw_only=True)
class Written:
    """Contents of the files, by name, and how far they are from the network here."""

    files: Mapping[str, bytes]
    largest: float
    """Largest absolute difference of the last output, in fp32."""
    rough: str
    """A clause on the file in 8 bits, empty where there is none."""


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
    of, twofold = agreement.outputs(table), as_modern.has_our_labels(table)
    lengths = {*_LENGTHS, max(*_LENGTHS, 2 * table.get("local_attention", 0))}
    rows = [agreement.text_rows(tokenizer, table, length=length - _PADDING) for length in sorted(lengths)]
    names = ["last_hidden_state", "logits"][: 1 + (of == "logits")]
    exact = {
        name: torch.cat([agreement.own_outputs(network, folder, row, of=name).flatten(0, 1) for row in rows])
        for name in names
    }
    words = exact[names[-1]].dim() == 2
    share: Callable[[Tensor], Tensor] = (lambda each: each.softmax(-1)) if words else torch.sigmoid
    rough = Rough(
        of="probabilities" if of == "logits" else of,
        shown=share if of == "logits" else lambda each: each,
        distributions=words and of == "logits",
        bound=_INT8_BOUND if words else _INT8_REPLACED_BOUND,
    )
    found = compared(
        _States(agreement.transformers_network(folder, table), of),
        exact,
        lambda file, name: _outputs_of(file, rows, name, twofold=twofold),
        where=folder,
        bound=_BOUND,
        rough=rough if int8 else None,
    )
    make_folder(folder / "onnx")
    for name, content in found.files.items():
        write_durably(folder / "onnx" / name, content)
    sync_folder(folder / "onnx")
    return f"ONNX Runtime has the run's {of} within {found.largest:.0e}, with and without padding{found.rough}"


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
    task, batch = loaded.task, _some_rows(loaded)
    numbers, unit = task.onnx_unit is not None, task.onnx_unit or 1.0
    with torch.no_grad():
        wanted = task.onnx_logits(loaded.network.head, loaded.network(batch), batch)
    asked = dict(zip(INPUTS, (batch.ids_BT, batch.real_BT.long(), batch.segment_BT), strict=True))

    def real(logits: Tensor) -> Tensor:
        """In units that compare; 0 at padding."""
        return (logits if logits.dim() == 2 else logits * batch.real_BT[..., None]) / unit

    rough = Rough(
        of="numbers, in standard deviations of the training file," if numbers else "probabilities",
        shown=lambda logits: logits if numbers else task.onnx_shares(logits, batch),
        distributions=not numbers,
    )
    found = compared(
        _Whole(loaded, folder).eval(),
        {"logits": real(wanted)},
        lambda file, _: real(answers(file, [asked])[0]),
        where=model,
        bound=_TUNED_BOUND,
        rough=rough if int8 else None,
    )

    def contents() -> Iterator[tuple[str, bytes]]:
        yield from ((f"onnx/{name}", content) for name, content in found.files.items())
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(folder)), read_file(path, limit=_MOST)

    publish(out, contents(), lambda _: None)
    agrees = f"ONNX Runtime has the logits of `electra predict` within {found.largest:.0e}, with padding{found.rough}"
    return [f"{out}: a copy of {folder}", f"{out}/onnx: {agrees}"]


def compared(
    network: nn.Module,
    exact: Mapping[str, Tensor],
    read: Callable[[Path, str], Tensor],
    *,
    where: Path,
    bound: float,
    rough: Rough | None,
) -> Written:
    """The ONNX files of a network, compared with what it should give.

    Args:
        network: see `trace`.
        exact: output -> its right values; the last one is compared in 8 bits.
        read: file and output -> what ONNX Runtime computes in the place of these.
        where: the model, for messages.
        bound: largest absolute difference.
        rough: how the file in 8 bits is compared; None: there is none.

    Raises:
        CheckpointError: something differs by more than its bound.
    """
    away, clause, files = 0.0, "", dict[str, bytes]()
    with scratch() as place, quiet():
        plain, small = place / "model.onnx", place / "model_int8.onnx"
        trace(network, plain, outputs=[*exact])
        files[plain.name] = read_file(plain, limit=_MOST)
        for name, right in exact.items():
            away = float((read(plain, name) - right).abs().max())
            if not away <= bound:
                raise CheckpointError(f"{where}: ONNX Runtime's {name} differs by {away:.1e}. Please report it.")
        if rough is not None:
            quantize(plain, small)
            files[small.name] = read_file(small, limit=_MOST)
            far = (rough.shown(read(small, name)) - rough.shown(right)).abs()
            # of distributions the total variation
            mean = float(far.sum(-1).mean() / 2 if rough.distributions else far.mean())
            if not mean <= rough.bound:
                raise CheckpointError(
                    f"{where}: --int8: outputs in 8 bits are {mean:.2g} away on average, expected at most "
                    f"{rough.bound}. Leave it out: the file in 32 bits has the model's outputs."
                )
            clause = f"; in 8 bits its {rough.of} are {mean:.1g} away on average"
    return Written(files=files, largest=away, rough=clause)


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


def _some_rows(loaded: Finetuned) -> Batch:
    """Rows of text of several lengths, of pairs where the model reads pairs."""
    text, paired = loaded.text, loaded.pair or bool(loaded.task.second_text)
    flat = list(chain.from_iterable(encoding.ids for encoding in text.encode(agreement.some_lines())))
    rows = []
    for number, length in enumerate(min(length, text.length) for length in _LENGTHS * 8):
        ids = flat[number * length : number * length + length - 3]
        both = (ids[: length // 2], ids[length // 2 :]) if paired else (ids, None)
        rows.append(Row(ids=text.row(*both), example=number))
    return collate(rows, text.specials, torch.device("cpu"))


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
