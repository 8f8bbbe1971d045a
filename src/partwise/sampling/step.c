/* A GPT says token after token: the model's forward pass for one token a text, and the choice.

   The same arithmetic as the model's own, in float32, on the same cache of keys and values; a product
   with bfloat16 rounds what it is multiplied with to bfloat16, one with int8 to 16 bits. A pass costs
   one reading of all weights, so nothing here does more than keep up with the memory; several threads
   share the rows of each matrix, and meet before what they computed is read. A text alone may read
   guesses of its next tokens in the same pass (guesses.h).

   `native.py` fills these structures; their fields are the same, in the same order. */

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "choice.h"
#include "guesses.h"
#include "meeting.h"
#include "sight.h"

/* Whether to read many tokens by this step is faster than by torch. */
const int64_t partwise_reads = HAS_HALVES;

typedef struct {
    const float *weight; /* NULL: there is no such norm */
    const float *bias;
} Norm;

typedef struct {
    Norm norm1, norm2, query_norm, key_norm;
    Matrix qkv, projection, up, gate, down;
    void *keys, *values; /* (texts, kv_heads, slots, head_size), float32 or bfloat16 */
    float kept, added;    /* the block reads kept * x + added * embedding */
} Layer;

/* Tokens that are read at once where nothing is said after them: three tiles of a matrix's product. */
enum { READ = 15 };
_Static_assert(READ >= 1 + AHEAD, "there is room for guesses");

enum { NO_NORM, LAYER_NORM, RMS_NORM, FIXED_NORM };
enum { NO_FEEDFORWARD, RELU, GELU, GELU_TANH, RELU2, SWIGLU };

typedef struct {
    int64_t layers, width, heads, kv_heads, head_size, inner, vocab, slots, texts;
    int64_t norm, norm_first, norm_last, residual, parallel, activation, shortcut;
    int64_t ring, window, ngram;   /* window 0: none; ngram 1: none */
    int64_t halves;                /* keys and values are in bfloat16 */
    double eps, scale, soft_cap;   /* scale of the embeddings; soft_cap 0: none */
    const float *tokens;           /* (vocab, width) */
    const float *positions;        /* (context, width) or NULL */
    const float *const *ngrams;    /* tables of n = 2..ngram */
    const int64_t *ngram_rows;     /* rows of each */
    const double *frequencies;     /* (head_size / 2) or NULL: rotary positions */
    const float *slopes;           /* (heads) or NULL: ALiBi */
    const Layer *layer;
    Norm final_norm;
    Matrix head;
} Model;

typedef struct {
    const Model *model;
    const Choice *choice;
    Guesses *guesses; /* NULL: nothing is guessed; only for a text alone, and not in a ring */
    int64_t position; /* of the newest token */
    int64_t done, steps;
    int64_t read;  /* when reading began; then how long it took, in nanoseconds */
    int64_t reads; /* tokens of each text that are still to be read before the newest */
    int64_t rows;  /* tokens that a pass reads, as many of each text; with the newest, guesses */
    int64_t edges[AHEAD]; /* of the guesses */
    int64_t began;        /* the pass, in nanoseconds; 0: with it the threads began */
    /* (texts, ngram + reads + AHEAD): the last tokens, -1: none; those to read; the newest; guesses */
    int64_t *recent, stride;
    const float *uniforms; /* (steps, texts) */
    int64_t *chosen;       /* (steps, texts) */
    float *qkv, *mixed, *joined, *inner, *added, *logits; /* shared; (rows, …) each */
    Meeting *meeting;
} Run;

typedef struct {
    float *x, *embedded, *h, *scores, *turns; /* a thread's own */
    Rounded rounded;
    Candidate *order;
} Own;

/* --- Threads -------------------------------------------------------------------------------- */

/* Tokens of each text that a pass reads. */
static int64_t places_of(const Run *run) { return run->rows / run->model->texts; }

static int64_t share(int64_t rows, int64_t rank, int64_t threads) { return rows * rank / threads; }

/* y = x W^T + bias, for this thread's rows of W. */
static void multiply(const Run *run, int64_t rank, const Own *own, const Matrix *m, const float *x,
                     float *y) {
    product(m, x, &own->rounded, y, run->rows, share(m->rows, rank, run->meeting->threads),
            share(m->rows, rank + 1, run->meeting->threads));
}

/* --- Parts ---------------------------------------------------------------------------------- */

