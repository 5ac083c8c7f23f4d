"""Probes: measurements of the encoder that a cell of an experiment trained. None downloads anything.

    held-out               the objective's own metrics over all held-out rows, always with the same masks
    pos=TREEBANK           part-of-speech tags from the frozen encoder
    minimal-pairs=FOLDER   which sentence of a pair is the grammatical one (minimal_pairs.py)
    glue=FOLDER            scores on the tasks of GLUE in it, after fine-tuning by the paper's recipe (Table 6)
    squad1, squad2=FOLDER  the same of SQuAD 1.1 and 2.0

`PROBES` has each probe: a function `Subject -> {name: number}`, whose numbers appear as `PROBE/name`, and its input.

The probe of tags: a word is the mean of its tokens, since in a small vocabulary the suffix that reveals the tag is
often a separate token. The probe learns a softmax mix of the outputs of all layers, embeddings included, and a linear
layer on top of it: replaced token detection specialises the last layer, so a probe of that layer alone would measure
the specialisation. The baseline without context is the tag that a word has most often; a probe of fresh weights
(`untrained`) is another.
"""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer import randomness
from electra_trainer.batch import Batch
from electra_trainer.data.conllu import UPOS, Sentence, read_conllu, treebank_file
from electra_trainer.data.tokenizer import Specials, Text
from electra_trainer.errors import ConfigError, DataError, Diverged, MissingInputError, require_known
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.finetuning import glue_table, run
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.inspection.replay import evaluate
from electra_trainer.model.encoder import Encoder
from electra_trainer.paper.likelihoods import device_of
from electra_trainer.paper.minimal_pairs import minimal_pairs as score_pairs
from electra_trainer.paper.minimal_pairs import read_pairs
from electra_trainer.paper.published import SQUAD
from electra_trainer.pretrained.pretrained import kept_encoder, load
from electra_trainer.pretrained.source import Source, load_source
from electra_trainer.tasks import glue_tasks, task
from electra_trainer.tasks.examples import TaggedSentence
from electra_trainer.tasks.questions import SquadTask
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import TaskSource
from electra_trainer.tasks.texts import Pooling
from electra_trainer.train.device import choose_device

_TAGGING = Tagging(labels=UPOS)
_ROWS = 64  # rows that are encoded together
_WORDS = 1024  # words in a step of the probe
_EPOCHS = 10
_LEARNING_RATE = 3e-2  # of Adam, falling to 0 over the run


class _Words(NamedTuple):
    """The probe's tagged words: W words, S states (embeddings and layers), D hidden size."""

    forms: list[str]
    tags_W: Tensor
    states_WSD: Tensor  # fp16: half the memory, and LayerNorm has made the numbers near 1


