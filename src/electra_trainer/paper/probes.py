"""Probes: what is asked of the encoder that a cell kept. None downloads anything.

    held-out              the objective's own metrics over all held-out rows, always with the same masks
    pos=TREEBANK          part-of-speech tags from the frozen encoder (part_of_speech.py)
    minimal-pairs=FOLDER  which sentence of a pair is the grammatical one (minimal_pairs.py)
    glue=FOLDER           fine-tuned on the tasks of GLUE in it (glue_probe.py): the columns of the paper's tables

A probe is one function, `Subject -> {name: number}`; `PROBES` names it, and its numbers appear as `PROBE/name`.

The probe `glue=FOLDER`: the kept encoder fine-tuned on the tasks of GLUE that are in a folder, by the paper's recipe (Table 6).
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from electra_trainer.data.conllu import read_conllu, treebank_file
from electra_trainer.errors import ConfigError, Diverged, MissingInputError, did_you_mean, storage_error
from electra_trainer.finetuning.glue.glue_table import Spread, TaskScores, glue_metrics
from electra_trainer.finetuning.glue.glue_tasks import PAPER, GlueTask, tasks_in
from electra_trainer.finetuning.recipe import recipe
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.inspection.evaluate import evaluate
from electra_trainer.paper.minimal_pairs import minimal_pairs as score_pairs
from electra_trainer.paper.minimal_pairs import read_pairs
from electra_trainer.paper.part_of_speech import probe_tags
from electra_trainer.paper.published import GLUE_TASKS
from electra_trainer.pretrained.pretrained import kept_encoder, load
from electra_trainer.pretrained.source import load_source
from electra_trainer.train.device import choose_device


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a probe is given."""

    run: Path
    """The run folder of the cell."""
    data: Path
    """The prepared rows that it was trained on."""
    folder: Path | None
    """The folder that was named with the probe."""
    seed: int
    device: str
    sentences: int
    """Sentences that a probe which learns is trained on."""
    pairs: int
    """Minimal pairs that are read of each paradigm."""


def held_out(subject: Subject) -> dict[str, float]:
    """Losses, accuracies and AUC of the objective itself."""
    return evaluate(subject.run, subject.data, device=subject.device).metrics


def part_of_speech(subject: Subject) -> dict[str, float]:
    """Accuracy of the tags that a linear layer reads from a mix of all layers, and its baselines."""
    assert subject.folder is not None
    pretrained = load(subject.run)
    scores = probe_tags(
        kept_encoder(pretrained),
        pretrained.tokenizer,
        length=pretrained.length,
        train=read_conllu(treebank_file(subject.folder, "train")),
        dev=read_conllu(treebank_file(subject.folder, "dev")),
        sentences=subject.sentences,
        seed=subject.seed,
        device=choose_device(subject.device),
    )
    return {
        "accuracy": scores.accuracy,
        "embeddings_accuracy": scores.embeddings_accuracy,
        "majority_accuracy": scores.majority_accuracy,
        "mean_layer": scores.mean_layer,
    }


def minimal_pairs(subject: Subject) -> dict[str, float]:
    """Share of the pairs whose grammatical sentence is preferred, for each score that the networks can give."""
    assert subject.folder is not None
    pretrained = load(subject.run).to(choose_device(subject.device))
    found = score_pairs(pretrained, subject.folder, limit=subject.pairs)
    return {name: score.mean for name, score in found.scores.items()}


def glue(subject: Subject) -> dict[str, float]:
    """Dev scores of each task of the paper that is in the folder, fine-tuned once, with the subject's seed."""
    assert subject.folder is not None
    return probe_glue(subject.run, subject.folder, seed=subject.seed, device=subject.device)


ProbeFunction = Callable[[Subject], dict[str, float]]
PROBES: dict[str, ProbeFunction] = {
    "held-out": held_out,
    "pos": part_of_speech,
    "minimal-pairs": minimal_pairs,
    "glue": glue,
}
METRICS: dict[str, tuple[str, ...]] = {
    "pos": ("accuracy", "embeddings_accuracy", "majority_accuracy", "mean_layer"),
    "minimal-pairs": ("discriminator", "appendix-g", "encoder", "pseudo-likelihood", "generator"),
    "glue": (*GLUE_TASKS, "average"),
}
"""What a probe may give, where that is known before it is asked."""
_NEEDS_FOLDER = {
    "pos": "the folder of a treebank in CoNLL-U",
    "minimal-pairs": "the folder of BLiMP's .jsonl files",
    "glue": "GLUE's folder, or that of one of its tasks",
}
"""Probes that read something, and what it is."""


