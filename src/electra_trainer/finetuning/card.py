"""The README.md of a fine-tuned folder, and the table of classes that it confuses."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from electra_trainer.experiments.results import printed
from electra_trainer.files.wording import render
from electra_trainer.finetuning.examples import Prediction
from electra_trainer.finetuning.task import Task
from electra_trainer.finetuning.transformers_head import TransformersHead
from electra_trainer.version import __version__

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> metric -> seed -> score."""
_RECIPE = ("learning_rate", "layer_decay", "epochs", "batch_size", "weight_decay", "dropout", "pooling", "precision")
"""Fields of the recipe that a card shows."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a card says beyond the folder itself."""

    scores: Scores = field(default_factory=dict)
    """Of all seeds; empty: of this run alone."""
    notes: tuple[str, ...] = ()
    """Notes on the data."""
    pair: bool = False
    """Whether it learned from pairs of texts."""


def finetuned_card(task: Task, *, head: TransformersHead, table: Mapping[str, Any], length: int, facts: Facts) -> str:
    """Markdown with the Hub's header.

    Args:
        task: the task.
        head: transformers' head for it, if there is one.
        table: electra_task.json: source, recipe, seed.
        length: longest row in tokens.
        facts: scores and notes.
    """
    source = str(table["source"]["model"])
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", source) is not None
    recipe = {name: table["recipe"][name] for name in _RECIPE if table["recipe"].get(name) is not None}
    return render(
        "finetuned_card.md",
        task=task,
        words=task.card(pair=facts.pair),
        head=head,
        encoder=source if on_hub else PurePath(source).name,
        on_hub=on_hub,
        length=length,
        scores=list(_score_rows(facts.scores, metric=task.metric)),
        seed=table["seed"],
        seeds=len({seed for metrics in facts.scores.values() for scores in metrics.values() for seed in scores}),
        recipe={name: f"{value:g}" if isinstance(value, int | float) else value for name, value in recipe.items()},
        notes=facts.notes,
        version=__version__,
    )


def _score_rows(scores: Scores, *, metric: str) -> Iterator[dict[str, Any]]:
    """A row per split and metric, the main metric first."""
    for split, metrics in scores.items():
        for name in sorted(metrics, key=lambda name: name != metric):
            values = list(metrics[name].values())
            yield {
                "split": split,
                "metric": name,
                "seeds": len(values),
                "median": printed(statistics.median(values), name),
                "mean": printed(statistics.mean(values), name),
                "sd": printed(statistics.stdev(values), name) if len(values) > 1 else "-",
            }


WIDEST = 10
"""Most classes for which the table has a row and a column each; with more, the most frequent confusions are listed."""
_LONGEST = 14
"""Most characters of a label in the table."""


def counts(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Counter[tuple[str, str]]:
    """(true, predicted) label -> count, of texts or of words; empty for tasks without labels."""
    pairs: list[tuple[str | None, str]] = []
    for example, prediction in zip(examples, predictions, strict=True):
        if "label" in prediction:
            pairs.append((example.label, prediction["label"]))
        elif "tags" in prediction:
            pairs += zip(example.labels, prediction["tags"], strict=True)
    return Counter((truth, said) for truth, said in pairs if truth is not None)


def shown(found: Counter[tuple[str, str]], labels: Sequence[str]) -> str:
    """The counts as lines of text: true classes down, predicted ones across."""
    if len(labels) > WIDEST:
        wrong = [(pair, count) for pair, count in found.most_common() if pair[0] != pair[1]][:WIDEST]
        lines = [f"  {truth} taken for {said}: {count:,}" for (truth, said), count in wrong]
        return "\n".join(["confused most often:", *(lines or ["  nothing"])])
    names = {label: label if len(label) <= _LONGEST else label[: _LONGEST - 2] + ".." for label in labels}
    first = max(len("true \\ said"), *map(len, names.values()))
    widths = {label: max(len(names[label]), len(f"{max(found.values(), default=0):,}")) for label in labels}
    head = "  ".join(["true \\ said".ljust(first), *(names[label].rjust(widths[label]) for label in labels)])
    rows = [
        "  ".join([names[truth].ljust(first), *(f"{found[truth, said]:,}".rjust(widths[said]) for said in labels)])
        for truth in labels
    ]
    return "\n".join([head, *rows])
