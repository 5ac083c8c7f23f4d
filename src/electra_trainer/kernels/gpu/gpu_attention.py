"""Attention over short rows, within the pieces of a row, with dropout: one kernel each way, no [T, T] in memory.

Which weights are dropped follows from a key (keyed_dropout.py), and is worked out again in the backward pass. To PyTorch's compiler both
kernels are operators that it calls and does not look into.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.gpu import keyed_dropout, trust

NAME = "attention over short rows"
LONGEST = 512
"""Tokens in a row; PyTorch's own kernels win over longer ones."""
_SIZES = {torch.float32: (32,), torch.bfloat16: (32, 64, 128), torch.float16: (32, 64, 128), torch.float64: ()}
"""Sizes of a head that there is a kernel for; in fp32 larger ones do not fit into the registers of a multiprocessor."""
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Relative, of results and gradients, against the plain way in fp32."""


def usable(piece_BT: Tensor) -> bool:
    """True where `attend` is to be called with pieces instead of a bias on the scores."""
    return piece_BT.shape[1] <= LONGEST and trust.trusted(NAME, piece_BT.device)


def attend(query: Tensor, key: Tensor, value: Tensor, *, piece_BT: Tensor, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d) V among tokens of one piece: each argument and the result [B, H, T, D/H]; `piece_BT` int32."""
    if query.shape[-1] not in _SIZES[query.dtype]:
        same_B1TT = (piece_BT[:, :, None] == piece_BT[:, None, :])[:, None]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=same_B1TT, dropout_p=dropout)
    mask_key = keyed_dropout.draw_key(query.device, dropout)
    out_BTHD: Tensor = torch.ops.electra.attention(query, key, value, piece_BT, mask_key, dropout)[0]
    return out_BTHD.transpose(1, 2)


def plain(query: Tensor, key: Tensor, value: Tensor, piece_BT: Tensor, kept: Tensor | float = 1.0) -> Tensor:
    """The plain twin; `kept` multiplies the weights, [B, H, T, T]."""
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    same_B1TT = (piece_BT[:, :, None] == piece_BT[:, None, :])[:, None]
    return (scores.masked_fill(~same_B1TT, float("-inf")).softmax(-1) * kept) @ value


