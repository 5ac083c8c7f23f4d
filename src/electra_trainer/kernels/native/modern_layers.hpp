// ModernBERT's layers, forward and backward, on a slice of rows: pre-LayerNorm, rotary positions, GeGLU, no biases, as model/modern.py.
//
// The residual stream stays in fp32. A norm's gain is multiplied into the weights that read it, so that products and gradients work on
// `unit`, the normalized hidden states without gain: d_gain is a sum over the weights' own gradient. Rows of the weights change places:
//   Wqkv  each 32 outputs of a head hold 16 dimensions of its first half and those of the second that they are turned with
//   Wi    32 outputs of the first half, then the 32 that they are multiplied by
#pragma once

#include "layers.hpp"

namespace {

enum ModernParameter { ATTN_NORM, WQKV, WO, MLP_NORM, WI, WD, MODERN };  // of a layer, in the order of the module; the first has no ATTN_NORM

inline long reach_of(const Shape& s, long layer) { return s.is_local(layer) ? s.reach : -1; }

inline long modern_operand_count(const Shape& s) { return 2 * s.hidden * (4 * s.hidden + 3 * s.inner); }

// The row of Wqkv, or of Wi, that is the kernels' row `r`
inline long row_of_qkv(const Shape& s, long r) {
    const long d = s.head(), at = r % d, line = at / 32, i = at % 32;
    return r >= 2 * s.hidden ? r : r - at + 16 * line + (i < 16 ? i : d / 2 + i - 16);
}
inline long row_of_wi(const Shape& s, long r) { return r / 64 * 32 + r % 32 + (r / 32 % 2 ? s.inner : 0); }

// w' = w with its rows in the kernels' order, times the gain of the norm before it (null: 1)
template <class RowOf>
void stage(const float* w, const float* gain, long rows, long columns, RowOf row_of, float* to) {
    for (long r = 0; r < rows; ++r)
        for (long n = 0; n < columns; n += 32) {
            const Line line = load(w + row_of(r) * columns + n);
            store(to + r * columns + n, gain ? line * load(gain + n) : line);
        }
}

// The gradient of w from that of w', and with it the gain's
template <class RowOf>
void unstage(const float* sums, const float* w, const float* gain, long rows, long columns, RowOf row_of, float* d_w, float* d_gain) {
    if (gain) std::memset(d_gain, 0, 4 * columns);
    for (long r = 0; r < rows; ++r)
        for (long n = 0; n < columns; n += 32) {
            const long at = row_of(r) * columns + n;
            const Line g = load(sums + r * columns + n);
            store(d_w + at, gain ? g * load(gain + n) : g);
            if (gain) add_to(d_gain + n, g * load(w + at));
        }
}

struct ModernOperands {  // a layer's weights as operands, both ways
    Number *qkv, *out, *up, *down, *qkv_back, *out_back, *up_back, *down_back;
    ModernOperands(const Shape& s, Number* at) {
        const long hh = s.hidden * s.hidden, hf = s.hidden * s.inner;
        qkv = at, out = qkv + 3 * hh, up = out + hh, down = up + 2 * hf;
        qkv_back = down + hf, out_back = qkv_back + 3 * hh, up_back = out_back + hh, down_back = up_back + 2 * hf;
    }
    void fill(const Shape& s, const float* const* w, bool both, float* staged) const {
        const long H = s.hidden, F = s.inner;
        stage(w[WQKV], w[ATTN_NORM], 3 * H, H, [&](long r) { return row_of_qkv(s, r); }, staged);
        pack_forward(staged, 3 * H, H, qkv, 32 * H);
        if (both) pack_backward(staged, 3 * H, H, qkv_back, 96 * H);
        stage(w[WI], w[MLP_NORM], 2 * F, H, [&](long r) { return row_of_wi(s, r); }, staged);
        pack_forward(staged, 2 * F, H, up, 32 * H);
        if (both) pack_backward(staged, 2 * F, H, up_back, 64 * F);
        pack_forward(w[WO], H, H, out, 32 * H), pack_forward(w[WD], H, F, down, 32 * F);
        if (both) pack_backward(w[WO], H, H, out_back, 32 * H), pack_backward(w[WD], H, F, down_back, 32 * H);
    }
};

// What a layer keeps of `all` tokens for its backward pass, in the layout `rows`: [all, width] each.
struct ModernKept {
    Number *one, *qkv, *mixed, *two, *up;  // `one` and `two`: hidden states after the norms, without gain
    float *rate1, *rate2, *log_z;          // 1/deviation of each token; log of the softmax's sum for each head and token

