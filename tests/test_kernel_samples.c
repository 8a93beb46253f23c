/* Rows of a kernel table from tasks that were measured. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/kernel_sample_file.h"

static struct kernel_samples samples;
static struct kernel_table table;

static void close_all(void)
{
    kernel_samples_free(&samples);
    kernel_table_clear(&table);
}

static bool is_any(const struct kernel_sample *sample)
{
    (void)sample;
    return true;
}

static void make_rows(bool (*takes)(const struct kernel_sample *))
{
    struct error err = {0};

    ck_assert_msg(kernel_samples_rows(&samples, takes, 4000, &table, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(samples.count, 0);
}

static void add(enum task_kind kind, uint32_t tokens, double bytes, double time_s)
{
    kernel_samples_add(&samples, (struct kernel_sample){.kind = kind,
                                                        .tokens = tokens,
                                                        .kernels = 1,
                                                        .devices = 2,
                                                        .bytes = bytes,
                                                        .time_s = time_s});
}

/* Of each size the middle half counts: 10, 11, 12, 13 of these. */
START_TEST(other_kinds_have_a_row_for_each_size)
{
    static const double us[] = {90, 10, 5, 13, 11, 2, 12, 40};

    for (size_t i = 0; i < sizeof us / sizeof *us; i++) {
        add(TASK_NORM, 1, 2e6, 2 * us[i] * 1e-6);
        add(TASK_NORM, 1, 1e6, us[i] * 1e-6);
    }
    add(TASK_GLU, 1, 1e6, 2e-6);
    make_rows(is_any);
    ck_assert_uint_eq(table.other_count, 3);
    ck_assert_uint_eq(table.others[0].bytes, 1000000);
    ck_assert_double_eq_tol(table.others[0].time_s, 11.5e-6, 1e-12);
    ck_assert_double_eq_tol(table.others[1].time_s, 23e-6, 1e-12);
    ck_assert_double_eq_tol(table.others[2].time_s, 2e-6, 1e-12);
}
END_TEST

START_TEST(rotated_heads_with_norms_are_rows_of_their_own)
{
    for (int i = 0; i < 4; i++)
        kernel_samples_add(&samples, (struct kernel_sample){.kind = TASK_ROPE,
                                                            .tokens = 1,
                                                            .head_dim = i < 2 ? 128 : 256,
                                                            .normed = i % 2 == 1,
                                                            .bytes = 1e5,
                                                            .time_s = 1e-6 * (i + 1)});
    make_rows(is_any);
    ck_assert_uint_eq(table.other_count, 4);
    for (int i = 0; i < 4; i++) {
        const struct kernel_other *row = &table.others[i];

        ck_assert_double_eq_tol(row->time_s,
                                1e-6 * ((row->head_dim == 128 ? 0 : 2) + row->normed + 1), 1e-12);
    }
}
END_TEST

START_TEST(of_sums_and_waits_the_quicker_quarter_counts_of_attention_the_median)
{
    static const double us[] = {9, 3, 40, 5, 7, 100, 4, 6};

    for (size_t i = 0; i < sizeof us / sizeof *us; i++) {
        struct kernel_sample window = {.kind = TASK_ATTENTION,
                                       .type = TENSOR_TYPE_F16,
                                       .tokens = 1,
                                       .head_dim = 128,
                                       .kv_heads = 8,
                                       .cells = 256,
                                       .time_s = us[i] * 1e-6};

        add(TASK_ALL_REDUCE, 1, 32768, us[i] * 1e-6);
        add(TASK_WAIT, 1, 0, us[i] * 1e-6);
        kernel_samples_add(&samples, window);
        window.head_dim = 256;
        window.time_s *= 2;
        kernel_samples_add(&samples, window);
    }
    make_rows(is_any);
    ck_assert_uint_eq(table.sum_count, 1);
    ck_assert_uint_eq(table.sums[0].devices, 2);
    ck_assert_double_eq_tol(table.sums[0].time_s, 5e-6, 1e-12);
    ck_assert_uint_eq(table.other_count, 1);
    ck_assert_double_eq_tol(table.others[0].time_s, 5e-6, 1e-12);
    ck_assert_uint_eq(table.attention_count, 2);
    ck_assert_double_eq_tol(table.attentions[0].time_s, 7e-6, 1e-12);
    ck_assert_uint_eq(table.attentions[1].head_dim, 256);
    ck_assert_double_eq_tol(table.attentions[1].time_s, 14e-6, 1e-12);
}
END_TEST

