"""Mirror the metrics of runs into trackers, from outside: what is new in metrics.jsonl is read, sent, and noted in
RUN/tracked.

`--track` starts a process of this module for each tracker, in a session of its own. It reads the run's files and
changes none, and the run never waits for it but `PARTING` seconds at its end: a tracker that fails, hangs or has no
network cannot stop the run or change its bits.

A row is sent once. Rows after the newest checkpoint are computed again when a run resumes, bit for bit, so they need
not be sent again: the last step sent, of training and of evaluations, is all that is remembered.
"""

import fcntl
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, ElectraError, MissingInputError, storage_error, tell
from electra_trainer.files import durable, reading
from electra_trainer.inspection import trackers
from electra_trainer.inspection.trackers import FOLDER, TRACKERS, Numbers, Tracked
from electra_trainer.settings.records import read_table

PARTING = 5.0
"""Seconds that a run's end waits for its mirrors; they go on alone afterwards."""
_LINGER = 600
"""Seconds after the end of its run in which a mirror ends, done or not."""
_POLL = 1.0
_BATCH = 500
"""Rows that are sent before that is noted."""
_METRICS, _ENVIRONMENT, _RESULT = "metrics.jsonl", "environment.json", "result.json"
_PREFIX = {"train": "train/", "valid": "eval/"}


def find_runs(root: Path) -> list[Path]:
    """The run folders that have logged something: `root`, or the cells of an experiment."""
    places = [root, *sorted(root.glob("cells/*/*")), *sorted(root.glob("cells/*/*/run"))]
    return [place for place in places if (place / _METRICS).is_file() and (place / _ENVIRONMENT).is_file()]


def mirror(root: Path, name: str, *, project: str | None = None, over: Callable[[float], bool] | None = None) -> int:
    """Send what is new in the metrics of a run, or of all cells of an experiment.

    Args:
        root: run folder or experiment.
        name: of the tracker.
        project: see `Tracked`.
        over: waits that many seconds at most, and says whether the runs have ended; None: send what is there.

    Returns:
        Rows sent.

    Raises:
        ConfigError: another process mirrors the run there. MissingInputError: there is no run. StorageError, DataError:
            its files cannot
        be read or written. Any error of the tracker's package.
    """
    sent, known = 0, dict[Path, _Mirror]()
    with ExitStack() as locks:
        last, took = False, 0.0
        while not last:
            # what follows takes at most a twentieth of a core
            last = over(max(_POLL, 20 * took)) if over is not None else True
            began = time.process_time()
            for run in find_runs(root):
                if run not in known:
                    lock = _locked(run, name)
                    if lock is None and last:
                        raise ConfigError(f"{run}: another process sends it to {name} already. Wait for it or stop it.")
                    if lock is None:
                        continue
                    locks.callback(os.close, lock)
                    known[run] = _Mirror(run, name, root=root, project=project)
                sent += known[run].catch_up(last=last)
            took = time.process_time() - began
    if not known:
        raise MissingInputError(
            f"{root}: no run is here that has logged anything (no {_METRICS}). Give the folder of a run or an "
            "experiment."
        )
    return sent


