/* Activations and gates, element by element: docs/arithmetic.md, "Functions". */
#include "ref/kernels_private.h"

#include "ref/arith.h"

void REF_NAME(embed)(enum tensor_type type, const void *row, uint64_t n, float scale, float *y)
{
    const uint32_t columns = arith_type_columns(type), bytes = arith_type_bytes(type);

    if (!arith_type_is_quantised(type)) {
        for (uint64_t i = 0; i < n; i++)
            y[i] = arith_canonical(arith_canonical(arith_load(type, row, i)) * scale);
        return;
    }
    for (uint64_t i = 0; i < n; i += ARITH_BLOCK) {
        arith_dequantise_block(type, (const char *)row + i / columns * bytes,
                               (uint32_t)(i % columns / ARITH_BLOCK), y + i);
        for (uint32_t j = 0; j < ARITH_BLOCK; j++)
            y[i + j] = arith_canonical(y[i + j] * scale);
    }
}

void REF_NAME(glu)(const float *gate, const float *up, bool gelu, uint64_t n, float *y)
{
    REF_PARALLEL_FOR(n)
    for (uint64_t i = 0; i < n; i++)
        y[i] = arith_canonical((gelu ? arith_gelu_tanh(gate[i]) : arith_silu(gate[i])) * up[i]);
}

void REF_NAME(gate)(const float *x, const float *gate, uint64_t n, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = arith_canonical(x[i] * arith_sigmoid(gate[i]));
}

void REF_NAME(softcap)(const float *x, float cap, uint64_t n, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = arith_canonical(cap * arith_tanh(x[i] / cap));
}

void REF_NAME(silu_gate)(const float *x, const float *gate, uint64_t n, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = arith_canonical(x[i] * arith_silu(gate[i]));
}
