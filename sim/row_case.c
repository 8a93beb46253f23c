#include "sim/row_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feasibility.h"
#include "sim/model_draft.h"
#include "sim/speculation.h"

static int refuse(char *reason, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(char *reason, size_t size, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, size, format, arguments);
    va_end(arguments);
    return 1;
}

/* ---- reading ---- */

bool row_metric_is_speed(enum row_metric metric)
{
    return metric == ROW_PP || metric == ROW_TG || metric == ROW_PREFILL_MS;
}

static enum row_metric metric_of(const struct trace_row *row)
{
    static const struct {
        const char *name;
        enum row_metric metric;
    } metrics[] = {{"pp", ROW_PP},         {"tg", ROW_TG},     {"prefill_ms", ROW_PREFILL_MS},
                   {"vram_mib", ROW_VRAM}, {"fits", ROW_FITS}, {"status", ROW_STATUS}};

    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(metrics[i].name, row->metric) == 0)
            return metrics[i].metric;
    return ROW_OTHER;
}

static int read_what(const struct trace_row *row, struct row_case *c, char *reason, size_t size)
{
    if (c->metric == ROW_OTHER)
        return refuse(reason, size, "metric %s is not predicted", row->metric);
    if (row->model[0] == '\0')
        return refuse(reason, size, "no model stated");
    if (row->machine[0] == '\0' && row->gpu_count == 0)
        return refuse(reason, size, "no machine stated");
    if (row->skip[0] != '\0')
        return refuse(reason, size, "%s", row->skip);
    if (row->split_mode == TRACE_SPLIT_ROW)
        return refuse(reason, size, "a row split is not modelled");
    return 0;
}

static int read_machine(const struct trace_row *row, struct row_case *c)
{
    c->composed = row->machine[0] == '\0';
    if (c->composed) {
        snprintf(c->machine_name, sizeof c->machine_name, "%s", row->gpus[0]);
    } else {
        snprintf(c->machine_name, sizeof c->machine_name, "%s", row->machine);
        if (row->clocks == TRACE_CLOCKS_OC)
            snprintf(c->variant, sizeof c->variant, "oc");
    }
    return 0;
}

static void read_split(float *shares, uint32_t *count, const struct trace_split *split)
{
    *count = (uint32_t)split->count;
    for (size_t d = 0; d < split->count; d++)
        shares[d] = (float)split->share[d];
}

static uint32_t number_or(const struct trace_row *row, enum trace_field field, int64_t value,
                          uint32_t otherwise)
{
    return trace_row_has(row, field) && value >= 0 && value < INT32_MAX ? (uint32_t)value
                                                                        : otherwise;
}

static int read_cache(const struct trace_row *row, struct plan *plan, char *reason, size_t size)
{
    static const enum plan_kv_policy policies[] = {PLAN_KV_LAYER_ORDER, PLAN_KV_ROUND_ROBIN,
                                                   PLAN_KV_SLOWEST_FIRST};
    int type_k = row->type_k[0] != '\0' ? tensor_type_find(row->type_k) : TENSOR_TYPE_F16;
    int type_v = row->type_v[0] != '\0' ? tensor_type_find(row->type_v) : type_k;

    if (type_k < 0 || type_v < 0)
        return refuse(reason, size, "unknown cache type %s",
                      type_k < 0 ? row->type_k : row->type_v);
    plan->type_k = (enum tensor_type)type_k;
    plan->type_v = (enum tensor_type)type_v;
    plan->kv_on_host = row->kv_on_host == TRACE_YES;
    plan->kv_pinned = plan->kv_on_host && row->kv_pinned == TRACE_YES;
    plan->recurrent_on_device = row->recurrent_on_device == TRACE_YES;
    if (trace_row_has(row, TRACE_FIELD_KV_GPU_LAYERS))
        plan->kv_gpu_layers = (int32_t)row->kv_gpu_layers;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (strcmp(plan_kv_policy_name(policies[i]), row->kv_policy) == 0)
            plan->kv_policy = policies[i];
    return 0;
}

