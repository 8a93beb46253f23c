#include "cuda/cuda_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"
#include "cuda/cuda_private.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/host_probe.h"
#include "sim/timeline.h"
}

namespace
{

struct stamp {
    int gpu; /* below 0: the host */
    cudaStream_t stream;
    bool joins;            /* it shares the launch of the task before it on the stream */
    bool waits;            /* the host does, for what is on the stream */
    double begin_s, end_s; /* of the host's clock */
};

/* Of one GPU. */
struct gpu_clock {
    uint64_t *times; /* its memory: start and end of each task, in ns; 0: none */
    size_t capacity; /* tasks */
    uint64_t met_ns; /* its own time and the host's at one moment */
    double met_s;
};

/* When what comes next on a stream starts, or what came last has ended. */
struct beside {
    cudaStream_t stream;
    double time_s;
};

/* Steps are written several at once: that takes the caches from what the host does in the next. */
enum { METERS = 3, STREAMS_MAX = 4 * MACHINE_DEVICES_MAX, KEPT_STEPS = 64 };

} /* namespace */

struct cuda_trace {
    FILE *file;
    char path[160];
    int gpus[MACHINE_DEVICES_MAX];
    uint32_t gpu_count;
    struct gpu_clock clocks[MACHINE_DEVICES_MAX];
    uint64_t *times; /* the host's copy */
    const struct program *program;
    struct timeline *timeline; /* header, steps that are not written, and the one under way */
    cuda_watch *watch;
    void *watch_context;
    struct stamp *stamps;
    size_t capacity;
    double base_s, first_s; /* starts of this step and of the first */
    size_t steps;
};

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

static int open_file(struct cuda_trace *trace, const char *path, struct error *err)
{
    if (path == nullptr)
        return 0;
    snprintf(trace->path, sizeof trace->path, "%s", path);
    trace->file = fopen(path, "w");
    return trace->file != nullptr ? 0 : error_set(err, ERROR_IO, "%.120s cannot be written", path);
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
    trace->watch = options->watch;
    trace->watch_context = options->watch_context;
    memcpy(trace->gpus, gpus, gpu_count * sizeof *gpus);
    trace->gpu_count = gpu_count;
    if (open_file(trace, options->trace_path, err) != 0 ||
        open_timeline(trace, placement, options, err) != 0) {
        cuda_trace_free(trace, nullptr);
        return nullptr;
    }
    if (trace->file != nullptr)
        timeline_write_header(trace->timeline, trace->file);
    return trace;
}

static struct timeline_step *last_step(const struct cuda_trace *trace)
{
    return &trace->timeline->steps[trace->timeline->step_count - 1];
}

/* Steps that have ended. */
static void write_steps(struct cuda_trace *trace)
{
    for (size_t i = 0; i < trace->timeline->step_count && trace->file != nullptr; i++)
        if (trace->timeline->steps[i].number < trace->steps)
            timeline_write_step(trace->timeline, i, trace->file);
    timeline_clear(trace->timeline);
}

int cuda_trace_free(struct cuda_trace *trace, struct error *err)
{
    int status = 0;

    if (trace == nullptr)
        return 0;
    if (trace->timeline != nullptr)
        write_steps(trace);
    launch_take_stamp(); /* one that a task which failed has left */
    for (uint32_t g = 0; g < trace->gpu_count; g++) {
        cudaSetDevice(trace->gpus[g]);
        cudaFree(trace->clocks[g].times);
    }
    if (trace->file != nullptr && fclose(trace->file) != 0)
        status = error_set(err, ERROR_IO, "%s cannot be written", trace->path);
    timeline_free(trace->timeline);
    free(trace->stamps);
    free(trace->times);
    free(trace);
    return status;
}

/* ---- a step begins ---- */

static int make_room(struct cuda_trace *trace, size_t count, struct error *err)
{
    if (count <= trace->capacity)
        return 0;
    free(trace->stamps);
    free(trace->times);
    trace->capacity = 0;
    trace->stamps = (struct stamp *)calloc(count, sizeof *trace->stamps);
    trace->times = (uint64_t *)calloc(2 * count, sizeof *trace->times);
    if (trace->stamps == nullptr || trace->times == nullptr)
        return error_set(err, ERROR_MEMORY, "no memory for %zu stamps", count);
    for (uint32_t g = 0; g < trace->gpu_count; g++) {
        struct gpu_clock *clock = &trace->clocks[g];

        if (cuda_check(cudaSetDevice(trace->gpus[g]), "cudaSetDevice", err) != 0)
            return -1;
        cudaFree(clock->times);
        clock->times = nullptr;
        if (cuda_allocate((void **)&clock->times, 2 * count * sizeof(uint64_t), (int)g, "stamps",
                          err) != 0)
            return -1;
    }
    trace->capacity = count;
    return 0;
}

