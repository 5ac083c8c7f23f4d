"""Promises of every objective, generator, sharing mode and algorithm: the same gradient however the batch is divided, the same step on
two ranks, all that should learn moves, and a run that was stopped ends as if it had not been."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from tests import small
from tests.methods.every import METHODS, MODERN, alternated, modern, without_dropout
from tests.prepared import small_config
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve
from torch import Tensor

from electra_trainer.batch import Losses, Masked
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import Interrupted
from electra_trainer.objectives import Objective, build
from electra_trainer.randomness import Rng
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Learned, TwoStage, kind_of
from electra_trainer.train import fast_step
from electra_trainer.train.loop import pretrain
from electra_trainer.train.measures import divisors
from electra_trainer.train.optim import Phases, build_optimizer
from electra_trainer.train.static_step import StaticStep
from electra_trainer.train.step import add_counts, train_step

ROWS = 12
EACH = pytest.mark.parametrize("name", METHODS)


def settings(name: str) -> Config:
    """The method on the small configuration, fp32, without dropout."""
    return without_dropout(METHODS[name](small.config()))


def shallow(config: Config) -> Config:
    """One layer of BERT's block; two of the modern one, whose first layer has no window and whose second has."""
    layers = 1 + (config.model.block == "modern")
    return dataclasses.replace(config, model=dataclasses.replace(config.model, num_hidden_layers=layers))


class GivenRng(Rng):
    """The numbers of a part of a batch: those that the whole batch has there. `of` says how many a purpose wants of each."""

    tables: dict[str, Tensor]

    def uniform(self, purpose: str, count: int, device: torch.device) -> Tensor:
        table = self.tables[purpose]
        assert len(table) == count
        return table


def given(masked: Masked, first: int, last: int, whole: Masked) -> GivenRng:
    """Randomness for rows `first` to `last` of `whole`: samples by slot, the rest by position."""
    generator = torch.Generator().manual_seed(5)
    columns = whole.batch.ids_BT.shape[1]
    of_slots = torch.rand(len(whole.slots_K), generator=generator)
    of_tokens = torch.rand(whole.batch.ids_BT.numel(), generator=generator)
    before = int((whole.slots_K < first * columns).sum())
    rng = GivenRng(1, 0, 0)
    object.__setattr__(
        rng,
        "tables",
        {
            "sample": of_slots[before : before + len(masked.slots_K)],
            "others": of_tokens[first * columns : last * columns],
            "hard": of_tokens[first * columns : last * columns],
            "unchanged": of_tokens[first * columns : last * columns],
        },
    )
    return rng


def objectives_of(config: Config) -> Iterator[Objective]:
    """Trained modules in each phase of a run."""
    made = build(config)
    phases = Phases(config, made)
    turn = config.first_stage_steps
    yield phases.at(0)
    if turn:
        yield phases.at(turn)


def masks(config: Config, *, rows: int = ROWS) -> Masked:
    return small.masker(config)(small.batch(small.rows(rows)), Rng(1, 0, 0))


def gradient(objective: Objective, whole: Masked, sizes: list[int]) -> Tensor:
    objective.zero_grad()
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    parts = [
        (small.part(whole, slice(end - size, end)), end - size, end) for end, size in zip(ends, sizes, strict=True)
    ]
    counts = divisors(add_counts([objective.counts(masked) for masked, _, _ in parts]), objective.config)
    for masked, first, last in parts:
        losses: Losses = objective(masked, given(masked, first, last, whole))
        losses.total(counts).backward()
    return torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None])


@EACH
def test_gradient_does_not_depend_on_micro_batches(name: str) -> None:
    """One batch and uneven parts, in both blocks; one row at a time for each objective."""
    config = shallow(settings(name))
    assert_same_gradient(config, [1, 3, 8], *([[1] * ROWS] if name == kind_of(type(config.objective)) else []))
    if name in MODERN:
        assert_same_gradient(shallow(modern(config)), [1, 3, 8])


def assert_same_gradient(config: Config, *parts: list[int]) -> None:
    for objective in objectives_of(config):
        whole = masks(config)
        expected = gradient(objective, whole, [ROWS])
        assert expected.norm() > 0.01
        for sizes in parts:
            found = gradient(objective, whole, sizes)
            assert (found - expected).norm() <= 2e-5 * expected.norm(), sizes


