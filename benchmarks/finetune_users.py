"""What a user of own labels waits for: `python -m benchmarks.finetune_users`.

`electra finetune`, as a command from start to exit, on 1,000 texts of 60 tokens with the shape of `mini` in BERT's block, three seeds and
the recipe's defaults; then predictions for the same texts, by `load_finetuned(...).predict`, which is the work of `electra predict`, and by
transformers' text-classification pipeline on the same folder, one text at a time (its default) and in batches of 32, in turn in one
process. Their model is that of a short run with `--pooling cls`, whose head transformers has. Weights and words are made up: time depends
on neither. Seconds of the clock and of a processor are given, since other work may run on the machine. A table is printed; `--out` writes
all that was measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from benchmarks.machine_facts import hardware, versions
from electra_trainer.data.tokenizer import SPECIAL_TOKENS, save_tokenizer, specials_of, word_piece
from electra_trainer.files.processes import cores
from electra_trainer.finetuning.model_folder import load_finetuned
from electra_trainer.model.networks import build_encoder, initialize
from electra_trainer.presets.models import preset
from electra_trainer.pretrained.export import shape_table
from electra_trainer.train.device import choose_precision

TOKENS = 60


def write_encoder(folder: Path, name: str) -> list[str]:
    """An encoder of a preset's shape with fresh weights, and the words of its vocabulary."""
    model = replace(preset(name).model, block="bert")
    words = [
        f"{one}{two}{three}{four}"
        for one in "bdfgklmnprstvz"
        for two in "aeiou"
        for three in "bdfgklmnprstvz"
        for four in "aeiou"
    ]
    words += [f"{word}s" for word in words] + [f"{word}n" for word in words] + [f"{word}r" for word in words]
    words = words[: model.vocab_size - len(SPECIAL_TOKENS)]
    vocab = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, *words])}
    vocab |= {f"[unused{number}]": number for number in range(len(vocab), model.vocab_size)}
    tokenizer = word_piece(vocab, cased=False, keep_accents=None)
    encoder = initialize(build_encoder(model), model, lambda parameter: torch.Generator().manual_seed(len(parameter)))
    folder.mkdir()
    table = {"architectures": ["ElectraModel"], **shape_table(model, pad_id=specials_of(tokenizer).pad)}
    (folder / "config.json").write_text(json.dumps(table))
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(encoder.state_dict()))
    save_tokenizer(tokenizer, folder, max_length=128)
    return words


def texts_of(words: list[str], count: int) -> list[tuple[str, str]]:
    """Texts of 60 tokens, [CLS] and [SEP] counted, with their label: one of two words is in each."""
    draw = random.Random(1)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    made = []
    for number in range(count):
        chosen, label = draw.choices(words, weights, k=TOKENS - 2), number % 2
        chosen[draw.randrange(len(chosen))] = words[label]
        made.append((" ".join(chosen), ("yes", "no")[label]))
    return made


def processor() -> float:
    """Seconds of a processor that this process and its children have had."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of the clock and of a processor."""
    clock, spent = time.perf_counter(), processor()
    work()
    return {"clock": time.perf_counter() - clock, "processor": processor() - spent}


def fine_tuned(folder: Path, model: Path, out: str, *flags: object) -> dict[str, float]:
    """The command."""
    words = ["finetune", model, "--train", folder / "texts.tsv", "--out", folder / out, *flags]
    command = [sys.executable, "-m", "electra_trainer", *map(str, words)]
    with (folder / "log.txt").open("wb") as log:
        return timed(lambda: subprocess.run(command, check=True, stdout=log, stderr=log))


def predictions(folder: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """Texts a second of each system, and ours as a multiple of each; a first turn is not counted."""
    from transformers import pipeline

    ours, theirs = load_finetuned(folder), pipeline("text-classification", model=str(folder), device="cpu")
    systems: dict[str, Callable[[], Any]] = {
        "electra-trainer": lambda: [one["label"] for one in ours.predict(texts)],
        "pipeline": lambda: [one["label"] for one in theirs(texts)],
        "pipeline, batches of 32": lambda: [one["label"] for one in theirs(texts, batch_size=32)],
    }
    answers = {name: work() for name, work in systems.items()}
    agree = [sum(map(str.__eq__, found, answers["electra-trainer"])) / len(texts) for found in answers.values()]
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, work in systems.items():
            turns[name].append(timed(work))
    return {
        name: {
            "texts_per_second": len(texts) / statistics.median(one["clock"] for one in found),
            "texts_per_processor_second": len(texts) / statistics.median(one["processor"] for one in found),
            "ours_is_faster": statistics.median(
                one["clock"] / our["clock"] for one, our in zip(found, turns["electra-trainer"], strict=True)
            ),
            "ours_is_faster_by_processor": statistics.median(
                one["processor"] / our["processor"] for one, our in zip(found, turns["electra-trainer"], strict=True)
            ),
            "same_label": share,
            "turns": found,
        }
        for (name, found), share in zip(turns.items(), agree, strict=True)
    }


def shown(facts: dict[str, Any]) -> str:
    """The tables."""
    spent, given = facts["finetune_seconds"], (facts["texts"], facts["tokens"], facts["seeds"])
    head = "{:,} texts of {} tokens, {} seeds".format(*given)
    lines = [
        f"{facts['preset']}, {facts['cores']} cores, {facts['precision']}, load {facts['load']:.1f}",
        f"finetune, {head}: {spent['clock']:.0f} s, {spent['processor']:.0f} s of a processor",
        f"{'predict':<26}{'texts/s':>10}{'of a processor':>16}{'ours is faster':>16}{'same label':>12}",
    ]
    for name, one in facts["predict"].items():
        lines.append(
            f"{name:<26}{one['texts_per_second']:>10,.0f}{one['texts_per_processor_second']:>16,.0f}"
            f"{one['ours_is_faster']:>15.1f}x{100 * one['same_label']:>11.1f}%"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(cores())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "encoder"
        rows = texts_of(write_encoder(model, given.preset), given.texts)
        (folder / "texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]))
        facts = {
            "preset": given.preset, "texts": given.texts, "seeds": given.seeds, "rounds": given.rounds,
            "tokens": TOKENS, "cores": cores(), "load": os.getloadavg()[0],
            "precision": choose_precision("auto", torch.device("cpu")),
            "finetune_seconds": fine_tuned(folder, model, "out", "--seeds", given.seeds),
        }  # fmt: skip
        print(json.dumps(facts["finetune_seconds"]), file=sys.stderr)
        fine_tuned(folder, model, "cls", "--seeds", 1, "--epochs", 1, "--pooling", "cls")
        facts["predict"] = predictions(folder / "cls" / "model", [text for text, _ in rows], given.rounds)
    print(shown(facts))
    if given.out is not None:
        given.out.write_text(json.dumps({**facts, "hardware": hardware(), "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
