"""Do `transformers` and a run agree: ids of text by the exported tokenizer, and logits by the exported network, against
the run's own.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.batches import encode_rows
from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, ElectraError, need
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.pretrained import as_modern
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.config import Model
from electra_trainer.settings.records import read_table, run_and_step

BOUND = 1e-4
"""Largest difference of logits that an export may have. 1e-5 is usual: sums of fp32 in another order."""
_ROWS = 2
_TOKENS = 1 << 16
_HARD = (
    "Çağ möchte İstanbul straße",
    "日本語 text",
    "a\u00a0b\u200bc\ufeff",
    "don't  stop",
    "naïve e\u0301",
    "[UNK]",
    "x" * 300,
)


LINES = 1000
"""Lines of text whose ids are compared."""


def some_lines(own: Sequence[str] = ()) -> list[str]:
    """Lines that tokenizers stumble over, `own` (at most half of all), and lines of Python's language reference."""
    from pydoc_data.topics import topics

    lines = (line for name in sorted(topics) for line in topics[name].splitlines() if line.strip())
    return [*islice([*_HARD, *own], LINES // 2), *lines][:LINES]


def lines_of(run: str | Path) -> list[str]:
    """Text of a run's first training rows in lines of 200 characters, longer only where a word is; empty where the rows
    are gone. Rows cut words, which are whole again in rows that follow each other.
    """
    try:
        store = Store.open(str(RunFolder(run_and_step(run)[0]).environment().get("data_folder")))
        ids = store.rows("train").ravel()[:_TOKENS].tolist()
    except ElectraError:
        return []
    return textwrap.wrap(store.tokenizer().decode(ids), 200, break_long_words=False, break_on_hyphens=False)


@torch.no_grad()
def check_agreement(
    folder: Path, network: nn.Module, tokenizer: Tokenizer, own: Sequence[str] = (), *, length: int = 64
) -> float:
    """Compare an exported folder, as `transformers` loads it, with the run's own network and tokenizer.

    Args:
        folder: one network's folder.
        network: the run's network that it was written from, on the CPU.
        tokenizer: the run's.
        own: lines of the run's text, whose ids are compared too.
        length: ids in each of the two rows of text whose logits are compared, but at least two windows of attention, or
            as many as the network has positions.

    Returns:
        The largest absolute difference of `outputs`, computed in fp32 from the weights as they are stored: the run's,
        rounded to that type.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: a text has other ids there, or outputs differ by more than `BOUND`.
    """
    need("Comparing", ["transformers"], extra="hub")
    import transformers

    transformers.utils.logging.set_verbosity_error()  # a text may be longer than a row
    texts = some_lines(own)
    mine = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]
    for text, ours, other in zip(texts, mine, theirs, strict=True):
        if ours != other:
            raise CheckpointError(f"{folder}: {text[:60]!r} has other ids in transformers. Please report it.")
    table = read_table(folder / "config.json")
    rows = text_rows(tokenizer, table, length=max(length, 2 * table.get("local_attention", 0)))
    segments = {} if table["model_type"] == as_modern.TYPE else {"token_type_ids": torch.zeros_like(rows)}
    found = transformers_network(folder, table)(input_ids=rows, **segments)
    expected = found.logits if outputs(table) == "logits" else found.last_hidden_state
    if as_modern.has_our_labels(table):
        expected = expected[..., 1] - expected[..., 0]
    difference = float((own_outputs(network, folder, encode_rows(rows)) - expected).abs().max())
    if not difference <= BOUND:
        raise CheckpointError(
            f"{folder}: {outputs(table)} differ from transformers' by {difference:.1e}. Please report it."
        )
    return difference


def outputs(network: Path | Mapping[str, Any]) -> str:
    """Kind of the outputs that are compared of an exported folder, or of the network of that config.json: logits, or
    hidden states where there is no head.
    """
    table = read_table(network / "config.json") if isinstance(network, Path) else network
    return "hidden states" if table["architectures"] == ["BertModel"] else "logits"


def text_rows(tokenizer: Tokenizer, table: Mapping[str, Any], *, length: int) -> Tensor:
    """Ids of some text, int64 [2, `length`], or as many a row as the network of that config.json has positions."""
    flat = list(chain.from_iterable(encoding.ids for encoding in tokenizer.encode_batch(some_lines())))
    length = min(length, len(flat) // _ROWS, table["max_position_embeddings"])
    return torch.tensor(flat[: _ROWS * length]).view(_ROWS, length)


@torch.no_grad()
def own_outputs(network: nn.Module, folder: Path, batch: Batch, *, of: str | None = None) -> Tensor:
    """Outputs of the run's network with its weights as they are stored: logits [B, T], or [B, T, V] of a word
    predictor; or hidden states [B, T, D], see `outputs`.

    Args:
        network: on the CPU.
        folder: the folder that it is exported to.
        batch: the rows.
        of: `logits` or `last_hidden_state`; None: what `outputs` says.
    """
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        dtype = file.get_tensor(next(iter(file.keys()))).dtype
    mine, ids_BT = _as_stored(network, dtype), batch.ids_BT
    if of == "last_hidden_state":
        states_BTD: Tensor = mine.electra(ids_BT, batch)  # type: ignore[operator]
        return states_BTD
    if isinstance(mine, TokenPredictor):
        logits_KV: Tensor = mine(ids_BT, batch, torch.arange(ids_BT.numel()))
        return logits_KV.view(*ids_BT.shape, -1)
    assert isinstance(mine, Discriminator)
    found: Tensor = mine(ids_BT, batch) if outputs(folder) == "logits" else mine.electra(ids_BT, batch)
    return found


def transformers_network(folder: Path, table: Mapping[str, Any]) -> Any:
    """The network of an exported folder with that config.json, as transformers loads it, in fp32 and evaluation
    mode.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    without = {} if outputs(table) == "logits" else {"add_pooling_layer": False}
    return getattr(transformers, table["architectures"][0]).from_pretrained(folder, **without).float().eval()


def _as_stored(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The network with its weights rounded to the type that they are stored in, computing in fp32.

    A file has one table where the network computes it from several parameters, a `SharedTable` or the modern block's
    words and projection, and that table is what is rounded.
    """
    if dtype == torch.float32:
        return network.eval()
    tensors, shape = network.state_dict(), network.electra.encoder.model  # type: ignore[union-attr]
    assert isinstance(shape, Model)
    if shape.block == "modern":
        tensors = as_modern.folded(tensors, prefix="electra.")
        shape = replace(shape, embedding_size=shape.hidden_size)
    mine = type(network)(shape)
    mine.load_state_dict({name: tensor.to(dtype).float() for name, tensor in tensors.items()})
    return mine.eval()
