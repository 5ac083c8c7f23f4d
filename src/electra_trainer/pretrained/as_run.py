"""A run folder with weights alone, to give away: every verb that reads a run's weights reads it, `--init` with all its
networks and heads, and it has a fifth of a run's size, in 16 bits a tenth.
"""

from dataclasses import replace
from pathlib import Path

import torch

from electra_trainer.data.tokenizer import load_tokenizer, save_tokenizer
from electra_trainer.errors import ConfigError, storage_error
from electra_trainer.files.durable import alone, make_folder, new_folder
from electra_trainer.pretrained.export import DTYPES
from electra_trainer.pretrained.model_card import is_on_hub
from electra_trainer.runs import checkpoint
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.run_folder import METRICS, RunFolder
from electra_trainer.settings.records import run_and_step
from electra_trainer.train.weights import trained

_FACTS = ("run_id", "data", "init", "electra_trainer", "git")
"""Facts of environment.json that are not about the machine."""


def export_as_run(run: str | Path, out: Path, *, dtype: str = "float32") -> Path:
    """Write settings, tokenizer, last held-out metrics and one checkpoint of a run, without moments; returns `out`.

    Args:
        run: the run, or `RUN@STEP`.
        out: a new or empty folder.
        dtype: of the stored weights, float32, float16 or bfloat16.

    Raises:
        ConfigError: `out` is not empty. MissingInputError, CheckpointError: `run` is not a run, or cannot be read, or
            its weights are not finite in this type. StorageError: the disk is full or read-only.
    """
    path, step = run_and_step(run)
    folder = RunFolder(path)
    config, facts = folder.config(), folder.environment()
    saved = checkpoint.of_step(folder.checkpoints, step, origin=folder.origin)
    weights = {
        name: tensor.to(DTYPES[dtype]) if tensor.dtype == torch.float32 else tensor
        for name, tensor in saved.weights.items()
    }
    facts = {name: facts[name] for name in _FACTS if name in facts}
    if isinstance(began := facts.get("init"), dict):
        names = str(began.get("name")).split(",")
        facts["init"] = began | {"name": ",".join(one if is_on_hub(one) else Path(one).name for one in names)}
    rows = [row for row in readable_rows(path / METRICS) if row.get("split") == "valid" and row["step"] <= saved.step]
    try:
        with alone(out), new_folder(out) as new:
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise ConfigError(f"--out {out}: is not an empty folder. Choose another one.")
            made = RunFolder(new)
            make_folder(made.tokenizer)
            save_tokenizer(load_tokenizer(folder.tokenizer), made.tokenizer, max_length=config.batch.sequence_length)
            made.write_json("environment.json", facts)
            made.write_json("config.json", folder.origin.config)
            for row in rows[-1:]:
                made.append(METRICS, row)
            alone_saved = replace(saved, weights=weights, optimizer={})
            checkpoint.save(made.checkpoints, alone_saved, origin=made.origin, keep=1)
            trained(made, config)  # read back: finite, and what the settings need
    except OSError as error:
        raise storage_error(error, out, writing=True) from None
    return out
