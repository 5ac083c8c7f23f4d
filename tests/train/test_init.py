"""A run that begins with trained weights: they are those of the other run, whatever kind of folder they are in, or nothing begins."""

import dataclasses
import shutil
from pathlib import Path
from typing import Literal

import huggingface_hub
import pytest
import safetensors.torch
import torch
from tests.prepared import small_config, write_store
from torch import Tensor

from electra_trainer.errors import ConfigError, MissingInputError
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import MLM, RTD, Learned, RtdMLM, TwoStage
from electra_trainer.train import loop
from electra_trainer.train.loop import pretrain

Sharing = Literal["embeddings", "none", "tables", "disentangled"]


def config(**changes: object) -> Config:
    """Six steps, saved at the fourth and at the last; one lane and one layer, as nothing here depends on them."""
    settings = dataclasses.replace(small_config(steps=6, lanes=1, layers=1), **changes)  # type: ignore[arg-type]
    return dataclasses.replace(settings, checkpoint=dataclasses.replace(settings.checkpoint, keep=100))


@pytest.fixture(scope="module")
def first(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(), data, out=tmp_path_factory.mktemp("init") / "first", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def mlm(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = config(objective=MLM(), seed=9)
    return pretrain(settings, data, out=tmp_path_factory.mktemp("init") / "mlm", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def exported(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "exported"
    export_run(first, folder)
    return folder


def begun(data: Path, out: Path, model: Path, settings: Config) -> dict[str, Tensor]:
    """The weights of step 0 of a run that begins with those of `model`."""
    pretrain(settings, data, out=out, init=InitFrom(name=str(model)), device="cpu", quiet=True)
    return read(out / "checkpoints" / "step-00000000").weights


def last(run: Path) -> dict[str, Tensor]:
    return read(numbered(run / "checkpoints")[-1][1]).weights


def equal(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> set[str]:
    return {name for name in mine.keys() & theirs.keys() if torch.equal(mine[name], theirs[name])}


@pytest.mark.parametrize("form", ["first", "exported"])
def test_a_run_begins_where_the_other_ended(
    form: str, data: Path, first: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From a run, and from its export, which holds both networks."""
    mine = begun(data, tmp_path / "run", request.getfixturevalue(form), config(seed=9))
    assert equal(mine, last(first)) == mine.keys()
    assert "init" in RunFolder(tmp_path / "run").environment()
    assert "weights of" in (tmp_path / "run" / "log.txt").read_text()


def test_a_folder_of_one_network_gives_that_one(data: Path, first: Path, exported: Path, tmp_path: Path) -> None:
    mine = begun(data, tmp_path / "run", exported / "discriminator", config(seed=9))
    same = equal(mine, last(first))
    assert {name for name in mine if name.startswith("discriminator.")} <= same
    assert "generator.electra.encoder.layer.0.attention.self.query.weight" not in same
    assert (
        "fresh: generator.electra, generator.generator_lm_head, generator.generator_predictions"
        in (tmp_path / "run" / "log.txt").read_text()
    )


def log_of(run: Path) -> str:
    return (run / "log.txt").read_text()


def hub_form(exported: Path, out: Path) -> tuple[Path, Path]:
    """The folders of an export as the Hub has Google's: the tied output weight stored too, a sibling folder for each network."""
    for name in ("discriminator", "generator"):
        shutil.copytree(exported / name, out / name)
    tensors = safetensors.torch.load_file(out / "generator" / "model.safetensors")
    tensors["generator_lm_head.weight"] = tensors["electra.embeddings.word_embeddings.weight"].clone()
    safetensors.torch.save_file(tensors, out / "generator" / "model.safetensors")
    return out / "discriminator", out / "generator"


@pytest.mark.parametrize("turned", [False, True])
def test_two_folders_give_both_networks(
    data: Path, first: Path, exported: Path, tmp_path: Path, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks by their Hub names, in either order; and again, for replay and for a run that is resumed before its first checkpoint."""
    folders = dict(zip(("google/d", "google/g"), hub_form(exported, tmp_path), strict=True))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(folders[name]))
    names = ",".join(sorted(folders, reverse=turned))
    pretrain(config(seed=9), data, out=tmp_path / "run", init=InitFrom(name=names), device="cpu", quiet=True)
    mine = read(tmp_path / "run" / "checkpoints" / "step-00000000").weights
    assert equal(mine, last(first)) == mine.keys()
    assert RunFolder(tmp_path / "run").environment()["init"] == InitFrom(name=names).read().identity
    assert (
        f"weights of {names}: discriminator and generator (sharing: embeddings); fresh: moments and step count of the optimizer. "
        "The learning rate begins anew: peak 0.001 (--optimizer.learning-rate), warm-up 3 (--schedule.warmup-steps)."
    ) in log_of(tmp_path / "run")
    card = export_run(tmp_path / "run", tmp_path / "export")[0] / "README.md"
    assert f"| began with | the weights of {names.replace(',', ', ')} |" in card.read_text()


def begin(data: Path, out: Path, name: str, settings: Config) -> None:
    pretrain(settings, data, out=out, init=InitFrom(name=name), device="cpu", quiet=True)


def test_what_is_no_pair(data: Path, first: Path, exported: Path, tmp_path: Path) -> None:
    discriminator, generator = exported / "discriminator", exported / "generator"
    for name in (f"{generator},{generator}", f"{first},{generator}", f"{discriminator},{generator},{discriminator}2"):
        with pytest.raises((ConfigError, MissingInputError), match=r"expected a discriminator|no such folder"):
            begin(data, tmp_path / "run", name, config())
    other = write_store(tmp_path / "other", vocab_size=390)
    shutil.copytree(generator, tmp_path / "g")
    shutil.copy(other / "tokenizer" / "tokenizer.json", tmp_path / "g" / "tokenizer.json")
    with pytest.raises(ConfigError, match="has another vocabulary than"):
        begin(data, tmp_path / "run", f"{discriminator},{tmp_path / 'g'}", config())
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("part", ["word_embeddings", "LayerNorm.bias", "token_type_embeddings"])
def test_tables_that_differ_are_refused(data: Path, exported: Path, tmp_path: Path, part: str) -> None:
    """With the flag that takes both as they are, which works."""
    discriminator, generator = hub_form(exported, tmp_path)
    tensors = safetensors.torch.load_file(generator / "model.safetensors")
    del tensors["generator_lm_head.weight"]
    for name, tensor in tensors.items():
        tensor += float(part in name and "embeddings" in name)
    safetensors.torch.save_file(tensors, generator / "model.safetensors")
    names = f"{discriminator},{generator}"
    with pytest.raises(ConfigError, match=r"sharing = 'embeddings' makes one.* Set --sharing none\."):
        begin(data, tmp_path / "run", names, config())
    assert not (tmp_path / "run" / "config.json").exists()
    begin(data, tmp_path / "run", names, config(sharing="none"))
    mine = read(tmp_path / "run" / "checkpoints" / "step-00000000").weights
    assert torch.equal(
        mine["generator.electra.embeddings.LayerNorm.bias"], tensors["electra.embeddings.LayerNorm.bias"]
    )


def test_another_objective_takes_the_encoder(data: Path, first: Path, tmp_path: Path) -> None:
    mine = begun(data, tmp_path / "mlm", first, config(objective=MLM(), seed=9))
    theirs = last(first)
    names = [name for name in mine if name.startswith("encoder.electra.")]
    assert names
    for name in names:
        assert torch.equal(mine[name], theirs[name.replace("encoder.", "discriminator.", 1)]), name
    back = begun(data, tmp_path / "rtd", tmp_path / "mlm", config(objective=RTD(), seed=10))
    ended = last(tmp_path / "mlm")
    for name in (name for name in back if name.startswith("discriminator.electra.")):
        assert torch.equal(back[name], ended[name.replace("discriminator.", "encoder.", 1)]), name


@pytest.mark.parametrize("objective", [RTD(), RtdMLM()])
def test_the_second_stage_begins_from_a_masked_language_model(
    data: Path, mlm: Path, tmp_path: Path, objective: RTD
) -> None:
    """An `mlm` run is the frozen generator and what the discriminator begins from, after the one step that the first stage keeps."""
    stages = config(objective=objective, generator=Learned(width=1.0), sharing="none", phases=TwoStage(share=0.0))
    mine, theirs = begun(data, tmp_path / "run", mlm, stages), last(mlm)
    assert {name.replace("encoder.", "generator.", 1) for name in theirs} <= mine.keys()
    for name, tensor in theirs.items():
        assert torch.equal(mine[name.replace("encoder.", "generator.", 1)], tensor), name
    assert stages.first_stage_steps == 1


def test_rows_may_grow(first: Path, tmp_path: Path) -> None:
    longer = write_store(tmp_path / "longer", length=48)
    mine = begun(longer, tmp_path / "run", first, config())
    assert equal(mine, last(first)) == mine.keys()
    assert RunFolder(tmp_path / "run").config().batch.sequence_length == 48


def with_positions(count: int, sharing: Sharing = "embeddings", **changes: object) -> Config:
    return changed(config(sharing=sharing, **changes), model={"max_position_embeddings": count})


@pytest.mark.parametrize("sharing", ["embeddings", "none", "disentangled"])
def test_positions_may_grow(data: Path, tmp_path: Path, sharing: Sharing) -> None:
    """In both networks: the old rows are kept, the new ones are copies of them; the run resumes to the last bit."""
    pretrain(with_positions(32, sharing), data, out=tmp_path / "short", device="cpu", quiet=True)
    longer = write_store(tmp_path / "longer", length=48)
    with pytest.raises(ConfigError, match=r"48 tokens, .* 32 at most\..* set --model\.max-position-embeddings 48"):
        begin(longer, tmp_path / "run", str(tmp_path / "short"), with_positions(32, sharing))
    settings = with_positions(48, sharing, seed=9)
    mine, theirs = begun(longer, tmp_path / "run", tmp_path / "short", settings), last(tmp_path / "short")
    assert mine.keys() == theirs.keys()
    tables = [name for name in mine if "position_embeddings" in name]
    assert len(tables) == (1 if sharing == "embeddings" else 2)
    for name, tensor in theirs.items():
        kept = torch.cat([tensor, tensor[:16]]) if name in tables else tensor
        rounding = 1e-7 if name.endswith(".delta") else 0  # the difference of two tables
        torch.testing.assert_close(mine[name], kept, atol=rounding, rtol=0)
    assert "positions 32 to 47 begin as copies of those from 0 on" in log_of(tmp_path / "run")
    ended = last(tmp_path / "run")
    for step, folder in numbered(tmp_path / "run" / "checkpoints"):
        if step > 4:
            shutil.rmtree(folder)
    begin(longer, tmp_path / "run", str(tmp_path / "short"), settings)
    assert equal(last(tmp_path / "run"), ended) == ended.keys()


def test_fewer_positions_are_refused_with_the_flag_that_works(data: Path, first: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"512 there and 32 here\. .*--model\.max-position-embeddings 512\."):
        begin(data, tmp_path / "run", str(first), with_positions(32))
    begin(data, tmp_path / "run", str(first), with_positions(512))


def test_killed_before_the_first_checkpoint(
    data: Path, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder knows whose weights it is to begin with, reads them when the command is repeated, and takes no others."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(loop, "begin_with", killed)
    with pytest.raises(Killed):
        pretrain(config(), data, out=tmp_path / "run", init=InitFrom(name=str(first)), device="cpu", quiet=True)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=f"began with --init {first}, and this command asks for fresh weights"):
        pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    mine = begun(data, tmp_path / "run", first, config())
    assert equal(mine, last(first)) == mine.keys()


def test_going_on_needs_the_other_run_no_more(data: Path, first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "first")
    begin = InitFrom(name=str(tmp_path / "first"))
    pretrain(config(), data, out=tmp_path / "run", init=begin, device="cpu", quiet=True)
    ended = last(tmp_path / "run")
    shutil.rmtree(tmp_path / "first")
    pretrain(config(), data, out=tmp_path / "run", init=begin, device="cpu", quiet=True)
    assert equal(last(tmp_path / "run"), ended) == ended.keys()
    with pytest.raises(ConfigError, match="began with fresh weights, and this command asks for --init"):
        pretrain(config(), data, out=first, init=begin, device="cpu", quiet=True)


def test_another_shape_is_refused(data: Path, first: Path, tmp_path: Path) -> None:
    """Before anything is written, in numbers, with flags that work."""
    narrow = dataclasses.replace(config().model, intermediate_size=48)
    with pytest.raises(ConfigError, match=r"intermediate_size 64 there and 48 here\. .*--model\.intermediate-size 64"):
        begin(data, tmp_path / "run", str(first), config(model=narrow))
    wide = config(generator=Learned(width=1.0, depth=0.5))
    with pytest.raises(
        ConfigError, match=r"hidden_size 16 there and 32 here.*Set --generator\.width and --generator\.depth"
    ):
        begin(data, tmp_path / "run", str(first), wide)
    assert not (tmp_path / "run" / "config.json").exists()
    begin(data, tmp_path / "run", str(first), config(generator=Learned(width=0.5, depth=1.0)))


def test_another_vocabulary_and_no_model_are_refused(data: Path, first: Path, tmp_path: Path) -> None:
    other = write_store(tmp_path / "other", vocab_size=390)
    with pytest.raises(ConfigError, match=f"have another number there, or none.*--tokenizer {first}`"):
        begin(other, tmp_path / "run", str(first), config())
    with pytest.raises(MissingInputError, match="no such folder"):
        begin(data, tmp_path / "run", "nowhere", config())
