// Products of an activation in the layout rows and an operand: what a path has to bring, and the loops of those without tiles.
//
//   multiply      calls row(panel, r, n, values) once for each row r of 16-row panel `panel` and each 32 columns n: what follows
//                 the product (bias, GELU, dropout, residual) is done there, while the values are near
//   multiply_add  sums [., width] += rows x operand
//   Tiles         what has to hold in a thread while it multiplies
// `a_panel` and `b_panel` are the distances of 16 rows and of 32 columns; the sizes are in units of 32.
#pragma once

#include "layouts.hpp"

#if defined(ELECTRA_AMX)
#include "products_amx.hpp"
#else

#if defined(ELECTRA_PLAIN)
#include "products_plain.hpp"  // of the tests
#else
#include "products_vector.hpp"
#endif

namespace {

struct Tiles {
    Tiles() {}
};

// Blocks of the inner dimension whose 32 columns of the operand stay in the nearest cache while rows pass; blocks and panels of the left
// side that stay in the next one while all columns pass.
constexpr long NEAR = 8, FAR = 16, PANELS = 16;

// step(m, n, k, blocks, right): panel `m` with 32 columns `n` over `blocks` blocks from the k-th, which begin at `right`
template <class E, class Step>
INLINE void walk(const E* b, long b_panel, long m32, long n32, long all, Step step) {
    for (long far = 0; far < all; far += FAR)
        for (long panels = 0; panels < 2 * m32; panels += PANELS)
            for (long n = 0; n < n32; ++n)
                for (long k = far; k < std::min(far + FAR, all); k += NEAR) {
                    const E* right = b + n * b_panel + 2 * k * BLOCK<E>;
                    const E* next = k + NEAR < std::min(far + FAR, all) ? right + 2 * NEAR * BLOCK<E> : right + b_panel - 2 * (k - far) * BLOCK<E>;
                    for (long m = panels; m < std::min(panels + PANELS, 2 * m32); ++m, next += BLOCK<E>) {
                        UNROLL for (int line = 0; line < 16; ++line) __builtin_prefetch(next + line * LINE<E>);
                        step(m, n, k, std::min(NEAR, all - k), right);
                    }
                }
}

template <class E, class Row>
void multiply(const E* a, long a_panel, const E* b, long b_panel, long m32, long n32, long k32, Row row) {
    const long all = k32 * 32 / LINE<E>, apart = all > FAR ? m32 * 1024 : 0;
    Buffer<float> values(apart ? n32 * apart : m32 * 1024);
    walk(b, b_panel, m32, n32, all, [&](long m, long n, long k, long blocks, const E* right) {
        const E* left = a + m * a_panel + k * BLOCK<E>;
        float* out = values + n * apart + m * 512;
        if (k == 0) multiply_block<false>(left, right, blocks, out);
        else multiply_block<true>(left, right, blocks, out);
        for (long r = 0; k + blocks == all && r < 16; ++r) row(m, r, n, load(out + 32 * r));
    });
}

template <class E>
void multiply_add(const E* a, long a_panel, const E* b, long b_panel, long m32, long n32, long k32, float* sums, long width) {
    walk(b, b_panel, m32, n32, k32 * 32 / LINE<E>, [&](long m, long n, long k, long blocks, const E* right) {
        multiply_block<true>(a + m * a_panel + k * BLOCK<E>, right, blocks, sums + 16 * m * width + n * GROUP);
    });
}

}  // namespace
#endif
