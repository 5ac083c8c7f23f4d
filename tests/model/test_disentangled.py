"""Gradient-disentangled tables (DeBERTaV3): the discriminator's are the generator's, which its loss never moves, plus its own difference."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prepared import small_config, write_store
from tests.reach import RNG, gradients, lively, losses, made, masked_rows
from torch import Tensor

from electra_trainer import load
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.batches import encode_rows
from electra_trainer.objectives import build
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.read_back import read_network
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import RtdMLM
from electra_trainer.train.loop import pretrain

WORDS, POSITIONS = "electra.embeddings.word_embeddings", "electra.embeddings.position_embeddings"
TABLES = {f"generator.{WORDS}.weight", f"generator.{POSITIONS}.weight"}
DELTAS = {f"discriminator.{WORDS}.delta", f"discriminator.{POSITIONS}.delta"}


def settings(**changes: Any) -> Config:
    return lively(sharing="disentangled", **changes)


def test_each_loss_moves_its_own() -> None:
    """The discriminator's loss its differences and nothing of the generator; the generator's its tables and no difference."""
    objective, masked = made(settings()), masked_rows(settings())
    terms = losses(objective, masked).terms
    generated = gradients(objective, terms["generator_loss"].sum)
    discriminated = gradients(objective, terms["discriminator_loss"].sum)
    assert {name.partition(".")[0] for name in generated} == {"generator"} and generated.keys() >= TABLES
    assert {name.partition(".")[0] for name in discriminated} == {"discriminator"} and discriminated.keys() >= DELTAS
    assert all(found[name].any() for found, names in ((generated, TABLES), (discriminated, DELTAS)) for name in names)
    assert generated.keys() | discriminated.keys() == {name for name, _ in objective.named_parameters()}


def test_the_start_is_that_of_shared_tables() -> None:
    """Losses, and the gradients of all but the tables, to the bit; the two parts of a table's add up to the shared one's."""
    masked = masked_rows(settings())
    apart, one = made(settings()), made(dataclasses.replace(settings(), sharing="tables"))
    totals = [losses(objective, masked).total({"masked": 30.0, "real": 200.0}) for objective in (apart, one)]
    assert torch.equal(*totals)
    found, expected = (gradients(objective, total) for objective, total in zip((apart, one), totals, strict=True))
    for name, gradient in expected.items():
        if name in found:
            assert torch.equal(found[name], gradient), name
        else:
            both = found[name.replace(".weight", ".delta")] + found[name.replace("discriminator.", "generator.")]
            assert torch.allclose(both, gradient, rtol=1e-5, atol=1e-6), name
    assert found.keys() - expected.keys() == TABLES | DELTAS


def moved(objective: Any) -> Any:
    """With differences that are not 0."""
    with torch.no_grad():
        for name, parameter in objective.named_parameters():
            if name in DELTAS:
                parameter.normal_(0.0, 0.05, generator=torch.Generator().manual_seed(len(name)))
    return objective


def test_a_copy_keeps_its_own_base() -> None:
    objective = moved(build(settings()))
    other: Any = copy.deepcopy(objective)
    assert not {id(p) for p in objective.parameters()} & {id(p) for p in other.parameters()}
    table = other.discriminator.electra.embeddings.word_embeddings
    assert table.base.weight is other.generator.electra.embeddings.word_embeddings.weight
    assert torch.equal(table.weight, objective.discriminator.electra.embeddings.word_embeddings.weight)


def test_parameters_are_counted() -> None:
    """The differences with the discriminator, the tables with the generator."""
    for objective in (settings().objective, RtdMLM()):
        config = settings(objective=objective)
        assert parameters(config).joint == sum(parameter.numel() for parameter in build(config).parameters())


def test_a_second_head_trains_the_difference() -> None:
    """rtd-mlm's token head reads the discriminator's whole table: its loss reaches the difference, not the generator."""
    config = settings(objective=RtdMLM())
    objective, masked = made(config), masked_rows(config)
    terms = objective(masked, RNG).terms
    found = gradients(objective, terms["encoder_loss"].sum)
    assert found.keys() >= DELTAS and not [name for name in found if name.startswith("generator.")]


# --- runs ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disentangled")
    config = changed(dataclasses.replace(small_config(steps=4), sharing="disentangled"), checkpoint={"keep": 100})
    return pretrain(config, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


def weights(run: Path, step: int = -1) -> dict[str, Tensor]:
    return read(numbered(run / "checkpoints")[step][1]).weights


def test_an_export_has_one_table(run: Path) -> None:
    """Read back, and by transformers, it computes what the run computes; the difference has been learned."""
    saved, live = weights(run), {item.name: item.network for item in load(run).networks}
    assert all(saved[name].any() for name in DELTAS) and not weights(run, 0)[min(DELTAS)].any()
    rows = encode_rows([[2, *range(5, 30), 3], [2, *range(40, 65), 3]])
    for folder in export_run(run, run.parent / "exported"):
        network, _ = read_network(folder)
        extra = (torch.arange(rows.ids_BT.numel()),) if folder.name == "generator" else ()
        with torch.no_grad():
            assert torch.equal(network(rows.ids_BT, rows, *extra), live[folder.name](rows.ids_BT, rows, *extra))
        assert check_agreement(folder, live[folder.name], load(run).tokenizer, length=30) <= 1e-5
    (name,) = (name for name in DELTAS if "word" in name)
    whole = saved[name] + saved[f"generator.{WORDS}.weight"]
    assert torch.equal(load_source(run).weights["embeddings.word_embeddings.weight"], whole)


def begun(run: Path, init: str, out: Path, sharing: str) -> dict[str, Tensor]:
    config = dataclasses.replace(small_config(steps=4), sharing=sharing)  # type: ignore[arg-type]
    pretrain(
        changed(config, checkpoint={"keep": 100}), run.parent / "data", out=out, init=InitFrom(name=init), device="cpu",
        quiet=True,
    )  # fmt: skip
    return weights(out, 0)


def test_trained_weights_begin_it(run: Path, tmp_path: Path) -> None:
    """Two networks give their difference, a discriminator alone gives none; either way its tables are the trained ones."""
    (folder, _), saved = export_run(run, tmp_path / "out"), weights(run)
    for name, init in {"run": str(run), "export": str(tmp_path / "out"), "discriminator": str(folder)}.items():
        mine = begun(run, init, tmp_path / name, "disentangled")
        for table in (WORDS, POSITIONS):
            base, delta = f"generator.{table}.weight", f"discriminator.{table}.delta"
            assert torch.allclose(mine[base] + mine[delta], saved[base] + saved[delta], atol=1e-6)
            assert mine[delta].any() == (name != "discriminator")
            assert torch.equal(mine[base], saved[base]) == (name != "discriminator")
    other = begun(run, str(run), tmp_path / "none", "none")
    assert torch.equal(other[f"generator.{WORDS}.weight"], saved[f"generator.{WORDS}.weight"])
