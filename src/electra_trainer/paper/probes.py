"""Probes: measurements of the encoder that a cell of an experiment trained. None downloads anything.

    held-out              the objective's own metrics over all held-out rows, always with the same masks
    pos=TREEBANK          part-of-speech tags from the frozen encoder (frozen.py)
    sentences=FOLDER      similarity and sentiment of sentences from the frozen encoder (frozen.py), GLUE's
    folder minimal-pairs=FOLDER  which sentence of a pair is the grammatical one (minimal_pairs.py) glue=FOLDER
    scores on the tasks of GLUE in it, after fine-tuning by the paper's recipe (Table 6) squad1, squad2=FOLDER the same
    of SQuAD 1.1 and 2.0; squad=FOLDER: those versions whose files are in it quick=FOLDER          pos, sentences and
    minimal-pairs in the folders of FOLDER: what Q is made of (statistics.py)

`nested-pos` and so on are scored on a part of their training rows, which they do not train on: what is chosen by them
says nothing yet of the rows that tables report.

A probe is one function, `Subject -> {name: number}`; `PROBES` names it, and its numbers appear as `PROBE/name`.
"""

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

from electra_trainer.data.conllu import read_conllu, treebank_file
from electra_trainer.errors import ConfigError, Diverged, MissingInputError, did_you_mean
from electra_trainer.experiments.sweep import NESTED
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.finetuning import glue_table, glue_tasks
from electra_trainer.finetuning.recipe import recipe
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.finetuning.search import TrainingRows
from electra_trainer.finetuning.squad_task import Squad
from electra_trainer.finetuning.task import TaskSource
from electra_trainer.inspection.replay import evaluate
from electra_trainer.paper.frozen import SentenceScores, TagScores, probe_sentences, probe_tags, sentence_tasks
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
    nested: bool = False
    """Score on a part of the training rows."""


def held_out(subject: Subject) -> dict[str, float]:
    """Losses, accuracies and AUC of the objective itself."""
    return evaluate(subject.run, subject.data, device=subject.device).metrics


def part_of_speech(subject: Subject) -> dict[str, float]:
    """Accuracy of the tags that a linear layer reads from a mix of all layers, and its baselines."""
    assert subject.folder is not None
    pretrained = load(subject.run)
    train = read_conllu(treebank_file(subject.folder, "train"))
    if subject.nested:
        train, dev = [one for at, one in enumerate(train) if at % 10], train[::10]
    else:
        dev = read_conllu(treebank_file(subject.folder, "dev"))
    scores = probe_tags(
        kept_encoder(pretrained),
        pretrained.tokenizer,
        length=pretrained.length,
        train=train,
        dev=dev,
        sentences=subject.sentences,
        seed=subject.seed,
        device=choose_device(subject.device),
    )
    return asdict(scores)


def sentences(subject: Subject) -> dict[str, float]:
    """STS-B and SST-2 by a linear model upon means of tokens, and the same upon random word vectors."""
    assert subject.folder is not None
    pretrained = load(subject.run)
    scores = probe_sentences(
        kept_encoder(pretrained),
        pretrained.tokenizer,
        subject.folder,
        length=pretrained.length,
        seed=subject.seed,
        device=choose_device(subject.device),
        nested=subject.nested,
    )
    return asdict(scores)


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
    given = _squad_task(subject.folder, version, nested=subject.nested)
    found = _fine_tuned(subject, load_source(subject.run), given, folder=f"squad{version}")
    return {column.partition("/")[2]: found[name] for name, column in SQUAD[given.name].items()}


def _fine_tuned(subject: Subject, source: Source, given: TaskSource, *, folder: str) -> dict[str, float]:
    """Medians over the fine-tuning seeds of a task's scores on its main split, by the paper's recipe.

    Each run is a folder next to the subject's run, so that finished ones are not repeated.
    """
    nested = subject.nested and not isinstance(given, Squad)  # which divides its articles itself
    data = (TrainingRows(source=given) if nested else given).load()
    longest = {"max_length": getattr(given, "max_length", None)}
    settings = recipe("paper", hidden_size=source.model.hidden_size, epochs=given.epochs, **longest).fitted(
        source.length
    )
    beside = subject.run.parent / (NESTED * subject.nested + folder)
    found = []
    for seed in range(subject.seed, subject.seed + _APART * subject.tunings, _APART):
        out = beside / (given.name if seed == subject.seed else f"{given.name}-{seed}")
        job = Job(source=source, data=data, recipe=settings, seed=seed)
        found.append(finetune_run(job, out=out, device=subject.device, quiet=True).by_split[next(iter(data.dev))])
    return {name: statistics.median(scores[name] for scores in found) for name in found[0]}


