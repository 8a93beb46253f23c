/* Two timelines of the same programs, task by task: a recorded run beside its prediction, or two
 * recorded runs. */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include "sim/timeline.h"

/* Tasks of a kind. In medians steps that are alike, of as many tokens over as many cells, count as
 * one, whose tasks took the mean of theirs: clocks of GPUs tick at a quarter of a microsecond, and
 * there are tasks that take one. */
struct compare_kind {
    enum task_kind kind;
    size_t count;
    double measured_s, predicted_s; /* sums of durations */
    double median_s;                /* median of |predicted - measured| of single tasks */
    double median_ratio; /* that of |predicted - measured| / measured, of tasks that took time; NAN
                            where none did */
};

/* A queue in all steps; busy while a task holds it. */
struct compare_queue {
    unsigned queue;
    double measured_busy_s, measured_idle_s, predicted_busy_s, predicted_idle_s;
};

struct compare_step {
    size_t number; /* of the measured one */
    uint32_t tokens, depth;
    double measured_s, predicted_s; /* from the step's start to its last end */
};

/* By how much a task moved the end of its step on, behind the tasks issued before it. Over all
 * tasks that adds up to the steps' times, so the differences add up to the whole difference:
 * what waits, launches and gaps before a task took is in it, and a task beside a longer one has
 * none. */
struct compare_task {
    size_t step; /* index */
    uint32_t task;
    double measured_s, predicted_s; /* durations */
    double contribution_s;          /* predicted - measured */
};

struct comparison {
    struct compare_kind kinds[TASK_KIND_COUNT];
    size_t kind_count;
    struct compare_queue queues[PROGRAM_QUEUE_DEVICES + 3 * MACHINE_DEVICES_MAX];
    size_t queue_count;
    struct compare_step *steps;
    size_t step_count;
    struct compare_task *tasks; /* those that contribute most, by size */
    size_t task_count;
    double measured_s, predicted_s; /* of all steps */
};

/**
 * The first place where the programs of two timelines differ: another task, or another amount of
 * work, as other shares give.
 *
 * @param text  set to a sentence that names it: step, task, kind, layer and queue in each
 * @return false where they are the same
 */
bool compare_find_difference(const struct timeline *measured, const struct timeline *predicted,
                             char *text, size_t size);

/**
 * Compares timelines whose programs are the same.
 *
 * @param most contributing tasks to list, at most
 * @return a comparison for comparison_free(), or NULL with `err` set (ERROR_MEMORY)
 */
struct comparison *compare_timelines(const struct timeline *measured,
                                     const struct timeline *predicted, size_t most,
                                     struct error *err);
void comparison_free(struct comparison *comparison);

#endif
