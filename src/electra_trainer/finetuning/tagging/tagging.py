"""Tagging: a label for each word, by one linear layer upon its first token, cross-entropy (BERT; released).

A sentence that is too long for a row is read in several, cut between words, so that each word is predicted exactly once. A word that
has no token, such as a control character, is read as [UNK]; one with more tokens than a row loses its last ones.

Examples of tasks whose answer is a label for each word.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Encoding
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.texts import Text
from electra_trainer.errors import ConfigError, require
from electra_trainer.finetuning.tagging.spans import Scheme, SpanCounts, count_spans, fault, total
from electra_trainer.finetuning.task import Prediction, Row
from electra_trainer.settings.config import Model

_SPAN_METRICS = ("f1", "precision", "recall")


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """One of `labels` for each word; C labels. W are the words of a batch that are labelled, or all."""

    labels: tuple[str, ...]
    scheme: Scheme = "none"
    """How labels mark spans, if they do: finetuning/tagging/spans.py."""
    metrics: tuple[str, ...] = ()
    """The first is the main one. Empty: accuracy, and before it f1, precision and recall of spans where there is a scheme."""
    name: str = "tagging"

    def __post_init__(self) -> None:
        known = ("accuracy",) if self.scheme == "none" else (*_SPAN_METRICS, "accuracy")
        require(len(set(self.labels)) == len(self.labels) > 0, "labels", self.labels, "labels, each of them once")
        require(set(self.metrics) <= set(known), "metrics", self.metrics, f"some of {', '.join(known)}")
        for label in self.labels:
            if wrong := fault(label, self.scheme):
                raise ConfigError(f"labels: {wrong}")
        if not self.metrics:
            object.__setattr__(self, "metrics", known)

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def head(self, model: Model) -> nn.Module:
        """[W, D] -> [W, C]; the classifier of transformers' ElectraForTokenClassification."""
        return nn.Linear(model.hidden_size, len(self.labels))

    def rows(self, examples: "Sequence[TaggedSentence]", text: Text, *, training: bool) -> list[Row]:
        """`place`: where in the row its words begin. `target`: their label numbers, -1 where there is none."""
        number = {label: index for index, label in enumerate(self.labels)}
        rows: list[Row] = []
        encodings = text.encode_words([example.words for example in examples])
        for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            pieces = _pieces(encoding, len(example.words), text)
            for first, stop in _windows([len(piece) for piece in pieces], text.length - 2):
                target = None
                if training:
                    labels = example.labels[first:stop]
                    target = tuple(-1 if label is None else number[label] for label in labels)
                    if max(target) < 0:
                        continue
                ids, begins = [text.specials.cls], []
                for piece in pieces[first:stop]:
                    begins.append(len(ids))
                    ids += piece
                place = tuple(begins)
                rows.append(Row(ids=(*ids, text.specials.sep), example=index, target=target, place=place))
        return rows

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        """The sum over labelled words, and how many they are."""
        width, at, labels = hidden_BTD.shape[1], [], []
        for index, row in enumerate(rows):
            for begin, label in zip(row.place, row.target, strict=True):
                if label >= 0:
                    at.append(index * width + begin)
                    labels.append(label)
        labels_W = torch.tensor(labels, dtype=torch.long, device=hidden_BTD.device)
        return F.cross_entropy(_logits(head, hidden_BTD, at), labels_W, reduction="sum"), len(labels)

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """The label numbers of each row's words, one list a row."""
        width = hidden_BTD.shape[1]
        at = [index * width + begin for index, row in enumerate(rows) for begin in row.place]
        best = iter(_logits(head, hidden_BTD, at).argmax(-1).tolist())
        return [[next(best) for _ in row.place] for row in rows]

    def predict(
        self, examples: "Sequence[TaggedSentence]", rows: Sequence[Row], said: Sequence[Any]
    ) -> list[Prediction]:
        """{"words": [...], "tags": [...]}, equally many."""
        tags: list[list[str]] = [[] for _ in examples]
        for row, numbers in zip(rows, said, strict=True):
            tags[row.example] += [self.labels[number] for number in numbers]
        return [{"words": list(example.words), "tags": found} for example, found in zip(examples, tags, strict=True)]

    def score(self, examples: "Sequence[TaggedSentence]", predictions: Sequence[Prediction]) -> dict[str, float]:
        """Over labelled words. A label that was not there in training is one that no prediction gets right."""
        scores: dict[str, float] = {}
        if self.scheme != "none":
            spans = total(self.spans_by_type(examples, predictions))
            scores = {"f1": spans.f1, "precision": spans.precision, "recall": spans.recall}
        pairs = [
            (label, tag)
            for example, prediction in zip(examples, predictions, strict=True)
            for label, tag in zip(example.labels, prediction["tags"], strict=True)
            if label is not None
        ]
        scores["accuracy"] = sum(label == tag for label, tag in pairs) / max(len(pairs), 1)
        return {metric: scores[metric] for metric in self.metrics}

    def spans_by_type(
        self, examples: "Sequence[TaggedSentence]", predictions: Sequence[Prediction]
    ) -> dict[str, SpanCounts]:
        """Counts of spans by type. A word without a label ends the spans on both sides."""
        truth = [[label or "O" for label in example.labels] for example in examples]
        said = [
            [tag if label else "O" for label, tag in zip(example.labels, prediction["tags"], strict=True)]
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        return count_spans(truth, said)

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        counts = Counter(tag for prediction in predictions for tag in prediction["tags"])
        if len(counts) == 1 and counts.total() > 1:
            return [f"collapsed: {next(iter(counts))!r} for every word."]
        return []


def _logits(head: nn.Module, hidden_BTD: Tensor, at: Sequence[int]) -> Tensor:
    """[W, C] at flat places row * T + column."""
    at_W = torch.tensor(at, dtype=torch.long, device=hidden_BTD.device)
    logits_WC: Tensor = head(hidden_BTD.flatten(0, 1)[at_W])
    return logits_WC


def _pieces(encoding: Encoding, words: int, text: Text) -> list[list[int]]:
    """The tokens of each word, at least one and at most as many as a row has room for."""
    pieces: list[list[int]] = [[] for _ in range(words)]
    for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
        if word is not None:
            pieces[word].append(token)
    return [piece[: text.length - 2] or [text.specials.unk] for piece in pieces]


def _windows(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Runs of words, [first, stop), of at most `room` tokens each: as few as need be, filled from the front."""
    first, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room:
            yield first, index
            first, used = index, 0
        used += size
    if first < len(sizes):
        yield first, len(sizes)


@dataclass(frozen=True, kw_only=True)
class TaggedSentence:
    """A sentence of words, each with its label if it has one."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    """One a word; None: not labelled, so neither learned nor scored."""
    file: str = ""
    lines: tuple[int, ...] = ()
    """The line of each word in `file`, counted from 1."""

    def __post_init__(self) -> None:
        if len(self.words) != len(self.labels):
            raise ValueError(f"{self.place}: {len(self.words)} words and {len(self.labels)} labels.")

    @property
    def place(self) -> str:
        """`file:line` of the first word, for messages."""
        return self.place_of(0)

    def place_of(self, word: int) -> str:
        """`file:line` of a word."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file
