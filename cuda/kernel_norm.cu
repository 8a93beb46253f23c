/* Norms: a block a row, a thread for each of the 256 lanes of arith_sum_squares(). */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"

extern "C" {
#include "ref/arith.h"
}

/* Grid: (rows); ARITH_LANES threads. */
__global__ void __launch_bounds__(ARITH_LANES)
    rms_norm_kernel(const float *x, const float *weight, const float *gate, float eps, uint64_t n,
                    float *y)
{
    __shared__ float lanes[ARITH_LANES];
    uint64_t row = blockIdx.x * n;
    uint32_t l = threadIdx.x;
    float sum = 0.0f;

#pragma unroll 8
    for (uint64_t i = l; i < n; i += ARITH_LANES)
        sum = fmaf(x[row + i], x[row + i], sum);
    lanes[l] = sum;
    __syncthreads();
    for (uint32_t s = ARITH_LANES / 2; s > 0; s /= 2) {
        if (l < s)
            lanes[l] += lanes[l + s];
        __syncthreads();
    }

    float mean = arith_canonical(lanes[0]) / (float)n;
    float scale = arith_rsqrt(mean + eps);

    for (uint64_t i = l; i < n; i += ARITH_LANES) {
        float value = arith_canonical(x[row + i] * scale * (weight != nullptr ? weight[i] : 1.0f));

        y[row + i] = gate != nullptr ? arith_canonical(value * arith_silu(gate[row + i])) : value;
    }
}

int cuda_rms_norm(const float *x, const float *weight, const float *gate, float eps, uint64_t rows,
                  uint64_t n, float *y, cudaStream_t stream, struct error *err)
{
    if (rows == 0)
        return 0;
    rms_norm_kernel<<<(unsigned)rows, ARITH_LANES, 0, stream>>>(x, weight, gate, eps, n, y);
    return cuda_launched("rms_norm", err);
}
