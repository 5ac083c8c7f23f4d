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

constexpr long NEAR = 16384;  // bytes of the operand's 32 columns that stay in the nearest cache while all rows pass

// part(first, blocks): so many blocks of the inner dimension at a time
template <class E, class Part>
INLINE void in_parts(long k32, Part part) {
    const long all = k32 * 32 / LINE<E>, together = NEAR / (2 * 1024);
    for (long k = 0; k < all; k += together) part(k, std::min(together, all - k));
}

template <class E, class Row>
void multiply(const E* a, long a_panel, const E* b, long b_panel, long m32, long n32, long k32, Row row) {
    const long all = k32 * 32 / LINE<E>;
    Buffer<float> values(m32 * 1024);
    for (long n = 0; n < n32; ++n)
        in_parts<E>(k32, [&](long k, long blocks) {
            for (long m = 0; m < 2 * m32; ++m) {
                const E *left = a + m * a_panel + k * BLOCK<E>, *right = b + n * b_panel + 2 * k * BLOCK<E>;
                float* out = values + m * 512;
                if (k == 0) multiply_block<false>(left, right, blocks, out);
                else multiply_block<true>(left, right, blocks, out);
                for (long r = 0; k + blocks == all && r < 16; ++r) row(m, r, n, load(out + 32 * r));
            }
        });
}

template <class E>
void multiply_add(const E* a, long a_panel, const E* b, long b_panel, long m32, long n32, long k32, float* sums, long width) {
    for (long n = 0; n < n32; ++n)
        in_parts<E>(k32, [&](long k, long blocks) {
            for (long m = 0; m < 2 * m32; ++m)
                multiply_block<true>(a + m * a_panel + k * BLOCK<E>, b + n * b_panel + 2 * k * BLOCK<E>, blocks, sums + 16 * m * width + n * GROUP);
        });
}

}  // namespace
#endif
