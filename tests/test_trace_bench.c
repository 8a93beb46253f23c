/* Output of llama-bench, old and new, of its fork and of lopside itself, as rows. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/trace.h"

static struct trace load(const char *name)
{
    struct trace trace = {0};
    struct error err = {0};
    const char *folder = getenv("srcdir");
    char path[400];

    snprintf(path, sizeof path, "%s/tests/data/bench/%s", folder ? folder : ".", name);
    ck_assert_msg(trace_load_file(path, &trace, &err) == 0, "%s:%d:%d: %s", err.source, err.line,
                  err.column, err.text);
    return trace;
}

static struct trace parse(const char *text)
{
    struct trace trace = {0};
    struct error err = {0};
    int result = trace_parse(text, strlen(text), "runs/box.csv", &trace, &err);

    ck_assert_msg(result == 0, "%s:%d:%d: %s", err.source, err.line, err.column, err.text);
    return trace;
}

START_TEST(a_table_tells_its_rows_by_the_names_of_its_columns)
{
    struct trace trace = load("old-table.md");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(row->id, "old-table-01");
    ck_assert_int_eq(row->line, 7);
    ck_assert_str_eq(row->tool, "llama-bench");
    ck_assert_str_eq(row->metric, "pp");
    ck_assert_str_eq(row->unit, "t/s");
    ck_assert_double_eq(row->value.number, 3210.55);
    ck_assert_double_eq(row->stddev, 12.4);
    ck_assert_str_eq(row->model, "llama 7B");
    ck_assert_str_eq(row->quant, "Q4_0");
    ck_assert_str_eq(row->engine, "llama.cpp");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_ROW);
    ck_assert_uint_eq(row->tensor_split.count, 2);
    ck_assert_double_eq(row->tensor_split.share[1], 0.4);
    ck_assert_int_eq(row->n_gpu_layers, 99);
    ck_assert_int_eq(row->n_batch, 1024);
    ck_assert_int_eq(row->flash_attn, TRACE_YES);
    ck_assert_int_eq(row->n_prompt, 512);
    ck_assert_int_eq(row->n_depth, 0);
    ck_assert(!trace_row_has(row, TRACE_FIELD_N_UBATCH));
    ck_assert_str_eq(row[1].id, "old-table-02");
    ck_assert_str_eq(row[1].metric, "tg");
    ck_assert_int_eq(row[1].n_gen, 128);
    trace_close(&trace);
}
END_TEST

START_TEST(the_lines_around_a_table_name_its_gpus_and_its_build)
{
    struct trace trace = load("old-table.md");

    for (size_t i = 0; i < trace.count; i++) {
        ck_assert_uint_eq(trace.rows[i].gpu_count, 2);
        ck_assert_str_eq(trace.rows[i].gpus[0], "GeForce RTX 4070");
        ck_assert_str_eq(trace.rows[i].gpus[1], "GeForce RTX 3060");
        ck_assert_str_eq(trace.rows[i].build, "8cf6b42d");
        ck_assert_str_eq(trace.rows[i].backend, "CUDA");
    }
    trace_close(&trace);
}
END_TEST

START_TEST(tables_with_prose_progress_and_emphasis_are_read)
{
    struct trace trace = load("new-table.md");

    ck_assert_uint_eq(trace.count, 5);
    ck_assert_str_eq(trace.rows[0].quant, "Q4_K_M");
    ck_assert_str_eq(trace.rows[0].type_k, "q8_0");
    ck_assert_int_eq(trace.rows[0].n_gpu_layers, -1);
    ck_assert_str_eq(trace.rows[0].build, "1d72c8418");
    ck_assert_uint_eq(trace.rows[0].gpu_count, 1);
    ck_assert_double_eq(trace.rows[1].value.number, 76.61);
    ck_assert_double_eq(trace.rows[1].stddev, 0.03);
    ck_assert_str_eq(trace.rows[2].metric, "pg");
    ck_assert_int_eq(trace.rows[2].n_prompt, 512);
    ck_assert_int_eq(trace.rows[2].n_gen, 128);
    ck_assert_str_eq(trace.rows[3].metric, "tg");
    ck_assert_int_eq(trace.rows[3].n_depth, 4096);
    ck_assert_str_eq(trace.rows[4].model, "qwen3moe 30B.A3B");
    ck_assert_str_eq(trace.rows[4].quant, "IQ4_XS");
    ck_assert_str_eq(trace.rows[4].build, "0badcafe");
    ck_assert_str_eq(trace.rows[4].skip, "the backend Vulkan is not modelled");
    trace_close(&trace);
}
END_TEST

START_TEST(csv_of_an_old_release_is_read)
{
    struct trace trace = load("old.csv");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(row->id, "old-01");
    ck_assert_int_eq(row->line, 2);
    ck_assert_str_eq(row->build, "fd1a0e61");
    ck_assert_str_eq(row->note, "models/7B \"chat\"/ggml-model-q4_0.gguf");
    ck_assert_uint_eq(row->gpu_count, 2);
    ck_assert_str_eq(row->gpus[0], "GeForce RTX 4090");
    ck_assert_str_eq(row->gpus[1], "GeForce RTX 3090");
    ck_assert_str_eq(row->cpu, "AMD Ryzen 7 7700X 8-Core Processor");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_LAYER);
    ck_assert_uint_eq(row->tensor_split.count, 0);
    ck_assert_int_eq(row->kv_on_host, TRACE_NO);
    ck_assert_double_eq_tol(row->value.number, 2413.341687, 1e-9);
    ck_assert_double_eq_tol(row->stddev, 8.305961, 1e-9);
    ck_assert_int_eq(row[1].split_mode, TRACE_SPLIT_ROW);
    ck_assert_int_eq(row[1].kv_on_host, TRACE_YES);
    ck_assert_double_eq(row[1].tensor_split.share[0], 60);
    ck_assert_int_eq(row[1].n_threads, 8);
    ck_assert_uint_eq(row[0].other_plan_key_count, 0);
    trace_close(&trace);
}
END_TEST

START_TEST(csv_of_a_new_release_is_read)
{
    struct trace trace = load("new.csv");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(row->model, "gpt-oss 20B");
    ck_assert_str_eq(row->quant, "MXFP4_MOE");
    ck_assert_uint_eq(row->gpu_count, 2);
    ck_assert_str_eq(row->gpus[1], "GeForce RTX 3060");
    ck_assert_int_eq(row->split_mode, TRACE_SPLIT_TENSOR);
    ck_assert_double_eq(row->tensor_split.share[0], 0.75);
    ck_assert_int_eq(row->n_depth, 8192);
    ck_assert_int_eq(row->n_ubatch, 512);
    ck_assert_int_eq(row->flash_attn, TRACE_YES);
    ck_assert_uint_eq(row->other_plan_key_count, 0);
    ck_assert_int_eq(row[1].flash_attn, TRACE_UNKNOWN); /* -1: the engine decides */
    trace_close(&trace);
}
END_TEST

