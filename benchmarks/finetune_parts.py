"""Where the time of a fine-tuning step goes: `python -m benchmarks.finetune_parts --preset tiny`.

The calls of finetuning/run.py's `train_step`, one after another on CoLA's rows, each by the processor time that it took. The optimizer
stands there twice: with a group for each layer, as it is, and with the two groups of pre-training.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.finetune import DATA, Ours, chosen
from electra_trainer.finetuning.run import collate
from electra_trainer.randomness import Rng
from electra_trainer.train.device import autocast, choose_precision
from electra_trainer.train.optim import build_optimizer, set_rate

_WARM_UP = 3
"""Steps that are not counted."""


def parts(ours: Ours, *, steps: int) -> dict[str, float]:
    """Milliseconds of each part of a step, the median over `steps`."""
    seen: dict[str, list[float]] = {}
    network, feed, optimizer = ours.network, ours.feed, ours.optimizer
    two_groups = build_optimizer(network, feed.recipe.optimizer)

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        seen.setdefault(name, []).append(1e3 * (time.process_time() - begun))

    for step in range(_WARM_UP + steps):
        Rng(feed.seed, step, 0).seed_dropout()
        with timed("rows and collation"):
            rows = feed.batch(step)
            batch = collate(rows, feed.specials, feed.device)
        with timed("forward"), autocast(feed.precision, feed.device):
            hidden_BTD = network(batch)
        with timed("loss"):
            loss, count = feed.task.loss(network.head, hidden_BTD, batch, rows)
        with timed("backward"):
            (loss / count).backward()
        with timed("norm and clipping"):
            float(torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0))
        set_rate(optimizer, 1e-4)
        with timed(f"Adam, {len(optimizer.param_groups)} groups"):
            optimizer.step()
        set_rate(two_groups, 0.0)
        with timed(f"(Adam, {len(two_groups.param_groups)} groups)"):
            two_groups.step()
        with timed("forgetting gradients"):
            optimizer.zero_grad()
    return {name: statistics.median(times[_WARM_UP:]) for name, times in seen.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with glue/CoLA and vocab")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, text = chosen(arguments)
    device = torch.device("cpu")
    ours = Ours(model, text, batch=arguments.batch, device=device, precision=choose_precision("auto", device))
    found = parts(ours, steps=arguments.steps)
    total = sum(value for name, value in found.items() if not name.startswith("("))
    print(
        f"{arguments.preset}, {text.name}, batches of {arguments.batch}, {ours.feed.precision}: {total:.1f} ms a step"
    )
    for name, value in found.items():
        print(f"{name:<22}{value:>9.2f} ms{value / total:>8.1%}")


if __name__ == "__main__":
    main()
