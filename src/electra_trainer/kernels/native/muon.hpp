// A step of Muon for matrices of one shape: averaged gradients, five Newton-Schulz steps on each, and the weights' update.
#pragma once

#include "layers.hpp"

namespace {

struct MuonStep {  // as native_muon.py fills it in
    int64_t rows, columns, parts;  // multiples of 32; a weight holds `parts` matrices, one below another
    double momentum, rate, kept;  // weight = kept * weight - rate * direction
    double a, b, c;  // x <- a x + b (x x^T) x + c (x x^T)^2 x
    const float* const* gradients;
    float *const *means, *const *weights;
};

// Averages the gradient; what Nesterov's momentum looks ahead to is written to `ahead`. Returns its Frobenius norm.
float average(const MuonStep& s, const float* gradient, float* mean, float* ahead) {
    const float momentum = static_cast<float>(s.momentum);
    Line square = all_of(0);
    for (long i = 0; i < s.rows * s.columns; i += 32) {
        const Line g = load(gradient + i), m = g + (load(mean + i) - g) * momentum, next = g + (m - g) * momentum;
        store(mean + i, m), store(ahead + i, next);
        square = square + next * next;
    }
    return std::sqrt(sum_of(square));
}

// Matrices [first, last) of all weights.
void muon_move(const MuonStep& s, long first, long last) {
    const long size = s.rows * s.columns, wide = s.columns, R = std::min(s.rows, s.columns), C = std::max(s.rows, s.columns);
    const bool turned = s.rows > s.columns;  // products with the shorter side are the cheaper ones
    const auto a = static_cast<float>(s.a), b = static_cast<float>(s.b), c = static_cast<float>(s.c);
    const auto rate = static_cast<float>(s.rate), kept = static_cast<float>(s.kept);
    Buffer<float> ahead(size);
    Buffer<Number> x(size), next(size), operand(size), gram(R * R), gram_operand(R * R), mixed(R * R);
    auto at = [](Number* to, long width, long i, long r, long n) { return to + 16 * width * i + r * LINE<Number> + n * GROUP; };
    for (long k = first; k < last; ++k) {
        float* weight = s.weights[k / s.parts] + k % s.parts * size;
        const float norm = average(s, s.gradients[k / s.parts] + k % s.parts * size, s.means[k / s.parts] + k % s.parts * size, ahead);
        for (long r = 0; r < s.rows; ++r)
            for (long n = 0; n < wide / 32; ++n)
                put((turned ? next : x) + row_at<Number>(r, wide) + n * GROUP, load(ahead + r * wide + 32 * n) * (1 / std::max(norm, 1e-7f)));
        if (turned) as_transposed_rows(next.data, 16 * wide, C / 32, R / 32, x.data);
        for (int step = 0; step < 5; ++step) {
            as_transposed_operand(x.data, 16 * C, R / 32, C / 32, operand.data);
            multiply(x.data, 16 * C, operand.data, 32 * C, R / 32, R / 32, C / 32, [&](long i, long r, long n, const Line& v) { put(at(gram, R, i, r, n), v); });
            as_operand(gram.data, 16 * R, R / 32, R / 32, gram_operand.data);
            multiply(gram.data, 16 * R, gram_operand.data, 32 * R, R / 32, R / 32, R / 32, [&](long i, long r, long n, const Line& v) {
                put(at(mixed, R, i, r, n), get(at(gram, R, i, r, n)) * b + v * c);
            });
            as_operand(x.data, 16 * C, R / 32, C / 32, operand.data);
            multiply(mixed.data, 16 * R, operand.data, 32 * R, R / 32, C / 32, R / 32, [&](long i, long r, long n, const Line& v) {
                put(at(next, C, i, r, n), get(at(x, C, i, r, n)) * a + v);
            });
            std::swap(x.data, next.data);
        }
        if (turned) as_transposed_rows(x.data, 16 * C, R / 32, C / 32, next.data);
        for (long r = 0; r < s.rows; ++r)
            for (long n = 0; n < wide / 32; ++n) {
                float* line = weight + r * wide + 32 * n;
                store(line, load(line) * kept - get((turned ? next : x) + row_at<Number>(r, wide) + n * GROUP) * rate);
            }
    }
}

}  // namespace
