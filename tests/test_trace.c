/* Rows of measurements: what each key becomes, what is assumed, what is refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/trace.h"
#include "sim/validate.h"

#define ROW(rest) "{\"id\": \"r1\", \"metric\": \"tg\", \"value\": 1" rest "}\n"

static struct trace parse(const char *text)
{
    struct trace trace = {0};
    struct error err = {0};
    int result = trace_parse(text, strlen(text), "rows.jsonl", &trace, &err);

    ck_assert_msg(result == 0, "%s:%d:%d: %s", err.source, err.line, err.column, err.text);
    return trace;
}

/* A path below the folder of the sources; the last one stays. */
static const char *source_path(const char *name)
{
    static char path[400];
    const char *folder = getenv("srcdir");

    snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", name);
    return path;
}

START_TEST(a_row_in_the_first_form_fills_its_fields)
{
    struct trace trace = parse(
        "{\"id\": \"a-01\", \"source\": \"table 1\", \"machine\": \"two-gpus\", \"clocks\": "
        "\"oc\", "
        "\"engine\": \"llama.cpp\", \"model\": \"qwen3.8-27b\", \"quant\": \"UD-Q5_K_M\", "
        "\"plan\": {\"split_mode\": \"tensor\", \"tensor_split\": [55, 45], \"attn_split\": [0.75, "
        "0.25], \"kv_on_host\": true, \"kv_pinned\": false, \"recurrent_on_device\": true, "
        "\"attn_on_host\": false, \"type_k\": \"q8_0\", \"type_v\": \"q4_0\", \"n_ctx\": 65536, "
        "\"n_batch\": 2048, \"n_ubatch\": 512, \"n_gpu_layers\": -1, \"kv_gpu_layers\": 8, "
        "\"kv_policy\": \"round-robin\", \"flash_attn\": true, \"kv_unified\": true, "
        "\"n_threads\": "
        "8, \"device\": \"CUDA1\", \"output_head\": \"split\"}, "
        "\"workload\": {\"tool\": \"llama-bench\", \"n_prompt\": 512, \"n_gen\": 128, \"n_depth\": "
        "4096, \"n_slots\": 2, \"reps\": 3}, "
        "\"metric\": \"tg\", \"unit\": \"t/s\", \"value\": 19.82, \"derived\": true, \"note\": "
        "\"n\"}\n");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 1);
    ck_assert_str_eq(row->id, "a-01");
    ck_assert_str_eq(row->source, "table 1");
    ck_assert_str_eq(row->machine, "two-gpus");
    ck_assert_int_eq(row->clocks, TRACE_CLOCKS_OC);
    ck_assert_str_eq(row->engine, "llama.cpp");
    ck_assert_str_eq(row->model, "qwen3.8-27b");
    ck_assert_str_eq(row->quant, "UD-Q5_K_M");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_TENSOR);
    ck_assert_uint_eq(row->tensor_split.count, 2);
    ck_assert_double_eq(row->tensor_split.share[0], 55);
    ck_assert_double_eq(row->attn_split.share[1], 0.25);
    ck_assert_int_eq(row->kv_on_host, TRACE_YES);
    ck_assert_int_eq(row->kv_pinned, TRACE_NO);
    ck_assert_int_eq(row->recurrent_on_device, TRACE_YES);
    ck_assert_int_eq(row->attn_on_host, TRACE_NO);
    ck_assert_str_eq(row->type_k, "q8_0");
    ck_assert_str_eq(row->type_v, "q4_0");
    ck_assert_int_eq(row->n_ctx, 65536);
    ck_assert_int_eq(row->n_batch, 2048);
    ck_assert_int_eq(row->n_ubatch, 512);
    ck_assert_int_eq(row->n_gpu_layers, -1);
    ck_assert_int_eq(row->kv_gpu_layers, 8);
    ck_assert_str_eq(row->kv_policy, "round-robin");
    ck_assert_int_eq(row->flash_attn, TRACE_YES);
    ck_assert_int_eq(row->kv_unified, TRACE_YES);
    ck_assert_int_eq(row->n_threads, 8);
    ck_assert_str_eq(row->device, "CUDA1");
    ck_assert_str_eq(row->output_head, "split");
    ck_assert_str_eq(row->tool, "llama-bench");
    ck_assert_int_eq(row->n_prompt, 512);
    ck_assert_int_eq(row->n_gen, 128);
    ck_assert_int_eq(row->n_depth, 4096);
    ck_assert_int_eq(row->n_slots, 2);
    ck_assert_int_eq(row->reps, 3);
    ck_assert_str_eq(row->metric, "tg");
    ck_assert_str_eq(row->unit, "t/s");
    ck_assert_int_eq(row->value.kind, TRACE_VALUE_NUMBER);
    ck_assert_double_eq(row->value.number, 19.82);
    ck_assert(row->derived);
    ck_assert_str_eq(row->note, "n");
    ck_assert_uint_eq(row->other_plan_key_count, 0);
    ck_assert_uint_eq(row->other_workload_key_count, 0);
    ck_assert_uint_eq(row->assumed, 0);
    trace_close(&trace);
}
END_TEST

