#include "sim/plan.h"

#include <stdlib.h>
#include <string.h>

#include "sim/residency.h"

struct plan plan_default(void)
{
    return (struct plan){
        .schedule = PLAN_SCHEDULE_LLAMA_CPP_FORK,
        .split = PLAN_SPLIT_LAYER,
        .kv_gpu_layers = -1,
        .kv_policy = PLAN_KV_SLOWEST_FIRST,
        .type_k = TENSOR_TYPE_F16,
        .type_v = TENSOR_TYPE_F16,
        .flash_attn = PLAN_AUTO,
        .n_gpu_layers = -1,
        .n_batch = 2048,
        .n_ubatch = 512,
        .pipeline = PLAN_AUTO,
        .output_mirrored = PLAN_AUTO,
        .n_slots = 1,
        .kv_unified = true,
    };
}

const char *plan_split_name(enum plan_split split)
{
    static const char *const names[] = {"none", "layer", "tensor"};

    return names[split];
}

const char *plan_kv_policy_name(enum plan_kv_policy policy)
{
    static const char *const names[] = {"layer-order", "round-robin", "slowest-first"};

    return names[policy];
}

const char *plan_schedule_name(enum plan_schedule schedule)
{
    static const char *const names[] = {"llama.cpp", "llama.cpp-fork", "lopside"};

    return names[schedule];
}

const char *plan_all_reduce_name(enum plan_all_reduce all_reduce)
{
    static const char *const names[] = {"plain", "skipped", "chunked", "overlapped"};

    return names[all_reduce];
}

/* ---- plans that cannot be ---- */

/* Architectures whose tensor split llama.cpp refuses: src/llama-arch.cpp,
 * llm_arch_supports_sm_tensor. */
bool plan_can_split_tensors(const char *arch)
{
    static const char *const refused[] = {
        "grok",           "mpt",           "plamo2",      "minicpm3", "gemma3n",     "mamba",
        "mamba2",         "jamba",         "falcon-h1",   "olmo2",    "olmoe",       "deepseek2",
        "deepseek32",     "deepseek4",     "glm-dsa",     "bitnet",   "t5",          "nemotron_h",
        "nemotron_h_moe", "granitehybrid", "lfm2",        "lfm2moe",  "minimax-01",  "minimax-m2",
        "minimax-m3",     "mistral4",      "kimi-linear", "kimi-k3",  "bailingmoe3", "qwen3-tts",
    };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], arch) == 0)
            return false;
    return true;
}

static int check_shares(const struct plan *plan, uint32_t device_count, struct error *err)
{
    float ts = 0, as = 0;

    if (plan->tensor_split_count > device_count)
        return error_set(err, ERROR_USAGE,
                         "-ts has %u shares, but there are %u devices; give one share a device",
                         plan->tensor_split_count, device_count);
    if (plan->attn_split_count > device_count)
        return error_set(err, ERROR_USAGE,
                         "-as has %u shares, but there are %u devices; give one share a device",
                         plan->attn_split_count, device_count);
    for (uint32_t d = 0; d < plan->tensor_split_count; d++)
        ts += plan->tensor_split[d];
    for (uint32_t d = 0; d < plan->attn_split_count; d++)
        as += plan->attn_split[d];
    if (plan->attn_split_count > 0 && plan->split != PLAN_SPLIT_TENSOR)
        return error_set(
            err, ERROR_USAGE,
            "-as divides the heads of every layer, which -sm %s does not; add -sm tensor, "
            "or leave -as away",
            plan_split_name(plan->split));
    if ((plan->tensor_split_count > 0 && !(ts > 0)) || (plan->attn_split_count > 0 && !(as > 0)))
        return error_set(err, ERROR_USAGE, "all shares of %s are 0; at least one must be above 0",
                         plan->tensor_split_count > 0 && !(ts > 0) ? "-ts" : "-as");
    return 0;
}

bool plan_is_cache_type(enum tensor_type type)
{
    static const enum tensor_type types[] = {
        TENSOR_TYPE_F32,  TENSOR_TYPE_F16,    TENSOR_TYPE_BF16, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0,
        TENSOR_TYPE_Q4_1, TENSOR_TYPE_IQ4_NL, TENSOR_TYPE_Q5_0, TENSOR_TYPE_Q5_1,
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == type)
            return true;
    return false;
}

