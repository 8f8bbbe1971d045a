/* LANES numbers that are computed with at once.

   Sixteen, whatever the processor, where the order of a sum or of numbers in memory must be the same
   everywhere; a processor of shorter registers takes several. A file that needs neither has as many
   as a register holds: it defines AS_LONG_AS_REGISTERS before. */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(AS_LONG_AS_REGISTERS) && !defined(__AVX512F__)
#define LANES 8
#else
#define LANES 16
#endif

/* Rows of numbers are padded with zeros to a multiple of this, which every LANES divides. */
enum { WHOLE = 16 };

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef float FourLanes __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

static inline Lanes lanes(const float *x) {
    Lanes all;
    memcpy(&all, x, sizeof all);
    return all;
}

static inline Lanes numbers(Bits bits) {
    Lanes all;
    memcpy(&all, &bits, sizeof all);
    return all;
}

/* LANES in bfloat16, the upper half of float32. */
static inline Lanes widened(const uint16_t *x) {
    Halves halves;
    memcpy(&halves, x, sizeof halves);
    return numbers(__builtin_convertvector(halves, Bits) << 16);
}

/* The sum of all, in an order of its own. */
static inline float together(Lanes all) {
    FourLanes four[LANES / 4];
    memcpy(four, &all, sizeof four);
    for (int half = LANES / 8; half; half /= 2)
        for (int i = 0; i < half; i++) four[i] += four[i + half];
    return (four[0][0] + four[0][2]) + (four[0][1] + four[0][3]);
}
