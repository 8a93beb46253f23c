/* Matrix-vector products of few tokens with quantised weights: a few lanes of a warp share a row,
 * each takes every so many-th group of it. Sums of lanes meet by arith_fixed_add(), so a flag
 * stays. A block's rows come through shared memory, where lanes may read as they like. */
#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"
#include "cuda/matmul_block.cuh"
#include "cuda/matmul_private.h"

#include <cuda_pipeline.h>

enum { WARPS = 4, STAGED_MAX = 48 << 10 };

struct vector_part {
    const uint8_t *weight;
    uint64_t rows, columns, row_bytes, matrix_bytes;
    uint64_t segment_columns, segment_groups;
    uint32_t group, groups;
    uint32_t tokens, x_divide;
    float limit;
    const int8_t *q;
    const float *scales;
    const int *block_sums;
    const struct program_route *routes;
    bool weighted;
    bool staged;
    int64_t *sums;
    float *out;
};

/* Begins to copy rows `first` and on into shared memory, all threads of a block together. */
__device__ static void stage_rows(const vector_part &p, const uint8_t *matrix, uint64_t first,
                                  uint32_t count, uint8_t *to)
{
    const uint64_t left = p.rows - first;
    const uint32_t bytes = (uint32_t)((left < count ? left : count) * p.row_bytes);

    for (uint32_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16)
        __pipeline_memcpy_async(to + i, matrix + first * p.row_bytes + i, 16);
    __pipeline_commit();
}

/* One group of a row, of TOKENS tokens from `token` on. */
template <int TYPE, int TOKENS>
__device__ __forceinline__ void add_group(const vector_part &p, const uint8_t *row, uint64_t from,
                                          uint64_t to, uint32_t token, float *acc)
{
    for (uint64_t i = from; i < to; i += ARITH_BLOCK) {
        weight_words words;

        load_words<TYPE>(row, i / ARITH_BLOCK, &words);
        for (int t = 0; t < TOKENS; t++) {
            uint64_t at = ((token + t) / p.x_divide * p.columns + i) / ARITH_BLOCK;
            const int4 *q = (const int4 *)p.q + 2 * at;

            if (token + t < p.tokens)
                acc[t] =
                    words_fma<TYPE>(&words, q[0], q[1], p.scales[at], p.block_sums[at], acc[t]);
        }
    }
}

/* Grid: (rows / (threads / lanes), tokens / TOKENS). `lanes` is a power of 2 up to 32. */
template <int TYPE, int TOKENS>
__global__ void __launch_bounds__(WARPS * 32)
    vector_kernel(struct launch_stamp stamp, vector_part p, uint32_t lanes)
{
    extern __shared__ __align__(16) uint8_t staged[];
    uint32_t lane = threadIdx.x % lanes, rows = blockDim.x / lanes;
    uint64_t first = (uint64_t)blockIdx.x * rows, row = first + threadIdx.x / lanes;
    uint32_t token = blockIdx.y * TOKENS;
    uint64_t loaded = row < p.rows ? row : p.rows - 1;
    const uint8_t *matrix = p.weight, *bytes;
    float weight = 1.0f;
    int64_t sums[TOKENS];

    launch_next();
    if (p.staged && p.routes == nullptr) /* no kernel before makes weights */
        stage_rows(p, matrix, first, rows, staged);
    launch_wait(stamp);
    if (p.routes != nullptr) {
        matrix += p.routes[token].expert * p.matrix_bytes;
        weight = p.routes[token].weight;
        if (p.staged)
            stage_rows(p, matrix, first, rows, staged);
    }
    if (p.staged) {
        __pipeline_wait_prior(0);
        __syncthreads();
    }
    bytes = p.staged ? staged + (loaded - first) * p.row_bytes : matrix + loaded * p.row_bytes;
    for (int t = 0; t < TOKENS; t++)
        sums[t] = 0;
    for (uint32_t g = lane; g < p.groups; g += lanes) {
        uint64_t segment = g / p.segment_groups;
        uint64_t from = segment * p.segment_columns + g % p.segment_groups * p.group;
        uint64_t end = (segment + 1) * p.segment_columns;
        float acc[TOKENS];

        for (int t = 0; t < TOKENS; t++)
            acc[t] = 0.0f;
        add_group<TYPE, TOKENS>(p, bytes, from, from + p.group < end ? from + p.group : end, token,
                                acc);
        for (int t = 0; t < TOKENS; t++)
            sums[t] = arith_fixed_add(
                sums[t], arith_to_fixed(p.weighted ? acc[t] * weight : acc[t], p.limit));
    }
    for (uint32_t s = lanes / 2; s > 0; s /= 2)
        for (int t = 0; t < TOKENS; t++)
            sums[t] = arith_fixed_add(sums[t], __shfl_xor_sync(0xffffffffu, sums[t], (int)s));
    if (lane != 0 || row >= p.rows)
        return;
    for (int t = 0; t < TOKENS && token + t < p.tokens; t++) {
        if (p.sums != nullptr)
            p.sums[(token + t) * p.rows + row] = sums[t];
        else
            p.out[(token + t) * p.rows + row] = arith_from_fixed(sums[t]);
    }
}

