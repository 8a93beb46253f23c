/* The account of device memory: figures that are known exactly, then how they add up. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "tests/plan_cases.h"

#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define QWEN_LARGE "qwen3.8-27b:UD-Q5_K_M"
#define GEMMA "gemma-4-26b-a4b:Q8_0"
#define MUSE "muse-glimmer-30b:Q5_K_M"
#define ONE_CARD "rtx4070-gen4x16"
#define MIB 1048576.0
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static struct memory_account account_of(const char *model, const char *machine, const char *flags)
{
    struct plan_case c = plan_cases_open(model, machine, flags, 0);
    struct memory_account account;

    memory_count(c.placement, &account);
    plan_cases_close(&c);
    return account;
}

/* ---- weights ---- */

START_TEST(weights_of_the_27b_on_one_device_are_what_the_engine_prints)
{
    struct memory_account account = account_of(QWEN, ONE_CARD, "");

    /* All but the embedding and the nextn block. The engine aligns tensors, some 6 KiB. */
    ck_assert_double_eq_tol((double)account.devices[0].weights / MIB, 9227.89, 0.01);
    ck_assert_double_eq_tol((double)account.host_weights / MIB, 397.85, 0.005);
}
END_TEST

static const char *const splits[] = {"-ts 50/50", "-ts 60/40", "-ts 1/0", "-sm none"};

START_TEST(weights_of_a_layer_split_add_up_to_those_of_one_device)
{
    struct memory_account one = account_of(QWEN_LARGE, ONE_CARD, "");
    struct memory_account parts = account_of(QWEN_LARGE, PLAN_CASES_DESKTOP, splits[_i]);

    ck_assert_uint_eq(parts.devices[0].weights + parts.devices[1].weights, one.devices[0].weights);
    ck_assert_uint_eq(parts.host_weights, one.host_weights);
}
END_TEST

/* Twice the mirrored tensors: norms, which are small beside everything else. */
START_TEST(a_tensor_split_stores_mirrored_tensors_on_each_device)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40", 0);
    struct memory_account one = account_of(QWEN, ONE_CARD, ""), parts;
    uint64_t mirrored = 0;

    memory_count(c.placement, &parts);
    for (size_t i = 0; i < c.model->tensor_count; i++) {
        const struct model_tensor *tensor = &c.model->tensors[i];

        if (tensor->layer < 64 && tensor->ne[1] == 1 && tensor->role != TENSOR_ROLE_SSM_A &&
            tensor->role != TENSOR_ROLE_SSM_DT)
            mirrored += tensor->bytes;
    }
    ck_assert_uint_eq(parts.devices[0].weights + parts.devices[1].weights,
                      one.devices[0].weights + mirrored);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_tied_head_is_whole_on_each_device_of_llama_cpp_and_split_in_the_fork)
{
    struct memory_account mirrored =
        account_of(GEMMA, PLAN_CASES_DESKTOP, "-sm tensor -engine llama.cpp");
    struct memory_account split = account_of(GEMMA, PLAN_CASES_DESKTOP, "-sm tensor");
    uint64_t table = UINT64_C(262144) * 2816 / 32 * 34;

    for (int d = 0; d < 2; d++)
        ck_assert_uint_eq(mirrored.devices[d].weights - split.devices[d].weights, table / 2);
    ck_assert_uint_eq(split.host_weights, table);
}
END_TEST

/* ---- cache and state ---- */

