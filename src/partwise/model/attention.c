/* Causal attention and its gradient, one head of one text at a time, in a core's cache.

   Operation by operation, a small model spends more time on carrying queries, keys and weights to and
   from memory than on multiplying them. Here a head is read once: its queries and keys are normed,
   turned and scaled, and a few queries at a time then meet the keys up to them. Of the weights
   nothing is kept but the logarithm of each query's sum, from which the gradient computes them again
   (Dao et al., "FlashAttention", 2022, section 3.1). A head is one thread's work from beginning to
   end, so that the number of threads changes no result.

   `compiled_attention.py` fills `Shape`; its fields are the same, in the same order. */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#include "vectors.h"

/* Sums of TILE_ROWS times TILE_LANES vectors are held in the registers of AVX-512. */
enum { TILE_ROWS = 6, TILE_LANES = 4 };

/* Queries that meet the keys together. */
enum { QUERIES = 24 };

typedef struct {
    int64_t texts, length, heads, size; /* B, T, heads, features of a head */
    int64_t threads;
    const float *of_query, *of_key; /* (size): learned scales of the norms; NULL: there are none */
    const float *cosine, *sine;     /* (T, whole vectors of size); NULL: nothing is turned */
    double eps;                     /* of the norms */
    uint64_t seed;                  /* which weights are dropped follows from it */
    int64_t dropped;                /* of 65,536 weights; 0: none */
    double kept;                    /* what the others are multiplied by */
} Shape;

/* What a thread works in: one head, features in whole vectors with zeros behind. */
typedef struct {
    int64_t wide, lone;                         /* size and T in whole vectors */
    float *q, *k, *v, *to, *of_q, *of_k, *of_v; /* (T, wide) */
    float *k_turned, *v_turned;                 /* (wide, lone): features by tokens */
    float *weights, *slopes;                    /* (QUERIES, lone) */
} Room;

/* --- Vectors ----------------------------------------------------------------------------------- */

static inline void put(float *x, Lanes all) { memcpy(x, &all, sizeof all); }

static inline Bits bits(Lanes all) {
    Bits same;
    memcpy(&same, &all, sizeof same);
    return same;
}

static inline Lanes only(Bits which, Lanes all) { return numbers(bits(all) & which); }

