/* Steps, tasks and rates in memory; files are in timeline_file.c, the simulation of a timeline in
 * timeline_simulate.c. */
#include "sim/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct timeline *timeline_new(struct error *err)
{
    struct timeline *timeline = calloc(1, sizeof *timeline);

    if (timeline == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a timeline");
        return NULL;
    }
    timeline->model = timeline->quant = "";
    timeline->arena = arena_new(err);
    if (timeline->arena == NULL) {
        timeline_free(timeline);
        return NULL;
    }
    return timeline;
}

static void close_step(struct timeline_step *step)
{
    free(step->tasks);
    free(step->dependencies);
}

void timeline_clear(struct timeline *timeline)
{
    for (size_t i = 0; i < timeline->step_count; i++)
        close_step(&timeline->steps[i]);
    timeline->step_count = 0;
    timeline->rate_count = 0;
}

void timeline_free(struct timeline *timeline)
{
    if (timeline == NULL)
        return;
    timeline_clear(timeline);
    free(timeline->steps);
    free(timeline->directions);
    free(timeline->rates);
    arena_free(timeline->arena);
    free(timeline);
}

void timeline_set_placement(struct timeline *timeline, const struct placement *placement)
{
    timeline->model = placement->model->name;
    timeline->quant = placement->model->quant;
    timeline->n_ctx = placement->n_ctx;
    timeline->device_count = placement->device_count;
    for (uint32_t d = 0; d < placement->device_count; d++) {
        const struct machine_device *device = &placement->machine->devices[placement->devices[d]];
        struct timeline_device *to = &timeline->devices[d];

        *to = (struct timeline_device){.slowdown = 1};
        snprintf(to->name, sizeof to->name, "%s", device->name);
        snprintf(to->gpu, sizeof to->gpu, "%s", device->gpu);
    }
}

/* ---- steps ---- */

static struct timeline_task task_of(const struct program *program, const struct program_task *task,
                                    struct program_cells cells)
{
    const struct model *model = program->placement->model;
    double n = program_task_cells(task, cells);

    return (struct timeline_task){
        .kind = task->kind,
        .device = task->device,
        .peer = task->kind == TASK_PEER ? task->peer : PROGRAM_AT_HOST,
        .layer = task->layer,
        .tensor = task->tensor >= 0 ? model->tensors[task->tensor].name : NULL,
        .part = task->part,
        .blocking = task->blocking,
        .queues = task->queues,
        .tokens = task->tokens,
        .bytes = task->bytes + n * task->bytes_per_cell,
        .flops = task->flops + n * task->flops_per_cell,
        .dependency_first = task->dependency_first,
        .dependency_count = task->dependency_count,
        .start_s = NAN,
        .end_s = NAN,
        .issue_from_s = NAN,
        .issue_to_s = NAN,
    };
}

struct timeline_step *timeline_add_step(struct timeline *timeline, const struct program *program,
                                        struct program_cells cells, struct error *err)
{
    struct timeline_step step = {.number = timeline->step_count,
                                 .task_count = program->task_count,
                                 .dependency_count = program->dependency_count,
                                 .cells = cells};

    if (timeline->step_count == timeline->step_capacity) {
        size_t capacity = timeline->step_capacity > 0 ? 2 * timeline->step_capacity : 16;
        struct timeline_step *grown = realloc(timeline->steps, capacity * sizeof *grown);

        if (grown == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for %zu steps", capacity);
            return NULL;
        }
        timeline->steps = grown;
        timeline->step_capacity = capacity;
    }
    step.tasks = malloc((step.task_count + 1) * sizeof *step.tasks);
    step.dependencies = malloc((step.dependency_count + 1) * sizeof *step.dependencies);
    if (step.tasks == NULL || step.dependencies == NULL) {
        close_step(&step);
        error_set(err, ERROR_MEMORY, "no memory for %zu tasks", step.task_count);
        return NULL;
    }
    for (size_t i = 0; i < step.task_count; i++)
        step.tasks[i] = task_of(program, &program->tasks[i], cells);
    if (step.dependency_count > 0)
        memcpy(step.dependencies, program->dependencies,
               step.dependency_count * sizeof *step.dependencies);
    timeline->steps[timeline->step_count] = step;
    return &timeline->steps[timeline->step_count++];
}

