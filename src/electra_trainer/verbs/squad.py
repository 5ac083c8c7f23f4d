"""`electra squad MODEL --train train-v1.1.json --dev dev-v1.1.json --version 1 --out EXP`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from electra_trainer.verbs.recipe_flags import RecipeFlags


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Fine-tune an encoder to answer questions, SQuAD 1.1 or 2.0, and score it as the official scripts do.

    The same command again goes on where it stopped; more seeds extend the experiment.
    """

    model: tyro.conf.Positional[str]
    """Run folder, exported folder, or a Hub name such as google/electra-small-discriminator."""
    train: Path
    """JSON file of SQuAD's layout."""
    out: Path
    """Folder of the experiment: a new one, or one to go on with. The model will be in its folder model/."""
    version: Literal[1, 2]
    """1: every question has an answer; 2: there may be none, and the threshold is searched too."""
    dev: Path | None = None
    """The file to evaluate on."""
    split: float | None = None
    """Instead of --dev: keep this share of the questions of --train for evaluation, whole articles."""
    head: Literal["joint", "independent"] = "joint"
    """joint: XLNet's, as in the paper. independent: BERT's, which transformers' ElectraForQuestionAnswering loads."""
    null_threshold: float | None = None
    """2.0: `f1` gives no answer where the "no answer" score is above this. Default: -2.75, independent 0; and in the model's folder best_f1's own."""
    limit: int | None = None
    """Train on so many questions only, from all over the file."""
    dev_limit: int | None = None
    """Evaluate on so many questions only."""
    seeds: str = "1"
    """How many, or which: 3 is 1,2,3."""
    floors: bool = False
    """What a score has to beat: the same encoder with fresh weights, the sentence with most words of the question, and never answering (2.0)."""
    parallel: int | None = None
    """Runs at once. Default: as many as the cores have room for."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print one JSON object: notes, summary, model."""
    quiet: bool = False
    """Print the table only."""
    recipe: tyro.conf.OmitArgPrefixes[RecipeFlags] = field(default_factory=RecipeFlags)
    """How the encoder is fine-tuned; rows have up to 512 tokens where --max-length does not say otherwise."""


def run(arguments: Arguments) -> None:
    """Run the seeds, print the table, hand the best on."""
    from electra_trainer.analysis.experiment import parse_seeds
    from electra_trainer.config_io import read_table
    from electra_trainer.finetune.experiment import Plan, run_plan
    from electra_trainer.finetune.hand_on import hand_on_best
    from electra_trainer.finetune.squad import Squad

    source = Squad(
        train=arguments.train,
        dev=arguments.dev,
        version=arguments.version,
        head=arguments.head,
        follow="released" if arguments.recipe.recipe == "released" else "paper",
        null_threshold=arguments.null_threshold,
        split=arguments.split,
        limit=arguments.limit,
        dev_limit=arguments.dev_limit,
    )
    plan = Plan(
        model=arguments.model,
        tasks=(source,),
        recipe=arguments.recipe.recipe,
        changes=arguments.recipe.changes(),
        seeds=parse_seeds(arguments.seeds),
        floors=arguments.floors,
        keep="best",
    )
    data = source.load()
    quiet = arguments.quiet or arguments.json
    for note in () if quiet else data.notes:
        print(note)
    run_plan(plan, out=arguments.out, device=arguments.device, parallel=arguments.parallel, quiet=quiet)
    if not arguments.json:
        print((arguments.out / "summary.md").read_text(encoding="utf-8").strip())
    model = hand_on_best(source, data, model=arguments.model, out=arguments.out).model
    if arguments.json:
        summary = read_table(arguments.out / "summary.json")
        print(json.dumps({"notes": list(data.notes), "summary": summary, "model": str(model)}))
        return
    print(f"{model}: the best run. Ask it: electra answer {model} --context @FILE --question TEXT")
