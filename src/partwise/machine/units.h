/* Products of matrices whose sums run over units of 32 bits: a number in float32, or two of them in
   bfloat16, of which a processor that has VDPBF16PS multiplies and adds up both at once. Sums are
   float32 either way. */

#pragma once

#include <stdint.h>
#include <string.h>

#define AS_LONG_AS_REGISTERS
#include "vectors.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
enum { HAS_HALVES = 1 };
#else
enum { HAS_HALVES = 0 };
#endif

/* Sums of DOWN rows times ACROSS vectors are held in registers: 24 of AVX-512's 32, 12 of the 16 that
   AVX2 has. */
enum { DOWN = LANES / 2, ACROSS = 3, PANEL = ACROSS * LANES };

/* Units of a sum whose B stays in a core's first cache, where it does not lie in panels. */
enum { DEEP = 128 };

typedef uint32_t Unit;

/* A: unit k of row r is at[r down + k across], so that it may also be read turned. */
typedef struct {
    const Unit *at;
    int64_t down, across;
} Left;

static inline Bits units(const Unit *x) {
    Bits all;
    memcpy(&all, x, sizeof all);
    return all;
}

static inline __attribute__((always_inline)) Lanes more(Lanes sum, Unit one, Bits of,
                                                        const int halves) {
#ifdef __AVX512BF16__
    if (halves) {
        __m512i left = _mm512_set1_epi32((int)one), right;
        memcpy(&right, &of, sizeof right);
        return (Lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
    }
#endif
    float factor;
    memcpy(&factor, &one, sizeof factor);
    return sum + factor * numbers(of);
}

/* c[r][j] = sum over k of A[r][k] b[k][j], or that added to c. */
static inline __attribute__((always_inline)) void tile_of_units(
    float *c, int64_t c_row, Left a, const Unit *b, int64_t b_row, int64_t depth, int add,
    const int rows, const int vectors, const int halves) {
    Lanes sums[DOWN][ACROSS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sums[r][j] = add ? lanes(c + r * c_row + j * LANES) : (Lanes){0};
    for (int64_t k = 0; k < depth; k++) {
        Bits of[ACROSS];
        for (int j = 0; j < vectors; j++) {
            of[j] = units(b + k * b_row + j * LANES);
#if defined(__AVX2__) && LANES == 8
            /* It stays in its register: gcc for AMD would load it again for each row. */
            __asm__("" : "+x"(of[j]));
#endif
        }
        for (int r = 0; r < rows; r++) {
            Unit one = a.at[r * a.down + k * a.across];
            for (int j = 0; j < vectors; j++) sums[r][j] = more(sums[r][j], one, of[j], halves);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            memcpy(c + r * c_row + j * LANES, &sums[r][j], sizeof(Lanes));
}

#define STRIP(name, vectors, halves)                                                              \
    static __attribute__((noinline)) void name(float *c, int64_t c_row, Left a, const Unit *b,    \
                                               int64_t b_row, int64_t rows, int64_t depth,        \
                                               int add) {                                         \
        for (; rows >= DOWN; rows -= DOWN, c += DOWN * c_row, a.at += DOWN * a.down)              \
            tile_of_units(c, c_row, a, b, b_row, depth, add, DOWN, vectors, halves);              \
        for (; rows >= 4; rows -= 4, c += 4 * c_row, a.at += 4 * a.down)                          \
            tile_of_units(c, c_row, a, b, b_row, depth, add, 4, vectors, halves);                 \
        for (; rows; rows--, c += c_row, a.at += a.down)                                          \
            tile_of_units(c, c_row, a, b, b_row, depth, add, 1, vectors, halves);                 \
    }
STRIP(strip1, 1, 0)
STRIP(strip2, 2, 0)
STRIP(strip3, 3, 0)
STRIP(strip1_halves, 1, 1)
STRIP(strip2_halves, 2, 1)
STRIP(strip3_halves, 3, 1)
#undef STRIP

/* C (rows, columns) = A B or C += A B, with `columns` in whole vectors.

   B lies in panels of up to PANEL columns, (depth, columns of the panel) one behind the other; or,
   where `b_row` is not 0, row by row. */
static void multiply_units(float *c, int64_t c_row, Left a, const Unit *b, int64_t b_row,
                           int64_t rows, int64_t depth, int64_t columns, int add, int halves) {
    typedef void Strip(float *, int64_t, Left, const Unit *, int64_t, int64_t, int64_t, int);
    static Strip *const strips[2][ACROSS] = {{strip1, strip2, strip3},
                                             {strip1_halves, strip2_halves, strip3_halves}};
    for (int64_t first = 0; first < columns; first += PANEL) {
        int64_t width = columns - first < PANEL ? columns - first : PANEL;
        const Unit *panel = b_row ? b + first : b + first * depth;
        strips[halves != 0][width / LANES - 1](c + first, c_row, a, panel, b_row ? b_row : width,
                                               rows, depth, add);
    }
}

/* --- Numbers as units -------------------------------------------------------------------------- */

/* Two numbers in bfloat16 in one unit, for sixteen places. */
static inline Bits paired(Lanes first, Lanes second) {
#ifdef __AVX512BF16__
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)first));
    __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)second));
    return (Bits)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
#else
    (void)first, (void)second;
    return (Bits){0};
#endif
}

/* n numbers beside each other as units, for sums over them; n in whole vectors. */
static inline void across_units(Unit *to, const float *x, int64_t n) {
#ifdef __AVX512BF16__
    for (int64_t i = 0; i < n; i += LANES) {
        __m256i all = (__m256i)_mm512_cvtneps_pbh((__m512)lanes(x + i));
        memcpy((char *)to + 2 * i, &all, sizeof all);
    }
#else
    (void)to, (void)x, (void)n;
#endif
}

/* Two rows of n numbers as units, for sums over rows; n in whole vectors; next NULL: zeros. */
static inline void down_units(Unit *to, const float *x, const float *next, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        Bits all = paired(lanes(x + i), next ? lanes(next + i) : (Lanes){0});
        memcpy(to + i, &all, sizeof all);
    }
}

/* How rows x (count, n) of a block are multiplied: the returned units for sums over features, and
   `kept` for sums over rows, which hold (row pairs, n) in bfloat16. In float32 both are one. */
static inline Left as_units(const float *x, int64_t count, int64_t n, Unit *kept, Unit *room,
                            int halves) {
    if (!halves) {
        memcpy(kept, x, count * n * sizeof *kept);
        return (Left){kept, n, 1};
    }
    for (int64_t r = 0; r < count; r++) across_units(room + r * n / 2, x + r * n, n);
    for (int64_t r = 0; r < count; r += 2)
        down_units(kept + r / 2 * n, x + r * n, r + 1 < count ? x + (r + 1) * n : NULL, n);
    return (Left){room, n / 2, 1};
}