    static long layer_bytes(const Shape& s, long all) { return all * (sizeof(Number) * (6 * s.hidden + 2 * s.inner) + 4 * (2 + s.heads)); }
    // of tokens from `first` on; `layer` s.layers is the last norm, which uses `one` and `rate1`
    ModernKept(const Shape& s, uint8_t* memory, long all, long layer, long first, bool keep) {
        const long H = s.hidden;
        uint8_t* at = memory + (keep ? layer * layer_bytes(s, all) : 0);
        auto take = [&](long width) { Number* p = reinterpret_cast<Number*>(at); at += sizeof(Number) * all * width; return p + first * width; };
        auto floats = [&](long width) { float* p = reinterpret_cast<float*>(at); at += 4 * all * width; return p + first * width; };
        rate1 = floats(1), one = take(H), rate2 = floats(1), log_z = floats(s.heads);
        qkv = take(3 * H), mixed = take(H), two = take(H), up = take(2 * s.inner);
    }
    ModernKept from(const Shape& s, long first) const {
        const long H = s.hidden;
        ModernKept k = *this;
        k.rate1 += first, k.one += first * H, k.rate2 += first, k.log_z += first * s.heads;
        return k.qkv += 3 * first * H, k.mixed += first * H, k.two += first * H, k.up += 2 * first * s.inner, k;
    }
    static long bytes(const Shape& s, long all, bool keep) {
        return (keep ? s.layers : 1) * layer_bytes(s, all) + (keep ? all * (sizeof(Number) * s.hidden + 4) : 0);
    }
};

struct Turns {  // by which angle the dimensions of a head are turned: [rows or 1, tokens, head]: cosines of a half, then sines
    const float* angles;
    long rows, tokens, head;
    Turns(const Shape& s, long layer)
        : angles(s.is_local(layer) ? s.local_angles : s.angles), rows(s.angle_rows), tokens(s.tokens), head(s.head()) {}
    // 32 numbers `n` of a token's queries or keys, turned, or turned back
    INLINE Line apply(const Line& x, long token, long n, bool back) const {
        const float* cosine = angles + (rows > 1 ? token : token % tokens) * head + n % (head / 32) * 16;
        const float* sine = cosine + head / 2;
        Line out;
        UNROLL for (int i = 0; i < PARTS / 2; ++i) {
            const V c = read<V>(cosine + i * LANES), plain = read<V>(sine + i * LANES), s = back ? -plain : plain;
            const V first = x.v[i], second = x.v[i + PARTS / 2];
            out.v[i] = first * c - second * s;
            out.v[i + PARTS / 2] = second * c + first * s;
        }
        return out;
    }
};

// x [tokens, H], plain fp32 -> unit, in the layout rows, and with `gain` x = unit * gain
void to_unit(float* x, long tokens, long H, double eps, float* rates, Number* unit, const float* gain) {
    for (long t = 0; t < tokens; ++t, x += H) {
        Line total = all_of(0), square = all_of(0);
        for (long n = 0; n < H; n += 32) total = total + load(x + n);
        const float mean = sum_of(total) / H;
        for (long n = 0; n < H; n += 32) {
            const Line centred = load(x + n) - mean;
            square = square + centred * centred;
        }
        const float rate = static_cast<float>(1 / std::sqrt(sum_of(square) / H + eps));
        rates[t] = rate;
        for (long n = 0; n < H / 32; ++n) {
            const Line out = (load(x + 32 * n) - mean) * rate;
            put(unit + row_at<Number>(t, H) + n * GROUP, out);
            if (gain) store(x + 32 * n, out * load(gain + 32 * n));
        }
    }
}

// dx, in the layout sums, += the gradient through the norm; `d_unit` may be dx itself, which then is replaced
void unit_backward(const Number* unit, long tokens, long H, const float* rates, const float* d_unit, float* dx) {
    for (long t = 0; t < tokens; ++t) {
        const Number* from = unit + row_at<Number>(t, H);
        const float* given = d_unit + sum_at(t, H);
        float* to = dx + sum_at(t, H);
        Line total = all_of(0), along = all_of(0);
        for (long n = 0; n < H / 32; ++n) {
            const Line g = load(given + n * GROUP);
            total = total + g;
            along = along + g * get(from + n * GROUP);
        }
        const float a = sum_of(total) / H, b = sum_of(along) / H;
        for (long n = 0; n < H / 32; ++n) {
            const Line d = (load(given + n * GROUP) - a - get(from + n * GROUP) * b) * rates[t];
            store(to + n * GROUP, given == to ? d : load(to + n * GROUP) + d);
        }
    }
}

// After attention, on the residual stream `x` in plain rows; it and `kept` begin at the first of `tokens`.
void modern_layer_end(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const Numbers& number, long tokens, Number* inner,
                      float* x) {
    const long H = s.hidden, F = s.inner;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key);
    multiply(kept.mixed, 16 * H, w.out, 32 * H, tokens / 32, H / 32, H / 32, [&](long i, long r, long n, const Line& p) {
        add_to(x + (16 * i + r) * H + 32 * n, attention.row(place.middle, number[16 * i + r]).apply(p, n));
    });
    to_unit(x, tokens, H, s.eps, kept.rate2, kept.two, nullptr);
    multiply(kept.two, 16 * H, w.up, 32 * H, tokens / 32, 2 * F / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        Number* at = kept.up + i * 32 * F + n * GROUP + r * LINE<Number>;
        fetch(at + 32 * F);
        put(at, v);
        if (n % 2) {
            const Line product = gelu(get(at - GROUP)) * v;
            put(inner + i * 16 * F + n / 2 * GROUP + r * LINE<Number>, hidden.row(place.output, number[16 * i + r]).apply(product, n / 2));
        }
    });
    multiply(inner, 16 * F, w.down, 32 * F, tokens / 32, H / 32, F / 32, [&](long i, long r, long n, const Line& p) {
        add_to(x + (16 * i + r) * H + 32 * n, p);
    });
}

