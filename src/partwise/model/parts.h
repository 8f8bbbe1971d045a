/* The parts between the matrices, each with its gradient: norms, activations, dropout, the tables of
   embeddings, and the loss. */

#pragma once

#include "gradient.h"

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
        /* Attention of each layer has the seeds before this one. */
        uint32_t seed = scattered(model->seed + (uint64_t)model->layers, row);
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
