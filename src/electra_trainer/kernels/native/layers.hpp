// The encoder's layers, forward and backward, on a slice of rows: post-LayerNorm transformer, as model/encoder.py.
#pragma once

#include "tiles.hpp"

namespace {

enum Parameter { QW, QB, KW, KB, VW, VB, OW, OB, G1, B1, UW, UB, DW, DB, G2, B2, PARAMETERS };  // of a layer, in the order of the module

struct Shape {  // as library.py fills it in
    int64_t layers, hidden, inner, heads, tokens;  // `tokens`: in a row, a multiple of 32
    double eps, hidden_dropout, attention_dropout;
    int64_t key;  // of dropout

    long head() const { return hidden / heads; }
    long layer_operands() const { return 2 * (4 * hidden * hidden + 2 * hidden * inner); }
};

inline long parameter_size(const Shape& s, int which) {
    if (which == UW || which == DW) return s.hidden * s.inner;
    if (which == UB) return s.inner;
    return which == QW || which == KW || which == VW || which == OW ? s.hidden * s.hidden : s.hidden;
}

struct Operands {  // a layer's weights in bf16, both ways
    bf16 *qkv, *out, *up, *down, *qkv_back, *out_back, *up_back, *down_back;
    Operands(const Shape& s, bf16* at) {
        const long hh = s.hidden * s.hidden, hf = s.hidden * s.inner;
        qkv = at, out = qkv + 3 * hh, up = out + hh, down = up + hf;
        qkv_back = down + hf, out_back = qkv_back + 3 * hh, up_back = out_back + hh, down_back = up_back + hf;
    }
    void fill_forward(const Shape& s, const float* const* w) const {
        const long H = s.hidden, F = s.inner;
        for (int i = 0; i < 3; ++i) pack_forward(w[QW + 2 * i], H, H, qkv + i * H * H, 32 * H);
        pack_forward(w[OW], H, H, out, 32 * H), pack_forward(w[UW], F, H, up, 32 * H), pack_forward(w[DW], H, F, down, 32 * F);
    }
    void fill_backward(const Shape& s, const float* const* w) const {
        const long H = s.hidden, F = s.inner;
        for (int i = 0; i < 3; ++i) pack_backward(w[QW + 2 * i], H, H, qkv_back + i * 32 * H, 96 * H);
        pack_backward(w[OW], H, H, out_back, 32 * H), pack_backward(w[UW], F, H, up_back, 32 * F), pack_backward(w[DW], H, F, down_back, 32 * H);
    }
};

// What a layer keeps of `all` tokens for its backward pass, in the layout `rows`: [all, width] each.
struct Kept {
    bf16 *x, *qkv, *mixed, *sum1, *middle, *up, *sum2, *y;
    float *stats1, *stats2, *log_z;  // mean and 1/deviation of each token; log of the softmax's sum for each head and token

