// The softmax over the vocabulary at the chosen positions: loss, samples and gradients without ever writing the logits.
//
// Two looks, each on a block of 256 positions x 256 words at a time. The first finds, for each position and block, the largest
// logit and the sum of exponentials, from which follow the loss and the block that a sample falls in; the logits of that
// block are made again to find its word. The second makes the logits again and turns them into the gradient at once.
#pragma once

#include <vector>

#include "layers.hpp"

namespace {

constexpr long SPAN = 256;  // words, and positions, in a block

struct Softmax {  // as library.py fills it in
    int64_t positions, words, width;  // K, V, E
    const float *hidden, *table, *bias;  // [K, E], [V, E], [V]
    const int64_t* labels;  // [K]; below 0: left out of loss and gradients
    const float* draws;  // [K] in [0, 1), or null
    Number *rows, *operand, *table_forward, *table_backward;  // hidden in both layouts, the table both ways
    float *padded_bias, *log_z;  // [V to 32s], [K to 256s]
    int64_t* sampled;  // [K]
    float *loss, *entropy;  // [K] each
    uint8_t* correct;  // [K]: the label is the most probable word
    float *d_table, *d_bias;  // [V to 32s, E], [V to 32s]

    long blocks() const { return (words + SPAN - 1) / SPAN; }
    long words32(long block) const { return std::min(SPAN, (words + 31) / 32 * 32 - block * SPAN) / 32; }
    long rows32(long first) const { return std::min(SPAN, (positions + 31) / 32 * 32 - first) / 32; }
    const Number* words_forward(long block) const { return table_forward + block * SPAN * width; }
};

// Operands of words [first, last), both multiples of 256 or the end.
void softmax_pack_words(const Softmax& s, long first_block, long last_block) {
    for (long b = first_block; b < last_block; ++b) {
        const long at = b * SPAN, n = std::min(SPAN, s.words - at), panels = s.words32(b);
        pack_forward(s.table + at * s.width, n, s.width, s.table_forward + at * s.width, s.width * 32);
        pack_backward(s.table + at * s.width, n, s.width, s.table_backward + at * s.width, panels * 1024);
        for (long i = 0; i < panels * 32; ++i) s.padded_bias[at + i] = i < n ? s.bias[at + i] : -INFINITY;
    }
}

void softmax_pack_rows(const Softmax& s) {
    for (long r = 0; r < (s.positions + 31) / 32 * 32; ++r)
        for (long n = 0; n < s.width / 32; ++n)
            put(s.rows + row_at<Number>(r, s.width) + n * GROUP, r < s.positions ? load(s.hidden + r * s.width + 32 * n) : all_of(0));
    as_operand(s.rows, 16 * s.width, (s.positions + 31) / 32, s.width / 32, s.operand);
}

// Of 32 * rows32 positions, whose operands are `rows`, and the words of a block: [., SPAN].
void block_logits(const Softmax& s, const Number* rows, long rows32, long block, float* logits) {
    multiply(rows, 16 * s.width, s.words_forward(block), 32 * s.width, rows32, s.words32(block), s.width / 32, [&](long i, long r, long n, const Line& v) {
        store(logits + (16 * i + r) * SPAN + 32 * n, v + load(s.padded_bias + block * SPAN + 32 * n));
    });
}

struct Sample {  // falls among the words of `block`, where their sum of exponentials passes `rest` (both relative to exp(top))
    long position, block;
    float top, rest;
};

// The word of a block with these logits at which the sum passes `rest`.
long word_at(const float* logits, long words32, float top, float rest) {
    float mass[SPAN], sum = 0;
    for (long c = 0; c < 32 * words32; c += 32) {
        const Line e = exponential(load(logits + c) - top);
        store(mass + c, e);
        const float all = sum_of(e);
        if (sum + all <= rest) {
            sum += all;
            continue;
        }
        for (long w = c; w < c + 32; ++w)
            if ((sum += mass[w]) > rest) return w;
    }
    long last = 32 * words32 - 1;  // rounding: the block's sum came out a little below `rest`
    while (last > 0 && !(mass[last] > 0)) --last;
    return last;
}

// The words of samples: the logits of their blocks are made again, of as many positions at once as fell into the same block.
void find_words(const Softmax& s, std::vector<Sample>& samples, float* logits) {
    std::stable_sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.block < b.block; });
    Buffer<Number> rows(SPAN * s.width);
    for (size_t first = 0, last; first < samples.size(); first = last) {
        const long b = samples[first].block, n32 = s.words32(b);
        for (last = first; last < samples.size() && last - first < SPAN && samples[last].block == b;) ++last;
        const long m32 = (last - first + 31) / 32;
        for (long r = 0; r < 32 * m32; ++r)
            for (long n = 0; n < s.width / 32; ++n) {
                const Number* from = s.rows + row_at<Number>(samples[std::min(first + r, last - 1)].position, s.width);
                put(rows + row_at<Number>(r, s.width) + n * GROUP, get(from + n * GROUP));
            }
        block_logits(s, rows, m32, b, logits);
        for (size_t one = first; one < last; ++one)
            s.sampled[samples[one].position] = b * SPAN + word_at(logits + (one - first) * SPAN, n32, samples[one].top, samples[one].rest);
    }
}

