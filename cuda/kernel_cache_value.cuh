/* Values of a cache of F16, Q8_0 or Q4_0, as arith_dequantise_block() reads them. */
#ifndef CUDA_KERNEL_CACHE_VALUE_CUH
#define CUDA_KERNEL_CACHE_VALUE_CUH

#include <cuda_fp16.h>

extern "C" {
#include "ref/arith.h"
}

/* arith_f32_from_f16() by the hardware: exact, but for the pattern of a NaN. */
__device__ __forceinline__ float half_value(uint16_t half)
{
    return arith_canonical(__half2float(__ushort_as_half(half)));
}

/* Value `index`, counted from the start of the cache. */
__device__ __forceinline__ float cache_value(enum tensor_type type, const void *cache,
                                             uint64_t index)
{
    uint32_t i = (uint32_t)(index % ARITH_BLOCK);

    if (type == TENSOR_TYPE_F16)
        return half_value(((const uint16_t *)cache)[index]);
    if (type == TENSOR_TYPE_Q8_0) {
        const struct arith_q8_0 *block = (const struct arith_q8_0 *)cache + index / ARITH_BLOCK;

        return arith_canonical(arith_f32_from_f16(block->d) * (float)block->qs[i]);
    }

    const struct arith_q4_0 *block = (const struct arith_q4_0 *)cache + index / ARITH_BLOCK;
    int half = i < 16 ? block->qs[i] & 15 : block->qs[i - 16] >> 4;

    return arith_canonical(arith_f32_from_f16(block->d) * (float)(half - 8));
}

#endif
