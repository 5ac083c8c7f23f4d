"""One objective a file. Importing it here is all that makes it known: to `build`, to files and to the command line."""

from electra_trainer.objectives.protocol import Exported, Objective, build

__all__ = ["Exported", "Objective", "build"]