START_TEST(a_row_in_the_scoreboard_form_fills_the_same_fields)
{
    struct trace trace = parse(
        "{\"id\": \"s-01\", \"machine\": {\"gpus\": [\"RTX 5090\", \"A40\"], \"links\": [null, "
        "\"PCIe 4.0 x16\"], \"cpu\": \"EPYC\", \"ram\": 64, \"backend\": \"CUDA\"}, \"build\": "
        "\"8cf6b42\", \"tool\": \"llama-bench\", \"plan\": {\"tensor_split\": null, "
        "\"no_kv_offload\": false, \"spec\": null}, \"workload\": {\"n_parallel\": 4}, "
        "\"metric\": \"pp\", \"value\": 14073, \"stddev\": 115.16}\n");
    const struct trace_row *row = trace.rows;

    ck_assert_str_eq(row->machine, "");
    ck_assert_uint_eq(row->gpu_count, 2);
    ck_assert_str_eq(row->gpus[0], "RTX 5090");
    ck_assert_uint_eq(row->link_count, 2);
    ck_assert_str_eq(row->links[0], "");
    ck_assert_str_eq(row->links[1], "PCIe 4.0 x16");
    ck_assert_str_eq(row->cpu, "EPYC");
    ck_assert_str_eq(row->ram, "64");
    ck_assert_str_eq(row->backend, "CUDA");
    ck_assert(trace_row_has(row, TRACE_FIELD_MACHINE));
    ck_assert_str_eq(row->build, "8cf6b42");
    ck_assert_str_eq(row->tool, "llama-bench");
    ck_assert_int_eq(row->kv_on_host, TRACE_NO);
    ck_assert_int_eq(row->n_slots, 4);
    ck_assert_double_eq(row->stddev, 115.16);
    ck_assert(!trace_row_has(row, TRACE_FIELD_TENSOR_SPLIT));
    ck_assert_uint_eq(row->other_plan_key_count, 0);
    trace_close(&trace);
}
END_TEST

START_TEST(what_a_row_leaves_open_stays_open)
{
    struct trace trace = parse(ROW(", \"clocks\": \"unknown\""));
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(row->stated | row->assumed, 0);
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_UNKNOWN);
    ck_assert_int_eq(row->kv_on_host, TRACE_UNKNOWN);
    ck_assert_int_eq(row->clocks, TRACE_CLOCKS_UNKNOWN);
    ck_assert_uint_eq(row->tensor_split.count, 0);
    ck_assert_str_eq(row->model, "");
    ck_assert_str_eq(row->note, "");
    ck_assert_str_eq(row->machine, "");
    ck_assert_str_eq(row->value.text, "");
    trace_close(&trace);
}
END_TEST

