"""A word's label is learned and read at its first token, and every word has exactly one."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_trainer.data.tokenizer import Text, as_plain_text, specials_of, word_piece
from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.run import FineTunedNetwork, Job, build_network, collate, finetune_run, predict
from electra_trainer.pretrained.source import Source, untrained
from electra_trainer.settings.config import Model
from electra_trainer.tasks.examples import TaggedSentence
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.tagged_files import spans_of
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import Row, TaskData

VOCAB = "the dog cat run jump walk a ##s ##ing don ' t . [ ] sep - x ##x".split()
IDS = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VOCAB))}
TOKENIZER = word_piece(IDS, cased=False, keep_accents=None)
MODEL = Model(
    vocab_size=len(IDS), embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
    max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer="fan-in",
)  # fmt: skip
CPU = torch.device("cpu")
ODD = ("\x00", "\u0301", "", " ", "run jump", "x" * 30, "x-" * 9)
WORDS = st.sampled_from([*"the dogs Cats don't walking zebra [SEP] 日本".split(), *ODD])


def text(length: int = 64) -> Text:
    return Text.of(TOKENIZER, length=length)


def source() -> Source:
    bare = Source(
        name="tiny", model=MODEL, weights={}, tokenizer=TOKENIZER, specials=specials_of(TOKENIZER), length=64,
    )  # fmt: skip
    return untrained(bare, seed=3)


def sentence(words: list[str], labels: list[str | None] | None = None) -> TaggedSentence:
    return TaggedSentence(words=tuple(words), labels=tuple(labels or [None] * len(words)))


def network(task: Tagging, *, dropout: float = 0.0) -> FineTunedNetwork:
    return build_network(source(), task, Recipe(dropout=dropout, attention_dropout=dropout), seed=5)


def alone(word: str, length: int) -> list[int]:
    """The tokens of one word, by the tokenizer itself."""
    ids = as_plain_text(TOKENIZER).encode(word, add_special_tokens=False).ids
    return ids[: length - 2] or [IDS["[UNK]"]]


@given(sentences=st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=4), length=st.integers(8, 40))
@settings(max_examples=150, deadline=None)
def test_rows_hold_every_word_once_and_know_where_it_begins(sentences: list[list[str]], length: int) -> None:
    """Row by row, against a loop that puts one word's tokens after the other's."""
    examples = [sentence(words) for words in sentences]
    rows = Tagging(labels=("A", "B")).rows(examples, text(length), training=False)
    expected = []
    for index, words in enumerate(sentences):
        ids, begins = [IDS["[CLS]"]], []
        for word in words:
            tokens = alone(word, length)
            if len(ids) + len(tokens) + 1 > length:
                expected.append((index, [*ids, IDS["[SEP]"]], begins))
                ids, begins = [IDS["[CLS]"]], []
            begins = [*begins, len(ids)]
            ids = ids + tokens
        expected.append((index, [*ids, IDS["[SEP]"]], begins))
    assert [(row.example, list(row.ids), list(row.place)) for row in rows] == expected
    assert all(len(row.ids) <= length and row.target is None for row in rows)


def test_only_words_with_labels_are_learned() -> None:
    examples = [
        sentence(["the", "dogs", "run"], ["A", None, "B"]),
        sentence(["cat", "\x07"], [None, None]),
        sentence(["\x07", "don't"], ["B", "A"]),
    ]
    rows = Tagging(labels=("A", "B")).rows(examples, text(), training=True)
    assert [(row.example, row.target, row.place) for row in rows] == [(0, (0, -1, 1), (1, 2, 4)), (2, (1, 0), (1, 2))]


def random_sentences(count: int, *, seed: int, labels: tuple[str, ...]) -> list[TaggedSentence]:
    random = np.random.default_rng(seed)
    words = ["the", "dogs", "walking", "don't", "\x07", "x-x-x", "zebra"]
    return [
        sentence(
            [str(random.choice(words)) for _ in range(size)],
            [str(random.choice(labels)) if random.random() < 0.8 else None for _ in range(size)],
        )
        for size in random.integers(1, 14, count)
    ]


def test_the_loss_is_that_of_a_plain_loop() -> None:
    """Word for word, each row alone and without padding: -log of the softmax at the word's first token."""
    task = Tagging(labels=("A", "B", "C"))
    model = network(task).double()
    rows = task.rows(random_sentences(6, seed=1, labels=task.labels), text(12), training=True)
    assert len({len(row.ids) for row in rows}) > 2 and len({row.example for row in rows}) < len(rows)
    total, count = 0.0, 0
    for row in rows:
        hidden_TD = model(collate([row], text().specials, CPU))[0].detach()
        for begin, target in zip(row.place, row.target, strict=True):
            if target >= 0:
                scores = [
                    float(weight @ hidden_TD[begin].double() + bias)
                    for weight, bias in zip(*(p.detach() for p in model.head.parameters()), strict=True)
                ]
                total -= scores[target] - math.log(sum(math.exp(score) for score in scores))
                count += 1
    batch = collate(rows, text().specials, CPU)
    loss, counted = task.loss(model.head, model(batch).double(), batch, rows)
    assert counted == count and float(loss.detach()) == pytest.approx(total, rel=1e-6)


