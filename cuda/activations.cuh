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

/** A whole warp has a block of 32: its lane `column % 32` the value of `column`. */
static __device__ __forceinline__ void
activations_store(const struct activations &to, uint32_t token, uint32_t column, float value)
{
    const uint32_t window = column / MATMUL_FAST_COLUMNS, b = column / ARITH_BLOCK % 4;
    const uint32_t lane = column % ARITH_BLOCK, t = token % 8, chunk = 2 * b + lane / 16;
    const uint64_t all = (uint64_t)to.windows * to.atoms;
    const uint64_t atom = (uint64_t)window * to.atoms + token / 8;
    const float largest =
        arith_float(__reduce_max_sync(0xffffffffu, arith_bits(value) & UINT32_C(0x7fffffff)));
    const bool finite = largest < ARITH_ACTIVATION_MAX;
    const float ratio = largest / 127.0f;
    const bool some = finite && ratio >= ARITH_SCALE_MIN;
    const float inverse = some ? 127.0f / largest : 0.0f;
    const int8_t whole = some ? arith_round_to_int8(value * inverse) : (int8_t)0;
    const int32_t total = __reduce_add_sync(0xffffffffu, (int32_t)whole);
    uint8_t *q = to.bytes + atom * MATMUL_FAST_ATOM;
    float *scales = (float *)(to.bytes + all * MATMUL_FAST_ATOM) + atom * 32;
    float *sums =
        (float *)(to.bytes + all * (MATMUL_FAST_ATOM + MATMUL_FAST_ATOM_SCALES)) + atom * 32;

    if (to.atoms == 1) { /* records of a window */
        scales = (float *)(to.bytes + (uint64_t)window * MATMUL_FAST_RECORD);
        sums = scales + 32;
        q = (uint8_t *)(scales + 64);
    }
    q[t * 128 + (chunk ^ t) * 16 + lane % 16] = (uint8_t)whole;
    if (lane == 0) {
        scales[b * 8 + t] = !finite ? arith_nan() : some ? ratio * 0x1p30f : 0.0f;
        sums[b * 8 + t] = (float)total;
    }
}

/** 8 lanes of a whole warp have a block of 32, each the four values from `column` on. Lanes without
 * `writes`, all of a block, only lend their warp. */
static __device__ __forceinline__ void activations_store_four(const struct activations &to,
                                                              uint32_t token, uint32_t column,
                                                              const float4 &four, bool writes)
{
    const uint32_t window = column / MATMUL_FAST_COLUMNS, b = column / ARITH_BLOCK % 4;
    const uint32_t lane = column % ARITH_BLOCK / 4, t = token % 8, chunk = 2 * b + lane / 4;
    const uint64_t all = (uint64_t)to.windows * to.atoms;
    const uint64_t atom = (uint64_t)window * to.atoms + token / 8;
    const float values[4] = {four.x, four.y, four.z, four.w};
    uint32_t largest_bits = 0, word = 0;
    int32_t total = 0;

#pragma unroll
    for (int i = 0; i < 4; i++)
        largest_bits = max(largest_bits, arith_bits(values[i]) & UINT32_C(0x7fffffff));
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
        largest_bits = max(largest_bits, __shfl_xor_sync(0xffffffffu, largest_bits, s));

    const float largest = arith_float(largest_bits);
    const bool finite = largest < ARITH_ACTIVATION_MAX;
    const float ratio = largest / 127.0f;
    const bool some = finite && ratio >= ARITH_SCALE_MIN;
    const float inverse = some ? 127.0f / largest : 0.0f;
    uint8_t *q = to.bytes + atom * MATMUL_FAST_ATOM;
    float *scales = (float *)(to.bytes + all * MATMUL_FAST_ATOM) + atom * 32;
    float *sums =
        (float *)(to.bytes + all * (MATMUL_FAST_ATOM + MATMUL_FAST_ATOM_SCALES)) + atom * 32;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int8_t whole = some ? arith_round_to_int8(values[i] * inverse) : (int8_t)0;

        word |= (uint32_t)(uint8_t)whole << (8 * i);
        total += whole;
    }
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, s);
    if (!writes)
        return;
    if (to.atoms == 1) { /* records of a window */
        scales = (float *)(to.bytes + (uint64_t)window * MATMUL_FAST_RECORD);
        sums = scales + 32;
        q = (uint8_t *)(scales + 64);
    }
    *(uint32_t *)(q + t * 128 + (chunk ^ t) * 16 + lane % 4 * 4) = word;
    if (lane == 0) {
        scales[b * 8 + t] = !finite ? arith_nan() : some ? ratio * 0x1p30f : 0.0f;
        sums[b * 8 + t] = (float)total;
    }
}

#endif