START_TEST(assumptions_fill_what_is_missing_wherever_it_belongs)
{
    struct trace trace =
        parse(ROW(", \"plan\": {\"n_ctx\": 4096}, \"assumed\": {\"n_batch\": 2048, "
                  "\"tensor_split\": [50, 50], \"kv_on_host\": false, \"type_k\": "
                  "\"f16\", \"split_mode\": \"layer\", \"tool\": "
                  "\"llama-completion\", \"n_prompt\": 13500, \"model\": "
                  "\"qwen3.8-27b\"}"));
    const struct trace_row *row = trace.rows;

    ck_assert_int_eq(row->n_batch, 2048);
    ck_assert_uint_eq(row->tensor_split.count, 2);
    ck_assert_int_eq(row->kv_on_host, TRACE_NO);
    ck_assert_str_eq(row->type_k, "f16");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_LAYER);
    ck_assert_str_eq(row->tool, "llama-completion");
    ck_assert_int_eq(row->n_prompt, 13500);
    ck_assert_str_eq(row->model, "qwen3.8-27b");
    ck_assert(trace_row_is_assumed(row, TRACE_FIELD_N_PROMPT));
    ck_assert(trace_row_has(row, TRACE_FIELD_N_PROMPT));
    ck_assert(!trace_row_is_assumed(row, TRACE_FIELD_N_CTX));
    ck_assert(trace_row_has(row, TRACE_FIELD_N_CTX));
    trace_close(&trace);
}
END_TEST

START_TEST(an_assumption_never_changes_what_is_stated)
{
    struct trace trace = parse(ROW(", \"plan\": {\"n_ctx\": 4096, \"n_batch\": 512}, "
                                   "\"assumed\": {\"n_ctx\": 8192}"));
    const struct trace_row *row = trace.rows;

    ck_assert_int_eq(row->n_ctx, 4096);
    ck_assert(trace_row_is_assumed(row, TRACE_FIELD_N_CTX));
    ck_assert(!trace_row_is_assumed(row, TRACE_FIELD_N_BATCH));
    ck_assert_uint_eq(row->stated & row->assumed, 0);
    trace_close(&trace);
}
END_TEST

START_TEST(an_assumed_machine_is_one_word)
{
    struct trace trace = parse(ROW(", \"assumed\": {\"machine\": \"a-box\"}"));

    ck_assert_str_eq(trace.rows->machine, "a-box");
    ck_assert(trace_row_is_assumed(trace.rows, TRACE_FIELD_MACHINE));
    trace_close(&trace);
}
END_TEST

START_TEST(assumed_prose_fills_nothing)
{
    struct trace trace = parse(
        ROW(", \"assumed\": {\"tensor_split\": \"not stated\", \"n_prompt\": \"same as "
            "control\", \"n_ubatch\": -5, \"kv_pinned\": \"not stated\", \"quant\": \"not "
            "stated\", \"type_k\": \"as in table 2\", \"split_mode\": \"zigzag\", \"machine\": "
            "\"one or two\", \"note\": \"hm\", \"type\": \"prose\", \"corpus\": \"same slice\"}"));
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(row->stated | row->assumed, 0);
    ck_assert_int_eq(row->n_ubatch, 0);
    ck_assert_str_eq(row->quant, "");
    ck_assert_str_eq(row->note, "");
    ck_assert_str_eq(row->machine, "");
    trace_close(&trace);
}
END_TEST

START_TEST(an_assumed_quant_may_be_followed_by_its_reason)
{
    struct trace trace =
        parse(ROW(", \"assumed\": {\"quant\": \"UD-Q5_K_M (17.24 fits its 17.78 device level)\"}"));

    ck_assert_str_eq(trace.rows[0].quant, "UD-Q5_K_M");
    ck_assert(trace_row_is_assumed(trace.rows, TRACE_FIELD_QUANT));
    trace_close(&trace);
}
END_TEST

START_TEST(keys_without_a_field_are_kept_as_json_text)
{
    struct trace trace = parse(
        ROW(", \"plan\": {\"split_mode\": \"tensor minus layer\", \"fit\": \"off\", "
            "\"rows\": [256, 0.1], \"n_ctx\": 1, \"gone\": null}, \"workload\": {\"seed\": 1}"));
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(row->other_plan_key_count, 3);
    ck_assert_str_eq(row->other_plan_keys[0].key, "split_mode");
    ck_assert_str_eq(row->other_plan_keys[0].json, "\"tensor minus layer\"");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_UNKNOWN);
    ck_assert_str_eq(row->other_plan_keys[1].key, "fit");
    ck_assert_str_eq(row->other_plan_keys[1].json, "\"off\"");
    ck_assert_str_eq(row->other_plan_keys[2].json, "[256, 0.1]");
    ck_assert_uint_eq(row->other_workload_key_count, 1);
    ck_assert_str_eq(row->other_workload_keys[0].key, "seed");
    trace_close(&trace);
}
END_TEST

