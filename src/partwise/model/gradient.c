/* The loss of a batch and its gradient, of a whole GPT: the step of training without its optimizer.

   Operation by operation, a small model spends more of its step on starting operations and on
   carrying activations to and from memory than on multiplying. Here a block of tokens goes from one
   attention to the next, all that lies between in a core's cache. Forward:

       x1 = kept x0 + added embedding;  h1 = norm(x1);  qkv = W h1;  y = attention(qkv)
       x2 = x1 + W y;  h2 = norm(x2);  a = activation(W h2);  next x0 = x2 + W a

   with dropout of the embedding, of attention's weights and of what is added; and backwards the same
   way. What is dropped is no memory: it follows from the seed, and is drawn again where it is asked. Threads share blocks of tokens, heads, and rows of the gradients of
   matrices; each sum is one thread's from beginning to end, or is taken in an order of its own, so
   that the number of threads changes no result.

   `compiled_gradient.py` fills `Model`; its fields are the same, in the same order. */

#include "attention.h"
#include "units.h"

enum { LAYER_NORM = 1, RMS_NORM = 2 };
enum { RELU = 1, GELU = 2, GELU_TANH = 3, SQUARED_RELU = 4, GATED_SILU = 5 };

/* Tokens of a block, and rows of a matrix whose gradient is one task. */
enum { BLOCK = 48, ROWS = 48 };

typedef struct {
    const float *weight, *bias; /* (n); bias: NULL where there is none */
    float *of_weight, *of_bias;
} Norm;

typedef struct {
    const float *weight, *bias; /* (rows, columns), (rows) or NULL */
    float *of_weight, *of_bias;
    int64_t rows, columns;
} Matrix;

typedef struct {
    Norm norm1, norm2;
    Matrix qkv, projection, up, gate, down; /* gate.weight NULL: there is none */
    const float *of_query, *of_key; /* (head_size) or NULL */
    float *of_query_slope, *of_key_slope;
} Layer;

typedef struct {
    const float *rows; /* (count, width) */
    float *slope;      /* of the rows; NULL: they are not learned */
    int64_t count, n;  /* n tokens make a row's number; 0: the token's place in its text does */
} Table;

typedef struct {
    int64_t layers, width, heads, head_size, inner, vocab, texts, length, threads;
    int64_t norm, activation, tables, halves;
    /* Of 65,536 numbers so many are dropped, and the others multiplied: of what is added, of weights
       of attention, of the embedding. */
    int64_t dropped, weights_dropped, embedding_dropped;
    double kept, weights_kept, embedding_kept;
    uint64_t seed;
    double eps, scale; /* of the norms; the token's embedding is multiplied by `scale` */
    const float *shares; /* (layers, 2): kept, added; or NULL */
    float *of_shares;
    const Table *table; /* the first holds the tokens */
    const Layer *layer;
    Norm final_norm; /* weight NULL: there is none */
    Matrix head;     /* its gradient is added where it is tied to the first table */
    int64_t tied;
    const float *cosine, *sine; /* as attention.h reads them */
    const int64_t *inputs, *targets; /* (texts, length); a target below 0 does not count */
} Model;

/* A matrix as products read it: `forward` for W x, `back` for Wᵀ x. */
typedef struct {
    const Matrix *of;
    int64_t rows; /* in whole vectors */
    Unit *forward, *back;
} Packed;

/* What is kept of a layer, for all tokens. */
typedef struct {
    float *x0, *x1, *x2, *qkv, *y, *sums, *u, *gate;
    Unit *h1, *heads, *h2, *a; /* for sums over tokens */
    Packed qkv_matrix, projection, up, gate_matrix, down;
} Kept;

/* Memory that is handed out piece by piece, each at a line of the cache. */
typedef struct {
    char *at;
    int64_t used; /* bytes */
} Memory;

typedef struct {
    const Model *model;
    Shape shape; /* of attention, but for the scales of its norms */
    int64_t tokens, blocks, widest;
    Kept *kept;
    Packed head;
    float *embedded, *x, *slope, *of_embedded, *of_y, *of_qkv, *of_scales, *losses;
    Unit *h, *of_logits, *of_up, *of_gate, *of_x2, *of_out, *of_heads;
    float *norms; /* (norms, 2, blocks, width): a block's share of their gradients */
    float *shares; /* (layers, 2, blocks) */
    float *attention, *room;
    int64_t room_each;
    double counted; /* targets that count */
} Run;

/* --- Memory ------------------------------------------------------------------------------------ */

static void *take(Memory *memory, int64_t count, int64_t size) {
    char *place = memory->at ? memory->at + memory->used : NULL;
    memory->used += (count * size + 63) / 64 * 64;
    return place;
}

static float *floats(Memory *memory, int64_t count) { return take(memory, count, sizeof(float)); }

/* Units of (tokens, n) numbers for sums over tokens. */
static Unit *over_tokens(Memory *memory, const Model *model, int64_t tokens, int64_t n) {
    int64_t rows = model->halves ? (tokens + 1) / 2 : tokens;
    return take(memory, rows * n, sizeof(Unit));
}

