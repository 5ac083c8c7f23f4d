"""The README.md of an exported network: what it is, how to load it, how it was trained."""

from pathlib import PurePath

from electra_trainer.files.templates import render
from electra_trainer.objectives import Exported
from electra_trainer.presets.arms import objective_title
from electra_trainer.settings.config import Config
from electra_trainer.version import __version__


def model_card(
    exported: Exported, *, config: Config, metrics: dict[str, float], step: int | None = None, init: str | None = None
) -> str:
    """Markdown with the Hub's header.

    Args:
        exported: the network.
        config: its run.
        metrics: held-out metrics; may be empty.
        step: the step of the weights; None: the last one.
        init: the model whose weights the run began with; None: fresh weights.
    """
    return render(
        "model_card.md",
        name=exported.name,
        model=exported.model,
        config=config,
        objective=objective_title(config),
        length=config.batch.sequence_length,
        step=config.schedule.steps if step is None else step,
        steps=config.schedule.steps,
        init=init and PurePath(init).name,
        metrics=metrics,
        version=__version__,
    )
