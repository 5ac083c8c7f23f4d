"""What `--deterministic` costs: `python -m benchmarks.deterministic [--preset small] [--worlds 1,2] [--json FILE]`.

Whole training steps on rows of random words, with the fixed tree of gradient sums and without it, in turns of a few steps each, by the same
processes on the same networks; each world (a number of processes) has the machine's cores divided among its processes. The way
without is measured twice, as `default` and `again`: the ratio of the two is what noise makes of no difference. Medians of turns, and medians
of the ratios of neighbouring turns. Both have the same lanes; a run that needs no other world sizes may have one lane, which is `one lane`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine_facts import hardware, versions
from benchmarks.synthetic import make, sized
from electra_trainer.files.processes import cores
from electra_trainer.ranks.world import any_rank, joined
from electra_trainer.settings.config import Config
from electra_trainer.supervise.launcher import restart_tuned
from electra_trainer.train.step import Feed, train_step

ORDER = ("default", "deterministic", "again", "one lane")
CPU = torch.device("cpu")


def ways(config: Config) -> dict[str, Config]:
    """The configurations that are timed."""
    one = dataclasses.replace(config, batch=dataclasses.replace(config.batch, lanes=1))
    tree = dataclasses.replace(config, deterministic=True)
    return {"default": config, "deterministic": tree, "again": config, "one lane": one}


def rank(config: Config, *, turns: int, steps: int) -> dict[str, list[float]]:
    """Seconds a step of each turn, in one process of those that are joined."""
    with joined(lambda: CPU) as (here, _):
        made = make(config, CPU)
        feeds = {
            name: dataclasses.replace(made.feed, config=way)
            for name, way in ways(config).items()
            if way.batch.lanes >= here.size
        }
        found: dict[str, list[float]] = {name: [] for name in feeds}
        at = 0
        for turn in range(-1, turns):  # the first is a rehearsal
            for name in list(feeds)[:: 1 if turn % 2 else -1]:
                seconds = _timed(made.objective, made.optimizer, feeds[name], first=at, steps=steps)
                at += steps
                if turn >= 0:
                    found[name].append(seconds)
        return found


def _timed(objective: Any, optimizer: torch.optim.Optimizer, feed: Feed, *, first: int, steps: int) -> float:
    any_rank(False)  # all begin together
    start = time.perf_counter()
    for step in range(first, first + steps):
        train_step(objective, optimizer, feed, step=step)
    any_rank(False)
    return (time.perf_counter() - start) / steps


def _process(
    rank_: int, size: int, port: int, config: Config, options: dict[str, int], answers: SimpleQueue[Any]
) -> None:
    os.environ |= {
        "RANK": str(rank_), "LOCAL_RANK": str(rank_), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)
    }  # fmt: skip
    torch.set_num_threads(max(1, cores() // size))
    found = rank(config, **options)
    if rank_ == 0:
        answers.put((torch.get_num_threads(), found))


def world(size: int, config: Config, *, turns: int, steps: int) -> dict[str, Any]:
    """Start so many processes, and put their figures together."""
    context = multiprocessing.get_context("spawn")
    answers: SimpleQueue[Any] = context.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"turns": turns, "steps": steps}
    processes = [context.Process(target=_process, args=(r, size, port, config, options, answers)) for r in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"a process of the world of {size} failed; see above")
    threads, times = answers.get()
    return {"processes": size, "threads_each": threads, **figures(times)}


def figures(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians in milliseconds, and of the ratios to `default` in the same turn their median and range."""
    found: dict[str, Any] = {}
    for name, each in times.items():
        ratios = [seconds / default for seconds, default in zip(each, times["default"], strict=True)]
        found[name] = {"step_ms": round(1000 * statistics.median(each), 2)}
        if name != "default":
            found[name] |= {
                "ratio": round(statistics.median(ratios), 4),
                "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
            }
    return found


def table(results: list[dict[str, Any]]) -> str:
    """A row a world and way, for people."""
    rows = [f"{'processes':>9}  {'way':<14}{'ms a step':>10}{'ratio':>8}  range"]
    for result in results:
        for name in ORDER:
            if name in result:
                way = result[name]
                ratio = (
                    f"{way['ratio']:8.3f}  {way['ratio_range'][0]:.3f} to {way['ratio_range'][1]:.3f}"
                    if "ratio" in way
                    else ""
                )
                rows.append(f"{result['processes']:>9}  {name:<14}{way['step_ms']:>10.1f}{ratio}")
    return "\n".join(rows)


def main(words: list[str] | None = None) -> None:
    """Measure, and print the table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=128, help="rows of a step")
    parser.add_argument("--lanes", type=int, default=4, help="a power of two, at least the largest world")
    parser.add_argument("--worlds", default="1,2", help="numbers of processes, powers of two")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn")
    parser.add_argument("--json", type=Path, help="write the JSON line here too")
    given = parser.parse_args(words)
    config = sized(given.preset, batch=given.batch, lanes=given.lanes)
    sizes = [int(size) for size in given.worlds.split(",")]
    results = [world(size, config, turns=given.turns, steps=given.steps) for size in sizes]
    print(table(results))
    options = {
        "preset": given.preset,
        "batch": given.batch,
        "lanes": given.lanes,
        "turns": given.turns,
        "steps": given.steps,
    }
    line = json.dumps(
        {"test": "deterministic_cost", **options, "worlds": results, "hardware": hardware(), "versions": versions()}
    )
    print(line)
    if given.json:
        given.json.write_text(line + "\n")


if __name__ == "__main__":
    restart_tuned()
    sys.exit(main())
