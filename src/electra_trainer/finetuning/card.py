"""The README.md of a fine-tuned folder: what it does, how to load it, how good it is, what it was made of.

Which class is taken for which: a small table.
"""

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from electra_trainer.experiments.results import printed
from electra_trainer.finetuning.squad.squad_task import QuestionAnswering
from electra_trainer.finetuning.task import Prediction, Task
from electra_trainer.finetuning.texts.tasks import Classification, Regression
from electra_trainer.version import __version__

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> metric -> seed -> score."""
_PIPELINES = {
    "ElectraForSequenceClassification": "text-classification",
    "ElectraForTokenClassification": "token-classification",
    "ElectraForQuestionAnswering": "question-answering",
}
_KINDS = {
    "Classification": "text-classification",
    "Regression": "text-classification",
    "Tagging": "token-classification",
    "QuestionAnswering": "question-answering",
}
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a card says beyond the folder itself."""

    scores: Scores = field(default_factory=dict)
    """Of all seeds; empty: of the one run."""
    notes: tuple[str, ...] = ()
    """On the data."""
    pair: bool = False
    """Whether it learned from pairs of texts."""


def handed_card(
    task: Task, *, architecture: str | None, head: str, table: Mapping[str, Any], length: int, facts: Facts
) -> str:
    """Markdown with the Hub's header.

    Args:
        task: what was learned.
        architecture: transformers' class, or None where it has none.
        head: a sentence on the head.
        table: what electra_task.json holds: source, recipe, seed.
        length: longest row in tokens.
        facts: scores and notes.
    """
    kind = type(task).__name__
    source = str(table["source"]["model"])
    base = f"base_model: {source}\n" if _HUB_NAME.fullmatch(source) else ""
    library = "transformers" if architecture else "electra-trainer"
    return f"""---
library_name: {library}
pipeline_tag: {_KINDS.get(kind, "feature-extraction")}
{base}tags: [electra]
---

# ELECTRA, fine-tuned: {_plain(task.name)}

{_what(task, pair=facts.pair)} Rows of up to {length} tokens{_too_long(task)}.

```python
{_code(task, architecture, pair=facts.pair)}
```

{head}
{_by_transformers(task, architecture, pair=facts.pair)}
{_score_table(facts.scores, metric=task.metric)}

{_chosen(facts.scores, seed=table["seed"])}

| | |
|---|---|
| encoder | {_plain(source if base else PurePath(source).name)} |
{_recipe_rows(table["recipe"])}
{_note_list(facts.notes)}
Made with electra-trainer {__version__}.
"""


def _what(task: Task, *, pair: bool) -> str:
    of = "a pair of texts" if pair else "a text"
    labels = getattr(task, "labels", ())
    shown = ", ".join(f"`{_plain(label)}`" for label in labels[:20]) + (
        f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    )
    return {
        "Classification": f"Says of {of} which it is: {shown}.",
        "Regression": f"Says a number of {of}, in the units of the training file.",
        "Tagging": f"Gives each word a label: {shown}.",
        "QuestionAnswering": f"Finds the answer to a question in a text{_silence(task)}.",
    }.get(type(task).__name__, f"{task.name}.")


def _silence(task: Task) -> str:
    """Where it says that there is no answer."""
    if not isinstance(task, QuestionAnswering) or task.version == 1:
        return ""
    return f", or says that there is none: where its no-answer score is above {task.threshold:.4g} (`null_threshold`)"


def _too_long(task: Task) -> str:
    """What becomes of texts that are longer than a row."""
    return {
        "Classification": "; longer texts are cut",
        "Regression": "; longer texts are cut",
        "Tagging": "; electra-trainer reads a longer sentence in several, cut between words",
        "QuestionAnswering": "; electra-trainer reads a longer context in several windows that overlap",
    }.get(type(task).__name__, "")


