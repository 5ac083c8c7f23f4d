"""A run over the time that is left: `python -m benchmarks.gpu_run OUT --preset small --seconds 600 [--data FOLDER]`.

Prepares the embedded corpus where no data are given, pre-trains with a checkpoint a minute, and at the end writes report, pictures,
exported networks and held-out metrics. The same command resumes where it was stopped: by a signal, or by itself after --stop-after
seconds. The length is settled once, in OUT/length.json, or given by --steps. It needs no command-line package, so that it runs on
machines that have PyTorch but not tyro.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import threading
from pathlib import Path

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.store import MANIFEST, Store
from electra_trainer.errors import Interrupted
from electra_trainer.inspection.replay import evaluate
from electra_trainer.inspection.report import write_report
from electra_trainer.presets.models import preset
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.runs.progress import Status
from electra_trainer.runs.run_folder import METRICS, RunFolder
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.begin.continued import ContinueFrom
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


def settled(out: Path, config: Config, data: Path, device: str, seconds: float) -> tuple[int, int]:
    """Steps of the run and steps between checkpoints, measured once."""
    path = out / "length.json"
    if not path.exists():
        store, where = Store.open(data), choose_device(device)
        config = fit_to_data(config, store)
        precision = choose_precision(config.precision, where)
        timing = measure_time(config, store, device=where, precision=precision, limit=min(6.0, seconds / 6))
        config = steps_for(Length(budget=f"{seconds:.0f}s"), config, timing)
        every = max(1, int(60 / timing.step))
        path.write_text(
            json.dumps({"steps": config.schedule.steps, "checkpoint_every": every, "seconds_a_step": timing.step})
        )
    found = json.loads(path.read_text())
    return found["steps"], found["checkpoint_every"]


class StopsAfter(Status):
    """Sends this process SIGTERM when the run has been training for some seconds and has logged something."""

    def __init__(self, out: Path, seconds: float | None) -> None:
        super().__init__(out)
        self.seconds = seconds
        self.ended = threading.Event()

    def running(self, folder: RunFolder) -> None:
        """See `Status`."""
        super().running(folder)
        if self.seconds is not None:
            threading.Thread(target=self._stop, args=[folder.path / METRICS, self.seconds], daemon=True).start()
            self.seconds = None  # it is called twice

    def _stop(self, metrics: Path, seconds: float) -> None:
        """On a busy machine the seconds may pass before the first step."""
        before = size(metrics)
        left = self.ended.wait(seconds)
        while not left and size(metrics) <= before:
            left = self.ended.wait(0.1)
        if not left:
            os.kill(os.getpid(), signal.SIGTERM)


def size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def keep_record(out: Path, run: Path) -> None:
    """Copy the small files of the run to OUT/record."""
    record = out / "record"
    record.mkdir(exist_ok=True)
    for path in (*(run / name for name in KEPT), out / "held-out.json", out / "length.json"):
        if path.exists():
            shutil.copy(path, record)
    if (run / "figures").is_dir():
        shutil.copytree(run / "figures", record / "figures", dirs_exist_ok=True)


def main() -> None:
    """Run, then write what is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--steps", type=int, help="of the whole run, instead of seconds")
    parser.add_argument(
        "--stop-after", type=float, help="seconds of training after which it sends itself SIGTERM: it saves and ends"
    )
    parser.add_argument("--checkpoint-every", type=int, default=1000, help="steps, where --steps is given")
    parser.add_argument("--continue-from", type=Path, help="a run whose newest checkpoint it begins with")
    parser.add_argument("--change", type=json.loads, default={}, help='settings, as {"masking": {"share": 0.25}}')
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    start = changed(preset(given.preset), **given.change)
    data = data_for(out, given.data, min(start.model.vocab_size, 16384), start.batch.sequence_length)
    steps, every = given.steps, given.checkpoint_every
    if steps is None:
        steps, every = settled(out, start, data, given.device, given.seconds)
    often = min(start.log_every, max(1, every // 5))
    config = dataclasses.replace(changed(start, checkpoint={"every": every}), log_every=often)
    init = ContinueFrom(name=str(given.continue_from)) if given.continue_from else None
    run = out / "run"
    status = StopsAfter(run, given.stop_after)
    try:
        pretrain(config, data, out=run, length=Length(steps=steps), init=init, device=given.device, status=status)
    except Interrupted as error:
        keep_record(out, run)
        print(json.dumps({"stopped": str(error), "steps": steps}))
        raise SystemExit(0 if given.stop_after else error.exit_code) from None
    status.ended.set()
    found = evaluate(run, data, device=given.device)
    (out / "held-out.json").write_text(json.dumps({"step": found.step, "rows": found.rows, **found.metrics}, indent=1))
    write_report([run])
    shutil.rmtree(out / "export", ignore_errors=True)
    exported = export_run(run, out / "export")
    keep_record(out, run)
    print(json.dumps({"steps": steps, "exported": [str(path) for path in exported], "held-out": found.metrics}))


if __name__ == "__main__":
    main()
