// What the kernels are made of: products on Intel's matrix tiles (AMX), the layouts they want, dropout, elementary functions.
//
// Layouts, all made of 1 KB blocks that a tile register loads from consecutive memory:
//   rows      an activation [R, C] as blocks of 16 rows x 32 columns, block (i, j) at (i * C/32 + j) * 512
//   operand   the right side of a product, [K, N]: for each 32 columns and 32 rows, two blocks of 16 columns whose 16 lines
//             hold pairs of rows: line p is B[2p][0], B[2p+1][0], B[2p][1], ...
// A product's result comes out 32 x 32 at a time in fp32; what follows it (bias, GELU, dropout, residual) is done there.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

using bf16 = uint16_t;
constexpr long BLOCK = 512;  // elements in a block of 16 x 32

// ------------------------------------------------------------------------------------------------ small parts

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

template <class T>
struct Buffer {  // aligned memory for a call
    T* data;
    explicit Buffer(long count) : data(static_cast<T*>(std::aligned_alloc(64, ((count * sizeof(T) + 63) / 64 + 1) * 64))) {
        if (!data) throw std::bad_alloc();
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { std::free(data); }
    operator T*() const { return data; }
};

inline __m512 low(__m512i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(v)), 16)); }
inline __m512 high(__m512i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1)), 16)); }
inline __m512i narrow(__m512 lo, __m512 hi) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(hi, lo)); }
inline __m512 all(float v) { return _mm512_set1_ps(v); }
inline __m512 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, __m512 v) { _mm512_storeu_ps(p, v); }
inline __m512i load16(const bf16* p) { return _mm512_loadu_si512(p); }
inline void store16(bf16* p, __m512i v) { _mm512_storeu_si512(p, v); }
inline void add_to(float* p, __m512 v) { store(p, _mm512_add_ps(load(p), v)); }

