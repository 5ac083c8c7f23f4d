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
    const int32_t* read;  // numbers of the tokens of which the last layer is computed, ascending and all different; null: of all
    int64_t reads;

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

struct Numbers {  // those of some tokens in the whole call, by which dropout and positions go
    long first;
    const int32_t* list;
    Numbers(long first, const int32_t* list = nullptr) : first(first), list(list) {}
    long operator[](long t) const { return list ? list[t] : first + t; }
    Numbers from(long t) const { return list ? Numbers(0, list + t) : Numbers(first + t); }
};

struct Read {  // the tokens of a slice that are read, packed one after another, and padded with the first to a multiple of 32
    long first, begin, count, padded;
    Buffer<int32_t> list;
    Read(const Shape& s, long first, long tokens)
        : first(first), begin(std::lower_bound(s.read, s.read + s.reads, first) - s.read),
          count(std::lower_bound(s.read, s.read + s.reads, first + tokens) - s.read - begin), padded((count + 31) / 32 * 32), list(padded) {
        for (long i = 0; i < padded; ++i) list[i] = s.read[begin + (i < count ? i : 0)];
    }
    Numbers numbers() const { return {0, list}; }
    // x [tokens of the slice, columns] -> packed
    template <class E>
    void gather(const E* x, long columns, E* packed) const {
        for (long i = 0; i < padded; ++i) copy_row(x, list[i] - first, packed, i, columns);
    }
    void gather_plain(const float* plain, long columns, float* packed) const {
        for (long i = 0; i < padded; ++i) std::memcpy(packed + i * columns, plain + (list[i] - first) * columns, 4 * columns);
    }
    // Adds packed rows to x, both in the layout sums
    void add(const float* packed, long columns, float* x) const {
        for (long i = 0; i < count; ++i)
            for (long n = 0; n < columns / 32; ++n) add_to(x + sum_at(list[i] - first, columns) + n * GROUP, load(packed + sum_at(i, columns) + n * GROUP));
    }
};

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
void normalize_backward(const Number* sum, const Numbers& number, long tokens, long H, const float* gain, const float* stats, const Dropout& drop,
                        uint32_t place, float* dy, Number* dropped, float* d_gain, float* d_bias, float* d_projection_bias) {
    for (long t = 0; t < tokens; ++t) {
        const Number* from = sum + row_at<Number>(t, H);
        const float mean = stats[2 * t], rate = stats[2 * t + 1];
        float* line = dy + sum_at(t, H);
        const Dropout::Row dropout = drop.row(place, number[t]);
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

struct Queries {  // the tokens of a row that attend: all, or those that are read
    long count, first;
    const int32_t* list;
    explicit Queries(long T) : count(T), first(0), list(nullptr) {}
    Queries(const Read& read, long from, long count, long first) : count(count), first(first), list(read.list + from) {}
    long padded() const { return (count + 31) / 32 * 32; }
    long operator[](long i) const { return list ? list[std::min(i, count - 1)] - first : i; }  // place in the row
};

// Scores of 32 queries with all keys, scaled, in plain lines of T.
void score(const Number* q, long panel, const Number* keys, long T, long d, float scale, float* out) {
    multiply(q, panel, keys, d * 32, 1, T / 32, d / 32,
             [&](long i, long r, long n, const Line& v) { store(out + (16 * i + r) * T + 32 * n, v * scale); });
}

// Queries `q`, 16 rows of them `q_panel` apart; keys `k`, beside them the values, 16 rows of them `panel` apart.
void attend(const Number* queries, long q_panel, const Number* keys, long panel, const Queries& asked, const Row& row, long H, long heads,
            const Dropout& drop, uint32_t place, Heads& m, Number* mixed, float* log_z) {
    const long T = m.T, d = m.d;
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const Number *q = queries + h * d * 16, *k = keys + h * d * 16, *v = k + H * 16;
        as_transposed_operand(k, panel, T / 32, d / 32, m.a.data);
        as_operand(v, panel, T / 32, d / 32, m.b.data);
        for (long first = 0; first < asked.count; first += 32) {
            float share[32];
            score(q + first / 16 * q_panel, q_panel, m.a, T, d, scale, m.scores);
            for (long r = 0; r < 32; ++r) {
                const float* line = m.scores + r * T;
                const long t = asked[first + r];
                const Dropout::Row dropout = drop.row(place, (row.number * heads + h) * T + t);
                Line most = all_of(-INFINITY), total = all_of(0);
                for (long c = 0; c < T; c += 32) most = max(most, row.seen(t, c, load(line + c), -INFINITY));
                const float top = max_of(most);
                for (long c = 0; c < T; c += 32) {
                    const Line e = row.seen(t, c, exponential(load(line + c) - top), 0);
                    total = total + e;
                    put(m.one + row_at<Number>(r, T) + c / 32 * GROUP, dropout.apply(e, c / 32));
                }
                const float z = sum_of(total);
                share[r] = 1 / z;
                if (first + r < asked.count) log_z[h * asked.count + first + r] = top + std::log(z);
            }
            multiply(m.one.data, 16 * T, m.b.data, T * 32, 1, d / 32, T / 32, [&](long i, long r, long n, const Line& p) {
                put(mixed + (first / 16 + i) * 16 * H + (h * d / 32 + n) * GROUP + r * LINE<Number>, p * share[16 * i + r]);
            });
        }
    }
}

// d_mixed -> d_q, and d_k with the values' beside it, all in the layout rows. finish(which, token, n, values) returns what is written of the
// gradient of queries (0), keys (1) or values (2) for the 32 columns n of a token.
template <class Finish>
void attend_backward(const Number* queries, long q_panel, const Number* keys, long panel, const Number* mixed, const Number* d_mixed,
                     const Queries& asked, const Row& row, long H, long heads, const Dropout& drop, uint32_t place, Heads& m, const float* log_z,
                     Number* d_q, Number* d_k, Finish finish) {
    const long T = m.T, d = m.d, thin = 16 * H, Q = asked.padded();
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    for (long h = 0; h < heads; ++h) {
        const long at = h * d * 16;
        const Number *q = queries + at, *k = keys + at, *v = k + H * 16, *dm = d_mixed + at, *mx = mixed + at;
        auto put_gradient = [&](int which) {
            return [=, &finish, &asked](long i, long r, long n, const Line& p) {
                const Line out = finish(which, which ? 16 * i + r : asked[16 * i + r], h * d / 32 + n, p);
                Number* to = which ? d_k + i * panel + (which - 1) * H * 16 : d_q + i * q_panel;
                put(to + at + n * GROUP + r * LINE<Number>, out);
            };
        };
        as_transposed_operand(k, panel, T / 32, d / 32, m.a.data);
        as_transposed_operand(v, panel, T / 32, d / 32, m.b.data);
        for (long first = 0; first < Q; first += 32) {
            score(q + first / 16 * q_panel, q_panel, m.a, T, d, scale, m.scores);
            score(dm + first / 16 * thin, thin, m.b, T, d, 1, m.slopes);
            for (long r = 0; r < 32; ++r) {
                const long i = first + r, t = asked[i], at = row_at<Number>(i, H);
                const Dropout::Row dropout = drop.row(place, (row.number * heads + h) * T + t);
                Line dot = all_of(0);
                for (long n = 0; n < d / 32; ++n) dot = dot + get(dm + at + n * GROUP) * get(mx + at + n * GROUP);
                const float mean = sum_of(dot), z = log_z[h * asked.count + std::min(i, asked.count - 1)];
                for (long c = 0; c < T; c += 32) {
                    const Line e = row.seen(t, c, exponential(load(m.scores + r * T + c) - z), 0);
                    const Line factors = dropout.factors(c / 32);
                    const long to = row_at<Number>(i, T) + c / 32 * GROUP;
                    put(m.one + to, e * factors);
                    put(m.two + to, (load(m.slopes + r * T + c) * factors - mean) * e * scale);
                }
            }
        }
        as_operand(k, panel, T / 32, d / 32, m.c.data);
        multiply(m.two.data, 16 * T, m.c.data, T * 32, Q / 32, d / 32, T / 32, put_gradient(0));
        as_operand(q, q_panel, Q / 32, d / 32, m.c.data);
        as_transposed_rows(m.two.data, 16 * T, Q / 32, T / 32, m.turned.data);
        multiply(m.turned.data, 16 * Q, m.c.data, Q * 32, T / 32, d / 32, Q / 32, put_gradient(1));
        as_operand(dm, thin, Q / 32, d / 32, m.c.data);
        as_transposed_rows(m.one.data, 16 * T, Q / 32, T / 32, m.turned.data);
        multiply(m.turned.data, 16 * Q, m.c.data, Q * 32, T / 32, d / 32, Q / 32, put_gradient(2));
    }
}

struct Asking {  // memory for the queries of a row
    Buffer<Number> q, mixed, d_mixed, d_q;
    Asking(long T, long H) : q(T * H), mixed(T * H), d_mixed(T * H), d_q(T * H) {}
};

// Rows [from, from + count) of x [., H] to the first of `to`, which is padded with zeros to a multiple of 32
void take_rows(const Number* x, long from, long count, long H, Number* to) {
    std::memset(to, 0, sizeof(Number) * ((count + 31) / 32 * 32) * H);
    for (long i = 0; i < count; ++i) copy_row(x, from + i, to, i, H);
}

// Calls work(t, row, asked, from) for each row of T of the `tokens` from number `first` on; its queries begin at `from` among those packed.
template <class Work>
void each_row(const Shape& s, long reach, const int32_t* piece, long first, long tokens, const Read& read, Work work) {
    for (long t = 0, T = s.tokens; t < tokens; t += T) {
        const int32_t *begin = read.list, *end = begin + read.count;
        const long from = std::lower_bound(begin, end, first + t) - begin, to = std::lower_bound(begin, end, first + t + T) - begin;
        work(t, Row(piece + t, T, (first + t) / T, reach), Queries(read, from, to - from, first + t), from);
    }
}

// `attend` for the tokens of a slice that are read: q, mixed and log_z are packed, keys and values are those of all
void attend_packed(const Shape& s, long reach, const Number* q, const Number* kv, const int32_t* piece, long first, long tokens, const Read& read,
                   const Dropout& drop, uint32_t place, Heads& m, Asking& own, Number* mixed, float* log_z) {
    const long H = s.hidden;
    each_row(s, reach, piece, first, tokens, read, [&](long t, const Row& row, const Queries& asked, long from) {
        take_rows(q, from, asked.count, H, own.q);
        attend(own.q, 16 * H, kv + 2 * t * H, 32 * H, asked, row, H, s.heads, drop, place, m, own.mixed, log_z + from * s.heads);
        for (long i = 0; i < asked.count; ++i) copy_row(own.mixed.data, i, mixed, from + i, H);
    });
    for (long i = read.count; i < read.padded; ++i)
        for (long n = 0; n < H / 32; ++n) put(mixed + row_at<Number>(i, H) + n * GROUP, all_of(0));
}

// d_mixed, packed -> d_q, packed, and d_kv
template <class Finish>
void attend_packed_backward(const Shape& s, long reach, const Number* q, const Number* kv, const Number* mixed, const Number* d_mixed,
                            const int32_t* piece, long first, long tokens, const Read& read, const Dropout& drop, uint32_t place, Heads& m,
                            Asking& own, const float* log_z, Number* d_q, Number* d_kv, Finish finish) {
    const long H = s.hidden;
    each_row(s, reach, piece, first, tokens, read, [&](long t, const Row& row, const Queries& asked, long from) {
        if (!asked.count) return void(std::memset(d_kv + 2 * t * H, 0, sizeof(Number) * 2 * s.tokens * H));
        take_rows(q, from, asked.count, H, own.q);
        take_rows(mixed, from, asked.count, H, own.mixed);
        take_rows(d_mixed, from, asked.count, H, own.d_mixed);
        const auto put_one = [&](int which, long token, long n, const Line& p) { return finish(which, t + token, n, p); };
        attend_backward(own.q, 16 * H, kv + 2 * t * H, 32 * H, own.mixed, own.d_mixed, asked, row, H, s.heads, drop, place, m,
                        log_z + from * s.heads, own.d_q, d_kv + 2 * t * H, put_one);
        for (long i = 0; i < asked.count; ++i) copy_row(own.d_q.data, i, d_q, from + i, H);
    });
}

// ------------------------------------------------------------------------------------------------ a layer

// rows x operand + bias, dropout, + residual -> sum
void project_and_add(const Number* a, const Number* operand, long in, const float* bias, const Number* residual, long H,
                     const Numbers& number, long tokens, const Dropout& drop, uint32_t place, Number* sum) {
    multiply(a, 16 * in, operand, 32 * in, tokens / 32, H / 32, in / 32, [&](long i, long r, long n, const Line& p) {
        const long at = i * 16 * H + n * GROUP + r * LINE<Number>;
        put(sum + at, drop.row(place, number[16 * i + r]).apply(p + load(bias + 32 * n), n) + get(residual + at));
    });
}

INLINE Line gelu(const Line& x) { return each([&](int i) { return x.v[i] * Gelu<Number>(x.v[i]).cdf(); }); }

// After attention: `x`, what the layer read, `kept` and `plain` begin at the first of `tokens`.
void layer_end(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const Number* x, const Numbers& number,
               long tokens, Number* inner, float* plain) {
    const long H = s.hidden, F = s.inner;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key);
    project_and_add(kept.mixed, w.out, H, p[OB], x, H, number, tokens, hidden, place.middle, kept.sum1);
    normalize(kept.sum1, tokens, H, s.eps, p[G1], p[B1], kept.stats1, kept.middle, nullptr);
    multiply(kept.middle, 16 * H, w.up, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        const long at = i * 16 * F + n * GROUP + r * LINE<Number>;
        const Line up = v + load(p[UB] + 32 * n);
        fetch(kept.up + at + 16 * F);
        put(kept.up + at, up);
        put(inner + at, gelu(up));
    });
    project_and_add(inner, w.down, F, p[DB], kept.middle, H, number, tokens, hidden, place.output, kept.sum2);
    normalize(kept.sum2, tokens, H, s.eps, p[G2], p[B2], kept.stats2, kept.y, plain);
}

