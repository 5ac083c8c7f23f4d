"""Generators (§3.2, Appendix H): what they sample, how often, and that their loss sees none of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.prepared import small_config
from tests.reach import RNG, gradients, lively, losses, made, masked_rows, named, reached
from tests.small import WORDS
from torch import Tensor

from electra_trainer.data.store import Store
from electra_trainer.kernels.vocabulary_softmax import token_softmax
from electra_trainer.model.networks import WordFrequencies
from electra_trainer.objectives import build
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import (
    RTD,
    AllTokensMLM,
    Learned,
    ObjectiveSettings,
    ReplaceMLM,
    RtdMLM,
    SentenceContrast,
    Uniform,
    Unigram,
)
from electra_trainer.train.weights import give_frequencies

COUNTS = torch.tensor([0, 5, 0, 0, 40, 1, 0, 14, 100, 40, 0])
DRAWS = 100_000


def frequencies(counts: Tensor = COUNTS) -> WordFrequencies:
    found = WordFrequencies(len(counts))
    found.use(counts)
    return found


def draws(count: int = DRAWS, seed: int = 0) -> Tensor:
    return Rng(seed, 0, 0).uniform("sample", count, torch.device("cpu"))


def grid(count: int = DRAWS) -> Tensor:
    """The middle of each of `count` equal parts of [0, 1): a word of probability p is hit p · count times, give or take one."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


# --- WordFrequencies ---


def test_every_draw_by_a_loop() -> None:
    """The first word at which the summed counts pass the draw."""
    total = int(COUNTS.sum())
    for draw in [0.0, 1 - 2**-24, *(n / total for n in range(total)), *draws(500).tolist()]:
        passed, expected = 0, -1
        for word, count in enumerate(COUNTS.tolist()):
            passed += count
            if passed / total > draw:
                expected = word
                break
        assert frequencies().sample(torch.tensor([draw], dtype=torch.float64)).item() == expected


@pytest.mark.parametrize("label", range(len(COUNTS)))
def test_the_correct_word_is_never_drawn_and_the_others_keep_their_proportions(label: int) -> None:
    """Exactly: on a grid of draws each other word comes count / (total - own count) of the time, to a draw; the first and last too."""
    labels = torch.full((DRAWS,), label)
    found = np.bincount(frequencies().sample(grid(), without_K=labels).numpy(), minlength=len(COUNTS))
    others = COUNTS.double().clone()
    others[label] = 0
    assert found[label] == 0
    assert np.abs(found - (others / others.sum() * DRAWS).numpy()).max() <= 1


@pytest.mark.parametrize("counts", [[3, 0, 7, 0], [0, 3, 0, 7], [1, 10**12, 1], [1] * 1000, [10**9, 1, 1, 10**9]])
@pytest.mark.parametrize("draw", [0.0, 1e-300, 2**-24, 0.5, 1 - 2**-24])
def test_edges(counts: list[int], draw: float) -> None:
    """Draws of 0 and next to 1, with every word as the correct one: a word that has a count, and never the correct one."""
    generator = frequencies(torch.tensor(counts))
    words = torch.arange(len(counts))
    sampled = generator.sample(torch.full((len(counts),), draw, dtype=torch.float64), without_K=words)
    assert (sampled != words).all()
    assert all(counts[word] > 0 for word in sampled.tolist())
    assert counts[int(generator.sample(torch.tensor([draw])))] > 0


def test_frequencies_stay_on_the_cpu_where_the_device_has_no_fp64() -> None:
    """As a Mac's GPU, which refuses to hold them; draws and samples live on the device."""

    def refuses(tensor: Tensor) -> Tensor:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    generator = frequencies()
    assert generator._apply(refuses) is generator and generator.cumulative_V.dtype == torch.float64
    assert generator.sample(grid().float()).device == grid().device


def test_entropy_and_probability_by_a_loop() -> None:
    shares = [count / int(COUNTS.sum()) for count in COUNTS.tolist()]
    assert frequencies().probability_V.tolist() == pytest.approx(shares)
    expected = -sum(share * float(np.log(share)) for share in shares if share)
    assert float(frequencies().entropy()) == pytest.approx(expected)


# --- generators by frequency in an objective ---

OBJECTIVES: list[ObjectiveSettings] = [
    RTD(), RTD(loss_over="masked"), ReplaceMLM(), AllTokensMLM(), RtdMLM(), SentenceContrast(),
]  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("generator", [Unigram(), Uniform(disallow_correct=True)])
def test_no_loss_and_no_parameters(objective: ObjectiveSettings, generator: Any) -> None:
    """No term, not one of 0; what remains reaches every parameter there is."""
    given = lively(objective=objective, generator=generator)
    whole, masked = made(given), masked_rows(given)
    terms = losses(whole, masked).terms
    assert "generator_loss" not in terms and terms
    assert not [name for name, _ in whole.named_parameters() if name.startswith("generator")]
    assert "generator" not in {exported.name for exported in whole.exported()}
    everywhere = {name for term in terms.values() for name in reached(whole, term.sum)}
    assert everywhere == {name for name, _ in whole.named_parameters()}