def probe_tags(
    encoder: Encoder, text: Text, train: Sequence[Sentence], dev: Sequence[Sentence], *, sentences: int, seed: int
) -> dict[str, float]:
    """Train the probe on `sentences` of the training sentences, evenly spread: the share of the words of `dev` that get
    the right tag, and the share by the tag that a word has most often in training (a new word: the most frequent tag).


    Args:
        encoder: is not changed, nor moved.
        text: reads words to rows that the encoder can read; longer sentences are read in portions.
        seed: of the probe's weights and order; the sentences are the same for all seeds.

    Raises:
        DataError: no word has a tag.
    """
    encoder = encoder.eval()
    count = min(sentences, len(train))  # at equal distances: a treebank is ordered by genre
    spread = [train[index * len(train) // count] for index in range(count)]
    counted, unseen = _represent(encoder, text, spread), _represent(encoder, text, dev)
    probe = _fit(counted.states_WSD, counted.tags_W, seed=seed)
    return {
        "accuracy": _accuracy(probe, unseen.states_WSD, unseen.tags_W),
        "majority_accuracy": _majority_accuracy(counted, unseen),
    }


class _Probe(nn.Module):
    """Softmax mix over S states, then a linear layer: [W, S, D] -> tag logits [W, tags]."""

    def __init__(self, states: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.mix_S = nn.Parameter(torch.zeros(states))
        self.linear = nn.Linear(width, len(UPOS))
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
    pairs = Counter(zip(counted.forms, tags, strict=True)).most_common()
    best = {form: tag for (form, tag), _ in reversed(pairs)}
    right = [best.get(form, overall) == tag for form, tag in zip(unseen.forms, unseen.tags_W.tolist(), strict=True)]
    return float(sum(right) / len(right))


def _rows(sentences: Sequence[Sentence], text: Text) -> Iterator[task.Row]:
    """The rows that fine-tuning a tagger would read (tasks/tagging), those with a tagged word. `place` holds these
    words, each with the first of its tokens in `ids` and the one after its last.
    """
    examples = [TaggedSentence(words=tuple(w.form for w in one), labels=(None,) * len(one)) for one in sentences]
    left = [iter(one) for one in sentences]
    for row in _TAGGING.rows(examples, text, training=False):
        spans = zip(row.place, (*row.place[1:], len(row.ids) - 1), strict=True)
        words = [(word, *span) for span, word in zip(spans, left[row.example], strict=False) if word.upos is not None]
        if words:
            yield replace(row, place=words)


def _represent(encoder: Encoder, text: Text, sentences: Sequence[Sentence]) -> _Words:
    """All tagged words of some sentences, encoded in fp32 without dropout; rows of similar length together."""
    rows = sorted(_rows(sentences, text), key=lambda row: len(row.ids))
    if not rows:
        raise DataError("part-of-speech probe: no word of the treebank has a tag.")
    parts = [rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)]
    words = [word for row in rows for word, _, _ in row.place]
    return _Words(
        forms=[word.form for word in words],
        tags_W=torch.tensor([UPOS.index(word.upos) for word in words], device=device_of(encoder)),
        states_WSD=torch.cat([_states(encoder, part, text.specials) for part in parts]),
    )


@torch.no_grad()
def _states(encoder: Encoder, rows: Sequence[task.Row], specials: Specials) -> Tensor:
    """Embeddings and every layer's output, normalised, as the mean over each tagged word's tokens; fp16 [W, S, D]."""
    device = device_of(encoder)
    batch = run.collate(rows, specials, torch.device("cpu")).to(device)
    spans = [
        range(index * batch.ids_BT.shape[1] + start, index * batch.ids_BT.shape[1] + stop)
        for index, row in enumerate(rows)
        for _, start, stop in row.place
    ]
    token_P = torch.tensor([token for span in spans for token in span], device=device)
    begin_W = torch.tensor([0, *accumulate(map(len, spans))][:-1], device=device)
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


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The input of a probe."""

    run: Path
    """The run folder of the cell."""
    data: Path
    """The prepared rows that it was trained on."""
    folder: Path = Path()
    """The folder that was given with the probe."""
    seed: int
    device: str
    sentences: int
    """Training sentences of a probe that learns."""
    pairs: int
    """Minimal pairs that are read of each paradigm."""
    tunings: int = 1
    """Fine-tuning seeds of a probe that fine-tunes."""
    pooling: Pooling = "cls"
    """Representation of a text in the probe `glue`; the paper's is cls."""


def held_out(subject: Subject) -> dict[str, float]:
    """Losses, accuracies and AUC of the objective itself."""
    return evaluate(subject.run, subject.data, device=subject.device).metrics


def part_of_speech(subject: Subject) -> dict[str, float]:
    """Accuracy of the tags that a linear layer reads from a mix of all layers, and its baseline."""
    train, dev = (read_conllu(treebank_file(subject.folder, split)) for split in ("train", "dev"))
    found = load(subject.run)
    encoder = kept_encoder(found).to(choose_device(subject.device))
    text = Text.of(found.tokenizer, length=found.length)
    return probe_tags(encoder, text, train, dev, sentences=subject.sentences, seed=subject.seed)


def minimal_pairs(subject: Subject) -> dict[str, float]:
    """Share of the pairs whose grammatical sentence is preferred, for each score that the networks can give."""
    found = score_pairs(load(subject.run).to(choose_device(subject.device)), subject.folder, limit=subject.pairs)
    return {name: score.mean for name, score in found.scores.items()}


def glue(subject: Subject) -> dict[str, float]:
    """Dev scores of the paper's tasks in the folder, by the names of its columns, `cola`, `sst` … and `average` if all
    eight are there; of several fine-tuning seeds the medians (§3.1).

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    source = load_source(subject.run)
    scores = {}
    for given in _glue_tasks(subject.folder):
        found = _fine_tuned(subject, source, given, folder="glue", pooling=subject.pooling)
        scores[given.task] = found[glue_tasks.ROWS[given.task].metrics[0]]
    return {name.removeprefix("glue/"): value for name, value in glue_table.glue_metrics(scores).items()}


def squad(subject: Subject, *, version: Literal[1, 2]) -> dict[str, float]:
    """Exact match and F1 on SQuAD's dev file (Table 3), as `em` and `f1`, of 2.0 at the best threshold; of several
    fine-tuning seeds the medians.

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    given = _squad_task(subject.folder, version)
    found = _fine_tuned(subject, load_source(subject.run), given, folder=f"squad{version}")
    return {column.partition("/")[2]: found[name] for name, column in SQUAD[given.name].items()}


def _fine_tuned(
    subject: Subject, source: Source, given: TaskSource, *, folder: str, pooling: Pooling | None = None
) -> dict[str, float]:
    """Medians over the fine-tuning seeds of a task's scores on its main split, by the paper's recipe.

    Each run is a folder next to the subject's run, so that finished ones are not repeated.
    """
    data = given.load()
    changes = {"max_length": getattr(given, "max_length", None), "pooling": pooling}
    settings = recipe("paper", hidden_size=source.model.hidden_size, epochs=given.epochs, **changes).fitted(
        source.length
    )
    beside = subject.run.parent / folder
    found = []
    for seed in range(subject.seed, subject.seed + _APART * subject.tunings, _APART):
        out = beside / (given.name if seed == subject.seed else f"{given.name}-{seed}")
        job = Job(source=source, data=data, recipe=settings, seed=seed)
        found.append(finetune_run(job, out=out, device=subject.device, quiet=True).by_split[next(iter(data.dev))])
    return {name: statistics.median(scores[name] for scores in found) for name in found[0]}


def _squad_task(folder: Path, version: Literal[1, 2]) -> SquadTask:
    """The files by their official names."""
    train, dev = (folder / f"{split}-v{_VERSIONS[version]}.json" for split in ("train", "dev"))
    return SquadTask(train=train, dev=dev, version=version)


_VERSIONS = {1: "1.1", 2: "2.0"}
_APART = 1000
"""Between the fine-tuning seeds of one encoder; the first is the cell's own."""


def _glue_tasks(folder: Path) -> list[glue_tasks.GlueTask]:
    found = [task for task in glue_tasks.tasks_in(folder) if task in glue_tasks.PAPER]
    if not found:
        raise MissingInputError(
            f"--probe glue={folder}: holds no task of GLUE. Expected folders such as CoLA and RTE with train.tsv and "
            "dev.tsv."
        )
    return [glue_tasks.GlueTask(folder=str(folder), task=task, test=False) for task in found]


def _hash_of_files(files: Iterable[Path]) -> str:
    return task.hash_files({path.name: read_file(path, limit=MOST_TEXT) for path in files})


def _hash_of_treebank(folder: Path) -> str:
    files = [treebank_file(folder, split) for split in ("train", "dev")]
    for path in files:
        read_conllu(path)
    return _hash_of_files(files)


def _hash_of_pairs(folder: Path) -> str:
    read_pairs(folder)
    return _hash_of_files(sorted(folder.glob("*.jsonl")))


def _hash_of_glue(folder: Path) -> str:
    digest = hashlib.sha256()
    for one in _glue_tasks(folder):
        digest.update(one.task.encode() + b"\0" + one.load().sha256.encode())
    return digest.hexdigest()


class Probe(NamedTuple):
    """A probe and its input."""

    measure: Callable[[Subject], dict[str, float]]
    metrics: tuple[str, ...] = ()
    """The numbers that are declared by default; empty: not known in advance."""
    folder: str = ""
    """Words for the folder that it reads; empty: it reads none."""
    fingerprint: Callable[[Path], str] = str
    """A hash of the files in the folder, which are checked as far as is quick: before hours of training, not after."""


def _squad(version: Literal[1, 2]) -> Probe:
    name = _VERSIONS[version]
    return Probe(
        partial(squad, version=version),
        ("em", "f1"),
        f"a folder with train-v{name}.json and dev-v{name}.json",
        lambda folder: _squad_task(folder, version).load().sha256,
    )


_GLUE = (*(column.removeprefix("glue/") for column in glue_table.COLUMNS.values()), "average")
_PAIRS = ("discriminator", "appendix-g", "encoder", "pseudo-likelihood", "generator")
PROBES = {
    "held-out": Probe(held_out),
    "pos": Probe(part_of_speech, ("accuracy",), "the folder of a treebank in CoNLL-U", _hash_of_treebank),
    "minimal-pairs": Probe(minimal_pairs, _PAIRS, "the folder of BLiMP's .jsonl files", _hash_of_pairs),
    "glue": Probe(glue, _GLUE, "GLUE's folder", _hash_of_glue),
    "squad1": _squad(1),
    "squad2": _squad(2),
}


def parse_probes(words: Sequence[str]) -> dict[str, Path | None]:
    """`["held-out", "pos=DIR"]` -> name and folder of each.

    Raises:
        ConfigError: no such probe, one given twice, or a folder missing or one too many.
    """
    probes: dict[str, Path | None] = {}
    for word in words:
        name, _, folder = word.partition("=")
        require_known(f"--probe {word}: unknown probe {name!r}", name, PROBES)
        if name in probes:
            raise ConfigError(f"--probe {name}: is given twice.")
        if bool(folder) != bool(its := PROBES[name].folder):
            needs = f"{name}=DIR, {its}" if its else f"{name}, which reads no folder"
            raise ConfigError(f"--probe {word}: expected --probe {needs}.")
        probes[name] = Path(folder) if folder else None
    return probes


def fingerprint(name: str, folder: Path | None) -> str | None:
    """A hash of the files that a probe reads.

    Raises:
        MissingInputError, DataError: the files are missing, or are not what the probe reads.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise MissingInputError(f"--probe {name}={folder}: no such folder. Expected {PROBES[name].folder}.")
    return PROBES[name].fingerprint(folder)


def probe(names: Mapping[str, str | None], subject: Subject) -> dict[str, float]:
    """The numbers of some probes, each under `PROBE/name`.

    Raises:
        Diverged: a probe gave NaN or an infinite number, as NaN weights do.
    """
    metrics: dict[str, float] = {}
    for name, folder in names.items():
        found = PROBES[name].measure(replace(subject, folder=Path(folder or "")))
        if bad := [metric for metric, value in found.items() if not math.isfinite(value)]:
            raise Diverged(f"probe {name} gave {bad[0]} = {found[bad[0]]}.")
        metrics |= {f"{name}/{metric}": value for metric, value in found.items()}
    return metrics