/* exp(x) to float32's precision, without a branch, so that a loop of it becomes vectors. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    union { int32_t bits; float value; } power;
    power.bits = ((int32_t)(n == n ? n : 0) + 127) << 23; /* x is no number: nor is the result */
    return (p * r * r + r + 1.0f) * power.value;
}

/* erf(x), with an error of the formula below 2e-7. Source: Abramowitz and Stegun, "Handbook of
   Mathematical Functions", 1964, 7.1.26. */
static inline float error_function(float x) {
    float size = fabsf(x), t = 1 / (1 + 0.3275911f * size);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    return copysignf(1 - p * t * exponential(-size * size), x);
}

static void normalise(const Model *model, int64_t kind, Norm norm, const float *x, float *y,
                      int64_t n) {
    if (!norm.weight) {
        if (x != y) memcpy(y, x, n * sizeof *y);
        return;
    }
    float mean = kind == LAYER_NORM ? total(x, n) / n : 0;
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - mean;
    float root = kind == FIXED_NORM ? 1 : 1 / sqrtf(dot(y, y, n) / n + (float)model->eps);
    for (int64_t i = 0; i < n; i++) {
        y[i] = y[i] * root * norm.weight[i];
        if (norm.bias) y[i] += norm.bias[i];
    }
}

/* Features i and i + n/2 are a point in a plane, turned by position * frequency i. */
static void turn(float *x, const float *turns, int64_t n) {
    for (int64_t i = 0; i < n / 2; i++) {
        float cosine = turns[2 * i], sine = turns[2 * i + 1], a = x[i], b = x[i + n / 2];
        x[i] = a * cosine - b * sine;
        x[i + n / 2] = b * cosine + a * sine;
    }
}

/* One query head of one text: softmax(q kᵀ / sqrt(head_size) + bias) v over what is in sight. */
static void attend(const Model *model, const Layer *layer, int64_t text, int64_t head, float *query,
                   int64_t position, float *scores, float *out) {
    int64_t n = model->head_size, slots = model->slots;
    int64_t group = model->heads / model->kv_heads;
    int64_t place = (text * model->kv_heads + head / group) * slots * n;
    const char *keys = (const char *)layer->keys + place * (model->halves ? 2 : 4);
    const char *values = (const char *)layer->values + place * (model->halves ? 2 : 4);
    int64_t first = 0, end = position + 1 < slots ? position + 1 : slots;
    if (!model->ring && model->window && position >= model->window)
        first = position - model->window + 1;
    float scale = 1 / sqrtf((float)n), most = -INFINITY;
    if (model->halves)
        compare(query, keys, n, first, end, scores, 1);
    else
        compare(query, keys, n, first, end, scores, 0);
    for (int64_t slot = first; slot < end; slot++) {
        float score = scores[slot] * scale;
        if (model->slopes) {
            int64_t back = model->ring ? (position - slot) % slots : position - slot;
            score -= model->slopes[head] * back;
        }
        scores[slot] = score;
        most = score > most ? score : most;
    }
    for (int64_t slot = first; slot < end; slot++) scores[slot] = exponential(scores[slot] - most);
    float whole = total(scores + first, end - first);
    if (model->halves)
        mix(scores, values, n, first, end, out, 1);
    else
        mix(scores, values, n, first, end, out, 0);
    for (int64_t i = 0; i < n; i++) out[i] /= whole;
}

static void activate(const Model *model, float *up, const float *gate, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = up[i];
        if (model->activation == SWIGLU)
            up[i] = x * gate[i] / (1 + exponential(-gate[i]));
        else if (model->activation == GELU)
            up[i] = 0.5f * x * (1 + error_function(x * 0.70710678f));
        else if (model->activation == GELU_TANH)
            /* 1 + tanh(z) = 2 / (1 + exp(-2 z)) */
            up[i] = x / (1 + exponential(-1.59576912f * (x + 0.044715f * x * x * x)));
        else {
            x = x < 0 ? 0 : x; /* what is no number stays none */
            up[i] = model->activation == RELU2 ? x * x : x;
        }
    }
}

/* --- Embedding ------------------------------------------------------------------------------ */