START_TEST(sums_of_as_many_tokens_and_other_widths_are_other_rows)
{
    add(TASK_ALL_REDUCE, 1, 40960, 20e-6);
    add(TASK_ALL_REDUCE, 1, 32768, 10e-6);
    make_rows(is_any);
    ck_assert_uint_eq(table.sum_count, 2);
    ck_assert_double_eq_tol(table.sums[0].time_s, 10e-6, 1e-12);
    ck_assert_uint_eq(table.sums[1].bytes, 40960);
}
END_TEST

static void write_file(char *path, const char *text)
{
    FILE *out = fdopen(mkstemp(path), "w");

    ck_assert_ptr_nonnull(out);
    if (text != NULL)
        fputs(text, out);
    else
        kernel_samples_write(&samples, "A \"GPU\"", out);
    ck_assert_int_eq(fclose(out), 0);
}

START_TEST(samples_of_a_file_are_those_that_were_written)
{
    const struct kernel_sample product = {
        .kind = TASK_MATMUL,
        .type = TENSOR_TYPE_Q4_K,
        .tokens = 4,
        .kernels = 1,
        .bytes = 123456789,
        .time_s = 12.5e-6,
        .ahead_bytes = 22e6,
        .before = {.small_s = 1e-6, .attention_s = 2e-6, .delta_net_s = 3e-6}};
    char path[] = "kernel_samples-XXXXXX", gpu[16];
    struct kernel_samples again = {.count = 0};
    struct error err = {0};

    kernel_samples_add(&samples, product);
    kernel_samples_add(&samples, (struct kernel_sample){.kind = TASK_ATTENTION,
                                                        .type = TENSOR_TYPE_F16,
                                                        .tokens = 512,
                                                        .head_dim = 128,
                                                        .kv_heads = 8,
                                                        .cells = UINT64_C(5000000000),
                                                        .time_s = 1});
    add(TASK_ALL_REDUCE, 1, 32768, 1.0 / 3 * 1e-6);
    kernel_samples_add(&samples, (struct kernel_sample){.kind = TASK_NORM,
                                                        .tokens = 1,
                                                        .behind = TASK_EXPERTS,
                                                        .normed = true,
                                                        .time_s = 1e-6});
    write_file(path, NULL);
    ck_assert_msg(kernel_samples_read(path, &again, gpu, sizeof gpu, &err) == 0, "%s", err.text);
    unlink(path);
    ck_assert_str_eq(gpu, "A \"GPU\"");
    ck_assert_uint_eq(again.count, 4);
    ck_assert_int_eq(again.list[3].behind, TASK_EXPERTS);
    ck_assert(again.list[3].normed);
    ck_assert_int_eq(again.list[0].behind, 0);
    ck_assert_int_eq(again.list[0].type, TENSOR_TYPE_Q4_K);
    ck_assert_double_eq(again.list[0].bytes, product.bytes);
    ck_assert_double_eq_tol(again.list[0].before.attention_s, 2e-6, 1e-14);
    ck_assert_double_eq_tol(again.list[0].before.delta_net_s, 3e-6, 1e-14);
    ck_assert_double_eq_tol(again.list[0].ahead_bytes, 22e6, 1e-3);
    ck_assert_uint_eq(again.list[1].cells, UINT64_C(5000000000));
    ck_assert_uint_eq(again.list[1].kv_heads, 8);
    ck_assert_uint_eq(again.list[2].devices, 2);
    ck_assert_double_eq_tol(again.list[2].time_s, 1.0 / 3 * 1e-6, 1e-14);
    kernel_samples_free(&again);
}
END_TEST

