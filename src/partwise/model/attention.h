/* Causal attention and its gradient, one head of one text at a time, in a core's cache.

   Operation by operation, a small model spends more time on carrying queries, keys and weights to and
   from memory than on multiplying them. Here a head is read once: its queries and keys are normed,
   turned and scaled, and a few queries at a time then meet the keys up to them. Of the weights
   nothing is kept but the logarithm of each query's sum, from which the gradient computes them again
   (Dao et al., "FlashAttention", 2022, section 3.1). A head is one thread's work from beginning to
   end, so that the number of threads changes no result. */

#pragma once

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#include "units.h"

/* Queries that meet the keys together, a multiple of DOWN; and tokens whose numbers are prepared
   together, so that none is read again before it has reached the cache. */
enum { QUERIES = 24, TOGETHER = 8 };

typedef struct {
    int64_t texts, length, heads, size; /* B, T, heads, features of a head */
    int64_t threads;
    const float *of_query, *of_key; /* (size): learned scales of the norms; NULL: there are none */
    const float *cosine, *sine;     /* (T, whole vectors of size); NULL: nothing is turned */
    double eps;                     /* of the norms */
    uint64_t seed;                  /* which weights are dropped follows from it */
    int64_t dropped;                /* of 65,536 weights; 0: none */
    double kept;                    /* what the others are multiplied by */
    int64_t halves;                 /* products in bfloat16 */
} Shape;

/* What a thread works in: one head, features in whole vectors with zeros behind. */
typedef struct {
    int64_t wide, lone;                         /* size and T in whole vectors */
    float *q, *k, *v, *to, *of_q, *of_k, *of_v; /* (T, wide) */
    Unit *k_turned, *v_turned;                  /* features by tokens: (wide or half of it, lone) */
    float *weights, *slopes;                    /* (QUERIES, lone) */
    /* In bfloat16: the same for sums over features or keys, and for sums over tokens, in pairs. */
    Unit *q_across, *k_across, *v_across, *to_across; /* (T, wide / 2) */
    Unit *q_down, *k_down, *v_down, *to_down;         /* (T / 2, wide) */
    Unit *weights_across, *slopes_across;             /* (QUERIES, lone / 2) */
    Unit *weights_down, *slopes_down;                 /* (QUERIES / 2, lone) */
} Room;

/* --- Vectors ----------------------------------------------------------------------------------- */

static inline void put(float *x, Lanes all) { memcpy(x, &all, sizeof all); }

static inline Bits bits(Lanes all) {
    Bits same;
    memcpy(&same, &all, sizeof same);
    return same;
}

static inline Lanes only(Bits which, Lanes all) { return numbers(bits(all) & which); }

static inline int64_t whole(int64_t n) { return (n + WHOLE - 1) / WHOLE * WHOLE; }