int matmul_vector(const struct cuda_product *product, const struct matmul_inputs *inputs,
                  cudaStream_t stream, struct error *err)
{
    const struct cuda_weight *weight = product->weight;
    vector_part p = {};
    uint32_t lanes = 1, threads = WARPS * 32, each;

    p.weight = (const uint8_t *)weight->data;
    p.rows = weight->rows;
    p.columns = weight->columns;
    p.row_bytes = weight->row_bytes;
    p.matrix_bytes = weight->rows * weight->row_bytes;
    p.segment_columns = weight->columns / weight->segments;
    p.group = weight->group;
    p.segment_groups = (p.segment_columns + p.group - 1) / p.group;
    p.groups = (uint32_t)p.segment_groups * weight->segments;
    p.tokens = product->tokens;
    p.x_divide = product->x_divide;
    p.limit = product->limit;
    p.q = inputs->q;
    p.scales = inputs->scales;
    p.block_sums = inputs->block_sums;
    p.routes = product->routes;
    p.weighted = product->weighted;
    p.sums = product->sums;
    p.out = product->out;
    while (lanes < p.groups && lanes < 32)
        lanes *= 2;
    each = product->routes != nullptr || product->tokens == 1 ? 1 : product->tokens <= 4 ? 4 : 8;
    /* Fewer threads where the rows of all would not fit. */
    while (threads > 32 && threads / lanes * p.row_bytes > STAGED_MAX)
        threads /= 2;
    p.staged = p.row_bytes % 16 == 0 && threads / lanes * p.row_bytes <= STAGED_MAX;
    if (!p.staged)
        threads = WARPS * 32;

    uint64_t rows = threads / lanes;
    size_t shared_bytes = p.staged ? rows * p.row_bytes : 0;
    dim3 grid((unsigned)((p.rows + rows - 1) / rows), (product->tokens + each - 1) / each);

    if (each == 1) {
        FOR_QUANTISED_TYPE(weight->type, (launch_overlapping(vector_kernel<TYPE, 1>, grid, threads,
                                                             shared_bytes, stream, p, lanes)));
    } else if (each == 4) {
        FOR_QUANTISED_TYPE(weight->type, (launch_overlapping(vector_kernel<TYPE, 4>, grid, threads,
                                                             shared_bytes, stream, p, lanes)));
    } else {
        FOR_QUANTISED_TYPE(weight->type, (launch_overlapping(vector_kernel<TYPE, 8>, grid, threads,
                                                             shared_bytes, stream, p, lanes)));
    }
    return cuda_launched("matmul_vector", err);
}
