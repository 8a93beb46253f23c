/* Gated delta net: sequences, channels, heads and rows of a state run side by side, tokens of a
 * sequence one after the other. ref/kernel_delta.c has the order of additions. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS = 256, LANES = 8, ROWS = THREADS / LANES, TAPS_MAX = 8, DIM_MAX = 256 };

/* First token of a sequence in the step and how many it has; false: none. */
__device__ static bool find_sequence(const struct program_token *tokens, uint32_t count,
                                     uint32_t sequence, uint32_t *first, uint32_t *added)
{
    *added = 0;
    for (uint32_t t = count; t-- > 0;)
        if (tokens[t].sequence == sequence) {
            *first = t;
            ++*added;
        }
    return *added > 0;
}

/* As the reference's, for `size` values `step` apart of each plane. */
__device__ static void age_planes(float *state, uint32_t planes, uint32_t undone, uint32_t added,
                                  uint32_t size, uint64_t step, uint64_t stride)
{
    for (uint32_t i = added; i < planes; i++) {
        uint32_t to = undone < added ? planes - 1 - (i - added) : i;
        uint32_t from = undone + to - added;

        if (from < planes && from != to)
            for (uint32_t j = 0; j < size; j++)
                state[to * stride + j * step] = state[from * stride + j * step];
    }
}

/* ---- convolution ---- */

/* Grid: (channels / THREADS, sequences); a thread a channel. */
__global__ void __launch_bounds__(THREADS) convolve_kernel(struct convolve c, float *x)
{
    uint64_t channel = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint64_t kept = (c.taps - 1) * c.channels;
    uint32_t first = 0, left = 0;
    float history[TAPS_MAX] = {0.0f}, weight[TAPS_MAX];
    float *state;

    if (channel >= c.channels || !find_sequence(c.tokens, c.token_count, blockIdx.y, &first, &left))
        return;
    state = c.state + blockIdx.y * (uint64_t)c.planes * kept + channel;
    for (uint32_t j = 0; j < c.taps; j++)
        weight[j] =
            c.weight[(channel / c.count * c.segment_channels + c.first + channel % c.count) *
                         c.taps +
                     j];
    for (uint32_t j = 0; j + 1 < c.taps && c.tokens[first].from_zero == 0; j++)
        history[j] = state[c.tokens[first].undone * kept + j * c.channels];
    age_planes(state, c.planes, c.tokens[first].undone, left, c.taps - 1, c.channels, kept);
    for (uint32_t t = first; t < c.token_count; t++) {
        float sum = 0.0f;

        if (c.tokens[t].sequence != blockIdx.y)
            continue;
        history[c.taps - 1] = x[t * c.channels + channel];
        for (uint32_t j = 0; j < c.taps; j++)
            sum = fmaf(weight[j], history[j], sum);
        x[t * c.channels + channel] = arith_silu(sum);
        for (uint32_t j = 0; j + 1 < c.taps; j++)
            history[j] = history[j + 1];
        left--;
        for (uint32_t j = 0; j + 1 < c.taps && left < c.planes; j++)
            state[left * kept + j * c.channels] = history[j];
    }
}

int cuda_convolve(const struct convolve *convolve, uint32_t sequences, float *x,
                  cudaStream_t stream, struct error *err)
{
    if (convolve->taps > TAPS_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "a convolution of %u taps; %d at most",
                         convolve->taps, TAPS_MAX);
    if (convolve->channels == 0)
        return 0;

    dim3 grid((unsigned)((convolve->channels + THREADS - 1) / THREADS), sequences);

    convolve_kernel<<<grid, THREADS, 0, stream>>>(*convolve, x);
    return cuda_launched("convolve", err);
}

/* ---- delta rule ---- */

/* Grid: (tokens, k_heads, 2): q, then k, of unit length: (tokens, 2, k_heads, dim). */
__global__ void __launch_bounds__(ARITH_LANES) unit_kernel(struct delta d, float *units)
{
    __shared__ float lanes[ARITH_LANES];
    uint32_t l = threadIdx.x, t = blockIdx.x, head = blockIdx.z * d.k_heads + blockIdx.y;
    const float *x = d.mix + ((uint64_t)t * (2 * d.k_heads + d.v_heads) + head) * d.dim;
    float *y = units + ((uint64_t)t * 2 * d.k_heads + head) * d.dim;
    float sum = 0.0f;

    for (uint32_t i = l; i < d.dim; i += ARITH_LANES)
        sum = fmaf(x[i], x[i], sum);
    lanes[l] = sum;
    __syncthreads();
    for (uint32_t s = ARITH_LANES / 2; s > 0; s /= 2) {
        if (l < s)
            lanes[l] += lanes[l + s];
        __syncthreads();
    }

    float scale = arith_rsqrt(arith_canonical(lanes[0]) + d.eps);
    float factor = blockIdx.z == 0 ? arith_rsqrt((float)d.dim) : 1.0f;

    for (uint32_t i = l; i < d.dim; i += ARITH_LANES)
        y[i] = x[i] * scale * factor;
}