void timeline_share_launch(struct timeline_task *tasks, size_t count)
{
    double begin_s = tasks[0].start_s, whole_s = tasks[count - 1].end_s - begin_s, bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += tasks[i].bytes;
    for (size_t i = 0; i < count && count > 1 && bytes > 0; i++) {
        tasks[i].start_s = begin_s;
        begin_s += whole_s * tasks[i].bytes / bytes;
        tasks[i].end_s = begin_s;
    }
}

int timeline_keep_step(struct timeline *timeline, size_t number, struct error *err)
{
    struct timeline_step kept;
    size_t index = 0;

    while (index < timeline->step_count && timeline->steps[index].number != number)
        index++;
    if (index == timeline->step_count)
        return error_set_at(err, ERROR_USAGE, timeline->source, 0, 0,
                            "there is no step %zu; steps %zu to %zu are", number,
                            timeline->steps[0].number, timeline->steps[index - 1].number);
    kept = timeline->steps[index];
    for (size_t i = 0; i < timeline->step_count; i++)
        if (i != index)
            close_step(&timeline->steps[i]);
    kept.start_s = 0;
    timeline->steps[0] = kept;
    timeline->step_count = 1;
    timeline->rate_count = 0;
    return 0;
}

size_t timeline_drop_shifts(struct timeline *timeline)
{
    size_t kept = 0, count = timeline->step_count;

    for (size_t i = 0; i < count; i++) {
        if (timeline->steps[i].shift)
            close_step(&timeline->steps[i]);
        else
            timeline->steps[kept++] = timeline->steps[i];
    }
    timeline->step_count = kept;
    return count - kept;
}

double timeline_step_end_s(const struct timeline_step *step)
{
    double last_s = 0;

    for (size_t i = 0; i < step->task_count; i++)
        last_s = fmax(last_s, step->tasks[i].end_s);
    return last_s;
}

/* ---- names ---- */

unsigned timeline_task_queue(const struct timeline_task *task)
{
    unsigned queue = (unsigned)__builtin_ctzll(task->queues);

    /* A copy may hold the device's compute stream, too. */
    if (program_task_class(task->kind) == TASK_CLASS_COPY && task->device >= 0)
        for (unsigned copies = program_queue_copy_in((uint32_t)task->device);
             copies <= program_queue_copy_out((uint32_t)task->device); copies++)
            if ((task->queues >> copies & 1) != 0)
                return copies;
    return queue;
}

void timeline_queue_name(const struct timeline *timeline, unsigned queue, char *text, size_t size)
{
    static const char *const hosts[PROGRAM_QUEUE_DEVICES] = {
        [PROGRAM_QUEUE_HOST] = "host",
        [PROGRAM_QUEUE_WORKERS] = "workers",
        [PROGRAM_QUEUE_COLLECTIVE] = "collective",
        [PROGRAM_QUEUE_BESIDE] = "beside",
    };
    static const char *const parts[] = {"", " copy in", " copy out"};

    if (queue < PROGRAM_QUEUE_DEVICES)
        snprintf(text, size, "%s", hosts[queue]);
    else
        snprintf(text, size, "%s%s", timeline->devices[(queue - PROGRAM_QUEUE_DEVICES) / 3].name,
                 parts[(queue - PROGRAM_QUEUE_DEVICES) % 3]);
}

void timeline_task_text(const struct timeline *timeline, const struct timeline_task *task,
                        char *text, size_t size)
{
    program_what_text(task->kind, task->part, task->tensor, task->layer,
                      task->peer >= 0 ? timeline->devices[task->peer].name : NULL, text, size);
}

/* ---- rates ---- */

int timeline_add_rate(struct timeline *timeline, struct timeline_rate rate, struct error *err)
{
    if (timeline->rate_count == timeline->rate_capacity) {
        size_t capacity = timeline->rate_capacity > 0 ? 2 * timeline->rate_capacity : 64;
        struct timeline_rate *grown = realloc(timeline->rates, capacity * sizeof *grown);

        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu rates of links", capacity);
        timeline->rates = grown;
        timeline->rate_capacity = capacity;
    }
    timeline->rates[timeline->rate_count++] = rate;
    return 0;
}

/* A copy begins or ends. */
struct change {
    double time_s, gbs;
    uint32_t direction;
    bool begins;
    size_t order;
};

/* A copy shorter than the files' resolution has no rate. */
#define SHORTEST_S 1e-9