def _squad_task(folder: Path, version: Literal[1, 2], *, nested: bool = False) -> Squad:
    """The files by their official names; nested: the training file alone, a tenth of its articles held out."""
    train, dev = (folder / f"{split}-v{_VERSIONS[version]}.json" for split in ("train", "dev"))
    for path in (train, dev):
        if not path.is_file():
            raise MissingInputError(
                f"--probe squad{version}={folder}: no {path.name} is there. Expected "
                f"{_NEEDS_FOLDER[f'squad{version}']}."
            )
    return Squad(train=train, dev=None if nested else dev, split=0.1 if nested else None, version=version)


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
    "pos": tuple(field.name for field in fields(TagScores)),
    "sentences": tuple(field.name for field in fields(SentenceScores)),
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


def _on_training_rows(subject: Subject, *, function: ProbeFunction) -> dict[str, float]:
    return function(replace(subject, nested=True))


for _name in ("pos", "sentences", "glue", "squad1", "squad2"):
    PROBES[NESTED + _name] = partial(_on_training_rows, function=PROBES[_name])
    METRICS[NESTED + _name], _NEEDS_FOLDER[NESTED + _name] = METRICS[_name], _NEEDS_FOLDER[_name]


def parse_probes(words: Sequence[str]) -> dict[str, Path | None]:
    """`["held-out", "pos=DIR"]` -> name and folder of each.

    Raises:
        ConfigError: no such probe, or a folder missing or one too many.
    """
    probes: dict[str, Path | None] = {}
    known = (*PROBES, "quick", "squad")
    for word in (one for given in words for one in _parts(given)):
        name, equals, folder = word.partition("=")
        if name not in PROBES:
            raise ConfigError(
                f"--probe {word}: unknown probe {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
        needs = _NEEDS_FOLDER.get(name)
        if name in probes:
            raise ConfigError(f"--probe {name}: is given twice.")
        if needs and not folder:
            raise ConfigError(f"--probe {name}: expected --probe {name}=DIR, {needs}.")
        if equals and not needs:
            raise ConfigError(f"--probe {word}: {name} reads no folder. Give --probe {name}.")
        probes[name] = Path(folder) if needs else None
    return probes


def _parts(word: str) -> list[str]:
    """`quick=DIR` and `squad=DIR` as the probes that they stand for; other words as they are."""
    name, _, folder = word.partition("=")
    if name.removeprefix(NESTED) == "squad":
        found = [version for version, name in _VERSIONS.items() if (Path(folder) / f"train-v{name}.json").is_file()]
        if not folder or not found:
            raise ConfigError(
                f"--probe {word}: expected --probe {name}=DIR, {_NEEDS_FOLDER['squad1']}, or those of v2.0."
            )
        return [f"{name}{version}={folder}" for version in found]
    if name != "quick":
        return [word]
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
    digest, name = hashlib.sha256(), name.removeprefix(NESTED)
    if name in ("squad1", "squad2"):
        return _squad_task(folder, 1 if name == "squad1" else 2).load().sha256
    if name in ("glue", "sentences"):
        tasks = _glue_tasks(folder) if name == "glue" else sentence_tasks(folder)
        for task in tasks:
            digest.update(task.task.encode() + b"\0" + task.load().sha256.encode())
        return digest.hexdigest()
    if name == "pos":
        files = [treebank_file(folder, split) for split in ("train", "dev")]
        for path in files:
            read_conllu(path)
    else:
        files = sorted(folder.glob("*.jsonl"))  # as read_pairs finds them
        if not files:
            raise MissingInputError(f"--probe {name}={folder}: holds no .jsonl file. Expected {_NEEDS_FOLDER[name]}.")
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
