"""Google's weights in our networks give Google's numbers (fp32, dropout off, its own masks and samples)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.google import reference
from tests.google.reference import Arrays
from torch import Tensor

from electra_trainer.batch import Corrupted, Losses, Masked
from electra_trainer.model.attention import attention_bias
from electra_trainer.model.encoder import Encoder
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng

LOGITS = 1e-4  # absolute
LOSSES = 1e-5  # relative


@pytest.fixture(scope="module")
def forward(shared: Path) -> Arrays:
    return reference.read(shared, "forward.npz")


@pytest.fixture(scope="module")
def objective(shared: Path) -> ReplacedTokenDetection:
    return reference.trained(shared)


@pytest.fixture(scope="module")
def token_logits(objective: ReplacedTokenDetection, masked: Masked) -> Tensor:
    with torch.no_grad():
        logits: Tensor = objective.generator(masked.input_BT, masked.batch, masked.slots_K)
    return logits


@pytest.fixture(scope="module")
def replaced_logits(objective: ReplacedTokenDetection, corrupted: Corrupted) -> Tensor:
    with torch.no_grad():
        logits: Tensor = objective.discriminator(corrupted.input_BT, corrupted.batch)
    return logits


def worst(ours: Tensor, theirs: NDArray[np.generic]) -> float:
    """Largest absolute difference."""
    assert ours.shape == theirs.shape
    return float((ours.double() - torch.from_numpy(theirs).double()).abs().max())


def test_every_variable_has_one_parameter(shared: Path, objective: ReplacedTokenDetection) -> None:
    lines = (shared / "reference" / "tf" / "variables.tsv").read_text().splitlines()[1:-1]
    variables = [line.split("\t")[0] for line in lines]
    names = [reference.our_name(variable) for variable in variables]
    assert len(variables) == 146
    assert sorted(names) == sorted(name for name, _ in objective.named_parameters())


def test_labels_are_the_original_ids(forward: Arrays, masked: Masked) -> None:
    assert masked.labels_K.tolist() == forward["masked_lm_ids"][reference.used(forward)].tolist()


def test_generator_log_probabilities(forward: Arrays, masked: Masked, token_logits: Tensor) -> None:
    used = reference.used(forward)
    log_p = token_logits.double().log_softmax(-1).gather(1, masked.labels_K[:, None])[:, 0]
    assert worst(log_p, forward["mlm_label_logprob"][used]) <= LOGITS
    assert worst(token_logits.double().logsumexp(-1), forward["mlm_logsumexp"][used]) <= LOGITS


def test_generator_logits(forward: Arrays, token_logits: Tensor) -> None:
    """All 30,522 of them in two rows, the twenty best in all rows."""
    used = reference.used(forward)
    slots = int(used[:2].sum())
    assert worst(token_logits[:slots], forward["mlm_logits_first2"][used[:2]]) <= LOGITS
    best_ids = torch.from_numpy(forward["mlm_top20_ids"][used]).long()
    assert worst(token_logits.gather(1, best_ids), forward["mlm_top20_logits"][used]) <= LOGITS
    assert token_logits.argmax(-1).tolist() == forward["mlm_preds"][used].tolist()


def test_corrupted_ids_and_labels_are_exact(forward: Arrays, masked: Masked, corrupted: Corrupted) -> None:
    """Twelve slots repeat a position of their row: the floored average of their samples is there."""
    assert len(masked.slots_K) - len(masked.slots_K.unique()) == 12
    assert corrupted.input_BT.tolist() == forward["corrupted_input_ids"].tolist()
    assert corrupted.replaced_BT.int().tolist() == forward["is_fake_tokens"].tolist()


def test_discriminator_logits_of_real_tokens(forward: Arrays, masked: Masked, replaced_logits: Tensor) -> None:
    real = masked.batch.real_BT
    assert worst(replaced_logits[real], forward["disc_logits"][real.numpy()]) <= LOGITS
    assert worst(replaced_logits.sigmoid()[real], forward["disc_probs"][real.numpy()]) <= LOGITS


def layer_outputs(encoder: Encoder, ids_BT: Tensor, masked: Masked) -> list[Tensor]:
    """Projected embeddings, then the output of each layer."""
    found: list[Tensor] = []
    parts = [encoder.embeddings_project, *encoder.encoder.layer]
    hooks = [part.register_forward_hook(lambda _m, _i, out: found.append(out)) for part in parts if part is not None]
    with torch.no_grad():
        encoder(ids_BT, masked.batch)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("tower", ["gen", "disc"])
def test_layers(
    tower: str, forward: Arrays, objective: ReplacedTokenDetection, masked: Masked, corrupted: Corrupted
) -> None:
    network, ids_BT = (
        (objective.generator, masked.input_BT) if tower == "gen" else (objective.discriminator, corrupted.input_BT)
    )
    embedded, *layers = layer_outputs(network.electra, ids_BT, masked)
    assert worst(embedded[0], forward[f"{tower}_embedding_output_ex0"]) <= LOGITS
    assert worst(torch.stack([layer[0] for layer in layers]), forward[f"{tower}_layers_ex0"]) <= LOGITS
    real_T = masked.batch.real_BT[2]  # a padded row
    assert 0 < int(real_T.sum()) < len(real_T)
    assert worst(layers[-1][2][real_T], forward[f"{tower}_last_layer_ex2"][real_T.numpy()]) <= LOGITS


def test_attention_weights(forward: Arrays, objective: ReplacedTokenDetection, corrupted: Corrupted) -> None:
    encoder, batch = objective.discriminator.electra, corrupted.batch
    layer = encoder.encoder.layer[0].attention.self
    with torch.no_grad():
        assert encoder.embeddings_project is not None
        hidden = encoder.embeddings_project(encoder.embeddings(corrupted.input_BT, batch))[0]
        query, key = (
            part(hidden).view(len(hidden), layer.heads, -1).transpose(0, 1) for part in (layer.query, layer.key)
        )
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        weights = (scores + attention_bias(batch.piece_BT, hidden.dtype)[0]).softmax(-1)
    assert worst(weights, forward["disc_attn_layer0_ex0"]) <= LOGITS


def test_losses(
    forward: Arrays, objective: ReplacedTokenDetection, masked: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the objective itself: sums, counts, weights and division, with Google's samples in place of ours."""
    monkeypatch.setattr(
        "electra_trainer.objectives.generation.corrupt", lambda masked, _: corrupt(masked, reference.samples(forward))
    )
    with torch.no_grad():
        losses: Losses = objective(masked, Rng(0, 0, 0))
    counts = {name: float(count) for name, count in objective.counts(masked).items()}
    means = {name: float(term.sum) / counts[term.count] for name, term in losses.terms.items()}
    total = float(losses.total(counts))
    assert means["generator_loss"] == pytest.approx(float(forward["mlm_loss"]), rel=LOSSES)
    assert means["discriminator_loss"] == pytest.approx(float(forward["disc_loss"]), rel=LOSSES)
    assert total == pytest.approx(means["generator_loss"] + 50 * means["discriminator_loss"], rel=1e-6)
    assert total == pytest.approx(float(forward["total_loss"]), rel=LOSSES)


def test_losses_of_each_row(forward: Arrays, masked: Masked, token_logits: Tensor, replaced_logits: Tensor) -> None:
    """Python loops over slots and tokens, as the released code averages them."""
    log_p = token_logits.double().log_softmax(-1)
    each = iter([-float(log_p[slot, label]) for slot, label in enumerate(masked.labels_K.tolist())])
    for row, counts in enumerate(reference.used(forward)):
        for slot, counted in enumerate(counts):
            if counted:
                assert next(each) == pytest.approx(float(forward["mlm_per_example_loss"][row, slot]), abs=LOGITS)
    for row, expected in enumerate(forward["disc_per_example_loss"]):
        length = int(forward["input_mask"][row].sum())
        terms = []
        for column in range(length):
            p = float(replaced_logits[row, column].double().sigmoid())
            terms.append(-np.log(p if forward["is_fake_tokens"][row, column] else 1 - p))
        assert sum(terms) / length == pytest.approx(float(expected), rel=LOSSES)