// First look at positions [first, last), `first` a multiple of 32.
void softmax_look(const Softmax& s, long first, long last) {
    const long blocks = s.blocks();
    Buffer<float> logits(SPAN * SPAN), most(SPAN * blocks), mass(SPAN * blocks), turning(SPAN * blocks);
    std::vector<Sample> samples;
    for (long at = first; at < last; at += SPAN) {
        const long m32 = (std::min(SPAN, last - at) + 31) / 32;
        float label_logit[SPAN];
        for (long b = 0; b < blocks; ++b) {
            const long n32 = s.words32(b);
            block_logits(s, s.rows + at * s.width, m32, b, logits);
            for (long r = 0; r < std::min(SPAN, last - at); ++r) {
                const float* line = logits + r * SPAN;
                Line top = load(line), total = all_of(0), turned = all_of(0);
                for (long c = 32; c < 32 * n32; c += 32) top = max(top, load(line + c));
                const float m = max_of(top);
                for (long c = 0; c < 32 * n32; c += 32) {
                    const Line x = max(load(line + c) - m, all_of(-104)), e = exponential(x);  // the padding's logits are -inf
                    total = total + e;
                    turned = turned + e * x;
                }
                most[r * blocks + b] = m, mass[r * blocks + b] = sum_of(total), turning[r * blocks + b] = sum_of(turned);
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
            samples.push_back({position, b, top, static_cast<float>(rest)});
        }
    }
    find_words(s, samples, logits);
}

// Second look at the words of blocks [first, last): gradients of table and bias, complete; of the hidden states, in `d_hidden`, which is 0 before.
void softmax_gradient(const Softmax& s, long first_block, long last_block, float* d_hidden) {
    const long E = s.width, padded = (s.positions + 31) / 32 * 32;
    Buffer<Number> delta(SPAN * SPAN), turned(SPAN * SPAN);
    Buffer<float> sums(SPAN * E);
    for (long b = first_block; b < last_block; ++b) {
        const long n32 = s.words32(b), wide = 32 * n32;
        std::memset(sums, 0, 4 * wide * E);
        for (long at = 0; at < padded; at += SPAN) {
            const long m32 = s.rows32(at);
            multiply(s.rows + at * E, 16 * E, s.words_forward(b), 32 * E, m32, n32, E / 32, [&](long i, long r, long n, const Line& v) {
                const long position = at + 16 * i + r;
                const bool real = position < s.positions;
                float values[32];
                store(values, exponential(v + load(s.padded_bias + b * SPAN + 32 * n) - (real ? s.log_z[position] : INFINITY)));
                const long label = real ? s.labels[position] - b * SPAN - 32 * n : -1;
                if (label >= 0 && label < 32) values[label] -= 1;
                add_to(s.d_bias + b * SPAN + 32 * n, load(values));
                put(delta + i * 16 * wide + n * GROUP + r * LINE<Number>, load(values));
            });
            multiply_add(delta.data, 16 * wide, s.table_backward + b * SPAN * E, 32 * wide, m32, E / 32, n32, d_hidden + at * E, E);
            as_transposed_rows(delta.data, 16 * wide, m32, n32, turned.data);
            multiply_add(turned.data, 512 * m32, s.operand + 32 * at, padded * 32, n32, E / 32, m32, sums.data, E);
        }
        as_plain(sums, wide, E, s.d_table + b * SPAN * E);
    }
    as_plain(d_hidden, padded, E, d_hidden);
}

}  // namespace
