"""Runs that begin from counts of their rows: what the first weights are, and that resumption, replay and ranks take the very same ones."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.prepared import small_config
from tests.reliability.ranks import run_ranks
from torch import Tensor

from electra_trainer.data import co_occurrence
from electra_trainer.data.batches import word_counts
from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.inspection.replay import replay
from electra_trainer.objectives import build
from electra_trainer.paper.compare import initial_run
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import WORDS
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, changed
from electra_trainer.train import loop
from electra_trainer.train.begin.continued import ContinueFrom
from electra_trainer.train.loop import pretrain
from electra_trainer.train.weights import stored

TABLE = "discriminator.electra.embeddings.word_embeddings.weight"
GENERATOR, DELTA = TABLE.replace("discriminator", "generator"), TABLE.replace("weight", "delta")


def config(**model: str) -> Config:
    started = model or {"word_initializer": "co-occurrence"}
    return changed(small_config(steps=6, layers=1), model=started, checkpoint={"keep": 100}, evaluation={"rows": 0})


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(), data, out=tmp_path_factory.mktemp("words") / "run", device="cpu", quiet=True)


def at(run: Path, step: int) -> dict[str, Tensor]:
    return read(run / "checkpoints" / f"step-{step:08d}").weights


def other_words(*_: Any, vocab_size: int, width: int, **__: Any) -> Any:
    """Vectors of another machine."""
    return np.full((vocab_size, width), width**-0.5, dtype=np.float32)


@pytest.mark.parametrize("sharing", ["embeddings", "none"])
def test_all_tables_begin_so_and_nothing_else(data: Path, tmp_path: Path, sharing: str) -> None:
    """Words have the directions of the file and the lengths of their random vectors; special and unseen ones stay random."""
    settings = dataclasses.replace(config(), sharing=sharing)
    begun = at(pretrain(settings, data, out=tmp_path / "run", device="cpu", quiet=True), 0)
    store = Store.open(data)
    fresh, counts_V = stored(build(loop.plan.fit_to_data(settings, store))), torch.from_numpy(word_counts(store))
    directions_VE = torch.from_numpy(
        co_occurrence.word_directions(store.rows("train"), store.specials, vocab_size=store.vocab_size, width=16)
    )
    tables = [name for name in fresh if "word_embeddings" in name]
    assert len(tables) == (2 if sharing == "none" else 1)
    for name in tables:
        torch.testing.assert_close(begun[name].norm(dim=1), fresh[name].norm(dim=1))
        known_V = directions_VE.any(1)
        assert known_V.sum() > 300 and not known_V[:5].any() and not known_V[counts_V == 0].any()
        assert torch.equal(begun[name][~known_V], fresh[name][~known_V])
        cosine_V = torch.cosine_similarity(begun[name], directions_VE)[known_V]
        torch.testing.assert_close(cosine_V, torch.ones_like(cosine_V))
    rest = fresh.keys() - {*tables}
    assert rest and all(torch.equal(begun[name], fresh[name]) for name in rest)


def test_by_default_nothing_begins_so(data: Path, tmp_path: Path) -> None:
    plain = changed(config(), model={"word_initializer": "random"})
    out = pretrain(plain, data, out=tmp_path / "run", device="cpu", quiet=True)
    fresh = stored(build(plain))
    assert plain.model == small_config(layers=1).model
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in at(out, 0).items())
    assert not (out / WORDS).exists() and "words_sha256" not in json.loads((out / "environment.json").read_text())


def test_killed_before_the_first_checkpoint(
    data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run resumes with the vectors in its folder, whatever this machine would compute, and ends with the same bits."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(loop, "begin_words", killed)
    with pytest.raises(Killed):
        pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    monkeypatch.undo()
    monkeypatch.setattr(co_occurrence, "word_directions", other_words)
    pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    assert [number for number, _ in numbered(tmp_path / "run" / "checkpoints")] == [0, 4, 6]
    for step in (0, 6):
        mine, theirs = at(tmp_path / "run", step), at(run, step)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_killed_before_it_began(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the vectors are there: the folder is still taken for that of a run."""
    with monkeypatch.context() as patch:
        patch.setattr(loop.run_folder.RunFolder, "begin", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "tokenizer", WORDS}
    pretrain(config(), data, out=tmp_path / "run", device="cpu", quiet=True)


