"""Two fine-tuning steps of the engine are those of a NumPy oracle, with the released code's recipe and with the paper's.

The oracle (oracle.py) has no PyTorch in it and no padding. It is itself checked against numerical differentiation, and against the
layer outputs of Google's own code. Adding a number to all scores of a query changes nothing, so the gradient of a key's bias is 0:
what is computed for it is rounding noise, and it is held to an absolute bound.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.finetuning import oracle
from tests.finetuning.small_source import LABELS, WORDS, data, examples, source
from tests.google import reference

from electra_trainer.errors import Interrupted
from electra_trainer.finetuning import run as engine
from electra_trainer.finetuning.run import FineTuned, Job, build_feed, build_network, finetune_run
from electra_trainer.pretrained.source import Source
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import Saved, read
from electra_trainer.tasks.recipe import Recipe, recipe
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification

ROWS, STEPS, WARMUP, PEAK, DECAY = 11, 20, 4, 4e-3, 0.3
SEEN = WORDS[:40]
"""Words that occur; the others only decay."""
MOVEMENT = 5e-5  # relative, of the distance that a tensor moved
LOSSES = 1e-6  # relative
KEY_BIAS = 1e-5  # absolute; other tensors move by 5e-3 and more

SHARES = {  # of two layers with a decay of 0.8: of embeddings, lower layer, upper layer, head
    "released": (0.4096, 0.512, 0.64, 1.0),
    "paper": (0.512, 0.64, 0.8, 1.0),
}
RATES = {"released": oracle.released_rate, "paper": oracle.linear_rate}


class StopAfterTwo:
    """In place of a signal: asks the engine to save and stop after its second step."""

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> StopAfterTwo:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def name(self) -> str | None:
        self.asked += 1
        return "SIGTERM" if self.asked == 2 else None


def settings(name: str) -> Recipe:
    """All rows in one batch, twenty epochs: twenty steps. Large rates and decay, so that fp32 shows them; no dropout."""
    changes: dict[str, object] = {
        "batch_size": ROWS, "learning_rate": PEAK, "dropout": 0.0, "attention_dropout": 0.0,
        "warmup_fraction": WARMUP / STEPS,
    }  # fmt: skip
    if name == "released":
        changes["weight_decay"] = DECAY
    return recipe(name, hidden_size=32, epochs=STEPS, **changes)


def job(name: str, *, width: int, micro_batch: int | None = None) -> Job:
    chosen = replace(settings(name), micro_batch=micro_batch)
    return Job(source=source(embedding_size=width), data=data(ROWS, words=SEEN), recipe=chosen, seed=3)


def rows_by_hand() -> list[oracle.Example]:
    """[CLS] A [SEP] B [SEP] with ids counted on one's fingers: 2 and 3 are [CLS] and [SEP], words begin at 5."""
    made = []
    for example in data(ROWS, words=SEEN).train:
        first, second = (
            [5 + int(word[1:]) for word in text.split()] if text else [] for text in (example.text, example.pair)
        )
        room = 40 - 3 if second else 40 - 2
        while len(first) + len(second) > room:
            longer = first if len(first) > len(second) else second
            longer.pop()
        ids, segments = [2, *first, 3], [0] * (len(first) + 2)
        if second:
            ids, segments = [*ids, *second, 3], [*segments, *[1] * (len(second) + 1)]
        made.append(oracle.Example(ids=ids, segments=segments, label=LABELS.index(str(example.label))))
    return made


def as_numpy(network: FineTuned) -> oracle.Weights:
    return {name: values.detach().double().numpy().copy() for name, values in network.named_parameters()}


def checkpoint(run: Path) -> Saved:
    ((_, path),) = numbered(run / "checkpoints")
    return read(path)


def share_of(name: str, shares: tuple[float, float, float, float]) -> float:
    embeddings, lower, upper, head = shares
    for begin, share in (("head.", head), ("electra.encoder.layer.0.", lower), ("electra.encoder.layer.1.", upper)):
        if name.startswith(begin):
            return share
    assert name.startswith("electra.embeddings")
    return embeddings


def two_steps(start: oracle.Weights, name: str) -> tuple[oracle.Weights, list[float], list[float]]:
    """Weights, mean losses and norms of the oracle."""
    rows, shape = rows_by_hand(), oracle.Shape(layers=2, heads=2)
    weights = {key: values.copy() for key, values in start.items()}
    share = {key: share_of(key, SHARES[name]) for key in weights}
    adam, losses, norms = oracle.Adam(weights), [], []
    for step in range(2):
        loss, grad = oracle.loss_and_gradient(weights, rows, shape)
        if name == "paper":
            grad = {key: values / ROWS for key, values in grad.items()}
        rate = RATES[name](step, peak=PEAK, steps=STEPS, warmup=WARMUP)
        adam.step(weights, grad, rate=rate, share=share, decay=DECAY if name == "released" else 0.0)
        losses.append(loss / ROWS)
        norms.append(oracle.norm_of(grad))
    return weights, losses, norms


@pytest.fixture
def in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "choose_precision", lambda *_: "fp32")
    monkeypatch.setattr(engine, "StopRequest", StopAfterTwo)
    monkeypatch.setattr(engine, "_LOG_EVERY", 1)


