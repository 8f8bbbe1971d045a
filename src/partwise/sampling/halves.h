/* Numbers in bfloat16, the upper half of float32: multiplied and summed up in float32. Whether those
   below 1e-38 count, and which of two is added first, depends on the processor. */

#include <stdint.h>
#include <string.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "vectors.h"

/* Columns of a matrix lie in pairs within a block of two vectors: one and the one LANES further on in
   a unit of 32 bits, the first in its lower half. */
enum { BLOCK = 2 * LANES };

static inline float wide(uint16_t number) {
    uint32_t bits = (uint32_t)number << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest in bfloat16, between two to the even one; what is no number stays none. */
static inline uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

/* The same of LANES numbers, which stay in the upper halves. */
static inline Bits nearest(Lanes x) {
    Bits bits, none = (Bits)(x != x);
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    return ((bits & ~none) | (none & 0x7fc00000u)) & 0xffff0000u;
}

static inline Bits as_bits(const void *x) {
    Bits all;
    memcpy(&all, x, sizeof all);
    return all;
}

#if defined(__AVX512BF16__)
/* Thirty-two numbers as VDPBF16PS takes them: in units, as the columns of a matrix lie. */
typedef uint32_t Half;
typedef Bits Block;
enum { HAS_HALVES = 1, HALVES_OF_BLOCK = LANES };

static inline void put_block(Half *to, Bits first, Bits second) {
    first = first >> 16 | second;
    memcpy(to, &first, sizeof first);
}

static inline Block block(const void *weights) { return as_bits(weights); }

/* sum + the products of a block with 32 numbers, in pairs. */
static inline Lanes with_block(Lanes sum, Block weights, const Half *x) {
    return (Lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)as_bits(x));
}
#else
/* Thirty-two numbers as the other processors take them: in float32. */
typedef float Half;
typedef struct {
    Lanes first, second;
} Block;
enum { HAS_HALVES = 0, HALVES_OF_BLOCK = BLOCK };

static inline void put_block(Half *to, Bits first, Bits second) {
    memcpy(to, &first, sizeof first);
    memcpy(to + LANES, &second, sizeof second);
}

static inline Block block(const void *weights) {
    Bits both = as_bits(weights);
    return (Block){numbers(both << 16), numbers(both & 0xffff0000u)};
}

static inline Lanes with_block(Lanes sum, Block weights, const Half *x) {
    sum += weights.first * lanes(x);
    return sum + weights.second * lanes(x + LANES);
}
#endif

/* The whole blocks of a row of x as `with_block` reads them. */
static void in_halves(const float *x, Half *to, int64_t n) {
    for (; n >= BLOCK; n -= BLOCK, x += BLOCK, to += HALVES_OF_BLOCK)
        put_block(to, nearest(lanes(x)), nearest(lanes(x + LANES)));
}
