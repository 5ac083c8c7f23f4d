"""Settle before the first step whether a run is new, its length and settings, and the weights it begins with."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer

from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import tokenizer_files
from electra_trainer.errors import ConfigError, DataError, tell
from electra_trainer.files.durable import write_output
from electra_trainer.ranks.world import led, on_rank_0, world
from electra_trainer.runs import checkpoint, progress, run_folder
from electra_trainer.settings import extensions, records
from electra_trainer.settings.config import FOLLOWS_FROM_STEPS, Config
from electra_trainer.train import plan, step
from electra_trainer.train.begin.continued import Continued, ContinueFrom, check_continued, same_weights
from electra_trainer.train.begin.initial import Initial, ReadsInitial, check_initial
from electra_trainer.train.begin.narrow_tables import fit_tables
from electra_trainer.train.begin.new_words import fit_words
from electra_trainer.train.begin.word_start import keep_directions
from electra_trainer.train.device import choose_precision
from electra_trainer.train.timing import activation_bytes, free_bytes, measure_time


def settle(
    config: Config,
    folder: run_folder.RunFolder,
    store: Store,
    *,
    length: plan.Length,
    device: torch.device,
    computed: str,
    init: ReadsInitial | ContinueFrom | None,
    status: progress.Status | None = None,
    say: Callable[[str], None],
) -> tuple[Config, Initial | Continued | None]:
    """Open the run folder on rank 0, and settle the config on every rank: that of the run on disk if there is one.

    Args:
        computed: its arithmetic, in words.

    Returns:
        The complete config; and on rank 0 what to begin with, None for fresh weights and on resume.

    Raises:
        ConfigError, DataError, StorageError: on every rank.
    """
    config = plan.fit_to_data(config, store)
    step.check_words(config, store)
    precision = choose_precision(config.precision, device)
    gpu = activation_bytes(precision, device)
    if gpu and (why := plan.does_not_fit(config, free_bytes(device) or 0, gpu=gpu)):
        raise ConfigError(f"The step does not fit {device}: {why}.")

    initial = on_rank_0(lambda: _opened(config, folder, store, init, status))
    settled = led(lambda: _on_disk(config, folder, store, length, computed))
    if not settled:
        timing = None
        if length.budget is not None:
            say("measuring the speed of this machine: a few steps and an evaluation, which take 6 s or more")
            timing = measure_time(config, store, device=device, precision=precision)
        facts = {"budget": length.budget, "device": device.type, "arithmetic": computed, "processes": world().size}
        settled = led(lambda: _begun(plan.steps_for(length, config, timing), folder, store, initial, facts, say))
        if status is not None and world().leads:
            status.running(folder)
    return records.read(Config, json.loads(settled), where=str(folder.path)), initial


def _opened(
    config: Config,
    folder: run_folder.RunFolder,
    store: Store,
    init: ReadsInitial | ContinueFrom | None,
    status: progress.Status | None,
) -> Initial | Continued | None:
    """Lock the folder, and read what the run begins with if it has not saved yet."""
    folder.open_for_writing()
    began = folder.environment().get("init") if folder.exists else None
    if folder.exists:
        if status is not None:
            status.running(folder)
        asked = f"{init.flag} {init.name}" if init else "fresh weights"
        given = " ".join(_flag(began)) or "fresh weights"
        if asked != given:
            remedy = "Repeat the first to resume, or choose another --out."
            raise ConfigError(f"{folder.path} began with {given}, and this command asks for {asked}. {remedy}")
    if init is None or (folder.exists and checkpoint.numbered(folder.checkpoints)):
        return None
    initial = init.read()
    if isinstance(initial, Initial):
        initial = fitted(initial, store.tokenizer(), config)
        check_initial(initial, config, store)
    if began and not same_weights(began, initial.identity):  # it ended before its first checkpoint
        raise ConfigError(f"{folder.path}: the weights of {initial.name} changed after it began. Choose another --out.")
    return initial


def _flag(began: Any) -> list[str]:
    """The words of a command that begin as a run did, from `init` of its environment.json."""
    return ["--continue-from" if "step" in began else "--init", str(began["name"])] if began else []


def fitted(initial: Initial, tokenizer: Tokenizer, config: Config) -> Initial:
    """The weights for a vocabulary with more words and for a narrower word table, where a run has these."""
    return fit_tables(fit_words(initial, tokenizer), config)


def _on_disk(config: Config, folder: run_folder.RunFolder, store: Store, length: plan.Length, computed: str) -> bytes:
    """The config of the run on disk, as JSON, empty if there is none; an error if it differs from the one asked for."""
    if not folder.exists:
        return b""
    began, facts = folder.config(), folder.environment()
    if facts.get("data") != store.identity:
        remedy = "Give the folder that it began with, or another --out."
        raise DataError(f"{folder.path} was trained on other data than {store.folder}. {remedy}")
    asked = plan.steps_for(length, config, None) if length.budget is None else config
    changed = records.differences(began, replace(asked, last_layer=began.last_layer))
    if length.budget is not None:  # its steps were measured when the run began
        changed = [c for c in changed if not c.startswith(FOLLOWS_FROM_STEPS)]
        if facts.get("budget") not in (None, length.budget):
            changed.append(f"budget: {facts['budget']} -> {length.budget}")
    if changed:
        words = ["--config", str(folder.path / "config.json"), *_flag(facts.get("init")), "--out", str(folder.path)]
        again = shlex.join(["electra", "pretrain", str(store.folder), *extensions.flags(), *words])
        remedy = run_folder.remedy(facts, again=again)
        if all(c.startswith((*FOLLOWS_FROM_STEPS, "budget")) for c in changed):
            longer = f"--continue-from {shlex.quote(str(folder.path))} --steps N"
            remedy += f" To train it longer, add {longer}, with another --out and without --init or --budget."
        raise ConfigError(f"{folder.path} began with other settings ({'; '.join(changed)}). {remedy}")
    lines = extensions.differing(facts)[1]
    if facts.get("arithmetic") not in (None, computed):
        lines.append(f"started in {facts['arithmetic']}, resuming in {computed}: sums round differently from here on.")
    for line in lines:
        folder.log(f"{folder.path} {line}")
        tell(f"{folder.path} {line}")
    return json.dumps(records.to_dict(began)).encode()


def _begun(
    config: Config,
    folder: run_folder.RunFolder,
    store: Store,
    initial: Initial | Continued | None,
    facts: dict[str, Any],
    say: Callable[[str], None],
) -> bytes:
    """Begin a run of this config in its folder; returns the config as JSON."""
    if isinstance(initial, Continued):
        check_continued(initial, config, store)
    elif config.model.word_initializer != "random":
        say(f"computing word vectors from co-occurrence in {len(store.rows('train')):,} rows")
    begin_run(folder, config, store, {"init": initial.identity} if initial else {}, **facts)
    return json.dumps(records.to_dict(config)).encode()


def begin_run(folder: run_folder.RunFolder, config: Config, store: Store, init: dict[str, Any], **facts: Any) -> None:
    """Write the identity of a run of this config on these rows; before it the tokenizer, and what its word embeddings
    begin with.

    Args:
        init: `{"init": identity}` of what it begins with; empty for fresh weights.
        facts: what computes it.
    """
    # not the folder's files: only tokenizer.json was compared with the manifest; the others follow from it
    for name, content in tokenizer_files(store.tokenizer(), max_length=store.sequence_length).items():
        write_output(folder.tokenizer / name, content)
    continues = "step" in init.get("init", {})
    words = {} if continues else keep_directions(folder, config, store)
    folder.begin(config, store.identity, **init, **words, data_folder=str(store.folder), **facts)
