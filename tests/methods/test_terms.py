"""Terms of every objective: by what each is divided and weighed, which parameters it reaches, and that unused slots add nothing to it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from tests.reach import RNG, distance, gradients, lively, losses, made, masked_rows, named, reached, with_unused_slots
from tests.small import CLS, PAD

from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import (
    MLM,
    RTD,
    Adversarial,
    AllTokensMLM,
    HardMLM,
    Learned,
    ObjectiveSettings,
    ReplaceMLM,
    RtdMLM,
    SentenceContrast,
)

Terms = dict[str, tuple[str, float, tuple[str, ...]]]
"""Count and weight of each term, and how the names of all parameters begin that it reaches, except shared ones."""
G, D, E = ("generator.",), ("discriminator.",), ("encoder.",)
ENCODER = "discriminator.electra."

ARMS: dict[str, tuple[ObjectiveSettings, Terms]] = {
    "mlm": (MLM(), {"generator_loss": ("masked", 1.0, E)}),
    "hard-mlm": (
        HardMLM(pool=2.0, width=0.5, guess_weight=0.25),
        {"generator_loss": ("masked", 1.0, E), "guess_loss": ("masked", 0.25, ("guess", "encoder.electra.embeddings."))},
    ),
    "replace-mlm": (
        ReplaceMLM(weight=3.0, generator_weight=0.5),
        {"generator_loss": ("masked", 0.5, G), "encoder_loss": ("masked", 3.0, E)},
    ),
    "all-tokens-mlm": (
        AllTokensMLM(weight=3.0, generator_weight=0.5),
        {"generator_loss": ("masked", 0.5, G), "encoder_loss": ("real", 3.0, (*E, "copy."))},
    ),
    "all-tokens-mlm plain": (
        AllTokensMLM(copy=False),
        {"generator_loss": ("masked", 1.0, G), "encoder_loss": ("real", 1.0, E)},
    ),
    **{
        f"rtd {over}": (
            RTD(weight=7.0, generator_weight=0.5, loss_over=over),  # type: ignore[arg-type]
            {"generator_loss": ("masked", 0.5, G), "discriminator_loss": (count, 7.0, D)},
        )
        for over, count in (("all", "real"), ("masked", "chosen"), ("other", "others"))
    },
    "rtd-mlm": (
        RtdMLM(corrective_weight=3.0),
        {
            "generator_loss": ("masked", 1.0, G),
            "discriminator_loss": ("real", 50.0, D),
            "encoder_loss": ("masked", 3.0, (ENCODER, *E)),
        },
    ),
    "rtd-mlm neighbours": (
        RtdMLM(neighbour_weight=2.0),
        {
            "generator_loss": ("masked", 1.0, G),
            "discriminator_loss": ("real", 50.0, D),
            "encoder_loss": ("masked", 1.0, (ENCODER, *E)),
            "neighbour_loss": ("paired", 2.0, (ENCODER,)),
        },
    ),
    "adversarial": (
        Adversarial(weight=7.0, policy_weight=3.0, baseline_weight=0.5),
        {
            "generator_loss": ("masked", 0.0, ()),
            "policy_loss": ("masked", 3.0, G),
            "baseline_loss": ("masked", 0.5, ("baseline.",)),
            "discriminator_loss": ("real", 7.0, D),
        },
    ),
    "sentence-contrast": (
        SentenceContrast(unchanged=0.4),
        {
            "generator_loss": ("masked", 1.0, G),
            "discriminator_loss": ("real", 50.0, D),
            "sentence_loss": ("sentences", 1.0, (ENCODER, "sentence.")),
        },
    ),
}  # fmt: skip
SHARED = {"none": (), "embeddings": ("electra.embeddings.",), "all": ("electra.",)}
EACH = pytest.mark.parametrize("name", ARMS)


def settings(name: str, sharing: str = "embeddings") -> Config:
    return lively(objective=ARMS[name][0], sharing=sharing, generator=Learned(width=1.0 if sharing == "all" else 0.5))


@pytest.mark.parametrize(
    ("name", "sharing"), [pair for pair in itertools.product(ARMS, SHARED) if pair != ("adversarial", "all")]
)
def test_what_each_term_is_and_reaches(name: str, sharing: str) -> None:
    """A loss of the generator reaches also what is shared; no other loss reaches a layer of the generator."""
    objective, masked = made(settings(name, sharing)), masked_rows(settings(name, sharing))
    terms, quiet = losses(objective, masked).terms, objective(masked, RNG)
    assert not quiet.diagnostics and all(torch.equal(found.sum, quiet.terms[term].sum) for term, found in terms.items())
    assert {term: (found.count, found.weight) for term, found in terms.items()} == {
        term: (count, weight) for term, (count, weight, _) in ARMS[name][1].items()
    }
    kept = objective.exported()[0].name
    for term, (_, _, prefixes) in ARMS[name][1].items():
        assert terms[term].sum.requires_grad == bool(prefixes)
        if prefixes:
            shared = [f"{kept}.{prefix}" for prefix in SHARED[sharing] if prefixes == G]
            assert reached(objective, terms[term].sum) == named(objective, *prefixes, *shared), term


@EACH
def test_counts_are_known_without_a_forward_pass(name: str) -> None:
    """Slots; real tokens, with [CLS] and [SEP] and without padding; inputs, of which a row has several."""
    objective, masked = made(settings(name)), masked_rows(settings(name))
    ids = [token for row in masked.batch.ids_BT.tolist() for token in row]
    expected = {
        **dict.fromkeys(("masked", "chosen", "others"), len(set(masked.slots_K.tolist()))),
        "real": len(ids) - ids.count(PAD),
        "sentences": ids.count(CLS),
        "paired": len(masked.batch.ids_BT) // 2 * 2,
    }
    assert ids.count(CLS) > len(masked.batch.ids_BT)
    counts = {count: int(number) for count, number in objective.counts(masked).items()}
    assert counts.keys() == {count for count, _, _ in ARMS[name][1].values()}
    assert all(number == expected[count] for count, number in counts.items() if name != "hard-mlm")
    assert int(objective.counts(with_unused_slots(masked)).get("chosen", expected["chosen"])) == expected["chosen"]


@EACH
def test_the_last_layer_is_computed_where_it_is_read(name: str) -> None:
    """In the generator, and in a network that is trained by MLM alone."""
    objective, masked = made(settings(name)), masked_rows(settings(name))
    network = getattr(objective, "generator", objective.encoder if "mlm" in name else None)
    seen: list[int] = []
    network.electra.encoder.layer[-1].intermediate.register_forward_hook(
        lambda _m, given, _o: seen.append(given[0].shape[0])
    )
    losses(objective, masked)
    assert seen == [int(objective.counts(masked)["masked"])]


@pytest.mark.parametrize("name", [name for name in ARMS if name != "hard-mlm"])
def test_unused_slots_count_for_nothing(name: str) -> None:
    """Sums, gradients and diagnostics are those of the used slots, and as if the last layer was computed at all tokens."""
    objective, masked = made(settings(name)), masked_rows(settings(name))
    whole = made(replace(settings(name), last_layer="all"))
    one, two = losses(whole, masked), losses(objective, with_unused_slots(masked))
    for term, found in one.terms.items():
        assert float(two.terms[term].sum.detach()) == pytest.approx(float(found.sum.detach()), rel=1e-6), term
        if found.sum.requires_grad:
            mine, expected = gradients(objective, two.terms[term].sum), gradients(whole, found.sum)
            assert distance(mine, expected) < 1e-5, term
    for key, tensor in one.diagnostics.items():
        more = two.diagnostics[key][: len(masked.slots_K)] if key.endswith("_K") else two.diagnostics[key]
        assert torch.allclose(more.double(), tensor.double(), atol=1e-5), key
