/* Most tasks have a fixed duration, so their end follows from the ends of what
 * they wait for and needs no event. Only flows depend on each other through
 * time: their starts wait in a heap, their progress is in a flow set. The host
 * thread and all fixed tasks run ahead as far as they can before the next flow
 * event is taken; whatever a flow event sets free starts no earlier than it.
 *
 * Left out: the bounded depth of a device's launch queue. */
#include "sim/engine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_private.h"
#include "sim/flow.h"

/* ---- the engine ---- */

#define NO_RUN UINT32_MAX

/* One schedule on its way: kept until its last task has ended. */
struct run {
    const struct engine_schedule *schedule;
    uint32_t *waits; /* what each task still waits for */
    double *ready_s; /* the latest end among what it waited for */
    double *end_s;   /* NAN until known */
    double *start_s;
    double *work_s, *flow_bytes; /* the tasks' times when the run began */
    size_t capacity;
    size_t unfinished;
    uint64_t first_sequence;
    uint64_t number;                      /* for the watcher */
    uint32_t next_run[ENGINE_QUEUES_MAX]; /* whose tasks follow this run's on a queue */
    bool in_use;
};

struct queue {
    double free_s; /* valid while tail_run is NO_RUN */
    double busy_s;
    uint32_t tail_run; /* the run whose tasks are last in the queue, if unfinished */
};

struct pending_flow {
    double time_s;
    uint64_t sequence;
    uint32_t run, task;
};

struct engine {
    double *link_rate;
    struct engine_route *routes;
    size_t link_count, route_count;
    struct flow_set flows;
    struct queue queues[ENGINE_QUEUES_MAX];
    struct run *runs;
    uint32_t run_count, last_run;
    struct pending_flow *heap;
    size_t heap_count, heap_capacity;
    uint64_t *stack; /* tasks whose end has just become known: run << 32 | task */
    size_t stack_count, stack_capacity;
    double host_s, host_busy_s, epoch_s;
    uint64_t next_sequence, next_number;
    struct engine_watcher watcher;
};

static int check_route(const struct engine_route *route, size_t index, size_t link_count,
                       struct error *err)
{
    if (!(route->limit_gbs >= 0) || isinf(route->limit_gbs))
        return error_set(err, ERROR_INPUT,
                         "route %zu has a limit of %g GB/s; 0 for none, or a finite one, is needed",
                         index, route->limit_gbs);
    if (route->link_count == 0 && route->limit_gbs == 0)
        return error_set(err, ERROR_INPUT, "route %zu crosses no link and has no limit", index);
    if (route->link_count > ENGINE_ROUTE_LINKS_MAX)
        return error_set(err, ERROR_INPUT, "route %zu crosses %u links; at most %d fit", index,
                         route->link_count, ENGINE_ROUTE_LINKS_MAX);
    for (uint32_t l = 0; l < route->link_count; l++) {
        if (route->links[l] >= link_count)
            return error_set(err, ERROR_INPUT, "route %zu: its link %u does not exist", index, l);
        if (!(route->weights[l] > 0) || isinf(route->weights[l]))
            return error_set(err, ERROR_INPUT,
                             "route %zu: the weight %g of its link %u is not above 0 and finite",
                             index, route->weights[l], l);
    }
    return 0;
}

static int check_links(const double *link_gbs, size_t link_count, struct error *err)
{
    for (size_t i = 0; i < link_count; i++)
        if (!(link_gbs[i] > 0) || isinf(link_gbs[i]))
            return error_set(err, ERROR_INPUT,
                             "link %zu has a bandwidth of %g GB/s; above 0 and finite is needed", i,
                             link_gbs[i]);
    return 0;
}

/* A link crossed twice becomes a link crossed once with the sum of the weights. */
static void merge_repeated_links(struct engine_route *route)
{
    uint32_t kept = 0;

    for (uint32_t l = 0; l < route->link_count; l++) {
        uint32_t same = 0;

        while (same < kept && route->links[same] != route->links[l])
            same++;
        if (same < kept) {
            route->weights[same] += route->weights[l];
        } else {
            route->links[kept] = route->links[l];
            route->weights[kept++] = route->weights[l];
        }
    }
    route->link_count = kept;
}

