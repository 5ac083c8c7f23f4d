"""Prepared rows into a step that does nothing, on one core: `python -m benchmarks.data_path [DATA] [--batch 128] [--json]`.

Tokens a second of what `Feed.lanes` does for each training step (pick rows, make a batch, mask), and of its parts; medians of
rounds that take all parts in turn. Without DATA, rows of 128 are packed from made-up documents. Also: the longest wait at the
beginning of an epoch, which is that of a permutation of so many rows, and its memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.data.batches import batch_rows
from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.pack import Packer
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials
from electra_trainer.presets.models import small
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.train.step import Feed

ROUNDS, STEPS = 7, 100
MANY_ROWS = 10_000_000
SPECIALS = Specials(pad=0, unk=1, cls=2, sep=3, mask=4)


def made_up_feed(folder: Path, *, batch: int, documents: int = 4000) -> Feed:
    """Rows of 128 on disk, packed from documents of one to a thousand tokens in lines of twenty-five."""
    draw = np.random.default_rng(0)
    packer = Packer(sequence_length=128, specials=SPECIALS, seed=1)
    for index in range(documents):
        lines = np.full(int(draw.integers(1, 41)), 25, dtype=np.uint32)
        packer.add(index, draw.integers(5, 30_000, int(lines.sum())).astype(np.uint32), lines)
    packed = packer.finish()
    path = folder / "rows.bin"
    path.write_bytes(packed.tobytes())
    rows: NDArray[np.integer] = np.memmap(path, dtype="<u2", mode="r", shape=packed.shape)
    config = settings(batch, vocab_size=30_522, length=128)
    never = (SPECIALS.pad, SPECIALS.cls, SPECIALS.sep, SPECIALS.mask)
    mask = MaskTokens(masking=config.masking, vocab_size=30_522, mask_id=SPECIALS.mask, never=never)
    return Feed(
        config=config, rows=rows, valid=rows, mask=mask, pad=SPECIALS.pad, cls=SPECIALS.cls, sep=SPECIALS.sep,
        device=torch.device("cpu"), precision="fp32",
    )  # fmt: skip


def settings(batch: int, *, vocab_size: int, length: int) -> Config:
    """ELECTRA-Small's, for these rows."""
    config = small()
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=vocab_size),
        batch=dataclasses.replace(config.batch, size=batch, sequence_length=length),
    )


def tokens_per_second(feed: Feed, *, rounds: int = ROUNDS, steps: int = STEPS) -> dict[str, float]:
    """Of the whole and of its parts, in processor time, which other work on the machine disturbs least."""
    config, count = feed.config, len(feed.rows)

    def rows(step: int) -> NDArray[np.integer]:
        return feed.rows[batch_rows(step, rows=count, size=config.batch.size, seed=config.seed)]

    ready = rows(0)
    batch = feed.batch(ready)
    parts: dict[str, Callable[[int], object]] = {
        "whole": feed.lanes,
        "rows": rows,
        "batch": lambda step: feed.batch(ready),
        "masks": lambda step: feed.mask(batch, Rng(config.seed, step, 0)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(rounds + 1):
        for name, part in parts.items():
            start = time.process_time()
            for step in range(turn * steps, (turn + 1) * steps):
                part(step)
            if turn:  # the first is for warming up
                seconds[name].append(time.process_time() - start)
    tokens = steps * config.batch.size * config.batch.sequence_length
    return {name: tokens / statistics.median(found) for name, found in seconds.items()}


def epoch_seconds(rows: int) -> float:
    """What the first step of an epoch of so many rows waits for."""
    start = time.perf_counter()
    batch_rows(0, rows=rows, size=128, seed=12_345)
    return time.perf_counter() - start


def main() -> None:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.data is None:
            feed = made_up_feed(Path(folder), batch=arguments.batch)
        else:
            store = Store.open(arguments.data)
            config = settings(arguments.batch, vocab_size=store.vocab_size, length=store.sequence_length)
            feed = Feed.of(config, store, device=torch.device("cpu"), precision="fp32")
        found = tokens_per_second(feed)
    wait = epoch_seconds(MANY_ROWS)
    if arguments.json:
        print(json.dumps({"tokens_per_second": found, "epoch": {"rows": MANY_ROWS, "seconds": wait}}))
        return
    for name, rate in found.items():
        print(f"{name:6} {rate / 1e6:8.1f} Mtokens/s")
    print(f"an epoch of {MANY_ROWS:,} rows begins after {wait:.2f} s and keeps {4 * MANY_ROWS / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