static int64_t depth_of(const Model *model, int64_t n) {
    return model->halves ? (n + 1) / 2 : n;
}

static Packed packed_in(Memory *memory, const Model *model, const Matrix *m) {
    Packed packed = {.of = m, .rows = whole(m->rows)};
    packed.forward = take(memory, depth_of(model, m->columns) * packed.rows, sizeof(Unit));
    packed.back = take(memory, depth_of(model, packed.rows) * m->columns, sizeof(Unit));
    return packed;
}

/* Lays out all that a step needs; with memory->at NULL it only counts. */
static void lay_out(Run *run, const Model *model, Memory *memory) {
    int64_t n = model->texts * model->length, width = model->width, inner = model->inner;
    int64_t joined = model->heads * model->head_size, units = model->texts * model->heads;
    run->model = model, run->tokens = n, run->blocks = (n + BLOCK - 1) / BLOCK;
    run->shape = (Shape){
        .texts = model->texts, .length = model->length, .heads = model->heads,
        .size = model->head_size, .threads = model->threads, .cosine = model->cosine,
        .sine = model->sine, .eps = model->eps, .kept = model->weights_kept,
        .dropped = model->weights_dropped, .halves = model->halves};
    int64_t widest = inner > 3 * joined ? inner : 3 * joined;
    run->widest = widest = whole(model->vocab) > widest ? whole(model->vocab) : widest;
    run->kept = take(memory, model->layers, sizeof(Kept));
    Kept one;
    for (int64_t l = 0; l < model->layers; l++) {
        const Layer *layer = model->layer + l;
        Kept *kept = run->kept ? run->kept + l : &one;
        kept->x0 = floats(memory, n * width);
        kept->x1 = model->shares ? floats(memory, n * width) : kept->x0;
        kept->x2 = floats(memory, n * width);
        kept->qkv = floats(memory, n * 3 * joined);
        kept->y = floats(memory, n * joined);
        kept->sums = floats(memory, units * model->length);
        kept->u = floats(memory, n * inner);
        kept->gate = layer->gate.weight ? floats(memory, n * inner) : NULL;
        kept->h1 = over_tokens(memory, model, n, width);
        kept->heads = over_tokens(memory, model, n, joined);
        kept->h2 = over_tokens(memory, model, n, width);
        kept->a = over_tokens(memory, model, n, inner);
        kept->qkv_matrix = packed_in(memory, model, &layer->qkv);
        kept->projection = packed_in(memory, model, &layer->projection);
        kept->up = packed_in(memory, model, &layer->up);
        kept->gate_matrix = packed_in(memory, model, &layer->gate);
        kept->down = packed_in(memory, model, &layer->down);
    }
    run->head = packed_in(memory, model, &model->head);
    run->embedded = floats(memory, n * width);
    run->x = floats(memory, n * width);
    run->slope = floats(memory, n * width);
    run->of_embedded = floats(memory, n * width);
    run->of_y = floats(memory, n * joined);
    run->of_qkv = floats(memory, n * 3 * joined);
    run->of_scales = floats(memory, units * 2 * model->head_size);
    run->losses = floats(memory, n);
    run->h = over_tokens(memory, model, n, width);
    run->of_logits = over_tokens(memory, model, n, whole(model->vocab));
    run->of_up = over_tokens(memory, model, n, inner);
    run->of_gate = over_tokens(memory, model, n, model->activation == GATED_SILU ? inner : 0);
    run->of_x2 = over_tokens(memory, model, n, width);
    run->of_out = over_tokens(memory, model, n, width);
    run->of_heads = over_tokens(memory, model, n, 3 * joined);
    run->norms = floats(memory, (2 * model->layers + 1) * 2 * run->blocks * width);
    run->shares = floats(memory, 2 * model->layers * run->blocks);
    run->attention = floats(memory, model->threads * room_of(&run->shape));
    run->room_each = whole(BLOCK * (2 * width + 3 * widest));
    run->room = floats(memory, model->threads * run->room_each);
}

/* --- Matrices ---------------------------------------------------------------------------------- */

/* The nearest in bfloat16, between two the even one; what is no number stays none. */
static inline Unit rounded(float value) {
    Unit unit;
    memcpy(&unit, &value, sizeof unit);
    return value == value ? (unit + 0x7fff + (unit >> 16 & 1)) >> 16 : 0x7fc0;
}

/* A number of a matrix as a unit; in bfloat16 with its neighbour `step` further, if there is one. */
static inline Unit unit_at(const float *x, int64_t step, int second, int halves) {
    Unit unit;
    memcpy(&unit, x, sizeof unit);
    return halves ? rounded(*x) | (second ? rounded(x[step]) << 16 : 0) : unit;
}

