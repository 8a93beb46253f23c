#include "sim/feasibility.h"

/* Rows of a quantised tensor on CUDA are padded to a multiple of so many values. */
enum { MATRIX_ROW_PADDING = 512 };

const struct feasibility_rule_info *feasibility_rule_info(enum feasibility_rule rule)
{
    static const struct feasibility_rule_info infos[FEASIBILITY_RULE_COUNT] = {
        [FEASIBILITY_TENSOR_ARCHITECTURE] = {"tensor-architecture", FEASIBILITY_REFUSED,
                                             "llama.cpp has no tensor split for this architecture",
                                             "-sm layer"},
        [FEASIBILITY_TENSOR_FLASH_ATTENTION] = {"tensor-flash-attention", FEASIBILITY_REFUSED,
                                                "a tensor split needs flash attention",
                                                "-fa 1, or -sm layer"},
        [FEASIBILITY_QUANTISED_V] = {"quantised-v", FEASIBILITY_REFUSED,
                                     "a quantised V cache needs flash attention",
                                     "-fa 1, or -ctv f16"},
        [FEASIBILITY_TENSOR_HOST_CACHE] =
            {"tensor-host-cache", FEASIBILITY_WRONG,
             "under a tensor split llama.cpp copies every KV head of a host cache to each device "
             "while queries stay cut by head, so queries meet keys of other heads",
             "the cache on the devices, -sm layer, or --engine llama.cpp-fork"},
        [FEASIBILITY_TENSOR_HOST_STATE] =
            {"tensor-host-state", FEASIBILITY_ABORTS,
             "under a tensor split llama.cpp has no cut for the copied-in cache and state of a "
             "hybrid model, and its meta backend asserts",
             "the cache on the devices, -sm layer, or --engine llama.cpp-fork"},
        [FEASIBILITY_QUERY_GROUPS] =
            {"query-groups", FEASIBILITY_ABORTS,
             "on a device the query heads are no multiple of the KV heads it sees, which the "
             "attention kernel asserts",
             "shares that give each device whole groups, as equal ones"},
        [FEASIBILITY_QUANTISED_HOST_CACHE] =
            {"quantised-host-cache", FEASIBILITY_ABORTS,
             "builds of the fork before its fix to the size of a quantised copy abort with a host "
             "cache whose rows are no multiple of 512 values",
             "a build with the fix, -ctk f16 -ctv f16, or -nkvo 0"},
        [FEASIBILITY_MIXED_SLIDING_CACHE] =
            {"mixed-sliding-cache", FEASIBILITY_WRONG,
             "under a tensor split a sliding-window model whose cache lies partly on the devices "
             "and partly on the host loses quality, an open defect of the fork",
             "-kvgl 0, the whole cache on the devices, or -sm layer"},
        [FEASIBILITY_TENSOR_SAMPLING] =
            {"tensor-backend-sampling", FEASIBILITY_ABORTS,
             "under a tensor split the logits have no cut that sampling on the devices can use; "
             "llama.cpp refuses it, and the fork aborts at the first sampled token",
             "-bs 0, or -sm layer"},
        [FEASIBILITY_SKIPPED_ALL_REDUCE] = {"skipped-all-reduce", FEASIBILITY_WRONG,
                                            "without the sums over devices each works with a part "
                                            "of the residual stream",
                                            "-ar plain; -ar skipped only shows what the sums cost"},
        [FEASIBILITY_CHUNKED_ALL_REDUCE] =
            {"chunked-all-reduce", FEASIBILITY_ABORTS,
             "a projection in chunks with a sum after each ended in an illegal memory access in "
             "some of the measured runs",
             "-ar plain"},
    };

    return &infos[rule];
}

enum feasibility_verdict feasibility_verdict(uint32_t rules)
{
    enum feasibility_verdict gravest = FEASIBILITY_WORKS;

    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++)
        if ((rules >> rule & 1) != 0 &&
            feasibility_rule_info((enum feasibility_rule)rule)->verdict > gravest)
            gravest = feasibility_rule_info((enum feasibility_rule)rule)->verdict;
    return gravest;
}

/* ---- attention under a tensor split ---- */

static uint32_t devices_of(const struct machine *machine, const struct plan *plan)
{
    return plan->split == PLAN_SPLIT_NONE ? 1 : machine->device_count;
}

/* Our own runtime has neither llama.cpp's two kinds of attention nor its defects. */
static bool is_own(const struct plan *plan)
{
    return plan->schedule == PLAN_SCHEDULE_LOPSIDE;
}

/* llama.cpp copies a host cache whole to each device; the fork cuts it by head. */
static bool mirrors_host_cache(const struct plan *plan)
{
    return plan->kv_on_host && plan->schedule == PLAN_SCHEDULE_LLAMA_CPP;
}