def _code(task: Task, architecture: str | None, *, pair: bool) -> str:
    if architecture == "ElectraForSequenceClassification":
        asked = '{"text": "one text", "text_pair": "another"}' if pair else '"some text"'
        return f"""from transformers import pipeline

say = pipeline("text-classification", model="PATH")
print(say({asked}, truncation=True))"""
    if architecture == "ElectraForTokenClassification":
        strategy = "first" if getattr(task, "scheme", "none") != "none" else "none"
        return f"""from transformers import pipeline

tag = pipeline("token-classification", model="PATH", aggregation_strategy="{strategy}")
print(tag("some text"))"""
    if architecture == "ElectraForQuestionAnswering":
        return """from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH")
model = AutoModelForQuestionAnswering.from_pretrained("PATH")
row = tokenizer("who cooked it?", "the chef cooked the meal", return_tensors="pt")
answer = model(**row)
first, last = answer.start_logits[0].argmax(), answer.end_logits[0].argmax()
print(tokenizer.decode(row["input_ids"][0][first : last + 1]))"""
    samples = {
        "Tagging": '[["some", "words"]]',
        "QuestionAnswering": '[("who cooked it?", "the chef cooked the meal")]',
    }
    texts = samples.get(type(task).__name__, '[("one text", "another")]' if pair else '["some text"]')
    return f"""from electra_trainer import load_finetuned

print(load_finetuned("PATH").predict({texts}))"""


def _by_transformers(task: Task, architecture: str | None, *, pair: bool) -> str:
    """How transformers computes what our head says of a text, where it has no class for it."""
    if architecture is not None or not isinstance(task, Classification | Regression):
        return ""
    texts = '"one text", "another"' if pair else '"some text"'
    vector = ".mean(1)  # of one row; of several without their padding" if task.pooling == "mean" else "[:, 0]"
    if isinstance(task, Regression):
        said = f"print(float(scores) * {task.scale!r} + {task.shift!r})"
    else:
        said = 'print(json.load(open("PATH/electra_task.json"))["task"]["labels"][int(scores.argmax())])'
    return f"""
With `transformers` alone:

```python
import json

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

encoder, head = AutoModel.from_pretrained("PATH").eval(), load_file("PATH/head.safetensors")
row = AutoTokenizer.from_pretrained("PATH")({texts}, truncation=True, return_tensors="pt")
with torch.no_grad():
    vector = encoder(**row).last_hidden_state{vector}
scores = vector @ head["weight"].T + head["bias"]
{said}
```
"""


def _score_table(scores: Scores, *, metric: str) -> str:
    lines = ["| x 100 | seeds | median | mean | SD |", "|---|--:|--:|--:|--:|"]
    for split, metrics in scores.items():
        for name in sorted(metrics, key=lambda name: name != metric):
            values = list(metrics[name].values())
            numbers = [statistics.median(values), statistics.mean(values)]
            if len(values) > 1:
                numbers.append(statistics.stdev(values))
            cells = [printed(number, name) for number in numbers] + ["-"] * (3 - len(numbers))
            lines.append(f"| {_plain(split)}, {_plain(name)} | {len(values)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _chosen(scores: Scores, *, seed: int) -> str:
    """Whose weights these are: the best of several seeds looks better than it is."""
    seeds = {one for metrics in scores.values() for by_seed in metrics.values() for one in by_seed}
    best = f", the best of {len(seeds)} by these scores: expect the median of it" if len(seeds) > 1 else ""
    return f"The weights are those of seed {seed}{best}."


def _recipe_rows(recipe: Mapping[str, Any]) -> str:
    named = ("learning_rate", "layer_decay", "epochs", "batch_size", "weight_decay", "dropout", "pooling", "precision")
    values = {name: recipe[name] for name in named if recipe.get(name) is not None}
    return "\n".join(
        f"| {name.replace('_', ' ')} | {f'{value:g}' if isinstance(value, int | float) else value} |"
        for name, value in values.items()
    )


def _note_list(notes: tuple[str, ...]) -> str:
    return "\nOn the data:\n\n" + "\n".join(f"- {_plain(note)}" for note in notes) + "\n" if notes else ""


def _plain(text: str) -> str:
    """A text of somebody's files or flags on one line, where it can neither end a cell nor begin markup."""
    return "".join("\\" + letter if letter in "\\`*_[]<>|" else letter for letter in " ".join(text.split()))


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
