"""From raw text to rows to train on, by datatrove: clean, deduplicate, prepare in shards, merge. On this machine or on Slurm.

    python examples/datatrove_prepare.py corpus --tokenizer tok --tasks 8 --out work --seq-len 128
    python examples/datatrove_prepare.py crawl --format warc --web --dedup minhash --tokenizer tok --tasks 1000 \
        --executor slurm --partition cpu --out /shared/work

The rows are in OUT/data. Flags that are not listed are passed on to `electra prepare`. The same command resumes: tasks that are done are
not done again, and the same bytes come out, however many workers there were and whatever was killed. OUT, the corpus and the tokenizer have
to be on a disk that all machines share. It needs: pip install datatrove orjson; WARC, `--web` and `--dedup minhash`:
pip install "datatrove[io,processing]".
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.dedup import (
    ExactDedupConfig,
    ExactDedupFilter,
    ExactDedupSignature,
    ExactFindDedups,
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LambdaFilter, LanguageFilter
from datatrove.pipeline.readers import JsonlReader, ParquetReader, WarcReader
from datatrove.pipeline.writers import JsonlWriter

READERS: dict[str, Callable[..., Any]] = {"jsonl": JsonlReader, "parquet": ParquetReader, "warc": WarcReader}


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """The command line; what is not known here is for `electra prepare`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="folder of files, or a URL that fsspec reads")
    parser.add_argument("--format", choices=READERS, default="jsonl")
    parser.add_argument("--text-field", default="text")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of `electra tokenizer`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--min-words", type=int, default=5, help="shorter documents are dropped")
    parser.add_argument("--web", action="store_true", help="keep only --language, and what passes Gopher's filters")
    parser.add_argument("--language", default="en")
    parser.add_argument("--dedup", choices=("exact", "minhash", "none"), default="exact")
    parser.add_argument("--executor", choices=("local", "slurm"), default="local")
    parser.add_argument(
        "--tasks", type=int, default=8, help="parts of the work, and shards; other numbers give other rows"
    )
    parser.add_argument("--workers", type=int, default=1, help="tasks at the same time")
    parser.add_argument("--partition", default="cpu", help="of Slurm")
    parser.add_argument("--time", default="12:00:00", help="of one task on Slurm")
    return parser.parse_known_args()


def is_long(document: Document, words: int) -> bool:
    """Whether a document is worth keeping."""
    return len(document.text.split()) >= words


def text_of(document: Document) -> bytes:
    """What makes two documents copies of one another."""
    return document.text.strip().encode()


def prepare_shard(_: object, rank: int, world_size: int, *, words: Sequence[str]) -> None:
    """One task: the rows of every N-th file, in a process of its own. A shard that is there already is not made again."""
    import subprocess  # here: datatrove sends functions of this file to other processes without its imports
    import sys

    shard = f"{rank + 1}/{world_size}"
    subprocess.run(
        [sys.executable, "-m", "electra_trainer", "prepare", *words, "--shard", shard, "--workers", "1"], check=True
    )


def merge(_: object, rank: int, world_size: int, *, words: Sequence[str]) -> None:
    """All shards in one folder, every byte verified."""
    import subprocess
    import sys

    subprocess.run([sys.executable, "-m", "electra_trainer", "merge", *words], check=True)


def steps(asked: argparse.Namespace, further: Sequence[str]) -> list[tuple[str, list[Any], int]]:
    """Name, pipeline and number of tasks of each step; each begins when the one before is done."""
    tasks, out = asked.tasks, asked.out.resolve()
    folder = {name: str(out / name) for name in ("clean", "signatures", "buckets", "copies", "text", "shards", "data")}
    read = READERS[asked.format](asked.corpus, text_key=asked.text_field)
    clean = [read, *([Trafilatura()] if asked.format == "warc" else [])]
    if asked.web:
        clean += [LanguageFilter(languages=asked.language), GopherRepetitionFilter(), GopherQualityFilter()]
    clean.append(LambdaFilter(partial(is_long, words=asked.min_words)))
    again, write = JsonlReader(folder["clean"]), JsonlWriter(folder["text"])
    found: list[tuple[str, list[Any], int]] = [("clean", [*clean, JsonlWriter(folder["clean"])], tasks)]
    if asked.dedup == "exact":
        exact = ExactDedupConfig(content_getter=text_of)
        found += [
            ("signatures", [again, ExactDedupSignature(folder["signatures"], exact)], tasks),
            ("copies", [ExactFindDedups(folder["signatures"], folder["copies"], exact)], 1),
            ("text", [again, ExactDedupFilter(folder["copies"], exact), write], tasks),
        ]
    elif asked.dedup == "minhash":
        near = MinhashConfig()
        found += [
            ("signatures", [again, MinhashDedupSignature(folder["signatures"], config=near)], tasks),
            ("buckets", [MinhashDedupBuckets(folder["signatures"], folder["buckets"], config=near)], near.num_buckets),
            ("copies", [MinhashDedupCluster(folder["buckets"], folder["copies"], config=near)], 1),
            ("text", [again, MinhashDedupFilter(folder["copies"]), write], tasks),
        ]
    text, shards = folder["clean" if asked.dedup == "none" else "text"], folder["shards"]
    words = [text, "--tokenizer", str(asked.tokenizer.resolve()), *further, "--out", shards]
    found.append(("shards", [partial(prepare_shard, words=words)], tasks))
    found.append(("data", [partial(merge, words=[shards, "--out", folder["data"]])], 1))
    return found


def main() -> None:
    """Run all steps, or hand them to the scheduler."""
    asked, further = arguments()
    last: Any = None
    for name, pipeline, tasks in steps(asked, further):
        common = {"pipeline": pipeline, "tasks": tasks, "logging_dir": str(asked.out.resolve() / "logs" / name)}
        if asked.executor == "slurm":
            last = SlurmPipelineExecutor(
                **common, depends=last, job_name=f"electra-{name}", time=asked.time, partition=asked.partition,
                workers=asked.workers,
            )  # fmt: skip
        else:
            last = LocalPipelineExecutor(**common, depends=last, workers=min(asked.workers, tasks))
    last.run()


if __name__ == "__main__":
    main()
