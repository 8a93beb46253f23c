/* A step of a gated delta net in which no sequence has more than one token: the convolution is part
 * of the delta rule's kernel. A block convolves the channels of its q, its k and its rows' values
 * alone; other blocks need some of the same, so that neither the mix nor the convolution's state
 * changes here: cuda_norm_gate() brings that up to date.
 *
 * What is read before launch_wait() is what kernel_delta.cu says, and the convolution's state,
 * which a gated norm of an earlier step wrote. The convolution is summed there up to its last
 * input, so that only a short chain is left behind the product that makes the mix. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_convolve.cuh"
#include "cuda/kernel_delta.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

enum {
    WARP = DELTA_WARP,
    LANES = DELTA_LANES,
    THREADS = DELTA_THREADS,
    ROWS = DELTA_ROWS,
    ALIGNED = sizeof(float4), /* weights of 4 taps are one load */
};

/* What a warp makes for the block's rows: q, k, the rows' values, beta and decay. */
enum { MAKES_Q, MAKES_K, MAKES_VALUES, MAKES_GATES };

/* Channels that a lane convolves, `step` apart: the first of them in the step's mix, and in the
 * layer's weights. Where a warp makes no unit, all are the same one: loads need no branches. */
struct own_channels {
    uint64_t mix, weight;
    uint32_t step;
};

__device__ __forceinline__ struct own_channels
own_channels_of(const struct convolve &c, const struct delta &d, uint32_t head, uint32_t first_row)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const bool is_unit = warp < MAKES_VALUES;
    const uint32_t segment = is_unit ? warp : 2 + head / d.k_heads;
    const uint32_t in_segment =
        head % d.k_heads * d.dim + (is_unit ? lane : first_row + lane % ROWS);
    struct own_channels own;

    own.mix = segment * c.count + in_segment;
    own.weight = segment * c.segment_channels + c.first + in_segment;
    own.step = is_unit ? WARP : 0;
    return own;
}

/* A channel's weights, that of the last input first. */
template <int TAPS>
__device__ __forceinline__ void load_weights(const struct convolve &c, uint64_t channel,
                                             float (&weight)[TAPS])
{
    const float *weights = c.weight + channel * c.taps;

    if constexpr (TAPS == 4) {
        const float4 four = *(const float4 *)weights;

        weight[3] = four.x;
        weight[2] = four.y;
        weight[1] = four.z;
        weight[0] = four.w;
    } else {
#pragma unroll
        for (uint32_t age = 0; age < TAPS; age++)
            weight[age] = age < c.taps ? weights[c.taps - 1 - age] : 0.0f;
    }
}

