"""1, 2 and 4 processes are one run: the same bits with `deterministic`, the same to rounding without; nobody hangs on another's error."""

import dataclasses
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from tests import small
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.moments import just_before
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve, digest

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.objectives import build
from electra_trainer.ranks.world import World, any_rank, gathered, joined, led
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config
from electra_trainer.train.loop import pretrain
from electra_trainer.train.step import evaluate

CPU = torch.device("cpu")
DEFAULT_SIZES = (1, 2, 4) if LONG else (1, 2)
THREADS = {"MainThread", "electra-save", "electra-watch"}


def config(*, deterministic: bool, steps: int = 6) -> Config:
    made = small_config(steps=steps, lanes=4, layers=LAYERS)
    return dataclasses.replace(
        made, deterministic=deterministic, evaluation=dataclasses.replace(made.evaluation, rows=200)
    )


def train(size: int, settings: Config, data: Path, out: Path, *, stopped_in: int | None = None) -> None:
    """To the end; or the last rank gets a signal in a step of this session, counted from 1."""

    def work(rank: int) -> None:
        if stopped_in is not None and rank == size - 1:
            just_before("data", stopped_in, lambda: os.kill(os.getpid(), signal.SIGTERM))
        just_before("step", 2, lambda: note_what_runs(out))
        pretrain(settings, data, out=out, device="cpu", quiet=True)

    assert run_ranks(size, work) == [0 if stopped_in is None else 75] * size


def note_what_runs(out: Path) -> None:
    children = [c for path in Path("/proc/self/task").glob("*/children") for c in path.read_text().split()]
    facts = {"threads": sorted({thread.name for thread in threading.enumerate()}), "children": children}
    (out / f".what-runs-{os.environ['RANK']}").write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    for deterministic, sizes in ((True, (1, 2, 4)), (False, DEFAULT_SIZES)):
        for size in sizes:
            train(size, config(deterministic=deterministic), data, folder / f"{size}-{deterministic}")
    return folder


def test_the_same_bits(runs: Path) -> None:
    digests = {size: digest(runs / f"{size}-True") for size in (1, 2, 4)}
    assert len(set(digests.values())) == 1, digests
    for size in (2, 4):
        assert curve(runs / f"{size}-True") == curve(runs / "1-True")
        assert (runs / f"{size}-True" / "examples.jsonl").read_bytes() == (
            runs / "1-True" / "examples.jsonl"
        ).read_bytes()