@EACH
def test_counts_are_known_before_and_sums_add_up(name: str) -> None:
    """Counts are whole numbers of the masks alone; each term names one of them; the sums of parts are the sum of the whole."""
    config = shallow(settings(name))
    for objective in objectives_of(config):
        whole = masks(config)
        counts = objective.counts(whole)
        losses: Losses = objective(whole, given(whole, 0, ROWS, whole), diagnose=True)
        assert all(float(count) == int(count) > 0 for count in counts.values())
        assert {term.count for term in losses.terms.values()} <= counts.keys()
        halves = [small.part(whole, slice(0, 6)), small.part(whole, slice(6, 12))]
        for term in losses.terms:
            parts = [objective(m, given(m, 6 * i, 6 * i + 6, whole)).terms[term].sum for i, m in enumerate(halves)]
            assert float(sum(parts).detach()) == pytest.approx(float(losses.terms[term].sum.detach()), rel=1e-5)  # type: ignore[union-attr]


@EACH
def test_all_that_should_learn_moves(name: str) -> None:
    """Within two steps of each phase every parameter of that phase moves and no other."""
    assert_all_moves(settings(name))


@pytest.mark.parametrize("name", MODERN)
def test_all_that_should_learn_moves_in_the_modern_block(name: str) -> None:
    """With Muon, which takes its packed weights apart; and parameters are counted as they are built."""
    config = modern(settings(name))
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, name="muon"))
    made = assert_all_moves(config)
    counted, kept = parameters(config), made.exported()[0].network
    assert counted.joint == sum(p.numel() for p in made.parameters())
    assert counted.kept == sum(p.numel() for p in kept.parameters())


def assert_all_moves(config: Config) -> Objective:
    config = dataclasses.replace(config, schedule=dataclasses.replace(config.schedule, steps=4, warmup_steps=1))
    made = build(config)
    phases, optimizer, feed = Phases(config, made), build_optimizer(made, config.optimizer), fed(config)
    for first in {0, config.first_stage_steps}:
        trained = {id(p) for p in phases.at(first).parameters()}
        before = {n: p.detach().clone() for n, p in made.named_parameters()}
        for step in range(first, first + 2):
            assert train_step(phases.at(step) if step > first else phases.at(first), optimizer, feed, step=step).finite
        for parameter_name, parameter in made.named_parameters():
            moved = not torch.equal(parameter, before[parameter_name])
            assert moved == (id(parameter) in trained), parameter_name
    return made


def fed(config: Config) -> Any:
    feed = small.feed(config)
    return dataclasses.replace(feed, mask=small.masker(config))


@EACH
def test_static_step_is_the_plain_step(name: str) -> None:
    """A step as a CUDA graph records it: the same metrics and weights, dropout on, in each phase; or the objective says that it is not static."""
    config = shallow(METHODS[name](small.config()))
    config = dataclasses.replace(config, schedule=dataclasses.replace(config.schedule, steps=4, warmup_steps=1))
    made = [build(config), build(config)]
    plain, static = (Phases(config, objective) for objective in made)
    optimizers = [build_optimizer(objective, config.optimizer) for objective in made]
    feed = fed(config)
    for first in sorted({0, config.first_stage_steps}):
        one, two = plain.at(first), static.at(first)
        if not two.static:
            assert "hard" in name
            return
        fixed = StaticStep(two, optimizers[1], feed)
        for step in range(first, first + 2):
            expected, found = train_step(one, optimizers[0], feed, step=step, diagnose=True), fixed(step, diagnose=True)
            assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
            assert found.metrics == pytest.approx(expected.metrics, rel=1e-4, abs=1e-5)
    for (parameter, a), (_, b) in zip(made[0].named_parameters(), made[1].named_parameters(), strict=True):
        assert (a - b).norm() <= 1e-4 * a.norm() + 1e-5, parameter


STEPS = 4


def two_steps(config: Config) -> dict[str, Tensor]:
    """The weights after two steps; of a two-stage run, after two steps of each stage."""
    made = build(config)
    phases, optimizer, feed = Phases(config, made), build_optimizer(made, config.optimizer), fed(config)
    for step in range(config.first_stage_steps + 2):
        assert train_step(phases.at(step), optimizer, feed, step=step, diagnose=True).finite
    return {n: p.detach() for n, p in made.named_parameters()}


def distributed_config(name: str) -> Config:
    """Three lanes, so that one rank owns one of them and the other two; dropout on."""
    config = shallow(alternated(name, small.config()))
    return dataclasses.replace(
        config,
        batch=dataclasses.replace(config.batch, lanes=3),
        schedule=dataclasses.replace(config.schedule, steps=STEPS, warmup_steps=1),
        optimizer=dataclasses.replace(config.optimizer, name="adamw", epsilon=1e-3),
    )


