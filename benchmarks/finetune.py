"""Fine-tuning steps on short sentences, ours and the usual script's, in turn in one process: `python -m benchmarks.finetune`.

Ours is the engine itself (finetuning/run.py): rows of like length together, each batch padded to its longest, collation, forward, the
task's loss, backward, clipping and the optimizer with a group for each layer. The usual script pads every sentence to 128 tokens and
trains transformers' ElectraForSequenceClassification with a shuffled order, fused AdamW and clipping at 1.0, as its Trainer does; its
batches are made before the clock starts. `transformers-longest` is that script with each batch padded to its longest sentence instead
(DataCollatorWithPadding), in the order as it comes. All read the same text: CoLA's 8,551 sentences where GLUE's files are, made-up
ones elsewhere.

`python -m benchmarks.speed --task finetune` times the same two systems among others, on made-up sentences, in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.machine_facts import hardware, versions
from benchmarks.peers import electra_config
from benchmarks.synthetic import CLS, MASK, PAD, SEP, UNK, zipf_words
from electra_trainer.cost.flops import infer_flops
from electra_trainer.data.batches import to_batch
from electra_trainer.data.tokenizer import SPECIAL_TOKENS, Specials, Text, load_tokenizer, specials_of, word_piece
from electra_trainer.finetuning.run import Feed, Order, build_network, layer_share, train_step
from electra_trainer.model.encoder import Encoder
from electra_trainer.presets.models import preset
from electra_trainer.pretrained.source import Source, untrained
from electra_trainer.settings.config import Config, Model
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import Row, lengths_of
from electra_trainer.tasks.text_tasks import Classification
from electra_trainer.train.device import autocast, choose_precision
from electra_trainer.train.optim import build_optimizer

if TYPE_CHECKING:
    from benchmarks.speed_worker import System

BATCHES = 4
"""Batches of one pass over the made-up sentences; they differ in length, so that passes are timed, not steps."""
PADDED = 128
"""What the usual script pads to."""
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where glue/CoLA/train.tsv and vocab/bert-base-uncased-vocab.txt are looked for."""
_TASK = Classification(labels=("0", "1"))
_LEARNING_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Rows with labels, 0 or 1."""

    name: str
    rows: list[Row]
    specials: Specials


# --------------------------------------------------------------------------------------------- text


def sentences(batch: int, *, vocab_size: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Sentences `[CLS] A [SEP]` of 6 to 64 tokens, half of them between 15 and 29, as in the usual tasks."""
    random = np.random.default_rng(seed)
    lengths = np.clip(np.exp(random.normal(np.log(21), 0.5, BATCHES * batch)).round().astype(int), 6, 64)
    words = zipf_words(int(lengths.sum()), vocab_size=vocab_size, seed=seed)
    made = np.split(words, np.cumsum(lengths)[:-1])
    for sentence in made:
        sentence[0], sentence[-1] = CLS, SEP
    return made


def made_up(batch: int, *, vocab_size: int) -> Labelled:
    """`sentences` with labels."""
    given = sentences(batch, vocab_size=vocab_size)
    labels = np.random.default_rng(1).integers(2, size=len(given))
    rows = [
        Row(ids=ids.tolist(), example=index, target=int(label))
        for index, (ids, label) in enumerate(zip(given, labels, strict=True))
    ]
    return Labelled(
        name="made-up sentences of 6 to 64 tokens",
        rows=rows,
        specials=Specials(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK),
    )


def cola(data: Path) -> Labelled:
    """The training sentences of CoLA in BERT's uncased vocabulary."""
    tokenizer = load_tokenizer(data / "vocab" / "bert-base-uncased-vocab.txt")
    lines = (data / "glue" / "CoLA" / "train.tsv").read_text(encoding="utf-8").splitlines()
    examples = [TextExample(text=fields[3], label=fields[1]) for fields in (line.split("\t") for line in lines)]
    text = Text(tokenizer=tokenizer, specials=specials_of(tokenizer), length=PADDED)
    return Labelled(name="CoLA, train", rows=_TASK.rows(examples, text, training=True), specials=text.specials)


def tokens_per_step(config: Config) -> float:
    """Real tokens, [CLS] and [SEP] counted, in a step on average; every system reads the same ones."""
    return sum(map(len, sentences(config.batch.size, vocab_size=config.model.vocab_size))) / BATCHES


