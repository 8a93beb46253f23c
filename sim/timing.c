#include "sim/timing.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cost.h"
#include "sim/kernel_times.h"

/* Engine links: three a machine link. */
enum { LINK_DOWN, LINK_UP, LINK_DUPLEX, LINK_PARTS };

/* Routes of a device to and from the host. */
enum { ROUTE_IN, ROUTE_OUT, ROUTE_IN_PAGEABLE, ROUTE_OUT_PAGEABLE, ROUTES_PER_DEVICE };

struct timing {
    const struct placement *placement;
    struct engine *engine;
    struct engine_route *routes;
    size_t route_count;
    size_t peer_first, collective;                                   /* route numbers */
    double peer_latency_s[MACHINE_DEVICES_MAX][MACHINE_DEVICES_MAX]; /* from, to */
    double device_latency_s[MACHINE_DEVICES_MAX];                    /* of the way to the host */
    const struct machine_link *device_link[MACHINE_DEVICES_MAX];     /* the one at the device */
    const struct kernel_table *tables[MACHINE_DEVICES_MAX]; /* that time the schedule; or NULL */
};

/* ---- routes ---- */

static const struct machine_device *device_of(const struct placement *placement, uint32_t d)
{
    return &placement->machine->devices[placement->devices[d]];
}

static void cross(struct engine_route *route, uint32_t link, double weight)
{
    for (uint32_t i = 0; i < route->link_count; i++) {
        if (route->links[i] == link) {
            route->weights[i] += weight;
            return;
        }
    }
    assert(route->link_count < ENGINE_ROUTE_LINKS_MAX);
    route->links[route->link_count] = (uint16_t)link;
    route->weights[route->link_count++] = weight;
}

/* Adds the way from one node to another; returns its latency, or below 0 without a way. */
static double cross_way(const struct machine *machine, struct engine_route *route, uint32_t from,
                        uint32_t to)
{
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];
    int count = machine_route(machine, from, to, links, down);
    double latency_s = 0;

    for (int i = 0; i < count; i++) {
        cross(route, LINK_PARTS * links[i] + (down[i] ? LINK_DOWN : LINK_UP), 1);
        cross(route, LINK_PARTS * links[i] + LINK_DUPLEX, 1);
        latency_s += machine->links[links[i]].latency_s;
    }
    return count < 0 ? -1 : latency_s;
}

static int route_device(struct timing *timing, uint32_t d, struct error *err)
{
    const struct machine *machine = timing->placement->machine;
    const struct machine_device *device = device_of(timing->placement, d);
    struct engine_route *in = &timing->routes[d * ROUTES_PER_DEVICE + ROUTE_IN];
    struct engine_route *out = &timing->routes[d * ROUTES_PER_DEVICE + ROUTE_OUT];
    double latency_s = cross_way(machine, in, 0, device->node);

    if (latency_s < 0)
        return error_set(err, ERROR_INPUT, "%s has no way to the host in %s", device->name,
                         machine->name);
    cross_way(machine, out, device->node, 0);
    timing->device_latency_s[d] = latency_s;
    timing->device_link[d] =
        &machine->links[machine_device_link(machine, timing->placement->devices[d])];
    in[ROUTE_IN_PAGEABLE - ROUTE_IN] = *in;
    out[ROUTE_OUT_PAGEABLE - ROUTE_OUT] = *out;
    in[ROUTE_IN_PAGEABLE - ROUTE_IN].limit_gbs = timing->device_link[d]->pageable_gbs;
    out[ROUTE_OUT_PAGEABLE - ROUTE_OUT].limit_gbs = timing->device_link[d]->pageable_gbs;
    return 0;
}

/* The ring of an all-reduce: every device sends to the next. Source of the volume:
 * nccl-tests, doc/PERFORMANCE.md; each link direction carries 2 (n - 1) / n of the payload. */
static void route_collective(struct timing *timing)
{
    const struct placement *placement = timing->placement;
    uint32_t count = placement->device_count;
    struct engine_route *ring = &timing->routes[timing->collective];

    ring->uncounted = true; /* collectives are a resource of their own */
    for (uint32_t d = 0; d < count && count > 1; d++)
        cross_way(placement->machine, ring, device_of(placement, d)->node,
                  device_of(placement, (d + 1) % count)->node);
}

