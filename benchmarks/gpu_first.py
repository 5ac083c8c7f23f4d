"""A first call on a machine that nobody has seen: what `gpu.sh 0` runs, and the page that it writes.

`python -m benchmarks.gpu_first run OUT --preset small --steps 200` trains by the default path, kills the run with SIGKILL after
its first checkpoint, resumes it with the same command, and compares the exported networks with transformers. `python -m
benchmarks.gpu_first page RECORD` prints one page in Markdown of whatever the stages have left in RECORD.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import nn

from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Train, kill, resume, compare."""
    every = max(1, given.steps // 4)
    change = json.dumps({"evaluation": {"rows": 256, "every": 2 * every}})
    words = [given.out, "--preset", given.preset, "--steps", given.steps, "--device", given.device]
    words += ["--checkpoint-every", every, "--change", change]
    words += ["--data", given.data] if given.data else []
    command = [sys.executable, "-m", "benchmarks.gpu_run", *map(str, words)]
    folder: Path = given.out / "run"
    first = subprocess.Popen(command, stdout=sys.stderr)
    after_the_first = "step-*[1-9]*"  # one of step 0 is there from the beginning
    while first.poll() is None and not any((folder / "checkpoints").glob(after_the_first)):
        time.sleep(0.2)
    first.kill()
    found: dict[str, Any] = {"ended before the kill": first.wait() == 0}
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=sys.stderr)
    found["resumed"] = {"line": _line(folder, "resuming"), "seconds": round(time.monotonic() - began, 1)}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rates = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    found["tokens_per_second"] = statistics.median(rates[len(rates) // 2 :])
    found["losses"] = [row["loss"] for row in rows if "loss" in row][:: max(1, len(rows) // 6)]
    found["computed_by"] = json.loads((folder / "environment.json").read_text()).get("computed_by")
    found["agreement"] = agreement = dict[str, float]()

    def compare(exported: Path, network: nn.Module, tokenizer: Tokenizer) -> None:
        agreement[exported.name] = check_agreement(exported, network, tokenizer)

    export_run(folder, given.out / "compared", compare=compare)
    return found


def _line(folder: Path, word: str) -> str:
    lines = (folder / "log.txt").read_text().splitlines()
    return next((line for line in reversed(lines) if word in line), "")


def page(record: Path) -> str:
    """The stages, then every JSON object that they printed, then the end of what failed."""
    parts = ["# The first call on a GPU", (record / "stages.txt").read_text().strip()]
    for path in sorted(record.glob("*.txt")):
        text, log = path.read_text().strip(), path.with_suffix(".log")
        if path.name == "stages.txt":
            continue
        parts.append(f"## {path.stem}\n\n```\n{text[-6000:]}\n```")
        if log.exists() and (said := log.read_text().strip()):
            parts.append(f"What it said:\n\n```\n{said[-2500:]}\n```")
    return "\n\n".join(parts)


def main() -> None:
    """Run, or print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    print(json.dumps(run(given), indent=1) if given.what == "run" else page(given.out))


if __name__ == "__main__":
    main()
