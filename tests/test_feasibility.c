/* Which plans an engine cannot run: the rules, and the measured rows that say so. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feasibility.h"
#include "sim/row_case.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"

static struct machine *machine; /* PAIR, opened before each test */

static void open_machine(void)
{
    struct error err = {0};

    machine = machine_open(PAIR, NULL, &err);
    ck_assert_msg(machine != NULL, "%s", err.text);
}

static void close_machine(void)
{
    machine_free(machine);
}

static uint32_t rules_of(const char *name, const struct plan *plan)
{
    struct error err = {0};
    struct model *model = model_open(name, &err);
    uint32_t rules;

    ck_assert_msg(model != NULL, "%s", err.text);
    rules = feasibility_check(model, machine, plan);
    model_free(model);
    return rules;
}

static void expect_rules(const char *name, const struct plan *plan, uint32_t expected)
{
    uint32_t rules = rules_of(name, plan);

    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++)
        ck_assert_msg((rules >> rule & 1) == (expected >> rule & 1), "%s: %s %s", name,
                      feasibility_rule_info((enum feasibility_rule)rule)->name,
                      (rules >> rule & 1) != 0 ? "applies" : "does not apply");
}

static struct plan plan_of(enum plan_schedule engine, enum plan_split split)
{
    struct plan plan = plan_default();

    plan.schedule = engine;
    plan.split = split;
    return plan;
}

static struct plan fork_tensor(void)
{
    return plan_of(PLAN_SCHEDULE_LLAMA_CPP_FORK, PLAN_SPLIT_TENSOR);
}

/* ---- measured rows ---- */

static void load_trace(const char *name, struct trace *trace)
{
    const char *folder = getenv("srcdir");
    struct error err = {0};
    char path[400];

    snprintf(path, sizeof path, "%s/traces/%s", folder != NULL ? folder : ".", name);
    ck_assert_msg(trace_load_file(path, trace, &err) == 0, "%s", err.text);
}

/* The two rows about sampling state no model; their table measured this one. */
static struct trace_row with_model(const struct trace_row *row)
{
    struct trace_row full = *row;

    if (full.model[0] == '\0') {
        full.model = "qwen3-0.6b";
        full.quant = "Q8_0";
    }
    return full;
}

static void expect_verdict(const struct trace_row *row)
{
    struct error err = {0};
    struct row_case c;
    struct machine *own;
    struct model *model;
    struct row_value value = {0};
    double measured = -1;
    char reason[400];

    ck_assert_msg(row_case_read(row, &c, reason, sizeof reason) == 0, "%s: %s", row->id, reason);
    own = row_case_machine(&c, &err);
    model = model_from_catalogue(c.model_spec, &err);
    ck_assert_msg(own != NULL && model != NULL, "%s: %s", row->id, err.text);
    ck_assert_int_eq(row_case_read_status(row, &measured), 0);
    ck_assert_int_eq(row_case_predict(&c, model, own, &value, &err), 0);
    ck_assert_msg(value.value == measured, "%s: %g is predicted for \"%s\"", row->id, value.value,
                  row->value.text);
    model_free(model);
    machine_free(own);
}

/* Rows of a table whose value is a status of a plan. */
static uint32_t expect_verdicts(const char *file, const char *table)
{
    struct trace trace = {0};
    uint32_t count = 0;

    load_trace(file, &trace);
    for (size_t i = 0; i < trace.count; i++) {
        struct trace_row row = with_model(&trace.rows[i]);
        double status;

        if (strncmp(row.id, table, strlen(table)) != 0 || strcmp(row.metric, "status") != 0 ||
            row_case_read_status(&row, &status) != 0)
            continue;
        expect_verdict(&row);
        count++;
    }
    trace_close(&trace);
    return count;
}

START_TEST(a_host_cache_under_a_tensor_split_aborts_or_is_wrong_where_it_was_measured_so)
{
    ck_assert_uint_eq(expect_verdicts("seed-000.jsonl", "s000-nkvo-status-"), 12);
}
END_TEST

START_TEST(sampling_on_devices_aborts_where_it_was_measured_so)
{
    ck_assert_uint_eq(expect_verdicts("seed-000.jsonl", "s000-sampling06b-"), 2);
}
END_TEST

