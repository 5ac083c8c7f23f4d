// The encoder's layers, forward and backward, on a slice of rows: post-LayerNorm transformer, as model/encoder.py.
#pragma once

#include "products.hpp"

namespace {

using Number = ELECTRA_NUMBER;  // of activations and packed weights: bf16 or float; sums are always fp32

enum Parameter { QW, QB, KW, KB, VW, VB, OW, OB, G1, B1, UW, UB, DW, DB, G2, B2, PARAMETERS };  // of a layer, in the order of the module

struct Shape {  // as library.py fills it in
    int64_t layers, hidden, inner, heads, tokens;  // `tokens`: in a row, a multiple of 32
    double eps, hidden_dropout, attention_dropout;
    int64_t key;  // of dropout
    const float* angles;  // of modern_layers.hpp; null: these layers
    int64_t angle_rows;
    const float* local_angles;  // of layers whose tokens see a window; null: no layer has one
    int64_t every, reach;  // layers 0, `every`, 2 `every`, .. see the whole piece, the others `reach` tokens to either side

    bool is_local(long layer) const { return local_angles && layer % every; }
    long head() const { return hidden / heads; }
    long layer_operands() const { return 2 * (4 * hidden * hidden + 2 * hidden * inner); }
};

inline bool is_matrix(int which) { return which == QW || which == KW || which == VW || which == OW || which == UW || which == DW; }
inline long columns(const Shape& s, int matrix) { return matrix == DW ? s.inner : s.hidden; }
inline long parameter_size(const Shape& s, int which) {
    if (is_matrix(which)) return (which == UW ? s.inner : s.hidden) * columns(s, which);
    return which == UB ? s.inner : s.hidden;
}

struct Operands {  // a layer's weights as operands, both ways
    Number *qkv, *out, *up, *down, *qkv_back, *out_back, *up_back, *down_back;
    Operands(const Shape& s, Number* at) {
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
    Number *x, *qkv, *mixed, *sum1, *middle, *up, *sum2, *y;
    float *stats1, *stats2, *log_z;  // mean and 1/deviation of each token; log of the softmax's sum for each head and token

    static long layer_bytes(const Shape& s, long all) { return all * (sizeof(Number) * (8 * s.hidden + s.inner) + 4 * (4 + s.heads)); }
    // `kept`: memory of all layers, or of one that is used again for each
    Kept(const Shape& s, uint8_t* memory, long all, long layer, bool keep) {
        const long H = s.hidden;
        uint8_t* at = memory + (keep ? layer * layer_bytes(s, all) : 0);
        auto take = [&](long width) { Number* p = reinterpret_cast<Number*>(at); at += sizeof(Number) * all * width; return p; };
        x = take(H), qkv = take(3 * H), mixed = take(H), sum1 = take(H), middle = take(H), sum2 = take(H), up = take(s.inner);
        auto floats = [&](long width) { float* p = reinterpret_cast<float*>(at); at += 4 * all * width; return p; };
        stats1 = floats(2), stats2 = floats(2), log_z = floats(s.heads);
        y = keep ? reinterpret_cast<Number*>(memory + (layer + 1) * layer_bytes(s, all)) : x;  // the next layer's x
    }
};

struct Places {  // names of a layer's three dropouts
    uint32_t attention, middle, output;
    explicit Places(long layer) : attention(3 * layer), middle(3 * layer + 1), output(3 * layer + 2) {}
};

constexpr long CHUNK = 256;  // tokens that go through a layer together

long chunk_of(const Shape& s) { return std::max<long>(1, CHUNK / s.tokens) * s.tokens; }

// ------------------------------------------------------------------------------------------------ LayerNorm

void normalize(const Number* sum, long tokens, long H, double eps, const float* gain, const float* bias, float* stats, Number* y, float* plain) {
    for (long t = 0; t < tokens; ++t) {
        const Number* from = sum + row_at<Number>(t, H);
        Number* to = y + row_at<Number>(t, H);
        Line total = all_of(0), square = all_of(0);
        for (long n = 0; n < H / 32; ++n) total = total + get(from + n * GROUP);
        const float mean = sum_of(total) / H;
        for (long n = 0; n < H / 32; ++n) {
            const Line centred = get(from + n * GROUP) - mean;
            square = square + centred * centred;
        }
        const float rate = static_cast<float>(1 / std::sqrt(sum_of(square) / H + eps));
        stats[2 * t] = mean, stats[2 * t + 1] = rate;
        for (long n = 0; n < H / 32; ++n) {
            const Line out = (get(from + n * GROUP) - mean) * rate * load(gain + 32 * n) + load(bias + 32 * n);
            put(to + n * GROUP, out);
            if (plain) store(plain + t * H + 32 * n, out);
        }
    }
}

// dy, in the layout sums, becomes the gradient of the sum; `dropped` gets it after dropout, in the layout rows, for the projection.
void normalize_backward(const Number* sum, long first, long tokens, long H, const float* gain, const float* stats, const Dropout& drop,
                        uint32_t place, float* dy, Number* dropped, float* d_gain, float* d_bias, float* d_projection_bias) {
    for (long t = 0; t < tokens; ++t) {
        const Number* from = sum + row_at<Number>(t, H);
        const float mean = stats[2 * t], rate = stats[2 * t + 1];
        float* line = dy + sum_at(t, H);
        const Dropout::Row dropout = drop.row(place, first + t);
        Line total = all_of(0), along = all_of(0);
        for (long n = 0; n < H / 32; ++n) {
            const Line unit = (get(from + n * GROUP) - mean) * rate, g = load(line + n * GROUP), scaled = g * load(gain + 32 * n);
            add_to(d_gain + 32 * n, g * unit), add_to(d_bias + 32 * n, g);
            total = total + scaled;
            along = along + scaled * unit;
        }
        const float a = sum_of(total) / H, b = sum_of(along) / H;
        for (long n = 0; n < H / 32; ++n) {
            const Line unit = (get(from + n * GROUP) - mean) * rate;
            const Line d = (load(line + n * GROUP) * load(gain + 32 * n) - a - unit * b) * rate;
            store(line + n * GROUP, d);
            const Line kept = dropout.apply(d, n);
            put(dropped + row_at<Number>(t, H) + n * GROUP, kept);
            add_to(d_projection_bias + 32 * n, kept);
        }
    }
}

// ------------------------------------------------------------------------------------------------ attention

struct Heads {  // memory for one head of one row of T tokens, used again for each
    long T, d;
    Buffer<Number> a, b, c, one, two, turned;
    Buffer<float> scores, slopes;
    Heads(long T, long d)
        : T(T), d(d), a(T * d), b(T * d), c(T * d), one(T * T), two(T * T), turned(T * T), scores(32 * T), slopes(32 * T) {}
};

constexpr int32_t COUNT[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                               16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

struct Row {  // of T tokens: where it is, which piece each token belongs to, and how far it sees there
    const int32_t* piece;
    bool whole, near;  // every token sees every other; it sees `reach` tokens to either side
    uint32_t number;
    int32_t reach;
    Row(const int32_t* piece, long T, long number, long reach = -1)
        : piece(piece), near(reach >= 0 && reach < T - 1), number(static_cast<uint32_t>(number)), reach(static_cast<int32_t>(reach)) {
        whole = !near && std::all_of(piece, piece + T, [&](int32_t p) { return p == *piece; });
    }
    // `values` of 32 keys from `key`, `other` where the query must not see one
    INLINE Line seen(long query, long key, const Line& values, float other) const {
        if (whole) return values;
        const int32_t from = static_cast<int32_t>(key - query);
        return each([&](int i) {
            I mine = read<I>(piece + key + i * LANES) == piece[query];
            if (near) {
                const I away = read<I>(COUNT + i * LANES) + from;
                mine = mine & (away <= reach) & (away >= -reach);
            }
            return mine ? values.v[i] : all(other);
        });
    }
};

// Scores of 32 queries with all keys, scaled, in plain lines of T.
void score(const Number* q, long panel, const Number* keys, long T, long d, float scale, float* out) {
    multiply(q, panel, keys, d * 32, 1, T / 32, d / 32,
             [&](long i, long r, long n, const Line& v) { store(out + (16 * i + r) * T + 32 * n, v * scale); });
}

void attend(const Number* qkv, const Row& row, long H, long heads, const Dropout& drop, uint32_t place, Heads& m, Number* mixed, float* log_z) {
    const long T = m.T, d = m.d, panel = 48 * H;
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const Number *q = qkv + h * d * 16, *k = q + H * 16, *v = k + H * 16;
        as_transposed_operand(k, panel, T / 32, d / 32, m.a.data);
        as_operand(v, panel, T / 32, d / 32, m.b.data);
        for (long first = 0; first < T; first += 32) {
            float share[32];
            score(q + first / 16 * panel, panel, m.a, T, d, scale, m.scores);
            for (long r = 0; r < 32; ++r) {
                const float* line = m.scores + r * T;
                const Dropout::Row dropout = drop.row(place, (row.number * heads + h) * T + first + r);
                Line most = all_of(-INFINITY), total = all_of(0);
                for (long c = 0; c < T; c += 32) most = max(most, row.seen(first + r, c, load(line + c), -INFINITY));
                const float top = max_of(most);
                for (long c = 0; c < T; c += 32) {
                    const Line e = row.seen(first + r, c, exponential(load(line + c) - top), 0);
                    total = total + e;
                    put(m.one + row_at<Number>(r, T) + c / 32 * GROUP, dropout.apply(e, c / 32));
                }
                const float z = sum_of(total);
                share[r] = 1 / z;
                log_z[h * T + first + r] = top + std::log(z);
            }
            multiply(m.one.data, 16 * T, m.b.data, T * 32, 1, d / 32, T / 32, [&](long i, long r, long n, const Line& p) {
                put(mixed + (first / 16 + i) * 16 * H + (h * d / 32 + n) * GROUP + r * LINE<Number>, p * share[16 * i + r]);
            });
        }
    }
}

// d_mixed -> d_qkv, both in the layout rows. finish(which, token, n, values) returns what is written of the gradient of queries (0),
// keys (1) or values (2) for the 32 columns n of a token.
template <class Finish>
void attend_backward(const Number* qkv, const Number* mixed, const Number* d_mixed, const Row& row, long H, long heads, const Dropout& drop,
                     uint32_t place, Heads& m, const float* log_z, Number* d_qkv, Finish finish) {
    const long T = m.T, d = m.d, panel = 48 * H, thin = 16 * H;
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const Number *q = qkv + h * d * 16, *k = q + H * 16, *v = k + H * 16, *dm = d_mixed + h * d * 16, *mx = mixed + h * d * 16;
        auto put_gradient = [&](int which) {
            return [=, &finish](long i, long r, long n, const Line& p) {
                const Line out = finish(which, 16 * i + r, h * d / 32 + n, p);
                put(d_qkv + i * panel + ((which * H + h * d) / 32 + n) * GROUP + r * LINE<Number>, out);
            };
        };
        as_transposed_operand(k, panel, T / 32, d / 32, m.a.data);
        as_transposed_operand(v, panel, T / 32, d / 32, m.b.data);
        for (long first = 0; first < T; first += 32) {
            score(q + first / 16 * panel, panel, m.a, T, d, scale, m.scores);
            score(dm + first / 16 * thin, thin, m.b, T, d, 1, m.slopes);
            for (long r = 0; r < 32; ++r) {
                const long t = first + r, at = row_at<Number>(t, H);
                const Dropout::Row dropout = drop.row(place, (row.number * heads + h) * T + t);
                Line dot = all_of(0);
                for (long n = 0; n < d / 32; ++n) dot = dot + get(dm + at + n * GROUP) * get(mx + at + n * GROUP);
                const float mean = sum_of(dot), z = log_z[h * T + t];
                for (long c = 0; c < T; c += 32) {
                    const Line e = row.seen(t, c, exponential(load(m.scores + r * T + c) - z), 0);
                    const Line factors = dropout.factors(c / 32);
                    const long to = row_at<Number>(t, T) + c / 32 * GROUP;
                    put(m.one + to, e * factors);
                    put(m.two + to, (load(m.slopes + r * T + c) * factors - mean) * e * scale);
                }
            }
        }
        as_operand(k, panel, T / 32, d / 32, m.c.data);
        multiply(m.two.data, 16 * T, m.c.data, T * 32, T / 32, d / 32, T / 32, put_gradient(0));
        as_operand(q, panel, T / 32, d / 32, m.c.data);
        as_transposed_rows(m.two.data, 16 * T, T / 32, T / 32, m.turned.data);
        multiply(m.turned.data, 16 * T, m.c.data, T * 32, T / 32, d / 32, T / 32, put_gradient(1));
        as_operand(dm, thin, T / 32, d / 32, m.c.data);
        as_transposed_rows(m.one.data, 16 * T, T / 32, T / 32, m.turned.data);
        multiply(m.turned.data, 16 * T, m.c.data, T * 32, T / 32, d / 32, T / 32, put_gradient(2));
    }
}

// ------------------------------------------------------------------------------------------------ a layer

// rows x operand + bias, dropout, + residual -> sum
void project_and_add(const Number* a, const Number* operand, long in, const float* bias, const Number* residual, long H, long first, long tokens,
                     const Dropout& drop, uint32_t place, Number* sum) {
    multiply(a, 16 * in, operand, 32 * in, tokens / 32, H / 32, in / 32, [&](long i, long r, long n, const Line& p) {
        const long at = i * 16 * H + n * GROUP + r * LINE<Number>;
        put(sum + at, drop.row(place, first + 16 * i + r).apply(p + load(bias + 32 * n), n) + get(residual + at));
    });
}

INLINE Line gelu(const Line& x) { return each([&](int i) { return x.v[i] * Gelu<Number>(x.v[i]).cdf(); }); }

// `kept` and `plain` begin at the chunk's first token, `first` is its number in the whole call.
void layer_forward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                   long tokens, Heads& m, Number* inner, float* plain) {
    const long H = s.hidden, F = s.inner, T = s.tokens;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key);
    multiply(kept.x, 16 * H, w.qkv, 32 * H, tokens / 32, 3 * H / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        const float* bias = p[QB + 2 * (32 * n / H)] + 32 * n % H;
        Number* at = kept.qkv + i * 48 * H + n * GROUP + r * LINE<Number>;
        fetch(at + 48 * H);
        put(at, v + load(bias));
    });
    for (long t = 0; t < tokens; t += T)
        attend(kept.qkv + 3 * t * H, Row(piece + t, T, (first + t) / T), H, s.heads, attention, place.attention, m, kept.mixed + t * H,
               kept.log_z + t * s.heads);
    project_and_add(kept.mixed, w.out, H, p[OB], kept.x, H, first, tokens, hidden, place.middle, kept.sum1);
    normalize(kept.sum1, tokens, H, s.eps, p[G1], p[B1], kept.stats1, kept.middle, nullptr);
    multiply(kept.middle, 16 * H, w.up, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        const long at = i * 16 * F + n * GROUP + r * LINE<Number>;
        const Line up = v + load(p[UB] + 32 * n);
        fetch(kept.up + at + 16 * F);
        put(kept.up + at, up);
        put(inner + at, gelu(up));
    });
    project_and_add(inner, w.down, F, p[DB], kept.middle, H, first, tokens, hidden, place.output, kept.sum2);
    normalize(kept.sum2, tokens, H, s.eps, p[G2], p[B2], kept.stats2, kept.y, plain);
}

