/* The values of a combination, read into a plan. */
#include "cli/plan_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/residency.h"
#include "sim/word_list.h"

static int read_number(const char *flag, const char *text, long min, long max, long *value,
                       struct error *err)
{
    char *end;

    *value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || *value < min || *value > max)
        return error_set(err, ERROR_USAGE, "-%s %s: a whole number from %ld to %ld is accepted",
                         flag, text, min, max);
    return 0;
}

static int read_word(const char *flag, const char *text, const char *const words[], size_t count,
                     size_t *index, struct error *err)
{
    char list[200];

    for (*index = 0; *index < count; (*index)++)
        if (strcmp(words[*index], text) == 0)
            return 0;
    word_list_text(words, count, list, sizeof list);
    return error_set(err, ERROR_USAGE, "-%s %s: %s are accepted", flag, text, list);
}

static int read_shares(const char *flag, const char *text, float *shares, uint32_t *count,
                       struct error *err)
{
    const char *at = text;

    *count = 0;
    if (strcmp(text, "0") == 0)
        return 0;
    while (*at != '\0') {
        char *end;
        float share = strtof(at, &end);

        if (end == at || !(share >= 0) || !isfinite(share) ||
            (*end != '\0' && *end != '/' && *end != ';'))
            return error_set(err, ERROR_USAGE,
                             "-%s %s: shares of 0 or more joined by slashes are "
                             "accepted, as 60/40",
                             flag, text);
        if (*count == MACHINE_DEVICES_MAX)
            return error_set(err, ERROR_USAGE, "-%s %s: at most %d shares are accepted", flag, text,
                             MACHINE_DEVICES_MAX);
        shares[(*count)++] = share;
        at = end + (*end != '\0');
    }
    return 0;
}

static int read_type(const char *flag, const char *text, enum tensor_type *type, struct error *err)
{
    int found = tensor_type_find(text);

    if (found < 0)
        return error_set(
            err, ERROR_USAGE,
            "-%s %s: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 and q5_1 are accepted", flag,
            text);
    *type = (enum tensor_type)found;
    return 0;
}

static int read_switch(const char *flag, const char *text, bool *value, struct error *err)
{
    static const char *const words[] = {"0", "1", "off", "on"};
    size_t index;

    if (read_word(flag, text, words, 4, &index, err) != 0)
        return -1;
    *value = index % 2 == 1;
    return 0;
}

static int read_words(const struct plan_options *options, size_t index, struct plan *plan,
                      struct error *err)
{
    static const char *const engines[] = {"llama.cpp", "llama.cpp-fork", "lopside"};
    static const char *const splits[] = {"none", "layer", "tensor"};
    static const char *const policies[] = {"layer-order", "round-robin", "slowest-first"};
    static const char *const attentions[] = {"0", "1", "off", "on", "auto", "-1"};
    static const char *const all_reduces[] = {"plain", "skipped", "chunked", "overlapped"};
    size_t engine, split, policy, attention, all_reduce;

    if (read_word("engine", plan_options_value(options, index, PLAN_OPTION_ENGINE), engines, 3,
                  &engine, err) != 0 ||
        read_word("sm", plan_options_value(options, index, PLAN_OPTION_SPLIT), splits, 3, &split,
                  err) != 0 ||
        read_word("kvp", plan_options_value(options, index, PLAN_OPTION_KV_POLICY), policies, 3,
                  &policy, err) != 0 ||
        read_word("fa", plan_options_value(options, index, PLAN_OPTION_FLASH_ATTN), attentions, 6,
                  &attention, err) != 0 ||
        read_word("ar", plan_options_value(options, index, PLAN_OPTION_ALL_REDUCE), all_reduces, 4,
                  &all_reduce, err) != 0)
        return -1;
    plan->all_reduce = (enum plan_all_reduce)all_reduce;
    plan->schedule = (enum plan_schedule)engine;
    plan->split = (enum plan_split)split;
    plan->kv_policy = (enum plan_kv_policy)policy;
    plan->flash_attn = attention >= 4 ? PLAN_AUTO : attention % 2 == 1 ? PLAN_ON : PLAN_OFF;
    return 0;
}

static int read_tristate(const char *flag, const char *text, enum plan_tristate *value,
                         struct error *err)
{
    static const char *const words[] = {"0", "1", "off", "on", "auto"};
    size_t index;

    if (read_word(flag, text, words, 5, &index, err) != 0)
        return -1;
    *value = index == 4 ? PLAN_AUTO : index % 2 == 1 ? PLAN_ON : PLAN_OFF;
    return 0;
}

static int read_rows(const char *text, struct plan *plan, struct error *err)
{
    float rows[MACHINE_DEVICES_MAX];

    if (read_shares("fer", text, rows, &plan->ff_exp_rows_count, err) != 0)
        return -1;
    for (uint32_t d = 0; d < plan->ff_exp_rows_count; d++) {
        if (rows[d] > 1 << 20 || rows[d] != floorf(rows[d]))
            return error_set(err, ERROR_USAGE,
                             "-fer %s: whole numbers of rows joined by slashes are accepted, as "
                             "512/192",
                             text);
        plan->ff_exp_rows[d] = (uint32_t)rows[d];
    }
    return 0;
}

