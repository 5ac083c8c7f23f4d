"""`--shard`: each process keeps a part of weights and moments; the run, its checkpoints and its errors stay those of whole ones."""

import dataclasses
import importlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.methods.every import METHODS
from tests.prepared import small_config, write_store
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve, digest

from electra_trainer.errors import ConfigError
from electra_trainer.objectives import build
from electra_trainer.ranks import sharding
from electra_trainer.ranks.world import World, joined
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import Saved, read
from electra_trainer.settings.config import Checkpoint, Config, Evaluation, Schedule
from electra_trainer.settings.methods import TwoStage
from electra_trainer.train import loop, resumable, step
from electra_trainer.train.loop import pretrain
from electra_trainer.train.optim import optimizer_tensors
from electra_trainer.train.weights import stored

CPU = torch.device("cpu")
WORLDS = (2, 4)
STEPS = 8 if LONG else 6


def config(**changes: Any) -> Config:
    """Three chunks of held-out rows, so that of 2 and of 4 ranks some have fewer than others; 4 lanes; saved at the end alone."""
    made = small_config(steps=STEPS, lanes=4, layers=LAYERS)
    ends = {"evaluation": Evaluation(every=STEPS, rows=150), "checkpoint": Checkpoint(every=STEPS)}
    return dataclasses.replace(made, **{**ends, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # FSDP asks for it at its first step: once here, before processes are forked, and in no process that only collects this test
    importlib.import_module("torch._dynamo")
    return write_store(tmp_path_factory.mktemp("sharding") / "data")


def train(size: int, settings: Config, data: Path, out: Path, *, shard: bool, code: int = 0) -> None:
    """A session of `size` processes that is to end with `code`."""

    def work(_: int) -> None:
        pretrain(settings, data, out=out, device="cpu", shard=shard, quiet=True)

    assert run_ranks(size, work) == [code] * size


def last(run: Path) -> Saved:
    return read(numbered(run / "checkpoints")[-1][1])


def apart(one: Path, other: Path) -> float:
    """The larger of the distances of weights and of moments, relative to their norm."""
    mine, theirs = last(one), last(other)
    assert mine.step == theirs.step
    return max(_distance(mine.weights, theirs.weights), _distance(mine.optimizer, theirs.optimizer))


def _distance(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert sorted(mine) == sorted(theirs)  # what is tied is named once, as in a whole network
    names = [name for name in mine if not name.endswith("/step")]
    one, other = (torch.cat([tensors[name].flatten() for name in names]) for tensors in (mine, theirs))
    return float((one - other).norm() / one.norm())


def norms_apart(one: Path, other: Path) -> float:
    """The largest relative difference of a gradient norm in the steps of `one`; Adam and clipping would hide it in the weights."""
    mine, theirs = (
        {row["step"]: row["gradient_norm"] for row in curve(run) if "gradient_norm" in row} for run in (one, other)
    )
    return max(abs(norm - theirs[step]) / norm for step, norm in mine.items())


def seen(run: Path) -> list[Any]:
    """Held-out rows as the networks saw them: words, masks, samples."""
    lines = [json.loads(line) for line in (run / "examples.jsonl").read_text().splitlines()]
    return [[row[name] for row in line["rows"] for name in ("original", "input", "masked")] for line in lines]


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The run of 1 and of 2 processes, each with all weights."""
    folder = tmp_path_factory.mktemp("whole")
    for size in (1, 2):
        with noting_shares(folder / f"shares-{size}"):
            train(size, config(), data, folder / str(size), shard=False)
    return {size: folder / str(size) for size in (1, 2)}


@pytest.fixture(scope="module")
def parts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same, divided among them; each rank leaves what share of weights and moments it keeps."""
    folder = tmp_path_factory.mktemp("parts")
    for size in WORLDS:
        with noting_shares(folder / f"shares-{size}"):
            train(size, config(), data, folder / str(size), shard=True)
    return {size: folder / str(size) for size in WORLDS}


def test_the_same_run(data: Path, whole: dict[int, Path], parts: dict[int, Path], tmp_path: Path) -> None:
    pairs = [(one, other) for one in whole.values() for other in parts.values()]
    weights, norms = max(apart(*pair) for pair in pairs), max(norms_apart(*pair) for pair in pairs)
    assert {len(curve(run)) for pair in pairs for run in pair} == {len(curve(whole[1]))}
    module = importlib.import_module("torch.distributed.fsdp").FSDPModule
    real = module.set_gradient_divide_factor
    with mock.patch.object(module, "set_gradient_divide_factor", lambda unit, _: real(unit, 2.0)):
        train(2, config(schedule=Schedule(steps=2, warmup_steps=2)), data, tmp_path / "mean", shard=True)
    control = norms_apart(tmp_path / "mean", whole[2])
    report(
        "sharded",
        worlds=list(WORLDS),
        steps=STEPS,
        relative_difference=weights,
        gradient_norms_apart=norms,
        control_averaged_gradient_norms_apart=control,
    )
    assert weights < 1e-6 and norms < 1e-5 < 0.1 < control
    for size in WORLDS:
        assert seen(parts[size]) == seen(whole[1])
        held_out = [[row for row in curve(run) if row.get("split")] for run in (parts[size], whole[1])]
        for mine, theirs in zip(*held_out, strict=True):
            words = [name for name, value in theirs.items() if isinstance(value, str)]
            assert [mine.pop(name) for name in words] == [theirs.pop(name) for name in words]
            assert mine == pytest.approx(theirs, rel=1e-4)


@contextmanager
def noting_shares(path: Path) -> Iterator[None]:
    """After training each rank appends the share of all bytes of weights and of moments that it holds."""
    real = loop.Pretraining.train

    def noted(run: loop.Pretraining, *arguments: Any) -> None:
        real(run, *arguments)
        tensors = {**stored(run.network), **optimizer_tensors(run.network, run.optimizer)}
        memory = [sharding.local(tensor).untyped_storage() for tensor in tensors.values()]
        held = sum({part.data_ptr(): part.nbytes() for part in memory}.values())  # what lies in one piece counts once
        with path.open("a") as file:
            file.write(f"{held / sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())}\n")

    with mock.patch.object(loop.Pretraining, "train", noted):
        yield


def shares(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()]


def test_a_rank_holds_its_part_alone(whole: dict[int, Path], parts: dict[int, Path]) -> None:
    largest = {size: max(shares(parts[size].parent / f"shares-{size}")) for size in WORLDS}
    control = min(shares(whole[2].parent / "shares-2"))
    report("sharded_memory", largest_share_of_a_rank=largest, control_not_sharded=control)
    for size, share in largest.items():
        assert 1 / size <= share < 1.1 / size
    assert control == pytest.approx(1.0)


@contextmanager
def at_step(number: int, act: Callable[[], None], *, rank: int) -> Iterator[None]:
    """Do something on one rank before step `number`, counted from 0."""
    real = loop.train_step

    def watched(*arguments: Any, **more: Any) -> Any:
        if more["step"] == number and os.environ["RANK"] == str(rank):
            act()
        return real(*arguments, **more)

    with mock.patch.object(loop, "train_step", watched):
        yield


def told_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_next_session_may_be_another(data: Path, whole: dict[int, Path], tmp_path: Path) -> None:
    """2 processes sharded, 1 alone, 2 sharded (and 4, and 2 that are not): one run, as if 1 had trained it all."""
    out, control = tmp_path / "run", tmp_path / "control"
    sessions = [(2, 2, True), (4, 1, False), *([(5, 4, True), (6, 2, False)] if LONG else [])]
    for until, size, shard in sessions:
        with at_step(until - 1, told_to_stop, rank=size - 1):
            train(size, config(), data, out, shard=shard, code=75)
        assert last(out).step in (until - 1, until)
        if not control.exists():
            shutil.copytree(out, control)
    train(2, config(), data, out, shard=True)
    with mock.patch.object(resumable, "load_optimizer_tensors", lambda *_: None):
        train(2, config(), data, control, shard=True)
    found, without_moments = apart(whole[1], out), apart(whole[1], control)
    report(
        "sharded_resume",
        sessions=len(sessions) + 1,
        relative_difference=found,
        control_without_moments_relative_difference=without_moments,
    )
    assert found < 1e-6 < 1e-3 < without_moments
    assert seen(out) == seen(whole[1])


def test_a_killed_rank(data: Path, whole: dict[int, Path], parts: dict[int, Path], tmp_path: Path) -> None:
    """SIGKILL to one of two: the other ends too, and the next session ends with the very bits of a run that nothing befell."""
    out, settings = tmp_path / "run", config(checkpoint=Checkpoint(every=4))

    def work(_: int) -> None:
        pretrain(settings, data, out=out, device="cpu", shard=True, quiet=True)

    kills = {1: 0, 3: 1, 5: 1, 7: 0} if LONG else {5: 1}
    for number, rank in kills.items():
        with at_step(number, lambda: os.kill(os.getpid(), signal.SIGKILL), rank=rank):
            codes = run_ranks(2, work)
        assert codes[rank] == -signal.SIGKILL and codes[1 - rank] != 0
    assert LONG or last(out).step == 4
    train(2, settings, data, out, shard=True)
    identical = digest(out) == digest(parts[2]) and curve(out) == curve(parts[2])
    control = digest(whole[2]) == digest(parts[2])
    report("sharded_kill", kills=len(kills), identical=int(identical), control_not_sharded_identical=int(control))
    assert identical and not control


def test_one_part_that_is_no_number(data: Path, tmp_path: Path) -> None:
    """One gradient of one rank's part is NaN before step 2: no rank moves, and all go on."""
    settings = config(
        schedule=Schedule(steps=4, warmup_steps=1),
        checkpoint=Checkpoint(every=1, keep=50),
        evaluation=Evaluation(rows=0),
    )
    out, real = tmp_path / "run", sharding.clip_gradients

    def poison(network: torch.nn.Module) -> None:
        grad = next(network.parameters()).grad
        assert grad is not None
        sharding.local(grad).view(-1)[0] = float("nan")

    def poisoned() -> None:
        step.clip_gradients = spoiled  # type: ignore[assignment]

    def spoiled(network: torch.nn.Module, limit: float) -> float:
        step.clip_gradients = real
        poison(network)
        return real(network, limit)

    with at_step(1, poisoned, rank=1):
        train(2, settings, data, out, shard=True)
    before, after, later = (read(out / "checkpoints" / f"step-{n:08d}") for n in (1, 2, 3))
    moved = [name for name in before.weights if not torch.equal(before.weights[name], after.weights[name])]
    moved += [name for name in before.optimizer if not torch.equal(before.optimizer[name], after.optimizer[name])]

    def alone(rank: int) -> int:
        """Control: the norm of the own part says yes on one rank and no on the other."""
        with joined(lambda: CPU):
            objective = build(settings)
            sharding.place(objective, CPU, precision="fp32", shard=True)
            for parameter in objective.parameters():
                parameter.grad = torch.ones_like(parameter)
            if rank == 1:
                poison(objective)
            with mock.patch.object(sharding.dist, "all_reduce", lambda _: None):
                own = real(objective, 1.0)
            return 1 if own == own else 2

    control = run_ranks(2, alone)
    report(
        "sharded_bad_step", tensors_moved=len(moved), control_ranks_without_the_sum_that_agree=int(control != [1, 2])
    )
    assert not moved and control == [1, 2]
    assert any(not torch.equal(after.weights[name], later.weights[name]) for name in after.weights)
    log = (out / "log.txt").read_text()
    assert log.count("the step was skipped") == 1 and "step 2: the gradient is not a finite number" in log


@pytest.fixture(scope="module")
def methods(data: Path, whole: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, float]]:
    """How far each is from not being divided: one line for all, at the end. The control is another seed."""
    found: dict[str, float] = {}
    yield found
    if not LONG:  # the control is another run; test_the_next_session_may_be_another has one for the same measure
        return
    other = tmp_path_factory.mktemp("methods") / "other"
    train(1, config(seed=config().seed + 1), data, other, shard=False)
    control = apart(whole[1], other)
    report(
        "sharded_methods",
        methods=sorted(found),
        largest_relative_difference=max(found.values(), default=0.0),
        control_of_another_seed=control,
    )
    assert control > 0.1


@pytest.mark.parametrize("method", [name for name in METHODS if LONG or name == "sharing all"])
def test_every_method(data: Path, tmp_path: Path, methods: dict[str, float], method: str) -> None:
    """What the networks share stays shared, whatever it is; two-stage training is refused."""
    settings = METHODS[method](config())
    if isinstance(settings.phases, TwoStage):
        train(2, settings, data, tmp_path / "run", shard=True, code=78)
        return
    for name, shard in (("whole", False), ("parts", True)):
        train(2, settings, data, tmp_path / name, shard=shard)
    found = apart(tmp_path / "whole", tmp_path / "parts")
    assert found < 2e-6
    methods[method] = found


@pytest.mark.skipif(not LONG, reason="the long form")
def test_in_bf16(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast rounds what was put together as it rounds a whole weight."""
    monkeypatch.setenv("ELECTRA_NATIVE", "off")  # the kernels take whole weights alone
    settings = config(
        precision="bf16", schedule=Schedule(steps=3, warmup_steps=3)
    )  # later a rounding may choose another word
    for name, shard in (("whole", False), ("parts", True)):
        train(2, settings, data, tmp_path / name, shard=shard)
    train(2, dataclasses.replace(settings, precision="fp32"), data, tmp_path / "fp32", shard=False)
    found, control = (apart(tmp_path / "whole", tmp_path / name) for name in ("parts", "fp32"))
    report("sharded_bf16", steps=3, relative_difference=found, control_fp32_relative_difference=control)
    assert found < 1e-6 < 1e-4 < control


def test_what_cannot_be_combined_is_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config()
    refused = {
        "--deterministic": dataclasses.replace(made, deterministic=True),
        "'lamb'": dataclasses.replace(made, optimizer=dataclasses.replace(made.optimizer, name="lamb")),
        "'muon'": dataclasses.replace(made, optimizer=dataclasses.replace(made.optimizer, name="muon")),
        "two-stage": dataclasses.replace(made, phases=TwoStage(start="fresh"), sharing="none"),
    }
    for what, settings in refused.items():
        with pytest.raises(ConfigError, match=f"--shard with .*{what}.* or leave|--shard with .*{what}.*Leave one"):
            pretrain(settings, data, out=tmp_path / "run", device="cpu", shard=True)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(sharding, "world", lambda: World(0, 3))
    with pytest.raises(
        ConfigError, match=r"3 processes and batch.lanes = 4.*divisor of 4.*multiple of 3 as --batch.lanes"
    ):
        sharding.check_shard(made)


def test_one_process_has_nothing_to_divide(data: Path, whole: dict[int, Path], tmp_path: Path) -> None:
    train(1, config(), data, tmp_path / "run", shard=True)
    assert digest(tmp_path / "run") == digest(whole[1])
