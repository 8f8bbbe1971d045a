/* A step of Muon: each matrix by one thread, from its gradient to its new weights.

   What `muon.py` says in products of whole matrices. Every small matrix here is a polynomial of
   X Xᵀ and so the same when it is turned: half of each is computed, and the other half copied.

   `compiled_muon.py` fills `Move` and `Moved`; their fields are the same, in the same order. */

#include <math.h>
#include <omp.h>

#include "units.h"

typedef struct {
    float *weight, *momentum; /* (rows, columns) */
    const float *gradient;
    int64_t rows, columns; /* in whole vectors */
} Moved;

typedef struct {
    int64_t matrices, threads, steps, small; /* small: up to so many steps by X Xᵀ alone */
    const double *polynomials;               /* (steps, 3) */
    double momentum, rate, decay, safety;
} Move;

/* What a thread works in: X as the matrix lies, what becomes of it, Xᵀ, and small matrices. */
typedef struct {
    float *x, *next, *turned;
    float *gram, *square, *poly, *collected, *spare;
} Room;

static const Unit *as_unit(const float *x) { return (const Unit *)x; }

/* C (rows, columns) = A B, with B row by row, a few of its rows at a time. */
static void product(float *c, int64_t c_row, const float *a, int64_t down, int64_t across,
                    const float *b, int64_t b_row, int64_t rows, int64_t depth, int64_t columns) {
    for (int64_t k = 0; k < depth; k += DEEP) {
        Left left = {as_unit(a) + k * across, down, across};
        multiply_units(c, c_row, left, as_unit(b) + k * b_row, b_row, rows,
                       depth - k < DEEP ? depth - k : DEEP, columns, k > 0, 0);
    }
}

/* C (n, n) = A B, which is known to be the same when turned. */
static void symmetric(float *c, const float *a, int64_t down, int64_t across, const float *b,
                      int64_t n, int64_t depth) {
    for (int64_t first = 0; first < n; first += PANEL) {
        int64_t count = n - first < PANEL ? n - first : PANEL;
        product(c + first * n + first, n, a + first * down, down, across, b + first, n, count,
                depth, n - first);
    }
    for (int64_t row = 1; row < n; row++)
        for (int64_t column = 0; column < row; column++) c[row * n + column] = c[column * n + row];
}

/* a I + b A + c A². */
static void polynomial(const double *by, int64_t n, Room *room) {
    symmetric(room->square, room->gram, n, 1, room->gram, n, n);
    for (int64_t i = 0; i < n * n; i++)
        room->poly[i] = (float)by[1] * room->gram[i] + (float)by[2] * room->square[i];
    for (int64_t i = 0; i < n; i++) room->poly[i * n + i] += (float)by[0];
}

/* X Xᵀ of the shorter side. */
static void gram_of(const Moved *of, Room *room) {
    int64_t rows = of->rows, columns = of->columns;
    if (rows > columns) {
        symmetric(room->gram, room->x, 1, columns, room->x, columns, rows);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            room->turned[column * rows + row] = room->x[row * columns + column];
    symmetric(room->gram, room->x, columns, 1, room->turned, rows, columns);
}

static void swap(float **one, float **other) {
    float *before = *one;
    *one = *other, *other = before;
}

/* X becomes P X, or X P where its columns are the shorter side. */
static void applied(const Moved *of, const float *poly, Room *room) {
    int64_t rows = of->rows, columns = of->columns;
    if (rows > columns)
        product(room->next, columns, room->x, columns, 1, poly, columns, rows, columns, columns);
    else
        product(room->next, columns, poly, rows, 1, room->x, columns, rows, rows, columns);
    swap(&room->x, &room->next);
}

/* X of singular values below 1 -> X of singular values of about 1. */
static void orthogonalise(const Move *move, const Moved *of, Room *room) {
    int64_t n = of->rows < of->columns ? of->rows : of->columns;
    int small = of->rows != of->columns && move->steps <= move->small;
    gram_of(of, room);
    for (int64_t step = 0; step < move->steps; step++) {
        if (step && !small) gram_of(of, room);
        polynomial(move->polynomials + 3 * step, n, room);
        if (!small) {
            applied(of, room->poly, room);
            continue;
        }
        if (step + 1 < move->steps) {
            symmetric(room->square, room->poly, n, 1, room->gram, n, n);
            symmetric(room->gram, room->square, n, 1, room->poly, n, n);
        }
        if (step) {
            symmetric(room->spare, room->poly, n, 1, room->collected, n, n);
            swap(&room->collected, &room->spare);
        } else
            swap(&room->collected, &room->poly);
    }
    if (small) applied(of, room->collected, room);
}

static void move_one(const Move *move, const Moved *of, Room room) {
    int64_t n = of->rows * of->columns;
    float keep = (float)move->momentum, take = (float)(1 - move->momentum);
    double squares = 0;
    for (int64_t row = 0; row < of->rows; row++) {
        Lanes sums = {0};
        for (int64_t i = row * of->columns; i < (row + 1) * of->columns; i += LANES) {
            Lanes g = lanes(of->gradient + i), mean = lanes(of->momentum + i);
            mean += take * (g - mean);
            Lanes ahead = g + keep * (mean - g);
            memcpy(of->momentum + i, &mean, sizeof mean);
            memcpy(room.x + i, &ahead, sizeof ahead);
            sums += ahead * ahead;
        }
        squares += together(sums);
    }
    float scale = (float)(1 / (sqrt(squares) * move->safety + 1e-7));
    for (int64_t i = 0; i < n; i++) room.x[i] *= scale;
    orthogonalise(move, of, &room);
    double ratio = (double)of->rows / of->columns;
    float kept = (float)(1 - move->rate * move->decay);
    float step = (float)(move->rate * sqrt(ratio > 1 ? ratio : 1));
    for (int64_t i = 0; i < n; i++) of->weight[i] = kept * of->weight[i] - step * room.x[i];
}

static void most(const Move *move, const Moved *moved, int64_t *all, int64_t *small) {
    *all = *small = 0;
    for (int64_t i = 0; i < move->matrices; i++) {
        int64_t rows = moved[i].rows, columns = moved[i].columns, n = rows < columns ? rows : columns;
        if (rows * columns > *all) *all = rows * columns;
        if (n * n > *small) *small = n * n;
    }
}

/* Numbers that all threads need room for. */
int64_t partwise_muon_room(const Move *move, const Moved *moved) {
    int64_t all, small;
    most(move, moved, &all, &small);
    return move->threads * (3 * all + 5 * small);
}

/* Moves every matrix. */
void partwise_muon(const Move *move, const Moved *moved, float *memory) {
    int64_t all, small;
    most(move, moved, &all, &small);
#pragma omp parallel num_threads(move->threads)
    {
        float *mine = memory + omp_get_thread_num() * (3 * all + 5 * small);
        float *rest = mine + 3 * all;
        Room room = {mine, mine + all, mine + 2 * all, rest, rest + small, rest + 2 * small,
                     rest + 3 * small, rest + 4 * small};
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < move->matrices; i++) move_one(move, moved + i, room);
    }
}
