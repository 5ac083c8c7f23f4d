// Vectors as wide as the processor's, a line of 32 numbers made of them, elementary functions, dropout.
//
// Written with the vector types that g++ and clang share: the same source makes AVX-512, AVX2, SSE and NEON instructions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#define ELECTRA_LANES 16
#elif defined(__AVX2__)
#define ELECTRA_LANES 8
#else
#define ELECTRA_LANES 4
#endif
#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

using bf16 = uint16_t;

constexpr int LANES = ELECTRA_LANES;  // numbers in a vector
constexpr int PARTS = 32 / LANES;     // vectors in a line
typedef float V __attribute__((vector_size(4 * LANES), may_alias));
typedef uint32_t U __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t I __attribute__((vector_size(4 * LANES), may_alias));
typedef uint16_t Half __attribute__((vector_size(2 * LANES), may_alias));
template <class Vector>
struct Loose {  // the same vector at an address that need not be a multiple of its size
    typedef Vector type __attribute__((aligned(2), may_alias));
};

template <class Vector>
INLINE Vector read(const void* p) { return *static_cast<const typename Loose<Vector>::type*>(p); }
template <class Vector>
INLINE void write(void* p, Vector v) { *static_cast<typename Loose<Vector>::type*>(p) = v; }

INLINE V all(float x) { return x - V{}; }
INLINE U all(uint32_t x) { return x - U{}; }
INLINE V max(V a, V b) { return a < b ? b : a; }  // a where either is NaN
INLINE V min(V a, V b) { return b < a ? b : a; }

// Nearest even, as every bf16 unit rounds; NaN stays NaN.
INLINE Half narrow(V v) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<Half>(_mm512_cvtneps_pbh(v));
#else
    const U bits = reinterpret_cast<U>(v);
    const U rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector(v == v ? rounded : bits >> 16 | 0x40, Half);
#endif
}
INLINE V widen(Half h) { return reinterpret_cast<V>(__builtin_convertvector(h, U) << 16); }

// ------------------------------------------------------------------------------------------------ a line

struct Line {  // 32 numbers of a row
    V v[PARTS];
};

template <class F>
INLINE Line each(F f) {
    Line out;
    UNROLL for (int i = 0; i < PARTS; ++i) out.v[i] = f(i);
    return out;
}
INLINE Line all_of(float x) { return each([&](int) { return all(x); }); }
INLINE Line operator+(const Line& a, const Line& b) { return each([&](int i) { return a.v[i] + b.v[i]; }); }
INLINE Line operator-(const Line& a, const Line& b) { return each([&](int i) { return a.v[i] - b.v[i]; }); }
INLINE Line operator*(const Line& a, const Line& b) { return each([&](int i) { return a.v[i] * b.v[i]; }); }
INLINE Line operator-(const Line& a, float b) { return each([&](int i) { return a.v[i] - b; }); }
INLINE Line operator*(const Line& a, float b) { return each([&](int i) { return a.v[i] * b; }); }
INLINE Line max(const Line& a, const Line& b) { return each([&](int i) { return max(a.v[i], b.v[i]); }); }

INLINE Line load(const float* p) { return each([&](int i) { return read<V>(p + i * LANES); }); }
INLINE void store(float* p, const Line& l) {
    UNROLL for (int i = 0; i < PARTS; ++i) write(p + i * LANES, l.v[i]);
}
INLINE void add_to(float* p, const Line& l) { store(p, load(p) + l); }

// Halves of a vector put together until one number is left
template <int HALF, class Join, size_t... L>
INLINE float reduced(V v, Join join, std::index_sequence<L...> lanes) {
    if constexpr (HALF == 0) return v[0];
    else return reduced<HALF / 2>(join(v, __builtin_shufflevector(v, v, (L + HALF) % LANES...)), join, lanes);
}
template <class Join>
INLINE float reduced(const Line& l, Join join) {
    V v = l.v[0];
    UNROLL for (int i = 1; i < PARTS; ++i) v = join(v, l.v[i]);
    return reduced<LANES / 2>(v, join, std::make_index_sequence<LANES>());
}
INLINE float sum_of(const Line& l) { return reduced(l, [](V a, V b) { return a + b; }); }
INLINE float max_of(const Line& l) { return reduced(l, [](V a, V b) { return max(a, b); }); }

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

// ------------------------------------------------------------------------------------------------ elementary functions

INLINE V exponential(V x) {  // relative error 2e-7; 0 below -87; NaN stays NaN
    const V t = min(max(x, all(-87.f)), all(88.f)) * 1.44269504f;
    const V shifted = t + 12582912.f;  // 1.5 * 2^23: the nearest integer stands in the lowest bits
    const V f = t - (shifted - 12582912.f);
    V p = all(1.535336188e-4f);
    for (float c : {1.339887440e-3f, 9.618437357e-3f, 5.550332548e-2f, 2.402264791e-1f, 6.931472028e-1f, 1.f}) p = p * f + c;
    const V scaled = reinterpret_cast<V>(reinterpret_cast<U>(p) + (reinterpret_cast<U>(shifted) << 23));
    return x < -87.f ? V{} : scaled;
}
INLINE Line exponential(const Line& l) { return each([&](int i) { return exponential(l.v[i]); }); }