    static long layer_bytes(const Shape& s, long all) { return all * (2 * (8 * s.hidden + s.inner) + 4 * (4 + s.heads)); }
    // `kept`: memory of all layers, or of one that is used again for each
    Kept(const Shape& s, uint8_t* memory, long all, long layer, bool keep) {
        const long H = s.hidden;
        uint8_t* at = memory + (keep ? layer * layer_bytes(s, all) : 0);
        auto take = [&](long width) { bf16* p = reinterpret_cast<bf16*>(at); at += 2 * all * width; return p; };
        x = take(H), qkv = take(3 * H), mixed = take(H), sum1 = take(H), middle = take(H), sum2 = take(H), up = take(s.inner);
        auto floats = [&](long width) { float* p = reinterpret_cast<float*>(at); at += 4 * all * width; return p; };
        stats1 = floats(2), stats2 = floats(2), log_z = floats(s.heads);
        y = keep ? reinterpret_cast<bf16*>(memory + (layer + 1) * layer_bytes(s, all)) : x;  // the next layer's x
    }
};

struct Places {  // names of a layer's three dropouts
    uint32_t attention, middle, output;
    explicit Places(long layer) : attention(3 * layer), middle(3 * layer + 1), output(3 * layer + 2) {}
};

// ------------------------------------------------------------------------------------------------ LayerNorm

inline float sum_of(__m512 v) { return _mm512_reduce_add_ps(v); }

void normalize(const bf16* sum, long tokens, long H, double eps, const float* gain, const float* bias, float* stats, bf16* y, float* plain) {
    for (long t = 0; t < tokens; ++t) {
        const long at = t / 16 * 16 * H + t % 16 * 32;
        __m512 total = all(0), square = all(0);
        for (long c = 0; c < H / 32; ++c) {
            const __m512i v = load16(sum + at + c * BLOCK);
            total = _mm512_add_ps(total, _mm512_add_ps(low(v), high(v)));
        }
        const float mean = sum_of(total) / H;
        for (long c = 0; c < H / 32; ++c) {
            const __m512i v = load16(sum + at + c * BLOCK);
            const __m512 a = _mm512_sub_ps(low(v), all(mean)), b = _mm512_sub_ps(high(v), all(mean));
            square = _mm512_fmadd_ps(a, a, _mm512_fmadd_ps(b, b, square));
        }
        const float rate = static_cast<float>(1 / std::sqrt(sum_of(square) / H + eps));
        stats[2 * t] = mean, stats[2 * t + 1] = rate;
        for (long c = 0; c < H / 32; ++c) {
            const __m512i v = load16(sum + at + c * BLOCK);
            const __m512 a = _mm512_mul_ps(_mm512_sub_ps(low(v), all(mean)), all(rate));
            const __m512 b = _mm512_mul_ps(_mm512_sub_ps(high(v), all(mean)), all(rate));
            const __m512 lo = _mm512_fmadd_ps(a, load(gain + 32 * c), load(bias + 32 * c));
            const __m512 hi = _mm512_fmadd_ps(b, load(gain + 32 * c + 16), load(bias + 32 * c + 16));
            store16(y + at + c * BLOCK, narrow(lo, hi));
            if (plain) store(plain + t * H + 32 * c, lo), store(plain + t * H + 32 * c + 16, hi);
        }
    }
}

// dy (fp32 in the layout rows) becomes the gradient of the sum; `dropped` gets it in bf16 after dropout, for the projection.
void normalize_backward(const bf16* sum, long first, long tokens, long H, const float* gain, const float* stats, const Dropout& drop,
                        uint32_t place, float* dy, bf16* dropped, float* d_gain, float* d_bias, float* d_projection_bias) {
    for (long t = 0; t < tokens; ++t) {
        const long at = t / 16 * 16 * H + t % 16 * 32;
        const __m512 mean = all(stats[2 * t]), rate = all(stats[2 * t + 1]);
        __m512 total = all(0), along = all(0);
        for (long c = 0; c < H / 32; ++c) {
            const __m512i v = load16(sum + at + c * BLOCK);
            for (int half = 0; half < 2; ++half) {
                const long column = 32 * c + 16 * half;
                const __m512 unit = _mm512_mul_ps(_mm512_sub_ps(half ? high(v) : low(v), mean), rate);
                const __m512 g = load(dy + at + c * BLOCK + 16 * half), scaled = _mm512_mul_ps(g, load(gain + column));
                store(d_gain + column, _mm512_fmadd_ps(g, unit, load(d_gain + column)));
                add_to(d_bias + column, g);
                total = _mm512_add_ps(total, scaled);
                along = _mm512_fmadd_ps(scaled, unit, along);
            }
        }
        const __m512 a = all(sum_of(total) / H), b = all(sum_of(along) / H);
        for (long c = 0; c < H / 32; ++c) {
            const __m512i v = load16(sum + at + c * BLOCK);
            __m512 d[2];
            for (int half = 0; half < 2; ++half) {
                float* p = dy + at + c * BLOCK + 16 * half;
                const __m512 unit = _mm512_mul_ps(_mm512_sub_ps(half ? high(v) : low(v), mean), rate);
                const __m512 scaled = _mm512_fmsub_ps(load(p), load(gain + 32 * c + 16 * half), a);
                d[half] = _mm512_mul_ps(_mm512_fnmadd_ps(unit, b, scaled), rate);
                store(p, d[half]);
            }
            drop.apply(d[0], d[1], place, first + t, c);
            store16(dropped + at + c * BLOCK, narrow(d[0], d[1]));
            add_to(d_projection_bias + 32 * c, d[0]), add_to(d_projection_bias + 32 * c + 16, d[1]);
        }
    }
}

// ------------------------------------------------------------------------------------------------ attention

struct Heads {  // memory for one head of one row of T tokens, used again for each
    long T, d;
    Buffer<bf16> a, b, c, one, two, turned;
    Buffer<float> scores, slopes;
    Heads(long T, long d)
        : T(T), d(d), a(T * d), b(T * d), c(T * d), one(T * T), two(T * T), turned(T * T), scores(32 * T), slopes(32 * T) {}
};

struct Row {  // of T tokens: where it is and which piece each token belongs to
    const int32_t* piece;
    bool whole;  // one piece
    uint32_t number;
    Row(const int32_t* piece, long T, long number) : piece(piece), number(static_cast<uint32_t>(number)) {
        whole = std::all_of(piece, piece + T, [&](int32_t p) { return p == *piece; });
    }
    __mmask16 seen(long query, long key) const {  // of 16 keys from `key`
        return whole ? 0xffff : _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(piece + key), _mm512_set1_epi32(piece[query]));
    }
};

