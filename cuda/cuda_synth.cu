#include "cuda/cuda_synth.h"

#include "cuda/cuda_check.h"

enum { THREADS = 128, BLOCK_BYTES_MAX = 210 };

/* A thread a block; a CUDA block's bytes are made in shared memory and leave it together. */
static __global__ void __launch_bounds__(THREADS)
    synth_kernel(const struct synth synth, uint64_t first, uint64_t count, uint32_t block_bytes,
                 uint8_t *to)
{
    __shared__ __align__(16) uint8_t made[THREADS * BLOCK_BYTES_MAX];
    const uint64_t begin = (uint64_t)blockIdx.x * THREADS, left = count - begin;
    const uint32_t bytes = (uint32_t)(left < THREADS ? left : THREADS) * block_bytes;

    if (threadIdx.x < left)
        synth_block(&synth, first + begin + threadIdx.x, made + threadIdx.x * block_bytes);
    __syncthreads();
    to += begin * block_bytes; /* a multiple of 16: THREADS is one, and blocks have even sizes */
    for (uint32_t i = threadIdx.x * 16; i + 16 <= bytes; i += THREADS * 16)
        *(uint4 *)(to + i) = *(const uint4 *)(made + i);
    for (uint32_t i = bytes / 16 * 16 + threadIdx.x; i < bytes; i += THREADS)
        to[i] = made[i];
}

int cuda_synth(const struct synth *synth, uint64_t first, uint64_t count, void *to,
               cudaStream_t stream, struct error *err)
{
    if (count == 0)
        return 0;
    synth_kernel<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        *synth, first, count, (uint32_t)tensor_type_info(synth->type)->block_bytes, (uint8_t *)to);
    return cuda_launched("synth", err);
}
