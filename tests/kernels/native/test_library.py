"""Where the kernels cannot be compiled or used, the reason is told and PyTorch computes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electra_trainer.kernels.native import library


def status_with(cache: Path, **environment: str) -> str:
    """`status()` of a fresh process with an empty cache."""
    plain = {name: value for name, value in os.environ.items() if name not in ("CXX", "ELECTRA_NATIVE")}
    code = (
        "from electra_trainer.kernels.native import library; print(library.status()); assert library.kernels() is None"
    )
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
@pytest.mark.parametrize("what", ["a file", "no home"])
def test_without_a_cache_they_are_built_for_the_process(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plain = {name: value for name, value in os.environ.items() if name not in ("CXX", "ELECTRA_NATIVE", "HOME")}
    plain["XDG_CACHE_HOME"] = str(tmp_path / "file") if what == "a file" else ""
    code = "import pathlib; pathlib.Path.home = lambda: (_ for _ in ()).throw(RuntimeError('no home')); "
    code += "from electra_trainer.kernels.native import library; print(library.status())"
    done = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "in use (AMX, AVX-512)"


@needs_cpu
def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "electra-trainer").mkdir()
    (tmp_path / "electra-trainer").chmod(0o777)
    assert status_with(tmp_path).startswith("not in use: others may write to ")


def test_instructions_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc/cpuinfo")
    monkeypatch.delenv("ELECTRA_NATIVE", raising=False)
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(library, "_NEEDED", ("avx512f", "amx_bf17"))
    with pytest.raises(library.Unavailable, match=r"this CPU lacks .*amx_bf17"):
        library._require_cpu()


def test_slices_cover_everything_once() -> None:
    for count, slices in ((0, 1), (1, 1), (2, 2), (3, 3), (10, 3), (7, 5)):
        seen: list[tuple[int, int, int]] = []
        library.share_out(count, slices, lambda i, a, b, seen=seen: seen.append((i, a, b)))
        assert sorted(x for _, a, b in seen for x in range(a, b)) == list(range(count))
        assert [i for i, _, _ in sorted(seen)] == list(range(slices))


def test_a_slice_that_fails_is_an_error_when_all_are_done() -> None:
    done = []

    def work(number: int, *_: int) -> int:
        done.append(number)
        return int(number == 1)

    with pytest.raises(MemoryError, match="can't allocate memory"):
        library.share_out(4, 4, work)
    assert sorted(done) == [0, 1, 2, 3]


@needs_cpu
def test_the_pool_works_in_a_forked_process() -> None:
    library.share_out(2, 2, lambda *_: None)
    child = os.fork()
    if child == 0:
        library.share_out(2, 2, lambda *_: None)
        os._exit(7)
    for _ in range(100):
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
    assert os.waitstatus_to_exitcode(code) == 7