/* The tree of arith_dot8() over 8 neighbouring threads; each gets the sum. */
__device__ __forceinline__ float tree_of_8(float lane)
{
#pragma unroll
    for (int s = LANES / 2; s > 0; s /= 2)
        lane += __shfl_xor_sync(0xffffffffu, lane, s);
    return arith_canonical(lane);
}

/* Grid: (v_heads, dim / ROWS, sequences). 8 threads have a row of the state, every eighth value
 * each. `dim` is a multiple of ROWS. */
template <int DIM>
__global__ void __launch_bounds__(THREADS)
    delta_kernel(struct delta d, struct cuda_delta_heads heads, const float *units, float *out)
{
    constexpr int EACH = DIM / LANES;
    uint32_t h = blockIdx.x, row = blockIdx.y * ROWS + threadIdx.x / LANES;
    uint32_t lane = threadIdx.x % LANES, k_head = h % d.k_heads, first = 0, left = 0;
    uint64_t size = (uint64_t)DIM * DIM, plane_size = d.v_heads * size;
    uint64_t gate_at = h / heads.count * heads.total + heads.first + h % heads.count;
    float dt = d.dt[gate_at], a = d.a[gate_at];
    float *state = d.state + blockIdx.z * (uint64_t)d.planes * plane_size + h * size +
                   (uint64_t)row * DIM + lane;
    float s[EACH];

    if (!find_sequence(d.tokens, d.token_count, blockIdx.z, &first, &left))
        return;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        s[i] = d.tokens[first].from_zero != 0
                   ? 0.0f
                   : state[d.tokens[first].undone * plane_size + i * LANES];
    age_planes(state, d.planes, d.tokens[first].undone, left, EACH, LANES, plane_size);
    for (uint32_t t = first; t < d.token_count; t++) {
        const float *q = units + ((uint64_t)t * 2 * d.k_heads + k_head) * DIM + lane;
        const float *k = q + (uint64_t)d.k_heads * DIM;
        uint64_t gate = (uint64_t)t * d.v_heads + h;
        float value, beta, decay, change, dot = 0.0f;

        if (d.tokens[t].sequence != blockIdx.z)
            continue;
        value = d.mix[((uint64_t)t * (2 * d.k_heads + d.v_heads) + 2 * d.k_heads + h) * DIM + row];
        beta = arith_sigmoid(d.beta[gate]);
        decay = arith_exp(a * arith_softplus(d.alpha[gate] + dt));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            s[i] = s[i] * decay;
            dot = fmaf(s[i], k[i * LANES], dot);
        }
        change = (value - tree_of_8(dot)) * beta;
        dot = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            s[i] = arith_canonical(fmaf(k[i * LANES], change, s[i]));
            dot = fmaf(s[i], q[i * LANES], dot);
        }
        dot = tree_of_8(dot);
        if (lane == 0)
            out[gate * DIM + row] = dot;
        left--;
        if (left < d.planes)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                state[left * plane_size + i * LANES] = s[i];
    }
}

size_t cuda_delta_scratch(const struct delta *delta)
{
    return (size_t)delta->token_count * 2 * delta->k_heads * delta->dim * sizeof(float);
}

int cuda_delta(const struct delta *delta, struct cuda_delta_heads heads, uint32_t sequences,
               void *scratch, float *out, cudaStream_t stream, struct error *err)
{
    float *units = (float *)scratch;
    dim3 unit_grid(delta->token_count, delta->k_heads, 2);
    dim3 grid(delta->v_heads, delta->dim / ROWS, sequences);

    if (delta->v_heads == 0 || delta->token_count == 0)
        return 0;
    unit_kernel<<<unit_grid, ARITH_LANES, 0, stream>>>(*delta, units);
    switch (delta->dim) {
    case 32:
        delta_kernel<32><<<grid, THREADS, 0, stream>>>(*delta, heads, units, out);
        break;
    case 64:
        delta_kernel<64><<<grid, THREADS, 0, stream>>>(*delta, heads, units, out);
        break;
    case 128:
        delta_kernel<128><<<grid, THREADS, 0, stream>>>(*delta, heads, units, out);
        break;
    case 256:
        delta_kernel<256><<<grid, THREADS, 0, stream>>>(*delta, heads, units, out);
        break;
    default:
        return error_set(err, ERROR_UNSUPPORTED, "a delta rule of %u dimensions; 32, 64, 128, 256",
                         delta->dim);
    }
    return cuda_launched("delta", err);
}