// to [., 32 * blocks] = x times an operand, and biases 32 * `bias_at` on from those of the queries
void project(const Shape& s, const Number* x, const Number* operand, long tokens, long blocks, const float* const* p, long bias_at, Number* to) {
    const long H = s.hidden;
    multiply(x, 16 * H, operand, 32 * H, tokens / 32, blocks, H / 32, [&](long i, long r, long n, const Line& v) {
        const float* bias = p[QB + 2 * (32 * (n + bias_at) / H)] + 32 * (n + bias_at) % H;
        Number* at = to + i * 16 * 32 * blocks + n * GROUP + r * LINE<Number>;
        fetch(at + 16 * 32 * blocks);
        put(at, v + load(bias));
    });
}

// `kept` and `plain` begin at the chunk's first token, `first` is its number in the whole call.
void layer_forward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                   long tokens, Heads& m, Number* inner, float* plain) {
    const long H = s.hidden, T = s.tokens;
    const Dropout attention(s.attention_dropout, s.key);
    project(s, kept.x, w.qkv, tokens, 3 * H / 32, p, 0, kept.qkv);
    for (long t = 0; t < tokens; t += T)
        attend(kept.qkv + 3 * t * H, 48 * H, kept.qkv + 3 * t * H + 16 * H, 48 * H, Queries(T), Row(piece + t, T, (first + t) / T), H, s.heads,
               attention, Places(layer).attention, m, kept.mixed + t * H, kept.log_z + t * s.heads);
    layer_end(s, layer, w, p, kept, kept.x, first, tokens, inner, plain);
}