def parse_probes(words: Sequence[str]) -> dict[str, Path | None]:
    """`["held-out", "pos=DIR"]` -> name and folder of each.

    Raises:
        ConfigError: no such probe, or a folder missing or one too many.
    """
    probes: dict[str, Path | None] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if name not in PROBES:
            raise ConfigError(
                f"--probe {word}: unknown probe {name!r}.{did_you_mean(name, PROBES)} Known: {', '.join(PROBES)}."
            )
        if name in probes:
            raise ConfigError(f"--probe {name}: is given twice.")
        needs = _NEEDS_FOLDER.get(name)
        if needs and not folder:
            raise ConfigError(f"--probe {name}: expected --probe {name}=DIR, {needs}.")
        if equals and not needs:
            raise ConfigError(f"--probe {word}: {name} reads no folder. Give --probe {name}.")
        probes[name] = Path(folder) if needs else None
    return probes


def fingerprint(name: str, folder: Path | None) -> str | None:
    """A hash of the files that a probe reads, which are checked as far as is quick: before hours of training, not after.

    Raises:
        MissingInputError, DataError: they are not there, or not what the probe reads.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise MissingInputError(f"--probe {name}={folder}: no such folder. Expected {_NEEDS_FOLDER[name]}.")
    if name == "glue":
        return glue_fingerprint(folder)
    if name == "pos":
        files = [treebank_file(folder, "train"), treebank_file(folder, "dev")]
        for path in files:
            read_conllu(path)
    else:
        files = sorted(folder.glob("*.jsonl"))  # as read_pairs finds them
        if not files:
            raise MissingInputError(f"--probe {name}={folder}: holds no .jsonl file. Expected {_NEEDS_FOLDER[name]}.")
        read_pairs(folder)
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise storage_error(error, path) from None
    return digest.hexdigest()


def probe(names: Mapping[str, str | None], subject: Subject) -> dict[str, float]:
    """The numbers of some probes, each under `PROBE/name`.

    Raises:
        Diverged: a probe gave a number that is none, of weights that are none.
    """
    metrics: dict[str, float] = {}
    for name, folder in names.items():
        found = PROBES[name](replace(subject, folder=Path(folder) if folder else None))
        bad = [metric for metric, value in found.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(f"probe {name} gave {bad[0]} = {found[bad[0]]}.")
        metrics |= {f"{name}/{metric}": value for metric, value in found.items()}
    return metrics


def probe_glue(run: Path, folder: Path, *, seed: int, device: str) -> dict[str, float]:
    """Scores on the dev sets by the names of the paper's columns, `cola`, `sst` ... and `average` if all eight tasks are there.

    Each task is a run folder of its own in `glue/` beside `run`, so that what was done is not done again.

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    source = load_source(run)
    scores = []
    for task in _tasks(folder):
        given = GlueTask(folder=str(folder), task=task, test=False)
        settings = recipe("paper", hidden_size=source.model.hidden_size, epochs=given.epochs)
        job = Job(source=source, data=given.load(), recipe=settings.fitted(source.length), seed=seed)
        result = finetune_run(job, out=run.parent / "glue" / task, device=device, quiet=True)
        by_split = {
            split: {metric: Spread(by_seed={seed: value}) for metric, value in values.items()}
            for split, values in result.scores.items()
        }
        scores.append(TaskScores(task=task, scores=by_split))
    return {name.removeprefix("glue/"): value for name, value in glue_metrics(scores).items()}


def glue_fingerprint(folder: Path) -> str:
    """A hash of the files that the probe reads, all of which are read.

    Raises:
        MissingInputError, DataError: no task is there, or a row is none.
    """
    digest = hashlib.sha256()
    for task in _tasks(folder):
        digest.update(task.encode() + b"\0")
        digest.update(GlueTask(folder=str(folder), task=task, test=False).load().sha256.encode())
    return digest.hexdigest()


def _tasks(folder: Path) -> list[str]:
    found = [task for task in tasks_in(folder) if task in PAPER]
    if not found:
        raise MissingInputError(
            f"--probe glue={folder}: holds no task of GLUE. Expected folders such as CoLA and RTE with train.tsv and dev.tsv."
        )
    return found
