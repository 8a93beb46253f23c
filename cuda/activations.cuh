/* Quantised activations as a kernel that computes them writes them: the layout of
 * matmul_fast.h, by arith_quantise_block(). */
#ifndef CUDA_ACTIVATIONS_CUH
#define CUDA_ACTIVATIONS_CUH

#include "cuda/matmul_fast.h"

#include "ref/arith.h"

/* Where the activations of a product go. `bytes` NULL: nowhere. Segments are whole groups, so that
 * a token's row has no padding. */
struct activations {
    uint8_t *bytes; /* matmul_fast_activation_bytes() */
    uint32_t windows, atoms;
};

/** Those of a product with `matmul`. */
static inline struct activations activations_of(const struct matmul_fast *matmul, uint32_t tokens,
                                                void *bytes)
{
    struct activations to = {};

    to.bytes = (uint8_t *)bytes;
    to.windows = matmul_fast_windows(matmul);
    to.atoms = matmul_fast_padded_tokens(tokens) / 8;
    return to;
}

/* Of a token's block of 32. */
struct activation_place {
    uint8_t *q;         /* the token's window: 128 bytes */
    float *scale, *sum; /* of the block */
};

static __device__ __forceinline__ struct activation_place
activations_place(const struct activations &to, uint32_t token, uint32_t column)
{
    const uint32_t window = column / MATMUL_FAST_COLUMNS, b = column / ARITH_BLOCK % 4;
    const uint64_t all = (uint64_t)to.windows * to.atoms;
    const uint64_t atom = (uint64_t)window * to.atoms + token / 8;
    const uint64_t at = matmul_fast_scale_at(window, to.atoms, token, b);
    uint8_t *scales = to.bytes + all * MATMUL_FAST_ATOM;

    if (to.atoms == 1) { /* records of a window */
        uint8_t *record = to.bytes + (uint64_t)window * MATMUL_FAST_RECORD;
        float *factors = (float *)record + b * 8 + token;

        return {record + 2 * MATMUL_FAST_ATOM_SCALES + token * 128, factors,
                factors + MATMUL_FAST_ATOM_SCALES / 4};
    }
    return {to.bytes + atom * MATMUL_FAST_ATOM + token % 8 * 128, (float *)scales + at,
            (float *)(scales + all * MATMUL_FAST_ATOM_SCALES) + at};
}

/* How a block is quantised whose largest magnitude is this one. */
struct activation_scale {
    bool some; /* else all of q is 0 */
    float inverse, scale;
};

static __device__ __forceinline__ struct activation_scale activations_scale(float largest)
{
    const bool finite = largest < ARITH_ACTIVATION_MAX;
    const float ratio = largest / 127.0f;
    const bool some = finite && ratio >= ARITH_SCALE_MIN;

    return {some, some ? 127.0f / largest : 0.0f,
            !finite ? arith_nan()
            : some  ? ratio * 0x1p30f
                    : 0.0f};
}

static __device__ __forceinline__ int8_t activations_round(const struct activation_scale &scale,
                                                           float value)
{
    return scale.some ? arith_round_to_int8(value * scale.inverse) : (int8_t)0;
}

/** A whole warp has a block of 32: its lane `column % 32` the value of `column`. */
static __device__ __forceinline__ void
activations_store(const struct activations &to, uint32_t token, uint32_t column, float value)
{
    const uint32_t in_window = column % MATMUL_FAST_COLUMNS;
    const struct activation_scale scale = activations_scale(
        arith_float(__reduce_max_sync(0xffffffffu, arith_bits(value) & UINT32_C(0x7fffffff))));
    const int8_t whole = activations_round(scale, value);
    const int32_t total = __reduce_add_sync(0xffffffffu, (int32_t)whole);
    const struct activation_place place = activations_place(to, token, column);

    place.q[((in_window / 16) ^ (token % 8)) * 16 + column % 16] = (uint8_t)whole;
    if (column % ARITH_BLOCK == 0) {
        *place.scale = scale.scale;
        *place.sum = (float)total;
    }
}

/** 8 lanes of a whole warp have a block of 32, each the four values from `column` on. Lanes without
 * `writes`, all of a block, only lend their warp. */
static __device__ __forceinline__ void activations_store_four(const struct activations &to,
                                                              uint32_t token, uint32_t column,
                                                              const float4 &four, bool writes)
{
    const uint32_t in_window = column % MATMUL_FAST_COLUMNS;
    const float values[4] = {four.x, four.y, four.z, four.w};
    uint32_t largest = 0, word = 0;
    int32_t total = 0;

#pragma unroll
    for (int i = 0; i < 4; i++)
        largest = max(largest, arith_bits(values[i]) & UINT32_C(0x7fffffff));
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, s));

    const struct activation_scale scale = activations_scale(arith_float(largest));

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int8_t whole = activations_round(scale, values[i]);

        word |= (uint32_t)(uint8_t)whole << (8 * i);
        total += whole;
    }
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, s);
    if (!writes)
        return;

    const struct activation_place place = activations_place(to, token, column);

    *(uint32_t *)(place.q + ((in_window / 16) ^ (token % 8)) * 16 + column % 16) = word;
    if (column % ARITH_BLOCK == 0) {
        *place.scale = scale.scale;
        *place.sum = (float)total;
    }
}

#endif
