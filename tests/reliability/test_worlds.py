"""1 -> 2 -> 4 -> 1 processes with the published vocabulary and a prime one, which nothing divides.

The short form saves beside each step with the prime vocabulary alone, the long form with both. The long form also has runs of one size
each, which test_ranks.py has with a small vocabulary.
There are no loader processes to vary: rows are read from a memory map, batches and masks are made in the step. This is looked at too.
"""

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from tests.prepared import LENGTH, small_config, write_text
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.moments import just_before
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve, digest

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.tokenizer import word_piece
from electra_trainer.errors import Interrupted
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config
from electra_trainer.train.loop import pretrain

PUBLISHED, PRIME = 30522, 997
STEPS = 5
THREADS = {"MainThread", "electra-save", "electra-watch"}
SIZES = (1, 2, 4) if LONG else (1,)


@pytest.fixture(scope="module", params=[PUBLISHED, PRIME])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small vocabulary, filled up with words that no text has."""
    folder = tmp_path_factory.mktemp("worlds")
    text = write_text(folder / "text.txt", documents=30 if LONG else 15)
    trained, _ = train_tokenizer_from([text], vocab_size=900)
    words = trained.get_vocab()
    full = word_piece(
        {**words, **{f"unused{at}": at for at in range(len(words), request.param)}}, cased=False, keep_accents=None
    )
    settings = PrepareSettings(valid_fraction=0.1, workers=1)
    prepare([text], tokenizer=full, sequence_length=LENGTH, out=folder / "data", settings=settings)
    return folder / "data"


def config(*, deterministic: bool = True, every: int = 100) -> Config:
    made = small_config(steps=STEPS, lanes=4, layers=LAYERS)
    return dataclasses.replace(
        made, deterministic=deterministic, checkpoint=dataclasses.replace(made.checkpoint, every=every)
    )


def train(size: int, settings: Config, data: Path, out: Path, *, stopped_in: int | None = None) -> None:
    """To the end; or the last rank gets the signal in a step of this session, counted from 1."""

    def work(rank: int) -> int:
        if stopped_in is not None and rank == size - 1:
            just_before("data", stopped_in, lambda: os.kill(os.getpid(), signal.SIGTERM))
        just_before("step", 2, lambda: note_what_runs(out))
        try:
            pretrain(settings, data, out=out, device="cpu", quiet=True)
        except Interrupted:
            return Interrupted.exit_code
        return 0

    assert run_ranks(size, work) == [0 if stopped_in is None else 75] * size


def note_what_runs(out: Path) -> None:
    children = [c for path in Path("/proc/self/task").glob("*/children") for c in path.read_text().split()]
    facts = {"threads": sorted({thread.name for thread in threading.enumerate()}), "children": children}
    (out / f".what-runs-{os.environ['RANK']}").write_text(json.dumps(facts))


def weights(run: Path) -> torch.Tensor:
    saved = read(numbered(run / "checkpoints")[-1][1]).weights
    return torch.cat([saved[name].flatten() for name in sorted(saved)]).double()


def test_any_vocabulary(data: Path, tmp_path: Path) -> None:
    for size in SIZES:
        train(size, config(), data, tmp_path / f"{size}")
    if LONG:
        train(1, config(every=1), data, tmp_path / "saves")
    vocabulary = json.loads((tmp_path / "1" / "config.json").read_text())["model"]["vocab_size"]
    assert vocabulary in (PUBLISHED, PRIME)
    chain = config(every=100 if LONG or vocabulary == PUBLISHED else 1)
    for size, stopped_in in ((1, 2), (2, 1), (4, 1), (1, None)):
        train(size, chain, data, tmp_path / "chain", stopped_in=stopped_in)
    runs = [*(f"{size}" for size in SIZES), *["saves"] * LONG, "chain"]
    digests = len({digest(tmp_path / run) for run in runs})
    assert digests == 1
    assert all(curve(tmp_path / run) == curve(tmp_path / "1") for run in runs)
    notes = [json.loads(path.read_text()) for path in tmp_path.glob("*/.what-runs-*")]
    assert notes and all(set(note["threads"]) <= THREADS and not note["children"] for note in notes)
    figures = {"steps": STEPS, "runs": len(runs), "chain": "1 -> 2 -> 4 -> 1", "digests": digests}
    figures["loader_processes"] = sum(len(note["children"]) for note in notes)
    if LONG:
        figures |= without_the_tree(data, tmp_path)
    report("worlds", vocabulary=vocabulary, **figures)


def without_the_tree(data: Path, folder: Path) -> dict[str, float]:
    """The control: the order of sums shows, in the last bits."""
    for size in SIZES:
        train(size, config(deterministic=False), data, folder / f"{size}-default")
    default = [weights(folder / f"{size}-default") for size in SIZES]
    apart = max(float((default[0] - other).norm() / default[0].norm()) for other in default[1:])
    control = len({digest(folder / f"{size}-default") for size in SIZES})
    assert control > 1 and apart < 1e-6
    return {"default_relative_difference": apart, "control_default_digests": control}
