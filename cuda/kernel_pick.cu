/* The likeliest token of a row of logits: a block a row. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS = 1024, WARPS = THREADS / 32 };

/* The better one of two, wherever they stand in the row: the lower index among equals. */
static __device__ __forceinline__ struct program_pick better(struct program_pick a,
                                                             struct program_pick b)
{
    const bool swapped = b.token < a.token;
    const struct program_pick first = swapped ? b : a, second = swapped ? a : b;

    return arith_is_larger(second.logit, first.logit) ? second : first;
}

static __device__ __forceinline__ struct program_pick best_of_warp(struct program_pick own)
{
#pragma unroll
    for (int s = 16; s > 0; s /= 2) {
        struct program_pick other;

        other.token = __shfl_xor_sync(0xffffffffu, own.token, s);
        other.logit = __shfl_xor_sync(0xffffffffu, own.logit, s);
        own = better(own, other);
    }
    return own;
}

/* Grid: (rows). Threads beyond the row's end stand for its first value. */
__global__ void __launch_bounds__(THREADS)
    pick_kernel(struct launch_stamp stamp, const float *logits, uint32_t n, uint32_t first,
                struct program_pick *picks)
{
    __shared__ struct program_pick bests[WARPS];
    const float *row = logits + (uint64_t)blockIdx.x * n;
    struct program_pick own;

    launch_begin(stamp);
    own.token = threadIdx.x < n ? threadIdx.x : 0;
    own.logit = row[own.token];
#pragma unroll 4
    for (uint32_t i = threadIdx.x + THREADS; i < n; i += THREADS) {
        const float value = row[i];

        if (arith_is_larger(value, own.logit))
            own = {i, value};
    }
    own = best_of_warp(own);
    if (threadIdx.x % 32 == 0)
        bests[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    own = best_of_warp(bests[threadIdx.x % WARPS]);
    if (threadIdx.x == 0)
        picks[blockIdx.x] = {first + own.token, own.logit};
}

int cuda_pick(const float *logits, uint32_t rows, uint64_t n, uint64_t first,
              struct program_pick *picks, cudaStream_t stream, struct error *err)
{
    if (rows == 0 || n == 0)
        return 0;
    launch_overlapping(pick_kernel, dim3(rows), THREADS, 0, stream, logits, (uint32_t)n,
                       (uint32_t)first, picks);
    return cuda_launched("pick", err);
}
