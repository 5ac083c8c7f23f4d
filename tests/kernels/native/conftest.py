"""The kernels' tests run once for each variant that this machine can execute, and for plain code everywhere.

Beside the variants that are used there are three for tests alone: products in plain C++, the truth for the others, in bf16; and the code
for AVX512-BF16 and AMX with their instructions replaced by plain C++, so that every machine tests all of it.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import tempfile
from pathlib import Path

import pytest

from electra_trainer.kernels.native import library
from electra_trainer.kernels.native.library import VARIANTS, Unavailable

HERE = Path(__file__).parent
FOR_TESTS = {
    "plain-bf16": f"-DELECTRA_PLAIN -I{HERE}",
    "avx512bf16-emulated": "",
    "amx-emulated": f"-DELECTRA_AMX -DELECTRA_EMULATED -I{HERE}",
}
RUN_HERE = {name: dict(variant) for name, variant in VARIANTS.items() if not library.missing(variant)} | {
    name: {"precision": "bf16", "flags": f"-O1 -DELECTRA_NUMBER=bf16 {flags}"} for name, flags in FOR_TESTS.items()
}
RUN_HERE["portable"]["flags"] = "-DELECTRA_NUMBER=float"  # with vectors of four; else it is the best of this CPU again


@functools.cache
def opened(name: str) -> ctypes.CDLL | str:
    """The library, or why there is no compiler for it. One that does not compile is an error."""
    try:
        with (Path(tempfile.gettempdir()) / f"electra-compiles-{name}-{os.getuid()}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two processes that want the same would both compile it
            return library.opened(name, RUN_HERE[name])
    except Unavailable as error:
        if "no C++ compiler" not in str(error):
            raise
        return str(error)


@pytest.fixture(params=RUN_HERE)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels in use for the rest of the test, in their own precision; without a compiler the test is left out."""
    name: str = request.param
    found = opened(name)
    if isinstance(found, str):
        pytest.skip(f"native kernels not in use: {found}")
    own = RUN_HERE[name]["precision"]
    monkeypatch.setattr(library, "load", lambda precision: (found, name) if precision == own else (None, "not in use"))
    return name
