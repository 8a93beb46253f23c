/* What the benches of kernels share. */
#ifndef TESTS_BENCH_CUDA_CUH
#define TESTS_BENCH_CUDA_CUH

#include <algorithm>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include <cuda_runtime.h>

#define SKIP 77 /* the exit status without a GPU */

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The same numbers in each run. */
static inline uint32_t random32(void)
{
    static uint64_t state = 1;
    uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32);
}

static inline uint32_t below(uint32_t limit)
{
    return (uint32_t)((uint64_t)random32() * limit >> 32);
}

/* Median seconds of a captured graph. */
template <typename Work> static double graph_s(cudaStream_t stream, int rounds, Work work)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    std::vector<double> times;

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i < rounds + 2; i++) {
        float ms;

        CUDA(cudaEventRecord(begin, stream));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2)
            times.push_back(ms * 1e-3);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static __global__ void read_kernel(const uint4 *from, uint64_t n, uint32_t *out)
{
    uint32_t sum = 0;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];

        sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        sum += c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    if (sum == 0x12345678)
        *out = sum;
}

/* Bytes a second that a kernel reads, the best of some grids. */
static double read_bandwidth(cudaStream_t stream)
{
    const uint64_t bytes = UINT64_C(4) << 30;
    double best = 0.0;
    void *from;

    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMemset(from, 0x5a, bytes));
    for (int grid : {132 * 8, 132 * 16, 132 * 32}) {
        double s = graph_s(stream, 7, [&] {
            read_kernel<<<grid, 256, 0, stream>>>((const uint4 *)from, bytes / 16,
                                                  (uint32_t *)from);
        });

        best = std::max(best, bytes / s);
    }
    CUDA(cudaFree(from));
    return best;
}

#endif