// What attention reads of the residual stream
void before_attention(const Shape& s, long layer, const ModernKept& kept, long tokens, float* x) {
    if (layer) return to_unit(x, tokens, s.hidden, s.eps, kept.rate1, kept.one, nullptr);
    for (long t = 0; t < tokens; ++t)
        for (long n = 0; n < s.hidden / 32; ++n) put(kept.one + row_at<Number>(t, s.hidden) + n * GROUP, load(x + t * s.hidden + 32 * n));
}

// to [., 32 * blocks] = one times an operand; the first `turned` blocks are turned
void modern_project(const Shape& s, const Number* one, const Number* operand, long tokens, long blocks, long turned, const Turns& turns,
                    const Numbers& number, Number* to) {
    const long H = s.hidden;
    multiply(one, 16 * H, operand, 32 * H, tokens / 32, blocks, H / 32, [&](long i, long r, long n, const Line& v) {
        Number* at = to + i * 16 * 32 * blocks + n * GROUP + r * LINE<Number>;
        fetch(at + 16 * 32 * blocks);
        put(at, n < turned ? turns.apply(v, number[16 * i + r], n, false) : v);
    });
}

// `kept` and `x` begin at the chunk's first token, `first` is its number in the whole call.
void modern_layer_forward(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const int32_t* piece, const Turns& turns,
                          long first, long tokens, Heads& m, Number* inner, float* x) {
    const long H = s.hidden, T = s.tokens;
    before_attention(s, layer, kept, tokens, x);
    modern_project(s, kept.one, w.qkv, tokens, 3 * H / 32, 2 * H / 32, turns, first, kept.qkv);
    for (long t = 0; t < tokens; t += T)
        attend(kept.qkv + 3 * t * H, 48 * H, kept.qkv + 3 * t * H + 16 * H, 48 * H, Queries(T), Row(piece + t, T, (first + t) / T, reach_of(s, layer)),
               H, s.heads, Dropout(s.attention_dropout, s.key), Places(layer).attention, m, kept.mixed + t * H, kept.log_z + t * s.heads);
    modern_layer_end(s, layer, w, kept, first, tokens, inner, x);
}

