/* Sums of products: every token reads each weight once, however many rows of x it serves.

   The order of every sum stands here and is not the compiler's choice, so that a token comes out the
   same in any company: alone or with others, guessed ahead or not, by one thread or by several. (Only
   whether a product and a sum in one expression are fused is left to the compiler, which fuses all of
   them or none.) */

#include <stdint.h>
#include <string.h>

#include "halves.h"
#include "whole.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "columns that lie together in a number are of a little-endian processor"
#endif

_Static_assert(LANES == 16, "weights lie in memory as native.py lays them out");

/* As many sums at once as the registers hold. */
#if defined(__AVX512F__)
#define TILE_COLUMNS 5
#else
#define TILE_COLUMNS 2
#endif

enum { QUADS = 4 * LANES, TILE_ROWS = 4 };

/* What a weight is held in, by its size in bytes. */
enum { FLOAT32 = 4, BFLOAT16 = 2, INT8 = 1 };

typedef struct {
    /* (rows, columns): float32; or bfloat16, whole blocks of columns in pairs; or int8 in units of a
       scale that QUADS columns share; NULL: there is no matrix */
    const void *weights;
    const float *scales; /* int8: (rows, columns / QUADS); else NULL */
    const float *bias;   /* (rows) or NULL */
    int64_t rows, columns, bytes;
} Matrix;

/* Room for rows of x as products read them: with bfloat16 in bfloat16 too, with int8 in words, and
   what one of these is worth in each row. */
typedef struct {
    union {
        Half *halves;
        int16_t *words;
    };
    float *units;
} Rounded;

/* The sum of a[i]. */
static inline float total(const float *a, int64_t n) {
    Lanes sums = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sums += lanes(a + i);
    float sum = together(sums);
    for (; i < n; i++) sum += a[i];
    return sum;
}

/* The sum of a[i] * b[i]. */
static inline float dot(const float *a, const float *b, int64_t n) {
    Lanes first = {0}, second = {0};
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        first += lanes(a + i) * lanes(b + i);
        second += lanes(a + i + LANES) * lanes(b + i + LANES);
    }
    float sum = together(first + second);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* a * b + c, where a branch may lie between: fused wherever the processor can. */
