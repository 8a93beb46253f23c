/* The step of a token of the gated delta rule: what its kernels share. ref/kernel_delta.c has the
 * order of additions. */
#ifndef CUDA_KERNEL_DELTA_CUH
#define CUDA_KERNEL_DELTA_CUH

#include "cuda/kernels.h"

extern "C" {
#include "ref/arith.h"
}

enum {
    DELTA_WARP = 32,
    DELTA_LANES = 8, /* of arith_dot8(): neighbouring threads, every eighth value of a row each */
    DELTA_THREADS = 128,
    DELTA_ROWS = DELTA_THREADS / DELTA_LANES,
};

/* What the step of a token takes, in shared memory: q and k of unit length, the rows' values of
 * each head, then of each head beta and decay. */
template <int DIM, int HEADS> struct delta_slots {
    static constexpr int K = DIM, VALUES = 2 * DIM, GATES = VALUES + HEADS * DELTA_ROWS;
    static constexpr int SIZE = GATES + (2 * HEADS + 3) / 4 * 4;
};

/* Where value i of q or k lies: of each 32 values, the 4 of a lane together. */
__device__ __forceinline__ uint32_t delta_place_of(uint32_t i)
{
    return i / 32 * 32 + i % DELTA_LANES * 4 + i % 32 / DELTA_LANES;
}

/* A warp: a row, of which a lane has values 32 apart, of unit length, times a factor. The lanes of
 * arith_sum_squares() that a row does not reach are zero, so its tree begins where the row ends. */
template <int DIM>
__device__ __forceinline__ void delta_unit(const float (&value)[DIM / DELTA_WARP], float eps,
                                           float factor, float *y)
{
    constexpr int EACH = DIM / DELTA_WARP;
    const uint32_t lane = threadIdx.x % DELTA_WARP;
    float sum[EACH];

#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum[i] = fmaf(value[i], value[i], 0.0f);
#pragma unroll
    for (int s = EACH / 2; s > 0; s /= 2)
#pragma unroll
        for (int i = 0; i < s; i++)
            sum[i] += sum[i + s];
#pragma unroll
    for (int s = DELTA_WARP / 2; s > 0; s /= 2)
        sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], s);

    const float scale = arith_rsqrt(arith_canonical(sum[0]) + eps);

#pragma unroll
    for (int i = 0; i < EACH; i++)
        y[delta_place_of(i * DELTA_WARP + lane)] = value[i] * scale * factor;
}

/* beta and decay of a head, from what they are before activation. */
__device__ __forceinline__ float2 delta_gates(float beta, float alpha, float dt, float a)
{
    return make_float2(arith_sigmoid(beta), arith_exp(a * arith_softplus(alpha + dt)));
}

__device__ __forceinline__ uint64_t delta_gate_at(const struct cuda_delta_heads &heads, uint32_t h)
{
    return h / heads.count * heads.total + heads.first + h % heads.count;
}

/* The tree of arith_dot8() over 8 neighbouring threads; each gets the sum. */
__device__ __forceinline__ float delta_tree(float lane)
{
#pragma unroll
    for (int s = DELTA_LANES / 2; s > 0; s /= 2)
        lane += __shfl_xor_sync(0xffffffffu, lane, s);
    return lane;
}

/* A lane's values of q or k. */
template <int DIM>
__device__ __forceinline__ void delta_load_unit(const float *unit, float (&to)[DIM / 8])
{
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        const float4 four = *(const float4 *)(unit + i * 32 + threadIdx.x % DELTA_LANES * 4);

        to[4 * i] = four.x;
        to[4 * i + 1] = four.y;
        to[4 * i + 2] = four.z;
        to[4 * i + 3] = four.w;
    }
}

/* Rows of the state that a thread has, one of each head, and what its lane takes of a token.
 *
 * A NaN in a register may have any bits, as all that is computed from it is NaN again; it becomes
 * the canonical one where it is stored. */
template <int DIM, int HEADS> struct delta_rows {
    static constexpr int EACH = DIM / DELTA_LANES;
    float s[HEADS][EACH];
    float k[EACH], decay[HEADS];
    float q[EACH], value[HEADS], beta[HEADS];
    float dot[HEADS];
};

template <int DIM, int HEADS>
__device__ __forceinline__ void delta_load_key(struct delta_rows<DIM, HEADS> &rows,
                                               const float *slot)
{
    using slots = delta_slots<DIM, HEADS>;

    delta_load_unit<DIM>(slot + slots::K, rows.k);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        rows.decay[h] = slot[slots::GATES + 2 * h + 1];
}

template <int DIM, int HEADS>
__device__ __forceinline__ void delta_load_query(struct delta_rows<DIM, HEADS> &rows,
                                                 const float *slot)
{
    using slots = delta_slots<DIM, HEADS>;

    delta_load_unit<DIM>(slot, rows.q);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        rows.value[h] = slot[slots::VALUES + h * DELTA_ROWS + threadIdx.x / DELTA_LANES];
        rows.beta[h] = slot[slots::GATES + 2 * h];
    }
}

/* A token's decay and the products with its k, a lane's part. */
template <int DIM, int HEADS>
__device__ __forceinline__ void delta_decay(struct delta_rows<DIM, HEADS> &rows)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        rows.dot[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < rows.EACH; i++)
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            rows.s[h][i] = rows.s[h][i] * rows.decay[h];
            rows.dot[h] = fmaf(rows.s[h][i], rows.k[i], rows.dot[h]);
        }
}

/* A token's change of the decayed rows. */
template <int DIM, int HEADS>
__device__ __forceinline__ void delta_change(struct delta_rows<DIM, HEADS> &rows)
{
    float change[HEADS];

#pragma unroll
    for (int h = 0; h < HEADS; h++)
        change[h] = (rows.value[h] - rows.dot[h]) * rows.beta[h];
#pragma unroll
    for (int i = 0; i < rows.EACH; i++)
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            rows.s[h][i] = fmaf(rows.k[i], change[h], rows.s[h][i]);
}

/* A lane's part of the products with q. */
template <int DIM, int HEADS>
__device__ __forceinline__ void delta_query(const struct delta_rows<DIM, HEADS> &rows,
                                            float (&result)[HEADS])
{
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        result[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < rows.EACH; i++)
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            result[h] = fmaf(rows.s[h][i], rows.q[i], result[h]);
}

/* The rows to a plane, those of heads `stride` apart. */
template <int DIM, int HEADS>
__device__ __forceinline__ void delta_store(const struct delta_rows<DIM, HEADS> &rows, float *plane,
                                            uint64_t stride)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < rows.EACH; i++)
            plane[h * stride + i * DELTA_LANES] = arith_canonical(rows.s[h][i]);
}

#endif