/* The GPU's clock against the host's: of some readings the one that took least time. */
static int meet_clock(struct gpu_clock *clock, struct error *err)
{
    double least_s = 1e9;

    for (int i = 0; i < METERS; i++) {
        double before_s = host_probe_now_s(), after_s;
        uint64_t now = 0;

        launch_stamp(launch_stamp_at(clock->times), nullptr);
        if (cuda_check(cudaStreamSynchronize(nullptr), "reading the GPU's clock", err) != 0)
            return -1;
        after_s = host_probe_now_s();
        if (cuda_check(cudaMemcpy(&now, clock->times, sizeof now, cudaMemcpyDeviceToHost),
                       "cudaMemcpy", err) != 0)
            return -1;
        if (after_s - before_s < least_s) {
            least_s = after_s - before_s;
            clock->met_ns = now;
            clock->met_s = (before_s + after_s) / 2;
        }
    }
    return 0;
}

/* The step's place in the timeline. */
static int add_step(struct cuda_trace *trace, const struct program *program,
                    struct interpret_step step, struct error *err)
{
    struct program_cells cells = {step.used[0], step.used[1]};
    struct timeline_step *added;

    if (trace->file == nullptr || trace->timeline->step_count == KEPT_STEPS)
        write_steps(trace);
    added = timeline_add_step(trace->timeline, program, cells, err);
    if (added == nullptr)
        return -1;
    added->number = trace->steps;
    added->step = step.lowered;
    added->shift = step.lowered.tokens == 0;
    added->depth = step.depth;
    return 0;
}

int cuda_trace_begin(struct cuda_trace *trace, const struct program *program,
                     struct interpret_step step, struct error *err)
{
    size_t count = program->task_count;

    if (make_room(trace, count, err) != 0 || add_step(trace, program, step, err) != 0)
        return -1;
    memset(trace->stamps, 0, count * sizeof *trace->stamps);
    trace->program = program;
    for (uint32_t g = 0; g < trace->gpu_count; g++) {
        struct gpu_clock *clock = &trace->clocks[g];

        if (cuda_check(cudaSetDevice(trace->gpus[g]), "cudaSetDevice", err) != 0 ||
            meet_clock(clock, err) != 0 ||
            cuda_check(cudaMemset(clock->times, 0, 2 * count * sizeof(uint64_t)), "cudaMemset",
                       err) != 0 ||
            cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0)
            return -1;
    }
    trace->base_s = host_probe_now_s();
    if (trace->steps == 0)
        trace->first_s = trace->base_s;
    last_step(trace)->start_s = trace->base_s - trace->first_s;
    return 0;
}

/* ---- tasks ---- */

bool cuda_starts_with_kernel(const struct program *program, const struct program_task *task)
{
    return program_task_class(task->kind) == TASK_CLASS_KERNEL ||
           cuda_copies_by_kernel(program, task);
}

int cuda_trace_start(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                     bool joins, struct error *err)
{
    struct stamp *stamp = &trace->stamps[task];
    struct launch_stamp start;

    stamp->gpu = gpu;
    stamp->stream = stream;
    stamp->joins = joins;
    stamp->waits = trace->program->tasks[task].kind == TASK_SYNC;
    if (gpu < 0 || stamp->waits) {
        stamp->begin_s = host_probe_now_s();
        return 0;
    }
    if (joins)
        return 0;
    start = launch_stamp_at(trace->clocks[gpu].times + 2 * task);
    if (cuda_check(cudaSetDevice(trace->gpus[gpu]), "cudaSetDevice", err) != 0)
        return -1;
    if (cuda_starts_with_kernel(trace->program, &trace->program->tasks[task])) {
        launch_set_stamp(start);
        return 0;
    }
    launch_stamp(start, stream);
    return cuda_launched("a stamp", err);
}

int cuda_trace_stop(struct cuda_trace *trace, size_t task, int gpu, cudaStream_t stream,
                    bool awaited, bool goes_on, struct error *err)
{
    struct stamp *stamp = &trace->stamps[task];

    if (gpu < 0) {
        stamp->end_s = host_probe_now_s();
        return 0;
    }
    if (goes_on || stamp->waits)
        return 0;
    launch_take_stamp(); /* a task without kernels has left it */
    if (!awaited && cuda_starts_with_kernel(trace->program, &trace->program->tasks[task]))
        return 0;
    if (cuda_check(cudaSetDevice(trace->gpus[gpu]), "cudaSetDevice", err) != 0)
        return -1;
    launch_stamp(launch_stamp_at(trace->clocks[gpu].times + 2 * task + 1), stream);
    return cuda_launched("a stamp", err);
}

void cuda_trace_waited(struct cuda_trace *trace, size_t task)
{
    if (trace->stamps[task].waits)
        trace->stamps[task].end_s = host_probe_now_s();
}

