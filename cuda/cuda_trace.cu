#include "cuda/cuda_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"

extern "C" {
#include "ref/host_probe.h"
#include "sim/timeline.h"
}

namespace
{

struct stamp {
    int gpu; /* below 0: the host */
    cudaEvent_t begin, end;
    double begin_s, end_s; /* of the host */
};

struct pool {
    cudaEvent_t *events;
    size_t used, count;
};

} /* namespace */

struct cuda_trace {
    FILE *file;
    char path[160];
    int gpus[MACHINE_DEVICES_MAX];
    uint32_t gpu_count;
    struct pool pools[MACHINE_DEVICES_MAX];
    cudaEvent_t bases[MACHINE_DEVICES_MAX];
    struct timeline *timeline; /* header, and the step under way */
    struct stamp *stamps;
    size_t capacity;
    double base_s, first_s; /* starts of this step and of the first */
    size_t steps;
};

static int take(struct cuda_trace *trace, int gpu, cudaEvent_t *event, struct error *err)
{
    struct pool *pool = &trace->pools[gpu];

    if (pool->used == pool->count) {
        size_t count = pool->count > 0 ? 2 * pool->count : 256;
        cudaEvent_t *grown = (cudaEvent_t *)realloc(pool->events, count * sizeof *grown);

        if (grown == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory for %zu events", count);
        pool->events = grown;
        cudaSetDevice(trace->gpus[gpu]);
        for (; pool->count < count; pool->count++)
            if (cuda_check(cudaEventCreate(&grown[pool->count]), "cudaEventCreate", err) != 0)
                return -1;
    }
    *event = pool->events[pool->used++];
    return 0;
}

static int open_timeline(struct cuda_trace *trace, const struct placement *placement,
                         const struct cuda_options *options, struct error *err)
{
    trace->timeline = timeline_new(err);
    if (trace->timeline == nullptr)
        return -1;
    timeline_set_placement(trace->timeline, placement);
    trace->timeline->arguments = (const char **)options->arguments;
    trace->timeline->argument_count = options->argument_count;
    for (uint32_t d = 0; d < placement->device_count; d++) {
        struct timeline_device *device = &trace->timeline->devices[d];

        cuda_gpu_name((uint32_t)trace->gpus[d % trace->gpu_count], device->gpu, sizeof device->gpu);
        device->slowdown = options->slowdowns[d] > 1 ? options->slowdowns[d] : 1;
        device->link_gbs = options->link_gbs[d];
    }
    return 0;
}

struct cuda_trace *cuda_trace_new(const struct placement *placement,
                                  const struct cuda_options *options, const int *gpus,
                                  uint32_t gpu_count, struct error *err)
{
    struct cuda_trace *trace = (struct cuda_trace *)calloc(1, sizeof *trace);

    if (trace == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a trace");
        return nullptr;
    }
    snprintf(trace->path, sizeof trace->path, "%s", options->trace_path);
    memcpy(trace->gpus, gpus, gpu_count * sizeof *gpus);
    trace->gpu_count = gpu_count;
    trace->file = fopen(options->trace_path, "w");
    if (trace->file == nullptr)
        error_set(err, ERROR_IO, "%.120s cannot be written", options->trace_path);
    if (trace->file == nullptr || open_timeline(trace, placement, options, err) != 0) {
        cuda_trace_free(trace, nullptr);
        return nullptr;
    }
    timeline_write_header(trace->timeline, trace->file);
    return trace;
}

int cuda_trace_free(struct cuda_trace *trace, struct error *err)
{
    int status = 0;

    if (trace == nullptr)
        return 0;
    for (uint32_t g = 0; g < trace->gpu_count; g++) {
        cudaSetDevice(trace->gpus[g]);
        for (size_t i = 0; i < trace->pools[g].count; i++)
            cudaEventDestroy(trace->pools[g].events[i]);
        free(trace->pools[g].events);
    }
    if (trace->file != nullptr && fclose(trace->file) != 0)
        status = error_set(err, ERROR_IO, "%s cannot be written", trace->path);
    timeline_free(trace->timeline);
    free(trace->stamps);
    free(trace);
    return status;
}

/* The step's place in the timeline, and stamps for its tasks. */
static int begin_step(struct cuda_trace *trace, const struct program *program,
                      struct interpret_step step, struct error *err)
{
    struct program_cells cells = {step.used[0], step.used[1]};
    struct timeline_step *added;

    timeline_clear(trace->timeline);
    added = timeline_add_step(trace->timeline, program, cells, err);
    if (added == nullptr)
        return -1;
    added->number = trace->steps;
    added->step = step.lowered;
    added->shift = step.lowered.tokens == 0;
    added->depth = step.depth;
    if (program->task_count > trace->capacity) {
        struct stamp *grown =
            (struct stamp *)realloc(trace->stamps, program->task_count * sizeof *grown);

        if (grown == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory for %zu stamps", program->task_count);
        trace->stamps = grown;
        trace->capacity = program->task_count;
    }
    memset(trace->stamps, 0, program->task_count * sizeof *trace->stamps);
    return 0;
}

int cuda_trace_begin(struct cuda_trace *trace, const struct program *program,
                     struct interpret_step step, struct error *err)
{
    if (begin_step(trace, program, step, err) != 0)
        return -1;
    for (uint32_t g = 0; g < trace->gpu_count; g++) {
        trace->pools[g].used = 0;
        if (take(trace, (int)g, &trace->bases[g], err) != 0)
            return -1;
        cudaSetDevice(trace->gpus[g]);
        if (cuda_check(cudaEventRecord(trace->bases[g], nullptr), "cudaEventRecord", err) != 0 ||
            cuda_check(cudaEventSynchronize(trace->bases[g]), "cudaEventSynchronize", err) != 0)
            return -1;
    }
    trace->base_s = host_probe_now_s();
    if (trace->steps == 0)
        trace->first_s = trace->base_s;
    trace->timeline->steps[0].start_s = trace->base_s - trace->first_s;
    return 0;
}

int cuda_trace_start(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                     struct error *err)
{
    struct stamp *stamp = &trace->stamps[task];

    stamp->gpu = gpu;
    if (gpu < 0) {
        stamp->begin_s = host_probe_now_s();
        return 0;
    }
    if (take(trace, gpu, &stamp->begin, err) != 0)
        return -1;
    return cuda_check(cudaEventRecord(stamp->begin, stream), "cudaEventRecord", err);
}

int cuda_trace_stop(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                    struct error *err)
{
    struct stamp *stamp = &trace->stamps[task];

    if (gpu < 0) {
        stamp->end_s = host_probe_now_s();
        return 0;
    }
    if (take(trace, gpu, &stamp->end, err) != 0)
        return -1;
    return cuda_check(cudaEventRecord(stamp->end, stream), "cudaEventRecord", err);
}

/* A stamp in seconds from the start of the step. */
static int read_stamp(struct cuda_trace *trace, const struct stamp *stamp, double *start_s,
                      double *end_s, struct error *err)
{
    float begin_ms = 0, end_ms = 0;

    if (stamp->gpu < 0) {
        *start_s = stamp->begin_s - trace->base_s;
        *end_s = stamp->end_s - trace->base_s;
        return 0;
    }
    if (stamp->begin == nullptr || stamp->end == nullptr)
        return error_set(err, ERROR_INPUT, "it was not run");
    if (cuda_check(cudaEventElapsedTime(&begin_ms, trace->bases[stamp->gpu], stamp->begin),
                   "cudaEventElapsedTime", err) != 0 ||
        cuda_check(cudaEventElapsedTime(&end_ms, trace->bases[stamp->gpu], stamp->end),
                   "cudaEventElapsedTime", err) != 0)
        return -1;
    *start_s = begin_ms / 1e3;
    *end_s = end_ms / 1e3;
    return 0;
}

int cuda_trace_end(struct cuda_trace *trace, struct error *err)
{
    struct timeline_step *step = &trace->timeline->steps[0];

    for (size_t i = 0; i < step->task_count; i++) {
        struct timeline_task *task = &step->tasks[i];
        struct error inner = {};

        if (read_stamp(trace, &trace->stamps[i], &task->start_s, &task->end_s, &inner) != 0)
            return error_set(err, inner.code, "task %zu (%s): %s", i, program_task_name(task->kind),
                             inner.text);
    }
    timeline_write_step(trace->timeline, 0, trace->file);
    trace->steps++;
    return 0;
}
