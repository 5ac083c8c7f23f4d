// What library.py calls: one function each for packing weights, the layers' two passes, the softmax's two looks, Muon's step.
//
// Each works on the slice that its arguments name and writes nothing else, so that several threads can call it at once.

#if defined(ELECTRA_AMX) && !defined(ELECTRA_EMULATED)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "modern_layers.hpp"
#include "muon.hpp"
#include "softmax.hpp"

namespace {

// 0, or 1 where there is not enough memory: exceptions must not leave for Python.
template <class Work>
int guarded(Work work) {
    try {
        work();
        return 0;
    } catch (...) {
        return 1;
    }
}

}  // namespace

extern "C" {

// 1 if this process may use what the path needs (Linux grants matrix tiles on request).
int allowed() {
#if defined(ELECTRA_AMX) && !defined(ELECTRA_EMULATED)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return 1;
#endif
}

int64_t operand_bytes(const Shape* s) { return s->layers * (s->angles ? modern_operand_count(*s) : s->layer_operands()) * sizeof(Number); }
int64_t kept_bytes(const Shape* s, int64_t tokens, int keep) {
    if (s->angles) return ModernKept::bytes(*s, tokens, keep);
    return (keep ? s->layers : 1) * Kept::layer_bytes(*s, tokens) + sizeof(Number) * tokens * s->hidden;
}

// Weights of layers [first, last) as operands, for the backward pass too if `both`; `p`: 16 pointers a layer, in the order of Parameter;
// of modern layers 6, in the order of ModernParameter (the first has no norm: null), and at the end the last norm's.
int pack_layers(const Shape* s, const float* const* p, int64_t first, int64_t last, int both, Number* operands) {
    return guarded([&] {
        if (s->angles) return modern_pack(*s, p, first, last, both, operands);
        for (long l = first; l < last; ++l) {
            const Operands to(*s, operands + l * s->layer_operands());
            to.fill_forward(*s, p + PARAMETERS * l);
            if (both) to.fill_backward(*s, p + PARAMETERS * l);
        }
    });
}

// in [all, H] -> out [all, H], or [reads, H], fp32, for tokens [first, first + tokens); with `keep`, what the backward pass needs stays in
// `memory`.
int layers_forward(const Shape* s, Number* operands, const float* const* p, const int32_t* piece, const float* in, int64_t all_tokens,
                    int64_t first, int64_t tokens, int keep, uint8_t* memory, float* out) {
    return guarded([&] {
        const Tiles tiles;
        if (s->angles) return modern_forward(*s, operands, p, piece, in, all_tokens, first, tokens, keep, memory, out);
        const long H = s->hidden, chunk = std::min<long>(chunk_of(*s), tokens);
        Heads heads(s->tokens, s->head());
        Buffer<Number> inner(chunk * s->inner);
        for (long l = 0; l < s->layers; ++l) {
            const Operands w(*s, operands + l * s->layer_operands());
            const Kept whole(*s, memory, all_tokens, l, keep);
            const bool reads = s->read && l + 1 == s->layers;
            for (long t = first; t < first + tokens; t += chunk) {
                const Kept kept = slice(whole, *s, t);
                const long many = std::min(chunk, first + tokens - t);
                if (l == 0)
                    for (long i = 0; i < many; ++i)
                        for (long n = 0; n < H / 32; ++n) put(kept.x + row_at<Number>(i, H) + n * GROUP, load(in + (t + i) * H + 32 * n));
                if (!reads)
                    layer_forward(*s, l, w, p + PARAMETERS * l, kept, piece + t, t, many, heads, inner, l + 1 == s->layers ? out + t * H : nullptr);
            }
            if (reads) read_forward(*s, l, w, p + PARAMETERS * l, slice(whole, *s, first), piece + first, first, tokens, heads, inner, out);
        }
    });
}

// d_out [all, H], or [reads, H] -> d_in [all, H] for tokens [first, first + tokens); their part of the parameters' gradients is written to
// `d`, pointers in the order of `p`.
int layers_backward(const Shape* s, Number* operands, const float* const* p, const int32_t* piece, const float* d_out, int64_t all_tokens,
                     int64_t first, int64_t tokens, uint8_t* memory, float* d_in, float* const* d) {
    return guarded([&] {
        const Tiles tiles;
        if (s->angles) return modern_backward(*s, operands, p, piece, d_out, all_tokens, first, tokens, memory, d_in, d);
        const long H = s->hidden, chunk = std::min<long>(chunk_of(*s), tokens);
        Heads heads(s->tokens, s->head());
        Work work(*s, chunk);
        float* dy = d_in + first * H;
        for (long t = 0; !s->read && t < tokens; ++t)
            for (long n = 0; n < H / 32; ++n) store(dy + sum_at(t, H) + n * GROUP, load(d_out + (first + t) * H + 32 * n));
        for (long l = s->layers - 1; l >= 0; --l) {
            const Operands w(*s, operands + l * s->layer_operands());
            const Kept whole(*s, memory, all_tokens, l, true);
            float* const* own = d + PARAMETERS * l;
            for (int i = 0; i < PARAMETERS; ++i)
                if (!is_matrix(i)) std::memset(own[i], 0, 4 * parameter_size(*s, i));
            std::memset(work.sums, 0, 2 * s->layer_operands());
            const bool reads = s->read && l + 1 == s->layers;
            if (reads)
                read_backward(*s, l, w, p + PARAMETERS * l, slice(whole, *s, first), piece + first, first, tokens, heads, work, d_out, dy, own);
            for (long t = 0; !reads && t < tokens; t += chunk)
                layer_backward(*s, l, w, p + PARAMETERS * l, slice(whole, *s, first + t), piece + first + t, first + t, std::min(chunk, tokens - t), heads,
                               work, dy + t * H, own);
            const float* sums = work.sums;
            for (int i = 0; i < PARAMETERS; ++i)
                if (is_matrix(i)) {
                    as_plain(sums, parameter_size(*s, i) / columns(*s, i), columns(*s, i), own[i]);
                    sums += parameter_size(*s, i);
                }
        }
        as_plain(dy, tokens, H, dy);
    });
}

// Which of [rows, 32 * blocks] elements a dropout keeps, as bytes: for tests.
void dropout_kept(double p, uint64_t key, uint32_t place, int64_t rows, int64_t blocks, uint8_t* kept) {
    const Dropout drop(p, key);
    for (long r = 0; r < rows; ++r)
        for (long b = 0; b < blocks; ++b) {
            float factors[32];
            store(factors, drop.row(place, r).factors(b));
            for (int i = 0; i < 32; ++i) kept[(r * blocks + b) * 32 + i] = factors[i] != 0;
        }
}

int vocabulary_pack(const Softmax* s, int64_t first_block, int64_t last_block) {
    softmax_pack_words(*s, first_block, last_block);
    return 0;
}
void positions_pack(const Softmax* s) { softmax_pack_rows(*s); }
int vocabulary_look(const Softmax* s, int64_t first, int64_t last) {
    return guarded([&] {
        const Tiles tiles;
        softmax_look(*s, first, last);
    });
}
int vocabulary_gradient(const Softmax* s, int64_t first_block, int64_t last_block, float* d_hidden) {
    return guarded([&] {
        const Tiles tiles;
        softmax_gradient(*s, first_block, last_block, d_hidden);
    });
}

int muon_step(const MuonStep* s, int64_t first, int64_t last) {
    return guarded([&] {
        const Tiles tiles;
        muon_move(*s, first, last);
    });
}

}  // extern "C"
