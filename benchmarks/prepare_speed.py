"""Whole `electra prepare` against the bare tokenizer library: `python -m benchmarks.prepare_speed FILE --tokenizer TOK`.

The library encodes the lines of FILE, which are in memory already, in batches of 1,000, with its own threads on all cores; only
its calls are timed. `prepare` is the command a user types: starting, reading, tokenizing, packing, writing. They run in turn,
A B C A B C, each in a process of its own, and the table gives medians. On a machine that does other work too, look at the ratio of
processor seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_BATCH = 1000  # lines
LIBRARY = ("encode_batch", "encode_batch_fast")
Run = tuple[float, float, int, int]
"""Seconds, processor seconds, tokens, bytes of text."""


def bare(path: str, tokenizer_path: str, method: str) -> None:
    """In a child: encode all lines; prints a Run."""
    from electra_trainer.data.corpus import CorpusReport, documents
    from electra_trainer.data.tokenizer import as_plain_text, load_tokenizer

    tokenizer = as_plain_text(load_tokenizer(tokenizer_path))
    report = CorpusReport()
    lines = [line for document in documents([path], report=report) for line in document]
    encode = getattr(tokenizer, method)
    tokens, start, cpu = 0, time.perf_counter(), time.process_time()
    for first in range(0, len(lines), _BATCH):
        tokens += sum(map(len, encode(lines[first : first + _BATCH], add_special_tokens=False)))
    print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, tokens, report.bytes]))


def run_bare(path: Path, tokenizer: Path, method: str) -> Run:
    """The library alone."""
    code = f"from benchmarks.prepare_speed import bare; import sys; bare(*sys.argv[1:], {method!r})"
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", code, str(path), str(tokenizer)]
    found = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    seconds, cpu, tokens, size = json.loads(found.stdout)
    return seconds, cpu, tokens, size


def run_prepare(path: Path, tokenizer: Path) -> Run:
    """The command, from typing it to the prompt."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows"
        command = [sys.executable, "-m", "electra_trainer", "prepare", str(path), "--tokenizer", str(tokenizer)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*command, "--seq-len", "128", "--out", str(out)], capture_output=True, check=True)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        manifest = json.loads((out / "manifest.json").read_text())
    tokens = manifest["train"]["text_tokens"] + manifest["valid"]["text_tokens"]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, tokens, manifest["corpus"]["bytes"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    runs: dict[str, list[Run]] = {name: [] for name in (*LIBRARY, "prepare")}
    for _ in range(asked.repeats):
        for method in LIBRARY:
            runs[method].append(run_bare(asked.file, asked.tokenizer, method))
        runs["prepare"].append(run_prepare(asked.file, asked.tokenizer))
    assert len({tokens for found in runs.values() for _, _, tokens, _ in found}) == 1, "they disagree about the tokens"
    print(f"{'':20}     s  cpu s  Mtokens/s   MB/s  prepare is faster by the clock, by processor seconds")
    ours = [statistics.median(run[part] for run in runs["prepare"]) for part in range(2)]
    for name, found in runs.items():
        seconds, cpu = (statistics.median(run[part] for run in found) for part in range(2))
        rates = f"{found[0][2] / seconds / 1e6:10.2f} {found[0][3] / seconds / 1e6:6.1f}"
        print(f"{name:20}{seconds:6.1f} {cpu:6.1f} {rates} {seconds / ours[0]:6.2f}x {cpu / ours[1]:5.2f}x")


if __name__ == "__main__":
    main()
