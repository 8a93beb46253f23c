/* The router, a block for each token: exponentials side by side; then one warp adds them in the
 * order of experts while another chooses, which needs no sum. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS = 128, CHUNK = 128 /* experts that a warp reads at a time, 4 a lane */, AHEAD = 8 };

/* Keys order as probabilities do, which are not negative: a taken expert, NaN, numbers. */
enum { KEY_TAKEN = 0, KEY_NAN = 1, KEY_ZERO = 2 };

__device__ __forceinline__ uint32_t key_of(float probability)
{
    return probability != probability ? KEY_NAN : arith_bits(probability) + KEY_ZERO;
}

/* The largest logit, of a whole warp: a NaN before all others stays, one behind is passed over. */
__device__ __forceinline__ float find_maximum(const float *logits, uint32_t experts)
{
    int32_t largest = INT32_MIN; /* bits that order as signed integers: below all numbers */

#pragma unroll 4
    for (uint32_t e = threadIdx.x % 32; e < experts; e += 32) {
        const float logit = logits[e];
        const int32_t bits = (int32_t)arith_bits(logit);

        if (logit == logit)
            largest = max(largest, bits < 0 ? bits ^ INT32_MAX : bits);
    }
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (logits[0] != logits[0])
        return logits[0];
    return arith_float((uint32_t)(largest < 0 ? largest ^ INT32_MAX : largest));
}

/* Sum in the order of experts; zeros behind the last change nothing. What comes next is read while
 * AHEAD are added: only the chain of additions takes time. */
__device__ __forceinline__ float add_in_order(const float4 *probabilities, uint32_t experts)
{
    float4 a = probabilities[0], b = probabilities[1];
    float sum = 0.0f;

#pragma unroll 4
    for (uint32_t i = 0; i < (experts + AHEAD - 1) / AHEAD; i++) {
        const float4 c = probabilities[2 * i + 2], d = probabilities[2 * i + 3];

        sum += a.x;
        sum += a.y;
        sum += a.z;
        sum += a.w;
        sum += b.x;
        sum += b.y;
        sum += b.z;
        sum += b.w;
        a = c;
        b = d;
    }
    return sum;
}

struct candidate {
    uint32_t key, expert;
};

/* The best of the lane's experts, the lower index first among equals. */
__device__ __forceinline__ candidate find_best(const uint32_t *keys, uint32_t padded)
{
    candidate best = {KEY_TAKEN, UINT32_MAX};

#pragma unroll 4
    for (uint32_t e = threadIdx.x % 32 * 4; e < padded; e += CHUNK) {
        const uint4 k = *(const uint4 *)(keys + e);

        best = k.x > best.key ? candidate{k.x, e} : best;
        best = k.y > best.key ? candidate{k.y, e + 1} : best;
        best = k.z > best.key ? candidate{k.z, e + 2} : best;
        best = k.w > best.key ? candidate{k.w, e + 3} : best;
    }
    return best;
}

/* A warp takes the largest `used` times, the lower index first among equals. A NaN is taken where
 * no expert before it is left, as by a loop that keeps the first until a larger one comes. */
__device__ static void choose(uint32_t *keys, uint32_t padded, bool has_nan, uint32_t used,
                              uint32_t *chosen)
{
    const uint32_t lane = threadIdx.x % 32;
    candidate own = find_best(keys, padded);
    uint32_t first = 0; /* that is left */

    for (uint32_t u = 0; u < used; u++) {
        const uint32_t key = __reduce_max_sync(0xffffffffu, own.key);
        uint32_t best =
            __reduce_min_sync(0xffffffffu, own.key == key ? own.expert : (uint32_t)UINT32_MAX);

        if (has_nan && keys[first] == KEY_NAN)
            best = first;
        __syncwarp();
        if (lane == best % CHUNK / 4) {
            keys[best] = KEY_TAKEN;
            chosen[u] = best;
            own = find_best(keys, padded);
        }
        __syncwarp();
        while (has_nan && first + 1 < padded && keys[first] == KEY_TAKEN)
            first++;
    }
}

/* Grid: (tokens). Shared memory: probabilities of `padded` experts, a multiple of CHUNK, and AHEAD
 * that are read but not added; keys; of those used, expert and weight. */
__global__ void __launch_bounds__(THREADS)
    route_kernel(struct launch_stamp stamp, struct cuda_route r, uint32_t padded,
                 struct program_route *out)
{
    extern __shared__ __align__(16) float probabilities[];
    uint32_t *keys = (uint32_t *)probabilities + padded + AHEAD, *chosen = keys + padded;
    float *weights = (float *)(chosen + r.used);
    __shared__ float total;
    const float *logits = r.logits + (uint64_t)blockIdx.x * r.experts;
    float maximum, sum = 0.0f;
    bool has_nan = false;

    launch_begin(stamp);
    maximum = find_maximum(logits, r.experts);
    for (uint32_t e = threadIdx.x; e < padded; e += THREADS) {
        const bool is_expert = e < r.experts;
        const float probability = is_expert ? arith_exp(logits[e] - maximum) : 0.0f;

        probabilities[e] = probability;
        keys[e] = is_expert ? key_of(probability) : KEY_TAKEN;
        has_nan |= probability != probability;
    }
    has_nan = __syncthreads_or(has_nan) != 0;
    if (threadIdx.x < 32) {
        const float added = add_in_order((const float4 *)probabilities, r.experts);

        if (threadIdx.x == 0)
            total = added;
    } else if (threadIdx.x < 64) {
        choose(keys, padded, has_nan, r.used, chosen);
    }
    __syncthreads();
    for (uint32_t u = threadIdx.x; u < r.used; u += THREADS)
        weights[u] = probabilities[chosen[u]] / total;
    __syncthreads();
    for (uint32_t u = 0; u < r.used; u++)
        sum += weights[u];
    for (uint32_t u = threadIdx.x; u < r.used; u += THREADS) {
        float weight = weights[u];

        if (r.normalised)
            weight = weight / sum;
        if (r.scales != nullptr)
            weight = weight * r.scales[chosen[u]];
        out[(uint64_t)blockIdx.x * r.used + u] = {chosen[u],
                                                  arith_canonical(weight * r.expert_scale)};
    }
}

int cuda_route(const struct cuda_route *route, struct program_route *out, cudaStream_t stream,
               struct error *err)
{
    const uint32_t padded = (route->experts + CHUNK - 1) / CHUNK * CHUNK;

    if (route->tokens == 0)
        return 0;
    launch_overlapping(route_kernel, dim3(route->tokens), THREADS,
                       (2 * padded + AHEAD + 2 * route->used) * sizeof(float), stream, *route,
                       padded, out);
    return cuda_launched("route", err);
}
