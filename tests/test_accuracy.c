/* How close predictions come to measured rows: the project's own goals, on the rows of
 * traces/ that they were set for. The figures are printed whether they are met or not. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/values.h"
#include "tests/shipped_traces.h"

static const struct goals {
    double median_pct, p95_pct, max_pct; /* of the absolute errors of counted rows */
    size_t counted_min, fitted_max;
    double vram_pct, vram_mib; /* either suffices */
    double order_pct;          /* measured values further apart than this keep their order */
} goals = {2.5, 7, 12, 60, 20, 2, 64, 3};

/* The same of all rows of speed, and what machines made from the catalogue only reach. */
static const struct {
    double median_pct, p95_pct, max_pct; /* of the absolute errors of counted rows */
    double generate_pct, prompt_pct;     /* medians of machines made from the catalogue only */
    double left_out_pct;                 /* rows of speed that are not predicted */
    double order_pct;                    /* values further apart than this keep their order */
    size_t fitted;                       /* rows of a model, its quantisation and a phase */
} whole = {3, 10, 20, 10, 20, 5, 3, 2};

static const char *const tables[] = {
    "s000-residency", "s000-layer65k", "s000-tensor65k", "s000-attnsplit", "s000-ts-qwen",
    "s000-ts-layer",  "s000-perdev",   "s000-bench",     "s002-h5",
};

enum { TABLES = sizeof tables / sizeof *tables };

static struct shipped_traces shipped;
static struct validation *const validation = &shipped.validation;

static void open_traces(void)
{
    static const char *const names[] = {"seed-000.jsonl", "seed-002.jsonl", "scoreboard.jsonl",
                                        NULL};

    shipped_traces_open(&shipped, names);
}

static void close_traces(void)
{
    shipped_traces_close(&shipped);
}

/* ---- which rows ---- */

static bool is_of_table(const struct trace_row *row, const char *table)
{
    size_t length = strlen(table);

    return strncmp(row->id, table, length) == 0 && row->id[length] == '-' &&
           strspn(row->id + length + 1, "0123456789") == strlen(row->id + length + 1);
}

/* Of the bench table the device-resident rows of the 27B, of h5 those whose attention
 * is on the device. */
static bool is_goal_row(const struct validate_row *row, const char *table)
{
    const struct trace_row *r = row->row;

    if (!is_of_table(r, table) || (row->metric != ROW_PP && row->metric != ROW_TG))
        return false;
    if (strcmp(table, "s000-bench") == 0)
        return r->kv_on_host == TRACE_NO && strcmp(r->model, "qwen3.8-27b") == 0;
    if (strcmp(table, "s002-h5") == 0)
        return r->attn_on_host != TRACE_YES;
    return true;
}

static bool is_predicted(const struct validate_row *row)
{
    return row->status == VALIDATE_COUNTED || row->status == VALIDATE_FITTED ||
           row->status == VALIDATE_DUPLICATE;
}

/* ---- figures ---- */

/* Sorted absolute errors of the counted goal rows of one table, or of all (NULL). */
static size_t counted_errors(const char *table, double *errors)
{
    size_t n = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        for (size_t t = 0; t < TABLES; t++)
            if ((table == NULL || table == tables[t]) && is_goal_row(row, tables[t]) &&
                row->status == VALIDATE_COUNTED)
                errors[n++] = fabs(row->error_pct);
    }
    values_sort(errors, n);
    return n;
}

/* Tables quote each other: the same figure in two of them is one measurement. */
static bool repeats_an_earlier_row(size_t index)
{
    const struct validate_row *row = &validation->rows[index];

    for (size_t i = 0; i < index; i++) {
        const struct validate_row *other = &validation->rows[i];

        for (size_t t = 0; t < TABLES; t++)
            if (is_goal_row(other, tables[t]) && other->metric == row->metric &&
                other->measured == row->measured && other->row->clocks == row->row->clocks)
                return true;
    }
    return false;
}

static size_t distinct_measurements(void)
{
    size_t n = 0;

    for (size_t i = 0; i < validation->row_count; i++)
        for (size_t t = 0; t < TABLES; t++)
            n += is_goal_row(&validation->rows[i], tables[t]) &&
                 validation->rows[i].status == VALIDATE_COUNTED && !repeats_an_earlier_row(i);
    return n;
}

static void print_figures(const char *name, const double *errors, size_t n)
{
    printf("%-16s %3zu rows, median %5.2f %%, 95th percentile %5.2f %%, at most %5.2f %%\n", name,
           n, validate_percentile(errors, n, 50), validate_percentile(errors, n, 95),
           n > 0 ? errors[n - 1] : 0);
}

