"""`electra finetune MODEL --train reviews.csv --out DIR`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from electra_trainer.cli.flags import ExperimentFlags, recipe_flags
from electra_trainer.cli.main import parse
from electra_trainer.errors import ConfigError

if TYPE_CHECKING:
    from electra_trainer.finetuning.hand_over import BestExport
    from electra_trainer.finetuning.task import TaskData, TaskSource


@dataclass(frozen=True, kw_only=True)
class FinetuneArguments(ExperimentFlags):
    """Fine-tune an encoder on files of your own, score it, and leave a folder that `transformers` loads and `electra predict` uses.

    Texts and pairs come from .csv, .tsv or .jsonl; of a file with two columns nothing more need be said. Tagging reads CoNLL columns
    or .conllu. The same command resumes where it stopped; more seeds extend the experiment.
    """

    train: Path
    """Rows with labels."""
    dev: Path | None = None
    """Rows with labels to score on. Default: a tenth of --train, held out; of a treebank's folder its dev file."""
    predict: Path | None = None
    """Rows without labels: OUT/predictions.csv gets their columns and what the best run says; in tagging OUT/predictions.conll."""
    task: Literal["classification", "regression", "tagging"] = "classification"
    """One of several labels, a number, or a label for each word."""
    text: str | None = None
    """Column of the text. Default: the other one of two columns, or one with a usual name."""
    text_pair: str | None = None
    """Column of a second text, for tasks about pairs. Default: none, or a usual pair such as sentence1, sentence2."""
    label: str | None = None
    """Column of the label. Default: label, class, target, score or the like; of two columns else the second; in tagging the last."""
    words: int | None = None
    """In tagging: column of the words, counted from 1. Default: 1."""
    scheme: Literal["detect", "none", "bio", "bioes"] | None = None
    """In tagging: how labels mark spans; none is for labels without spans. Default: detect."""


def parse_finetune(words: Sequence[str]) -> FinetuneArguments:
    """Flags -> Arguments; the recipe decides the defaults of its flags."""
    default = FinetuneArguments(model=tyro.MISSING, train=tyro.MISSING, out=tyro.MISSING, recipe=recipe_flags(words))
    arguments: FinetuneArguments = parse(FinetuneArguments, words, verb="finetune", default=default)
    return arguments


def run_finetune(arguments: FinetuneArguments) -> None:
    """Report what was read from the files, run the seeds, export the best run."""
    from electra_trainer.finetuning.hand_over import export_best
    from electra_trainer.settings.records import read_table

    source = _source(arguments)
    data = source.load()
    if not arguments.json:
        _print_notes(data)
    if arguments.run(arguments.plan(source, keep="best"), data) is None:
        return
    done = export_best(source, data, model=arguments.model, out=arguments.out)
    if arguments.json:
        print(json.dumps(_as_json(done, data, summary=read_table(arguments.out / "summary.json"))))
        return
    _print_result(done, data, arguments)


def _source(arguments: FinetuneArguments) -> "TaskSource":
    if arguments.task == "tagging":
        from electra_trainer.finetuning.tagging.tagging_task import TaggingTask

        for flag, value in (("--text", arguments.text), ("--text-pair", arguments.text_pair)):
            if value is not None:
                raise ConfigError(
                    f"{flag}: tagging reads words, a line each. Leave it out; --label names the column of the tags."
                )
        return TaggingTask(
            train=arguments.train,
            dev=arguments.dev,
            predict=arguments.predict,
            column=arguments.label,
            words=1 if arguments.words is None else arguments.words,
            scheme=arguments.scheme or "detect",
        )
    from electra_trainer.finetuning.texts.own_task import OwnTask

    for flag, given in (("--words", arguments.words), ("--scheme", arguments.scheme)):
        if given is not None:
            raise ConfigError(f"{flag}: is for tagging. Leave it out, or say --task tagging.")
    return OwnTask(
        train=arguments.train,
        dev=arguments.dev,
        predict=arguments.predict,
        kind=arguments.task,
        text=arguments.text,
        text_pair=arguments.text_pair,
        label=arguments.label,
    )


def _print_notes(data: "TaskData") -> None:
    """What was taken, and in yellow what may be wrong."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for note in data.notes:
        console.print(note, markup=False, style="yellow" if note.startswith("warning: ") else None)


def _print_result(done: "BestExport", data: "TaskData", arguments: FinetuneArguments) -> None:
    from electra_trainer.finetuning.card import shown

    print("\n" + (arguments.out / "summary.md").read_text(encoding="utf-8").strip())
    if done.confusion:
        print(f"\nThe best run on {next(iter(data.dev))}:\n\n{shown(done.confusion, data.task.labels)}")  # type: ignore[attr-defined]
    whole = not (done.model / "head.safetensors").exists()
    print(
        f"\n{done.model}: the best run; transformers loads {'it' if whole else 'its encoder, not its head'}, README.md there says how."
    )
    if done.predictions is not None:
        print(f"{done.predictions}: what it says of {arguments.predict}.")
    else:
        print(
            f"Next: electra predict {done.model} FILE --out predictions.{'conll' if arguments.task == 'tagging' else 'csv'}"
        )


def _as_json(done: "BestExport", data: "TaskData", *, summary: dict[str, object]) -> dict[str, object]:
    confusion: dict[str, dict[str, int]] = {}
    for (truth, said), count in sorted(done.confusion.items()):
        confusion.setdefault(truth, {})[said] = count
    return {
        "notes": list(data.notes),
        "summary": summary,
        "confusion": confusion,
        "model": str(done.model),
        "predictions": str(done.predictions) if done.predictions is not None else None,
    }