struct Work {  // memory of the backward pass for a chunk of tokens
    Buffer<Number> dropped, up, inner, mixed, qkv, turned, operand;
    Buffer<float> sums;  // gradients of a layer's matrices, one after another
    Work(const Shape& s, long tokens)
        : dropped(tokens * s.hidden), up(tokens * s.inner), inner(tokens * s.inner), mixed(tokens * s.hidden), qkv(tokens * 3 * s.hidden),
          turned(tokens * std::max(s.inner, 3 * s.hidden)), operand(tokens * std::max(s.inner, s.hidden)), sums(s.layer_operands() / 2) {}
};

// sums [out, in] += dy^T x
void weight_gradient(const Number* dy, long out, const Number* x, long in, long tokens, Work& m, float* sums) {
    as_transposed_rows(dy, 16 * out, tokens / 32, out / 32, m.turned.data);
    as_operand(x, 16 * in, tokens / 32, in / 32, m.operand.data);
    multiply_add(m.turned.data, 16 * tokens, m.operand.data, 32 * tokens, out / 32, in / 32, tokens / 32, sums, in);
}

// dx += dy W, in the layout sums
void input_gradient(const Number* dy, long out, const Number* operand, long in, long tokens, float* dx) {
    multiply_add(dy, 16 * out, operand, 32 * out, tokens / 32, in / 32, out / 32, dx, in);
}