/* MiB of cache on [device 0, device 1], and on the host. */
static const struct {
    const char *model, *machine, *flags;
    double kv[2], host;
} cache_cases[] = {
    {QWEN, ONE_CARD, "-c 16384 -ctk q8_0", {544}, 0},
    {QWEN, ONE_CARD, "-c 16384", {1024}, 0},
    {QWEN, ONE_CARD, "-c 16384 -ctk q4_0", {288}, 0},
    {QWEN, ONE_CARD, "-c 16384 -ctk q8_0 -nkvo", {0}, 544},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -ts 1/1", {1088, 1088}, 0},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -ts 1/1 -nkvo -kvgl 8", {0, 1088}, 1088},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -ts 1/1 -nkvo -kvgl 10", {272, 1088}, 816},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -sm tensor", {1088, 1088}, 0},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -sm tensor -nkvo -kvgl 8", {544, 544}, 1088},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -sm tensor -as 1/0", {2176, 0}, 0},
    {QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ctk q8_0 -sm tensor -as 3/1", {1632, 544}, 0},
    /* 13 growing layers of 544 B a cell, 39 of 2560 cells. */
    {MUSE, ONE_CARD, "-c 65536 -ctk q8_0", {544 * (13 * 65536 + 39 * 2560) / MIB}, 0},
    {MUSE, ONE_CARD, "-c 65536 -ctk q8_0 -ub 1024", {544 * (13 * 65536 + 39 * 3072) / MIB}, 0},
    {MUSE, ONE_CARD, "-c 1024 -ctk q8_0", {544 * 52 * 1024 / MIB}, 0},
    /* 25 sliding layers of 1536 cells with 2 x 2048 values, 5 growing ones with 2 x 1024. */
    {GEMMA, ONE_CARD, "-c 8192", {2 * (25.0 * 1536 * 4096 + 5.0 * 8192 * 2048) / MIB}, 0},
};

START_TEST(a_cache_takes_its_rows_times_its_cells)
{
    struct memory_account account =
        account_of(cache_cases[_i].model, cache_cases[_i].machine, cache_cases[_i].flags);

    for (uint32_t d = 0; d < account.device_count; d++)
        ck_assert_msg((double)account.devices[d].kv / MIB == cache_cases[_i].kv[d],
                      "%s %s: device %u has %g MiB", cache_cases[_i].model, cache_cases[_i].flags,
                      d, (double)account.devices[d].kv / MIB);
    ck_assert_double_eq((double)account.host_kv / MIB, cache_cases[_i].host);
}
END_TEST