def test_replay_begins_with_the_vectors_of_the_run(
    run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "checkpoints" / "step-00000000")
    monkeypatch.setattr(co_occurrence, "word_directions", other_words)
    found = replay(copy, step=2)
    assert (found.began, found.identical) == (0, True)


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("damage", "told"), [(spoil, "is not as it was written"), (Path.unlink, "are missing")])
def test_changed_vectors_are_refused(run: Path, data: Path, tmp_path: Path, damage: Any, told: str) -> None:
    """Where they are needed: a run with a checkpoint resumes without them."""
    copy = shutil.copytree(run, tmp_path / "run")
    damage(copy / WORDS)
    pretrain(config(), data, out=copy, device="cpu", quiet=True)
    assert replay(copy, step=5).identical
    shutil.rmtree(copy / "checkpoints")
    (copy / "metrics.jsonl").unlink()
    for again in (lambda: replay(copy, step=1), lambda: pretrain(config(), data, out=copy, device="cpu", quiet=True)):
        with pytest.raises(CheckpointError, match=rf"{WORDS}: .*{told}.*Restore it.*--out"):
            again()


def test_an_untrained_arm_begins_so(run: Path, data: Path, tmp_path: Path) -> None:
    initial_run(config(), Store.open(data), tmp_path / "arm")
    mine, theirs = at(tmp_path / "arm", 0), at(run, 0)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_two_processes_begin_alike(run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 alone computes the vectors; the other one has them from it."""
    out, real = tmp_path / "run", co_occurrence.word_directions

    def work(rank: int) -> None:
        co_occurrence.word_directions = real if rank == 0 else other_words
        pretrain(config(), data, out=out, device="cpu", quiet=True)

    assert run_ranks(2, work) == [0, 0]
    mine, theirs = at(out, 6), at(run, 6)
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name])


def tables(weights: dict[str, Tensor]) -> list[np.ndarray[Any, Any]]:
    """Word tables of the generator and of the discriminator, fp64."""
    own = weights[GENERATOR].double().numpy()
    return [own, weights[TABLE].double().numpy() if TABLE in weights else own + weights[DELTA].double().numpy()]


@pytest.mark.parametrize("sharing", ["none", "disentangled"])
def test_trained_words_are_mixed_with_those_of_the_text(
    data: Path, tmp_path: Path, sharing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half and half, after the best rotation, once: a run that continues it, or began before this was done, has its own words."""
    settings = dataclasses.replace(config(), sharing=sharing)
    plain = changed(settings, model={"word_initializer": "random"})
    first = pretrain(plain, data, out=tmp_path / "first", device="cpu", quiet=True)

    def begun(settings: Config, init: Any, name: str) -> Path:
        return pretrain(settings, data, out=tmp_path / name, init=init, device="cpu", quiet=True)

    run, theirs = begun(settings, InitFrom(name=str(first)), "run"), at(first, 6)
    mine, store = at(run, 0), Store.open(data)
    counted = co_occurrence.word_directions(store.rows("train"), store.specials, vocab_size=store.vocab_size, width=16)
    known = counted.any(1)
    for before, after in zip(tables(theirs), tables(mine), strict=True):
        own = before - before.mean(0)
        length = np.linalg.norm(own, axis=1, keepdims=True)
        left, _, right = np.linalg.svd((np.log1p(word_counts(store))[:, None] * counted).T @ (own / length))
        both = own / length + counted @ left @ right
        expected = before.mean(0) + length * both / np.linalg.norm(both, axis=1, keepdims=True)
        np.testing.assert_allclose(after[known], expected[known], atol=1e-6)
        np.testing.assert_allclose(after[~known], before[~known], atol=1e-8)
    assert all(torch.allclose(mine[name], theirs[name], atol=1e-7) for name in mine.keys() - {TABLE, GENERATOR, DELTA})
    told = "mixed into its word vectors, half and half"
    assert told in (run / "log.txt").read_text()
    monkeypatch.setattr(co_occurrence, "word_directions", other_words)
    longer = begun(changed(settings, schedule={"steps": 8}), ContinueFrom(name=str(run)), "longer")
    shutil.rmtree(run / "checkpoints" / "step-00000000")
    assert not (longer / WORDS).exists() and replay(run, step=2).identical
    off = begun(plain, InitFrom(name=str(first)), "off")
    assert not (off / WORDS).exists() and told not in (off / "log.txt").read_text()
    facts = json.loads((run / "environment.json").read_text())
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").unlink()
    del facts["words_sha256"]  # as of a run that began before words were mixed
    (run / "environment.json").write_text(json.dumps(facts))
    for out in (off, begun(settings, InitFrom(name=str(first)), "run")):
        assert all(torch.allclose(tensor, theirs[name], atol=1e-7) for name, tensor in at(out, 0).items())


def test_a_width_that_no_vectors_have() -> None:
    with pytest.raises(ConfigError, match=r"model\.embedding_size = 401: expected at most model\.vocab_size = 400"):
        changed(config(), model={"embedding_size": 401})
