/* What may come next, guessed from what was said so far: a pass reads a guess along with the newest
   token, at a small part of the cost of another pass, since each weight is read for both. Where the
   choice then falls on the guess, the token after it is known as well. A wrong guess costs a little
   time and changes nothing (Leviathan, Kalman, Matias 2023, with a table for the small model). */

#include <stdint.h>

enum { ORDERS = 4, PLACES = 8192, SURE = 3, MOST_TIMES = 100 };

typedef struct {
    int32_t next[ORDERS][PLACES];  /* what mostly followed 1 to ORDERS tokens, plus 1; 0: nothing did */
    int32_t times[ORDERS][PLACES]; /* how often it did more than anything else, up to MOST_TIMES */
    int32_t last[ORDERS];          /* the newest tokens, the newest first */
    float right[ORDERS][SURE];     /* how often guesses came true of late, by what they stand on */
} Guesses;

static int64_t place(const Guesses *g, int order) {
    uint64_t hash = order;
    for (int i = 0; i < order; i++) hash = (hash + (uint32_t)g->last[i] + 1) * 0x9e3779b97f4a7c15u;
    return hash >> 51; /* 13 bits: PLACES */
}

/* How often guesses such as the one that stands there came true. */
static float *chance(Guesses *g, int order, int64_t place) {
    int32_t times = g->times[order - 1][place];
    return &g->right[order - 1][(times < SURE ? times : SURE) - 1];
}

/* The token that is likeliest to come true, if that is worth a reading; -1: none. */
static int64_t guess(Guesses *g) {
    float best = 0.3f;
    int64_t token = -1;
    for (int order = 1; order <= ORDERS; order++) {
        int64_t at = place(g, order);
        if (!g->next[order - 1][at] || *chance(g, order, at) < best) continue;
        best = *chance(g, order, at);
        token = g->next[order - 1][at] - 1;
    }
    return token;
}

/* Take note of what was said. What is kept of a place is its majority, where there is one (Boyer and
   Moore's vote, 1981). */
static void learn(Guesses *g, int64_t token) {
    for (int order = 1; order <= ORDERS; order++) {
        int64_t at = place(g, order);
        int32_t *next = &g->next[order - 1][at], *times = &g->times[order - 1][at];
        if (*next) {
            int right = *next - 1 == token;
            float *of_late = chance(g, order, at);
            *of_late += 0.02f * (right - *of_late);
            if (right)
                *times += *times < MOST_TIMES;
            else
                --*times;
        }
        if (!*times) *next = (int32_t)token + 1, *times = 1;
    }
    for (int i = ORDERS - 1; i; i--) g->last[i] = g->last[i - 1];
    g->last[0] = (int32_t)token;
}
