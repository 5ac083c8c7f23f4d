// The softmax over the vocabulary at the chosen positions: loss, samples and gradients without ever writing the logits.
//
// Two looks, each on a block of 256 positions x 256 words at a time. The first finds, for each position and block, the largest
// logit and the sum of exponentials, from which follow the loss and the block that a sample falls in (so that only 256
// logits are made again to find its word). The second makes the logits again and turns them into the gradient at once.
#pragma once

#include <vector>

#include "tiles.hpp"

namespace {

constexpr long SPAN = 256;  // words, and positions, in a block

struct Softmax {  // as library.py fills it in
    int64_t positions, words, width;  // K, V, E
    const float *hidden, *table, *bias;  // [K, E], [V, E], [V]
    const int64_t* labels;  // [K]; below 0: left out of loss and gradients
    const float* draws;  // [K] in [0, 1), or null
    bf16 *rows, *operand, *table_forward, *table_backward;  // hidden in both layouts, the table both ways
    float *padded_bias, *log_z;  // [V to 32s], [K to 256s]
    int64_t* sampled;  // [K]
    float *loss, *entropy;  // [K] each
    uint8_t* correct;  // [K]: the label is the most probable word
    float *d_table, *d_bias;  // [V to 32s, E], [V to 32s]

    long blocks() const { return (words + SPAN - 1) / SPAN; }
    long words32(long block) const { return std::min(SPAN, (words + 31) / 32 * 32 - block * SPAN) / 32; }
    long rows32(long first) const { return std::min(SPAN, (positions + 31) / 32 * 32 - first) / 32; }
    const bf16* words_forward(long block) const { return table_forward + block * SPAN * width; }
};

// Operands of words [first, last), both multiples of 256 or the end.
void softmax_pack_words(const Softmax& s, long first_block, long last_block) {
    for (long b = first_block; b < last_block; ++b) {
        const long at = b * SPAN, n = std::min(SPAN, s.words - at), panels = s.words32(b);
        pack_forward(s.table + at * s.width, n, s.width, s.table_forward + at * s.width, s.width * 32);
        pack_backward(s.table + at * s.width, n, s.width, s.table_backward + at * s.width, panels * 2 * BLOCK);
        for (long i = 0; i < panels * 32; ++i) s.padded_bias[at + i] = i < n ? s.bias[at + i] : -INFINITY;
    }
}

void softmax_pack_rows(const Softmax& s) {
    for (long r = 0; r < (s.positions + 31) / 32 * 32; ++r)
        for (long c = 0; c < s.width / 32; ++c) {
            const __m512i v = r < s.positions ? narrow_row(s.hidden + r * s.width + 32 * c) : _mm512_setzero_si512();
            store16(s.rows + r / 16 * 16 * s.width + c * BLOCK + r % 16 * 32, v);
        }
    as_operand(s.rows, 16 * s.width, (s.positions + 31) / 32, s.width / 32, s.operand);
}

// The word at which the sum of exponentials of `block` passes `rest` (both relative to exp(top)).
long find_word(const Softmax& s, long position, long block, float top, float rest) {
    const long at = block * SPAN, n = std::min(SPAN, s.words - at);
    std::vector<float> mass(SPAN, 0.f);
    for (long w = 0; w < n; ++w) {
        __m512 dot = all(0);
        for (long c = 0; c < s.width / 32; ++c) {
            const __m512i h = load16(s.rows + position / 16 * 16 * s.width + c * BLOCK + position % 16 * 32);
            const __m512i t = narrow_row(s.table + (at + w) * s.width + 32 * c);
            dot = _mm512_dpbf16_ps(dot, reinterpret_cast<__m512bh>(h), reinterpret_cast<__m512bh>(t));
        }
        mass[w] = _mm512_reduce_add_ps(dot) + s.bias[at + w];
    }
    for (long c = 0; c < SPAN; c += 16) store(&mass[c], exponential(_mm512_sub_ps(load(&mass[c]), all(top))));
    float sum = 0;
    long last = 0;
    for (long w = 0; w < n; ++w) {
        if (mass[w] > 0) last = w;
        sum += mass[w];
        if (sum > rest) return at + w;
    }
    return at + last;  // rounding: the block's sum came out a little below `rest`
}

// First look at positions [first, last), `first` a multiple of 256.
void softmax_look(const Softmax& s, long first, long last) {
    const long blocks = s.blocks();
    Buffer<float> logits(SPAN * SPAN), most(SPAN * blocks), mass(SPAN * blocks), turning(SPAN * blocks);
    for (long at = first; at < last; at += SPAN) {
        float label_logit[SPAN];
        for (long b = 0; b < blocks; ++b) {
            const long n32 = s.words32(b);
            multiply(s.rows + at * s.width, 16 * s.width, s.words_forward(b), 32 * s.width, s.rows32(at), n32, s.width / 32,
                     [&](long i, long r, long n, const float* v) {
                         float* to = logits + (16 * i + r) * SPAN + 32 * n;
                         const float* bias = s.padded_bias + b * SPAN + 32 * n;
                         store(to, _mm512_add_ps(load(v), load(bias))), store(to + 16, _mm512_add_ps(load(v + 16), load(bias + 16)));
                     });
            for (long r = 0; r < std::min(SPAN, last - at); ++r) {
                const float* line = logits + r * SPAN;
                __m512 top = load(line), total = all(0), turned = all(0);
                for (long c = 16; c < 32 * n32; c += 16) top = _mm512_max_ps(top, load(line + c));
                const float m = _mm512_reduce_max_ps(top);
                for (long c = 0; c < 32 * n32; c += 16) {
                    const __m512 x = _mm512_max_ps(all(-104.f), _mm512_sub_ps(load(line + c), all(m))), e = exponential(x);
                    total = _mm512_add_ps(total, e);
                    turned = _mm512_fmadd_ps(e, x, turned);
                }
                most[r * blocks + b] = m, mass[r * blocks + b] = _mm512_reduce_add_ps(total), turning[r * blocks + b] = _mm512_reduce_add_ps(turned);
                const long label = s.labels[at + r] - b * SPAN;
                if (label >= 0 && label < SPAN) label_logit[r] = line[label];
            }
        }
        for (long r = 0; r < std::min(SPAN, last - at); ++r) {
            const float* tops = most + r * blocks;
            const float top = *std::max_element(tops, tops + blocks);
            std::vector<double> share(blocks);
            double z = 0, turned = 0;
            for (long b = 0; b < blocks; ++b) {
                const double by = std::exp(static_cast<double>(tops[b] - top));
                z += share[b] = mass[r * blocks + b] * by;
                turned += by * (turning[r * blocks + b] + mass[r * blocks + b] * static_cast<double>(tops[b] - top));
            }
            const long position = at + r;
            const bool counted = s.labels[position] >= 0;
            s.log_z[position] = counted ? top + static_cast<float>(std::log(z)) : INFINITY;
            s.loss[position] = counted ? static_cast<float>(top - label_logit[r] + std::log(z)) : 0;
            s.entropy[position] = static_cast<float>(std::log(z) - turned / z);
            s.correct[position] = counted && label_logit[r] >= top;
            if (!s.draws) continue;
            double rest = s.draws[position] * z;
            long b = 0;
            while (b + 1 < blocks && rest >= share[b]) rest -= share[b++];
            s.sampled[position] = find_word(s, position, b, top, static_cast<float>(rest));
        }
    }
}

// Second look at the words of blocks [first, last): gradients of table and bias, complete; of the hidden states, added to `d_hidden`.
void softmax_gradient(const Softmax& s, long first_block, long last_block, float* d_hidden) {
    const long E = s.width, padded = (s.positions + 31) / 32 * 32;
    Buffer<bf16> delta(SPAN * SPAN), turned(SPAN * SPAN);
    alignas(64) static const int32_t counting[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const __m512i lanes = _mm512_load_si512(counting);
    for (long b = first_block; b < last_block; ++b) {
        const long n32 = s.words32(b), wide = 32 * n32;
        for (long at = 0; at < padded; at += SPAN) {
            const long m32 = s.rows32(at);
            multiply(s.rows + at * E, 16 * E, s.words_forward(b), 32 * E, m32, n32, E / 32, [&](long i, long r, long n, const float* v) {
                const long position = at + 16 * i + r;
                const float* bias = s.padded_bias + b * SPAN + 32 * n;
                const bool real = position < s.positions;
                const __m512 log_z = all(real ? s.log_z[position] : INFINITY);
                __m512 lo = exponential(_mm512_sub_ps(_mm512_add_ps(load(v), load(bias)), log_z));
                __m512 hi = exponential(_mm512_sub_ps(_mm512_add_ps(load(v + 16), load(bias + 16)), log_z));
                const long label = real ? s.labels[position] - b * SPAN - 32 * n : -1;
                if (label >= 0 && label < 32) {
                    const __m512i here = _mm512_set1_epi32(static_cast<int>(label % 16));
                    __m512& half = label < 16 ? lo : hi;
                    half = _mm512_mask_sub_ps(half, _mm512_cmpeq_epi32_mask(lanes, here), half, all(1));
                }
                add_to(s.d_bias + b * SPAN + 32 * n, lo), add_to(s.d_bias + b * SPAN + 32 * n + 16, hi);
                store16(delta + i * 16 * wide + n * BLOCK + r * 32, narrow(lo, hi));
            });
            multiply_add(delta, 16 * wide, s.table_backward + b * SPAN * E, 32 * wide, m32, E / 32, n32, d_hidden + at * E, E);
            as_transposed_rows(delta, 16 * wide, m32, n32, turned);
            multiply_add(turned, 512 * m32, s.operand + 2 * (at / 32) * BLOCK, padded * 32, n32, E / 32, m32, s.d_table + b * SPAN * E, E);
        }
    }
}

}  // namespace