// The last layer and the last norm on the `tokens` of a slice, at those that are read, from the residual stream `x` of all: out [reads, H]. The
// layer's memory holds keys and values of all and then the queries, packed as is all that follows.
void modern_read_forward(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const ModernKept& last, const int32_t* piece,
                         const Turns& turns, const float* gain, long first, long tokens, Heads& m, Number* inner, float* x, float* out) {
    const long H = s.hidden, chunk = chunk_of(s);
    const Read read(s, first, tokens);
    Asking own(s.tokens, H);
    Buffer<Number> one(read.padded * H);
    Buffer<float> packed(read.padded * H);
    Number *const kv = kept.qkv, *const q = kv + 2 * tokens * H;
    before_attention(s, layer, kept, tokens, x);
    read.gather(kept.one, H, one.data), read.gather_plain(x, H, packed);
    modern_project(s, one, w.qkv, read.padded, H / 32, H / 32, turns, read.numbers(), q);
    for (long t = 0; t < tokens; t += chunk)
        modern_project(s, kept.one + t * H, w.qkv + H * H, std::min(chunk, tokens - t), 2 * H / 32, H / 32, turns, first + t, kv + 2 * t * H);
    attend_packed(s, reach_of(s, layer), q, kv, piece, first, tokens, read, Dropout(s.attention_dropout, s.key), Places(layer).attention, m, own,
                  kept.mixed, kept.log_z);
    for (long t = 0; t < read.padded; t += chunk)
        modern_layer_end(s, layer, w, kept.from(s, t), read.numbers().from(t), std::min(chunk, read.padded - t), inner, packed + t * H);
    to_unit(packed, read.padded, H, s.eps, last.rate1, last.one, gain);
    std::memcpy(out + read.begin * H, packed, 4 * read.count * H);
}

struct ModernWork {  // memory of the backward pass for a chunk of tokens
    Work work;
    Buffer<float> d_unit;
    static Shape doubled(Shape s) { return s.inner *= 2, s; }  // room for both halves of Wi
    ModernWork(const Shape& s, long tokens) : work(doubled(s), tokens), d_unit(tokens * s.hidden) {}
};

// dy, in the layout sums, becomes the gradient of the stream after attention; d_mixed gets that of attention. The gradients of the layer's
// matrices are added to work.sums: w' of Wqkv, Wo, w' of Wi, and Wo.
void modern_layer_end_backward(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const Numbers& number, long tokens,
                               ModernWork& memory, float* dy, Number* d_mixed) {
    const long H = s.hidden, F = s.inner;
    const Places place(layer);
    const Dropout hidden(s.hidden_dropout, s.key), attention(s.attention_dropout, s.key), none(0, s.key);
    Work& work = memory.work;
    float* const d_unit = memory.d_unit;
    auto as_rows = [&](const Dropout& drop) {
        for (long t = 0; t < tokens; ++t) {
            const Dropout::Row dropout = drop.row(place.middle, number[t]);
            for (long n = 0; n < H / 32; ++n)
                put(work.dropped + row_at<Number>(t, H) + n * GROUP, dropout.apply(load(dy + sum_at(t, H) + n * GROUP), n));
        }
    };
    as_rows(none);
    multiply(work.dropped.data, 16 * H, w.down_back, 32 * H, tokens / 32, F / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        const long at = i * 32 * F + 2 * n * GROUP + r * LINE<Number>;
        fetch(kept.up + at + 32 * F), fetch(kept.up + at + 32 * F + GROUP);
        const Line a = get(kept.up + at), gate = get(kept.up + at + GROUP);
        const Line factors = hidden.row(place.output, number[16 * i + r]).factors(n);
        Line slope, active;
        UNROLL for (int part = 0; part < PARTS; ++part) {
            const Gelu<Number> found(a.v[part]);
            slope.v[part] = found.slope();
            active.v[part] = a.v[part] * found.cdf();
        }
        const Line d = v * factors;
        put(work.up + at, d * gate * slope);
        put(work.up + at + GROUP, d * active);
        put(work.inner + i * 16 * F + n * GROUP + r * LINE<Number>, active * gate * factors);
    });
    weight_gradient(work.dropped, H, work.inner, F, tokens, work, work.sums + (4 * H + 2 * F) * H);
    weight_gradient(work.up, 2 * F, kept.two, H, tokens, work, work.sums + 4 * H * H);
    std::memset(d_unit, 0, 4 * tokens * H);
    input_gradient(work.up, 2 * F, w.up_back, H, tokens, d_unit);
    unit_backward(kept.two, tokens, H, kept.rate2, d_unit, dy);
    as_rows(attention);
    weight_gradient(work.dropped, H, kept.mixed, H, tokens, work, work.sums + 3 * H * H);
    multiply(work.dropped.data, 16 * H, w.out_back, 32 * H, tokens / 32, H / 32, H / 32, [&](long i, long r, long n, const Line& v) {
        put(d_mixed + i * 16 * H + n * GROUP + r * LINE<Number>, v);
    });
}