START_TEST(what_no_plan_of_ours_has_is_kept_beside_its_fields)
{
    struct trace trace = load("new.csv");
    const struct trace_row *row = &trace.rows[1];

    ck_assert_uint_eq(row->other_plan_key_count, 2);
    ck_assert_str_eq(row->other_plan_keys[0].key, "n_cpu_moe");
    ck_assert_str_eq(row->other_plan_keys[0].json, "4");
    ck_assert_str_eq(row->other_plan_keys[1].key, "main_gpu");
    trace_close(&trace);
}
END_TEST

START_TEST(json_is_read_with_its_repetitions_and_lines)
{
    struct trace trace = load("old.json");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_int_eq(row[0].line, 2);
    ck_assert_int_eq(row[1].line, 35);
    ck_assert_str_eq(row->model, "llama 13B");
    ck_assert_str_eq(row->quant, "Q4_K_S");
    ck_assert_int_eq(row->reps, 3);
    ck_assert_double_eq(row->value.number, 5120.25);
    ck_assert_double_eq(row->stddev, 25.5);
    ck_assert_int_eq(row->flash_attn, TRACE_YES);
    ck_assert_int_eq(row->kv_on_host, TRACE_NO);
    ck_assert_str_eq(row[1].metric, "tg");
    ck_assert_double_eq(row[1].value.number, 88.125);
    trace_close(&trace);
}
END_TEST

