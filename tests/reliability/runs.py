"""Comparison of two runs."""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch

from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read

_TIMED = ("seconds", "tokens_per_second")


def digest(run: Path) -> str:
    """SHA-256 of the newest checkpoint's weights and moments."""
    saved = read(numbered(run / "checkpoints")[-1][1])
    return hashlib.sha256(safetensors.torch.save(saved.weights) + safetensors.torch.save(saved.optimizer)).hexdigest()


def curve(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock decides."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in _TIMED} for row in rows]


def lost(run: Path) -> int:
    """Steps that were logged and are in no checkpoint."""
    rows = curve(run) if (run / "metrics.jsonl").exists() else []
    saved = numbered(run / "checkpoints") if (run / "checkpoints").exists() else []
    return max((int(row["step"]) for row in rows), default=0) - (saved[-1][0] if saved else 0)