START_TEST(a_quantised_host_cache_aborts_where_it_was_measured_so)
{
    ck_assert_uint_eq(expect_verdicts("seed-002.jsonl", "s002-quantabort-"), 2);
}
END_TEST

/* s000-iswa-01: one, two and four resident layers are worse; none and all agree. */
START_TEST(a_sliding_window_cache_on_both_sides_is_wrong_and_on_one_side_works)
{
    static const int32_t mixed[] = {1, 2, 4}, pure[] = {-1, 0, 30};
    struct plan plan = fork_tensor();

    plan.kv_on_host = true;
    for (size_t i = 0; i < 3; i++) {
        plan.kv_gpu_layers = mixed[i];
        expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 1u << FEASIBILITY_MIXED_SLIDING_CACHE);
        plan.kv_gpu_layers = pure[i];
        expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 0);
    }
    plan.kv_gpu_layers = 4; /* and only under a tensor split, and with sliding windows */
    expect_rules("qwen3.8-27b:UD-IQ2_M", &plan, 0);
    plan.split = PLAN_SPLIT_LAYER;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 0);
}
END_TEST

START_TEST(an_explicit_set_of_resident_layers_counts_as_mixed_too)
{
    uint32_t resident[30] = {[3] = 3};
    struct plan plan = fork_tensor();

    plan.kv_on_host = true;
    plan.kv_resident = resident;
    plan.kv_resident_count = 30;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 1u << FEASIBILITY_MIXED_SLIDING_CACHE);
    for (int i = 0; i < 30; i++)
        resident[i] = 3;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 0);
}
END_TEST

/* s000-aroverlap-16 to -18: faults in some runs with chunks, none without or unsummed. */
START_TEST(all_reduce_in_chunks_aborts_and_without_sums_is_wrong)
{
    struct plan plan = fork_tensor();

    plan.all_reduce = PLAN_ALL_REDUCE_CHUNKED;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 1u << FEASIBILITY_CHUNKED_ALL_REDUCE);
    plan.all_reduce = PLAN_ALL_REDUCE_SKIPPED;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 1u << FEASIBILITY_SKIPPED_ALL_REDUCE);
    plan.all_reduce = PLAN_ALL_REDUCE_PLAIN;
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 0);
}
END_TEST

/* ---- rules of the source ---- */

START_TEST(a_host_cache_works_where_one_device_has_all_queries)
{
    struct plan plan = plan_of(PLAN_SCHEDULE_LLAMA_CPP, PLAN_SPLIT_TENSOR);

    plan.kv_on_host = true;
    expect_rules("qwen3-8b:q4_k_m", &plan, 1u << FEASIBILITY_TENSOR_HOST_CACHE);
    plan.tensor_split_count = 2;
    plan.tensor_split[0] = 1;
    expect_rules("qwen3-8b:q4_k_m", &plan, 0);
}
END_TEST

START_TEST(a_host_cache_works_under_a_layer_split)
{
    struct plan plan = plan_of(PLAN_SCHEDULE_LLAMA_CPP, PLAN_SPLIT_LAYER);

    plan.kv_on_host = true;
    expect_rules("qwen3.8-27b:UD-IQ2_M", &plan, 0);
    expect_rules("gemma-4-26b-a4b:q4_k_m", &plan, 0);
}
END_TEST

START_TEST(an_architecture_without_tensor_split_is_refused)
{
    struct plan plan = fork_tensor();

    expect_rules("deepseek-v3:q4_k_m", &plan, 1u << FEASIBILITY_TENSOR_ARCHITECTURE);
    plan.split = PLAN_SPLIT_LAYER;
    expect_rules("deepseek-v3:q4_k_m", &plan, 0);
}
END_TEST

START_TEST(flash_attention_is_needed_for_a_quantised_v_and_for_a_tensor_split)
{
    struct plan plan = plan_of(PLAN_SCHEDULE_LLAMA_CPP_FORK, PLAN_SPLIT_LAYER);

    plan.flash_attn = PLAN_OFF;
    expect_rules("qwen3-8b:q4_k_m", &plan, 0);
    plan.type_k = plan.type_v = TENSOR_TYPE_Q8_0;
    expect_rules("qwen3-8b:q4_k_m", &plan, 1u << FEASIBILITY_QUANTISED_V);
    plan.type_k = plan.type_v = TENSOR_TYPE_F16;
    plan.split = PLAN_SPLIT_TENSOR;
    expect_rules("qwen3-8b:q4_k_m", &plan, 1u << FEASIBILITY_TENSOR_FLASH_ATTENTION);
}
END_TEST

