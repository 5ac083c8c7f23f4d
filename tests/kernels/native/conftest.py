"""The kernels' tests run once for each variant that this machine can execute, and for plain code everywhere.

Beside the variants that are used there are up to three for tests alone: products in plain C++, the truth for the others, in bf16; and,
where the CPU lacks AVX512-BF16 or AMX, their code with the instructions replaced by plain C++, so that every machine tests all of it.
"""

import ctypes
import fcntl
import functools
import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from tests.reliability.figures import LONG

from electra_trainer.kernels.native import library
from electra_trainer.kernels.native.library import VARIANTS, Unavailable

HERE = Path(__file__).parent
HEADERS = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.hpp")))).hexdigest()[:8]
"""In the flags, so that a library made of other headers is not used again."""
FOR_TESTS = {
    "plain-bf16": f"-DELECTRA_PLAIN -I{HERE}",
    "avx512bf16-emulated": "",
    "amx-emulated": f"-DELECTRA_AMX -DELECTRA_EMULATED -I{HERE}",
}
AVAILABLE = {name: dict(variant) for name, variant in VARIANTS.items() if not library.missing(variant)}
RUN_HERE = AVAILABLE | {
    name: {"precision": "bf16", "flags": f"-O1 -DELECTRA_NUMBER=bf16 -DHEADERS=0x{HEADERS} {flags}"}
    for name, flags in FOR_TESTS.items()
    if name.removesuffix("-emulated") not in AVAILABLE
}
# Vectors of four: else it is the best of this CPU again. The short form compiles them faster than what is shipped
RUN_HERE["portable"]["flags"] = f"{'' if LONG else '-O1 '}-DELECTRA_NUMBER=float"


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
