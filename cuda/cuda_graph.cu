/* Runs of tasks that no host work interrupts, replayed as one graph. A run is executed task by task
 * the first times, which makes its buffers; captured the third time; and launched from then on,
 * as long as nothing that a launch depends on has changed: operations, windows, chunks of
 * attention, whether sequences have one token each, and where buffers lie. What differs from step
 * to step lies in device memory, or in pinned memory of the host that is copied in the run. */
#include "cuda/cuda_private.h"
#include "cuda/launch.cuh"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ENTRIES = 64, SHORTEST = 4, AHEAD = 32 /* tasks of each device */ };

namespace
{

struct entry {
    uint64_t hash;
    uint64_t used; /* when last, for throwing out */
    uint32_t seen;
    bool refused; /* it cannot be captured */
    cudaGraphExec_t graph;
    void *stamps; /* of its tasks, for a trace; NULL: none */
};

} /* namespace */

struct cuda_graphs {
    struct entry entries[ENTRIES];
    uint64_t time;
    size_t cut_first, rest_begin; /* of this step's run that was cut; 0: none, or it is done */
};

struct cuda_graphs *cuda_graphs_new(struct error *err)
{
    struct cuda_graphs *graphs = (struct cuda_graphs *)calloc(1, sizeof *graphs);

    if (graphs == nullptr)
        error_set(err, ERROR_MEMORY, "no memory for graphs");
    return graphs;
}

void cuda_graphs_begin(struct cuda_graphs *graphs)
{
    if (graphs != nullptr)
        graphs->cut_first = graphs->rest_begin = 0;
}

static void clear(struct entry *entry)
{
    if (entry->graph != nullptr)
        cudaGraphExecDestroy(entry->graph);
    free(entry->stamps);
    *entry = {};
}

void cuda_graphs_free(struct cuda_graphs *graphs)
{
    for (int i = 0; graphs != nullptr && i < ENTRIES; i++)
        clear(&graphs->entries[i]);
    free(graphs);
}

/* ---- which tasks ---- */

static bool is_copy_with_host(const struct program_op *op)
{
    return op->kind == OP_COPY &&
           (op->a.space == PROGRAM_AT_HOST || op->out.space == PROGRAM_AT_HOST);
}

static bool is_capturable(const struct cuda_executor *executor, const struct program_task *task)
{
    const struct program_op *ops = &executor->program->ops[task->op_first];
    enum task_class kind = program_task_class(task->kind);

    if (task->blocking || kind == TASK_CLASS_HOST || task->kind == TASK_SYNC)
        return false;
    for (uint32_t i = 0; i < task->op_count; i++)
        if (is_copy_with_host(&ops[i])
                ? cuda_copy_is_hosts(&ops[i]) || !cuda_copy_is_pinned(executor, &ops[i])
                : ops[i].out.space == PROGRAM_AT_HOST || ops[i].kind == OP_STAGE)
            return false;
    return true;
}

/* A run begins where something before `first` is awaited: the whole graph would wait for it. What
 * the host does itself has been done by then. */
static bool awaits_before(const struct program *program, size_t task, size_t first)
{
    const struct program_task *this_one = &program->tasks[task];

    for (uint32_t d = 0; d < this_one->dependency_count; d++) {
        uint32_t on = program->dependencies[this_one->dependency_first + d];

        if (on < first && program_task_class(program->tasks[on].kind) != TASK_CLASS_HOST)
            return true;
    }
    return false;
}

/* What these write is there as the next product reads it alone, which a replayed graph does not
 * tell those behind it. */
static bool leaves_quantised(const struct program *program, const struct program_task *task)
{
    enum op_kind last =
        task->op_count > 0 ? program->ops[task->op_first + task->op_count - 1].kind : OP_NORM;

    return last == OP_GLU || last == OP_GATE;
}

/* A short run goes ahead of a long one, so that GPUs do not idle while that is launched. It ends
 * before a norm: what other tasks need of those before may be known within a run alone. With
 * windows that are sent ahead it would not end before they are there. */
static size_t cut_long_run(const struct program *program, size_t first, size_t end)
{
    uint64_t devices = 0;
    size_t ahead, cut;

    for (size_t i = first; i < end; i++)
        if (program->tasks[i].kind == TASK_KV_WINDOW)
            return end;
    for (size_t i = first; i < end; i++)
        devices |= program->tasks[i].device >= 0 ? UINT64_C(1) << program->tasks[i].device : 0;
    ahead = AHEAD * (size_t)__builtin_popcountll(devices);
    cut = first + ahead;
    if (end - first < 3 * ahead)
        return end;
    while (cut < end &&
           (program->tasks[cut].kind != TASK_NORM || program->tasks[cut].op_count == 0))
        cut++;
    return cut;
}

