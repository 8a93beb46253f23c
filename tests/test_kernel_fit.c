/* Fitting products' rows of a kernel table to launches that were measured. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/kernel_fit.h"
#include "sim/kernel_times.h"

enum { SAMPLES_MAX = 64 };

static struct kernel_fit_sample samples[SAMPLES_MAX];
static size_t sample_count;

/* 3 us and 4400 GB/s, 11 TB/s with what is there; 1.2 us until weights come; attention has half of
 * its time alone, a delta net a quarter. */
static const struct kernel_product row_made = {
    TASK_MATMUL, TENSOR_TYPE_Q8_0, 256, 1, 3e-6, 4400, 23e6, 11000};
static const struct kernel_table table_made = {
    .ahead_lag_s = 1.2e-6, .attention_alone = 0.5, .delta_net_alone = 0.25};

static double time_of(const struct kernel_table *table, const struct kernel_product *row,
                      const struct kernel_fit_sample *sample)
{
    struct kernel_gap gap = {.s = 0};

    kernel_gap_pass(&gap, sample->small_s, 0);
    kernel_gap_pass(&gap, sample->attention_s, table->attention_alone);
    kernel_gap_pass(&gap, sample->delta_net_s, table->delta_net_alone);
    return kernel_product_s(table, row, &gap, sample->bytes);
}

/* Launches as models have them: behind a norm, attention, a GLU, a delta net. */
static void make_samples(void)
{
    static const double megabytes[] = {2.2, 4.5, 17.8, 33.4, 62.4, 107, 250};

    sample_count = 0;
    for (size_t i = 0; i < sizeof megabytes / sizeof *megabytes; i++)
        for (int behind = 0; behind < 4; behind++) {
            struct kernel_fit_sample sample = {.bytes = megabytes[i] * 1e6};

            sample.small_s = behind == 0 ? (4.5 + 0.2 * (double)i) * 1e-6 : 0;
            sample.attention_s = behind == 1 ? (7 + 0.3 * (double)i) * 1e-6 : 0;
            sample.delta_net_s = behind == 2 ? (6 + 0.3 * (double)i) * 1e-6 : 0;
            if (behind == 3)
                sample.small_s = 1.6e-6;
            sample.time_s = time_of(&table_made, &row_made, &sample);
            samples[sample_count++] = sample;
        }
}

static void ck_predicts(const struct kernel_table *table, const struct kernel_product *row,
                        size_t but, double tolerance)
{
    for (size_t i = 0; i < sample_count; i++) {
        double time_s = time_of(table, row, &samples[i]);

        if (i != but)
            ck_assert_msg(fabs(time_s / samples[i].time_s - 1) <= tolerance,
                          "launch %zu: %g us for %g", i, time_s * 1e6, samples[i].time_s * 1e6);
    }
}

#ifdef HAVE_NLOPT

START_TEST(launches_are_found_again_from_their_times)
{
    struct kernel_product row = {.kind = TASK_MATMUL, .tokens = 1, .ahead_bytes = 23e6};
    struct kernel_table table = {.ahead_lag_s = 0};
    struct error err = {0};

    make_samples();
    ck_assert_msg(kernel_fit_product(&table, &row, samples, sample_count, 4000, true, &err) == 0,
                  "%s", err.text);
    ck_predicts(&table, &row, SIZE_MAX, 0.02);
    ck_assert_double_eq_tol(row.gbs, row_made.gbs, 0.02 * row_made.gbs);
    ck_assert_double_eq_tol(row.launch_s, row_made.launch_s, 0.2e-6);
}
END_TEST

START_TEST(what_products_have_in_common_stays_when_a_row_is_fitted)
{
    struct kernel_product row = {.kind = TASK_MATMUL, .tokens = 1, .ahead_bytes = 23e6};
    struct kernel_table table = table_made;

    make_samples();
    ck_assert_int_eq(kernel_fit_product(&table, &row, samples, sample_count, 4000, false, NULL), 0);
    ck_assert_double_eq(table.ahead_lag_s, table_made.ahead_lag_s);
    ck_assert_double_eq(table.attention_alone, table_made.attention_alone);
    ck_predicts(&table, &row, SIZE_MAX, 0.01);
}
END_TEST

START_TEST(a_launch_unlike_the_others_moves_nothing)
{
    const size_t odd = 9;
    struct kernel_product row = {.kind = TASK_MATMUL, .tokens = 1, .ahead_bytes = 23e6};
    struct kernel_table table = {.ahead_lag_s = 0};

    make_samples();
    samples[odd].time_s *= 1.5;
    ck_assert_int_eq(kernel_fit_product(&table, &row, samples, sample_count, 4000, true, NULL), 0);
    ck_predicts(&table, &row, odd, 0.03);
}
END_TEST

/* Many launches of one shape that take twice as long as the others say. */
START_TEST(a_shape_that_is_there_often_counts_as_one)
{
    struct kernel_product row = {.kind = TASK_MATMUL, .tokens = 1, .ahead_bytes = 23e6};
    struct kernel_table table = table_made;
    size_t others;

    make_samples();
    others = sample_count;
    for (; sample_count < SAMPLES_MAX; sample_count++) {
        samples[sample_count] = samples[3];
        samples[sample_count].bytes = 150e6;
        samples[sample_count].time_s = 70e-6;
    }
    ck_assert_int_eq(kernel_fit_product(&table, &row, samples, sample_count, 4000, false, NULL), 0);
    sample_count = others;
    ck_predicts(&table, &row, SIZE_MAX, 0.03);
}
END_TEST

/* Five small shapes read at 2000 GB/s, four large ones at 4000, all behind 3 us. */
START_TEST(what_takes_long_counts_for_more)
{
    struct kernel_product row = {.kind = TASK_MATMUL, .tokens = 64};
    struct kernel_table table = {.ahead_lag_s = 0};

    for (sample_count = 0; sample_count < 9; sample_count++) {
        double size = (double)(sample_count + 1),
               bytes = sample_count < 5 ? size * 1e6 : size * 50e6;

        samples[sample_count] = (struct kernel_fit_sample){
            .bytes = bytes, .time_s = 3e-6 + bytes / (sample_count < 5 ? 2000e9 : 4000e9)};
    }
    ck_assert_int_eq(kernel_fit_product(&table, &row, samples, sample_count, 3000, false, NULL), 0);
    for (size_t i = 5; i < sample_count; i++)
        ck_assert_double_eq_tol(
            kernel_product_s(&table, &row, &(struct kernel_gap){.s = 0}, samples[i].bytes) /
                samples[i].time_s,
            1, 0.02);
}
END_TEST

#else

START_TEST(without_nlopt_nothing_is_fitted)
{
    struct kernel_product row = row_made;
    struct kernel_table table = table_made;
    struct error err = {0};

    make_samples();
    ck_predicts(&table, &row, SIZE_MAX, 0);
    ck_assert_int_eq(kernel_fit_product(&table, &row, samples, sample_count, 4000, true, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("kernel_fit");
    TCase *tcase = tcase_create("fit");
    SRunner *runner;
    int failed;

#ifdef HAVE_NLOPT
    tcase_add_test(tcase, launches_are_found_again_from_their_times);
    tcase_add_test(tcase, what_products_have_in_common_stays_when_a_row_is_fitted);
    tcase_add_test(tcase, a_launch_unlike_the_others_moves_nothing);
    tcase_add_test(tcase, a_shape_that_is_there_often_counts_as_one);
    tcase_add_test(tcase, what_takes_long_counts_for_more);
#else
    tcase_add_test(tcase, without_nlopt_nothing_is_fitted);
#endif
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
