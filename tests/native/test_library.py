"""Where the kernels cannot be compiled or used, the reason is told and PyTorch computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from electra_trainer.native import library


def status_with(cache: Path, **environment: str) -> str:
    """`status()` of a fresh process with an empty cache."""
    plain = {name: value for name, value in os.environ.items() if name not in ("CXX", "ELECTRA_NATIVE")}
    code = "from electra_trainer.native import library; print(library.status()); assert library.kernels() is None"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**plain, "XDG_CACHE_HOME": str(cache), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_switched_off_by_the_environment(tmp_path: Path) -> None:
    assert status_with(tmp_path, ELECTRA_NATIVE="off") == "not in use: ELECTRA_NATIVE=off"


needs_cpu = pytest.mark.skipif("AMX" not in library.status(), reason=f"native kernels {library.status()}")


@needs_cpu
def test_a_compiler_that_fails(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: unknown option' >&2\nexit 1\n")
    compiler.chmod(0o755)
    said = status_with(tmp_path, CXX=str(compiler))
    assert (
        said
        == f"not in use: {compiler} could not compile the kernels (g++ 11 or newer is needed): x.cpp:1: error: unknown option"
    )
    assert [path.suffix for path in (tmp_path / "electra-trainer").iterdir()] == []


@needs_cpu
def test_a_compiler_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in status_with(tmp_path, CXX=str(tmp_path / "none"))


@needs_cpu
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert status_with(tmp_path / "file").startswith("not in use: ")


def test_instructions_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc/cpuinfo")
    monkeypatch.delenv("ELECTRA_NATIVE", raising=False)
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(library, "_NEEDED", ("avx512f", "amx_bf17"))
    with pytest.raises(library.Unavailable, match=r"this CPU lacks .*amx_bf17"):
        library._require_cpu()


def test_slices_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.torch, "get_num_threads", lambda: 3)
    for count in (0, 1, 2, 3, 10):
        seen: list[tuple[int, int, int]] = []
        library.share_out(count, lambda i, a, b, seen=seen: seen.append((i, a, b)))
        assert sorted(x for _, a, b in seen for x in range(a, b)) == list(range(count))
        assert len(seen) == library.slices_of(count)
