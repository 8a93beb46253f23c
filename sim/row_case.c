#include "sim/row_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static enum row_metric metric_of(const struct trace_row *row)
{
    static const struct {
        const char *name;
        enum row_metric metric;
    } metrics[] = {{"pp", ROW_PP}, {"tg", ROW_TG}, {"vram_mib", ROW_VRAM}, {"fits", ROW_FITS}};

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
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        if (strcmp(row->other_plan_keys[i].key, "fit") != 0 &&
            strcmp(row->other_plan_keys[i].json, "null") != 0)
            return refuse(reason, size, "plan.%s is not modelled", row->other_plan_keys[i].key);
    if (trace_row_has(row, TRACE_FIELD_N_SLOTS) && row->n_slots > 1)
        return refuse(reason, size, "several slots are not modelled");
    if (row->split_mode == TRACE_SPLIT_ROW)
        return refuse(reason, size, "a row split is not modelled");
    if (strcmp(row->output_head, "mirrored") == 0)
        return refuse(reason, size, "a mirrored output head is not modelled");
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
    plan->split = splits[row->split_mode];
    read_split(plan->tensor_split, &plan->tensor_split_count, &row->tensor_split);
    read_split(plan->attn_split, &plan->attn_split_count, &row->attn_split);
    plan->n_ctx = number_or(row, TRACE_FIELD_N_CTX, row->n_ctx, 0);
    plan->n_batch = number_or(row, TRACE_FIELD_N_BATCH, row->n_batch, plan->n_batch);
    plan->n_ubatch = number_or(row, TRACE_FIELD_N_UBATCH, row->n_ubatch, plan->n_ubatch);
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

    if (c->metric == ROW_PP && prompt == 0)
        return refuse(reason, size, "no prompt length stated");
    if (c->metric == ROW_TG && gen == 0)
        gen = 128;
    c->tool = bench ? PREDICT_LLAMA_BENCH : PREDICT_LLAMA_COMPLETION;
    c->n_prompt = prompt;
    c->n_gen = gen;
    c->n_depth = c->metric == ROW_TG && !bench ? depth + prompt : depth;
    c->context_needed = bench ? depth + (prompt > gen ? prompt : gen) : depth + prompt + gen;
    if (c->plan.n_ctx > 0 && c->plan.n_ctx < c->context_needed)
        return refuse(reason, size, "the prompt and -c contradict each other");
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

static int predict_speed(const struct row_case *c, const struct placement *placement,
                         struct row_value *value, struct error *err)
{
    struct timing *timing = timing_new(placement, err);
    struct predict_options options = {.tool = c->tool};
    int status;

    if (timing == NULL)
        return -1;
    if (c->metric == ROW_PP)
        status = predict_prompt(timing, placement, c->n_depth, c->n_prompt, options,
                                &value->prediction, err);
    else
        status = predict_generation(timing, placement, c->n_depth, c->n_gen, options,
                                    &value->prediction, err);
    value->value = value->prediction.tokens_per_s;
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

int row_case_predict(const struct row_case *c, const struct model *model,
                     const struct machine *machine, struct row_value *value, struct error *err)
{
    struct placement *placement = placement_new(model, machine, &c->plan, c->context_needed, err);
    int status;

    if (placement == NULL)
        return -1;
    memory_count(placement, &value->memory);
    value->fits = value->memory.fits;
    if (c->metric == ROW_PP || c->metric == ROW_TG)
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
    if (length > 0 && (size_t)length < text->left) {
        text->at += length;
        text->left -= (size_t)length;
    }
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
    append(&out, "%d|%d|%u|%u|%d|%d|%u|%u|%u|", c->plan.type_k, c->plan.type_v, c->plan.n_batch,
           c->plan.n_ubatch, placement->recurrent_on_device, c->plan.kv_pinned,
           c->metric == ROW_TG ? 0 : c->n_prompt, c->metric == ROW_PP ? 0 : c->n_gen, c->n_depth);
    if (c->metric == ROW_VRAM || c->metric == ROW_FITS)
        append(&out, "%u|", placement->n_ctx);
    append_placement(&out, placement);
    placement_free(placement);
    return 0;
}
