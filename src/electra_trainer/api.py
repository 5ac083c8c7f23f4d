"""The verbs from Python: `from electra_trainer import pretrain, load; load("RUN").score("…")`."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.cli.text_verbs import vocabulary_of, warn_of_unreadable
from electra_trainer.data import prepare as preparation
from electra_trainer.data.corpus import Input, PrepareSettings, Reading
from electra_trainer.data.store import Manifest
from electra_trainer.data.tokenizer import load_tokenizer, require_new, save_new_tokenizer, statistics
from electra_trainer.errors import ConfigError, tell
from electra_trainer.experiments.summary import Summary, remarks
from electra_trainer.files.reading import refuse_columns
from electra_trainer.files.sources import Texts
from electra_trainer.finetuning.model_folder import Finetuned as Finetuned
from electra_trainer.finetuning.model_folder import load_finetuned as load_finetuned
from electra_trainer.finetuning.request import exported
from electra_trainer.finetuning.tuning import Tuning
from electra_trainer.inspection.replay import evaluate as evaluate
from electra_trainer.inspection.replay import replay as replay
from electra_trainer.inspection.report import write_report
from electra_trainer.paper.cloze import cloze as cloze
from electra_trainer.paper.minimal_pairs import minimal_pairs as minimal_pairs
from electra_trainer.paper.request import Compare
from electra_trainer.presets.models import preset as preset
from electra_trainer.pretrained.pretrained import Pretrained as Pretrained
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.pretrained import load as load
from electra_trainer.settings.calls import checked
from electra_trainer.settings.config import Config as Config
from electra_trainer.tasks.own_files import OwnTask as OwnTask
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import TaskSource
from electra_trainer.train.from_flags import settings_from

export, report = export_run, write_report


@partial(checked, fills=[Reading])
def train_tokenizer(
    files: str | Path | Sequence[str | Path] = (),
    *,
    documents: Iterable[object] = (),
    out: str | Path | None = None,
    vocab_size: int = 30522,
    cased: bool = False,
    keep_accents: bool | None = None,
    nfc: bool = False,
    max_length: int = 512,
    **reading: Any,
) -> Tokenizer:
    """Train a WordPiece vocabulary.

    Args:
        files: as for `electra tokenizer`: files, folders, patterns, URLs, names of data sets, or "docstrings".
        documents: texts, lists of lines, mappings with the field "text", or a data set of the package `datasets`. Read
            twice; what can be iterated only once is put into a list.
        out: a new or empty folder for tokenizer.json and vocab.txt; None writes nothing.
        vocab_size: largest number of tokens. A text that is too small for it gives fewer.
        cased, keep_accents: keep capitals; keep accents (None: if `cased`, and where they are part of the script, as in
            Hindi).
        nfc: compose letters and their marks first, so that both spellings of a word are the same.
        max_length: model_max_length for transformers.
        reading: fields of `electra_trainer.data.corpus.Reading`, such as text_field="body".

    Raises:
        ElectraError: see errors.py.
    """
    if out is not None:
        require_new(Path(out))
    tokenizer, _ = preparation.train_tokenizer_from(
        _inputs(files, list(documents) if isinstance(documents, Iterator) else documents),
        vocab_size=vocab_size,
        cased=cased,
        keep_accents=keep_accents,
        nfc=nfc,
        reading=Reading(**reading),
    )
    if out is not None:
        save_new_tokenizer(tokenizer, Path(out), max_length=max_length)
    return tokenizer


@partial(checked, fills=[PrepareSettings])
def prepare(
    files: str | Path | Sequence[str | Path] = (),
    *,
    documents: Iterable[object] = (),
    tokenizer: str | Path | Tokenizer,
    out: str | Path,
    seq_len: int = 128,
    **settings: Any,
) -> Manifest:
    """Turn text into rows of token ids, a folder to pre-train on; the same rows every time, whatever the workers.

    Args:
        files: as for `electra prepare`: files, folders, patterns, URLs, names of data sets, or "docstrings".
        documents: texts, lists of lines, mappings with the field "text", or a data set of the package `datasets`; read
            once, in order.
        tokenizer: a folder or file, or what `train_tokenizer` returned.
        out: a new or empty folder.
        seq_len: tokens a row.
        settings: fields of `electra_trainer.data.corpus.PrepareSettings`, such as valid_fraction=0.01,
            text_field="body".

    Returns:
        What was made: rows, tokens, documents, their share that is held out.

    Raises:
        ElectraError: see errors.py.
    """
    known = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(vocabulary_of(tokenizer))
    latest = deque[preparation.Progress](maxlen=1)
    made = preparation.prepare(
        _inputs(files, documents),
        tokenizer=known,
        sequence_length=seq_len,
        out=out,
        settings=PrepareSettings(**settings),
        progress=latest.append,
    )
    for last in latest:
        warn_of_unreadable(statistics(known, last.report.sample.lines), tokenizer)
    return made


def _inputs(files: str | Path | Sequence[str | Path], documents: Iterable[object]) -> list[Input]:
    named: list[Input] = [files] if isinstance(files, str | Path) else [*files]
    if isinstance(documents, str):
        raise ConfigError("documents: is one text. Give a list of texts, or name a file without documents=.")
    refuse_columns(documents, where="documents", error=ConfigError)
    has_some = not (isinstance(documents, Sequence) and not documents)
    if not named and not has_some:
        raise ConfigError("give files, or documents=: texts, lists of lines, or a data set.")
    return [*named, Texts(documents)] if has_some else named


@partial(checked, fills=[Pretrain])
def pretrain(
    data: str | Path, *, out: str | Path, preset: str | Config | None = None, seed: int | None = None, **fields: Any
) -> Pretrained:
    """Pre-train on prepared data, or resume the run in `out`; like `electra pretrain`, it ends with a report.

    Args:
        data: a folder that `electra prepare` made.
        out: the run folder.
        preset: a preset's name, or a whole Config. None: that of the run in init or continue_from, else small.
        seed: of weights, order, masks, samples and dropout; None keeps the preset's.
        fields: the other fields of `electra_trainer.cli.pretrain.Pretrain`, its flags: at most one of steps, budget,
            flops and flops_real; init, continue_from, device, quiet, track.

    Returns:
        The trained networks, ready to score, fill and export.

    Raises:
        ElectraError: see errors.py.
    """
    named = {"preset": preset, "out": out, **{name: fields.get(name) for name in ("init", "continue_from")}}
    words = [f"--{name}={value}" for name, value in named.items() if value is not None]
    config = preset if isinstance(preset, Config) else settings_from(words)
    config = config if seed is None else replace(config, seed=seed)
    Pretrain(data=Path(data), out=Path(out), settings=config, **fields).run()
    return load(out)


@partial(checked, fills=[Compare])
def compare(
    data: str | Path,
    *,
    out: str | Path,
    arms: str | Sequence[str | tuple[str, Config]],
    preset: str | Config = "small",
    seeds: int | Sequence[int] = 3,
    metrics: str | Sequence[str] | None = None,
    **fields: Any,
) -> Summary:
    """Pre-train several arms with several seeds at equal compute, and compare what their encoders learned.

    Args:
        data: a folder that `electra prepare` made.
        out: the experiment's folder; the same call resumes, more seeds, arms or probes extend it.
        arms: names from `electra_trainer.presets.arms`, kinds of objectives, `untrained`, or ("mine", config) for a
            whole Config of your own; the first is the reference of all differences.
        preset: a preset's name, or a whole Config.
        seeds: how many (1, 2, ...), or which.
        metrics: the declared metrics, such as ["pos/accuracy"]; None: the usual ones.
        fields: the other fields of `electra_trainer.paper.request.Compare`, its flags: one of flops and steps; match,
            probe and what begins with it, sweep; parallel, device, quiet.

    Returns:
        Means, differences and the state of every cell; also in `out` as summary.json and summary.md.

    Raises:
        ElectraError: see errors.py.
    """
    names = arms if isinstance(arms, str) else [one if isinstance(one, str) else one[0] for one in arms]
    fields |= {"arms": _listed(names), "seeds": _listed(seeds), "settings": _config(preset)}
    fields["own"] = dict(one for one in arms if not isinstance(one, str))
    fields["metrics"] = None if metrics is None else _listed(metrics)
    return _warned(Compare(data=Path(data), out=Path(out), **fields).run())


def _config(given: str | Config) -> Config:
    return preset(given) if isinstance(given, str) else given


def _listed(values: str | int | Sequence[object]) -> str:
    """A list as a flag takes it. The comma at its end makes a single number a seed."""
    return str(values) if isinstance(values, str | int) else "".join(f"{value}," for value in values)


def _warned(summary: Summary) -> Summary:
    """Print warnings and doubts, as a command does with its tables, `quiet` or not."""
    for line in remarks(summary):
        if any(word in line for word in ("warning: ", "DOUBTFUL: ", "FAILED: ")):
            tell(line)
    return summary


@partial(checked, fills=[Tuning, Recipe])
def finetune(
    model: str | Path,
    task: str | Path | TaskSource,
    *,
    out: str | Path,
    seeds: int | Sequence[int] | None = None,
    recipe: Literal["auto", "paper", "released"] = "auto",
    **fields: Any,
) -> Finetuned:
    """Fine-tune an encoder on a task with several seeds, or resume where that stopped; the best run is exported to
    OUT/model.

    Args:
        model: a run folder, an exported folder, or a Hub name.
        task: where the data are: "reviews.csv", which is `OwnTask(train="reviews.csv")`, or of
            `electra_trainer.tasks` a `own_files.RegressionTask`, `multi_label.MultiLabelTask`, `tagging.TaggingTask`,
            `questions.SquadTask` or `glue_tasks.GlueTask`.
        out: the experiment's folder; scores are in its summary.json and summary.md.
        seeds: how many (1, 2, ...), or which; None: 3, of a cross-validated table 1.
        recipe: paper, released, or auto: the paper's, and of own tables what was measured on small files.
        fields: the other fields of `electra_trainer.finetuning.tuning.Tuning`: baselines, search, parallel, device,
            quiet, track, and `against`, another model that is fine-tuned with the same seeds on the same rows; and
            fields of `electra_trainer.tasks.recipe.Recipe`, such as learning_rate=1e-4.

    Returns:
        The best run, ready to predict.

    Raises:
        ElectraError: see errors.py.
    """
    if isinstance(task, str | Path):
        task = OwnTask(train=task)
    elif isinstance(task, type) or not hasattr(task, "load"):
        raise ConfigError(f"finetune: task is a {type(task).__name__}. Give a file of rows, or OwnTask(train=FILE).")
    changes = {name: fields.pop(name) for name in [*fields] if name in Recipe.__dataclass_fields__}
    asked = Tuning(
        model=str(model),
        out=Path(out),
        seeds=None if seeds is None else _listed(seeds),
        recipe=recipe,
        changes=Recipe(**changes),
        typed=tuple(f"--{name}" for name in changes),
        **fields,
    )
    tuned = exported(asked, task, next_command="")
    _warned(tuned.summary)
    return load_finetuned(tuned.model, own=[type(tuned.data.task)])