/* "DFlash2 sidecar": the drafter of that kind for the row's model. */
static int read_draft(const char *json, struct row_case *c)
{
    char kind[32];
    const char *name;

    if (sscanf(json, "\"%31[A-Za-z0-9]", kind) != 1)
        return -1;
    name = model_draft_find(c->row->model, kind);
    if (name == NULL)
        return -1;
    snprintf(c->draft_name, sizeof c->draft_name, "%s", name);
    return 0;
}

/* Keys of a plan that only some rows have, and what their values mean. */
static int read_other_key(const char *key, const char *json, struct row_case *c)
{
    struct plan *plan = &c->plan;
    static const struct {
        const char *key, *json;
        enum plan_all_reduce all_reduce;
    } reduces[] = {
        {"allreduce", "\"skipped\"", PLAN_ALL_REDUCE_SKIPPED},
        {"allreduce_overlap", "false", PLAN_ALL_REDUCE_PLAIN},
        {"allreduce_overlap", "true", PLAN_ALL_REDUCE_OVERLAPPED},
        {"variant", "\"baseline\"", PLAN_ALL_REDUCE_PLAIN},
        {"variant", "\"chunked tail, one-shot collective\"", PLAN_ALL_REDUCE_CHUNKED},
        {"variant", "\"chunked tail, split collective\"", PLAN_ALL_REDUCE_OVERLAPPED},
    };

    for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++) {
        if (strcmp(reduces[i].key, key) == 0 && strcmp(reduces[i].json, json) == 0) {
            plan->all_reduce = reduces[i].all_reduce;
            return 0;
        }
    }
    if (strcmp(key, "graph_pipeline_parallel") == 0) {
        plan->pipeline = strcmp(json, "true") == 0 ? PLAN_ON : PLAN_OFF;
        return 0;
    }
    if (strcmp(key, "spec_draft") == 0)
        return read_draft(json, c);
    if (strcmp(key, "spec_draft_kv_gpu_layers") == 0)
        return 0; /* the drafter's small cache stays on the devices either way */
    if (strcmp(key, "backend_sampling") == 0) {
        plan->backend_sampling = strcmp(json, "true") == 0;
        return 0;
    }
    if (strcmp(key, "ffn_exp_rows_per_device") == 0) {
        plan->ff_exp_rows_count = 2;
        return sscanf(json, "[%u, %u]", &plan->ff_exp_rows[0], &plan->ff_exp_rows[1]) == 2 ||
                       sscanf(json, "[%u,%u]", &plan->ff_exp_rows[0], &plan->ff_exp_rows[1]) == 2
                   ? 0
                   : -1;
    }
    return strcmp(key, "fit") == 0 || strcmp(json, "null") == 0 ? 0 : -1;
}

