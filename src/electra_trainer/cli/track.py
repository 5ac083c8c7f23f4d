"""`electra track RUN --to tensorboard,wandb`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electra_trainer.cli.shown import Shown


@dataclass(frozen=True, kw_only=True)
class Track:
    """Send the metrics of a run, or of each cell of an experiment, to trackers. What was sent before is not sent
    again.
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run or an experiment."""
    to: str
    """Trackers between commas: tensorboard, wandb, trackio, mlflow."""
    project: str | None = None
    """Name of the project. Default: the tracker's variable (WANDB_PROJECT, TRACKIO_PROJECT, MLFLOW_EXPERIMENT_NAME),
    else electra.
    """

    def run(self) -> Shown:
        """Send: the rows by tracker, and where to look at them."""
        from electra_trainer.inspection.trackers import TRACKERS, parse, send

        sent = {name: send(self.run_folder, name, project=self.project) for name in parse(self.to, flag="--to")}
        lines = [
            f"{name}: {f'{rows:,} rows sent' if rows else 'nothing new'}; see "
            f"{TRACKERS[name].shown_by.format(run=self.run_folder)}"
            for name, rows in sent.items()
        ]
        return Shown(sent, lines)