static int make_routes(struct timing *timing, struct error *err)
{
    const struct placement *placement = timing->placement;
    uint32_t count = placement->device_count;

    timing->peer_first = (size_t)count * ROUTES_PER_DEVICE;
    timing->collective = timing->peer_first + (size_t)count * count;
    timing->route_count = timing->collective + 1;
    timing->routes = calloc(timing->route_count, sizeof *timing->routes);
    if (timing->routes == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu routes", timing->route_count);
    for (uint32_t d = 0; d < count; d++) {
        if (route_device(timing, d, err) != 0)
            return -1;
        for (uint32_t e = 0; e < count; e++)
            if (e != d)
                timing->peer_latency_s[d][e] = cross_way(
                    placement->machine, &timing->routes[timing->peer_first + d * count + e],
                    device_of(placement, d)->node, device_of(placement, e)->node);
    }
    route_collective(timing);
    /* A route that nothing takes (a device to itself) still has to be one. */
    for (size_t r = 0; r < timing->route_count; r++)
        if (timing->routes[r].link_count == 0)
            timing->routes[r].limit_gbs = 1;
    return 0;
}

/* The kernels of other schedules are llama.cpp's. */
static void find_tables(struct timing *timing)
{
    const struct placement *placement = timing->placement;

    if (placement->plan.schedule != PLAN_SCHEDULE_LOPSIDE)
        return;
    for (uint32_t d = 0; d < placement->device_count; d++)
        timing->tables[d] = machine_kernel_table(placement->machine, device_of(placement, d)->gpu);
}

struct timing *timing_new(const struct placement *placement, struct error *err)
{
    const struct machine *machine = placement->machine;
    struct timing *timing = calloc(1, sizeof *timing);
    double gbs[LINK_PARTS * MACHINE_LINKS_MAX];

    if (timing == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for timing");
        return NULL;
    }
    timing->placement = placement;
    find_tables(timing);
    for (uint32_t l = 0; l < machine->link_count; l++) {
        gbs[LINK_PARTS * l + LINK_DOWN] = machine->links[l].down_gbs;
        gbs[LINK_PARTS * l + LINK_UP] = machine->links[l].up_gbs;
        gbs[LINK_PARTS * l + LINK_DUPLEX] = machine->links[l].duplex_gbs;
    }
    if (make_routes(timing, err) != 0)
        goto failed;
    timing->engine = engine_new(gbs, (size_t)LINK_PARTS * machine->link_count, timing->routes,
                                timing->route_count, err);
    if (timing->engine == NULL)
        goto failed;
    return timing;

failed:
    timing_free(timing);
    return NULL;
}

void timing_free(struct timing *timing)
{
    if (timing == NULL)
        return;
    engine_free(timing->engine);
    free(timing->routes);
    free(timing);
}

struct engine *timing_engine(struct timing *timing)
{
    return timing->engine;
}

/* ---- tasks ---- */

double timing_flow_bytes(const struct timing *timing, const struct program_task *task, double bytes)
{
    const struct machine *machine = timing->placement->machine;
    uint32_t count = timing->placement->device_count;

    if (task->kind == TASK_ALL_REDUCE)
        return bytes * 2 * (count - 1) / count / machine->collective.ratio;
    return bytes / cost_row_ratio(timing->device_link[task->device], task->row_bytes);
}

static uint16_t route_of(const struct timing *timing, const struct program_task *task)
{
    size_t device = (size_t)task->device * ROUTES_PER_DEVICE;

    switch (task->kind) {
    case TASK_ALL_REDUCE:
        return (uint16_t)timing->collective;
    case TASK_PEER:
        return (uint16_t)(timing->peer_first +
                          (size_t)task->device * timing->placement->device_count +
                          (size_t)task->peer);
    case TASK_KV_ROWS:
    case TASK_ACTIVATIONS:
    case TASK_STATE_OUT:
    case TASK_LOGITS:
        return (uint16_t)(device + (task->pageable ? ROUTE_OUT_PAGEABLE : ROUTE_OUT));
    default:
        return (uint16_t)(device + (task->pageable ? ROUTE_IN_PAGEABLE : ROUTE_IN));
    }
}

/* What the host thread pays before the first launch of a step of our own runtime. */
static double begin_s(const struct timing *timing)
{
    double sum_s = 0;

    for (uint32_t d = 0; d < timing->placement->device_count; d++)
        sum_s += timing->tables[d] != NULL ? timing->tables[d]->step_s : 0;
    return sum_s;
}

/* A task of the host thread itself: by the first table that knows its kind. */
static double host_s(const struct timing *timing, const struct program_task *task, double bytes)
{
    for (uint32_t d = 0; d < timing->placement->device_count; d++) {
        const struct kernel_table *table = timing->tables[d];
        double time_s =
            table != NULL ? kernel_table_plain_s(table, task->kind, task->tokens, bytes) : -1;

        if (time_s >= 0)
            return time_s;
    }
    return bytes / (timing->placement->machine->host.thread_gbs * 1e9);
}

/* What the host thread pays to issue a task. */
static double issue_s(const struct timing *timing, const struct program_task *task, double cells)
{
    const struct placement *placement = timing->placement;
    const struct machine_host *host = &placement->machine->host;
    double bytes = task->bytes + cells * task->bytes_per_cell;
    uint32_t threads = placement->plan.n_threads > 0 ? placement->plan.n_threads : host->threads;

    switch (task->kind) {
    case TASK_BUILD:
        return task->launches * host->build_s;
    case TASK_SPLIT:
        return task->launches * host->split_s;
    case TASK_SAMPLE:
        return task->launches * host->sample_s * placement->model->n_vocab;
    case TASK_SYNC:
        return task->launches * host->sync_s;
    case TASK_ALL_REDUCE:
        return task->launches * host->collective_issue_s;
    case TASK_HOST_LAYER:
        return bytes / (host->memory_gbs * 1e9);
    case TASK_HOST_ATTENTION:
        return fmax(bytes / (host->memory_gbs * 1e9),
                    cells * task->flops_per_cell / (threads * host->thread_flops));
    case TASK_EMBED:
    case TASK_KV_STORE:
        return host_s(timing, task, bytes);
    case TASK_MASK:
    case TASK_HOST_STATE:
        return bytes / (host->thread_gbs * 1e9);
    default:
        return task->launches *
               (program_task_class(task->kind) == TASK_CLASS_KERNEL || !task->blocking
                    ? host->launch_s
                    : host->copy_s);
    }
}

/* A device that is slowed on purpose starts no kernel before another has ended, and has a kernel
 * before and one behind each task; no product shares its launch there, and no window is read while
 * other kernels run. */
static double slowed_s(const struct kernel_table *table, const struct machine_device *device,
                       const struct program_task *task, double cells)
{
    struct program_task alone = *task;
    double time_s;

    alone.kernels = task->kernels > 0 ? task->kernels : 1;
    time_s = kernel_table_s(table, &alone, cells, NULL);
    if (time_s < 0)
        return -1;
    time_s += kernel_table_read_ahead(task, cells) / (device->memory_gbs * 1e9);
    return (time_s + table->pace_inside_s) * device->slowdown + table->pace_behind_s;
}

/* `gaps`: of the devices. */
static double kernel_s(const struct timing *timing, const struct program_task *task, double cells,
                       struct kernel_gap *gaps)
{
    uint32_t d = (uint32_t)task->device;
    const struct machine_device *device = device_of(timing->placement, d);
    bool slowed = device->slowdown > 1;
    double time_s = -1;

    if (timing->tables[d] != NULL)
        time_s = slowed ? slowed_s(timing->tables[d], device, task, cells)
                        : kernel_table_s(timing->tables[d], task, cells, &gaps[d]);
    if (time_s >= 0)
        return time_s;
    time_s = cost_kernel_s(timing->placement->machine, device, task, cells);
    kernel_gap_pass(&gaps[d], time_s, 0);
    return slowed ? time_s * device->slowdown : time_s;
}

/* Of the slowest member; below 0 where one has no measured sums. */
static double measured_sum_s(const struct timing *timing, const struct program_task *task)
{
    uint32_t count = timing->placement->device_count;
    double slowest_s = -1;

    for (uint32_t d = 0; d < count; d++) {
        double time_s = timing->tables[d] != NULL
                            ? kernel_table_sum_s(timing->tables[d], count, task->bytes)
                            : -1;

        if (time_s < 0)
            return -1;
        slowest_s = fmax(slowest_s, time_s);
    }
    return slowest_s;
}

/* Members convert the payload to bf16 and back: four bytes in, two out, and the reverse. */
static double collective_work_s(const struct timing *timing, const struct program_task *task)
{
    const struct placement *placement = timing->placement;
    double slowest_s = 0;

    for (uint32_t d = 0; task->kernels > 0 && d < placement->device_count; d++) {
        struct program_task convert = {.kind = TASK_ADD, .kernels = 2, .bytes = task->bytes * 6};
        double time_s = cost_kernel_s(placement->machine, device_of(placement, d), &convert, 0);

        slowest_s = time_s > slowest_s ? time_s : slowest_s;
    }
    return placement->machine->collective.latency_s + slowest_s;
}

/* A measured sum has its way over the links in it. */
static void time_collective(const struct timing *timing, const struct program_task *task,
                            struct engine_task *engine_task)
{
    double measured_s = measured_sum_s(timing, task);

    engine_task->work_s = measured_s >= 0 ? measured_s : collective_work_s(timing, task);
    engine_task->flow_bytes = measured_s >= 0 ? 0 : timing_flow_bytes(timing, task, task->bytes);
}

/* What is measured of a copy on the compute queue; below 0 where nothing is. A link that is held
 * back on purpose holds it until its bytes could have gone. */
static double measured_copy_s(const struct timing *timing, const struct program_task *task,
                              uint32_t tokens, double bytes)
{
    const struct kernel_table *table = timing->tables[task->device];
    double time_s, paced_gbs;

    if (table == NULL || !kernel_table_times_copy(task->kind) ||
        !program_task_is_on_compute(task) || task->pageable)
        return -1;
    time_s = kernel_table_plain_s(table, task->kind, tokens, bytes);
    paced_gbs = timing->device_link[task->device]->paced_gbs;
    return time_s >= 0 && paced_gbs > 0 ? fmax(time_s, bytes / (paced_gbs * 1e9)) : time_s;
}

static double copy_latency_s(const struct timing *timing, const struct program_task *task)
{
    const struct kernel_table *table = timing->tables[task->device];

    if (task->kind == TASK_PEER)
        return timing->peer_latency_s[task->device][task->peer];
    return table != NULL && table->copy_s > 0 && !program_task_is_on_compute(task)
               ? table->copy_s
               : timing->device_latency_s[task->device];
}

/* What a device's next kernel takes longer because it waits for another queue. */
static double wait_s(const struct timing *timing, const struct program_task *task)
{
    if (task->kind != TASK_WAIT || !program_task_is_on_compute(task) ||
        timing->tables[task->device] == NULL)
        return 0;
    return fmax(0, kernel_table_plain_s(timing->tables[task->device], TASK_WAIT, task->tokens, 0));
}

static void time_copy(const struct timing *timing, const struct program_task *task, uint32_t tokens,
                      double bytes, struct engine_task *engine_task)
{
    double measured_s = measured_copy_s(timing, task, tokens, bytes);

    engine_task->work_s = measured_s >= 0 ? measured_s : copy_latency_s(timing, task);
    engine_task->flow_bytes = measured_s >= 0 ? 0 : timing_flow_bytes(timing, task, bytes);
    if (measured_s < 0 && task->row_bytes > 0)
        engine_task->work_s += bytes / task->row_bytes * timing->device_link[task->device]->row_s;
}

/* Until the host thread goes on that waits for a device; `next`: it has waited for another one. */
static double ready_s(const struct timing *timing, const struct program_task *task, uint32_t tokens,
                      bool next)
{
    const struct kernel_table *table = timing->tables[task->device];

    if (table == NULL)
        return 0;
    if (next)
        return table->ready_next_s;
    return fmax(0, kernel_table_plain_s(table, TASK_SYNC, tokens, 0)) +
           (timing->placement->device_count - 1) * table->ready_each_s;
}

static void time_task(const struct timing *timing, const struct program *program, size_t index,
                      struct program_cells cells, struct kernel_gap *gaps,
                      struct engine_task *engine_task)
{
    const struct placement *placement = timing->placement;
    const struct program_task *task = &program->tasks[index];
    double n = program_task_cells(task, cells);
    double bytes = task->bytes + n * task->bytes_per_cell;

    engine_task->issue_s = issue_s(timing, task, n);
    switch (program_task_class(task->kind)) {
    case TASK_CLASS_KERNEL:
        engine_task->work_s = kernel_s(timing, task, n, gaps);
        break;
    case TASK_CLASS_COPY:
        time_copy(timing, task, program->tokens, bytes, engine_task);
        break;
    case TASK_CLASS_COLLECTIVE:
        time_collective(timing, task, engine_task);
        for (uint32_t d = 0; d < placement->device_count; d++) {
            kernel_gap_pass(&gaps[d], engine_task->work_s, 0);
            gaps[d].last = task->kind;
        }
        break;
    default:
        engine_task->work_s =
            task->kind == TASK_SYNC
                ? ready_s(timing, task, program->tokens, index > 0 && task[-1].kind == TASK_SYNC)
                : wait_s(timing, task);
    }
}

/* All tasks: how long one takes may depend on those before it. */
static void time_tasks(const struct timing *timing, const struct program *program,
                       struct program_cells cells, struct engine_task *tasks)
{
    struct kernel_gap gaps[MACHINE_DEVICES_MAX] = {{.s = 0}};

    for (size_t i = 0; i < program->task_count; i++)
        time_task(timing, program, i, cells, gaps, &tasks[i]);
    for (size_t i = 0; i < program->task_count; i++)
        if (program->tasks[i].device >= 0) {
            tasks[i].issue_s += begin_s(timing);
            break;
        }
}

static bool has_tables(const struct timing *timing)
{
    for (uint32_t d = 0; d < timing->placement->device_count; d++)
        if (timing->tables[d] != NULL)
            return true;
    return false;
}

static size_t count_windowed(const struct program *program, uint32_t *windowed)
{
    size_t count = 0;

    for (size_t i = 0; i < program->task_count; i++) {
        if (program->tasks[i].window == PROGRAM_WINDOW_NONE)
            continue;
        if (windowed != NULL)
            windowed[count] = (uint32_t)i;
        count++;
    }
    return count;
}

static struct engine_schedule *make_schedule(const struct timing *timing,
                                             const struct program *program,
                                             struct program_cells cells, struct error *err)
{
    struct engine_task *tasks = calloc(program->task_count + 1, sizeof *tasks);
    struct engine_schedule *schedule;

    if (tasks == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu tasks", program->task_count);
        return NULL;
    }
    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];
        enum task_class class = program_task_class(task->kind);

        tasks[i] = (struct engine_task){
            .queues = task->queues,
            .dependency_first = task->dependency_first,
            .dependency_count = task->dependency_count,
            .route = class == TASK_CLASS_COPY || class == TASK_CLASS_COLLECTIVE
                         ? route_of(timing, task)
                         : ENGINE_NO_ROUTE,
            .blocking = task->blocking,
        };
    }
    time_tasks(timing, program, cells, tasks);
    schedule = engine_schedule_new(tasks, program->task_count, program->dependencies,
                                   program->dependency_count, err);
    free(tasks);
    return schedule;
}

