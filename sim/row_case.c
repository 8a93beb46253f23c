#include "sim/row_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/context_shift.h"
#include "sim/draft.h"
#include "sim/feasibility.h"
#include "sim/machine_pace.h"
#include "sim/model_draft.h"
#include "sim/row_size.h"
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

static int read_what(const struct trace_row *row, struct row_case *c, char *reason, size_t size)
{
    if (c->metric == ROW_OTHER)
        return refuse(reason, size, "metric %s: %s", row->metric, row_metric_why_not(row->metric));
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
        {"all_reduce", "\"plain\"", PLAN_ALL_REDUCE_PLAIN},
        {"all_reduce", "\"chunked\"", PLAN_ALL_REDUCE_CHUNKED},
        {"all_reduce", "\"overlapped\"", PLAN_ALL_REDUCE_OVERLAPPED},
        {"all_reduce", "\"skipped\"", PLAN_ALL_REDUCE_SKIPPED},
        {"variant", "\"chunked tail, one-shot collective\"", PLAN_ALL_REDUCE_CHUNKED},
        {"variant", "\"chunked tail, split collective\"", PLAN_ALL_REDUCE_OVERLAPPED},
    };

    for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++) {
        if (strcmp(reduces[i].key, key) == 0 && strcmp(reduces[i].json, json) == 0) {
            plan->all_reduce = reduces[i].all_reduce;
            return 0;
        }
    }
    if (strcmp(key, "split_mode") == 0 && strcmp(json, "\"tensor minus layer\"") == 0) {
        c->minus = ROW_MINUS_LAYER_SPLIT;
        return 0;
    }
    if (strcmp(key, "n_outputs_max") == 0)
        return 0; /* read_workload() knows which tools keep all logits */
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
    if (strcmp(key, "kv_delivery_depth") == 0)
        return sscanf(json, "%u", &plan->delivery_depth) == 1 &&
                       plan->delivery_depth <= PLAN_DELIVERY_DEPTH_MAX
                   ? 0
                   : -1;
    if (strcmp(key, "pace_devices") == 0)
        return sscanf(json, "\"%63[0-9./]\"", c->pace_devices) == 1 ? 0 : -1;
    if (strcmp(key, "pace_links") == 0)
        return sscanf(json, "\"%63[0-9./]\"", c->pace_links) == 1 ? 0 : -1;
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
                     : strncmp(row->engine, "lopside", 7) == 0       ? PLAN_SCHEDULE_LOPSIDE
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
    if (strcmp(row->output_head, "mirrored minus split") == 0)
        c->minus = ROW_MINUS_SPLIT_HEAD;
    else if (strcmp(row->output_head, "") != 0)
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

/* A workload key that only some rows have; 0 without it. */
static uint32_t workload_number(const struct trace_row *row, const char *key)
{
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        if (strcmp(row->other_workload_keys[i].key, key) == 0)
            return (uint32_t)strtoul(row->other_workload_keys[i].json, NULL, 10);
    return 0;
}

/* Decode starts at the depth in llama-bench, behind the prompt everywhere else. */
static int read_workload(const struct trace_row *row, struct row_case *c, char *reason, size_t size)
{
    bool bench = strcmp(row->tool, "llama-bench") == 0;
    uint32_t prompt = number_or(row, TRACE_FIELD_N_PROMPT, row->n_prompt, 0);
    uint32_t gen = number_or(row, TRACE_FIELD_N_GEN, row->n_gen, 0);
    uint32_t depth = number_or(row, TRACE_FIELD_N_DEPTH, row->n_depth, 0);

    if ((c->metric == ROW_PP || c->metric == ROW_PREFILL_MS || c->metric == ROW_ALL_REDUCE_MS) &&
        prompt == 0)
        return refuse(reason, size, "no prompt length stated");
    c->live_cells = workload_number(row, "live_cells");
    if (c->metric == ROW_SHIFT_MS && c->live_cells == 0)
        return refuse(reason, size, "no number of live cells stated");
    if (row_metric_is_generation(c->metric) && gen == 0)
        gen = 128;
    if (c->live_cells > 0)
        depth = c->live_cells;
    c->tool = bench ? PREDICT_LLAMA_BENCH : PREDICT_LLAMA_COMPLETION;
    c->n_prompt = prompt;
    c->n_gen = gen;
    c->n_depth = row_metric_is_generation(c->metric) && !bench ? depth + prompt : depth;
    c->plan.n_slots = number_or(row, TRACE_FIELD_N_SLOTS, row->n_slots, 1);
    c->plan.kv_unified = row->kv_unified != TRACE_NO;
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        if (strcmp(row->other_workload_keys[i].key, "prompt_shared") == 0)
            c->shared_prompt = strcmp(row->other_workload_keys[i].json, "true") == 0;
    c->draft_max = workload_number(row, "spec_n_max");
    c->context_needed = bench              ? predict_context(&c->plan, prompt, gen, depth)
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
    c->shift_whole_cache =
        c->plan.schedule == PLAN_SCHEDULE_LLAMA_CPP || strstr(row->engine, "before fix") != NULL;
    return 0;
}

