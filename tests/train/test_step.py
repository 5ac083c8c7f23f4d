"""One step: the same gradient whatever the lanes, nothing moved by a bad one, everything a function of the step."""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from tests.small import MASK, batch, by_place, config, feed, masker, part, rows, weights
from torch import Tensor

from electra_trainer import randomness
from electra_trainer.batch import Batch, Masked
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.objectives import build
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import BatchShape, Config
from electra_trainer.settings.methods import MLM
from electra_trainer.train.optim import build_optimizer, optimizer_tensors
from electra_trainer.train.step import Feed, evaluate, example_rows, on_standard_fakes, train_step


@dataclass(frozen=True, kw_only=True)
class GivenLanes(Feed):
    """Masks that are given, not drawn by lane."""

    given: list[Masked]

    def lanes(self, step: int) -> list[tuple[Masked, Rng]]:
        return [(masked, Rng(0, step, lane)) for lane, masked in enumerate(self.given)]


def no_dropout() -> Config:
    settings = config()
    model = dataclasses.replace(settings.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return dataclasses.replace(settings, model=model)


def given_lanes(settings: Config, sizes: list[int]) -> GivenLanes:
    whole = masker(settings)(batch(rows(12)), Rng(1, 0, 0))
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    given = [part(whole, slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    return GivenLanes(**vars(feed(settings)), given=given)


@pytest.mark.parametrize("sizes", [[12], [6, 6], [3, 3, 3, 3], [1, 4, 7]], ids=["1", "2", "4", "uneven"])
def test_lanes_do_not_change_a_step(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradient norm, losses and weights after one step with the same masks and plain SGD, which hides nothing."""
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", by_place)
    settings, found = no_dropout(), []
    for split in ([12], sizes):
        objective = build(settings)
        before = weights(objective)
        sgd = torch.optim.SGD(objective.parameters())
        result = train_step(objective, sgd, given_lanes(settings, split), step=0, diagnose=True)
        moved = torch.cat([(p - before[n]).flatten() for n, p in weights(objective).items()])
        found.append((result, moved))
    (one, whole), (other, split_up) = found
    assert whole.norm() > 1e-4
    assert (split_up - whole).norm() <= 1e-4 * whole.norm()
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
    for name, value in one.metrics.items():
        assert other.metrics[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("sizes", [[12], [1, 4, 7]], ids=["1", "uneven"])
def test_losses_as_sums(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--losses sums` (§2): both losses as PyTorch has them, summed over positions, divided by rows; other metrics stay means."""
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", by_place)
    settings = dataclasses.replace(no_dropout(), losses="sums")
    made = build(settings)
    assert isinstance(made, ReplacedTokenDetection) and isinstance(made.generator, TokenPredictor)
    (whole,), given = given_lanes(settings, [12]).given, given_lanes(settings, sizes)
    logits_KV = made.generator(whole.input_BT, whole.batch, whole.slots_K)
    token_sum = F.cross_entropy(logits_KV, whole.labels_K, reduction="sum")
    corrupted, real_BT = by_place(whole, whole.slots_K), whole.batch.real_BT
    logits_N = made.discriminator(corrupted.input_BT, whole.batch)[real_BT]
    replaced_sum = F.binary_cross_entropy_with_logits(logits_N, corrupted.replaced_BT[real_BT].float(), reduction="sum")
    expected = (token_sum + 50 * replaced_sum) / 12
    expected.backward()  # type: ignore[no-untyped-call]
    norm = torch.stack([p.grad.norm() for p in made.parameters() if p.grad is not None]).norm()
    made.zero_grad()
    sgd = torch.optim.SGD(made.parameters(), lr=0.0)
    result = train_step(made, sgd, given, step=0, diagnose=True)
    assert result.gradient_norm == pytest.approx(float(norm), rel=1e-4)
    assert result.metrics["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    mean = float(token_sum.detach()) / len(whole.slots_K)
    assert result.metrics["generator_loss"] == pytest.approx(mean, rel=1e-5)


def test_losses_as_sums_of_the_held_out_rows() -> None:
    """Divided by their number, also where the last chunk is not full."""
    settings = dataclasses.replace(config(), losses="sums")
    made, given = build(settings), feed(settings, valid=70)
    found = evaluate(made, given, limit=67)
    masked = [masked for masked, _ in given.held_out(67)]
    slots, real = (sum(int(m.slots_K.numel()) for m in masked), sum(int(m.batch.real_BT.sum()) for m in masked))
    expected = (found["generator_loss"] * slots + 50 * found["discriminator_loss"] * real) / 67
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


def test_gradients_are_clipped_to_the_norm() -> None:
    settings = config()
    for clip, bound in ((0.01, 0.01), (0.0, None)):
        changed = dataclasses.replace(settings, optimizer=dataclasses.replace(settings.optimizer, clip_norm=clip))
        objective = build(changed)
        before = weights(objective)
        sgd = torch.optim.SGD(objective.parameters())
        result = train_step(objective, sgd, feed(changed), step=0)
        moved = torch.cat([(p - before[n]).flatten() for n, p in weights(objective).items()])
        assert result.gradient_norm > 1
        length = float(moved.norm()) / result.learning_rate
        assert length == pytest.approx(bound or result.gradient_norm, rel=1e-3)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "muon"])
def test_a_bad_step_leaves_everything_untouched(name: str) -> None:
    settings = config()
    settings = dataclasses.replace(settings, optimizer=dataclasses.replace(settings.optimizer, name=name))  # type: ignore[arg-type]
    objective, given = build(settings), feed(settings)
    optimizer = build_optimizer(objective, settings.optimizer)
    assert train_step(objective, optimizer, given, step=0).finite
    before, moments = weights(objective), optimizer_tensors(objective, optimizer)
    moments = {key: value.clone() for key, value in moments.items()}
    bias = next(p for n, p in objective.named_parameters() if n.endswith("dense.bias"))
    for poison in (float("nan"), float("inf")):
        hook = bias.register_hook(lambda gradient, poison=poison: gradient * poison)
        result = train_step(objective, optimizer, given, step=1, diagnose=True)
        hook.remove()
        assert not result.finite and result.metrics == {}
        for key, value in weights(objective).items():
            assert torch.equal(value, before[key]), key
        for key, value in optimizer_tensors(objective, optimizer).items():
            assert torch.equal(value, moments[key]), key
    good = train_step(objective, optimizer, given, step=2)  # and no bad gradient is left behind
    assert good.finite and all(value.isfinite().all() for value in weights(objective).values())


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_step_is_a_function_of_weights_and_step(lanes: int) -> None:
    """Steps done twice, with other random numbers drawn in between: the same weights, bit for bit, dropout included."""
    settings = dataclasses.replace(config(), batch=BatchShape(size=12, sequence_length=24, lanes=lanes))
    ends = []
    for noise in (0, 1000):
        objective = build(settings)
        optimizer = build_optimizer(objective, settings.optimizer)
        for step in range(3):
            torch.rand(noise)
            train_step(objective, optimizer, feed(settings), step=step, diagnose=noise > 0)
        ends.append(weights(objective))
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


def test_lanes_have_their_own_rows_and_masks() -> None:
    settings = dataclasses.replace(config(), batch=BatchShape(size=12, sequence_length=24, lanes=3))
    given = feed(settings, train=12)
    found = given.lanes(0)
    assert [rng for _, rng in found] == [Rng(settings.seed, 0, lane) for lane in range(3)]
    read = [tuple(row) for masked, _ in found for row in masked.batch.ids_BT.tolist()]
    assert sorted(read) == sorted(tuple(row) for row in given.rows.tolist())


def test_dropout_changes_from_step_to_step() -> None:
    objective, masked = build(config()), masker(config())(batch(rows(12)), Rng(1, 0, 0))
    sums = []
    for step in (0, 1, 0):
        rng = Rng(1, step, 0)
        rng.seed_dropout()
        sums.append(float(objective(masked, Rng(1, 0, 0)).terms["generator_loss"].sum.detach()))
    assert sums[0] == sums[2] != sums[1]


def test_dropout_is_seeded_as_by_torch_and_without_its_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.manual_seed` queues a call, with a formatted stack trace, for each kind of device that is not there."""
    rng = Rng(3, 5, 0)
    torch.manual_seed(randomness.key(3, "dropout", 5, 0))
    expected = torch.rand(4)

    class OfAGpu:
        seeds: ClassVar[list[int]] = []

        def manual_seed(self, seed: int) -> None:
            self.seeds.append(seed)

    monkeypatch.setattr(torch.cuda, "default_generators", (OfAGpu(), OfAGpu()))
    monkeypatch.setattr(traceback, "format_stack", lambda *_: pytest.fail("a stack trace"))
    rng.seed_dropout()
    assert torch.equal(torch.rand(4), expected) and OfAGpu.seeds == [randomness.key(3, "dropout", 5, 0)] * 2


STANDARD = "discriminator_standard_auc"


@pytest.mark.parametrize("mlm", [False, True])
def test_evaluation_is_repeatable_and_leaves_no_trace(mlm: bool) -> None:
    settings = dataclasses.replace(config(), objective=MLM()) if mlm else config()
    objective, given = build(settings), feed(settings)
    objective.train()
    before = weights(objective)
    torch.manual_seed(1)
    first = evaluate(objective, given)
    torch.manual_seed(2)
    assert evaluate(objective, given) == first
    assert objective.training
    assert all(torch.equal(value, before[name]) for name, value in weights(objective).items())
    assert all(p.grad is None for p in objective.parameters())
    assert evaluate(objective, dataclasses.replace(given, config=dataclasses.replace(settings, seed=99))) == first
    few, alone = (
        evaluate(objective, there, limit=3) for there in (given, dataclasses.replace(given, valid=given.valid[:3]))
    )
    apart = {name for name in few if few[name] != alone[name]}
    assert apart == (set() if mlm else {STANDARD})  # standard fakes do not depend on the limit
    assert few != first and few.get(STANDARD) == first.get(STANDARD)


def test_a_discriminator_that_knows_and_one_that_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUC 1 for the truth, whatever special tokens score, and 0.5 for one answer; over standard fakes, a quarter of the words."""
    objective, given = build(config()), feed(config(), valid=200)
    seen: list[float] = []

    def knows(_: Discriminator, ids_BT: Tensor, batch: Batch) -> Tensor:
        words_BT = batch.ids_BT > MASK
        seen.append(float((ids_BT != batch.ids_BT).sum() / words_BT.sum()))
        return torch.where(words_BT, (ids_BT != batch.ids_BT).float(), 7.0)

    monkeypatch.setattr(Discriminator, "forward", knows)
    assert on_standard_fakes(objective, given) == {STANDARD: 1.0}
    assert len(seen) == 4 and sum(seen) / 4 == pytest.approx(0.25, abs=0.02)
    monkeypatch.setattr(Discriminator, "forward", lambda _, ids_BT, batch: torch.zeros(ids_BT.shape))
    assert on_standard_fakes(objective, given) == {STANDARD: 0.5}


def test_examples_are_the_first_held_out_rows() -> None:
    objective, given = build(config()), feed(config(), valid=30)
    objective.train()
    shown = example_rows(objective, given, SimpleNamespace(id_to_token=str))  # type: ignore[arg-type]
    assert len(shown) == 8 and objective.training
    masked, _ = next(given.held_out(8))
    for row, ids, chosen, real in zip(
        shown, masked.batch.ids_BT, masked.chosen_BT, masked.batch.real_BT.sum(-1), strict=True
    ):
        assert row["original"] == [str(number) for number in ids[:real].tolist()]
        assert row["masked"] == chosen[:real].tolist() and len(row["probability"]) == real
        assert row["replaced"] == [one != other for one, other in zip(row["original"], row["input"], strict=True)]
        assert not any(new and not was for new, was in zip(row["replaced"], row["masked"], strict=True))
    assert example_rows(build(dataclasses.replace(config(), objective=MLM())), given, None) == []  # type: ignore[arg-type]


def test_held_out_masks_do_not_depend_on_batch_or_lanes() -> None:
    settings = config()
    whole = list(feed(settings, valid=100).held_out(100))
    for size, lanes in ((4, 1), (12, 3), (64, 2)):
        shape = dataclasses.replace(settings.batch, size=size, lanes=lanes)
        other = list(feed(dataclasses.replace(settings, batch=shape), valid=100).held_out(100))
        assert len(other) == len(whole)
        for (one, _), (two, _) in zip(whole, other, strict=True):
            assert torch.equal(one.input_BT, two.input_BT) and torch.equal(one.slots_K, two.slots_K)