// dy, in the layout sums, becomes dx.
void modern_layer_backward(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const int32_t* piece, const Turns& turns,
                           long first, long tokens, Heads& m, ModernWork& memory, float* dy) {
    const long H = s.hidden, T = s.tokens;
    Work& work = memory.work;
    float* const d_unit = memory.d_unit;
    modern_layer_end_backward(s, layer, w, kept, first, tokens, memory, dy, work.mixed);
    for (long t = 0; t < tokens; t += T) {
        const auto turn_back = [&](int which, long token, long n, const Line& p) {
            return which < 2 ? turns.apply(p, first + t + token, n, true) : p;
        };
        const Number* qkv = kept.qkv + 3 * t * H;
        Number* d_qkv = work.qkv + 3 * t * H;
        attend_backward(qkv, 48 * H, qkv + 16 * H, 48 * H, kept.mixed + t * H, work.mixed + t * H, Queries(T),
                        Row(piece + t, T, (first + t) / T, reach_of(s, layer)), H, s.heads, Dropout(s.attention_dropout, s.key),
                        Places(layer).attention, m, kept.log_z + t * s.heads, d_qkv, d_qkv + 16 * H, turn_back);
    }
    weight_gradient(work.qkv, 3 * H, kept.one, H, tokens, work, work.sums);
    if (!layer) return input_gradient(work.qkv, 3 * H, w.qkv_back, H, tokens, dy);
    std::memset(d_unit, 0, 4 * tokens * H);
    input_gradient(work.qkv, 3 * H, w.qkv_back, H, tokens, d_unit);
    unit_backward(kept.one, tokens, H, kept.rate1, d_unit, dy);
}

// From dy, packed, of the tokens of a slice that are read to dx of all, both in the layout sums.
void modern_read_backward(const Shape& s, long layer, const ModernOperands& w, const ModernKept& kept, const int32_t* piece, const Turns& turns,
                          const Read& read, long first, long tokens, Heads& m, ModernWork& memory, float* dy, float* dx) {
    const long H = s.hidden, chunk = chunk_of(s);
    const Number *const kv = kept.qkv, *const q = kv + 2 * tokens * H;
    Work& work = memory.work;
    Asking own(s.tokens, H);
    Buffer<Number> one(read.padded * H), d_mixed(read.padded * H), d_q(read.padded * H);
    Buffer<float> d_unit(read.padded * H);
    std::memset(d_q, 0, sizeof(Number) * read.padded * H), std::memset(d_unit, 0, 4 * read.padded * H), std::memset(dx, 0, 4 * tokens * H);
    for (long t = 0; t < read.padded; t += chunk)
        modern_layer_end_backward(s, layer, w, kept.from(s, t), read.numbers().from(t), std::min(chunk, read.padded - t), memory, dy + t * H,
                                  d_mixed + t * H);
    for (long t = 0; t < tokens; t += chunk) {
        const long many = std::min(chunk, tokens - t);
        const auto turn_back = [&](int which, long token, long n, const Line& p) {
            return which < 2 ? turns.apply(p, first + t + token, n, true) : p;
        };
        attend_packed_backward(s, reach_of(s, layer), q, kv + 2 * t * H, kept.mixed, d_mixed, piece + t, first + t, many, read,
                               Dropout(s.attention_dropout, s.key), Places(layer).attention, m, own, kept.log_z, d_q, work.qkv, turn_back);
        weight_gradient(work.qkv, 2 * H, kept.one + t * H, H, many, work, work.sums + H * H);
        multiply_add(work.qkv.data, 32 * H, w.qkv_back + 32 * H, 96 * H, many / 32, H / 32, 2 * H / 32, dx + t * H, H);
    }
    queries_backward(read, kept.one, d_q, w.qkv_back, H, chunk, work, one, d_unit);
    read.add(d_unit, H, dx);
    if (layer) unit_backward(kept.one, tokens, H, kept.rate1, dx, dx);
    read.add(dy, H, dx);
}

// ------------------------------------------------------------------------------------------------ the stack: see kernels.cpp

void modern_pack(const Shape& s, const float* const* p, long first, long last, bool both, Number* operands) {
    Buffer<float> staged(std::max(3 * s.hidden, 2 * s.inner) * s.hidden);
    for (long l = first; l < last; ++l) ModernOperands(s, operands + l * modern_operand_count(s)).fill(s, p + MODERN * l, both, staged);
}