static uint32_t check_heads(const struct model *model, uint32_t layer, const struct plan *plan,
                            uint32_t device_count)
{
    const struct model_layer *l = &model->layers[layer];
    struct share_slices slices;
    uint32_t rules = 0, with_queries = 0;

    share_layer_slices(model, layer, plan->tensor_split_count > 0 ? plan->tensor_split : NULL,
                       plan->attn_split_count > 0 ? plan->attn_split : NULL, device_count, &slices);
    for (uint32_t d = 0; d < device_count; d++) {
        uint32_t seen = mirrors_host_cache(plan) ? l->n_head_kv : slices.kv_heads[d];

        with_queries += slices.q_heads[d] > 0;
        if (slices.q_heads[d] > 0 && (seen == 0 || slices.q_heads[d] % seen != 0))
            rules |= 1u << FEASIBILITY_QUERY_GROUPS;
    }
    /* One KV head is every device's, and one device with all queries numbers them rightly. */
    if (mirrors_host_cache(plan) && l->n_head_kv > 1 && with_queries > 1)
        rules |= 1u << FEASIBILITY_TENSOR_HOST_CACHE;
    return rules;
}

static uint32_t check_tensor_split(const struct model *model, const struct plan *plan,
                                   uint32_t device_count)
{
    uint32_t rules = 0;

    if (!plan_can_split_tensors(model->arch))
        return 1u << FEASIBILITY_TENSOR_ARCHITECTURE;
    if (plan->all_reduce == PLAN_ALL_REDUCE_SKIPPED && device_count > 1)
        rules |= 1u << FEASIBILITY_SKIPPED_ALL_REDUCE;
    if (plan->flash_attn == PLAN_OFF && !is_own(plan))
        rules |= 1u << FEASIBILITY_TENSOR_FLASH_ATTENTION;
    if (plan->backend_sampling && !is_own(plan))
        rules |= 1u << FEASIBILITY_TENSOR_SAMPLING;
    if (plan->all_reduce >= PLAN_ALL_REDUCE_CHUNKED && device_count > 1 && !is_own(plan))
        rules |= 1u << FEASIBILITY_CHUNKED_ALL_REDUCE;
    for (uint32_t i = 0; i < model->n_layer && device_count > 1; i++) {
        if (model->layers[i].mixer == MODEL_MIXER_GATED_DELTA_NET && mirrors_host_cache(plan))
            rules |= 1u << FEASIBILITY_TENSOR_HOST_STATE;
        if (model->layers[i].n_head_kv > 0 && model_layer_has_kv(&model->layers[i]))
            rules |= check_heads(model, i, plan, device_count);
    }
    return rules;
}

/* ---- caches on the host ---- */

static bool leaves_layers_on_host(const struct model *model, const struct plan *plan, uint32_t all,
                                  bool *some_on_devices)
{
    uint32_t layers = 0, whole = 0;

    *some_on_devices = false;
    for (uint32_t i = 0; i < model->n_layer; i++) {
        if (!model_layer_has_kv(&model->layers[i]))
            continue;
        layers++;
        if (plan->kv_resident != NULL && i < plan->kv_resident_count) {
            *some_on_devices |= (plan->kv_resident[i] & all) != 0;
            whole += (plan->kv_resident[i] & all) == all;
        }
    }
    if (plan->kv_resident != NULL)
        return plan->kv_on_host && whole < layers;
    *some_on_devices = plan->kv_gpu_layers > 0;
    return plan->kv_on_host && (plan->kv_gpu_layers < 0 || (uint32_t)plan->kv_gpu_layers < layers);
}

static bool has_sliding_window(const struct model *model)
{
    for (uint32_t i = 0; i < model->n_layer; i++)
        if (model->layers[i].mixer == MODEL_MIXER_SLIDING_WINDOW)
            return true;
    return false;
}

/* The fork casts new rows to the cache's type on the device, and sized that copy without
 * the padding of its rows. */
static bool stages_unpadded_rows(const struct model *model, const struct plan *plan)
{
    bool k = tensor_type_info(plan->type_k)->quantised;
    bool v = tensor_type_info(plan->type_v)->quantised;

    for (uint32_t i = 0; i < model->n_layer; i++) {
        const struct model_layer *l = &model->layers[i];

        if (model_layer_has_kv(l) && ((k && model_layer_k_row(l) % MATRIX_ROW_PADDING != 0) ||
                                      (v && model_layer_v_row(l) % MATRIX_ROW_PADDING != 0)))
            return true;
    }
    return false;
}

uint32_t feasibility_check(const struct model *model, const struct machine *machine,
                           const struct plan *plan)
{
    uint32_t device_count = devices_of(machine, plan), rules = 0;
    bool some_on_devices, fork = plan->schedule == PLAN_SCHEDULE_LLAMA_CPP_FORK;

    if (plan->split == PLAN_SPLIT_TENSOR)
        rules |= check_tensor_split(model, plan, device_count);
    if (plan->flash_attn == PLAN_OFF && tensor_type_info(plan->type_v)->quantised && !is_own(plan))
        rules |= 1u << FEASIBILITY_QUANTISED_V;
    if (!fork || !leaves_layers_on_host(model, plan, (1u << device_count) - 1, &some_on_devices))
        return rules;
    if (stages_unpadded_rows(model, plan))
        rules |= 1u << FEASIBILITY_QUANTISED_HOST_CACHE;
    if (plan->split == PLAN_SPLIT_TENSOR && device_count > 1 && some_on_devices &&
        has_sliding_window(model))
        rules |= 1u << FEASIBILITY_MIXED_SLIDING_CACHE;
    return rules;
}
