"""Google's gradients, and five of its optimizer steps, by our own step (fixed batch, dropout off, fp32).

Adding the same number to all attention scores of a query changes nothing, so the gradient of a key's bias is 0 and what
either program computes for it is rounding noise (norms below 1e-8, of 3.6 in all). Those eight biases are held to an
absolute bound; the other 138 variables to the relative ones.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.google_curve import config, masker
from tests.google import reference
from tests.google.reference import Arrays
from torch import Tensor

from electra_trainer.batch import Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, Schedule
from electra_trainer.train.optim import build_optimizer, learning_rate
from electra_trainer.train.step import Feed, StepResult, add_counts, train_step

GRADIENTS = 1e-3  # relative, of norms
WEIGHTS = 1e-4  # relative, of norms
MOVED = 1e-3  # relative, of the distance from the start: a few thousandths of the weight
LOSSES = 1e-5  # relative
NOISE = 1e-6  # absolute, of the biases of keys
ONE, UNEVEN = [slice(0, 8)], [slice(0, 3), slice(3, 4), slice(4, 8)]


@dataclass(frozen=True, kw_only=True)
class FixedFeed(Feed):
    """Rows in the same lanes at every step."""

    parts: list[Masked]

    def lanes(self, step: int) -> list[tuple[Masked, Rng]]:
        return [(masked, Rng(0, step, lane)) for lane, masked in enumerate(self.parts)]


@dataclass(kw_only=True)
class Run:
    """Google's checkpoint with a fresh optimizer, and its fixed batch in lanes."""

    objective: ReplacedTokenDetection
    optimizer: torch.optim.Optimizer
    feed: FixedFeed
    start: dict[str, Tensor]

    def weight(self, variable: str) -> Tensor:
        return self.objective.get_parameter(reference.our_name(variable)).detach()

    def moved(self, variable: str) -> float:
        """How far a variable is from where it began."""
        return float((self.weight(variable) - self.start[reference.our_name(variable)]).double().norm())


def settings() -> Config:
    return Config(**{**vars(config(seed=0)), "schedule": Schedule(steps=10, warmup_steps=2)})


def begin(shared: Path, monkeypatch: pytest.MonkeyPatch, lanes: list[slice]) -> Run:
    """While `monkeypatch` holds, the generator draws what Google's drew."""
    forward = reference.read(shared, "forward.npz")
    given = itertools.cycle([reference.samples(forward, rows) for rows in lanes])
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", lambda masked, _: corrupt(masked, next(given)))
    objective = reference.trained(shared)
    none = np.empty((0, 128), dtype=np.uint16)
    feed = FixedFeed(
        config=settings(), rows=none, valid=none, mask=masker(settings()), pad=0, cls=101, sep=102,
        device=torch.device("cpu"), precision="fp32", parts=[reference.masked(forward, rows) for rows in lanes],
    )  # fmt: skip
    return Run(
        objective=objective,
        optimizer=build_optimizer(objective, settings().optimizer),
        feed=feed,
        start={name: parameter.detach().clone() for name, parameter in objective.named_parameters()},
    )


def norm(values: Tensor) -> float:
    return float(values.double().norm())


def is_noise(variable: str) -> bool:
    return variable.endswith("key/bias")


@pytest.fixture(scope="module")
def google(shared: Path) -> Arrays:
    return reference.read(shared, "train_steps.npz")


