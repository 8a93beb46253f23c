/* Comparisons of timelines: what adds up, and what is no comparison. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/compare.h"
#include "sim/predict.h"
#include "sim/timeline_simulate.h"
#include "tests/plan_cases.h"

enum { STEPS = 2, ALL = 100000 };

/* Two equal timelines of a tensor split; the tests change the second. */
struct pair {
    struct plan_case plan;
    struct timing *timing;
    struct timeline *one, *other;
};

static struct timeline *simulate(const struct pair *pair, uint32_t steps)
{
    struct timeline_workload workload = {.depth = 100, .generated = steps};
    struct error err = {0};
    struct timeline *timeline =
        timeline_simulate_workload(pair->timing, pair->plan.placement, workload, &err);

    ck_assert_msg(timeline != NULL, "%s", err.text);
    return timeline;
}

static struct pair open_steps(uint32_t steps)
{
    struct error err = {0};
    struct pair pair = {.plan = plan_cases_open("qwen3-8b:q4_k_m", PLAN_CASES_DESKTOP,
                                                "-sm tensor -ts 60/40", 4096)};

    pair.timing = timing_new(pair.plan.placement, &err);
    ck_assert_msg(pair.timing != NULL, "%s", err.text);
    pair.one = simulate(&pair, steps);
    pair.other = simulate(&pair, steps);
    return pair;
}

static struct pair open_pair(void)
{
    return open_steps(STEPS);
}

static void close_pair(struct pair *pair)
{
    timeline_free(pair->one);
    timeline_free(pair->other);
    timing_free(pair->timing);
    plan_cases_close(&pair->plan);
}

static struct comparison *compare(const struct pair *pair, size_t most)
{
    struct error err = {0};
    struct comparison *comparison = compare_timelines(pair->one, pair->other, most, &err);

    ck_assert_msg(comparison != NULL, "%s", err.text);
    return comparison;
}

/* The first task of a kind in step 0. */
static size_t find(const struct timeline *timeline, enum task_kind kind)
{
    for (size_t i = 0; i < timeline->steps[0].task_count; i++)
        if (timeline->steps[0].tasks[i].kind == kind)
            return i;
    ck_abort_msg("no %s", program_task_name(kind));
    return 0;
}

/* Lengthens a task; whatever starts behind its end moves on. */
static void lengthen(struct timeline *timeline, size_t index, double by_s)
{
    struct timeline_step *step = &timeline->steps[0];
    double end_s = step->tasks[index].end_s;

    for (size_t i = 0; i < step->task_count; i++)
        if (i != index && step->tasks[i].start_s >= end_s) {
            step->tasks[i].start_s += by_s;
            step->tasks[i].end_s += by_s;
        }
    step->tasks[index].end_s += by_s;
}

START_TEST(equal_timelines_do_not_differ)
{
    struct pair pair = open_pair();
    struct comparison *comparison = compare(&pair, 10);
    char text[600];

    ck_assert(!compare_find_difference(pair.one, pair.other, text, sizeof text));
    ck_assert_double_eq(comparison->measured_s, comparison->predicted_s);
    ck_assert_uint_eq(comparison->task_count, 10);
    ck_assert_double_eq(comparison->tasks[0].contribution_s, 0);
    for (size_t i = 0; i < comparison->kind_count; i++)
        ck_assert_double_eq(comparison->kinds[i].median_s, 0);
    comparison_free(comparison);
    close_pair(&pair);
}
END_TEST

START_TEST(a_longer_sum_is_the_whole_difference)
{
    struct pair pair = open_pair();
    size_t index = find(pair.other, TASK_ALL_REDUCE);
    struct comparison *comparison;

    lengthen(pair.other, index, 50e-6);
    comparison = compare(&pair, 3);
    ck_assert_double_eq_tol(comparison->predicted_s - comparison->measured_s, 50e-6, 1e-12);
    ck_assert_uint_eq(comparison->tasks[0].step, 0);
    ck_assert_uint_eq(comparison->tasks[0].task, index);
    ck_assert_double_eq_tol(comparison->tasks[0].contribution_s, 50e-6, 1e-12);
    ck_assert_double_le(fabs(comparison->tasks[1].contribution_s), 1e-12);
    comparison_free(comparison);
    close_pair(&pair);
}
END_TEST