@pytest.mark.parametrize("every", [1, 100])
def test_a_run_may_change_its_processes(runs: Path, data: Path, tmp_path: Path, every: int) -> None:
    """1 -> 2 -> 4 -> 1 processes, saved beside each step or when a signal stops it; no process or thread loads rows."""
    settings, out = config(deterministic=True), tmp_path / "run"
    chain = dataclasses.replace(settings, checkpoint=dataclasses.replace(settings.checkpoint, every=every))
    for size, stopped_in in ((1, 2), (2, 1), (4, 1), (1, None)):
        train(size, chain, data, out, stopped_in=stopped_in)
    notes = [json.loads(path.read_text()) for path in out.glob(".what-runs-*")]
    children = sum(len(note["children"]) for note in notes)
    assert notes and not children and all(set(note["threads"]) <= THREADS for note in notes)
    control = len({digest(runs / f"{size}-False") for size in DEFAULT_SIZES})
    report("worlds", chain="1 -> 2 -> 4 -> 1", every=every, loader_processes=children, control_default_digests=control)
    assert digest(out) == digest(runs / "1-True") and curve(out) == curve(runs / "1-True") and control > 1


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Norm of the difference of all weights, relative to their norm."""
    mine, theirs = (torch.cat([weights[name].flatten() for name in sorted(one)]) for weights in (one, other))
    return float((mine - theirs).norm() / mine.norm())


def test_the_same_to_rounding_without(runs: Path) -> None:
    digests = {digest(runs / f"{size}-False") for size in DEFAULT_SIZES}
    assert len(digests) > 1, "the control: without the tree the order of sums shows"
    one, *others = (read(numbered(runs / f"{size}-False" / "checkpoints")[-1][1]).weights for size in DEFAULT_SIZES)
    largest = max(apart(one, other) for other in others)
    assert 0 < largest < 1e-6
    same = {digest(runs / f"{size}-True") for size in (1, 2, 4)}
    report(
        "ranks",
        deterministic_digests=len(same),
        default_relative_difference=largest,
        control_default_digests=len(digests),
    )


def test_the_primitives() -> None:
    def work(rank: int) -> None:
        with joined(lambda: CPU) as (here, _):
            assert here == World(rank, 3)
            assert gathered(b"x" * rank) == [b"", b"x", b"xx"]
            assert led(lambda: f"from {here.rank}".encode()) == b"from 0"
            assert any_rank(rank == 1) and not any_rank(False)

            def fail() -> bytes:
                raise DataError("line 3")

            with pytest.raises(DataError, match="line 3") as caught:
                led(fail)
            assert caught.value.reported == (rank > 0)

    assert run_ranks(3, work) == [0, 0, 0]


def test_an_error_of_one_ends_all(data: Path, tmp_path: Path) -> None:
    """The folder belongs to another run: only rank 0 sees that, and all end at once with its exit code."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    began = time.monotonic()
    codes = run_ranks(
        2, lambda rank: pretrain(config(deterministic=False), data, out=tmp_path / "run", quiet=True) and None
    )
    assert codes == [78, 78]
    assert time.monotonic() - began < 20


def test_what_cannot_be_a_tree_is_refused(data: Path, tmp_path: Path) -> None:
    settings = config(deterministic=True)
    codes = run_ranks(3, lambda rank: pretrain(settings, data, out=tmp_path / "run", device="cpu", quiet=True) and None)
    assert codes == [78] * 3
    with pytest.raises(ConfigError, match="power of two with --deterministic"):
        dataclasses.replace(settings, batch=dataclasses.replace(settings.batch, size=9, lanes=3))


def test_more_ranks_have_rows_than_chunks(data: Path, tmp_path: Path) -> None:
    """Held-out rows of one chunk on two ranks: one of them has none, and both know the metrics."""
    made = config(deterministic=False)
    few = dataclasses.replace(made, evaluation=dataclasses.replace(made.evaluation, rows=8))
    train(2, few, data, tmp_path / "two")
    train(1, few, data, tmp_path / "one")
    (one,), (two,) = ([r for r in curve(tmp_path / n) if r.get("split")][-1:] for n in ("one", "two"))
    assert one.keys() == two.keys()
    assert one["generator_loss"] == pytest.approx(two["generator_loss"], rel=1e-4)


def test_each_held_out_row_is_counted_once(tmp_path: Path) -> None:
    """150 rows are three chunks: two for one rank, one for the other, or one for each of three; all 200 have standard fakes."""
    settings = small.config()
    given = small.feed(settings, valid=200)
    expected, alone = given.valid[:150].tolist(), evaluate(build(settings), given, limit=150)

    def work(rank: int) -> None:
        with joined(lambda: CPU):
            objective, seen = build(settings), list[list[int]]()
            objective.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs[0].batch.ids_BT.tolist()))
            judged = list[list[int]]()
            (kept,) = (one.network for one in objective.exported() if one.name == "discriminator")
            kept.register_forward_pre_hook(lambda _, inputs: judged.extend(inputs[1].ids_BT.tolist()))
            found = evaluate(objective, given, limit=150)
            (tmp_path / f"{rank}.json").write_text(json.dumps([seen, judged[len(seen) :], found]))

    for size in (2, 3):
        assert run_ranks(size, work) == [0] * size
        parts = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
        assert [row for seen, _, _ in parts for row in seen] == expected
        assert [row for _, judged, _ in parts for row in judged] == given.valid.tolist()
        assert all(found == alone for _, _, found in parts)
