"""The speed benchmark keeps its contract, and the peer that it compares with computes ELECTRA."""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from benchmarks import finetune, forecast, speed, speed_worker
from benchmarks.speed_process import Failed, Process, environment
from benchmarks.synthetic import CLS, MASK, PAD, SEP
from tests import small
from tests.methods.every import without_dropout
from tests.prepared import write_store

from electra_trainer.batch import Masked
from electra_trainer.cost.flops import step_flops
from electra_trainer.data.batches import to_batch
from electra_trainer.data.store import Store
from electra_trainer.finetuning.run import collate
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.presets.models import tiny
from electra_trainer.randomness import Rng
from electra_trainer.runs.launcher import tuned
from electra_trainer.settings.config import Block, Config
from electra_trainer.settings.methods import RTD
from electra_trainer.train.plan import fit_to_data

pytest.importorskip("transformers")
from benchmarks import peers

ROOT = Path(__file__).resolve().parents[1]
PAIR = ["electra-trainer", "transformers-fp32"]
SAME = 1e-5  # relative, fp32


class Inside:
    """A worker in this process, which hears and says what one at the other end of a pipe does: JSON."""

    def __init__(self, settings: dict[str, str]) -> None:
        assert settings["OMP_NUM_THREADS"] == "1"
        self._desk = speed_worker.Desk()

    def ask(self, request: dict[str, Any], *, limit: float) -> dict[str, Any]:
        assert limit > 0
        answer: dict[str, Any] = json.loads(json.dumps(self._desk.answer(json.loads(json.dumps(request)))))
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        pass


@pytest.fixture
def small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's rate is measured, but not well."""
    monkeypatch.setattr(forecast, "_MATRIX", {"cpu": 256})