def useful_flops(config: Config) -> float:
    """Matrix products of a step on average, forward and backward, if nothing were spent on padding."""
    made = sentences(config.batch.size, vocab_size=config.model.vocab_size)
    return 3 * sum(infer_flops(config, sequence_length=len(sentence)).real for sentence in made) / BATCHES


# --------------------------------------------------------------------------------------------- systems


class Ours:
    """The engine's own step."""

    def __init__(
        self, model: Model, text: Labelled, *, batch: int, device: torch.device, precision: str, seed: int = 1
    ) -> None:
        settings = recipe(
            "paper", hidden_size=model.hidden_size, epochs=1000.0, batch_size=batch, max_length=PADDED,
            dropout=model.hidden_dropout_prob, attention_dropout=model.attention_probs_dropout_prob,
        )  # fmt: skip
        order = Order(lengths_of(text.rows), batch_size=batch, seed=seed)
        self.feed = Feed(
            task=_TASK, rows=text.rows, order=order, specials=text.specials, recipe=settings, seed=seed, device=device,
            precision=precision,
        )  # fmt: skip
        tokenizer = word_piece(
            {token: number for number, token in enumerate(SPECIAL_TOKENS)}, cased=True, keep_accents=None
        )
        empty = Source(
            name="new",
            model=model,
            weights=Encoder(model).state_dict(),
            tokenizer=tokenizer,
            specials=text.specials,
            length=PADDED,
        )
        self.network = build_network(untrained(empty, seed=seed), _TASK, settings, seed=seed).to(device).train()
        self.optimizer = build_optimizer(
            self.network, settings.optimizer, layer_share(settings, model.num_hidden_layers)
        )
        self.steps = 0

    def step(self) -> None:
        train_step(self.network, self.optimizer, self.feed, step=self.steps)
        self.steps += 1

    def padding(self) -> float:
        """Share of the tokens of an epoch that is padding."""
        order = self.feed.order
        batches = [order.lengths[order.at(step)] for step in range(order.per_epoch)]
        return 1 - float(sum(batch.sum() for batch in batches) / sum(len(batch) * batch.max() for batch in batches))


class Theirs:
    """The usual script."""

    def __init__(
        self,
        model: Model,
        text: Labelled,
        *,
        batch: int,
        device: torch.device,
        precision: str,
        compiled: bool = False,
        longest: bool = False,
        seed: int = 1,
    ) -> None:
        from transformers import ElectraForSequenceClassification

        self.device, self.precision, self.steps = device, precision, 0
        torch.manual_seed(seed)
        order = torch.randperm(len(text.rows)).tolist()
        rows = [text.rows[index] for index in order]
        self.batches = [
            _padded(rows[first : first + batch], text.specials, device, longest=longest)
            for first in range(0, len(rows) - len(rows) % batch, batch)
        ]
        network = ElectraForSequenceClassification(electra_config(model, num_labels=2)).to(device).train()
        self.parameters = list(network.parameters())
        self.network = torch.compile(network) if compiled else network
        self.optimizer = torch.optim.AdamW(self.parameters, lr=_LEARNING_RATE, fused=True)

    def padding(self) -> float:
        """Share of the tokens of an epoch that is padding."""
        real = sum(int(batch["attention_mask"].sum()) for batch in self.batches)
        return 1 - real / sum(batch["input_ids"].numel() for batch in self.batches)

    def step(self) -> None:
        with autocast(self.precision, self.device):
            loss = self.network(**self.batches[self.steps % len(self.batches)]).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


def _padded(rows: Sequence[Row], specials: Specials, device: torch.device, *, longest: bool) -> dict[str, torch.Tensor]:
    width = max(len(row.ids) for row in rows) if longest else PADDED
    ids_BT = np.full((len(rows), width), specials.pad, dtype=np.int64)
    for line, row in zip(ids_BT, rows, strict=True):
        line[: len(row.ids)] = row.ids
    batch = to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep).to(device)
    return {
        "input_ids": batch.ids_BT,
        "attention_mask": batch.real_BT.long(),
        "token_type_ids": batch.segment_BT,
        "labels": torch.tensor([row.target for row in rows], device=device),
    }


# --------------------------------------------------------------------------------------------- side by side