int row_case_read(const struct trace_row *row, struct row_case *c, char *reason, size_t reason_size)
{
    *c = (struct row_case){.row = row, .metric = row_metric_find(row->metric), .device = -1};
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

static struct machine *open_machine(const struct row_case *c, struct error *err)
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

int row_case_pace(const struct row_case *c, struct machine *machine, struct error *err)
{
    struct machine_pace pace;

    if (machine_pace_read(&pace, c->pace_devices[0] != '\0' ? c->pace_devices : NULL,
                          c->pace_links[0] != '\0' ? c->pace_links : NULL, err) != 0)
        return -1;
    machine_apply_pace(machine, &pace);
    return 0;
}

struct machine *row_case_machine(const struct row_case *c, struct error *err)
{
    struct machine *machine = open_machine(c, err);

    if (machine != NULL && row_case_pace(c, machine, err) != 0) {
        machine_free(machine);
        return NULL;
    }
    return machine;
}

/* ---- predicting ---- */

static int predict_drafted(const struct row_case *c, struct timing *timing,
                           const struct placement *placement, struct predict_options options,
                           struct row_value *value, struct error *err)
{
    struct draft draft;
    struct placement *placed;
    int status = -1;

    if (draft_open(&draft, c->draft_name, placement->model, err) != 0)
        return -1;
    placed = draft_place(&draft, placement, err);
    if (placed != NULL) {
        struct speculation speculation = {.kind = draft.kind,
                                          .draft = placed,
                                          .n_max = c->draft_max,
                                          .acceptance = SPECULATION_USUAL_ACCEPTANCE};

        status = speculation_predict(timing, placement, &speculation, c->n_depth, c->n_gen, options,
                                     &value->prediction, err);
    }
    placement_free(placed);
    draft_close(&draft);
    return status;
}

/* Parts of a layer that end in an all-reduce, for a prompt in full batches. */
static double boundaries(const struct row_case *c, const struct model *model)
{
    double parts = 0;

    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        parts += 2 + (model->layers[layer].n_ff > 0 && model->layers[layer].n_expert > 0);
    return parts * c->n_prompt / c->plan.n_batch;
}

/* In the unit of the metric. Of times of a step: it yields a token of each slot. */
static double metric_value(const struct row_case *c, const struct prediction *prediction,
                           const struct model *model)
{
    double ms = prediction->time_s * 1e3;

    switch (c->metric) {
    case ROW_PREFILL_MS:
        return ms;
    case ROW_ALL_REDUCE_MS:
        return ms / boundaries(c, model);
    case ROW_TOKEN_MS:
        return ms / prediction->tokens;
    case ROW_DELIVERY_MS:
        return ms / c->n_gen;
    default:
        return prediction->tokens_per_s;
    }
}

static int predict_speed(const struct row_case *c, const struct placement *placement,
                         struct row_value *value, struct error *err)
{
    struct timing *timing = timing_new(placement, err);
    struct predict_options options = {.tool = c->tool, .shared_prompt = c->shared_prompt};
    int status;

    if (timing == NULL)
        return -1;
    if (c->metric == ROW_SHIFT_MS) {
        status = context_shift_cost(timing, placement, c->live_cells, c->shift_whole_cache,
                                    &value->value, err);
        value->value *= 1e3;
        timing_free(timing);
        return status;
    }
    if (!row_metric_is_generation(c->metric))
        status = predict_prompt(timing, placement, c->n_depth, c->n_prompt, options,
                                &value->prediction, err);
    else if (c->draft_max > 0 && c->draft_name[0] != '\0')
        status = predict_drafted(c, timing, placement, options, value, err);
    else
        status = predict_generation(timing, placement, c->n_depth, c->n_gen, options,
                                    &value->prediction, err);
    value->value = metric_value(c, &value->prediction, placement->model);
    timing_free(timing);
    return status;
}

static int predict_plan(const struct row_case *c, const struct model *model,
                        const struct machine *machine, const struct plan *plan, double *ms,
                        struct error *err)
{
    struct placement *placement = placement_new(model, machine, plan, c->context_needed, err);
    struct row_value value = {0};
    int status;

    if (placement == NULL)
        return -1;
    status = predict_speed(c, placement, &value, err);
    placement_free(placement);
    *ms = value.value;
    return status;
}

/* A cache on the host against one on the device, or all-reduces against none. */
static int predict_difference(const struct row_case *c, const struct model *model,
                              const struct machine *machine, double *value, struct error *err)
{
    struct plan more = c->plan, less = c->plan;
    double more_ms, less_ms;

    if (c->metric == ROW_DELIVERY_MS) {
        more.kv_on_host = true;
        more.kv_pinned = c->row->kv_pinned == TRACE_YES;
        less.kv_on_host = less.kv_pinned = false;
    } else {
        if (c->plan.split != PLAN_SPLIT_TENSOR)
            return error_set(err, ERROR_USAGE, "the plan has no all-reduce");
        less.all_reduce = PLAN_ALL_REDUCE_SKIPPED;
    }
    if (predict_plan(c, model, machine, &more, &more_ms, err) != 0 ||
        predict_plan(c, model, machine, &less, &less_ms, err) != 0)
        return -1;
    *value = more_ms - less_ms;
    return 0;
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
    if (c->metric == ROW_DELIVERY_MS || c->metric == ROW_ALL_REDUCE_MS)
        status = predict_difference(c, model, machine, &value->value, err);
    else if (row_metric_is_speed(c->metric))
        status = predict_speed(c, placement, value, err);
    else if (c->metric == ROW_VRAM || c->metric == ROW_FITS)
        status = predict_memory(c, machine, value, err);
    else
        status = row_size_predict(c, model, machine, &value->value, err);
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
    append(&out, "%s|%u|%s|%s|", c->draft_name, c->draft_max, c->pace_devices, c->pace_links);
    append(&out, "%u|%d|%d|%d|%d|%d|", c->plan.n_slots, c->plan.kv_unified, c->shared_prompt,
           c->plan.all_reduce, c->plan.backend_sampling, c->plan.output_mirrored);
    append(&out, "%u|%d|", c->plan.delivery_depth, c->plan.attn_on_host);
    append(&out, "%d|%d|%u|%u|%d|%d|%u|%u|%u|", c->plan.type_k, c->plan.type_v, c->plan.n_batch,
           c->plan.n_ubatch, placement->recurrent_on_device, c->plan.kv_pinned,
           row_metric_is_generation(c->metric) ? 0 : c->n_prompt,
           row_metric_is_generation(c->metric) ? c->n_gen : 0, c->n_depth);
    if (!row_metric_is_speed(c->metric) || c->metric == ROW_SHIFT_MS)
        append(&out, "%u|%d|%d|", placement->n_ctx, c->minus, c->plan.all_logits);
    if (c->metric == ROW_SHIFT_MS)
        append(&out, "%u|%d|", c->live_cells, c->shift_whole_cache);
    append_placement(&out, placement);
    placement_free(placement);
    return out.is_cut
               ? error_set(err, ERROR_UNSUPPORTED, "a configuration of more than %zu bytes", size)
               : 0;
}
