/* Tasks with their successors: what waits for whom, turned round once. */
#include <stdlib.h>
#include <string.h>

#include "sim/engine_private.h"

struct edge_visitor {
    struct engine_schedule *schedule;
    bool counting; /* first pass: count; second pass: write */
};

static void visit_edge(struct edge_visitor *visitor, uint32_t from, uint32_t to)
{
    struct engine_schedule *schedule = visitor->schedule;

    if (visitor->counting) {
        schedule->successor_first[from + 1]++;
        schedule->waits[to]++;
    } else {
        schedule->successors[schedule->successor_first[from]++] = to;
    }
}

static void visit_edges(struct edge_visitor *visitor, const uint32_t *dependencies)
{
    struct engine_schedule *schedule = visitor->schedule;
    uint32_t last[ENGINE_QUEUES_MAX];
    uint64_t seen = 0;

    for (uint32_t i = 0; i < schedule->task_count; i++) {
        const struct engine_task *task = &schedule->tasks[i];

        for (uint32_t d = 0; d < task->dependency_count; d++)
            visit_edge(visitor, dependencies[task->dependency_first + d], i);
        for (uint64_t left = task->queues; left != 0; left &= left - 1) {
            unsigned queue = (unsigned)__builtin_ctzll(left);

            if (seen >> queue & 1)
                visit_edge(visitor, last[queue], i);
            else
                schedule->queue_head[queue] = i;
            last[queue] = i;
            schedule->queue_tail[queue] = i;
        }
        seen |= task->queues;
    }
    schedule->queues = seen;
}

static int check_tasks(const struct engine_task *tasks, size_t task_count,
                       const uint32_t *dependencies, size_t dependency_count, struct error *err)
{
    for (size_t i = 0; i < task_count; i++) {
        const struct engine_task *task = &tasks[i];

        if (task->queues == 0)
            return error_set(err, ERROR_INPUT, "task %zu is on no queue", i);
        if (task->flow_bytes > 0 && task->route == ENGINE_NO_ROUTE)
            return error_set(err, ERROR_INPUT, "task %zu moves bytes over no route", i);
        if (task->dependency_first + (size_t)task->dependency_count > dependency_count)
            return error_set(err, ERROR_INPUT, "task %zu has dependencies beyond the list", i);
        for (uint32_t d = 0; d < task->dependency_count; d++)
            if (dependencies[task->dependency_first + d] >= i)
                return error_set(err, ERROR_INPUT,
                                 "task %zu depends on task %u, which is not before it", i,
                                 dependencies[task->dependency_first + d]);
    }
    return 0;
}

struct engine_schedule *engine_schedule_new(const struct engine_task *tasks, size_t task_count,
                                            const uint32_t *dependencies, size_t dependency_count,
                                            struct error *err)
{
    struct engine_schedule *schedule;
    struct edge_visitor visitor;

    if (check_tasks(tasks, task_count, dependencies, dependency_count, err) != 0)
        return NULL;
    schedule = calloc(1, sizeof *schedule);
    if (schedule == NULL)
        goto no_memory;
    schedule->task_count = task_count;
    schedule->tasks = malloc((task_count + 1) * sizeof *schedule->tasks);
    schedule->successor_first = calloc(task_count + 2, sizeof *schedule->successor_first);
    schedule->waits = malloc((task_count + 1) * sizeof *schedule->waits);
    if (schedule->tasks == NULL || schedule->successor_first == NULL || schedule->waits == NULL)
        goto no_memory;
    if (task_count > 0)
        memcpy(schedule->tasks, tasks, task_count * sizeof *tasks);
    for (size_t i = 0; i < task_count; i++)
        schedule->waits[i] = 1;
    visitor = (struct edge_visitor){.schedule = schedule, .counting = true};
    visit_edges(&visitor, dependencies);
    for (size_t i = 0; i < task_count; i++)
        schedule->successor_first[i + 1] += schedule->successor_first[i];
    schedule->successors =
        malloc((schedule->successor_first[task_count] + 1) * sizeof *schedule->successors);
    if (schedule->successors == NULL)
        goto no_memory;
    visitor.counting = false;
    visit_edges(&visitor, dependencies);
    /* Writing moved each start to its end, which is the next one's start. */
    memmove(schedule->successor_first + 1, schedule->successor_first,
            task_count * sizeof *schedule->successor_first);
    schedule->successor_first[0] = 0;
    return schedule;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory for a schedule of %zu tasks", task_count);
    engine_schedule_free(schedule);
    return NULL;
}

void engine_schedule_free(struct engine_schedule *schedule)
{
    if (schedule == NULL)
        return;
    free(schedule->tasks);
    free(schedule->successor_first);
    free(schedule->successors);
    free(schedule->waits);
    free(schedule);
}

struct engine_task *engine_schedule_tasks(struct engine_schedule *schedule)
{
    return schedule->tasks;
}

size_t engine_schedule_task_count(const struct engine_schedule *schedule)
{
    return schedule->task_count;
}
