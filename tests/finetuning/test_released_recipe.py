"""Two fine-tuning steps of the engine, with the released code's recipe and with the paper's, are those of plain formulas.

The formulas take the gradient of transformers' ELECTRA in float64, a row at a time and without padding. Adding a number to all scores
of a query changes nothing, so the gradient of a key's bias is 0: what is computed for it is rounding noise, and it is held to an
absolute bound.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.finetuning.small_source import LABELS, WORDS, data, examples, source
from torch import Tensor, nn

from electra_trainer.errors import Interrupted
from electra_trainer.finetuning import run as engine
from electra_trainer.finetuning.run import Job, build_batches, build_network, finetune_run
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification

transformers = pytest.importorskip("transformers")

ROWS, STEPS, WARMUP, PEAK, DECAY = 11, 20, 4, 4e-3, 0.3
SEEN = WORDS[:40]
"""Words that occur; the others only decay, and not at all in the paper's recipe."""
MOVEMENT = 5e-5  # relative, of the distance that a tensor moved
LOSSES = 1e-6  # relative
KEY_BIAS = 1e-5  # absolute; other tensors move by 5e-3 and more

SHARES = {  # of two layers with a decay of 0.8: of embeddings, lower layer, upper layer, head
    "released": (0.4096, 0.512, 0.64, 1.0),
    "paper": (0.512, 0.64, 0.8, 1.0),
}
Weights = dict[str, Tensor]
"""Tensors by the names of our network, in float64."""


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


def job(name: str, *, width: int, micro_batch: int | None) -> Job:
    """All rows in one batch, twenty epochs: twenty steps. Large rates and decay, so that fp32 shows them; no dropout."""
    changes: dict[str, object] = {
        "batch_size": ROWS, "learning_rate": PEAK, "dropout": 0.0, "attention_dropout": 0.0,
        "warmup_fraction": WARMUP / STEPS,
    }  # fmt: skip
    if name == "released":
        changes["weight_decay"] = DECAY
    chosen = recipe(name, hidden_size=32, epochs=STEPS, micro_batch=micro_batch, **changes)
    return Job(source=source(embedding_size=width), data=data(ROWS, words=SEEN), recipe=chosen, seed=3)


def rate(name: str, step: int) -> float:
    """Released: the decay times the warm-up; the paper's goes up to its peak, then straight down. At t = step + 1."""
    t = step + 1
    if name == "released":
        return PEAK * (1 - t / STEPS) * min(1.0, t / WARMUP)
    return PEAK * (t / WARMUP if t <= WARMUP else (STEPS - t) / (STEPS - WARMUP))


def rows_by_hand() -> list[tuple[list[int], list[int], int]]:
    """Ids, segments and labels of [CLS] A [SEP] B [SEP]: 2 and 3 are [CLS] and [SEP], words begin at 5."""
    made = []
    for example in data(ROWS, words=SEEN).train:
        first, second = ([5 + int(word[1:]) for word in (text or "").split()] for text in (example.text, example.pair))
        room = 40 - 3 if second else 40 - 2
        while len(first) + len(second) > room:
            longer = first if len(first) > len(second) else second
            longer.pop()
        ids, segments = [2, *first, 3], [0] * (len(first) + 2)
        if second:
            ids, segments = [*ids, *second, 3], [*segments, *[1] * (len(second) + 1)]
        made.append((ids, segments, LABELS.index(str(example.label))))
    return made


def loss_and_gradient(weights: Weights, work: Job) -> tuple[float, Weights]:
    """Cross-entropy of a linear layer upon [CLS], summed over the rows, by transformers' encoder in float64."""
    fields = {name: value for name, value in asdict(work.source.model).items() if not name.endswith("initializer")}
    encoder = transformers.ElectraModel(transformers.ElectraConfig(**fields))
    network = nn.ModuleDict({"electra": encoder, "head": nn.Linear(32, len(LABELS))}).double().eval()
    missing, unexpected = network.load_state_dict(weights, strict=False)
    assert not missing and not unexpected
    total = torch.zeros((), dtype=torch.double)
    for ids, segments, label in rows_by_hand():
        hidden = encoder(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments])).last_hidden_state
        total += F.cross_entropy(network["head"](hidden[:, 0]), torch.tensor([label]))
    total.backward()
    return float(total.detach()), {name: one.grad for name, one in network.named_parameters() if one.grad is not None}


