/* What lopside's own runtime took on H200s, beside what is predicted for it: how close the two are,
 * and what the measured rows themselves say about plans. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shipped_traces.h"

/* Of the absolute errors of all rows: the goals. */
static const double median_max_pct = 4, p95_max_pct = 10, error_max_pct = 20;

static struct shipped_traces shipped;
static struct validation *const validation = &shipped.validation;

static void open_traces(void)
{
    static const char *const names[] = {"h200.jsonl", "h200-x2.jsonl", "h200-x2-host.jsonl", NULL};

    shipped_traces_open(&shipped, names);
}

static void close_traces(void)
{
    shipped_traces_close(&shipped);
}

/* ---- how close ---- */

START_TEST(errors_are_within_the_goals_and_nothing_is_fitted)
{
    const struct validate_figures *total = &validation->total;

    for (size_t i = 0; i < validation->row_count; i++)
        ck_assert_msg(validation->rows[i].status == VALIDATE_COUNTED ||
                          validation->rows[i].status == VALIDATE_REPEATED,
                      "%s is %s: %s", validation->rows[i].row->id,
                      validate_status_name(validation->rows[i].status), validation->rows[i].reason);
    printf("%zu rows, median %.2f %%, 95th percentile %.2f %%, at most %.2f %%\n", total->n,
           total->median_pct, total->p95_pct, total->max_pct);
    fflush(stdout);
    ck_assert_uint_ge(total->n, 120);
    ck_assert_double_le(total->median_pct, median_max_pct);
    ck_assert_double_le(total->p95_pct, p95_max_pct);
    ck_assert_double_le(total->max_pct, error_max_pct);
}
END_TEST

START_TEST(of_two_plans_the_faster_one_is_predicted_to_be_it)
{
    ck_assert_uint_ge(validation->order.pairs, 300);
    ck_assert_uint_eq(validation->order.wrong, 0);
}
END_TEST

START_TEST(every_row_says_how_much_its_runs_differ)
{
    for (size_t i = 0; i < validation->row_count; i++) {
        const struct trace_row *row = validation->rows[i].row;

        ck_assert_msg(trace_row_has(row, TRACE_FIELD_STDDEV), "%s", row->id);
        ck_assert_msg(row->stddev >= 0 && row->stddev < 0.2 * validation->rows[i].measured,
                      "%s: %g of %g", row->id, row->stddev, validation->rows[i].measured);
    }
}
END_TEST

/* ---- the pair of unlike devices and links ---- */

/* What tells rows of the slowed pair apart; a share below 0 and no policy: any. */
struct wanted {
    enum trace_split_mode split;
    enum trace_answer on_host;
    int64_t resident, prompt;
    const char *policy;
    double first_heads; /* share of the first device; 1 is "1/0" */
};

static bool is_paced(const struct trace_row *row)
{
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        if (strcmp(row->other_plan_keys[i].key, "pace_links") == 0)
            return true;
    return false;
}

static bool has_heads(const struct trace_row *row, double first)
{
    const struct trace_split *split = &row->attn_split;

    return first < 0 ||
           (split->count == 2 &&
            fabs(split->share[0] / (split->share[0] + split->share[1]) - first) < 1e-6);
}

/* Tokens a second of the one row of the slowed dense model that is so. */
static double speed_of(struct wanted wanted)
{
    double speed = 0;
    size_t found = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct trace_row *row = validation->rows[i].row;

        if (!is_paced(row) || strcmp(row->model, "Llama-3.1-8B") != 0 ||
            row->split_mode != wanted.split || row->kv_on_host != wanted.on_host ||
            row->kv_gpu_layers != wanted.resident || row->n_prompt != wanted.prompt ||
            (wanted.policy != NULL && strcmp(row->kv_policy, wanted.policy) != 0) ||
            !has_heads(row, wanted.first_heads))
            continue;
        speed = validation->rows[i].measured;
        found++;
    }
    ck_assert_msg(found == 1, "%zu rows", found);
    return speed;
}

START_TEST(at_equal_memory_the_slowest_links_layers_are_worth_most_on_devices)
{
    for (int64_t resident = 8; resident <= 16; resident += 8) {
        struct wanted wanted = {TRACE_SPLIT_LAYER, TRACE_YES, resident, 0, "slowest-first", -1};
        double slowest_first = speed_of(wanted);

        wanted.policy = "round-robin";
        ck_assert_double_gt(slowest_first, 1.35 * speed_of(wanted));
    }
}
END_TEST

