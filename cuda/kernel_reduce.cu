/* Sums of int64 parts that lie in one GPU's memory. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

enum { THREADS = 256 };

static const uint64_t blocks_max = 1024;

__global__ void __launch_bounds__(THREADS)
    sum_parts_kernel(struct launch_stamp stamp, cuda_members members, uint64_t n)
{
    launch_begin(stamp);
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * THREADS) {
        uint64_t sum = 0;

        for (uint32_t p = 0; p < members.part_count; p++)
            sum += (uint64_t)members.parts[p][i];
        for (uint32_t t = 0; t < members.total_count; t++)
            members.totals[t][i] = (int64_t)sum;
    }
}

int cuda_sum_parts(const struct cuda_members *members, uint64_t n, cudaStream_t stream,
                   struct error *err)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;

    if (n == 0)
        return 0;
    launch_overlapping(sum_parts_kernel,
                       dim3((unsigned)(blocks < blocks_max ? blocks : blocks_max)), THREADS, 0,
                       stream, *members, n);
    return cuda_launched("sum_parts", err);
}
