"""`electra track RUN --to tensorboard,wandb`, and the flags `--track` and `--project` of the verbs that train."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from electra_trainer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrackArguments:
    """Send the metrics of a run, or of each cell of an experiment, to trackers. What was sent before is not sent
    again.
    """

    run: tyro.conf.Positional[Path]
    """Folder of a run or an experiment."""
    to: str
    """Trackers between commas: tensorboard, wandb, trackio, mlflow."""
    project: str | None = None
    """Name of the project. Default: the tracker's variable (WANDB_PROJECT, TRACKIO_PROJECT, MLFLOW_EXPERIMENT_NAME),
    else electra.
    """


def run_track(arguments: TrackArguments) -> None:
    """Send new rows, and print where they are shown."""
    from electra_trainer.inspection.trackers import TRACKERS, parse, send

    for name in parse(arguments.to, flag="--to"):
        rows = send(arguments.run, name, project=arguments.project)
        sent = f"{rows:,} rows sent" if rows else "nothing new"
        print(f"{name}: {sent}; see {TRACKERS[name].shown_by.format(run=arguments.run)}")


@dataclass(frozen=True, kw_only=True)
class TrackFlags:
    """Trackers, each fed by a separate thread that can neither stop nor change the run."""

    track: str | None = None
    """Trackers between commas: tensorboard, wandb, trackio, mlflow. Of an experiment each cell is a run there."""
    project: str | None = None
    """Name of the project there. Default: the tracker's own variable, else electra."""

    @contextmanager
    def tracked(self, out: Path) -> Iterator[None]:
        """Within it, the metrics of what is trained into `out` are sent.

        Raises:
            ConfigError: a name is unknown or its package missing, or `--project` is given alone.
        """
        from electra_trainer.runs.signals import process_leads

        if self.track is None and self.project is not None:
            raise ConfigError("--project: is a project of trackers. Add --track and their names.")
        if self.track is None:
            yield
            return
        from electra_trainer.inspection.trackers import parse, tracking

        names = parse(self.track, flag="--track")
        with tracking(out, names if process_leads() else (), project=self.project):
            yield