static int check_cache(const struct plan *plan, struct error *err)
{
    const struct tensor_type_info *k = tensor_type_info(plan->type_k);
    const struct tensor_type_info *v = tensor_type_info(plan->type_v);

    if (!plan_is_cache_type(plan->type_k) || !plan_is_cache_type(plan->type_v))
        return error_set(
            err, ERROR_USAGE,
            "a KV cache cannot be %s; f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 and "
            "q5_1 can",
            plan_is_cache_type(plan->type_k) ? v->name : k->name);
    if (plan->schedule == PLAN_SCHEDULE_LOPSIDE)
        return 0;
    if (plan->flash_attn == PLAN_OFF && v->quantised)
        return error_set(
            err, ERROR_USAGE,
            "a quantised V cache (-ctv %s) needs flash attention; use -fa 1, or -ctv f16", v->name);
    if (plan->type_k != plan->type_v)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "with K in %s and V in %s the default build moves attention to the CPU, which is "
            "not modelled; give -ctk and -ctv the same type",
            k->name, v->name);
    return 0;
}

static int check_split(const struct plan *plan, const struct model *model, uint32_t device_count,
                       struct error *err)
{
    if (plan->split == PLAN_SPLIT_NONE && plan->main_gpu >= device_count)
        return error_set(err, ERROR_USAGE, "-mg %u: no such device; there are %u, numbered from 0",
                         plan->main_gpu, device_count);
    if (plan->split != PLAN_SPLIT_TENSOR)
        return 0;
    if (plan->flash_attn == PLAN_OFF && plan->schedule != PLAN_SCHEDULE_LOPSIDE)
        return error_set(err, ERROR_USAGE, "-sm tensor needs flash attention; leave -fa 0 away");
    if (!plan_can_split_tensors(model->arch))
        return error_set(err, ERROR_USAGE,
                         "llama.cpp has no tensor split for architecture %s; use -sm layer",
                         model->arch);
    if (plan->schedule == PLAN_SCHEDULE_LLAMA_CPP && plan->kv_on_host)
        return error_set(
            err, ERROR_USAGE,
            "llama.cpp aborts or computes wrong values with -sm tensor and -nkvo (it mirrors "
            "a copied-in cache while queries are split by head); keep the cache on the "
            "devices, or use --engine llama.cpp-fork");
    return 0;
}

/* Without flash attention llama.cpp computes on the CPU over a cache that is there; the
 * fork does not once it pins the cache or keeps part of it on devices. Source:
 * src/llama-graph.cpp, and offload_attn_compute of the fork. Our runtime has one attention,
 * which is where the plan puts it. */
static bool attends_on_host(const struct plan *plan)
{
    bool fork_offloads = plan->schedule == PLAN_SCHEDULE_LLAMA_CPP_FORK &&
                         (plan->kv_pinned || plan->kv_gpu_layers > 0);
    bool own = plan->schedule == PLAN_SCHEDULE_LOPSIDE;

    return plan->kv_on_host &&
           (plan->attn_on_host || (plan->flash_attn == PLAN_OFF && !fork_offloads && !own));
}

static int check_plan(const struct plan *plan, const struct model *model,
                      const struct machine *machine, uint32_t context_needed, struct error *err)
{
    if (check_shares(plan, machine->device_count, err) != 0 || check_cache(plan, err) != 0 ||
        check_split(plan, model, machine->device_count, err) != 0)
        return -1;
    if (plan->schedule == PLAN_SCHEDULE_LLAMA_CPP &&
        (plan->attn_split_count > 0 || plan->kv_gpu_layers >= 0 || plan->kv_pinned ||
         plan->recurrent_on_device || plan->kv_resident != NULL || plan->attn_on_host ||
         plan->delivery_depth > 0))
        return error_set(err, ERROR_USAGE,
                         "-as, -kvgl, -kvcp, -kvr, -rso, -ah and -kvd exist only in the fork; use "
                         "--engine llama.cpp-fork");
    if (plan->delivery_depth > PLAN_DELIVERY_DEPTH_MAX)
        return error_set(err, ERROR_USAGE, "-kvd %u: at most %d windows are sent ahead",
                         plan->delivery_depth, PLAN_DELIVERY_DEPTH_MAX);
    if ((plan->attn_on_host || plan->delivery_depth > 0) && !plan->kv_on_host)
        return error_set(err, ERROR_USAGE,
                         "-ah and -kvd are about a cache in host memory; add -nkvo 1");
    if (plan->delivery_depth > 0 && attends_on_host(plan))
        return error_set(err, ERROR_USAGE,
                         "-kvd sends windows to the devices, and attention on the host needs none; "
                         "use one of -kvd and -ah 1 (which -nkvo 1 -fa 0 implies)");
    if (plan->n_ubatch == 0 || plan->n_batch == 0)
        return error_set(err, ERROR_USAGE, "-b and -ub take a number above 0");
    if (plan->n_ctx > 0 && plan->n_ctx < context_needed)
        return error_set(
            err, ERROR_USAGE,
            "-c %u holds fewer tokens than the %u of prompt, depth and generation; use -c %u "
            "or leave -c away",
            plan->n_ctx, context_needed, context_needed);
    return 0;
}

