/* The loss of a batch and its gradient, of a whole GPT: the step of training without its optimizer.

   Operation by operation, a small model spends more of its step on starting operations and on
   carrying activations to and from memory than on multiplying. Here a block of tokens goes from one
   attention to the next, all that lies between in a core's cache. Forward:

       x1 = kept x0 + added embedding;  h1 = norm(x1);  qkv = W h1;  y = attention(qkv)
       x2 = x1 + W y;  h2 = norm(x2);  a = activation(W h2);  next x0 = x2 + W a

   with dropout of the embedding, of attention's weights and of what is added; and backwards the same
   way. What is dropped is not kept: it follows from the seed, and is drawn again where it is asked.
   Threads share blocks of tokens, heads, and rows of the gradients of matrices; each sum is one
   thread's from beginning to end, or is taken in an order of its own, so that the number of threads
   changes no result. */

#include "matrices.h"
#include "parts.h"

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
    int64_t n = model->width, joined = layer->projection.columns;
    int64_t inner = whole(model->inner);
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
    int64_t n = model->width, joined = layer->projection.columns;
    int64_t inner = whole(model->inner);
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
                           at_block(run, run->of_parts, first, wide), own->units,
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
        int64_t forward = panels(packed->rows), both = forward + panels(packed->columns);
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < (back ? both : forward); task++) {
            if (task < forward) pack_forward(run->model, packed, task);
            if (task >= forward) pack_back(run->model, packed, task - forward);
        }
    }
}

static void slope_all(const Run *run, const Own *own, const Packed *packed, const Unit *of_y,
                      const Unit *x) {
#pragma omp for schedule(dynamic) nowait
    for (int64_t task = 0; task < tasks_of(packed); task++)
        slope_rows(run, packed, of_y, x, task, own->wide);
}

static void forward(const Run *run, const Own *own, Room *room) {
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
        for (int64_t unit = 0; unit < units; unit++)
            head_forward(&shape, kept->qkv, unit, room, kept->y,
                         kept->sums + unit * shape.length);
    }
}

static void backward(const Run *run, const Own *own, Room *room) {
    const Model *model = run->model;
    int64_t units = run->shape.texts * run->shape.heads;
    for (int64_t l = model->layers - 1; l >= 0; l--) {
        const Kept *kept = run->kept + l;
        Shape shape = shape_of(run, l);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run->blocks; block++)
            back_to_attention(run, l, block * BLOCK, own);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++)
            head_backward(&shape, kept->qkv, kept->sums + unit * shape.length, run->of_y, unit,
                          room, run->of_qkv, run->of_scales + unit * 2 * shape.size);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < run->blocks; block++)
            back_from_attention(run, l, block * BLOCK, own);
        slope_all(run, own, &kept->qkv_matrix, run->of_parts, kept->h1);
        slope_all(run, own, &kept->projection, run->of_x2, kept->heads);
        slope_all(run, own, &kept->up, run->of_up, kept->h2);
        if (kept->gate) slope_all(run, own, &kept->gate_matrix, run->of_gate, kept->h2);
        slope_all(run, own, &kept->down, run->of_out, kept->a);
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

/* How many numbers are computed with at once. */
int64_t partwise_gradient_lanes(void) { return LANES; }

/* Whether products in bfloat16 can be had. */
int64_t partwise_gradient_halves(void) { return HAS_HALVES; }

/* The mean loss of the batch and, with `back`, its gradient, which is written where `model` says;
   below 0 where an id is none of the vocabulary's. */
double partwise_gradient(const Model *model, char *given, int64_t back) {
    Run run;
    Memory memory = {given, 0};
    lay_out(&run, model, &memory);
    run.counted = 0;
    for (int64_t t = 0; t < run.tokens; t++) {
        if (model->inputs[t] < 0 || model->inputs[t] >= model->vocab) return -1;
        int64_t target = model->targets[t];
        if (target >= model->vocab || (target < 0 && target != IGNORED)) return -1;
        run.counted += target >= 0;
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
            slope_all(&run, &own, &run.head, run.of_logits, run.h);
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
