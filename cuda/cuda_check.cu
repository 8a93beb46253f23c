#include "cuda/cuda_check.h"

int cuda_check(cudaError_t status, const char *doing, struct error *err)
{
    if (status == cudaSuccess)
        return 0;
    int gpu = -1;

    cudaGetLastError(); /* one that is not sticky is told once */
    cudaGetDevice(&gpu);
    return error_set(err, status == cudaErrorMemoryAllocation ? ERROR_MEMORY : ERROR_IO,
                     "GPU %d, %s: %s (%s)", gpu, doing, cudaGetErrorString(status),
                     cudaGetErrorName(status));
}

int cuda_launched(const char *kernel, struct error *err)
{
    return cuda_check(cudaGetLastError(), kernel, err);
}

static uint64_t allocations;

uint64_t cuda_allocations(void)
{
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

int cuda_allocate(void **bytes, size_t size, int device, const char *what, struct error *err)
{
    const double mib = 1024.0 * 1024.0;
    cudaError_t status = cudaMalloc(bytes, size);
    size_t free_bytes = 0, total_bytes = 0;
    int gpu = 0;

    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    if (status == cudaSuccess)
        return 0;
    *bytes = nullptr;
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation)
        return cuda_check(status, "cudaMalloc", err);
    cudaGetDevice(&gpu);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return error_set(err, ERROR_MEMORY,
                     "device %d (GPU %d): no memory for %.1f MiB of %s; %.1f of %.1f MiB are free",
                     device, gpu, (double)size / mib, what, (double)free_bytes / mib,
                     (double)total_bytes / mib);
}
