"""Record what the `electra` command computes and says for a source tree, and compare two such recordings.

python -m tests.net record --source SRC --out FILE.json [--only NAME...]
python -m tests.net compare OLD.json NEW.json [--only weights metrics]

`record` runs the table RUNS with the package under SRC, in a temporary folder, by the command line alone: it imports nothing of the package,
so that SRC may be laid out in any way. Every file that a command leaves and everything that it prints becomes an entry of a category:

weights   tensors of .safetensors files (a line each: name, type, shape, SHA-256) and the rows of prepared data
metrics   .jsonl and results, predictions, JSON that was printed: exact values, without clocks
text      what was printed with its exit code, and all other files: durations, dates, paths and versions normalised

`compare` prints a unified diff of each entry that differs and counts per category; it exits with 1 if any of the chosen ones differs.
"""

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from safetensors.torch import load_file
from tests.net_samples import make_samples
from tests.net_table import RUNS, Run
from tyro.conf import Positional

CATEGORIES: tuple[Literal["weights", "metrics", "text"], ...] = ("weights", "metrics", "text")
CLOCKS = {
    "seconds", "tokens_per_second", "rows_per_second", "time", "run_id", "pid", "host", "git", "command", "versions", "platform",
    "electra_trainer",
}  # fmt: skip
"""Keys of JSON objects whose values differ from one run to the next, wherever they stand."""


def without_column(table: str, name: str) -> str:
    """A table in Markdown without a column."""
    rows = [line.split("|") for line in table.splitlines()]
    column = [cell.strip() for cell in rows[0]].index(name)
    return "".join("|".join(row[:column] + row[column + 1 :]) + "\n" for row in rows)


def without_last_column(table: str) -> str:
    """A printed table of means without its last column."""
    return re.sub(r"(?m) +\S+( ± \S+)?( \(\d+\))?$", "", table)


PATTERNS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?m) +$", ""),
    (r"(?m)^[WIE]\d{4} .*\n", ""),  # what torchrun logs
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "<time>"),
    (r"\b[0-9a-f]{40}(\+changes)?\b", "<commit>"),
    (r"\b[0-9a-f]{32}\b", "<id>"),
    (r"(?m)^step \d+/\d+ .*tokens/s.*\n", ""),  # at most one in some seconds
    (r"(?m)^\| seconds \|.*$", "| seconds | <duration> |"),
    (r"[\d.]+\w+ on (\d+) CPU thread", r"<duration> on \1 CPU thread"),
    (r"(?m)^\|.+\| seconds \|.*\n(\|.*\n)*", lambda found: without_column(found[0], "seconds")),
    (r"\d[\d.,]* tokens/s", "<rate> tokens/s"),
    (r"(?<![\w.])\d[\d.,]* (s|seconds?|minutes?|min|h|hours?|days?)\b", "<duration>"),
    (r"(?m)^\[\d+/\d+\] (waiting|[^:\n]* \d+ %[^:\n]*); .*\n", ""),
    (r"; (about <duration> left|time left not known yet)", ""),
    (r"(?m)^metric .* seconds\n(.+\n)*", lambda found: without_last_column(found[0])),
    (r"<b>[^<]*</b><span>tokens per second", "<b><rate></b><span>tokens per second"),
    (r"<td>tokens per second</td>(<td class=.number.>[^<]*</td>)*", "<td>tokens per second</td>"),
    (r"data:image/png;base64,[A-Za-z0-9+/=]+", "<picture>"),
)
"""Replacements in texts, in this order."""


def without_clocks(value: Any) -> Any:
    """A JSON value without the keys of CLOCKS; the order of keys stays."""
    if isinstance(value, dict):
        left_out = CLOCKS | ({"sha256", "files"} if "run_id" in value else set())  # hashes in a manifest: of clocks too
        return {key: without_clocks(one) for key, one in value.items() if key not in left_out}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value