inline __m512 exponential(__m512 x) {  // relative error 2e-7; 0 below -104; NaN stays NaN
    const __m512 t = _mm512_mul_ps(_mm512_max_ps(all(-104.f), x), all(1.44269504f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(t, n);
    __m512 p = all(1.535336188e-4f);
    for (float c : {1.339887440e-3f, 9.618437357e-3f, 5.550332548e-2f, 2.402264791e-1f, 6.931472028e-1f, 1.f})
        p = _mm512_fmadd_ps(p, f, all(c));
    return _mm512_scalef_ps(p, n);
}

// The two factors of GELU and its slope: 1/2 + y P(y^2) with y = x cut at 4.3, fitted to the normal distribution and to d/dx (x cdf(x));
// 0 below -4.3. Largest errors 5e-5 and 3e-4, where bf16 rounds values near 1 by up to 4e-3.
struct Gelu {
    __m512 y, t;
    __mmask16 above;
    explicit Gelu(__m512 x) : y(_mm512_min_ps(_mm512_max_ps(all(-4.3f), x), all(4.3f))), t(_mm512_mul_ps(y, y)), above(_mm512_cmp_ps_mask(x, all(-4.3f), _CMP_NLT_UQ)) {}
    template <int N>
    __m512 odd(const float (&c)[N]) const {
        __m512 p = all(c[N - 1]);
        for (int i = N - 2; i >= 0; --i) p = _mm512_fmadd_ps(p, t, all(c[i]));
        return _mm512_maskz_fmadd_ps(above, p, y, all(.5f));
    }
    __m512 cdf() const {
        static constexpr float c[] = {3.987475932e-01f, -6.592099369e-02f, 9.481571615e-03f, -9.908969514e-04f,
                                      7.158167864e-05f, -3.336673672e-06f, 8.921976047e-08f, -1.031456587e-09f};
        return odd(c);
    }
    __m512 slope() const {
        static constexpr float c[] = {7.972738147e-01f, -2.637442350e-01f, 5.745682120e-02f, -8.307694457e-03f, 8.196393610e-04f,
                                      -5.437045911e-05f, 2.305058842e-06f, -5.610446152e-08f, 5.939013170e-10f};
        return odd(c);
    }
};

// Dropout: 32 decisions for (place, row, block of 32 columns), each 16 random bits against a threshold. The bits are five
// rounds of AES over the counter (Salmon et al. 2011, ARS-5), so that the backward pass makes them again instead of storing them.
struct Dropout {
    __m512i seed, threshold;
    float scale;
    bool on;
    Dropout(double p, uint64_t key) {
        const int t = std::min(65535, static_cast<int>(std::lround(p * 65536)));
        on = t > 0;
        scale = 65536.f / (65536 - t);
        threshold = _mm512_set1_epi16(static_cast<short>(t));
        seed = _mm512_set_epi64(key, ~key, key, ~key, key, ~key, key, ~key);
    }
    __mmask32 kept(uint32_t place, uint32_t row, uint32_t block) const {
        const long top = static_cast<long>((static_cast<uint64_t>(place) << 32) | row);
        const long b = static_cast<long>(block) << 2;
        __m512i x = _mm512_xor_si512(_mm512_set_epi64(top, b | 3, top, b | 2, top, b | 1, top, b), seed);
        __m512i k = seed;
        const __m512i weyl = _mm512_set_epi64(0xBB67AE8584CAA73B, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0x9E3779B97F4A7C15,
                                              0xBB67AE8584CAA73B, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0x9E3779B97F4A7C15);
        for (int round = 0; round < 5; ++round) {
            k = _mm512_add_epi64(k, weyl);
            x = _mm512_aesenc_epi128(x, k);
        }
        return _mm512_cmpge_epu16_mask(x, threshold);
    }
    void apply(__m512& lo, __m512& hi, uint32_t place, uint32_t row, uint32_t block) const {
        if (!on) return;
        const __mmask32 keep = kept(place, row, block);
        lo = _mm512_maskz_mul_ps(static_cast<__mmask16>(keep), lo, all(scale));
        hi = _mm512_maskz_mul_ps(static_cast<__mmask16>(keep >> 16), hi, all(scale));
    }
};

// ------------------------------------------------------------------------------------------------ products

// rows x operand: calls row(panel, r, n, values) once for each row r of 16-row panel `panel` and each 32 columns n, with 32 fp32
// values. Those calls are woven between the tile instructions of the next 32 x 32, which run on another unit.
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
                _tile_loadd(4, a0 + k * BLOCK, 64);
                _tile_loadd(6, bn + 2 * k * BLOCK, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, bn + (2 * k + 1) * BLOCK, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, a1 + k * BLOCK, 64);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
                for (const long end = std::min(32L, done + step); done < end; ++done)
                    row(2 * ready_m + done / 16, done % 16, ready_n, ready + done * 32);
            }
            float* out = space[turn];
            _tile_stored(0, out, 128); _tile_stored(1, out + 16, 128);
            _tile_stored(2, out + 512, 128); _tile_stored(3, out + 528, 128);
            ready = out; ready_m = m; ready_n = n; turn ^= 1;
        }
    for (long r = 0; ready && r < 32; ++r) row(2 * ready_m + r / 16, r % 16, ready_n, ready + r * 32);
}

// c[M][N] += rows x operand, c in plain rows of `width` fp32.
void multiply_add(const bf16* a, long a_panel, const bf16* b, long b_panel, long m32, long n32, long k32, float* c, long width) {
    written();
    const long line = width * 4;
    for (long n = 0; n < n32; ++n)
        for (long m = 0; m < m32; ++m) {
            const bf16 *a0 = a + 2 * m * a_panel, *a1 = a0 + a_panel, *bn = b + n * b_panel;
            float *c0 = c + 32 * m * width + 32 * n, *c1 = c0 + 16 * width;
            _tile_loadd(0, c0, line); _tile_loadd(1, c0 + 16, line);
            _tile_loadd(2, c1, line); _tile_loadd(3, c1 + 16, line);
            for (long k = 0; k < k32; ++k) {
                _tile_loadd(4, a0 + k * BLOCK, 64);
                _tile_loadd(6, bn + 2 * k * BLOCK, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, bn + (2 * k + 1) * BLOCK, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, a1 + k * BLOCK, 64);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, c0, line); _tile_stored(1, c0 + 16, line);
            _tile_stored(2, c1, line); _tile_stored(3, c1 + 16, line);
        }
}

// ------------------------------------------------------------------------------------------------ layouts

void transpose(__m512i r[16]) {  // 16 x 16 of 32 bits, in place
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int j = 0; j < 4; ++j) {
        const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88), d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}

