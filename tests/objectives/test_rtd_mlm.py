"""RTD with corrective MLM: RTD's own losses, the corrective one by a plain formula, what each reaches, and what is kept of it."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.prepared import small_config, write_store
from tests.reach import distance, gradients, in_float64, lively, losses, made, masked_rows, with_unused_slots

from electra_trainer import load
from electra_trainer.errors import ConfigError
from electra_trainer.objectives.rtd_mlm import neighbour_loss
from electra_trainer.objectives.two_stage import DiscriminatorStage, begin_from_generator
from electra_trainer.presets.arms import ARMS
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import BatchShape, Config
from electra_trainer.settings.methods import MLM, RTD, Learned, RtdMLM, TwoStage
from electra_trainer.train.from_flags import settings_from
from electra_trainer.train.loop import pretrain


def settings(corrective_weight: float = 3.0, **changes: Any) -> Config:
    return lively(**{"objective": RtdMLM(corrective_weight=corrective_weight), **changes})


def test_with_a_tiny_weight_it_is_rtd() -> None:
    """The very same sums, and the same gradient of the total, but for the token head, which RTD has not."""
    given = settings(1e-12)
    mine, plain, masked = made(given), made(lively(objective=RTD())), masked_rows(given)
    one, two = losses(mine, masked), losses(plain, masked)
    assert set(one.terms) == {"generator_loss", "discriminator_loss", "encoder_loss"}
    assert one.terms["encoder_loss"].count == "masked" and one.terms["encoder_loss"].weight == 1e-12
    for name, term in two.terms.items():
        assert torch.equal(one.terms[name].sum, term.sum) and one.terms[name].weight == term.weight
    counts = mine.counts(masked)
    assert counts == plain.counts(masked)
    found, expected = gradients(mine, one.total(counts)), gradients(plain, two.total(counts))
    assert distance({name: found[name] for name in expected}, expected) < 1e-6


def test_neighbours_by_the_plain_formula() -> None:
    """Each row finds its neighbour among all others; of five rows the last has none. Padding counts for nothing."""
    hidden_BTD = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    real_BT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]], dtype=torch.bool)
    unit = [row[real].mean(0) / row[real].mean(0).norm() for row, real in zip(hidden_BTD, real_BT, strict=True)][:4]
    expected = 0.0
    for i, neighbour in enumerate((1, 0, 3, 2)):
        scores = {j: float(unit[i] @ unit[j]) / 0.05 for j in range(4) if j != i}
        expected += math.log(sum(map(math.exp, scores.values()))) - scores[neighbour]
    assert float(neighbour_loss(hidden_BTD, real_BT)) == pytest.approx(expected, rel=1e-5)


def test_neighbours_need_even_lanes() -> None:
    with pytest.raises(ConfigError, match=r"batch\.size.*an even number of rows in each lane"):
        lively(objective=RtdMLM(neighbour_weight=1.0), batch=BatchShape(size=6, lanes=2, sequence_length=16))


@pytest.mark.parametrize("sharing", ["embeddings", "none"])
def test_corrective_loss_and_gradient_by_the_plain_formula(sharing: str) -> None:
    """Cross-entropy of full logits, in double precision, at the chosen positions of the corrupted input; unused slots change nothing."""
    given = settings(sharing=sharing)
    objective, masked = made(given), masked_rows(given)
    found = losses(objective, masked)
    plain, corrupted_BT = in_float64(objective), found.diagnostics["corrupted_BT"]
    logits_KV = plain.encoder(corrupted_BT, masked.batch, masked.slots_K).double()
    expected = F.cross_entropy(logits_KV, masked.labels_K, reduction="sum")
    assert (corrupted_BT != masked.batch.ids_BT).any()
    assert torch.equal(found.diagnostics["encoder_correct_K"], logits_KV.argmax(-1) == masked.labels_K)
    for mine in (
        found.terms["encoder_loss"].sum,
        losses(objective, with_unused_slots(masked)).terms["encoder_loss"].sum,
    ):
        assert float(mine.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        assert distance(gradients(objective, mine), gradients(plain, expected)) < 1e-5


def test_one_pass_serves_both_heads() -> None:
    objective, masked = made(settings(sharing="none")), masked_rows(settings())
    passes: list[Any] = []
    objective.discriminator.electra.register_forward_hook(lambda *_: passes.append(1))
    losses(objective, masked)
    assert len(passes) == 1


def test_two_stages() -> None:
    """The second one begins with the generator's token head too, and trains everything but the generator."""
    given = settings(phases=TwoStage(), generator=Learned(width=1.0), sharing="none")
    objective, masked = made(given), masked_rows(given)
    begin_from_generator(objective)
    for name, parameter in objective.generator.named_parameters():
        assert torch.equal(objective.encoder.get_parameter(name), parameter), name
    stage = DiscriminatorStage(objective)
    assert {id(p) for p in stage.parameters()} == {
        id(p) for name, p in objective.named_parameters() if not name.startswith("generator.")
    }
    assert set(losses(stage, masked).terms) == {"discriminator_loss", "encoder_loss"}


def test_a_run_is_exported_and_begins_with_a_masked_language_model(tmp_path: Path) -> None:
    """`--init` of an MLM run gives encoder and token head; transformers reads all three exported networks."""
    data, given = write_store(tmp_path / "data"), small_config(steps=4)
    first = pretrain(dataclasses.replace(given, objective=MLM()), data, out=tmp_path / "mlm", device="cpu", quiet=True)
    run = pretrain(
        dataclasses.replace(given, objective=RtdMLM(), seed=5), data, out=tmp_path / "run", device="cpu", quiet=True,
        init=InitFrom(name=str(first)),
    )  # fmt: skip
    ended, begun = load(first).encoder, read(run / "checkpoints" / "step-00000000").weights
    assert ended is not None
    for name, parameter in ended.named_parameters():
        mine = f"discriminator.{name}" if name.startswith("electra.") else f"encoder.{name}"
        assert torch.equal(begun[mine], parameter), mine
    folders = export_run(run, tmp_path / "export")
    assert [folder.name for folder in folders] == ["discriminator", "encoder", "generator"]
    trained = load(run)
    for folder, item in zip(folders, trained.networks, strict=True):
        assert check_agreement(folder, item.network, trained.tokenizer, length=30) <= 1e-5


def test_rtd_is_chosen_against_it(tmp_path: Path) -> None:
    """Its settings are RTD's and more; who asks for RTD gets RTD."""
    file = tmp_path / "run.json"
    file.write_text('{"objective": {"kind": "rtd-mlm", "weight": 7.0}}')
    assert settings_from(["--config", str(file)]).objective == RtdMLM(weight=7.0)
    assert settings_from(["--config", str(file), "--objective", "rtd"]).objective == RTD()
    assert ARMS["electra"](settings()).objective == RTD()
