"""Triton kernels of the encoder's layers: add_norm.py and gpu_attention.py. Capitals are compile-time constants.

add_norm: dropout + residual + LayerNorm, a row of D numbers at a time, in fp32 registers.

attention: a program has one block of rows of one head. Scores are computed again in the backward pass, in which a
program first does the
keys and values of its block, then its queries; no two programs add to one number, so results are the same each time.
"""

import triton
import triton.language as tl


@triton.jit
def _mixed(x):
    x ^= x >> 16
    x *= 0x21F0AAAD
    x ^= x >> 15
    x *= 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _mask_key(key, number):
    """Two words, for mask `number` of a key; once a program."""
    low = _mixed(number.to(tl.uint32) * 0x9E3779B1 + tl.load(key).to(tl.uint32))
    return low, _mixed(low ^ tl.load(key + 1).to(tl.uint32))


@triton.jit
def _kept(spread, high, LIMIT):
    """True where an element is kept; `spread` is its place times 0x9E3779B1 plus the key's first word:
    keyed_dropout.kept.
    """
    x = (spread ^ (spread >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15) ^ high) * 0x735A2D97
    return x.to(tl.int32, bitcast=True) >= LIMIT


@triton.jit
def _kept_weights(low, high, rows, columns, LIMIT, T: tl.constexpr):
    """True where a weight of [rows, columns] is kept; the products are of rows and of columns alone."""
    down = rows.to(tl.uint32) * T * 0x9E3779B1 + low
    across = columns.to(tl.uint32) * 0x9E3779B1
    return _kept(down[:, None] + across[None, :], high, LIMIT)


@triton.jit
def _kept_row(key, row, columns, LIMIT):
    """True where an element of a row is kept: each row is a mask of its own."""
    low, high = _mask_key(key, row)
    return _kept(columns.to(tl.uint32) * 0x9E3779B1 + low, high, LIMIT)


@triton.jit
def _shifted(inner, shift, place, columns, here, real):
    """A row of the projection, with its bias."""
    value = tl.load(inner + place, mask=here, other=0.0).to(tl.float32)
    return value + tl.load(shift + columns, mask=real, other=0.0).to(tl.float32)


@triton.jit
def add_norm_forward(
    inner, shift, residual, weight, bias, key, out, levels, N, D, EPS, LIMIT, UP,
    DROP: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Out = LayerNorm(dropout(inner + shift) + residual); mean and 1/sqrt(variance + EPS) of each row are kept, [2,
    N].
    """
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_D)
    real = columns < D
    place = row * D + columns
    value = _shifted(inner, shift, place, columns, real, real)
    if DROP:
        value = tl.where(_kept_row(key, row, columns, LIMIT), value * UP, 0.0)
    value += tl.load(residual + place, mask=real, other=0.0).to(tl.float32)
    middle = tl.sum(value, 0) / D
    away = tl.where(real, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away, 0) / D + EPS)
    gain = tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    lift = tl.load(bias + columns, mask=real, other=0.0).to(tl.float32)
    tl.store(out + place, (away * scale * gain + lift).to(out.dtype.element_ty), mask=real)
    tl.store(levels + row, middle)
    tl.store(levels + N + row, scale)


@triton.jit
def add_norm_backward(
    upstream, inner, shift, residual, weight, key, levels, for_inner, for_residual, partial, N, D, LIMIT, UP,
    ROWS: tl.constexpr, DROP: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Gradients of all inputs; those of shift, weight and bias as one partial sum a program, over ROWS rows: [programs,
    3, D].
    """
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK_D)
    real = columns < D
    gain = tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    moved = tl.zeros((BLOCK_D,), dtype=tl.float32)
    gains = tl.zeros((BLOCK_D,), dtype=tl.float32)
    lifts = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for number in range(ROWS):
        row = program * ROWS + number
        here = real & (row < N)
        place = row * D + columns
        above = tl.load(upstream + place, mask=here, other=0.0).to(tl.float32)
        value = _shifted(inner, shift, place, columns, here, real)
        if DROP:
            keep = _kept_row(key, row, columns, LIMIT)
            value = tl.where(keep, value * UP, 0.0)
        value += tl.load(residual + place, mask=here, other=0.0).to(tl.float32)
        scale = tl.load(levels + N + row, mask=row < N, other=0.0)
        normed = tl.where(here, (value - tl.load(levels + row, mask=row < N, other=0.0)) * scale, 0.0)
        gains += above * normed
        lifts += above
        scaled = above * gain
        along = tl.sum(normed * scaled, 0) / D
        level = tl.sum(scaled, 0) / D
        gradient = (scaled - normed * along - level) * scale
        tl.store(for_residual + place, gradient.to(for_residual.dtype.element_ty), mask=here)
        if DROP:
            gradient = tl.where(keep, gradient * UP, 0.0)
        moved += gradient
        tl.store(for_inner + place, gradient.to(for_inner.dtype.element_ty), mask=here)
    place = partial + 3 * program * D + columns
    tl.store(place, moved, mask=real)
    tl.store(place + D, gains, mask=real)
    tl.store(place + 2 * D, lifts, mask=real)