/* One panel's columns of W's units for sums over W's columns (`forward`), or over its rows. */
static void pack(const Model *model, const Packed *packed, int64_t panel, int forward) {
    const Matrix *m = packed->of;
    int64_t halves = model->halves, step = halves ? 2 : 1;
    int64_t columns = forward ? packed->rows : m->columns;
    int64_t depth = depth_of(model, forward ? m->columns : packed->rows);
    int64_t first = panel * PANEL, width = columns - first < PANEL ? columns - first : PANEL;
    Unit *to = (forward ? packed->forward : packed->back) + first * depth;
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < width; j++) {
            int64_t row = forward ? first + j : k * step, column = forward ? k * step : first + j;
            int64_t across = forward ? 1 : m->columns;
            int second = forward ? column + 1 < m->columns : row + 1 < m->rows;
            to[k * width + j] =
                row < m->rows ? unit_at(m->weight + row * m->columns + column, across, second,
                                        (int)halves)
                              : 0;
        }
}

/* y (count, rows in whole vectors) = W x + bias. */
static void apply(const Model *model, const Packed *packed, Left x, int64_t count, float *y) {
    const Matrix *m = packed->of;
    multiply_units(y, packed->rows, x, packed->forward, 0, count, depth_of(model, m->columns),
                   packed->rows, 0, (int)model->halves);
    if (m->bias)
        for (int64_t t = 0; t < count; t++)
            for (int64_t i = 0; i < m->rows; i++) y[t * packed->rows + i] += m->bias[i];
}

/* of_x (count, columns) = Wᵀ of_y, or that added to it. */
static void unapply(const Model *model, const Packed *packed, Left of_y, int64_t count,
                    float *of_x, int add) {
    multiply_units(of_x, packed->of->columns, of_y, packed->back, 0, count,
                   depth_of(model, packed->rows), packed->of->columns, add, (int)model->halves);
}

static inline float half_of(Unit unit, int high) {
    Unit bits = high ? unit & 0xffff0000 : unit << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The gradient of some of W's rows: of_y, (tokens, rows in whole vectors), times x, (tokens,
   columns), both for sums over tokens; and that of its bias. */
static void slope_rows(const Run *run, const Packed *packed, const Unit *of_y, const Unit *x,
                       int64_t task) {
    const Model *model = run->model;
    const Matrix *m = packed->of;
    int64_t first = task * ROWS, count = m->rows - first < ROWS ? m->rows - first : ROWS;
    int64_t depth = depth_of(model, run->tokens), row = packed->rows;
    float *out = m->of_weight + first * m->columns;
    for (int64_t k = 0; k < depth; k += DEEP) {
        Left left = {of_y + k * row + first, 1, row};
        multiply_units(out, m->columns, left, x + k * m->columns, m->columns, count,
                       depth - k < DEEP ? depth - k : DEEP, m->columns, k > 0,
                       (int)model->halves);
    }
    if (!m->of_bias) return;
    for (int64_t r = first; r < first + count; r++) {
        float sum = 0;
        for (int64_t k = 0; k < depth; k++) {
            float one;
            memcpy(&one, of_y + k * row + r, sizeof one);
            if (model->halves)
                sum += half_of(of_y[k * row + r], 0) + half_of(of_y[k * row + r], 1);
            else
                sum += one;
        }
        m->of_bias[r] = sum;
    }
}

static int64_t tasks_of(const Packed *packed) { return (packed->of->rows + ROWS - 1) / ROWS; }

/* --- Parts ------------------------------------------------------------------------------------- */

static inline float total(const float *x, int64_t n) {
    Lanes sums = {0};
    for (int64_t i = 0; i < n; i += LANES) sums += lanes(x + i);
    return together(sums);
}

/* The mean that is taken off a token's numbers, and what they are then multiplied by. */
static inline float scale_of_norm(const Model *model, const float *x, float *mean) {
    int64_t n = model->width;
    *mean = model->norm == LAYER_NORM ? total(x, n) / n : 0;
    Lanes squares = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes off = lanes(x + i) - *mean;
        squares += off * off;
    }
    return 1 / sqrtf(together(squares) / n + (float)model->eps);
}

/* y = (x - mean) scale weight + bias, of `count` tokens. */
static void normalise(const Model *model, const Norm *norm, const float *x, int64_t count,
                      float *y) {
    int64_t n = model->width;
    if (!norm->weight) {
        memcpy(y, x, count * n * sizeof *y);
        return;
    }
    for (int64_t t = 0; t < count; t++, x += n, y += n) {
        float mean, scale = scale_of_norm(model, x, &mean);
        for (int64_t i = 0; i < n; i += LANES) {
            Lanes all = (lanes(x + i) - mean) * scale * lanes(norm->weight + i);
            put(y + i, norm->bias ? all + lanes(norm->bias + i) : all);
        }
    }
}

/* of_x += the gradient through the norm; `sums` (2, blocks, n) are given this block's share of the
   gradients of weight and bias. */
