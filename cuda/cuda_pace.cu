#include "cuda/cuda_pace.h"

namespace
{

__device__ uint64_t device_clock_ns()
{
    uint64_t time;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__global__ void note(uint64_t *stamp)
{
    *stamp = device_clock_ns();
}

__global__ void hold(const uint64_t *stamp, double slowdown, double least_ns)
{
    uint64_t began = *stamp;
    double passed = (double)(device_clock_ns() - began) * slowdown;
    uint64_t until = began + (uint64_t)(passed > least_ns ? passed : least_ns);

    while (device_clock_ns() < until)
        __nanosleep(200);
}

} /* namespace */

cudaError_t cuda_pace_start(uint64_t *stamp, cudaStream_t stream)
{
    note<<<1, 1, 0, stream>>>(stamp);
    return cudaGetLastError();
}

cudaError_t cuda_pace_stop(const uint64_t *stamp, double slowdown, double least_s,
                           cudaStream_t stream)
{
    hold<<<1, 1, 0, stream>>>(stamp, slowdown, least_s * 1e9);
    return cudaGetLastError();
}