Kept slice(Kept k, const Shape& s, long first) {
    const long H = s.hidden;
    k.x += first * H, k.qkv += 3 * first * H, k.mixed += first * H, k.sum1 += first * H, k.middle += first * H, k.up += first * s.inner;
    k.sum2 += first * H, k.y += first * H, k.stats1 += 2 * first, k.stats2 += 2 * first, k.log_z += s.heads * first;
    return k;
}

// The last layer on the `tokens` of a slice, at those that are read: out [reads, H]. Its memory holds keys and values of all and then the queries,
// packed as is all that follows.
void read_forward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                  long tokens, Heads& m, Number* inner, float* out) {
    const long H = s.hidden, chunk = chunk_of(s);
    const Read read(s, first, tokens);
    Asking own(s.tokens, H);
    Buffer<Number> x(read.padded * H);
    Buffer<float> plain(chunk * H);
    Number *const kv = kept.qkv, *const q = kv + 2 * tokens * H;
    read.gather(kept.x, H, x.data);
    project(s, x, w.qkv, read.padded, H / 32, p, 0, q);
    for (long t = 0; t < tokens; t += chunk) project(s, kept.x + t * H, w.qkv + H * H, std::min(chunk, tokens - t), 2 * H / 32, p, H / 32, kv + 2 * t * H);
    attend_packed(s, -1, q, kv, piece, first, tokens, read, Dropout(s.attention_dropout, s.key), Places(layer).attention, m, own, kept.mixed, kept.log_z);
    for (long t = 0; t < read.padded; t += chunk) {
        layer_end(s, layer, w, p, slice(kept, s, t), x + t * H, read.numbers().from(t), std::min(chunk, read.padded - t), inner, plain);
        std::memcpy(out + (read.begin + t) * H, plain, 4 * H * std::min(chunk, read.count - t));
    }
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

// dy, in the layout sums, becomes the gradient of what was added to attention; d_mixed gets that of attention. The gradients of the layer's
// parameters are added to `d`, those of its matrices to work.sums.
void layer_end_backward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const Numbers& number, long tokens,
                        Work& work, float* dy, Number* d_mixed, float* const* d) {
    const long H = s.hidden, F = s.inner;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key);
    normalize_backward(kept.sum2, number, tokens, H, p[G2], kept.stats2, hidden, place.output, dy, work.dropped, d[G2], d[B2], d[DB]);
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
    normalize_backward(kept.sum1, number, tokens, H, p[G1], kept.stats1, hidden, place.middle, dy, work.dropped, d[G1], d[B1], d[OB]);
    weight_gradient(work.dropped, H, kept.mixed, H, tokens, work, work.sums + 3 * H * H);
    multiply(work.dropped.data, 16 * H, w.out_back, 32 * H, tokens / 32, H / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        put(d_mixed + i * 16 * H + n * GROUP + r * LINE<Number>, v);
    });
}

