/* Tasks on streams. Each queue of a device is a stream, a lane here; tasks of one lane follow each
 * other, tasks of different lanes meet by events where the program has a dependency, and the
 * issuing thread waits behind tasks that block. What the host computes is run by an interpreter,
 * in this thread, once what it depends on has ended. */
#include "cuda/cuda_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPUs ---- */

uint32_t cuda_gpu_count(struct error *err)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);

    if (status == cudaSuccess && count > 0)
        return (uint32_t)count;
    cudaGetLastError();
    error_set(err, ERROR_UNSUPPORTED, "no CUDA GPU is visible here: %s",
              status != cudaSuccess ? cudaGetErrorString(status) : "their number is 0");
    return 0;
}

void cuda_gpu_name(uint32_t gpu, char *name, size_t size)
{
    cudaDeviceProp properties;
    bool known = cudaGetDeviceProperties(&properties, (int)gpu) == cudaSuccess;

    snprintf(name, size, "%s", known ? properties.name : "");
    cudaGetLastError();
}

bool cuda_reduction_find(const char *name, enum cuda_reduction *way)
{
    static const char *const names[] = {"auto", "nccl", "nccl-float", "copies"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *way = (enum cuda_reduction)i;
            return true;
        }
    return false;
}

static int choose_gpus(struct cuda_executor *executor, const struct cuda_options *options,
                       struct error *err)
{
    uint32_t visible = cuda_gpu_count(err), devices = executor->placement->device_count;

    if (visible == 0)
        return -1;
    executor->gpu_count = options->gpu_count > 0 ? options->gpu_count : visible;
    if (executor->gpu_count > devices)
        executor->gpu_count = devices;
    for (uint32_t g = 0; g < executor->gpu_count; g++) {
        executor->gpus[g] = options->gpu_count > 0 ? options->gpus[g] : (int)g;
        if (executor->gpus[g] < 0 || (uint32_t)executor->gpus[g] >= visible)
            return error_set(err, ERROR_USAGE, "GPU %d; there are %u", executor->gpus[g], visible);
    }
    for (uint32_t d = 0; d < devices; d++)
        executor->device_gpus[d] = executor->gpus[d % executor->gpu_count];
    return 0;
}

static bool open_peer(int from, int to)
{
    int can = 0;
    cudaError_t status;

    if (cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || can == 0 ||
        cudaSetDevice(from) != cudaSuccess)
        return false;
    status = cudaDeviceEnablePeerAccess(to, 0);
    return status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled;
}

/* Direct copies where GPUs can; the driver goes through the host where they cannot. */
static void open_peers(struct cuda_executor *executor)
{
    executor->reaches_all = true;
    for (uint32_t g = 0; g < executor->gpu_count; g++)
        for (uint32_t to = 0; to < executor->gpu_count; to++) {
            if (to != g && !open_peer(executor->gpus[g], executor->gpus[to]))
                executor->reaches_all = false;
            cudaGetLastError(); /* one that is not sticky is told once */
        }
}

/* ---- lanes ---- */

static struct cuda_lane *lane_beside(struct cuda_executor *executor, uint32_t g)
{
    return &executor->lanes[3 * executor->placement->device_count + g];
}

static int open_lane(struct cuda_executor *executor, int gpu, struct error *err)
{
    struct cuda_lane *lane = &executor->lanes[executor->lane_count];

    lane->gpu = gpu;
    if (cuda_check(cudaSetDevice(executor->gpus[gpu]), "cudaSetDevice", err) != 0 ||
        cuda_check(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking),
                   "cudaStreamCreate", err) != 0)
        return -1;
    executor->lane_count++;
    if (cuda_allocate((void **)&lane->stamp, sizeof *lane->stamp, gpu, "a stamp", err) != 0)
        return -1;
    return cuda_check(cudaEventCreateWithFlags(&lane->tail, cudaEventDisableTiming),
                      "cudaEventCreate", err);
}

