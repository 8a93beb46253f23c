#include "cuda/cuda_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"

extern "C" {
#include "ref/host_probe.h"
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
    const struct program *program;
    struct stamp *stamps;
    size_t capacity;
    double base_s;
    uint32_t step;
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

struct cuda_trace *cuda_trace_new(const char *path, const int *gpus, uint32_t gpu_count,
                                  struct error *err)
{
    struct cuda_trace *trace = (struct cuda_trace *)calloc(1, sizeof *trace);

    if (trace == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a trace");
        return nullptr;
    }
    snprintf(trace->path, sizeof trace->path, "%s", path);
    memcpy(trace->gpus, gpus, gpu_count * sizeof *gpus);
    trace->gpu_count = gpu_count;
    trace->file = fopen(path, "w");
    if (trace->file == nullptr) {
        error_set(err, ERROR_IO, "%.120s cannot be written", path);
        cuda_trace_free(trace, nullptr);
        return nullptr;
    }
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
    free(trace->stamps);
    free(trace);
    return status;
}

int cuda_trace_begin(struct cuda_trace *trace, const struct program *program, struct error *err)
{
    if (program->task_count > trace->capacity) {
        struct stamp *grown =
            (struct stamp *)realloc(trace->stamps, program->task_count * sizeof *grown);

        if (grown == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory for %zu stamps", program->task_count);
        trace->stamps = grown;
        trace->capacity = program->task_count;
    }
    memset(trace->stamps, 0, program->task_count * sizeof *trace->stamps);
    trace->program = program;
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

int cuda_trace_end(struct cuda_trace *trace, struct error *err)
{
    const struct program *program = trace->program;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct stamp *stamp = &trace->stamps[i];
        const struct program_task *task = &program->tasks[i];
        double begin_us = (stamp->begin_s - trace->base_s) * 1e6;
        double end_us = (stamp->end_s - trace->base_s) * 1e6;
        char queue[48];

        if (stamp->gpu >= 0) {
            float begin_ms = 0, end_ms = 0;

            if (stamp->begin == nullptr || stamp->end == nullptr)
                continue;
            if (cuda_check(cudaEventElapsedTime(&begin_ms, trace->bases[stamp->gpu], stamp->begin),
                           "cudaEventElapsedTime", err) != 0 ||
                cuda_check(cudaEventElapsedTime(&end_ms, trace->bases[stamp->gpu], stamp->end),
                           "cudaEventElapsedTime", err) != 0)
                return -1;
            begin_us = begin_ms * 1e3;
            end_us = end_ms * 1e3;
        }
        program_queue_name(task, program->placement, queue, sizeof queue);
        fprintf(trace->file,
                "{\"step\": %u, \"task\": %zu, \"kind\": \"%s\", \"queue\": \"%s\", \"layer\": %d",
                trace->step, i, program_task_name(task->kind), queue, task->layer);
        if (task->tensor >= 0)
            fprintf(trace->file, ", \"tensor\": \"%s\"",
                    program->placement->model->tensors[task->tensor].name);
        fprintf(trace->file, ", \"start_us\": %.2f, \"end_us\": %.2f}\n", begin_us, end_us);
    }
    trace->step++;
    return 0;
}
