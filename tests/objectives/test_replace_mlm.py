"""Replace MLM (§3.5): what the encoder reads, its loss slot by slot, and what each loss reaches."""

from typing import Any

import pytest
import torch
from tests.plain import sample
from tests.reach import RNG, in_float64, lively, losses, made, masked_rows
from tests.small import MASK
from torch import Tensor

from electra_trainer.batch import Batch, Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.replace_mlm import ReplaceMaskedLanguageModelling
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import ReplaceMLM


def settings(**changes: Any) -> Config:
    return lively(**{"objective": ReplaceMLM(weight=3.0, generator_weight=0.5), **changes})


def what_it_reads(objective: torch.nn.Module, masked: Masked) -> tuple[Tensor, Batch, Tensor]:
    read: list[tuple[Tensor, Batch, Tensor]] = []
    objective.encoder.electra.register_forward_pre_hook(lambda _module, inputs: read.append(inputs))
    losses(objective, masked)
    (found,) = read
    return found


def test_the_encoder_reads_samples_and_no_mask() -> None:
    """At the chosen positions the generator's words, drawn from its own logits; elsewhere the originals."""
    objective, masked = made(settings()), masked_rows(settings())
    ids_BT, layout, _ = what_it_reads(objective, masked)
    words = sample(objective.generator(masked.input_BT, masked.batch, masked.slots_K), RNG.generator("sample"))
    expected = masked.batch.ids_BT.flatten().tolist()
    for slot, word in zip(masked.slots_K.tolist(), words.tolist(), strict=True):
        expected[slot] = word
    assert ids_BT.flatten().tolist() == expected and layout is masked.batch
    assert (masked.input_BT == MASK).any() and not (ids_BT == MASK).flatten()[masked.slots_K[words != MASK]].any()
    assert (ids_BT != masked.batch.ids_BT).sum() > 0.5 * len(masked.slots_K)


def test_losses_by_loops() -> None:
    """-log p(original word) at every chosen position, of the encoder from the samples, of the generator from [MASK]."""
    objective, masked = made(settings()), masked_rows(settings())
    ids_BT, _, slots_K = what_it_reads(objective, masked)
    assert slots_K is masked.slots_K
    expected = {"generator_loss": 0.0, "encoder_loss": 0.0}
    plain = in_float64(objective)
    for slot in masked.slots_K:
        word = int(masked.batch.ids_BT.flatten()[slot])
        for name, network, read in (
            ("generator_loss", plain.generator, masked.input_BT),
            ("encoder_loss", plain.encoder, ids_BT),
        ):
            logits = network(read, masked.batch, slot[None])[0].double()
            expected[name] -= float((logits[word] - torch.log(torch.exp(logits).sum())).detach())
    for name, term in losses(objective, masked).terms.items():
        assert float(term.sum.detach()) == pytest.approx(expected[name], rel=1e-5), name


def test_a_lucky_sample_is_still_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sample is the original its prediction counts all the same: the sum is over all chosen positions."""
    monkeypatch.setattr(
        "electra_trainer.objectives.generation.corrupt", lambda given, _: corrupt(given, given.labels_K)
    )
    objective, masked = made(settings()), masked_rows(settings())
    assert isinstance(objective, ReplaceMaskedLanguageModelling)
    logits_KV = objective.encoder(masked.batch.ids_BT, masked.batch, masked.slots_K)
    expected = torch.nn.functional.cross_entropy(logits_KV, masked.labels_K, reduction="sum")
    found = losses(objective, masked).terms["encoder_loss"].sum
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
