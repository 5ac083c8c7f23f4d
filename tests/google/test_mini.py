"""Google's weights in our networks give Google's numbers, with nothing but this repository: logits, losses, gradients and steps.

Dropout is off, masks and samples are Google's. The bounds are those of fp32 against an fp64 computation of the same numbers, times ten.
Adding the same number to all attention scores of a query changes nothing, so the gradient of a key's bias is 0, and what is computed for
it is noise.
"""

import numpy as np
import pytest
import torch
from tests.google import mini_reference as mini
from tests.google import reference
from tests.google.reference import Arrays, worst
from torch import Tensor

from electra_trainer.batch import Corrupted, Masked
from electra_trainer.model.attention import attention_bias
from electra_trainer.model.encoder import Encoder
from electra_trainer.objectives import rtd
from electra_trainer.objectives.generation import corrupt
from electra_trainer.randomness import Rng
from electra_trainer.settings.methods import Uniform
from electra_trainer.train.optim import build_optimizer, learning_rate
from electra_trainer.train.step import update

LOGITS, STATES, LOSSES, TOTAL = 3e-5, 2e-5, 2e-5, 5e-5  # absolute
GRADIENTS = 1e-4  # relative, of norms
UNIT = 2.0**-21
"""Tolerance of the stored movements of weights."""
MOVED = 1e-3  # relative, of the norm of a variable's movement
TERMS = ("generator_loss", "discriminator_loss")


@pytest.fixture(scope="module")
def forward() -> Arrays:
    return mini.read("forward")


@pytest.fixture(scope="module")
def objective() -> rtd.ReplacedTokenDetection:
    return mini.objective()


def layer_outputs(encoder: Encoder, ids_BT: Tensor, masked: Masked) -> list[Tensor]:
    """Projected embeddings, then the output of each layer."""
    found: list[Tensor] = []
    parts = [encoder.embeddings_project, *encoder.encoder.layer]
    hooks = [part.register_forward_hook(lambda _m, _i, out: found.append(out)) for part in parts if part is not None]
    encoder(ids_BT, masked.batch)
    for hook in hooks:
        hook.remove()
    return found


def test_every_variable_has_one_parameter(objective: rtd.ReplacedTokenDetection) -> None:
    names = [reference.our_name(row["name"]) for row in mini.table("variables.tsv")]
    assert len(names) == 80
    assert sorted(names) == sorted(name for name, _ in objective.named_parameters())


@torch.no_grad()
def test_generator(objective: rtd.ReplacedTokenDetection, forward: Arrays, masked: Masked) -> None:
    """All logits at the slots that count, and the loss of each."""
    used = reference.used(forward)
    logits = objective.generator(masked.input_BT, masked.batch, masked.slots_K)
    assert worst(logits, forward["mlm_logits"][used]) <= LOGITS
    assert logits.argmax(-1).tolist() == forward["mlm_preds"][used].tolist()
    log_p = logits.double().log_softmax(-1).gather(1, masked.labels_K[:, None])[:, 0]
    assert worst(-log_p, forward["mlm_per_example_loss"][used]) <= LOSSES


def test_corrupted_ids_and_labels(forward: Arrays, masked: Masked, corrupted: Corrupted) -> None:
    """Where a position was drawn twice, the floored average of its two samples is there."""
    assert len(masked.slots_K) - len(masked.slots_K.unique()) == 2
    assert masked.labels_K.tolist() == forward["masked_lm_ids"][reference.used(forward)].tolist()
    assert corrupted.input_BT.tolist() == forward["corrupted_input_ids"].tolist()
    assert corrupted.replaced_BT.int().tolist() == forward["is_fake_tokens"].tolist()


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["", "second_"])
def test_discriminator(objective: rtd.ReplacedTokenDetection, forward: Arrays, masked: Masked, prefix: str) -> None:
    """Logits and losses, also for samples at temperature 0.7 that are never the original word."""
    given = {**forward, "sampled_tokids": forward[f"{prefix}sampled_tokids"]}
    fakes = corrupt(masked, reference.samples(given))
    assert fakes.replaced_BT.int().tolist() == forward[f"{prefix}is_fake_tokens"].tolist()
    real = masked.batch.real_BT
    logits = objective.discriminator(fakes.input_BT, masked.batch)
    assert worst(logits[real], forward[f"{prefix}disc_logits"][real.numpy()]) <= LOGITS
    losses_BT = rtd.replaced_losses(logits, fakes.replaced_BT) * real
    assert worst(losses_BT.sum(1) / real.sum(1), forward[f"{prefix}disc_per_example_loss"]) <= LOSSES


