"""Do `transformers` and a run agree: ids of text by the exported tokenizer, and logits by the exported network, against the run's own."""

import copy
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

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


def some_lines(count: int = 1000) -> list[str]:
    """Text that every Python has: lines of its language reference, and some that tokenizers stumble over."""
    from pydoc_data.topics import topics

    lines = (line for name in sorted(topics) for line in topics[name].splitlines() if line.strip())
    return [*_HARD, *islice(lines, count - len(_HARD))]


def check_agreement(
    folder: Path, network: nn.Module, tokenizer: Tokenizer, *, texts: Sequence[str] | None = None, length: int = 64
) -> float:
    """Compare an exported folder, as `transformers` loads it, with the run's own network and tokenizer.

    Args:
        folder: one network's folder.
        network: the run's network that it was written from, on the CPU.
        tokenizer: the run's.
        texts: what is tokenized; the first ids make two rows whose logits are compared. None: a thousand lines.
        length: ids in a row, or as many as the network has positions.

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
    texts = some_lines() if texts is None else texts
    mine = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    for text, ours, theirs in zip(
        texts, mine, transformers.AutoTokenizer.from_pretrained(folder)(list(texts))["input_ids"], strict=True
    ):
        if ours != theirs:
            raise CheckpointError(f"{folder}: {text[:60]!r} has other ids in transformers. Please report it.")
    flat = list(chain.from_iterable(mine))
    length = min(length, len(flat) // _ROWS, read_table(folder / "config.json")["max_position_embeddings"])
    difference = _difference(folder, network, [flat[row * length : (row + 1) * length] for row in range(_ROWS)])
    if not difference <= BOUND:
        raise CheckpointError(f"{folder}: logits differ from transformers' by {difference:.1e}. Please report it.")
    return difference


@torch.no_grad()
def _difference(folder: Path, network: nn.Module, rows: list[list[int]]) -> float:
    """Largest absolute difference of logits on rows of equal length."""
    import transformers

    table = read_table(folder / "config.json")
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
