"""The kinds of tasks: a new one is its own file and its line here."""

from electra_trainer.tasks.multi_label import MultiLabel, MultiLabelTask
from electra_trainer.tasks.own_files import OwnTask, RegressionTask
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.tagging import Tagging, TaggingTask
from electra_trainer.tasks.task import Task, TaskSource
from electra_trainer.tasks.texts import Classification, Regression

KINDS: dict[str, tuple[type[Task], type[TaskSource] | None]] = {
    "classification": (Classification, OwnTask),
    "regression": (Regression, RegressionTask),
    "multi-label": (MultiLabel, MultiLabelTask),
    "tagging": (Tagging, TaggingTask),
    "questions": (QuestionAnswering, None),
}
"""Name for `--task` -> the task, which a folder of a model names by its class, and where `electra finetune` has its
examples from; None: it has another verb.
"""