struct engine *engine_new(const double *link_gbs, size_t link_count,
                          const struct engine_route *routes, size_t route_count, struct error *err)
{
    struct engine *engine;

    if (check_links(link_gbs, link_count, err) != 0)
        return NULL;
    for (size_t r = 0; r < route_count; r++)
        if (check_route(&routes[r], r, link_count, err) != 0)
            return NULL;
    engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        goto no_memory;
    engine->link_count = link_count;
    engine->route_count = route_count;
    engine->link_rate = malloc((link_count + 1) * sizeof *engine->link_rate);
    engine->routes = malloc((route_count + 1) * sizeof *engine->routes);
    if (engine->link_rate == NULL || engine->routes == NULL)
        goto no_memory;
    for (size_t i = 0; i < link_count; i++)
        engine->link_rate[i] = link_gbs[i] * 1e9;
    for (size_t r = 0; r < route_count; r++) {
        engine->routes[r] = routes[r];
        merge_repeated_links(&engine->routes[r]);
    }
    if (flow_set_init(&engine->flows, engine->link_rate, link_count, engine->routes, err) != 0)
        goto no_memory;
    engine_reset(engine);
    return engine;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory for an engine of %zu links", link_count);
    engine_free(engine);
    return NULL;
}

void engine_free(struct engine *engine)
{
    if (engine == NULL)
        return;
    for (uint32_t r = 0; r < engine->run_count; r++) {
        free(engine->runs[r].waits);
        free(engine->runs[r].ready_s);
    }
    free(engine->runs);
    free(engine->heap);
    free(engine->stack);
    flow_set_close(&engine->flows);
    free(engine->link_rate);
    free(engine->routes);
    free(engine);
}

void engine_reset(struct engine *engine)
{
    flow_set_reset(&engine->flows);
    for (unsigned q = 0; q < ENGINE_QUEUES_MAX; q++)
        engine->queues[q] = (struct queue){.tail_run = NO_RUN};
    for (uint32_t r = 0; r < engine->run_count; r++)
        engine->runs[r].in_use = false;
    engine->heap_count = engine->stack_count = 0;
    engine->host_s = engine->host_busy_s = engine->epoch_s = 0;
    engine->last_run = NO_RUN;
    engine->next_sequence = engine->next_number = 0;
}

/* ---- the watcher ---- */

void engine_watch(struct engine *engine, const struct engine_watcher *watcher)
{
    engine->watcher = watcher != NULL ? *watcher : (struct engine_watcher){NULL};
}

static void tell_timed(const struct engine *engine, const struct run *run, uint32_t task)
{
    if (engine->watcher.timed != NULL)
        engine->watcher.timed(engine->watcher.context, run->number, task,
                              engine->epoch_s + run->start_s[task],
                              engine->epoch_s + run->end_s[task]);
}

static void tell_rates(const struct engine *engine)
{
    if (engine->watcher.rates_changed != NULL)
        engine->watcher.rates_changed(engine->watcher.context,
                                      engine->epoch_s + engine->flows.time_s);
}

double engine_link_use_gbs(const struct engine *engine, unsigned link)
{
    double rate = 0;

    for (size_t i = 0; i < engine->flows.count; i++) {
        const struct engine_route *route = &engine->routes[engine->flows.flows[i].route];

        for (uint32_t l = 0; l < route->link_count; l++)
            if (route->links[l] == link)
                rate += route->weights[l] * engine->flows.flows[i].rate;
    }
    return rate / 1e9;
}

/* ---- the heap of flows that will start ---- */

static bool starts_before(const struct pending_flow *a, const struct pending_flow *b)
{
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->sequence < b->sequence);
}