struct timed_program *timed_program_new(const struct timing *timing, struct program_step step,
                                        struct program_cells cells, struct error *err)
{
    struct timed_program *timed = calloc(1, sizeof *timed);

    if (timed == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a program");
        return NULL;
    }
    timed->cells = cells;
    timed->program = program_lower(timing->placement, step, err);
    if (timed->program == NULL)
        goto failed;
    timed->windowed_count = count_windowed(timed->program, NULL);
    timed->windowed = malloc((timed->windowed_count + 1) * sizeof *timed->windowed);
    if (timed->windowed == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu tasks", timed->windowed_count);
        goto failed;
    }
    count_windowed(timed->program, timed->windowed);
    timed->schedule = make_schedule(timing, timed->program, cells, err);
    if (timed->schedule == NULL)
        goto failed;
    return timed;

failed:
    timed_program_free(timed);
    return NULL;
}

void timed_program_free(struct timed_program *timed)
{
    if (timed == NULL)
        return;
    program_free(timed->program);
    engine_schedule_free(timed->schedule);
    free(timed->windowed);
    free(timed);
}

void timed_program_set_cells(const struct timing *timing, struct timed_program *timed,
                             struct program_cells cells)
{
    struct engine_task *tasks = engine_schedule_tasks(timed->schedule);

