/* Fitting constants to rows: known constants come back, bounds hold, uncertainties are honest. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/calibrate.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"

#define SKIPPED 77 /* automake: the test could not run */
#define ROWS_MAX 6
#define CONSTANTS_MAX 4

/* A row of the 27B, its id, plan and value to be filled in. */
#define TG_ROW                                                                                     \
    "{\"id\": \"%s\", \"machine\": \"" PAIR "\", \"engine\": \"llama.cpp-fork\", \"model\": "      \
    "\"qwen3.8-27b\", \"quant\": \"UD-Q5_K_M\", \"plan\": {%s}, \"workload\": {\"tool\": "         \
    "\"llama-bench\", \"n_prompt\": 0, \"n_gen\": 16, \"n_depth\": 4096}, \"metric\": \"tg\", "    \
    "\"value\": %.17g}\n"

static const struct {
    const char *id, *plan;
} plans[] = {
    {"tensor", "\"split_mode\": \"tensor\", \"tensor_split\": [50, 50]"},
    {"layer", "\"split_mode\": \"layer\", \"tensor_split\": [50, 50]"},
    {"host", "\"split_mode\": \"layer\", \"tensor_split\": [50, 50], \"kv_on_host\": true, "
             "\"kv_pinned\": true, \"recurrent_on_device\": true"},
};

enum { TENSOR, LAYER, HOST, PLANS };

struct change {
    const char *constant;
    double factor;
};

static struct trace trace;
static double wanted[CONSTANTS_MAX]; /* values of the changed constants */

/* ---- rows whose values are predictions ---- */

static void change_constants(struct machine *machine, const struct change *changes, size_t count)
{
    struct machine_constant constants[256];
    size_t all = machine_constants(machine, constants, 256);

    ck_assert_uint_le(all, 256);
    for (size_t c = 0; c < count; c++) {
        size_t i = 0;

        while (i < all && strcmp(constants[i].name, changes[c].constant) != 0)
            i++;
        ck_assert_msg(i < all, "no constant %s", changes[c].constant);
        *constants[i].value *= changes[c].factor;
        wanted[c] = *constants[i].value / constants[i].scale;
    }
}

static void parse(const char *text)
{
    struct error err = {0};

    ck_assert_msg(trace_parse(text, strlen(text), "rows.jsonl", &trace, &err) == 0, "%d: %s",
                  err.line, err.text);
}

static void write_rows(char *text, size_t size, const double *values)
{
    size_t length = 0;

    for (size_t p = 0; p < PLANS; p++)
        length += (size_t)snprintf(text + length, size - length, TG_ROW, plans[p].id, plans[p].plan,
                                   values[p]);
    ck_assert_uint_lt(length, size);
}

/* Fills the trace with what a machine with changed constants does, times `speed`. */
static void measure(const struct change *changes, size_t count, double speed)
{
    struct error err = {0};
    struct machine *machine = machine_open(PAIR, NULL, &err);
    struct model *model = model_from_catalogue("qwen3.8-27b:UD-Q5_K_M", &err);
    double values[PLANS] = {1, 1, 1};
    char text[4000], reason[400];

    ck_assert_msg(machine != NULL && model != NULL, "%s", err.text);
    change_constants(machine, changes, count);
    write_rows(text, sizeof text, values);
    parse(text);
    for (size_t p = 0; p < PLANS; p++) {
        struct row_case c;
        struct row_value value;

        ck_assert_msg(row_case_read(&trace.rows[p], &c, reason, sizeof reason) == 0, "%s", reason);
        ck_assert_msg(row_case_predict(&c, model, machine, &value, &err) == 0, "%s", err.text);
        values[p] = value.value * speed;
    }
    trace_close(&trace);
    write_rows(text, sizeof text, values);
    parse(text);
    model_free(model);
    machine_free(machine);
}

static struct calibrate_request request_for(const char *const *rows, size_t row_count,
                                            const char *const *constants, size_t constant_count)
{
    return (struct calibrate_request){.traces = &trace,
                                      .trace_count = 1,
                                      .rows = rows,
                                      .row_count = row_count,
                                      .constants = constants,
                                      .constant_count = constant_count,
                                      .row_ratio = 0.01,
                                      .evaluations_max = 4000};
}

static struct calibration fitted(struct calibrate_request request)
{
    struct error err = {0};
    struct calibration calibration;

