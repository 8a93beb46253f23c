/* Norms: docs/arithmetic.md, "Norms". */
#include "ref/kernels_private.h"

#include <math.h>

#include "ref/arith.h"

void REF_NAME(rms_norm)(const float *x, const float *weight, float eps, uint64_t rows, uint64_t n,
                        float *y)
{
    REF_PARALLEL_FOR(rows * n)
    for (uint64_t row = 0; row < rows; row++) {
        const float *in = x + row * n;
        float *out = y + row * n;
        float mean = arith_sum_squares(in, n) / (float)n;
        float scale = arith_rsqrt(mean + eps);

        for (uint64_t i = 0; i < n; i++)
            out[i] = arith_canonical(in[i] * scale * (weight != NULL ? weight[i] : 1.0f));
    }
}
