/* Activations and gates, element by element: docs/arithmetic.md, "Functions". */
#include "ref/kernels_private.h"

#include "ref/arith.h"

/* With a constant type it is a loop over vectors. */
static inline void embed_blocks(enum tensor_type type, const char *row, uint64_t n, float scale,
                                float *y)
{
    const uint32_t columns = arith_type_columns(type), bytes = arith_type_bytes(type);

    for (uint64_t i = 0; i < n; i += ARITH_BLOCK) {
        float values[ARITH_BLOCK];

        arith_dequantise_block(type, row + i / columns * bytes,
                               (uint32_t)(i % columns / ARITH_BLOCK), values);
        for (uint32_t j = 0; j < ARITH_BLOCK; j++)
            y[i + j] = arith_canonical(values[j] * scale);
    }
}

void REF_NAME(embed)(enum tensor_type type, const void *row, uint64_t n, float scale, float *y)
{
    switch (type) {
    case TENSOR_TYPE_Q8_0:
        embed_blocks(TENSOR_TYPE_Q8_0, row, n, scale, y);
        break;
    case TENSOR_TYPE_Q4_0:
        embed_blocks(TENSOR_TYPE_Q4_0, row, n, scale, y);
        break;
    case TENSOR_TYPE_Q4_K:
        embed_blocks(TENSOR_TYPE_Q4_K, row, n, scale, y);
        break;
    case TENSOR_TYPE_Q5_K:
        embed_blocks(TENSOR_TYPE_Q5_K, row, n, scale, y);
        break;
    case TENSOR_TYPE_Q6_K:
        embed_blocks(TENSOR_TYPE_Q6_K, row, n, scale, y);
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            y[i] = arith_canonical(arith_canonical(arith_load(type, row, i)) * scale);
    }
}

void REF_NAME(store)(enum tensor_type type, const float *x, uint64_t n, void *row, uint64_t first)
{
    if (type == TENSOR_TYPE_F16) {
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)row)[first + i] = arith_f16_from_f32(x[i]);
        return;
    }
    for (uint64_t i = 0; i < n; i += ARITH_BLOCK)
        arith_cache_block(type, x + i, (char *)row + tensor_type_row_bytes(type, first + i));
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
