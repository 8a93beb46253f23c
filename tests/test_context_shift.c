/* What a context shift costs: which cells are rotated, where, and at what rate. */
#include <check.h>
#include <stdlib.h>

#include "sim/context_shift.h"
#include "tests/plan_cases.h"

#define MUSE "muse-glimmer-30b:UD-Q4_K_XL"
#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define HOST "-c 8192 -nkvo -kvcp"

static const struct {
    uint32_t slots;
    bool unified;
    uint32_t used;
    bool whole_cache;
    uint32_t cells;
} cell_cases[] = {
    {1, true, 200, false, 256}, {1, true, 256, false, 256}, {1, true, 257, false, 512},
    {1, true, 256, true, 8192}, {2, true, 300, false, 512}, {2, false, 300, false, 8192},
};

START_TEST(a_shift_covers_used_cells_or_the_whole_cache)
{
    struct plan_case c = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, "-c 8192", 0);

    c.placement->plan.n_slots = cell_cases[_i].slots;
    c.placement->plan.kv_unified = cell_cases[_i].unified;
    ck_assert_uint_eq(
        context_shift_cells(c.placement, cell_cases[_i].used, cell_cases[_i].whole_cache),
        cell_cases[_i].cells);
    plan_cases_close(&c);
}
END_TEST

/* 52 layers with 256 values of K, sliding windows included. */
START_TEST(a_host_cache_is_rotated_value_by_value_in_every_layer)
{
    struct plan_case c = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, HOST, 0);

    c.machine->host.rope_s = 1e-9;
    ck_assert_double_eq_tol(context_shift_rotation_s(c.placement, 1024), 52 * 256 * 1024 * 1e-9,
                            1e-12);
    plan_cases_close(&c);
}
END_TEST

START_TEST(only_layers_with_a_cache_are_rotated)
{
    struct plan_case c = plan_cases_open(QWEN, "rtx4070-gen4x16", HOST " -rso", 0);

    c.machine->host.rope_s = 1e-9;
    ck_assert_double_eq_tol(context_shift_rotation_s(c.placement, 1024), 16 * 1024 * 1024 * 1e-9,
                            1e-12);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_rotation_on_the_host_is_no_faster_than_its_memory)
{
    struct plan_case c = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, HOST, 0);

    c.machine->host.rope_s = 0;
    ck_assert_double_eq_tol(context_shift_rotation_s(c.placement, 1024),
                            52 * 2 * 512.0 * 1024 / (c.machine->host.memory_gbs * 1e9), 1e-12);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_device_rotates_its_cache_at_the_rate_of_its_memory)
{
    struct plan_case c = plan_cases_open(QWEN, "rtx4070-gen4x16", "-c 8192", 0);
    const struct machine_device *device = &c.machine->devices[0];
    double gbs = device->memory_gbs * c.machine->families[device->family].memory_ratio;

    c.machine->host.rope_s = 1;
    ck_assert_double_eq_tol(context_shift_rotation_s(c.placement, 8192),
                            16 * 2 * 2048.0 * 8192 / (gbs * 1e9), 1e-12);
    plan_cases_close(&c);
}
END_TEST

static double cost(const char *flags, uint32_t used, bool whole_cache, double rope_s,
                   double reserve_s)
{
    struct plan_case c = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, flags, used + 1);
    struct error err = {0};
    struct timing *timing;
    double cost_s = 0;

    c.machine->host.rope_s = rope_s;
    c.machine->host.reserve_s = reserve_s;
    timing = timing_new(c.placement, &err);
    ck_assert_msg(timing != NULL, "%s", err.text);
    ck_assert_msg(context_shift_cost(timing, c.placement, used, whole_cache, &cost_s, &err) == 0,
                  "%s", err.text);
    timing_free(timing);
    plan_cases_close(&c);
    return cost_s;
}

START_TEST(a_shift_of_used_cells_costs_the_same_in_any_context)
{
    ck_assert_double_eq(cost("-c 8192 -nkvo -kvcp", 256, false, 1e-9, 0),
                        cost("-c 131072 -nkvo -kvcp", 256, false, 1e-9, 0));
}
END_TEST

START_TEST(a_shift_of_the_whole_cache_grows_with_the_context)
{
    double shorter = cost("-c 8192 -nkvo -kvcp", 256, true, 1e-9, 0);
    double longer = cost("-c 32768 -nkvo -kvcp", 256, true, 1e-9, 0);

    ck_assert_double_eq_tol(longer - shorter, 52 * 256 * 24576 * 1e-9, 1e-9);
}
END_TEST

START_TEST(a_shift_plans_buffers_anew_and_rebuilds_the_graph_of_the_step)
{
    double bare = cost(HOST, 256, false, 0, 0);

    ck_assert_double_eq_tol(cost(HOST, 256, false, 0, 0.01) - bare, 0.01, 1e-9);
    ck_assert_double_gt(bare, 2 * 1500e-6); /* two graphs are built */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("context shift");
    TCase *rotation = tcase_create("rotation"), *costs = tcase_create("costs");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(rotation, a_shift_covers_used_cells_or_the_whole_cache, 0,
                        (int)(sizeof cell_cases / sizeof *cell_cases));
    tcase_add_test(rotation, a_host_cache_is_rotated_value_by_value_in_every_layer);
    tcase_add_test(rotation, only_layers_with_a_cache_are_rotated);
    tcase_add_test(rotation, a_rotation_on_the_host_is_no_faster_than_its_memory);
    tcase_add_test(rotation, a_device_rotates_its_cache_at_the_rate_of_its_memory);
    tcase_add_test(costs, a_shift_of_used_cells_costs_the_same_in_any_context);
    tcase_add_test(costs, a_shift_of_the_whole_cache_grows_with_the_context);
    tcase_add_test(costs, a_shift_plans_buffers_anew_and_rebuilds_the_graph_of_the_step);
    suite_add_tcase(suite, rotation);
    suite_add_tcase(suite, costs);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
