/* Sixteen numbers that are computed with at once; a processor of shorter vectors takes several. */

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LANES = 16 };

typedef float Lanes __attribute__((vector_size(64)));
typedef float HalfLanes __attribute__((vector_size(32)));
typedef float FourLanes __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef int8_t Bytes __attribute__((vector_size(32)));
typedef int16_t Words __attribute__((vector_size(64)));
typedef int32_t Whole __attribute__((vector_size(64)));

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

/* Thirty-two small whole numbers. */
static inline Words words(const int8_t *x) {
    Bytes bytes;
    memcpy(&bytes, x, sizeof bytes);
#if defined(__AVX512BW__)
    return (Words)_mm512_cvtepi8_epi16((__m256i)bytes); /* gcc 12 makes five instructions of the next */
#else
    return __builtin_convertvector(bytes, Words);
#endif
}

static inline Words sixteen_bits(const int16_t *x) {
    Words all;
    memcpy(&all, x, sizeof all);
    return all;
}

/* sum[i] + a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1], exactly, while it fits. */
static inline Whole pairs(Whole sum, Words a, Words b) {
#if defined(__AVX512VNNI__)
    return (Whole)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
    return sum + (Whole)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    __m256i of_a[2], of_b[2];
    memcpy(of_a, &a, sizeof a), memcpy(of_b, &b, sizeof b);
    for (int i = 0; i < 2; i++) of_a[i] = _mm256_madd_epi16(of_a[i], of_b[i]);
    Whole both;
    memcpy(&both, of_a, sizeof both);
    return sum + both;
#else
    for (int i = 0; i < LANES; i++)
        sum[i] += (int32_t)a[2 * i] * b[2 * i] + (int32_t)a[2 * i + 1] * b[2 * i + 1];
    return sum;
#endif
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