/* The sum of a[i] b[i]. */
static inline float dot(const float *a, const float *b, int64_t n) {
    Lanes sums = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sums += lanes(a + i) * lanes(b + i);
    float sum = together(sums);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* n numbers, by whole vectors if they are. */
static inline void copy(float *to, const float *from, int64_t n) {
    if (n % LANES)
        memcpy(to, from, n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i += LANES) put(to + i, lanes(from + i));
}

/* exp(x) of numbers up to about 0, to float32's precision. */
static inline Lanes exponential(Lanes x) {
    const float nearest = 12582912; /* 1.5 2^23: a sum with it is rounded to a whole number */
    Bits low = (Bits)(x < -87.0f);
    x = numbers((bits((Lanes){0} - 87.0f) & low) | (bits(x) & ~low));
    Lanes n = x * 1.44269504f + nearest;
    Bits power = (bits(n) + 127) << 23;
    n -= nearest;
    Lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * numbers(power);
}

/* --- Products ---------------------------------------------------------------------------------- */

/* Numbers (count, n) as the left side of a product over their columns; `down` is given them for one
   over their rows. In float32 both are the numbers themselves. */
static inline Left across_and_down(const Shape *shape, const float *x, int64_t count, int64_t n,
                                   Unit *across, Unit *down) {
    if (!shape->halves) return (Left){(const Unit *)x, n, 1};
    return as_units(x, count, n, down, across, 1);
}

/* Numbers (count, n), a row of which is `row` long, as the left side of a product over columns. */
static inline Left across_of(const Shape *shape, const float *x, int64_t count, int64_t n,
                             int64_t row, Unit *across) {
    if (!shape->halves) return (Left){(const Unit *)x, row, 1};
    for (int64_t r = 0; r < count; r++) across_units(across + r * row / 2, x + r * row, n);
    return (Left){across, row / 2, 1};
}

/* The same in pairs of rows, for a product over them. */
static inline void down_of(const Shape *shape, const float *x, int64_t count, int64_t n,
                           int64_t row, Unit *down) {
    for (int64_t r = 0; shape->halves && r < count; r += 2)
        down_units(down + r / 2 * row, x + r * row, r + 1 < count ? x + (r + 1) * row : NULL, n);
}

/* As the right side of a product over rows, from row `first` on; first is even. */
static inline const Unit *right(const Shape *shape, const float *x, const Unit *down,
                                int64_t first, int64_t n) {
    return shape->halves ? down + first / 2 * n : (const Unit *)x + first * n;
}

/* As the left side of a product over rows. */
static inline Left turned(const Shape *shape, const float *x, const Unit *down, int64_t n) {
    return (Left){shape->halves ? down : (const Unit *)x, 1, n};
}

/* Units of a sum over n numbers. */
static inline int64_t depth(const Shape *shape, int64_t n) {
    return shape->halves ? (n + 1) / 2 : n;
}

/* C (rows, columns) = A B or C += A B, both rows of C and of B being as long. */
static inline void multiply(const Shape *shape, float *c, int64_t row, Left a, const Unit *b,
                            int64_t rows, int64_t sum, int64_t columns, int add) {
    multiply_units(c, row, a, b, row, rows, depth(shape, sum), columns, add, (int)shape->halves);
}

/* --- A head's queries, keys and values --------------------------------------------------------- */

/* The learned scales of a norm times `factor`, or `factor` without a norm, in whole vectors. */
static void scales_in(const Shape *shape, const float *of_norm, float factor, float *to) {
    for (int64_t i = 0; i < shape->size; i++) to[i] = of_norm ? of_norm[i] * factor : factor;
    for (int64_t i = shape->size; i < whole(shape->size); i++) to[i] = 0;
}

/* 1 / sqrt(mean(x²) + eps), or 1 without a norm; x in whole vectors with zeros behind. */
static inline float scale_of(const Shape *shape, const float *of_norm, const float *x,
                             int64_t wide) {
    return of_norm ? 1 / sqrtf(dot(x, x, wide) / shape->size + (float)shape->eps) : 1;
}

/* y_i = x_i cos_i + x_(i +- n/2) sin_i: feature i and the one half a head away are a point in a
   plane; with `way` -1 it is turned back. x stands twice, one behind the other. */
static inline void turn(const Shape *shape, int64_t token, float way, const float *x, float *y,
                        int64_t wide) {
    const float *cosine = shape->cosine + token * wide, *sine = shape->sine + token * wide;
    const float *other = x + shape->size / 2;
    for (int64_t i = 0; i < wide; i += LANES)
        put(y + i, lanes(x + i) * lanes(cosine + i) + way * lanes(other + i) * lanes(sine + i));
}

/* Queries or keys as they meet: normed, multiplied by `factor`, and turned. */
static void prepare(const Shape *shape, const float *from, const float *of_norm, float factor,
                    float *to, int64_t wide) {
    int64_t n = shape->size, row = 3 * shape->heads * n;
    float scales[wide], x[wide], twice[TOGETHER][2 * wide];
    scales_in(shape, of_norm, factor, scales);
    memset(x, 0, sizeof x);
    memset(twice, 0, sizeof twice);
    for (int64_t first = 0; first < shape->length; first += TOGETHER) {
        int64_t count = shape->length - first < TOGETHER ? shape->length - first : TOGETHER;
        for (int64_t t = 0; t < count; t++) {
            copy(x, from + (first + t) * row, n);
            float scale = scale_of(shape, of_norm, x, wide);
            float *y = shape->cosine ? twice[t] : to + (first + t) * wide;
            for (int64_t i = 0; i < wide; i += LANES)
                put(y + i, lanes(x + i) * scale * lanes(scales + i));
        }
        if (!shape->cosine) continue;
        for (int64_t t = 0; t < count; t++) copy(twice[t] + n, twice[t], n);
        for (int64_t t = 0; t < count; t++)
            turn(shape, first + t, 1, twice[t], to + (first + t) * wide, wide);
    }
}

/* What `prepare` did, backwards: `slope` (T, wide) are the gradients of what it made; `out` lies as
   `from` does, and `of_scales` (size) are those of the norm's scales. */
static void unprepare(const Shape *shape, const float *from, const float *of_norm, float factor,
                      const float *slope, int64_t wide, float *out, float *of_scales) {
    int64_t n = shape->size, row = 3 * shape->heads * n;
    float scales[wide], x[wide], twice[TOGETHER][2 * wide], back[TOGETHER][wide], sums[wide];
    scales_in(shape, of_norm, factor, scales);
    memset(x, 0, sizeof x);
    memset(sums, 0, sizeof sums);
    memset(twice, 0, sizeof twice);
    for (int64_t first = 0; first < shape->length; first += TOGETHER) {
        int64_t count = shape->length - first < TOGETHER ? shape->length - first : TOGETHER;
        for (int64_t t = 0; shape->cosine && t < count; t++) {
            copy(twice[t], slope + (first + t) * wide, n);
            copy(twice[t] + n, slope + (first + t) * wide, n);
        }
        for (int64_t t = 0; shape->cosine && t < count; t++)
            turn(shape, first + t, -1, twice[t], back[t], wide);
        for (int64_t t = 0; t < count; t++) {
            const float *g = shape->cosine ? back[t] : slope + (first + t) * wide;
            copy(x, from + (first + t) * row, n);
            float scale = scale_of(shape, of_norm, x, wide);
            Lanes along = {0};
            for (int64_t i = 0; i < wide; i += LANES) {
                Lanes product = lanes(g + i) * lanes(x + i) * scale;
                put(sums + i, lanes(sums + i) + product);
                along += product * lanes(scales + i);
            }
            float mean = of_norm ? together(along) * scale / n : 0;
            for (int64_t i = 0; i < wide; i += LANES)
                put(back[t] + i, scale * (lanes(g + i) * lanes(scales + i) - lanes(x + i) * mean));
            copy(out + (first + t) * row, back[t], n);
        }
    }
    for (int64_t i = 0; i < n; i++) of_scales[i] = sums[i] * factor;
}

/* Rows of `n` numbers, `row` apart, into whole vectors. */
static void gather(const float *from, int64_t row, int64_t n, int64_t length, float *to,
                   int64_t wide) {
    for (int64_t token = 0; token < length; token++, from += row, to += wide) {
        copy(to, from, n);
        for (int64_t i = n; i < wide; i++) to[i] = 0;
    }
}

/* (T, wide) -> (wide, lone), zeros behind the last token; of units in bfloat16 half as wide. */
static void transpose(const Shape *shape, Left from, Unit *to, const Room *room) {
    for (int64_t i = 0; i < from.down; i++, to += room->lone) {
        for (int64_t token = 0; token < shape->length; token++)
            to[token] = from.at[token * from.down + i];
        for (int64_t token = shape->length; token < room->lone; token++) to[token] = 0;
    }
}

/* Where a head's queries (part 0), keys (1) or values (2) begin in qkv; 3 heads size numbers lie
   from one token to the next. */
static int64_t part_of(const Shape *shape, int64_t unit, int64_t part) {
    int64_t text = unit / shape->heads, head = unit % shape->heads;
    return ((text * shape->length * 3 + part) * shape->heads + head) * shape->size;
}

/* A head's queries, keys and values; returned are they as left sides of products. */
typedef struct {
    Left q, k, v;
} Sides;

static Sides read_head(const Shape *shape, const float *qkv, int64_t unit, Room *room) {
    int64_t n = shape->size, length = shape->length, wide = room->wide;
    prepare(shape, qkv + part_of(shape, unit, 0), shape->of_query, 1 / sqrtf((float)n), room->q,
            wide);
    prepare(shape, qkv + part_of(shape, unit, 1), shape->of_key, 1, room->k, wide);
    gather(qkv + part_of(shape, unit, 2), 3 * shape->heads * n, n, length, room->v, wide);
    Sides sides = {
        across_and_down(shape, room->q, length, wide, room->q_across, room->q_down),
        across_and_down(shape, room->k, length, wide, room->k_across, room->k_down),
        across_and_down(shape, room->v, length, wide, room->v_across, room->v_down)};
    transpose(shape, sides.k, room->k_turned, room);
    return sides;
}

/* A block of queries from `first` on. */
static inline Left from_token(Left all, int64_t first) {
    return (Left){all.at + first * all.down, all.down, 1};
}

/* --- Weights ----------------------------------------------------------------------------------- */

#if LANES == 16
static const Bits ORDER = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
static const Bits ORDER = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

/* All bits of each of LANES keys from `first` on that is one of the first `count`. */
static inline Bits among(int64_t first, int64_t count) {
    return (Bits)(ORDER + (uint32_t)first < (Bits){0} + (uint32_t)count);
}

/* The draw number `at` that follows from a seed (splitmix64). */
static uint32_t scattered(uint64_t seed, int64_t at) {
    uint64_t value = seed + (uint64_t)(at + 1) * 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(value ^ (value >> 31));
}

/* What the draws for a query's weights follow from. */
static uint32_t seed_of(const Shape *shape, int64_t unit, int64_t query) {
    return scattered(shape->seed, unit * shape->length + query);
}

/* All bits of each of LANES keys from `first` on whose weight is kept: a hash of the key decides. */
static inline Bits undropped(uint32_t dropped, uint32_t seed, int64_t first) {
    Bits value = (ORDER + (uint32_t)first) * 0x9E3779B9u + seed;
    value = (value ^ (value >> 16)) * 0x21F0AAADu;
    value = (value ^ (value >> 15)) * 0x735A2D97u;
    value = (value ^ (value >> 15)) >> 16;
    return (Bits)(value >= (Bits){0} + dropped);
}

/* A query's scores with the keys -> exp(score - most) of the first `seen`, kept or dropped, and
   zeros behind. Returns the sum of all, dropped ones too. */
static float exponentials(uint32_t dropped, uint32_t seed, float *x, int64_t seen,
                          int64_t columns, float *most) {
    Lanes top = (Lanes){0} - INFINITY, sum = {0};
    for (int64_t j = 0; j < columns; j += LANES) {
        Lanes score = lanes(x + j);
        Bits above = (Bits)(score > top) & among(j, seen);
        top = numbers((bits(score) & above) | (bits(top) & ~above));
    }
    float largest = top[0];
    for (int lane = 1; lane < LANES; lane++) largest = top[lane] > largest ? top[lane] : largest;
    for (int64_t j = 0; j < columns; j += LANES) {
        Lanes all = only(among(j, seen), exponential(lanes(x + j) - largest));
        sum += all;
        put(x + j, dropped ? only(undropped(dropped, seed, j), all) : all);
    }
    *most = largest;
    return together(sum);
}

/* A query's scores and the gradients of its weights -> its weights as they were used, and the
   gradients of the scores: weight (gradient - along), where `along` is the sum of weight times
   gradient. It could be had from the result too, but not to the last bit of these gradients, which
   would then no longer sum up to zero. */
static void slopes(const Shape *shape, uint32_t seed, float *x, float *slope, float sum,
                   int64_t seen, int64_t columns) {
    uint32_t dropped = (uint32_t)shape->dropped;
    float kept = (float)shape->kept;
    Lanes all = {0};
    for (int64_t j = 0; j < columns; j += LANES) {
        Lanes weight = only(among(j, seen), exponential(lanes(x + j) - sum));
        Lanes of = lanes(slope + j);
        if (dropped) of = only(undropped(dropped, seed, j), of * kept);
        all += weight * of;
        put(x + j, weight);
        put(slope + j, of);
    }
    float along = together(all);
    for (int64_t j = 0; j < columns; j += LANES) {
        Lanes weight = lanes(x + j);
        put(slope + j, weight * (lanes(slope + j) - along));
        if (dropped) put(x + j, only(undropped(dropped, seed, j), weight * kept));
    }
}

/* --- A head ------------------------------------------------------------------------------------ */

/* softmax(q kᵀ) v of one head; `sums` (T) are given the logarithms of the softmax's sums. */
static void head_forward(const Shape *shape, const float *qkv, int64_t unit, Room *room, float *y,
                         float *sums) {
    int64_t n = shape->size, wide = room->wide, lone = room->lone, length = shape->length;
    int64_t row = shape->heads * n;
    y += unit / shape->heads * length * row + unit % shape->heads * n;
    Sides sides = read_head(shape, qkv, unit, room);
    for (int64_t first = 0; first < length; first += QUERIES) {
        int64_t end = first + QUERIES < length ? first + QUERIES : length;
        int64_t count = end - first, columns = whole(end);
        float inverse[QUERIES];
        multiply(shape, room->weights, lone, from_token(sides.q, first), room->k_turned, count,
                 wide, columns, 0);
        for (int64_t i = 0; i < count; i++) {
            float most;
            float sum = exponentials((uint32_t)shape->dropped, seed_of(shape, unit, first + i),
                                     room->weights + i * lone, first + i + 1, columns, &most);
            inverse[i] = (float)shape->kept / sum;
            sums[first + i] = most + logf(sum);
        }
        Left weights = across_of(shape, room->weights, count, columns, lone, room->weights_across);
        multiply(shape, room->of_q, wide, weights, right(shape, room->v, room->v_down, 0, wide),
                 count, end, wide, 0);
        for (int64_t i = 0; i < count; i++)
            for (int64_t d = 0; d < n; d++)
                y[(first + i) * row + d] = room->of_q[i * wide + d] * inverse[i];
    }
}

/* The gradients of one head; `scales` (2, size) are given those of the norms' scales. */
static void head_backward(const Shape *shape, const float *qkv, const float *sums,
                          const float *of_y, int64_t unit, Room *room, float *out, float *scales) {
    int64_t n = shape->size, wide = room->wide, lone = room->lone, length = shape->length;
    int64_t row = shape->heads * n;
    of_y += unit / shape->heads * length * row + unit % shape->heads * n;
    Sides sides = read_head(shape, qkv, unit, room);
    gather(of_y, row, n, length, room->to, wide);
    Left to = across_and_down(shape, room->to, length, wide, room->to_across, room->to_down);
    transpose(shape, sides.v, room->v_turned, room);
    memset(room->of_k, 0, length * wide * sizeof *room->of_k);
    memset(room->of_v, 0, length * wide * sizeof *room->of_v);
    for (int64_t first = 0; first < length; first += QUERIES) {
        int64_t end = first + QUERIES < length ? first + QUERIES : length;
        int64_t count = end - first, columns = whole(end);
        multiply(shape, room->weights, lone, from_token(sides.q, first), room->k_turned, count,
                 wide, columns, 0);
        multiply(shape, room->slopes, lone, from_token(to, first), room->v_turned, count, wide,
                 columns, 0);
        for (int64_t i = 0; i < count; i++)
            slopes(shape, seed_of(shape, unit, first + i), room->weights + i * lone,
                   room->slopes + i * lone, sums[first + i], first + i + 1, columns);
        Left of = across_of(shape, room->slopes, count, columns, lone, room->slopes_across);
        down_of(shape, room->slopes, count, columns, lone, room->slopes_down);
        down_of(shape, room->weights, count, columns, lone, room->weights_down);
        multiply(shape, room->of_q + first * wide, wide, of,
                 right(shape, room->k, room->k_down, 0, wide), count, end, wide, 0);
        multiply(shape, room->of_k, wide, turned(shape, room->slopes, room->slopes_down, lone),
                 right(shape, room->q, room->q_down, first, wide), end, count, wide, 1);
        multiply(shape, room->of_v, wide, turned(shape, room->weights, room->weights_down, lone),
                 right(shape, room->to, room->to_down, first, wide), end, count, wide, 1);
    }
    int64_t queries = part_of(shape, unit, 0), keys = part_of(shape, unit, 1);
    unprepare(shape, qkv + queries, shape->of_query, 1 / sqrtf((float)n), room->of_q, wide,
              out + queries, scales);
    unprepare(shape, qkv + keys, shape->of_key, 1, room->of_k, wide, out + keys, scales + n);
    float *values = out + part_of(shape, unit, 2);
    for (int64_t token = 0; token < length; token++)
        copy(values + token * 3 * row, room->of_v + token * wide, n);
}

/* --- All heads --------------------------------------------------------------------------------- */

/* Lays out a thread's room; with memory NULL it only counts. Returns its numbers. */
static int64_t lay_out_head(const Shape *shape, float *memory, Room *room) {
    int64_t wide = whole(shape->size), lone = whole(shape->length), length = shape->length;
    int64_t each = length * wide, pairs = (length + 1) / 2 * wide, some = QUERIES * lone;
    int64_t over = shape->halves ? wide / 2 : wide;
    *room = (Room){.wide = wide, .lone = lone};
    const struct {
        void *place;
        int64_t count;
        int halves;
    } parts[] = {
        {&room->q, each, 0},          {&room->k, each, 0},
        {&room->v, each, 0},          {&room->to, each, 0},
        {&room->of_q, each, 0},       {&room->of_k, each, 0},
        {&room->of_v, each, 0},       {&room->k_turned, over * lone, 0},
        {&room->v_turned, over * lone, 0},
        {&room->weights, some, 0},    {&room->slopes, some, 0},
        {&room->q_across, each / 2, 1},  {&room->k_across, each / 2, 1},
        {&room->v_across, each / 2, 1},  {&room->to_across, each / 2, 1},
        {&room->q_down, pairs, 1},       {&room->k_down, pairs, 1},
        {&room->v_down, pairs, 1},       {&room->to_down, pairs, 1},
        {&room->weights_across, some / 2, 1}, {&room->slopes_across, some / 2, 1},
        {&room->weights_down, some / 2, 1},   {&room->slopes_down, some / 2, 1},
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].halves && !shape->halves) continue;
        float *place = memory ? memory + used : NULL;
        memcpy(parts[i].place, &place, sizeof place);
        used += whole(parts[i].count);
    }
    return used;
}

/* Numbers that each thread needs room for. */
static int64_t room_of(const Shape *shape) {
    Room room;
    return lay_out_head(shape, NULL, &room);
}

static Room own_room(const Shape *shape, float *memory) {
    Room room;
    lay_out_head(shape, memory + omp_get_thread_num() * room_of(shape), &room);
    return room;
}
