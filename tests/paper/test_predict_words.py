"""Predicting single masked words, against a loop with one forward pass for each word of the vocabulary."""

from typing import NamedTuple

import pytest
import torch
from tests import small
from torch import Tensor

from electra_trainer.data.tokenizer import Specials
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.objectives import build
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.paper import likelihoods
from electra_trainer.paper.cloze import Sites, choose_sites, predict, predict_with_discriminator
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.step import train_step

SPECIALS = Specials(pad=small.PAD, unk=small.UNK, cls=small.CLS, sep=small.SEP, mask=small.MASK)
P_MASK = 0.25


class Networks(NamedTuple):
    generator: TokenPredictor
    discriminator: Discriminator
    loud: bool


@pytest.fixture(scope="module", params=["loud", "trained"])
def networks(request: pytest.FixtureRequest) -> Networks:
    """Weights large enough that discriminator and generator disagree; and those that a short training leaves."""
    made = build(small.config())
    assert isinstance(made, ReplacedTokenDetection) and isinstance(made.generator, TokenPredictor)
    if request.param == "trained":
        optimizer, feed = build_optimizer(made, small.config().optimizer), small.feed(small.config())
        for step in range(small.config().schedule.steps):
            assert train_step(made, optimizer, feed, step=step).finite
        made.eval()
        return Networks(made.generator, made.discriminator, loud=False)
    made.eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5.0)
    return Networks(made.generator, made.discriminator, loud=True)


@pytest.fixture(scope="module")
def sites() -> Sites:
    """Packed rows: several pieces, two segments, padding."""
    return choose_sites(small.rows(8), rows=6, per_row=3, seed=3, specials=SPECIALS)


class Slow(NamedTuple):
    p_generator_KV: Tensor
    likelihood_KV: Tensor


@pytest.fixture(scope="module")
def slow(networks: Networks, sites: Sites) -> Slow:
    """Appendix G by the letter: a separate row for each word, plain probabilities in fp64."""
    a = (1 - P_MASK) / P_MASK
    p_generator, likelihood = [], []
    with torch.no_grad():
        for row, column in zip(sites.row_K, sites.column_K, strict=True):
            batch = small.batch(sites.rows_BT[row : row + 1])
            ids_1T = batch.ids_BT.clone()
            ids_1T[0, column] = small.MASK
            p_V = networks.generator(ids_1T, batch, torch.tensor([column]))[0].double().softmax(-1)
            values = []
            for x in range(small.WORDS):
                ids_1T[0, column] = x
                d = 1 - float(networks.discriminator(ids_1T, batch)[0, column].double().sigmoid())
                values.append(d * float(p_V[x]) / (a * (1 - d) + float(p_V[x])))
            p_generator.append(p_V)
            likelihood.append(torch.tensor(values))
    return Slow(torch.stack(p_generator), torch.stack(likelihood))


def test_whole_vocabulary_equals_the_slow_loop(networks: Networks, sites: Sites, slow: Slow) -> None:
    found = predict_with_discriminator(*networks[:2], sites, top=small.WORDS, p_mask=P_MASK)
    assert found.appendix_g_K is not None
    assert torch.equal(found.generator_K, slow.p_generator_KV.argmax(1))
    assert torch.equal(found.appendix_g_K, slow.likelihood_KV.argmax(1))
    assert not networks.loud or not torch.equal(found.appendix_g_K, found.generator_K)  # the discriminator has a say
    assert found.among_top_K.all()


