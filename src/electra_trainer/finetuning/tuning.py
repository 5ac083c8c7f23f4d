"""The request that every verb of fine-tuning shares."""

import re
import shlex
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from electra_trainer.errors import runs_as_command
from electra_trainer.settings import extensions
from electra_trainer.settings.methods import kind_of
from electra_trainer.settings.records import DEFAULT, TASK, finetuned_from, read_table
from electra_trainer.settings.request import Request, dotted_names, taken
from electra_trainer.tasks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Tuning(Request):
    """An experiment: an encoder that is fine-tuned with several seeds."""

    model: tyro.conf.Positional[str] = DEFAULT
    """Run folder (RUN@STEP: a checkpoint before the newest), exported folder, another folder of an
    ELECTRA, ModernBERT or BERT, or a Hub name such as google/electra-small-discriminator.
    """
    out: Path
    """Folder of the experiment: a new one, or one to resume or extend. `finetune` and `squad` put the model into its
    folder model/.
    """
    seeds: str | None = None
    """How many, or which: 3 is 1,2,3. Of `finetune` and `squad` the best one's model is exported. Default: 3; of five
    folds 1."""
    recipe: Literal["auto", "paper", "released"] = "auto"
    """`paper` (Table 6) or `released`, the recipe that google-research/electra runs. auto: the paper's, and for own
    tables of texts what measurements on small files chose."""
    changes: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)
    """Overrides of the recipe: see `given`."""
    baselines: bool = False
    """Also score what the encoder has to beat: itself with fresh weights, and baselines without an encoder: the
    majority class, TF-IDF of words and characters, and of two texts the overlap of their words; of questions the
    sentence with most of their words, and never answering (2.0)."""
    against: tyro.conf.Suppress[tyro.conf.Fixed[str | None]] = None
    """Another model, fine-tuned with the same seeds on the same rows, and compared seed by seed."""
    search: bool = False
    """First choose learning rate, layer decay and epochs of each task on a tenth of its training rows: about
    seven one-seed runs each for the encoder and for fresh weights. Values set by a flag are not searched."""
    parallel: int | None = None
    """Train N seeds (and tasks) at the same time. Default: as many as the machine has cores or GPUs for."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    json: bool = False
    """Print one JSON object."""
    quiet: bool = False
    """Show no progress."""
    verbose: tyro.conf.Suppress[tyro.conf.Fixed[bool]] = False
    """Print all tables, and the score of each run, before the answer."""
    track: str | None = None
    """Trackers between commas: tensorboard, wandb, mlflow. Each cell is a run there."""

    brief = (
        "model out seeds baselines search device train dev test predict task text text_pair label data "
        "tasks version split labels_curve recipe learning_rate epochs batch_size max_length windows "
        "pooling config"
    )

    @property
    def given(self) -> dict[str, Any]:
        """Overrides of the recipe: the fields that a flag or a file gives, even if with a default's value, and those
        that differ from the defaults. `dropout` holds for attention weights too unless these are given.
        """
        names, usual = dotted_names(self.typed), vars(Recipe())
        found = {name: value for name, value in vars(self.changes).items() if name in names or value != usual[name]}
        return ({"attention_dropout": found["dropout"]} if "dropout" in found else {}) | found

    def beside(self) -> str:
        """The command that learns from all rows, into a new folder next to this experiment's."""
        stem = re.sub(r"-\d+$", "", str(self.out))
        paths = (f"{stem}-{number}" for number in count(2))
        out = next(path for path in paths if path != str(self.out) and not Path(path).exists())
        if not runs_as_command() or "config" in dotted_names(self.typed):
            return f"the same with --out {out}"
        model, passed = self.model, set[str]()
        while model not in passed and (tuned := finetuned_from(Path(model))):  # back to the encoder that it began with
            passed.add(model)  # a folder that was moved may name itself
            model = str(read_table(tuned / TASK)["source"]["model"])
        words = (model if word == self.model else word for word in taken(self.typed, "out")[1])
        return shlex.join(["electra", kind_of(type(self)), *extensions.flags(), *words, "--out", out])
