/* What may come next, guessed from what was said so far: a pass reads guesses along with the newest
   token, at a small part of the cost of another pass, since each weight is read for all of them. Where
   the choice then falls on a guess, the token after it is known as well. A wrong guess costs a little
   time and changes nothing (Leviathan, Kalman, Matias 2023, with a table for the small model).

   The table keeps what the model itself has said of the ends of the text: for the last 1 to ORDERS
   tokens, the mean of the chances that it gave to what follows. A guess is drawn from them by the very
   number that will decide the choice, so that where the chances are right, so is the guess, also of what
   is not the likeliest. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { ORDERS = 5, PLACES = 8192, KEPT = 15, AHEAD = 4, EDGES = 20 };

/* Chances below this part of the likeliest's are not kept. */
#define SMALL 0.02f
/* What a longer end's chances weigh against those of the shorter ends in all, in times that it was met:
   as much where it was met once. */
#define SHORTER 1.0f
/* Guesses that come true less often than this are not looked at. */
#define RARE 0.05f
/* How often guesses are thought to come true before any was made. */
#define HOPED 0.7f

typedef struct {
    uint32_t mark; /* of the tokens that stand here; 0: none */
    float times;   /* how often they were met */
    int32_t tokens[KEPT];
    float chances[KEPT]; /* the sums of what these tokens had; 0: no token */
} End;

/* Tokens that may follow, in their order. */
typedef struct {
    int count;
    int32_t tokens[ORDERS * KEPT];
    float chances[ORDERS * KEPT];
} Next;

typedef struct {
    End ends[ORDERS][PLACES];
    int32_t last[ORDERS]; /* the newest tokens, the newest first */
    float less[EDGES];    /* than HOPED guesses came true of late, by how near they were to an edge */
    float took[1 + AHEAD]; /* nanoseconds of a pass with so many guesses of late; 0: none was made */
} Guesses;

/* Where what followed the first `order` of `last` stands; the mark that it has there. */
static End *place(Guesses *g, const int32_t *last, int order, uint32_t *mark) {
    uint64_t hash = order;
    for (int i = 0; i < order; i++) hash = (hash + (uint32_t)last[i] + 1) * 0x9e3779b97f4a7c15u;
    *mark = (uint32_t)hash | 1;
    return &g->ends[order - 1][hash >> 51]; /* 13 bits: PLACES */
}

static void newest(int32_t *last, int64_t token) {
    memmove(last + 1, last, (ORDERS - 1) * sizeof *last);
    last[0] = (int32_t)token;
}

static void add(Next *next, int32_t token, float chance) {
    int at = 0;
    while (at < next->count && next->tokens[at] < token) at++;
    if (at == next->count || next->tokens[at] != token) {
        size_t size = (next->count++ - at) * sizeof(int32_t);
        memmove(next->tokens + at + 1, next->tokens + at, size);
        memmove(next->chances + at + 1, next->chances + at, size);
        next->tokens[at] = token, next->chances[at] = 0;
    }
    next->chances[at] += chance;
}

/* The token that `uniform` would draw after `last`; -1: none is known. How near the draw is to another
   token is the guess's edge. */
static int64_t drawn(Guesses *g, const int32_t *last, float uniform, int64_t *edge) {
    Next next = {.count = 0};
    for (int order = 1; order <= ORDERS; order++) {
        uint32_t mark;
        const End *end = place(g, last, order, &mark);
        if (end->mark != mark) break;
        float share = 1 / (end->times + SHORTER);
        for (int i = 0; i < next.count; i++) next.chances[i] *= SHORTER * share;
        for (int i = 0; i < KEPT && end->chances[i] > 0; i++)
            add(&next, end->tokens[i], end->chances[i] * share);
    }
    float all = 0;
    for (int i = 0; i < next.count; i++) all += next.chances[i];
    float before = uniform * all;
    for (int i = 0; i < next.count; before -= next.chances[i++]) {
        float after = next.chances[i] - before;
        if (after < 0) continue;
        *edge = (int64_t)(2 * EDGES * (before < after ? before : after));
        *edge = *edge < EDGES ? *edge : EDGES - 1;
        return next.tokens[i];
    }
    return -1;
}

/* Guesses of the next tokens, at most `most`, as many as let expect the most tokens in a time; how
   many. Without `uniforms` the likeliest is chosen, whose chances are mostly more than a half. */
static int64_t guess(Guesses *g, const float *uniforms, int64_t most, int64_t *tokens,
                     int64_t *edges) {
    int32_t last[ORDERS];
    float chance = 1, expected = 1, best_expected = 1;
    int64_t best = 0;
    memcpy(last, g->last, sizeof last);
    for (int64_t i = 0; i < most; i++) {
        float uniform = uniforms ? uniforms[i] : 0.5f;
        tokens[i] = drawn(g, last, uniform, &edges[i]);
        if (tokens[i] < 0 || (chance *= HOPED - g->less[edges[i]]) < RARE) break;
        newest(last, tokens[i]);
        expected += chance;
        /* Times are compared crosswise: one that is not known is tried. */
        if (expected * g->took[best] > best_expected * g->took[i + 1])
            best = i + 1, best_expected = expected;
    }
    return best;
}

/* Whether a guess came true. */
static void judge(Guesses *g, int64_t edge, int came_true) {
    g->less[edge] += 0.02f * (HOPED - came_true - g->less[edge]);
}

/* A pass with `guesses` guesses took so long. One that was held up counts a little, and what was not
   tried for long becomes worth a trial. */
static void took(Guesses *g, int64_t guesses, float nanoseconds) {
    for (int i = 0; i < EDGES; i++) g->less[i] *= 0.9995f;
    for (int i = 0; i <= AHEAD; i++) {
        float *of_late = &g->took[i];
        if (i != guesses)
            *of_late *= 0.9995f;
        else if (*of_late == 0)
            *of_late = nanoseconds;
        else
            *of_late += 0.05f * (fminf(nanoseconds, 2 * *of_late) - *of_late);
    }
}

/* Take note of the chances that the next token had, in units of the likeliest's, and of the one that
   was said. */
static void learn(Guesses *g, const float *chances, int64_t n, int64_t said) {
    int32_t tokens[KEPT];
    float kept[KEPT], all = 0;
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (chances[i] < SMALL) continue;
        int at = count;
        if (count < KEPT)
            count++;
        else {
            for (int k = at = 0; k < KEPT; k++) at = kept[k] < kept[at] ? k : at;
            if (chances[i] <= kept[at]) continue;
        }
        tokens[at] = (int32_t)i, kept[at] = chances[i];
    }
    for (int k = 0; k < count; k++) all += kept[k];
    for (int order = 1; order <= ORDERS; order++) {
        uint32_t mark;
        End *end = place(g, g->last, order, &mark);
        if (end->mark != mark) memset(end, 0, sizeof *end);
        end->mark = mark;
        end->times++;
        for (int k = 0; k < count; k++) {
            float chance = kept[k] / all;
            int at = 0, least = 0;
            while (at < KEPT && end->chances[at] > 0 && end->tokens[at] != tokens[k]) {
                least = end->chances[at] < end->chances[least] ? at : least;
                at++;
            }
            if (at == KEPT) {
                if (end->chances[least] >= chance) continue;
                at = least, end->chances[at] = 0;
            }
            end->tokens[at] = tokens[k], end->chances[at] += chance;
        }
    }
    newest(g->last, said);
}
