"""Before the first step: settle whether the run is new, its length and settings, and the weights it begins with."""

import json
import os
from pathlib import Path
from typing import Any

import torch

from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import tokenizer_files
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.durable import write_folder_durably
from electra_trainer.ranks.world import led, world
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.signals import beat
from electra_trainer.runs.status import Status
from electra_trainer.settings import records
from electra_trainer.settings.config import FOLLOWS_FROM_STEPS, Config
from electra_trainer.settings.records import differences, to_dict
from electra_trainer.train.device import arithmetic, choose_precision
from electra_trainer.train.plan import Length, fit_to_data, steps_for
from electra_trainer.train.timing import measure_time
from electra_trainer.train.weights import Initial, ReadsInitial, check_initial

VERIFY = "ELECTRA_VERIFY_ROWS"
"""Variable: `off` skips the reading of all rows before the first step, for hundreds of gigabytes on a slow disk."""


def open_rows(data: Path) -> Store:
    """Open the store of a run. On each machine one process compares every byte with the manifest: a flipped bit is another text.

    Raises:
        MissingInputError, DataError, StorageError: as Store.open.
    """
    verifies = os.environ.get(VERIFY) != "off" and os.environ.get("LOCAL_RANK", "0") == "0"
    return Store.open(data, verify=verifies, tick=beat)


def begin(
    config: Config,
    folder: RunFolder,
    store: Store,
    *,
    length: Length,
    device: torch.device,
    init: ReadsInitial | None,
    shard: bool = False,
    status: Status | None = None,
) -> tuple[Config, Initial | None]:
    """Open the run folder on rank 0, and settle the config on every rank: that of the run on disk if there is one.

    Returns:
        The complete config; and on rank 0 the weights to begin with, None for fresh ones and on resume.

    Raises:
        ConfigError, DataError, StorageError: on every rank.
    """
    config = fit_to_data(config, store)
    initial: list[Initial | None] = []

    def opened() -> bytes:
        folder.open_for_writing()
        if folder.exists and status is not None:
            status.running(folder)
        initial.append(_read_initial(init, folder, config, store))
        return _as_bytes(_went_on(config, folder, store, length)) if folder.exists else b""

    def begun() -> bytes:
        complete = steps_for(length, config, timing)
        begin_run(folder, complete, store, initial[0], device=device)
        if status is not None:
            status.running(folder)
        return _as_bytes(complete)

    settled = led(opened)
    if not settled:
        timing = None
        if length.budget is not None:
            precision = choose_precision(config.precision, device)
            timing = measure_time(config, store, device=device, precision=precision, shard=shard)
        settled = led(begun)
    return records.read(Config, json.loads(settled), where=str(folder.path)), initial[0] if initial else None


def _as_bytes(config: Config) -> bytes:
    return json.dumps(to_dict(config)).encode()


def _read_initial(init: ReadsInitial | None, folder: RunFolder, config: Config, store: Store) -> Initial | None:
    began = folder.environment().get("init") if folder.exists else None
    if folder.exists and (init.name if init else None) != (began["name"] if began else None):
        name = began["name"] if began else ""
        before = f"the weights of {name}: repeat --init {name}" if began else "fresh weights: leave --init out"
        raise ConfigError(f"{folder.path} began with {before} to resume, or choose another --out.")
    if init is None or (folder.exists and numbered(folder.checkpoints)):
        return None
    initial = init.read()
    check_initial(initial, config, store)
    if began and began != initial.identity:  # it ended before its first checkpoint
        raise ConfigError(
            f"{folder.path}: the weights of {initial.name} have changed since it began. Choose another --out."
        )
    return initial


def _went_on(config: Config, folder: RunFolder, store: Store, length: Length) -> Config:
    """The config of the run on disk; an error if it differs from the one asked for."""
    began = folder.config()
    if folder.environment().get("data") != store.identity:
        raise DataError(
            f"{folder.path} was trained on other data than {store.folder}. Give the folder that it began with, or "
            "another --out."
        )
    asked = steps_for(length, config, None) if length.budget is None else config
    changed = differences(began, asked)
    if length.budget is not None:  # its steps were measured when the run began
        changed = [c for c in changed if not c.startswith(FOLLOWS_FROM_STEPS)]
    if changed:
        raise ConfigError(
            f"{folder.path} began with other settings ({'; '.join(changed)}). Repeat the command that it began with "
            "to resume, or choose another --out."
        )
    return began


def begin_run(
    folder: RunFolder,
    config: Config,
    store: Store,
    initial: Initial | None = None,
    *,
    device: torch.device | None = None,
) -> None:
    """Write the identity of a run of this config on these rows, the tokenizer first; `device` is the one that computes."""
    # not the folder's files: only tokenizer.json was compared with the manifest; the others follow from it
    write_folder_durably(folder.tokenizer, tokenizer_files(store.tokenizer(), max_length=store.sequence_length))
    facts: dict[str, Any] = {"data_folder": str(store.folder)}
    if device is not None:
        computed = arithmetic(choose_precision(config.precision, device), device)
        facts |= {"device": device.type, "arithmetic": computed, "processes": world().size}
    folder.begin(config, store.identity, init=initial.identity if initial else None, facts=facts)