START_TEST(a_value_is_a_number_a_truth_or_a_text)
{
    struct trace trace = parse("{\"id\": \"a\", \"metric\": \"fits\", \"value\": true}\n"
                               "{\"id\": \"b\", \"metric\": \"hash\", \"value\": \"8dfc\"}\n"
                               "{\"id\": \"c\", \"metric\": \"tg\", \"value\": -7}\n");

    ck_assert_int_eq(trace.rows[0].value.kind, TRACE_VALUE_BOOL);
    ck_assert_double_eq(trace.rows[0].value.number, 1);
    ck_assert_int_eq(trace.rows[1].value.kind, TRACE_VALUE_TEXT);
    ck_assert_str_eq(trace.rows[1].value.text, "8dfc");
    ck_assert_int_eq(trace.rows[2].value.kind, TRACE_VALUE_NUMBER);
    ck_assert_double_eq(trace.rows[2].value.number, -7);
    ck_assert_ptr_eq(trace_find_row(&trace, "b"), &trace.rows[1]);
    ck_assert_ptr_null(trace_find_row(&trace, "d"));
    trace_close(&trace);
}
END_TEST

START_TEST(blank_lines_and_unknown_keys_are_passed_over)
{
    struct trace trace = parse("\n  \t\r\n" ROW(
        ", \"colour\": [1]") "\r\n\n"
                             "{\"id\": \"last\", \"metric\": \"new\", \"value\": 2}");

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_int_eq(trace.rows[0].line, 3);
    ck_assert_int_eq(trace.rows[1].line, 6);
    trace_close(&trace);
}
END_TEST

START_TEST(a_header_tells_what_the_rows_are_about)
{
    struct trace trace =
        parse("{\"lopside_trace\": 1, \"about\": \"links\", \"by\": \"us\"}\n" ROW(""));
    struct trace plain = parse(ROW(""));
    struct trace joined = parse(ROW("") "{\"lopside_trace\": 1}\n" ROW(""));

    ck_assert_str_eq(trace.about, "links");
    ck_assert_uint_eq(trace.count, 1);
    ck_assert_str_eq(plain.about, "");
    ck_assert_uint_eq(joined.count, 2);
    trace_close(&trace);
    trace_close(&plain);
    trace_close(&joined);
}
END_TEST

START_TEST(a_header_with_a_table_describes_that_table)
{
    struct trace trace = parse(
        "{\"lopside_trace\": 1, \"table\": \"a\", \"title\": \"one\", \"gap\": \"who\"}\n" ROW(
            "") "{\"lopside_trace\": 1, \"table\": \"b\", \"mechanism\": \"links\"}\n");
    const struct trace_table *a = trace_find_table(&trace, "a");
    const struct trace_table *b = trace_find_table(&trace, "b");

    ck_assert_uint_eq(trace.table_count, 2);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_str_eq(a->title, "one");
    ck_assert_str_eq(a->mechanism, "");
    ck_assert_str_eq(a->gap, "who");
    ck_assert_str_eq(b->title, "");
    ck_assert_str_eq(b->mechanism, "links");
    ck_assert_str_eq(b->contradiction, "");
    ck_assert_ptr_null(trace_find_table(&trace, "c"));
    trace_close(&trace);
}
END_TEST

START_TEST(an_empty_trace_has_no_rows)
{
    struct trace trace = parse("");

    ck_assert_uint_eq(trace.count, 0);
    trace_close(&trace);
    trace_close(&trace);
}
END_TEST

/* Lines that are refused behind one good row, with a ^ in front of the place, and what
 * is said. */