struct Pairs {  // of two rows of 32: lane by lane together, the first and the last 16 columns
    __m512i first, last;
    Pairs() {
        alignas(64) uint16_t f[32], l[32];
        for (int i = 0; i < 16; ++i) {
            f[2 * i] = i, f[2 * i + 1] = 32 + i;
            l[2 * i] = 16 + i, l[2 * i + 1] = 48 + i;
        }
        first = _mm512_load_si512(f), last = _mm512_load_si512(l);
    }
};

// Block (row(0..31) of 32 columns) as pairs of rows: left[p] for columns 0-15, right[p] for 16-31.
template <class Line>
inline void pair_up(const Pairs& pairs, Line line, __m512i left[16], __m512i right[16]) {
    for (int p = 0; p < 16; ++p) {
        const __m512i even = line(2 * p), odd = line(2 * p + 1);
        left[p] = _mm512_permutex2var_epi16(even, pairs.first, odd);
        right[p] = _mm512_permutex2var_epi16(even, pairs.last, odd);
    }
}
inline void store_block(bf16* to, const __m512i r[16]) {
    for (int i = 0; i < 16; ++i) store16(to + 32 * i, r[i]);
}

// rows [R, C] -> operand [K=R, N=C]
void as_operand(const bf16* from, long panel, long r32, long c32, bf16* to) {
    const Pairs pairs;
    __m512i left[16], right[16];
    for (long i = 0; i < r32; ++i)
        for (long j = 0; j < c32; ++j) {
            const bf16* block = from + 2 * i * panel + j * BLOCK;
            pair_up(pairs, [&](int r) { return load16(block + (r / 16) * panel + (r % 16) * 32); }, left, right);
            store_block(to + 2 * (j * r32 + i) * BLOCK, left);
            store_block(to + (2 * (j * r32 + i) + 1) * BLOCK, right);
        }
}

// rows [R, C] -> rows [C, R]
void as_transposed_rows(const bf16* from, long panel, long r32, long c32, bf16* to) {
    const Pairs pairs;
    __m512i left[16], right[16];
    for (long i = 0; i < r32; ++i)
        for (long j = 0; j < c32; ++j) {
            const bf16* block = from + 2 * i * panel + j * BLOCK;
            pair_up(pairs, [&](int r) { return load16(block + (r / 16) * panel + (r % 16) * 32); }, left, right);
            transpose(left), transpose(right);
            store_block(to + (2 * j * r32 + i) * BLOCK, left);
            store_block(to + ((2 * j + 1) * r32 + i) * BLOCK, right);
        }
}

// rows [R, C] -> operand [K=C, N=R]
void as_transposed_operand(const bf16* from, long panel, long r32, long c32, bf16* to) {
    __m512i block[16];
    for (long i = 0; i < 2 * r32; ++i)
        for (long j = 0; j < c32; ++j) {
            for (int r = 0; r < 16; ++r) block[r] = load16(from + i * panel + j * BLOCK + 32 * r);
            transpose(block);
            store_block(to + (2 * ((i / 2) * c32 + j) + i % 2) * BLOCK, block);
        }
}

inline __m512i narrow_row(const float* p) { return narrow(load(p), load(p + 16)); }

// weight [out, in], plain fp32, `out` rows of which the last may be missing (then 0): y = x W^T needs operand [K=in, N=out]
void pack_forward(const float* w, long out, long in, bf16* to, long panel) {
    __m512i block[16];
    for (long i = 0; i < 2 * ((out + 31) / 32); ++i)
        for (long k = 0; k < in / 32; ++k) {
            for (int r = 0; r < 16; ++r)
                block[r] = i * 16 + r < out ? narrow_row(w + (i * 16 + r) * in + k * 32) : _mm512_setzero_si512();
            transpose(block);
            store_block(to + (i / 2) * panel + (2 * k + i % 2) * BLOCK, block);
        }
}

// the same weight for dx = dy W: operand [K=out, N=in]
void pack_backward(const float* w, long out, long in, bf16* to, long panel) {
    const Pairs pairs;
    __m512i left[16], right[16];
    for (long k = 0; k < (out + 31) / 32; ++k)
        for (long j = 0; j < in / 32; ++j) {
            auto line = [&](int r) { return k * 32 + r < out ? narrow_row(w + (k * 32 + r) * in + j * 32) : _mm512_setzero_si512(); };
            pair_up(pairs, line, left, right);
            store_block(to + j * panel + 2 * k * BLOCK, left);
            store_block(to + j * panel + (2 * k + 1) * BLOCK, right);
        }
}

}  // namespace
