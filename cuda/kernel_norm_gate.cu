/* The norm behind a gated delta net, head by head, times silu of a gate: a warp a row. */
#include "cuda/activations.cuh"
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { WARP = 32, ROWS = 4, LANES = ARITH_LANES / WARP };

struct norm_gate {
    const float *x, *weight, *gate;
    float eps;
    uint64_t rows;
    uint32_t n;
    float *y;
    struct activations quantised;
    uint32_t heads; /* rows of a token, where the result is quantised too */
};

/* Sum of squares as arith_sum_squares() adds: of its 256 lanes a thread has those that are 32
 * apart. Lanes that no value reaches are zero, so with fewer than 8 values a thread the tree
 * begins where they end. */
template <int EACH> static __device__ __forceinline__ float sum_squares(const float (&x)[EACH])
{
    constexpr int COUNT = EACH < LANES ? EACH : LANES;
    float sum[COUNT] = {};

#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum[i % COUNT] = fmaf(x[i], x[i], sum[i % COUNT]);
#pragma unroll
    for (int s = COUNT / 2; s > 0; s /= 2)
#pragma unroll
        for (int i = 0; i < s; i++)
            sum[i] += sum[i + s];
#pragma unroll
    for (int s = WARP / 2; s > 0; s /= 2)
        sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], s);
    return arith_canonical(sum[0]);
}

/* Grid: (rows / ROWS). EACH: values of a thread, n / WARP or more, a power of two. */
template <int EACH>
static __global__ void __launch_bounds__(ROWS *WARP)
    norm_gate_kernel(struct launch_stamp stamp, const struct norm_gate norm)
{
    const uint64_t row = (uint64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    const uint32_t lane = threadIdx.x % WARP;
    float x[EACH], gate[EACH], weight[EACH];

    launch_next();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        weight[i] = norm.weight != nullptr && i * WARP + lane < norm.n
                        ? norm.weight[i * WARP + lane]
                        : 1.0f;
    launch_wait(stamp);
    if (row >= norm.rows)
        return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * WARP + lane;

        x[i] = at < norm.n ? norm.x[row * norm.n + at] : 0.0f;
        gate[i] = at < norm.n ? norm.gate[row * norm.n + at] : 0.0f;
    }

    const float scale = arith_rsqrt(sum_squares(x) / (float)norm.n + norm.eps);

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * WARP + lane;
        float value;

        if (i * WARP >= norm.n)
            break;
        value = arith_canonical(x[i] * scale * weight[i]);
        value = arith_canonical(value * arith_silu(gate[i]));
        if (at < norm.n)
            norm.y[row * norm.n + at] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, (uint32_t)(row / norm.heads),
                              (uint32_t)(row % norm.heads) * norm.n + at, value);
    }
}

int cuda_norm_gate(const float *x, const float *weight, const float *gate, float eps, uint64_t rows,
                   uint64_t n, float *y, const struct activations *quantised, cudaStream_t stream,
                   struct error *err)
{
    struct norm_gate norm = {x, weight, gate, eps, rows, (uint32_t)n, y, {}, 1};
    const dim3 grid((unsigned)((rows + ROWS - 1) / ROWS));

    if (n > REF_HEAD_DIM_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "a gated norm of %llu values; %d at most",
                         (unsigned long long)n, REF_HEAD_DIM_MAX);
    if (rows == 0 || n == 0)
        return 0;
    if (quantised != nullptr && quantised->bytes != nullptr) {
        norm.quantised = *quantised;
        norm.heads = (uint32_t)(quantised->windows * MATMUL_FAST_COLUMNS / n);
    }
    if (n <= 4 * WARP)
        launch_overlapping(norm_gate_kernel<4>, grid, ROWS * WARP, 0, stream, norm);
    else if (n <= 8 * WARP)
        launch_overlapping(norm_gate_kernel<8>, grid, ROWS * WARP, 0, stream, norm);
    else
        launch_overlapping(norm_gate_kernel<32>, grid, ROWS * WARP, 0, stream, norm);
    return cuda_launched("norm_gate", err);
}
