#include "cli/row_columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void state(struct row_cell *cell, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void state(struct row_cell *cell, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(cell->text, sizeof cell->text, format, arguments);
    va_end(arguments);
    cell->kind = ROW_CELL_STATED;
}

static bool is_bench(const struct trace_row *row)
{
    return strcmp(row->tool, "llama-bench") == 0;
}

static void state_text(struct row_cell *cell, const struct validate_row *row,
                       enum trace_field field, const char *text)
{
    cell->assumed = trace_row_is_assumed(row->row, field);
    if (text[0] == '\0')
        cell->kind = ROW_CELL_UNSTATED;
    else
        state(cell, "%s", text);
}

static void state_number(struct row_cell *cell, const struct validate_row *row,
                         enum trace_field field, int64_t number)
{
    cell->assumed = trace_row_is_assumed(row->row, field);
    if (!trace_row_has(row->row, field))
        cell->kind = ROW_CELL_UNSTATED;
    else
        state(cell, "%lld", (long long)number);
}

static void state_answer(struct row_cell *cell, const struct validate_row *row,
                         enum trace_field field, enum trace_answer answer, const char *yes,
                         const char *no)
{
    state_text(cell, row, field, answer == TRACE_YES ? yes : answer == TRACE_NO ? no : "");
}

/* ---- what ran ---- */

static void read_model(const struct validate_row *row, struct row_cell *cell)
{
    const struct trace_row *r = row->row;

    cell->assumed = r->quant[0] == '\0' || trace_row_is_assumed(r, TRACE_FIELD_MODEL) ||
                    trace_row_is_assumed(r, TRACE_FIELD_QUANT);
    if (r->model[0] == '\0')
        cell->kind = ROW_CELL_UNSTATED;
    else
        state(cell, "%s %s", r->model, r->quant[0] != '\0' ? r->quant : ROW_CASE_USUAL_QUANT);
}

static void read_machine(const struct validate_row *row, struct row_cell *cell)
{
    const struct trace_row *r = row->row;
    size_t at = 0;

    state_text(cell, row, TRACE_FIELD_MACHINE, r->machine);
    for (size_t i = 0; r->machine[0] == '\0' && i < r->gpu_count; i++) {
        cell->kind = ROW_CELL_STATED;
        if (at < sizeof cell->text)
            at += (size_t)snprintf(cell->text + at, sizeof cell->text - at, "%s%s",
                                   i > 0 ? " + " : "", r->gpus[i]);
    }
}

static void read_clocks(const struct validate_row *row, struct row_cell *cell)
{
    cell->assumed = trace_row_is_assumed(row->row, TRACE_FIELD_CLOCKS);
    if (row->row->clocks != TRACE_CLOCKS_UNKNOWN)
        state(cell, "%s", row->row->clocks == TRACE_CLOCKS_OC ? "overclocked" : "stock");
}

static void read_engine(const struct validate_row *row, struct row_cell *cell)
{
    state_text(cell, row, TRACE_FIELD_ENGINE, row->row->engine);
}

static void read_build(const struct validate_row *row, struct row_cell *cell)
{
    state_text(cell, row, TRACE_FIELD_BUILD, row->row->build);
}

static void read_tool(const struct validate_row *row, struct row_cell *cell)
{
    state_text(cell, row, TRACE_FIELD_TOOL, row->row->tool);
}

/* ---- how the model is spread ---- */

static void read_split_mode(const struct validate_row *row, struct row_cell *cell)
{
    static const char *const names[] = {
        [TRACE_SPLIT_UNKNOWN] = "", [TRACE_SPLIT_NONE] = "none",     [TRACE_SPLIT_LAYER] = "layer",
        [TRACE_SPLIT_ROW] = "row",  [TRACE_SPLIT_TENSOR] = "tensor",
    };

    state_text(cell, row, TRACE_FIELD_SPLIT_MODE, names[row->row->split_mode]);
}

static void state_split(struct row_cell *cell, const struct validate_row *row,
                        enum trace_field field, const struct trace_split *split)
{
    size_t at = 0;

