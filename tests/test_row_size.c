/* Rows of sizes and counts: what each metric means, and what a row must state. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/validate.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"
#define ROW(metric, plan)                                                                          \
    "{\"id\": \"a-01\", \"machine\": \"" PAIR "\", \"engine\": \"llama.cpp-fork\", "               \
    "\"model\": \"qwen3.8-27b\", \"quant\": \"UD-Q5_K_M\", \"metric\": \"" metric                  \
    "\", \"value\": 100, \"plan\": {" plan "}, \"workload\": {\"n_prompt\": 4096}}\n"

static struct validate_row predict(const char *text)
{
    struct trace trace;
    struct validation validation;
    struct validate_row row;
    struct error err = {0};

    ck_assert_msg(trace_parse(text, strlen(text), "rows", &trace, &err) == 0, "%s", err.text);
    ck_assert_msg(validate_rows(&trace, 1, NULL, &validation, &err) == 0, "%s", err.text);
    row = validation.rows[0];
    row.row = NULL;
    validation_close(&validation);
    trace_close(&trace);
    return row;
}

static double value_of(const char *text)
{
    struct validate_row row = predict(text);

    ck_assert_msg(row.status == VALIDATE_COUNTED, "%s", row.reason);
    return row.predicted;
}

static const struct {
    const char *text;
    double value;
} known[] = {
    {ROW("logits_mib_per_ubatch_token", ""), 248320 * 4 / 1048576.0},
    {ROW("recurrent_state_mib", ""), 149.625},
    {ROW("recurrent_state_mib", "\"kv_on_host\": true"), 149.625},
    {ROW("kv_bytes_per_ctx_token", ""), 16 * 4096},
    {ROW("kv_bytes_per_ctx_token", "\"type_k\": \"q8_0\""), 16 * 2176},
    {ROW("kv_mib_per_256_cells", "\"type_k\": \"q8_0\""), 8.5},
    {ROW("graph_splits", "\"split_mode\": \"layer\""), 3},
    {ROW("allreduce_bytes_per_direction", "\"split_mode\": \"tensor\""), 20},
    {ROW("allreduce_bytes_per_direction", "\"split_mode\": \"tensor\", \"n_ubatch\": 2048"), 20},
};

START_TEST(a_size_is_what_its_metric_says)
{
    ck_assert_double_eq_tol(value_of(known[_i].text), known[_i].value, 1e-9);
}
END_TEST

START_TEST(the_buffer_of_both_devices_is_the_sum)
{
    double first = value_of(ROW("compute_buffer_mib", "\"device\": \"first printed device\""));
    double second = value_of(ROW("compute_buffer_mib", "\"device\": \"CUDA1\""));
    double both = value_of(ROW("compute_buffer_mib", "\"device\": \"both\""));

    ck_assert_double_gt(second, first); /* it has the head */
    ck_assert_double_eq_tol(both, first + second, 1e-9);
}
END_TEST

START_TEST(a_difference_of_splits_is_that_of_their_buffers)
{
    double layer =
        value_of(ROW("compute_buffer_mib", "\"split_mode\": \"layer\", \"device\": \"both\""));
    double tensor =
        value_of(ROW("compute_buffer_mib", "\"split_mode\": \"tensor\", \"device\": \"both\""));

    ck_assert_double_eq_tol(
        value_of(ROW("compute_buffer_mib",
                     "\"split_mode\": \"tensor minus layer\", \"device\": \"both\"")),
        tensor - layer, 1e-9);
}
END_TEST

START_TEST(a_mirrored_head_adds_half_of_it_to_each_of_two_devices)
{
    double one = value_of(ROW("vram_delta_mib",
                              "\"split_mode\": \"tensor\", \"output_head\": \"mirrored minus "
                              "split\", \"device\": \"CUDA1\""));

    /* 248320 rows of 5120 values as Q6_K */
    ck_assert_double_eq_tol(one, 248320 / 2 * 5120.0 / 256 * 210 / 1048576, 1);
}
END_TEST

static const struct {
    const char *text, *reason;
} refusals[] = {
    {ROW("compute_buffer_mib", ""), "no device stated"},
    {ROW("compute_buffer_mib", "\"device\": \"CUDA9\""), "CUDA9"},
    {ROW("allreduce_bytes_per_direction", "\"split_mode\": \"layer\""), "no all-reduce"},
    {ROW("allreduce_ms_per_boundary", "\"split_mode\": \"layer\""), "no all-reduce"},
    {ROW("shift_ms", "\"kv_on_host\": true"), "live cells"},
    {ROW("vram_delta_mib", "\"device\": \"CUDA0\""), "increment"},
    {ROW("h2d_gbs", ""), "input of the machine profile"},
    {ROW("hash", ""), "which output"},
    {ROW("nonsense", ""), "metric nonsense"},
};

START_TEST(a_row_that_lacks_what_its_metric_needs_is_skipped_with_the_reason)
{
    struct validate_row row = predict(refusals[_i].text);

    ck_assert_int_eq(row.status, VALIDATE_SKIPPED);
    ck_assert_msg(strstr(row.reason, refusals[_i].reason) != NULL, "%s", row.reason);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("row size");
    TCase *sizes = tcase_create("sizes"), *reasons = tcase_create("reasons");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(sizes, a_size_is_what_its_metric_says, 0,
                        (int)(sizeof known / sizeof *known));
    tcase_add_test(sizes, the_buffer_of_both_devices_is_the_sum);
    tcase_add_test(sizes, a_difference_of_splits_is_that_of_their_buffers);
    tcase_add_test(sizes, a_mirrored_head_adds_half_of_it_to_each_of_two_devices);
    tcase_add_loop_test(reasons, a_row_that_lacks_what_its_metric_needs_is_skipped_with_the_reason,
                        0, (int)(sizeof refusals / sizeof *refusals));
    suite_add_tcase(suite, sizes);
    suite_add_tcase(suite, reasons);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
