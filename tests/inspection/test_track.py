"""Trackers get the rows of metrics.jsonl, once; nothing that they do changes a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Electra
from tests.finetuning.own_files import rows as labelled
from tests.finetuning.own_files import write_csv, write_encoder
from tests.prepared import small_config, write_store
from tests.reliability.children import in_a_child
from tests.reliability.whole_runs import different_tensors

from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError
from electra_trainer.inspection import trackers
from electra_trainer.inspection.trackers import send
from electra_trainer.runs.run_folder import METRICS, RunFolder
from electra_trainer.settings.records import to_dict

ALL = "tensorboard,wandb"
CLOCKS = {"seconds", "tokens_per_second"}
"""Fields that differ between two runs of the same bits."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("track")
    (folder / "c.json").write_text(json.dumps(to_dict(small_config(steps=12, lanes=1))))
    return write_store(folder / "data")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves the machine, and all that trackers keep is in the test's folder."""
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    source = str(Path(trackers.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, os.environ.get("PYTHONPATH", ""))))


def words(data: Path, out: Path, *more: str) -> tuple[str, ...]:
    fixed = f"pretrain {data} --config {data.parent / 'c.json'} --device cpu --quiet --out {out}"
    return (*fixed.split(), *more)


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without trackers, in a separate process as the others are."""
    out = tmp_path_factory.mktemp("plain") / "run"
    assert in_a_child(lambda: main([*words(data, out)])) == 0
    return out


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_clocks(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in metrics(run)]


def expected(run: Path) -> dict[tuple[str, int], float]:
    """Name and step -> value, as trackers are to have it."""
    return {
        (f"{'eval' if row.get('split') == 'valid' else 'train'}/{name}", row["step"]): value
        for row in metrics(run)
        for name, value in row.items()
        if isinstance(value, (int, float)) and name != "step"
    }


def events(run: Path) -> list[tuple[str, int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tracked/tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    return [(tag, one.step, one.value) for tag in read.Tags()["scalars"] for one in read.Scalars(tag)]


def assert_events(run: Path) -> None:
    found, wanted = events(run), expected(run)
    assert len(found) == len(wanted)  # none twice
    assert {one[:2]: one[2] for one in found} == {at: np.float32(value) for at, value in wanted.items()}


def same_run(one: Path, two: Path) -> None:
    assert without_clocks(one) == without_clocks(two)
    assert different_tensors(one / "checkpoints/step-00000012", two / "checkpoints/step-00000012") == []


def copied(*words: object, broken: Path | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a copy of this process, which imports W&B anew.

    Args:
        broken: a folder of packages that are imported in place of others.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:

        def work() -> int:
            for at, file in enumerate((out, err), start=1):
                os.dup2(file.fileno(), at)
            sys.stdout, sys.stderr = (open(at, "w", closefd=False) for at in (1, 2))  # noqa: SIM115
            if broken is not None:
                sys.path.insert(0, str(broken))
            for name in [name for name in sys.modules if name.partition(".")[0] in ("wandb", "mlflow")]:
                del sys.modules[name]
            code = main([str(word) for word in words])
            sys.stdout.flush()
            return code

        code = in_a_child(work)
        return code, *(os.pread(file.fileno(), 1 << 20, 0).decode() for file in (out, err))


def track(*more: object) -> str:
    code, printed, err = copied("track", *more)
    assert code == 0, err
    return "".join(line for line in printed.splitlines(keepends=True) if line.startswith(("wandb:", "tensorboard:")))


def until(true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_every_tracker_on_and_the_run_is_the_same(data: Path, plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, _, err = copied(*words(data, out, "--track", ALL))
    assert code == 0 and "Traceback" not in err and "failed" not in err, err
    same_run(plain, out)
    assert_events(out)
    assert_wandb(out)


def assert_wandb(out: Path) -> None:
    kept = [record for record in wandb_rows(out) if "train/loss" in record or "eval/loss" in record]
    assert len(kept) == len(metrics(out))
    assert [row["train/global_step"] for row in kept] == [row["step"] for row in metrics(out)]
    losses = [row["loss"] for row in metrics(out) if "split" not in row]
    assert [row["train/loss"] for row in kept if "train/loss" in row] == losses


def wandb_rows(run: Path) -> Iterator[dict[str, Any]]:
    """Rows of an offline run."""
    for record in wandb_records(run):
        if record.HasField("history"):
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}


def wandb_records(run: Path) -> Iterator[Any]:
    """W&B's own messages of an offline run; their file is a log of records, as LevelDB's."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted((run / "tracked/wandb").glob("offline-run-*/*.wandb")):
        content, at, whole = path.read_bytes(), 7, b""
        while at < len(content):
            if (left := 32768 - at % 32768) < 7:
                at += left
                continue
            length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
            whole, at = whole + content[at + 7 : at + 7 + length], at + 7 + length
            if kind in (1, 4):  # all of a record, or its end
                yield Record.FromString(whole)
                whole = b""


@pytest.mark.parametrize("after", [0, 3])
def test_resuming_sends_each_row_once(electra: Electra, data: Path, plain: Path, tmp_path: Path, after: float) -> None:
    """A run that was killed after step 10 resumes from step 8, whether or not step 10 was sent: none lost, and none twice
    unless the kill came between sending rows and noting that.
    """
    out = tmp_path / "run"
    command = words(data, out, "--track", "tensorboard")
    append = RunFolder.append

    def killed(self: RunFolder, name: str, row: dict[str, Any]) -> None:
        append(self, name, row)
        if name == METRICS and row["step"] == 10:
            time.sleep(after)
            os.kill(os.getpid(), signal.SIGKILL)

    def doomed() -> int:
        RunFolder.append = killed  # type: ignore[method-assign]
        return main([*command])

    assert in_a_child(doomed) == -signal.SIGKILL
    if after:
        assert max(step for _, step, _ in events(out)) == 10
    assert electra(*command)[0] == 0
    same_run(plain, out)
    sent = {(name, step): value for name, step, value in events(out)}
    every = events(out)
    assert sent.keys() == expected(out).keys() and len({*every}) == len(sent)
    assert not after or len(every) == len(sent)
    assert "tensorboard: nothing new; see tensorboard --logdir" in electra("track", out, "--to", "tensorboard")[1]


def broken(folder: Path, **code: str) -> Path:
    """A folder of packages that do something else when they are imported."""
    for package, text in code.items():
        (folder / "broken" / package).mkdir(parents=True)
        (folder / "broken" / package / "__init__.py").write_text(text)
    return folder / "broken"


FROZEN = (
    "import atexit, threading, time; atexit.register(time.sleep, 10_000); "
    "threading.Thread(target=time.sleep, args=(10_000,)).start(); time.sleep(10_000)"
)
"""Neither threads nor exit handlers of the package keep the process alive."""


def test_a_frozen_tracker_is_abandoned(data: Path, plain: Path, tmp_path: Path) -> None:
    """Training imports no transformers, which end the process here."""
    out, folder = tmp_path / "run", broken(tmp_path, wandb=FROZEN, transformers="import os; os._exit(99)")
    command = [sys.executable, "-m", "electra_trainer", *words(data, out, "--track", "wandb,tensorboard")]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    err = done.stderr
    assert done.returncode == 0, err
    assert time.time() - (out / "report.html").stat().st_mtime < trackers.PARTING + 10
    assert err.count("\n") == 1 and "--track wandb: did not answer within 10 s and was abandoned." in err
    assert f"electra track {out} --to wandb" in err
    same_run(plain, out)
    assert_events(out)
    sent = track(out, "--to", "wandb")  # as the message says
    assert sent.startswith(f"wandb: {len(metrics(out))} rows sent; see wandb.ai")
    assert_wandb(out)


DIE = """
import os, signal, subprocess, sys
service = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdin=subprocess.PIPE)
os.kill(service.pid, signal.SIGKILL)
service.wait()
service.stdin.write(b"row" * 100_000)
service.stdin.flush()
"""


def test_broken_trackers_are_reported_once(data: Path, plain: Path, tmp_path: Path) -> None:
    """W&B computes in a separate process: when that dies, or a package exits, the run ends as without it."""
    out = tmp_path / "run"
    folder = broken(tmp_path, mlflow="raise SystemExit(3)", wandb=DIE)
    code, _, err = copied(*words(data, out, "--track", "mlflow,wandb,tensorboard"), broken=folder)
    assert code == 0 and err.count("\n") == 2
    assert "--track mlflow: failed (" in err and "--track wandb: failed (BrokenPipeError" in err
    for name in ("mlflow", "wandb"):
        assert f"training is not affected. Send what is missing with: electra track {out} --to {name}" in err
    same_run(plain, out)
    assert_events(out)


def test_an_experiment_is_a_group_of_runs(electra: Electra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", labelled(40))
    write_csv(tmp_path / "dev.csv", labelled(8))
    command = "finetune encoder --train train.csv --dev dev.csv --out exp --seeds 2 --epochs 1 --parallel 1 --device cpu --quiet --track tensorboard"
    code, _, err = electra(*command.split())
    assert code == 0, err
    cells = sorted((tmp_path / "exp/cells").glob("classification/seed-*"))
    assert len(cells) == 2
    for cell in cells:
        found = [one for one in events(cell) if not one[0].startswith("result/")]
        assert {one[:2]: one[2] for one in found} == {at: np.float32(value) for at, value in expected(cell).items()}
        scores = json.loads((cell / "result.json").read_text())["scores"]
        named = {f"result/{name}": np.float32(value) for name, value in scores.items()}
        assert {name: value for name, _, value in events(cell) if name.startswith("result/")} == named != {}
    printed = track("exp", "--to", "wandb,tensorboard")
    assert printed.startswith("wandb: ") and "rows sent" in printed and "tensorboard: nothing new;" in printed
    for cell in cells:
        (run,) = (record.run for record in wandb_records(cell) if record.HasField("run"))
        assert (run.display_name, run.run_group) == (f"{cell.parent.name}-{cell.name}", "exp")


def test_rows_that_are_being_written(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line waits for its other half; a file that is replaced is read anew, and what was sent is not sent again."""
    sent: list[tuple[int, trackers.Numbers]] = []

    class Kept:
        def __init__(self, tracked: trackers.Tracked) -> None:
            assert tracked.config["preset"] == "test" and tracked.run_id

        def send(self, rows: Any) -> None:
            sent.extend(rows)

        def finish(self) -> None:
            pass

    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", trackers.Kind(Kept, "tensorboard", "", ""))
    for name in ("config.json", "environment.json"):
        (tmp_path / name).write_bytes((plain / name).read_bytes())
    file, lines = tmp_path / "metrics.jsonl", (plain / "metrics.jsonl").read_text().splitlines(keepends=True)
    more = 'not JSON\n{"step": 2, "loss": NaN, "split": "valid"}\n'
    stages = iter([lines[0] + lines[1][:20], lines[0] + lines[1] + more, lines[0], "".join(lines)])
    counts = []

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            counts.append(len(sent))
            stage = next(stages, None)
            if stage is None:
                return True
            if file.exists() and len(stage) < file.stat().st_size:
                file.unlink()
            file.write_text(stage)
            return False

    send(tmp_path, "tensorboard", over=Over())
    assert counts == [0, 1, 3, 3, len(lines) + 1]
    assert [step for step, values in sent if values] == [row["step"] for row in metrics(tmp_path)]
    assert (2, {}) in sent  # not a number: not a value
    sent.clear()
    (tmp_path / "result.json").write_text('{"scores": {"dev/accuracy": 0.5}}')  # after the run was finished there
    for _ in range(2):
        send(tmp_path, "tensorboard")
    assert [[*values.values()] for _, values in sent] == [[0.5]]


def test_one_sender_at_a_time(plain: Path) -> None:
    over = threading.Event()
    first = threading.Thread(target=lambda: send(plain, "tensorboard", over=over))
    first.start()
    until(lambda: (plain / "tracked/tensorboard.json").exists())
    try:
        with pytest.raises(ConfigError, match="another process sends it to tensorboard already"):
            send(plain, "tensorboard")
    finally:
        over.set()
        first.join()
    assert_events(plain)


REFUSED = {
    "tensorbord": "--track 'tensorbord': unknown. Did you mean 'tensorboard'? Known: tensorboard, wandb, mlflow.",
    ",": "--track '': unknown. Known: tensorboard",
    "mlflow": "mlflow: needs the Python package mlflow, which is not installed here. Type: pip install mlflow-skinny",
    "wandb": "--track wandb: needs the Python package wandb, which is not installed here. Type: pip install wandb",
}


@pytest.mark.parametrize("names", REFUSED)
def test_refused_before_anything_is_trained(
    electra: Electra, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    code, _, err = electra(*words(data, tmp_path / "run", "--track", names))
    assert code == 78 and REFUSED[names] in err
    assert not (tmp_path / "run").exists()


def test_without_a_run(electra: Electra, tmp_path: Path) -> None:
    code, _, err = electra("track", tmp_path, "--to", "tensorboard")
    assert code == 66 and "no run with a metrics.jsonl is here" in err


def test_mlflow(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert send(plain, "mlflow") == len(metrics(plain))
    assert send(plain, "mlflow") == 0