static const struct {
    const char *text, *complaint;
} refused[] = {
    {"{\"lopside_samples\": 2, \"gpu\": \"G\", \"samples\": []}", "lopside_samples"},
    {"{\"lopside_samples\": 1, \"samples\": []}", "gpu"},
    {"{\"lopside_samples\": 1, \"gpu\": \"G\", \"samples\": [{\"kind\": \"nrom\"}]}", "norm"},
    {"{\"lopside_samples\": 1, \"gpu\": \"G\", \"samples\": [{\"kind\": \"norm\", \"type\": "
     "\"Q8\", \"us\": 1}]}",
     "Q8_0"},
    {"{\"lopside_samples\": 1, \"gpu\": \"G\", \"samples\": [{\"kind\": \"norm\", \"type\": "
     "\"F32\", \"us\": 0}]}",
     "us"},
    {"{\"lopside_samples\": 1, \"gpu\": \"G\", \"samples\": [{\"kind\": \"norm\", \"type\": "
     "\"F32\", \"us\": 1, \"ms\": 1}]}",
     "ms"},
};

START_TEST(a_file_of_samples_is_refused_by_field)
{
    char path[] = "kernel_samples-XXXXXX", gpu[16];
    struct error err = {0};

    write_file(path, refused[_i].text);
    ck_assert_int_eq(kernel_samples_read(path, &samples, gpu, sizeof gpu, &err), -1);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(err.source, "kernel_samples"));
    ck_assert_int_eq(err.line, 1);
    ck_assert_msg(strstr(err.text, refused[_i].complaint) != NULL, "%s", err.text);
}
END_TEST

#ifdef HAVE_NLOPT

static void add_product(enum tensor_type type, uint32_t tokens, double bytes, double before_s,
                        double time_s)
{
    kernel_samples_add(&samples, (struct kernel_sample){.kind = TASK_MATMUL,
                                                        .type = type,
                                                        .tokens = tokens,
                                                        .kernels = 1,
                                                        .bytes = bytes,
                                                        .time_s = time_s,
                                                        .ahead_bytes = tokens == 1 ? 20e6 : 0,
                                                        .before = {.small_s = before_s}});
}

/* Weights begin to come 2 us after the product before, which products of all types show. */
START_TEST(what_products_have_in_common_is_found_once)
{
    for (int i = 0; i < 40; i++) {
        double bytes = 4e6 * (1 + i % 10), before_s = 1e-6 * (1 + i % 4);
        double loaded = fmin(fmin(20e6, bytes), fmax(0, before_s - 2e-6) * 1000e9);

        add_product(TENSOR_TYPE_Q4_0, 1, bytes, before_s, 5e-6 + (bytes - loaded) / 1000e9);
        add_product(TENSOR_TYPE_Q8_0, 1, bytes, before_s, 4e-6 + (bytes - loaded) / 1000e9);
        add_product(TENSOR_TYPE_Q8_0, 64, bytes, before_s, 9e-6 + bytes / 500e9);
    }
    make_rows(is_any);
    ck_assert_uint_eq(table.product_count, 3);
    ck_assert_double_eq_tol(table.ahead_lag_s, 2e-6, 0.1e-6);
    for (size_t i = 0; i < 3; i++) {
        const struct kernel_product *row = &table.products[i];
        bool one = row->tokens == 1;

        ck_assert_double_eq_tol(row->launch_s,
                                !one                            ? 9e-6
                                : row->type == TENSOR_TYPE_Q4_0 ? 5e-6
                                                                : 4e-6,
                                0.1e-6);
        ck_assert_double_eq_tol(row->gbs, one ? 1000 : 500, 10);
        ck_assert_double_eq(row->ahead_bytes, one ? 20e6 : 0);
        ck_assert(one || row->held_gbs == 0);
    }
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("kernel_samples");
    TCase *tcase = tcase_create("rows");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, other_kinds_have_a_row_for_each_size);
    tcase_add_test(tcase, rotated_heads_with_norms_are_rows_of_their_own);
    tcase_add_test(tcase, of_sums_and_waits_the_quicker_quarter_counts_of_attention_the_median);
    tcase_add_test(tcase, sums_of_as_many_tokens_and_other_widths_are_other_rows);
    tcase_add_test(tcase, samples_of_a_file_are_those_that_were_written);
    tcase_add_loop_test(tcase, a_file_of_samples_is_refused_by_field, 0,
                        (int)(sizeof refused / sizeof *refused));
#ifdef HAVE_NLOPT
    tcase_add_test(tcase, what_products_have_in_common_is_found_once);
#endif
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
