"""`--pooling pair`: its features against plain loops, what it reads of a row, and from the training texts to the folder."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.finetuning import toy
from tests.finetuning.test_run import after, assert_same_end, go, weights
from tests.finetuning.toy import Toy, source
from torch import Tensor
from torch.nn.functional import cosine_similarity, layer_norm

from electra_trainer.errors import Interrupted
from electra_trainer.finetuning.run import FineTunedNetwork, build_network, collate
from electra_trainer.model.encoder import Encoder
from electra_trainer.settings.config import Model
from electra_trainer.tasks.baselines import words
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.pair_head import MATCHES, SPREAD, TEMPERATURE, PairHead
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import Row
from electra_trainer.tasks.texts import Classification, Regression

CPU = torch.device("cpu")
CLS, SEP = 2, 3
PAIRS = [((7, 8, 9), (8, 10)), ((11,), (12, 13, 14, 15)), ((20, 21, 22, 20), (22, 20, 5, 6, 7))]
ROWS = [Row(ids=(CLS, *a, SEP, *b, SEP), example=index) for index, (a, b) in enumerate(PAIRS)]


@pytest.fixture
def network() -> FineTunedNetwork:
    made = build_network(source(layers=2), Regression(pooling="pair"), Recipe(dropout=0.3), seed=1).eval()
    assert isinstance(made.head, PairHead)
    made.head.idf_V.copy_(torch.linspace(0.1, 4, len(made.head.idf_V)))
    made.head.spelling_VS.copy_(torch.randn(made.head.spelling_VS.shape, generator=torch.Generator().manual_seed(2)))
    return made


def read(network: FineTunedNetwork, rows: list[Row]) -> tuple[Tensor, Tensor]:
    """The tokens' states, and the features that the linear layer has got, [B, 4 D + MATCHES]."""
    features: list[Tensor] = []
    hook = network.head.dense.register_forward_pre_hook(lambda module, given: features.append(given[0]))  # type: ignore[union-attr, operator]
    batch = collate(rows, source().specials, CPU)
    states = network(batch)
    network.head(states, batch)
    hook.remove()
    return states, features[0]


def best(mine: Tensor, other: Tensor, idf: list[float]) -> float:
    """The idf-weighted mean over the tokens of one text of their soft best match in the other, token by token."""
    total = 0.0
    for weight, one in zip(idf, mine, strict=True):
        cosines = [float(cosine_similarity(one, two, dim=0)) for two in other]
        shares = [math.exp(cosine / TEMPERATURE) for cosine in cosines]
        total += weight * sum(s * c for s, c in zip(shares, cosines, strict=True)) / sum(shares)
    return total / sum(idf)


def expected(network: FineTunedNetwork, a: tuple[int, ...], b: tuple[int, ...]) -> list[float]:
    """The features of one pair, its row computed alone, layer by layer."""
    encoder, idf = network.electra, network.head.idf_V
    batch = collate([Row(ids=(CLS, *a, SEP, *b, SEP), example=0)], source().specials, CPU)
    hidden = encoder.embeddings_project(encoder.embeddings(batch.ids_BT, batch))  # type: ignore[misc]
    table = encoder.embeddings.word_embeddings.weight
    depths = [network.head.spelling_VS[batch.ids_BT[0]], table[batch.ids_BT[0]] - table.mean(0)]
    for layer in encoder.encoder.layer:
        hidden = layer(hidden, None)
        depths.append(hidden[0])
    sides = [slice(1, 1 + len(a)), slice(2 + len(a), 2 + len(a) + len(b))]
    u, v = (torch.stack(list(depths[3][side])).mean(0) for side in sides)
    pooled = layer_norm(torch.cat([u, v, (u - v).abs(), u * v]), (4 * len(u),), eps=1e-12)
    matches = []
    for states in depths:
        one, two = (states[side] for side in sides)
        first, second = idf[list(a)].tolist(), idf[list(b)].tolist()
        there, back = best(one, two, first), best(two, one, second)
        plain = (best(one, two, [1.0] * len(a)) + best(two, one, [1.0] * len(b))) / 2
        weighted = cosine_similarity((torch.tensor(first) @ one), (torch.tensor(second) @ two), dim=0)
        matches += [
            there,
            back,
            min(there, back),
            plain,
            float(weighted),
            float(cosine_similarity(one.sum(0), two.sum(0), dim=0)),
        ]
    matches.append(min(len(a), len(b)) / max(len(a), len(b)))
    return [*pooled.tolist(), *(SPREAD * (match - 0.5) for match in matches)]


