"""Send the metrics of runs to trackers, each through its own package: TensorBoard, Weights & Biases, MLflow.

One thread a tracker follows metrics.jsonl (`--track`), or sends what is there (`electra track`); the file is the queue.
A training step never waits for a tracker, and an error ends its thread only: a tracker cannot stop or change a run.

A row is sent once. Rows after the newest checkpoint are computed again when a run resumes, bit for bit, so they are not
sent again: RUN/tracked/NAME.json has the last step that was sent, of training and of evaluations.

Names are those that trackers expect: train/loss, eval/loss.
"""

import importlib.util
import json
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from electra_trainer.errors import ConfigError, ElectraError, MissingInputError, require_known, tell
from electra_trainer.files import durable, reading
from electra_trainer.runs import signals
from electra_trainer.settings.records import flat, read_table

FOLDER = "tracked"
"""Folder in a run for files of trackers."""
_PROJECT = "electra"
Numbers = dict[str, float]
"""Values by name at one step."""


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """A run as trackers see it."""

    run: Path
    run_id: str
    """Unique, and the same whenever the run is resumed."""
    name: str
    group: str | None
    """The experiment that it is a cell of."""
    config: dict[str, Any]


class Tracker(Protocol):
    """A run that is open in a tracker. Errors are those of its package."""

    def __init__(self, tracked: Tracked) -> None:
        """Begin the run there, or resume it."""

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """Send rows: step, values by name."""

    def finish(self) -> None:
        """Wait until everything has arrived."""


class TensorBoard:
    """Event files in RUN/tracked/tensorboard; values are single precision there."""

    def __init__(self, tracked: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(tracked.run / FOLDER / "tensorboard"))

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        for step, values in rows:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        """See `Tracker`."""
        self._writer.close()


class WandB:
    """Weights & Biases, by its own login and variables; offline (WANDB_MODE=offline) its files are in
    RUN/tracked/wandb.
    """

    def __init__(self, tracked: Tracked) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=tracked.run_id,
            name=tracked.name,
            group=tracked.group,
            config=tracked.config,
            resume="allow",
            reinit="create_new",
            dir=os.environ.get("WANDB_DIR", str(tracked.run / FOLDER)),
            settings=wandb.Settings(console="off", x_disable_stats=True, disable_code=True),
        )
        # an axis of ours: W&B's own step only grows, and an evaluation has the step of the row before it
        self._run.define_metric("train/global_step")
        self._run.define_metric("*", step_metric="train/global_step", step_sync=True)

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        for step, values in rows:
            self._run.log({"train/global_step": step, **values})

    def finish(self) -> None:
        """See `Tracker`."""
        self._run.finish()


