/* The next token from its scores, as `choose.py` has it. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t choices; /* tokens that may be chosen, the first of the vocabulary */
    int64_t greedy, top_k; /* top_k 0: all */
    double temperature, top_p, min_p, penalty; /* top_p 1, min_p 0, penalty 1: off */
    uint8_t *seen; /* (texts, choices), for the penalty */
} Choice;

typedef struct {
    float score;
    int64_t token;
} Candidate;

static int likelier(const void *a, const void *b) {
    const Candidate *one = a, *other = b;
    if (one->score != other->score) return one->score < other->score ? 1 : -1;
    return one->token < other->token ? -1 : one->token > other->token;
}

/* A token, with the chances of all in place of their scores, in units of the likeliest's; -1 where
   these are not numbers. */
static int64_t choose(const Choice *c, float *scores, const uint8_t *seen, float uniform,
                      Candidate *order) {
    int64_t n = c->choices, best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (c->penalty != 1 && seen[i])
            scores[i] = scores[i] > 0 ? scores[i] / (float)c->penalty : scores[i] * (float)c->penalty;
        if (isnan(scores[i])) return -1;
        if (scores[i] > scores[best]) best = i;
    }
    if (!isfinite(scores[best])) return -1;
    if (c->greedy) {
        memset(scores, 0, n * sizeof *scores);
        scores[best] = 1;
        return best;
    }
    float most = scores[best];
    int64_t kept = c->top_k && c->top_k < n ? c->top_k : n;
    int sorted = kept < n || c->top_p < 1;
    for (int64_t i = 0; i < n; i++) scores[i] = (scores[i] - most) / (float)c->temperature;
    if (sorted) {
        /* By the scores: at a high temperature all weights are 1, or nearly. */
        for (int64_t i = 0; i < n; i++) order[i] = (Candidate){scores[i], i};
        qsort(order, n, sizeof *order, likelier);
    }
    for (int64_t i = 0; i < n; i++) scores[i] = expf(scores[i]);
    if (sorted) {
        double total = 0, before = 0;
        for (int64_t i = 0; i < kept; i++) total += scores[order[i].token];
        for (int64_t i = 0; i < n; i++) {
            float *weight = &scores[order[i].token], was = *weight;
            if (i >= kept || (c->top_p < 1 && !(before < c->top_p * total))) *weight = 0;
            before += was;
        }
    }
    double total = 0, running = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        if (scores[i] < (float)c->min_p) scores[i] = 0;
        if (scores[i] > 0) last = i;
        total += scores[i];
    }
    for (int64_t i = 0; i < last; i++) {
        running += scores[i];
        if (scores[i] > 0 && running >= uniform * total) return i;
    }
    /* Summed up in another order, the total may be more than all of them in turn. */
    return last;
}