static void unnormalise(const Run *run, const Norm *norm, const float *x, const float *of_y,
                        int64_t count, float *of_x, float *sums) {
    const Model *model = run->model;
    int64_t n = model->width;
    if (!norm->weight) {
        for (int64_t i = 0; i < count * n; i += LANES)
            put(of_x + i, lanes(of_x + i) + lanes(of_y + i));
        return;
    }
    float *of_weight = sums, *of_bias = sums + run->blocks * n;
    memset(of_weight, 0, n * sizeof *of_weight);
    memset(of_bias, 0, n * sizeof *of_bias);
    for (int64_t t = 0; t < count; t++, x += n, of_y += n, of_x += n) {
        float mean, scale = scale_of_norm(model, x, &mean);
        Lanes all = {0}, along = {0};
        for (int64_t i = 0; i < n; i += LANES) {
            Lanes g = lanes(of_y + i), normed = (lanes(x + i) - mean) * scale;
            put(of_weight + i, lanes(of_weight + i) + g * normed);
            put(of_bias + i, lanes(of_bias + i) + g);
            g *= lanes(norm->weight + i);
            all += g;
            along += g * normed;
        }
        float level = model->norm == LAYER_NORM ? together(all) / n : 0;
        float slant = together(along) / n;
        for (int64_t i = 0; i < n; i += LANES) {
            Lanes g = lanes(of_y + i) * lanes(norm->weight + i);
            Lanes normed = (lanes(x + i) - mean) * scale;
            put(of_x + i, lanes(of_x + i) + scale * (g - level - normed * slant));
        }
    }
}

static inline Lanes above_zero(Lanes x) { return only(~(Bits)(x < 0.0f), x); }

/* tanh(x) to about float32's precision. */
static inline Lanes tangent(Lanes x) {
    Lanes size = numbers(bits(x) & 0x7fffffff);
    Lanes small = exponential(size * -2.0f);
    Lanes found = (1.0f - small) / (1.0f + small);
    return numbers(bits(found) | (bits(x) & 0x80000000));
}

/* erf(x), with an error of the formula below 2e-7. Source: Abramowitz and Stegun, "Handbook of
   Mathematical Functions", 1964, 7.1.26. */
static inline Lanes error_function(Lanes x) {
    Lanes size = numbers(bits(x) & 0x7fffffff), t = 1.0f / (1.0f + 0.3275911f * size);
    Lanes p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    Lanes found = 1.0f - p * t * exponential(size * size * -1.0f);
    return numbers(bits(found) | (bits(x) & 0x80000000));
}

/* 1 / (1 + exp(-x)). */
static inline Lanes sigmoid(Lanes x) {
    Lanes small = exponential(numbers(bits(x) | 0x80000000));
    Bits below = (Bits)(x < 0.0f);
    Lanes one = (Lanes){0} + 1.0f;
    return numbers((bits(small) & below) | (bits(one) & ~below)) / (1.0f + small);
}

/* The activation of n numbers, in whole vectors; `gate` has as many, where there is one. */
static void activate(int64_t kind, const float *u, const float *gate, int64_t n, float *a) {
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes x = lanes(u + i);
        if (kind == GATED_SILU) put(a + i, lanes(gate + i) * sigmoid(lanes(gate + i)) * x);
        if (kind == RELU) put(a + i, above_zero(x));
        if (kind == SQUARED_RELU) put(a + i, above_zero(x) * above_zero(x));
        if (kind == GELU) put(a + i, 0.5f * x * (1.0f + error_function(x * 0.70710678f)));
        if (kind == GELU_TANH)
            put(a + i, 0.5f * x * (1.0f + tangent(0.79788456f * (x + 0.044715f * x * x * x))));
    }
}

/* of_u = of_a times the activation's slope, in place. */
static void unactivate(int64_t kind, const float *u, const float *gate, int64_t n, float *of_a,
                       float *of_gate) {
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes x = lanes(u + i), g = lanes(of_a + i);
        if (kind == GATED_SILU) {
            Lanes open = lanes(gate + i), part = sigmoid(open);
            put(of_gate + i, g * x * part * (1.0f + open * (1.0f - part)));
            put(of_a + i, g * open * part);
        }
        if (kind == RELU) put(of_a + i, only((Bits)(x > 0.0f), g));
        if (kind == SQUARED_RELU) put(of_a + i, 2.0f * above_zero(x) * g);
        if (kind == GELU) {
            Lanes below = 0.5f * (1.0f + error_function(x * 0.70710678f));
            Lanes density = 0.39894228f * exponential(x * x * -0.5f);
            put(of_a + i, g * (below + x * density));
        }
        if (kind == GELU_TANH) {
            Lanes t = tangent(0.79788456f * (x + 0.044715f * x * x * x));
            Lanes inner = 0.79788456f * (1.0f + 0.134145f * x * x);
            put(of_a + i, g * 0.5f * (1.0f + t + x * (1.0f - t * t) * inner));
        }
    }
}

/* What is dropped: the embedding, and what attention and the feed-forward part of a layer add. */
enum { OF_EMBEDDING = 0, OF_ATTENTION = 1, OF_FEEDFORWARD = 2, PLACES = 3 };

/* y = x with some of its numbers dropped, for `count` tokens from `first` on; y may be x. */
static void drop(const Run *run, int64_t layer, int place, int64_t first, int64_t count,
                 const float *x, float *y) {
    const Model *model = run->model;
    int64_t n = model->width;
    uint32_t dropped = (uint32_t)(place ? model->dropped : model->embedding_dropped);
    float kept = (float)(place ? model->kept : model->embedding_kept);
    if (!dropped && x != y) memcpy(y, x, count * n * sizeof *y);
    if (!dropped) return;
    for (int64_t t = 0; t < count; t++) {
        int64_t row = (layer * PLACES + place) * run->tokens + first + t;
        uint32_t seed = scattered(model->seed, row);
        for (int64_t i = t * n; i < (t + 1) * n; i += LANES)
            put(y + i, only(undropped(dropped, seed, i - t * n), lanes(x + i) * kept));
    }
}