    if (timed->cells.base == cells.base && timed->cells.sliding == cells.sliding)
        return;
    timed->cells = cells;
    if (has_tables(timing)) {
        time_tasks(timing, timed->program, cells, tasks);
        return;
    }
    for (size_t i = 0; i < timed->windowed_count; i++) {
        struct kernel_gap gaps[MACHINE_DEVICES_MAX] = {{.s = 0}};
        uint32_t task = timed->windowed[i];

        time_task(timing, timed->program, task, cells, gaps, &tasks[task]);
    }
}

/* ---- directions of links ---- */

uint32_t timing_direction_count(const struct timing *timing)
{
    return 2 * timing->placement->machine->link_count;
}

void timing_direction_name(const struct timing *timing, uint32_t direction, char *name, size_t size)
{
    const struct machine *machine = timing->placement->machine;
    const struct machine_link *link = &machine->links[direction / 2];
    bool down = direction % 2 == 0;

    snprintf(name, size, "%s>%s", machine->nodes[down ? link->from : link->to].name,
             machine->nodes[down ? link->to : link->from].name);
}

double timing_direction_use_gbs(const struct timing *timing, uint32_t direction)
{
    unsigned part = direction % 2 == 0 ? LINK_DOWN : LINK_UP;

    return engine_link_use_gbs(timing->engine, LINK_PARTS * (direction / 2) + part);
}

