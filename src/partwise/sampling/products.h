/* Sums of products: every token reads each weight once, however many rows of x it serves.

   The order of every sum stands here and is not the compiler's choice, so that a token comes out the
   same in any company: alone or with others, guessed ahead or not, by one thread or by several. (Only
   whether a product and a sum in one expression are fused is left to the compiler, which fuses all of
   them or none.) */

#include <stdint.h>
#include <string.h>

#include "whole.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "columns that lie together in a number are of a little-endian processor"
#endif

_Static_assert(LANES == 16, "weights lie in memory as native.py lays them out");

enum { BLOCK = 2 * LANES, QUADS = 4 * LANES, TILE_ROWS = 4, TILE_COLUMNS = 2 };

/* What a weight is held in, by its size in bytes. */
enum { FLOAT32 = 4, BFLOAT16 = 2, INT8 = 1 };

typedef struct {
    /* (rows, columns): float32; or bfloat16 in which each BLOCK of columns lies in pairs, column k
       beside column k + LANES, so that two vectors come from one; or int8 in units of a scale that
       QUADS columns share; NULL: there is no matrix */
    const void *weights;
    const float *scales; /* int8: (rows, columns / QUADS); else NULL */
    const float *bias;   /* (rows) or NULL */
    int64_t rows, columns, bytes;
} Matrix;

/* Room for rows of x as products with int8 read them: words, and what one is worth in each row. */
typedef struct {
    int16_t *words;
    float *units;
} Rounded;

static inline float wide(uint16_t number) {
    uint32_t bits = (uint32_t)number << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest in bfloat16, between two to the even one; what is no number stays none. */
static inline uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

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
static inline __attribute__((always_inline)) void tile(
    const char *w, const float *bias, const float *x, float *y, int64_t n, int64_t width,
    const int64_t size, const int rows, const int columns) {
    Lanes sums[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (int r = 0; r < rows; r++) {
            const char *of = w + (r * n + i) * size;
            for (int64_t line = 0; line < BLOCK * size; line += 64)
                __builtin_prefetch(of + rows * n * size + line);
            Lanes first, second;
            if (size == BFLOAT16) {
                Bits both;
                memcpy(&both, of, sizeof both);
                first = numbers(both << 16);
                second = numbers(both & 0xffff0000u);
            } else {
                first = lanes((const float *)of);
                second = lanes((const float *)of + LANES);
            }
            for (int c = 0; c < columns; c++) {
                sums[r][c] += first * lanes(x + c * n + i);
                sums[r][c] += second * lanes(x + c * n + i + LANES);
            }
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++) {
            float sum = together(sums[r][c]);
            for (int64_t k = i; k < n; k++) {
                const char *of = w + (r * n + k) * size;
                float weight = size == BFLOAT16 ? wide(*(const uint16_t *)of) : *(const float *)of;
                sum += weight * x[c * n + k];
            }
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

/* Rows `row` to `end` of W, `rows` at a time as far as they go; returns the first that is left. */
static inline __attribute__((always_inline)) int64_t tiles(
    const Matrix *m, const float *x, const Rounded *rounded, float *y, int64_t count, int64_t row,
    int64_t end, const int64_t size, const int rows) {
    int64_t n = m->columns;
    for (; row + rows <= end; row += rows) {
        const char *w = (const char *)m->weights + row * n * size;
        const float *scales = size == INT8 ? m->scales + row * (n / QUADS) : NULL;
        const float *bias = m->bias ? m->bias + row : NULL;
        for (int64_t c = 0, more = TILE_COLUMNS; c < count; c += more) {
            const int16_t *words = rounded->words + c * n;
            const float *units = rounded->units + c, *of_x = x + c * n;
            float *of_y = y + c * m->rows + row;
            if (c + more > count) more = 1;
            if (size == INT8 && more == 1)
                tile_int8((const int8_t *)w, scales, bias, words, units, of_y, n, m->rows, rows, 1);
            else if (size == INT8)
                tile_int8((const int8_t *)w, scales, bias, words, units, of_y, n, m->rows, rows,
                          TILE_COLUMNS);
            else if (more == 1)
                tile(w, bias, of_x, of_y, n, m->rows, size, rows, 1);
            else
                tile(w, bias, of_x, of_y, n, m->rows, size, rows, TILE_COLUMNS);
        }
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

/* y = x W^T + bias for the rows `row` to `end` of W; x (count, columns), y (count, rows). `rounded` has
   room for x in words. */
static void product(const Matrix *m, const float *x, const Rounded *rounded, float *y, int64_t count,
                    int64_t row, int64_t end) {
    if (m->bytes == INT8) {
        int64_t n = m->columns;
        for (int64_t c = 0; c < count; c++)
            rounded->units[c] = in_words(x + c * n, rounded->words + c * n, n);
        of_int8(m, x, rounded, y, count, row, end);
    } else if (m->bytes == BFLOAT16) {
        of_bfloat16(m, x, rounded, y, count, row, end);
    } else {
        of_float32(m, x, rounded, y, count, row, end);
    }
}