// dy, in the layout sums, becomes dx.
void layer_backward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                    long tokens, Heads& m, Work& work, float* dy, float* const* d) {
    const long H = s.hidden, T = s.tokens;
    const Dropout attention(s.attention_dropout, s.key);
    layer_end_backward(s, layer, w, p, kept, first, tokens, work, dy, work.mixed, d);
    const auto add_bias = [&](int which, long, long n, const Line& p) { return add_to(d[QB + 2 * which] + 32 * n, p), p; };
    for (long t = 0; t < tokens; t += T) {
        const Number* qkv = kept.qkv + 3 * t * H;
        Number* d_qkv = work.qkv + 3 * t * H;
        attend_backward(qkv, 48 * H, qkv + 16 * H, 48 * H, kept.mixed + t * H, work.mixed + t * H, Queries(T), Row(piece + t, T, (first + t) / T), H,
                        s.heads, attention, Places(layer).attention, m, kept.log_z + t * s.heads, d_qkv, d_qkv + 16 * H, add_bias);
    }
    weight_gradient(work.qkv, 3 * H, kept.x, H, tokens, work, work.sums);
    input_gradient(work.qkv, 3 * H, w.qkv_back, H, tokens, dy);
}

// From d_q of the tokens that are read, packed, to the sums of the queries' weights, and added to dx of these tokens. `x`: memory for
// their rows of `all`, the input of the queries.
void queries_backward(const Read& read, const Number* all, const Number* d_q, const Number* qkv_back, long H, long chunk, Work& work, Number* x,
                      float* dx) {
    read.gather(all, H, x);
    for (long t = 0; t < read.padded; t += chunk) {
        const long many = std::min(chunk, read.padded - t);
        weight_gradient(d_q + t * H, H, x + t * H, H, many, work, work.sums);
        multiply_add(d_q + t * H, 16 * H, qkv_back, 96 * H, many / 32, H / 32, H / 32, dx + t * H, H);
    }
}