// Scores of 32 queries with all keys, scaled, in plain lines of T.
void score(const bf16* q, long panel, const bf16* keys, long T, long d, float scale, float* out) {
    multiply(q, panel, keys, d * 32, 1, T / 32, d / 32, [&](long i, long r, long n, const float* v) {
        float* line = out + (16 * i + r) * T + 32 * n;
        store(line, _mm512_mul_ps(load(v), all(scale))), store(line + 16, _mm512_mul_ps(load(v + 16), all(scale)));
    });
}

void attend(const bf16* qkv, const Row& row, long H, long heads, const Dropout& drop, uint32_t place, Heads& m, bf16* mixed, float* log_z) {
    const long T = m.T, d = m.d, panel = 48 * H;
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const bf16 *q = qkv + h * d * 16, *k = q + H * 16, *v = k + H * 16;
        as_transposed_operand(k, panel, T / 32, d / 32, m.a);
        as_operand(v, panel, T / 32, d / 32, m.b);
        for (long first = 0; first < T; first += 32) {
            alignas(64) float share[32];
            score(q + first / 16 * panel, panel, m.a, T, d, scale, m.scores);
            for (long r = 0; r < 32; ++r) {
                float* line = m.scores + r * T;
                __m512 most = all(-INFINITY), total = all(0);
                for (long c = 0; c < T; c += 16) most = _mm512_mask_max_ps(most, row.seen(first + r, c), most, load(line + c));
                const float top = _mm512_reduce_max_ps(most);
                for (long c = 0; c < T; c += 32) {
                    __m512 lo = _mm512_maskz_mov_ps(row.seen(first + r, c), exponential(_mm512_sub_ps(load(line + c), all(top))));
                    __m512 hi = _mm512_maskz_mov_ps(row.seen(first + r, c + 16), exponential(_mm512_sub_ps(load(line + c + 16), all(top))));
                    total = _mm512_add_ps(total, _mm512_add_ps(lo, hi));
                    drop.apply(lo, hi, place, (row.number * heads + h) * T + first + r, c / 32);
                    store16(m.one + r / 16 * 16 * T + c / 32 * BLOCK + r % 16 * 32, narrow(lo, hi));
                }
                const float z = sum_of(total);
                share[r] = 1 / z;
                log_z[h * T + first + r] = top + std::log(z);
            }
            multiply(m.one, 16 * T, m.b, T * 32, 1, d / 32, T / 32, [&](long i, long r, long n, const float* p) {
                const __m512 by = all(share[16 * i + r]);
                bf16* to = mixed + (first / 16 + i) * 16 * H + (h * d / 32 + n) * BLOCK + r * 32;
                store16(to, narrow(_mm512_mul_ps(load(p), by), _mm512_mul_ps(load(p + 16), by)));
            });
        }
    }
}

