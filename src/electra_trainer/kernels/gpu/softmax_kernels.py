"""Triton kernels of gpu_softmax.py. Capitals are compile-time constants.

A tile is [BLOCK_K slots, BLOCK_V words]. Each kernel computes its logits anew from hidden states and words, in fp32,
and keeps them in registers: computing them twice costs less than writing and reading K x V of them.
"""

import triton
import triton.language as tl


@triton.jit
def _logits(
    hidden, words, bias, slots, columns, K, V,
    WIDTH: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_E: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """A tile of logits, fp32; -inf past the vocabulary."""
    total = tl.zeros((BLOCK_K, BLOCK_V), dtype=tl.float32)
    for first in range(0, WIDTH, BLOCK_E):
        inner = first + tl.arange(0, BLOCK_E)
        row = tl.load(
            hidden + slots[:, None] * WIDTH + inner[None, :],
            mask=(slots[:, None] < K) & (inner[None, :] < WIDTH),
            other=0.0,
        )
        word = tl.load(
            words + columns[None, :] * WIDTH + inner[:, None],
            mask=(columns[None, :] < V) & (inner[:, None] < WIDTH),
            other=0.0,
        )
        if WIDEN:  # Triton's interpreter multiplies bf16 as if it were integers
            row = row.to(tl.float32)
            word = word.to(tl.float32)
        total = tl.dot(row, word, total, input_precision="ieee")
    added = tl.load(bias + columns, mask=columns < V, other=0.0)
    return tl.where(columns[None, :] < V, total + added[None, :], float("-inf"))


@triton.jit
def block_statistics(
    hidden, words, bias, labels, most, mass, best, spread, label_logit, K, V, BLOCKS,
    WIDTH: tl.constexpr, LOOK: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_E: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Statistics by slot and block of words: the largest logit m, Σ exp(x - m), with LOOK its word and
    Σ exp(x - m) (x - m) as well.
    """
    slots = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    block = tl.program_id(1)
    columns = block * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = _logits(hidden, words, bias, slots, columns, K, V, WIDTH, BLOCK_K, BLOCK_V, BLOCK_E, WIDEN)
    top = tl.max(logits, 1)
    away = tl.where(columns[None, :] < V, logits - top[:, None], 0.0)
    each = tl.where(columns[None, :] < V, tl.exp(away), 0.0)
    real = slots < K
    place = slots * BLOCKS + block
    tl.store(most + place, top, mask=real)
    tl.store(mass + place, tl.sum(each, 1), mask=real)
    if LOOK:
        tl.store(best + place, tl.min(tl.where(logits == top[:, None], columns[None, :], V), 1), mask=real)
        tl.store(spread + place, tl.sum(each * away, 1), mask=real)
    label = tl.load(labels + slots, mask=real, other=-1).to(tl.int32)
    right = tl.sum(tl.where(columns[None, :] == label[:, None], logits, 0.0), 1)
    here = real & (label >= block * BLOCK_V) & (label < (block + 1) * BLOCK_V)
    tl.store(label_logit + slots, right, mask=here)


@triton.jit
def choose(
    hidden, words, bias, labels, draws, most, mass, best, spread, label_logit,
    loss, log_z, sampled, correct, entropy, V, BLOCKS,
    WIDTH: tl.constexpr, SAMPLE: tl.constexpr, LOOK: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_E: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Loss and normaliser of one slot, and the word at which the cumulative distribution passes its draw."""
    slot = tl.program_id(0)
    label = tl.load(labels + slot).to(tl.int32)
    blocks = tl.arange(0, BLOCK_B)
    real = blocks < BLOCKS
    most_B = tl.load(most + slot * BLOCKS + blocks, mask=real, other=float("-inf"))
    mass_B = tl.load(mass + slot * BLOCKS + blocks, mask=real, other=0.0)
    top = tl.max(most_B, 0)
    away_B = tl.where(real, most_B - top, 0.0)
    share_B = tl.where(real, mass_B * tl.exp(away_B), 0.0)
    log_total = tl.log(tl.sum(share_B, 0))
    normaliser = top + log_total
    # an infinite normaliser makes the gradient of a slot that is not used 0
    tl.store(log_z + slot, tl.where(label >= 0, normaliser, float("inf")))
    tl.store(loss + slot, tl.where(label >= 0, normaliser - tl.load(label_logit + slot), 0.0))
    if LOOK:
        best_B = tl.load(best + slot * BLOCKS + blocks, mask=real, other=0)
        first = tl.min(tl.where(real & (most_B == top), best_B, V), 0)
        tl.store(correct + slot, (first == label).to(tl.int8))
        spread_B = tl.load(spread + slot * BLOCKS + blocks, mask=real, other=0.0)
        below_B = away_B - log_total
        parts_B = tl.exp(below_B) * (spread_B + below_B * mass_B)
        tl.store(entropy + slot, -tl.sum(tl.where(real, parts_B, 0.0), 0))
    if SAMPLE:
        passed_B = tl.cumsum(share_B, 0)
        target = tl.load(draws + slot) * tl.max(passed_B, 0)
        block = tl.minimum(tl.sum((passed_B <= target).to(tl.int32), 0), BLOCKS - 1)
        rest = target - tl.max(tl.where(blocks < block, passed_B, 0.0), 0)
        inside = tl.arange(0, BLOCK_V)
        columns = block * BLOCK_V + inside
        logits = tl.load(bias + columns, mask=columns < V, other=0.0).to(tl.float32)
        for first_e in range(0, WIDTH, BLOCK_E):
            inner = first_e + tl.arange(0, BLOCK_E)
            row = tl.load(hidden + slot * WIDTH + inner, mask=inner < WIDTH, other=0.0).to(tl.float32)
            word = tl.load(
                words + columns[:, None] * WIDTH + inner[None, :],
                mask=(columns[:, None] < V) & (inner[None, :] < WIDTH),
                other=0.0,
            )
            logits += tl.sum(word.to(tl.float32) * row[None, :], 1)
        p = tl.where(columns < V, tl.exp(tl.minimum(logits - top, 0.0)), 0.0)
        above = tl.sum((tl.cumsum(p, 0) <= rest).to(tl.int32), 0)
        last = tl.max(tl.where(p > 0.0, inside, 0), 0)  # rounding must not end at a word of probability 0
        tl.store(sampled + slot, (block * BLOCK_V + tl.minimum(above, last)).to(tl.int64))


@triton.jit
def logit_gradient(
    hidden, words, bias, labels, log_z, delta, sums, K, V, STRIDE,
    WIDTH: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_E: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Softmax - onehot(label) of a tile, and its sums over the tile's slots; 0 for slots and words not there."""
    slots = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    columns = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = _logits(hidden, words, bias, slots, columns, K, V, WIDTH, BLOCK_K, BLOCK_V, BLOCK_E, WIDEN)
    normaliser = tl.load(log_z + slots, mask=slots < K, other=float("inf"))
    label = tl.load(labels + slots, mask=slots < K, other=-1).to(tl.int32)
    gradient = tl.exp(logits - normaliser[:, None]) - tl.where(columns[None, :] == label[:, None], 1.0, 0.0)
    gradient = tl.where(columns[None, :] < V, gradient, 0.0)
    tl.store(sums + tl.program_id(0) * STRIDE + columns, tl.sum(gradient, 0))
    place = slots[:, None].to(tl.int64) * STRIDE + columns[None, :]
    tl.store(delta + place, gradient.to(delta.dtype.element_ty), mask=slots[:, None] < K)
