#include "sim/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/values.h"

/* ---- whether the programs are the same ---- */

static bool is_same_text(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

/* Files have whole bytes and operations. */
static bool is_same_work(double a, double b)
{
    return fabs(a - b) <= 1 + 1e-9 * fabs(a);
}

static bool is_same_place(const struct timeline_task *a, const struct timeline_task *b)
{
    return a->kind == b->kind && a->device == b->device && a->peer == b->peer &&
           a->layer == b->layer && a->part == b->part && a->queues == b->queues &&
           is_same_text(a->tensor, b->tensor);
}

/* Slices of other shares are other work in the same place. */
static bool is_same_task(const struct timeline_task *a, const struct timeline_task *b)
{
    return is_same_place(a, b) && is_same_work(a->bytes, b->bytes) &&
           is_same_work(a->flops, b->flops);
}

/* "matmul blk.3.attn_q.weight (layer 3) on CUDA0", with its work where that is what differs. */
static void describe(const struct timeline *timeline, const struct timeline_task *task, bool work,
                     char *text, size_t size)
{
    int length;
    char what[120], queue[48], layer[24] = "no layer";

    timeline_task_text(timeline, task, what, sizeof what);
    timeline_queue_name(timeline, timeline_task_queue(task), queue, sizeof queue);
    if (task->layer >= 0)
        snprintf(layer, sizeof layer, "layer %d", task->layer);
    length = snprintf(text, size, "%s (%s) on %s", what, layer, queue);
    if (work && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, " of %.0f bytes and %.0f operations",
                 task->bytes, task->flops);
}

static bool find_in_step(const struct timeline *measured, const struct timeline *predicted,
                         size_t index, char *text, size_t size)
{
    const struct timeline_step *a = &measured->steps[index], *b = &predicted->steps[index];
    char in_a[280] = "no task", in_b[280] = "no task";
    size_t i = 0;
    bool work;

    if (a->step.tokens != b->step.tokens || a->shift != b->shift) {
        snprintf(text, size, "step %zu has %u tokens in %.60s and %u in %.60s", a->number,
                 a->step.tokens, measured->source, b->step.tokens, predicted->source);
        return true;
    }
    while (i < a->task_count && i < b->task_count && is_same_task(&a->tasks[i], &b->tasks[i]))
        i++;
    if (i == a->task_count && i == b->task_count)
        return false;
    work = i < a->task_count && i < b->task_count && is_same_place(&a->tasks[i], &b->tasks[i]);
    if (i < a->task_count)
        describe(measured, &a->tasks[i], work, in_a, sizeof in_a);
    if (i < b->task_count)
        describe(predicted, &b->tasks[i], work, in_b, sizeof in_b);
    snprintf(text, size, "task %zu of step %zu is %s in %.60s, and %s in %.60s", i, a->number, in_a,
             measured->source, in_b, predicted->source);
    return true;
}

bool compare_find_difference(const struct timeline *measured, const struct timeline *predicted,
                             char *text, size_t size)
{
    if (measured->device_count != predicted->device_count) {
        snprintf(text, size, "%.60s is of %u devices, %.60s of %u", measured->source,
                 measured->device_count, predicted->source, predicted->device_count);
        return true;
    }
    for (size_t i = 0; i < measured->step_count && i < predicted->step_count; i++)
        if (find_in_step(measured, predicted, i, text, size))
            return true;
    if (measured->step_count == predicted->step_count)
        return false;
    snprintf(text, size, "%.60s has %zu steps, %.60s %zu", measured->source, measured->step_count,
             predicted->source, predicted->step_count);
    return true;
}

/* ---- kinds ---- */

static double duration_s(const struct timeline_task *task)
{
    return task->end_s - task->start_s;
}

static bool is_alike(const struct timeline_step *a, const struct timeline_step *b)
{
    return a->task_count == b->task_count && a->step.tokens == b->step.tokens &&
           a->step.outputs == b->step.outputs && a->step.sequences == b->step.sequences &&
           a->cells.base == b->cells.base && a->cells.sliding == b->cells.sliding;
}

static bool is_first_of_its_like(const struct timeline *timeline, size_t step)
{
    for (size_t s = 0; s < step; s++)
        if (is_alike(&timeline->steps[s], &timeline->steps[step]))
            return false;
    return true;
}

/* A task's time in the steps that are like `like`, of which `timeline` may be a prediction. */
static double mean_s(const struct timeline *timeline, const struct timeline *measured, size_t like,
                     size_t task)
{
    double sum_s = 0;
    size_t count = 0;

    for (size_t s = like; s < measured->step_count; s++)
        if (is_alike(&measured->steps[s], &measured->steps[like])) {
            sum_s += duration_s(&timeline->steps[s].tasks[task]);
            count++;
        }
    return sum_s / (double)count;
}

/* `errors` and `ratios` have room for all tasks. */
static void compare_kind(const struct timeline *measured, const struct timeline *predicted,
                         struct compare_kind *row, double *errors, double *ratios)
{
    size_t error_count = 0, ratio_count = 0;

    for (size_t s = 0; s < measured->step_count; s++) {
        bool is_first = is_first_of_its_like(measured, s);

        for (size_t i = 0; i < measured->steps[s].task_count; i++) {
            double one_s, other_s;

            if (measured->steps[s].tasks[i].kind != row->kind)
                continue;
            row->measured_s += duration_s(&measured->steps[s].tasks[i]);
            row->predicted_s += duration_s(&predicted->steps[s].tasks[i]);
            row->count++;
            if (!is_first)
                continue;
            one_s = mean_s(measured, measured, s, i);
            other_s = mean_s(predicted, measured, s, i);
            errors[error_count++] = fabs(other_s - one_s);
            if (one_s > 0)
                ratios[ratio_count++] = fabs(other_s - one_s) / one_s;
        }
    }
    row->median_s = values_median(errors, error_count);
    row->median_ratio = values_median(ratios, ratio_count);
}

static int compare_kinds(struct comparison *comparison, const struct timeline *measured,
                         const struct timeline *predicted, size_t tasks, struct error *err)
{
    double *room = malloc((2 * tasks + 1) * sizeof *room);

    if (room == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", tasks);
    for (int kind = 0; kind < TASK_KIND_COUNT; kind++) {
        struct compare_kind row = {.kind = (enum task_kind)kind};

        compare_kind(measured, predicted, &row, room, room + tasks);
        if (row.count > 0)
            comparison->kinds[comparison->kind_count++] = row;
    }
    free(room);
    return 0;
}

/* ---- queues ---- */

/* Tasks of a queue are in order; time that two of them claim counts once. */
static double busy_s(const struct timeline *timeline, unsigned queue, bool *used)
{
    double busy = 0;

    for (size_t s = 0; s < timeline->step_count; s++) {
        const struct timeline_step *step = &timeline->steps[s];
        double free_s = 0;

        for (size_t i = 0; i < step->task_count; i++) {
            const struct timeline_task *task = &step->tasks[i];

            if ((task->queues >> queue & 1) == 0)
                continue;
            *used = true;
            busy += fmax(task->end_s - fmax(task->start_s, free_s), 0);
            free_s = fmax(free_s, task->end_s);
        }
    }
    return busy;
}

static void compare_queues(struct comparison *comparison, const struct timeline *measured,
                           const struct timeline *predicted)
{
    for (unsigned q = 0; q < timeline_queue_count(measured); q++) {
        struct compare_queue row = {.queue = q};
        bool used = false;

        row.measured_busy_s = busy_s(measured, q, &used);
        row.predicted_busy_s = busy_s(predicted, q, &used);
        row.measured_idle_s = fmax(comparison->measured_s - row.measured_busy_s, 0);
        row.predicted_idle_s = fmax(comparison->predicted_s - row.predicted_busy_s, 0);
        if (used)
            comparison->queues[comparison->queue_count++] = row;
    }
}

/* ---- steps ---- */

static int compare_steps(struct comparison *comparison, const struct timeline *measured,
                         const struct timeline *predicted, struct error *err)
{
    comparison->steps = calloc(measured->step_count + 1, sizeof *comparison->steps);
    if (comparison->steps == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu steps", measured->step_count);
    for (size_t s = 0; s < measured->step_count; s++) {
        const struct timeline_step *step = &measured->steps[s];
        struct compare_step row = {.number = step->number,
                                   .tokens = step->step.tokens,
                                   .depth = step->depth,
                                   .measured_s = timeline_step_end_s(step),
                                   .predicted_s = timeline_step_end_s(&predicted->steps[s])};

        comparison->measured_s += row.measured_s;
        comparison->predicted_s += row.predicted_s;
        comparison->steps[s] = row;
    }
    comparison->step_count = measured->step_count;
    return 0;
}

/* ---- tasks ---- */

/* Ties go by issue order. */
static int by_contribution(const void *a, const void *b)
{
    const struct compare_task *x = a, *y = b;
    double sizes[] = {fabs(x->contribution_s), fabs(y->contribution_s)};

    if (sizes[0] != sizes[1])
        return sizes[0] > sizes[1] ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* By how much a task moves `*end_s` on. */
static double advance_s(const struct timeline_task *task, double *end_s)
{
    double by_s = fmax(task->end_s - *end_s, 0);

    *end_s += by_s;
    return by_s;
}

static size_t add_tasks(struct compare_task *tasks, size_t count, size_t index,
                        const struct timeline_step *measured, const struct timeline_step *predicted)
{
    double measured_end_s = 0, predicted_end_s = 0;

    for (size_t i = 0; i < measured->task_count; i++) {
        const struct timeline_task *one = &measured->tasks[i], *other = &predicted->tasks[i];
        double by_s = advance_s(one, &measured_end_s);

        tasks[count++] =
            (struct compare_task){.step = index,
                                  .task = (uint32_t)i,
                                  .measured_s = duration_s(one),
                                  .predicted_s = duration_s(other),
                                  .contribution_s = advance_s(other, &predicted_end_s) - by_s};
    }
    return count;
}

static int compare_tasks(struct comparison *comparison, const struct timeline *measured,
                         const struct timeline *predicted, size_t tasks, size_t most,
                         struct error *err)
{
    size_t count = 0;

    comparison->tasks = malloc((tasks + 1) * sizeof *comparison->tasks);
    if (comparison->tasks == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", tasks);
    for (size_t s = 0; s < measured->step_count; s++)
        count = add_tasks(comparison->tasks, count, s, &measured->steps[s], &predicted->steps[s]);
    qsort(comparison->tasks, count, sizeof *comparison->tasks, by_contribution);
    comparison->task_count = count < most ? count : most;
    return 0;
}

/* ---- all ---- */

struct comparison *compare_timelines(const struct timeline *measured,
                                     const struct timeline *predicted, size_t most,
                                     struct error *err)
{
    struct comparison *comparison = calloc(1, sizeof *comparison);
    size_t tasks = 0;

    if (comparison == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a comparison");
        return NULL;
    }
    for (size_t s = 0; s < measured->step_count; s++)
        tasks += measured->steps[s].task_count;
    if (compare_steps(comparison, measured, predicted, err) != 0 ||
        compare_kinds(comparison, measured, predicted, tasks, err) != 0 ||
        compare_tasks(comparison, measured, predicted, tasks, most, err) != 0) {
        comparison_free(comparison);
        return NULL;
    }
    compare_queues(comparison, measured, predicted);
    return comparison;
}

void comparison_free(struct comparison *comparison)
{
    if (comparison == NULL)
        return;
    free(comparison->steps);
    free(comparison->tasks);
    free(comparison);
}
