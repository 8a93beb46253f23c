/* Recorded steps of our own runtime beside their predictions, by kind of task. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/compare.h"
#include "sim/timeline_simulate.h"
#include "sim/values.h"
#include "tests/plan_cases.h"

/* The goal. */
static const double median_max_pct = 8;

#define OWN "-engine lopside"

/* traces/steps/NAME.timeline, and the plan that it was recorded with. Those of two GPUs are from
 * before a wait of the host was recorded until the host went on: they say nothing of ends. */
static const struct {
    const char *name, *model, *machine, *flags;
    bool has_end;
} recordings[] = {
    {"llama-3.1-8b", "llama-3.1-8b:Q8_0", "h200", OWN, true},
    {"llama-3.1-8b-prompt", "llama-3.1-8b:Q8_0", "h200", OWN, true},
    {"llama-3.1-8b-x2", "llama-3.1-8b:Q8_0", "h200-x2", OWN " -sm tensor", false},
    {"llama-3.1-8b-x2-prompt", "llama-3.1-8b:Q8_0", "h200-x2", OWN " -sm tensor", false},
    {"qwen3-30b-a3b", "qwen3-30b-a3b:Q8_0", "h200", OWN, true},
    {"qwen3-30b-a3b-prompt", "qwen3-30b-a3b:Q8_0", "h200", OWN, true},
    {"qwen3.8-27b", "qwen3.8-27b:Q8_0", "h200", OWN, true},
    {"qwen3.8-27b-prompt", "qwen3.8-27b:Q8_0", "h200", OWN, true},
};

enum { RECORDINGS = sizeof recordings / sizeof *recordings };

/* Kinds of tasks, and the end of a step: its logits and the wait for them. Of when the GPU has
 * written what the host has not got yet, two recordings of one plan do not agree. */
enum { END = TASK_KIND_COUNT, CLASSES };

/* Of each: the median error of its tasks, in each recording that has it. */
static double errors_pct[CLASSES][RECORDINGS];
static size_t error_count[CLASSES];

static bool is_held_to_the_goal(enum task_kind kind)
{
    const enum task_class class = program_task_class(kind);

    return class == TASK_CLASS_KERNEL || class == TASK_CLASS_COLLECTIVE || kind == TASK_INPUT;
}

static void take(const struct comparison *comparison, bool has_end)
{
    double measured_s = 0, predicted_s = 0;

    for (size_t i = 0; i < comparison->kind_count; i++) {
        const struct compare_kind *kind = &comparison->kinds[i];

        if (is_held_to_the_goal(kind->kind))
            errors_pct[kind->kind][error_count[kind->kind]++] = 100 * kind->median_ratio;
        if (kind->kind != TASK_LOGITS && kind->kind != TASK_SYNC)
            continue;
        measured_s += kind->measured_s;
        predicted_s += kind->predicted_s;
    }
    if (has_end)
        errors_pct[END][error_count[END]++] = 100 * fabs(predicted_s - measured_s) / measured_s;
}

static void compare_recording(size_t index)
{
    const char *folder = getenv("srcdir");
    struct error err = {0};
    struct timeline *measured, *predicted;
    struct comparison *comparison;
    struct plan_case plan;
    struct timing *timing;
    char path[512], text[600];

    snprintf(path, sizeof path, "%s/traces/steps/%s.timeline", folder != NULL ? folder : ".",
             recordings[index].name);
    measured = timeline_load_file(path, &err);
    ck_assert_msg(measured != NULL, "%s: %s", path, err.text);
    plan = plan_cases_open(recordings[index].model, recordings[index].machine,
                           recordings[index].flags, measured->n_ctx);
    timing = timing_new(plan.placement, &err);
    ck_assert_msg(timing != NULL, "%s", err.text);
    predicted = timeline_simulate_like(timing, plan.placement, measured, &err);
    ck_assert_msg(predicted != NULL, "%s", err.text);
    ck_assert_msg(!compare_find_difference(measured, predicted, text, sizeof text), "%s", text);
    comparison = compare_timelines(measured, predicted, 0, &err);
    ck_assert_msg(comparison != NULL, "%s", err.text);
    take(comparison, recordings[index].has_end);
    comparison_free(comparison);
    timeline_free(predicted);
    timeline_free(measured);
    timing_free(timing);
    plan_cases_close(&plan);
}

/* Each recording has one weight. */
START_TEST(of_each_kind_of_task_the_median_error_is_within_the_goal)
{
    size_t classes = 0;

    for (size_t i = 0; i < RECORDINGS; i++)
        compare_recording(i);
    for (size_t k = 0; k < CLASSES; k++) {
        const char *name = k == END ? "end" : program_task_name((enum task_kind)k);
        size_t count = error_count[k];
        double median;

        if (count == 0)
            continue;
        median = values_median(errors_pct[k], count);
        printf("%-11s %zu recordings, median %.2f %%\n", name, count, median);
        fflush(stdout);
        ck_assert_msg(median <= median_max_pct, "%s: %.2f %%", name, median);
        classes++;
    }
    ck_assert_uint_ge(classes, 11);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("own steps");
    TCase *tcase = tcase_create("kinds");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, of_each_kind_of_task_the_median_error_is_within_the_goal);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