/* Grid: (v_heads, dim / ROWS, tokens). There are 4 taps, or TAPS at most. */
template <int DIM, int TAPS>
__global__ void __launch_bounds__(THREADS, 1)
    delta_step_kernel(struct launch_stamp stamp, const struct convolve c, const struct delta d,
                      const struct cuda_delta_heads heads, float *out)
{
    using slots = delta_slots<DIM, 1>;
    constexpr int EACH = DIM / LANES, UNIT = DIM / WARP;
    constexpr bool EXACT = TAPS == 4;
    __shared__ __align__(16) float slot[slots::SIZE];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % LANES;
    const uint32_t head = blockIdx.x, t = blockIdx.z;
    const uint64_t gate = (uint64_t)t * d.v_heads + head, at = delta_gate_at(heads, head);
    const uint64_t row = blockIdx.y * ROWS + threadIdx.x / LANES;
    const uint64_t size = (uint64_t)DIM * DIM, plane_size = d.v_heads * size;
    const struct program_token token = d.tokens[t];
    const struct own_channels own = own_channels_of(c, d, head, blockIdx.y * ROWS);
    const float *mix = d.mix + t * c.channels + own.mix;
    const float *inputs = convolve_state(c, token.sequence, own.mix);
    const float dt = d.dt[at], a = d.a[at];
    float weight[UNIT][TAPS], history[UNIT][TAPS], before[UNIT], value[UNIT], beta, alpha;
    float *state =
        d.state + token.sequence * (uint64_t)d.planes * plane_size + head * size + row * DIM + lane;
    struct delta_rows<DIM, 1> rows;
    float result[1];

    launch_next();
#pragma unroll
    for (int i = 0; i < UNIT; i++)
        load_weights<TAPS>(c, own.weight + i * own.step, weight[i]);
#pragma unroll
    for (int i = 0; i < UNIT; i++)
        convolve_load<TAPS>(c, token, inputs + i * own.step, history[i]);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        rows.s[0][i] = token.from_zero != 0 ? 0.0f : state[token.undone * plane_size + i * LANES];
#pragma unroll
    for (int i = 0; i < UNIT; i++)
        before[i] = convolve_before<TAPS, EXACT>(c.taps, weight[i], history[i]);
    launch_wait(stamp);

#pragma unroll
    for (int i = 0; i < UNIT; i++)
        value[i] = mix[i * own.step];
    beta = d.beta[gate];
    alpha = d.alpha[gate];
    if (warp == MAKES_GATES) {
        *(float2 *)(slot + slots::GATES) = delta_gates(beta, alpha, dt, a);
    } else {
#pragma unroll
        for (int i = 0; i < UNIT; i++)
            value[i] = convolve_input(before[i], weight[i][0], value[i]);
        if (warp == MAKES_VALUES)
            slot[slots::VALUES + threadIdx.x % ROWS] = value[0];
        else
            delta_unit<DIM>(value, d.eps, warp == MAKES_Q ? arith_rsqrt((float)DIM) : 1.0f,
                            slot + (warp == MAKES_Q ? 0 : slots::K));
    }
    __syncthreads();

    delta_load_key<DIM, 1>(rows, slot);
    delta_load_query<DIM, 1>(rows, slot);
    delta_decay<DIM, 1>(rows);
    rows.dot[0] = delta_tree(rows.dot[0]);
    delta_change<DIM, 1>(rows);
    age_planes<EACH>(state, d.planes, token.undone, 1, EACH, LANES, plane_size);
    delta_store<DIM, 1>(rows, state, 0);
    delta_query<DIM, 1>(rows, result);
    result[0] = delta_tree(result[0]);
    if (lane == 0)
        out[gate * DIM + row] = arith_canonical(result[0]);
}

template <int DIM>
static void launch_delta_step(const struct convolve &convolve, const struct delta &delta,
                              const struct cuda_delta_heads &heads, float *out, cudaStream_t stream)
{
    launch_overlapping(convolve.taps == 4 ? delta_step_kernel<DIM, 4>
                                          : delta_step_kernel<DIM, CONVOLVE_TAPS_MAX>,
                       dim3(delta.v_heads, DIM / ROWS, delta.token_count), THREADS, 0, stream,
                       convolve, delta, heads, out);
}

bool cuda_delta_step_fits(const struct convolve *convolve, const struct delta *delta)
{
    const uint64_t key = (uint64_t)delta->k_heads * delta->dim;
    const uint32_t dim = delta->dim;

    return (dim == 32 || dim == 64 || dim == 128 || dim == 256) && delta->v_heads > 0 &&
           delta->token_count > 0 && delta->token_count <= CUDA_DELTA_STEP_TOKENS &&
           convolve->token_count == delta->token_count && convolve->tokens == delta->tokens &&
           convolve->count == key &&
           convolve->channels == 2 * key + (uint64_t)delta->v_heads * dim && convolve->taps > 0 &&
           convolve->taps <= CONVOLVE_TAPS_MAX && (uintptr_t)convolve->weight % ALIGNED == 0;
}

int cuda_delta_step(const struct convolve *convolve, const struct delta *delta,
                    struct cuda_delta_heads heads, float *out, cudaStream_t stream,
                    struct error *err)
{
    switch (delta->dim) {
    case 32:
        launch_delta_step<32>(*convolve, *delta, heads, out, stream);
        break;
    case 64:
        launch_delta_step<64>(*convolve, *delta, heads, out, stream);
        break;
    case 128:
        launch_delta_step<128>(*convolve, *delta, heads, out, stream);
        break;
    default:
        launch_delta_step<256>(*convolve, *delta, heads, out, stream);
    }
    return cuda_launched("delta step", err);
}