    ck_assert_msg(calibrate(&request, &calibration, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(calibration.row_count, request.row_count);
    ck_assert_uint_eq(calibration.constant_count, request.constant_count);
    return calibration;
}

static const char *const all_rows[] = {"tensor", "layer", "host"};

/* ---- fits ---- */

START_TEST(known_constants_come_back)
{
    static const struct change changes[] = {
        {"collective.latency_us", 1.3}, {"ampere.memory_ratio", 0.93}, {"CUDA1.down_gbs", 0.9}};
    static const char *const constants[] = {"collective.latency_us", "ampere.memory_ratio",
                                            "CUDA1.down_gbs"};
    struct calibration calibration;

    measure(changes, 3, 1);
    calibration = fitted(request_for(all_rows, 3, constants, 3));
    for (size_t k = 0; k < 3; k++) {
        const struct calibrate_constant *constant = &calibration.constants[k];

        ck_assert_str_eq(constant->name, constants[k]);
        ck_assert_double_eq_tol(constant->start, wanted[k] / changes[k].factor, 1e-9 * wanted[k]);
        ck_assert_msg(fabs(constant->value / wanted[k] - 1) < 0.01, "%s: %g, not %g",
                      constant->name, constant->value, wanted[k]);
        ck_assert(!constant->at_bound);
        ck_assert(isfinite(constant->uncertainty));
        ck_assert_double_gt(constant->uncertainty, 0);
    }
    ck_assert_double_gt(calibration.rms_before_ratio, 0.02);
    ck_assert_double_lt(calibration.rms_after_ratio, 0.001);
    for (size_t r = 0; r < 3; r++) {
        ck_assert_str_eq(calibration.rows[r].row->id, all_rows[r]);
        ck_assert_double_gt(fabs(calibration.rows[r].before / calibration.rows[r].measured - 1),
                            0.01);
        ck_assert_double_eq_tol(calibration.rows[r].after, calibration.rows[r].measured,
                                0.003 * calibration.rows[r].measured);
    }
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

START_TEST(rows_that_are_met_already_leave_the_constants)
{
    static const char *const constants[] = {"ampere.memory_ratio"};
    struct calibration calibration;

    measure(NULL, 0, 1);
    calibration = fitted(request_for(all_rows, 3, constants, 1));
    ck_assert_double_eq_tol(calibration.constants[0].value, calibration.constants[0].start,
                            1e-4 * calibration.constants[0].start);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

START_TEST(the_same_request_gives_the_same_bits)
{
    static const struct change change = {"ampere.memory_ratio", 0.95};
    static const char *const constants[] = {"ampere.memory_ratio", "collective.latency_us"};
    struct calibration first, second;

    measure(&change, 1, 1);
    first = fitted(request_for(all_rows, 3, constants, 2));
    second = fitted(request_for(all_rows, 3, constants, 2));
    for (size_t k = 0; k < 2; k++) {
        ck_assert_mem_eq(&first.constants[k].value, &second.constants[k].value, sizeof(double));
        ck_assert_mem_eq(&first.constants[k].uncertainty, &second.constants[k].uncertainty,
                         sizeof(double));
    }
    ck_assert_uint_eq(first.evaluations, second.evaluations);
    calibration_close(&first);
    calibration_close(&second);
    trace_close(&trace);
}
END_TEST

START_TEST(a_constant_stays_within_its_bounds)
{
    static const char *const constants[] = {"ampere.memory_ratio", "CUDA1.down_gbs"};
    struct calibration calibration;

    measure(NULL, 0, 3); /* three times as fast as any hardware could make it */
    calibration = fitted(request_for(all_rows, 3, constants, 2));
    ck_assert_double_le(calibration.constants[0].value, 1 + 1e-9);
    ck_assert(calibration.constants[0].at_bound);
    ck_assert_double_le(calibration.constants[1].value, 3.94 + 1e-9); /* PCIe 3.0 x4 */
    ck_assert(calibration.constants[1].at_bound);
    ck_assert_double_gt(calibration.rms_after_ratio, 0.3);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

START_TEST(a_prior_pulls_a_constant_towards_its_start)
{
    static const struct change change = {"ampere.memory_ratio", 0.9};
    static const char *const constants[] = {"ampere.memory_ratio"};
    static const char *const rows[] = {"layer"};
    static const double priors[] = {0, 0.1, 0.01, 0.001};
    double last = 0, start = 0;

    measure(&change, 1, 1);
    for (size_t p = 0; p < sizeof priors / sizeof *priors; p++) {
        struct calibrate_request request = request_for(rows, 1, constants, 1);
        struct calibration calibration;

        request.prior_ratio = priors[p];
        calibration = fitted(request);
        start = calibration.constants[0].start;
        if (p == 0)
            ck_assert_double_eq_tol(calibration.constants[0].value, wanted[0], 0.001 * wanted[0]);
        ck_assert_double_gt(calibration.constants[0].value, last);
        ck_assert_double_lt(calibration.constants[0].value, start);
        last = calibration.constants[0].value;
        calibration_close(&calibration);
    }
    ck_assert_double_eq_tol(last, start, 0.005 * start);
    trace_close(&trace);
}
END_TEST

START_TEST(evaluations_are_counted_reported_and_limited)
{
    static const struct change change = {"ampere.memory_ratio", 0.9};
    static const char *const constants[] = {"ampere.memory_ratio", "CUDA1.down_gbs"};
    struct calibrate_request request = request_for(all_rows, 3, constants, 2);
    struct calibration calibration;

    measure(&change, 1, 1);
    request.evaluations_max = 7;
    calibration = fitted(request);
    ck_assert_uint_le(calibration.evaluations, 7);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

static void count_call(unsigned evaluation, double rms_ratio, void *user)
{
    unsigned *calls = user;

    ck_assert_uint_eq(evaluation, ++*calls);
    ck_assert(rms_ratio >= 0);
}

START_TEST(progress_is_told_of_every_evaluation)
{
    static const char *const constants[] = {"ampere.memory_ratio"};
    struct calibrate_request request = request_for(all_rows, 3, constants, 1);
    struct calibration calibration;
    unsigned calls = 0;

    measure(NULL, 0, 1.01);
    request.progress = count_call;
    request.user = &calls;
    calibration = fitted(request);
    ck_assert_uint_gt(calls, 1);
    ck_assert_uint_eq(calibration.evaluations, calls);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

/* ---- uncertainties ---- */

START_TEST(a_constant_that_no_row_touches_is_uncertain_without_end)
{
    /* Generation with a resident cache multiplies no matrices. */
    static const char *const constants[] = {"ampere.memory_ratio", "ada.matmul_rate.i_quant"};
    struct calibration calibration;

    measure(NULL, 0, 1);
    calibration = fitted(request_for(all_rows, 3, constants, 2));
    ck_assert(isinf(calibration.constants[1].uncertainty));
    ck_assert_msg(isfinite(calibration.constants[0].uncertainty),
                  "what the rows do fix has become uncertain too");
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

START_TEST(with_a_prior_such_a_constant_is_as_uncertain_as_the_prior)
{
    static const char *const constants[] = {"ampere.memory_ratio", "ada.matmul_rate.i_quant"};
    struct calibrate_request request = request_for(all_rows, 3, constants, 2);
    struct calibration calibration;

    measure(NULL, 0, 1);
    request.prior_ratio = 0.2;
    calibration = fitted(request);
    ck_assert_double_eq_tol(calibration.constants[1].value, calibration.constants[1].start, 1e-6);
    ck_assert_double_eq_tol(calibration.constants[1].uncertainty,
                            0.2 * calibration.constants[1].value, 1e-6);
    ck_assert_double_lt(calibration.constants[0].uncertainty, 0.1 * calibration.constants[0].value);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

START_TEST(an_uncertainty_is_the_scatter_over_the_sensitivity)
{
    /* One row, one constant: a step of 1 % in speed over d log speed / d log constant. */
    static const char *const constants[] = {"ampere.memory_ratio"};
    static const char *const rows[] = {"layer"};
    static const struct change change = {"ampere.memory_ratio", 0.99};
    struct calibration calibration;
    double sensitivity;

    measure(&change, 1, 1);
    calibration = fitted(request_for(rows, 1, constants, 1));
    sensitivity = log(calibration.rows[0].before / calibration.rows[0].measured) / -log(0.99);
    ck_assert_double_gt(sensitivity, 0.2);
    ck_assert_double_lt(sensitivity, 1);
    ck_assert_double_eq_tol(calibration.constants[0].uncertainty,
                            0.01 / sensitivity * calibration.constants[0].value,
                            0.05 * calibration.constants[0].uncertainty);
    calibration_close(&calibration);
    trace_close(&trace);
}
END_TEST

/* ---- refusals ---- */

static const char other_rows[] =
    "{\"id\": \"text\", \"machine\": \"" PAIR "\", \"model\": \"qwen3.8-27b\", \"quant\": "
    "\"UD-Q5_K_M\", \"workload\": {\"n_prompt\": 9, \"n_gen\": 9}, \"metric\": \"tg\", \"value\": "
    "\"fast\"}\n"
    "{\"id\": \"memory\", \"machine\": \"" PAIR "\", \"model\": \"qwen3.8-27b\", \"quant\": "
    "\"UD-Q5_K_M\", \"plan\": {\"device\": \"CUDA0\"}, \"metric\": \"vram_mib\", \"value\": 9000}\n"
    "{\"id\": \"ppl\", \"machine\": \"" PAIR "\", \"metric\": \"ppl\", \"value\": 4.7}\n"
    "{\"id\": \"good\", \"machine\": \"" PAIR "\", \"model\": \"qwen3.8-27b\", \"quant\": "
    "\"UD-Q5_K_M\", \"workload\": {\"n_prompt\": 9, \"n_gen\": 9}, \"metric\": \"tg\", \"value\": "
    "20}\n";

static const struct {
    const char *row, *constant, *text;
} refusal_cases[] = {
    {"nowhere", "ampere.memory_ratio", "no row nowhere"},
    {"ppl", "ampere.memory_ratio", "row ppl cannot be predicted"},
    {"memory", "ampere.memory_ratio", "row memory is no speed"},
    {"text", "ampere.memory_ratio", "row text has no value"},
    {"good", "ampere.no_such", "no constant ampere.no_such"},
    {"good", "hopper.memory_ratio", "no constant hopper.memory_ratio"}, /* no device of it */
    {"good", "CUDA1.row_ns", "constant CUDA1.row_ns is 0"},
    {"good", NULL, "at least one row and one constant"},
    {NULL, "ampere.memory_ratio", "at least one row and one constant"},
};

START_TEST(a_request_that_cannot_be_met_is_refused_with_the_reason)
{
    const char *row = refusal_cases[_i].row, *constant = refusal_cases[_i].constant;
    struct calibrate_request request = request_for(&row, row != NULL, &constant, constant != NULL);
    struct calibration calibration;
    struct error err = {0};

    parse(other_rows);
    ck_assert_int_eq(calibrate(&request, &calibration, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_msg(strstr(err.text, refusal_cases[_i].text) != NULL, "'%s' does not say '%s'",
                  err.text, refusal_cases[_i].text);
    trace_close(&trace);
}
END_TEST

static int run_suite(void)
{
    Suite *suite = suite_create("calibrate");
    TCase *fits = tcase_create("fits"), *uncertainties = tcase_create("uncertainties");
    TCase *refusals = tcase_create("refusals");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(fits, known_constants_come_back);
    tcase_add_test(fits, rows_that_are_met_already_leave_the_constants);
    tcase_add_test(fits, the_same_request_gives_the_same_bits);
    tcase_add_test(fits, a_constant_stays_within_its_bounds);
    tcase_add_test(fits, a_prior_pulls_a_constant_towards_its_start);
    tcase_add_test(fits, evaluations_are_counted_reported_and_limited);
    tcase_add_test(fits, progress_is_told_of_every_evaluation);
    tcase_add_test(uncertainties, a_constant_that_no_row_touches_is_uncertain_without_end);
    tcase_add_test(uncertainties, with_a_prior_such_a_constant_is_as_uncertain_as_the_prior);
    tcase_add_test(uncertainties, an_uncertainty_is_the_scatter_over_the_sensitivity);
    tcase_add_loop_test(refusals, a_request_that_cannot_be_met_is_refused_with_the_reason, 0,
                        (int)(sizeof refusal_cases / sizeof *refusal_cases));
    tcase_set_timeout(fits, 120);
    tcase_set_timeout(uncertainties, 120);
    suite_add_tcase(suite, fits);
    suite_add_tcase(suite, uncertainties);
    suite_add_tcase(suite, refusals);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void)
{
    if (!calibrate_is_available()) {
        puts("this build cannot fit: it has no NLopt");
        return SKIPPED;
    }
    return run_suite();
}
