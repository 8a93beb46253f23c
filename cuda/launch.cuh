/* Launches that start while the kernel before on the stream drains: programmatic dependent
 * launch, on Hopper; elsewhere they follow it as any other.
 *
 * Every kernel that is launched so calls launch_begin(), or the two that it consists of, in all its
 * threads before it reads what an earlier kernel has written, or writes what one may still read.
 * What a copy on the stream has brought before it may read at once: no kernel starts before the
 * copies before it have ended, be they a copy engine's or a kernel's (kernel_copy.cu), and none
 * starts before the one before it has started. */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Where a kernel leaves the time, in ns of its GPU's clock, at which the kernels before it had
 * completed; `at` NULL: nowhere. */
struct launch_stamp {
    uint64_t *at; /* the GPU's memory */
};

static inline struct launch_stamp launch_stamp_at(uint64_t *at)
{
    struct launch_stamp stamp = {at};

    return stamp;
}

/** The next launch of this thread gets `stamp`. */
void launch_set_stamp(struct launch_stamp stamp);

/** What it gets, for a launch that is not made below; it is taken once. */
struct launch_stamp launch_take_stamp(void);

/** A kernel that does nothing but this. */
void launch_stamp(struct launch_stamp stamp, cudaStream_t stream);

/** Lets the kernel behind start. */
static __device__ __forceinline__ void launch_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/** Waits until the kernels before have completed. */
static __device__ __forceinline__ void launch_wait(struct launch_stamp stamp)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (stamp.at != nullptr && (threadIdx.x | blockIdx.x | blockIdx.y | blockIdx.z) == 0)
        asm volatile("{\n"
                     ".reg .u64 time;\n"
                     "mov.u64 time, %%globaltimer;\n"
                     "st.global.u64 [%0], time;\n"
                     "}\n" ::"l"(stamp.at)
                     : "memory");
}

static __device__ __forceinline__ void launch_begin(struct launch_stamp stamp)
{
    launch_next();
    launch_wait(stamp);
}

/** Whether the current GPU runs the code that was compiled for Hopper. Cards after it run what was
 * compiled for Ampere: Hopper's own instructions are in no later card. */
bool launch_is_hopper(void);

struct launch_attributes {
    cudaLaunchAttribute list[3];
    unsigned count;
};

/** Of a launch in clusters of `cluster` blocks that may overlap the one before.
 *
 * All that do want the most shared memory. A multiprocessor cannot change how much it has while it
 * runs a block: a product that loads weights beside small kernels finds room only where those have
 * left the division as it needs it. */
static inline struct launch_attributes launch_attributes_of(unsigned cluster, bool overlaps)
{
    struct launch_attributes attributes = {};

    if (overlaps) {
        cudaLaunchAttribute *carveout = &attributes.list[attributes.count++];
        cudaLaunchAttribute *overlap = &attributes.list[attributes.count++];

        carveout->id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        carveout->val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
        overlap->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap->val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        cudaLaunchAttribute *clusters = &attributes.list[attributes.count++];

        clusters->id = cudaLaunchAttributeClusterDimension;
        clusters->val.clusterDim.x = cluster;
        clusters->val.clusterDim.y = clusters->val.clusterDim.z = 1;
    }
    return attributes;
}

/** Launches `kernel` in clusters of `cluster` blocks, of which more than one is for Hopper alone;
 * cuda_launched() has the status. */
template <typename... Parameters, typename... Arguments>
static void launch_clusters(void (*kernel)(struct launch_stamp, Parameters...), unsigned cluster,
                            dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                            Arguments... arguments)
{
    cudaLaunchConfig_t config = {};
    struct launch_attributes attributes = launch_attributes_of(cluster, launch_is_hopper());

    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes.list;
    config.numAttrs = attributes.count;
    cudaLaunchKernelEx(&config, kernel, launch_take_stamp(), Parameters(arguments)...);
}

/** The same without clusters. */
template <typename... Parameters, typename... Arguments>
static void launch_overlapping(void (*kernel)(struct launch_stamp, Parameters...), dim3 grid,
                               unsigned threads, size_t shared_bytes, cudaStream_t stream,
                               Arguments... arguments)
{
    launch_clusters(kernel, 1, grid, threads, shared_bytes, stream, arguments...);
}

#endif