START_TEST(contributions_of_all_tasks_add_up_to_the_difference)
{
    struct pair pair = open_pair();
    struct comparison *comparison;
    double sum_s = 0;

    for (size_t i = 0; i < pair.other->steps[0].task_count; i += 7)
        lengthen(pair.other, i, 1e-6 * (double)(i % 5));
    comparison = compare(&pair, ALL);
    ck_assert_uint_eq(comparison->task_count,
                      pair.one->steps[0].task_count + pair.one->steps[1].task_count);
    for (size_t i = 0; i < comparison->task_count; i++) {
        sum_s += comparison->tasks[i].contribution_s;
        ck_assert(i == 0 || fabs(comparison->tasks[i].contribution_s) <=
                                fabs(comparison->tasks[i - 1].contribution_s));
    }
    ck_assert_double_gt(sum_s, 0);
    ck_assert_double_eq_tol(sum_s, comparison->predicted_s - comparison->measured_s, 1e-12);
    comparison_free(comparison);
    close_pair(&pair);
}
END_TEST

START_TEST(rows_add_up_to_what_queues_and_steps_have)
{
    struct pair pair = open_pair();
    struct comparison *comparison = compare(&pair, 0);
    double steps_s = 0;
    size_t tasks = 0;

    for (size_t i = 0; i < comparison->step_count; i++)
        steps_s += comparison->steps[i].measured_s;
    ck_assert_uint_eq(comparison->step_count, STEPS);
    ck_assert_double_eq_tol(steps_s, comparison->measured_s, 1e-12);
    for (size_t i = 0; i < comparison->queue_count; i++) {
        const struct compare_queue *queue = &comparison->queues[i];

        ck_assert_double_eq_tol(queue->measured_busy_s + queue->measured_idle_s, steps_s, 1e-12);
    }
    for (size_t i = 0; i < comparison->kind_count; i++)
        tasks += comparison->kinds[i].count;
    ck_assert_uint_eq(tasks, pair.one->steps[0].task_count + pair.one->steps[1].task_count);
    ck_assert_uint_eq(comparison->task_count, 0);
    comparison_free(comparison);
    close_pair(&pair);
}
END_TEST

START_TEST(the_median_is_that_of_single_tasks)
{
    struct pair pair = open_pair();
    struct comparison *comparison;
    size_t count = 0;

    pair.one->step_count = pair.other->step_count = 1;
    for (size_t i = 0; i < pair.one->steps[0].task_count; i++) {
        struct timeline_task *task = &pair.one->steps[0].tasks[i];

        if (task->kind != TASK_NORM)
            continue;
        task->start_s = pair.other->steps[0].tasks[i].start_s = 0;
        task->end_s = 2e-6;
        pair.other->steps[0].tasks[i].end_s = count++ == 0 ? 9e-6 : 3e-6;
    }
    comparison = compare(&pair, 0);
    for (size_t i = 0; i < comparison->kind_count; i++)
        if (comparison->kinds[i].kind == TASK_NORM) {
            ck_assert_uint_eq(comparison->kinds[i].count, count);
            ck_assert_double_eq_tol(comparison->kinds[i].median_s, 1e-6, 1e-15);
            ck_assert_double_eq_tol(comparison->kinds[i].median_ratio, 0.5, 1e-9);
        }
    comparison_free(comparison);
    pair.one->step_count = pair.other->step_count = STEPS;
    close_pair(&pair);
}
END_TEST

