"""One objective a file. Importing it here is all that makes it known: to `build`, to files and to the command line."""

from electra_trainer.objectives import adversarial as adversarial
from electra_trainer.objectives import all_tokens_mlm as all_tokens_mlm
from electra_trainer.objectives import hard_mlm as hard_mlm
from electra_trainer.objectives import mlm as mlm
from electra_trainer.objectives import replace_mlm as replace_mlm
from electra_trainer.objectives import rtd as rtd
from electra_trainer.objectives import rtd_mlm as rtd_mlm
from electra_trainer.objectives import sentence_contrast as sentence_contrast
from electra_trainer.objectives.protocol import Exported, Objective, build

__all__ = ["Exported", "Objective", "build"]
