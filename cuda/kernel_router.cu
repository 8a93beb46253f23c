/* The router: exponentials side by side, sums and choices by one thread in the order of experts. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS = 128 };

/* Softmax in the order of experts; then the largest, the lower index first among equals. */
__device__ static void choose(float *probabilities, const struct cuda_route &r, float sum,
                              struct program_route *out)
{
    for (uint32_t u = 0; u < r.used; u++) {
        uint32_t best = UINT32_MAX;

        for (uint32_t e = 0; e < r.experts; e++)
            if (probabilities[e] != -1.0f &&
                (best == UINT32_MAX || probabilities[e] > probabilities[best]))
                best = e;
        out[u].expert = best;
        out[u].weight = probabilities[best] / sum;
        probabilities[best] = -1.0f; /* taken */
    }
}

/* Grid: (tokens); `experts` floats of shared memory. */
__global__ void __launch_bounds__(THREADS)
    route_kernel(struct launch_stamp stamp, struct cuda_route r, struct program_route *out)
{
    extern __shared__ float probabilities[];
    __shared__ float maximum;
    const float *logits = r.logits + (uint64_t)blockIdx.x * r.experts;
    struct program_route *chosen = out + (uint64_t)blockIdx.x * r.used;
    float sum = 0.0f;

    launch_begin(stamp);
    if (threadIdx.x == 0) {
        float largest = logits[0];

        for (uint32_t e = 1; e < r.experts; e++)
            largest = logits[e] > largest ? logits[e] : largest;
        maximum = largest;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < r.experts; e += THREADS)
        probabilities[e] = arith_exp(logits[e] - maximum);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (uint32_t e = 0; e < r.experts; e++)
        sum += probabilities[e];
    choose(probabilities, r, sum, chosen);
    sum = 0.0f;
    for (uint32_t u = 0; u < r.used; u++)
        sum += chosen[u].weight;
    for (uint32_t u = 0; u < r.used; u++) {
        float weight = chosen[u].weight;

        if (r.normalised)
            weight = weight / sum;
        if (r.scales != nullptr)
            weight = weight * r.scales[chosen[u].expert];
        chosen[u].weight = arith_canonical(weight * r.expert_scale);
    }
}

int cuda_route(const struct cuda_route *route, struct program_route *out, cudaStream_t stream,
               struct error *err)
{
    if (route->tokens == 0)
        return 0;
    launch_overlapping(route_kernel, dim3(route->tokens), THREADS, route->experts * sizeof(float),
                       stream, *route, out);
    return cuda_launched("route", err);
}