    cell->assumed = trace_row_is_assumed(row->row, field);
    cell->kind = split->count > 0 ? ROW_CELL_STATED : ROW_CELL_UNSTATED;
    for (size_t d = 0; d < split->count && at < sizeof cell->text; d++)
        at += (size_t)snprintf(cell->text + at, sizeof cell->text - at, "%s%g", d > 0 ? "/" : "",
                               split->share[d]);
}

static void read_tensor_split(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->split_mode != TRACE_SPLIT_NONE)
        state_split(cell, row, TRACE_FIELD_TENSOR_SPLIT, &row->row->tensor_split);
}

static void read_attn_split(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->split_mode == TRACE_SPLIT_TENSOR)
        state_split(cell, row, TRACE_FIELD_ATTN_SPLIT, &row->row->attn_split);
}

static void read_output_head(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->split_mode == TRACE_SPLIT_TENSOR)
        state_text(cell, row, TRACE_FIELD_OUTPUT_HEAD, row->row->output_head);
}

static void read_gpu_layers(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->n_gpu_layers >= 0 && row->row->n_gpu_layers < 99)
        state_number(cell, row, TRACE_FIELD_N_GPU_LAYERS, row->row->n_gpu_layers);
}

/* ---- the cache ---- */

/* A row that says neither is read as having its cache on the device, and unpinned. */
static void read_cache(const struct validate_row *row, struct row_cell *cell)
{
    const struct trace_row *r = row->row;
    bool host = r->kv_on_host == TRACE_YES;

    cell->assumed = r->kv_on_host == TRACE_UNKNOWN || (host && r->kv_pinned == TRACE_UNKNOWN) ||
                    trace_row_is_assumed(r, TRACE_FIELD_KV_ON_HOST) ||
                    (host && trace_row_is_assumed(r, TRACE_FIELD_KV_PINNED));
    state(cell, "%s",
          !host                       ? "device"
          : r->kv_pinned == TRACE_YES ? "host, pinned"
                                      : "host, pageable");
}

static void read_cache_type(const struct validate_row *row, struct row_cell *cell)
{
    const struct trace_row *r = row->row;
    const char *k = r->type_k[0] != '\0' ? r->type_k : "f16";
    const char *v = r->type_v[0] != '\0' ? r->type_v : k;

    cell->assumed = r->type_k[0] == '\0' || r->type_v[0] == '\0' ||
                    trace_row_is_assumed(r, TRACE_FIELD_TYPE_K) ||
                    trace_row_is_assumed(r, TRACE_FIELD_TYPE_V);
    if (strcmp(k, v) == 0)
        state(cell, "%s", k);
    else
        state(cell, "%s/%s", k, v);
}

static void read_attention(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->kv_on_host == TRACE_YES && row->row->attn_on_host != TRACE_UNKNOWN)
        state_answer(cell, row, TRACE_FIELD_ATTN_ON_HOST, row->row->attn_on_host, "CPU", "GPU");
}

static void read_kv_gpu_layers(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->kv_on_host == TRACE_YES)
        state_number(cell, row, TRACE_FIELD_KV_GPU_LAYERS, row->row->kv_gpu_layers);
}

static void read_kv_policy(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->kv_on_host == TRACE_YES && row->row->kv_gpu_layers > 0)
        state_text(cell, row, TRACE_FIELD_KV_POLICY, row->row->kv_policy);
}

static void read_recurrent(const struct validate_row *row, struct row_cell *cell)
{
    if (row->row->kv_on_host == TRACE_YES)
        state_answer(cell, row, TRACE_FIELD_RECURRENT_ON_DEVICE, row->row->recurrent_on_device,
                     "device", "host");
}

static void read_kv_unified(const struct validate_row *row, struct row_cell *cell)
{
    state_answer(cell, row, TRACE_FIELD_KV_UNIFIED, row->row->kv_unified, "yes", "no");
}

/* ---- sizes ---- */

static void read_n_ctx(const struct validate_row *row, struct row_cell *cell)
{
    state_number(cell, row, TRACE_FIELD_N_CTX, row->row->n_ctx);
}