def run_rank(rank: int, folder: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for number, name in enumerate(METHODS):
        weights = two_steps(distributed_config(name))
        path = folder / f"{number}-{rank}.safetensors"
        import safetensors.torch

        safetensors.torch.save_file({n: w.contiguous() for n, w in weights.items()}, path)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes over gloo have trained every method."""
    folder = tmp_path_factory.mktemp("ranks")
    assert run_ranks(2, lambda rank: run_rank(rank, folder)) == [0, 0]
    return folder


@EACH
def test_two_ranks_are_one(name: str, ranks: Path) -> None:
    """Two gloo processes with one and two of three lanes take the steps of one process: weights to rounding, on both alike."""
    import safetensors.torch

    number = list(METHODS).index(name)
    first, second = (safetensors.torch.load_file(ranks / f"{number}-{rank}.safetensors") for rank in (0, 1))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = two_steps(distributed_config(name))
    torch.set_num_threads(threads)
    began = {n: p.detach() for n, p in build(distributed_config(name)).named_parameters()}
    for parameter, expected in alone.items():
        assert torch.equal(first[parameter], second[parameter]), parameter
        moved = (expected - began[parameter]).norm()
        assert (first[parameter] - expected).norm() <= 1e-4 * moved + 1e-7, parameter


def run_config(name: str) -> Config:
    """Four steps with dropout, a checkpoint and an evaluation every two. tests/train/test_resume.py has two lanes and layers."""
    config = shallow(alternated(name, small_config(steps=4, lanes=1)))
    return dataclasses.replace(
        config,
        checkpoint=dataclasses.replace(config.checkpoint, every=2),
        evaluation=dataclasses.replace(config.evaluation, every=2, rows=8),
    )


@EACH
def test_resumed_run_is_the_run(name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, for two-stage right at the switch: weights, moments and curve are bit for bit those of the whole run."""
    config = run_config(name)
    whole = pretrain(config, data, out=tmp_path / "whole", device="cpu", quiet=True)
    real, stops = fast_step.train_step, {config.first_stage_steps or 3}

    def interrupted(*arguments: Any, step: int, **more: Any) -> Any:
        if step + 1 in stops:
            stops.discard(step + 1)
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments, step=step, **more)

    monkeypatch.setattr(fast_step, "train_step", interrupted)
    with pytest.raises(Interrupted):
        pretrain(config, data, out=tmp_path / "run", device="cpu", quiet=True)
    pretrain(config, data, out=tmp_path / "run", device="cpu", quiet=True)
    one, two = (read(numbered(run / "checkpoints")[-1][1]) for run in (whole, tmp_path / "run"))
    assert one.step == two.step == 4
    for mine, theirs in ((one.weights, two.weights), (one.optimizer, two.optimizer)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[n], theirs[n]) for n in mine)
    assert curve(whole) == curve(tmp_path / "run")


def test_a_first_stage_says_nothing_of_a_discriminator_that_has_not_begun(data: Path, tmp_path: Path) -> None:
    config = run_config("two-stage")
    config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, every=1))
    pretrain(config, data, out=tmp_path / "run", device="cpu", quiet=True)
    *first, _, _ = lines = [line for line in (tmp_path / "run/log.txt").read_text().splitlines() if "held-out" in line]
    assert len(first) == 2
    assert all(
        "generator" in one and "; the discriminator begins after step 2" in one and "guess" not in one for one in first
    )
    assert all("guess" in line and "begins" not in line for line in lines[2:])


def test_arms_begin_alike() -> None:
    """Two objectives with one seed have the same initial weights wherever names and shapes agree (paired seeds)."""
    kept = {}
    for name in ("rtd", "mlm", "replace-mlm", "all-tokens-mlm", "adversarial", "sharing none", "rtd-mlm"):
        network = build(settings(name)).exported()[0].network
        kept[name] = {n: p for n, p in network.named_parameters() if n.startswith("electra.")}
    for name, weights in kept.items():
        assert weights.keys() == kept["rtd"].keys()
        assert all(torch.equal(weights[n], kept["rtd"][n]) for n in weights), name
    other = build(dataclasses.replace(settings("rtd"), seed=8)).exported()[0].network
    name = "electra.embeddings.word_embeddings.weight"
    assert not torch.equal(other.get_parameter(name), kept["rtd"][name])


def test_every_combination_is_covered() -> None:
    """The table holds each member of each tagged union."""
    from electra_trainer.settings.methods import PHASES, Generator, ObjectiveSettings

    configs = [make(small.config()) for make in METHODS.values()]
    built_in = {cls for cls in ObjectiveSettings.kinds.values() if cls.__module__ == "electra_trainer.settings.methods"}
    assert {type(config.objective) for config in configs} >= built_in
    assert {type(config.generator) for config in configs} >= {*get_args(Generator)}
    assert {type(config.phases) for config in configs} >= set(PHASES.values())
    assert {config.sharing for config in configs} == {"none", "tables", "embeddings", "all", "disentangled"}
    assert any(isinstance(c.phases, TwoStage) and c.phases.start == "fresh" for c in configs)
    assert any(isinstance(c.generator, Learned) and c.generator.temperature != 1 for c in configs)
