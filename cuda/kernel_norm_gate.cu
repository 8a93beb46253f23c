/* The norm behind a gated delta net, head by head, times silu of a gate: a warp a row. Behind a
 * step that left the convolution's state as it was, further blocks bring that up to date. */
#include "cuda/activations.cuh"
#include "cuda/cuda_check.h"
#include "cuda/kernel_convolve.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { WARP = 32, ROWS = 4, LANES = ARITH_LANES / WARP, THREADS = ROWS * WARP };

/* How a launch is cut. */
struct norm_cut {
    uint32_t blocks;       /* of rows; behind them those of channels */
    uint32_t token_blocks; /* of a token's channels */
    uint32_t heads;        /* rows of a token, where the result is quantised too */
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

/* A channel of a token for each thread. Its state is that of an earlier step, which has ended; it
 * changes when those that read it have. */
static __device__ __forceinline__ void keep_inputs(struct launch_stamp stamp,
                                                   const struct convolve &c, const float *mix,
                                                   uint32_t token_blocks, uint32_t block)
{
    const uint32_t t = block / token_blocks;
    const uint64_t channel = (uint64_t)(block % token_blocks) * THREADS + threadIdx.x;
    const bool some = channel < c.channels;
    const struct program_token token = c.tokens[t];
    float *state = convolve_state(c, token.sequence, channel);
    float history[CONVOLVE_TAPS_MAX];

    if (some)
        convolve_load<CONVOLVE_TAPS_MAX>(c, token, state, history);
    launch_wait(stamp);
    if (some)
        convolve_keep<CONVOLVE_TAPS_MAX>(c, token, history, mix[t * c.channels + channel], state);
}

/* Grid: (rows / ROWS, then tokens x channels / THREADS where inputs are kept). EACH: values of a
 * thread, n / WARP or more, a power of two. */
template <int EACH>
static __global__ void __launch_bounds__(THREADS)
    norm_gate_kernel(struct launch_stamp stamp, const struct cuda_norm_gate norm,
                     const struct norm_cut cut)
{
    const uint64_t row = (uint64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    const uint32_t lane = threadIdx.x % WARP, n = (uint32_t)norm.n;
    float x[EACH], gate[EACH], weight[EACH];

    launch_next();
    if (blockIdx.x >= cut.blocks) {
        keep_inputs(stamp, norm.convolve, norm.mix, cut.token_blocks, blockIdx.x - cut.blocks);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        weight[i] =
            norm.weight != nullptr && i * WARP + lane < n ? norm.weight[i * WARP + lane] : 1.0f;
    launch_wait(stamp);
    if (row >= norm.rows)
        return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * WARP + lane;

        x[i] = at < n ? norm.x[row * n + at] : 0.0f;
        gate[i] = at < n ? norm.gate[row * n + at] : 0.0f;
    }

    const float scale = arith_rsqrt(sum_squares(x) / (float)n + norm.eps);

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * WARP + lane;
        float value;

        if (i * WARP >= n)
            break;
        value = arith_canonical(x[i] * scale * weight[i]);
        value = arith_canonical(value * arith_silu(gate[i]));
        if (at < n)
            norm.y[row * n + at] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, (uint32_t)(row / cut.heads),
                              (uint32_t)(row % cut.heads) * n + at, value);
    }
}

int cuda_norm_gate(const struct cuda_norm_gate *norm, cudaStream_t stream, struct error *err)
{
    const struct convolve *convolve = &norm->convolve;
    struct norm_cut cut = {(uint32_t)((norm->rows + ROWS - 1) / ROWS), 0, 1};
    dim3 grid(cut.blocks);

    if (norm->n > REF_HEAD_DIM_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "a gated norm of %llu values; %d at most",
                         (unsigned long long)norm->n, REF_HEAD_DIM_MAX);
    if (norm->rows == 0 || norm->n == 0)
        return 0;
    if (norm->quantised.bytes != nullptr)
        cut.heads = (uint32_t)(norm->quantised.windows * MATMUL_FAST_COLUMNS / norm->n);
    if (convolve->token_count > 0) {
        cut.token_blocks = (uint32_t)((convolve->channels + THREADS - 1) / THREADS);
        grid.x += convolve->token_count * cut.token_blocks;
    }
    if (norm->n <= 4 * WARP)
        launch_overlapping(norm_gate_kernel<4>, grid, THREADS, 0, stream, *norm, cut);
    else if (norm->n <= 8 * WARP)
        launch_overlapping(norm_gate_kernel<8>, grid, THREADS, 0, stream, *norm, cut);
    else
        launch_overlapping(norm_gate_kernel<32>, grid, THREADS, 0, stream, *norm, cut);
    return cuda_launched("norm_gate", err);
}