size_t cuda_graphs_run_end(const struct cuda_executor *executor, size_t first)
{
    const struct program *program = executor->program;
    struct cuda_graphs *graphs = executor->graphs;
    size_t end = first, from = first, cut;

    if (graphs == nullptr)
        return first;
    if (first > 0 && first == graphs->rest_begin)
        from = graphs->cut_first;
    while (end < program->task_count && is_capturable(executor, &program->tasks[end]) &&
           (end == first || !awaits_before(program, end, from)))
        end++;
    while (end > first && end < program->task_count &&
           leaves_quantised(program, &program->tasks[end - 1]))
        end--;
    cut = from < first ? end : cut_long_run(program, first, end);
    graphs->cut_first = first;
    graphs->rest_begin = cut < end ? cut : 0;
    return end - first >= SHORTEST ? cut : first;
}

bool cuda_graphs_cut_at(const struct cuda_graphs *graphs, size_t task)
{
    return graphs != nullptr && task > 0 && task == graphs->rest_begin;
}

/* ---- what a launch depends on ---- */

/* Whether an operation copies as many cells as are used; kernels read for themselves how many. */
static bool copies_windows(const struct program *program, uint32_t op_first, uint32_t op_end)
{
    for (uint32_t i = op_first; i < op_end; i++)
        if (program->ops[i].kind == OP_COPY && layout_is_cache(program->ops[i].a.value))
            return true;
    return false;
}

static uint64_t hash_of(struct cuda_executor *executor, size_t first, size_t end)
{
    const struct program *program = executor->program;
    const struct program_task *last = &program->tasks[end - 1];
    uint32_t op_first = program->tasks[first].op_first;
    const bool windows = copies_windows(program, op_first, last->op_first + last->op_count);
    uint64_t facts[] = {first,
                        end,
                        program->tokens,
                        program->outputs,
                        windows ? executor->step.used[0] : 0,
                        windows ? executor->step.used[1] : 0,
                        cuda_allocations(),
                        memory_growths(interpreter_memory(executor->host)),
                        cuda_attend_chunks_of(executor, false),
                        cuda_attend_chunks_of(executor, true),
                        cuda_has_one_each(executor)};
    uint64_t hash = XXH64(facts, sizeof facts, 0);

    hash = XXH64(program->ops + op_first,
                 (last->op_first + last->op_count - op_first) * sizeof *program->ops, hash);
    for (size_t i = first; i < end; i++) {
        uint64_t task[] = {(uint64_t)program->tasks[i].kind, program->tasks[i].queues,
                           program->tasks[i].dependency_count};

        hash = XXH64(task, sizeof task, hash);
    }
    return hash;
}

static struct entry *find_entry(struct cuda_graphs *graphs, uint64_t hash)
{
    struct entry *oldest = &graphs->entries[0];

    graphs->time++;
    for (int i = 0; i < ENTRIES; i++) {
        struct entry *entry = &graphs->entries[i];

        if (entry->used > 0 && entry->hash == hash) {
            entry->used = graphs->time;
            return entry;
        }
        if (entry->used < oldest->used)
            oldest = entry;
    }
    clear(oldest);
    oldest->hash = hash;
    oldest->used = graphs->time;
    return oldest;
}

/* ---- running ---- */

static int run_each(struct cuda_executor *executor, size_t first, size_t end, struct error *err)
{
    for (size_t i = first; i < end; i++)
        if (cuda_run_task(executor, i, err) != 0)
            return -1;
    for (uint32_t d = 0; d < executor->placement->device_count; d++)
        if (cuda_flush_products(executor, (int)d, err) != 0)
            return -1;
    return 0;
}

/* What tasks before a run, or a capture that failed, have left does not count in it. */
static void forget_pending(struct cuda_executor *executor)
{
    memset(executor->quantised, 0, sizeof executor->quantised);
    for (uint32_t d = 0; d < executor->placement->device_count; d++)
        executor->pending[d].count = 0;
    launch_take_stamp();
}

static struct cuda_lane *origin_of(struct cuda_executor *executor, size_t first)
{
    uint64_t queues = executor->program->tasks[first].queues >> PROGRAM_QUEUE_DEVICES;
    uint32_t q = 0;

    while (q + 1 < executor->lane_count && (queues >> q & 1) == 0)
        q++;
    return &executor->lanes[q];
}

/* The lanes on which the run's tasks are, and those beside that its sums may take. */
static uint64_t lanes_of(const struct cuda_executor *executor, size_t first, size_t end)
{
    const struct program *program = executor->program;
    uint32_t queues = 3 * executor->placement->device_count;
    uint64_t lanes = 0;

    for (size_t i = first; i < end; i++) {
        lanes |= program->tasks[i].queues >> PROGRAM_QUEUE_DEVICES & ((UINT64_C(1) << queues) - 1);
        if (program_task_class(program->tasks[i].kind) == TASK_CLASS_COLLECTIVE)
            lanes |= ((UINT64_C(1) << executor->gpu_count) - 1) << queues;
    }
    return lanes;
}

/* Lanes begin behind `origin`, or end before it goes on. */
static int fork_or_join(struct cuda_executor *executor, uint64_t lanes, struct cuda_lane *origin,
                        bool fork, struct error *err)
{
    for (uint32_t l = 0; l < executor->lane_count; l++) {
        struct cuda_lane *lane = &executor->lanes[l];

        if ((lanes >> l & 1) != 0 &&
            cuda_wait_for_lane(fork ? lane : origin, fork ? origin : lane, err) != 0)
            return -1;
    }
    return 0;
}