/* What a fork or a measuring build can choose inside a step. */
static int read_step(const struct plan_options *options, size_t index, struct plan *plan,
                     struct error *err)
{
    static const char *const samplings[] = {"none", "0", "1", "off", "on"};
    size_t sampling;

    if (read_tristate("pipe", plan_options_value(options, index, PLAN_OPTION_PIPELINE),
                      &plan->pipeline, err) != 0 ||
        read_tristate("om", plan_options_value(options, index, PLAN_OPTION_OUTPUT_MIRRORED),
                      &plan->output_mirrored, err) != 0 ||
        read_word("bs", plan_options_value(options, index, PLAN_OPTION_SAMPLING), samplings, 5,
                  &sampling, err) != 0 ||
        read_rows(plan_options_value(options, index, PLAN_OPTION_FF_EXP_ROWS), plan, err) != 0)
        return -1;
    plan->backend_sampling = sampling == 2 || sampling == 4;
    if (plan->schedule == PLAN_SCHEDULE_LLAMA_CPP &&
        (plan->output_mirrored != PLAN_AUTO || plan->all_reduce != PLAN_ALL_REDUCE_PLAIN ||
         plan->ff_exp_rows_count > 0))
        return error_set(err, ERROR_USAGE,
                         "-om, -ar and -fer exist only in builds of the fork; use --engine "
                         "llama.cpp-fork");
    if (plan->split != PLAN_SPLIT_TENSOR &&
        (plan->output_mirrored != PLAN_AUTO || plan->all_reduce != PLAN_ALL_REDUCE_PLAIN ||
         plan->ff_exp_rows_count > 0))
        return error_set(
            err, ERROR_USAGE,
            "-om, -ar and -fer divide or join parts of a layer, which -sm %s does not; "
            "add -sm tensor",
            plan_split_name(plan->split));
    return 0;
}

/* Rows by hand have to be those that an expert has, or its products would be cut short. */
static int check_rows(const struct plan *plan, const struct model *model,
                      const struct machine *machine, struct error *err)
{
    for (uint32_t i = 0; i < model->n_layer && plan->ff_exp_rows_count > 0; i++) {
        uint64_t sum = 0;

        for (uint32_t d = 0; d < plan->ff_exp_rows_count; d++)
            sum += plan->ff_exp_rows[d];
        if (plan->ff_exp_rows_count > machine->device_count)
            return error_set(err, ERROR_USAGE,
                             "-fer has rows for %u devices, but there are %u; give one number a "
                             "device",
                             plan->ff_exp_rows_count, machine->device_count);
        if (model->layers[i].n_ff_exp == 0 || sum != model->layers[i].n_ff_exp)
            return error_set(
                err, ERROR_USAGE,
                "-fer gives away %llu rows, but an expert of %.90s has %u; they have to "
                "add up",
                (unsigned long long)sum, model->name, model->layers[i].n_ff_exp);
    }
    return 0;
}

bool plan_options_sample(const struct plan_options *options, size_t index)
{
    return strcmp(plan_options_value(options, index, PLAN_OPTION_SAMPLING), "none") != 0;
}

/* ---- drafts ---- */

bool plan_options_drafts(const struct plan_options *options)
{
    return options->given[PLAN_OPTION_MODEL_DRAFT] || options->given[PLAN_OPTION_DRAFT_MAX];
}

int plan_options_draft(const struct plan_options *options, size_t index, struct plan_draft *draft,
                       struct error *err)
{
    const char *name = plan_options_value(options, index, PLAN_OPTION_MODEL_DRAFT);
    const char *text = plan_options_value(options, index, PLAN_OPTION_DRAFT_ACCEPTANCE);
    bool none = strcmp(name, "none") == 0;
    long n_max;
    char *end;

    *draft = (struct plan_draft){.name = none ? NULL : name, .acceptance = strtod(text, &end)};
    if (end == text || *end != '\0' || !(draft->acceptance >= 0 && draft->acceptance <= 1))
        return error_set(err, ERROR_USAGE,
                         "--draft-acceptance %s: a probability from 0 to 1 is accepted", text);
    if (read_number("-draft-max", plan_options_value(options, index, PLAN_OPTION_DRAFT_MAX), 0, 64,
                    &n_max, err) != 0)
        return -1;
    /* "-md none" in a list is the plan without a draft. */
    if (plan_options_drafts(options) && !(none && options->given[PLAN_OPTION_MODEL_DRAFT]))
        draft->n_max = (uint32_t)n_max;
    return 0;
}

/* ---- plans ---- */

static int read_numbers(const struct plan_options *options, size_t index, struct plan *plan,
                        struct error *err)
{
    long main_gpu, ngl, kvgl, batch, ubatch, ctx, moe, slots, depth;

