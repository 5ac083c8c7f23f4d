"""Compiles every kernel for an H100 or H200 (sm_90) as the programs launch it, without a GPU: `python -m tests.kernels.gpu.compiled [bf16 fp32] [--registers]`.

Prints shared memory, and with --registers registers and spilled bytes of each, for which it is assembled once more; raises where one does not compile or asks for more shared memory than there is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from electra_trainer.kernels.gpu import gpu_attention, triton_kernels

TARGET = GPUTarget("cuda", 90, 32)
SHARED = 227 * 1024
INTEGERS = ("K", "V", "BLOCKS", "STRIDE", "N", "D", "stride_b", "stride_h", "stride_t", "LIMIT")
REALS = ("EPS", "UP")
ALWAYS_REAL = ("bias", "most", "mass", "spread", "label_logit", "loss", "log_z", "entropy", "sums", "mean", "weight", "log_sum", "draws",
               "for_weight", "for_bias")  # fmt: skip
WHOLE = {
    "labels": "*i64",
    "sampled": "*i64",
    "best": "*i32",
    "correct": "*i8",
    "key": "*i64",
    "mask_key": "*i64",
    "piece": "*i32",
}


def registers(kernel: Any) -> tuple[int, int]:
    """Registers a thread, and bytes spilled to memory, as the assembler counts them."""
    from triton import knobs

    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(kernel.asm["ptx"])
        file.flush()
        said = subprocess.run(
            [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"],
            capture_output=True,
            text=True,
        ).stderr
    used, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    return int(used[1]) if used else -1, int(spilled[1]) if spilled else -1


def build(function: Any, dtype: str, *, warps: int = 4, **constants: Any) -> None:
    """Compile one kernel with pointers of `dtype`."""
    names = function.arg_names
    signature: dict[str, str] = {}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name == "key" and "query" in names:
            signature[name] = f"*{dtype}"
        elif name in INTEGERS:
            signature[name] = "i32"
        elif name in REALS:
            signature[name] = "fp32"
        elif name in ALWAYS_REAL:
            signature[name] = "*fp32"
        else:
            signature[name] = WHOLE.get(name, f"*{dtype}")
    attributes = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in signature.items()
        if kind.startswith("*") or name in ("STRIDE", "D", "stride_b", "stride_h", "stride_t")
    }
    source = ASTSource(function, signature, {(names.index(n),): v for n, v in constants.items()}, attributes)
    kernel = triton.compile(source, target=TARGET, options={"num_warps": warps})
    said = f"{function.__name__:<18} {dtype:<5} shared {kernel.metadata.shared:6}"
    if "--registers" in sys.argv:
        said += " registers {:3} spilled {:5}".format(*registers(kernel))
    print(f"{said} {constants}", flush=True)
    assert kernel.metadata.shared <= SHARED


def main() -> None:
    """All kernels in the shapes of ELECTRA-Small and -Base, bf16 and fp32."""
    for dtype in [word for word in sys.argv[1:] if word != "--registers"] or ("bf16", "fp32"):
        for width in (128, 768):
            tiles = {"WIDTH": width, "BLOCK_K": 64, "BLOCK_V": 128, "BLOCK_E": 64, "WIDEN": False}
            build(triton_kernels.block_statistics, dtype, LOOK=True, **tiles)
            build(triton_kernels.logit_gradient, dtype, **tiles)
            del tiles["BLOCK_K"]
            build(triton_kernels.choose, dtype, SAMPLE=True, LOOK=True, BLOCK_B=256, **tiles)
        for width, warps in ((64, 1), (256, 1), (768, 4)):
            block = triton.next_power_of_2(width)
            build(triton_kernels.add_norm_forward, dtype, warps=warps, DROP=True, BLOCK_D=block)
            build(triton_kernels.add_norm_backward, dtype, warps=warps, ROWS=16, DROP=True, BLOCK_D=block)
        for tokens, size in ((128, 64), (512, 64), (512, 128)) if dtype == "bf16" else ((128, 32),):
            query = torch.empty(
                (1, 4, tokens, size), dtype=torch.bfloat16 if dtype == "bf16" else torch.float32, device="meta"
            )
            for function, back in (
                (triton_kernels.attention_forward, False),
                (triton_kernels.attention_backward, True),
            ):
                constants = gpu_attention._shape(query, 0.1, back=back)[1]
                build(function, dtype, warps=constants.pop("num_warps"), **constants)


if __name__ == "__main__":
    main()