START_TEST(all_heads_on_the_device_with_the_fast_link_beat_even_ones)
{
    struct wanted even = {TRACE_SPLIT_TENSOR, TRACE_YES, 0, 0, NULL, 0.5};
    struct wanted all = even;

    all.first_heads = 1;
    ck_assert_double_gt(speed_of(all), 3 * speed_of(even));
}
END_TEST

/* A layer is worth four times as much among the last seven as among those before. */
START_TEST(partial_residency_under_a_tensor_split_pays_near_completion)
{
    struct wanted wanted = {TRACE_SPLIT_TENSOR, TRACE_YES, 8, 0, NULL, -1};
    double few = speed_of(wanted), half, most, all_but_one;

    wanted.resident = 16;
    half = speed_of(wanted);
    wanted.resident = 24;
    most = speed_of(wanted);
    wanted.resident = 31;
    all_but_one = speed_of(wanted);
    ck_assert_double_lt(half, 1.5 * few);
    ck_assert_double_gt(all_but_one, 1.9 * most);
    ck_assert_double_gt((all_but_one - most) / 7, 4 * (most - few) / 16);
}
END_TEST

/* Four tokens that are checked together take hardly longer than one where the window is waited for.
 */
START_TEST(speculation_is_worth_more_with_a_cache_on_the_host)
{
    struct wanted wanted = {TRACE_SPLIT_LAYER, TRACE_NO, 0, 4, NULL, -1};
    double gain_device, gain_host;

    gain_device = speed_of(wanted);
    wanted.prompt = 0;
    gain_device /= speed_of(wanted);
    wanted.on_host = TRACE_YES;
    gain_host = 1 / speed_of(wanted);
    wanted.prompt = 4;
    gain_host *= speed_of(wanted);
    ck_assert_double_gt(gain_host, 3.9);
    ck_assert_double_gt(gain_host, 1.1 * gain_device);
}
END_TEST

/* Of the slowed 32B under a tensor split with so many percent on the first device. */
static double split_speed(double first, int64_t prompt)
{
    double speed = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct trace_row *row = validation->rows[i].row;
        const struct trace_split *split = &row->tensor_split;

        if (is_paced(row) && strcmp(row->model, "Qwen3-32B") == 0 && row->n_prompt == prompt &&
            split->count == 2 && fabs(split->share[0] - first) < 1e-6)
            speed = validation->rows[i].measured;
    }
    ck_assert_msg(speed > 0, "%g/%g", first, 100 - first);
    return speed;
}

/* Devices of 1 to 0.6 would share 62.5/37.5. What slowing adds to each kernel moves generation's
 * best split, which is flat from 70/30 on. */
START_TEST(a_tensor_split_is_best_near_the_ratio_of_the_devices)
{
    static const double shares[] = {50, 55, 60, 65, 70, 80};
    double prompt_best = 0, generation_best = 0, share = 0;

    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        if (split_speed(shares[i], 512) > prompt_best) {
            prompt_best = split_speed(shares[i], 512);
            share = shares[i];
        }
        generation_best = fmax(generation_best, split_speed(shares[i], 0));
    }
    ck_assert_double_eq(share, 65);
    ck_assert_double_gt(prompt_best, 1.2 * split_speed(50, 512));
    ck_assert_double_gt(generation_best, 1.2 * split_speed(50, 0));
    ck_assert_double_lt(generation_best, 1.01 * split_speed(70, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("own accuracy");
    TCase *errors = tcase_create("errors"), *pair = tcase_create("slowed pair");
    TCase *all[] = {errors, pair};
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(errors, errors_are_within_the_goals_and_nothing_is_fitted);
    tcase_add_test(errors, of_two_plans_the_faster_one_is_predicted_to_be_it);
    tcase_add_test(errors, every_row_says_how_much_its_runs_differ);
    tcase_add_test(pair, at_equal_memory_the_slowest_links_layers_are_worth_most_on_devices);
    tcase_add_test(pair, all_heads_on_the_device_with_the_fast_link_beat_even_ones);
    tcase_add_test(pair, partial_residency_under_a_tensor_split_pays_near_completion);
    tcase_add_test(pair, a_tensor_split_is_best_near_the_ratio_of_the_devices);
    tcase_add_test(pair, speculation_is_worth_more_with_a_cache_on_the_host);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_checked_fixture(all[i], open_traces, close_traces);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(suite, all[i]);
    }
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
