"""The kinds of tasks: a new one is its own file and its line here."""

from electra_trainer.tasks.multi_label import MultiLabelTask
from electra_trainer.tasks.own_files import OwnTask, RegressionTask
from electra_trainer.tasks.questions import SquadTask
from electra_trainer.tasks.tagging import TaggingTask
from electra_trainer.tasks.task import OwnFiles

KINDS: dict[str, type[OwnFiles] | type[SquadTask]] = {
    "classification": OwnTask,
    "regression": RegressionTask,
    "multi-label": MultiLabelTask,
    "tagging": TaggingTask,
    "questions": SquadTask,
}
"""Name -> where its examples come from. `--task` of `electra finetune` may name those of `OwnFiles`; the folder of a
model names the class of `kind`.
"""