/* A clock that ticks once in 2 us sees a task of 3 us as one of 2 and one of 4. */
START_TEST(tasks_of_steps_that_are_alike_took_the_mean_of_theirs)
{
    struct pair pair = open_steps(3); /* the first one builds */
    struct comparison *comparison;

    for (size_t s = 0; s < 3; s++)
        for (size_t i = 0; i < pair.one->steps[s].task_count; i++) {
            struct timeline_task *task = &pair.one->steps[s].tasks[i];

            if (task->kind != TASK_NORM)
                continue;
            task->start_s = pair.other->steps[s].tasks[i].start_s = 0;
            task->end_s = s == 0 ? 3e-6 : s == 1 ? 2e-6 : 4e-6;
            pair.other->steps[s].tasks[i].end_s = 3e-6;
        }
    comparison = compare(&pair, 0);
    for (size_t i = 0; i < comparison->kind_count; i++)
        if (comparison->kinds[i].kind == TASK_NORM) {
            ck_assert_double_lt(comparison->kinds[i].median_s, 1e-15);
            ck_assert_double_lt(comparison->kinds[i].median_ratio, 1e-9);
        }
    comparison_free(comparison);
    close_pair(&pair);
}
END_TEST

/* ---- programs that differ ---- */

static void change_kind(struct timeline *timeline)
{
    timeline->steps[1].tasks[12].kind = TASK_GLU;
}

static void change_layer(struct timeline *timeline)
{
    timeline->steps[1].tasks[12].layer = 35;
}

static void change_queue(struct timeline *timeline)
{
    timeline->steps[1].tasks[12].queues = UINT64_C(1) << program_queue_compute(1);
}

static void change_tensor(struct timeline *timeline)
{
    timeline->steps[1].tasks[12].tensor = "blk.7.other.weight";
}

static void change_work(struct timeline *timeline)
{
    timeline->steps[1].tasks[12].bytes += 4096;
}

static void drop_task(struct timeline *timeline)
{
    timeline->steps[1].task_count = 12;
}

static void drop_step(struct timeline *timeline)
{
    timeline->steps[1].shift = true;
    ck_assert_uint_eq(timeline_drop_shifts(timeline), 1);
}

static void change_tokens(struct timeline *timeline)
{
    timeline->steps[1].step.tokens = 7;
}

static void drop_device(struct timeline *timeline)
{
    timeline->device_count = 1;
}

static const struct {
    void (*change)(struct timeline *timeline);
    const char *says;
} differences[] = {
    {change_kind, "and glu"},
    {change_layer, "(layer 35) on CUDA0 in simulation"},
    {change_queue, "on CUDA1 in simulation"},
    {change_tensor, "blk.7.other.weight"},
    {change_work, " bytes and "},
    {drop_task, "and no task in simulation"},
    {drop_step, "simulation has 2 steps, simulation 1"},
    {change_tokens, "step 1 has 1 tokens in simulation and 7 in simulation"},
    {drop_device, "simulation is of 2 devices, simulation of 1"},
};

START_TEST(the_first_task_that_differs_is_named)
{
    struct pair pair = open_pair();
    char text[600] = "";

    differences[_i].change(pair.other);
    ck_assert(compare_find_difference(pair.one, pair.other, text, sizeof text));
    ck_assert_msg(strstr(text, differences[_i].says) != NULL, "%s", text);
    if (_i < 6)
        ck_assert_msg(strncmp(text, "task 12 of step 1 is ", 21) == 0, "%s", text);
    pair.other->device_count = 2;
    close_pair(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compare");
    TCase *tables = tcase_create("tables"), *programs = tcase_create("programs");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tables, equal_timelines_do_not_differ);
    tcase_add_test(tables, a_longer_sum_is_the_whole_difference);
    tcase_add_test(tables, contributions_of_all_tasks_add_up_to_the_difference);
    tcase_add_test(tables, rows_add_up_to_what_queues_and_steps_have);
    tcase_add_test(tables, the_median_is_that_of_single_tasks);
    tcase_add_test(tables, tasks_of_steps_that_are_alike_took_the_mean_of_theirs);
    tcase_add_loop_test(programs, the_first_task_that_differs_is_named, 0,
                        (int)(sizeof differences / sizeof *differences));
    suite_add_tcase(suite, tables);
    suite_add_tcase(suite, programs);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