/* ---- placing ---- */

uint32_t plan_pad_cells(uint64_t cells)
{
    return (uint32_t)((cells + 255) / 256 * 256);
}

static void fill_defaults(struct placement *placement, uint32_t context_needed)
{
    struct plan *plan = &placement->plan;
    const struct machine *machine = placement->machine;
    bool layer_default = plan->tensor_split_count == 0 && plan->split == PLAN_SPLIT_LAYER;

    placement->device_count = plan->split == PLAN_SPLIT_NONE ? 1 : machine->device_count;
    for (uint32_t d = 0; d < placement->device_count; d++)
        placement->devices[d] = plan->split == PLAN_SPLIT_NONE ? plan->main_gpu : d;
    /* Free memory at load time, which on an idle machine is all that programs can use. */
    for (uint32_t d = 0; layer_default && d < machine->device_count; d++)
        plan->tensor_split[d] = (float)machine->devices[d].memory_bytes;
    if (plan->split == PLAN_SPLIT_NONE)
        plan->tensor_split[0] = 1;
    if (plan->n_ubatch > plan->n_batch)
        plan->n_ubatch = plan->n_batch;
    placement->n_ctx = plan_pad_cells(plan->n_ctx > 0 ? plan->n_ctx : context_needed);
    if (placement->n_ctx == 0)
        placement->n_ctx = 256;
    placement->recurrent_on_device =
        !plan->kv_on_host || plan->split == PLAN_SPLIT_TENSOR ||
        (plan->schedule != PLAN_SCHEDULE_LLAMA_CPP && plan->recurrent_on_device);
    placement->attn_on_host = attends_on_host(plan);
}

static void own_whole_layer(struct placement *placement, uint32_t layer)
{
    const struct model_layer *l = &placement->model->layers[layer];
    struct share_slices *slices = &placement->slices[layer];
    /* A layer on the host that a large batch computes on a device uses the first one. */
    int d = placement->owner[layer] < 0 ? 0 : placement->owner[layer];

    memset(slices, 0, sizeof *slices);
    slices->q_heads[d] = l->n_head;
    slices->kv_heads[d] = l->n_head_kv;
    slices->gdn_k_heads[d] = l->gdn_k_heads;
    slices->gdn_v_heads[d] = l->gdn_v_heads;
    slices->n_ff[d] = l->n_ff;
    slices->n_ff_exp[d] = l->n_ff_exp;
}

static void place_layers(struct placement *placement)
{
    const struct plan *plan = &placement->plan;
    uint32_t entries = placement->layer_count + 1;
    uint32_t on_gpu = plan->n_gpu_layers < 0 || (uint32_t)plan->n_gpu_layers > entries
                          ? entries
                          : (uint32_t)plan->n_gpu_layers;

    if (plan->split == PLAN_SPLIT_TENSOR) {
        const float one = 1;

        share_layers(entries, on_gpu, &one, 1, placement->owner);
    } else {
        share_layers(entries, on_gpu, plan->tensor_split, placement->device_count,
                     placement->owner);
    }
    for (uint32_t layer = 0; layer < placement->layer_count; layer++) {
        if (plan->split == PLAN_SPLIT_TENSOR && placement->owner[layer] >= 0)
            share_layer_slices(placement->model, layer,
                               plan->tensor_split_count > 0 ? plan->tensor_split : NULL,
                               plan->attn_split_count > 0 ? plan->attn_split : NULL,
                               placement->device_count, &placement->slices[layer]);
        else
            own_whole_layer(placement, layer);
    }
    placement->pipeline = placement->device_count > 1 && plan->split == PLAN_SPLIT_LAYER &&
                          on_gpu == entries && !plan->kv_on_host;
    if (plan->pipeline != PLAN_AUTO)
        placement->pipeline = plan->pipeline == PLAN_ON && placement->device_count > 1 &&
                              plan->split == PLAN_SPLIT_LAYER;
}

