/* Norms: a block a row, of which 256 threads are the lanes of arith_sum_squares(). */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS_MAX = 1024, LONG_ROW = 2048, SHARED_USUAL = 40960 };

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

/* Grid: (rows); `n` floats of shared memory. */
__global__ void __launch_bounds__(THREADS_MAX) rms_norm_kernel(struct cuda_norm norm)
{
    extern __shared__ float values[];
    __shared__ float lanes[ARITH_LANES];
    const uint64_t n = norm.n, row = blockIdx.x * n;
    float sum = 0.0f;

    /* Weights come once a token from far away, the row does not. */
    if (norm.weight != nullptr)
        for (uint64_t i = threadIdx.x; i < (n + 31) / 32; i += blockDim.x)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(norm.weight + i * 32));
    launch_begin();
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float value = norm.x[row + i];

        if (norm.sums != nullptr) {
            value = arith_canonical(value + arith_from_fixed(norm.sums[row + i]));
            norm.joined[row + i] = value;
        }
        values[i] = value;
    }
    __syncthreads();
    if (threadIdx.x < ARITH_LANES) {
#pragma unroll 8
        for (uint64_t i = threadIdx.x; i < n; i += ARITH_LANES)
            sum = fmaf(values[i], values[i], sum);
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)n + norm.eps);

    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float value =
            arith_canonical(values[i] * scale * (norm.weight != nullptr ? norm.weight[i] : 1.0f));

        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.x, (uint32_t)i, value);
    }
}

int cuda_rms_norm(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                  struct error *err)
{
    size_t shared_bytes = norm->n * sizeof(float);

    if (rows == 0)
        return 0;
    if (shared_bytes > SHARED_USUAL &&
        cuda_check(cudaFuncSetAttribute(rms_norm_kernel,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared_bytes),
                   "rms_norm", err) != 0)
        return -1;
    launch_overlapping(rms_norm_kernel, dim3((unsigned)rows),
                       norm->n >= LONG_ROW ? THREADS_MAX : ARITH_LANES, shared_bytes, stream,
                       *norm);
    return cuda_launched("rms_norm", err);
}
