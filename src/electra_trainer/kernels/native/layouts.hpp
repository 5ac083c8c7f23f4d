// The layouts that products want, all made of 1 KB blocks: 16 lines of 16 words of 32 bits.
//
// A word is a number in fp32 or a pair in bf16, and a line 16 or 32 numbers (LINE).
//   rows      an activation [R, C]: block (i, j) holds rows 16 i ... of columns LINE j ..., at (i * C / LINE + j) * BLOCK
//   operand   the right side of a product, [K, N]: for each 32 columns, then each LINE rows, two blocks of 16 columns. Line p
//             holds row p in fp32; in bf16 the rows 2 p and 2 p + 1: B[2p][0], B[2p+1][0], B[2p][1], ...
//   sums      what products are added to, [R, C] in fp32 whatever they are of: 16 rows of 32 columns together, so that a product
//             finds its sums in a few pages. Block (i, j) is at (i * C / 32 + j) * GROUP
#pragma once

#include "vectors.hpp"

namespace {

template <class E>
constexpr long LINE = 64 / sizeof(E);
template <class E>
constexpr long BLOCK = 16 * LINE<E>;
constexpr long GROUP = 512;  // numbers in 16 rows of 32 columns: a block in bf16, two in fp32

// Where row `t` of an activation [., columns] begins; its next 32 columns are always GROUP further.
template <class E>
INLINE long row_at(long t, long columns) { return t / 16 * 16 * columns + t % 16 * LINE<E>; }

// The same in the layout sums
INLINE long sum_at(long t, long columns) { return t / 16 * 16 * columns + t % 16 * 32; }

// Sums [R, C] as plain rows, which may take their place
inline void as_plain(const float* sums, long rows, long columns, float* plain) {
    Buffer<float> panel(16 * columns);
    for (long t = 0; t < rows; t += 16) {
        std::memcpy(panel.data, sums + t * columns, 64 * columns);
        for (long r = 0; r < 16; ++r)
            for (long n = 0; n < columns / 32; ++n) store(plain + (t + r) * columns + 32 * n, load(panel + n * GROUP + 32 * r));
    }
}

// 32 columns of a row in the layout rows
INLINE Line get(const bf16* p) { return each([&](int i) { return widen(read<Half>(p + i * LANES)); }); }
INLINE Line get(const float* p) { return each([&](int i) { return read<V>(p + (2 * i < PARTS ? 0 : BLOCK<float> - 16) + i * LANES); }); }
INLINE void put(bf16* p, const Line& l) {
    UNROLL for (int i = 0; i < PARTS; ++i) write(p + i * LANES, narrow(l.v[i]));
}
INLINE void put(float* p, const Line& l) {
    UNROLL for (int i = 0; i < PARTS; ++i) write(p + (2 * i < PARTS ? 0 : BLOCK<float> - 16) + i * LANES, l.v[i]);
}
// A row of an activation [., columns] becomes that of another
template <class E>
INLINE void copy_row(const E* from, long f, E* to, long t, long columns) {
    for (long n = 0; n < columns / 32; ++n) put(to + row_at<E>(t, columns) + n * GROUP, get(from + row_at<E>(f, columns) + n * GROUP));
}
// Has them brought near, to be used soon
template <class E>
INLINE void fetch(const E* p) {
    for (long at = 0; at < 32; at += LINE<E>) __builtin_prefetch(p + at / LINE<E> * BLOCK<E>);
}
INLINE V rounded(V v, bf16) { return widen(narrow(v)); }
INLINE V rounded(V v, float) { return v; }

// ------------------------------------------------------------------------------------------------ words

template <int S, size_t... L>
INLINE void exchange(U& a, U& b, std::index_sequence<L...>) {
    const U first = __builtin_shufflevector(a, b, (L & S ? LANES + L - S : L)...);
    b = __builtin_shufflevector(a, b, (L & S ? LANES + L : L + S)...);
    a = first;
}
template <int S>
INLINE void transpose_from(U* r) {
    if constexpr (S < LANES) {
        UNROLL for (int i = 0; i < LANES; ++i)
            if (!(i & S)) exchange<S>(r[i], r[i + S], std::make_index_sequence<LANES>());
        transpose_from<2 * S>(r);
    }
}
// A block of 16 x 16 words, which `to` must not share with `from`
INLINE void transpose(const void* from, void* to) {
    for (int i = 0; i < 16; i += LANES)
        for (int j = 0; j < 16; j += LANES) {
            U r[LANES];
            UNROLL for (int l = 0; l < LANES; ++l) r[l] = read<U>(static_cast<const uint32_t*>(from) + (i + l) * 16 + j);
            transpose_from<1>(r);
            UNROLL for (int l = 0; l < LANES; ++l) write(static_cast<uint32_t*>(to) + (j + l) * 16 + i, r[l]);
        }
}

template <int H, size_t... L>
INLINE U interleave(U a, U b, std::index_sequence<L...>) {
    return __builtin_shufflevector(a, b, (H * LANES / 2 + L / 2 + L % 2 * LANES)...);
}
// Two lines of 32 in bf16, number by number together: 16 words for columns 0-15, 16 for columns 16-31.
INLINE void pair_up(const bf16* even, const bf16* odd, bf16* left, bf16* right) {
    for (int j = 0; j < 16; j += LANES) {
        const U a = read<U>(even + 2 * j), b = read<U>(odd + 2 * j);
        const U lower = (a & 0xffff) | b << 16, upper = a >> 16 | (b & 0xffff0000);
        const auto lanes = std::make_index_sequence<LANES>();
        bf16* to = 2 * j < 16 ? left + 4 * j : right + 4 * j - 32;
        write(to, interleave<0>(lower, upper, lanes));
        write(LANES == 16 ? right : to + 2 * LANES, interleave<1>(lower, upper, lanes));
    }
}

// ------------------------------------------------------------------------------------------------ activations

// rows [R, C] -> operand [K=R, N=C], or transposed: rows [C, R]; `panel` is the distance of 16 rows
template <bool TRANSPOSED, class E>
void turn(const E* from, long panel, long r32, long c32, E* to) {
    alignas(64) E pairs[2 * BLOCK<E>];
    const long many = r32 * 32 / LINE<E>;
    for (long i = 0; i < r32; ++i)
        for (long j = 0; j < c32; ++j) {
            const E* group = from + 2 * i * panel + j * GROUP;
            if constexpr (sizeof(E) == 2) {
                E* both = TRANSPOSED ? pairs : to + 2 * (j * many + i) * BLOCK<E>;
                for (int p = 0; p < 16; ++p) {
                    const E* even = group + p / 8 * panel + p % 8 * 2 * LINE<E>;
                    pair_up(even, even + LINE<E>, both + p * LINE<E>, both + BLOCK<E> + p * LINE<E>);
                }
                for (int half = 0; TRANSPOSED && half < 2; ++half) transpose(both + half * BLOCK<E>, to + ((2 * j + half) * many + i) * BLOCK<E>);
            } else {
                for (int q = 0; q < 4; ++q) {
                    const long row = 2 * i + q / 2, half = q % 2;
                    const E* block = group + q / 2 * panel + half * BLOCK<E>;
                    if constexpr (TRANSPOSED) transpose(block, to + ((2 * j + half) * many + row) * BLOCK<E>);
                    else std::memcpy(to + (2 * (j * many + row) + half) * BLOCK<E>, block, sizeof(E) * BLOCK<E>);
                }
            }
        }
}
template <class E>
void as_operand(const E* from, long panel, long r32, long c32, E* to) { turn<false>(from, panel, r32, c32, to); }
template <class E>
void as_transposed_rows(const E* from, long panel, long r32, long c32, E* to) { turn<true>(from, panel, r32, c32, to); }

// rows [R, C] -> operand [K=C, N=R]
template <class E>
void as_transposed_operand(const E* from, long panel, long r32, long c32, E* to) {
    const long blocks = c32 * 32 / LINE<E>;
    for (long i = 0; i < 2 * r32; ++i)
        for (long j = 0; j < blocks; ++j) transpose(from + i * panel + j * BLOCK<E>, to + (2 * (i / 2 * blocks + j) + i % 2) * BLOCK<E>);
}

// ------------------------------------------------------------------------------------------------ weights

// LINE numbers of a plain fp32 row as a line
INLINE void narrow_line(const float* from, bf16* to) {
    UNROLL for (int i = 0; i < 32; i += LANES) write(to + i, narrow(read<V>(from + i)));
}
INLINE void narrow_line(const float* from, float* to) { std::memcpy(to, from, 64); }

// weight [out, in], plain fp32, `out` rows of which the last may be missing (then 0): y = x W^T needs operand [K=in, N=out]
template <class E>
void pack_forward(const float* w, long out, long in, E* to, long panel) {
    alignas(64) E block[BLOCK<E>];
    for (long i = 0; i < 2 * ((out + 31) / 32); ++i)
        for (long k = 0; k < in / LINE<E>; ++k) {
            std::memset(block, 0, sizeof block);
            for (long r = 0; r < std::min(16l, out - i * 16); ++r) narrow_line(w + (i * 16 + r) * in + k * LINE<E>, block + r * LINE<E>);
            transpose(block, to + i / 2 * panel + (2 * k + i % 2) * BLOCK<E>);
        }
}

// the same weight for dx = dy W: operand [K=out, N=in]
template <class E>
void pack_backward(const float* w, long out, long in, E* to, long panel) {
    for (long k = 0; k < (out + 31) / 32 * 32; k += LINE<E>)
        for (long j = 0; j < in / 32; ++j) {
            E* block = to + j * panel + 32 * k;
            for (long p = 0; p < 16; ++p) {
                alignas(64) E lines[64] = {};
                const float* from = w + j * 32;
                if constexpr (sizeof(E) == 2) {
                    if (k + 2 * p < out) narrow_line(from + (k + 2 * p) * in, lines);
                    if (k + 2 * p + 1 < out) narrow_line(from + (k + 2 * p + 1) * in, lines + 32);
                    pair_up(lines, lines + 32, block + 32 * p, block + BLOCK<E> + 32 * p);
                } else {
                    if (k + p < out) std::memcpy(lines, from + (k + p) * in, 128);
                    std::memcpy(block + 16 * p, lines, 64), std::memcpy(block + BLOCK<E> + 16 * p, lines + 16, 64);
                }
            }
        }
}

}  // namespace
