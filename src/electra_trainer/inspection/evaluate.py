"""Held-out evaluation of a finished or running run."""

from dataclasses import dataclass
from pathlib import Path

from electra_trainer.data.store import Store
from electra_trainer.errors import DataError
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.train import device as devices
from electra_trainer.train import plan, step, weights


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Metrics of a run's newest checkpoint."""

    step: int
    rows: int
    vocab_size: int
    metrics: dict[str, float]


def evaluate(run: str | Path, data: str | Path, *, device: str = "auto") -> Evaluated:
    """Metrics over all held-out rows of `data`, with fixed masks and no dropout.

    Raises:
        DataError: `data` was prepared with another tokenizer than the run's, or holds no held-out rows.
    """
    devices.use_threads()
    folder, store, where = RunFolder(Path(run)), Store.open(Path(data)), devices.choose_device(device)
    config = plan.fit_to_data(folder.config(), store)
    if folder.tokenizer_sha256 != store.manifest.tokenizer_sha256:
        raise DataError(
            f"{data}: was prepared with another tokenizer than {run}. Prepare it with --tokenizer {folder.tokenizer}."
        )
    if not len(store.rows("valid")):
        raise DataError(f"{data}: holds no held-out rows. Prepare it with a --valid-fraction above 0.")
    objective, at = weights.trained(folder, config)
    objective.to(where)
    feed = step.Feed.of(config, store, device=where, precision=devices.choose_precision(config.precision, where))
    metrics = step.evaluate(objective, feed)
    return Evaluated(step=at, rows=len(feed.valid), vocab_size=store.vocab_size, metrics=metrics)
