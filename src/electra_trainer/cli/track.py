"""`electra track RUN --to tensorboard,wandb`, and the flags `--track` and `--project` of the verbs that train."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electra_trainer.cli.shown import Shown
from electra_trainer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Track:
    """Send the metrics of a run, or of each cell of an experiment, to trackers. What was sent before is not sent
    again.
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run or an experiment."""
    to: str
    """Trackers between commas: tensorboard, wandb, trackio, mlflow."""
    follow: bool = False
    """Go on until the run has ended (Ctrl-C ends it sooner)."""
    project: str | None = None
    """Name of the project. Default: the tracker's variable (WANDB_PROJECT, TRACKIO_PROJECT, MLFLOW_EXPERIMENT_NAME),
    else electra.
    """

    def run(self) -> Shown:
        """Send: the rows by tracker, and where to look at them."""
        from electra_trainer.inspection.mirror import mirror, mirrored
        from electra_trainer.inspection.trackers import TRACKERS, parse

        names = parse(self.to, flag="--to")
        if self.follow:
            with mirrored(self.run_folder, names, project=self.project):
                while not _has_ended(self.run_folder):
                    time.sleep(1)
        sent: dict[str, int] = {}
        lines = []
        for name in names:
            sent[name] = mirror(self.run_folder, name, project=self.project) if not self.follow else 0
            rows = "" if self.follow else f" {sent[name]:,} rows sent;" if sent[name] else " nothing new;"
            lines.append(f"{name}:{rows} see {TRACKERS[name].shown_by.format(run=self.run_folder)}")
        return Shown(sent, lines)


def _has_ended(root: Path) -> bool:
    """Whether a run, or all that was declared of an experiment, is over."""
    from electra_trainer.experiments import cell
    from electra_trainer.runs.progress import STATUS
    from electra_trainer.settings.records import read_table

    if cell.exists(root):
        return all(one.is_done for one in cell.read(root).cells(root))
    if not (root / STATUS).is_file():
        return False
    status = read_table(root / STATUS)
    if status.get("state") != "running" or status.get("host") != platform.node():
        return status.get("state") != "running"
    try:
        os.kill(int(status["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@dataclass(frozen=True, kw_only=True)
class TrackFlags:
    """Trackers, each fed by a separate process that can neither stop nor change the run."""

    track: str | None = None
    """Trackers between commas: tensorboard, wandb, trackio, mlflow. Of an experiment each cell is a run there."""
    project: str | None = None
    """Name of the project there. Default: the tracker's own variable, else electra."""

    @contextmanager
    def mirrored(self, out: Path) -> Iterator[None]:
        """Within it, what is trained into `out` is mirrored.

        Raises:
            ConfigError: a name is unknown or its package missing, or `--project` is given alone.
        """
        from electra_trainer.runs.signals import process_leads

        if self.track is None and self.project is not None:
            raise ConfigError("--project: is a project of trackers. Add --track and their names.")
        if self.track is None:
            yield
            return
        from electra_trainer.inspection.mirror import mirrored
        from electra_trainer.inspection.trackers import parse

        names = parse(self.track, flag="--track")
        with mirrored(out, names if process_leads() else (), project=self.project):
            yield