START_TEST(a_quantised_cache_of_odd_rows_works_on_devices_and_in_llama_cpp)
{
    struct plan plan = plan_of(PLAN_SCHEDULE_LLAMA_CPP_FORK, PLAN_SPLIT_LAYER);

    plan.type_k = plan.type_v = TENSOR_TYPE_Q8_0;
    expect_rules("muse-glimmer-30b:UD-Q5_K_M", &plan, 0);
    plan.kv_on_host = true;
    expect_rules("muse-glimmer-30b:UD-Q5_K_M", &plan, 1u << FEASIBILITY_QUANTISED_HOST_CACHE);
    plan.schedule = PLAN_SCHEDULE_LLAMA_CPP;
    expect_rules("muse-glimmer-30b:UD-Q5_K_M", &plan, 0);
}
END_TEST

START_TEST(default_plans_of_every_model_break_no_rule)
{
    struct plan plan = plan_default();

    for (size_t i = 0; i < model_catalogue_count(); i++) {
        const struct model_card *card = model_catalogue_card(i);
        char name[160];

        snprintf(name, sizeof name, "%s:%s", card->name, card->quants[0]);
        expect_rules(name, &plan, 0);
    }
}
END_TEST

START_TEST(every_rule_has_a_name_of_its_own_a_reason_and_a_way_out)
{
    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++) {
        const struct feasibility_rule_info *info =
            feasibility_rule_info((enum feasibility_rule)rule);

        ck_assert_ptr_nonnull(info->name);
        ck_assert_msg(info->why != NULL && info->instead != NULL, "%s", info->name);
        ck_assert_int_ne(info->verdict, FEASIBILITY_WORKS);
        for (int other = 0; other < rule; other++)
            ck_assert_str_ne(info->name, feasibility_rule_info((enum feasibility_rule)other)->name);
        ck_assert_int_eq(feasibility_verdict(1u << rule), info->verdict);
    }
    ck_assert_int_eq(feasibility_verdict(0), FEASIBILITY_WORKS);
    ck_assert_int_eq(
        feasibility_verdict(1u << FEASIBILITY_TENSOR_HOST_CACHE | 1u << FEASIBILITY_QUERY_GROUPS),
        FEASIBILITY_ABORTS);
}
END_TEST

static Suite *feasibility_suite(void)
{
    Suite *suite = suite_create("feasibility");
    TCase *rows = tcase_create("rows"), *rules = tcase_create("rules");

    tcase_add_checked_fixture(rows, open_machine, close_machine);
    tcase_add_test(rows,
                   a_host_cache_under_a_tensor_split_aborts_or_is_wrong_where_it_was_measured_so);
    tcase_add_test(rows, sampling_on_devices_aborts_where_it_was_measured_so);
    tcase_add_test(rows, a_quantised_host_cache_aborts_where_it_was_measured_so);
    tcase_add_test(rows, a_sliding_window_cache_on_both_sides_is_wrong_and_on_one_side_works);
    tcase_add_test(rows, an_explicit_set_of_resident_layers_counts_as_mixed_too);
    tcase_add_test(rows, all_reduce_in_chunks_aborts_and_without_sums_is_wrong);
    suite_add_tcase(suite, rows);
    tcase_add_checked_fixture(rules, open_machine, close_machine);
    tcase_add_test(rules, a_host_cache_works_where_one_device_has_all_queries);
    tcase_add_test(rules, a_host_cache_works_under_a_layer_split);
    tcase_add_test(rules, an_architecture_without_tensor_split_is_refused);
    tcase_add_test(rules, flash_attention_is_needed_for_a_quantised_v_and_for_a_tensor_split);
    tcase_add_test(rules, a_quantised_cache_of_odd_rows_works_on_devices_and_in_llama_cpp);
    tcase_add_test(rules, default_plans_of_every_model_break_no_rule);
    tcase_add_test(rules, every_rule_has_a_name_of_its_own_a_reason_and_a_way_out);
    suite_add_tcase(suite, rules);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(feasibility_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