@triton.jit
def _tile(base, rows, stride: tl.constexpr, T: tl.constexpr, D: tl.constexpr, WIDEN: tl.constexpr):
    """[rows, D] of one head; 0 past the end."""
    inner = tl.arange(0, D)
    value = tl.load(base + rows[:, None] * stride + inner[None, :], mask=rows[:, None] < T, other=0.0)
    if WIDEN:  # Triton's interpreter multiplies bf16 as if it were integers
        value = value.to(tl.float32)
    return value


@triton.jit
def _where(T: tl.constexpr, BLOCK: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Of a program: its head among all heads of all rows, its places in the row, the first token's head in [B, T, 3, H,
    D] and in [B, T, H, D].

    The blocks of a head follow each other, so that its keys and values are read while they are in the cache.
    """
    BLOCKS: tl.constexpr = (T + BLOCK - 1) // BLOCK
    head = tl.program_id(0) // BLOCKS
    places = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    b = head // H
    first = b.to(tl.int64) * T * H * D
    return head, b, places, 3 * first + head % H * D, first + head % H * D


@triton.jit
def _part(partial, head, T: tl.constexpr, BLOCK: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Where a program's sums of queries go, in [B, blocks, 3, H, D]."""
    BLOCKS: tl.constexpr = (T + BLOCK - 1) // BLOCK
    part = head // H * BLOCKS + tl.program_id(0) % BLOCKS
    return partial + (3 * part * H + head % H) * D + tl.arange(0, D)