static inline int64_t whole(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

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

/* c[r][j] = sum over k of a[r * down + k * across] b[k][j], or that added to c. */
static inline __attribute__((always_inline)) void tile(
    float *c, int64_t c_row, const float *a, int64_t down, int64_t across, const float *b,
    int64_t b_row, int64_t depth, int add, const int rows, const int vectors) {
    Lanes sums[TILE_ROWS][TILE_LANES];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sums[r][j] = add ? lanes(c + r * c_row + j * LANES) : (Lanes){0};
    for (int64_t k = 0; k < depth; k++) {
        Lanes of[TILE_LANES];
        for (int j = 0; j < vectors; j++) of[j] = lanes(b + k * b_row + j * LANES);
        for (int r = 0; r < rows; r++) {
            float factor = a[r * down + k * across];
            for (int j = 0; j < vectors; j++) sums[r][j] += factor * of[j];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) put(c + r * c_row + j * LANES, sums[r][j]);
}

static inline __attribute__((always_inline)) void strip(
    float *c, int64_t c_row, const float *a, int64_t down, int64_t across, const float *b,
    int64_t b_row, int64_t rows, int64_t depth, int add, const int vectors) {
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        tile(c + r * c_row, c_row, a + r * down, down, across, b, b_row, depth, add, TILE_ROWS,
             vectors);
    for (; r < rows; r++)
        tile(c + r * c_row, c_row, a + r * down, down, across, b, b_row, depth, add, 1, vectors);
}

/* C = A B or C += A B, with `columns` in whole vectors; element (r, k) of A is a[r down + k across],
   so that A may also be read turned. */
static void multiply(float *c, int64_t c_row, const float *a, int64_t down, int64_t across,
                     const float *b, int64_t b_row, int64_t rows, int64_t depth, int64_t columns,
                     int add) {
    int64_t left = columns / LANES;
    for (; left >= TILE_LANES; left -= TILE_LANES) {
        strip(c, c_row, a, down, across, b, b_row, rows, depth, add, TILE_LANES);
        c += TILE_LANES * LANES, b += TILE_LANES * LANES;
    }
    if (left == 3) strip(c, c_row, a, down, across, b, b_row, rows, depth, add, 3);
    if (left == 2) strip(c, c_row, a, down, across, b, b_row, rows, depth, add, 2);
    if (left == 1) strip(c, c_row, a, down, across, b, b_row, rows, depth, add, 1);
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
    float scales[wide], x[wide], twice[2 * wide];
    scales_in(shape, of_norm, factor, scales);
    memset(x, 0, sizeof x);
    memset(twice, 0, sizeof twice);
    for (int64_t token = 0; token < shape->length; token++, from += row, to += wide) {
        copy(x, from, n);
        float scale = scale_of(shape, of_norm, x, wide);
        float *y = shape->cosine ? twice : to;
        for (int64_t i = 0; i < wide; i += LANES)
            put(y + i, lanes(x + i) * scale * lanes(scales + i));
        if (shape->cosine) {
            copy(twice + n, twice, n);
            turn(shape, token, 1, twice, to, wide);
        }
    }
}

/* What `prepare` did, backwards: `slope` (T, wide) are the gradients of what it made; `out` lies as
   `from` does, and `of_scales` (size) are those of the norm's scales. */
static void unprepare(const Shape *shape, const float *from, const float *of_norm, float factor,
                      const float *slope, int64_t wide, float *out, float *of_scales) {
    int64_t n = shape->size, row = 3 * shape->heads * n;
    float scales[wide], x[wide], twice[2 * wide], back[wide], sums[wide];
    scales_in(shape, of_norm, factor, scales);
    memset(x, 0, sizeof x);
    memset(sums, 0, sizeof sums);
    memset(twice, 0, sizeof twice);
    for (int64_t token = 0; token < shape->length; token++, from += row, out += row) {
        const float *g = slope + token * wide;
        if (shape->cosine) {
            copy(twice, g, n);
            copy(twice + n, g, n);
            turn(shape, token, -1, twice, back, wide);
            g = back;
        }
        copy(x, from, n);
        float scale = scale_of(shape, of_norm, x, wide);
        Lanes along = {0};
        for (int64_t i = 0; i < wide; i += LANES) {
            Lanes product = lanes(g + i) * lanes(x + i) * scale;
            put(sums + i, lanes(sums + i) + product);
            along += product * lanes(scales + i);
        }
        float mean = of_norm ? together(along) * scale / n : 0;
        for (int64_t i = 0; i < wide; i += LANES)
            put(back + i, scale * (lanes(g + i) * lanes(scales + i) - lanes(x + i) * mean));
        copy(out, back, n);
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

/* (T, wide) -> (wide, lone), zeros behind the last token. */
static void transpose(const float *from, int64_t length, float *to, const Room *room) {
    for (int64_t i = 0; i < room->wide; i++) {
        float *row = to + i * room->lone;
        for (int64_t token = 0; token < length; token++) row[token] = from[token * room->wide + i];
        for (int64_t token = length; token < room->lone; token++) row[token] = 0;
    }
}

/* Where a head's queries (part 0), keys (1) or values (2) begin in qkv; 3 heads size numbers lie
   from one token to the next. */
static int64_t part_of(const Shape *shape, int64_t unit, int64_t part) {
    int64_t text = unit / shape->heads, head = unit % shape->heads;
    return ((text * shape->length * 3 + part) * shape->heads + head) * shape->size;
}

static void read_head(const Shape *shape, const float *qkv, int64_t unit, Room *room) {
    int64_t n = shape->size;
    prepare(shape, qkv + part_of(shape, unit, 0), shape->of_query, 1 / sqrtf((float)n), room->q,
            room->wide);
    prepare(shape, qkv + part_of(shape, unit, 1), shape->of_key, 1, room->k, room->wide);
    gather(qkv + part_of(shape, unit, 2), 3 * shape->heads * n, n, shape->length, room->v,
           room->wide);
    transpose(room->k, shape->length, room->k_turned, room);
}

/* --- Weights ----------------------------------------------------------------------------------- */

static const Bits ORDER = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* All bits of each of 16 keys from `first` on that is one of the first `count`. */
static inline Bits among(int64_t first, int64_t count) {
    return (Bits)(ORDER + (uint32_t)first < (Bits){0} + (uint32_t)count);
}

/* What the draws for a query's weights follow from (splitmix64). */
static uint32_t seed_of(const Shape *shape, int64_t unit, int64_t query) {
    uint64_t at = (uint64_t)(unit * shape->length + query + 1);
    uint64_t value = shape->seed + at * 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(value ^ (value >> 31));
}

/* All bits of each of 16 keys from `first` on whose weight is kept: a hash of the key decides. */
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
   gradient. */
static void slopes(const Shape *shape, uint32_t seed, float *x, float *slope, float sum,
                   float along, int64_t seen, int64_t columns) {
    uint32_t dropped = (uint32_t)shape->dropped;
    float kept = (float)shape->kept;
    for (int64_t j = 0; j < columns; j += LANES) {
        Lanes weight = only(among(j, seen), exponential(lanes(x + j) - sum));
        Lanes of = lanes(slope + j), used = weight;
        if (dropped) {
            Bits which = undropped(dropped, seed, j);
            of = only(which, of * kept);
            used = only(which, used * kept);
        }
        put(x + j, used);
        put(slope + j, weight * (of - along));
    }
}

/* --- A head ------------------------------------------------------------------------------------ */

/* softmax(q kᵀ) v of one head; `sums` (T) are given the logarithms of the softmax's sums. */
static void head_forward(const Shape *shape, const float *qkv, int64_t unit, Room *room, float *y,
                         float *sums) {
    int64_t n = shape->size, wide = room->wide, lone = room->lone, length = shape->length;
    int64_t row = shape->heads * n;
    y += unit / shape->heads * length * row + unit % shape->heads * n;
    read_head(shape, qkv, unit, room);
    for (int64_t first = 0; first < length; first += QUERIES) {
        int64_t end = first + QUERIES < length ? first + QUERIES : length;
        int64_t count = end - first, columns = whole(end);
        float inverse[QUERIES];
        multiply(room->weights, lone, room->q + first * wide, wide, 1, room->k_turned, lone, count,
                 n, columns, 0);
        for (int64_t i = 0; i < count; i++) {
            float most;
            float sum = exponentials((uint32_t)shape->dropped, seed_of(shape, unit, first + i),
                                     room->weights + i * lone, first + i + 1, columns, &most);
            inverse[i] = (float)shape->kept / sum;
            sums[first + i] = most + logf(sum);
        }
        multiply(room->of_q, wide, room->weights, lone, 1, room->v, wide, count, end, wide, 0);
        for (int64_t i = 0; i < count; i++)
            for (int64_t d = 0; d < n; d++)
                y[(first + i) * row + d] = room->of_q[i * wide + d] * inverse[i];
    }
}

/* The gradients of one head; `scales` (2, size) are given those of the norms' scales. */
static void head_backward(const Shape *shape, const float *qkv, const float *y, const float *sums,
                          const float *of_y, int64_t unit, Room *room, float *out, float *scales) {
    int64_t n = shape->size, wide = room->wide, lone = room->lone, length = shape->length;
    int64_t row = shape->heads * n;
    y += unit / shape->heads * length * row + unit % shape->heads * n;
    of_y += unit / shape->heads * length * row + unit % shape->heads * n;
    read_head(shape, qkv, unit, room);
    gather(of_y, row, n, length, room->to, wide);
    transpose(room->v, length, room->v_turned, room);
    memset(room->of_k, 0, length * wide * sizeof *room->of_k);
    memset(room->of_v, 0, length * wide * sizeof *room->of_v);
    for (int64_t first = 0; first < length; first += QUERIES) {
        int64_t end = first + QUERIES < length ? first + QUERIES : length;
        int64_t count = end - first, columns = whole(end);
        const float *q = room->q + first * wide, *to = room->to + first * wide;
        multiply(room->weights, lone, q, wide, 1, room->k_turned, lone, count, n, columns, 0);
        multiply(room->slopes, lone, to, wide, 1, room->v_turned, lone, count, n, columns, 0);
        for (int64_t i = 0; i < count; i++)
            slopes(shape, seed_of(shape, unit, first + i), room->weights + i * lone,
                   room->slopes + i * lone, sums[first + i],
                   dot(to + i * wide, y + (first + i) * row, n), first + i + 1, columns);
        multiply(room->of_q + first * wide, wide, room->slopes, lone, 1, room->k, wide, count, end,
                 wide, 0);
        multiply(room->of_k, wide, room->slopes, 1, lone, q, wide, end, count, wide, 1);
        multiply(room->of_v, wide, room->weights, 1, lone, to, wide, end, count, wide, 1);
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

/* Numbers that each thread needs room for. */
int64_t partwise_attention_room(const Shape *shape) {
    int64_t wide = whole(shape->size), lone = whole(shape->length);
    return 7 * shape->length * wide + 2 * wide * lone + 2 * QUERIES * lone;
}

static Room own_room(const Shape *shape, float *memory) {
    int64_t wide = whole(shape->size), lone = whole(shape->length), each = shape->length * wide;
    Room room = {.wide = wide, .lone = lone};
    float **parts[] = {&room.q, &room.k, &room.v, &room.to, &room.of_q, &room.of_k, &room.of_v};
    memory += omp_get_thread_num() * partwise_attention_room(shape);
    for (int i = 0; i < 7; i++, memory += each) *parts[i] = memory;
    room.k_turned = memory;
    room.v_turned = room.k_turned + wide * lone;
    room.weights = room.v_turned + wide * lone;
    room.slopes = room.weights + QUERIES * lone;
    return room;
}

/* qkv (B, T, 3, heads, size) -> y (B, T, heads, size) and sums (B heads, T). */
void partwise_attention(const Shape *shape, float *memory, const float *qkv, float *y,
                        float *sums) {
    int64_t units = shape->texts * shape->heads;
#pragma omp parallel num_threads(shape->threads)
    {
        Room room = own_room(shape, memory);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++)
            head_forward(shape, qkv, unit, &room, y, sums + unit * shape->length);
    }
}

/* of_y (B, T, heads, size) -> out, which lies as qkv does, and scales (B heads, 2, size). */
void partwise_attention_slope(const Shape *shape, float *memory, const float *qkv, const float *y,
                              const float *sums, const float *of_y, float *out, float *scales) {
    int64_t units = shape->texts * shape->heads;
#pragma omp parallel num_threads(shape->threads)
    {
        Room room = own_room(shape, memory);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++)
            head_backward(shape, qkv, y, sums + unit * shape->length, of_y, unit, &room, out,
                          scales + unit * 2 * shape->size);
    }
}