static int read_plan(const struct trace_row *row, struct row_case *c, char *reason, size_t size)
{
    static const enum plan_split splits[] = {
        [TRACE_SPLIT_UNKNOWN] = PLAN_SPLIT_LAYER, [TRACE_SPLIT_NONE] = PLAN_SPLIT_NONE,
        [TRACE_SPLIT_LAYER] = PLAN_SPLIT_LAYER,   [TRACE_SPLIT_TENSOR] = PLAN_SPLIT_TENSOR,
        [TRACE_SPLIT_ROW] = PLAN_SPLIT_LAYER,
    };
    struct plan *plan = &c->plan;

    *plan = plan_default();
    plan->schedule = strncmp(row->engine, "llama.cpp-fork", 14) == 0 ? PLAN_SCHEDULE_LLAMA_CPP_FORK
                                                                     : PLAN_SCHEDULE_LLAMA_CPP;
    /* Where the fork branched off, it still had the rules of llama.cpp. */
    if (c->metric == ROW_STATUS && strstr(row->engine, " base ") != NULL)
        plan->schedule = PLAN_SCHEDULE_LLAMA_CPP;
    plan->split = splits[row->split_mode];
    read_split(plan->tensor_split, &plan->tensor_split_count, &row->tensor_split);
    read_split(plan->attn_split, &plan->attn_split_count, &row->attn_split);
    plan->n_ctx = number_or(row, TRACE_FIELD_N_CTX, row->n_ctx, 0);
    plan->n_batch = number_or(row, TRACE_FIELD_N_BATCH, row->n_batch, plan->n_batch);
    plan->n_ubatch = number_or(row, TRACE_FIELD_N_UBATCH, row->n_ubatch, plan->n_ubatch);
    if (strcmp(row->output_head, "") != 0)
        plan->output_mirrored = strcmp(row->output_head, "mirrored") == 0 ? PLAN_ON : PLAN_OFF;
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        if (read_other_key(row->other_plan_keys[i].key, row->other_plan_keys[i].json, c) != 0)
            return refuse(reason, size, "plan.%s %s is not modelled", row->other_plan_keys[i].key,
                          row->other_plan_keys[i].json);
    plan->n_gpu_layers = -1;
    if (trace_row_has(row, TRACE_FIELD_N_GPU_LAYERS))
        plan->n_gpu_layers = (int32_t)row->n_gpu_layers;
    return read_cache(row, plan, reason, size);
}

/* Decode starts at the depth in llama-bench, behind the prompt everywhere else. */
static int read_workload(const struct trace_row *row, struct row_case *c, char *reason, size_t size)
{
    bool bench = strcmp(row->tool, "llama-bench") == 0;
    uint32_t prompt = number_or(row, TRACE_FIELD_N_PROMPT, row->n_prompt, 0);
    uint32_t gen = number_or(row, TRACE_FIELD_N_GEN, row->n_gen, 0);
    uint32_t depth = number_or(row, TRACE_FIELD_N_DEPTH, row->n_depth, 0);

    if ((c->metric == ROW_PP || c->metric == ROW_PREFILL_MS) && prompt == 0)
        return refuse(reason, size, "no prompt length stated");
    if (c->metric == ROW_TG && gen == 0)
        gen = 128;
    c->tool = bench ? PREDICT_LLAMA_BENCH : PREDICT_LLAMA_COMPLETION;
    c->n_prompt = prompt;
    c->n_gen = gen;
    c->n_depth = c->metric == ROW_TG && !bench ? depth + prompt : depth;
    c->plan.n_slots = number_or(row, TRACE_FIELD_N_SLOTS, row->n_slots, 1);
    c->plan.kv_unified = row->kv_unified != TRACE_NO;
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        if (strcmp(row->other_workload_keys[i].key, "prompt_shared") == 0)
            c->shared_prompt = strcmp(row->other_workload_keys[i].json, "true") == 0;
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        if (strcmp(row->other_workload_keys[i].key, "spec_n_max") == 0)
            c->draft_max = (uint32_t)strtoul(row->other_workload_keys[i].json, NULL, 10);
    c->context_needed = bench              ? depth + (prompt > gen ? prompt : gen)
                        : c->shared_prompt ? depth + prompt + c->plan.n_slots * gen
                                           : c->plan.n_slots * (depth + prompt + gen);
    /* A prompt longer than -c cannot have been: the prompt is believed. */
    if (c->plan.n_ctx > 0 && c->plan.n_ctx < c->context_needed)
        c->plan.n_ctx = 0;
    /* Buffers are reserved for logits of every token unless a tool asks for less; of
     * llama-bench, the fork's does since one of its fixes. */
    c->plan.all_logits = strcmp(row->tool, "llama-server") != 0 &&
                         (!bench || c->plan.schedule == PLAN_SCHEDULE_LLAMA_CPP ||
                          strstr(row->engine, "before fix") != NULL);
    return 0;
}

