// The product on Intel's matrix tiles (AMX), in bf16, 32 x 32 at a time.
#pragma once

#include "layouts.hpp"

#if defined(ELECTRA_EMULATED)
#include "emulated_tiles.hpp"
#else

namespace {

// GCC's tile loads do not say that they read memory: without this, stores before them may be dropped or come later.
inline void written() { asm volatile("" ::: "memory"); }

struct TileConfig {
    alignas(64) uint8_t bytes[64];
};

struct Tiles {  // all eight tile registers as 16 lines of 64 bytes, while it lives; then as a library in this thread had left them
    TileConfig before;
    Tiles() {
        asm volatile("sttilecfg %0" : "=m"(before));
        TileConfig ours = {{1}};
        for (int t = 0; t < 8; ++t) {
            ours.bytes[16 + 2 * t] = 64;
            ours.bytes[48 + t] = 16;
        }
        asm volatile("ldtilecfg %0" ::"m"(ours));
    }
    ~Tiles() {
        if (before.bytes[0])
            asm volatile("ldtilecfg %0" ::"m"(before));
        else
            _tile_release();
    }
};

}  // namespace
#endif

namespace {

// The four products of 16 rows with 16 columns over block k; `between` is done while the tiles are at work.
#define ELECTRA_MULTIPLY_BLOCK(k, between)    \
    _tile_loadd(4, a0 + (k) * 512, 64);       \
    _tile_loadd(6, bn + 2 * (k) * 512, 64);   \
    _tile_dpbf16ps(0, 4, 6);                  \
    _tile_loadd(7, bn + (2 * (k) + 1) * 512, 64); \
    _tile_dpbf16ps(1, 4, 7);                  \
    _tile_loadd(5, a1 + (k) * 512, 64);       \
    _tile_dpbf16ps(2, 5, 6);                  \
    _tile_dpbf16ps(3, 5, 7);                  \
    between

// Calls of `row` are woven between the tile instructions of the next 32 x 32, which run on another unit.
template <class Row>
void multiply(const bf16* a, long a_panel, const bf16* b, long b_panel, long m32, long n32, long k32, Row row) {
    written();
    alignas(64) float space[2][32 * 32];
    const long step = (32 + k32 - 1) / k32;
    const float* ready = nullptr;
    long ready_m = 0, ready_n = 0, turn = 0;
    for (long n = 0; n < n32; ++n)
        for (long m = 0; m < m32; ++m) {
            const bf16 *a0 = a + 2 * m * a_panel, *a1 = a0 + a_panel, *bn = b + n * b_panel;
            long done = ready ? 0 : 32;
            _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
            for (long k = 0; k < k32; ++k) {
                ELECTRA_MULTIPLY_BLOCK(k, for (const long end = std::min(32L, done + step); done < end; ++done)
                    row(2 * ready_m + done / 16, done % 16, ready_n, load(ready + done * 32)));
            }
            float* out = space[turn];
            _tile_stored(0, out, 128); _tile_stored(1, out + 16, 128);
            _tile_stored(2, out + 512, 128); _tile_stored(3, out + 528, 128);
            ready = out; ready_m = m; ready_n = n; turn ^= 1;
        }
    for (long r = 0; ready && r < 32; ++r) row(2 * ready_m + r / 16, r % 16, ready_n, load(ready + r * 32));
}

// Part `k` of `k32` of 32 x 32 sums, two groups, `below` apart
INLINE void fetch_sums(const float* sums, long below, long k, long k32) {
    for (long i = 32 * k / k32; i < 32 * (k + 1) / k32; ++i) __builtin_prefetch(sums + 16 * i, 1), __builtin_prefetch(sums + below + 16 * i, 1);
}

// Sums come from afar: those of the next 32 x 32 are fetched between the tile instructions.
inline void multiply_add(const bf16* a, long a_panel, const bf16* b, long b_panel, long m32, long n32, long k32, float* sums, long width) {
    written();
    for (long n = 0; n < n32; ++n)
        for (long m = 0; m < m32; ++m) {
            const bf16 *a0 = a + 2 * m * a_panel, *a1 = a0 + a_panel, *bn = b + n * b_panel;
            float *c0 = sums + 32 * m * width + n * GROUP, *c1 = c0 + 16 * width;
            _tile_loadd(0, c0, 128); _tile_loadd(1, c0 + 16, 128);
            _tile_loadd(2, c1, 128); _tile_loadd(3, c1 + 16, 128);
            const float* next = m + 1 < m32 ? c0 + 32 * width : sums + (n + 1) * GROUP;
            for (long k = 0; k < k32; ++k) {
                ELECTRA_MULTIPLY_BLOCK(k, fetch_sums(next, 16 * width, k, k32));
            }
            _tile_stored(0, c0, 128); _tile_stored(1, c0 + 16, 128);
            _tile_stored(2, c1, 128); _tile_stored(3, c1 + 16, 128);
        }
}

#undef ELECTRA_MULTIPLY_BLOCK

}  // namespace
