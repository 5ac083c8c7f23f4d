// All of the kernels on small shapes, for AddressSanitizer and UndefinedBehaviorSanitizer: `make check-native`.
//
// Nothing is compared here (the Python tests do that); a sanitizer ends the program where memory is left or an operation is undefined.
#include "kernels.cpp"

#include <cstdio>
#include <random>
#include <vector>

namespace {

std::mt19937 generator(1);

std::vector<float> numbers(long count) {
    std::normal_distribution<float> normal;
    std::vector<float> out(count);
    for (float& x : out) x = normal(generator);
    return out;
}

void layers(long hidden, long inner, long heads, long tokens, long rows, double dropout, bool modern) {
    const std::vector<float> angles = numbers(tokens * hidden / heads);
    const float* turns = modern ? angles.data() : nullptr;
    const Shape s{2, hidden, inner, heads, tokens, 1e-12, dropout, dropout, 7, turns, 1, turns, 2, tokens / 5, nullptr, 0};  // the second layer's window
    std::vector<long> sizes;
    for (int i = 0; i < 2 * PARAMETERS && !modern; ++i) sizes.push_back(parameter_size(s, i % PARAMETERS));
    if (modern) {
        for (long norm : {0l, hidden}) sizes.insert(sizes.end(), {norm, 3 * hidden * hidden, hidden * hidden, hidden, 2 * inner * hidden, inner * hidden});
        sizes.push_back(hidden);
    }
    std::vector<std::vector<float>> weights, gradients;
    std::vector<const float*> p;
    std::vector<float*> d;
    for (long size : sizes) weights.push_back(numbers(size)), gradients.push_back(numbers(size));
    for (auto& w : weights) p.push_back(w.empty() ? nullptr : w.data());
    for (auto& g : gradients) d.push_back(g.empty() ? nullptr : g.data());
    const long all = rows * tokens;
    const std::vector<float> in = numbers(all * hidden);
    std::vector<float> out(all * hidden), d_in(all * hidden);
    std::vector<int32_t> piece(all, 1);
    for (long t = 0; t < tokens / 3; ++t) piece[t] = 2;
    Buffer<uint8_t> operands(operand_bytes(&s)), memory(kept_bytes(&s, all, 1));
    Number* packed = reinterpret_cast<Number*>(operands.data);
    pack_layers(&s, p.data(), 0, 2, 1, packed);
    const int32_t read[] = {1, 3, static_cast<int32_t>(tokens), static_cast<int32_t>(all - 1)};
    for (int64_t reads : {0, 4}) {  // all tokens, then these alone
        Shape call = s;
        if (reads) call.read = read, call.reads = reads;
        layers_forward(&call, packed, p.data(), piece.data(), in.data(), all, 0, all, 1, memory, out.data());
        layers_backward(&call, packed, p.data(), piece.data(), out.data(), all, 0, all, memory, d_in.data(), d.data());
        layers_forward(&call, packed, p.data(), piece.data(), in.data(), all, 0, all, 0, memory, out.data());
    }
}

void muon(long rows, long columns, long parts) {
    std::vector<float> gradient = numbers(parts * rows * columns), mean = numbers(parts * rows * columns), weight = numbers(parts * rows * columns);
    const float* gradients[] = {gradient.data()};
    float *means[] = {mean.data()}, *weights[] = {weight.data()};
    const MuonStep s{rows, columns, parts, .95, .02, .999, 3.4445, -4.775, 2.0315, gradients, means, weights};
    muon_step(&s, 0, parts);
}

void softmax(long positions, long words, long width) {
    const long rows = (positions + 31) / 32 * 32, lines = (words + 31) / 32 * 32;
    const std::vector<float> hidden = numbers(positions * width), table = numbers(words * width), bias = numbers(words);
    std::vector<float> draws(positions, .5f), padded(lines), log_z(rows), loss(positions), entropy(positions), d_bias(lines), d_hidden(rows * width);
    std::vector<int64_t> labels(positions), sampled(positions);
    for (long i = 0; i < positions; ++i) labels[i] = i % 3 ? i % words : -100;
    std::vector<uint8_t> correct(positions);
    std::vector<float> d_table(lines * width);
    Buffer<Number> a(rows * width), b(rows * width), forward(lines * width), backward(lines * width);
    const Softmax s{positions, words, width, hidden.data(), table.data(), bias.data(), labels.data(), draws.data(), a, b, forward, backward,
                    padded.data(), log_z.data(), sampled.data(), loss.data(), entropy.data(), correct.data(), d_table.data(), d_bias.data()};
    vocabulary_pack(&s, 0, s.blocks());
    positions_pack(&s);
    vocabulary_look(&s, 0, positions);
    vocabulary_gradient(&s, 0, s.blocks(), d_hidden.data());
}

}  // namespace

int main() {
    for (bool modern : {false, true}) {
        layers(64, 160, 1, 64, 5, .1, modern), layers(96, 64, 3, 32, 20, 0, modern), layers(192, 96, 2, 96, 2, .5, modern);
    }
    softmax(1, 40, 32), softmax(33, 256, 64), softmax(300, 1000, 96), softmax(257, 513, 32);
    muon(32, 32, 3), muon(64, 160, 1), muon(160, 64, 2);
    std::puts("sanitizers: nothing found");
}
