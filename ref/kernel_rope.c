/* Rotary embedding: docs/arithmetic.md, "Rotary embedding". */
#include "ref/kernels_private.h"

#include <math.h>

#include "ref/arith.h"

enum { ROPE_PAIRS_MAX = REF_HEAD_DIM_MAX / 2 };

static void turn_head(const struct rope *rope, const float *cosines, const float *sines, float *x)
{
    uint32_t pairs = rope->turned / 2;

    for (uint32_t i = 0; i < pairs; i++) {
        float *first = &x[rope->halves ? i : 2 * i];
        float *second = &x[rope->halves ? i + pairs : 2 * i + 1];
        float a = *first, b = *second;

        *first = arith_canonical(fmaf(a, cosines[i], -(b * sines[i])));
        *second = arith_canonical(fmaf(a, sines[i], b * cosines[i]));
    }
}

void REF_NAME(rope)(const struct rope *rope, float *x)
{
    uint32_t pairs = rope->turned / 2;

    for (uint32_t t = 0; t < rope->token_count; t++) {
        float cosines[ROPE_PAIRS_MAX], sines[ROPE_PAIRS_MAX];

        for (uint32_t i = 0; i < pairs; i++)
            arith_sincos((double)rope->tokens[t].position * rope->frequencies[i], &sines[i],
                         &cosines[i]);
        for (uint32_t h = 0; h < rope->heads; h++)
            turn_head(rope, cosines, sines, x + ((uint64_t)t * rope->heads + h) * rope->dim);
    }
}
