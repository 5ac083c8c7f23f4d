"""Probes: measurements of the encoder that a cell of an experiment trained. None downloads anything.

    held-out               the objective's own metrics over all held-out rows, always with the same masks
    pos=TREEBANK           part-of-speech tags from the frozen encoder (frozen.py)
    sentences=FOLDER       similarity and sentiment of sentences from the frozen encoder (frozen.py), GLUE's folder
    minimal-pairs=FOLDER   which sentence of a pair is the grammatical one (minimal_pairs.py)
    glue=FOLDER            scores on the tasks of GLUE in it, after fine-tuning by the paper's recipe (Table 6)
    squad1, squad2=FOLDER  the same of SQuAD 1.1 and 2.0
    quick=FOLDER           pos, sentences and minimal-pairs in the folders of FOLDER: the parts of Q (statistics.py)

A probe is one function, `Subject -> {name: number}`; `PROBES` names it, and its numbers appear as `PROBE/name`.
"""

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from electra_trainer.data.conllu import read_conllu, treebank_file
from electra_trainer.errors import ConfigError, Diverged, MissingInputError, did_you_mean
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.finetuning.glue import glue_table, glue_tasks
from electra_trainer.finetuning.recipe import recipe
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.finetuning.squad.squad_task import Squad
from electra_trainer.finetuning.task import TaskSource
from electra_trainer.inspection.replay import evaluate
from electra_trainer.paper.frozen import SENTENCE_SCORES, probe_sentences, probe_tags, sentence_tasks
from electra_trainer.paper.minimal_pairs import minimal_pairs as score_pairs
from electra_trainer.paper.minimal_pairs import read_pairs
from electra_trainer.paper.published import GLUE_TASKS, SQUAD
from electra_trainer.pretrained.pretrained import kept_encoder, load
from electra_trainer.pretrained.source import Source, load_source
from electra_trainer.train.device import choose_device


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The input of a probe."""

    run: Path
    """The run folder of the cell."""
    data: Path
    """The prepared rows that it was trained on."""
    folder: Path | None
    """The folder that was given with the probe."""
    seed: int
    device: str
    sentences: int
    """Training sentences of a probe that learns."""
    pairs: int
    """Minimal pairs that are read of each paradigm."""
    tunings: int = 1
    """Fine-tuning seeds of a probe that fine-tunes."""


def held_out(subject: Subject) -> dict[str, float]:
    """Losses, accuracies and AUC of the objective itself."""
    return evaluate(subject.run, subject.data, device=subject.device).metrics


def _encoder_of(subject: Subject) -> dict[str, Any]:
    """The frozen encoder and what reads texts for it."""
    found = load(subject.run)
    return {
        "encoder": kept_encoder(found),
        "tokenizer": found.tokenizer,
        "length": found.length,
        "seed": subject.seed,
        "device": choose_device(subject.device),
    }


def part_of_speech(subject: Subject) -> dict[str, float]:
    """Accuracy of the tags that a linear layer reads from a mix of all layers, and its baseline."""
    assert subject.folder is not None
    train, dev = (read_conllu(treebank_file(subject.folder, split)) for split in ("train", "dev"))
    return probe_tags(**_encoder_of(subject), train=train, dev=dev, sentences=subject.sentences)


def sentences(subject: Subject) -> dict[str, float]:
    """STS-B and SST-2 by a linear model upon means of tokens, and the same upon random word vectors."""
    assert subject.folder is not None
    return probe_sentences(**_encoder_of(subject), folder=subject.folder)


def minimal_pairs(subject: Subject) -> dict[str, float]:
    """Share of the pairs whose grammatical sentence is preferred, for each score that the networks can give."""
    assert subject.folder is not None
    found = score_pairs(load(subject.run).to(choose_device(subject.device)), subject.folder, limit=subject.pairs)
    return {name: score.mean for name, score in found.scores.items()}


def glue(subject: Subject) -> dict[str, float]:
    """Dev scores of the paper's tasks in the folder, by the names of its columns, `cola`, `sst` … and `average` if all
    eight are there; of several fine-tuning seeds the medians (§3.1).

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    assert subject.folder is not None
    source = load_source(subject.run)
    scores = {}
    for given in _glue_tasks(subject.folder):
        found = _fine_tuned(subject, source, given, folder="glue")
        scores[given.task] = found[glue_tasks.ROWS[given.task].metrics[0]]
    return {name.removeprefix("glue/"): value for name, value in glue_table.glue_metrics(scores).items()}