/* Which row of a table the text's token has, or -1; as `ngram.py` says it. */
static int64_t row_of(const Model *model, const Table *table, int64_t token) {
    int64_t place = token % model->length, index = 0, most = 1;
    if (table->n == 0) return place;
    if (place < table->n - 1) return -1;
    for (int64_t i = 0; i < table->n && most <= table->count; i++) most *= model->vocab;
    for (int64_t i = table->n - 1; i >= 0; i--) {
        int64_t id = model->inputs[token - i];
        if (most <= table->count)
            index = index * model->vocab + id;
        else
            index = (index * 1000003 + id + 1) % table->count;
    }
    return index;
}

static void embed(const Run *run, int64_t first, int64_t count, float *to) {
    const Model *model = run->model;
    int64_t n = model->width;
    for (int64_t t = first; t < first + count; t++, to += n)
        for (int64_t number = 0; number < model->tables; number++) {
            const Table *table = model->table + number;
            int64_t index = row_of(model, table, t);
            if (index < 0) continue;
            const float *row = table->rows + index * n;
            float scale = (float)model->scale;
            for (int64_t i = 0; i < n; i += LANES)
                put(to + i, number ? lanes(to + i) + lanes(row + i) : lanes(row + i) * scale);
        }
}

/* The gradient of a table's rows, which are zero before; one thread's work, token by token. */
static void unembed(const Run *run, int64_t number) {
    const Model *model = run->model;
    const Table *table = model->table + number;
    int64_t n = model->width;
    float scale = number ? 1 : (float)model->scale;
    if (!table->slope) return;
    for (int64_t t = 0; t < run->tokens; t++) {
        int64_t index = row_of(model, table, t);
        if (index < 0) continue;
        const float *g = run->of_embedded + t * n;
        float *row = table->slope + index * n;
        for (int64_t i = 0; i < n; i += LANES)
            put(row + i, lanes(row + i) + lanes(g + i) * scale);
    }
}

/* -log softmax(logits)[target] of a token, and in place of the logits its gradient over `counted`
   targets; numbers behind the vocabulary become zero. */
static float unlikely(const Model *model, int64_t target, double counted, float *logits) {
    int64_t n = model->vocab, all = whole(n);
    if (target < 0) {
        memset(logits, 0, all * sizeof *logits);
        return 0;
    }
    float wanted = logits[target], most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = n; i < all; i++) logits[i] = -INFINITY;
    Lanes sums = {0};
    for (int64_t i = 0; i < all; i += LANES) {
        Lanes one = exponential(lanes(logits + i) - most);
        sums += only(among(i, n), one);
        put(logits + i, one);
    }
    float sum = together(sums), part = (float)(1 / (sum * counted));
    for (int64_t i = 0; i < all; i += LANES)
        put(logits + i, only(among(i, n), lanes(logits + i) * part));
    logits[target] -= (float)(1 / counted);
    return most + logf(sum) - wanted;
}

/* --- A block of tokens ------------------------------------------------------------------------- */

/* What a thread works in. */
typedef struct {
    float *h, *other;   /* (BLOCK, width) */
    float *wide, *gate; /* (BLOCK, widest) */
    Unit *units;        /* for sums over features */
} Own;

static Own own_of(const Run *run) {
    float *memory = run->room + omp_get_thread_num() * run->room_each;
    int64_t narrow = BLOCK * run->model->width, wide = BLOCK * run->widest;
    return (Own){memory, memory + narrow, memory + 2 * narrow, memory + 2 * narrow + wide,
                 (Unit *)(memory + 2 * narrow + 2 * wide)};
}

/* Where a block's units for sums over tokens begin. */
static Unit *at_block(const Run *run, Unit *kept, int64_t first, int64_t n) {
    return kept + (run->model->halves ? first / 2 : first) * n;
}

static int64_t count_of(const Run *run, int64_t first) {
    return run->tokens - first < BLOCK ? run->tokens - first : BLOCK;
}

/* From a layer's x0 to its queries, keys and values. */
static void into_attention(const Run *run, int64_t l, int64_t first, const Own *own) {
    const Model *model = run->model;
    const Layer *layer = model->layer + l;
    const Kept *kept = run->kept + l;
    int64_t n = model->width, count = count_of(run, first), at = first * n;
    if (model->shares) {
        float share = model->shares[2 * l], added = model->shares[2 * l + 1];
        for (int64_t i = at; i < at + count * n; i += LANES)
            put(kept->x1 + i,
                share * lanes(kept->x0 + i) + added * lanes(run->embedded + i));
    }
    normalise(model, &layer->norm1, kept->x1 + at, count, own->h);
    Left h = as_units(own->h, count, n, at_block(run, kept->h1, first, n), own->units,
                      (int)model->halves);
    apply(model, &kept->qkv_matrix, h, count, kept->qkv + first * layer->qkv.rows);
}

