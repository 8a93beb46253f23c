#include "cuda/launch.cuh"

enum { GPUS_MAX = 64 };

enum { MARK_BYTES = 128 };

/* Its shared memory says whether code for sm_90a, with all of Hopper's instructions, is what runs.
 */
static __global__ void any_kernel(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ volatile char mark[MARK_BYTES];

    mark[threadIdx.x] = 0;
#endif
}

bool launch_is_hopper(void)
{
    static signed char known[GPUS_MAX]; /* 1: it is, -1: it is not */
    struct cudaFuncAttributes attributes;
    int gpu = 0;

    if (cudaGetDevice(&gpu) != cudaSuccess || gpu >= GPUS_MAX)
        return false;
    if (known[gpu] == 0 && cudaFuncGetAttributes(&attributes, any_kernel) == cudaSuccess)
        known[gpu] = attributes.sharedSizeBytes >= MARK_BYTES ? 1 : -1;
    return known[gpu] > 0;
}

static thread_local struct launch_stamp next_stamp;

void launch_set_stamp(struct launch_stamp stamp)
{
    next_stamp = stamp;
}

struct launch_stamp launch_take_stamp(void)
{
    struct launch_stamp stamp = next_stamp;

    next_stamp = {};
    return stamp;
}

static __global__ void stamp_kernel(struct launch_stamp stamp)
{
    launch_begin(stamp);
}

void launch_stamp(struct launch_stamp stamp, cudaStream_t stream)
{
    launch_set_stamp(stamp);
    launch_overlapping(stamp_kernel, dim3(1), 32, 0, stream);
}