void modern_forward(const Shape& s, Number* operands, const float* const* p, const int32_t* piece, const float* in, long all_tokens, long first,
                    long tokens, bool keep, uint8_t* memory, float* out) {
    const long H = s.hidden, chunk = std::min(chunk_of(s), tokens);
    Heads heads(s.tokens, s.head());
    Buffer<Number> inner(chunk * s.inner);
    Buffer<float> apart(s.read ? tokens * H : 0);
    float* const x = s.read ? apart.data : out + first * H;  // the residual stream
    const ModernKept last(s, memory, all_tokens, s.layers, first, keep);
    const float* const gain = p[MODERN * s.layers];
    std::memcpy(x, in + first * H, 4 * tokens * H);
    for (long l = 0; l < s.layers; ++l) {
        const ModernOperands w(s, operands + l * modern_operand_count(s));
        const Turns turns(s, l);
        const ModernKept whole(s, memory, all_tokens, l, first, keep);
        if (s.read && l + 1 == s.layers)
            return modern_read_forward(s, l, w, whole, last, piece + first, turns, gain, first, tokens, heads, inner, x, out);
        for (long t = 0; t < tokens; t += chunk)
            modern_layer_forward(s, l, w, whole.from(s, t), piece + first + t, turns, first + t, std::min(chunk, tokens - t), heads, inner, x + t * H);
    }
    to_unit(x, tokens, H, s.eps, last.rate1, last.one, gain);
}

void modern_backward(const Shape& s, Number* operands, const float* const* p, const int32_t* piece, const float* d_out, long all_tokens,
                     long first, long tokens, uint8_t* memory, float* d_in, float* const* d) {
    const long H = s.hidden, F = s.inner, chunk = std::min(chunk_of(s), tokens);
    Heads heads(s.tokens, s.head());
    ModernWork work(s, chunk);
    float *const dx = d_in + first * H, *const d_gain = d[MODERN * s.layers];
    const float* const gain = p[MODERN * s.layers];
    const ModernKept last(s, memory, all_tokens, s.layers, first, true);
    const Read read(s, first, s.read ? tokens : 0);
    const long from = s.read ? read.begin : first, many = s.read ? read.count : tokens;
    Buffer<float> packed(read.padded * H);
    float* const dy = s.read ? packed.data : dx;
    std::memset(packed, 0, 4 * read.padded * H);
    std::memset(d_gain, 0, 4 * H);
    for (long t = 0; t < many; ++t)
        for (long n = 0; n < H / 32; ++n) {
            const Line g = load(d_out + (from + t) * H + 32 * n);
            add_to(d_gain + 32 * n, g * get(last.one + row_at<Number>(t, H) + n * GROUP));
            store(dy + sum_at(t, H) + n * GROUP, g * load(gain + 32 * n));
        }
    unit_backward(last.one, many, H, last.rate1, dy, dy);
    float *const qkv = work.work.sums, *const mixed = qkv + 3 * H * H, *const up = mixed + H * H, *const down = up + 2 * F * H;
    for (long l = s.layers - 1; l >= 0; --l) {
        const ModernOperands w(s, operands + l * modern_operand_count(s));
        const Turns turns(s, l);
        const float* const* own = p + MODERN * l;
        float* const* d_own = d + MODERN * l;
        const ModernKept whole(s, memory, all_tokens, l, first, true);
        const bool reads = s.read && l + 1 == s.layers;
        std::memset(qkv, 0, 4 * H * (4 * H + 3 * F));
        if (reads) modern_read_backward(s, l, w, whole, piece + first, turns, read, first, tokens, heads, work, dy, dx);
        for (long t = 0; !reads && t < tokens; t += chunk)
            modern_layer_backward(s, l, w, whole.from(s, t), piece + first + t, turns, first + t, std::min(chunk, tokens - t), heads, work, dx + t * H);
        as_plain(qkv, 3 * H, H, qkv), as_plain(up, 2 * F, H, up);
        as_plain(mixed, H, H, d_own[WO]), as_plain(down, H, F, d_own[WD]);
        unstage(qkv, own[WQKV], own[ATTN_NORM], 3 * H, H, [&](long r) { return row_of_qkv(s, r); }, d_own[WQKV], d_own[ATTN_NORM]);
        unstage(up, own[WI], own[MLP_NORM], 2 * F, H, [&](long r) { return row_of_wi(s, r); }, d_own[WI], d_own[MLP_NORM]);
    }
    as_plain(dx, tokens, H, dx);
}

}  // namespace