/* What tasks of the run wait for from before it. */
static int await_earlier(struct cuda_executor *executor, size_t first, size_t end,
                         struct cuda_lane *origin, struct error *err)
{
    const struct program *program = executor->program;

    for (size_t i = first; i < end; i++)
        for (uint32_t d = 0; d < program->tasks[i].dependency_count; d++) {
            uint32_t on = program->dependencies[program->tasks[i].dependency_first + d];

            for (uint32_t e = 0; on < first && e < executor->done[on].count; e++)
                if (cuda_check(cudaStreamWaitEvent(origin->stream, executor->done[on].events[e], 0),
                               "cudaStreamWaitEvent", err) != 0)
                    return -1;
        }
    return 0;
}

/* Captures the run; `graph` stays NULL where that fails. */
static void capture(struct cuda_executor *executor, size_t first, size_t end, uint64_t lanes,
                    struct cuda_lane *origin, cudaGraphExec_t *graph)
{
    cudaGraph_t captured = nullptr;
    struct error ignored = {};
    bool complete;

    cudaSetDevice(executor->gpus[origin->gpu]);
    if (cudaStreamBeginCapture(origin->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    executor->captured_from = first;
    complete = fork_or_join(executor, lanes, origin, true, &ignored) == 0 &&
               run_each(executor, first, end, &ignored) == 0 &&
               fork_or_join(executor, lanes, origin, false, &ignored) == 0;
    executor->captured_from = 0;
    cudaSetDevice(executor->gpus[origin->gpu]);
    if (cudaStreamEndCapture(origin->stream, &captured) == cudaSuccess && complete &&
        captured != nullptr && cudaGraphInstantiate(graph, captured, 0) != cudaSuccess)
        *graph = nullptr;
    if (captured != nullptr)
        cudaGraphDestroy(captured);
    cudaGetLastError();
}

/* Tasks behind the run wait for all of it. */
static int mark_done(struct cuda_executor *executor, size_t first, size_t end,
                     const struct cuda_lane *origin, struct error *err)
{
    cudaEvent_t event = nullptr;

    for (size_t i = first; i < end; i++) {
        executor->done[i].count = 0;
        if (!executor->awaited[i])
            continue;
        if (event == nullptr &&
            (cuda_take_event(executor, origin->gpu, &event, err) != 0 ||
             cuda_check(cudaEventRecord(event, origin->stream), "cudaEventRecord", err) != 0))
            return -1;
        executor->done[i].events[0] = event;
        executor->done[i].count = 1;
    }
    return 0;
}

/* Captures the run into the entry; a failure is no error. */
static void make_graph(struct cuda_executor *executor, size_t first, size_t end, uint64_t lanes,
                       struct cuda_lane *origin, struct entry *entry)
{
    struct error ignored = {};

    capture(executor, first, end, lanes, origin, &entry->graph);
    if (entry->graph != nullptr && executor->trace != nullptr) {
        entry->stamps = cuda_trace_save(executor->trace, first, end, &ignored);
        if (entry->stamps == nullptr)
            clear(entry);
    }
    forget_pending(executor);
}

/* What a replayed run brings to the host. */
static int expect_copies(struct cuda_executor *executor, size_t first, size_t end,
                         struct error *err)
{
    const struct program *program = executor->program;

    for (size_t i = first; i < end; i++)
        for (uint32_t o = 0; o < program->tasks[i].op_count; o++) {
            const struct program_op *op = &program->ops[program->tasks[i].op_first + o];

            if (op->kind == OP_COPY && op->out.space == PROGRAM_AT_HOST &&
                cuda_copy_expect(executor, op, err) != 0)
                return -1;
        }
    return 0;
}

int cuda_graphs_run(struct cuda_executor *executor, size_t first, size_t end, struct error *err)
{
    struct entry *entry = find_entry(executor->graphs, hash_of(executor, first, end));
    struct cuda_lane *origin = origin_of(executor, first);
    uint64_t lanes = lanes_of(executor, first, end);

    forget_pending(executor);
    entry->seen++;
    if (entry->seen < 3 || entry->refused)
        return run_each(executor, first, end, err);
    if (entry->graph == nullptr) {
        make_graph(executor, first, end, lanes, origin, entry);
        entry->refused = entry->graph == nullptr;
        if (entry->refused)
            return run_each(executor, first, end, err);
    } else if (entry->stamps != nullptr) {
        cuda_trace_restore(executor->trace, first, end, entry->stamps);
    }
    if (expect_copies(executor, first, end, err) != 0 ||
        fork_or_join(executor, lanes, origin, false, err) != 0 ||
        await_earlier(executor, first, end, origin, err) != 0 ||
        cuda_check(cudaSetDevice(executor->gpus[origin->gpu]), "cudaSetDevice", err) != 0 ||
        cuda_check(cudaGraphLaunch(entry->graph, origin->stream), "cudaGraphLaunch", err) != 0 ||
        fork_or_join(executor, lanes, origin, true, err) != 0)
        return -1;
    return mark_done(executor, first, end, origin, err);
}
