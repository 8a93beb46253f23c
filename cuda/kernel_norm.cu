/* Norms: a block a row, of which 256 threads are the lanes of arith_sum_squares(). */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

#include <cuda_pipeline.h>

extern "C" {
#include "ref/arith.h"
}

enum {
    THREADS_MAX = 1024,
    SHARED_USUAL = 40960,
    LONGEST = 12 /* values of a thread in shared memory */
};

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

/* Weights come once a token from far away: they are on their way before the row is there. */
static __device__ __forceinline__ void load_weights(const float *weight, uint32_t n, float *to)
{
    for (uint32_t i = threadIdx.x * 4; i + 4 <= n; i += blockDim.x * 4)
        __pipeline_memcpy_async(to + i, weight + i, 16);
    __pipeline_commit();
    for (uint32_t i = n / 4 * 4 + threadIdx.x; i < n; i += blockDim.x)
        to[i] = weight[i];
}

/* Grid: (rows). EACH: values of a thread, n / blockDim.x or more. Few registers: a block finds room
 * beside one of a product. */
template <int EACH>
__global__ void __launch_bounds__(THREADS_MAX)
    rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
    extern __shared__ __align__(16) float values[]; /* (n), then weights (n) */
    __shared__ float lanes[ARITH_LANES];
    const uint32_t n = (uint32_t)norm.n, threads = blockDim.x;
    const uint64_t row = (uint64_t)blockIdx.x * n;
    const float *weights = values + (n + 3) / 4 * 4;
    float sum = 0.0f;

    if (norm.weight != nullptr)
        load_weights(norm.weight, n, values + (n + 3) / 4 * 4);
    launch_begin(stamp);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;
        float value = i < n ? norm.x[row + i] : 0.0f;

        if (norm.sums != nullptr && i < n) {
            value = arith_canonical(value + arith_from_fixed(norm.sums[row + i]));
            norm.joined[row + i] = value;
        }
        if (i < n)
            values[i] = value;
    }
    __pipeline_wait_prior(0);
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
        float value;

        if (i >= n)
            break;
        value = arith_canonical(values[i] * scale * (norm.weight != nullptr ? weights[i] : 1.0f));
        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.x, i, value);
    }
}

/* Grid: (rows); a thread a lane, which reads its values again. For rows that do not fit in shared
 * memory. */
static __global__ void __launch_bounds__(ARITH_LANES)
    long_rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
    __shared__ float lanes[ARITH_LANES];
    const uint64_t row = blockIdx.x * norm.n;
    const float *values = norm.sums != nullptr ? norm.joined : norm.x;
    float sum = 0.0f;

    launch_begin(stamp);
    for (uint64_t i = threadIdx.x; i < norm.n; i += ARITH_LANES) {
        float value = norm.x[row + i];

        if (norm.sums != nullptr) {
            value = arith_canonical(value + arith_from_fixed(norm.sums[row + i]));
            norm.joined[row + i] = value;
        }
        sum = fmaf(value, value, sum);
    }
    lanes[threadIdx.x] = sum;
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)norm.n + norm.eps);

    for (uint64_t i = threadIdx.x; i < norm.n; i += ARITH_LANES) {
        float weight = norm.weight != nullptr ? norm.weight[i] : 1.0f;
        float value = arith_canonical(values[row + i] * scale * weight);

        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.x, (uint32_t)i, value);
    }
}

template <int EACH>
static int launch_norm(const struct cuda_norm *norm, uint64_t rows, unsigned threads,
                       cudaStream_t stream, struct error *err)
{
    size_t shared_bytes = 2 * ((norm->n + 3) / 4 * 4) * sizeof(float);

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
    if (norm->n <= 4 * THREADS_MAX)
        return launch_norm<4>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 5 * THREADS_MAX)
        return launch_norm<5>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 8 * THREADS_MAX)
        return launch_norm<8>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= LONGEST * THREADS_MAX)
        return launch_norm<LONGEST>(norm, rows, THREADS_MAX, stream, err);
    launch_overlapping(long_rms_norm_kernel, dim3((unsigned)rows), ARITH_LANES, 0, stream, *norm);
    return cuda_launched("rms_norm", err);
}