START_TEST(lines_of_the_fork_stand_beside_rows_of_our_own)
{
    struct trace trace = load("fork.jsonl");
    const struct trace_row *row = trace.rows;

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(row->id, "fork-01");
    ck_assert_int_eq(row->line, 4);
    ck_assert_str_eq(row->engine, "llama.cpp-fork");
    ck_assert_str_eq(row->model, "qwen35 27B");
    ck_assert_str_eq(row->quant, "Q5_K_M");
    ck_assert_int_eq(row->kv_on_host, TRACE_YES);
    ck_assert_int_eq(row->kv_pinned, TRACE_YES);
    ck_assert_int_eq(row->recurrent_on_device, TRACE_YES);
    ck_assert_int_eq(row->kv_gpu_layers, 8);
    ck_assert_int_eq(row->reps, 2);
    ck_assert_str_eq(row[1].id, "own-01");
    ck_assert_int_eq(row[1].line, 5);
    trace_close(&trace);
}
END_TEST

START_TEST(sql_is_read_with_quoted_texts)
{
    struct trace trace = load("new.sql");

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(trace.rows[0].note, "it's a (model); v2.gguf");
    ck_assert_str_eq(trace.rows[0].quant, "Q3_K_L");
    ck_assert_double_eq(trace.rows[0].value.number, 3000.5);
    ck_assert_int_eq(trace.rows[0].line, 23);
    ck_assert_str_eq(trace.rows[1].metric, "tg");
    ck_assert_double_eq(trace.rows[1].stddev, 0.125);
    trace_close(&trace);
}
END_TEST

START_TEST(a_dump_of_a_database_names_its_columns_once)
{
    struct trace trace = load("dump.sql");

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_str_eq(trace.rows[0].quant, "F32");
    ck_assert_str_eq(trace.rows[0].gpus[0], "A40");
    ck_assert_double_eq(trace.rows[0].value.number, 2000.5);
    ck_assert_int_eq(trace.rows[1].n_gen, 128);
    ck_assert_int_eq(trace.rows[1].line, 5);
    trace_close(&trace);
}
END_TEST

/* --- our own output --- */

static const char *const own_formats[] = {"own.md", "own.csv", "own.json", "own.jsonl", "own.sql"};