@triton.jit
def attention_forward(
    packed, piece, key, out, log_sum, LIMIT, UP,
    SCALE: tl.constexpr, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Out [B, T, H, D] and the logarithm, to base 2, of each row's sum of exponentials [B, H, T]; the softmax is
    rescaled block by block.

    `packed` has queries, keys and values, [B, T, 3, H, D]. SCALE is log2(e)/sqrt(D): powers of 2 need one instruction
    less than powers of e.
    """
    head, b, rows, base, here = _where(T, BLOCK, H, D)
    mine = tl.load(piece + b * T + rows, mask=rows < T, other=-1)
    q = _tile(packed + base, rows, 3 * H * D, T, D, WIDEN)
    if DROP:
        low, high = _mask_key(key, head)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK, D), dtype=tl.float32)
    for start in range(0, T, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        theirs = tl.load(piece + b * T + columns, mask=columns < T, other=-2)
        k = _tile(packed + base + H * D, columns, 3 * H * D, T, D, WIDEN)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(mine[:, None] == theirs[None, :], scores, float("-inf"))
        top = tl.maximum(most, tl.max(scores, 1))
        level = tl.where(top == float("-inf"), 0.0, top * SCALE)  # nothing of this row's piece so far
        shrink = tl.exp2(most * SCALE - level)
        weights = tl.exp2(scores * SCALE - level[:, None])
        total = total * shrink + tl.sum(weights, 1)
        if DROP:
            weights = tl.where(_kept_weights(low, high, rows, columns, LIMIT, T), weights, 0.0)
        v = _tile(packed + base + 2 * H * D, columns, 3 * H * D, T, D, WIDEN)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        most = top
    total = tl.where(total > 0.0, total, 1.0)
    share = 1.0 / total
    if DROP:
        share = share * UP
    place = here + rows[:, None] * (H * D) + tl.arange(0, D)[None, :]
    tl.store(out + place, (mixed * share[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < T)
    tl.store(log_sum + head * T + rows, most * SCALE + tl.log2(total), mask=rows < T)


@triton.jit
def _weights_and_gradient(
    q, k, v, above, level, log_sum, mine, theirs, low, high, rows, columns, LIMIT, UP,
    SCALE: tl.constexpr, T: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Of [rows, columns]: the weights that are kept, not yet scaled up, and the gradient of the scores, not yet scaled
    by 1/sqrt(D).
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    weights = tl.where(mine[:, None] == theirs[None, :], tl.exp2(scores * SCALE - log_sum[:, None]), 0.0)
    upstream = tl.dot(above, tl.trans(v), input_precision="ieee")
    if DROP:
        keep = _kept_weights(low, high, rows, columns, LIMIT, T)
        gradient = weights * (tl.where(keep, upstream * UP, 0.0) - level[:, None])
        return tl.where(keep, weights, 0.0), gradient
    return weights, weights * (upstream - level[:, None])


@triton.jit
def _queries(packed, upstream, out, log_sum, piece, base, here, head, b, rows, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, WIDEN: tl.constexpr):  # fmt: skip
    """Of a block of queries: themselves, the gradient above, its product with the output, log-sum, piece."""
    q = _tile(packed + base, rows, 3 * H * D, T, D, WIDEN)
    above = _tile(upstream + here, rows, H * D, T, D, WIDEN)
    result = _tile(out + here, rows, H * D, T, D, WIDEN)
    level = tl.sum(above.to(tl.float32) * result.to(tl.float32), 1)
    logs = tl.load(log_sum + head * T + rows, mask=rows < T, other=0.0)
    mine = tl.load(piece + b * T + rows, mask=rows < T, other=-1)
    return q, above, level, logs, mine


@triton.jit
def attention_backward(
    upstream, packed, piece, key, out, log_sum, gradient, partial, LIMIT, UP,
    SCALE: tl.constexpr, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Gradient of `packed`, [B, T, 3, H, D]: keys and values, and where a row is one block queries too; `upstream` is
    as `out`.

    `partial` gets their sums over each block of tokens, [B, blocks, 3, H, D]: parts of the gradient of a bias that is
    in `packed`.
    """
    head, b, block, base, here = _where(T, BLOCK, H, D)
    place = base + block[:, None] * (3 * H * D) + tl.arange(0, D)[None, :]
    inside = block[:, None] < T
    sums = _part(partial, head, T, BLOCK, H, D)
    k = _tile(packed + base + H * D, block, 3 * H * D, T, D, WIDEN)
    v = _tile(packed + base + 2 * H * D, block, 3 * H * D, T, D, WIDEN)
    theirs = tl.load(piece + b * T + block, mask=block < T, other=-2)
    low, high = _mask_key(key, head) if DROP else (0, 0)
    down: tl.constexpr = SCALE * 0.6931471805599453  # 1/sqrt(D)
    sum_k = tl.zeros((BLOCK, D), dtype=tl.float32)
    sum_v = tl.zeros((BLOCK, D), dtype=tl.float32)
    for start in range(0, T, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        q, above, level, logs, mine = _queries(
            packed, upstream, out, log_sum, piece, base, here, head, b, rows, H, T, D, WIDEN
        )
        weights, sloped = _weights_and_gradient(
            q, k, v, above, level, logs, mine, theirs, low, high, rows, block, LIMIT, UP, SCALE, T, DROP
        )
        sum_v += tl.dot(tl.trans(weights.to(above.dtype)), above, input_precision="ieee")
        sum_k += tl.dot(tl.trans(sloped.to(q.dtype)), q, input_precision="ieee")
        if T <= BLOCK:
            sum_q = tl.dot(sloped.to(k.dtype), k, input_precision="ieee") * down
            tl.store(gradient + place, sum_q.to(gradient.dtype.element_ty), mask=inside)
            tl.store(sums, tl.sum(sum_q, 0))
    if DROP:
        sum_v *= UP
    sum_k *= down
    tl.store(gradient + place + H * D, sum_k.to(gradient.dtype.element_ty), mask=inside)
    tl.store(gradient + place + 2 * H * D, sum_v.to(gradient.dtype.element_ty), mask=inside)
    tl.store(sums + H * D, tl.sum(sum_k, 0))
    tl.store(sums + 2 * H * D, tl.sum(sum_v, 0))


@triton.jit
def attention_backward_queries(
    upstream, packed, piece, key, out, log_sum, gradient, partial, LIMIT, UP,
    SCALE: tl.constexpr, H: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The rest of the gradient where a row is several blocks. In one kernel with the keys and values it would not fit
    into the registers.
    """
    head, b, block, base, here = _where(T, BLOCK, H, D)
    low, high = _mask_key(key, head) if DROP else (0, 0)
    down: tl.constexpr = SCALE * 0.6931471805599453  # 1/sqrt(D)
    q, above, level, logs, mine = _queries(
        packed, upstream, out, log_sum, piece, base, here, head, b, block, H, T, D, WIDEN
    )
    sum_q = tl.zeros((BLOCK, D), dtype=tl.float32)
    for start in range(0, T, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = _tile(packed + base + H * D, columns, 3 * H * D, T, D, WIDEN)
        v = _tile(packed + base + 2 * H * D, columns, 3 * H * D, T, D, WIDEN)
        theirs = tl.load(piece + b * T + columns, mask=columns < T, other=-2)
        _, sloped = _weights_and_gradient(
            q, k, v, above, level, logs, mine, theirs, low, high, block, columns, LIMIT, UP, SCALE, T, DROP
        )
        sum_q += tl.dot(sloped.to(k.dtype), k, input_precision="ieee")
    sum_q *= down
    place = base + block[:, None] * (3 * H * D) + tl.arange(0, D)[None, :]
    tl.store(gradient + place, sum_q.to(gradient.dtype.element_ty), mask=block[:, None] < T)
    tl.store(_part(partial, head, T, BLOCK, H, D), tl.sum(sum_q, 0))
