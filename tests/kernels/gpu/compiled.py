"""Compiles every kernel for graphics cards that are not there, as the programs launch it: `python -m tests.kernels.gpu.compiled [80 89 90]`.

A line for each: instructions, registers, bytes of stack, loads and stores of spilled registers, products by Hopper's matrix units, bytes of
shared memory. What must not be is raised at the end:

- a stack or a spilled register; on Hopper (sm_90, H100 and H200) a matrix product that its units do not compute;
- more shared memory than a block can have: 163 KB on sm_80 (A100), 99 KB on sm_89 (and sm_86: RTX 30 and 40, L4), 227 KB on sm_90;
- on Hopper attention, in heads of 64, with dropout that has more than 1.8 times the instructions that it has without.

Heads of 128, which no preset has, and fp32 take small blocks, since larger ones do not fit into the registers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from electra_trainer.kernels.gpu import gpu_attention, layer_kernels, softmax_kernels

SHARED = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
DROPOUT = 1.8
INTEGERS = ("K", "V", "BLOCKS", "STRIDE", "N", "D", "LIMIT")
REALS = ("EPS", "UP")
ALIGNED = ("STRIDE", "D")
ALWAYS_REAL = ("bias", "most", "mass", "spread", "label_logit", "loss", "log_z", "entropy", "sums", "levels", "weight", "log_sum", "draws",
               "partial")  # fmt: skip
WHOLE = {"labels": "*i64", "sampled": "*i64", "best": "*i32", "correct": "*i8", "key": "*i64", "piece": "*i32"}
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
    function = getattr(layer_kernels, name, None) or getattr(softmax_kernels, name)
    options = {word: constants.pop(word) for word in ("num_warps", "num_stages") if word in constants}
    names, signature = function.arg_names, {}
    for word in names:
        if word in constants:
            signature[word] = "constexpr"
        elif word in INTEGERS:
            signature[word] = "i32"
        elif word in REALS:
            signature[word] = "fp32"
        elif word in ALWAYS_REAL:
            signature[word] = "*fp32"
        else:
            signature[word] = WHOLE.get(word, f"*{dtype}")
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for word, kind in signature.items():
        if word not in constants and (word in ALIGNED or kind.startswith("*")):
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


def attention(arch: int) -> dict[str, Compiled]:
    """In the shapes of the presets, of heads of 128 (a model of one's own), and in fp32."""
    gpu_attention._wide_products = lambda device: arch == 90
    found = {}
    shapes = [
        ("bf16", 128, 64),
        ("bf16", 512, 64),
        ("bf16", 512, 128),
        ("bf16", 128, 32),
        ("bf16", 32, 32),
        ("fp32", 128, 32),
    ]
    for dtype, tokens, size in shapes if arch == 90 else shapes[: 2 + (arch == 89)]:
        packed = torch.empty(
            (1, tokens, 3, 4, size), dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype], device="meta"
        )
        for dropout in (0.1, 0.0) if arch == 90 and dtype == "bf16" else (0.1,):
            for back in (False, True):
                for name, constants in gpu_attention.launches(packed, dropout, back=back):
                    what = f"{name} {dtype} {tokens} tokens, heads of {size}" + ", dropout" * (dropout > 0)
                    found[what] = build(name, dtype, arch, **constants)
    return found


def others(arch: int) -> dict[str, Compiled]:
    """The softmax and the norms of Small and Base."""
    found = {}
    for width in (128, 768) if arch == 90 else (128,):
        tiles = {"WIDTH": width, "BLOCK_K": 64, "BLOCK_V": 128, "BLOCK_E": 64, "WIDEN": False}
        found[f"block_statistics {width}"] = build("block_statistics", "bf16", arch, LOOK=True, **tiles)
        found[f"logit_gradient {width}"] = build("logit_gradient", "bf16", arch, **tiles)
        del tiles["BLOCK_K"]
        found[f"choose {width}"] = build("choose", "bf16", arch, SAMPLE=True, LOOK=True, BLOCK_B=256, **tiles)
    for width, warps in ((256, 1), (768, 4)):
        sizes = {"BLOCK_D": triton.next_power_of_2(width), "DROP": True, "num_warps": warps}
        found[f"add_norm_forward {width}"] = build("add_norm_forward", "bf16", arch, **sizes)
        found[f"add_norm_backward {width}"] = build("add_norm_backward", "bf16", arch, ROWS=16, **sizes)
    return found


def wrong(arch: int, found: dict[str, Compiled]) -> list[str]:
    """What must not be."""
    lines = []
    for what, kernel in found.items():
        if kernel.shared > SHARED[arch]:
            lines.append(f"{what}: {kernel.shared} bytes of shared memory, more than {SHARED[arch]}")
        if kernel.stack or kernel.spilled:
            lines.append(
                f"{what}: {kernel.stack} bytes of stack, {kernel.spilled} loads and stores of spilled registers"
            )
        without = found.get(what.removesuffix(", dropout"), kernel)
        if "heads of 64" in what and kernel.instructions > DROPOUT * without.instructions:
            lines.append(f"{what}: {kernel.instructions} instructions, {without.instructions} without dropout")
        if (
            arch == 90
            and not kernel.wide_products
            and re.search("heads of (64|32)|block_stat|logit", what)
            and "fp32" not in what
        ):
            lines.append(f"{what}: Hopper's matrix units are not used")
    return lines


def main() -> None:
    """Print and judge."""
    lines = []
    for arch in map(int, sys.argv[1:] or ("80", "89", "90")):
        found = attention(arch) | (others(arch) if arch > 80 else {})
        for what, kernel in found.items():
            print(
                f"sm_{arch} {what:<70} {' '.join(f'{name} {value}' for name, value in kernel._asdict().items())}",
                flush=True,
            )
        lines += [f"sm_{arch} {line}" for line in wrong(arch, found)]
    if lines:
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
