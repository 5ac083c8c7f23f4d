"""All-Tokens MLM (§3.5): the mixture written out in float64, its gradient by autograd over all logits, and its memory."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from tests.reach import distance, gradients, in_float64, lively, losses, made, masked_rows, named, reached
from tests.small import PAD
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from electra_trainer.batch import Corrupted, Masked
from electra_trainer.kernels import vocabulary_softmax
from electra_trainer.objectives.all_tokens_mlm import mixture
from electra_trainer.objectives.generation import corrupt
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import AllTokensMLM


def settings(**changes: Any) -> Config:
    return lively(**{"objective": AllTokensMLM(weight=3.0, generator_weight=0.5), **changes})


def plain_loss(objective: Any, masked: Masked, corrupted_BT: Tensor) -> Tensor:
    """-log(D·1[x = x_corrupt] + (1 - D)·softmax(x)) over all real tokens, from all logits [B, T, V]; in float64."""
    hidden_BTD = objective.encoder.electra(corrupted_BT, masked.batch)
    words_VE, bias_V = objective.encoder.output()
    logits_BTV = objective.encoder.generator_predictions(hidden_BTD) @ words_VE.t() + bias_V
    copy_BT1 = torch.sigmoid(objective.copy(hidden_BTD))
    assert logits_BTV.dtype == torch.float64
    copied_BTV = torch.nn.functional.one_hot(corrupted_BT, logits_BTV.shape[-1])
    p_BTV = copy_BT1 * copied_BTV + (1 - copy_BT1) * logits_BTV.softmax(-1)
    p_BT = p_BTV.gather(-1, masked.batch.ids_BT[..., None])[..., 0]
    return -p_BT[masked.batch.ids_BT != PAD].log().sum()


def every_second_right(given: Masked, _: Tensor) -> Corrupted:
    """In place of samples: at every second slot the original, as from a lucky generator; elsewhere the next word."""
    odd_K = torch.arange(len(given.slots_K)) % 2 == 1
    return corrupt(given, torch.where(odd_K, given.labels_K, (given.labels_K + 1) % 97))


def test_without_the_copy_layer_it_is_the_cross_entropy_of_all_tokens() -> None:
    """No layer, no logit of "replaced"; loss, gradient and correctness are those of the softmax alone."""
    given = settings(objective=AllTokensMLM(weight=3.0, generator_weight=0.5, copy=False))
    objective, masked = made(given), masked_rows(given)
    found = losses(objective, masked)
    corrupted_BT, labels_BT = found.diagnostics["corrupted_BT"], masked.batch.ids_BT
    plain = in_float64(objective)
    logits_NV = plain.encoder(corrupted_BT, masked.batch, torch.arange(labels_BT.numel()))
    expected = torch.nn.functional.cross_entropy(logits_NV, labels_BT.flatten(), ignore_index=PAD, reduction="sum")
    loss = found.terms["encoder_loss"].sum
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert distance(gradients(objective, loss), gradients(plain, expected)) < 1e-5
    assert reached(objective, loss) == named(objective, "encoder.") and objective.copy is None
    right_K = logits_NV.argmax(-1)[masked.slots_K] == masked.labels_K
    assert torch.equal(found.diagnostics["encoder_correct_K"], right_K) and "replaced_BT" not in found.diagnostics


@pytest.mark.parametrize("chunk", [1, 97, 10 * 97, 4_000_000])
def test_loss_and_gradient_are_those_of_the_plain_formula(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen or not, specials too, padding not; a lucky sample is a copy, so is a token that was never chosen. The gradient is
    compared in every parameter, the copy layer too, by autograd over all logits in float64; whatever the size of the chunks."""
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", every_second_right)
    monkeypatch.setattr(vocabulary_softmax, "CHUNK_ELEMENTS", chunk)
    objective, masked = made(settings()), masked_rows(settings())
    found = losses(objective, masked)
    plain, loss = in_float64(objective), found.terms["encoder_loss"].sum
    expected = plain_loss(plain, masked, found.diagnostics["corrupted_BT"])
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert distance(gradients(objective, loss), gradients(plain, expected)) < 1e-5


@pytest.mark.parametrize("bias", [-50.0, 50.0])
def test_a_copy_layer_that_is_sure(bias: float) -> None:
    """D next to 0 or 1: loss and gradient are finite and those of the formula; a replaced token under D = 1 costs some 50 nats."""
    objective, masked = made(settings()), masked_rows(settings())
    with torch.no_grad():
        objective.copy.bias.fill_(bias)
    found = losses(objective, masked)
    loss = found.terms["encoder_loss"].sum
    plain = in_float64(objective)
    expected = plain_loss(plain, masked, found.diagnostics["corrupted_BT"])
    if bias < 0:
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        assert distance(gradients(objective, loss), gradients(plain, expected)) < 1e-5
    else:
        assert float(loss.detach()) > 45 * int(found.diagnostics["replaced_BT"].sum())
    assert all(gradient.isfinite().all() for gradient in gradients(objective, loss).values())


@pytest.mark.parametrize("copy", [-1e4, -50.0, -3.0, 0.0, 3.0, 30.0, 50.0, 1e4])
@pytest.mark.parametrize("log_p", [0.0, -1e-3, -5.0, -80.0, -200.0])
@pytest.mark.parametrize("copied", [True, False])
def test_mixture_against_exact_arithmetic(copy: float, log_p: float, copied: bool) -> None:
    """log(D·1 + (1 - D)·p) in 50 digits and any exponent, and a finite gradient even there."""
    inputs = [torch.tensor(copy, requires_grad=True), torch.tensor(log_p, requires_grad=True)]
    found = mixture(*inputs, copied_BT=torch.tensor(copied))
    with localcontext() as context:
        context.prec = 50
        d, rest = (1 / (1 + Decimal(logit).exp()) for logit in (-copy, copy))
        expected = float(((d if copied else 0) + rest * Decimal(log_p).exp()).ln())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert all(gradient.isfinite() for gradient in torch.autograd.grad(found, inputs))


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operation writes, forward or backward."""

    elements = 0

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out


def test_no_tensor_of_all_positions_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2,000 words all logits would be 576,000 numbers; forward, looking and backward write none of more than a tenth."""
    monkeypatch.setattr(vocabulary_softmax, "CHUNK_ELEMENTS", 20_000)
    given = settings(vocab_size=2000)
    objective, masked = made(given), masked_rows(given)
    with Largest() as largest:
        found = losses(objective, masked)
        found.total({"masked": 1.0, "real": 1.0}).backward()
    assert max(2000 * 16, 20_000) <= largest.elements <= 57_600
    plain = in_float64(objective)
    with Largest() as largest:  # what the bound is against
        plain_loss(plain, masked, found.diagnostics["corrupted_BT"]).backward()
    assert largest.elements >= 12 * 24 * 2000