// d_mixed -> d_qkv, both in the layout rows.
void attend_backward(const bf16* qkv, const bf16* mixed, const bf16* d_mixed, const Row& row, long H, long heads, const Dropout& drop,
                     uint32_t place, Heads& m, const float* log_z, bf16* d_qkv, float* const* d_bias) {
    const long T = m.T, d = m.d, panel = 48 * H, thin = 16 * H;
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const bf16 *q = qkv + h * d * 16, *k = q + H * 16, *v = k + H * 16, *dm = d_mixed + h * d * 16, *mx = mixed + h * d * 16;
        auto put = [&](int which) {
            return [=](long i, long r, long n, const float* p) {
                float* bias = d_bias[which] + h * d + 32 * n;
                add_to(bias, load(p)), add_to(bias + 16, load(p + 16));
                store16(d_qkv + i * panel + ((which * H + h * d) / 32 + n) * BLOCK + r * 32, narrow(load(p), load(p + 16)));
            };
        };
        as_transposed_operand(k, panel, T / 32, d / 32, m.a);
        as_transposed_operand(v, panel, T / 32, d / 32, m.b);
        for (long first = 0; first < T; first += 32) {
            score(q + first / 16 * panel, panel, m.a, T, d, scale, m.scores);
            score(dm + first / 16 * thin, thin, m.b, T, d, 1, m.slopes);
            for (long r = 0; r < 32; ++r) {
                const long t = first + r, at = t / 16 * thin + t % 16 * 32, to = t / 16 * 16 * T + t % 16 * 32;
                __m512 dot = all(0);
                for (long n = 0; n < d / 32; ++n) {
                    const __m512i x = load16(dm + at + n * BLOCK), y = load16(mx + at + n * BLOCK);
                    dot = _mm512_fmadd_ps(low(x), low(y), _mm512_fmadd_ps(high(x), high(y), dot));
                }
                const __m512 mean = all(sum_of(dot)), z = all(log_z[h * T + t]);
                for (long c = 0; c < T; c += 32) {
                    const float *s = m.scores + r * T + c, *g = m.slopes + r * T + c;
                    const __m512 lo = _mm512_maskz_mov_ps(row.seen(t, c), exponential(_mm512_sub_ps(load(s), z)));
                    const __m512 hi = _mm512_maskz_mov_ps(row.seen(t, c + 16), exponential(_mm512_sub_ps(load(s + 16), z)));
                    __m512 lo_dropped = all(1), hi_dropped = all(1);  // 0, or the scale of what dropout kept
                    drop.apply(lo_dropped, hi_dropped, place, (row.number * heads + h) * T + t, c / 32);
                    store16(m.one + to + c / 32 * BLOCK, narrow(_mm512_mul_ps(lo, lo_dropped), _mm512_mul_ps(hi, hi_dropped)));
                    const __m512 ds_lo = _mm512_mul_ps(_mm512_fmsub_ps(load(g), lo_dropped, mean), _mm512_mul_ps(lo, all(scale)));
                    const __m512 ds_hi = _mm512_mul_ps(_mm512_fmsub_ps(load(g + 16), hi_dropped, mean), _mm512_mul_ps(hi, all(scale)));
                    store16(m.two + to + c / 32 * BLOCK, narrow(ds_lo, ds_hi));
                }
            }
        }
        as_operand(k, panel, T / 32, d / 32, m.c);
        multiply(m.two, 16 * T, m.c, T * 32, T / 32, d / 32, T / 32, put(0));
        as_operand(q, panel, T / 32, d / 32, m.c);
        as_transposed_rows(m.two, 16 * T, T / 32, T / 32, m.turned);
        multiply(m.turned, 16 * T, m.c, T * 32, T / 32, d / 32, T / 32, put(1));
        as_operand(dm, thin, T / 32, d / 32, m.c);
        as_transposed_rows(m.one, 16 * T, T / 32, T / 32, m.turned);
        multiply(m.turned, 16 * T, m.c, T * 32, T / 32, d / 32, T / 32, put(2));
    }
}