static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->time_s != y->time_s)
        return x->time_s < y->time_s ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static bool goes_out(const struct timeline_task *task)
{
    return task->kind == TASK_KV_ROWS || task->kind == TASK_ACTIVATIONS ||
           task->kind == TASK_STATE_OUT || task->kind == TASK_LOGITS;
}

/* The direction of a copy, which is added where it is new; there is room for all pairs. */
static uint32_t direction_of(struct timeline *timeline, const struct timeline_task *task)
{
    const char *device = timeline->devices[task->device].name;
    const char *from = goes_out(task) || task->peer >= 0 ? device : "host";
    const char *to = task->peer >= 0  ? timeline->devices[task->peer].name
                     : goes_out(task) ? "host"
                                      : device;
    char name[40];

    snprintf(name, sizeof name, "%s>%s", from, to);
    for (uint32_t i = 0; i < timeline->direction_count; i++)
        if (strcmp(timeline->directions[i], name) == 0)
            return i;
    assert(timeline->direction_count < TIMELINE_DIRECTIONS_MAX);
    memcpy(timeline->directions[timeline->direction_count], name, sizeof name);
    return timeline->direction_count++;
}

static bool has_rate(const struct timeline_task *task)
{
    return program_task_class(task->kind) == TASK_CLASS_COPY && task->device >= 0 &&
           task->end_s - task->start_s >= SHORTEST_S && task->bytes > 0;
}

static size_t count_changes(const struct timeline *timeline)
{
    size_t count = 0;

    for (size_t s = 0; s < timeline->step_count; s++)
        for (size_t i = 0; i < timeline->steps[s].task_count; i++)
            count += has_rate(&timeline->steps[s].tasks[i]) ? 2 : 0;
    return count;
}

static void find_changes(struct timeline *timeline, struct change *changes)
{
    size_t count = 0;

    for (size_t s = 0; s < timeline->step_count; s++) {
        const struct timeline_step *step = &timeline->steps[s];

        for (size_t i = 0; i < step->task_count; i++) {
            const struct timeline_task *task = &step->tasks[i];
            struct change change = {.order = count, .begins = true};

            if (!has_rate(task))
                continue;
            change.time_s = step->start_s + task->start_s;
            change.gbs = task->bytes / (task->end_s - task->start_s) / 1e9;
            change.direction = direction_of(timeline, task);
            changes[count++] = change;
            change.time_s = step->start_s + task->end_s;
            change.order = count;
            change.begins = false;
            changes[count++] = change;
        }
    }
}

/* Copies under way are counted, so that a direction without any carries exactly nothing. */
static int sum_changes(struct timeline *timeline, const struct change *changes, size_t count,
                       struct error *err)
{
    struct {
        double gbs;
        uint32_t copies;
    } *now = calloc(TIMELINE_DIRECTIONS_MAX, sizeof *now);
    int status = 0;

    if (now == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the rates of links");
    for (size_t i = 0; i < count && status == 0; i++) {
        uint32_t direction = changes[i].direction;

        if (changes[i].begins) {
            now[direction].copies++;
            now[direction].gbs += changes[i].gbs;
        } else {
            now[direction].copies--;
            now[direction].gbs -= changes[i].gbs;
        }
        if (now[direction].copies == 0)
            now[direction].gbs = 0;
        status = timeline_add_rate(timeline,
                                   (struct timeline_rate){.direction = direction,
                                                          .time_s = changes[i].time_s,
                                                          .gbs = fmax(now[direction].gbs, 0)},
                                   err);
    }
    free(now);
    return status;
}

int timeline_estimate_rates(struct timeline *timeline, struct error *err)
{
    size_t count = count_changes(timeline);
    struct change *changes;
    int status;

    if (timeline->rate_count > 0 || count == 0)
        return 0;
    if (timeline->directions == NULL)
        timeline->directions = calloc(TIMELINE_DIRECTIONS_MAX, sizeof *timeline->directions);
    changes = malloc(count * sizeof *changes);
    if (timeline->directions == NULL || changes == NULL) {
        free(changes);
        return error_set(err, ERROR_MEMORY, "no memory for %zu rates of links", count);
    }
    find_changes(timeline, changes);
    qsort(changes, count, sizeof *changes, by_time);
    status = sum_changes(timeline, changes, count, err);
    free(changes);
    return status;
}
