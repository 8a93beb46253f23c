/* A channel of the convolution before a gated delta net, and the planes of recurrent states, as
 * ref/kernel_delta.c has them. */
#ifndef CUDA_KERNEL_CONVOLVE_CUH
#define CUDA_KERNEL_CONVOLVE_CUH

#include "cuda/kernels.h"

extern "C" {
#include "ref/arith.h"
}

enum { CONVOLVE_TAPS_MAX = 8 };

/* As the reference's, for `size` values `step` apart of each plane; the loads of AT_ONCE of them
 * are under way together. */
template <int AT_ONCE>
__device__ __forceinline__ void age_planes(float *state, uint32_t planes, uint32_t undone,
                                           uint32_t added, uint32_t size, uint64_t step,
                                           uint64_t stride)
{
    for (uint32_t i = added; i < planes; i++) {
        const uint32_t to = undone < added ? planes - 1 - (i - added) : i;
        const uint32_t from = undone + to - added;

        if (from >= planes || from == to)
            continue;
        for (uint32_t j = 0; j < size; j += AT_ONCE) {
            float value[AT_ONCE];

#pragma unroll
            for (uint32_t v = 0; v < AT_ONCE; v++)
                if (j + v < size)
                    value[v] = state[from * stride + (j + v) * step];
#pragma unroll
            for (uint32_t v = 0; v < AT_ONCE; v++)
                if (j + v < size)
                    state[to * stride + (j + v) * step] = value[v];
        }
    }
}

/* Where a sequence's planes of a channel's state begin. */
__device__ __forceinline__ float *convolve_state(const struct convolve &c, uint32_t sequence,
                                                 uint64_t channel)
{
    return c.state + sequence * (uint64_t)c.planes * (c.taps - 1) * c.channels + channel;
}

/* The inputs before a sequence's first token of the step, the youngest in history[1]. */
template <int TAPS>
__device__ __forceinline__ void convolve_load(const struct convolve &c,
                                              const struct program_token &first, const float *state,
                                              float (&history)[TAPS])
{
    const float *plane = state + first.undone * (uint64_t)(c.taps - 1) * c.channels;

#pragma unroll
    for (uint32_t age = 1; age < TAPS; age++)
        history[age] =
            age < c.taps && first.from_zero == 0 ? plane[(c.taps - 1 - age) * c.channels] : 0.0f;
}

/* The sum over all inputs but the last. EXACT: there are TAPS taps. */
template <int TAPS, bool EXACT>
__device__ __forceinline__ float convolve_before(uint32_t taps, const float (&weight)[TAPS],
                                                 const float (&history)[TAPS])
{
    float sum = 0.0f;

#pragma unroll
    for (int age = TAPS; age-- > 1;)
        if (EXACT || (uint32_t)age < taps)
            sum = fmaf(weight[age], history[age], sum);
    return sum;
}

/* The state behind a token that is its sequence's only one in the step: plane 0 is the inputs that
 * `history` has from before it, and its own. */
template <int TAPS>
__device__ __forceinline__ void
convolve_keep(const struct convolve &c, const struct program_token &token,
              const float (&history)[TAPS], float input, float *state)
{
    const uint64_t kept = (uint64_t)(c.taps - 1) * c.channels;

    age_planes<TAPS - 1>(state, c.planes, token.undone, 1, c.taps - 1, c.channels, kept);
#pragma unroll
    for (uint32_t age = 0; age + 1 < TAPS; age++)
        if (age + 1 < c.taps)
            state[(c.taps - 2 - age) * c.channels] = age == 0 ? input : history[age];
}

/* The result, with the last input. */
__device__ __forceinline__ float convolve_input(float before, float weight, float input)
{
    return arith_silu(fmaf(weight, input, before));
}

#endif
