/* Rows of a kernel table from tasks that were measured. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "sim/kernel_samples.h"

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

START_TEST(samples_of_one_size_have_a_launch_of_few_us)
{
    add(TASK_NORM, 1, 1e6, 12.5e-6);
    add(TASK_NORM, 1, 1e6, 12.5e-6);
    add(TASK_GLU, 1, 1e6, 2e-6);
    make_rows(is_any);
    ck_assert_double_eq_tol(table.others[0].launch_s, 2.5e-6, 1e-12);
    ck_assert_double_eq_tol(table.others[0].gbs, 100, 1e-6);
    ck_assert_double_eq_tol(table.others[1].launch_s, 2e-6, 1e-12); /* all of it */
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
    ck_assert_double_eq_tol(table.others[0].launch_s, 5e-6, 1e-12);
    ck_assert_uint_eq(table.attention_count, 2);
    ck_assert_double_eq_tol(table.attentions[0].time_s, 7e-6, 1e-12);
    ck_assert_uint_eq(table.attentions[1].head_dim, 256);
    ck_assert_double_eq_tol(table.attentions[1].time_s, 14e-6, 1e-12);
}
END_TEST

#ifdef HAVE_NLOPT

static bool is_norm(const struct kernel_sample *sample)
{
    return sample->kind == TASK_NORM;
}

/* 3 us and 100 GB/s; more samples than the list has room for at first. */
START_TEST(other_kinds_get_a_fixed_time_and_a_rate)
{
    for (int i = 0; i < 1500; i++) {
        double bytes = 1e5 * (1 + i % 7);

        add(TASK_NORM, 1, bytes, 3e-6 + bytes / 100e9);
        add(TASK_NORM, 8, bytes, 6e-6 + bytes / 50e9);
        add(TASK_GLU, 1, bytes, 1e-6);
    }
    make_rows(is_norm);
    ck_assert_uint_eq(table.other_count, 2);
    ck_assert_double_eq_tol(table.others[0].launch_s, 3e-6, 1e-9);
    ck_assert_double_eq_tol(table.others[0].gbs, 100, 0.1);
    ck_assert_double_eq_tol(table.others[1].launch_s, 6e-6, 1e-9);
    ck_assert_double_eq_tol(table.others[1].gbs, 50, 0.1);
}
END_TEST

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
    tcase_add_test(tcase, samples_of_one_size_have_a_launch_of_few_us);
    tcase_add_test(tcase, of_sums_and_waits_the_quicker_quarter_counts_of_attention_the_median);
#ifdef HAVE_NLOPT
    tcase_add_test(tcase, other_kinds_get_a_fixed_time_and_a_rate);
    tcase_add_test(tcase, what_products_have_in_common_is_found_once);
#endif
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