/* ---- what limited a run ---- */

/* Resources by number: the host thread, collectives, devices, then each link's directions. */
enum {
    RESOURCE_HOST,
    RESOURCE_COLLECTIVE,
    RESOURCE_DEVICES,
    RESOURCE_LINKS = 2 + MACHINE_DEVICES_MAX
};

static void resource_name(const struct timing *timing, unsigned resource, char *name, size_t size)
{
    if (resource == RESOURCE_HOST) {
        snprintf(name, size, "host thread");
    } else if (resource == RESOURCE_COLLECTIVE) {
        snprintf(name, size, "all-reduce");
    } else if (resource < RESOURCE_LINKS) {
        snprintf(name, size, "%s", device_of(timing->placement, resource - RESOURCE_DEVICES)->name);
    } else {
        timing_direction_name(timing, resource - RESOURCE_LINKS, name, size);
    }
}

/* Collectives hold their members' streams, unless they run beside them: that time is theirs
 * alone, and so is what they take of links. */
void timing_read_busy(const struct timing *timing, struct timing_busy *busy)
{
    const struct engine *engine = timing->engine;
    double collective_s = engine_queue_busy_s(engine, PROGRAM_QUEUE_COLLECTIVE);

    *busy = (struct timing_busy){.elapsed_s = engine_time_s(engine)};
    busy->busy_s[RESOURCE_HOST] = engine_host_busy_s(engine);
    busy->busy_s[RESOURCE_COLLECTIVE] =
        collective_s + engine_queue_busy_s(engine, PROGRAM_QUEUE_BESIDE);
    for (uint32_t d = 0; d < timing->placement->device_count; d++)
        busy->busy_s[RESOURCE_DEVICES + d] =
            engine_queue_busy_s(engine, program_queue_compute(d)) - collective_s;
    for (uint32_t l = 0; l < timing->placement->machine->link_count; l++)
        for (unsigned part = LINK_DOWN; part <= LINK_UP; part++)
            busy->busy_s[RESOURCE_LINKS + 2 * l + part] =
                engine_link_busy_s(engine, LINK_PARTS * l + part);
}

