"""Where the kernels cannot be compiled or used, the reason is reported and PyTorch computes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from electra_trainer.errors import ConfigError
from electra_trainer.kernels.native import library
from electra_trainer.train.device import choose_precision


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Libraries that were loaded before are asked for again."""
    monkeypatch.delenv("CXX", raising=False)
    library.load.cache_clear()
    yield
    library.load.cache_clear()


def status_with(cache: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """`status()` with an empty cache, where no kernels can be had."""
    for name, value in {"XDG_CACHE_HOME": str(cache), **environment}.items():
        monkeypatch.setenv(name, value)
    assert library.kernels("bf16") is None is library.kernels("fp32")
    return library.status()


def test_switched_off_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_with(tmp_path, monkeypatch, ELECTRA_NATIVE="off") == (
        "bf16: not in use: ELECTRA_NATIVE=off; fp32: not in use: ELECTRA_NATIVE=off"
    )


@pytest.mark.parametrize("name", ["sse", "amx"])
def test_a_name_that_cannot_be_had_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_NATIVE", name)
    monkeypatch.setattr(library, "cpu_instructions", lambda: ("avx2", "fma"))
    with pytest.raises(ConfigError, match=f"ELECTRA_NATIVE={name}: expected off, or one .*: avx2, portable"):
        library._chosen("bf16")


ALL = "avx512f avx512bw avx512vl avx512dq avx512_bf16 amx_tile amx_bf16 avx2 fma"


@pytest.mark.parametrize(
    ("instructions", "forced", "bf16", "fp32"),
    [
        (ALL, "", "amx", "avx512"),
        (ALL.replace("amx_tile", ""), "", "avx512bf16", "avx512"),
        (ALL.replace("avx512_bf16", ""), "", "this CPU lacks avx512_bf16", "avx512"),
        ("avx2 fma", "", "this CPU lacks avx512f, ", "avx2"),
        ("", "", "this CPU lacks avx512f, ", "this CPU lacks avx2, fma"),
        (ALL, "avx512bf16", "avx512bf16", "ELECTRA_NATIVE=avx512bf16 computes in bf16"),
        (ALL, "avx512", "ELECTRA_NATIVE=avx512 computes in fp32", "avx512"),
        ("avx2 fma", "avx2", "ELECTRA_NATIVE=avx2 computes in fp32", "avx2"),
        ("", "portable", "ELECTRA_NATIVE=portable computes in fp32", "portable"),
    ],
)
def test_which_are_chosen(
    instructions: str, forced: str, bf16: str, fp32: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELECTRA_NATIVE", forced)
    monkeypatch.setattr(library, "cpu_instructions", instructions.split)
    for precision, expected in (("bf16", bf16), ("fp32", fp32)):
        if " " in expected:
            with pytest.raises(library.Unavailable, match=expected):
                library._chosen(precision)
        else:
            assert library._chosen(precision) == expected


@pytest.mark.parametrize(
    ("kernels", "multiplies", "vendor", "precision"),
    [
        ("bf16 fp32", "amx_tile avx512_bf16", "GenuineIntel", "bf16"),
        ("bf16 fp32", "avx512_bf16", "AuthenticAMD", "bf16"),
        ("bf16 fp32", "avx512_bf16", "GenuineIntel", "fp32"),
        ("fp32", "amx_tile avx512_bf16", "GenuineIntel", "fp32"),
        ("bf16", "avx512_bf16", "GenuineIntel", "bf16"),  # ELECTRA_NATIVE=avx512bf16
        ("fp32", "", "GenuineIntel", "fp32"),
        ("", "amx_tile avx512_bf16", "", "bf16"),
        ("", "avx512_bf16", "GenuineIntel", "fp32"),
        ("", "", "", "fp32"),
    ],
)
def test_bf16_is_chosen_where_it_is_faster(
    kernels: str, multiplies: str, vendor: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intel's vectors multiply bf16 at half the rate of fp32 (records/2026-11-20-speed)."""
    monkeypatch.setattr(library, "kernels", lambda name: name in kernels.split() or None)
    monkeypatch.setattr(library, "cpu_field", {"vendor_id": vendor}.get)
    for name in ("amx_tile", "avx512_bf16"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda on=name in multiplies: on, raising=False)
    assert choose_precision("auto", torch.device("cpu")) == precision


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: unknown option' >&2\nexit 1\n")
    compiler.chmod(0o755)
    said = status_with(tmp_path, monkeypatch, ELECTRA_NATIVE="portable", CXX=str(compiler))
    assert (
        f"{compiler} could not compile the kernels (g++ 12 or newer is needed): x.cpp:1: error: unknown option" in said
    )
    assert [path.suffix for path in (tmp_path / "electra-trainer").iterdir()] == []


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = status_with(tmp_path, monkeypatch, ELECTRA_NATIVE="portable", CXX=str(tmp_path / "none"))
    assert "No such file" in said


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "electra-trainer").mkdir()
    (tmp_path / "electra-trainer").chmod(0o777)
    assert "fp32: not in use: others may write to " in status_with(tmp_path, monkeypatch, ELECTRA_NATIVE="portable")


def test_slices_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, slices in ((0, 1), (1, 1), (2, 2), (3, 3), (10, 3), (7, 5)):
        monkeypatch.setattr(torch, "get_num_threads", lambda slices=slices: slices)
        seen: list[tuple[int, int, int]] = []
        library.share_out(count, lambda i, a, b, seen=seen: seen.append((i, a, b)))
        assert sorted(x for _, a, b in seen for x in range(a, b)) == list(range(count))
        assert [i for i, _, _ in sorted(seen)] == list(range(slices))


def test_a_slice_that_fails_is_an_error_when_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    done = []

    def work(number: int, *_: int) -> int:
        done.append(number)
        return int(number == 1)

    with pytest.raises(MemoryError, match="can't allocate memory"):
        library.share_out(4, work)
    assert sorted(done) == [0, 1, 2, 3]


def test_the_pool_works_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    library.share_out(2, lambda *_: None)
    child = os.fork()
    if child == 0:
        library.share_out(2, lambda *_: None)
        os._exit(7)
    for _ in range(100):
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
    assert os.waitstatus_to_exitcode(code) == 7