static const struct {
    const char *marked;
    const char *said;
} refusals[] = {
    {"{\"id\": \"a\", ^", "not JSON: string or '}' expected near end of text"},
    {"^tg 19.8", "not JSON: '[' or '{' expected near 'tg'"},
    {"^[1]", "a list is not an object"},
    {"^{\"metric\": \"tg\", \"value\": 1}",
     "id: missing; a name for the row (a string) belongs here"},
    {"{\"id\": ^\"\", \"metric\": \"tg\", \"value\": 1}",
     "id: empty; a name for the row belongs here"},
    {"^{\"id\": \"a\", \"value\": 1}", "metric: missing; a metric (a string) belongs here"},
    {"^{\"id\": \"a\", \"metric\": \"tg\"}",
     "value: missing; a number, a string, true or false belongs here"},
    {"{\"id\": \"a\", \"metric\": \"tg\", \"value\": ^[1]}",
     "value: not a value; a number, a string, true or false belongs here"},
    {"{\"lopside_trace\": ^2}", "lopside_trace: version 2 cannot be read; version 1 can"},
    {"{\"lopside_trace\": ^\"1\"}", "lopside_trace: \"1\" is not a whole number"},
    {ROW(", \"plan\": {\"n_ctx\": ^\"4096\"}"),
     "plan.n_ctx: \"4096\" is not a whole number of 0 or more"},
    {ROW(", \"plan\": ^[]"), "plan: a list is not an object"},
    {ROW(", \"plan\": {\"kv_on_host\": ^1}"), "plan.kv_on_host: 1 is not true or false"},
    {ROW(", \"plan\": {\"tensor_split\": [50, ^-1]}"),
     "plan.tensor_split[1]: -1 is not a share; a number from 0 to 1e+12 is"},
    {ROW(", \"plan\": {\"tensor_split\": ^[0, 0]}"),
     "plan.tensor_split: the shares add up to nothing; one above 0 is needed"},
    {ROW(", \"plan\": {\"attn_split\": ^[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}"),
     "plan.attn_split: 17 shares are too many; up to 16 can be read"},
    {ROW(", \"clocks\": ^\"stok\""), "clocks: \"stok\" is not a state of the clocks; did you mean "
                                     "\"stock\" (known: unknown, stock and oc)?"},
    {ROW(", \"machine\": ^3"),
     "machine: not a machine; a name or an object with a list \"gpus\" is"},
    {ROW(", \"machine\": {\"gpus\": [^null]}"), "machine.gpus[0]: null is not a GPU; a string is"},
    {ROW(", \"assumed\": ^\"n_ctx\""), "assumed: \"n_ctx\" is not an object"},
    {ROW(", \"note\": ^3"), "note: 3 is not a string"},
    {"{\"lopside_trace\": 1, \"table\": ^7}", "table: 7 is not the id of a table; a string is"},
    {"{\"lopside_trace\": 1, \"table\": \"a\", \"gap\": ^[]}",
     "gap: a list is not a text; a string is"},
};

START_TEST(a_row_that_cannot_be_read_is_refused_at_its_place)
{
    const char *marked = refusals[_i].marked;
    int place = (int)strcspn(marked, "^");
    struct trace trace = {.count = 99};
    struct error err = {0};
    char text[400];

    snprintf(text, sizeof text, "%s\n%.*s%s", ROW(""), place, marked, marked + place + 1);
    ck_assert_int_eq(trace_parse(text, strlen(text), "rows.jsonl", &trace, &err), -1);
    ck_assert_str_eq(err.text, refusals[_i].said);
    ck_assert_str_eq(err.source, "rows.jsonl");
    ck_assert_int_eq(err.line, 3);
    ck_assert_int_eq(err.column, place + 1);
    ck_assert_uint_eq(trace.count, 99);
}
END_TEST

START_TEST(every_field_has_a_name_of_its_own)
{
    for (int i = 0; i < TRACE_FIELD_COUNT; i++) {
        ck_assert_str_ne(trace_field_name((enum trace_field)i), "");
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(trace_field_name((enum trace_field)i),
                             trace_field_name((enum trace_field)j));
    }
}
END_TEST

/* Every table of the seeds has a title and says what explains it. */
static void check_tables(const struct trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_table *table;
        char id[48];

        validate_table_id(trace->rows[i].id, id, sizeof id);
        table = trace_find_table(trace, id);
        ck_assert_msg(table != NULL, "no header describes %s", id);
        ck_assert_str_ne(table->title, "");
        ck_assert_str_ne(table->mechanism, "");
    }
}