/* Results 3, 4, 7 and 8 are those of a model that does not fit. */
START_TEST(our_own_output_reads_back_in_every_format)
{
    static const char *const ids[] = {"own-01", "own-02", "own-05", "own-06"};
    static const double speeds[] = {1494.41, 74.11, 2226.27, 74.60};
    bool is_table = _i == 0;
    struct trace trace = load(own_formats[_i]);

    ck_assert_uint_eq(trace.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct trace_row *row = &trace.rows[i];
        bool asked = i < 2;

        ck_assert_str_eq(row->id, ids[i]);
        ck_assert_double_eq_tol(row->value.number, speeds[i], 0.0051);
        ck_assert_str_eq(row->metric, i % 2 == 0 ? "pp" : "tg");
        ck_assert_int_eq(row->n_prompt, i % 2 == 0 ? 64 : 0);
        ck_assert_int_eq(row->n_gen, i % 2 == 0 ? 0 : 4);
        ck_assert_int_eq(row->n_depth, 256);
        ck_assert_str_eq(row->model, is_table ? "llama 8B" : "Llama-3.1-8B");
        ck_assert_str_eq(row->quant, "Q4_K_M");
        ck_assert_str_eq(row->engine, asked ? "llama.cpp-fork" : "llama.cpp");
        ck_assert_int_eq(row->split_mode, asked ? TRACE_SPLIT_TENSOR : TRACE_SPLIT_LAYER);
        ck_assert_uint_eq(row->tensor_split.count, asked ? 2 : 0);
        ck_assert_uint_eq(row->attn_split.count, asked ? 2 : 0);
        ck_assert_int_eq(row->kv_on_host, asked ? TRACE_YES : TRACE_NO);
        ck_assert_int_eq(row->kv_pinned, asked ? TRACE_YES : TRACE_NO);
        ck_assert_str_eq(row->type_k, asked ? "q8_0" : "f16");
        ck_assert_int_eq(row->n_batch, asked ? 1024 : 2048);
        ck_assert_int_eq(row->n_gpu_layers, -1);
        ck_assert_str_eq(row->kv_policy, asked ? "round-robin" : "slowest-first");
        ck_assert(trace_row_has(row, TRACE_FIELD_KV_GPU_LAYERS) == asked);
        ck_assert_uint_eq(row->other_plan_key_count, 0);
        ck_assert_str_eq(row->machine, is_table ? "" : "rtx4070-gen4x16+rtx3060-gen3x4");
        ck_assert_int_eq(strncmp(row->build, "lopside ", 8), 0);
    }
    trace_close(&trace);
}
END_TEST

/* --- single values --- */

#define CSV_HEAD "model_type,n_prompt,n_gen,avg_ts\n"

static const struct {
    const char *type, *model, *quant;
} types[] = {
    {"llama 7B Q4_0", "llama 7B", "Q4_0"},
    {"llama 7B F16", "llama 7B", "F16"},
    {"llama 7B all F32", "llama 7B", "F32"},
    {"llama 7B mostly Q4_K - Medium", "llama 7B", "Q4_K_M"},
    {"llama 7B (guessed) Q5_K - Small", "llama 7B", "Q5_K_S"},
    {"llama 7B Q2_K - Medium", "llama 7B", "Q2_K"},
    {"llama 7B Q2_K - Small", "llama 7B", "Q2_K_S"},
    {"llama 7B IQ3_S mix - 3.66 bpw", "llama 7B", "IQ3_M"},
    {"llama 7B IQ2_M - 2.7 bpw", "llama 7B", "IQ2_M"},
    {"llama 7B TQ1_0 - 1.69 bpw ternary", "llama 7B", "TQ1_0"},
    {"gpt-oss 20B MXFP4 MoE", "gpt-oss 20B", "MXFP4_MOE"},
    {"qwen35 27B UD-Q5_K_M", "qwen35 27B", "UD-Q5_K_M"},
    {"llama4 17B.16E (Scout) Q4_K - Medium", "llama4 17B.16E (Scout)", "Q4_K_M"},
    {"llama ?B unknown, may not work", "llama ?B", ""},
    {"muse Q4_K_M", "muse", "Q4_K_M"},
    {"llama 7B", "llama 7B", ""},
    {"llama", "llama", ""},
};

/* A type may stand for several models, a name of the catalogue for one. */
START_TEST(a_model_of_the_catalogue_goes_by_its_name)
{
    struct trace trace = parse("model_filename,model_type,n_prompt,n_gen,avg_ts\n"
                               "qwen3.8-27B:Q4_K_M,qwen35 27B Q4_K - Medium,512,0,100\n"
                               "/models/a:b.gguf,qwen35 27B Q8_0,512,0,100\n"
                               "no-model:Q8_0,qwen35 27B Q8_0,512,0,100\n"
                               "qwen3.8-27b:,qwen35 27B Q8_0,512,0,100\n");

    ck_assert_str_eq(trace.rows[0].model, "Qwen3.8-27B");
    ck_assert_str_eq(trace.rows[0].quant, "Q4_K_M");
    ck_assert_str_eq(trace.rows[1].model, "qwen35 27B");
    ck_assert_str_eq(trace.rows[2].model, "qwen35 27B");
    ck_assert_str_eq(trace.rows[3].model, "qwen35 27B");
    ck_assert_str_eq(trace.rows[3].quant, "Q8_0");
    trace_close(&trace);
}
END_TEST

