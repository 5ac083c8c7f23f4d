"""Probes of the frozen encoder: the tag of a word, and the similarity and sentiment of sentences.

Tags: a word is the mean of its tokens, since in a small vocabulary the suffix that reveals the tag is often a separate
token. The probe learns a softmax mix of the outputs of all layers, embeddings included, and a linear layer on top of
it: replaced token detection specialises the last layer, so a probe of that layer alone would measure the
specialisation. Two baselines are without context: the tag that a word has most often, and the same linear layer on the
mean of the word's token embeddings. A probe of fresh weights (`untrained`) is the third.

Sentences: a text is read alone, and the mean over its tokens is taken of the embeddings and of every layer's output,
each normalised. From these a ridge regression predicts the similarity of two sentences (STS-B), and a ridge classifier
sentiment (SST-2). Their penalty is chosen by leave-one-out on the training rows. Next to each score is that of the same
model upon random word vectors: a matching of words needs no encoder, and reaches much of STS-B.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer import errors, randomness
from electra_trainer.batch import Batch
from electra_trainer.data import conllu
from electra_trainer.data.tokenizer import Specials, Text, as_plain_text, specials_of
from electra_trainer.finetuning import task, training_step
from electra_trainer.finetuning.examples import TaggedSentence, TextExample
from electra_trainer.finetuning.glue_tasks import GlueTask
from electra_trainer.finetuning.search import TrainingRows
from electra_trainer.finetuning.tagging import Tagging
from electra_trainer.model.encoder import Encoder

_TAGGING = Tagging(labels=conllu.UPOS)
_ROWS = 64  # rows that are encoded together
_WORDS = 1024  # words in a step of the probe
_EPOCHS = 10
_LEARNING_RATE = 3e-2  # of Adam, falling to 0 over the run


@dataclass(frozen=True, kw_only=True)
class TagScores:
    """Shares of the development words that got the right tag."""

    accuracy: float
    embeddings_accuracy: float
    """Accuracy of the same linear layer on the mean of a word's token embeddings: no context, no position."""
    majority_accuracy: float
    """Accuracy of the tag that the word has most often in the training sentences; of the most frequent tag for a new
    word.
    """
    mean_layer: float
    """The mean layer by the weights of the mix: 0 is the embeddings, 1 the first layer."""


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The probe's tagged words: W words, S states (embeddings and layers), D hidden size, E embedding size."""

    forms: list[str]
    tags_W: Tensor
    states_WSD: Tensor  # fp16: half the memory, and LayerNorm has made the numbers near 1
    embedded_WE: Tensor


def probe_tags(
    encoder: Encoder,
    tokenizer: Tokenizer,
    *,
    length: int,
    train: Sequence[conllu.Sentence],
    dev: Sequence[conllu.Sentence],
    sentences: int,
    seed: int,
    device: torch.device,
) -> TagScores:
    """Train the probe on `sentences` of the training sentences, evenly spread, and score it on all of `dev`.

    Args:
        encoder: is not changed.
        length: longest row of the encoder; longer sentences are read in portions.
        seed: of the probe's weights and order; the sentences are the same for all seeds.

    Raises:
        DataError: no word has a tag.
    """
    encoder = encoder.to(device).eval()
    text = Text(tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer), length=length)
    counted = _represent(encoder, text, _spread(train, sentences), device=device)
    unseen = _represent(encoder, text, dev, device=device)
    probe = _fit(counted.states_WSD, counted.tags_W, seed=seed)
    embedded = _fit(counted.embedded_WE[:, None], counted.tags_W, seed=seed)
    layers = torch.arange(counted.states_WSD.shape[1], device=device)
    return TagScores(
        accuracy=_accuracy(probe, unseen.states_WSD, unseen.tags_W),
        embeddings_accuracy=_accuracy(embedded, unseen.embedded_WE[:, None], unseen.tags_W),
        majority_accuracy=_majority_accuracy(counted, unseen),
        mean_layer=float((probe.mix_S.softmax(0) * layers).sum().detach()),
    )