@torch.no_grad()
@pytest.mark.parametrize("tower", ["gen", "disc"])
def test_states(
    tower: str, objective: rtd.ReplacedTokenDetection, forward: Arrays, masked: Masked, corrupted: Corrupted
) -> None:
    """Embeddings and the output of each layer, of a full row and of a padded one."""
    network = objective.generator if tower == "gen" else objective.discriminator
    ids_BT = masked.input_BT if tower == "gen" else corrupted.input_BT
    seen = layer_outputs(network.electra, ids_BT, masked)
    embedded = seen.pop(0) if tower == "disc" else network.electra.embeddings(ids_BT, masked.batch)
    for index, row in enumerate(forward["detail_rows"].tolist()):
        real_T = masked.batch.real_BT[row]
        expected = forward[f"{tower}_embedding_output"][index][real_T.numpy()]
        assert worst(embedded[row][real_T], expected) <= STATES
        for number, layer in enumerate(seen):
            assert worst(layer[row][real_T], forward[f"{tower}_layers"][number, index][real_T.numpy()]) <= STATES


@torch.no_grad()
def test_attention(objective: rtd.ReplacedTokenDetection, forward: Arrays, corrupted: Corrupted) -> None:
    encoder, batch = objective.discriminator.electra, corrupted.batch
    layer, row = encoder.encoder.layer[0].attention.self, int(forward["detail_rows"][1])
    assert encoder.embeddings_project is not None
    hidden = encoder.embeddings_project(encoder.embeddings(corrupted.input_BT, batch))[row]
    query, key = (part(hidden).view(len(hidden), layer.heads, -1).transpose(0, 1) for part in (layer.query, layer.key))
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    weights = (scores + attention_bias(batch.piece_BT, hidden.dtype)[row]).softmax(-1)
    real_T = batch.real_BT[row]
    assert worst(weights[:, real_T], forward["disc_attention_layer0"][:, real_T.numpy()]) <= STATES


def means(objective: rtd.ReplacedTokenDetection, masked: Masked, given: Tensor, patch: pytest.MonkeyPatch) -> Tensor:
    """Total, generator's and discriminator's loss, through the objective, with these samples instead of drawn ones."""
    patch.setattr("electra_trainer.objectives.generation.corrupt", lambda one, _: corrupt(one, given))
    losses, counts = objective(masked, Rng(0, 0, 0)), objective.counts(masked)
    parts = [losses.terms[name].sum / counts[losses.terms[name].count] for name in TERMS if name in losses.terms]
    return torch.stack([losses.total(counts), *parts])