START_TEST(the_shipped_traces_are_read_whole)
{
    struct trace_files files;
    struct error err = {0};
    size_t seed_rows = 0, scoreboard_rows = 0, own_rows = 0;

    ck_assert_int_eq(trace_find_files(source_path("traces"), &files, &err), 0);
    for (size_t i = 0; i < files.count; i++) {
        struct trace trace;

        ck_assert_msg(trace_load_file(files.paths[i], &trace, &err) == 0, "%s:%d:%d: %s",
                      err.source, err.line, err.column, err.text);
        ck_assert_str_ne(trace.about, "");
        if (strstr(files.paths[i], "/seed-")) {
            seed_rows += trace.count;
            check_tables(&trace);
        }
        if (strstr(files.paths[i], "/scoreboard."))
            scoreboard_rows += trace.count;
        if (strstr(files.paths[i], "/h200"))
            own_rows += trace.count;
        trace_close(&trace);
    }
    ck_assert_uint_eq(seed_rows, 389);
    ck_assert_uint_eq(scoreboard_rows, 26);
    ck_assert_uint_eq(own_rows, 245);
    trace_files_close(&files);
}
END_TEST

START_TEST(a_folder_means_its_traces_in_the_order_of_their_names)
{
    struct trace_files files;
    struct error err = {0};

    ck_assert_int_eq(trace_find_files(source_path("traces"), &files, &err), 0);
    ck_assert_uint_ge(files.count, 3);
    for (size_t i = 1; i < files.count; i++)
        ck_assert(strcmp(files.paths[i - 1], files.paths[i]) < 0);
    trace_files_close(&files);
    ck_assert_int_eq(trace_find_files(source_path("traces/seed-002.jsonl"), &files, &err), 0);
    ck_assert_uint_eq(files.count, 1);
    trace_files_close(&files);
}
END_TEST

START_TEST(a_path_without_traces_is_refused)
{
    struct trace_files files;
    struct error missing = {0}, empty = {0};

    ck_assert_int_eq(trace_find_files("no-such-folder", &files, &missing), -1);
    ck_assert_int_eq(missing.code, ERROR_IO);
    ck_assert_str_eq(missing.source, "no-such-folder");
    ck_assert_int_eq(trace_find_files(source_path("sim"), &files, &empty), -1);
    ck_assert_str_eq(empty.text, "holds no trace; a trace ends in .jsonl");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *tests = tcase_create("trace");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, a_row_in_the_first_form_fills_its_fields);
    tcase_add_test(tests, a_row_in_the_scoreboard_form_fills_the_same_fields);
    tcase_add_test(tests, what_a_row_leaves_open_stays_open);
    tcase_add_test(tests, assumptions_fill_what_is_missing_wherever_it_belongs);
    tcase_add_test(tests, an_assumption_never_changes_what_is_stated);
    tcase_add_test(tests, assumed_prose_fills_nothing);
    tcase_add_test(tests, an_assumed_machine_is_one_word);
    tcase_add_test(tests, an_assumed_quant_may_be_followed_by_its_reason);
    tcase_add_test(tests, keys_without_a_field_are_kept_as_json_text);
    tcase_add_test(tests, a_value_is_a_number_a_truth_or_a_text);
    tcase_add_test(tests, blank_lines_and_unknown_keys_are_passed_over);
    tcase_add_test(tests, a_header_tells_what_the_rows_are_about);
    tcase_add_test(tests, a_header_with_a_table_describes_that_table);
    tcase_add_test(tests, an_empty_trace_has_no_rows);
    tcase_add_loop_test(tests, a_row_that_cannot_be_read_is_refused_at_its_place, 0,
                        sizeof refusals / sizeof refusals[0]);
    tcase_add_test(tests, every_field_has_a_name_of_its_own);
    tcase_add_test(tests, the_shipped_traces_are_read_whole);
    tcase_add_test(tests, a_folder_means_its_traces_in_the_order_of_their_names);
    tcase_add_test(tests, a_path_without_traces_is_refused);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
