/* Accuracy over all measured rows of speed: the goals of the whole, of generic GPUs, and what
 * may be fitted or left out. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/validate.h"

static const struct {
    double median_pct, p95_pct, max_pct; /* of the absolute errors of counted rows */
    double generate_pct, prompt_pct;     /* medians of machines made from the catalogue only */
    double left_out_pct;                 /* rows of speed that are not predicted */
    double order_pct;                    /* values further apart than this keep their order */
    size_t fitted;                       /* rows of a model, its quantisation and a phase */
} goals = {3, 10, 20, 10, 20, 5, 3, 2};

enum { FILES = 3 };

static struct trace traces[FILES];
static struct validation validation;

static void open_all(void)
{
    static const char *const names[FILES] = {"seed-000.jsonl", "seed-002.jsonl",
                                             "scoreboard.jsonl"};
    const char *folder = getenv("srcdir");
    struct error err = {0};

    for (size_t t = 0; t < FILES; t++) {
        char path[400];

        snprintf(path, sizeof path, "%s/traces/%s", folder != NULL ? folder : ".", names[t]);
        ck_assert_msg(trace_load_file(path, &traces[t], &err) == 0, "%s: %s", path, err.text);
    }
    ck_assert_msg(validate_rows(traces, FILES, NULL, &validation, &err) == 0, "%s", err.text);
}

static void close_all(void)
{
    validation_close(&validation);
    for (size_t t = 0; t < FILES; t++)
        trace_close(&traces[t]);
}

static bool is_of(const struct validate_row *row, const char *table)
{
    char own[48];

    validate_table_id(row->row->id, own, sizeof own);
    return strcmp(own, table) == 0;
}

static bool is_predicted(const struct validate_row *row)
{
    return row->status == VALIDATE_COUNTED || row->status == VALIDATE_FITTED ||
           row->status == VALIDATE_DUPLICATE;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

START_TEST(errors_of_all_rows_are_within_the_goals)
{
    ck_assert_uint_ge(validation.total.n, 200);
    ck_assert_double_le(validation.total.median_pct, goals.median_pct);
    ck_assert_double_le(validation.total.p95_pct, goals.p95_pct);
    ck_assert_double_le(validation.total.max_pct, goals.max_pct);
}
END_TEST

static const struct {
    enum row_metric metric;
    size_t rows_min;
} phases[] = {{ROW_TG, 12}, {ROW_PP, 10}};

START_TEST(machines_made_from_the_catalogue_are_within_the_goals)
{
    double errors[64];
    size_t n = 0;

    for (size_t i = 0; i < validation.row_count; i++) {
        const struct validate_row *row = &validation.rows[i];

        if (!is_of(row, "scoreboard") || row->metric != phases[_i].metric)
            continue;
        ck_assert_int_ne(row->status, VALIDATE_FITTED);
        if (row->status == VALIDATE_COUNTED)
            errors[n++] = fabs(row->error_pct);
    }
    ck_assert_uint_ge(n, phases[_i].rows_min);
    qsort(errors, n, sizeof *errors, compare);
    ck_assert_double_le(validate_percentile(errors, n, 50),
                        phases[_i].metric == ROW_TG ? goals.generate_pct : goals.prompt_pct);
}
END_TEST

START_TEST(few_rows_are_left_out_and_their_file_says_why)
{
    size_t all = 0, left_out = 0;

    for (size_t i = 0; i < validation.row_count; i++) {
        const struct validate_row *row = &validation.rows[i];

        if (!row_metric_is_speed(row->metric) || row->status == VALIDATE_DERIVED)
            continue;
        all++;
        if (row->status != VALIDATE_SKIPPED)
            continue;
        left_out++;
        ck_assert_msg(row->row->skip[0] != '\0', "%s is left out: %s", row->row->id, row->reason);
    }
    ck_assert_double_le((double)left_out * 100, goals.left_out_pct * (double)all);
}
END_TEST

/* Drafted generation is a phase of its own: its rows yield the acceptance of tokens. */
static bool is_same_phase(const struct validate_row *a, const struct validate_row *b)
{
    return a->metric == b->metric && strcmp(a->row->model, b->row->model) == 0 &&
           strcmp(a->row->quant, b->row->quant) == 0 && is_of(a, "s002-h3") == is_of(b, "s002-h3");
}

START_TEST(few_rows_of_a_model_and_phase_are_fitted)
{
    for (size_t i = 0; i < validation.row_count; i++) {
        size_t count = 0;

        if (validation.rows[i].status != VALIDATE_FITTED)
            continue;
        for (size_t j = 0; j < validation.row_count; j++)
            count += validation.rows[j].status == VALIDATE_FITTED &&
                     is_same_phase(&validation.rows[i], &validation.rows[j]);
        ck_assert_msg(count <= goals.fitted, "%s is one of %zu", validation.rows[i].row->id, count);
    }
}
END_TEST

static bool are_apart(const struct validate_row *less, const struct validate_row *more)
{
    return is_predicted(less) && is_predicted(more) && less->metric == more->metric &&
           (less->metric == ROW_PP || less->metric == ROW_TG) &&
           strcmp(less->row->model, more->row->model) == 0 &&
           more->measured > less->measured * (1 + goals.order_pct / 100);
}

START_TEST(rows_of_a_table_that_differ_keep_their_order)
{
    size_t pairs = 0;

    for (size_t i = 0; i < validation.row_count; i++) {
        const struct validate_row *less = &validation.rows[i];
        char table[48];

        validate_table_id(less->row->id, table, sizeof table);
        for (size_t j = 0; j < validation.row_count && strcmp(table, "scoreboard") != 0; j++) {
            const struct validate_row *more = &validation.rows[j];

            if (!is_of(more, table) || !are_apart(less, more))
                continue;
            pairs++;
            ck_assert_msg(more->predicted > less->predicted,
                          "%s and %s: %.5g and %.5g measured, %.5g and %.5g predicted",
                          less->row->id, more->row->id, less->measured, more->measured,
                          less->predicted, more->predicted);
        }
    }
    ck_assert_uint_ge(pairs, 300);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accuracy_all");
    TCase *tcase = tcase_create("all rows");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_unchecked_fixture(tcase, open_all, close_all);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, errors_of_all_rows_are_within_the_goals);
    tcase_add_loop_test(tcase, machines_made_from_the_catalogue_are_within_the_goals, 0, 2);
    tcase_add_test(tcase, few_rows_are_left_out_and_their_file_says_why);
    tcase_add_test(tcase, few_rows_of_a_model_and_phase_are_fitted);
    tcase_add_test(tcase, rows_of_a_table_that_differ_keep_their_order);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