def kinds_of(value: Any) -> Any:
    """A JSON value with the types of its leaves instead of them."""
    if isinstance(value, dict):
        return {key: kinds_of(one) for key, one in value.items()}
    return type(value).__name__


def tensors(path: Path) -> str:
    """A line for each tensor of a .safetensors file: name, type, shape, SHA-256 of the bytes."""
    found = sorted(load_file(path).items())
    digests = [hashlib.sha256(one.contiguous().flatten().view(torch.uint8).numpy().tobytes()) for _, one in found]
    pairs = zip(found, digests, strict=True)
    return "\n".join(f"{name} {one.dtype} {[*one.shape]} {digest.hexdigest()}" for (name, one), digest in pairs)


def same_weights(one: Path, other: Path) -> str:
    """Whether two folders hold .safetensors files of the same names with the same tensors."""
    told = [
        {str(path.relative_to(at)): tensors(path) for path in sorted(at.rglob("*.safetensors"))} for at in (one, other)
    ]
    differing = sorted(name for name in {*told[0], *told[1]} if told[0].get(name) != told[1].get(name))
    return f"{len(told[0])} files, differing: {', '.join(differing) or 'none'}"


class Recorder:
    """Runs commands of one source tree in one folder and keeps entries."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, dict[str, str]] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR") if name in os.environ}
        self._environment = {
            **kept,
            "PYTHONPATH": str(source),
            "PYTHONSAFEPATH": "1",  # the folder of the runs is no place for modules
            "GIT_DIR": os.devnull,  # the revision of the source is no part of what is compared
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "LANG": "C.UTF-8",
        }
        places = {source: "<source>", folder: "<folder>", folder.resolve(): "<folder>", sys.prefix: "<python>"}
        self._paths = {str(place): name for place, name in places.items()}
        found = Path(self._python("-c", "import electra_trainer as e; print(e.__file__)").stdout.strip())
        if source not in found.parents:
            raise SystemExit(f"--source {source}: the package that is imported is {found}.")

    def do(self, run: Run) -> None:
        """Run the lines of a run, then keep what they left in the folder."""
        for line in filter(None, map(str.strip, run.lines.splitlines())):
            words = shlex.split(line)
            match words:
                case ["cp", source, target]:
                    shutil.copytree(self.folder / source, self.folder / target)
                case ["rm", target]:
                    shutil.rmtree(self.folder / target)
                case ["same", one, other]:
                    self._keep(f"{run.name}: {line}", "weights", same_weights(self.folder / one, self.folder / other))
                case _:
                    self._electra(f"{run.name}: $ electra {line}", words)
        for path in self._changed():
            self._keep_file(f"{run.name}: {path.relative_to(self.folder)}", path)

    def note_files(self) -> None:
        """Take what lies in the folder as known."""
        list(self._changed())

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def _electra(self, name: str, words: Sequence[str]) -> None:
        done = self._python("-m", "electra_trainer", *words)
        out = done.stdout
        if "--json" in words and not done.returncode:
            values = [json.loads(line) for line in out.splitlines()] if words[0] == "predict" else json.loads(out)
            shown = kinds_of(values) if words[0] == "doctor" else without_clocks(values)
            self._keep(f"{name} (JSON)", "metrics", json.dumps(shown, indent=1))
            out = "(JSON)\n"
        self._keep(name, "text", f"exit {done.returncode}\n--- standard output\n{out}--- standard error\n{done.stderr}")

    def _changed(self) -> Iterator[Path]:
        """Files that are new or written since the last call, by name."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                facts = path.stat()
                if self._seen.get(path) != (facts.st_mtime_ns, facts.st_size):
                    self._seen[path] = (facts.st_mtime_ns, facts.st_size)
                    yield path

    def _keep_file(self, name: str, path: Path) -> None:
        match path.suffix:
            case ".safetensors":
                self._keep(name, "weights", tensors(path))
            case ".json" if path.stem == "timing":
                pass
            case ".csv":
                self._keep(name, "metrics", path.read_text())
            case ".bin" | ".documents":
                self._keep(name, "weights", hashlib.sha256(path.read_bytes()).hexdigest())
            case ".jsonl":
                rows = [json.dumps(without_clocks(json.loads(line))) for line in path.read_text().splitlines()]
                self._keep(name, "metrics", "\n".join(rows))
            case ".json":
                numbers = path.stem in ("result", "state", "floors") or path.stem.startswith("predictions")
                text = json.dumps(without_clocks(json.loads(path.read_text())), indent=1, ensure_ascii=False)
                self._keep(name, "metrics" if numbers else "text", text)
            case ".png" | ".zip":
                self._keep(name, "text", hashlib.sha256(path.read_bytes()).hexdigest())
            case _:
                self._keep(name, "text", path.read_text())

    def _keep(self, name: str, category: str, text: str) -> None:
        if category == "text":
            text = self._normal(text)
        self.entries[name] = {"category": category, "text": text}

    def _normal(self, text: str) -> str:
        """The text without paths, clocks and the like."""
        for path, name in self._paths.items():
            text = text.replace(path, name)
        for pattern, put in PATTERNS:
            text = re.sub(pattern, put, text)
        return text