START_TEST(errors_of_counted_rows_are_within_the_goals)
{
    double *errors = calloc(validation->row_count + 1, sizeof *errors);
    double median_pct, p95_pct, max_pct;
    size_t n;

    ck_assert_ptr_nonnull(errors);
    for (size_t t = 0; t < TABLES; t++) {
        n = counted_errors(tables[t], errors);
        print_figures(tables[t], errors, n);
    }
    n = counted_errors(NULL, errors);
    print_figures("all", errors, n);
    printf("%zu of them are measurements of their own, the rest quote them\n",
           distinct_measurements());
    fflush(stdout);
    ck_assert_uint_ge(distinct_measurements(), goals.counted_min);
    median_pct = validate_percentile(errors, n, 50);
    p95_pct = validate_percentile(errors, n, 95);
    max_pct = errors[n - 1];
    free(errors);
    ck_assert_double_le(median_pct, goals.median_pct);
    ck_assert_double_le(p95_pct, goals.p95_pct);
    ck_assert_double_le(max_pct, goals.max_pct);
}
END_TEST

START_TEST(no_row_of_the_goals_is_left_out_without_being_derived)
{
    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        for (size_t t = 0; t < TABLES; t++)
            ck_assert_msg(!is_goal_row(row, tables[t]) || row->status != VALIDATE_SKIPPED, "%s: %s",
                          row->row->id, row->reason);
    }
}
END_TEST

START_TEST(few_rows_are_fitted)
{
    size_t fitted = 0;

    for (size_t i = 0; i < validation->row_count; i++)
        fitted += validation->rows[i].status == VALIDATE_FITTED;
    printf("%zu rows are fitted\n", fitted);
    fflush(stdout);
    ck_assert_uint_le(fitted, goals.fitted_max);
}
END_TEST

/* ---- memory ---- */

START_TEST(every_verdict_on_fitting_is_right)
{
    size_t verdicts = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        if (row->metric != ROW_FITS)
            continue;
        ck_assert_msg(row->status != VALIDATE_SKIPPED, "%s: %s", row->row->id, row->reason);
        ck_assert_msg(row->predicted == row->measured, "%s: %s, measured %s", row->row->id,
                      row->predicted != 0 ? "fits" : "does not fit",
                      row->measured != 0 ? "fits" : "does not fit");
        verdicts++;
    }
    printf("%zu verdicts on fitting\n", verdicts);
    fflush(stdout);
    ck_assert_uint_gt(verdicts, 0);
}
END_TEST

START_TEST(every_plan_that_was_measured_is_said_to_fit)
{
    size_t measured = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        if (!is_predicted(row) || (row->metric != ROW_PP && row->metric != ROW_TG))
            continue;
        ck_assert_msg(row->fits, "%s ran, but is said not to fit", row->row->id);
        measured++;
    }
    printf("%zu measured plans are said to fit\n", measured);
    fflush(stdout);
    ck_assert_uint_ge(measured, goals.counted_min);
    ck_assert_uint_eq(validation->wrong_verdicts, 0);
}
END_TEST

START_TEST(memory_in_use_is_close_to_what_was_measured)
{
    double worst_mib = 0, worst_pct = 0;
    size_t n = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];
        double off_mib = fabs(row->predicted - row->measured);

        if (row->metric != ROW_VRAM || !is_predicted(row))
            continue;
        ck_assert_msg(off_mib <= goals.vram_mib || fabs(row->error_pct) <= goals.vram_pct,
                      "%s: %.0f MiB, measured %.0f MiB", row->row->id, row->predicted,
                      row->measured);
        worst_mib = fmax(worst_mib, off_mib);
        worst_pct = fmax(worst_pct, fabs(row->error_pct));
        n++;
    }
    printf("%zu memory rows, at most %.0f MiB and %.2f %% off\n", n, worst_mib, worst_pct);
    fflush(stdout);
    ck_assert_uint_ge(n, 10);
}
END_TEST

/* All but that of a plan that did not run: docs/time-model.md, "Memory". */
START_TEST(compute_buffers_are_close_to_what_was_measured)
{
    size_t n = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        if (row->metric != ROW_COMPUTE_BUFFER || !is_predicted(row) ||
            strcmp(row->row->id, "s002-h1-12") == 0)
            continue;
        ck_assert_msg(fabs(row->predicted - row->measured) <= goals.vram_mib ||
                          fabs(row->error_pct) <= goals.vram_pct,
                      "%s: %.0f MiB, measured %.0f MiB", row->row->id, row->predicted,
                      row->measured);
        n++;
    }
    ck_assert_uint_ge(n, 19);
}
END_TEST

/* ---- order ---- */

static bool is_comparable(const struct validate_row *a, const struct validate_row *b,
                          const char *table)
{
    return a->metric == b->metric && is_goal_row(a, table) && is_goal_row(b, table) &&
           is_predicted(a) && is_predicted(b) &&
           a->measured > b->measured * (1 + goals.order_pct / 100);
}

START_TEST(the_better_of_two_plans_is_predicted_to_be_the_better)
{
    size_t pairs = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        for (size_t j = 0; j < validation->row_count; j++) {
            const struct validate_row *a = &validation->rows[i], *b = &validation->rows[j];

            if (!is_comparable(a, b, tables[_i]))
                continue;
            ck_assert_msg(a->predicted > b->predicted,
                          "%s measured %.2f, %s %.2f; predicted %.2f and %.2f", a->row->id,
                          a->measured, b->row->id, b->measured, a->predicted, b->predicted);
            pairs++;
        }
    }
    printf("%-16s %4zu pairs in order\n", tables[_i], pairs);
    fflush(stdout);
    ck_assert_uint_gt(pairs, 0);
}
END_TEST