template <class E>
struct Gelu;

// In bf16: 1/2 + y P(y^2) with y = x cut at 4.3, fitted to the normal distribution and to d/dx (x cdf(x)); 0 below -4.3.
// Largest errors 5e-5 and 3e-4, where bf16 rounds values near 1 by up to 4e-3.
template <>
struct Gelu<bf16> {
    V x, y, t;
    INLINE explicit Gelu(V x) : x(x), y(min(max(x, all(-4.3f)), all(4.3f))), t(y * y) {}
    template <int N>
    INLINE V odd(const float (&c)[N]) const {
        V p = all(c[N - 1]);
        UNROLL for (int i = N - 2; i >= 0; --i) p = p * t + c[i];
        return x < -4.3f ? V{} : p * y + .5f;
    }
    INLINE V cdf() const {
        static constexpr float c[] = {3.987475932e-01f, -6.592099369e-02f, 9.481571615e-03f, -9.908969514e-04f,
                                      7.158167864e-05f, -3.336673672e-06f, 8.921976047e-08f, -1.031456587e-09f};
        return odd(c);
    }
    INLINE V slope() const {
        static constexpr float c[] = {7.972738147e-01f, -2.637442350e-01f, 5.745682120e-02f, -8.307694457e-03f, 8.196393610e-04f,
                                      -5.437045911e-05f, 2.305058842e-06f, -5.610446152e-08f, 5.939013170e-10f};
        return odd(c);
    }
};

// In fp32: 1 - cdf(|x|) = exp(-x^2 / 2) Q(|x|), with Q fitted so that the largest error of the product is 1.2e-7.
template <>
struct Gelu<float> {
    V x, bell, tail;  // exp(-x^2 / 2); 1 - cdf(|x|)
    INLINE explicit Gelu(V x) : x(x), bell(exponential(x * x * -.5f)) {
        const V size = min(x < 0.f ? -x : x, all(16.f));
        V q = all(1.631640998e-06f);
        for (float c : {-3.520694372e-05f, 3.397324181e-04f, -1.974603860e-03f, 7.939336821e-03f, -2.431385405e-02f, 6.115482375e-02f,
                        -1.325137764e-01f, 2.499167919e-01f, -3.989365101e-01f, 4.999999404e-01f})
            q = q * size + c;
        tail = q * bell;
    }
    INLINE V cdf() const { return x < 0.f ? tail : 1.f - tail; }
    INLINE V slope() const { return x * bell * .3989422804f + cdf(); }
};

// ------------------------------------------------------------------------------------------------ dropout

// 32 decisions for (place, row, block of 32 columns), each 16 random bits against a threshold. The bits are a hash of those
// numbers and the key, so that the backward pass makes them again instead of storing them; they are the same on every processor.
struct Dropout {
    uint64_t key;
    uint32_t threshold;
    float scale;
    Dropout(double p, uint64_t key) : key(key), threshold(std::min(65535l, std::lround(p * 65536))), scale(65536.f / (65536 - threshold)) {}

    static uint64_t mixed(uint64_t z) {  // SplitMix64 (Steele et al. 2014)
        z = (z + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }
    struct Row {  // its dropout for one row
        uint64_t stream;
        uint32_t threshold;
        float scale;
        // 0, or the scale of what is kept
        INLINE Line factors(uint32_t block) const {
            if (!threshold) return all_of(1);
            const uint32_t first = static_cast<uint32_t>(stream) + block * 16 * 0x9E3779B9, second = stream >> 32;
            U count;
            UNROLL for (int i = 0; i < LANES; ++i) count[i] = i * 0x9E3779B9;
            Line out;
            UNROLL for (int i = 0; i < PARTS / 2; ++i) {  // the lower 16 bits decide on columns 0-15, the upper on 16-31
                U x = count + (first + i * LANES * 0x9E3779B9u);
                x = (x ^ x >> 16) * 0x7FEB352D;
                x = (x ^ x >> 15 ^ second) * 0x846CA68B;
                x ^= x >> 16;
                out.v[i] = (x & 0xffff) >= threshold ? all(scale) : V{};
                out.v[i + PARTS / 2] = x >> 16 >= threshold ? all(scale) : V{};
            }
            return out;
        }
        INLINE Line apply(const Line& l, uint32_t block) const { return threshold ? l * factors(block) : l; }
    };
    INLINE Row row(uint32_t place, uint32_t number) const { return {threshold ? mixed(mixed(key ^ place) ^ number) : 0, threshold, scale}; }
};

}  // namespace
