/* Which layers keep their cache on devices. The 27B attends in layers 3, 7, ..., 63; with
 * halves on the desktop, 3 to 31 are CUDA0's and 35 to 63 CUDA1's, whose link is the slower. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/residency.h"
#include "tests/plan_cases.h"

#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* "3 7@1 35@3": layers with a cache and the masks of devices that keep their part. */
static void check_resident(const struct placement *placement, const char *expected,
                           const char *what)
{
    char text[300] = "";

    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++)
        if (placement->kv_resident[layer] != 0 &&
            model_layer_has_kv(&placement->model->layers[layer]))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u",
                     text[0] != '\0' ? " " : "", layer);
    ck_assert_msg(strcmp(text, expected) == 0, "%s: layers '%s' are resident, not '%s'", what, text,
                  expected);
}

/* ---- policies ---- */

static const struct {
    const char *flags, *resident;
} policy_cases[] = {
    {"", "3 7 11 15 19 23 27 31 35 39 43 47 51 55 59 63"},
    {"-kvgl 2", "3 7 11 15 19 23 27 31 35 39 43 47 51 55 59 63"},
    {"-nkvo", ""},
    {"-nkvo -kvgl 0", ""},
    {"-nkvo -kvgl 1 -kvp round-robin", "3"},
    {"-nkvo -kvgl 2 -kvp round-robin", "3 35"},
    {"-nkvo -kvgl 4 -kvp round-robin", "3 7 35 39"},
    {"-nkvo -kvgl 5 -kvp round-robin", "3 7 11 35 39"},
    {"-nkvo -kvgl 2 -kvp slowest-first", "35 39"},
    {"-nkvo -kvgl 8 -kvp slowest-first", "35 39 43 47 51 55 59 63"},
    {"-nkvo -kvgl 10 -kvp slowest-first", "3 7 35 39 43 47 51 55 59 63"},
    {"-nkvo -kvgl 2", "35 39"},
    {"-nkvo -kvgl 2 -kvp layer-order", "3 7"},
    {"-nkvo -kvgl 10 -kvp layer-order", "3 7 11 15 19 23 27 31 35 39"},
    /* A device whose own layers are all resident leaves the budget to the other. */
    {"-nkvo -kvgl 6 -kvp round-robin -ts 8/58", "3 7 11 15 19 23"},
    {"-nkvo -kvgl 3 -kvp round-robin -ts 64/2", "3 7 11"},
    {"-nkvo -kvgl 3 -kvp slowest-first -ts 1/0", "3 7 11"},
    {"-nkvo -kvgl 3 -kvp slowest-first -sm none", "3 7 11"},
    /* Under a tensor split every layer is of all devices. */
    {"-nkvo -kvgl 3 -kvp slowest-first -sm tensor", "3 7 11"},
    {"-nkvo -kvgl 3 -kvp round-robin -sm tensor", "3 7 11"},
    {"-nkvo -kvgl 3 -kvp layer-order -sm tensor", "3 7 11"},
    {"-nkvo -engine llama.cpp", ""},
};

START_TEST(a_budget_is_spent_by_the_policy)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, policy_cases[_i].flags, 512);

    check_resident(c.placement, policy_cases[_i].resident, policy_cases[_i].flags);
    plan_cases_close(&c);
}
END_TEST

static const char *const growing[] = {"-kvp round-robin", "-kvp slowest-first", "-kvp layer-order",
                                      "-sm tensor"};

START_TEST(each_budget_adds_one_layer_until_all_are_resident)
{
    uint32_t before[66] = {0};

    for (int budget = 0; budget <= 20; budget++) {
        char flags[80];
        struct plan_case c;
        int resident = 0;

        snprintf(flags, sizeof flags, "-nkvo -kvgl %d %s", budget, growing[_i]);
        c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, flags, 512);
        for (uint32_t layer = 0; layer < c.placement->layer_count; layer++) {
            uint32_t mask = c.placement->kv_resident[layer];

            ck_assert_msg(mask == 0 || mask == 3, "layer %u: devices %u", layer, mask);
            ck_assert_msg(mask == 0 || layer % 4 == 3, "layer %u owns no cache", layer);
            ck_assert_msg(mask == 3 || before[layer] == 0, "%s: layer %u left", flags, layer);
            resident += (before[layer] = mask) != 0;
        }
        ck_assert_int_eq(resident, budget < 16 ? budget : 16);
        plan_cases_close(&c);
    }
}
END_TEST

/* Links to CUDA0 and CUDA1 in GB/s, and what two and three layers buy. */
static const struct {
    double gbs[2];
    const char *two, *three;
} group_cases[] = {
    {{3.3, 3.3}, "3 35", "3 7 35"},   {{3.7, 3.3}, "3 35", "3 35 39"},
    {{3.3, 3.7}, "3 35", "3 7 35"},   {{3.9, 3.3}, "35 39", "35 39 43"},
    {{3.3, 3.9}, "3 7", "3 7 11"},    {{24.2, 3.3}, "35 39", "35 39 43"},
    {{1.15, 1.0}, "3 35", "3 35 39"}, {{1.16, 1.0}, "35 39", "35 39 43"},
};

