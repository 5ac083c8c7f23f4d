"""Triton kernels of add_norm.py: dropout + residual + LayerNorm, a row of D numbers at a time, in fp32 registers."""

import triton
import triton.language as tl


@triton.jit
def _dropped(value, seed, row, columns, D, P, DROP: tl.constexpr):
    """`value` with a share P dropped and the rest scaled up; the same numbers for the same seed, row and column."""
    if DROP:
        value = tl.where(tl.rand(tl.load(seed), row * D + columns) >= P, value / (1.0 - P), 0.0)
    return value


@triton.jit
def keep_mask(seed, kept, D, P, BLOCK_D: tl.constexpr):
    """1 where `_dropped` keeps, else 0: for the plain twin."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_D)
    ones = tl.full((BLOCK_D,), 1.0, tl.float32)
    value = _dropped(ones, seed, row, columns, D, P, True)
    tl.store(kept + row * D + columns, (value > 0.0).to(tl.float32), mask=columns < D)


@triton.jit
def forward(
    inner, residual, weight, bias, seed, out, mean, spread, D, EPS, P, DROP: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Out = LayerNorm(dropout(inner) + residual); `mean` and `spread` = 1/sqrt(variance + EPS) of each row are kept."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_D)
    real = columns < D
    place = row * D + columns
    value = tl.load(inner + place, mask=real, other=0.0).to(tl.float32)
    value = _dropped(value, seed, row, columns, D, P, DROP)
    value += tl.load(residual + place, mask=real, other=0.0).to(tl.float32)
    middle = tl.sum(value, 0) / D
    away = tl.where(real, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away, 0) / D + EPS)
    gain = tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=real, other=0.0).to(tl.float32)
    tl.store(out + place, (away * scale * gain + shift).to(out.dtype.element_ty), mask=real)
    tl.store(mean + row, middle)
    tl.store(spread + row, scale)


@triton.jit
def backward(
    upstream, inner, residual, weight, seed, mean, spread, for_inner, for_residual, for_weight, for_bias, N, D, P,
    ROWS: tl.constexpr, DROP: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Gradients of all inputs; those of weight and bias as one partial sum a program, over ROWS rows."""
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK_D)
    real = columns < D
    gain = tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    gains = tl.zeros((BLOCK_D,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for number in range(ROWS):
        row = program * ROWS + number
        here = real & (row < N)
        place = row * D + columns
        above = tl.load(upstream + place, mask=here, other=0.0).to(tl.float32)
        value = tl.load(inner + place, mask=here, other=0.0).to(tl.float32)
        value = _dropped(value, seed, row, columns, D, P, DROP)
        value += tl.load(residual + place, mask=here, other=0.0).to(tl.float32)
        scale = tl.load(spread + row, mask=row < N, other=0.0)
        normed = tl.where(here, (value - tl.load(mean + row, mask=row < N, other=0.0)) * scale, 0.0)
        gains += above * normed
        shifts += above
        scaled = above * gain
        along = tl.sum(normed * scaled, 0) / D
        level = tl.sum(scaled, 0) / D
        gradient = (scaled - normed * along - level) * scale
        tl.store(for_residual + place, gradient.to(for_residual.dtype.element_ty), mask=here)
        passed = _dropped(gradient, seed, row, columns, D, P, DROP)
        tl.store(for_inner + place, passed.to(for_inner.dtype.element_ty), mask=here)
    tl.store(for_weight + program * D + columns, gains, mask=real)
    tl.store(for_bias + program * D + columns, shifts, mask=real)
