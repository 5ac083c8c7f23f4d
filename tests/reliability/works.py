"""Pieces of work that make an output, each in two forms with different results, for tests that kill, repeat or pair them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.prepared import small_config, write_store, write_text

from electra_trainer import api
from electra_trainer.cli import main as cli
from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import merge, prepare
from electra_trainer.data.tokenizer import load_tokenizer
from electra_trainer.errors import ConfigError, ElectraError
from electra_trainer.train.loop import pretrain

Work = Callable[[Path], object]
"""Makes or completes the output that it is given."""
KINDS = (
    "tokenizer", "prepare", "a shard", "merge", "export", "pretrain", "prepare or pretrain", "pretrain or prepare", "tokenizer or export",
)  # fmt: skip
LONGER = ("finetune", "compare")


def works(folder: Path) -> dict[str, tuple[Work, Work]]:
    """The two forms by kind: each of KINDS, and `prepare` over other rows."""
    data, texts = write_store(folder / "data"), [folder / "one.txt", folder / "two.txt"]
    whole = write_text(folder / "whole.txt", documents=16).read_text().split("\n\n")
    for file, documents in zip(texts, (whole[:8], whole[8:]), strict=True):
        file.write_text("\n\n".join(document[:240] for document in documents))
    tokenizer = load_tokenizer(data / "tokenizer")
    run = pretrain(small_config(steps=3, layers=1), data, out=folder / "run", device="cpu", quiet=True)

    def prepared(out: Path, *, seed: int, **more: Any) -> object:
        settings = PrepareSettings(valid_fraction=0.3, workers=1, seed=seed)
        return prepare(texts, tokenizer=tokenizer, sequence_length=16, out=out, settings=settings, **more)

    def trained(out: Path, *, steps: int) -> object:
        return pretrain(small_config(steps=steps, layers=1), data, out=out, device="cpu", quiet=True)

    def learned(out: Path, **more: Any) -> object:
        return api.train_tokenizer(texts, out=out, **more)

    for seed in (1, 2):
        for number in (1, 2):
            prepared(folder / f"shards-{seed}", seed=seed, shard=(number, 2))
    made: dict[str, tuple[Work, Work]] = {
        "tokenizer": (partial(learned, vocab_size=300), partial(learned, vocab_size=256, cased=True)),
        "prepare": (partial(prepared, seed=1), partial(prepared, seed=2)),
        "a shard": (partial(prepared, seed=1, shard=(1, 2)), partial(prepared, seed=2, shard=(1, 2))),
        "merge": (lambda out: merge(folder / "shards-1", out=out), lambda out: merge(folder / "shards-2", out=out)),
        "export": (partial(api.export, run), partial(api.export, run, dtype="float16")),
        "pretrain": (partial(trained, steps=3), partial(trained, steps=4)),
    }
    mixed = (("prepare", "pretrain"), ("pretrain", "prepare"), ("tokenizer", "export"))
    return made | {f"{one} or {other}": (made[one][0], made[other][0]) for one, other in mixed}


def typed(words: str) -> Work:
    """A command that ends with --out."""

    def work(out: Path) -> None:
        if code := cli.main([*words.split(), "--out", str(out)]):
            raise (ConfigError if code == ConfigError.exit_code else ElectraError)("see above")

    return work


def longer_works(folder: Path) -> dict[str, tuple[Work, Work]]:
    """The two forms by kind, each of LONGER."""
    data = write_store(folder / "data")
    write_encoder(folder / "encoder")
    for name, table in (("train", rows(40)), ("dev", rows(50)[40:])):
        write_csv(folder / f"{name}.csv", table)
    write_csv(folder / "new.csv", [(str(n), text) for n, (text, _) in enumerate(rows(60)[50:])], ("id", "text"))
    tuning = f"finetune {folder}/encoder --train {folder}/train.csv --dev {folder}/dev.csv --predict {folder}/new.csv"
    tuning += " --seeds 1 --parallel 1 --device cpu --epochs"

    def compared(out: Path, *, steps: int) -> object:
        settings: Any = {"arms": ["electra"], "preset": small_config(layers=1), "seeds": 1, "device": "cpu"}
        return api.compare(data, out=out, steps=steps, quiet=True, **settings)

    return {
        "finetune": (typed(f"{tuning} 1"), typed(f"{tuning} 2")),
        "compare": (partial(compared, steps=6), partial(compared, steps=8)),
    }