@pytest.mark.usefixtures("small_matrices")
@pytest.mark.parametrize("task", ["pretrain", "finetune"])
def test_contract(task: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and its workers run in this process, except our own worker for `pretrain`, which is a process."""
    made = iter([Inside, Process if task == "pretrain" else Inside, Inside])  # the matrix, ours, the peer
    monkeypatch.setattr(speed, "Process", lambda settings: next(made)(settings))
    words = f"speed --preset tiny --device cpu --rounds 1 --turn 0 --json --batch 4 --task {task} --systems {','.join(PAIR)}"
    monkeypatch.setattr(sys, "argv", words.split())
    assert speed.main() == 0
    (line,) = capfd.readouterr().out.splitlines()  # one object, and nothing else, the workers included
    facts = json.loads(line)
    assert (facts["device"], facts["preset"], facts["batch"], facts["threads"]) == ("cpu", "tiny", 4, 1)
    assert facts["sequence_length"] == (32 if task == "pretrain" else 128)
    versions, rates, systems, ratios = (facts[k] for k in ("versions", "matrix_flops_per_second", "systems", "ratios"))
    assert {"python", "torch", "transformers", "electra-trainer"} <= set(versions)
    assert set(rates) == {"fp32", "bf16"} and min(rates.values()) > 1e8
    assert list(systems) == PAIR
    for seen in systems.values():
        assert seen["peak_memory_bytes"] > 100e6 and 0 < seen["mfu"] < 1 and len(seen["seconds_per_step"]) == 1
        assert seen["tokens_per_second"] == pytest.approx(facts["tokens_per_step"] / seen["seconds_per_step"][0])
    if task == "pretrain":
        assert facts["tokens_per_step"] == 4 * 32
    ours, theirs = (systems[name]["tokens_per_second"] for name in PAIR)
    assert ratios == {PAIR[0]: {PAIR[1]: pytest.approx(ours / theirs)}}


@pytest.mark.usefixtures("small_matrices")
def test_a_system_that_fails_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be set up in a separate process, one on the same prepared rows that can."""
    failing = speed.System(peer=False, precision="nowhere", environment={"APART": "yes"})
    monkeypatch.setitem(speed.SYSTEMS, "failing", failing)
    monkeypatch.setattr(speed, "Process", lambda settings: (Process if "APART" in settings else Inside)(settings))
    data = write_store(tmp_path / "data")
    config = fit_to_data(dataclasses.replace(tiny(), batch=dataclasses.replace(tiny().batch, size=2)), Store.open(data))
    job = speed.Job(config=config, task="pretrain", device="cpu", threads=1, rounds=1, bursts=1, turn=0.0, data=data)
    facts = speed.report(job, *speed.measure(job, ["failing", "electra-trainer-fp32"]))
    assert set(facts["systems"]["failing"]) == {"error"} and facts["ratios"] == {"electra-trainer-fp32": {}}
    assert "nowhere" in facts["systems"]["failing"]["error"]
    assert "nowhere" in speed.table(facts)
    assert facts["systems"]["electra-trainer-fp32"]["tokens_per_second"] > 0


def test_the_table_shows_ratios_to_each_peer() -> None:
    job = speed.Job(config=tiny(), task="pretrain", device="cpu", threads=1, rounds=1, bursts=1, turn=0.0, data=None)
    results = {
        "electra-trainer": speed.Result(precision="bf16", seconds=[0.5, 0.5, 9.0], peak_memory_bytes=10**9),
        "transformers-fp32": speed.Result(precision="fp32", seconds=[2.0], peak_memory_bytes=3 * 10**9),
        "transformers-bf16": speed.Result(error="killed"),
    }
    facts = speed.report(job, results, {"fp32": 1e11, "bf16": 1e12})
    assert facts["ratios"] == {"electra-trainer": {"transformers-fp32": 4.0}}
    assert facts["systems"]["electra-trainer"]["mfu"] == pytest.approx(step_flops(tiny()).real / 0.5 / 1e12)
    ours = next(line for line in speed.table(facts).splitlines() if line.startswith("electra-trainer"))
    assert "4.00" in ours and "0.5 (0.5 - 9)" in ours and "killed" in speed.table(facts)


def test_a_worker_that_dies_or_does_not_answer_says_how() -> None:
    plain = environment(tuned=False, threads=1, more={})
    killed, broken, slow = Process(plain), Process({**plain, "PYTHONHOME": "/nowhere"}), Process(plain)
    try:
        with pytest.raises(Failed, match="no answer in time"):
            slow.ask({"kind": "matrix", "device": "cpu", "threads": 1}, limit=0.01)
        os.kill(killed._child.pid, signal.SIGKILL)
        with pytest.raises(Failed, match="out of memory"):
            killed.ask({"kind": "matrix"}, limit=60)
        with pytest.raises(Failed, match="ended with 1: "):
            broken.ask({"kind": "matrix"}, limit=60)
    finally:
        for worker in (killed, broken, slow):
            worker.close()


def test_peers_start_as_users_start_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    theirs, ours = (environment(tuned=tuned_, threads=2, more={"A": "b"}) for tuned_ in (False, True))
    assert "GLIBC_TUNABLES" not in theirs and "OMP_WAIT_POLICY" not in theirs
    assert tuned().items() <= ours.items()
    assert theirs["OMP_NUM_THREADS"] == ours["OMP_NUM_THREADS"] == "2" and theirs["A"] == "b"


def masked_rows(config: Config) -> Masked:
    """Rows of one piece, as the recipes feed them, some padded."""
    made = small.rows(6, full=True)
    made[1, 14:] = PAD
    made[1, 13], made[2, 9] = SEP, SEP
    return small.masker(config)(to_batch(made, pad=PAD, cls=CLS, sep=SEP), Rng(1, 0, 0))


def test_the_peer_computes_our_losses_and_gradients() -> None:
    """Same weights, masks and samples, no dropout: the peer's wiring is ELECTRA's objective, tied embeddings included."""
    config = without_dropout(small.config())
    masked = masked_rows(config)
    assert isinstance(config.objective, RTD)
    ours = ReplacedTokenDetection(config)
    with torch.no_grad():
        for one in ours.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel())))
    losses = ours(masked, Rng(1, 0, 0), diagnose=True)
    counts = {name: float(value) for name, value in ours.counts(masked).items()}
    losses.total(counts).backward()

    networks = peers.build_networks(config)
    for name, network in (("generator", ours.generator), ("discriminator", ours.discriminator)):
        missing, unexpected = networks[name].load_state_dict(network.state_dict(), strict=False)
        assert not unexpected and set(missing) <= {"generator_lm_head.weight"}
    examples = peers.Examples.of(masked)
    assert int(examples.masked_BT.sum()) == len(masked.slots_K)
    token_loss, logits_KV = peers.generator_loss(networks["generator"], examples)
    samples_K = losses.diagnostics["corrupted_BT"][examples.masked_BT]
    replaced_loss = peers.discriminator_loss(networks["discriminator"], examples, samples_K)
    (token_loss + 50 * replaced_loss).backward()

    terms = losses.terms
    for mean, name, count in ((token_loss, "generator_loss", "masked"), (replaced_loss, "discriminator_loss", "real")):
        assert float(mean.detach()) == pytest.approx(float(terms[name].sum.detach()) / counts[count], rel=SAME)
    assert logits_KV.shape == (len(masked.slots_K), small.WORDS)
    mine = ours.discriminator.electra.embeddings.word_embeddings.weight.grad
    theirs = networks["discriminator"].electra.embeddings.word_embeddings.weight.grad
    assert mine is not None and theirs is not None
    # transformers' look-up of [PAD], here a sample of an untrained generator, has no gradient (padding_idx): row 0 is left out
    assert (mine - theirs)[PAD + 1 :].norm() <= 1e-4 * theirs.norm()
    assert len(list(networks.parameters())) == len(list(ours.parameters()))