int row_case_read(const struct trace_row *row, struct row_case *c, char *reason, size_t reason_size)
{
    *c = (struct row_case){.row = row, .metric = metric_of(row), .device = -1};
    if (read_what(row, c, reason, reason_size) != 0 || read_machine(row, c) != 0 ||
        read_plan(row, c, reason, reason_size) != 0 ||
        read_workload(row, c, reason, reason_size) != 0)
        return 1;
    snprintf(c->model_spec, sizeof c->model_spec, "%s:%s", row->model,
             row->quant[0] != '\0' ? row->quant : ROW_CASE_USUAL_QUANT);
    if (c->metric == ROW_VRAM && row->device[0] == '\0')
        return refuse(reason, reason_size, "no device stated");
    return 0;
}

int row_case_read_status(const struct trace_row *row, double *status)
{
    const char *text = row->value.text;

    if (row->value.kind != TRACE_VALUE_TEXT)
        return 1;
    *status = strcmp(text, "wrong") == 0 ? 1 : 2;
    if (strncmp(text, "abort", 5) == 0)
        *status = 0;
    return *status < 2 || strcmp(text, "fixed") == 0 || strcmp(text, "worked") == 0 ? 0 : 1;
}

struct machine *row_case_machine(const struct row_case *c, struct error *err)
{
    char specs[TRACE_DEVICE_LIMIT][96];
    const char *pointers[TRACE_DEVICE_LIMIT];

    if (!c->composed)
        return machine_open(c->machine_name, c->variant[0] != '\0' ? c->variant : NULL, err);
    for (size_t i = 0; i < c->row->gpu_count; i++) {
        const char *link = i < c->row->link_count ? c->row->links[i] : "";

        snprintf(specs[i], sizeof specs[i], "%s%s%s", c->row->gpus[i], link[0] != '\0' ? "@" : "",
                 link);
        pointers[i] = specs[i];
    }
    return machine_compose(pointers, c->row->gpu_count, err);
}

/* ---- predicting ---- */

/* A drafter lies on the target's devices, layer by layer, with its cache. */
static int predict_drafted(const struct row_case *c, struct timing *timing,
                           const struct placement *placement, struct predict_options options,
                           struct row_value *value, struct error *err)
{
    struct plan plan = plan_default();
    struct speculation speculation = {.n_max = c->draft_max,
                                      .acceptance = SPECULATION_USUAL_ACCEPTANCE};
    struct model *model = NULL;
    struct placement *draft = NULL;
    int status = -1;

    plan.split = placement->plan.split == PLAN_SPLIT_NONE ? PLAN_SPLIT_NONE : PLAN_SPLIT_LAYER;
    plan.main_gpu = placement->plan.main_gpu;
    model = model_draft_from_catalogue(c->draft_name, placement->model, err);
    if (model != NULL)
        draft = placement_new(model, placement->machine, &plan, c->context_needed, err);
    if (draft != NULL) {
        speculation.draft = draft;
        status = speculation_predict(timing, placement, &speculation, c->n_depth, c->n_gen, options,
                                     &value->prediction, err);
    }
    placement_free(draft);
    model_free(model);
    return status;
}

static int predict_speed(const struct row_case *c, const struct placement *placement,
                         struct row_value *value, struct error *err)
{
    struct timing *timing = timing_new(placement, err);
    struct predict_options options = {.tool = c->tool, .shared_prompt = c->shared_prompt};
    int status;

    if (timing == NULL)
        return -1;
    if (c->metric != ROW_TG)
        status = predict_prompt(timing, placement, c->n_depth, c->n_prompt, options,
                                &value->prediction, err);
    else if (c->draft_max > 0 && c->draft_name[0] != '\0')
        status = predict_drafted(c, timing, placement, options, value, err);
    else
        status = predict_generation(timing, placement, c->n_depth, c->n_gen, options,
                                    &value->prediction, err);
    value->value = c->metric == ROW_PREFILL_MS ? value->prediction.time_s * 1e3
                                               : value->prediction.tokens_per_s;
    timing_free(timing);
    return status;
}

