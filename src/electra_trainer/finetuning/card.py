"""The README.md of a fine-tuned folder, and the table of which class is taken for which."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from electra_trainer.experiments.results import printed
from electra_trainer.files.templates import render
from electra_trainer.finetuning.squad.squad_task import QuestionAnswering
from electra_trainer.finetuning.task import Prediction, Task
from electra_trainer.finetuning.texts.tasks import Classification, Regression
from electra_trainer.version import __version__

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> metric -> seed -> score."""
_RECIPE = ("learning_rate", "layer_decay", "epochs", "batch_size", "weight_decay", "dropout", "pooling", "precision")
"""What a card shows of the recipe."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a card says beyond the folder itself."""

    scores: Scores = field(default_factory=dict)
    """Of all seeds; empty: of this run alone."""
    notes: tuple[str, ...] = ()
    """Notes on the data."""
    pair: bool = False
    """Whether it learned from pairs of texts."""


def handed_card(
    task: Task, *, architecture: str | None, head: str, table: Mapping[str, Any], length: int, facts: Facts
) -> str:
    """Markdown with the Hub's header.

    Args:
        task: the task.
        architecture: transformers' class, or None where it has none.
        head: a sentence on the head.
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
        words=_words(task, pair=facts.pair),
        architecture=architecture,
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


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """What a model card says of a task."""

    says: str
    """What the model does, without the full stop; `labels` follow it."""
    labels: Sequence[str] = ()
    pipeline: str = "feature-extraction"
    """The Hub's pipeline tag."""
    longer: str = ""
    """What happens to texts longer than a row: "; longer texts are cut"."""
    sample: str = '["some text"]'
    """Python: an argument of `Finetuned.predict`."""
    code: str = ""
    """Python: how transformers computes a prediction where it has a class for the head; PATH is the folder."""
    unaided: str = ""
    """Python: how transformers' bare encoder and head.safetensors compute it where it has none."""


def _words(task: Task, *, pair: bool) -> CardWords:
    of, sample = ("a pair of texts", '[("one text", "another")]') if pair else ("a text", '["some text"]')
    if isinstance(task, Classification | Regression):
        asked = '{"text": "one text", "text_pair": "another"}' if pair else '"some text"'
        is_class = isinstance(task, Classification)
        return CardWords(
            says=f"Says of {of} which it is"
            if is_class
            else f"Says a number of {of}, in the units of the training file",
            labels=task.labels if isinstance(task, Classification) else (),
            pipeline="text-classification",
            longer="; longer texts are cut",
            sample=sample,
            code=f"""from transformers import pipeline

say = pipeline("text-classification", model="PATH")
print(say({asked}, truncation=True))""",
            unaided=_unaided(task, pair=pair),
        )
    if type(task).__name__ == "Tagging":
        strategy = "first" if getattr(task, "scheme", "none") != "none" else "none"
        return CardWords(
            says="Gives each word a label",
            labels=getattr(task, "labels", ()),
            pipeline="token-classification",
            longer="; electra-trainer reads a longer sentence in several, cut between words",
            sample='[["some", "words"]]',
            code=f"""from transformers import pipeline

tag = pipeline("token-classification", model="PATH", aggregation_strategy="{strategy}")
print(tag("some text"))""",
        )
    if isinstance(task, QuestionAnswering):
        silent = (
            f", or says that there is none: where its no-answer score is above {task.threshold:.4g} (`null_threshold`)"
        )
        return CardWords(
            says="Finds the answer to a question in a text" + ("" if task.version == 1 else silent),
            pipeline="question-answering",
            longer="; electra-trainer reads a longer context in several windows that overlap",
            sample='[("who cooked it?", "the chef cooked the meal")]',
            code="""from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH")
model = AutoModelForQuestionAnswering.from_pretrained("PATH")
row = tokenizer("who cooked it?", "the chef cooked the meal", return_tensors="pt")
answer = model(**row)
first, last = answer.start_logits[0].argmax(), answer.end_logits[0].argmax()
print(tokenizer.decode(row["input_ids"][0][first : last + 1]))""",
        )
    return CardWords(says=task.name, sample=sample)


def _unaided(task: Classification | Regression, *, pair: bool) -> str:
    texts = '"one text", "another"' if pair else '"some text"'
    vector = ".mean(1)  # of one row; of several without their padding" if task.pooling == "mean" else "[:, 0]"
    if isinstance(task, Regression):
        said = f"print(float(scores) * {task.scale!r} + {task.shift!r})"
    else:
        said = 'print(json.load(open("PATH/electra_task.json"))["task"]["labels"][int(scores.argmax())])'
    return f"""import json

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

encoder, head = AutoModel.from_pretrained("PATH").eval(), load_file("PATH/head.safetensors")
row = AutoTokenizer.from_pretrained("PATH")({texts}, truncation=True, return_tensors="pt")
with torch.no_grad():
    vector = encoder(**row).last_hidden_state{vector}
scores = vector @ head["weight"].T + head["bias"]
{said}"""


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
