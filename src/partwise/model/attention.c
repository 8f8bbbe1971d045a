/* Causal attention of a whole batch and its gradient.

   `compiled_attention.py` fills `Shape`; its fields are the same, in the same order. */

#include "attention.h"

/* Numbers that each thread needs room for. */
int64_t partwise_attention_room(const Shape *shape) { return room_of(shape); }

/* qkv (B, T, 3, heads, size) -> y (B, T, heads, size) and sums (B heads, T). */
void partwise_attention(const Shape *shape, float *memory, const float *qkv, float *y,
                        float *sums) {
    int64_t units = shape->texts * shape->heads;
#pragma omp parallel num_threads(shape->threads)
    {
        Room room = own_room(shape, memory);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++)
            head_forward(shape, qkv, unit, &room, y, sums + unit * shape->length);
    }
}

/* of_y (B, T, heads, size) -> out, which lies as qkv does, and scales (B heads, 2, size). */
void partwise_attention_slope(const Shape *shape, float *memory, const float *qkv,
                              const float *sums, const float *of_y, float *out, float *scales) {
    int64_t units = shape->texts * shape->heads;
#pragma omp parallel num_threads(shape->threads)
    {
        Room room = own_room(shape, memory);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < units; unit++)
            head_backward(shape, qkv, sums + unit * shape->length, of_y, unit, &room, out,
                          scales + unit * 2 * shape->size);
    }
}