def test_uneven_micro_batches_are_the_batch_and_gradients_reach_everything() -> None:
    task = Tagging(labels=("A", "B", "C"))
    model = network(task)
    rows = task.rows(random_sentences(7, seed=2, labels=task.labels), text(16), training=True)

    def gradients(parts: list[list[Row]]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        for part in parts:
            batch = collate(part, text().specials, CPU)
            task.loss(model.head, model(batch), batch, part)[0].backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    whole, parts = gradients([rows]), gradients([rows[:1], rows[1:4], rows[4:]])
    assert whole.keys() == {name for name, _ in model.named_parameters()} == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)
        if not name.endswith("attention.self.key.bias"):  # which a softmax does not feel
            assert float(gradient.abs().max()) > 1e-6, name


def test_predictions_are_those_of_each_row_alone() -> None:
    task = Tagging(labels=("A", "B", "C"))
    model = network(task).eval()
    examples = [*random_sentences(9, seed=4, labels=task.labels), sentence([])]
    found = predict(model, task, examples, text=text(10), device=CPU, precision="fp32")
    for index, (example, prediction) in enumerate(zip(examples, found, strict=True)):
        tags, shares = [], []
        for row in task.rows([example], text(10), training=False):
            logits_TC = model.head(model(collate([row], text().specials, CPU)))[0]
            tags += [task.labels[int(logits_TC[begin].argmax())] for begin in row.place]
            shares += [float(logits_TC[begin].softmax(-1).max()) for begin in row.place]
        assert prediction.pop("probabilities") == pytest.approx(shares, abs=1e-5)
        assert prediction == {"words": list(example.words), "tags": tags}, index
        assert len(tags) == len(example.words)
    assert len({tag for prediction in found for tag in prediction["tags"]}) > 1


def test_scores() -> None:
    task = Tagging(labels=("B-X", "I-X", "O"), scheme="bio")
    assert task.metrics == ("f1", "precision", "recall", "accuracy") and task.metric == "f1"
    examples = [sentence(["a"] * 5, ["B-X", "I-X", "O", "B-X", None]), sentence(["a"] * 3, ["B-X", None, "I-X"])]
    said = [{"tags": ["B-X", "I-X", "O", "O", "B-X"]}, {"tags": ["B-X", "I-X", "I-X"]}]
    # a word without a label parts the spans of both: 4 true, 3 predicted, 3 right
    assert task.score(examples, said) == {
        "f1": pytest.approx(6 / 7), "precision": 1.0, "recall": 0.75, "accuracy": pytest.approx(5 / 6),
    }  # fmt: skip
    plain = Tagging(labels=("A", "B"))
    assert plain.metric == "accuracy"
    unseen = [sentence(["a"] * 4, ["A", "B", "new", None])]
    assert plain.score(unseen, [{"tags": ["A", "A", "A", "A"]}]) == {"accuracy": pytest.approx(1 / 3)}
    assert plain.score([sentence(["a"])], [{"tags": ["A"]}]) == {"accuracy": 0.0}


def test_tasks_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="each of them once"):
        Tagging(labels=("A", "A"))
    with pytest.raises(ConfigError, match="each of them once"):
        Tagging(labels=())
    with pytest.raises(ConfigError, match="labels of BIO"):
        Tagging(labels=("O", "PER"), scheme="bio")
    with pytest.raises(ConfigError, match="metrics"):
        Tagging(labels=("A", "B"), metrics=("f1",))
    with pytest.raises(ValueError, match="2 words and 1 labels"):
        TaggedSentence(words=("a", "b"), labels=("A",))