/* A row that states no batch was predicted with the engine's own. */
static void state_batch(struct row_cell *cell, const struct validate_row *row,
                        enum trace_field field, int64_t number, uint32_t usual)
{
    state_number(cell, row, field, number);
    if (cell->kind == ROW_CELL_UNSTATED) {
        state(cell, "%u", usual);
        cell->assumed = true;
    }
}

static void read_n_batch(const struct validate_row *row, struct row_cell *cell)
{
    state_batch(cell, row, TRACE_FIELD_N_BATCH, row->row->n_batch, plan_default().n_batch);
}

static void read_n_ubatch(const struct validate_row *row, struct row_cell *cell)
{
    state_batch(cell, row, TRACE_FIELD_N_UBATCH, row->row->n_ubatch, plan_default().n_ubatch);
}

static void read_n_threads(const struct validate_row *row, struct row_cell *cell)
{
    state_number(cell, row, TRACE_FIELD_N_THREADS, row->row->n_threads);
}

static void read_flash_attn(const struct validate_row *row, struct row_cell *cell)
{
    state_answer(cell, row, TRACE_FIELD_FLASH_ATTN, row->row->flash_attn, "on", "off");
}

static void read_n_prompt(const struct validate_row *row, struct row_cell *cell)
{
    if (!is_bench(row->row) || row->metric == ROW_PP || row->metric == ROW_PREFILL_MS)
        state_number(cell, row, TRACE_FIELD_N_PROMPT, row->row->n_prompt);
}

static void read_n_gen(const struct validate_row *row, struct row_cell *cell)
{
    if (row->metric == ROW_TG)
        state_number(cell, row, TRACE_FIELD_N_GEN, row->row->n_gen);
}

static void read_n_depth(const struct validate_row *row, struct row_cell *cell)
{
    if (is_bench(row->row) || row->row->n_depth > 0)
        state_number(cell, row, TRACE_FIELD_N_DEPTH, row->row->n_depth);
}

static void read_n_slots(const struct validate_row *row, struct row_cell *cell)
{
    state_number(cell, row, TRACE_FIELD_N_SLOTS, row->row->n_slots);
}

static void read_device(const struct validate_row *row, struct row_cell *cell)
{
    if (!row_metric_is_speed(row->metric) && row->metric != ROW_FITS)
        state_text(cell, row, TRACE_FIELD_DEVICE, row->row->device);
}

/* ---- choices without a field ---- */

/* How a plan or workload words its keys that are no fields; NULL: no bearing on speed. */
static const struct {
    const char *key, *heading;
} other_keys[] = {
    {"allreduce", "all-reduce"},
    {"allreduce_overlap", "all-reduce overlapped"},
    {"backend_sampling", "sampling on the GPU"},
    {"ffn_exp_rows_per_device", "expert rows per device"},
    {"graph_pipeline_parallel", "pipeline of graphs"},
    {"live_cells", "cells in use"},
    {"n_outputs_max", "outputs reserved"},
    {"prompt_shared", "prompt shared by the slots"},
    {"spec_draft", "draft model"},
    {"spec_draft_kv_gpu_layers", "resident layers of the draft"},
    {"spec_n_max", "tokens drafted"},
    {"variant", "variant"},
    {"corpus_tokens", NULL},
    {"fit", NULL},
    {"seed", NULL},
    {"temp", NULL},
    {"top_k", NULL},
};

static const struct trace_other_key *find_key(const struct trace_row *row, const char *key)
{
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        if (strcmp(row->other_plan_keys[i].key, key) == 0)
            return &row->other_plan_keys[i];
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        if (strcmp(row->other_workload_keys[i].key, key) == 0)
            return &row->other_workload_keys[i];
    return NULL;
}

static void read_other_key(const char *key, const struct trace_row *row, struct row_cell *cell)
{
    const struct trace_other_key *other = find_key(row, key);
    size_t length = other != NULL ? strlen(other->json) : 0;

    cell->kind = ROW_CELL_UNSTATED;
    if (other == NULL || strcmp(other->json, "null") == 0)
        return;
    if (length > 1 && other->json[0] == '"')
        state(cell, "%.*s", (int)length - 2, other->json + 1);
    else if (strcmp(other->json, "true") == 0 || strcmp(other->json, "false") == 0)
        state(cell, "%s", other->json[0] == 't' ? "yes" : "no");
    else
        state(cell, "%s", other->json);
}