@pytest.mark.parametrize("disallow", [False, True])
def test_the_samples_of_an_objective(disallow: bool) -> None:
    """They are those that the frequencies give for the lane's draws; the record shows the likeliest word and the entropy."""
    given = lively(objective=RTD(), generator=Unigram(disallow_correct=disallow))
    whole, masked = made(given), masked_rows(given, 100)
    counts = torch.arange(WORDS).where(torch.arange(WORDS) > 4, 0)
    whole.generator.use(counts)
    seen = losses(whole, masked).diagnostics
    expected = whole.generator.sample(
        draws(len(masked.slots_K), RNG.seed), without_K=masked.labels_K if disallow else None
    )
    at_slots = seen["corrupted_BT"].flatten()[masked.slots_K]
    assert torch.equal(at_slots, expected) and (at_slots > 4).all()
    lucky = int((at_slots == masked.labels_K).sum())
    assert lucky == 0 if disallow else lucky > 0
    assert seen["generator_correct_K"].tolist() == [label == WORDS - 1 for label in masked.labels_K.tolist()]
    assert torch.allclose(seen["generator_entropy_K"], whole.generator.entropy().float())


@pytest.mark.parametrize("kind", [Unigram, Uniform])
def test_frequencies_are_those_of_the_training_rows_and_specials_have_none(data: Path, kind: type) -> None:
    """Counted by a loop; [PAD], [CLS], [SEP] and [MASK] are never sampled."""
    config, store = small_config(), Store.open(data)
    objective = build(Config(**{**vars(config), "generator": kind()}))
    give_frequencies(objective, store)
    special = {store.specials.pad, store.specials.cls, store.specials.sep, store.specials.mask}
    counts = [0.0] * store.vocab_size
    for row in np.asarray(store.rows("train")).tolist():
        for token in row:
            counts[token] += token not in special
    if kind is Uniform:
        counts = [float(word not in special) for word in range(store.vocab_size)]
    generator = objective.generator
    assert isinstance(generator, WordFrequencies)
    assert generator.probability_V.tolist() == pytest.approx([count / sum(counts) for count in counts], abs=1e-12)
    sampled = set(generator.sample(grid(1_000_000)).tolist())
    assert not sampled & special
    if kind is Uniform:
        assert sampled == set(range(store.vocab_size)) - special


# --- the learned generator ---


def logits(words: int = 12) -> tuple[list[Tensor], Tensor]:
    """Head output for one position, words and bias; and its logits, in float64."""
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(1, 8, generator=generator), torch.randn(words, 8, generator=generator)]
    tensors.append(torch.randn(words, generator=generator))
    exact = [tensor.double() for tensor in tensors]
    return tensors, (exact[0] @ exact[1].t() + exact[2])[0]


def sampled(*, label: int, given: Tensor, **sampling: Any) -> np.ndarray[Any, Any]:
    tensors, scores = logits()
    many = [tensors[0].expand(len(given), -1), *tensors[1:]]
    found = token_softmax(*many, labels_K=torch.full((len(given),), label), draws_K=given.float(), **sampling)  # type: ignore[call-arg, misc]
    return np.bincount(found.sampled_K.numpy(), minlength=len(scores))


@pytest.mark.parametrize("temperature", [0.25, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("disallow", [False, True])
@pytest.mark.parametrize("label", [0, 3, 11])
def test_the_learned_generator_samples_from_softmax_of_logits_over_temperature(
    temperature: float, disallow: bool, label: int
) -> None:
    """Exactly, on a grid of draws; with the correct word left out the rest keeps its proportions."""
    _, scores = logits()
    p = [float(np.exp(score / temperature)) for score in scores.tolist()]
    if disallow:
        p[label] = 0.0
    share = np.array(p) / sum(p)
    on_grid = sampled(label=label, given=grid(20_000), temperature=temperature, disallow_label=disallow)
    assert np.abs(on_grid - share * 20_000).max() <= 2 and not on_grid[share == 0].any()


@pytest.mark.parametrize("changes", [{"temperature": 0.5}, {"temperature": 3.0}, {"disallow_correct": True}])
def test_the_generators_loss_sees_neither_temperature_nor_what_is_disallowed(changes: dict[str, Any]) -> None:
    """Same loss and same gradient to the generator as without; other samples."""
    found = []
    for given in (lively(generator=Learned(width=0.5)), lively(generator=Learned(width=0.5, **changes))):
        whole, masked = made(given), masked_rows(given, 60)
        seen = losses(whole, masked)
        loss = seen.terms["generator_loss"].sum
        found.append((loss, gradients(whole, loss), seen.diagnostics))
        assert reached(whole, loss) == named(whole, "generator.", "discriminator.electra.embeddings.")
    (one, mine, before), (two, other, after) = found
    assert float(two.detach()) == pytest.approx(float(one.detach()), rel=1e-6)
    assert all(torch.allclose(mine[name], other[name], rtol=1e-4, atol=1e-6) for name in mine)
    assert torch.equal(before["generator_correct_K"], after["generator_correct_K"])
    assert torch.allclose(before["generator_entropy_K"], after["generator_entropy_K"], atol=1e-5)
    assert not torch.equal(before["corrupted_BT"], after["corrupted_BT"])
    if "disallow_correct" in changes:
        assert int(after["replaced_BT"].sum()) == len(masked.slots_K) > int(before["replaced_BT"].sum())