START_TEST(a_model_type_is_a_model_and_a_mix)
{
    char text[300];
    struct trace trace;

    snprintf(text, sizeof text, CSV_HEAD "\"%s\",512,0,100\n", types[_i].type);
    trace = parse(text);
    ck_assert_str_eq(trace.rows[0].model, types[_i].model);
    ck_assert_str_eq(trace.rows[0].quant, types[_i].quant);
    trace_close(&trace);
}
END_TEST

START_TEST(ids_are_made_from_the_name_of_the_file)
{
    struct trace trace = parse(CSV_HEAD "a 7B F16,512,0,100\na 7B F16,0,128,10\n");

    ck_assert_str_eq(trace.rows[0].id, "box-01");
    ck_assert_str_eq(trace.rows[1].id, "box-02");
    trace_close(&trace);
}
END_TEST

START_TEST(an_engine_is_known_by_its_columns_or_its_name)
{
    struct trace plain = parse(CSV_HEAD "a 7B F16,1,0,1\n");
    struct trace fork = parse("model_type,n_prompt,avg_ts,kv_gpu_layers\na 7B F16,1,1,-1\n");
    struct trace named =
        parse("model_type,n_prompt,avg_ts,kv_gpu_layers,engine\na 7B F16,1,1,-1,llama.cpp\n");

    ck_assert_str_eq(plain.rows[0].engine, "llama.cpp");
    ck_assert_str_eq(fork.rows[0].engine, "llama.cpp-fork");
    ck_assert(!trace_row_has(&fork.rows[0], TRACE_FIELD_KV_GPU_LAYERS));
    ck_assert_str_eq(named.rows[0].engine, "llama.cpp");
    trace_close(&plain);
    trace_close(&fork);
    trace_close(&named);
}
END_TEST

START_TEST(parallel_sequences_are_slots)
{
    struct trace trace = parse("model_type,n_gen,avg_ts,n_parallel\na 7B F16,9,1,4\n");

    ck_assert_int_eq(trace.rows[0].n_slots, 4);
    trace_close(&trace);
}
END_TEST

START_TEST(line_ends_of_windows_and_joined_files_are_read)
{
    struct trace trace =
        parse("\xef\xbb\xbfmodel_type,n_prompt,avg_ts\r\n\"a 7B F16\",\"512\",\"1\"\r\n"
              "model_type,n_prompt,n_gen,avg_ts\r\na 7B F16,0,9,2\r\n");

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_double_eq(trace.rows[0].value.number, 1);
    ck_assert_int_eq(trace.rows[1].n_gen, 9);
    ck_assert_double_eq(trace.rows[1].value.number, 2);
    trace_close(&trace);
}
END_TEST

START_TEST(a_deviation_survives_another_encoding_of_its_sign)
{
    struct trace trace =
        parse("| model | test | t/s |\n|--|--|--|\n| a 7B F16 | tg8 | 5.5 \xb1 0.5 |\n"
              "| a 7B F16 | tg8 | 5.5 \xe2\x94\xac\xe2\x96\x92 0.5 |\n");

    ck_assert_uint_eq(trace.count, 2);
    ck_assert_double_eq(trace.rows[0].stddev, 0.5);
    ck_assert_double_eq(trace.rows[1].stddev, 0.5);
    trace_close(&trace);
}
END_TEST

/* --- refusals --- */

#define TABLE_HEAD "| model | test | t/s |\n|--|--|--|\n"
#define JSON_ROW(rest) "[\n{\"model_type\": \"a 7B F16\", \"n_prompt\": 512, " rest "}\n]"

