"""Compiles the kernels for graphics cards that are not there, as the program launches them: `python -m tests.kernels.gpu.compiled [80 90]`.

A line for each: registers, bytes of stack, loads and stores of spilled registers, products by Hopper's matrix units, bytes of shared memory.
At the end it raises for a stack or a spilled register, for more shared memory than a block can have, and on Hopper (sm_90) for a matrix
product that its units do not compute.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from electra_trainer.kernels.gpu import gpu_softmax, softmax_kernels

SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KB that a block can have: T4, A100, RTX 30, RTX 40 and L4, H100, B200, RTX 50."""
INTEGERS = ("K", "V", "BLOCKS", "STRIDE")
ALWAYS_REAL = ("bias", "most", "mass", "spread", "label_logit", "loss", "log_z", "entropy", "sums", "draws")
WHOLE = {"labels": "*i64", "sampled": "*i64", "best": "*i32", "correct": "*i8"}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Compiled(NamedTuple):
    instructions: int
    registers: int
    stack: int
    spilled: int
    wide_products: int
    shared: int


def said(tool: str, *words: str) -> str:
    return subprocess.run([TOOLS / tool, *words], capture_output=True, text=True, check=True).stdout


def build(name: str, dtype: str, arch: int, **constants: Any) -> Compiled:
    """Compile one kernel with pointers of `dtype`."""
    function = getattr(softmax_kernels, name)
    options = {word: constants.pop(word) for word in ("num_warps", "num_stages") if word in constants}
    names, signature = function.arg_names, {}
    for word in names:
        if word in constants:
            signature[word] = "constexpr"
        elif word in INTEGERS:
            signature[word] = "i32"
        elif word in ALWAYS_REAL:
            signature[word] = "*fp32"
        else:
            signature[word] = WHOLE.get(word, f"*{dtype}")
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for word, kind in signature.items():
        if word not in constants and (word == "STRIDE" or kind.startswith("*")):
            attributes[names.index(word),] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, {(names.index(n),): v for n, v in constants.items()}, attributes)
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        code, resources = said("nvdisasm", "-c", file.name), said("cuobjdump", "-res-usage", file.name)
    kinds = Counter(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", code, re.M))
    used = {word: int(number) for word, number in re.findall(r"(REG|STACK):(\d+)", resources)}
    return Compiled(
        instructions=kinds.total(), registers=used["REG"], stack=used["STACK"], spilled=kinds["LDL"] + kinds["STL"],
        wide_products=kinds["HGMMA"], shared=kernel.metadata.shared,
    )  # fmt: skip


def kernels(arch: int) -> dict[str, Compiled]:
    """Those of Small and Base."""
    found = {}
    for width in (128, 768) if arch == 90 else (128,):
        tiles = gpu_softmax._tiles(width)
        found[f"block_statistics {width}"] = build("block_statistics", "bf16", arch, LOOK=True, **tiles)
        found[f"logit_gradient {width}"] = build("logit_gradient", "bf16", arch, **tiles)
        del tiles["BLOCK_K"]
        found[f"choose {width}"] = build("choose", "bf16", arch, SAMPLE=True, LOOK=True, BLOCK_B=256, **tiles)
    return found


def wrong(arch: int, found: dict[str, Compiled]) -> list[str]:
    """What must not be."""
    lines = []
    for what, kernel in found.items():
        if kernel.shared > SHARED[arch] * 1024:
            lines.append(f"{what}: {kernel.shared} bytes of shared memory, more than {SHARED[arch]} KB")
        if kernel.stack or kernel.spilled:
            lines.append(f"{what}: {kernel.stack} bytes of stack, {kernel.spilled} spills")
        if arch == 90 and not kernel.wide_products and not what.startswith("choose"):
            lines.append(f"{what}: Hopper's matrix units are not used")
    return lines


def main() -> None:
    """Print and judge."""
    lines = []
    for arch in map(int, sys.argv[1:] or ("80", "89", "90")):
        found = kernels(arch)
        for what, kernel in found.items():
            facts = " ".join(f"{name} {value}" for name, value in kernel._asdict().items())
            print(f"sm_{arch} {what:<24} {facts}", flush=True)
        lines += [f"sm_{arch} {line}" for line in wrong(arch, found)]
    if lines:
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
