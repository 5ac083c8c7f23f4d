"""One line of JSON a test: what was measured, and what a naive reader or writer does with the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

LONG = os.environ.get("ELECTRA_RELIABILITY") == "long"
"""Whether the long form was asked for: `make reliability`."""
LAYERS = 2 if LONG else 1
"""Digest of each network of a run."""


def report(test: str, **figures: object) -> None:
    """Print the figures of a test, and append them to the file that ELECTRA_RELIABILITY_OUT names."""
    line = json.dumps({"test": test, **figures})
    print(line)
    if out := os.environ.get("ELECTRA_RELIABILITY_OUT"):
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
