/* Sixteen numbers that are computed with at once; a processor of shorter vectors takes several. */

#pragma once

#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

typedef float Lanes __attribute__((vector_size(64)));
typedef float HalfLanes __attribute__((vector_size(32)));
typedef float FourLanes __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

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

/* Sixteen in bfloat16, the upper half of float32. */
static inline Lanes widened(const uint16_t *x) {
    Halves halves;
    memcpy(&halves, x, sizeof halves);
    return numbers(__builtin_convertvector(halves, Bits) << 16);
}

/* The sum of all sixteen, in an order of its own. */
static inline float together(Lanes all) {
    HalfLanes low, high;
    memcpy(&low, &all, sizeof low);
    memcpy(&high, (const char *)&all + sizeof low, sizeof high);
    low += high;
    FourLanes one, other;
    memcpy(&one, &low, sizeof one);
    memcpy(&other, (const char *)&low + sizeof one, sizeof other);
    one += other;
    return (one[0] + one[2]) + (one[1] + one[3]);
}