START_TEST(devices_within_15_percent_are_served_in_turn)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-nkvo", 512);

    for (uint32_t d = 0; d < 2; d++)
        c.machine->links[machine_device_link(c.machine, d)].down_gbs = group_cases[_i].gbs[d];
    for (int budget = 2; budget <= 3; budget++) {
        struct plan plan = plan_cases_plan("-nkvo");
        struct error err = {0};
        struct placement *placement;

        plan.kv_gpu_layers = budget;
        placement = placement_new(c.model, c.machine, &plan, 512, &err);
        ck_assert_ptr_nonnull(placement);
        check_resident(placement, budget == 2 ? group_cases[_i].two : group_cases[_i].three,
                       "links");
        placement_free(placement);
    }
    plan_cases_close(&c);
}
END_TEST

START_TEST(three_devices_form_groups_by_their_links)
{
    static const struct {
        int32_t budget;
        const char *resident;
    } steps[] = {{1, "47"},
                 {2, "23 47"},
                 {4, "23 27 47 51"},
                 {9, "23 27 31 35 47 51 55 59 63"},
                 {11, "23 27 31 35 39 43 47 51 55 59 63"},
                 {12, "3 23 27 31 35 39 43 47 51 55 59 63"}};
    struct plan_case c = plan_cases_open(QWEN, "3x RTX 3090@gen4x8", "-nkvo -ts 1/1/1", 512);
    const double gbs[] = {12, 6.2, 6};

    /* 22 entries each: attention layers 3-19, 23-43, 47-63. */
    for (uint32_t d = 0; d < 3; d++)
        c.machine->links[machine_device_link(c.machine, d)].down_gbs = gbs[d];
    for (int i = 0; i < COUNT(steps); i++) {
        struct plan plan = plan_cases_plan("-nkvo -ts 1/1/1");
        struct error err = {0};
        struct placement *placement;

        plan.kv_gpu_layers = steps[i].budget;
        placement = placement_new(c.model, c.machine, &plan, 512, &err);
        ck_assert_ptr_nonnull(placement);
        check_resident(placement, steps[i].resident, "three devices");
        placement_free(placement);
    }
    plan_cases_close(&c);
}
END_TEST

START_TEST(sliding_layers_and_growing_layers_count_alike)
{
    struct plan_case c = plan_cases_open("gemma-4-26b-a4b:Q8_0", PLAN_CASES_DESKTOP,
                                         "-nkvo -kvgl 6 -kvp layer-order", 512);

    check_resident(c.placement, "0 1 2 3 4 5", "gemma");
    plan_cases_close(&c);
}
END_TEST

/* ---- explicit sets ---- */

/* Masks of layers 3, 7, 35 and 63. */
static const struct {
    const char *text;
    uint32_t masks[4];
} set_cases[] = {
    {"3", {3, 0, 0, 0}},
    {"3,7", {3, 3, 0, 0}},
    {"3-7", {3, 3, 0, 0}},
    {"0-63", {3, 3, 3, 3}},
    {"0-2", {0, 0, 0, 0}},
    {"3-63+4", {3, 3, 3, 3}},
    {"3-64+8@CUDA1", {2, 0, 2, 0}},
    {"3@CUDA0", {1, 0, 0, 0}},
    {"3@CUDA1,7@CUDA0", {2, 1, 0, 0}},
    {"3@CUDA0+CUDA1", {3, 0, 0, 0}},
    {"3@CUDA0,3@CUDA1", {3, 0, 0, 0}},
    {"0-10@CUDA1,35,60-64@CUDA0", {2, 2, 3, 1}},
};

START_TEST(an_explicit_set_names_layers_ranges_and_devices)
{
    static const uint32_t layers[] = {3, 7, 35, 63};
    struct model *model = plan_cases_model(QWEN);
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct error err = {0};
    uint32_t resident[65];

    memset(resident, 0xff, sizeof resident);
    ck_assert_msg(residency_parse(set_cases[_i].text, model, machine, resident, 65, &err) == 0,
                  "%s: %s", set_cases[_i].text, err.text);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(resident[layers[i]] == set_cases[_i].masks[i], "%s: layer %u has %u",
                      set_cases[_i].text, layers[i], resident[layers[i]]);
    for (uint32_t layer = 0; layer < 64; layer++)
        ck_assert(layer % 4 == 3 || resident[layer] == 0);
    machine_free(machine);
    model_free(model);
}
END_TEST