def squad(subject: Subject, *, version: Literal[1, 2]) -> dict[str, float]:
    """Exact match and F1 on SQuAD's dev file (Table 3), as `em` and `f1`, of 2.0 at the best threshold; of several
    fine-tuning seeds the medians.

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    assert subject.folder is not None
    given = _squad_task(subject.folder, version)
    found = _fine_tuned(subject, load_source(subject.run), given, folder=f"squad{version}")
    return {column.partition("/")[2]: found[name] for name, column in SQUAD[given.name].items()}


def _fine_tuned(subject: Subject, source: Source, given: TaskSource, *, folder: str) -> dict[str, float]:
    """Medians over the fine-tuning seeds of a task's scores on its main split, by the paper's recipe.

    Each run is a folder next to the subject's run, so that finished ones are not repeated.
    """
    data = given.load()
    longest = {"max_length": getattr(given, "max_length", None)}
    settings = recipe("paper", hidden_size=source.model.hidden_size, epochs=given.epochs, **longest).fitted(
        source.length
    )
    beside = subject.run.parent / folder
    found = []
    for seed in range(subject.seed, subject.seed + _APART * subject.tunings, _APART):
        out = beside / (given.name if seed == subject.seed else f"{given.name}-{seed}")
        job = Job(source=source, data=data, recipe=settings, seed=seed)
        found.append(finetune_run(job, out=out, device=subject.device, quiet=True).by_split[next(iter(data.dev))])
    return {name: statistics.median(scores[name] for scores in found) for name in found[0]}


def _squad_task(folder: Path, version: Literal[1, 2]) -> Squad:
    """The files by their official names."""
    train, dev = (folder / f"{split}-v{_VERSIONS[version]}.json" for split in ("train", "dev"))
    for path in (train, dev):
        if not path.is_file():
            raise MissingInputError(
                f"--probe squad{version}={folder}: no {path.name} is there. Expected "
                f"{_NEEDS_FOLDER[f'squad{version}']}."
            )
    return Squad(train=train, dev=dev, version=version)


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


ProbeFunction = Callable[[Subject], dict[str, float]]
PROBES: dict[str, ProbeFunction] = {
    "held-out": held_out,
    "pos": part_of_speech,
    "sentences": sentences,
    "minimal-pairs": minimal_pairs,
    "glue": glue,
    "squad1": partial(squad, version=1),
    "squad2": partial(squad, version=2),
}
METRICS: dict[str, tuple[str, ...]] = {
    "pos": ("accuracy", "majority_accuracy"),
    "sentences": SENTENCE_SCORES,
    "minimal-pairs": ("discriminator", "appendix-g", "encoder", "pseudo-likelihood", "generator"),
    "glue": (*GLUE_TASKS, "average"),
    "squad1": ("em", "f1"),
    "squad2": ("em", "f1"),
}
"""The numbers that a probe can give, where they are known in advance."""
_NEEDS_FOLDER = {
    "pos": "the folder of a treebank in CoNLL-U",
    "sentences": "GLUE's folder, with STS-B and SST-2",
    "minimal-pairs": "the folder of BLiMP's .jsonl files",
    "glue": "GLUE's folder, or that of one of its tasks",
    "squad1": "a folder with train-v1.1.json and dev-v1.1.json",
    "squad2": "a folder with train-v2.0.json and dev-v2.0.json",
}
"""The folder of each probe that reads one."""


def parse_probes(words: Sequence[str]) -> dict[str, Path | None]:
    """`["held-out", "pos=DIR"]` -> name and folder of each.

    Raises:
        ConfigError: no such probe, one given twice, or a folder missing or one too many.
    """
    probes: dict[str, Path | None] = {}
    for word in (one for given in words for one in (_quick(given) if given.partition("=")[0] == "quick" else [given])):
        name, _, folder = word.partition("=")
        if name not in PROBES:
            known = (*PROBES, "quick")
            raise ConfigError(
                f"--probe {word}: unknown probe {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
        if name in probes:
            raise ConfigError(f"--probe {name}: is given twice.")
        if bool(folder) != (name in _NEEDS_FOLDER):
            needs = f"{name}=DIR, {_NEEDS_FOLDER[name]}" if name in _NEEDS_FOLDER else f"{name}, which reads no folder"
            raise ConfigError(f"--probe {word}: expected --probe {needs}.")
        probes[name] = Path(folder) if folder else None
    return probes


def _quick(word: str) -> list[str]:
    """`quick=DIR` as the probes of its folders."""
    folder = word.partition("=")[2]
    root = Path(folder or ".")
    treebanks = sorted(path.parent for depth in ("*", "*/*") for path in root.glob(f"{depth}/*train.conllu"))
    if not folder or not treebanks:
        raise ConfigError(
            f"--probe {word}: expected --probe quick=DIR, a folder with glue/, blimp/ and the folder of a treebank in "
            "CoNLL-U."
        )
    return [f"pos={treebanks[0]}", f"sentences={root / 'glue'}", f"minimal-pairs={root / 'blimp'}"]


def fingerprint(name: str, folder: Path | None) -> str | None:
    """A hash of the files that a probe reads. They are checked as far as is quick: before hours of training, not after.

    Raises:
        MissingInputError, DataError: the files are missing, or are not what the probe reads.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise MissingInputError(f"--probe {name}={folder}: no such folder. Expected {_NEEDS_FOLDER[name]}.")
    digest = hashlib.sha256()
    if name in ("squad1", "squad2"):
        return _squad_task(folder, 1 if name == "squad1" else 2).load().sha256
    if name in ("glue", "sentences"):
        for task in _glue_tasks(folder) if name == "glue" else sentence_tasks(folder):
            digest.update(task.task.encode() + b"\0" + task.load().sha256.encode())
        return digest.hexdigest()
    if name == "pos":
        files = [treebank_file(folder, split) for split in ("train", "dev")]
        for path in files:
            read_conllu(path)
    else:
        files = sorted(folder.glob("*.jsonl"))
        read_pairs(folder)
    for path in files:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(read_file(path, limit=MOST_TEXT)).digest())
    return digest.hexdigest()


def probe(names: Mapping[str, str | None], subject: Subject) -> dict[str, float]:
    """The numbers of some probes, each under `PROBE/name`.

    Raises:
        Diverged: a probe gave NaN or an infinite number, as NaN weights do.
    """
    metrics: dict[str, float] = {}
    for name, folder in names.items():
        found = PROBES[name](replace(subject, folder=Path(folder) if folder else None))
        bad = [metric for metric, value in found.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(f"probe {name} gave {bad[0]} = {found[bad[0]]}.")
        metrics |= {f"{name}/{metric}": value for metric, value in found.items()}
    return metrics
