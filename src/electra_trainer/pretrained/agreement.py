"""Do `transformers` and a run agree: ids of text by the exported tokenizer, and logits by the exported network, against the run's own."""

import copy
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.settings.records import read_table

BOUND = 1e-4
"""Largest difference of logits that an export may have. 1e-5 is usual: sums of fp32 in another order."""
_ROWS = 2
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


def _some_lines() -> list[str]:
    """Text that every Python has: lines of its language reference, and some that tokenizers stumble over."""
    from pydoc_data.topics import topics

    lines = (line for name in sorted(topics) for line in topics[name].splitlines() if line.strip())
    return [*_HARD, *islice(lines, LINES - len(_HARD))]


def check_agreement(folder: Path, network: nn.Module, tokenizer: Tokenizer, *, length: int = 64) -> float:
    """Compare an exported folder, as `transformers` loads it, with the run's own network and tokenizer.

    Args:
        folder: one network's folder.
        network: the run's network that it was written from, on the CPU.
        tokenizer: the run's.
        length: ids in each of the two rows of text whose logits are compared, or as many as the network has positions.

    Returns:
        The largest absolute difference of logits, computed in fp32 from the weights as they are stored: the run's, rounded to that type.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: a text has other ids there, or logits differ by more than `BOUND`.
    """
    try:
        import transformers
    except ImportError:
        raise ConfigError('transformers is not installed. Type: pip install "electra-trainer[hub]"') from None
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # a text may be longer than a row
    texts = _some_lines()
    mine = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]
    for text, ours, other in zip(texts, mine, theirs, strict=True):
        if ours != other:
            raise CheckpointError(f"{folder}: {text[:60]!r} has other ids in transformers. Please report it.")
    flat, table = list(chain.from_iterable(mine)), read_table(folder / "config.json")
    length = min(length, len(flat) // _ROWS, table["max_position_embeddings"])
    rows = [flat[row * length : (row + 1) * length] for row in range(_ROWS)]
    difference = _difference(folder, network, table, rows)
    if not difference <= BOUND:
        raise CheckpointError(f"{folder}: logits differ from transformers' by {difference:.1e}. Please report it.")
    return difference


@torch.no_grad()
def _difference(folder: Path, network: nn.Module, table: Mapping[str, Any], rows: list[list[int]]) -> float:
    """Largest absolute difference of logits on rows of equal length.

    Args:
        table: config.json of the folder.
    """
    import transformers

    theirs = getattr(transformers, table["architectures"][0]).from_pretrained(folder).float().eval()
    mine = _as_stored(network, getattr(torch, table["dtype"]))
    batch = encode_rows(rows)
    expected = theirs(input_ids=batch.ids_BT, token_type_ids=batch.segment_BT).logits
    if isinstance(mine, TokenPredictor):
        found = mine(batch.ids_BT, batch, torch.arange(batch.ids_BT.numel())).view(expected.shape)
    else:
        assert isinstance(mine, Discriminator)
        found = mine(batch.ids_BT, batch)
    return float((found - expected).abs().max())


def _as_stored(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The network with its weights rounded to the type that they are stored in, computing in fp32."""
    if dtype == torch.float32:
        return network.eval()
    return copy.deepcopy(network).to(dtype).float().eval()