// dy, in the layout sums, becomes dx; the gradients of the layer's parameters are added to `d`, those of its matrices to work.sums.
void layer_backward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                    long tokens, Heads& m, Work& work, float* dy, float* const* d) {
    const long H = s.hidden, F = s.inner, T = s.tokens;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key);
    normalize_backward(kept.sum2, first, tokens, H, p[G2], kept.stats2, hidden, place.output, dy, work.dropped, d[G2], d[B2], d[DB]);
    multiply(work.dropped.data, 16 * H, w.down_back, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        const long at = i * 16 * F + n * GROUP + r * LINE<Number>;
        fetch(kept.up + at + 16 * F);
        const Line up = get(kept.up + at);
        Line slope, inner;
        UNROLL for (int part = 0; part < PARTS; ++part) {
            const Gelu<Number> found(up.v[part]);
            slope.v[part] = v.v[part] * found.slope();
            inner.v[part] = up.v[part] * found.cdf();
        }
        add_to(d[UB] + 32 * n, slope);
        put(work.up + at, slope);
        put(work.inner + at, inner);
    });
    weight_gradient(work.dropped, H, work.inner, F, tokens, work, work.sums + (4 * H + F) * H);
    weight_gradient(work.up, F, kept.middle, H, tokens, work, work.sums + 4 * H * H);
    input_gradient(work.up, F, w.up_back, H, tokens, dy);
    normalize_backward(kept.sum1, first, tokens, H, p[G1], kept.stats1, hidden, place.middle, dy, work.dropped, d[G1], d[B1], d[OB]);
    weight_gradient(work.dropped, H, kept.mixed, H, tokens, work, work.sums + 3 * H * H);
    multiply(work.dropped.data, 16 * H, w.out_back, 32 * H, tokens / 32, H / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        put(work.mixed + i * 16 * H + n * GROUP + r * LINE<Number>, v);
    });
    const auto add_bias = [&](int which, long, long n, const Line& p) { return add_to(d[QB + 2 * which] + 32 * n, p), p; };
    for (long t = 0; t < tokens; t += T)
        attend_backward(kept.qkv + 3 * t * H, kept.mixed + t * H, work.mixed + t * H, Row(piece + t, T, (first + t) / T), H, s.heads, attention,
                        place.attention, m, kept.log_z + t * s.heads, work.qkv + 3 * t * H, add_bias);
    weight_gradient(work.qkv, 3 * H, kept.x, H, tokens, work, work.sums);
    input_gradient(work.qkv, 3 * H, w.qkv_back, H, tokens, dy);
}

}  // namespace