// ------------------------------------------------------------------------------------------------ a layer

// rows x operand + bias, dropout, + residual -> sum
void project_and_add(const bf16* a, const bf16* operand, long in, const float* bias, const bf16* residual, long H, long first, long tokens,
                     const Dropout& drop, uint32_t place, bf16* sum) {
    multiply(a, 16 * in, operand, 32 * in, tokens / 32, H / 32, in / 32, [&](long i, long r, long n, const float* p) {
        __m512 lo = _mm512_add_ps(load(p), load(bias + 32 * n)), hi = _mm512_add_ps(load(p + 16), load(bias + 32 * n + 16));
        drop.apply(lo, hi, place, first + 16 * i + r, n);
        const long at = i * 16 * H + n * BLOCK + r * 32;
        const __m512i rest = load16(residual + at);
        store16(sum + at, narrow(_mm512_add_ps(lo, low(rest)), _mm512_add_ps(hi, high(rest))));
    });
}

// `kept` and `plain` begin at the chunk's first token, `first` is its number in the whole call.
void layer_forward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                   long tokens, Heads& m, bf16* inner, float* plain) {
    const long H = s.hidden, F = s.inner, T = s.tokens;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key);
    multiply(kept.x, 16 * H, w.qkv, 32 * H, tokens / 32, 3 * H / 32, H / 32, [&](long i, long r, long n, const float* v) {
        const float* bias = p[QB + 2 * (32 * n / H)] + 32 * n % H;
        const __m512i out = narrow(_mm512_add_ps(load(v), load(bias)), _mm512_add_ps(load(v + 16), load(bias + 16)));
        store16(kept.qkv + i * 48 * H + n * BLOCK + r * 32, out);
    });
    for (long t = 0; t < tokens; t += T)
        attend(kept.qkv + 3 * t * H, Row(piece + t, T, (first + t) / T), H, s.heads, attention, place.attention, m, kept.mixed + t * H,
               kept.log_z + t * s.heads);
    project_and_add(kept.mixed, w.out, H, p[OB], kept.x, H, first, tokens, hidden, place.middle, kept.sum1);
    normalize(kept.sum1, tokens, H, s.eps, p[G1], p[B1], kept.stats1, kept.middle, nullptr);
    multiply(kept.middle, 16 * H, w.up, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const float* v) {
        const long at = i * 16 * F + n * BLOCK + r * 32;
        const __m512 lo = _mm512_add_ps(load(v), load(p[UB] + 32 * n)), hi = _mm512_add_ps(load(v + 16), load(p[UB] + 32 * n + 16));
        store16(kept.up + at, narrow(lo, hi));
        store16(inner + at, narrow(_mm512_mul_ps(lo, Gelu(lo).cdf()), _mm512_mul_ps(hi, Gelu(hi).cdf())));
    });
    project_and_add(inner, w.down, F, p[DB], kept.middle, H, first, tokens, hidden, place.output, kept.sum2);
    normalize(kept.sum2, tokens, H, s.eps, p[G2], p[B2], kept.stats2, kept.y, plain);
}

struct Work {  // memory of the backward pass for a chunk of tokens
    Buffer<bf16> dropped, up, inner, mixed, qkv, turned, operand;
    Work(const Shape& s, long tokens)
        : dropped(tokens * s.hidden), up(tokens * s.inner), inner(tokens * s.inner), mixed(tokens * s.hidden), qkv(tokens * 3 * s.hidden),
          turned(tokens * std::max(s.inner, 3 * s.hidden)), operand(tokens * std::max(s.inner, s.hidden)) {}
};

