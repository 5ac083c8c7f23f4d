"""Attention within the pieces of a row, with dropout, by kernels of our own: no [T, T] in memory.

Queries, keys and values come packed as one product makes them, and so does their gradient. Which weights are dropped
follows from a key (keyed_dropout.py), and is worked out again in the backward pass. The gradient of the products' bias
is made here too, from one partial sum a program. No two programs add to one number, so results are the same each time.
To PyTorch's compiler the kernels are operators that it calls and does not look into.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra_trainer.kernels.gpu import keyed_dropout, trust

NAME = "attention within pieces"
_SIZES = {torch.float32: (32,), torch.bfloat16: (32, 64, 128), torch.float16: (32, 64, 128)}
"""Sizes of a head that there is a kernel for; in fp32 larger ones do not fit into the registers of a multiprocessor."""
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Relative, of results and gradients, against the plain way in fp32."""


@dataclass(frozen=True)
class Shape:
    """What kernels are compiled for."""

    dtype: torch.dtype
    heads: int
    tokens: int
    size: int
    """Numbers of a head."""
    drops: bool
    back: bool
    """Whether gradients are needed."""


def usable(device: torch.device, shape: Shape) -> bool:
    """True where `attend` is to be called: there is a kernel, and it agrees with its plain twin."""
    return shape.size in _SIZES.get(shape.dtype, ()) and trust.trusted(NAME, device, shape)


def attend(packed_BT3HD: Tensor, bias: Tensor, piece_BT: Tensor, key: Tensor, *, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d) V among tokens of one piece.

    Args:
        packed_BT3HD: queries, keys and values, contiguous.
        bias: [3D], already added to `packed_BT3HD` (detached); its gradient is computed here, which is cheaper than a
            sum over all tokens.
        piece_BT: int32, contiguous.
        key: of the dropout mask, int64 [2]; not read where nothing is dropped.
        dropout: the share of weights that is dropped.

    Returns:
        [B, T, H, D/H] in the type of `packed_BT3HD`.
    """
    out_BTHD: Tensor = torch.ops.electra.attention(packed_BT3HD, bias, piece_BT, key, dropout)[0]
    return out_BTHD


def plain(packed_BT3HD: Tensor, piece_BT: Tensor, kept: Tensor | float = 1.0) -> Tensor:
    """The plain twin; `kept` multiplies the weights, [B, H, T, T]."""
    query, key, value = packed_BT3HD.permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    same_B1TT = (piece_BT[:, :, None] == piece_BT[:, None, :])[:, None]
    mixed: Tensor = (scores.masked_fill(~same_B1TT, float("-inf")).softmax(-1) * kept) @ value
    return mixed.transpose(1, 2)


def _constants(packed: Tensor, dropout: float, block: int) -> dict[str, Any]:
    _, tokens, _, heads, size = packed.shape
    scale = math.log2(math.e) / math.sqrt(size)
    return {
        "SCALE": scale,
        "H": heads,
        "T": tokens,
        "D": size,
        "DROP": dropout > 0,
        "BLOCK": block,
        "WIDEN": trust.interpreted(),
    }


def launches(packed: Tensor, dropout: float, *, back: bool) -> list[tuple[str, dict[str, Any]]]:
    """The kernels of a pass, by name, with their constants."""
    _, tokens, _, _, size = packed.shape
    narrow = packed.element_size() == 2
    if not back:
        # the loop over keys loads ahead; with heads of 128 two blocks ahead would not fit into the memory of smaller
        # cards
        return [
            (
                "attention_forward",
                {**_constants(packed, dropout, 64), "num_warps": 4, "num_stages": 3 if size < 128 else 2},
            )
        ]
    block, whole = _back(tokens, size, narrow, packed.device)
    if whole:
        return [("attention_backward", {**_constants(packed, dropout, block), "num_warps": block // 16})]
    constants = {**_constants(packed, dropout, block), "num_warps": 4, "num_stages": 3 if size <= 64 and narrow else 2}
    return [("attention_backward", constants), ("attention_backward_queries", constants)]


def _back(tokens: int, size: int, narrow: bool, device: torch.device) -> tuple[int, bool]:
    """Tokens of a block on the way back, and whether it is the whole row.

    A row of up to 128 tokens in one block makes the scores once, not twice; before Hopper that needs more registers
    than there are.
    """
    if size <= 64 and narrow and (tokens <= 64 or (tokens <= 128 and _wide_products(device))):
        return 64 if tokens <= 64 else 128, True
    return 64 if size <= 64 and narrow else 32, False


def _wide_products(device: torch.device) -> bool:
    """True on Hopper, whose products read their operands from shared memory instead of registers."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] == 9