/* `recent` (ngram): the last tokens, the newest of them at `position`. */
static void embed(const Model *model, const int64_t *recent, int64_t position, float *x) {
    const float *row = model->tokens + recent[model->ngram - 1] * model->width;
    for (int64_t i = 0; i < model->width; i++) x[i] = row[i] * (float)model->scale;
    if (model->positions) {
        row = model->positions + position * model->width;
        for (int64_t i = 0; i < model->width; i++) x[i] += row[i];
    }
    for (int64_t n = 2; n <= model->ngram; n++) {
        int64_t rows = model->ngram_rows[n - 2], index = 0, all = 1;
        const int64_t *tokens = recent + model->ngram - n;
        if (tokens[0] < 0) continue;
        for (int64_t i = 0; i < n && all <= rows; i++) all *= model->vocab;
        for (int64_t i = 0; i < n; i++)
            index = all <= rows ? index * model->vocab + tokens[i]
                                : (index * 1000003 + tokens[i] + 1) % rows;
        row = model->ngrams[n - 2] + index * model->width;
        for (int64_t i = 0; i < model->width; i++) x[i] += row[i];
    }
}

/* --- The whole ------------------------------------------------------------------------------ */

static void sum(const Run *run, float *x, const float *y) {
    int64_t n = run->rows * run->model->width;
    if (!run->model->residual) memset(x, 0, n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void all_norms(const Run *run, Norm norm, const float *x, float *y) {
    const Model *model = run->model;
    for (int64_t row = 0; row < run->rows; row++)
        normalise(model, model->norm, norm, x + row * model->width, y + row * model->width,
                  model->width);
}

static void store(const Model *model, void *memory, int64_t place, const float *x, int64_t n) {
    if (!model->halves) {
        memcpy((float *)memory + place, x, n * sizeof *x);
        return;
    }
    uint16_t *to = (uint16_t *)memory + place;
    for (int64_t i = 0; i < n; i++) to[i] = narrow(x[i]);
}

/* One kv head of one text at one position: its key and value are stored, then its queries attend. */
static void attend_group(Run *run, Own *own, const Layer *layer, int64_t text, int64_t head,
                         int64_t place) {
    const Model *model = run->model;
    int64_t n = model->head_size, heads = model->heads, kv = model->kv_heads;
    int64_t row = text * places_of(run) + place, position = run->position + place;
    const float *turns = own->turns + place * n;
    float *all = run->qkv + row * (heads + 2 * kv) * n;
    float *key = all + (heads + head) * n, *value = key + kv * n;
    int64_t slot = ((text * kv + head) * model->slots + position % model->slots) * n;
    normalise(model, RMS_NORM, layer->key_norm, key, key, n);
    if (model->frequencies) turn(key, turns, n);
    store(model, layer->keys, slot, key, n);
    store(model, layer->values, slot, value, n);
    for (int64_t q = head * (heads / kv); q < (head + 1) * (heads / kv); q++) {
        float *query = all + q * n;
        normalise(model, RMS_NORM, layer->query_norm, query, query, n);
        if (model->frequencies) turn(query, turns, n);
        attend(model, layer, text, q, query, position, own->scores,
               run->mixed + (row * heads + q) * n);
    }
}

/* The attention of all rows for `own->h`; returns (rows, width). */
static float *attention(Run *run, int64_t rank, Own *own, const Layer *layer) {
    const Model *model = run->model;
    int64_t kv = model->kv_heads, places = places_of(run);
    multiply(run, rank, own, &layer->qkv, own->h, run->qkv);
    meet(run->meeting);
    int64_t end = share(model->texts * kv, rank + 1, run->meeting->threads);
    for (int64_t i = share(model->texts * kv, rank, run->meeting->threads); i < end; i++)
        for (int64_t place = 0; place < places; place++)
            attend_group(run, own, layer, i / kv, i % kv, place);
    meet(run->meeting);
    if (!layer->projection.weights) return run->mixed;
    multiply(run, rank, own, &layer->projection, run->mixed, run->joined);
    meet(run->meeting);
    return run->joined;
}

/* The feed-forward layer of all rows for `own->h`; returns (rows, width). */
static float *feedforward(Run *run, int64_t rank, Own *own, const Layer *layer) {
    const Model *model = run->model;
    int64_t n = layer->up.rows, from = share(n, rank, run->meeting->threads);
    int64_t count = share(n, rank + 1, run->meeting->threads) - from;
    float *gate = run->inner + run->rows * n;
    multiply(run, rank, own, &layer->up, own->h, run->inner);
    if (layer->gate.weights) multiply(run, rank, own, &layer->gate, own->h, gate);
    for (int64_t row = 0; row < run->rows; row++)
        activate(model, run->inner + row * n + from, gate + row * n + from, count);
    meet(run->meeting);
    if (!layer->down.weights) return run->inner;
    multiply(run, rank, own, &layer->down, run->inner, run->added);
    meet(run->meeting);
    return run->added;
}

static void forward(Run *run, int64_t rank, Own *own) {
    const Model *model = run->model;
    int64_t width = model->width, all = run->rows * width, places = places_of(run);
    for (int64_t row = 0; row < run->rows; row++) {
        int64_t place = row % places, text = row / places;
        float *turns = own->turns + place * model->head_size;
        int64_t position = run->position + place;
        embed(model, run->recent + text * run->stride + place, position,
              own->embedded + row * width);
        if (model->frequencies && !text)
            for (int64_t i = 0; i < model->head_size / 2; i++) {
                turns[2 * i] = (float)cos(position * model->frequencies[i]);
                turns[2 * i + 1] = (float)sin(position * model->frequencies[i]);
            }
    }
    memcpy(own->x, own->embedded, all * sizeof *own->x);
    for (const Layer *layer = model->layer; layer < model->layer + model->layers; layer++) {
        float *x = own->x;
        Norm none = {NULL, NULL};
        if (model->shortcut)
            for (int64_t i = 0; i < all; i++)
                x[i] = layer->kept * x[i] + layer->added * own->embedded[i];
        if (model->parallel) {
            all_norms(run, layer->norm1, x, own->h);
            const float *attended = attention(run, rank, own, layer);
            const float *thought = feedforward(run, rank, own, layer);
            sum(run, x, attended);
            for (int64_t i = 0; i < all; i++) x[i] += thought[i];
        } else {
            if (layer->qkv.weights) {
                all_norms(run, model->norm_first ? layer->norm1 : none, x, own->h);
                sum(run, x, attention(run, rank, own, layer));
                if (model->norm_last) all_norms(run, layer->norm1, x, x);
            }
            if (layer->up.weights) {
                all_norms(run, model->norm_first ? layer->norm2 : none, x, own->h);
                sum(run, x, feedforward(run, rank, own, layer));
                if (model->norm_last) all_norms(run, layer->norm2, x, x);
            }
        }
        /* Everywhere else a meeting lies between reading a place and writing there again. */
        if (!layer->qkv.weights && !layer->down.weights) meet(run->meeting);
    }
    if (run->reads) {
        meet(run->meeting);
        return;
    }
    all_norms(run, model->final_norm, own->x, own->h);
    multiply(run, rank, own, &model->head, own->h, run->logits);
    meet(run->meeting);
}

/* The next token of a text, from the logits of a row; it becomes the newest. */
static int64_t speak(Run *run, Own *own, int64_t text, int64_t row) {
    const Model *model = run->model;
    const Choice *choice = run->choice;
    float *scores = run->logits + row * model->vocab;
    uint8_t *seen = choice->seen ? choice->seen + text * choice->choices : NULL;
    if (model->soft_cap)
        for (int64_t i = 0; i < model->vocab; i++)
            scores[i] = (float)model->soft_cap * tanhf(scores[i] / (float)model->soft_cap);
    int64_t place = run->done * model->texts + text;
    int64_t token = choose(choice, scores, seen, run->uniforms[place], own->order);
    int64_t *recent = run->recent + text * run->stride;
    memmove(recent, recent + 1, (model->ngram - 1) * sizeof *recent);
    run->chosen[place] = token;
    recent[model->ngram - 1] = token < 0 ? 0 : token;
    if (token >= 0 && seen) seen[token] = 1;
    if (token >= 0 && run->guesses) learn(run->guesses, scores, choice->choices, token);
    return token;
}

/* Rows of a pass that has so many tokens of each text to read before the newest. */
static int64_t next_rows(const Model *model, int64_t reads) {
    int64_t most = model->texts < READ ? READ / model->texts : 1;
    return model->texts * (reads > most ? most : reads ? reads : 1);
}

/* What follows a pass that only read: the next one reads on. */
static void read_on(Run *run) {
    int64_t places = places_of(run);
    run->reads -= places, run->position += places, run->recent += places;
    run->rows = next_rows(run->model, run->reads);
    if (!run->reads) run->read = nanoseconds() - run->read;
}

/* What follows another: the choices, and what the next pass reads. */
static void say(Run *run, Own *own) {
    const Model *model = run->model;
    int64_t *guessed = run->recent + model->ngram, said = -1;
    if (run->guesses && run->began) took(run->guesses, run->rows - 1, nanoseconds() - run->began);
    for (int64_t text = 0; text < model->texts; text++) said = speak(run, own, text, text);
    run->done++, run->position++;
    for (int64_t row = 1; row <= run->rows - model->texts; row++) {
        int right = said == guessed[row - 1];
        judge(run->guesses, run->edges[row - 1], right);
        if (!right) break;
        said = speak(run, own, 0, row);
        run->done++, run->position++;
    }
    run->rows = model->texts;
    if (run->guesses) {
        /* A guess is only read where the token after it is asked for too, so that it has a place. */
        int64_t most = run->steps - run->done - 1;
        const float *uniforms = run->choice->greedy ? NULL : run->uniforms + run->done;
        run->rows += guess(run->guesses, uniforms, most < AHEAD ? most : AHEAD, guessed, run->edges);
    }
    run->began = nanoseconds();
}

static int64_t most_rows(const Model *model) { return next_rows(model, READ); }

typedef struct {
    Run *run;
    int64_t rank;
    void *memory;
    pthread_t thread;
} Worker;

static void *work(void *given) {
    Worker *worker = given;
    Run *run = worker->run;
    const Model *model = run->model;
    int64_t all = most_rows(model) * model->width;
    Own own;
    if (worker->rank > 0) await(run->meeting, 0); /* until all threads are known */
    own.order = worker->memory;
    own.x = (float *)(own.order + model->vocab);
    own.embedded = own.x + all;
    own.h = own.embedded + all;
    own.scores = own.h + all;
    own.turns = own.scores + model->slots;
    own.rounded.units = own.turns + most_rows(model) * model->head_size;
    own.rounded.halves = (Half *)(own.rounded.units + most_rows(model));
    do {
        forward(run, worker->rank, &own);
        if (worker->rank == 0 && run->reads)
            read_on(run);
        else if (worker->rank == 0)
            say(run, &own);
        meet(run->meeting);
    } while (run->done < run->steps);
    return NULL;
}

/* Read `reads` tokens of each text, the first of them at `position`; then the newest ones, and choose
   the next, `steps` times, with at most `threads` threads. Returns for how many nanoseconds it only
   read, or -1 where there is no memory for it. */
int64_t partwise_run(const Model *model, const Choice *choice, Guesses *guesses, int64_t threads,
                     int64_t position, int64_t reads, int64_t steps, int64_t *recent,
                     const float *uniforms, int64_t *chosen) {
    int64_t rows = most_rows(model);
    int64_t joint = model->heads * model->head_size, kv = model->kv_heads * model->head_size;
    int64_t shared = 2 * joint + 2 * kv + 2 * model->width + 2 * model->inner + model->vocab;
    int64_t longest = model->inner > joint ? model->inner : joint;
    if (longest < model->width) longest = model->width;
    int64_t numbers = 3 * rows * model->width + model->slots + rows * model->head_size + rows;
    size_t own = model->vocab * sizeof(Candidate) + numbers * sizeof(float) +
                 rows * longest * sizeof(Half);
    own += -own % sizeof(int64_t);
    float *memory = malloc(rows * shared * sizeof *memory);
    char *privates = malloc(threads * own);
    Worker *workers = calloc(threads, sizeof *workers);
    int64_t read = -1;
    if (memory && workers && privates) {
        Meeting meeting = {.threads = 1};
        prepare(&meeting);
        Run run = {.model = model, .choice = choice, .guesses = guesses, .position = position,
                   .steps = steps, .reads = reads, .recent = recent,
                   .stride = model->ngram + reads + AHEAD, .uniforms = uniforms,
                   .chosen = chosen, .meeting = &meeting};
        run.qkv = memory;
        run.mixed = run.qkv + rows * (joint + 2 * kv);
        run.joined = run.mixed + rows * joint;
        run.added = run.joined + rows * model->width;
        run.inner = run.added + rows * model->width;
        run.logits = run.inner + rows * 2 * model->inner;
        for (int64_t rank = 0; rank < threads; rank++)
            workers[rank] = (Worker){&run, rank, privates + rank * own, 0};
        /* A system out of threads has fewer to share the work; none begins before all are known. */
        while (meeting.threads < threads) {
            Worker *next = &workers[meeting.threads];
            if (pthread_create(&next->thread, NULL, work, next)) break;
            meeting.threads++;
        }
        run.rows = next_rows(model, reads);
        if (reads) run.read = nanoseconds();
        let_pass(&meeting);
        work(&workers[0]);
        for (int64_t rank = 1; rank < meeting.threads; rank++)
            pthread_join(workers[rank].thread, NULL);
        dismiss(&meeting);
        read = run.read;
    }
    free(memory);
    free(workers);
    free(privates);
    return read;
}
