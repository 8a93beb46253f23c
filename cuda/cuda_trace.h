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
 * A recorded timeline (sim/timeline.h) in options.trace_path. Tasks of devices are stamped by
 * events on their streams; those of the host by its clock. Clocks meet at the start of each step,
 * when all devices are idle.
 *
 * @param gpus CUDA ordinals; plan device d is on gpus[d % gpu_count]
 * @return NULL with `err` set (ERROR_IO, ERROR_MEMORY)
 */
struct cuda_trace *cuda_trace_new(const struct placement *placement,
                                  const struct cuda_options *options, const int *gpus,
                                  uint32_t gpu_count, struct error *err);

/** Closes the file. @return 0, or -1 with `err` set when it could not be written */
int cuda_trace_free(struct cuda_trace *trace, struct error *err);

/** A step begins; all devices are idle. */
int cuda_trace_begin(struct cuda_trace *trace, const struct program *program,
                     struct interpret_step step, struct error *err);

/** A task starts or ends: on a stream of GPU `gpu`, an index; on the host where it is below 0. */
int cuda_trace_start(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                     struct error *err);
int cuda_trace_stop(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                    struct error *err);

/** The step has ended on all devices: its lines are written. @return 0, or -1 with `err` set; also
 * where a task was not run */
int cuda_trace_end(struct cuda_trace *trace, struct error *err);

#endif