@pytest.fixture(params=[ONE, UNEVEN], ids=["one-lane", "three-uneven-lanes"])
def run(request: pytest.FixtureRequest, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return begin(shared, monkeypatch, request.param)


def backward(run: Run) -> dict[str, Tensor]:
    """Gradients of the whole batch, before clipping, by parameter."""
    lanes = run.feed.lanes(0)
    counts = add_counts([run.objective.counts(masked) for masked, _ in lanes])
    for masked, rng in lanes:
        run.objective(masked, rng).total(counts).backward()
    return {name: parameter.grad for name, parameter in run.objective.named_parameters() if parameter.grad is not None}


def test_gradients(run: Run, google: Arrays) -> None:
    gradients = backward(run)
    assert len(gradients) == 146
    for variable, expected in zip(google["var_names"].tolist(), google["grad_l2"].tolist(), strict=True):
        found = norm(gradients[reference.our_name(variable)])
        if is_noise(variable):
            assert max(found, expected) <= NOISE, variable
        else:
            assert found == pytest.approx(expected, rel=GRADIENTS), variable
    total = norm(torch.cat([gradient.flatten() for gradient in gradients.values()]))
    assert total == pytest.approx(float(google["trace_gnorm"][0]), rel=GRADIENTS)


def test_gradients_element_by_element(run: Run, google: Arrays) -> None:
    """Gradients of the variables that are stored whole, and of six words."""
    gradients = backward(run)
    stored = [name.removeprefix("grad0/") for name in google if name.startswith("grad0/")]
    assert len(stored) == 135
    for variable in stored:
        expected = reference.as_ours(variable, google[f"grad0/{variable}"])
        off = norm(gradients[reference.our_name(variable)] - expected)
        assert off <= (NOISE if is_noise(variable) else GRADIENTS * norm(expected)), variable
    words = gradients["discriminator.electra.embeddings.word_embeddings.weight"]
    expected = torch.from_numpy(google["grad0_word_emb"])
    off = norm(words[torch.from_numpy(google["grad0_word_emb_rows"]).long()] - expected)
    assert off <= GRADIENTS * norm(expected)


def five_steps(run: Run, *, first: int) -> Iterator[tuple[int, StepResult]]:
    """Our own steps; `first` is the step whose learning rate the first one uses."""
    for number in range(5):
        yield number, train_step(run.objective, run.optimizer, run.feed, step=number + first, diagnose=True)


def check_losses(result: StepResult, google: Arrays, reading: str, number: int) -> None:
    means = {"total": "loss", "gen": "generator_loss", "disc": "discriminator_loss"}
    for theirs, ours in means.items():
        expected = float(google[f"{reading}_{theirs}"][number])
        assert result.metrics[ours] == pytest.approx(expected, rel=LOSSES), (number, ours)
    assert result.gradient_norm == pytest.approx(float(google[f"{reading}_gnorm"][number]), rel=GRADIENTS)


def test_learning_rates_are_those_that_google_used(google: Arrays) -> None:
    for number, expected in enumerate(google["lr_used_per_step"].tolist()):
        assert learning_rate(number, peak=1e-3, schedule=settings().schedule) == pytest.approx(expected, rel=1e-6)
        if number:  # read before the increment, it is that of the step before; 0 at first
            before = learning_rate(number - 1, peak=1e-3, schedule=settings().schedule)
            assert before == pytest.approx(float(google["ordered_lr"][number]), rel=1e-6)
    assert learning_rate(-1, peak=1e-3, schedule=settings().schedule) == float(google["ordered_lr"][0]) == 0


@dataclass(kw_only=True)
class Trace:
    """Measurements of five steps: after each, how far a variable has moved and its norm; after all, the weights."""

    results: list[StepResult]
    moved: list[dict[str, float]]
    norms: list[dict[str, float]]
    weights: dict[str, Tensor]
    after: StepResult
    """A sixth step, taken when `weights` had been copied."""

    def weight(self, variable: str) -> Tensor:
        return self.weights[reference.our_name(variable)]


def traced(run: Run, variables: list[str], *, first: int) -> Trace:
    results, moved, norms = [], [], []
    for _, result in five_steps(run, first=first):
        results.append(result)
        moved.append({variable: run.moved(variable) for variable in variables})
        norms.append({variable: norm(run.weight(variable)) for variable in variables})
    weights = {name: parameter.detach().clone() for name, parameter in run.objective.named_parameters()}
    after = train_step(run.objective, run.optimizer, run.feed, step=first + 5, diagnose=True)
    return Trace(results=results, moved=moved, norms=norms, weights=weights, after=after)


@pytest.fixture(scope="module", params=[ONE, UNEVEN], ids=["one-lane", "three-uneven-lanes"])
def trace(request: pytest.FixtureRequest, shared: Path, google: Arrays) -> Trace:
    """As the code ran: a step uses the learning rate of step + 1."""
    with pytest.MonkeyPatch.context() as patch:
        return traced(begin(shared, patch, request.param), google["var_names"].tolist(), first=0)


def check_steps(seen: Trace, google: Arrays, reading: str) -> None:
    expected = google["dw_l2_after" if reading == "trace" else "ordered_dw_l2_after"].tolist()
    for number, (result, moved) in enumerate(zip(seen.results, seen.moved, strict=True)):
        check_losses(result, google, reading, number)
        for variable, theirs in zip(google["var_names"].tolist(), expected[number], strict=True):
            if is_noise(variable):
                assert moved[variable] <= NOISE and theirs <= NOISE, variable
            else:
                assert moved[variable] == pytest.approx(theirs, rel=MOVED, abs=0), (number, variable)


def test_five_steps(trace: Trace, google: Arrays) -> None:
    check_steps(trace, google, "trace")
    for number, norms in enumerate(trace.norms):
        for variable, expected in zip(google["var_names"].tolist(), google["w_l2_after"][number].tolist(), strict=True):
            bound = NOISE if is_noise(variable) else WEIGHTS * expected
            assert abs(norms[variable] - expected) <= bound, (number, variable)


def test_five_steps_with_the_rate_of_the_step_itself(
    shared: Path, monkeypatch: pytest.MonkeyPatch, google: Arrays
) -> None:
    """0 at first; in one lane, since lanes have nothing to do with the rate."""
    check_steps(traced(begin(shared, monkeypatch, ONE), google["var_names"].tolist(), first=-1), google, "ordered")


def test_weights_after_five_steps(trace: Trace, google: Arrays) -> None:
    stored = [name.removeprefix("w5/") for name in google if name.startswith("w5/")]
    assert len(stored) == 135
    for variable in stored:
        expected = reference.as_ours(variable, google[f"w5/{variable}"])
        off = norm(trace.weight(variable) - expected)
        assert off <= (NOISE if is_noise(variable) else WEIGHTS * norm(expected)), variable
    words = trace.weight("electra/embeddings/word_embeddings")[torch.from_numpy(google["grad0_word_emb_rows"]).long()]
    expected = torch.from_numpy(google["w5_word_emb"])
    assert norm(words - expected) <= WEIGHTS * norm(expected)


def test_loss_after_five_steps(trace: Trace, google: Arrays) -> None:
    total, generator, discriminator = google["final_losses_total_gen_disc"].tolist()
    after = trace.after.metrics
    assert after["loss"] == pytest.approx(total, rel=LOSSES)
    assert after["generator_loss"] == pytest.approx(generator, rel=LOSSES)
    assert after["discriminator_loss"] == pytest.approx(discriminator, rel=LOSSES)
