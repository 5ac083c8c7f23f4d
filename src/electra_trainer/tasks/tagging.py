"""Tagging: a label for each word, by the head on its first token, cross-entropy (BERT; released).

A sentence that is too long for a row is read in several, cut between words, so that each word is predicted exactly
once. A word without tokens, such as a control character, is read as [UNK]; one with more tokens than a row loses its
last ones.

Its examples are in files of your own: part of speech, named entities, chunks. An impossible file
is a DataError with file and line; other findings are notes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from tokenizers import Encoding
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data import tokenizer
from electra_trainer.errors import DataError, ElectraError, require
from electra_trainer.files.wording import render
from electra_trainer.settings.calls import checked_class
from electra_trainer.settings.config import Model
from electra_trainer.tasks import examples as formats
from electra_trainer.tasks import tagged_files, task
from electra_trainer.tasks.examples import Prediction, Split, TaggedSentence, hold_out_sentences, strings
from electra_trainer.tasks.heads import output_head
from electra_trainer.tasks.tagged_files import Scheme, TagColumns, read_tag, read_tagged

_SPAN_METRICS = ("f1", "precision", "recall")
UNSEEN_SHARE = 0.1
"""Share of the development words: when more have labels that training lacks, the files do not belong together. Rich
morphology has a few in a hundred.
"""


@dataclass(frozen=True, kw_only=True)
class Tagging(task.Task):
    """One of `labels` for each word; C labels. W: the labelled words of a batch, or all."""

    whole_text: ClassVar[bool] = False

    labels: tuple[str, ...]
    scheme: Scheme = "none"
    """How labels mark spans, if they do: see tagged_files.py."""
    metrics: tuple[str, ...] = ()
    """The first is the main one. Empty: accuracy, with a scheme after f1, precision and recall of spans."""
    name: str = "tagging"

    def __post_init__(self) -> None:
        known = ("accuracy",) if self.scheme == "none" else (*_SPAN_METRICS, "accuracy")
        require(len(set(self.labels)) == len(self.labels) > 0, "labels", self.labels, "labels, each of them once")
        require(set(self.metrics) <= set(known), "metrics", self.metrics, f"some of {', '.join(known)}")
        fits = self.scheme == "none" or all(read_tag(label, self.scheme) for label in self.labels)
        require(fits, "labels", self.labels, f"labels of {self.scheme.upper()}")
        if not self.metrics:
            object.__setattr__(self, "metrics", known)

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def head(self, model: Model) -> nn.Module:
        """[W, D] -> [W, C]; that of transformers' classes for token classification."""
        return output_head(model, len(self.labels))

    def rows(self, examples: Sequence[TaggedSentence], text: tokenizer.Text, *, training: bool) -> list[task.Row]:
        """`place`: the columns at which its words begin. `target`: their label numbers, -1 without a label."""
        number = {label: index for index, label in enumerate(self.labels)}
        rows: list[task.Row] = []
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
                rows.append(task.Row(ids=(*ids, text.specials.sep), example=index, target=target, place=place))
        return rows

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[task.Row]) -> tuple[Tensor, int]:
        """The sum over labelled words, and their number."""
        width = hidden_BTD.shape[1]
        words = [
            (index * width + begin, label)
            for index, row in enumerate(rows)
            for begin, label in zip(row.place, row.target, strict=True)
            if label >= 0
        ]
        labels_W = torch.tensor([label for _, label in words], dtype=torch.long, device=hidden_BTD.device)
        logits_WC = _logits(head, hidden_BTD, [at for at, _ in words])
        return F.cross_entropy(logits_WC, labels_W, reduction="sum"), len(words)

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[task.Row]) -> list[Any]:
        """The label number of each word of a row and its probability, one list of pairs a row."""
        width = hidden_BTD.shape[1]
        at = [index * width + begin for index, row in enumerate(rows) for begin in row.place]
        share_W, label_W = _logits(head, hidden_BTD, at).softmax(-1).max(-1)
        best = zip(label_W.tolist(), share_W.tolist(), strict=True)
        return [[next(best) for _ in row.place] for row in rows]

    def predict(
        self, examples: Sequence[TaggedSentence], rows: Sequence[task.Row], predicted: Sequence[Any]
    ) -> list[Prediction]:
        """{"words": [...], "tags": [...], "probabilities": [...]}, equally many; the probability is that of the tag."""
        tags: list[list[str]] = [[] for _ in examples]
        shares: list[list[float]] = [[] for _ in examples]
        for row, pairs in zip(rows, predicted, strict=True):
            tags[row.example] += [self.labels[number] for number, _ in pairs]
            shares[row.example] += [share for _, share in pairs]
        return [
            {"words": list(example.words), "tags": found, "probabilities": own}
            for example, found, own in zip(examples, tags, shares, strict=True)
        ]

    def hold_out(self, train: Sequence[TaggedSentence], *, where: str) -> Split[TaggedSentence]:
        """See `Task`."""
        return hold_out_sentences(train, where=where)

    def score(self, examples: Sequence[TaggedSentence], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Over labelled words; a word without a label ends the spans on both sides. No prediction is right where the
        label does not occur in training.
        """
        scores = {}
        if self.scheme != "none":

            def spelled(tags: Sequence[str | None], labels: Sequence[str | None]) -> list[str]:
                pairs = zip(tags, labels, strict=True)
                return [(read_tag(tag, self.scheme) or "O") if tag and label else "O" for tag, label in pairs]

            truth = [spelled(one.labels, one.labels) for one in examples]
            both = zip(predictions, examples, strict=True)
            scores = tagged_files.span_scores(truth, [spelled(found["tags"], one.labels) for found, one in both])
        right = [
            label == tag
            for example, prediction in zip(examples, predictions, strict=True)
            for label, tag in zip(example.labels, prediction["tags"], strict=True)
            if label is not None
        ]
        scores["accuracy"] = sum(right) / max(len(right), 1)
        return {metric: scores[metric] for metric in self.metrics}

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        counts = Counter(tag for prediction in predictions for tag in prediction["tags"])
        collapsed = len(counts) == 1 and counts.total() > 1
        return [f"collapsed: {next(iter(counts))!r} for every word."] if collapsed else []

    def baselines(self, train: Sequence[TaggedSentence]) -> dict[str, task.Baseline]:
        """The most frequent tag; and each word's: as it is written, else in lower case, else the most frequent of
        all.
        """
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sentence in train:
            for word, label in zip(sentence.words, sentence.labels, strict=True):
                for form in {word, word.lower(), ""} if label is not None else ():
                    by_word[form][str(label)] += 1
        best = {word: task.most_frequent(counts) for word, counts in by_word.items()}

        def tagged(sentences: Sequence[Any], tag: Callable[[str], str]) -> list[Prediction]:
            return [{"words": list(one.words), "tags": [*map(tag, one.words)]} for one in sentences]

        def usual(word: str) -> str:
            return best.get(word) or best.get(word.lower()) or best[""]

        majority, words = partial(tagged, tag=lambda _: best[""]), partial(tagged, tag=usual)
        return {
            "majority": task.Baseline(title="the majority class", predict=majority),
            "word_tags": task.Baseline(title="the most frequent tag of each word", predict=words),
        }

    def examples_from(self, texts: Sequence[Any], *, pair: bool) -> list[TaggedSentence]:
        """From lists of words."""
        sentences = [strings(text, index, "a list of words") for index, text in enumerate(texts)]
        return [TaggedSentence(words=words, labels=(None,) * len(words)) for words in sentences]

    columns_type: ClassVar[type[Any]] = TagColumns

    def examples_in(self, path: Path, *, like: Any, text: str | None, as_json: bool, **others: Any) -> task.Unlabelled:
        """The sentences of a file, whose words are where they were in training, or of running text; `text` names
        another column.
        """
        read = read_tagged(path, words=text, labelled=False, like=like, known=self.labels)
        write = formats.jsonl if as_json else formats.tagged_text
        notes, answers = [*read.notes, *[f"{read.counted()}."] * (read.comments > 0)], list[TaggedSentence]()
        if like is not None and like.label is not None:
            words = text or like.words
            with suppress(ElectraError):  # a file without labels, or running text
                answers = read_tagged(path, words=words, column=like.label, like=like, known=self.labels).sentences
        unseen, count = _unseen(answers, self.labels)
        alike = [one.words for one in answers] == [one.words for one in read.sentences]
        if strange := alike and len(unseen) > UNSEEN_SHARE * count:  # labels of another set
            first, at = unseen[0]
            notes.append(f"not scored: {first.place_of(at)}: {len(unseen):,} of {count:,} labels are not in training.")
        if strange or not alike or not count:
            answers = []
        return task.Unlabelled(
            examples=read.sentences, written=lambda raw: {"": write(raw)}, notes=tuple(notes), answers=answers
        )

    def word_places(self, text: str, columns: Any) -> list[tuple[int, int]]:
        """Words are split like those of the training data, where that is known."""
        how = columns.split if isinstance(columns, TagColumns) else "punctuation"
        return tagged_files.word_places(text, how)

    def as_transformers(self, model: Model) -> task.TransformersHead:
        return task.copied_head(model, "TokenClassification", "classifier.", labels=self.labels)

    def card(self, *, pair: bool) -> task.CardWords:
        return task.CardWords(
            says="Gives each word a label",
            labels=self.labels,
            pipeline="token-classification",
            longer="; electra-trainer reads a longer sentence in several, cut between words",
            sample='[["some", "words"]]',
            code=render("card_words.py", strategy="none" if self.scheme == "none" else "first"),
        )


def _logits(head: nn.Module, hidden_BTD: Tensor, at: Sequence[int]) -> Tensor:
    """[W, C] at flat places row * T + column."""
    at_W = torch.tensor(at, dtype=torch.long, device=hidden_BTD.device)
    logits_WC: Tensor = head(hidden_BTD.flatten(0, 1)[at_W])
    return logits_WC


def _pieces(encoding: Encoding, words: int, text: tokenizer.Text) -> list[list[int]]:
    """The tokens of each word: at least one, at most those that fit into a row."""
    pieces: list[list[int]] = [[] for _ in range(words)]
    for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
        if word is not None:
            pieces[word].append(token)
    if text.tally is not None:
        for piece in pieces:
            text.tally.add_row(len(piece), text.length - 2, kind="words")
    return [piece[: text.length - 2] or [text.specials.unk] for piece in pieces]


def _windows(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Runs of words, [first, stop), of at most `room` tokens each: as few as possible, filled from the front."""
    first, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room:
            yield first, index
            first, used = index, 0
        used += size
    if first < len(sizes):
        yield first, len(sizes)


@checked_class
@dataclass(frozen=True, kw_only=True)
class TaggingTask(task.OwnFiles):
    """Files of tagged words of any kind (tasks/tagged_files.py)."""

    kind: ClassVar[type[task.Task]] = Tagging

    label: str | int | None = None
    """Column of the labels; None: the last one, of a treebank upos, of JSON one with a usual name."""
    words: int | str | None = None
    """Column of the words: counted from 1, or its name in JSON; None: 1, or one with a usual name."""
    tag_names: str | None = None
    """Names of labels that are numbers: between commas, from 0 on."""
    scheme: Literal["detect", "io", "bio", "bioes", "plain"] = "detect"
    """How labels mark spans; plain: they mark none; "detect" asks the labels."""
    name: str = "tagging"

    def load(self) -> task.TaskData:
        """Read the files; see `TaskSource.load`.

        Raises:
            ConfigError: a column that cannot be, labels that are not of the scheme asked for.
        """
        paths = self.given()
        unlabelled = paths.pop("predict", None)
        files = {split: read_tagged(path, words=self.words, column=self.label) for split, path in paths.items()}
        read, scheme = self._standard({split: one.sentences for split, one in files.items()})
        train, columns = read.pop("train"), files["train"].columns
        if columns.split != "characters":  # texts with spans say so themselves
            columns = replace(columns, split=tagged_files.splitting_of(train))
        labels = _learned(train, str(self.train))
        notes = [note for one in files.values() for note in one.notes]
        notes += tagged_files.described(labels, scheme)
        notes.append("; ".join(one.counted() for one in files.values()) + ".")
        dev, tested = read.pop("dev", None), read
        if dev is None:
            every = train
            train, dev = hold_out_sentences(every, where=str(self.train))
            notes.append(formats.held_out(dev, every, "sentences"))
        else:
            notes += _of_two(train, dev, labels)
        notes += [note for sentences in tested.values() for note in _of_two(train, sentences, labels)]
        test = {}
        if unlabelled is not None:
            asked = read_tagged(unlabelled, labelled=False, like=columns, known=labels)
            notes += [*asked.notes, *[f"{asked.counted()}."] * (asked.comments > 0)]
            test = {"predict": asked.sentences}
        every_split = {"train": train, "dev": dev, **tested, **test}
        hashed = {split: repr([(one.words, one.labels) for one in each]) for split, each in every_split.items()}
        return task.TaskData(
            task=Tagging(labels=labels, scheme=scheme, name=self.name),
            train=train,
            dev={"dev": dev},
            notes=tuple(notes),
            tested=tested,
            test=test,
            columns=columns,
            written=("predictions.conll", formats.tagged_text),
            sha256=task.hash_files({split: words.encode() for split, words in hashed.items()}),
        )

    def _standard(self, files: dict[str, list[TaggedSentence]]) -> tuple[dict[str, list[TaggedSentence]], Scheme]:
        """Sentences with names for labels that are numbers, and the scheme of their labels.

        Raises:
            DataError: a number without a name in `tag_names`, a label that is not of the scheme.
        """
        files = files if self.tag_names is None else _named(files, self.tag_names)
        labels = [label for one in files["train"] for label in one.labels]
        known = {label for label in labels if label is not None}
        asked: dict[str, Scheme] = {"plain": "none", "io": "io", "bio": "bio", "bioes": "bioes"}
        scheme = asked.get(self.scheme) or tagged_files.scheme_of(known)
        if self.scheme == "io" or (self.scheme == "detect" and scheme == "none"):
            tagged_files.refuse_marks(known, str(self.train))
        for one in (one for sentences in files.values() for one in sentences):
            tagged_files.check_scheme(one, scheme)
        if known and scheme != "none" and "O" not in known and None in labels:
            count = f"{labels.count(None):,} of {len(labels):,} words have no label"
            raise DataError(f"{self.train}: {count}, and none is O. Label the words outside of spans O.")
        return files, scheme


def _named(files: Mapping[str, list[TaggedSentence]], tag_names: str) -> dict[str, list[TaggedSentence]]:
    """Sentences whose numbers have names. Raises DataError for a number that has none."""
    names = {str(at): name.strip() for at, name in enumerate(tag_names.split(","))}
    for one, at in [word for sentences in files.values() for word in _unseen(sentences, names)[0]][:1]:
        raise DataError(
            f"{one.place_of(at)}: label {one.labels[at]!r} has no name; --tag-names has {len(names)}, for the numbers "
            "from 0 on. Add it, or leave --tag-names out."
        )
    return {
        split: [replace(one, labels=tuple([label and names[label] for label in one.labels])) for one in sentences]
        for split, sentences in files.items()
    }


def _learned(train: Sequence[TaggedSentence], where: str) -> tuple[str, ...]:
    """The labels that a training file has. Raises DataError for fewer than two."""
    labels = tuple(sorted({label for one in train for label in one.labels if label is not None}))
    if len(labels) < 2:
        what = f"every word has the label {labels[0]!r}" if labels else "no word has a label"
        raise DataError(f"{where}: {what}, so there is nothing to learn. Is it the right label column?")
    return labels


def _unseen(
    sentences: Sequence[TaggedSentence], labels: Collection[str]
) -> tuple[list[tuple[TaggedSentence, int]], int]:
    """The words whose label is not among `labels`, and how many words have a label."""
    labelled = [(one, at) for one in sentences for at, label in enumerate(one.labels) if label is not None]
    known = {*labels}
    return [(one, at) for one, at in labelled if one.labels[at] not in known], len(labelled)


def _of_two(train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence], labels: Sequence[str]) -> Iterator[str]:
    """Notes on a development file: labels that training lacks, sentences that it has too. Raises DataError for more
    than a tenth of its words have such labels, or none has one.
    """
    unseen, count = _unseen(dev, labels)
    where = [one.place_of(at) for one, at in unseen[:1]]
    if not count or len(unseen) > UNSEEN_SHARE * count:
        raise DataError(
            f"{where[0] if where else dev[0].file}: {len(unseen):,} of {count:,} labels do not occur in training. "
            "Expected those of the training file: is it the right label column? Write _ where a word is not to be "
            "scored."
        )
    if where:
        first = Path(where[0]).name  # without its folder, so that a moved file leaves a result as it is
        yield f"{len(unseen):,} of {count:,} labels do not occur in training (first at {first}): never right."
    known = {sentence.words for sentence in train}
    if twice := sum(sentence.words in known for sentence in dev):
        yield f"{twice:,} of {len(dev):,} sentences in {Path(dev[0].file).name} are in training too."
