"""Which labels are taken for which: counted, and as lines of text. No torch here."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from electra_trainer.files import table_writer
from electra_trainer.finetuning.examples import Prediction

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
    names = [label if len(label) <= _LONGEST else label[: _LONGEST - 2] + ".." for label in labels]
    rows = [[name, *(f"{found[truth, said]:,}" for said in labels)] for name, truth in zip(names, labels, strict=True)]
    widest = len(f"{max(found.values(), default=0):,}")
    return table_writer.Table(head=["true \\ said", *names], rows=rows, words=1).text(least=widest)