/* Expert rows by hand: the first is of position 0, which rotates with the layers. */
static void override_expert_rows(struct placement *placement)
{
    const struct plan *plan = &placement->plan;
    uint32_t count = placement->device_count;

    for (uint32_t layer = 0; layer < placement->layer_count && plan->ff_exp_rows_count > 0;
         layer++) {
        struct share_slices *slices = &placement->slices[layer];

        for (uint32_t j = 0; j < count && placement->model->layers[layer].n_ff_exp > 0; j++)
            slices->n_ff_exp[(j + slices->rotation) % count] =
                j < plan->ff_exp_rows_count ? plan->ff_exp_rows[j] : 0;
    }
}

static void place_head(struct placement *placement)
{
    const struct plan *plan = &placement->plan;
    const struct model *model = placement->model;
    int owner = placement->owner[placement->layer_count];
    bool tied = model_find_tensor(model, -1, TENSOR_ROLE_OUTPUT) == NULL;

    if (owner < 0)
        return;
    if (plan->split != PLAN_SPLIT_TENSOR)
        placement->output_rows[owner] = model->n_vocab;
    else if (plan->output_mirrored == PLAN_ON || (plan->output_mirrored == PLAN_AUTO && tied &&
                                                  plan->schedule == PLAN_SCHEDULE_LLAMA_CPP))
        for (uint32_t d = 0; d < placement->device_count; d++)
            placement->output_rows[d] =
                model->n_vocab; /* mirrored: the copy keeps the table's name */
    else
        share_elements(model->n_vocab, 1, plan->tensor_split_count > 0 ? plan->tensor_split : NULL,
                       placement->device_count, model->n_layer % placement->device_count,
                       placement->output_rows);
}

struct placement *placement_new(const struct model *model, const struct machine *machine,
                                const struct plan *plan, uint32_t context_needed, struct error *err)
{
    struct placement *placement;
    uint32_t layer_count = model->n_layer + model->n_layer_nextn;

    if (check_plan(plan, model, machine, context_needed, err) != 0)
        return NULL;
    placement = calloc(1, sizeof *placement);
    if (placement == NULL)
        goto no_memory;
    placement->model = model;
    placement->machine = machine;
    placement->plan = *plan;
    placement->layer_count = layer_count;
    placement->owner = calloc(layer_count + 1, sizeof *placement->owner);
    placement->slices = calloc(layer_count + 1, sizeof *placement->slices);
    placement->kv_resident = calloc(layer_count + 1, sizeof *placement->kv_resident);
    if (placement->owner == NULL || placement->slices == NULL || placement->kv_resident == NULL)
        goto no_memory;
    fill_defaults(placement, context_needed);
    place_layers(placement);
    override_expert_rows(placement);
    place_head(placement);
    if (residency_choose(placement, err) != 0) {
        placement_free(placement);
        return NULL;
    }
    return placement;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory to place %u layers", layer_count);
    placement_free(placement);
    return NULL;
}

void placement_free(struct placement *placement)
{
    if (placement == NULL)
        return;
    free(placement->owner);
    free(placement->slices);
    free(placement->kv_resident);
    free(placement);
}

/* ---- asking ---- */

bool placement_has_layer(const struct placement *placement, uint32_t layer, uint32_t d)
{
    if (placement->owner[layer] < 0)
        return false;
    return placement->plan.split == PLAN_SPLIT_TENSOR || placement->owner[layer] == (int)d;
}

bool placement_gives_logits(const struct placement *placement, uint32_t d)
{
    uint64_t rows = placement->output_rows[d], all = placement->model->n_vocab;

    for (uint32_t e = 0; e < d && rows == all; e++)
        if (placement->output_rows[e] == all)
            return false;
    return rows > 0;
}

bool placement_has_state_on_host(const struct placement *placement, uint32_t layer)
{
    return !placement->recurrent_on_device || placement->owner[layer] < 0;
}

void placement_kv_row(const struct placement *placement, uint32_t layer, uint32_t d,
                      uint64_t *k_values, uint64_t *v_values)
{
    const struct model_layer *l = &placement->model->layers[layer];
    uint64_t heads = placement->slices[layer].kv_heads[d];

    *k_values = model_layer_has_kv(l) ? heads * l->head_dim_k : 0;
    *v_values = model_layer_has_kv(l) && !l->v_in_k ? heads * l->head_dim_v : 0;
}

/* Which share of a tensor a device has under a tensor split: part of whole. */
struct part {
    uint64_t part, whole;
};

