/* Sums of products: every token reads each weight once, however many rows of x it serves.

   The order of every sum stands here and is not the compiler's choice, so that a token comes out the
   same in any company: alone or with others, guessed ahead or not, by one thread or by several. (Only
   whether a product and a sum are fused is left to the compiler, which fuses all of them or none.) */

#include <stdint.h>
#include <string.h>

#include "vectors.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "columns that lie together in a number are of a little-endian processor"
#endif

enum { BLOCK = 2 * LANES, QUADS = 4 * LANES, TILE_ROWS = 4, TILE_COLUMNS = 2 };

/* What a weight is held in, by its size in bytes. */
enum { FLOAT32 = 4, BFLOAT16 = 2, INT8 = 1 };

typedef struct {
    /* (rows, columns): float32; or bfloat16 in which each BLOCK of columns lies in pairs, column k
       beside column k + LANES, so that two vectors come from one; or int8 in which each QUADS of
       columns lie in fours, k, k + LANES, …, so that four come from one; NULL: there is no matrix */
    const void *weights;
    const float *scales; /* int8: (rows, columns / QUADS), what a number of 32 bits counts in units of
                            the weight; else NULL */
    const float *bias;   /* (rows) or NULL */
    int64_t rows, columns, bytes;
} Matrix;

/* One instruction, where there is one. */
static inline Lanes converted(Bits bits) {
    int32_t whole[LANES];
    float all[LANES];
    memcpy(whole, &bits, sizeof whole);
    for (int i = 0; i < LANES; i++) all[i] = (float)whole[i];
    return lanes(all);
}

static inline float wide(uint16_t number) {
    uint32_t bits = (uint32_t)number << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
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

/* The same of int8. The byte of a column and those of the columns below it are one number, which is
   as near to the weight as the byte alone would be, see native.py: nothing has to be masked. */
static inline __attribute__((always_inline)) void tile_int8(
    const char *w, const float *scales, const float *bias, const float *x, float *y, int64_t n,
    int64_t width, const int rows, const int columns) {
    Lanes sums[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    for (int64_t i = 0; i < n; i += QUADS)
        for (int r = 0; r < rows; r++) {
            const char *of = w + r * n + i;
            __builtin_prefetch(of + rows * n);
            Bits bits;
            memcpy(&bits, of, sizeof bits);
            Lanes first = converted(bits << 24), second = converted(bits << 16);
            Lanes third = converted(bits << 8), fourth = converted(bits);
            float scale = scales[r * (n / QUADS) + i / QUADS];
            for (int c = 0; c < columns; c++) {
                const float *of_x = x + c * n + i;
                Lanes sum = first * lanes(of_x);
                sum += second * lanes(of_x + LANES);
                sum += third * lanes(of_x + 2 * LANES);
                sum += fourth * lanes(of_x + 3 * LANES);
                sums[r][c] += sum * scale;
            }
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            y[c * width + r] = together(sums[r][c]) + (bias ? bias[r] : 0);
}

/* Rows `row` to `end` of W, `rows` at a time as far as they go; returns the first that is left. */
static inline __attribute__((always_inline)) int64_t tiles(
    const Matrix *m, const float *x, float *y, int64_t count, int64_t row, int64_t end,
    const int64_t size, const int rows) {
    int64_t n = m->columns;
    for (; row + rows <= end; row += rows) {
        const char *w = (const char *)m->weights + row * n * size;
        const float *scales = size == INT8 ? m->scales + row * (n / QUADS) : NULL;
        const float *bias = m->bias ? m->bias + row : NULL;
        for (int64_t c = 0, more = TILE_COLUMNS; c < count; c += more) {
            const float *of_x = x + c * n;
            float *of_y = y + c * m->rows + row;
            if (c + more > count) more = 1;
            if (size == INT8 && more == 1)
                tile_int8(w, scales, bias, of_x, of_y, n, m->rows, rows, 1);
            else if (size == INT8)
                tile_int8(w, scales, bias, of_x, of_y, n, m->rows, rows, TILE_COLUMNS);
            else if (more == 1)
                tile(w, bias, of_x, of_y, n, m->rows, size, rows, 1);
            else
                tile(w, bias, of_x, of_y, n, m->rows, size, rows, TILE_COLUMNS);
        }
    }
    return row;
}

/* y = x W^T + bias for the rows `row` to `end` of W; x (count, columns), y (count, rows). */
static void product(const Matrix *m, const float *x, float *y, int64_t count, int64_t row,
                    int64_t end) {
    if (m->bytes == INT8) {
        row = tiles(m, x, y, count, row, end, INT8, TILE_ROWS);
        tiles(m, x, y, count, row, end, INT8, 1);
    } else if (m->bytes == BFLOAT16) {
        row = tiles(m, x, y, count, row, end, BFLOAT16, TILE_ROWS);
        tiles(m, x, y, count, row, end, BFLOAT16, 1);
    } else {
        row = tiles(m, x, y, count, row, end, FLOAT32, TILE_ROWS);
        tiles(m, x, y, count, row, end, FLOAT32, 1);
    }
}