/* Adds a column for a key that has none yet. */
static void add_key(struct row_column *columns, size_t *count, const char *key)
{
    const char *heading = key;

    for (size_t i = 0; i < *count; i++)
        if (columns[i].key != NULL && strcmp(columns[i].key, key) == 0)
            return;
    for (size_t i = 0; i < sizeof other_keys / sizeof *other_keys; i++)
        if (strcmp(other_keys[i].key, key) == 0)
            heading = other_keys[i].heading;
    if (heading == NULL)
        return;
    columns[*count] = (struct row_column){.unstated = "-", .key = key};
    snprintf(columns[*count].heading, sizeof columns[*count].heading, "%s", heading);
    (*count)++;
}

/* ---- columns ---- */

static const struct row_column fields[] = {
    {"machine", "-", read_machine, NULL},
    {"clocks", "-", read_clocks, NULL},
    {"engine", "-", read_engine, NULL},
    {"build", "-", read_build, NULL},
    {"tool", "-", read_tool, NULL},
    {"model", "-", read_model, NULL},
    {"split (-sm)", "-", read_split_mode, NULL},
    {"weights (-ts)", "-", read_tensor_split, NULL},
    {"heads (-as)", "as -ts", read_attn_split, NULL},
    {"output head", "-", read_output_head, NULL},
    {"layers (-ngl)", "all", read_gpu_layers, NULL},
    {"cache", "-", read_cache, NULL},
    {"attention on", "-", read_attention, NULL},
    {"cache type", "-", read_cache_type, NULL},
    {"resident layers (-kvgl)", "0", read_kv_gpu_layers, NULL},
    {"which layers", "-", read_kv_policy, NULL},
    {"recurrent state", "-", read_recurrent, NULL},
    {"one cache for all slots (-kvu)", "-", read_kv_unified, NULL},
    {"context (-c)", "-", read_n_ctx, NULL},
    {"batch (-b)", "-", read_n_batch, NULL},
    {"ubatch (-ub)", "-", read_n_ubatch, NULL},
    {"threads (-t)", "-", read_n_threads, NULL},
    {"flash attention (-fa)", "-", read_flash_attn, NULL},
    {"depth", "0", read_n_depth, NULL},
    {"prompt", "-", read_n_prompt, NULL},
    {"generated", "-", read_n_gen, NULL},
    {"slots", "1", read_n_slots, NULL},
    {"device", "-", read_device, NULL},
};

int row_columns_new(const struct validate_row *const rows[], size_t row_count,
                    struct row_column **columns, size_t *count, struct error *err)
{
    size_t most = sizeof fields / sizeof *fields;

    for (size_t i = 0; i < row_count; i++)
        most += rows[i]->row->other_plan_key_count + rows[i]->row->other_workload_key_count;
    *columns = calloc(most, sizeof **columns);
    if (*columns == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu columns", most);
    memcpy(*columns, fields, sizeof fields);
    *count = sizeof fields / sizeof *fields;
    for (size_t i = 0; i < row_count; i++) {
        for (size_t k = 0; k < rows[i]->row->other_plan_key_count; k++)
            add_key(*columns, count, rows[i]->row->other_plan_keys[k].key);
        for (size_t k = 0; k < rows[i]->row->other_workload_key_count; k++)
            add_key(*columns, count, rows[i]->row->other_workload_keys[k].key);
    }
    return 0;
}

void row_columns_read(const struct row_column *column, const struct validate_row *row,
                      struct row_cell *cell)
{
    *cell = (struct row_cell){.kind = ROW_CELL_APART};
    if (column->key != NULL)
        read_other_key(column->key, row->row, cell);
    else
        column->read(row, cell);
    if (cell->kind == ROW_CELL_UNSTATED)
        snprintf(cell->text, sizeof cell->text, "%s", column->unstated);
}