/* From what attention gave to the next layer's x0. */
static void out_of_attention(const Run *run, int64_t l, int64_t first, const Own *own,
                             float *next) {
    const Model *model = run->model;
    const Layer *layer = model->layer + l;
    const Kept *kept = run->kept + l;
    int64_t n = model->width, joined = layer->projection.columns, inner = model->inner;
    int64_t count = count_of(run, first), at = first * n, halves = model->halves;
    Left y = as_units(kept->y + first * joined, count, joined,
                      at_block(run, kept->heads, first, joined), own->units, (int)halves);
    apply(model, &kept->projection, y, count, own->other);
    drop(run, l, OF_ATTENTION, first, count, own->other, own->other);
    for (int64_t i = 0; i < count * n; i += LANES)
        put(kept->x2 + at + i, lanes(kept->x1 + at + i) + lanes(own->other + i));
    normalise(model, &layer->norm2, kept->x2 + at, count, own->h);
    Left h = as_units(own->h, count, n, at_block(run, kept->h2, first, n), own->units,
                      (int)halves);
    float *u = kept->u + first * inner;
    float *gate = kept->gate ? kept->gate + first * inner : NULL;
    apply(model, &kept->up, h, count, u);
    if (gate) apply(model, &kept->gate_matrix, h, count, gate);
    activate(model->activation, u, gate, count * inner, own->wide);
    Left a = as_units(own->wide, count, inner, at_block(run, kept->a, first, inner), own->units,
                      (int)halves);
    apply(model, &kept->down, a, count, own->other);
    drop(run, l, OF_FEEDFORWARD, first, count, own->other, own->other);
    for (int64_t i = 0; i < count * n; i += LANES)
        put(next + at + i, lanes(kept->x2 + at + i) + lanes(own->other + i));
}

/* The block's losses and, with `back`, the gradient of what the last layer gave. */
static void judge(const Run *run, int64_t first, const Own *own, int back) {
    const Model *model = run->model;
    int64_t n = model->width, count = count_of(run, first), at = first * n;
    int64_t columns = run->head.rows;
    normalise(model, &model->final_norm, run->x + at, count, own->h);
    Left h = as_units(own->h, count, n, at_block(run, run->h, first, n), own->units,
                      (int)model->halves);
    apply(model, &run->head, h, count, own->wide);
    for (int64_t t = 0; t < count; t++)
        run->losses[first + t] = unlikely(model, model->targets[first + t], run->counted,
                                          own->wide + t * columns);
    if (!back) return;
    Left of_logits = as_units(own->wide, count, columns,
                              at_block(run, run->of_logits, first, columns), own->units,
                              (int)model->halves);
    unapply(model, &run->head, of_logits, count, own->h, 0);
    memset(run->slope + at, 0, count * n * sizeof(float));
    float *sums = run->norms + (4 * model->layers * run->blocks + first / BLOCK) * n;
    unnormalise(run, &model->final_norm, run->x + at, own->h, count, run->slope + at, sums);
}

/* A block's share of the gradients of a layer's norm. */
static float *norm_sums(const Run *run, int64_t l, int64_t second, int64_t first) {
    int64_t blocks = run->blocks;
    return run->norms + ((4 * l + 2 * second) * blocks + first / BLOCK) * run->model->width;
}

/* `out_of_attention` backwards: of the next x0, in `slope`, to x2 and to what attention gave. */
static void back_to_attention(const Run *run, int64_t l, int64_t first, const Own *own) {
    const Model *model = run->model;
    const Layer *layer = model->layer + l;
    const Kept *kept = run->kept + l;
    int64_t n = model->width, joined = layer->projection.columns, inner = model->inner;
    int64_t count = count_of(run, first), at = first * n, halves = model->halves;
    drop(run, l, OF_FEEDFORWARD, first, count, run->slope + at, own->other);
    Left of_out = as_units(own->other, count, n, at_block(run, run->of_out, first, n), own->units,
                           (int)halves);
    unapply(model, &kept->down, of_out, count, own->wide, 0);
    float *gate = kept->gate ? kept->gate + first * inner : NULL;
    unactivate(model->activation, kept->u + first * inner, gate, count * inner, own->wide,
               own->gate);
    Left of_u = as_units(own->wide, count, inner, at_block(run, run->of_up, first, inner),
                         own->units, (int)halves);
    unapply(model, &kept->up, of_u, count, own->h, 0);
    if (gate) {
        Left of_gate = as_units(own->gate, count, inner, at_block(run, run->of_gate, first, inner),
                                own->units, (int)halves);
        unapply(model, &kept->gate_matrix, of_gate, count, own->h, 1);
    }
    unnormalise(run, &layer->norm2, kept->x2 + at, own->h, count, run->slope + at,
                norm_sums(run, l, 1, first));
    drop(run, l, OF_ATTENTION, first, count, run->slope + at, own->other);
    Left of_x2 = as_units(own->other, count, n, at_block(run, run->of_x2, first, n), own->units,
                          (int)halves);
    unapply(model, &kept->projection, of_x2, count, run->of_y + first * joined, 0);
}

