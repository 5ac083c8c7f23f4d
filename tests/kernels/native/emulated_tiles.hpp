// Matrix tiles in plain C++, so that a machine without AMX can test what products_amx.hpp does with them.
#pragma once

namespace {

struct Tiles {  // eight registers of 16 lines of 64 bytes for each thread
    Tiles() {}
};

inline void written() {}
alignas(64) thread_local float tile_registers[8][16][16];

inline void _emulated_zero(int tile) { std::memset(tile_registers[tile], 0, 1024); }
inline void _emulated_load(int tile, const void* from, long line) {
    for (int i = 0; i < 16; ++i) std::memcpy(tile_registers[tile][i], static_cast<const char*>(from) + i * line, 64);
}
inline void _emulated_store(int tile, void* to, long line) {
    for (int i = 0; i < 16; ++i) std::memcpy(static_cast<char*>(to) + i * line, tile_registers[tile][i], 64);
}
inline float number(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
#pragma GCC push_options
#pragma GCC optimize("O3")
inline void _emulated_product(int sum, int left, int right) {
    float low[16][16], high[16][16];  // of each pair
    for (int k = 0; k < 16; ++k)
        for (int j = 0; j < 16; ++j) {
            uint32_t pair;
            std::memcpy(&pair, &tile_registers[right][k][j], 4);
            low[k][j] = number(pair << 16), high[k][j] = number(pair & 0xffff0000);
        }
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k) {
            uint32_t pair;
            std::memcpy(&pair, &tile_registers[left][i][k], 4);
            const float first = number(pair << 16), second = number(pair & 0xffff0000);
            for (int j = 0; j < 16; ++j) tile_registers[sum][i][j] += first * low[k][j] + second * high[k][j];
        }
}
#pragma GCC pop_options

}  // namespace

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_zero _emulated_zero
#define _tile_loadd _emulated_load
#define _tile_stored _emulated_store
#define _tile_dpbf16ps _emulated_product