def _even(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same with equal strides and neighbouring numbers of a head side by side, which the kernels take for granted."""
    if query.stride() == key.stride() == value.stride() and query.stride(3) == 1:
        return query, key, value
    return query.contiguous(), key.contiguous(), value.contiguous()


def _shape(query: Tensor, dropout: float, *, back: bool) -> tuple[tuple[int, int], dict[str, Any]]:
    """Grid and constants of a launch."""
    rows, heads, tokens, size = query.shape
    # backward, a row of 128 in one block makes the scores once, not twice; forward, so large a block needs more registers than there are
    whole = back and 64 < tokens <= 128 and size <= 64 and query.element_size() == 2
    block = 128 if whole else 64
    constants = {
        "SCALE": math.log2(math.e) / math.sqrt(size),
        "H": heads,
        "T": tokens,
        "D": size,
        "DROP": dropout > 0,
        "BLOCK": block,
        "WIDEN": trust.interpreted(),
    }
    return (-(-tokens // block), rows * heads), {**constants, "num_warps": 8 if whole else 4}


def _forward(query: Tensor, key: Tensor, value: Tensor, piece: Tensor, mask_key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:  # fmt: skip
    kernels = trust.kernels()
    query, key, value = _even(query, key, value)
    rows, heads, tokens, size = query.shape
    out = torch.empty((rows, tokens, heads, size), dtype=query.dtype, device=query.device)
    log_sum = torch.empty((rows, heads, tokens), device=query.device)
    grid, constants = _shape(query, dropout, back=False)
    with trust.on(query.device):
        kernels.attention_forward[grid](
            query, key, value, piece.contiguous(), mask_key, out, log_sum, *query.stride()[:3], *keyed_dropout.numbers(dropout), **constants
        )  # fmt: skip
    return out, log_sum


def _backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, piece: Tensor, mask_key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    kernels = trust.kernels()
    query, key, value = _even(query, key, value)
    found = tuple(torch.empty_like(out) for _ in range(3))
    grid, constants = _shape(query, dropout, back=True)
    with trust.on(query.device):
        kernels.attention_backward[grid](
            upstream.contiguous(), query, key, value, piece.contiguous(), mask_key, out, log_sum, *found, *query.stride()[:3],
            *keyed_dropout.numbers(dropout), **constants,
        )  # fmt: skip
    return found[0], found[1], found[2]


def _like_forward(query: Tensor, key: Tensor, value: Tensor, piece: Tensor, mask_key: Tensor, dropout: float) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, heads, tokens, size = query.shape
    return query.new_empty((rows, tokens, heads, size)), query.new_empty((rows, heads, tokens), dtype=torch.float32)


def _like_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, piece: Tensor, mask_key: Tensor, out: Tensor, log_sum: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(out), torch.empty_like(out), torch.empty_like(out)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    found = torch.ops.electra.attention_backward(upstream, *ctx.saved_tensors, ctx.dropout)
    return *(gradient.transpose(1, 2) for gradient in found), None, None, None


_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor piece, Tensor mask_key"
_attention = torch.library.custom_op(
    "electra::attention", _forward, mutates_args=(), schema=f"({_INPUTS}, float dropout) -> (Tensor, Tensor)"
)
_attention_backward = torch.library.custom_op(
    "electra::attention_backward",
    _backward,
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}, Tensor out, Tensor log_sum, float dropout) -> (Tensor, Tensor, Tensor)",
)
_attention.register_fake(_like_forward)
_attention_backward.register_fake(_like_backward)
_attention.register_autograd(_gradients, setup_context=_keep)


def check(
    device: torch.device, *, shapes: tuple[tuple[int, ...], ...] = ((3, 2, 128, 64), (2, 3, 200, 64), (2, 2, 200, 32))
) -> None:
    """Compare with the plain twin on `shapes` (B, H, T, D/H), rows of several pieces and padding, with a share of 0 and of 0.2 dropped."""
    random = torch.Generator().manual_seed(7)
    for rows, heads, tokens, size in shapes:
        packed = torch.randn((3, rows, heads, tokens, size), generator=random)
        above = torch.randn((rows, heads, tokens, size), generator=random).to(device)
        starts = torch.rand((rows, tokens), generator=random) < 3 / tokens
        pieces = (1 + starts.cumsum(1)).to(torch.int32)
        pieces[0, tokens - tokens // 5 :] = 0
        pieces = pieces.to(device)
        places = torch.arange(tokens * tokens, device=device).view(tokens, tokens)
        for dtype, tolerance in TOLERANCE.items():
            if size not in _SIZES[dtype]:
                continue
            inputs = packed.to(dtype).to(device)
            exact = inputs.float().requires_grad_()
            given = inputs.clone().requires_grad_()
            for dropout in (0.0, 0.2):
                mask_key = torch.tensor([4321, 8765], device=device)
                head = torch.arange(rows * heads, device=device).view(rows, heads, 1, 1)
                kept = keyed_dropout.kept(mask_key, head, places, dropout)
                expected = plain(exact[0], exact[1], exact[2], pieces, kept / (1 - dropout))
                found_BTHD = torch.ops.electra.attention(given[0], given[1], given[2], pieces, mask_key, dropout)[0]
                found = found_BTHD.transpose(1, 2)
                what = f"({dtype}, {tokens} tokens, dropout {dropout})"
                trust.close(f"the result {what}", found, expected, tolerance)
                gradients = torch.autograd.grad(found, given, above.to(dtype))[0]
                for number, name in enumerate(("queries", "keys", "values")):
                    theirs = torch.autograd.grad(expected, exact, above, retain_graph=True)[0]
                    trust.close(f"the gradient of the {name} {what}", gradients[number], theirs[number], 2 * tolerance)


trust.register(NAME, check)
