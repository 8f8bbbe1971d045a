/* What may come next, guessed from what was said so far: a pass reads a guess along with the newest
   token, at a small part of the cost of another pass, since each weight is read for both. Where the
   choice then falls on the guess, the token after it is known as well. A wrong guess costs a little
   time and changes nothing (Leviathan, Kalman, Matias 2023, with a table for the small model). */

#include <stdint.h>

enum { ORDERS = 4, PLACES = 8192 };

typedef struct {
    int32_t next[ORDERS][PLACES]; /* what last followed 1 to ORDERS tokens, plus 1; 0: nothing did */
    int32_t last[ORDERS];         /* the newest tokens, the newest first */
    float right[ORDERS];          /* how often guesses from so many tokens came true of late */
} Guesses;

static int64_t place(const Guesses *g, int order) {
    uint64_t hash = order;
    for (int i = 0; i < order; i++) hash = (hash + (uint32_t)g->last[i] + 1) * 0x9e3779b97f4a7c15u;
    return hash >> 51; /* 13 bits: PLACES */
}

/* The longest end of the text that was met before; 0: none. */
static int met(const Guesses *g) {
    int order = ORDERS;
    while (order && !g->next[order - 1][place(g, order)]) order--;
    return order;
}

/* A token that comes true often enough to be worth reading; -1: none. */
static int64_t guess(const Guesses *g) {
    int order = met(g);
    if (!order || g->right[order - 1] < 0.25f) return -1;
    return g->next[order - 1][place(g, order)] - 1;
}

/* Take note of what was said. */
static void learn(Guesses *g, int64_t token) {
    int order = met(g);
    if (order) {
        float *right = &g->right[order - 1];
        *right += 0.02f * ((g->next[order - 1][place(g, order)] - 1 == token) - *right);
    }
    for (int o = 1; o <= ORDERS; o++) g->next[o - 1][place(g, o)] = (int32_t)token + 1;
    for (int i = ORDERS - 1; i; i--) g->last[i] = g->last[i - 1];
    g->last[0] = (int32_t)token;
}