def record(*, source: Path, out: Path, only: tuple[str, ...] = ()) -> None:
    """Run the table, or the named runs with what they need, and write the recording; `source` holds the package."""
    known = [run.name for run in RUNS]
    if unknown := sorted({*only} - {*known}):
        raise SystemExit(f"--only {unknown[0]}: expected {', '.join(known)}.")
    wanted = {*(only or known)}
    for run in reversed(RUNS):  # a run comes after what it needs
        wanted |= set(run.needs) if run.name in wanted else set()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        make_samples(Path(folder))
        recorder = Recorder(source.resolve(), Path(folder))
        recorder.note_files()
        for run in RUNS:
            if run.name in wanted:
                recorder.do(run)
                print(f"{time.perf_counter() - begun:5.0f} s  {run.name}", flush=True)
    out.write_text(json.dumps(recorder.entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    counts = [sum(entry["category"] == category for entry in recorder.entries.values()) for category in CATEGORIES]
    print(f"{out}: " + ", ".join(f"{category} {count}" for category, count in zip(CATEGORIES, counts, strict=True)))


def compare(
    old: Positional[Path],
    new: Positional[Path],
    *,
    only: tuple[Literal["weights", "metrics", "text"], ...] = CATEGORIES,
) -> int:
    """Print what differs between two recordings, in the runs that both have, and counts per category.

    Returns 1 if one of the categories `only` differs, else 0.
    """
    was, now = (json.loads(path.read_text(encoding="utf-8")) for path in (old, new))
    runs, others = ({name.split(": ")[0] for name in table} for table in (was, now))
    if runs != others:
        print(f"Not compared, in one recording only: {', '.join(sorted(runs ^ others))}")
    said, code = [], 0
    for category in CATEGORIES:
        both = [name for name in {**was, **now} if name.split(": ")[0] in runs & others]
        names = [name for name in both if category in (table.get(name, {}).get("category") for table in (was, now))]
        differing = [name for name in names if was.get(name) != now.get(name)]
        said.append(f"{category} {len(names) - len(differing)} of {len(names)} equal")
        code |= bool(differing) and category in only
        for name in differing:
            before, after = (table[name]["text"].splitlines() if name in table else [] for table in (was, now))
            lines = difflib.unified_diff(before, after, "old", "new", lineterm="", n=1)
            print(f"DIFFERS ({category}) {name}", *(f"    {line[:400]}" for line in lines), sep="\n")
    print(", ".join(said))
    return int(code)


if __name__ == "__main__":
    sys.exit(tyro.extras.subcommand_cli_from_dict({"record": record, "compare": compare}))
