"""The trackers that metrics are mirrored into, each through its own package: TensorBoard, Weights & Biases, trackio,
MLflow.

Names are those that trackers expect: train/loss, eval/loss. Nothing here is imported by a process that trains.
"""

import importlib.util
import json
import os
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from electra_trainer.errors import ConfigError, did_you_mean, install

FOLDER = "tracked"
"""Folder in a run for what its mirrors keep there."""
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
    project: str | None
    """None: what the tracker's own environment variable names, else `electra`."""
    config: dict[str, Any]

    def project_or(self, variable: str) -> str:
        """The project, by default from an environment variable."""
        return self.project or os.environ.get(variable) or _PROJECT


class Tracker(Protocol):
    """A run that is open in a tracker. Errors are those of its package."""

    def __init__(self, tracked: Tracked) -> None:
        """Begin the run there, or go on with it."""

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """Send rows: step, values by name."""

    def finish(self, files: Sequence[Path]) -> None:
        """Send files, where the tracker takes any, and wait until everything has arrived."""


class TensorBoard:
    """Event files in RUN/tracked/tensorboard, by TensorBoard's own writer; values are single precision there."""

    def __init__(self, tracked: Tracked) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(tracked.run / FOLDER / "tensorboard"))
        self._note("config", json.dumps(tracked.config, indent=1))

    def _note(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.text.metadata import create_summary_metadata

        code = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown shows it as it is
        value = Summary.Value(
            tag=tag,
            metadata=create_summary_metadata(display_name=tag, description=""),
            tensor=TensorProto(dtype=DT_STRING, string_val=[code.encode()]),
        )
        self._writer.add_event(Event(wall_time=time.time(), summary=Summary(value=[value])))

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for step, values in rows:
            scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=scalars)))
        self._writer.flush()

    def finish(self, files: Sequence[Path]) -> None:
        """See `Tracker`; it takes no files."""
        self._writer.close()


class WandB:
    """Weights & Biases, by its own login and variables; offline (WANDB_MODE=offline) its files are in
    RUN/tracked/wandb.
    """

    def __init__(self, tracked: Tracked) -> None:
        import wandb

        folder = os.environ.get("WANDB_DIR") or str(tracked.run / FOLDER)
        self._root = tracked.run
        self._run = wandb.init(
            project=tracked.project_or("WANDB_PROJECT"),
            id=tracked.run_id,
            name=tracked.name,
            group=tracked.group,
            config=tracked.config,
            resume="allow",
            reinit="create_new",
            dir=folder,
            settings=wandb.Settings(console="off", x_disable_stats=True, disable_code=True),
        )
        # an axis of ours: W&B's own step only grows, and an evaluation has the step of the row before it
        self._run.define_metric("train/global_step")
        self._run.define_metric("*", step_metric="train/global_step", step_sync=True)

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        for step, values in rows:
            self._run.log({"train/global_step": step, **values})

    def finish(self, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        for file in files:
            self._run.save(str(file), base_path=str(self._root), policy="now")
        self._run.finish()


class Trackio:
    """trackio: a database on this machine (`trackio show`), or a Space (TRACKIO_SPACE_ID)."""

    def __init__(self, tracked: Tracked) -> None:
        import trackio

        # In a context of its own: trackio ends the run that is current, and other cells have theirs. It knows runs by
        # name
        self._run = Context().run(
            trackio.init,
            project=tracked.project_or("TRACKIO_PROJECT"),
            name=f"{tracked.name}-{tracked.run_id[:8]}",
            group=tracked.group,
            config=tracked.config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def send(self, rows: Sequence[tuple[int, Numbers]]) -> None:
        """See `Tracker`."""
        for step, values in rows:
            self._run.log(dict(values), step=step)

    def finish(self, files: Sequence[Path]) -> None:
        """See `Tracker`; its files belong to a project and not to a run."""
        self._run.finish()


class MLflow:
    """MLflow, at MLFLOW_TRACKING_URI; the project is an experiment of MLflow's."""

    def __init__(self, tracked: Tracked) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        project = tracked.project_or("MLFLOW_EXPERIMENT_NAME")
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

    def finish(self, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        for file in files:
            self._client.log_artifact(self._id, str(file))
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
    "tensorboard": Kind(TensorBoard, "tensorboard", install("track"), "tensorboard --logdir {run}"),
    "wandb": Kind(
        WandB, "wandb", "pip install wandb", "wandb.ai; offline runs: wandb sync {run}/tracked/wandb/offline-run-*"
    ),
    "trackio": Kind(Trackio, "trackio", install("track"), "trackio show"),
    "mlflow": Kind(MLflow, "mlflow", "pip install mlflow-skinny", "the server of MLFLOW_TRACKING_URI"),
}


def parse(names: str, *, flag: str) -> tuple[str, ...]:
    """`"wandb,trackio"` -> ("wandb", "trackio").

    Raises:
        ConfigError: a name is unknown, or its package is not installed here.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not found:
        raise ConfigError(f"{flag}: names no tracker. Known: {', '.join(TRACKERS)}.")
    for name in found:
        if name not in TRACKERS:
            raise ConfigError(f"{flag} {name!r}: unknown.{did_you_mean(name, TRACKERS)} Known: {', '.join(TRACKERS)}.")
        kind = TRACKERS[name]
        if importlib.util.find_spec(kind.package) is None:
            raise ConfigError(
                f"{flag} {name}: needs the Python package {kind.package}, which is not installed here. Type: "
                f"{kind.installed_by}"
            )
    return found