// From d_out [reads, H] to dx of all `tokens` of a slice, in the layout sums.
void read_backward(const Shape& s, long layer, const Operands& w, const float* const* p, const Kept& kept, const int32_t* piece, long first,
                   long tokens, Heads& m, Work& work, const float* d_out, float* dx, float* const* d) {
    const long H = s.hidden, chunk = chunk_of(s);
    const Read read(s, first, tokens);
    const Number *const kv = kept.qkv, *const q = kv + 2 * tokens * H;
    Asking own(s.tokens, H);
    Buffer<float> dy(read.padded * H);
    Buffer<Number> x(read.padded * H), d_mixed(read.padded * H), d_q(read.padded * H);
    std::memset(dy, 0, 4 * read.padded * H), std::memset(d_q, 0, sizeof(Number) * read.padded * H), std::memset(dx, 0, 4 * tokens * H);
    for (long t = 0; t < read.count; ++t)
        for (long n = 0; n < H / 32; ++n) store(dy + sum_at(t, H) + n * GROUP, load(d_out + (read.begin + t) * H + 32 * n));
    for (long t = 0; t < read.padded; t += chunk)
        layer_end_backward(s, layer, w, p, slice(kept, s, t), read.numbers().from(t), std::min(chunk, read.padded - t), work, dy + t * H, d_mixed + t * H, d);
    const auto add_bias = [&](int which, long, long n, const Line& p) { return add_to(d[QB + 2 * which] + 32 * n, p), p; };
    for (long t = 0; t < tokens; t += chunk) {
        const long many = std::min(chunk, tokens - t);
        attend_packed_backward(s, -1, q, kv + 2 * t * H, kept.mixed, d_mixed, piece + t, first + t, many, read, Dropout(s.attention_dropout, s.key),
                               Places(layer).attention, m, own, kept.log_z, d_q, work.qkv, add_bias);
        weight_gradient(work.qkv, 2 * H, kept.x + t * H, H, many, work, work.sums + H * H);
        multiply_add(work.qkv.data, 32 * H, w.qkv_back + 32 * H, 96 * H, many / 32, H / 32, 2 * H / 32, dx + t * H, H);
    }
    queries_backward(read, kept.x, d_q, w.qkv_back, H, chunk, work, x, dy);
    read.add(dy, H, dx);
}

}  // namespace