def toy(count: int, *, seed: int) -> list[TaggedSentence]:
    """After "the" comes a NOUN and after "a" a VERB, whichever word it is: only context tells."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words, labels = [], []
        for _ in range(int(random.integers(1, 5))):
            article = str(random.choice(["the", "a"]))
            words += [article, str(random.choice(["dogs", "cat", "run", "walking"]))]
            labels += ["DET", "NOUN" if article == "the" else "VERB"]
        found.append(sentence([*words, "\x07"], [*labels, None]))
    return found


def predictions(run: Path) -> dict[str, list[dict[str, list[str]]]]:
    """Labels of both splits, as they were written."""
    found = {split: (run / "predictions" / f"{split}.jsonl").read_text() for split in ("dev", "test")}
    return {split: [json.loads(line) for line in lines.splitlines()] for split, lines in found.items()}


def test_a_run_learns_and_can_be_repeated(tmp_path: Path) -> None:
    """Labels that only the word before tells: without it at most 0.75 can be had, and at the edge of a row nobody has it."""
    task = Tagging(labels=("DET", "NOUN", "VERB"))
    data = TaskData(task=task, train=toy(300, seed=1), dev={"dev": toy(60, seed=2)}, test={"test": toy(3, seed=3)})
    recipe = Recipe(learning_rate=3e-3, layer_decay=1.0, epochs=12, max_length=12)
    job = Job(source=source(), data=data, recipe=recipe, seed=1)
    result = finetune_run(job, out=tmp_path / "one", device="cpu", quiet=True)
    assert result.scores["dev/accuracy"] > 0.85 and not result.doubts
    written = predictions(tmp_path / "one")["test"]
    assert [len(said["tags"]) for said in written] == [len(example.words) for example in data.test["test"]]
    job = replace(job, recipe=replace(recipe, epochs=2))
    short, again = (
        finetune_run(replace(job), out=tmp_path / name, device="cpu", quiet=True) for name in ("two", "three")
    )
    assert short.scores == again.scores != result.scores
    assert predictions(tmp_path / "two") == predictions(tmp_path / "three")


TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-X"))])
SENTENCE = st.lists(TAGS, max_size=9)


def by_definition(tags: list[str]) -> set[tuple[str, int, int]]:
    """All pairs of places, each held against what a span is: one word that continues nothing, then words that do, then one that does not."""
    types = [tag[2:] for tag in tags]

    def continues(at: int) -> bool:
        return (
            0 < at < len(tags)
            and tags[at][0] in "IE"
            and tags[at - 1][0] in "BI"
            and types[at] == types[at - 1]
        )  # fmt: skip

    return {
        (types[first], first, stop)
        for first in range(len(tags))
        for stop in range(first + 1, len(tags) + 1)
        if tags[first] != "O"
        and not continues(first)
        and all(continues(at) for at in range(first + 1, stop))
        and not continues(stop)
    }


@given(SENTENCE | st.lists(st.sampled_from("BIO"), max_size=9))
@settings(max_examples=400)
def test_spans_are_those_of_the_definition(tags: list[str]) -> None:
    found = spans_of(tags)
    assert set(found) == by_definition(tags) and len(found) == len(set(found))
    assert found == sorted(found, key=lambda span: span.first)
    covered = [word for span in found for word in range(span.first, span.stop)]
    assert covered == [index for index, tag in enumerate(tags) if tag != "O"]  # every word in a span is in one


@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_scores_are_those_of_seqeval(both: list[list[tuple[str, str]]]) -> None:
    """The library's default mode, which is conlleval's: the same spans, so the same counts and scores."""
    library = pytest.importorskip("seqeval.metrics.sequence_labeling", reason="needs the package seqeval")
    truth, said = ([[pair[at] for pair in sentence] for sentence in both] for at in (0, 1))
    task = Tagging(labels=("O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-X"))), scheme="bioes")
    examples = [TaggedSentence(words=("w",) * len(tags), labels=tuple(tags)) for tags in truth]
    scores = task.score(examples, [{"tags": tags} for tags in said])
    true, found = set(library.get_entities(truth)), set(library.get_entities(said))
    assert scores["precision"] == pytest.approx(len(true & found) / max(len(found), 1))
    assert scores["recall"] == pytest.approx(len(true & found) / max(len(true), 1))
    assert scores["f1"] == pytest.approx(2 * len(true & found) / max(len(true) + len(found), 1))
