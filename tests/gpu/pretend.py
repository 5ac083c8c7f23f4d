"""The pretended card (card.cpp): build it, start a program on it, and read its ledger.

ELECTRA_CARD names an environment with PyTorch's build for GPUs; `make gpu-rehearsal` makes one. Its wheels bring the headers of CUDA.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("card.cpp")
FOLDER = os.environ.get("ELECTRA_CARD", "")
needs_card = pytest.mark.skipif(not FOLDER, reason="needs PyTorch's build for GPUs, several GB: make gpu-rehearsal")
_HEADERS = ("nvidia/*/include", "nvidia/*/include/cccl", "triton/backends/nvidia/include")


def built() -> Path:
    """The folder of the card as a library, compiled once for each version of its source."""
    environment = Path(FOLDER).resolve()
    packages = next(environment.glob("lib/python3*/site-packages"))
    folder = environment / "cards" / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = folder / "libcuda.so.1"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        headers = [f"-I{path}" for pattern in _HEADERS for path in sorted(packages.glob(pattern))]
        made = library.with_suffix(f".{os.getpid()}")
        flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["g++", *flags, *headers, "-o", str(made), str(SOURCE), "-ldl"], check=True)
        made.rename(library)
    return folder


def environment(ledger: Path | None = None, *, cards: int = 1, **more: str) -> dict[str, str]:
    """Variables of a process that sees `cards` pretended cards."""
    folder, cache = built(), Path(FOLDER).resolve() / "cache"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ELECTRA_", "PYTEST_", "TRITON"))}
    return kept | {
        "LD_PRELOAD": str(folder / "libcuda.so.1"),
        "LD_LIBRARY_PATH": str(folder),
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "OMP_NUM_THREADS": "1",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",  # cuDNN is not pretended
        "CARD_COUNT": str(cards),
        **({"CARD_LEDGER": str(ledger)} if ledger else {}),
        **more,
    }


def command(*words: object) -> list[str]:
    """A program of this folder in the environment of the card, without the warnings of libraries."""
    return [str(Path(FOLDER).resolve() / "bin" / "python"), "-W", "ignore", "-m", *(str(word) for word in words)]


@dataclass(frozen=True)
class Entry:
    """A line of the ledger."""

    nanoseconds: int
    kind: str
    place: str
    device: int
    stream: int
    text: str


class Ledger(list[Entry]):
    """Events that the card noted, in order."""

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """All of a file."""
        lines = path.read_text(errors="replace").splitlines()
        split = (line.split("\t", 5) for line in lines)
        return cls(Entry(int(w), kind, place, int(d), int(s), text) for w, kind, place, d, s, text in split)

    def of(self, *kinds: str, place: str | None = None) -> Ledger:
        """Events of some kinds."""
        return Ledger(one for one in self if one.kind in kinds and place in (None, one.place))

    def parts(self) -> Iterator[tuple[str, Ledger]]:
        """Events after each mark, up to the next one."""
        name, begun = "", Ledger()
        for one in self:
            if one.kind == "mark":
                yield name, begun
                name, begun = one.text, Ledger()
            else:
                begun.append(one)
        yield name, begun

    def waits(self) -> Ledger:
        """Events that make the host wait or move memory between it and the card."""
        between = [one for one in self.of("copy") if one.text.startswith(("to-", "host"))]
        return Ledger([*self.of("wait"), *between])

    def gap(self) -> int:
        """Nanoseconds from the first of two steps' last wait to the second's replay, in which the card has nothing to do; the least of all."""
        found, since = [], 0
        for one in self:
            if one.kind == "wait":
                since = one.nanoseconds
            elif one.kind == "replay" and since:
                found.append(one.nanoseconds - since)
                since = 0
        return min(found)

    def nodes(self) -> int:
        """Nodes of the graphs that were replayed."""
        return sum(int(one.text.split()[-1]) for one in self.of("replay"))


def rehearse(
    cases: Sequence[dict[str, Any]], folder: Path, *, cards: int = 1, **more: str
) -> list[tuple[dict[str, Any], Ledger]]:
    """Output of `rehearse.py` for each case, and its ledger; `more` are variables."""
    ledger = folder / "ledger"
    done = subprocess.run(
        command("tests.gpu.rehearse", json.dumps(list(cases))),
        cwd=ROOT, env=environment(ledger, cards=cards, **more), capture_output=True, text=True, timeout=560,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    whole = Ledger.read(ledger)
    starts = [n for n, one in enumerate(whole) if one.kind == "mark" and one.text.startswith("case")]
    ledgers = [Ledger(whole[a:b]) for a, b in zip(starts, [*starts[1:], len(whole)], strict=True)]
    assert len(said) == len(ledgers) == len(cases)
    return list(zip(said, ledgers, strict=True))