@dataclass
class Seen:
    """Examples a second of one system, a number a turn: by the clock, and by the time that its process had a processor."""

    clock: list[float]
    processor: list[float]


def take_turns(systems: Mapping[str, System], *, batch: int, rounds: int, steps: dict[str, int]) -> dict[str, Seen]:
    """Turns of so many steps each, one system after the other, A B A B; a first turn is not counted."""
    seen = {name: Seen(clock=[], processor=[]) for name in systems}
    for number in range(rounds + 1):
        for name, system in systems.items():
            clock, processor = time.perf_counter(), time.process_time()
            for _ in range(steps[name]):
                system.step()
            clock, processor = time.perf_counter() - clock, time.process_time() - processor
            if number:
                seen[name].clock.append(steps[name] * batch / clock)
                seen[name].processor.append(steps[name] * batch / processor)
    return seen


def report(seen: dict[str, Seen]) -> dict[str, Any]:
    """Medians, and the median over rounds of ours divided by each other."""
    ours = seen["electra-trainer"]
    return {
        name: {
            "examples_per_second": statistics.median(one.clock),
            "examples_per_processor_second": statistics.median(one.processor),
            "ours_is_faster": statistics.median(a / b for a, b in zip(ours.clock, one.clock, strict=True)),
            "ours_is_faster_by_processor": statistics.median(
                a / b for a, b in zip(ours.processor, one.processor, strict=True)
            ),
            "turns": asdict(one),
        }
        for name, one in seen.items()
    }


def measure(model: Model, text: Labelled, arguments: argparse.Namespace) -> dict[str, Any]:
    """The object that --json prints."""
    device = torch.device("cpu")
    precision = choose_precision("auto", device)
    common: dict[str, Any] = {"batch": arguments.batch, "device": device}
    ours = Ours(model, text, precision=precision, **common)
    systems: dict[str, Ours | Theirs] = {"electra-trainer": ours}
    for name in dict.fromkeys(["fp32", precision]):
        systems[f"transformers-{name}"] = Theirs(model, text, precision=name, **common)
    systems["transformers-longest"] = Theirs(model, text, precision=precision, longest=True, **common)
    steps = {
        name: arguments.steps if system is ours else max(1, arguments.steps // 5) for name, system in systems.items()
    }
    seen = take_turns(systems, batch=arguments.batch, rounds=arguments.rounds, steps=steps)
    return {
        "text": text.name,
        "preset": arguments.preset,
        "batch": arguments.batch,
        "threads": torch.get_num_threads(),
        "precision": precision,
        "tokens_an_example": float(lengths_of(text.rows).mean()),
        "padding": {name: system.padding() for name, system in systems.items()},
        "systems": report(seen),
        "hardware": hardware(),
        "versions": versions(),
    }


def table(facts: dict[str, Any]) -> str:
    """The same for reading."""
    lines = [
        f"{facts['preset']} on {facts['text']}: {facts['tokens_an_example']:.1f} tokens an example, batches of {facts['batch']}, "
        f"{facts['threads']} threads, {facts['precision']}",
        f"{'':<22}{'examples/s':>12}{'ours x':>9}{'a processor s':>16}{'ours x':>9}{'padding':>10}",
    ]
    lines += [
        f"{name:<22}{one['examples_per_second']:>12.1f}{one['ours_is_faster']:>9.2f}"
        f"{one['examples_per_processor_second']:>16.1f}{one['ours_is_faster_by_processor']:>9.2f}{facts['padding'][name]:>10.1%}"
        for name, one in facts["systems"].items()
    ]
    return "\n".join(lines)


def chosen(arguments: argparse.Namespace) -> tuple[Model, Labelled]:
    """The model of a preset and its text: CoLA's where `arguments.data` has it, otherwise made up."""
    model = preset(arguments.preset).model
    if (arguments.data / "glue" / "CoLA" / "train.tsv").is_file():
        return replace(model, vocab_size=30522), cola(arguments.data)
    return model, made_up(arguments.batch, vocab_size=model.vocab_size)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each system")
    parser.add_argument("--steps", type=int, default=10, help="of a turn of ours; the other takes a fifth")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with glue/CoLA and vocab")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, text = chosen(arguments)
    facts = measure(model, text, arguments)
    print(json.dumps(facts, indent=1) if arguments.json else table(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