def share_of(name: str, shares: tuple[float, float, float, float]) -> float:
    embeddings, lower, upper, head = shares
    for begin, share in (("head.", head), ("electra.encoder.layer.0.", lower), ("electra.encoder.layer.1.", upper)):
        if name.startswith(begin):
            return share
    assert name.startswith("electra.embeddings")
    return embeddings


def two_steps(start: Weights, name: str, work: Job) -> tuple[Weights, list[float], list[float]]:
    """Weights, mean losses and norms by the formulas: Adam without a correction of its bias, with the decay within the rate."""
    weights, losses, norms = dict(start), [], []
    mean, square = ({key: torch.zeros_like(values) for key, values in start.items()} for _ in range(2))
    for step in range(2):
        loss, grad = loss_and_gradient(weights, work)
        if name == "paper":
            grad = {key: values / ROWS for key, values in grad.items()}
        losses.append(loss / ROWS)
        norms.append(float(torch.stack([g.norm() for g in grad.values()]).norm()))
        for key, values in weights.items():
            g = grad[key] * min(1.0, 1.0 / norms[-1])
            mean[key], square[key] = 0.9 * mean[key] + 0.1 * g, 0.999 * square[key] + 0.001 * g**2
            change = mean[key] / (square[key].sqrt() + 1e-6)
            if name == "released" and values.dim() == 2:  # matrices and tables; biases, gains and shifts are vectors
                change += DECAY * values
            weights[key] = values - rate(name, step) * share_of(key, SHARES[name]) * change
    return weights, losses, norms


@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("width", [16, 32], ids=["narrow embeddings", "embeddings as wide"])
@pytest.mark.parametrize("name", ["released", "paper"])
def test_two_steps_are_those_of_the_formulas(
    tmp_path: Path, name: str, width: int, micro_batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "choose_precision", lambda *_: "fp32")
    monkeypatch.setattr(engine, "StopRequest", StopAfterTwo)
    monkeypatch.setattr(engine, "_LOG_EVERY", 1)
    work = job(name, width=width, micro_batch=micro_batch)
    network = build_network(work.source, work.data.task, work.recipe, seed=work.seed)
    start = {key: values.detach().double() for key, values in network.named_parameters()}
    with pytest.raises(Interrupted, match="step 2 of 20"):
        finetune_run(work, out=tmp_path / "run", device="cpu", quiet=True)
    ((_, path),) = numbered(tmp_path / "run" / "checkpoints")
    saved = read(path)
    expected, losses, norms = two_steps(start, name, work)
    assert saved.step == 2 and saved.weights.keys() == expected.keys()

    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [pytest.approx(loss, rel=LOSSES) for loss in losses]
    assert [line["gradient_norm"] for line in lines] == [pytest.approx(norm, rel=1e-5) for norm in norms]
    assert name == "paper" or max(norms) > 2  # it is clipped
    for key, values in expected.items():
        moved = float((values - start[key]).norm())
        off = float((saved.weights[key].double() - values).norm())
        assert off <= (KEY_BIAS if "key.bias" in key else MOVEMENT * moved), (key, off, moved)
        assert moved > 1e-3 or "key.bias" in key, key


@pytest.mark.parametrize(
    ("name", "unordered", "rows"), [("released", True, 24), ("released", False, 12), ("paper", True, 12)]
)
def test_pairs_without_an_order_are_read_both_ways_as_released(name: str, unordered: bool, rows: int) -> None:
    pairs = [example for example in examples(24, seed=3) if example.pair is not None]
    given = TaskData(task=Classification(labels=LABELS), train=pairs, dev={}, unordered_pairs=unordered)
    work = Job(source=source(), data=given, recipe=recipe(name, hidden_size=32, epochs=2, batch_size=4), seed=3)
    batches = build_batches(work, device=torch.device("cpu"))
    assert len(batches.rows) == rows and batches.steps == rows // 4 * 2
    for row, swapped in zip(batches.rows[:12], batches.rows[12:], strict=False):
        seam = row.ids.index(3)
        first, second = row.ids[1:seam], row.ids[seam + 1 : -1]
        assert list(swapped.ids) == [2, *second, 3, *first, 3] and swapped.target == row.target