def _locked(run: Path, name: str) -> int | None:
    """The open lock of one run and tracker; None where another process has it."""
    try:
        (run / FOLDER).mkdir(exist_ok=True)
        lock = reading.here(str(run / FOLDER / f".{name}.lock"), os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        raise storage_error(error, run / FOLDER, writing=True) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


class _Mirror:
    """One run in one tracker, which is opened when there is something to send."""

    def __init__(self, run: Path, name: str, *, root: Path, project: str | None) -> None:
        self._run, self._name, self._root, self._project = run, name, root, project
        self._tracker: trackers.Tracker | None = None
        self._file, self._at = (0, 0), 0
        self._note = run / FOLDER / f"{name}.json"
        self._sent = {**dict.fromkeys(_PREFIX, -1), "finished": False}
        """The last step of each split, and whether the result of a cell was sent."""
        if self._note.exists():
            self._sent |= read_table(self._note)

    def catch_up(self, *, last: bool) -> int:
        """Send new rows; those of a finished cell, or the `last` ones, with the result and files. Returns how many."""
        if self._sent["finished"]:
            return 0
        cell = self._run.parent if self._run.name == "run" else self._run
        is_done = (cell / _RESULT).is_file()
        rows = [row for row in self._rows() if row[1] > self._sent[row[0]]]
        for begin in range(0, len(rows), _BATCH):
            self._send(rows[begin : begin + _BATCH])
        if is_done:
            scores = _scores(read_table(cell / _RESULT))
            step = max(self._sent["train"], self._sent["valid"], 0)
            if scores:
                self._open().send([(step, scores)])
            self._remember(finished=True)
        if self._tracker is not None and (last or is_done):
            report = self._run / "report.html"
            self._tracker.finish([*([report] if report.is_file() else []), *sorted(self._run.glob("figures/*.png"))])
            self._tracker = None
        return len(rows)

    def _send(self, rows: Sequence[tuple[str, int, Numbers]]) -> None:
        self._open().send([(step, values) for _, step, values in rows])
        self._remember(
            **{split: max(step for one, step, _ in rows if one == split) for split in {row[0] for row in rows}}
        )

    def _remember(self, **facts: Any) -> None:
        self._sent |= facts
        durable.replace_durably(self._note, (json.dumps(self._sent) + "\n").encode())

    def _open(self) -> trackers.Tracker:
        if self._tracker is None:
            parts = self._run.relative_to(self._root).parts
            own = [part for part in parts if part not in ("cells", "run")]
            root = self._root.resolve().name
            tracked = Tracked(
                run=self._run,
                run_id=read_table(self._run / _ENVIRONMENT)["run_id"],
                name="-".join(own) or root,
                group=root if own else None,
                project=self._project,
                config=read_table(self._run / "config.json"),
            )
            self._tracker = TRACKERS[self._name].make(tracked)
        return self._tracker

    def _rows(self) -> Iterator[tuple[str, int, Numbers]]:
        """Split, step and finite values of the lines that were added since the last call; all lines of a file that was
        replaced.
        """
        descriptor = reading.open_regular(self._run / _METRICS, limit=reading.MOST_TEXT)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if self._file != (facts.st_dev, facts.st_ino) or facts.st_size < self._at:
                self._file, self._at = (facts.st_dev, facts.st_ino), 0
            file.seek(self._at)
            while (line := file.readline()).endswith(b"\n"):  # a line that is being written waits
                self._at += len(line)
                with suppress(reading.NotJson):
                    row = reading.json_value(line)
                    if isinstance(row, dict) and type(step := row.pop("step", None)) is int:
                        split = "valid" if row.get("split") == "valid" else "train"
                        yield split, step, _numbers(row, _PREFIX[split])


def _numbers(values: dict[str, Any], prefix: str) -> Numbers:
    return {
        prefix + name: value for name, value in values.items() if type(value) in (int, float) and math.isfinite(value)
    }


def _scores(result: dict[str, Any]) -> Numbers:
    """Result of a cell: the scores of fine-tuning, the metrics of an arm."""
    return _numbers(scores, "result/") if isinstance(scores := result.get("scores"), dict) else {}


@contextmanager
def mirrored(root: Path, names: Sequence[str], *, project: str | None = None) -> Iterator[None]:
    """While the block runs, other processes mirror what it trains into `root`, one a tracker; each ends when this
    process does.

    Args:
        root: a run folder or an experiment, which need not be there yet.
        names: of trackers.
        project: see `Tracked`.
    """
    command = [sys.executable, "-m", __name__, str(root), project or ""]
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            children[name] = subprocess.Popen(
                [*command, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        yield
    finally:
        _part(children, root)


def _part(children: dict[str, "subprocess.Popen[bytes]"], root: Path) -> None:
    """Tell the mirrors that the run is over, and say which of them failed or are not done yet."""
    for child in children.values():
        assert child.stdin is not None
        child.stdin.close()
    end = time.monotonic() + PARTING
    for name, child in children.items():
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))
        again = f"Send what is missing with: electra track {root} --to {name}"
        if child.returncode is None:
            tell(f"--track {name}: is not done yet and goes on alone, for {_LINGER // 60} minutes at most. {again}")
        elif child.returncode:
            tell(f"--track {name}: failed; the run is as it would have been. See {root / FOLDER / name}.log. {again}")


def _follow(root: Path, project: str | None, name: str) -> int:
    """What a mirror's process does until its standard input ends, because the run closed it or is gone."""

    def over(seconds: float) -> bool:
        ended = bool(select.select([0], [], [], seconds)[0])
        if ended:
            signal.alarm(_LINGER)
        return ended

    os.nice(10)
    while not find_runs(root):
        if over(_POLL):
            break
    if not find_runs(root):
        return 0  # it ended before it logged anything
    (root / FOLDER).mkdir(exist_ok=True)
    log = os.open(root / FOLDER / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    try:
        mirror(root, name, project=project, over=over)
    except ElectraError as error:
        tell(str(error))
    except Exception:
        traceback.print_exc()
    else:
        return 0
    return ElectraError.exit_code


if __name__ == "__main__":
    sys.exit(_follow(Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3]))