static const struct {
    const char *text, *says;
} bad_sets[] = {
    {"2", "layer 2 owns no KV cache"},
    {"3,4", "layer 4 owns no KV cache"},
    {"65", "'65' is not a layer or a range of layers; 3, 0-64"},
    {"", "no layers given"},
    {"0-65", "'0-65' is not"},
    {"7-3", "'7-3' is not"},
    {"x", "'x' is not"},
    {"3x", "'3x' is not"},
    {"3-", "'3-' is not"},
    {"-3", "'-3' is not"},
    {"@CUDA0", "'' is not"},
    {"3@CUDA2", "CUDA2 is not a device of rtx4070-gen4x16+rtx3060-gen3x4; CUDA0 to CUDA1 are"},
    {"3@GPU", "GPU is not a device"},
    {"3@+CUDA1", "is not a list of devices; CUDA0+CUDA1 is"},
    {"3@CUDA0++CUDA1", "is not a list of devices"},
    {"3@a_name_that_is_too_long_for_any_device", "is not a list of devices"},
};

START_TEST(a_bad_set_is_refused_by_what_is_wrong_in_it)
{
    struct model *model = plan_cases_model(QWEN);
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct error err = {0};
    uint32_t resident[65];

    ck_assert_msg(residency_parse(bad_sets[_i].text, model, machine, resident, 65, &err) == -1,
                  "%s was not refused", bad_sets[_i].text);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_msg(strstr(err.text, bad_sets[_i].says) != NULL, "%s: %s", bad_sets[_i].text,
                  err.text);
    machine_free(machine);
    model_free(model);
}
END_TEST

static const char *const unfinished_sets[] = {"3@", "3@CUDA0+", "0-"};

START_TEST(an_unfinished_item_is_refused)
{
    struct model *model = plan_cases_model("llama-3.1-8b:Q4_K_M");
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct error err = {0};
    uint32_t resident[32];

    ck_assert_msg(residency_parse(unfinished_sets[_i], model, machine, resident, 32, &err) == -1,
                  "'%s' was not refused", unfinished_sets[_i]);
    machine_free(machine);
    model_free(model);
}
END_TEST

START_TEST(an_explicit_set_is_taken_as_it_is_and_wins_over_the_budget)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "", 512);
    struct plan plan = plan_cases_plan("-nkvo -kvgl 8 -sm tensor");
    struct error err = {0};
    uint32_t resident[65] = {[7] = 2, [63] = 3};
    struct placement *placement;

    plan.kv_resident = resident;
    plan.kv_resident_count = 65;
    placement = placement_new(c.model, c.machine, &plan, 512, &err);
    ck_assert_ptr_nonnull(placement);
    for (uint32_t layer = 0; layer < 64; layer++)
        ck_assert_uint_eq(placement->kv_resident[layer], resident[layer]);
    placement_free(placement);
    resident[8] = 1;
    ck_assert_ptr_null(placement_new(c.model, c.machine, &plan, 512, &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "layer 8 owns no KV cache"));
    plan_cases_close(&c);
}
END_TEST

/* -sm none -mg 1 uses CUDA1 as its device 0; a set in the words of the machine means it. */
START_TEST(a_set_that_names_the_only_device_in_use_keeps_its_layers)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "", 512);
    struct plan plan = plan_cases_plan("-nkvo -sm none -mg 1");
    struct error err = {0};
    uint32_t resident[65];
    struct placement *placement;

    ck_assert_int_eq(residency_parse("3@CUDA1", c.model, c.machine, resident, 65, &err), 0);
    plan.kv_resident = resident;
    plan.kv_resident_count = 65;
    placement = placement_new(c.model, c.machine, &plan, 512, &err);
    ck_assert_ptr_nonnull(placement);
    ck_assert_uint_eq(placement->kv_resident[3] & 1, 1);
    placement_free(placement);
    plan_cases_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("residency");
    TCase *policies = tcase_create("policies"), *sets = tcase_create("explicit sets");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(policies, 60);
    tcase_set_timeout(sets, 60);
    tcase_add_loop_test(policies, a_budget_is_spent_by_the_policy, 0, COUNT(policy_cases));
    tcase_add_loop_test(policies, each_budget_adds_one_layer_until_all_are_resident, 0,
                        COUNT(growing));
    tcase_add_loop_test(policies, devices_within_15_percent_are_served_in_turn, 0,
                        COUNT(group_cases));
    tcase_add_test(policies, three_devices_form_groups_by_their_links);
    tcase_add_test(policies, sliding_layers_and_growing_layers_count_alike);
    tcase_add_loop_test(sets, an_explicit_set_names_layers_ranges_and_devices, 0, COUNT(set_cases));
    tcase_add_loop_test(sets, a_bad_set_is_refused_by_what_is_wrong_in_it, 0, COUNT(bad_sets));
    tcase_add_loop_test(sets, an_unfinished_item_is_refused, 0, COUNT(unfinished_sets));
    tcase_add_test(sets, an_explicit_set_is_taken_as_it_is_and_wins_over_the_budget);
    tcase_add_test(sets, a_set_that_names_the_only_device_in_use_keeps_its_layers);
    suite_add_tcase(suite, policies);
    suite_add_tcase(suite, sets);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