@torch.no_grad()
def test_against_loops(network: FineTunedNetwork) -> None:
    """Two layers, so the middle is after the first; the rows are of three lengths, and special tokens count nowhere."""
    _, found = read(network, ROWS)
    for (a, b), features in zip(PAIRS, found, strict=True):
        assert features.tolist() == pytest.approx(expected(network, a, b), abs=2e-5)


def test_the_gradient_is_on_the_tokens_of_both_texts_alone(network: FineTunedNetwork) -> None:
    batch = collate(ROWS, source().specials, CPU)
    states = network(batch).detach().requires_grad_()
    network.head(states, batch).sum().backward()
    assert states.grad is not None
    inner = batch.real_BT & (batch.ids_BT != CLS) & (batch.ids_BT != SEP)
    for depth in states.grad.split(network.head.widths, -1):  # type: ignore[arg-type, no-untyped-call]
        assert torch.equal(depth.abs().sum(-1) > 0, inner)


def test_an_empty_text_has_no_matches(network: FineTunedNetwork) -> None:
    rows = [
        Row(ids=(CLS, 7, 8, SEP, SEP), example=0),
        Row(ids=(CLS, SEP, 9, SEP), example=1),
        Row(ids=(CLS, SEP, SEP), example=2),
    ]
    states, features = read(network, [*rows, *ROWS])
    assert (features[:3, -MATCHES:] == -SPREAD / 2).all()
    features.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)
    assert states.isfinite().all()


def test_dropout_falls_on_the_pooled_features_alone(network: FineTunedNetwork) -> None:
    """In the rate of the recipe; a token's states and the matches are whole."""
    states, whole = read(network, ROWS)
    network.train()
    for module in network.electra.modules():
        module.eval()
    again, dropped = read(network, ROWS)
    assert torch.equal(states, again) and torch.equal(whole[:, -MATCHES:], dropped[:, -MATCHES:])
    kept = dropped[:, :-MATCHES] != 0
    assert torch.allclose(dropped[:, :-MATCHES][kept], whole[:, :-MATCHES][kept] / 0.7, rtol=1e-3)
    assert 0.5 < kept.float().mean() < 0.9


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_halves_are_the_encoder(layers: int) -> None:
    """Widths that the native kernels take, too, with gradients, so that they are used where there are any."""
    model = Model(
        vocab_size=40, embedding_size=32, hidden_size=64, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=96,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    encoder, batch = Encoder(model).train(), collate(ROWS, source().specials, CPU)
    middle, last = encoder.halves(batch.ids_BT, batch)
    assert torch.allclose(last[batch.real_BT], encoder(batch.ids_BT, batch)[batch.real_BT], atol=2e-5)
    del encoder.encoder.layer[layers // 2 :]
    encoder.encoder.model = replace(model, num_hidden_layers=max(layers // 2, 1))
    before = (
        encoder(batch.ids_BT, batch)
        if layers > 1
        else encoder.embeddings_project(encoder.embeddings(batch.ids_BT, batch))
    )  # type: ignore[misc]
    assert torch.allclose(middle[batch.real_BT], before[batch.real_BT], atol=2e-5)


def test_marks_belong_to_their_letters() -> None:
    assert words("हिन्दी में, Größe cafe\u0301 don't") == ["हिन्दी", "में", ",", "größe", "cafe\u0301", "don", "'", "t"]


def test_idf_by_hand() -> None:
    """A piece is counted once a text, in both texts of a pair, in training texts only."""
    train = [TextExample(text="w1 w1 w2", pair="w1"), TextExample(text="w1 w3", pair="w1 w2 w2")]
    task = Classification(labels=("a", "b"), pooling="pair")
    head = task.head(source().model)
    task.prepare(head, train, source().text(24))
    assert isinstance(head, PairHead)
    number = source().tokenizer.token_to_id
    for word, seen in (("w1", 4), ("w2", 2), ("w3", 1), ("w4", 0), ("[SEP]", 0)):
        assert float(head.idf_V[number(word)]) == pytest.approx(math.log(6 / (seen + 1)), rel=1e-6)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_run_that_was_stopped_ends_the_same(tmp_path: Path, kind: str) -> None:
    """With its idf, which is kept with the weights; and it learned something, the head included."""
    job = replace(toy.job(pooling="pair"), data=Toy(kind=kind, paired=True).load())
    go(job, tmp_path / "whole")
    with pytest.raises(Interrupted):
        go(job, tmp_path / "run", stop=after(7))
    go(job, tmp_path / "run")
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    kept = weights(tmp_path / "run").weights
    fresh = build_network(job.source, job.data.under(job.recipe)[0].task, job.recipe, seed=job.seed).state_dict()
    assert kept["head.idf_V"].unique().numel() > 3
    assert all(not torch.equal(kept[name], fresh[name]) for name in fresh if "key.bias" not in name)
