/* A pair of rotary embedding, as ref/kernel_rope.c turns it. */
#ifndef CUDA_KERNEL_TURN_CUH
#define CUDA_KERNEL_TURN_CUH

extern "C" {
#include "ref/arith.h"
}

/* Where pair i of a head lies. */
__device__ __forceinline__ void pair_places(uint32_t i, uint32_t pairs, bool halves,
                                            uint32_t *first, uint32_t *second)
{
    *first = halves ? i : 2 * i;
    *second = halves ? i + pairs : 2 * i + 1;
}

__device__ __forceinline__ void turn_pair(float cosine, float sine, float *first, float *second)
{
    float a = *first, b = *second;

    *first = arith_canonical(fmaf(a, cosine, -(b * sine)));
    *second = arith_canonical(fmaf(a, sine, b * cosine));
}

#endif
