/* What is in sight of a token: keys and values of each slot of the cache, (slots, head_size), in
   float32 or, as `halves`, in bfloat16. */

#include <stdint.h>

#include "products.h"

/* What is read ahead of the sums (slots), as memory left to itself is slower. */
enum { SLOTS_AHEAD = 8 };

static inline __attribute__((always_inline)) Lanes sixteen(const void *memory, int64_t place,
                                                          const int halves) {
    return halves ? widened((const uint16_t *)memory + place) : lanes((const float *)memory + place);
}

static inline __attribute__((always_inline)) float single(const void *memory, int64_t place,
                                                         const int halves) {
    return halves ? wide(((const uint16_t *)memory)[place]) : ((const float *)memory)[place];
}

/* scores[slot] = query . keys[slot]. */
static inline __attribute__((always_inline)) void compare(
    const float *query, const void *keys, int64_t n, int64_t first, int64_t end, float *scores,
    const int halves) {
    const int64_t row = n * (halves ? 2 : 4);
    for (int64_t slot = first; slot < end; slot++) {
        int64_t place = slot * n, i = 0;
        const char *ahead = (const char *)keys + (slot + SLOTS_AHEAD) * row;
        for (int64_t byte = 0; byte < row; byte += 64) __builtin_prefetch(ahead + byte);
        Lanes even = {0}, odd = {0};
        for (; i + BLOCK <= n; i += BLOCK) {
            even += lanes(query + i) * sixteen(keys, place + i, halves);
            odd += lanes(query + i + LANES) * sixteen(keys, place + i + LANES, halves);
        }
        float sum = together(even + odd);
        for (; i < n; i++) sum += query[i] * single(keys, place + i, halves);
        scores[slot] = sum;
    }
}

/* `vectors` vectors of out = sum of weights[slot] * values[slot], from feature i on. */
static inline __attribute__((always_inline)) void mix_some(
    const float *weights, const void *values, int64_t n, int64_t i, int64_t first, int64_t end,
    float *out, const int halves, const int vectors) {
    Lanes sums[4] = {{0}};
    for (int64_t slot = first; slot < end; slot++)
        for (int v = 0; v < vectors; v++)
            sums[v] += weights[slot] * sixteen(values, slot * n + i + v * LANES, halves);
    memcpy(out + i, sums, vectors * sizeof *sums);
}

/* out = sum of weights[slot] * values[slot], slot after slot. */
static inline __attribute__((always_inline)) void mix(const float *weights, const void *values,
                                                      int64_t n, int64_t first, int64_t end,
                                                      float *out, const int halves) {
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        mix_some(weights, values, n, i, first, end, out, halves, 4);
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        mix_some(weights, values, n, i, first, end, out, halves, 2);
    for (; i + LANES <= n; i += LANES)
        mix_some(weights, values, n, i, first, end, out, halves, 1);
    for (; i < n; i++) {
        out[i] = 0;
        for (int64_t slot = first; slot < end; slot++)
            out[i] += weights[slot] * single(values, slot * n + i, halves);
    }
}