/* `into_attention` backwards: of queries, keys and values to x0. */
static void back_from_attention(const Run *run, int64_t l, int64_t first, const Own *own) {
    const Model *model = run->model;
    const Layer *layer = model->layer + l;
    const Kept *kept = run->kept + l;
    int64_t n = model->width, wide = layer->qkv.rows;
    int64_t count = count_of(run, first), at = first * n;
    Left of_qkv = as_units(run->of_qkv + first * wide, count, wide,
                           at_block(run, run->of_heads, first, wide), own->units,
                           (int)model->halves);
    unapply(model, &kept->qkv_matrix, of_qkv, count, own->h, 0);
    unnormalise(run, &layer->norm1, kept->x1 + at, own->h, count, run->slope + at,
                norm_sums(run, l, 0, first));
    if (!model->shares) return;
    float share = model->shares[2 * l], added = model->shares[2 * l + 1];
    Lanes of_share = {0}, of_added = {0};
    for (int64_t i = at; i < at + count * n; i += LANES) {
        Lanes g = lanes(run->slope + i);
        of_share += g * lanes(kept->x0 + i);
        of_added += g * lanes(run->embedded + i);
        put(run->of_embedded + i, lanes(run->of_embedded + i) + added * g);
        put(run->slope + i, share * g);
    }
    run->shares[2 * l * run->blocks + first / BLOCK] = together(of_share);
    run->shares[(2 * l + 1) * run->blocks + first / BLOCK] = together(of_added);
}

/* --- Sums of all blocks ------------------------------------------------------------------------ */

static void add_up(const Run *run, const float *sums, int64_t n, float *to) {
    if (!to) return;
    for (int64_t i = 0; i < n; i++) to[i] = 0;
    for (int64_t block = 0; block < run->blocks; block++)
        for (int64_t i = 0; i < n; i++) to[i] += sums[block * n + i];
}

static void add_up_norm(const Run *run, int64_t number, const Norm *norm) {
    int64_t n = run->model->width, each = run->blocks * n;
    if (!norm->weight) return;
    add_up(run, run->norms + 2 * number * each, n, norm->of_weight);
    add_up(run, run->norms + (2 * number + 1) * each, n, norm->of_bias);
}

static void add_up_scales(const Run *run, const Layer *layer) {
    int64_t n = run->shape.size, units = run->shape.texts * run->shape.heads;
    if (!layer->of_query) return;
    for (int64_t i = 0; i < n; i++) {
        float of_query = 0, of_key = 0;
        for (int64_t unit = 0; unit < units; unit++) {
            of_query += run->of_scales[2 * unit * n + i];
            of_key += run->of_scales[(2 * unit + 1) * n + i];
        }
        layer->of_query_slope[i] = of_query, layer->of_key_slope[i] = of_key;
    }
}

/* The head's gradient lies in the token table's where both are one. */
static void clear_tables(const Model *model, int64_t part, int64_t parts) {
    for (int64_t number = model->tied ? 1 : 0; number < model->tables; number++) {
        const Table *table = model->table + number;
        int64_t all = table->count * model->width;
        int64_t first = all * part / parts, end = all * (part + 1) / parts;
        if (table->slope) memset(table->slope + first, 0, (end - first) * sizeof(float));
    }
}

/* --- A step ------------------------------------------------------------------------------------ */

/* Shape of a layer's attention: the scales of its norms are its own. */
static Shape shape_of(const Run *run, int64_t l) {
    Shape shape = run->shape;
    shape.of_query = run->model->layer[l].of_query;
    shape.of_key = run->model->layer[l].of_key;
    shape.seed = run->model->seed + (uint64_t)l;
    return shape;
}

static int64_t panels(int64_t columns) { return (columns + PANEL - 1) / PANEL; }

/* Matrices number 0, 1, 2, … of the model: five a layer, and the head. */
static const Packed *matrix_of(const Run *run, int64_t number) {
    if (number == 5 * run->model->layers) return &run->head;
    const Kept *kept = run->kept + number / 5;
    const Packed *all[] = {&kept->qkv_matrix, &kept->projection, &kept->up, &kept->gate_matrix,
                           &kept->down};
    return all[number % 5];
}

static void pack_all(const Run *run, int back) {
    for (int64_t number = 0; number <= 5 * run->model->layers; number++) {
        const Packed *packed = matrix_of(run, number);
        int64_t forward = panels(packed->rows), both = forward + panels(packed->of->columns);
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < (back ? both : forward); task++)
            pack(run->model, packed, task < forward ? task : task - forward, task < forward);
    }
}

static void slope_all(const Run *run, const Packed *packed, const Unit *of_y, const Unit *x) {
#pragma omp for schedule(dynamic) nowait
    for (int64_t task = 0; task < tasks_of(packed); task++)
        slope_rows(run, packed, of_y, x, task);
}