def _spread(sentences: Sequence[conllu.Sentence], count: int) -> list[conllu.Sentence]:
    """`count` of the sentences at equal distances: a treebank is ordered by genre."""
    if count >= len(sentences):
        return list(sentences)
    return [sentences[index * len(sentences) // count] for index in range(count)]


class _Probe(nn.Module):
    """Softmax mix over S states, then a linear layer: [W, S, D] -> tag logits [W, tags]."""

    def __init__(self, states: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.mix_S = nn.Parameter(torch.zeros(states))
        self.linear = nn.Linear(width, len(conllu.UPOS))
        with torch.no_grad():
            self.linear.weight.normal_(std=width**-0.5, generator=generator)
            self.linear.bias.zero_()

    def forward(self, states_WSD: Tensor) -> Tensor:
        mixed_WD = torch.einsum("s,wsd->wd", self.mix_S.softmax(0), states_WSD.float())
        logits: Tensor = self.linear(mixed_WD)
        return logits


def _fit(states_WSD: Tensor, tags_W: Tensor, *, seed: int) -> _Probe:
    """Train a probe; the same seed gives the same probe."""
    words, states, width = states_WSD.shape
    generator = torch.Generator().manual_seed(randomness.key(seed, "probe/part-of-speech"))
    probe = _Probe(states, width, generator).to(states_WSD.device)
    optimizer = torch.optim.Adam(probe.parameters(), lr=_LEARNING_RATE)
    steps = _EPOCHS * -(-words // _WORDS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(_EPOCHS):
        order = torch.randperm(words, generator=generator).to(states_WSD.device)
        for here in torch.split(order, _WORDS):
            loss = F.cross_entropy(probe(states_WSD[here]), tags_W[here])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return probe


@torch.no_grad()
def _accuracy(probe: _Probe, states_WSD: Tensor, tags_W: Tensor) -> float:
    found = torch.cat([probe(states).argmax(-1) for states in torch.split(states_WSD, 4096)])
    return float((found == tags_W).sum().item() / len(tags_W))


def _majority_accuracy(counted: _Words, unseen: _Words) -> float:
    tags = counted.tags_W.tolist()
    overall = Counter(tags).most_common(1)[0][0]
    by_form: dict[str, Counter[int]] = {}
    for form, tag in zip(counted.forms, tags, strict=True):
        by_form.setdefault(form, Counter())[tag] += 1
    best = {form: counts.most_common(1)[0][0] for form, counts in by_form.items()}
    right = [best.get(form, overall) == tag for form, tag in zip(unseen.forms, unseen.tags_W.tolist(), strict=True)]
    return float(sum(right) / len(right))


def _rows(sentences: Sequence[conllu.Sentence], text: Text) -> list[task.Row]:
    """The rows that fine-tuning a tagger would read (finetuning/tagging), those with a tagged word. `place` holds these
    words, each with the first of its tokens in `ids` and the one after its last.
    """
    examples = [
        TaggedSentence(words=tuple(w.form for w in one.words), labels=(None,) * len(one.words)) for one in sentences
    ]
    left = [iter(one.words) for one in sentences]
    found = []
    for row in _TAGGING.rows(examples, text, training=False):
        spans = zip(row.place, (*row.place[1:], len(row.ids) - 1), strict=True)
        words = [(word, *span) for span, word in zip(spans, left[row.example], strict=False) if word.upos is not None]
        found += [replace(row, place=words)] if words else []
    return found


def _represent(encoder: Encoder, text: Text, sentences: Sequence[conllu.Sentence], *, device: torch.device) -> _Words:
    """All tagged words of some sentences, encoded in fp32 without dropout; rows of similar length together."""
    rows = sorted(_rows(sentences, text), key=lambda row: len(row.ids))
    if not rows:
        raise errors.DataError("part-of-speech probe: no word of the treebank has a tag.")
    parts = [rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)]
    tokens = [row.ids[start:stop] for row in rows for _, start, stop in row.place]
    embedded_WE = F.embedding_bag(
        torch.tensor([token for word in tokens for token in word], device=device),
        encoder.embeddings.word_embeddings.weight.detach(),
        _begins([len(word) for word in tokens], device),
        mode="mean",
    )
    words = [word for row in rows for word, _, _ in row.place]
    return _Words(
        forms=[word.form for word in words],
        tags_W=torch.tensor([conllu.UPOS.index(word.upos) for word in words], device=device),
        states_WSD=torch.cat([_states(encoder, part, specials=text.specials, device=device) for part in parts]),
        embedded_WE=F.layer_norm(embedded_WE, embedded_WE.shape[-1:]),
    )


def _begins(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Where each of several adjacent runs of tokens begins."""
    return torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()], device=device)


@torch.no_grad()
def _states(encoder: Encoder, rows: Sequence[task.Row], *, specials: Specials, device: torch.device) -> Tensor:
    """Embeddings and every layer's output, normalised, as the mean over each tagged word's tokens; fp16 [W, S, D]."""
    batch = training_step.collate(rows, specials, torch.device("cpu")).to(device)
    spans = [
        range(index * batch.ids_BT.shape[1] + start, index * batch.ids_BT.shape[1] + stop)
        for index, row in enumerate(rows)
        for _, start, stop in row.place
    ]
    token_P = torch.tensor([token for span in spans for token in span], device=device)
    begin_W = _begins([len(span) for span in spans], device)
    found = []
    for hidden_BTD in layer_outputs(encoder, batch.ids_BT, batch):
        normal_ND = F.layer_norm(hidden_BTD, hidden_BTD.shape[-1:]).flatten(0, 1)
        mean_WD = F.embedding_bag(token_P, normal_ND, begin_W, mode="mean")
        found.append(F.layer_norm(mean_WD, mean_WD.shape[-1:]))
    return torch.stack(found, dim=1).half()


def layer_outputs(encoder: Encoder, ids_BT: Tensor, batch: Batch) -> list[Tensor]:
    """The input of the first layer, then the output of each: layers + 1 tensors [B, T, D]. In fp32, so that every
    module runs.
    """
    found: list[Tensor] = []
    first = encoder.encoder.layer[0]
    hooks = [first.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))]
    hooks += [
        layer.register_forward_hook(lambda _, __, output: found.append(output)) for layer in encoder.encoder.layer
    ]
    try:
        with torch.autocast(ids_BT.device.type, enabled=False):
            encoder(ids_BT, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return found


_TASKS = {"stsb": None, "sst2": 10_000}
"""The tasks, and how many training rows are read of each (None: all)."""
_TEXTS = 256
_PENALTIES = 10.0 ** np.arange(0, 7)

Represent = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts -> means of S states, [N, S, D]."""


@dataclass(frozen=True, kw_only=True)
class SentenceScores:
    """Scores on the development sets."""

    stsb: float
    """Spearman's correlation with people's similarity of two sentences."""
    stsb_random: float
    """Score from random word vectors."""
    sst2: float
    """Share of the sentences whose sentiment is predicted right."""
    sst2_random: float
    """Score from random word vectors."""


def probe_sentences(
    encoder: Encoder,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    length: int,
    seed: int,
    device: torch.device,
    nested: bool = False,
) -> SentenceScores:
    """Fit the probe on GLUE's training rows and score it on its development rows.

    Args:
        encoder: is not changed.
        folder: GLUE's.
        length: longest row of the encoder; longer texts are cut.
        seed: of the random word vectors.
        nested: score on a tenth of the training rows, which is not trained on, instead of the development rows.

    Raises:
        MissingInputError, DataError: the tasks' files.
    """
    encoder = encoder.to(device).eval()
    text = Text(tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer), length=length)
    table_VE = encoder.embeddings.word_embeddings.weight
    draws = torch.Generator().manual_seed(randomness.key(seed, "probe/sentences"))
    random_VE = torch.randn(table_VE.shape, generator=draws).to(device)
    ways: dict[str, Represent] = {
        "": lambda texts: _represent_texts(texts, text, lambda rows: _text_states(encoder, rows, text, device)),
        "_random": lambda texts: _represent_texts(texts, text, lambda rows: _words(random_VE, rows)),
    }
    tasks = sentence_tasks(folder)
    data = {one.task: (TrainingRows(source=one) if nested else one).load() for one in tasks}
    return SentenceScores(**{one + name: _score(data[one], way) for name, way in ways.items() for one in data})


def sentence_tasks(folder: Path) -> list[GlueTask]:
    """The tasks of the probe in GLUE's folder."""
    return [GlueTask(folder=str(folder), task=name, limit=limit, test=False) for name, limit in _TASKS.items()]


def _score(data: task.TaskData, represent: Represent) -> float:
    """Fit one task's linear model upon representations, and score it: a correlation for STS-B, a share for SST-2."""
    from scipy.stats import spearmanr
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    dev = next(iter(data.dev.values()))
    regression = data.train[0].value is not None
    truths = [[one.value if regression else one.label for one in part] for part in (data.train, dev)]
    features = [_features(part, represent) for part in (data.train, dev)]
    kind = RidgeCV if regression else RidgeClassifierCV
    found = make_pipeline(StandardScaler(), kind(alphas=_PENALTIES)).fit(features[0], truths[0]).predict(features[1])
    return float(spearmanr(found, truths[1]).statistic if regression else np.mean(found == np.array(truths[1])))


def _features(examples: Sequence[TextExample], represent: Represent) -> NDArray[np.float32]:
    """One row an example: the means themselves, or of a pair |u - v|, u * v and the cosine for each state."""
    first_NSD = represent([one.text for one in examples])
    if examples[0].pair is None:
        return first_NSD.reshape(len(examples), -1)
    second_NSD = represent([one.pair or "" for one in examples])
    product_NSD = first_NSD * second_NSD
    lengths_NS1 = np.linalg.norm(first_NSD, axis=-1, keepdims=True) * np.linalg.norm(second_NSD, axis=-1, keepdims=True)
    cosine_NS1 = product_NSD.sum(-1, keepdims=True) / np.maximum(lengths_NS1, 1e-9)
    parts = (np.abs(first_NSD - second_NSD), product_NSD, cosine_NS1)
    return np.concatenate([part.reshape(len(examples), -1) for part in parts], axis=1)


def _represent_texts(
    texts: Sequence[str], text: Text, states: Callable[[list[task.Row]], Tensor]
) -> NDArray[np.float32]:
    """States of all texts, rows of similar length together."""
    rows = [task.Row(example=i, ids=text.row(one.ids)) for i, one in enumerate(text.encode(texts))]
    rows.sort(key=lambda row: len(row.ids))
    parts = [states(rows[first : first + _TEXTS]).cpu() for first in range(0, len(rows), _TEXTS)]
    found_NSD = torch.cat(parts).numpy()
    return np.asarray(found_NSD[np.argsort([row.example for row in rows])])


@torch.no_grad()
def _text_states(encoder: Encoder, rows: list[task.Row], text: Text, device: torch.device) -> Tensor:
    """Means over a text's tokens of each state, centred and normalised, [N, S, D]."""
    batch = training_step.collate(rows, text.specials, torch.device("cpu")).to(device)
    inner_BT = batch.real_BT & (batch.ids_BT != text.specials.cls) & (batch.ids_BT != text.specials.sep)
    weight_BT1 = (inner_BT / inner_BT.sum(1, keepdim=True).clamp(min=1))[..., None]
    outputs = layer_outputs(encoder, batch.ids_BT, batch)
    return torch.stack([(F.layer_norm(one, one.shape[-1:]) * weight_BT1).sum(1) for one in outputs], dim=1)


def _words(table_VE: Tensor, rows: list[task.Row]) -> Tensor:
    """Means of a text's word vectors, [N, 1, E]."""
    means = [table_VE[list(row.ids[1:-1])].mean(0) if len(row.ids) > 2 else table_VE[0] * 0 for row in rows]
    return torch.stack(means)[:, None]