/* A caret stands before the byte that is refused. */
static const struct {
    const char *marked, *said;
} refusals[] = {
    {"^| model | size |\n|--|--|\n", "no column \"t/s\"; a table of llama-bench begins with a line "
                                     "such as | model | ... | test | t/s |"},
    {"^| a | b |\n", "no column \"model\"; a table of llama-bench begins with a line such as "
                     "| model | ... | test | t/s |"},
    {TABLE_HEAD "^| a 7B F16 | pp512 |\n", "2 fields; 3 belong here, one for each column"},
    {TABLE_HEAD "| a 7B F16 | ^xx512 | 5 |\n",
     "test: \"xx512\" is not a test; one such as pp512, tg128 or pp512+tg128 @ d4096 is"},
    {TABLE_HEAD "| a 7B F16 | ^pp512+ | 5 |\n",
     "test: \"pp512+\" is not a test; one such as pp512, tg128 or pp512+tg128 @ d4096 is"},
    {TABLE_HEAD "| a 7B F16 | pp512 | ^fast |\n",
     "t/s: \"fast\" is not a speed; a number above 0 is"},
    {TABLE_HEAD "| a 7B F16 | pp512 | ^5.0 ± x |\n",
     "t/s: \"5.0 ± x\" is not a speed; one such as 52.07 ± 0.11 is"},
    {CSV_HEAD "^\"a 7B F16\",512,0\n", "3 fields; 4 belong here, one for each column"},
    {CSV_HEAD "a 7B F16,512,0,^\"1\n", "a text without its closing \""},
    {CSV_HEAD "\"a 7B F16\"^x,512,0,1\n", "a comma or the end of the line belongs here"},
    {CSV_HEAD "a 7B F16,^5e2,0,1\n", "n_prompt: \"5e2\" is not a whole number"},
    {CSV_HEAD "a 7B F16,512,^-1,1\n", "n_gen: -1 is not a number of tokens; 0 or more is"},
    {CSV_HEAD "a 7B F16,^0,0,1\n",
     "n_prompt: no token is read and none generated; a test does one or both"},
    {CSV_HEAD "a 7B F16,512,0,^0\n", "avg_ts: \"0\" is not a speed; a number above 0 is"},
    {CSV_HEAD "^a\xff 7B F16,512,0,1\n", "model_type: not UTF-8 text"},
    {"model_type,avg_ts\n^a 7B F16,5\n",
     "n_prompt: missing; a result has n_prompt and n_gen, or test"},
    {"n_prompt,avg_ts\n^512,5\n",
     "model_type: missing; every result has a model, such as \"llama 7B Q4_0\""},
    {"model_type,n_prompt,avg_ts,tensor_split\na 7B F16,512,5,^60-40\n",
     "tensor_split: \"60-40\" is no list of shares; one such as 60/40 is"},
    {"model_type,n_prompt,avg_ts,no_kv_offload\na 7B F16,512,5,^maybe\n",
     "no_kv_offload: \"maybe\" is no answer; 0, 1, true, false, on and off are"},
    {JSON_ROW("\"avg_ts\": ^\"fast\""), "[0].avg_ts: \"fast\" is not a speed; a number above 0 is"},
    {JSON_ROW("\"avg_ts\": ^[1]"), "[0].avg_ts: neither a text nor a number"},
    {"[\n^{\"build_commit\": \"x\", \"model_type\": \"a 7B F16\", \"n_prompt\": 512}]",
     "[0].avg_ts: missing; every result has a speed (avg_ts, or t/s in a table)"},
    {"[{\"avg_ts\": 1, \"n_prompt\": 5, \"model_type\": \"a 7B F16\"}, ^3]",
     "[1]: 3 is not an object"},
    {"INSERT INTO t (model_type, n_prompt, avg_ts) VALUES ^('a 7B F16', '512');\n",
     "2 fields; 3 belong here, one for each column"},
    {"INSERT INTO t (model_type, n_prompt, avg_ts) ^SELECT 1;\n", "VALUES belongs here"},
    {"INSERT INTO t (model_type, n_prompt, avg_ts) VALUES (^'a 7B F16, 512, 5);\n",
     "a text without its closing '"},
    {"CREATE TABLE t (a TEXT^", ") belongs here"},
};