static int open_lanes(struct cuda_executor *executor, struct error *err)
{
    for (uint32_t d = 0; d < executor->placement->device_count; d++)
        for (int queue = 0; queue < 3; queue++)
            if (open_lane(executor, (int)(d % executor->gpu_count), err) != 0)
                return -1;
    for (uint32_t g = 0; g < executor->gpu_count; g++)
        if (open_lane(executor, (int)g, err) != 0)
            return -1;
    return 0;
}

/* ---- events ---- */

int cuda_take_event(struct cuda_executor *executor, int gpu, cudaEvent_t *event, struct error *err)
{
    struct cuda_events *events = &executor->events[gpu];

    if (events->used == events->count) {
        size_t count = events->count > 0 ? 2 * events->count : 64;
        cudaEvent_t *grown = (cudaEvent_t *)realloc(events->events, count * sizeof *grown);

        if (grown == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory for %zu events", count);
        events->events = grown;
        if (cuda_check(cudaSetDevice(executor->gpus[gpu]), "cudaSetDevice", err) != 0)
            return -1;
        for (; events->count < count; events->count++)
            if (cuda_check(cudaEventCreateWithFlags(&grown[events->count], cudaEventDisableTiming),
                           "cudaEventCreate", err) != 0)
                return -1;
    }
    *event = events->events[events->used++];
    return 0;
}

/* `lane` goes on when `other` has come as far as it is now. */
int cuda_wait_for_lane(const struct cuda_lane *lane, const struct cuda_lane *other,
                       struct error *err)
{
    if (lane == other)
        return 0;
    if (cuda_check(cudaEventRecord(other->tail, other->stream), "cudaEventRecord", err) != 0)
        return -1;
    return cuda_check(cudaStreamWaitEvent(lane->stream, other->tail, 0), "cudaStreamWaitEvent",
                      err);
}

/* ---- a task ---- */

/* The lanes on which a task runs: one, or of a collective one on each GPU; and those that it
 * holds beside them. */
struct holding {
    struct cuda_lane *leads[MACHINE_DEVICES_MAX];
    uint32_t lead_count;
    struct cuda_lane *others[3 * MACHINE_DEVICES_MAX];
    uint32_t other_count;
    bool beside;
};

static bool has_lead_on(const struct holding *holding, int gpu)
{
    for (uint32_t i = 0; i < holding->lead_count; i++)
        if (holding->leads[i]->gpu == gpu)
            return true;
    return false;
}

static struct holding hold(struct cuda_executor *executor, const struct program_task *task)
{
    bool collective = program_task_class(task->kind) == TASK_CLASS_COLLECTIVE;
    struct holding holding = {};

    holding.beside = (task->queues >> PROGRAM_QUEUE_BESIDE & 1) != 0;
    for (uint32_t q = 0; q < 3 * executor->placement->device_count; q++) {
        struct cuda_lane *lane = &executor->lanes[q];

        if ((task->queues >> (PROGRAM_QUEUE_DEVICES + q) & 1) == 0)
            continue;
        if (holding.lead_count == 0 || (collective && !has_lead_on(&holding, lane->gpu)))
            holding.leads[holding.lead_count++] = lane;
        else
            holding.others[holding.other_count++] = lane;
    }
    for (uint32_t g = 0; collective && g < executor->gpu_count; g++)
        if (!has_lead_on(&holding, (int)g))
            holding.leads[holding.lead_count++] = lane_beside(executor, g);
    return holding;
}

static int await_dependencies(struct cuda_executor *executor, const struct program_task *task,
                              const struct holding *holding, struct error *err)
{
    const struct program *program = executor->program;

    for (uint32_t i = 0; i < task->dependency_count; i++) {
        uint32_t on = program->dependencies[task->dependency_first + i];
        const struct cuda_done *done = &executor->done[on];

        if (on < executor->captured_from)
            continue; /* the whole graph waits for it */

        for (uint32_t e = 0; e < done->count; e++) {
            if (holding->lead_count == 0 &&
                cuda_check(cudaEventSynchronize(done->events[e]), "cudaEventSynchronize", err) != 0)
                return -1;
            for (uint32_t l = 0; l < holding->lead_count; l++)
                if (cuda_check(cudaStreamWaitEvent(holding->leads[l]->stream, done->events[e], 0),
                               "cudaStreamWaitEvent", err) != 0)
                    return -1;
        }
    }
    return 0;
}

static int join(const struct holding *holding, struct error *err)
{
    for (uint32_t l = 0; l < holding->lead_count; l++)
        for (uint32_t o = 0; o < holding->other_count; o++)
            if (cuda_wait_for_lane(holding->leads[l], holding->others[o], err) != 0)
                return -1;
    return 0;
}

static int leave(const struct holding *holding, struct error *err)
{
    for (uint32_t l = 0; l < holding->lead_count; l++)
        for (uint32_t o = 0; o < holding->other_count; o++)
            if (cuda_wait_for_lane(holding->others[o], holding->leads[l], err) != 0)
                return -1;
    return 0;
}

static int reduce(struct cuda_executor *executor, const struct program_op *op,
                  const struct holding *holding, struct error *err)
{
    cudaStream_t streams[MACHINE_DEVICES_MAX];

    for (uint32_t l = 0; l < holding->lead_count; l++)
        streams[holding->leads[l]->gpu] = holding->leads[l]->stream;
    return cuda_reduce(executor, op, streams, holding->beside, err);
}

static bool is_hosts(const struct program_op *op)
{
    return op->kind == OP_COPY ? cuda_copy_is_hosts(op) : op->out.space == PROGRAM_AT_HOST;
}

static int run_op(struct cuda_executor *executor, const struct program_op *op,
                  const struct holding *holding, struct error *err)
{
    int status;

    if (op->kind == OP_REDUCE)
        status = reduce(executor, op, holding, err);
    else if (is_hosts(op))
        status = interpreter_run_op(executor->host, op, err);
    else if (holding->lead_count == 0)
        return error_set(err, ERROR_UNSUPPORTED, "the host has no queue of a device");
    else if (cuda_check(cudaSetDevice(executor->gpus[holding->leads[0]->gpu]), "cudaSetDevice",
                        err) != 0)
        return -1;
    else
        status = cuda_run_op(executor, op, holding->leads[0]->stream, err);
    if (status != 0 || executor->lockstep == nullptr)
        return status;
    if (op->out.space >= 0 && cuda_flush_products(executor, op->out.space, err) != 0)
        return -1;
    return cuda_lockstep_op(executor, op, err);
}

/* Which change of the plan takes memory off a device. */
static const char *what_fits(enum error_code code, const struct program_op *op)
{
    return code == ERROR_MEMORY && op->out.space >= 0
               ? "; a smaller -ts for it, -nkvo 1, -ncmoe, or a smaller -c or -ub takes less"
               : "";
}

/* An operation, or several as one kernel. */
static int run_some(struct cuda_executor *executor, const struct program_op *op, uint32_t left,
                    const struct holding *holding, uint32_t *taken, struct error *err)
{
    *taken = 0;
    if (executor->lockstep == nullptr && holding->lead_count > 0 && op->kind != OP_REDUCE &&
        !is_hosts(op)) {
        if (cuda_check(cudaSetDevice(executor->gpus[holding->leads[0]->gpu]), "cudaSetDevice",
                       err) != 0 ||
            cuda_fuse(executor, op, left, holding->leads[0]->stream, taken, err) != 0)
            return -1;
    }
    if (*taken > 0)
        return 0;
    *taken = 1;
    return run_op(executor, op, holding, err);
}

/* Whether products of the task may wait for the next one's. */
static bool goes_on(const struct cuda_executor *executor, size_t index)
{
    const struct program *program = executor->program;
    const struct program_task *task = &program->tasks[index], *next = task + 1;

    return index + 1 < program->task_count && executor->lockstep == nullptr &&
           !executor->awaited[index] && !task->blocking && task->op_count > 0 &&
           next->op_count > 0 && next->queues == task->queues && next->dependency_count == 0 &&
           executor->slowdowns[task->device] <= 1 &&
           cuda_products_go_on(executor, &program->ops[task->op_first + task->op_count - 1],
                               &program->ops[next->op_first]);
}

/* Lockstep looks at each operation by itself. */
static bool copies_by_kernel(const struct cuda_executor *executor, const struct program_task *task)
{
    return executor->lockstep == nullptr && cuda_copies_by_kernel(executor->program, task);
}

static int run_ops(struct cuda_executor *executor, size_t index, const struct program_task *task,
                   const struct holding *holding, struct error *err)
{
    const struct program_op *ops = &executor->program->ops[task->op_first], *op = ops;
    uint32_t taken = 0;
    struct error inner = {};
    int status = 0;

    if (copies_by_kernel(executor, task)) {
        status = cuda_check(cudaSetDevice(executor->gpus[holding->leads[0]->gpu]), "cudaSetDevice",
                            &inner);
        if (status == 0)
            status = cuda_copy_task(executor, task, holding->leads[0]->stream, &inner);
        taken = task->op_count;
    }
    for (uint32_t i = taken; i < task->op_count && status == 0; i += taken) {
        op = &ops[i];
        status = run_some(executor, op, task->op_count - i, holding, &taken, &inner);
    }
    if (status == 0 && task->device >= 0 && !goes_on(executor, index))
        status = cuda_flush_products(executor, task->device, &inner);
    if (status == 0)
        return 0;
    return error_set(err, inner.code, "task %zu (%s), block %d, operation %s, device %d: %s%s",
                     index, program_task_name(task->kind), op->layer, program_op_name(op->kind),
                     op->out.space, inner.text, what_fits(inner.code, op));
}

/* What dependents of the task wait for. */
static int mark_done(struct cuda_executor *executor, size_t index, const struct holding *holding,
                     struct error *err)
{
    struct cuda_done *done = &executor->done[index];

    done->count = 0;
    for (uint32_t l = 0; l < holding->lead_count && executor->awaited[index]; l++) {
        const struct cuda_lane *lane = holding->leads[l];

        if (cuda_take_event(executor, lane->gpu, &done->events[l], err) != 0 ||
            cuda_check(cudaEventRecord(done->events[l], lane->stream), "cudaEventRecord", err) != 0)
            return -1;
        done->count++;
    }
    return 0;
}

/* ---- stamps and pacing ---- */

/* The task's products go into the launch that waits for more. */
static bool joins(const struct cuda_executor *executor, const struct program_task *task)
{
    return task->device >= 0 && executor->pending[task->device].count > 0;
}

static int start_stamps(struct cuda_executor *executor, size_t index, const struct holding *holding,
                        struct error *err)
{
    const struct cuda_lane *lane = holding->lead_count > 0 ? holding->leads[0] : nullptr;

    if (executor->trace == nullptr)
        return 0;
    return cuda_trace_start(executor->trace, index, lane != nullptr ? lane->gpu : -1,
                            lane != nullptr ? lane->stream : nullptr,
                            joins(executor, &executor->program->tasks[index]), err);
}

/* Whether more than the next kernel on the task's stream goes on when it ends, or the next one is
 * of another launch, which may come later. */
static bool end_is_awaited(const struct cuda_executor *executor, size_t index)
{
    const struct program *program = executor->program;
    uint64_t queues = program->tasks[index].queues;

    if (executor->awaited[index] || program->tasks[index].blocking)
        return true;
    if (index + 1 < program->task_count && cuda_graphs_cut_at(executor->graphs, index + 1))
        return true;
    for (size_t i = index + 1; i < program->task_count; i++)
        if ((program->tasks[i].queues & queues) != 0)
            return !cuda_starts_with_kernel(program, &program->tasks[i]);
    return true;
}

static int stop_stamps(struct cuda_executor *executor, size_t index, const struct holding *holding,
                       struct error *err)
{
    const struct cuda_lane *lane = holding->lead_count > 0 ? holding->leads[0] : nullptr;

    if (executor->trace == nullptr)
        return 0;
    return cuda_trace_stop(executor->trace, index, lane != nullptr ? lane->gpu : -1,
                           lane != nullptr ? lane->stream : nullptr,
                           end_is_awaited(executor, index),
                           joins(executor, &executor->program->tasks[index]), err);
}

/* How much longer a task shall take: a factor for kernels, a least time for copies. */
static bool is_paced(const struct cuda_executor *executor, const struct program_task *task,
                     double *slowdown, double *least_s)
{
    enum task_class kind = program_task_class(task->kind);
    struct program_cells cells = {executor->step.used[0], executor->step.used[1]};

    *slowdown = 1;
    *least_s = 0;
    if (task->device < 0 || task->op_count == 0)
        return false;
    if (kind == TASK_CLASS_KERNEL && executor->slowdowns[task->device] > 1)
        *slowdown = executor->slowdowns[task->device];
    else if (kind == TASK_CLASS_COPY && executor->link_gbs[task->device] > 0)
        *least_s = (task->bytes + program_task_cells(task, cells) * task->bytes_per_cell) /
                   (executor->link_gbs[task->device] * 1e9);
    return *slowdown > 1 || *least_s > 0;
}

static int run_paced(struct cuda_executor *executor, size_t index, const struct program_task *task,
                     const struct holding *holding, struct error *err)
{
    double slowdown, least_s;

    if (!is_paced(executor, task, &slowdown, &least_s) || holding->lead_count == 0)
        return run_ops(executor, index, task, holding, err);
    if (cuda_check(cudaSetDevice(executor->gpus[holding->leads[0]->gpu]), "cudaSetDevice", err) !=
            0 ||
        cuda_check(cuda_pace_start(holding->leads[0]->stamp, holding->leads[0]->stream), "pacing",
                   err) != 0 ||
        run_ops(executor, index, task, holding, err) != 0)
        return -1;
    return cuda_check(
        cuda_pace_stop(holding->leads[0]->stamp, slowdown, least_s, holding->leads[0]->stream),
        "pacing", err);
}

int cuda_run_task(struct cuda_executor *executor, size_t index, struct error *err)
{
    const struct program_task *task = &executor->program->tasks[index];
    struct holding holding = hold(executor, task);
    struct error inner = {};

    if (await_dependencies(executor, task, &holding, &inner) != 0 || join(&holding, &inner) != 0 ||
        start_stamps(executor, index, &holding, &inner) != 0)
        return error_set(err, inner.code, "task %zu (%s): %s", index, program_task_name(task->kind),
                         inner.text);
    if (run_paced(executor, index, task, &holding, err) != 0)
        return -1;
    if (stop_stamps(executor, index, &holding, &inner) != 0 || leave(&holding, &inner) != 0 ||
        mark_done(executor, index, &holding, &inner) != 0)
        return error_set(err, inner.code, "task %zu (%s): %s", index, program_task_name(task->kind),
                         inner.text);
    for (uint32_t l = 0; task->blocking && l < holding.lead_count; l++)
        if (cuda_check(cudaStreamSynchronize(holding.leads[l]->stream), "cudaStreamSynchronize",
                       &inner) != 0)
            return error_set(err, inner.code, "task %zu (%s), device %d: %s", index,
                             program_task_name(task->kind), task->device, inner.text);
    if (executor->trace != nullptr)
        cuda_trace_waited(executor->trace, index);
    return 0;
}

/* ---- a step ---- */

/* A state that lies on the host comes to the device anew each step. */
static void forget_visitors(struct cuda_executor *executor)
{
    const struct placement *placement = executor->placement;

    for (uint32_t layer = 0; layer < executor->model->n_layer; layer++) {
        if (!placement_has_state_on_host(placement, layer))
            continue;
        for (uint32_t d = 0; d < placement->device_count; d++) {
            struct program_operand state = {};

            state.value = OP_VALUE_STATE;
            state.space = (int16_t)d;
            cuda_memory_forget(executor->memory, state, (int)layer);
            state.value = OP_VALUE_CONV;
            cuda_memory_forget(executor->memory, state, (int)layer);
        }
    }
}

static int make_task_room(struct cuda_executor *executor, size_t count, struct error *err)
{
    if (count > executor->task_capacity) {
        free(executor->done);
        free(executor->awaited);
        executor->task_capacity = 0;
        executor->done = (struct cuda_done *)calloc(count, sizeof *executor->done);
        executor->awaited = (bool *)calloc(count, sizeof *executor->awaited);
        if (executor->done == nullptr || executor->awaited == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", count);
        executor->task_capacity = count;
    }
    if (count > 0)
        memset(executor->awaited, 0, count * sizeof *executor->awaited);
    return 0;
}

static int begin(struct cuda_executor *executor, const struct program *program,
                 struct interpret_step step, struct error *err)
{
    executor->program = program;
    executor->step = step;
    if (make_task_room(executor, program->task_count, err) != 0 ||
        interpreter_begin(executor->host, program, step, err) != 0)
        return -1;
    for (size_t i = 0; i < program->dependency_count; i++)
        executor->awaited[program->dependencies[i]] = true;
    for (uint32_t g = 0; g < executor->gpu_count; g++)
        executor->events[g].used = 0;
    for (uint32_t d = 0; d < executor->placement->device_count; d++)
        executor->pending[d].count = 0;
    forget_visitors(executor);
    cuda_graphs_begin(executor->graphs);
    if (executor->trace != nullptr && cuda_trace_begin(executor->trace, program, step, err) != 0)
        return -1;
    return executor->lockstep != nullptr ? cuda_lockstep_begin(executor, err) : 0;
}

static int end(struct cuda_executor *executor, struct error *err)
{
    int status = 0;

    for (uint32_t l = 0; l < executor->lane_count; l++)
        if (cuda_check(cudaStreamSynchronize(executor->lanes[l].stream), "the end of a step",
                       err) != 0)
            status = -1;
    cuda_weights_unstage(executor->weights);
    return status;
}

static int run(void *self, const struct program *program, struct interpret_step step,
               struct error *err)
{
    struct cuda_executor *executor = (struct cuda_executor *)self;
    int status = begin(executor, program, step, err);

    for (size_t i = 0; i < program->task_count && status == 0;) {
        size_t run_end = cuda_graphs_run_end(executor, i);

        status = run_end > i ? cuda_graphs_run(executor, i, run_end, err)
                             : cuda_run_task(executor, i, err);
        i = run_end > i ? run_end : i + 1;
    }
    if (end(executor, err) != 0 || status != 0)
        return -1;
    return executor->trace != nullptr ? cuda_trace_end(executor->trace, err) : 0;
}

/* ---- opened and closed ---- */

static struct memory *memory(void *self)
{
    return interpreter_memory(((struct cuda_executor *)self)->host);
}

static void forget_step(void *self)
{
    struct cuda_executor *executor = (struct cuda_executor *)self;

    memory_forget_step(interpreter_memory(executor->host));
    cuda_memory_forget_step(executor->memory);
    cuda_lockstep_forget_step(executor->lockstep);
}

static void close_lanes(struct cuda_executor *executor)
{
    for (uint32_t l = 0; l < executor->lane_count; l++) {
        cudaSetDevice(executor->gpus[executor->lanes[l].gpu]);
        cudaStreamDestroy(executor->lanes[l].stream);
        cudaFree(executor->lanes[l].stamp);
        if (executor->lanes[l].tail != nullptr)
            cudaEventDestroy(executor->lanes[l].tail);
    }
    for (uint32_t g = 0; g < executor->gpu_count; g++) {
        cudaSetDevice(executor->gpus[g]);
        for (size_t e = 0; e < executor->events[g].count; e++)
            cudaEventDestroy(executor->events[g].events[e]);
        free(executor->events[g].events);
    }
}

static void close_executor(void *self)
{
    struct cuda_executor *executor = (struct cuda_executor *)self;

    for (uint32_t g = 0; g < executor->gpu_count; g++) {
        cudaSetDevice(executor->gpus[g]);
        cudaDeviceSynchronize();
    }
    cuda_collective_free(executor->collective);
    close_lanes(executor);
    cuda_memory_free(executor->memory);
    cuda_weights_free(executor->weights);
    for (uint32_t d = 0; d < executor->placement->device_count; d++) {
        cudaFree(executor->scratch[d].bytes);
        cudaFree(executor->activations[d].bytes);
        cudaFree(executor->workspaces[d].bytes);
    }
    for (uint32_t i = 0; i < executor->frequency_count; i++)
        cudaFree(executor->frequencies[i].values);
    for (uint32_t i = 0; i < executor->pinned_count; i++)
        cudaHostUnregister(executor->pinned[i]);
    cuda_graphs_free(executor->graphs);
    cuda_lockstep_free(executor->lockstep);
    cuda_trace_free(executor->trace, nullptr);
    interpreter_free(executor->host);
    free(executor->done);
    free(executor->awaited);
    free(executor);
    cudaGetLastError();
}

/* LOPSIDE_CUDA_LOCKSTEP: 1, or all to go on behind a difference. */
static bool lockstep_is(const char *word)
{
    const char *given = getenv("LOPSIDE_CUDA_LOCKSTEP");

    return given != nullptr && strcmp(given, word) == 0;
}

/* The host's values are pinned, so that they come and go at the link's speed. */
static void *allocate_pinned(size_t bytes)
{
    void *pinned = nullptr;

    if (cudaHostAlloc(&pinned, bytes, cudaHostAllocPortable) == cudaSuccess)
        return pinned;
    cudaGetLastError();
    return nullptr;
}

static void release_pinned(void *bytes)
{
    cudaFreeHost(bytes);
}

static int open_parts(struct cuda_executor *executor, const struct executor_setting *setting,
                      const struct cuda_options *options, struct error *err)
{
    const struct placement *placement = setting->placement;
    bool go_on = lockstep_is("all"), lockstep = options->lockstep || go_on || lockstep_is("1");

    executor->host = interpreter_new(placement, setting->weights, setting->numbers,
                                     setting->kernels, setting->room, err);
    if (executor->host == nullptr || choose_gpus(executor, options, err) != 0)
        return -1;
    open_peers(executor);
    if (!lockstep) {
        struct memory_room pinned = {allocate_pinned, release_pinned};

        memory_use_room(interpreter_memory(executor->host), pinned);
    }
    if (open_lanes(executor, err) != 0)
        return -1;
    executor->memory = cuda_memory_new(placement->device_count, placement->layer_count,
                                       executor->device_gpus, lockstep, err);
    executor->weights =
        cuda_weights_new(placement, setting->weights, executor->device_gpus,
                         options->plain || getenv("LOPSIDE_CUDA_PLAIN") != nullptr, err);
    if (executor->memory == nullptr || executor->weights == nullptr)
        return -1;
    executor->collective = cuda_collective_new(executor, options->reduction, err);
    if (executor->collective == nullptr)
        return -1;
    memcpy(executor->slowdowns, options->slowdowns, sizeof executor->slowdowns);
    memcpy(executor->link_gbs, options->link_gbs, sizeof executor->link_gbs);
    if (options->trace_path != nullptr || options->watch != nullptr) {
        executor->trace =
            cuda_trace_new(placement, options, executor->gpus, executor->gpu_count, err);
        if (executor->trace == nullptr)
            return -1;
    }
    if (!options->no_graphs && !lockstep) {
        executor->graphs = cuda_graphs_new(err);
        if (executor->graphs == nullptr)
            return -1;
    }
    if (lockstep) {
        executor->lockstep = cuda_lockstep_new(setting, go_on, err);
        if (executor->lockstep == nullptr)
            return -1;
    }
    return 0;
}

int cuda_executor_open(const struct executor_setting *setting, void *context,
                       struct executor *opened, struct error *err)
{
    struct cuda_options defaults = {};
    const struct cuda_options *options =
        context != nullptr ? (const struct cuda_options *)context : &defaults;
    struct cuda_executor *executor = (struct cuda_executor *)calloc(1, sizeof *executor);

    if (executor == nullptr)
        return error_set(err, ERROR_MEMORY, "no memory for an executor");
    executor->placement = setting->placement;
    executor->model = setting->placement->model;
    executor->numbers = setting->numbers;
    executor->room = setting->room;
    executor->host_weights = setting->weights;
    if (setting->fault != INTERPRET_SOUND) {
        error_set(err, ERROR_UNSUPPORTED, "rules are broken on purpose on the CPU only");
        close_executor(executor);
        return -1;
    }
    if (open_parts(executor, setting, options, err) != 0) {
        close_executor(executor);
        return -1;
    }
    *opened = {};
    opened->self = executor;
    opened->memory = memory;
    opened->forget_step = forget_step;
    opened->run = run;
    opened->free = close_executor;
    return 0;
}