    if (read_number("mg", plan_options_value(options, index, PLAN_OPTION_MAIN_GPU), 0, 255,
                    &main_gpu, err) != 0 ||
        read_number("ngl", plan_options_value(options, index, PLAN_OPTION_N_GPU_LAYERS), -1, 100000,
                    &ngl, err) != 0 ||
        read_number("kvgl", plan_options_value(options, index, PLAN_OPTION_KV_GPU_LAYERS), -1,
                    100000, &kvgl, err) != 0 ||
        read_number("b", plan_options_value(options, index, PLAN_OPTION_N_BATCH), 1, 1 << 24,
                    &batch, err) != 0 ||
        read_number("ub", plan_options_value(options, index, PLAN_OPTION_N_UBATCH), 1, 1 << 24,
                    &ubatch, err) != 0 ||
        read_number("c", plan_options_value(options, index, PLAN_OPTION_N_CTX), 0, 1 << 28, &ctx,
                    err) != 0 ||
        read_number("ncmoe", plan_options_value(options, index, PLAN_OPTION_N_CPU_MOE), 0, 100000,
                    &moe, err) != 0 ||
        read_number("np", plan_options_value(options, index, PLAN_OPTION_N_SLOTS), 1, 4096, &slots,
                    err) != 0 ||
        read_number("kvd", plan_options_value(options, index, PLAN_OPTION_DELIVERY_DEPTH), 0,
                    PLAN_DELIVERY_DEPTH_MAX, &depth, err) != 0)
        return -1;
    plan->delivery_depth = (uint32_t)depth;
    plan->n_cpu_moe = (uint32_t)moe;
    plan->n_slots = (uint32_t)slots;
    plan->main_gpu = (uint32_t)main_gpu;
    plan->n_gpu_layers = (int32_t)ngl;
    plan->kv_gpu_layers = (int32_t)kvgl;
    plan->n_batch = (uint32_t)batch;
    plan->n_ubatch = (uint32_t)ubatch;
    plan->n_ctx = (uint32_t)ctx;
    return 0;
}

static int read_cache(const struct plan_options *options, size_t index, struct plan *plan,
                      struct error *err)
{
    if (read_type("ctk", plan_options_value(options, index, PLAN_OPTION_TYPE_K), &plan->type_k,
                  err) != 0)
        return -1;
    if (read_type("ctv", plan_options_value(options, index, PLAN_OPTION_TYPE_V), &plan->type_v,
                  err) != 0)
        return -1;
    return read_switch("nkvo", plan_options_value(options, index, PLAN_OPTION_NKVO),
                       &plan->kv_on_host, err) != 0 ||
                   read_switch("kvcp", plan_options_value(options, index, PLAN_OPTION_KV_PINNED),
                               &plan->kv_pinned, err) != 0 ||
                   read_switch("ah", plan_options_value(options, index, PLAN_OPTION_ATTN_HOST),
                               &plan->attn_on_host, err) != 0 ||
                   read_switch("rso", plan_options_value(options, index, PLAN_OPTION_RECURRENT),
                               &plan->recurrent_on_device, err) != 0 ||
                   read_switch("kvu", plan_options_value(options, index, PLAN_OPTION_KV_UNIFIED),
                               &plan->kv_unified, err) != 0
               ? -1
               : 0;
}

/* Of llama.cpp's patterns those that mean all experts. */
static int read_override(const char *text, struct plan *plan, struct error *err)
{
    const char *place = text != NULL ? strrchr(text, '=') : NULL;

    if (text == NULL)
        return 0;
    if (place == NULL || strcmp(place, "=CPU") != 0 || strstr(text, "exps") == NULL ||
        strpbrk(text, "0123456789[{") != NULL)
        return error_set(
            err, ERROR_USAGE,
            "-ot %s: only all experts on the host are modelled, -ot exps=CPU; -ncmoe N "
            "puts those of the first N layers there",
            text);
    plan->n_cpu_moe = UINT32_MAX;
    return 0;
}

int plan_options_plan(const struct plan_options *options, size_t index, const struct model *model,
                      const struct machine *machine, uint32_t *resident, uint32_t resident_count,
                      struct plan *plan, struct error *err)
{
    const char *explicit_set = plan_options_value(options, index, PLAN_OPTION_KV_RESIDENT);

    *plan = plan_default();
    if (read_words(options, index, plan, err) != 0 ||
        read_numbers(options, index, plan, err) != 0 ||
        read_cache(options, index, plan, err) != 0 || read_step(options, index, plan, err) != 0 ||
        check_rows(plan, model, machine, err) != 0 ||
        read_shares("ts", plan_options_value(options, index, PLAN_OPTION_TENSOR_SPLIT),
                    plan->tensor_split, &plan->tensor_split_count, err) != 0 ||
        read_shares("as", plan_options_value(options, index, PLAN_OPTION_ATTN_SPLIT),
                    plan->attn_split, &plan->attn_split_count, err) != 0 ||
        read_override(plan_options_value(options, index, PLAN_OPTION_OVERRIDE), plan, err) != 0)
        return -1;
    plan->all_logits = plan->schedule == PLAN_SCHEDULE_LLAMA_CPP;
    if (explicit_set == NULL)
        return 0;
    plan->kv_on_host = true;
    plan->kv_resident = resident;
    plan->kv_resident_count = resident_count;
    return residency_parse(explicit_set, model, machine, resident, resident_count, err);
}
