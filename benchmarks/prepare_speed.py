"""Whole `electra prepare` against the bare tokenizer library: `python -m benchmarks.prepare_speed FILE --tokenizer TOK [--json]`.

The library encodes the lines of FILE, which are in memory already, in batches of 1,000, with its own threads on all cores; only
its calls are timed. `prepare` is the command a user types: starting, reading, tokenizing, packing, writing. They run in turn,
A B C A B C, each in a process of its own, and the table gives medians. On a machine that does other work too, look at the ratio of
processor seconds. At the end `prepare` reads FILE and a copy of it: its memory (all processes, shared pages counted once) should stay.

`--readers` measures reading alone instead: the documents of FILE in each format that is read, MB of text in a processor second, in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

_BATCH = 1000  # lines
_SAMPLE = 0.1  # seconds between two looks at memory
LIBRARY = ("encode_batch", "encode_batch_fast")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process: what it did in which time."""

    seconds: float
    cpu_seconds: float
    tokens: int
    text_bytes: int
    peak_bytes: int


def bare(path: str, tokenizer_path: str, method: str) -> None:
    """In a child: encode all lines; prints seconds, processor seconds, tokens and bytes."""
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
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(tokenizer)], stdout=subprocess.PIPE, env=environment
    )
    peak, out = watch(child)
    seconds, cpu, tokens, text = json.loads(out)
    return Run(seconds=seconds, cpu_seconds=cpu, tokens=tokens, text_bytes=text, peak_bytes=peak)


