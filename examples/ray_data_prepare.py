"""From raw text to rows to train on, by Ray Data: clean files in parallel, prepare a shard a task, merge. On this machine or a cluster.

    python examples/ray_data_prepare.py corpus --tokenizer tok --shards 8 --out work --seq-len 128
    ray job submit --address http://HEAD:8265 -- python examples/ray_data_prepare.py /shared/corpus ... --out /shared/work

The rows are in OUT/data. Flags that are not listed are passed on to `electra prepare`. Ray keeps no order of what it computes, so nothing
here depends on one: a task is a file, or a shard of the files. The same command resumes, and comes to the same bytes. For extraction, filters
and deduplication of web text see datatrove_prepare.py.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray


def clean(task: dict[str, Any]) -> dict[str, Any]:
    """One .jsonl file without its short documents, whole or not at all."""
    source, target = Path(task["source"]), Path(task["target"])
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        with source.open(encoding="utf-8") as lines, unfinished.open("w", encoding="utf-8") as out:
            out.writelines(line for line in lines if len(json.loads(line)["text"].split()) >= task["min_words"])
        unfinished.replace(target)
    return {"done": str(target)}


def prepare_shard(task: dict[str, Any]) -> dict[str, Any]:
    """The rows of every N-th file. A shard that is there already is not made again."""
    words = [*task["words"], "--shard", task["shard"], "--workers", "1"]
    subprocess.run([sys.executable, "-m", "electra_trainer", "prepare", *words], check=True)
    return {"done": task["shard"]}


def every(work: Any, tasks: list[dict[str, Any]]) -> None:
    """Do all tasks, one a block, wherever Ray has room."""
    ray.data.from_items(tasks, override_num_blocks=len(tasks)).map(work, num_cpus=1).materialize()


def main() -> None:
    """Clean, prepare, merge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder of .jsonl files with the field text")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of `electra tokenizer`")
    parser.add_argument("--min-words", type=int, default=5, help="shorter documents are dropped")
    parser.add_argument("--shards", type=int, default=8, help="other numbers give other rows")
    parser.add_argument("--out", type=Path, required=True, help="on a disk that all machines share")
    asked, further = parser.parse_known_args()
    out = asked.out.resolve()
    (out / "text").mkdir(parents=True, exist_ok=True)
    ray.init(log_to_driver=False)
    every(
        clean,
        [
            {"source": str(file), "target": str(out / "text" / file.name), "min_words": asked.min_words}
            for file in sorted(asked.corpus.resolve().glob("*.jsonl"))
        ],
    )
    words = [str(out / "text"), "--tokenizer", str(asked.tokenizer.resolve()), *further]
    words += ["--out", str(out / "shards")]
    numbers = range(1, asked.shards + 1)
    every(prepare_shard, [{"words": words, "shard": f"{number}/{asked.shards}"} for number in numbers])
    subprocess.run(
        [sys.executable, "-m", "electra_trainer", "merge", str(out / "shards"), "--out", str(out / "data")], check=True
    )


if __name__ == "__main__":
    main()
