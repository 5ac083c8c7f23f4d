"""A run over the time that is left: `python -m benchmarks.gpu_run OUT --preset small --seconds 600 [--data FOLDER]`.

Prepares the embedded corpus where no data are given, pre-trains with a checkpoint a minute, writes report, pictures, exported networks and
held-out metrics. The same command goes on where it was stopped: the length is settled once, in OUT/length.json. It needs no
command-line package, so that it runs on machines that have PyTorch but not tyro.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from pathlib import Path

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.store import MANIFEST, Store
from electra_trainer.inspection.replay import evaluate
from electra_trainer.inspection.report import write_report
from electra_trainer.presets.models import preset
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.train.device import choose_device, choose_precision
from electra_trainer.train.loop import pretrain
from electra_trainer.train.plan import Length, fit_to_data, steps_for
from electra_trainer.train.timing import measure_time

KEPT = ("config.json", "environment.json", "metrics.jsonl", "examples.jsonl", "log.txt", "report.html")
"""Small files of the run that make the record."""


def data_for(out: Path, given: Path | None, vocab_size: int, tokens: int) -> Path:
    """The prepared data: those given, or the documentation of the packages installed here."""
    data = given or out / "data"
    if not (data / MANIFEST).exists():
        tokenizer, _ = train_tokenizer_from(["docstrings"], vocab_size=vocab_size)
        prepare(
            ["docstrings"],
            tokenizer=tokenizer,
            sequence_length=tokens,
            out=data,
            settings=PrepareSettings(valid_fraction=0.02),
        )
    return data


def settled(out: Path, name: str, data: Path, device: str, seconds: float) -> tuple[int, int]:
    """Steps of the run and steps between checkpoints, measured once."""
    path = out / "length.json"
    if not path.exists():
        store, where = Store.open(data), choose_device(device)
        config = fit_to_data(preset(name), store)
        timing = measure_time(config, store, device=where, precision=choose_precision(config.precision, where))
        config = steps_for(Length(budget=f"{seconds:.0f}s"), config, timing)
        every = max(1, int(60 / timing.step))
        path.write_text(
            json.dumps({"steps": config.schedule.steps, "checkpoint_every": every, "seconds_a_step": timing.step})
        )
    found = json.loads(path.read_text())
    return found["steps"], found["checkpoint_every"]


def main() -> None:
    """Run, then write what is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    start = preset(given.preset)
    data = data_for(out, given.data, min(start.model.vocab_size, 16384), start.batch.sequence_length)
    steps, every = settled(out, given.preset, data, given.device, given.seconds)
    config = dataclasses.replace(start, checkpoint=dataclasses.replace(start.checkpoint, every=every))
    run = out / "run"
    pretrain(config, data, out=run, length=Length(steps=steps), device=given.device)
    found = evaluate(run, data, device=given.device)
    (out / "held-out.json").write_text(json.dumps({"step": found.step, "rows": found.rows, **found.metrics}, indent=1))
    write_report([run])
    shutil.rmtree(out / "export", ignore_errors=True)
    exported = export_run(run, out / "export")
    record = out / "record"
    record.mkdir(exist_ok=True)
    for name in KEPT:
        if (run / name).exists():
            shutil.copy(run / name, record)
    if (run / "figures").is_dir():
        shutil.copytree(run / "figures", record / "figures", dirs_exist_ok=True)
    print(json.dumps({"steps": steps, "exported": [str(path) for path in exported], "held-out": found.metrics}))


if __name__ == "__main__":
    main()