static struct part part_of(const struct placement *placement, const struct model_tensor *tensor,
                           uint32_t d)
{
    const struct model_layer *l = &placement->model->layers[tensor->layer];
    const struct share_slices *slices = &placement->slices[tensor->layer];

    switch (tensor->role) {
    case TENSOR_ROLE_ATTN_K:
    case TENSOR_ROLE_ATTN_V:
    case TENSOR_ROLE_ATTN_K_BIAS:
    case TENSOR_ROLE_ATTN_V_BIAS:
        return (struct part){slices->kv_heads[d], l->n_head_kv};
    case TENSOR_ROLE_ATTN_Q:
    case TENSOR_ROLE_ATTN_Q_BIAS:
    case TENSOR_ROLE_ATTN_SINKS:
        return (struct part){slices->q_heads[d], l->n_head};
    case TENSOR_ROLE_ATTN_QKV:
    case TENSOR_ROLE_ATTN_QKV_BIAS:
    case TENSOR_ROLE_ATTN_GATE:
    case TENSOR_ROLE_ATTN_OUTPUT:
        if (l->gdn_k_heads == 0)
            return (struct part){slices->q_heads[d], l->n_head};
        return (struct part){slices->gdn_k_heads[d], l->gdn_k_heads};
    case TENSOR_ROLE_SSM_CONV1D:
    case TENSOR_ROLE_SSM_DT:
    case TENSOR_ROLE_SSM_A:
    case TENSOR_ROLE_SSM_ALPHA:
    case TENSOR_ROLE_SSM_BETA:
    case TENSOR_ROLE_SSM_BA:
    case TENSOR_ROLE_SSM_OUT:
        return (struct part){slices->gdn_k_heads[d], l->gdn_k_heads};
    case TENSOR_ROLE_FFN_GATE:
    case TENSOR_ROLE_FFN_UP:
    case TENSOR_ROLE_FFN_DOWN:
    case TENSOR_ROLE_FFN_GATE_BIAS:
    case TENSOR_ROLE_FFN_UP_BIAS:
        return (struct part){slices->n_ff[d], l->n_ff};
    case TENSOR_ROLE_FFN_GATE_EXPS:
    case TENSOR_ROLE_FFN_UP_EXPS:
    case TENSOR_ROLE_FFN_GATE_UP_EXPS:
    case TENSOR_ROLE_FFN_DOWN_EXPS:
    case TENSOR_ROLE_FFN_GATE_EXPS_BIAS:
    case TENSOR_ROLE_FFN_UP_EXPS_BIAS:
        return (struct part){slices->n_ff_exp[d], l->n_ff_exp};
    default:
        return (struct part){1, 1}; /* mirrored */
    }
}

static uint64_t global_tensor_bytes(const struct placement *placement,
                                    const struct model_tensor *tensor, uint32_t d)
{
    bool tied = model_find_tensor(placement->model, -1, TENSOR_ROLE_OUTPUT) == NULL;

    if (tensor->role == TENSOR_ROLE_OUTPUT || (tensor->role == TENSOR_ROLE_TOKEN_EMBD && tied))
        return tensor->bytes / tensor->ne[1] * placement->output_rows[d];
    if (tensor->role == TENSOR_ROLE_TOKEN_EMBD)
        return 0; /* on the host: its rows are looked up there */
    return placement->plan.split == PLAN_SPLIT_TENSOR || placement->output_rows[d] > 0
               ? tensor->bytes
               : 0;
}

bool placement_has_experts_on_host(const struct placement *placement, uint32_t layer)
{
    return layer < placement->plan.n_cpu_moe && placement->model->layers[layer].n_expert > 0;
}

uint64_t placement_tensor_bytes(const struct placement *placement,
                                const struct model_tensor *tensor, uint32_t d)
{
    struct part part;

    if (tensor->layer < 0)
        return global_tensor_bytes(placement, tensor, d);
    if (!placement_has_layer(placement, (uint32_t)tensor->layer, d) ||
        (tensor->ne[2] > 1 && placement_has_experts_on_host(placement, (uint32_t)tensor->layer)))
        return 0;
    if (placement->plan.split != PLAN_SPLIT_TENSOR)
        return tensor->bytes;
    part = part_of(placement, tensor, d);
    /* Parts are whole granules, so the division leaves nothing over. */
    return part.whole > 0 ? tensor->bytes / part.whole * part.part +
                                tensor->bytes % part.whole * part.part / part.whole
                          : 0;
}