static inline float fused(float a, float b, float c) {
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* `rows` rows of W with `columns` rows of x: y[c][r] = W[r] . x[c] + bias[r]. The rows of W that come
   next are asked for meanwhile: left to itself, memory is a fifth slower. */
static inline __attribute__((always_inline)) void tile_float32(
    const float *w, const float *bias, const float *x, float *y, int64_t n, int64_t width,
    const int rows, const int columns) {
    Lanes sums[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int r = 0; r < rows; r++) {
            const float *of = w + r * n + i;
            __builtin_prefetch(of + rows * n);
            for (int c = 0; c < columns; c++) sums[r][c] += lanes(of) * lanes(x + c * n + i);
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++) {
            float sum = together(sums[r][c]);
            for (int64_t k = i; k < n; k++) sum += w[r * n + k] * x[c * n + k];
            y[c * width + r] = sum + (bias ? bias[r] : 0);
        }
}

/* The same of bfloat16, with the blocks of x in `halves`. */
static inline __attribute__((always_inline)) void tile_bfloat16(
    const uint16_t *w, const float *bias, const float *x, const Half *halves, float *y, int64_t n,
    int64_t width, const int rows, const int columns) {
    Lanes sums[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    int64_t blocks = n / BLOCK, row = blocks * HALVES_OF_BLOCK;
    for (int64_t i = 0; i < blocks; i++)
        for (int r = 0; r < rows; r++) {
            const uint16_t *of = w + r * n + i * BLOCK;
            __builtin_prefetch(of + rows * n);
            Block weights = block(of);
            for (int c = 0; c < columns; c++)
                sums[r][c] = with_block(sums[r][c], weights, halves + c * row + i * HALVES_OF_BLOCK);
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++) {
            float sum = together(sums[r][c]);
            for (int64_t k = blocks * BLOCK; k < n; k++)
                sum += wide(w[r * n + k]) * wide(narrow(x[c * n + k]));
            y[c * width + r] = sum + (bias ? bias[r] : 0);
        }
}

/* The same of int8, with x in words of so many `units`: whole numbers are summed up exactly. */
static inline __attribute__((always_inline)) void tile_int8(
    const int8_t *w, const float *scales, const float *bias, const int16_t *x, const float *units,
    float *y, int64_t n, int64_t width, const int rows, const int columns) {
    Lanes sums[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    for (int64_t i = 0; i < n; i += QUADS)
        for (int r = 0; r < rows; r++) {
            const int8_t *of = w + r * n + i;
            __builtin_prefetch(of + rows * n);
            Words first = from_bytes(of), second = from_bytes(of + QUADS / 2);
            float scale = scales[r * (n / QUADS) + i / QUADS];
            for (int c = 0; c < columns; c++) {
                const int16_t *of_x = x + c * n + i;
                Whole sum = pairs((Whole){0}, first, from_words(of_x));
                sum = pairs(sum, second, from_words(of_x + QUADS / 2));
                sums[r][c] += __builtin_convertvector(sum, Lanes) * scale;
            }
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            y[c * width + r] = fused(together(sums[r][c]), units[c], bias ? bias[r] : 0);
}

/* `rows` rows of W from `row` on, with `columns` rows of x from c on, of any kind of weights. */
static inline __attribute__((always_inline)) void any_tile(
    const Matrix *m, const float *x, const Rounded *rounded, float *y, int64_t c, int64_t row,
    const int64_t size, const int rows, const int columns) {
    int64_t n = m->columns, place = row * n;
    const float *bias = m->bias ? m->bias + row : NULL;
    x += c * n, y += c * m->rows + row;
    if (size == INT8)
        tile_int8((const int8_t *)m->weights + place, m->scales + place / QUADS, bias,
                  rounded->words + c * n, rounded->units + c, y, n, m->rows, rows, columns);
    else if (size == BFLOAT16)
        tile_bfloat16((const uint16_t *)m->weights + place, bias, x,
                      rounded->halves + c * (n / BLOCK) * HALVES_OF_BLOCK, y, n, m->rows, rows,
                      columns);
    else
        tile_float32((const float *)m->weights + place, bias, x, y, n, m->rows, rows, columns);
}

/* Rows `row` to `end` of W, `rows` at a time as far as they go; returns the first that is left. */
static inline __attribute__((always_inline)) int64_t tiles(
    const Matrix *m, const float *x, const Rounded *rounded, float *y, int64_t count, int64_t row,
    int64_t end, const int64_t size, const int rows) {
    for (; row + rows <= end; row += rows)
        for (int64_t c = 0; c < count; c += TILE_COLUMNS)
            switch (count - c) {
            case 1: any_tile(m, x, rounded, y, c, row, size, rows, 1); break;
#if TILE_COLUMNS > 2
            case 2: any_tile(m, x, rounded, y, c, row, size, rows, 2); break;
            case 3: any_tile(m, x, rounded, y, c, row, size, rows, 3); break;
            case 4: any_tile(m, x, rounded, y, c, row, size, rows, 4); break;
#endif
            default: any_tile(m, x, rounded, y, c, row, size, rows, TILE_COLUMNS);
            }
    return row;
}

/* All of a kind of weights by itself, or the compiler runs out of registers for the sums. */
#define ALL_TILES(name, size)                                                                       \
    static __attribute__((noinline)) void name(const Matrix *m, const float *x,                     \
                                               const Rounded *rounded, float *y, int64_t count,     \
                                               int64_t row, int64_t end) {                          \
        row = tiles(m, x, rounded, y, count, row, end, size, TILE_ROWS);                            \
        tiles(m, x, rounded, y, count, row, end, size, 1);                                          \
    }

ALL_TILES(of_float32, FLOAT32)
ALL_TILES(of_bfloat16, BFLOAT16)
ALL_TILES(of_int8, INT8)

/* y = x W^T + bias for the rows `row` to `end` of W; x (count, columns), y (count, rows). */
static void product(const Matrix *m, const float *x, const Rounded *rounded, float *y, int64_t count,
                    int64_t row, int64_t end) {
    int64_t n = m->columns;
    if (m->bytes == INT8) {
        for (int64_t c = 0; c < count; c++)
            rounded->units[c] = in_words(x + c * n, rounded->words + c * n, n);
        of_int8(m, x, rounded, y, count, row, end);
    } else if (m->bytes == BFLOAT16) {
        for (int64_t c = 0; c < count; c++)
            in_halves(x + c * n, rounded->halves + c * (n / BLOCK) * HALVES_OF_BLOCK, n);
        of_bfloat16(m, x, rounded, y, count, row, end);
    } else {
        of_float32(m, x, rounded, y, count, row, end);
    }
}
