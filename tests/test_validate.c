/* Predictions beside rows: which are counted, how far off they are, and why others are not. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/validate.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"

/* A row of the 27B over both devices; `rest` begins with a comma. */
#define ROW_OF(id, metric, value, plan, workload, rest)                                            \
    "{\"id\": \"" id "\", \"machine\": \"" PAIR "\", \"engine\": \"llama.cpp-fork\", "             \
    "\"model\": \"qwen3.8-27b\", \"quant\": \"UD-Q5_K_M\", \"plan\": {" plan "}, "                 \
    "\"workload\": {\"tool\": \"llama-bench\", " workload "}, "                                    \
    "\"metric\": \"" metric "\", \"value\": " value rest "}\n"
#define TENSOR "\"split_mode\": \"tensor\", \"tensor_split\": [50, 50]"
#define TG "\"n_prompt\": 0, \"n_gen\": 128"
#define PP "\"n_prompt\": 512, \"n_gen\": 0"
#define TG_ROW(id, plan) ROW_OF(id, "tg", "25.75", plan, TG, "")

static struct trace trace;
static struct validation validation;

static void validate_on(const char *text, const struct machine *machine)
{
    struct error err = {0};

    ck_assert_msg(trace_parse(text, strlen(text), "rows.jsonl", &trace, &err) == 0, "%d: %s",
                  err.line, err.text);
    ck_assert_msg(validate_rows(&trace, 1, machine, &validation, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(validation.row_count, trace.count);
}

static void validate(const char *text)
{
    validate_on(text, NULL);
}

static void close_all(void)
{
    validation_close(&validation);
    trace_close(&trace);
    memset(&trace, 0, sizeof trace);
}

static void expect_status(size_t index, enum validate_status status)
{
    const struct validate_row *row = &validation.rows[index];

    ck_assert_msg(row->status == status, "%s is %s (%s), not %s", row->row->id,
                  validate_status_name(row->status), row->reason, validate_status_name(status));
}

static struct machine *open_pair(void)
{
    struct error err = {0};
    struct machine *machine = machine_open(PAIR, NULL, &err);

    ck_assert_msg(machine != NULL, "%s", err.text);
    return machine;
}

/* ---- statuses ---- */

START_TEST(a_row_that_can_be_predicted_is_counted)
{
    validate(TG_ROW("a-01", TENSOR));
    expect_status(0, VALIDATE_COUNTED);
    ck_assert_int_eq(validation.rows[0].metric, ROW_TG);
    ck_assert_double_eq(validation.rows[0].measured, 25.75);
    ck_assert_double_gt(validation.rows[0].predicted, 1);
    ck_assert(validation.rows[0].fits);
    ck_assert_uint_eq(validation.total.n, 1);
    close_all();
}
END_TEST

/* The pair with constants that were fitted to the row "fitted-01" and to no other. */
static struct machine *open_fitted_pair(void)
{
    struct machine *machine = open_pair();

    free(machine->fitted_rows);
    machine->fitted_rows = calloc(1, sizeof *machine->fitted_rows);
    ck_assert_ptr_nonnull(machine->fitted_rows);
    snprintf(machine->fitted_rows[0], sizeof machine->fitted_rows[0], "fitted-01");
    machine->fitted_row_count = 1;
    return machine;
}

START_TEST(rows_that_the_profile_names_are_fitted)
{
    struct machine *machine = open_fitted_pair();

    validate_on(TG_ROW("fitted-01", TENSOR) TG_ROW("fitted-02", "\"split_mode\": \"layer\""),
                machine);
    expect_status(0, VALIDATE_FITTED);
    expect_status(1, VALIDATE_COUNTED);
    ck_assert_double_gt(validation.rows[0].predicted, 1);
    ck_assert_uint_eq(validation.total.n, 1);
    close_all();
    machine_free(machine);
}
END_TEST

START_TEST(rows_that_the_built_in_profile_names_are_in_the_traces)
{
    struct machine *machine = open_pair();
    const char *folder = getenv("srcdir");
    struct error err = {0};
    char path[400];

    snprintf(path, sizeof path, "%s/traces/seed-000.jsonl", folder != NULL ? folder : ".");
    ck_assert_msg(trace_load_file(path, &trace, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < machine->fitted_row_count; i++)
        ck_assert_msg(strncmp(machine->fitted_rows[i], "s000-", 5) != 0 ||
                          trace_find_row(&trace, machine->fitted_rows[i]) != NULL,
                      "no row %s", machine->fitted_rows[i]);
    trace_close(&trace);
    machine_free(machine);
}
END_TEST

/* Rows beside the fitted one, a tensor split in halves. */
static const struct {
    const char *name, *row;
    enum validate_status status;
} repeat_cases[] = {
    {"the same words", TG_ROW("a-01", TENSOR), VALIDATE_DUPLICATE},
    {"shares on another scale",
     TG_ROW("a-01", "\"split_mode\": \"tensor\", \"tensor_split\": [1, 1]"), VALIDATE_DUPLICATE},
    {"the engine's default shares", TG_ROW("a-01", "\"split_mode\": \"tensor\""),
     VALIDATE_DUPLICATE},
    {"defaults spelt out",
     TG_ROW("a-01", TENSOR ", \"type_k\": \"f16\", \"type_v\": \"F16\", \"n_ubatch\": 512, "
                           "\"n_batch\": 2048, \"n_gpu_layers\": 99, \"kv_on_host\": false"),
     VALIDATE_DUPLICATE},
    {"heads in the same ratio", TG_ROW("a-01", TENSOR ", \"attn_split\": [2, 2]"),
     VALIDATE_DUPLICATE},
    {"shares that round to other slices",
     TG_ROW("a-01", "\"split_mode\": \"tensor\", \"tensor_split\": [55, 45]"), VALIDATE_COUNTED},
    {"another split", TG_ROW("a-01", "\"split_mode\": \"layer\", \"tensor_split\": [50, 50]"),
     VALIDATE_COUNTED},
    {"another cache type", TG_ROW("a-01", TENSOR ", \"type_k\": \"q8_0\""), VALIDATE_COUNTED},
    {"another metric", ROW_OF("a-01", "pp", "600", TENSOR, PP, ""), VALIDATE_COUNTED},
    {"another depth", ROW_OF("a-01", "tg", "20", TENSOR, TG ", \"n_depth\": 8192", ""),
     VALIDATE_COUNTED},
    {"another clock", ROW_OF("a-01", "tg", "20", TENSOR, TG, ", \"clocks\": \"oc\""),
     VALIDATE_COUNTED},
};

START_TEST(a_row_that_repeats_a_fitted_configuration_is_a_duplicate)
{
    static const char fitted[] = TG_ROW("fitted-01", TENSOR);
    struct machine *machine = open_fitted_pair();
    char text[3000];

    for (int fitted_first = 0; fitted_first < 2; fitted_first++) {
        size_t row = fitted_first ? 1 : 0;

        snprintf(text, sizeof text, "%s%s", fitted_first ? fitted : repeat_cases[_i].row,
                 fitted_first ? repeat_cases[_i].row : fitted);
        validate_on(text, machine);
        expect_status(1 - row, VALIDATE_FITTED);
        ck_assert_msg(validation.rows[row].status == repeat_cases[_i].status, "%s: %s (%s)",
                      repeat_cases[_i].name, validate_status_name(validation.rows[row].status),
                      validation.rows[row].reason);
        ck_assert_uint_eq(validation.total.n, repeat_cases[_i].status == VALIDATE_COUNTED);
        close_all();
    }
    machine_free(machine);
}
END_TEST

START_TEST(a_row_that_repeats_a_counted_one_is_counted)
{
    validate(TG_ROW("a-01", TENSOR) TG_ROW("a-02", TENSOR));
    expect_status(0, VALIDATE_COUNTED);
    expect_status(1, VALIDATE_COUNTED);
    close_all();
}
END_TEST

#define SPREAD_ROW(id, value, plan, stddev)                                                        \
    ROW_OF(id, "tg", value, plan, TG, ", \"stddev\": " stddev)

#define HOST TENSOR ", \"kv_on_host\": true"

/* Three processes of which each ran several times; another table, other plans. */
START_TEST(rows_of_a_table_that_measure_one_plan_have_their_mean_and_all_of_their_spread)
{
    validate(SPREAD_ROW("a-01", "24", TENSOR, "0.3") SPREAD_ROW("a-02", "26", TENSOR, "0.4")
                 SPREAD_ROW("b-01", "26", TENSOR, "0.4")
                     SPREAD_ROW("a-03", "26", HOST ", \"kv_delivery_depth\": 2", "0.4")
                         TG_ROW("a-04", TENSOR) SPREAD_ROW("a-05", "28", TENSOR, "0")
                             SPREAD_ROW("a-06", "26", HOST, "0.4"));
    expect_status(0, VALIDATE_COUNTED);
    expect_status(1, VALIDATE_REPEATED);
    expect_status(2, VALIDATE_COUNTED);
    expect_status(3, VALIDATE_COUNTED);
    expect_status(4, VALIDATE_COUNTED); /* nobody knows how far its runs were apart */
    expect_status(5, VALIDATE_REPEATED);
    expect_status(6, VALIDATE_COUNTED);
    ck_assert_uint_eq(validation.total.n, 5);
    ck_assert_uint_eq(validation.rows[0].rows, 3);
    ck_assert_double_eq_tol(validation.rows[0].measured, 26, 1e-12);
    /* within: the mean of 0.09, 0.16 and 0; between: 24, 26, 28 */
    ck_assert_double_eq_tol(validation.rows[0].spread, sqrt(0.25 / 3 + 8.0 / 3), 1e-12);
    ck_assert_double_eq_tol(validation.rows[0].error_pct,
                            (validation.rows[0].predicted / 26 - 1) * 100, 1e-9);
    ck_assert_double_eq(validation.rows[1].measured, 26);
    close_all();
}
END_TEST

START_TEST(a_derived_row_is_not_predicted)
{
    validate(ROW_OF("a-01", "tg", "25.75", TENSOR, TG, ", \"derived\": true"));
    expect_status(0, VALIDATE_DERIVED);
    ck_assert_double_eq(validation.rows[0].predicted, 0);
    ck_assert_uint_eq(validation.total.n, 0);
    ck_assert_uint_eq(validation.verdicts, 0);
    close_all();
}
END_TEST

/* Rows that cannot be predicted, and a part of the reason. */
static const struct {
    const char *row, *reason;
} skip_cases[] = {
    {ROW_OF("a-01", "ppl", "4.7", TENSOR, TG, ""), "metric ppl"},
    {"{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"machine\": \"" PAIR "\"}\n", "no model"},
    {"{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"model\": \"qwen3.8-27b\"}\n",
     "no machine"},
    {TG_ROW("a-01", TENSOR ", \"variant\": \"store removed\""), "plan.variant"},
    {TG_ROW("a-01", "\"split_mode\": \"row\""), "row split"},
    {TG_ROW("a-01", "\"type_k\": \"q77\""), "q77"},
    {TG_ROW("a-01", "\"tensor_split\": [1, 1, 1]"), "3 shares"},
    {ROW_OF("a-01", "tg", "25.75", TENSOR, TG, ", \"skip\": \"its author withdrew it\""),
     "its author withdrew it"},
    {ROW_OF("a-01", "pp", "600", TENSOR, "\"n_gen\": 0", ""), "no prompt length"},
    {ROW_OF("a-01", "vram_mib", "9000", TENSOR, TG, ""), "no device"},
    {ROW_OF("a-01", "vram_mib", "9000", TENSOR ", \"device\": \"CUDA7\"", TG, ""), "CUDA7"},
    {ROW_OF("a-01", "tg", "\"out of memory\"", TENSOR, TG, ""), "text"},
    {ROW_OF("a-01", "tg", "0", TENSOR, TG, ""), "not above 0"},
    {"{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"model\": \"no-such-model\", \"quant\": "
     "\"Q4_K_M\", \"machine\": \"" PAIR "\", \"workload\": {\"n_prompt\": 9, \"n_gen\": 9}}\n",
     "no-such-model"},
    {"{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"model\": \"qwen3.8-27b\", \"quant\": "
     "\"UD-Q5_K_M\", \"machine\": \"no-such-machine\", \"workload\": {\"n_prompt\": 9, \"n_gen\": "
     "9}}\n",
     "no-such-machine"},
};

START_TEST(a_row_that_cannot_be_predicted_is_skipped_with_the_reason)
{
    validate(skip_cases[_i].row);
    expect_status(0, VALIDATE_SKIPPED);
    ck_assert_msg(strstr(validation.rows[0].reason, skip_cases[_i].reason) != NULL,
                  "the reason does not name '%s': %s", skip_cases[_i].reason,
                  validation.rows[0].reason);
    ck_assert_uint_eq(validation.total.n, 0);
    ck_assert_uint_eq(validation.verdicts, 0);
    close_all();
}
END_TEST

START_TEST(skipped_rows_of_a_table_are_said)
{
    validate(TG_ROW("a-01", TENSOR) TG_ROW("a-02", "\"split_mode\": \"row\"")
                 TG_ROW("b-01", "\"split_mode\": \"row\""));
    ck_assert_uint_eq(validation.total.skipped, 2);
    ck_assert_uint_eq(validation.tables[0].skipped, 1);
    ck_assert_uint_eq(validation.tables[0].n, 1);
    ck_assert_uint_eq(validation.tables[1].skipped, 1);
    ck_assert_uint_eq(validation.tables[1].n, 0);
    close_all();
}
END_TEST

/* ---- errors and figures ---- */

START_TEST(an_error_is_positive_where_the_prediction_is_faster)
{
    char text[4000];
    double predicted;

    validate(TG_ROW("a-01", TENSOR));
    predicted = validation.rows[0].predicted;
    close_all();
    snprintf(text, sizeof text,
             ROW_OF("a-01", "tg", "%.17g", TENSOR, TG, "")
                 ROW_OF("a-02", "tg", "%.17g", TENSOR, TG, ""),
             predicted / 1.25, predicted * 2);
    validate(text);
    ck_assert_double_eq_tol(validation.rows[0].error_pct, 25, 1e-9);
    ck_assert_double_eq_tol(validation.rows[1].error_pct, -50, 1e-9);
    ck_assert_uint_eq(validation.total.n, 2);
    ck_assert_double_eq_tol(validation.total.median_pct, 25, 1e-9);
    ck_assert_double_eq_tol(validation.total.p95_pct, 50, 1e-9);
    ck_assert_double_eq_tol(validation.total.max_pct, 50, 1e-9);
    close_all();
}
END_TEST

START_TEST(a_wrong_verdict_is_an_error_of_100_percent)
{
    validate(ROW_OF("a-01", "fits", "true", TENSOR, TG, "")
                 ROW_OF("a-02", "fits", "false", TENSOR, TG, ""));
    ck_assert_double_eq(validation.rows[0].error_pct, 0);
    ck_assert_double_eq(validation.rows[1].error_pct, 100);
    ck_assert_uint_eq(validation.verdicts, 2);
    ck_assert_uint_eq(validation.wrong_verdicts, 1);
    close_all();
}
END_TEST

START_TEST(a_measured_plan_that_is_said_not_to_fit_is_a_wrong_verdict)
{
    validate(TG_ROW("a-01", TENSOR) TG_ROW("a-02", "\"split_mode\": \"none\""));
    expect_status(1, VALIDATE_COUNTED);
    ck_assert(validation.rows[0].fits);
    ck_assert(!validation.rows[1].fits);
    ck_assert_uint_eq(validation.verdicts, 2);
    ck_assert_uint_eq(validation.wrong_verdicts, 1);
    close_all();
}
END_TEST

START_TEST(memory_rows_have_figures_of_their_own)
{
    validate(ROW_OF("a-01", "vram_mib", "9600", TENSOR ", \"device\": \"CUDA0\"", TG, "")
                 TG_ROW("b-01", TENSOR));
    expect_status(0, VALIDATE_COUNTED);
    ck_assert_double_eq_tol(validation.rows[0].predicted, 9600, 600);
    ck_assert_uint_eq(validation.memory.n, 1);
    ck_assert_double_eq(validation.memory.max_pct, fabs(validation.rows[0].error_pct));
    ck_assert_uint_eq(validation.total.n, 1);
    ck_assert_uint_eq(validation.table_count, 1);
    ck_assert_str_eq(validation.tables[0].id, "b");
    close_all();
}
END_TEST

START_TEST(the_table_of_a_row_is_its_id_without_the_number)
{
    static const char *const tables[] = {"t000-ts-some", "solo", "a-b", "x", "a-b-"};

    validate(TG_ROW("t000-ts-some-07", TENSOR) TG_ROW("solo", TENSOR) TG_ROW("a-b", TENSOR)
                 TG_ROW("x-1", TENSOR) TG_ROW("t000-ts-some-08", TENSOR) TG_ROW("a-b-", TENSOR));
    ck_assert_uint_eq(validation.table_count, sizeof tables / sizeof *tables);
    for (size_t t = 0; t < validation.table_count; t++)
        ck_assert_str_eq(validation.tables[t].id, tables[t]);
    ck_assert_uint_eq(validation.tables[0].n, 2);
    ck_assert_str_eq(validation.total.id, "");
    close_all();
}
END_TEST

START_TEST(no_rows_give_no_figures)
{
    validate("");
    ck_assert_uint_eq(validation.row_count, 0);
    ck_assert_uint_eq(validation.table_count, 0);
    ck_assert_uint_eq(validation.total.n, 0);
    ck_assert_double_eq(validation.total.max_pct, 0);
    close_all();
}
END_TEST

/* ---- percentiles ---- */

START_TEST(a_percentile_is_the_value_of_nearest_rank)
{
    static const double sorted[] = {15, 20, 35, 40, 50};
    static const struct {
        double percent, value;
    } cases[] = {{5, 15}, {20, 15}, {20.1, 20}, {30, 20}, {40, 20}, {50, 35}, {95, 50}, {100, 50}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_double_eq(validate_percentile(sorted, 5, cases[i].percent), cases[i].value);
    ck_assert_double_eq(validate_percentile(sorted, 1, 95), 15);
    ck_assert_double_eq(validate_percentile(sorted, 0, 95), 0);
}
END_TEST

START_TEST(a_percentile_has_the_least_rank_that_covers_its_share)
{
    enum { COUNT = 200 };
    double sorted[COUNT];

    for (int i = 0; i < COUNT; i++)
        sorted[i] = i + 1;
    for (int count = 1; count <= COUNT; count++) {
        for (int percent = 1; percent <= 100; percent++) {
            double rank = validate_percentile(sorted, (size_t)count, percent);

            ck_assert_msg(rank == (percent * count + 99) / 100, "%d %% of %d: rank %g", percent,
                          count, rank);
        }
    }
}
END_TEST

/* ---- machines ---- */

START_TEST(a_given_machine_stands_for_the_profile_of_its_name)
{
    static const char text[] =
        TG_ROW("a-01", TENSOR) ROW_OF("a-02", "tg", "20", TENSOR, TG, ", \"clocks\": \"oc\"");
    struct machine *machine = open_pair();
    double stock, overclocked;

    validate(text);
    stock = validation.rows[0].predicted;
    overclocked = validation.rows[1].predicted;
    close_all();
    machine->collective.latency_s *= 4;
    validate_on(text, machine);
    ck_assert_double_lt(validation.rows[0].predicted, 0.9 * stock);
    ck_assert_double_eq(validation.rows[1].predicted, overclocked);
    close_all();
    snprintf(machine->name, sizeof machine->name, "another");
    validate_on(text, machine);
    ck_assert_double_eq(validation.rows[0].predicted, stock);
    close_all();
    machine_free(machine);
}
END_TEST

START_TEST(rows_of_a_paced_run_are_predicted_on_as_slow_a_machine)
{
    static const char text[] =
        TG_ROW("a-01", TENSOR) TG_ROW("a-02", TENSOR ", \"pace_devices\": \"1/0.5\"")
            TG_ROW("a-03", TENSOR ", \"pace_links\": \"0.01/0.01\"");
    struct machine *machine = open_pair();

    for (int given = 0; given < 2; given++) {
        validate_on(text, given ? machine : NULL);
        ck_assert_double_gt(validation.rows[1].predicted, 0);
        ck_assert_double_lt(validation.rows[1].predicted, 0.7 * validation.rows[0].predicted);
        ck_assert_double_lt(validation.rows[2].predicted, 0.5 * validation.rows[0].predicted);
        close_all();
    }
    machine_free(machine);
}
END_TEST

#define LAYER(shares) "\"split_mode\": \"layer\", \"tensor_split\": [" shares "]"

/* Predicted: 18.9, 25.7, 18.3 and 19.3 t/s. */
START_TEST(plans_that_are_apart_have_to_be_in_order)
{
    validate(ROW_OF("a-01", "tg", "17.00", LAYER("50, 50"), TG, "") /* */
             ROW_OF("a-02", "tg", "25.75", TENSOR, TG, "")          /* */
             ROW_OF("a-03", "tg", "17.10", LAYER("40, 60"), TG, "") /* as fast as the first */
             ROW_OF("a-04", "tg", "99.00", LAYER("55, 45"), TG, "") /* which is not so */
             ROW_OF("a-05", "pp", "400", TENSOR, PP, "")            /* another metric */
             ROW_OF("a-06", "tg", "50", LAYER("60, 40") ", \"pace_links\": \"9/1\"", TG,
                    "")); /* a slowed machine */
    ck_assert_uint_eq(validation.order.pairs, 5);
    ck_assert_uint_eq(validation.order.wrong, 1);
    close_all();
}
END_TEST

/* Each differs from the first in more than its plan. */
START_TEST(rows_of_another_workload_or_program_are_in_no_order)
{
    validate(ROW_OF("a-01", "tg", "17.00", LAYER("50, 50"), TG, "")
                 ROW_OF("a-02", "tg", "50", TENSOR, "\"n_prompt\": 0, \"n_gen\": 64", "")
                     ROW_OF("a-03", "tg", "60", TENSOR, TG ", \"n_depth\": 512", "")
                         ROW_OF("a-04", "tg", "70", TENSOR, TG, ", \"build\": \"b2\""));
    for (size_t i = 0; i < 4; i++)
        expect_status(i, VALIDATE_COUNTED);
    ck_assert_uint_eq(validation.order.pairs, 0);
    close_all();
}
END_TEST

START_TEST(rows_of_the_scoreboard_are_predicted_on_composed_machines)
{
    const char *folder = getenv("srcdir");
    struct error err = {0};
    char path[400];
    size_t counted = 0;

    snprintf(path, sizeof path, "%s/traces/scoreboard.jsonl", folder != NULL ? folder : ".");
    ck_assert_msg(trace_load_file(path, &trace, &err) == 0, "%s", err.text);
    ck_assert_msg(validate_rows(&trace, 1, NULL, &validation, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < validation.row_count; i++) {
        const struct validate_row *row = &validation.rows[i];

        ck_assert_uint_eq(row->row->gpu_count, 1);
        ck_assert(row->status == VALIDATE_COUNTED || row->status == VALIDATE_SKIPPED);
        counted += row->status == VALIDATE_COUNTED;
        ck_assert_msg(row->status == VALIDATE_SKIPPED || row->predicted > 1, "%s: %g t/s",
                      row->row->id, row->predicted);
    }
    ck_assert_uint_ge(counted, 20);
    ck_assert_uint_eq(validation.table_count, 1);
    ck_assert_str_eq(validation.tables[0].id, "scoreboard");
    ck_assert_uint_eq(validation.total.n, counted);
    ck_assert_uint_eq(validation.wrong_verdicts, 0);
    close_all();
}
END_TEST

static TCase *statuses_case(void)
{
    TCase *statuses = tcase_create("statuses");

    tcase_add_test(statuses, a_row_that_can_be_predicted_is_counted);
    tcase_add_test(statuses, rows_that_the_profile_names_are_fitted);
    tcase_add_test(statuses, rows_that_the_built_in_profile_names_are_in_the_traces);
    tcase_add_loop_test(statuses, a_row_that_repeats_a_fitted_configuration_is_a_duplicate, 0,
                        (int)(sizeof repeat_cases / sizeof *repeat_cases));
    tcase_add_test(statuses, a_row_that_repeats_a_counted_one_is_counted);
    tcase_add_test(statuses,
                   rows_of_a_table_that_measure_one_plan_have_their_mean_and_all_of_their_spread);
    tcase_add_test(statuses, a_derived_row_is_not_predicted);
    tcase_add_loop_test(statuses, a_row_that_cannot_be_predicted_is_skipped_with_the_reason, 0,
                        (int)(sizeof skip_cases / sizeof *skip_cases));
    tcase_add_test(statuses, skipped_rows_of_a_table_are_said);
    return statuses;
}

int main(void)
{
    Suite *suite = suite_create("validate");
    TCase *figures = tcase_create("figures"), *machines = tcase_create("machines");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(figures, an_error_is_positive_where_the_prediction_is_faster);
    tcase_add_test(figures, a_wrong_verdict_is_an_error_of_100_percent);
    tcase_add_test(figures, a_measured_plan_that_is_said_not_to_fit_is_a_wrong_verdict);
    tcase_add_test(figures, memory_rows_have_figures_of_their_own);
    tcase_add_test(figures, the_table_of_a_row_is_its_id_without_the_number);
    tcase_add_test(figures, no_rows_give_no_figures);
    tcase_add_test(figures, a_percentile_is_the_value_of_nearest_rank);
    tcase_add_test(figures, a_percentile_has_the_least_rank_that_covers_its_share);
    tcase_add_test(machines, a_given_machine_stands_for_the_profile_of_its_name);
    tcase_add_test(machines, rows_of_a_paced_run_are_predicted_on_as_slow_a_machine);
    tcase_add_test(machines, plans_that_are_apart_have_to_be_in_order);
    tcase_add_test(machines, rows_of_another_workload_or_program_are_in_no_order);
    tcase_add_test(machines, rows_of_the_scoreboard_are_predicted_on_composed_machines);
    suite_add_tcase(suite, statuses_case());
    suite_add_tcase(suite, figures);
    suite_add_tcase(suite, machines);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