START_TEST(output_that_cannot_be_read_is_refused_at_its_place)
{
    const char *marked = refusals[_i].marked;
    size_t place = strcspn(marked, "^");
    struct trace trace = {.count = 99};
    struct error err = {0};
    int line = 1, column = 1;
    char text[400];

    snprintf(text, sizeof text, "%.*s%s", (int)place, marked, marked + place + 1);
    for (size_t i = 0; i < place; i++) {
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
    }
    ck_assert_int_eq(trace_parse(text, strlen(text), "box.txt", &trace, &err), -1);
    ck_assert_str_eq(err.text, refusals[_i].said);
    ck_assert_str_eq(err.source, "box.txt");
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_int_eq(err.line, line);
    ck_assert_int_eq(err.column, column);
    ck_assert_uint_eq(trace.count, 99);
}
END_TEST

START_TEST(a_file_of_our_own_rows_is_never_taken_for_a_benchmark)
{
    static const char *const texts[] = {
        "{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"note\": \"avg_ts, build_commit\"}\n",
        "{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1, \"avg_ts\": 2}\n",
        ("{\"lopside_trace\": 1, \"about\": \"avg_ts, n\"}\n"
         "{\"id\": \"a\", \"metric\": \"tg\", \"value\": 1}\n"),
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct trace trace = parse(texts[i]);

        ck_assert_uint_eq(trace.count, 1);
        ck_assert_str_eq(trace.rows[0].id, "a");
        trace_close(&trace);
    }
}
END_TEST

#define ADD_LOOP(tests, test, table)                                                               \
    tcase_add_loop_test(tests, test, 0, (int)(sizeof table / sizeof table[0]))

int main(void)
{
    Suite *suite = suite_create("trace_bench");
    TCase *tests = tcase_create("trace_bench");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, a_table_tells_its_rows_by_the_names_of_its_columns);
    tcase_add_test(tests, the_lines_around_a_table_name_its_gpus_and_its_build);
    tcase_add_test(tests, tables_with_prose_progress_and_emphasis_are_read);
    tcase_add_test(tests, csv_of_an_old_release_is_read);
    tcase_add_test(tests, csv_of_a_new_release_is_read);
    tcase_add_test(tests, what_no_plan_of_ours_has_is_kept_beside_its_fields);
    tcase_add_test(tests, json_is_read_with_its_repetitions_and_lines);
    tcase_add_test(tests, lines_of_the_fork_stand_beside_rows_of_our_own);
    tcase_add_test(tests, sql_is_read_with_quoted_texts);
    tcase_add_test(tests, a_dump_of_a_database_names_its_columns_once);
    ADD_LOOP(tests, our_own_output_reads_back_in_every_format, own_formats);
    ADD_LOOP(tests, a_model_type_is_a_model_and_a_mix, types);
    tcase_add_test(tests, a_model_of_the_catalogue_goes_by_its_name);
    tcase_add_test(tests, ids_are_made_from_the_name_of_the_file);
    tcase_add_test(tests, an_engine_is_known_by_its_columns_or_its_name);
    tcase_add_test(tests, parallel_sequences_are_slots);
    tcase_add_test(tests, line_ends_of_windows_and_joined_files_are_read);
    tcase_add_test(tests, a_deviation_survives_another_encoding_of_its_sign);
    ADD_LOOP(tests, output_that_cannot_be_read_is_refused_at_its_place, refusals);
    tcase_add_test(tests, a_file_of_our_own_rows_is_never_taken_for_a_benchmark);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