def test_losses(
    objective: rtd.ReplacedTokenDetection, forward: Arrays, masked: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = means(objective, masked, reference.samples(forward), monkeypatch).detach()
    expected = np.array([forward[name] for name in ("total_loss", "mlm_loss", "disc_loss")])
    assert worst(found[:1], expected[:1]) <= TOTAL
    assert worst(found[1:], expected[1:]) <= LOSSES


@pytest.mark.parametrize("variant", ["tied", "untied_embeddings", "wide_embeddings"])
def test_other_generators(variant: str, forward: Arrays, masked: Masked, monkeypatch: pytest.MonkeyPatch) -> None:
    """One encoder for both; separate embeddings; embeddings as wide as the discriminator, which the generator projects."""
    theirs = {name.removeprefix(f"{variant}/"): one for name, one in mini.read("variants").items() if variant in name}
    made = mini.objective(variant)
    given = reference.samples({**forward, "sampled_tokids": theirs["sampled_tokids"]})
    fakes, real = corrupt(masked, given), masked.batch.real_BT
    assert fakes.replaced_BT.int().tolist() == theirs["is_fake_tokens"].tolist()
    with torch.no_grad():
        logits = made.discriminator(fakes.input_BT, masked.batch)
        assert worst(logits[real], theirs["disc_logits"][real.numpy()]) <= LOGITS
    found = means(made, masked, given, monkeypatch)
    assert worst(found[:1].detach(), theirs["losses"][:1]) <= TOTAL
    assert worst(found[1:].detach(), theirs["losses"][1:]) <= LOSSES
    found[0].backward()
    whole = torch.stack([one.grad.double().norm() for one in made.parameters() if one.grad is not None]).norm()
    words = made.discriminator.electra.embeddings.word_embeddings.weight.grad
    assert words is not None
    assert float(whole) == pytest.approx(float(theirs["grad_norms"][0]), rel=GRADIENTS)
    assert float(words.norm()) == pytest.approx(float(theirs["grad_norms"][2]), rel=GRADIENTS)


def test_a_uniform_generator(forward: Arrays, masked: Masked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed generator has no loss; Google's total has a constant in its place."""
    theirs = mini.read("variants")
    made = rtd.ReplacedTokenDetection(mini.config(generator=Uniform())).eval()
    weights = {reference.our_name(name): reference.as_ours(name, one) for name, one in mini.read("weights").items()}
    reference.fill(made, {name: one for name, one in weights.items() if name.startswith("discriminator.")})
    given = reference.samples({**forward, "sampled_tokids": theirs["uniform/sampled_tokids"]})
    with torch.no_grad():
        found = means(made, masked, given, monkeypatch)
    total, generator, discriminator = theirs["uniform/losses"].tolist()
    assert float(found[1]) == pytest.approx(discriminator, abs=LOSSES)
    assert float(found[0]) == pytest.approx(total - generator, abs=TOTAL)


def test_gradients(
    objective: rtd.ReplacedTokenDetection, forward: Arrays, masked: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every element, before clipping."""
    steps, made = mini.read("train_steps"), mini.objective()
    means(made, masked, reference.samples(forward), monkeypatch)[0].backward()
    for name, expected in mini.cut(steps["grad0"]).items():
        found = made.get_parameter(name).grad
        assert found is not None, name
        noise = 1e-6 if name.endswith("key.bias") else 0.0
        assert float((found - expected).norm()) <= GRADIENTS * float(expected.norm()) + noise, name


@pytest.mark.parametrize(("reading", "first"), [("trace", 0), ("ordered", -1)])
def test_five_steps(reading: str, first: int, forward: Arrays, masked: Masked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, losses, norms, and where every weight is afterwards, to the unit in which it is stored.

    `trace`: a step takes the rate of the step after it, as the released code ran. `ordered`: its own, 0 at first.
    """
    theirs, made, settings = mini.read("train_steps"), mini.objective(), mini.config()
    start = {name: one.detach().clone() for name, one in made.named_parameters()}
    optimizer = build_optimizer(made, settings.optimizer)
    for number in range(5):
        found = means(made, masked, reference.samples(forward), monkeypatch)
        assert worst(found.detach(), theirs[f"{reading}_losses"][number]) <= TOTAL, number
        found[0].backward()
        rate = learning_rate(number + first, peak=1e-3, schedule=settings.schedule)
        assert rate == pytest.approx(float(theirs[f"{reading}_lr"][number]), rel=1e-6)
        norm, _ = update(made, optimizer, clip_norm=1.0, rate=rate)
        assert norm == pytest.approx(float(theirs[f"{reading}_grad_norm"][number]), rel=GRADIENTS)
        optimizer.zero_grad()
        stored = {("trace", 0): "trace_dw1", ("trace", 4): "trace_dw5", ("ordered", 4): "ordered_dw5"}
        if name_of := stored.get((reading, number)):
            check_moved(made, start, theirs[name_of])
    after = means(made, masked, reference.samples(forward), monkeypatch)
    assert worst(after.detach(), theirs[f"{reading}_losses"][5]) <= TOTAL


def check_moved(made: rtd.ReplacedTokenDetection, start: dict[str, Tensor], units: np.ndarray) -> None:
    for name, expected in mini.cut(units.astype(np.float32) * UNIT).items():
        if name.endswith("key.bias"):
            continue
        off = (made.get_parameter(name).detach() - start[name] - expected).norm()
        rounding = UNIT / 2 * expected.numel() ** 0.5
        assert float(off) <= MOVED * float(expected.norm()) + rounding, name
