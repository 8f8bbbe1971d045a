/* Sums of products: every token reads each weight once, however many rows of x it serves.

   The order of every sum stands here and is not the compiler's choice, so that a token comes out the
   same in any company: alone or with others, guessed ahead or not, by one thread or by several. (Only
   whether a product and a sum are fused is left to the compiler, which fuses all of them or none.) */

#include <stdint.h>
#include <string.h>

#include "vectors.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the pairs of bfloat16 columns are of a little-endian processor"
#endif

typedef struct {
    /* (rows, columns): float32, or bfloat16 in which each 32 columns lie in pairs, column k beside
       column k + 16, so that two vectors come from one; NULL: there is no such matrix */
    const void *weights;
    const float *bias; /* (rows) or NULL */
    int64_t rows, columns;
} Matrix;

enum { BLOCK = 2 * LANES, TILE_ROWS = 4, TILE_COLUMNS = 2 };

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
            if (size == 2) {
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
                float weight = size == 2 ? wide(*(const uint16_t *)of) : *(const float *)of;
                sum += weight * x[c * n + k];
            }
            y[c * width + r] = sum + (bias ? bias[r] : 0);
        }
}

/* Rows `row` to `end` of W, `rows` at a time as far as they go; returns the first that is left. */
static inline __attribute__((always_inline)) int64_t tiles(
    const Matrix *m, const float *x, float *y, int64_t count, int64_t row, int64_t end,
    const int64_t size, const int rows) {
    int64_t n = m->columns;
    for (; row + rows <= end; row += rows) {
        const char *w = (const char *)m->weights + row * n * size;
        const float *bias = m->bias ? m->bias + row : NULL;
        int64_t c = 0;
        for (; c + TILE_COLUMNS <= count; c += TILE_COLUMNS)
            tile(w, bias, x + c * n, y + c * m->rows + row, n, m->rows, size, rows, TILE_COLUMNS);
        for (; c < count; c++)
            tile(w, bias, x + c * n, y + c * m->rows + row, n, m->rows, size, rows, 1);
    }
    return row;
}

/* y = x W^T + bias for the rows `row` to `end` of W; x (count, columns), y (count, rows). */
static void product(const Matrix *m, int bfloat16, const float *x, float *y, int64_t count,
                    int64_t row, int64_t end) {
    if (bfloat16) {
        row = tiles(m, x, y, count, row, end, 2, TILE_ROWS);
        tiles(m, x, y, count, row, end, 2, 1);
    } else {
        row = tiles(m, x, y, count, row, end, 4, TILE_ROWS);
        tiles(m, x, y, count, row, end, 4, 1);
    }
}
