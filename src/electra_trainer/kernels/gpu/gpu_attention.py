"""Attention within the pieces of a row, with dropout, by kernels of our own: no [T, T] in memory.

Queries, keys and values come packed as one product makes them, and so does their gradient. Which weights are dropped follows from a key
(keyed_dropout.py), and is worked out again in the backward pass. The gradient of the products' bias comes from here as partial sums
(shared_sums.py). No two programs add to one number, so results are the same each time.
To PyTorch's compiler the kernels are operators that it calls and does not look into.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra_trainer.kernels.gpu import keyed_dropout, shared_sums, trust

NAME = "attention within pieces"
_SIZES = {torch.float32: (32,), torch.bfloat16: (32, 64, 128), torch.float16: (32, 64, 128)}
"""Sizes of a head that there is a kernel for; in fp32 larger ones do not fit into the registers of a multiprocessor."""
SHORT = 128
"""Tokens up to which our kernels are taken untimed: a head's scores are one or two blocks, and PyTorch's read a bias of [T, T] as well."""
MARGIN = 0.8
"""PyTorch's attention is taken where it needs less than this share of our time: what two measurements differ by must not decide."""
measured: dict[tuple[str, Any], tuple[float, float]] = {}
"""Milliseconds by device and shape: ours, PyTorch's."""
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


Instead = Callable[[Tensor, Tensor, float], Callable[[], Tensor]]
"""Packed queries, keys and values, pieces and a share to drop -> the other way to attend, to be called again and again."""


def usable(device: torch.device, shape: Shape, *, instead: Instead) -> bool:
    """True where `attend` is to be called: it agrees with its plain twin, and for long rows `instead` is not much faster.

    Both are timed at the first use of a shape. Where deterministic algorithms are asked for, nothing is timed: PyTorch's attention is not one.
    """
    if shape.size not in _SIZES.get(shape.dtype, ()) or not trust.trusted(NAME, device, shape):
        return False
    if shape.tokens <= SHORT or torch.are_deterministic_algorithms_enabled():
        return True
    place = (str(device), shape)
    if place not in measured and not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        measured[place] = measure(device, shape, instead)
    ours, theirs = measured.get(place, (0.0, 0.0))
    return ours * MARGIN <= theirs


