/* Executes programs on NVIDIA GPUs, with the bits of ref/interpret.h. Devices of a plan are laid
 * on GPUs in turn, so that several may share one, each with its own streams and buffers. */
#ifndef CUDA_EXECUTOR_H
#define CUDA_EXECUTOR_H

#ifdef __cplusplus
extern "C" {
#endif

#include "ref/executor.h"

/* How sums go over GPUs. */
enum cuda_reduction {
    CUDA_REDUCE_AUTO,       /* small ones by a kernel on each GPU where they reach each other's
                               memory, others by NCCL, without it by copies */
    CUDA_REDUCE_NCCL,       /* all by NCCL */
    CUDA_REDUCE_NCCL_FLOAT, /* in f32 by NCCL: without the guarantee of equal bits */
    CUDA_REDUCE_COPIES,
};

struct timeline_step;
typedef void cuda_watch(void *context, const struct program *program,
                        const struct timeline_step *step);

struct cuda_options {
    int gpus[MACHINE_DEVICES_MAX]; /* CUDA ordinals; plan device d takes gpus[d % gpu_count] */
    uint32_t gpu_count;            /* 0: all that are visible */
    bool no_graphs;                /* every kernel is launched by itself */
    enum cuda_reduction reduction;
    bool plain; /* the simple kernels for products only; so with LOPSIDE_CUDA_PLAIN set */
    /* Every operation runs on the interpreter too, and the first whose operands differ is
     * the error. LOPSIDE_CUDA_LOCKSTEP=1 in the environment does the same; =all tells each
     * on stderr, mends it and goes on. */
    bool lockstep;
    const char *trace_path; /* cuda_trace.h; NULL: none */
    cuda_watch *watch;      /* sees each step with its times; NULL: none */
    void *watch_context;
    /* Plan options of the call, flags and values, for the trace's header; borrowed until the
     * executor is closed. */
    const char *const *arguments;
    uint32_t argument_count;
    /* Pacing, device by device; 0: none. A device takes `slowdowns` times as long for its kernels,
     * and its copies from and to the host run at `link_gbs` at most. */
    double slowdowns[MACHINE_DEVICES_MAX];
    double link_gbs[MACHINE_DEVICES_MAX];
};

/**
 * Opens an executor on GPUs.
 *
 * @param context struct cuda_options, borrowed for the call, or NULL for the defaults
 * @return 0, or -1 with `err` set: ERROR_UNSUPPORTED without a GPU, ERROR_MEMORY names the
 *         device, what was asked for and what is free
 */
executor_open cuda_executor_open;

/** A way by its name: auto, nccl, nccl-float, copies. @return false for another */
bool cuda_reduction_find(const char *name, enum cuda_reduction *way);

/** GPUs that are visible. @return 0 with `err` set (ERROR_UNSUPPORTED) where there are none */
uint32_t cuda_gpu_count(struct error *err);

/** A GPU's name as the driver has it, into `name` of `size` bytes; "" for one that is not there. */
void cuda_gpu_name(uint32_t gpu, char *name, size_t size);

#ifdef __cplusplus
}
#endif

#endif
