"""Any step of a run again: the recorded numbers to the last bit, the words that the networks saw, and the documents that they are from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.reliability.figures import LONG, report
from tests.reliability.whole_runs import each_step, tiny_run, train

from electra_trainer.data.store import Passage, Store
from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.errors import Interrupted
from electra_trainer.inspection.replay import ReplayedRow, replay
from electra_trainer.objectives import generation
from electra_trainer.runs import run_folder

STEPS, EVERY = (60, 8) if LONG else (12, 4)
Words = dict[int, list[list[int]]]
"""Rows by step, from 1: the ids that the discriminator read, a list a row."""


@contextmanager
def listening(words: Words) -> Iterator[None]:
    """Note what the discriminator reads in each training step."""
    now, real = [0], generation.corrupt

    def corrupt(masked: Any, sampled_K: torch.Tensor) -> Any:
        made = real(masked, sampled_K)
        if torch.is_grad_enabled():  # not in an evaluation
            words.setdefault(now[0], []).extend(made.input_BT.tolist())
        return made

    def before(step: int) -> None:
        now[0] = step + 1
        words.pop(step + 1, None)

    with mock.patch.object(generation, "corrupt", corrupt), each_step(before):
        yield


def stopped_and_resumed(data: Path, out: Path, words: Words) -> Path:
    """A run that a signal stops in the middle of a step, and that resumes."""

    def stop(step: int) -> None:
        if step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGTERM)

    config = tiny_run(steps=STEPS, every=EVERY)
    with listening(words):
        with each_step(stop), pytest.raises(Interrupted):
            train(config, data, out)
        return train(config, data, out)


def state(run: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of change of every file and folder."""
    return {
        str(path.relative_to(run)): (hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest(), path.stat().st_mtime_ns)
        for path in [run, *run.rglob("*")]
    }  # fmt: skip


def text_of(row: ReplayedRow, part: Passage) -> list[str]:
    return [token for token in row.original[part.begin : part.end] if token not in ("[CLS]", "[SEP]")]


def is_there(row: ReplayedRow, part: Passage, tokenizer: Any, *, off: int = 0) -> bool:
    """Whether the text is in the file at that line (of that many lines further on)."""
    lines = (
        Path(part.place.file).read_text(encoding="utf-8").split("\n")[part.place.line - 1 + off : part.place.last + off]
    )
    found = [
        t for line in lines for t in as_plain_text(tokenizer).encode(line.strip(), add_special_tokens=False).tokens
    ]
    mine = text_of(row, part)
    return any(found[at : at + len(mine)] == mine for at in range(len(found)))


@mock.patch.object(run_folder, "git_revision", lambda: "revision")  # the source may be edited while this runs
def test_every_step_again(data: Path, tmp_path: Path) -> None:
    words: Words = {}
    run = stopped_and_resumed(data, tmp_path / "run", words)
    before, tokenizer = state(run), Store.open(data).tokenizer()
    identical, same_words, parts, found_there, found_elsewhere = 0, 0, 0, 0, 0
    for step in range(1, STEPS + 1):
        found = replay(run, step=step)
        identical += found.identical is True
        seen = [[tokenizer.id_to_token(number) for number in ids] for ids in words[step]]
        same_words += [row.corrupted for row in found.rows] == [
            ids[: len(row.original)] for ids, row in zip(seen, found.rows, strict=True)
        ]
        for row in found.rows:
            for part in row.documents or []:
                parts += 1
                found_there += is_there(row, part, tokenizer)
                found_elsewhere += is_there(row, part, tokenizer, off=2)
        assert not found.reservations
    untouched = state(run) == before
    control = other_seed(run, tmp_path / "other")
    report(
        "replay", steps=STEPS, identical=identical, same_words=same_words, documents_named=parts, documents_found_there=found_there,
        run_untouched=untouched, control_other_seed_identical=control, control_next_document_found=found_elsewhere,
    )  # fmt: skip
    assert (identical, same_words, found_there, untouched) == (STEPS, STEPS, parts, True)
    assert parts > 8 * STEPS and control == 0 and found_elsewhere < parts / 20


def other_seed(run: Path, copy: Path) -> int:
    """Control: steps of a run whose config.json says another seed that come out as recorded."""
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "seed": config["seed"] + 1}))
    found = [replay(copy, step=step) for step in (1, 2)]
    assert not any(one.began for one in found)  # no checkpoint is of that seed
    return sum(bool(one.identical) for one in found)
