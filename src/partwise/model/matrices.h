/* Products with a model's matrices, and the gradients of these. */

#pragma once

#include "gradient.h"

/* n of W's numbers from (row, column) on, or zeros where W ends; `room` has space for them. */
static inline const float *numbers_of(const Matrix *m, int64_t row, int64_t column, int64_t n,
                                      float *room) {
    int64_t there = row < m->rows ? m->columns - column : 0;
    if (there >= n) return m->weight + row * m->columns + column;
    memset(room, 0, n * sizeof *room);
    if (there > 0) memcpy(room, m->weight + row * m->columns + column, there * sizeof *room);
    return room;
}

/* One panel's columns of W's units for sums over W's columns: rows of W become columns. */
static void pack_forward(const Model *model, const Packed *packed, int64_t panel) {
    int64_t columns = packed->columns, depth = depth_of(model, columns), first = panel * PANEL;
    int64_t width = packed->rows - first < PANEL ? packed->rows - first : PANEL;
    Unit *to = packed->forward + first * depth, row[columns];
    float room[columns];
    for (int64_t j = 0; j < width; j++) {
        const float *from = numbers_of(packed->of, first + j, 0, columns, room);
        if (model->halves)
            across_units(row, from, columns);
        else
            memcpy(row, from, sizeof row);
        for (int64_t k = 0; k < depth; k++) to[k * width + j] = row[k];
    }
}

/* The same for sums over W's rows. */
static void pack_back(const Model *model, const Packed *packed, int64_t panel) {
    int64_t depth = depth_of(model, packed->rows), first = panel * PANEL;
    int64_t width = packed->columns - first < PANEL ? packed->columns - first : PANEL;
    Unit *to = packed->back + first * depth;
    float room[PANEL], next[PANEL];
    for (int64_t k = 0; k < depth; k++, to += width) {
        int64_t row = model->halves ? 2 * k : k;
        const float *from = numbers_of(packed->of, row, first, width, room);
        if (model->halves)
            down_units(to, from, numbers_of(packed->of, row + 1, first, width, next), width);
        else
            memcpy(to, from, width * sizeof *to);
    }
}

/* y (count, rows in whole vectors) = W x + bias. */
static void apply(const Model *model, const Packed *packed, Left x, int64_t count, float *y) {
    const Matrix *m = packed->of;
    multiply_units(y, packed->rows, x, packed->forward, 0, count,
                   depth_of(model, packed->columns), packed->rows, 0, (int)model->halves);
    if (m->bias)
        for (int64_t t = 0; t < count; t++)
            for (int64_t i = 0; i < m->rows; i++) y[t * packed->rows + i] += m->bias[i];
}

/* of_x (count, columns in whole vectors) = Wᵀ of_y, or that added to it. */
static void unapply(const Model *model, const Packed *packed, Left of_y, int64_t count,
                    float *of_x, int add) {
    multiply_units(of_x, packed->columns, of_y, packed->back, 0, count,
                   depth_of(model, packed->rows), packed->columns, add, (int)model->halves);
}

static inline float half_of(Unit unit, int high) {
    Unit bits = high ? unit & 0xffff0000 : unit << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The gradient of some of W's rows: of_y (tokens, rows) times x (tokens, columns), both in whole
   vectors and for sums over tokens; and that of its bias. `room` has space for the rows. */
static void slope_rows(const Run *run, const Packed *packed, const Unit *of_y, const Unit *x,
                       int64_t task, float *room) {
    const Model *model = run->model;
    const Matrix *m = packed->of;
    int64_t first = task * ROWS, count = m->rows - first < ROWS ? m->rows - first : ROWS;
    int64_t depth = depth_of(model, run->tokens), row = packed->rows, columns = packed->columns;
    float *out = m->of_weight + first * m->columns;
    float *to = columns == m->columns ? out : room;
    for (int64_t k = 0; k < depth; k += DEEP) {
        Left left = {of_y + k * row + first, 1, row};
        multiply_units(to, columns, left, x + k * columns, columns, count,
                       depth - k < DEEP ? depth - k : DEEP, columns, k > 0, (int)model->halves);
    }
    for (int64_t r = 0; to == room && r < count; r++)
        memcpy(out + r * m->columns, room + r * columns, m->columns * sizeof *out);
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
