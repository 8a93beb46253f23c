/* Launches that start while the kernel before on the stream drains: programmatic dependent
 * launch, on Hopper; elsewhere they follow it as any other.
 *
 * Every kernel that is launched so calls launch_begin(), or the two that it consists of, in all its
 * threads before it reads what an earlier kernel has written, or writes what one may still read.
 * What a copy on the stream has brought before it may read at once: no kernel starts before the
 * copies before it have ended, and none starts before the one before it has started. */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/** Lets the kernel behind start. */
static __device__ __forceinline__ void launch_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/** Waits until the kernels before have completed. */
static __device__ __forceinline__ void launch_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void launch_begin(void)
{
    launch_next();
    launch_wait();
}

/** Whether the current GPU runs the code that was compiled for Hopper. Cards after it run what was
 * compiled for Ampere: Hopper's own instructions are in no later card. */
bool launch_is_hopper(void);

/** Launches `kernel`; cuda_launched() has the status. */
template <typename... Parameters, typename... Arguments>
static void launch_overlapping(void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                               size_t shared_bytes, cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = launch_is_hopper() ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

#endif