def test_the_tuned_peer_has_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full rows of two segments, and noise that chooses the same words."""
    config, made = without_dropout(small.config()), small.rows(6, full=True)
    made[:, 12] = SEP
    masked = small.masker(config)(to_batch(made, pad=PAD, cls=CLS, sep=SEP), Rng(1, 0, 0))
    examples, networks = peers.Examples.of(masked), peers.build_networks(config)
    token_loss, logits_KV = peers.generator_loss(networks["generator"], examples)
    samples_K = peers.gumbel_samples(logits_KV)
    expected = token_loss + 50 * peers.discriminator_loss(networks["discriminator"], examples, samples_K)
    noise_KV = 1 - F.one_hot(samples_K, small.WORDS) * (1 - 1e-30)
    monkeypatch.setattr(peers, "exponential", lambda _: noise_KV)
    whole = (examples.labels_BT, examples.input_BT, examples.segment_BT, masked.slots_K)
    assert peers.tuned_loss(networks, 50, *whole).item() == pytest.approx(expected.item(), rel=SAME)
    assert torch.equal(masked.slots_K.sort().values, examples.masked_BT.flatten().nonzero().squeeze(1))


@pytest.mark.parametrize("block", ["bert", "modern"])
def test_the_peer_trains(block: Block) -> None:
    """Ten steps of the recipe lower its generator's loss, from about log(words)."""
    config = dataclasses.replace(
        without_dropout(small.config()), batch=dataclasses.replace(small.config().batch, size=8)
    )
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, block=block))
    peer = peers.Pretraining(config, small.feed(config), precision="fp32", compiled=False)
    with torch.no_grad():
        before = float(peers.generator_loss(peer.generator, peer.batches[0])[0])
    for _ in range(10):
        peer.step()
    with torch.no_grad():
        after = float(peers.generator_loss(peer.generator, peer.batches[0])[0])
    assert before == pytest.approx(np.log(small.WORDS), rel=0.1) and after < before


def test_the_peer_samples_from_the_softmax() -> None:
    torch.manual_seed(3)
    logits_V = torch.tensor([0.0, 1.0, 2.0, -3.0])
    drawn = peers.gumbel_samples(logits_V.expand(20_000, 4))
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    assert (shares - logits_V.softmax(-1)).abs().max() < 0.015


def test_fine_tuning_reads_the_same_sentences() -> None:
    config = dataclasses.replace(tiny(), batch=dataclasses.replace(tiny().batch, size=8, sequence_length=128))
    text = finetune.made_up(8, vocab_size=config.model.vocab_size)
    cpu = torch.device("cpu")
    ours = finetune.Ours(config.model, text, batch=8, device=cpu, precision="fp32")
    theirs = finetune.Theirs(config.model, text, batch=8, device=cpu, precision="fp32", compiled=False)
    mine = [collate(ours.batches.batch(step), text.specials, cpu).ids_BT for step in range(finetune.BATCHES)]
    both = (mine, [b["input_ids"] for b in theirs.batches])
    words = [sorted(tuple(row[row != PAD].tolist()) for ids_BT in ids for row in ids_BT) for ids in both]
    assert words[0] == words[1] and len(words[0]) == 8 * finetune.BATCHES
    real = sum(map(len, words[0]))
    assert real == finetune.BATCHES * finetune.tokens_per_step(config)
    assert all(batch["input_ids"].shape == (8, 128) for batch in theirs.batches)
    assert 1 - real / sum(ids_BT.numel() for ids_BT in mine) < 0.35  # padding
    assert MASK not in {word for row in words[0] for word in row}
    labels = {tuple(row.ids[1:3]): row.target for row in text.rows}
    pairs = (pair for b in theirs.batches for pair in zip(b["input_ids"], b["labels"], strict=True))
    assert labels == {tuple(ids[1:3].tolist()): int(y) for ids, y in pairs}


def test_both_learn_what_they_are_timed_on() -> None:
    """The steps that are timed are whole ones: the loss of a batch that is read again and again falls, in both."""
    model = dataclasses.replace(tiny().model, vocab_size=400, num_hidden_layers=2)
    whole = finetune.made_up(8, vocab_size=400)
    text = dataclasses.replace(whole, rows=whole.rows[:8])
    cpu = torch.device("cpu")
    ours = finetune.Ours(model, text, batch=8, device=cpu, precision="fp32")
    theirs = finetune.Theirs(model, text, batch=8, device=cpu, precision="fp32", compiled=False)
    for group in theirs.optimizer.param_groups:
        group["lr"] = 1e-3

    def losses() -> tuple[float, float]:
        with torch.no_grad():
            rows = ours.batches.batch(0)
            batch = collate(rows, text.specials, cpu)
            mine, count = finetune._TASK.loss(ours.network.head, ours.network(batch), batch, rows)
            return float(mine) / count, float(theirs.network(**theirs.batches[0]).loss)

    before = losses()
    for step in range(60):
        ours.step()
        if step % 4 == 0:
            theirs.step()
    after = losses()
    assert after[0] < 0.9 * before[0] and after[1] < 0.9 * before[1]
