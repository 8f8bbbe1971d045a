/* Whole numbers: bytes and words of 16 bits, multiplied and summed up exactly in 32 bits. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "vectors.h"

typedef int8_t Bytes __attribute__((vector_size(32)));
typedef int16_t Words __attribute__((vector_size(64)));
typedef int32_t Whole __attribute__((vector_size(64)));

/* Thirty-two small whole numbers. */
static inline Words from_bytes(const int8_t *x) {
    Bytes bytes;
    memcpy(&bytes, x, sizeof bytes);
#if defined(__AVX512BW__)
    return (Words)_mm512_cvtepi8_epi16((__m256i)bytes); /* gcc 12 makes five instructions of the next */
#else
    return __builtin_convertvector(bytes, Words);
#endif
}

static inline Words from_words(const int16_t *x) {
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

/* A row of x in words, of which the largest is 32,767; returns what one of them is worth. n: whole
   vectors. They come far nearer to x than int8 comes to the weights. */
static float in_words(const float *x, int16_t *words, int64_t n) {
    float most[LANES] = {0}, bad[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float size = fabsf(x[i + l]);
            most[l] = size > most[l] ? size : most[l];
            bad[l] += size * 0; /* what is no number stays none */
        }
    float largest = 0, none = 0;
    for (int l = 0; l < LANES; l++) {
        largest = most[l] > largest ? most[l] : largest;
        none += bad[l];
    }
    /* Of what is smaller nothing would come anyway. */
    float factor = largest > 1e-30f && none == 0 ? 32767 / largest : 0;
    for (int64_t i = 0; i < n; i++) {
        float scaled = factor > 0 ? x[i] * factor : 0;
        words[i] = (int16_t)(int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));
    }
    return largest / 32767 + none;
}
