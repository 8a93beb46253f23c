/* When each task of a run started and ended, by the devices' own clocks. */
#ifndef CUDA_TRACE_H
#define CUDA_TRACE_H

#include <cuda_runtime.h>
#include <stddef.h>

extern "C" {
#include "ref/interpret.h"
}
#include "cuda/cuda_executor.h"

struct cuda_trace; /* see cuda_trace.cu */

/**
 * A recorded timeline (sim/timeline.h) in options.trace_path, for options.watch, or both.
 *
 * Tasks of the host are timed by its clock, those of devices by theirs: a task's first kernel
 * leaves the time at which the kernels before it had completed, which is also when the task before
 * it on that stream ended; so kernels stay in their graphs and overlap as ever. Other tasks, and
 * ends that somebody waits for, take a kernel of their own. Products that are one launch share its
 * time by their bytes. A TASK_SYNC is from the end of what it waits for, or from when the host
 * came, until the host goes on. Clocks meet at the start of each step, when all devices are idle.
 *
 * @param gpus CUDA ordinals; plan device d is on gpus[d % gpu_count]
 * @return NULL with `err` set (ERROR_IO, ERROR_MEMORY)
 */
struct cuda_trace *cuda_trace_new(const struct placement *placement,
                                  const struct cuda_options *options, const int *gpus,
                                  uint32_t gpu_count, struct error *err);

/** Writes what is not written and closes the file. @return 0, or -1 with `err` set when it could
 * not be written */
int cuda_trace_free(struct cuda_trace *trace, struct error *err);

/** A step begins; all devices are idle. */
int cuda_trace_begin(struct cuda_trace *trace, const struct program *program,
                     struct interpret_step step, struct error *err);

/** Whether the first that a task does on its stream is a kernel, which stamps its own start. */
bool cuda_starts_with_kernel(const struct program *program, const struct program_task *task);

/**
 * A task starts: on a stream of GPU `gpu`, an index; on the host where it is below 0.
 *
 * @param joins it goes into a launch that a task before it has begun
 */
int cuda_trace_start(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                     bool joins, struct error *err);

/**
 * A task ends.
 *
 * @param awaited not just the next kernel on the stream goes on then
 * @param goes_on the next task joins its last launch
 */
int cuda_trace_stop(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                    bool awaited, bool goes_on, struct error *err);

/** The host has waited for what is on the task's stream. */
void cuda_trace_waited(struct cuda_trace *trace, size_t task);

/** Which tasks from `first` to `end` run where, for a graph that runs them again: for free(), or
 * NULL with `err` set. */
void *cuda_trace_save(const struct cuda_trace *trace, size_t first, size_t end, struct error *err);
void cuda_trace_restore(struct cuda_trace *trace, size_t first, size_t end, const void *saved);

/** The step has ended on all devices. @return 0, or -1 with `err` set */
int cuda_trace_end(struct cuda_trace *trace, struct error *err);

#endif