@pytest.mark.usefixtures("in_fp32")
@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("width", [16, 32], ids=["narrow embeddings", "embeddings as wide"])
@pytest.mark.parametrize("name", ["released", "paper"])
def test_two_steps_are_the_oracle_s(tmp_path: Path, name: str, width: int, micro_batch: int | None) -> None:
    work = job(name, width=width, micro_batch=micro_batch)
    start = as_numpy(build_network(work.source, work.data.task, work.recipe, seed=work.seed))
    with pytest.raises(Interrupted, match="step 2 of 20"):
        finetune_run(work, out=tmp_path / "run", device="cpu", quiet=True)
    saved = checkpoint(tmp_path / "run")
    expected, losses, norms = two_steps(start, name)
    assert saved.step == 2 and saved.weights.keys() == expected.keys()

    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [pytest.approx(loss, rel=LOSSES) for loss in losses]
    assert [line["gradient_norm"] for line in lines] == [pytest.approx(norm, rel=1e-5) for norm in norms]
    assert name == "paper" or max(norms) > 2  # it is clipped
    for key, values in expected.items():
        found = saved.weights[key].double().numpy()
        moved = float(np.linalg.norm(values - start[key]))
        off = float(np.linalg.norm(found - values))
        assert off <= (KEY_BIAS if "key.bias" in key else MOVEMENT * moved), (key, off, moved)
        assert moved > 1e-3 or "key.bias" in key, key


@pytest.mark.usefixtures("in_fp32")
@pytest.mark.parametrize("name", ["released", "paper"])
def test_words_that_do_not_occur_only_decay(tmp_path: Path, name: str) -> None:
    work = job(name, width=16)
    table = "electra.embeddings.word_embeddings.weight"
    with pytest.raises(Interrupted):
        finetune_run(work, out=tmp_path / "run", device="cpu", quiet=True)
    after = checkpoint(tmp_path / "run").weights[table][5 + len(SEEN) :]
    before = work.source.weights["embeddings.word_embeddings.weight"][5 + len(SEEN) :]
    if name == "paper":
        assert torch.equal(after, before)
        return
    kept = 1.0
    for step in range(2):
        kept *= 1 - oracle.released_rate(step, peak=PEAK, steps=STEPS, warmup=WARMUP) * 0.4096 * DECAY
    assert 1 - kept > 3e-4
    assert torch.allclose((after / before).double(), torch.tensor(kept, dtype=torch.double), rtol=2e-7, atol=0)


@pytest.mark.parametrize(
    ("name", "unordered", "rows"), [("released", True, 24), ("released", False, 12), ("paper", True, 12)]
)
def test_pairs_without_an_order_are_read_both_ways_as_released(name: str, unordered: bool, rows: int) -> None:
    pairs = [example for example in examples(24, seed=3) if example.pair is not None]
    given = TaskData(task=Classification(labels=LABELS), train=pairs, dev={}, unordered_pairs=unordered)
    work = Job(source=source(), data=given, recipe=recipe(name, hidden_size=32, epochs=2, batch_size=4), seed=3)
    feed = build_feed(work, device=torch.device("cpu"), precision="fp32")
    assert len(feed.rows) == rows and feed.steps == rows // 4 * 2
    for row, swapped in zip(feed.rows[:12], feed.rows[12:], strict=False):
        seam = row.ids.index(3)
        first, second = row.ids[1:seam], row.ids[seam + 1 : -1]
        assert list(swapped.ids) == [2, *second, 3, *first, 3] and swapped.target == row.target


def test_the_oracle_s_gradient_is_the_slope_of_its_loss() -> None:
    """In a random direction of each tensor, by central differences."""
    random = np.random.default_rng(0)
    work = job("released", width=16)
    weights = as_numpy(build_network(work.source, work.data.task, work.recipe, seed=1))
    rows, shape = rows_by_hand()[:3], oracle.Shape(layers=2, heads=2)
    assert len({len(row.ids) for row in rows}) == 3 and any(1 in row.segments for row in rows)
    _, grad = oracle.loss_and_gradient(weights, rows, shape)
    for name, values in weights.items():
        direction = random.normal(size=values.shape)
        ends = []
        for sign in (1, -1):
            moved = {**weights, name: values + sign * 1e-5 * direction}
            ends.append(oracle.loss_and_gradient(moved, rows, shape)[0])
        slope = (ends[0] - ends[1]) / 2e-5
        assert float((grad[name] * direction).sum()) == pytest.approx(slope, rel=1e-6, abs=1e-8), name


# --------------------------------------------------------------------------------------------- Google's encoder


@pytest.fixture(scope="module")
def google(shared: Path) -> FineTuned:
    """Google's trained discriminator under a fresh head."""
    trained = reference.trained(shared)
    encoder = trained.discriminator.electra
    small = source()
    whole = Source(
        name="google", model=encoder.encoder.model, weights=encoder.state_dict(), tokenizer=small.tokenizer,
        specials=small.specials, length=128,
    )  # fmt: skip
    chosen = recipe("released", hidden_size=128, epochs=3)
    return build_network(whole, Classification(labels=LABELS), chosen, seed=1).eval()


def test_the_oracle_has_the_layers_of_google_s_code(shared: Path, google: FineTuned) -> None:
    forward = reference.read(shared, "forward.npz")
    weights, shape = as_numpy(google), oracle.Shape(layers=4, heads=google.electra.encoder.model.num_attention_heads)
    batch = reference.masked(forward).batch
    ids_BT = torch.from_numpy(forward["corrupted_input_ids"]).long()
    with torch.no_grad():
        ours = google(replace(batch, ids_BT=ids_BT)).double().numpy()
    for row in range(len(ids_BT)):
        length = int(forward["input_mask"][row].sum())
        example = oracle.Example(
            ids=ids_BT[row, :length].tolist(), segments=forward["segment_ids"][row, :length].tolist(), label=0
        )
        hidden = oracle.hidden_states(weights, example, shape)
        if row == 0:
            assert np.abs(hidden - forward["disc_layers_ex0"][-1]).max() < 1e-4
        if row == 2:
            assert length < ids_BT.shape[1]
            assert np.abs(hidden - forward["disc_last_layer_ex2"][:length]).max() < 1e-4
        assert np.abs(ours[row, :length] - hidden).max() < 2e-5