@pytest.mark.parametrize("top", [1, 5, 20])
def test_fewer_candidates_are_the_generators_best(networks: Networks, sites: Sites, slow: Slow, top: int) -> None:
    found = predict_with_discriminator(*networks[:2], sites, top=top, p_mask=P_MASK)
    allowed_KV = torch.zeros_like(slow.p_generator_KV, dtype=torch.bool)
    for row, order in enumerate(slow.p_generator_KV.argsort(1, descending=True)):
        allowed_KV[row, order[:top]] = True
    expected_K = slow.likelihood_KV.masked_fill(~allowed_KV, -1.0).argmax(1)
    assert found.appendix_g_K is not None and torch.equal(found.appendix_g_K, expected_K)
    truth_K = torch.from_numpy(sites.truth_K)
    assert torch.equal(found.among_top_K, allowed_KV[torch.arange(len(truth_K)), truth_K])
    if networks.loud:
        assert not torch.equal(expected_K, slow.likelihood_KV.argmax(1))  # the limit matters here


def test_passes_are_bounded_and_their_size_does_not_matter(
    networks: Networks, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No forward pass holds more rows than allowed, though the candidates of a site alone would."""
    whole = predict_with_discriminator(*networks[:2], sites, top=30, p_mask=P_MASK)
    rows: list[int] = []

    def count(module: object, arguments: tuple[Tensor, ...]) -> None:
        rows.append(len(arguments[0]))

    hooks = [network.electra.register_forward_pre_hook(count) for network in networks[:2]]
    monkeypatch.setattr(likelihoods, "TOKENS_TOGETHER", 7 * sites.rows_BT.shape[1])
    found = predict_with_discriminator(*networks[:2], sites, top=30, p_mask=P_MASK)
    for hook in hooks:
        hook.remove()
    assert max(rows) == 7 and sum(rows) == len(sites.row_K) * 31
    for mine, other in zip(found, whole, strict=True):
        assert mine is not None and other is not None and torch.equal(mine, other)


def test_temperature_is_that_of_sampling(networks: Networks, sites: Sites, slow: Slow) -> None:
    """The generator's own prediction is the same; the formula takes what was sampled from."""
    found = predict_with_discriminator(*networks[:2], sites, top=small.WORDS, p_mask=P_MASK, temperature=3.0)
    sampled_KV = (slow.p_generator_KV.log() / 3).softmax(-1)
    a, p = (1 - P_MASK) / P_MASK, slow.p_generator_KV
    # D from the likelihood of the slow loop: q = D p / (a (1 - D) + p)
    d_KV = slow.likelihood_KV * (a + p) / (p + a * slow.likelihood_KV)
    expected_KV = d_KV * sampled_KV / (a * (1 - d_KV) + sampled_KV)
    assert torch.equal(found.generator_K, slow.p_generator_KV.argmax(1))
    assert found.appendix_g_K is not None and torch.equal(found.appendix_g_K, expected_KV.argmax(1))


def test_without_a_discriminator(networks: Networks, sites: Sites, slow: Slow) -> None:
    assert torch.equal(predict(networks.generator, sites), slow.p_generator_KV.argmax(1))
    assert predict_with_discriminator(networks.generator, None, sites, top=5, p_mask=0.2).appendix_g_K is None
    assert predict_with_discriminator(*networks[:2], sites, top=5, p_mask=None).appendix_g_K is None


def test_sites_are_words_and_follow_from_seed_and_row() -> None:
    rows = small.rows(30)
    few = choose_sites(rows, rows=10, per_row=3, seed=1, specials=SPECIALS)
    many = choose_sites(rows, rows=30, per_row=3, seed=1, specials=SPECIALS)
    assert few.truth_K.min() > small.MASK  # all special ids are below
    assert set(zip(few.row_K, few.column_K, strict=True)) < set(zip(many.row_K, many.column_K, strict=True))
    assert len(set(few.row_K)) == 10 and max(few.row_K.tolist().count(row) for row in few.row_K) == 3
    other = choose_sites(rows, rows=10, per_row=3, seed=2, specials=SPECIALS)
    assert few.row_K.tolist() != other.row_K.tolist()
    everything = choose_sites(rows, rows=99, per_row=99, seed=1, specials=SPECIALS)
    assert len(everything.row_K) == (rows > small.MASK).sum()
