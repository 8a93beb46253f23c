/* Rotary embedding: a thread turns one pair of every head of a token. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_turn.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

/* Grid: (tokens); a thread a pair, in turns. */
__global__ void rope_kernel(struct launch_stamp stamp, struct rope rope, float *x)
{
    uint32_t t = blockIdx.x, pairs = rope.turned / 2;

    launch_begin(stamp);
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        float *head = x + (uint64_t)t * rope.heads * rope.dim;
        uint32_t first, second;
        float sine, cosine;

        arith_sincos((double)rope.tokens[t].position * rope.frequencies[i], &sine, &cosine);
        pair_places(i, pairs, rope.halves, &first, &second);
        for (uint32_t h = 0; h < rope.heads; h++, head += rope.dim)
            turn_pair(cosine, sine, head + first, head + second);
    }
}

int cuda_rope(const struct rope *rope, float *x, cudaStream_t stream, struct error *err)
{
    uint32_t pairs = rope->turned / 2, threads = pairs < 32 ? 32 : pairs < 256 ? pairs : 256;

    if (rope->token_count == 0 || rope->heads == 0)
        return 0;
    launch_overlapping(rope_kernel, dim3(rope->token_count), threads, 0, stream, *rope, x);
    return cuda_launched("rope", err);
}
