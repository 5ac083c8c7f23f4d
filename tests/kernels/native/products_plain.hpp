// The product in plain C++, without vectors and tiles of sums: the truth for what products_vector.hpp and products_amx.hpp compute.
#pragma once

namespace {

INLINE float number(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
INLINE float number(float x) { return x; }

#pragma GCC push_options
#pragma GCC optimize("O3")
// 16 rows x 32 columns over `blocks` blocks, at most 8: to `out`, 16 lines of 32, or added to it
template <bool ADD, class E>
void multiply_block(const E* a, const E* b, long blocks, float* out) {
    constexpr int TOGETHER = LINE<E> / 16;
    float right[8 * LINE<E>][32];
    for (long k = 0; k < blocks; ++k)
        for (int p = 0; p < LINE<E>; ++p)
            for (int c = 0; c < 32; ++c) {
                const E* line = b + (2 * k + c / 16) * BLOCK<E> + p / TOGETHER * LINE<E>;
                right[k * LINE<E> + p][c] = number(line[c % 16 * TOGETHER + p % TOGETHER]);
            }
    for (int r = 0; r < 16; ++r) {
        float sum[32] = {};
        for (long k = 0; k < blocks; ++k)
            for (int p = 0; p < LINE<E>; ++p) {
                const float left = number(a[k * BLOCK<E> + r * LINE<E> + p]);
                for (int c = 0; c < 32; ++c) sum[c] += left * right[k * LINE<E> + p][c];
            }
        for (int c = 0; c < 32; ++c) out[32 * r + c] = sum[c] + (ADD ? out[32 * r + c] : 0);
    }
}
#pragma GCC pop_options

}  // namespace