static int push_flow(struct engine *engine, struct pending_flow flow, struct error *err)
{
    size_t at;

    if (engine->heap_count == engine->heap_capacity) {
        size_t capacity = engine->heap_capacity > 0 ? 2 * engine->heap_capacity : 16;
        struct pending_flow *heap = realloc(engine->heap, capacity * sizeof *heap);

        if (heap == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu pending flows", capacity);
        engine->heap = heap;
        engine->heap_capacity = capacity;
    }
    at = engine->heap_count++;
    while (at > 0 && starts_before(&flow, &engine->heap[(at - 1) / 2])) {
        engine->heap[at] = engine->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    engine->heap[at] = flow;
    return 0;
}

static struct pending_flow pop_flow(struct engine *engine)
{
    struct pending_flow first = engine->heap[0];
    struct pending_flow last = engine->heap[--engine->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < engine->heap_count &&
            starts_before(&engine->heap[child + 1], &engine->heap[child]))
            child++;
        if (child >= engine->heap_count || !starts_before(&engine->heap[child], &last))
            break;
        engine->heap[at] = engine->heap[child];
        at = child;
    }
    engine->heap[at] = last;
    return first;
}

/* ---- ends that become known ---- */

static int push_end(struct engine *engine, uint32_t run, uint32_t task, double end_s,
                    struct error *err)
{
    engine->runs[run].end_s[task] = end_s;
    tell_timed(engine, &engine->runs[run], task);
    if (engine->stack_count == engine->stack_capacity) {
        size_t capacity = engine->stack_capacity > 0 ? 2 * engine->stack_capacity : 256;
        uint64_t *stack = realloc(engine->stack, capacity * sizeof *stack);

        if (stack == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", capacity);
        engine->stack = stack;
        engine->stack_capacity = capacity;
    }
    engine->stack[engine->stack_count++] = (uint64_t)run << 32 | task;
    return 0;
}

/* One thing fewer to wait for; the last one starts the task. */
static int release(struct engine *engine, uint32_t run, uint32_t task, double time_s,
                   struct error *err)
{
    struct run *r = &engine->runs[run];
    double start_s;

    if (time_s > r->ready_s[task])
        r->ready_s[task] = time_s;
    if (--r->waits[task] > 0)
        return 0;
    start_s = r->ready_s[task];
    r->start_s[task] = start_s;
    if (r->flow_bytes[task] > 0)
        return push_flow(engine,
                         (struct pending_flow){.time_s = start_s + r->work_s[task],
                                               .sequence = r->first_sequence + task,
                                               .run = run,
                                               .task = task},
                         err);
    return push_end(engine, run, task, start_s + r->work_s[task], err);
}

/* Hands the queues of an ended task on: within a run by the successors, here from run to run. */
static int leave_queues(struct engine *engine, uint32_t run, uint32_t task, struct error *err)
{
    const struct engine_schedule *schedule = engine->runs[run].schedule;
    double end_s = engine->runs[run].end_s[task];

    for (uint64_t left = schedule->tasks[task].queues; left != 0; left &= left - 1) {
        unsigned q = (unsigned)__builtin_ctzll(left);
        struct queue *queue = &engine->queues[q];
        uint32_t next_run = engine->runs[run].next_run[q];

        queue->busy_s += end_s - engine->runs[run].start_s[task];
        if (schedule->queue_tail[q] != task)
            continue;
        if (next_run != NO_RUN) {
            if (release(engine, next_run, engine->runs[next_run].schedule->queue_head[q], end_s,
                        err) != 0)
                return -1;
        } else {
            queue->tail_run = NO_RUN;
            queue->free_s = end_s;
        }
    }
    return 0;
}

/* Follows all consequences of the ends on the stack. */
static int settle(struct engine *engine, struct error *err)
{
    while (engine->stack_count > 0) {
        uint64_t entry = engine->stack[--engine->stack_count];
        uint32_t run = (uint32_t)(entry >> 32), task = (uint32_t)entry;
        const struct engine_schedule *schedule = engine->runs[run].schedule;
        double end_s = engine->runs[run].end_s[task];

        for (uint32_t s = schedule->successor_first[task]; s < schedule->successor_first[task + 1];
             s++)
            if (release(engine, run, schedule->successors[s], end_s, err) != 0)
                return -1;
        if (leave_queues(engine, run, task, err) != 0)
            return -1;
        if (--engine->runs[run].unfinished == 0 && run != engine->last_run)
            engine->runs[run].in_use = false;
    }
    return 0;
}

/* Takes the next event among starts and ends of flows. False when there is none. */
static int take_flow_event(struct engine *engine, bool *taken, struct error *err)
{
    double end_s = flow_set_next_end_s(&engine->flows);

    *taken = true;
    if (engine->heap_count > 0 && engine->heap[0].time_s < end_s) {
        struct pending_flow next = pop_flow(engine);
        const struct run *run = &engine->runs[next.run];
        struct flow flow = {.remaining_bytes = run->flow_bytes[next.task],
                            .sequence = next.sequence,
                            .run = next.run,
                            .task = next.task,
                            .route = run->schedule->tasks[next.task].route};

        assert(flow.route < engine->route_count);
        if (flow_set_start(&engine->flows, flow, next.time_s, err) != 0)
            return -1;
        tell_rates(engine);
        return 0;
    }
    if (engine->flows.count > 0) {
        struct flow flow = flow_set_finish_next(&engine->flows);

        tell_rates(engine);
        return push_end(engine, flow.run, flow.task, end_s, err) != 0 ? -1 : settle(engine, err);
    }
    *taken = false;
    return 0;
}

/* ---- running a schedule ---- */

static int grow_run(struct run *run, size_t task_count, struct error *err)
{
    uint32_t *waits = realloc(run->waits, (task_count + 1) * sizeof *waits);
    double *times;

    if (waits != NULL)
        run->waits = waits;
    times = realloc(run->ready_s, 5 * (task_count + 1) * sizeof *times);
    if (times != NULL)
        run->ready_s = times;
    if (waits == NULL || times == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to run %zu tasks", task_count);
    run->capacity = task_count;
    return 0;
}

/* A run slot that is free, large enough and not the one last reported on. */
static int take_run(struct engine *engine, size_t task_count, uint32_t *index, struct error *err)
{
    uint32_t at = 0;

    while (at < engine->run_count && engine->runs[at].in_use)
        at++;
    if (at == engine->run_count) {
        struct run *runs = realloc(engine->runs, (at + 1) * sizeof *runs);

        if (runs == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for another run");
        runs[at] = (struct run){0};
        engine->runs = runs;
        engine->run_count++;
    }
    if (engine->runs[at].capacity < task_count || engine->runs[at].ready_s == NULL)
        if (grow_run(&engine->runs[at], task_count, err) != 0)
            return -1;
    *index = at;
    return 0;
}

/* Makes the host thread's clock 0, so that equal steps give equal bits. */
static void rebase(struct engine *engine)
{
    double by_s = engine->host_s;

    for (unsigned q = 0; q < ENGINE_QUEUES_MAX; q++)
        engine->queues[q].free_s -= by_s;
    for (uint32_t r = 0; r < engine->run_count; r++) {
        struct run *run = &engine->runs[r];

        if (!run->in_use)
            continue;
        for (size_t i = 0; i < run->schedule->task_count; i++) {
            run->ready_s[i] -= by_s;
            run->end_s[i] -= by_s;
            run->start_s[i] -= by_s;
        }
    }
    for (size_t i = 0; i < engine->heap_count; i++)
        engine->heap[i].time_s -= by_s;
    flow_set_rebase(&engine->flows, by_s);
    engine->epoch_s += by_s;
    engine->host_s = 0;
}

static void begin_run(struct engine *engine, uint32_t index, const struct engine_schedule *schedule)
{
    struct run *run = &engine->runs[index];
    size_t count = schedule->task_count;

    run->schedule = schedule;
    run->end_s = run->ready_s + run->capacity;
    run->start_s = run->end_s + run->capacity;
    run->work_s = run->start_s + run->capacity;
    run->flow_bytes = run->work_s + run->capacity;
    run->unfinished = count;
    run->first_sequence = engine->next_sequence;
    run->number = engine->next_number++;
    run->in_use = true;
    engine->next_sequence += count;
    memcpy(run->waits, schedule->waits, count * sizeof *run->waits);
    for (size_t i = 0; i < count; i++) {
        run->ready_s[i] = -INFINITY;
        run->end_s[i] = NAN;
        run->start_s[i] = NAN;
        run->work_s[i] = schedule->tasks[i].work_s;
        run->flow_bytes[i] = schedule->tasks[i].flow_bytes;
    }
    for (unsigned q = 0; q < ENGINE_QUEUES_MAX; q++)
        run->next_run[q] = NO_RUN;
    for (uint64_t left = schedule->queues; left != 0; left &= left - 1) {
        unsigned q = (unsigned)__builtin_ctzll(left);
        struct queue *queue = &engine->queues[q];
        uint32_t head = schedule->queue_head[q];

        if (queue->tail_run == NO_RUN) {
            run->ready_s[head] = fmax(run->ready_s[head], queue->free_s);
        } else {
            run->waits[head]++;
            engine->runs[queue->tail_run].next_run[q] = index;
        }
        queue->tail_run = index;
    }
}

/* The host thread waits until a task of this run has ended. */
static int wait_for(struct engine *engine, uint32_t run, uint32_t task, struct error *err)
{
    while (isnan(engine->runs[run].end_s[task])) {
        bool taken;

        if (take_flow_event(engine, &taken, err) != 0)
            return -1;
        assert(taken); /* tasks only wait for earlier ones, so something always moves */
    }
    engine->host_s = fmax(engine->host_s, engine->runs[run].end_s[task]);
    return 0;
}

int engine_run(struct engine *engine, const struct engine_schedule *schedule, struct error *err)
{
    uint32_t index = 0;

    if (engine->last_run != NO_RUN && engine->runs[engine->last_run].unfinished == 0)
        engine->runs[engine->last_run].in_use = false;
    rebase(engine);
    if (take_run(engine, schedule->task_count, &index, err) != 0)
        return -1;
    engine->last_run = index;
    begin_run(engine, index, schedule);
    for (uint32_t i = 0; i < schedule->task_count; i++) {
        const struct engine_task *task = &schedule->tasks[i];

        if (engine->watcher.issued != NULL)
            engine->watcher.issued(engine->watcher.context, engine->runs[index].number, i,
                                   engine->epoch_s + engine->host_s,
                                   engine->epoch_s + engine->host_s + task->issue_s);
        engine->host_s += task->issue_s;
        engine->host_busy_s += task->issue_s;
        if (release(engine, index, i, engine->host_s, err) != 0 || settle(engine, err) != 0)
            return -1;
        if (task->blocking && wait_for(engine, index, i, err) != 0)
            return -1;
    }
    return 0;
}

int engine_finish(struct engine *engine, struct error *err)
{
    bool taken = true;

    while (taken)
        if (take_flow_event(engine, &taken, err) != 0)
            return -1;
    for (unsigned q = 0; q < ENGINE_QUEUES_MAX; q++) {
        assert(engine->queues[q].tail_run == NO_RUN);
        engine->host_s = fmax(engine->host_s, engine->queues[q].free_s);
    }
    return 0;
}

double engine_time_s(const struct engine *engine)
{
    return engine->epoch_s + engine->host_s;
}

static const double *last(const struct engine *engine, size_t *count, bool ends)
{
    const struct run *run;

    *count = 0;
    if (engine->last_run == NO_RUN)
        return NULL;
    run = &engine->runs[engine->last_run];
    *count = run->schedule->task_count;
    return ends ? run->end_s : run->start_s;
}

const double *engine_last_ends(const struct engine *engine, size_t *count)
{
    return last(engine, count, true);
}

const double *engine_last_starts(const struct engine *engine, size_t *count)
{
    return last(engine, count, false);
}

double engine_queue_busy_s(const struct engine *engine, unsigned queue)
{
    return engine->queues[queue].busy_s;
}

double engine_host_busy_s(const struct engine *engine)
{
    return engine->host_busy_s;
}

double engine_link_busy_s(const struct engine *engine, unsigned link)
{
    return engine->flows.busy_s[link];
}