static void forward(const Run *run, const Own *own, const Room *room) {
    const Model *model = run->model;
    int64_t units = run->shape.texts * run->shape.heads;
    for (int64_t l = 0; l < model->layers; l++) {
        const Kept *kept = run->kept + l;
        Shape shape = shape_of(run, l);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run->blocks; block++) {
            int64_t first = block * BLOCK;
            if (l == 0) {
                float *x0 = kept->x0 + first * model->width;
                int64_t size = count_of(run, first) * model->width * sizeof(float);
                embed(run, first, count_of(run, first), x0);
                drop(run, 0, OF_EMBEDDING, first, count_of(run, first), x0, x0);
                memcpy(run->embedded + first * model->width, x0, size);
            } else
                out_of_attention(run, l - 1, first, own, kept->x0);
            into_attention(run, l, first, own);
        }
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++) {
            Room mine = *room;
            head_forward(&shape, kept->qkv, unit, &mine, kept->y,
                         kept->sums + unit * shape.length);
        }
    }
}

static void backward(const Run *run, const Own *own, const Room *room) {
    const Model *model = run->model;
    int64_t units = run->shape.texts * run->shape.heads;
    for (int64_t l = model->layers - 1; l >= 0; l--) {
        const Kept *kept = run->kept + l;
        Shape shape = shape_of(run, l);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run->blocks; block++)
            back_to_attention(run, l, block * BLOCK, own);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++) {
            Room mine = *room;
            head_backward(&shape, kept->qkv, kept->sums + unit * shape.length, run->of_y,
                          unit, &mine, run->of_qkv, run->of_scales + unit * 2 * shape.size);
        }
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run->blocks; block++)
            back_from_attention(run, l, block * BLOCK, own);
        slope_all(run, &kept->qkv_matrix, run->of_heads, kept->h1);
        slope_all(run, &kept->projection, run->of_x2, kept->heads);
        slope_all(run, &kept->up, run->of_up, kept->h2);
        if (kept->gate) slope_all(run, &kept->gate_matrix, run->of_gate, kept->h2);
        slope_all(run, &kept->down, run->of_out, kept->a);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < 4; task++) {
            if (task < 2) add_up_norm(run, 2 * l + task, task ? &model->layer[l].norm2
                                                              : &model->layer[l].norm1);
            if (task == 2) add_up_scales(run, model->layer + l);
            if (task == 3 && model->shares)
                for (int64_t i = 2 * l; i < 2 * l + 2; i++)
                    add_up(run, run->shares + i * run->blocks, 1, model->of_shares + i);
        }
    }
}

/* Bytes that a step needs. */
int64_t partwise_gradient_room(const Model *model) {
    Run run;
    Memory memory = {NULL, 0};
    lay_out(&run, model, &memory);
    return memory.used;
}

/* The mean loss of the batch and, with `back`, its gradient, which is written where `model` says;
   below 0 where an id is none of the vocabulary's, or products in bfloat16 cannot be had. */
double partwise_gradient(const Model *model, char *given, int64_t back) {
    Run run;
    Memory memory = {given, 0};
    lay_out(&run, model, &memory);
    run.counted = 0;
    if (model->halves && !HAS_HALVES) return -1;
    for (int64_t t = 0; t < run.tokens; t++) {
        if (model->inputs[t] < 0 || model->inputs[t] >= model->vocab) return -1;
        if (model->targets[t] >= model->vocab) return -1;
        run.counted += model->targets[t] >= 0;
    }
#pragma omp parallel num_threads(model->threads)
    {
        Own own = own_of(&run);
        Room room = own_room(&run.shape, run.attention);
        pack_all(&run, (int)back);
#pragma omp barrier
        forward(&run, &own, &room);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run.blocks; block++) {
            out_of_attention(&run, model->layers - 1, block * BLOCK, &own, run.x);
            judge(&run, block * BLOCK, &own, (int)back);
            if (back)
                memset(run.of_embedded + block * BLOCK * model->width, 0,
                       count_of(&run, block * BLOCK) * model->width * sizeof(float));
        }
        if (back) {
            slope_all(&run, &run.head, run.of_logits, run.h);
#pragma omp for schedule(static) nowait
            for (int64_t part = 0; part < 64; part++) clear_tables(model, part, 64);
#pragma omp single nowait
            add_up_norm(&run, 2 * model->layers, &model->final_norm);
#pragma omp barrier
            backward(&run, &own, &room);
#pragma omp for schedule(static)
            for (int64_t block = 0; block < run.blocks; block++) {
                int64_t at = block * BLOCK * model->width;
                int64_t end = at + count_of(&run, block * BLOCK) * model->width;
                for (int64_t i = at; i < end; i += LANES)
                    put(run.of_embedded + i, lanes(run.of_embedded + i) + lanes(run.slope + i));
                drop(&run, 0, OF_EMBEDDING, block * BLOCK, count_of(&run, block * BLOCK),
                     run.of_embedded + at, run.of_embedded + at);
            }
#pragma omp for schedule(dynamic)
            for (int64_t number = 0; number < model->tables; number++) unembed(&run, number);
        }
    }
    double sum = 0;
    for (int64_t t = 0; t < run.tokens; t++) sum += run.losses[t];
    return sum / run.counted;
}