def _run(packed: Tensor, dropout: float, *tensors: Tensor, back: bool) -> None:
    kernels = trust.kernels()
    rows, tokens, _, heads, _ = packed.shape
    with trust.on(packed.device):
        for name, constants in launches(packed, dropout, back=back):
            programs = rows * heads * -(-tokens // constants["BLOCK"])
            getattr(kernels, name)[(programs,)](*tensors, *keyed_dropout.numbers(dropout), **constants)


def _forward(packed: Tensor, bias: Tensor, piece: Tensor, key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    out, log_sum = _like_forward(packed, bias, piece, key, dropout)
    _run(packed, dropout, packed.contiguous(), piece, key, out, log_sum, back=False)
    return out, log_sum


def _backward(
    upstream: Tensor, packed: Tensor, piece: Tensor, key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    packed = packed.contiguous()
    gradient, partial = _like_backward(upstream, packed, piece, key, out, log_sum, dropout)
    _run(packed, dropout, upstream.contiguous(), packed, piece, key, out, log_sum, gradient, partial, back=True)
    return gradient, partial


def _like_forward(packed: Tensor, bias: Tensor, piece: Tensor, key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    rows, tokens, _, heads, size = packed.shape
    return packed.new_empty((rows, tokens, heads, size)), packed.new_empty((rows, heads, tokens), dtype=torch.float32)


def _like_backward(
    upstream: Tensor, packed: Tensor, piece: Tensor, key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Gradient of `packed`, and partial sums of that of the bias, fp32 [parts, 3D]."""
    rows, tokens, _, heads, size = packed.shape
    parts = rows * -(-tokens // _back(tokens, size, packed.element_size() == 2, packed.device)[0])
    return packed.new_empty(packed.shape), packed.new_empty((parts, 3 * heads * size), dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    packed, bias, piece, key, ctx.dropout = inputs
    ctx.kind = bias.dtype
    ctx.save_for_backward(packed, piece, key, *output)


def _gradients(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    gradient, partial = torch.ops.electra.attention_backward(upstream, *ctx.saved_tensors, ctx.dropout)
    return gradient, partial.sum(0).to(ctx.kind), None, None, None


_attention = torch.library.custom_op(
    "electra::attention",
    _forward,
    mutates_args=(),
    schema="(Tensor packed, Tensor bias, Tensor piece, Tensor key, float dropout) -> (Tensor, Tensor)",
)
_attention_backward = torch.library.custom_op(
    "electra::attention_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor upstream, Tensor packed, Tensor piece, Tensor key, Tensor out, Tensor log_sum, float dropout)"
    " -> (Tensor, Tensor)",
)
_attention.register_fake(_like_forward)
_attention_backward.register_fake(_like_backward)
_attention.register_autograd(_gradients, setup_context=_keep)


def _made(device: torch.device, shape: Shape, *, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, rows of several pieces and padding, and a key."""
    random, tokens = torch.Generator().manual_seed(7), shape.tokens
    packed = torch.randn((rows, tokens, 3, shape.heads, shape.size), generator=random).to(shape.dtype)
    starts = torch.rand((rows, tokens), generator=random) < 3 / tokens
    piece = (1 + starts.cumsum(1)).to(torch.int32)
    piece[0, tokens - tokens // 5 :] = 0
    return packed.to(device), piece.to(device), torch.tensor([4321, 8765], device=device)


def check(device: torch.device, shape: Shape, *, rows: int = 2) -> None:
    """Compare with the plain twin: rows of several pieces and padding, a fifth of the weights dropped where `shape`
    drops.
    """
    heads, tokens, dropout = shape.heads, shape.tokens, 0.2 * shape.drops
    packed, pieces, key = _made(device, shape, rows=rows)
    head = torch.arange(rows * heads, device=device).view(rows, heads, 1, 1)
    places = torch.arange(tokens * tokens, device=device).view(tokens, tokens)
    kept = keyed_dropout.kept(key, head, places, dropout) / (1 - dropout)
    exact, given = (packed.to(dtype).requires_grad_(shape.back) for dtype in (torch.float32, shape.dtype))
    bias = torch.zeros(3 * heads * shape.size, dtype=shape.dtype, device=device, requires_grad=shape.back)
    expected, found = plain(exact, pieces, kept), attend(given, bias, pieces, key, dropout=dropout)
    tolerance = TOLERANCE[shape.dtype]
    trust.close("the result", found, expected, tolerance)
    if shape.back:
        above = torch.randn(expected.shape, generator=torch.Generator().manual_seed(8)).to(device)
        theirs = torch.autograd.grad(expected, exact, above)[0]
        ours, of_bias = torch.autograd.grad(found, [given, bias], above.to(found.dtype))
        for one, other, name in zip(ours.unbind(2), theirs.unbind(2), ("queries", "keys", "values"), strict=True):
            trust.close(f"the gradient of the {name}", one, other, 2 * tolerance)
        trust.close("the gradient of the bias", of_bias.view(3, heads, -1), theirs.sum((0, 1)), 2 * tolerance)


trust.register(NAME, check, usual=Shape(torch.bfloat16, heads=4, tokens=128, size=64, drops=True, back=True))
