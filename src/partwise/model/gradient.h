/* A GPT as the gradient's C code reads it, and the memory that its step works in.

   `compiled_gradient.py` fills `Model`; its fields are the same, in the same order. */

#pragma once

#include "attention.h"
#include "units.h"

enum { LAYER_NORM = 1, RMS_NORM = 2 };
enum { RELU = 1, GELU = 2, GELU_TANH = 3, SQUARED_RELU = 4, GATED_SILU = 5 };

/* A target that does not count. */
enum { IGNORED = -100 };

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
    const int64_t *inputs, *targets; /* (texts, length) */
} Model;

/* A matrix as products read it: `forward` for W x, `back` for Wᵀ x. */
typedef struct {
    const Matrix *of;
    int64_t rows, columns; /* in whole vectors, zeros behind */
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
    Unit *h, *of_logits, *of_up, *of_gate, *of_x2, *of_out, *of_parts; /* for sums over tokens */
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
    Packed packed = {.of = m, .rows = whole(m->rows), .columns = whole(m->columns)};
    packed.forward = take(memory, depth_of(model, packed.columns) * packed.rows, sizeof(Unit));
    packed.back = take(memory, depth_of(model, packed.rows) * packed.columns, sizeof(Unit));
    return packed;
}

/* Lays out all that a step needs; with memory->at NULL it only counts. */
static void lay_out(Run *run, const Model *model, Memory *memory) {
    int64_t n = model->texts * model->length, width = model->width;
    int64_t inner = whole(model->inner);
    int64_t joined = model->heads * model->head_size, units = model->texts * model->heads;
    run->model = model, run->tokens = n, run->blocks = (n + BLOCK - 1) / BLOCK;
    run->shape = (Shape){
        .texts = model->texts, .length = model->length, .heads = model->heads,
        .size = model->head_size, .threads = model->threads, .cosine = model->cosine,
        .sine = model->sine, .eps = model->eps, .kept = model->weights_kept,
        .dropped = model->weights_dropped, .halves = model->halves};
    int64_t widest = inner > width ? inner : width;
    if (widest < 3 * joined) widest = 3 * joined;
    if (widest < whole(model->vocab)) widest = whole(model->vocab);
    run->widest = widest;
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
    run->of_parts = over_tokens(memory, model, n, 3 * joined);
    run->norms = floats(memory, (2 * model->layers + 1) * 2 * run->blocks * width);
    run->shares = floats(memory, 2 * model->layers * run->blocks);
    run->attention = floats(memory, model->threads * room_of(&run->shape));
    run->room_each = whole(BLOCK * (2 * width + 3 * widest));
    run->room = floats(memory, model->threads * run->room_each);
}