void *cuda_trace_save(const struct cuda_trace *trace, size_t first, size_t end, struct error *err)
{
    size_t bytes = (end - first) * sizeof(struct stamp);
    void *saved = malloc(bytes);

    if (saved == nullptr)
        error_set(err, ERROR_MEMORY, "no memory for %zu stamps", end - first);
    else
        memcpy(saved, trace->stamps + first, bytes);
    return saved;
}

void cuda_trace_restore(struct cuda_trace *trace, size_t first, size_t end, const void *saved)
{
    memcpy(trace->stamps + first, saved, (end - first) * sizeof(struct stamp));
}

/* ---- a step has ended ---- */

/* Host's seconds of a GPU's time; 0 where it left none. */
static double host_time_s(const struct gpu_clock *clock, uint64_t ns)
{
    return ns != 0 ? clock->met_s + (double)(int64_t)(ns - clock->met_ns) * 1e-9 : 0;
}

static int read_times(struct cuda_trace *trace, uint32_t gpu, struct error *err)
{
    const struct gpu_clock *clock = &trace->clocks[gpu];
    size_t count = trace->program->task_count;

    if (cuda_check(cudaSetDevice(trace->gpus[gpu]), "cudaSetDevice", err) != 0 ||
        cuda_check(cudaMemcpy(trace->times, clock->times, 2 * count * sizeof(uint64_t),
                              cudaMemcpyDeviceToHost),
                   "cudaMemcpy", err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct stamp *stamp = &trace->stamps[i];

        if (stamp->stream == nullptr || stamp->gpu != (int)gpu || stamp->waits)
            continue;
        stamp->begin_s = host_time_s(clock, trace->times[2 * i]);
        stamp->end_s = host_time_s(clock, trace->times[2 * i + 1]);
    }
    return 0;
}

static struct beside *find_beside(struct beside *list, uint32_t *count, cudaStream_t stream)
{
    for (uint32_t i = 0; i < *count; i++)
        if (list[i].stream == stream)
            return &list[i];
    if (*count == STREAMS_MAX)
        return &list[0];
    list[*count].stream = stream;
    list[*count].time_s = 0;
    return &list[(*count)++];
}

/* Tasks whose end nobody stamped end where the next one on their stream starts; those without a
 * start have no time of their own. */
static void close_tasks(struct cuda_trace *trace)
{
    struct beside later[STREAMS_MAX];
    uint32_t count = 0;

    for (size_t i = trace->program->task_count; i-- > 0;) {
        struct stamp *stamp = &trace->stamps[i];
        struct beside *next;

        if (stamp->stream == nullptr || stamp->waits)
            continue;
        next = find_beside(later, &count, stamp->stream);
        if (stamp->end_s == 0)
            stamp->end_s = next->time_s != 0 ? next->time_s : stamp->begin_s;
        if (stamp->begin_s == 0 && !stamp->joins)
            stamp->begin_s = stamp->end_s;
        next->time_s = stamp->joins ? stamp->end_s : stamp->begin_s;
    }
}

/* Where the host waits for a stream that begins when what is on it has ended. */
static void begin_waits(struct cuda_trace *trace)
{
    struct beside before[STREAMS_MAX];
    uint32_t count = 0;

    for (size_t i = 0; i < trace->program->task_count; i++) {
        struct stamp *stamp = &trace->stamps[i];
        struct beside *last;

        if (stamp->stream == nullptr)
            continue;
        last = find_beside(before, &count, stamp->stream);
        if (stamp->waits && last->time_s > stamp->begin_s)
            stamp->begin_s = last->time_s < stamp->end_s ? last->time_s : stamp->end_s;
        last->time_s = stamp->end_s;
    }
}

static void share_launches(const struct cuda_trace *trace, struct timeline_step *step)
{
    size_t end;

    for (size_t i = 0; i < step->task_count; i = end) {
        bool begins = trace->stamps[i].stream != nullptr && !trace->stamps[i].joins;

        for (end = i + 1; begins && end < step->task_count && trace->stamps[end].joins;)
            end++;
        timeline_share_launch(&step->tasks[i], end - i);
    }
}

int cuda_trace_end(struct cuda_trace *trace, struct error *err)
{
    struct timeline_step *step = last_step(trace);

    for (uint32_t g = 0; g < trace->gpu_count; g++)
        if (read_times(trace, g, err) != 0)
            return -1;
    close_tasks(trace);
    begin_waits(trace);
    for (size_t i = 0; i < step->task_count; i++) {
        step->tasks[i].start_s = trace->stamps[i].begin_s - trace->base_s;
        step->tasks[i].end_s = trace->stamps[i].end_s - trace->base_s;
    }
    share_launches(trace, step);
    if (trace->watch != nullptr)
        trace->watch(trace->watch_context, trace->program, step);
    trace->steps++;
    return 0;
}
