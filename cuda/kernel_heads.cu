/* Heads between the products of attention: a warp a head of a token. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_turn.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

enum { WARPS = 4, EACH_MAX = CUDA_HEADS_DIM_MAX / 32 };

/* The scale of a norm, by arith_sum_squares(): lanes beyond the head are 0, which changes no sum
 * of squares. */
static __device__ float norm_scale(const float (&head)[EACH_MAX], uint32_t dim, float eps)
{
    float sums[EACH_MAX];

#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX; k++)
        sums[k] = k * 32 < dim ? fmaf(head[k], head[k], 0.0f) : 0.0f;
#pragma unroll
    for (uint32_t s = EACH_MAX / 2; s > 0; s /= 2)
#pragma unroll
        for (uint32_t k = 0; k < s; k++)
            sums[k] += sums[k + s];
#pragma unroll
    for (int s = 16; s > 0; s /= 2)
        sums[0] += __shfl_down_sync(0xffffffffu, sums[0], s);
    return arith_rsqrt(arith_canonical(__shfl_sync(0xffffffffu, sums[0], 0)) / (float)dim + eps);
}

/* Angles of a token's pairs: those of a thread are 32 apart. They come from the step's inputs
 * alone. */
struct angles {
    float sines[EACH_MAX / 2], cosines[EACH_MAX / 2];
};

static __device__ __forceinline__ void find_angles(const struct cuda_heads &heads, uint32_t token,
                                                   struct angles *angles)
{
    const double position = heads.tokens[token].position;

#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX / 2; k++)
        if (k * 32 + threadIdx.x % 32 < heads.turned / 2)
            arith_sincos(position * heads.frequencies[k * 32 + threadIdx.x % 32], &angles->sines[k],
                         &angles->cosines[k]);
}

static __device__ __forceinline__ void turn(const struct cuda_heads &heads,
                                            const struct angles &angles, float *head)
{
    const uint32_t pairs = heads.turned / 2;

#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX / 2; k++) {
        const uint32_t i = k * 32 + threadIdx.x % 32;
        uint32_t first, second;

        if (i >= pairs)
            break;
        pair_places(i, pairs, heads.halves, &first, &second);
        turn_pair(angles.cosines[k], angles.sines[k], head + first, head + second);
    }
    __syncwarp();
}

static __device__ void store(const struct cuda_heads &heads, const struct cuda_head_rows &rows,
                             uint32_t token, uint32_t h, const float *head)
{
    const uint64_t at = heads.tokens[token].cell[heads.sliding] * rows.cache_row +
                        rows.cache_first + (uint64_t)h * rows.dim;
    const uint32_t lane = threadIdx.x % 32;

    if (rows.cache_type == TENSOR_TYPE_F16)
        for (uint32_t i = lane; i < rows.dim; i += 32)
            ((uint16_t *)rows.cache)[at + i] = arith_f16_from_f32(head[i]);
    else if (lane < rows.dim / ARITH_BLOCK)
        arith_cache_block(rows.cache_type, head + lane * ARITH_BLOCK,
                          (char *)rows.cache +
                              (at / ARITH_BLOCK + lane) * arith_type_bytes(rows.cache_type));
}

/* Grid: (rows / WARPS): of each token its query heads, then K, then V. */
__global__ void __launch_bounds__(WARPS * 32)
    heads_kernel(struct launch_stamp stamp, struct cuda_heads heads)
{
    __shared__ __align__(16) float shared[WARPS][CUDA_HEADS_DIM_MAX];
    const uint32_t each = heads.query.heads + heads.key.heads + heads.value.heads;
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32, token = row / each;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t h = row % each;
    float *head = shared[threadIdx.x / 32];

    const bool is_query = h < heads.query.heads;
    const bool is_value = h >= heads.query.heads + heads.key.heads;
    const struct cuda_head_rows &rows = is_query ? heads.query : is_value ? heads.value : heads.key;
    struct angles angles;
    float weight[EACH_MAX];

    if (!is_query)
        h -= heads.query.heads + (is_value ? heads.key.heads : 0);
    launch_next();
#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX; k++)
        weight[k] = rows.norm != nullptr && k * 32 < rows.dim ? rows.norm[k * 32 + lane] : 1.0f;
    if (token < heads.token_count && !is_value)
        find_angles(heads, token, &angles);
    launch_wait(stamp);
    if (token >= heads.token_count)
        return;

    const float *in = rows.in + ((uint64_t)token * rows.heads + h) * rows.step;
    const uint64_t out = ((uint64_t)token * rows.heads + h) * rows.dim;

    const bool has_gate = is_query && heads.gate != nullptr;
    float value[EACH_MAX], gate[EACH_MAX];

    /* Loads go out together. */
#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX; k++)
        if (k * 32 < rows.dim)
            value[k] = in[k * 32 + lane];
    if (has_gate)
#pragma unroll
        for (uint32_t k = 0; k < EACH_MAX; k++)
            if (k * 32 < rows.dim)
                gate[k] = in[rows.dim + k * 32 + lane];
    if (rows.normed) {
        const float scale = norm_scale(value, rows.dim, heads.eps);

#pragma unroll
        for (uint32_t k = 0; k < EACH_MAX; k++)
            if (k * 32 < rows.dim)
                value[k] = arith_canonical(value[k] * scale * weight[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < EACH_MAX; k++)
        if (k * 32 < rows.dim) {
            head[k * 32 + lane] = value[k];
            if (has_gate)
                heads.gate[out + k * 32 + lane] = gate[k];
        }
    __syncwarp();
    if (!is_value)
        turn(heads, angles, head);
    for (uint32_t i = lane; i < rows.dim; i += 32)
        rows.out[out + i] = head[i];
    if (rows.cache != nullptr)
        store(heads, rows, token, h, head);
}

int cuda_heads(const struct cuda_heads *heads, cudaStream_t stream, struct error *err)
{
    uint64_t rows =
        (uint64_t)heads->token_count * (heads->query.heads + heads->key.heads + heads->value.heads);

    if (rows == 0)
        return 0;
    launch_overlapping(heads_kernel, dim3((unsigned)((rows + WARPS - 1) / WARPS)), WARPS * 32, 0,
                       stream, *heads);
    return cuda_launched("heads", err);
}