void timing_add_busy(struct timing_busy *sum, const struct timing_busy *before,
                     const struct timing_busy *after, double times)
{
    sum->elapsed_s += times * (after->elapsed_s - before->elapsed_s);
    for (unsigned r = 0; r < TIMING_RESOURCES_MAX; r++)
        sum->busy_s[r] += times * (after->busy_s[r] - before->busy_s[r]);
}

struct timing_bound timing_bound(const struct timing *timing, const struct timing_busy *busy)
{
    struct timing_bound bound = {.ratio = 0};
    int first = -1, second = -1;

    for (int r = 0; r < TIMING_RESOURCES_MAX; r++) {
        if (busy->busy_s[r] <= 0)
            continue;
        if (first < 0 || busy->busy_s[r] > busy->busy_s[first]) {
            second = first;
            first = r;
        } else if (second < 0 || busy->busy_s[r] > busy->busy_s[second]) {
            second = r;
        }
    }
    if (first >= 0) {
        resource_name(timing, (unsigned)first, bound.resource, sizeof bound.resource);
        bound.ratio = fmin(1, busy->busy_s[first] / busy->elapsed_s);
    }
    if (second >= 0) {
        resource_name(timing, (unsigned)second, bound.second, sizeof bound.second);
        bound.second_ratio = fmin(1, busy->busy_s[second] / busy->elapsed_s);
    }
    return bound;
}
