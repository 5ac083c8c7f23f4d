// The product on vector units: fused multiply-add in fp32 (AVX-512, AVX2, NEON), pairs of bf16 by `vdpbf16ps` (AVX512-BF16).
//
// A word of the left side times a vector of the right one is added to a tile of sums that stays in registers.
#pragma once

#include "layouts.hpp"

namespace {

INLINE V add_product(V sum, const float* word, V line) { return sum + *word * line; }
INLINE V add_product(V sum, const bf16* word, V line) {
    uint32_t pair;
    std::memcpy(&pair, word, 4);
#if defined(__AVX512BF16__)
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(line), reinterpret_cast<__m512bh>(all(pair)));
#else  // the same by shifts, so that a processor without the instruction can test the rest
    const U bits = reinterpret_cast<U>(line);
    sum += reinterpret_cast<V>(bits << 16) * reinterpret_cast<V>(all(pair << 16));
    return sum + reinterpret_cast<V>(bits & 0xffff0000) * reinterpret_cast<V>(all(pair & 0xffff0000));
#endif
}

// ROWS rows x COLUMNS vectors, which lie in one block of 16 columns or, where a vector fills it, in both
template <bool ADD, int ROWS, int COLUMNS, class E>
INLINE void multiply_tile(const E* a, const E* b, long blocks, float* out) {
    V sum[ROWS][COLUMNS];
    constexpr long WORD = 4 / sizeof(E), IN_BLOCK = 16 / LANES;
    auto column = [](int c) { return c / IN_BLOCK * 16 + c % IN_BLOCK * LANES; };
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < COLUMNS; ++c) sum[r][c] = V{};
    for (long k = 0; k < blocks; ++k, a += BLOCK<E>, b += 2 * BLOCK<E>)
        _Pragma("GCC unroll 4") for (int p = 0; p < 16; ++p) {  // not unrolled it is up to a third slower, all 16 together are too
            V line[COLUMNS];
            UNROLL for (int c = 0; c < COLUMNS; ++c) line[c] = read<V>(b + p * LINE<E> + c / IN_BLOCK * BLOCK<E> + c % IN_BLOCK * LANES * WORD);
            UNROLL for (int r = 0; r < ROWS; ++r)
                UNROLL for (int c = 0; c < COLUMNS; ++c) sum[r][c] = add_product(sum[r][c], a + r * LINE<E> + p * WORD, line[c]);
        }
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int c = 0; c < COLUMNS; ++c) write(out + 32 * r + column(c), ADD ? read<V>(out + 32 * r + column(c)) + sum[r][c] : sum[r][c]);
}

template <bool ADD, int COLUMNS, int FIRST, int ROWS, int... REST, class E>
INLINE void multiply_tiles(const E* a, const E* b, long blocks, float* out) {
    multiply_tile<ADD, ROWS, COLUMNS>(a + FIRST * LINE<E>, b, blocks, out + 32 * FIRST);
    if constexpr (sizeof...(REST)) multiply_tiles<ADD, COLUMNS, FIRST + ROWS, REST...>(a, b, blocks, out);
}

// 16 rows x 32 columns over `blocks` blocks: to `out`, 16 lines of 32, or added to it
template <bool ADD, class E>
INLINE void multiply_block(const E* a, const E* b, long blocks, float* out) {
    if constexpr (LANES == 16) {  // 16 sums in 32 registers
        multiply_tiles<ADD, 2, 0, 8, 8>(a, b, blocks, out);
    } else {
        for (int half = 0; half < 2; ++half) {
#if defined(__AVX2__)  // 12 sums in 16 registers
            multiply_tiles<ADD, 2, 0, 6, 5, 5>(a, b + half * BLOCK<E>, blocks, out + 16 * half);
#else
            multiply_tiles<ADD, 4, 0, 4, 4, 4, 4>(a, b + half * BLOCK<E>, blocks, out + 16 * half);
#endif
        }
    }
}

}  // namespace