static const struct {
    const char *machine, *flags;
    double mib[2];
} state_cases[] = {
    {ONE_CARD, "", {149.625}},
    {ONE_CARD, "-c 65536", {149.625}},
    {ONE_CARD, "-nkvo", {0}},
    {ONE_CARD, "-nkvo -rso", {149.625}},
    {PLAN_CASES_DESKTOP, "-ts 1/1", {149.625 * 25 / 48, 149.625 * 23 / 48}},
    {PLAN_CASES_DESKTOP, "-sm tensor", {149.625 / 2, 149.625 / 2}},
    {PLAN_CASES_DESKTOP, "-sm tensor -as 1/0 -nkvo", {149.625 / 2, 149.625 / 2}},
    {PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40", {149.625 * 9 / 16, 149.625 * 7 / 16}},
};

START_TEST(a_recurrent_state_lies_with_its_heads_whatever_the_context)
{
    struct memory_account account =
        account_of(QWEN, state_cases[_i].machine, state_cases[_i].flags);

    for (uint32_t d = 0; d < account.device_count; d++)
        ck_assert_msg((double)account.devices[d].recurrent / MIB == state_cases[_i].mib[d],
                      "%s: device %u has %g MiB", state_cases[_i].flags, d,
                      (double)account.devices[d].recurrent / MIB);
}
END_TEST

/* ---- compute buffer ---- */

/* Beside the buffer lies the pool: activations of the widest product as q8_1. */
static const uint64_t pool_bytes = 512 * 17408 * 36 / 32;

START_TEST(logits_of_a_whole_ubatch_lie_behind_the_mask)
{
    struct memory_account all = account_of(QWEN, ONE_CARD, "-c 4096 -logits");

    /* 485 of logits, twice the stream, and the mask of 4096 cells */
    ck_assert_double_eq((double)all.devices[0].buffer / MIB, 485 + 2 * 10 + 4);
    ck_assert_uint_eq(all.devices[0].compute - all.devices[0].buffer, pool_bytes);
}
END_TEST

/* MiB that the engine printed for [device 0, device 1]. */
static const struct {
    const char *model, *machine, *flags;
    double mib[2], tolerance;
} buffer_cases[] = {
    {GEMMA, PLAN_CASES_DESKTOP, "-sm tensor -c 4096 -logits -b 512", {534.02, 534.02}, 0.05},
    {GEMMA, PLAN_CASES_DESKTOP, "-sm tensor -c 4096 -logits -ub 2048", {2142.08, 2142.08}, 0.1},
    {GEMMA, PLAN_CASES_DESKTOP, "-c 4096 -logits -b 512", {118.57, 560.70}, 7},
    {GEMMA, PLAN_CASES_DESKTOP, "-c 4096 -logits -ub 2048", {498.28, 2266.81}, 26},
    {QWEN, ONE_CARD, "-c 4096 -ctk q8_0", {132}, 1},
    {QWEN, ONE_CARD, "-c 32768 -ctk q8_0 -nkvo -rso", {286}, 3},
    {QWEN, ONE_CARD, "-c 32768 -ctk q8_0 -nkvo -rso -b 4096 -ub 4096", {1056}, 1},
};

START_TEST(a_compute_buffer_is_about_what_the_engine_prints)
{
    struct memory_account account =
        account_of(buffer_cases[_i].model, buffer_cases[_i].machine, buffer_cases[_i].flags);

    for (uint32_t d = 0; d < account.device_count; d++)
        ck_assert_double_eq_tol((double)account.devices[d].buffer / MIB, buffer_cases[_i].mib[d],
                                buffer_cases[_i].tolerance);
}
END_TEST

static const struct {
    const char *flags;
    uint64_t bytes_per_cell;
} slopes[] = {
    /* f16 copies of K and V, a delivered window, the mask of 512 tokens */
    {"-ctk q8_0 -nkvo", 4096 + 2176 + 1024},
    {"-ctk q8_0", 4096 + 1024},
    {"-ctk q8_0 -nkvo -kvgl 16", 4096 + 1024},
    {"-ctk q8_0 -nkvo -kvgl 15", 4096 + 2176 + 1024},
    {"-ctk q4_0 -nkvo", 4096 + 1152 + 1024},
    {"-nkvo", 4096 + 1024},
    {"", 1024},
    {"-ub 256", 512},
};

START_TEST(the_compute_buffer_grows_with_the_cells_of_one_layer)
{
    char flags[100];
    struct memory_account shorter, longer;

    snprintf(flags, sizeof flags, "%s -c 131072", slopes[_i].flags);
    shorter = account_of(QWEN, ONE_CARD, flags);
    snprintf(flags, sizeof flags, "%s -c 132096", slopes[_i].flags);
    longer = account_of(QWEN, ONE_CARD, flags);
    ck_assert_uint_eq(longer.devices[0].compute - shorter.devices[0].compute,
                      1024 * slopes[_i].bytes_per_cell);
}
END_TEST

START_TEST(only_the_device_of_a_host_layer_has_room_for_its_window)
{
    struct memory_account host =
        account_of(QWEN, PLAN_CASES_DESKTOP, "-c 131072 -ts 1/1 -nkvo -kvgl 8");
    struct memory_account none =
        account_of(QWEN, PLAN_CASES_DESKTOP, "-c 131072 -ts 1/1 -nkvo -kvgl 16");

    ck_assert_uint_eq(host.devices[0].compute - none.devices[0].compute, 4096 * 131072);
    ck_assert_uint_eq(host.devices[1].compute, none.devices[1].compute);
}
END_TEST

/* A ubatch of quantised rows for each host layer: the fork casts on the device. */
START_TEST(the_fork_keeps_a_place_for_cast_rows_of_each_host_layer)
{
    struct memory_account fork = account_of(QWEN, ONE_CARD, "-c 16384 -ctk q8_0 -nkvo");
    struct memory_account upstream =
        account_of(QWEN, ONE_CARD, "-c 16384 -ctk q8_0 -nkvo -engine llama.cpp");

    ck_assert_uint_eq(fork.devices[0].compute - upstream.devices[0].compute, 16 * 512 * 2176);
}
END_TEST

/* Four copies of mask and residual stream, none of which a stage can use again. */
START_TEST(pipelining_copies_the_inputs_four_times)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-c 65536 -ts 1/1", 0);
    struct memory_account with, without;

    ck_assert(c.placement->pipeline);
    memory_count(c.placement, &with);
    c.placement->pipeline = false;
    memory_count(c.placement, &without);
    for (int d = 0; d < 2; d++)
        ck_assert_uint_eq(with.devices[d].compute - without.devices[d].compute,
                          4 * (2 * 512 * 65536 + 4 * 512 * 5120));
    plan_cases_close(&c);
}
END_TEST