class MLflow:
    """MLflow, at MLFLOW_TRACKING_URI; the project is an experiment of MLflow's."""

    def __init__(self, tracked: Tracked) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        found = self._client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self._client.create_experiment(project)
        before = self._client.search_runs([experiment], f"tags.`electra.run_id` = '{tracked.run_id}'")
        if before:
            self._id = before[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {"electra.run_id": tracked.run_id, **({"group": tracked.group} if tracked.group else {})}
        self._id = self._client.create_run(experiment, run_name=tracked.name, tags=tags).info.run_id
        self._client.log_dict(self._id, tracked.config, "config.json")

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [Metric(name, value, now, step) for step, values in rows for name, value in values.items()]
        for begin in range(0, len(found), _MLFLOW_MOST):
            self._client.log_batch(self._id, metrics=found[begin : begin + _MLFLOW_MOST])

    def finish(self) -> None:
        """See `Tracker`."""
        self._client.set_terminated(self._id)


_MLFLOW_MOST = 1000
"""Metrics of a batch that MLflow takes."""


@dataclass(frozen=True)
class Kind:
    """A tracker that can be named."""

    make: type[Tracker]
    package: str
    installed_by: str
    """Command that installs the package."""
    shown_by: str
    """Command or page that shows the run."""


TRACKERS = {
    "tensorboard": Kind(TensorBoard, "tensorboard", "pip install tensorboard", "tensorboard --logdir {run}"),
    "wandb": Kind(
        WandB, "wandb", "pip install wandb", "wandb.ai; offline runs: wandb sync {run}/tracked/wandb/offline-run-*"
    ),
    "mlflow": Kind(MLflow, "mlflow", "pip install mlflow-skinny", "the server of MLFLOW_TRACKING_URI"),
}


def parse(names: str, *, flag: str) -> tuple[str, ...]:
    """`"wandb,mlflow"` -> ("wandb", "mlflow").

    Raises:
        ConfigError: a name is unknown, or its package is not installed here.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in found or ("",):
        require_known(f"{flag} {name!r}: unknown", name, TRACKERS)
        kind = TRACKERS[name]
        if importlib.util.find_spec(kind.package) is None:
            raise ConfigError(
                f"{flag} {name}: needs the Python package {kind.package}, which is not installed here. Type: "
                f"{kind.installed_by}"
            )
    return found


_METRICS, _ENVIRONMENT, _RESULT = "metrics.jsonl", "environment.json", "result.json"
_PREFIX = {"train": "train/", "valid": "eval/"}
PARTING = 10.0
"""Seconds that the end of a run waits for its trackers."""
_POLL = 1.0
"""Seconds between two looks at the rows of a run in progress."""
_BATCH = 500
"""Rows that are sent before that is noted."""


@contextmanager
def tracked(root: Path, names: str | None) -> Iterator[None]:
    """While the block runs, one thread a tracker that --track names sends what is trained into `root`, a run folder or
    an experiment; a failure is reported once.

    Raises:
        ConfigError: a name is unknown or its package missing.
    """
    found = parse(names, flag="--track") if names is not None else ()
    over = threading.Event()

    def follow(name: str) -> None:
        try:
            send(root, name, over=over)
        except BaseException as error:  # a package may call sys.exit
            reason = str(error) if isinstance(error, ElectraError) else f"{type(error).__name__}: {error}"
            tell(f"--track {name}: failed ({reason}); training is not affected. {_again(root, name)}")

    leading = found if signals.process_leads() else ()
    threads = {name: threading.Thread(target=follow, args=(name,), daemon=True) for name in leading}
    for thread in threads.values():
        thread.start()
    try:
        yield
    finally:
        over.set()
        end = time.monotonic() + PARTING
        for name, thread in threads.items():
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                signals.abandoned.set()
                tell(f"--track {name}: did not answer within {PARTING:g} s and was abandoned. {_again(root, name)}")


def _again(root: Path, name: str) -> str:
    return f"Send what is missing with: electra track {root} --to {name}"


def find_runs(root: Path) -> list[Path]:
    """The run folders that have logged something: `root`, or the cells of an experiment and their folds."""
    places = [root, *sorted(root.glob("cells/*/*")), *sorted(root.glob("cells/*/*/*"))]
    return [place for place in places if (place / _METRICS).is_file() and (place / _ENVIRONMENT).is_file()]


def send(root: Path, name: str, *, over: threading.Event | None = None) -> int:
    """Send the new rows of a run, or of all cells of an experiment.

    Args:
        root: run folder or experiment.
        name: of the tracker.
        over: set when training has ended; until then new rows are sent as they are logged. None: it has ended.

    Returns:
        Rows sent.

    Raises:
        ConfigError: another process sends the run there. MissingInputError: `root` has no run.
        StorageError, DataError: its files cannot be read or written. Any error of the tracker's package.
    """
    sent, known, last = 0, dict[Path, _Sender](), False
    with ExitStack() as locks:
        while not last:
            last = over is None or over.wait(_POLL)
            for run in find_runs(root):
                if run not in known:
                    (run / FOLDER).mkdir(exist_ok=True)
                    lock = durable.lock(run / FOLDER / f".{name}.lock")
                    if lock is None and last:
                        raise ConfigError(f"{run}: another process sends it to {name} already. Wait for it or stop it.")
                    if lock is None:
                        continue
                    locks.callback(os.close, lock)
                    known[run] = _Sender(run, name, root=root)
                sent += known[run].catch_up(last=last)
    if not known and over is None:
        raise MissingInputError(f"{root}: no run with a {_METRICS} is here. Give the folder of a run or an experiment.")
    return sent


class _Sender:
    """One run in one tracker, which is opened when there is something to send."""

    def __init__(self, run: Path, name: str, *, root: Path) -> None:
        self._run, self._name, self._root = run, name, root
        self._tracker: Tracker | None = None
        self._file, self._at = (0, 0), 0
        self._note = run / FOLDER / f"{name}.json"
        self._sent: dict[str, Any] = {**dict.fromkeys(_PREFIX, -1), "scored": False}
        """The last step of each split, and whether the scores of its result were sent."""
        if self._note.exists():
            self._sent |= read_table(self._note)

    def catch_up(self, *, last: bool) -> int:
        """Send new rows, and finish the run there once it has a result or is the `last` call. Returns the rows."""
        cell = self._run.parent if self._run.name == "run" else self._run
        is_done = (cell / _RESULT).is_file()
        rows = [row for row in self._rows() if row[1] > self._sent[row[0]]]
        for begin in range(0, len(rows), _BATCH):
            batch = rows[begin : begin + _BATCH]
            self._open().send([(step, values) for _, step, values in batch])
            self._remember(**{split: step for split, step, _ in batch})
        if is_done and not self._sent["scored"]:
            scores = _numbers(flat(read_table(cell / _RESULT).get("scores") or {}), "result/")
            self._open().send([(max(self._sent["train"], self._sent["valid"], 0), scores)])
            self._remember(scored=True)
        if self._tracker is not None and (last or is_done):
            self._tracker.finish()
            self._tracker = None
        return len(rows)

    def _remember(self, **facts: Any) -> None:
        self._sent |= facts
        durable.replace_durably(self._note, (json.dumps(self._sent) + "\n").encode())

    def _open(self) -> Tracker:
        if self._tracker is None:
            own = [part for part in self._run.relative_to(self._root).parts if part not in ("cells", "run")]
            root = self._root.resolve().name
            self._tracker = TRACKERS[self._name].make(
                Tracked(
                    run=self._run,
                    run_id=read_table(self._run / _ENVIRONMENT)["run_id"],
                    name="-".join(own) or root,
                    group=root if own else None,
                    config=read_table(self._run / "config.json"),
                )
            )
        return self._tracker

    def _rows(self) -> Iterator[tuple[str, int, Numbers]]:
        """Split, step and finite values of the lines since the last call; of all lines if the file was replaced."""
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
                        split = "train" if row.get("split") is None else "valid"
                        yield split, step, _numbers(row, _PREFIX[split])


def _numbers(values: dict[str, Any], prefix: str) -> Numbers:
    return {
        prefix + name: value for name, value in values.items() if type(value) in (int, float) and math.isfinite(value)
    }
