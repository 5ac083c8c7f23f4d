"""Which class is taken for which: a small table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from electra_trainer.finetune.task import Prediction

WIDEST = 10
"""Classes up to which the table has a row and a column for each; beyond, the confusions that come most often are listed."""
_LONGEST = 14
"""Characters of a label in the table."""


def counts(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Counter[tuple[str, str]]:
    """(truth, said) -> how often, of texts or of words; empty for tasks without labels."""
    pairs: list[tuple[str | None, str]] = []
    for example, prediction in zip(examples, predictions, strict=True):
        if "label" in prediction:
            pairs.append((example.label, prediction["label"]))
        elif "tags" in prediction:
            pairs += zip(example.labels, prediction["tags"], strict=True)
    return Counter((truth, said) for truth, said in pairs if truth is not None)


def shown(found: Counter[tuple[str, str]], labels: Sequence[str]) -> str:
    """The counts in lines: true classes down, predicted ones across."""
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