def run_prepare(paths: list[Path], tokenizer: Path, folder: Path) -> Run:
    """The command, from typing it to the prompt."""
    out = folder / "rows"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "electra_trainer", "prepare", *map(str, paths)]
    child = subprocess.Popen(
        [*command, "--tokenizer", str(tokenizer), "--seq-len", "128", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    peak, _ = watch(child)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((out / "manifest.json").read_text())
    shutil.rmtree(out)
    return Run(
        seconds=seconds,
        cpu_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        tokens=manifest["train"]["text_tokens"] + manifest["valid"]["text_tokens"],
        text_bytes=manifest["corpus"]["bytes"],
        peak_bytes=peak,
    )


def watch(child: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Wait for a process; returns the most memory its tree held, in bytes (0 where there is no /proc), and its output."""
    peak, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(_SAMPLE):
            peak[0] = max(peak[0], sum(map(_memory, _tree(child.pid))))

    looker = threading.Thread(target=look)
    looker.start()
    out, _ = child.communicate()
    ended.set()
    looker.join()
    if child.returncode:
        raise SystemExit(f"a child ended with {child.returncode}")
    return peak[0], out


def _tree(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in _tree(child))]


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(path: Path, tokenizer: Path, repeats: int) -> dict[str, object]:
    """All of it; what `--json` prints."""
    from electra_trainer.files.processes import cores

    runs: dict[str, list[Run]] = {name: [] for name in (*LIBRARY, "prepare")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(repeats):
            for method in LIBRARY:
                runs[method].append(run_bare(path, tokenizer, method))
            runs["prepare"].append(run_prepare([path], tokenizer, folder))
        copy = folder / path.name
        shutil.copyfile(path, copy)
        twice = run_prepare([path, copy], tokenizer, folder)
    assert len({run.tokens for found in runs.values() for run in found}) == 1, "they disagree about the tokens"
    middle = {name: _median(found) for name, found in runs.items()}
    return {
        "cores": cores(),
        "systems": {name: asdict(run) | _rates(run) for name, run in middle.items()},
        "prepare_of_twice_the_text": asdict(twice) | _rates(twice),
        "ratio": {
            method: {
                "seconds": middle[method].seconds / middle["prepare"].seconds,
                "cpu_seconds": middle[method].cpu_seconds / middle["prepare"].cpu_seconds,
            }
            for method in LIBRARY
        },
    }


def _median(runs: list[Run]) -> Run:
    return Run(
        seconds=statistics.median(run.seconds for run in runs),
        cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
        tokens=runs[0].tokens,
        text_bytes=runs[0].text_bytes,
        peak_bytes=max(run.peak_bytes for run in runs),
    )


def _rates(run: Run) -> dict[str, float]:
    return {"tokens_per_second": run.tokens / run.seconds, "megabytes_per_second": run.text_bytes / run.seconds / 1e6}


def write_formats(path: Path, folder: Path) -> dict[str, Path]:
    """The documents of a file in other formats; those of pyarrow where it is installed."""
    from electra_trainer.data.corpus import CorpusReport, documents

    texts = ["\n".join(document) for document in documents([path], report=CorpusReport())]
    made = {name: folder / f"corpus.{name}" for name in ("txt", "jsonl", "json", "csv", "warc.wet")}
    made["txt"].write_text("\n\n".join(texts), encoding="utf-8")
    made["jsonl"].write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8"
    )
    made["json"].write_text(json.dumps([{"text": text} for text in texts], ensure_ascii=False), encoding="utf-8")
    with made["csv"].open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "text"], *enumerate(texts)])
    with made["warc.wet"].open("wb") as out:
        for text in map(str.encode, texts):
            out.write(b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(text), text))
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet

        table = pa.table({"id": range(len(texts)), "text": texts})
        made |= {name: folder / f"corpus.{name}" for name in ("parquet", "arrow", "txt.zst")}
        pa.parquet.write_table(table, made["parquet"], compression="zstd")
        with pa.ipc.new_stream(made["arrow"], table.schema) as out:
            out.write_table(table, max_chunksize=1000)
        with made["txt.zst"].open("wb") as raw, pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), "zstd") as out:
            out.write(made["txt"].read_bytes())
    return made


def read_formats(path: Path, repeats: int) -> dict[str, float]:
    """MB of text in a processor second, by format; medians."""
    from electra_trainer.data.corpus import CorpusReport, documents

    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        made = write_formats(path, Path(name))
        size, wanted = made["txt"].stat().st_size, CorpusReport()
        for _ in documents([made["txt"]], report=wanted):
            pass
        for number in range(repeats + 1):
            for kind, file in made.items():
                start, report = time.process_time(), CorpusReport()
                for _ in documents([file], report=report):
                    pass
                if number:  # the first imports packages
                    found.setdefault(kind, []).append(size / (time.process_time() - start) / 1e6)
                assert (report.documents, report.characters) == (wanted.documents, wanted.characters), kind
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def main() -> None:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--readers", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.readers:
        rates = read_formats(arguments.file, arguments.repeats)
        if arguments.json:
            print(json.dumps(rates))
        else:
            print("          MB in a processor second")
            print(
                *(f"{kind:10}{rate:6.0f}   {rate / rates['txt']:5.2f} x .txt" for kind, rate in rates.items()), sep="\n"
            )
        return
    if arguments.tokenizer is None:
        parser.error("--tokenizer is needed, or --readers")
    found = measure(arguments.file, arguments.tokenizer, arguments.repeats)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{found['cores']} cores\n{'':26}     s  cpu s  Mtokens/s   MB/s  peak MB")
    shown = {**found["systems"], "prepare, twice the text": found["prepare_of_twice_the_text"]}  # type: ignore[dict-item]
    for name, run in shown.items():
        print(
            f"{name:26}{run['seconds']:6.1f} {run['cpu_seconds']:6.1f} {run['tokens_per_second'] / 1e6:10.2f} "
            f"{run['megabytes_per_second']:6.1f} {run['peak_bytes'] / 1e6:8.0f}"
        )
    for method, ratio in found["ratio"].items():  # type: ignore[attr-defined]
        print(
            f"prepare / {method}: {ratio['seconds']:.2f}x by the clock, {ratio['cpu_seconds']:.2f}x a processor second"
        )


if __name__ == "__main__":
    main()
