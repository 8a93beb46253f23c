/* Norms: a block a row, of which 256 threads are the lanes of arith_sum_squares(). */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS_MAX = 1024, SHARED_USUAL = 40960 };

/* The tree of arith_sum_squares() over its lanes; every warp computes it for itself. */
static __device__ __forceinline__ float sum_of_lanes(const float *lanes)
{
    const uint32_t l = threadIdx.x % 32;
    float sums[8];

#pragma unroll
    for (int k = 0; k < 8; k++)
        sums[k] = lanes[l + 32 * k];
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
#pragma unroll
        for (int k = 0; k < s; k++)
            sums[k] += sums[k + s];
#pragma unroll
    for (int s = 16; s > 0; s /= 2)
        sums[0] += __shfl_down_sync(0xffffffffu, sums[0], s);
    return arith_canonical(__shfl_sync(0xffffffffu, sums[0], 0));
}

/* Grid: (rows). EACH: values of a thread, n / blockDim.x or more. */
template <int EACH>
__global__ void __launch_bounds__(THREADS_MAX) rms_norm_kernel(struct cuda_norm norm)
{
    extern __shared__ float values[]; /* (n) */
    __shared__ float lanes[ARITH_LANES];
    const uint32_t n = (uint32_t)norm.n, threads = blockDim.x;
    const uint64_t row = (uint64_t)blockIdx.x * n;
    float weight[EACH], own[EACH], sum = 0.0f;
    int64_t sums[EACH];

    /* Weights come once a token from far away, before the row is there. */
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;

        weight[e] = norm.weight != nullptr && i < n ? norm.weight[i] : 1.0f;
    }
    launch_begin();
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;

        own[e] = i < n ? norm.x[row + i] : 0.0f;
        sums[e] = norm.sums != nullptr && i < n ? norm.sums[row + i] : 0;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;

        if (norm.sums != nullptr)
            own[e] = arith_canonical(own[e] + arith_from_fixed(sums[e]));
        if (norm.sums != nullptr && i < n)
            norm.joined[row + i] = own[e];
        if (i < n)
            values[i] = own[e];
    }
    __syncthreads();
    if (threadIdx.x < ARITH_LANES) {
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < n; i += ARITH_LANES)
            sum = fmaf(values[i], values[i], sum);
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)n + norm.eps);

#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;
        const float value = arith_canonical(own[e] * scale * weight[e]);

        if (i < n)
            norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr && i < n)
            activations_store(norm.quantised, blockIdx.x, i, value);
    }
}

template <int EACH>
static int launch_norm(const struct cuda_norm *norm, uint64_t rows, unsigned threads,
                       cudaStream_t stream, struct error *err)
{
    size_t shared_bytes = norm->n * sizeof(float);

    if (shared_bytes > SHARED_USUAL &&
        cuda_check(cudaFuncSetAttribute(rms_norm_kernel<EACH>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared_bytes),
                   "rms_norm", err) != 0)
        return -1;
    launch_overlapping(rms_norm_kernel<EACH>, dim3((unsigned)rows), threads, shared_bytes, stream,
                       *norm);
    return cuda_launched("rms_norm", err);
}

int cuda_rms_norm(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                  struct error *err)
{
    if (rows == 0)
        return 0;
    if (norm->n <= ARITH_LANES)
        return launch_norm<1>(norm, rows, ARITH_LANES, stream, err);
    if (norm->n <= 2 * THREADS_MAX)
        return launch_norm<2>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 5 * THREADS_MAX)
        return launch_norm<5>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 8 * THREADS_MAX)
        return launch_norm<8>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 24 * THREADS_MAX)
        return launch_norm<24>(norm, rows, THREADS_MAX, stream, err);
    return error_set(err, ERROR_UNSUPPORTED, "a norm of %llu values; %d at most",
                     (unsigned long long)norm->n, 24 * THREADS_MAX);
}