def measure(device: torch.device, shape: Shape, instead: Instead) -> tuple[float, float]:
    """Milliseconds of a pass, and where gradients are needed back, over 16,384 tokens: ours, the other's."""
    dropout = 0.1 * shape.drops
    with trust.undisturbed(device), trust.on(device):
        packed, piece, key = _made(device, shape, rows=max(1, 16384 // shape.tokens))
        packed.requires_grad_(shape.back)
        above, bias = torch.ones_like(packed[:, :, 0]), packed.detach()[0, 0].flatten().requires_grad_(shape.back)
        found = []
        for attend_once in (lambda: attend(packed, bias, piece, key, dropout=dropout), instead(packed, piece, dropout)):

            def run(once: Callable[[], Tensor] = attend_once) -> None:
                out = once()
                if shape.back:
                    torch.autograd.grad(out, packed, above.view(out.shape))

            found.append(_milliseconds(run))
    return found[0], found[1]


def _milliseconds(run: Callable[[], None], *, repeats: int = 5) -> float:
    """The fastest of some calls, by the device's own clock; infinite where there is too little memory, or no kernel."""
    times: list[float] = []
    try:
        for _ in range(2 + repeats):  # the first compile kernels and take memory
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    except RuntimeError:
        return math.inf
    return min(times)


def parts(device: torch.device, shape: Shape, rows: int) -> int:
    """Partial sums of the gradient of the bias over `rows` rows."""
    return rows * -(-shape.tokens // _back(shape.tokens, shape.size, shape.dtype.itemsize == 2, device)[0])


def attend(
    packed_BT3HD: Tensor, bias: Tensor, piece_BT: Tensor, key: Tensor, *, dropout: float, place: Tensor | None = None
) -> Tensor:
    """softmax(QKᵀ/√d) V among tokens of one piece.

    Args:
        packed_BT3HD: queries, keys and values, contiguous.
        bias: [3D], that is in them already, without its gradient: it gets it here, where it costs a fraction of a sum over all tokens.
        piece_BT: int32, contiguous.
        key: of the dropout mask, int64 [2]; not read where nothing is dropped.
        dropout: the share of weights that is dropped.
        place: that of the bias.

    Returns:
        [B, T, H, D/H] in the type of `packed_BT3HD`.
    """
    if place is None:
        rows, tokens, _, heads, size = packed_BT3HD.shape
        shape = Shape(packed_BT3HD.dtype, heads, tokens, size, drops=dropout > 0, back=True)
        [place] = shared_sums.places([[bias]], [parts(packed_BT3HD.device, shape, rows)])
    out_BTHD: Tensor = torch.ops.electra.attention(packed_BT3HD, place, piece_BT, key, dropout)[0]
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
        "SCALE": scale, "H": heads, "T": tokens, "D": size, "DROP": dropout > 0, "BLOCK": block, "WIDEN": trust.interpreted(),
    }  # fmt: skip


def launches(packed: Tensor, dropout: float, *, back: bool) -> list[tuple[str, dict[str, Any]]]:
    """The kernels of a pass, by name, with their constants."""
    _, tokens, _, _, size = packed.shape
    narrow = packed.element_size() == 2
    if not back:
        # the loop over keys loads ahead; with heads of 128 two blocks ahead would not fit into the memory of smaller cards
        return [("attention_forward", {**_constants(packed, dropout, 64), "num_warps": 4, "num_stages": 3 if size < 128 else 2})]  # fmt: skip
    block, whole = _back(tokens, size, narrow, packed.device)
    if whole:
        return [("attention_backward", {**_constants(packed, dropout, block), "num_warps": block // 16})]
    constants = {**_constants(packed, dropout, block), "num_warps": 4, "num_stages": 3 if size <= 64 and narrow else 2}
    return [("attention_backward", constants), ("attention_backward_queries", constants)]


def _back(tokens: int, size: int, narrow: bool, device: torch.device) -> tuple[int, bool]:
    """Tokens of a block on the way back, and whether it is the whole row.

    A row of up to 128 tokens in one block makes the scores once, not twice; before Hopper that needs more registers than there are.
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


def _forward(packed: Tensor, place: Tensor, piece: Tensor, key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    out, log_sum = _like_forward(packed, place, piece, key, dropout)
    _run(packed, dropout, packed.contiguous(), piece, key, out, log_sum, back=False)
    return out, log_sum


def _backward(
    upstream: Tensor, packed: Tensor, place: Tensor, piece: Tensor, key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    packed = packed.contiguous()
    gradient, partial = _like_backward(upstream, packed, place, piece, key, out, log_sum, dropout)
    _run(packed, dropout, upstream.contiguous(), packed, piece, key, out, log_sum, gradient, partial, back=True)
    return gradient, partial


def _like_forward(packed: Tensor, place: Tensor, piece: Tensor, key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    rows, tokens, _, heads, size = packed.shape
    return packed.new_empty((rows, tokens, heads, size)), packed.new_empty((rows, heads, tokens), dtype=torch.float32)


def _like_backward(
    upstream: Tensor, packed: Tensor, place: Tensor, piece: Tensor, key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return packed.new_empty(packed.shape), torch.empty(place.shape, device=place.device)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return *torch.ops.electra.attention_backward(upstream, *ctx.saved_tensors, ctx.dropout), None, None, None


_INPUTS = "Tensor packed, Tensor place, Tensor piece, Tensor key"
_attention = torch.library.custom_op(
    "electra::attention", _forward, mutates_args=(), schema=f"({_INPUTS}, float dropout) -> (Tensor, Tensor)"
)
_attention_backward = torch.library.custom_op(
    "electra::attention_backward",
    _backward,
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}, Tensor out, Tensor log_sum, float dropout) -> (Tensor, Tensor)",
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
    """Compare with the plain twin: rows of several pieces and padding, a fifth of the weights dropped where `shape` drops."""
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