// d_weight[i] of [out, in] += dy^T x for each of the `parts` side by side in dy
void weight_gradient(const bf16* dy, long out, const bf16* x, long in, long tokens, Work& m, float* const* d_weight, long parts = 1) {
    as_transposed_rows(dy, 16 * out * parts, tokens / 32, out * parts / 32, m.turned);
    as_operand(x, 16 * in, tokens / 32, in / 32, m.operand);
    for (long i = 0; i < parts; ++i)
        multiply_add(m.turned + i * out * tokens, 16 * tokens, m.operand, 32 * tokens, out / 32, in / 32, tokens / 32, d_weight[2 * i], in);
}

// dx = dy W + residual, in fp32 in the layout rows
void input_gradient(const bf16* dy, long out, const bf16* operand, long in, long tokens, float* dx) {
    multiply(dy, 16 * out, operand, 32 * out, tokens / 32, in / 32, out / 32, [&](long i, long r, long n, const float* v) {
        float* to = dx + i * 16 * in + n * BLOCK + r * 32;
        add_to(to, load(v)), add_to(to + 16, load(v + 16));
    });
}

// dy, in fp32 in the layout rows, becomes dx; the gradients of the layer's parameters are added to `d`.
void layer_backward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                    long tokens, Heads& m, Work& work, float* dy, float* const* d) {
    const long H = s.hidden, F = s.inner, T = s.tokens;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key);
    normalize_backward(kept.sum2, first, tokens, H, p[G2], kept.stats2, hidden, place.output, dy, work.dropped, d[G2], d[B2], d[DB]);
    multiply(work.dropped, 16 * H, w.down_back, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const float* v) {
        const long at = i * 16 * F + n * BLOCK + r * 32;
        const __m512i u = load16(kept.up + at);
        const __m512 lo = low(u), hi = high(u);
        const Gelu at_lo(lo), at_hi(hi);
        const __m512 d_lo = _mm512_mul_ps(load(v), at_lo.slope()), d_hi = _mm512_mul_ps(load(v + 16), at_hi.slope());
        add_to(d[UB] + 32 * n, d_lo), add_to(d[UB] + 32 * n + 16, d_hi);
        store16(work.up + at, narrow(d_lo, d_hi));
        store16(work.inner + at, narrow(_mm512_mul_ps(lo, at_lo.cdf()), _mm512_mul_ps(hi, at_hi.cdf())));
    });
    weight_gradient(work.dropped, H, work.inner, F, tokens, work, d + DW);
    weight_gradient(work.up, F, kept.middle, H, tokens, work, d + UW);
    input_gradient(work.up, F, w.up_back, H, tokens, dy);
    normalize_backward(kept.sum1, first, tokens, H, p[G1], kept.stats1, hidden, place.middle, dy, work.dropped, d[G1], d[B1], d[OB]);
    weight_gradient(work.dropped, H, kept.mixed, H, tokens, work, d + OW);
    multiply(work.dropped, 16 * H, w.out_back, 32 * H, tokens / 32, H / 32, H / 32, [&](long i, long r, long n, const float* v) {
        store16(work.mixed + i * 16 * H + n * BLOCK + r * 32, narrow(load(v), load(v + 16)));
    });
    float* const d_bias[] = {d[QB], d[KB], d[VB]};
    for (long t = 0; t < tokens; t += T)
        attend_backward(kept.qkv + 3 * t * H, kept.mixed + t * H, work.mixed + t * H, Row(piece + t, T, (first + t) / T), H, s.heads, attention,
                        place.attention, m, kept.log_z + t * s.heads, work.qkv + 3 * t * H, d_bias);
    weight_gradient(work.qkv, H, kept.x, H, tokens, work, d + QW, 3);
    input_gradient(work.qkv, 3 * H, w.qkv_back, H, tokens, dy);
}

}  // namespace
