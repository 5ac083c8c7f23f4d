"""Triton kernels of attention.py. A program has one block of rows of one head; T and D are compile-time constants.

Scores are made again in the backward pass, in which a program first does the keys and values of its block, then its queries; nothing is added
up by two programs, so results are the same each time.
"""

import triton
import triton.language as tl


@triton.jit
def _kept(seed, head, rows, columns, T: tl.constexpr, P):
    """True where a weight is not dropped: each head of each row of the batch has its own key."""
    return tl.rand(tl.load(seed) + head, rows[:, None] * T + columns[None, :]) >= P


@triton.jit
def keep_mask(seed, kept, P, T: tl.constexpr, BLOCK: tl.constexpr):
    """1 where a weight is kept, else 0, [B * H, T, T]: for the plain twin."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for start in range(0, T, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        keep = _kept(seed, head, rows, columns, T, P).to(tl.float32)
        place = head * T * T + rows[:, None] * T + columns[None, :]
        tl.store(kept + place, keep, mask=(rows[:, None] < T) & (columns[None, :] < T))


@triton.jit
def _tile(base, rows, stride, T: tl.constexpr, D: tl.constexpr, WIDEN: tl.constexpr):
    """[rows, D] of one head; 0 past the end."""
    inner = tl.arange(0, D)
    value = tl.load(base + rows[:, None] * stride + inner[None, :], mask=rows[:, None] < T, other=0.0)
    if WIDEN:  # Triton's interpreter multiplies bf16 as if it were integers
        value = value.to(tl.float32)
    return value


@triton.jit
def forward(
    query, key, value, piece, seed, out, log_sum, stride_b, stride_h, stride_t, SCALE, P,
    H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Out [B, T, H, D] and the logarithm of each row's sum of exponentials [B, H, T]; the softmax is rescaled block by block."""
    head = tl.program_id(1)
    b = head // H
    h = head % H
    base = b.to(tl.int64) * stride_b + h * stride_h
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(piece + b * T + rows, mask=rows < T, other=-1)
    q = _tile(query + base, rows, stride_t, T, D, WIDEN)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK, D), dtype=tl.float32)
    for start in range(0, T, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        theirs = tl.load(piece + b * T + columns, mask=columns < T, other=-2)
        k = _tile(key + base, columns, stride_t, T, D, WIDEN)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
        scores = tl.where(mine[:, None] == theirs[None, :], scores, float("-inf"))
        top = tl.maximum(most, tl.max(scores, 1))
        level = tl.where(top == float("-inf"), 0.0, top)  # nothing of this row's piece so far
        shrink = tl.exp(most - level)
        weights = tl.exp(scores - level[:, None])
        total = total * shrink + tl.sum(weights, 1)
        if DROP:
            weights = tl.where(_kept(seed, head, rows, columns, T, P), weights / (1.0 - P), 0.0)
        v = _tile(value + base, columns, stride_t, T, D, WIDEN)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        most = top
    total = tl.where(total > 0.0, total, 1.0)
    inner = tl.arange(0, D)
    place = ((b * T + rows[:, None]) * H + h) * D + inner[None, :]
    tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < T)
    tl.store(log_sum + head * T + rows, most + tl.log(total), mask=rows < T)