static int predict_memory(const struct row_case *c, const struct machine *machine,
                          struct row_value *value, struct error *err)
{
    int device = machine_find_device(machine, c->row->device);

    if (c->metric == ROW_FITS) {
        value->value = value->fits;
        return 0;
    }
    if (device < 0)
        return error_set(err, ERROR_USAGE, "%s is not a device of %s", c->row->device,
                         machine->name);
    value->value = (double)value->memory.devices[device].total / (1 << 20);
    return 0;
}

/* What an engine refuses, it does not run either. */
static void predict_status(const struct row_case *c, const struct model *model,
                           const struct machine *machine, struct row_value *value)
{
    enum feasibility_verdict verdict =
        feasibility_verdict(feasibility_check(model, machine, &c->plan));

    value->fits = true;
    value->value = verdict == FEASIBILITY_WORKS ? 2 : verdict == FEASIBILITY_WRONG ? 1 : 0;
}

int row_case_predict(const struct row_case *c, const struct model *model,
                     const struct machine *machine, struct row_value *value, struct error *err)
{
    struct placement *placement;
    int status;

    if (c->metric == ROW_STATUS) {
        predict_status(c, model, machine, value);
        return 0;
    }
    placement = placement_new(model, machine, &c->plan, c->context_needed, err);
    if (placement == NULL)
        return -1;
    memory_count(placement, &value->memory);
    value->fits = value->memory.fits;
    if (row_metric_is_speed(c->metric))
        status = predict_speed(c, placement, value, err);
    else
        status = predict_memory(c, machine, value, err);
    placement_free(placement);
    return status;
}

/* ---- comparing configurations ---- */

struct text {
    char *at;
    size_t left;
    bool is_cut;
};

static void append(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= text->left) {
        text->is_cut = true;
        return;
    }
    text->at += length;
    text->left -= (size_t)length;
}

static void append_placement(struct text *text, const struct placement *placement)
{
    for (uint32_t layer = 0; layer < placement->layer_count; layer++) {
        const struct share_slices *slices = &placement->slices[layer];

        append(text, " %d.%x", placement->owner[layer], placement->kv_resident[layer]);
        for (uint32_t d = 0; d < placement->device_count; d++)
            append(text, ".%u,%u,%llx", slices->kv_heads[d], slices->gdn_k_heads[d],
                   (unsigned long long)(slices->n_ff[d] + slices->n_ff_exp[d]));
    }
}

int row_case_key(const struct row_case *c, const struct model *model, const struct machine *machine,
                 char *text, size_t size, struct error *err)
{
    struct placement *placement = placement_new(model, machine, &c->plan, c->context_needed, err);
    struct text out = {.at = text, .left = size};

    if (placement == NULL)
        return -1;
    append(&out, "%s|%s|%s|%s|%s|%d|%d|%d|", c->machine_name, c->variant, c->model_spec,
           c->row->metric, c->row->device, c->plan.schedule, c->plan.split, placement->pipeline);
    append(&out, "%s|%u|", c->draft_name, c->draft_max);
    append(&out, "%u|%d|%d|%d|%d|%d|", c->plan.n_slots, c->plan.kv_unified, c->shared_prompt,
           c->plan.all_reduce, c->plan.backend_sampling, c->plan.output_mirrored);
    append(&out, "%d|%d|%u|%u|%d|%d|%u|%u|%u|", c->plan.type_k, c->plan.type_v, c->plan.n_batch,
           c->plan.n_ubatch, placement->recurrent_on_device, c->plan.kv_pinned,
           c->metric == ROW_TG ? 0 : c->n_prompt, c->metric == ROW_TG ? c->n_gen : 0, c->n_depth);
    if (c->metric == ROW_VRAM || c->metric == ROW_FITS)
        append(&out, "%u|", placement->n_ctx);
    append_placement(&out, placement);
    placement_free(placement);
    return out.is_cut
               ? error_set(err, ERROR_UNSUPPORTED, "a configuration of more than %zu bytes", size)
               : 0;
}