START_TEST(pipelining_copies_both_masks_of_a_model_with_sliding_layers)
{
    struct plan_case c = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, "-c 65536 -ts 1/1", 0);
    struct memory_account with, without;

    memory_count(c.placement, &with);
    c.placement->pipeline = false;
    memory_count(c.placement, &without);
    ck_assert_uint_eq(with.devices[1].compute - without.devices[1].compute,
                      4 * (2 * 512 * (65536 + 2560) + 4 * 512 * 6656));
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_tensor_split_carries_reduction_buffers_and_the_collective_library)
{
    struct memory_account tensor = account_of(QWEN, PLAN_CASES_DESKTOP, "-sm tensor");
    struct memory_account layer = account_of(QWEN, PLAN_CASES_DESKTOP, "");

    for (int d = 0; d < 2; d++)
        ck_assert_double_eq((double)(tensor.devices[d].overhead - layer.devices[d].overhead) / MIB,
                            40);
    /* what the profile says of a display on CUDA0 */
    ck_assert_double_eq((double)(layer.devices[0].overhead - layer.devices[1].overhead) / MIB, 254);
}
END_TEST

/* ---- verdict ---- */

static const struct {
    const char *model, *machine, *flags;
    int shortest; /* -1: fits */
} verdicts[] = {
    {QWEN, ONE_CARD, "-c 4096", -1},
    {QWEN, ONE_CARD, "-c 262144", 0},
    {QWEN, ONE_CARD, "-c 262144 -ctk q8_0 -nkvo", -1},
    {QWEN_LARGE, ONE_CARD, "-c 4096", 0},
    {QWEN_LARGE, PLAN_CASES_DESKTOP, "-c 4096", -1},
    {QWEN_LARGE, PLAN_CASES_DESKTOP, "-c 4096 -ts 1/3", 1},
    {QWEN_LARGE, PLAN_CASES_DESKTOP, "-c 4096 -ts 3/1", 0},
    {QWEN_LARGE, PLAN_CASES_DESKTOP, "-c 4096 -sm none -mg 1", 0},
    {QWEN_LARGE, PLAN_CASES_DESKTOP, "-c 4096 -sm tensor", -1},
    {"llama-3.3-70b:Q4_K_M", PLAN_CASES_DESKTOP, "-c 4096 -ts 45/55", 1},
};