/* ---- all rows of speed ---- */

START_TEST(errors_of_all_rows_are_within_the_goals)
{
    ck_assert_uint_ge(validation->total.n, 200);
    ck_assert_double_le(validation->total.median_pct, whole.median_pct);
    ck_assert_double_le(validation->total.p95_pct, whole.p95_pct);
    ck_assert_double_le(validation->total.max_pct, whole.max_pct);
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

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        if (!is_of_table(row->row, "scoreboard") || row->metric != phases[_i].metric)
            continue;
        ck_assert_int_ne(row->status, VALIDATE_FITTED);
        if (row->status == VALIDATE_COUNTED)
            errors[n++] = fabs(row->error_pct);
    }
    ck_assert_uint_ge(n, phases[_i].rows_min);
    values_sort(errors, n);
    ck_assert_double_le(validate_percentile(errors, n, 50),
                        phases[_i].metric == ROW_TG ? whole.generate_pct : whole.prompt_pct);
}
END_TEST

START_TEST(few_rows_are_left_out_and_their_file_says_why)
{
    size_t all = 0, left_out = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];

        if (!row_metric_is_speed(row->metric) || row->status == VALIDATE_DERIVED)
            continue;
        all++;
        if (row->status != VALIDATE_SKIPPED)
            continue;
        left_out++;
        ck_assert_msg(row->row->skip[0] != '\0', "%s is left out: %s", row->row->id, row->reason);
    }
    ck_assert_double_le((double)left_out * 100, whole.left_out_pct * (double)all);
}
END_TEST

/* Drafted generation is a phase of its own: its rows yield the acceptance of tokens. */
static bool is_same_phase(const struct validate_row *a, const struct validate_row *b)
{
    return a->metric == b->metric && strcmp(a->row->model, b->row->model) == 0 &&
           strcmp(a->row->quant, b->row->quant) == 0 &&
           is_of_table(a->row, "s002-h3") == is_of_table(b->row, "s002-h3");
}

START_TEST(few_rows_of_a_model_and_phase_are_fitted)
{
    for (size_t i = 0; i < validation->row_count; i++) {
        size_t count = 0;

        if (validation->rows[i].status != VALIDATE_FITTED)
            continue;
        for (size_t j = 0; j < validation->row_count; j++)
            count += validation->rows[j].status == VALIDATE_FITTED &&
                     is_same_phase(&validation->rows[i], &validation->rows[j]);
        ck_assert_msg(count <= whole.fitted, "%s is one of %zu", validation->rows[i].row->id,
                      count);
    }
}
END_TEST

static bool are_apart(const struct validate_row *less, const struct validate_row *more)
{
    return is_predicted(less) && is_predicted(more) && less->metric == more->metric &&
           (less->metric == ROW_PP || less->metric == ROW_TG) &&
           strcmp(less->row->model, more->row->model) == 0 &&
           more->measured > less->measured * (1 + whole.order_pct / 100);
}

START_TEST(rows_of_a_table_that_differ_keep_their_order)
{
    size_t pairs = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *less = &validation->rows[i];
        char table[48];

        validate_table_id(less->row->id, table, sizeof table);
        for (size_t j = 0; j < validation->row_count && strcmp(table, "scoreboard") != 0; j++) {
            const struct validate_row *more = &validation->rows[j];

            if (!is_of_table(more->row, table) || !are_apart(less, more))
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
    Suite *suite = suite_create("accuracy");
    TCase *errors = tcase_create("errors"), *memory = tcase_create("memory");
    TCase *order = tcase_create("order"), *every = tcase_create("all rows");
    TCase *all[] = {errors, memory, order, every};
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(errors, errors_of_counted_rows_are_within_the_goals);
    tcase_add_test(errors, no_row_of_the_goals_is_left_out_without_being_derived);
    tcase_add_test(errors, few_rows_are_fitted);
    tcase_add_test(memory, every_verdict_on_fitting_is_right);
    tcase_add_test(memory, every_plan_that_was_measured_is_said_to_fit);
    tcase_add_test(memory, memory_in_use_is_close_to_what_was_measured);
    tcase_add_test(memory, compute_buffers_are_close_to_what_was_measured);
    tcase_add_loop_test(order, the_better_of_two_plans_is_predicted_to_be_the_better, 0, TABLES);
    tcase_add_test(every, errors_of_all_rows_are_within_the_goals);
    tcase_add_loop_test(every, machines_made_from_the_catalogue_are_within_the_goals, 0, 2);
    tcase_add_test(every, few_rows_are_left_out_and_their_file_says_why);
    tcase_add_test(every, few_rows_of_a_model_and_phase_are_fitted);
    tcase_add_test(every, rows_of_a_table_that_differ_keep_their_order);
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