@triton.jit
def _weights_and_gradient(
    q, k, v, above, level, log_sum, mine, theirs, seed, head, rows, columns, SCALE, P, T: tl.constexpr, DROP: tl.constexpr
):  # fmt: skip
    """Attention weights after dropout, and the gradient of the scores before scaling by SCALE is undone: both [rows, columns]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
    weights = tl.where(mine[:, None] == theirs[None, :], tl.exp(scores - log_sum[:, None]), 0.0)
    upstream = tl.dot(above, tl.trans(v), input_precision="ieee")
    dropped = weights
    if DROP:
        keep = _kept(seed, head, rows, columns, T, P)
        dropped = tl.where(keep, weights / (1.0 - P), 0.0)
        upstream = tl.where(keep, upstream / (1.0 - P), 0.0)
    return dropped, weights * (upstream - level[:, None]) * SCALE


@triton.jit
def _queries(query, upstream, out, log_sum, piece, base, here, head, b, rows, stride_t, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, WIDEN: tl.constexpr):  # fmt: skip
    """Of a block of queries: themselves, the gradient above, its product with the output, log-sum, piece."""
    q = _tile(query + base, rows, stride_t, T, D, WIDEN)
    above = _tile(upstream + here, rows, H * D, T, D, WIDEN)
    result = _tile(out + here, rows, H * D, T, D, WIDEN)
    level = tl.sum(above.to(tl.float32) * result.to(tl.float32), 1)
    logs = tl.load(log_sum + head * T + rows, mask=rows < T, other=0.0)
    mine = tl.load(piece + b * T + rows, mask=rows < T, other=-1)
    return q, above, level, logs, mine


@triton.jit
def backward(
    upstream, query, key, value, piece, seed, out, log_sum, for_query, for_key, for_value, stride_b, stride_h, stride_t, SCALE, P,
    H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Gradients, each [B, T, H, D]; `upstream` and `out` too."""
    head = tl.program_id(1)
    b = head // H
    h = head % H
    base = b.to(tl.int64) * stride_b + h * stride_h
    here = b.to(tl.int64) * T * H * D + h * D
    inner = tl.arange(0, D)
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = here + block[:, None] * (H * D) + inner[None, :]
    inside = block[:, None] < T
    k = _tile(key + base, block, stride_t, T, D, WIDEN)
    v = _tile(value + base, block, stride_t, T, D, WIDEN)
    theirs = tl.load(piece + b * T + block, mask=block < T, other=-2)
    sum_k = tl.zeros((BLOCK, D), dtype=tl.float32)
    sum_v = tl.zeros((BLOCK, D), dtype=tl.float32)
    for start in range(0, T, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        q, above, level, logs, mine = _queries(query, upstream, out, log_sum, piece, base, here, head, b, rows, stride_t, H, T, D, WIDEN)  # fmt: skip
        weights, gradient = _weights_and_gradient(q, k, v, above, level, logs, mine, theirs, seed, head, rows, block, SCALE, P, T, DROP)  # fmt: skip
        sum_v += tl.dot(tl.trans(weights.to(above.dtype)), above, input_precision="ieee")
        sum_k += tl.dot(tl.trans(gradient.to(q.dtype)), q, input_precision="ieee")
        if T <= BLOCK:
            sum_q = tl.dot(gradient.to(k.dtype), k, input_precision="ieee")
            tl.store(for_query + place, sum_q.to(for_query.dtype.element_ty), mask=inside)
    tl.store(for_key + place, sum_k.to(for_key.dtype.element_ty), mask=inside)
    tl.store(for_value + place, sum_v.to(for_value.dtype.element_ty), mask=inside)
    if T > BLOCK:
        q, above, level, logs, mine = _queries(query, upstream, out, log_sum, piece, base, here, head, b, block, stride_t, H, T, D, WIDEN)  # fmt: skip
        total_q = tl.zeros((BLOCK, D), dtype=tl.float32)
        for start in range(0, T, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            other_k = _tile(key + base, columns, stride_t, T, D, WIDEN)
            other_v = _tile(value + base, columns, stride_t, T, D, WIDEN)
            other_piece = tl.load(piece + b * T + columns, mask=columns < T, other=-2)
            _, gradient = _weights_and_gradient(q, other_k, other_v, above, level, logs, mine, other_piece, seed, head, block, columns, SCALE, P, T, DROP)  # fmt: skip
            total_q += tl.dot(gradient.to(other_k.dtype), other_k, input_precision="ieee")
        tl.store(for_query + place, total_q.to(for_query.dtype.element_ty), mask=inside)