START_TEST(a_verdict_is_fits_or_the_missing_mebibytes_of_the_worst_device)
{
    struct plan_case c =
        plan_cases_open(verdicts[_i].model, verdicts[_i].machine, verdicts[_i].flags, 0);
    struct memory_account account;
    char text[64], expected[64] = "fits";

    memory_count(c.placement, &account);
    memory_verdict(c.placement, &account, text, sizeof text);
    ck_assert_int_eq(account.fits, verdicts[_i].shortest < 0);
    if (verdicts[_i].shortest >= 0) {
        const struct memory_device *device = &account.devices[verdicts[_i].shortest];
        uint64_t missing = device->total - device->available;

        ck_assert_uint_eq(account.short_bytes, missing);
        snprintf(expected, sizeof expected, "short %llu MiB on %s",
                 (unsigned long long)((missing + 1048575) / 1048576),
                 c.machine->devices[c.placement->devices[verdicts[_i].shortest]].name);
    }
    ck_assert_str_eq(text, expected);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_plan_fits_to_the_byte)
{
    struct plan_case c = plan_cases_open(QWEN, ONE_CARD, "-c 4096", 0);
    struct memory_account account;
    char text[64];

    memory_count(c.placement, &account);
    c.machine->devices[0].memory_bytes = account.devices[0].total;
    memory_count(c.placement, &account);
    ck_assert(account.fits);
    c.machine->devices[0].memory_bytes--;
    memory_count(c.placement, &account);
    memory_verdict(c.placement, &account, text, sizeof text);
    ck_assert_str_eq(text, "short 1 MiB on CUDA0");
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_total_is_the_sum_of_its_parts)
{
    struct memory_account account =
        account_of(QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ctk q8_0 -c 65536 -nkvo -kvgl 3");

    for (uint32_t d = 0; d < 2; d++) {
        const struct memory_device *device = &account.devices[d];

        ck_assert_uint_eq(device->total, device->weights + device->kv + device->recurrent +
                                             device->compute + device->overhead);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *parts = tcase_create("parts"), *buffers = tcase_create("buffers");
    TCase *verdict = tcase_create("verdict");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(parts, 60);
    tcase_set_timeout(buffers, 60);
    tcase_set_timeout(verdict, 60);
    tcase_add_test(parts, weights_of_the_27b_on_one_device_are_what_the_engine_prints);
    tcase_add_loop_test(parts, weights_of_a_layer_split_add_up_to_those_of_one_device, 0,
                        COUNT(splits));
    tcase_add_test(parts, a_tensor_split_stores_mirrored_tensors_on_each_device);
    tcase_add_test(parts, a_tied_head_is_whole_on_each_device_of_llama_cpp_and_split_in_the_fork);
    tcase_add_loop_test(parts, a_cache_takes_its_rows_times_its_cells, 0, COUNT(cache_cases));
    tcase_add_loop_test(parts, a_recurrent_state_lies_with_its_heads_whatever_the_context, 0,
                        COUNT(state_cases));
    tcase_add_test(buffers, logits_of_a_whole_ubatch_lie_behind_the_mask);
    tcase_add_loop_test(buffers, a_compute_buffer_is_about_what_the_engine_prints, 0,
                        COUNT(buffer_cases));
    tcase_add_loop_test(buffers, the_compute_buffer_grows_with_the_cells_of_one_layer, 0,
                        COUNT(slopes));
    tcase_add_test(buffers, only_the_device_of_a_host_layer_has_room_for_its_window);
    tcase_add_test(buffers, the_fork_keeps_a_place_for_cast_rows_of_each_host_layer);
    tcase_add_test(buffers, pipelining_copies_the_inputs_four_times);
    tcase_add_test(buffers, pipelining_copies_both_masks_of_a_model_with_sliding_layers);
    tcase_add_test(buffers, a_tensor_split_carries_reduction_buffers_and_the_collective_library);
    tcase_add_loop_test(verdict, a_verdict_is_fits_or_the_missing_mebibytes_of_the_worst_device, 0,
                        COUNT(verdicts));
    tcase_add_test(verdict, a_plan_fits_to_the_byte);
    tcase_add_test(verdict, a_total_is_the_sum_of_its_parts);
    suite_add_tcase(suite, parts);
    suite_add_tcase(suite, buffers);
    suite_add_tcase(suite, verdict);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
