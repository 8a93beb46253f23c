#include "ref/plan_grid.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- axes ---- */

enum share { SHARE_EVEN, SHARE_FALLING, SHARE_MOST_FIRST, SHARE_GAP, SHARE_COUNT };

/* Where the cache lies and how it comes to the device. */
static const struct cache_place {
    bool on_host, pinned, attention_on_host, explicit_set;
    uint32_t depth;
    int32_t resident_layers; /* -1: not given */
    enum plan_kv_policy policy;
} cache_places[] = {
    {.resident_layers = -1},
    {.on_host = true, .resident_layers = -1},
    {.on_host = true, .pinned = true, .resident_layers = -1},
    {.on_host = true, .pinned = true, .depth = 1, .resident_layers = -1},
    {.on_host = true, .depth = 2, .resident_layers = -1},
    {.on_host = true, .attention_on_host = true, .resident_layers = -1},
    {.on_host = true, .resident_layers = 1, .policy = PLAN_KV_SLOWEST_FIRST},
    {.on_host = true,
     .pinned = true,
     .depth = 1,
     .resident_layers = 2,
     .policy = PLAN_KV_ROUND_ROBIN},
    {.on_host = true, .resident_layers = -1, .explicit_set = true},
};

enum {
    SPLITS = 2,
    PLACES = sizeof cache_places / sizeof *cache_places,
    GRID = PLAN_GRID_DEVICES * SPLITS * SHARE_COUNT * PLACES
};

static const uint32_t ubatches[] = {512, 7, 32, 64, 3, 1, 33};
static const int32_t gpu_layers[] = {-1, -1, 2, 0};

size_t plan_grid_count(void)
{
    return GRID;
}

/* ---- flags as text ---- */

static void add_text(struct plan_grid_entry *entry, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_text(struct plan_grid_entry *entry, const char *format, ...)
{
    size_t length = strlen(entry->text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(entry->text + length, sizeof entry->text - length, format, arguments);
    va_end(arguments);
}

static void add_ratio(struct plan_grid_entry *entry, const char *flag, const float *ratio,
                      uint32_t count)
{
    for (uint32_t d = 0; d < count; d++)
        add_text(entry, "%s%g", d > 0 ? "/" : flag, (double)ratio[d]);
}

/* -kvr: odd layers on odd devices, even ones on even devices. */
static void add_resident(struct plan_grid_entry *entry)
{
    const char *before = " -kvr ";

    for (uint32_t layer = 0; layer < entry->plan.kv_resident_count; layer++) {
        if (entry->resident[layer] == 0)
            continue;
        add_text(entry, "%s%u", before, layer);
        before = ",";
        for (uint32_t d = layer % 2; d < entry->devices && entry->devices > 1; d += 2)
            add_text(entry, "%sCUDA%u", d == layer % 2 ? "@" : "+", d);
    }
}

static void describe_cache(struct plan_grid_entry *entry)
{
    const struct plan *plan = &entry->plan;

    if (plan->kv_on_host)
        add_text(entry, " -nkvo 1%s", plan->kv_pinned ? " -kvcp 1" : "");
    if (plan->kv_gpu_layers >= 0)
        add_text(entry, " -kvp %s -kvgl %d", plan_kv_policy_name(plan->kv_policy),
                 plan->kv_gpu_layers);
    if (plan->kv_resident != NULL)
        add_resident(entry);
    if (plan->delivery_depth > 0)
        add_text(entry, " -kvd %u", plan->delivery_depth);
    if (plan->attn_on_host)
        add_text(entry, " -ah 1");
    if (plan->recurrent_on_device)
        add_text(entry, " -rso 1");
    if (!plan->kv_unified && plan->n_slots > 1)
        add_text(entry, " -kvu 0");
}

static void describe(struct plan_grid_entry *entry)
{
    const struct plan *plan = &entry->plan;

    if (plan->schedule != PLAN_SCHEDULE_LLAMA_CPP_FORK)
        add_text(entry, "--engine %s ", plan_schedule_name(plan->schedule));
    add_text(entry, "-sm %s", plan_split_name(plan->split));
    add_ratio(entry, " -ts ", plan->tensor_split, plan->tensor_split_count);
    add_ratio(entry, " -as ", plan->attn_split, plan->attn_split_count);
    add_text(entry, " -ub %u", plan->n_ubatch);
    if (plan->n_gpu_layers >= 0)
        add_text(entry, " -ngl %d", plan->n_gpu_layers);
    if (plan->n_cpu_moe > 0)
        add_text(entry, " -ncmoe %u", plan->n_cpu_moe);
    describe_cache(entry);
    if (plan->all_reduce != PLAN_ALL_REDUCE_PLAIN)
        add_text(entry, " -ar %s", plan_all_reduce_name(plan->all_reduce));
    if (plan->output_mirrored != PLAN_AUTO)
        add_text(entry, " -om %d", plan->output_mirrored);
    if (entry->drafter == GENERATE_NEXTN)
        add_text(entry, " --draft-max 3");
    if (entry->drafter == GENERATE_GIVEN)
        add_text(entry, " (drafts, one in three wrong)");
    if (entry->shuffled)
        add_text(entry, " --shuffle");
}

/* ---- a plan ---- */

static void set_share(struct plan *plan, enum share share, uint32_t devices)
{
    if (plan->split == PLAN_SPLIT_NONE)
        return;
    plan->tensor_split_count = devices;
    for (uint32_t d = 0; d < devices; d++)
        plan->tensor_split[d] = share == SHARE_EVEN         ? 1.0f
                                : share == SHARE_FALLING    ? (float)(devices - d)
                                : share == SHARE_MOST_FIRST ? (d == 0 ? 8.0f : 1.0f)
                                                            : (float)(d % 2 == 0 ? 3 : d % 4 / 2);
}

/* Attention heads apart from the rest: all on the first device, or a ratio the other way. */
static void set_attention(struct plan *plan, size_t turn, uint32_t devices)
{
    if (plan->split != PLAN_SPLIT_TENSOR || devices < 2 || turn % 4 < 2)
        return;
    plan->attn_split_count = devices;
    for (uint32_t d = 0; d < devices; d++)
        plan->attn_split[d] = turn % 4 == 2 ? (d == 0 ? 1.0f : 0.0f) : (float)(d + 1);
}

static void set_cache(struct plan_grid_entry *entry, const struct cache_place *place,
                      const struct model *model)
{
    struct plan *plan = &entry->plan;

    plan->kv_on_host = place->on_host;
    plan->kv_pinned = place->pinned;
    plan->attn_on_host = place->attention_on_host;
    plan->delivery_depth = place->depth;
    plan->kv_gpu_layers = place->resident_layers;
    plan->kv_policy = place->policy;
    if (!place->explicit_set)
        return;
    for (uint32_t layer = 0; layer < model->n_layer && layer < PLAN_GRID_LAYERS_MAX; layer++)
        if (model_layer_has_kv(&model->layers[layer]))
            entry->resident[layer] = layer % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    plan->kv_resident = entry->resident;
    plan->kv_resident_count = model->n_layer;
}

/* Choices that do not multiply the grid: each takes its values in turn, at another pace. */
static void take_turns(struct plan_grid_entry *entry, size_t turn, const struct model *model)
{
    struct plan *plan = &entry->plan;
    bool tensor = plan->split == PLAN_SPLIT_TENSOR;

    plan->n_ubatch = ubatches[turn % (sizeof ubatches / sizeof *ubatches)];
    plan->kv_unified = turn / 3 % 2 == 0;
    plan->recurrent_on_device = plan->kv_on_host && turn / 5 % 2 == 0;
    if (tensor && entry->devices > 1) {
        plan->all_reduce = turn / 2 % 3 == 0   ? PLAN_ALL_REDUCE_PLAIN
                           : turn / 2 % 3 == 1 ? PLAN_ALL_REDUCE_CHUNKED
                                               : PLAN_ALL_REDUCE_OVERLAPPED;
        plan->output_mirrored = turn / 7 % 2 == 0 ? PLAN_OFF : PLAN_ON;
        set_attention(plan, turn / 3, entry->devices);
    } else if (plan->kv_resident == NULL && plan->kv_gpu_layers < 0) {
        plan->n_gpu_layers = gpu_layers[turn / 3 % (sizeof gpu_layers / sizeof *gpu_layers)];
    }
    if (model->layers[0].n_expert > 0)
        plan->n_cpu_moe = (uint32_t)(turn / 2 % 3);
    entry->shuffled = turn % 2 == 1;
    if (turn % 5 == 4)
        entry->drafter =
            turn % 2 == 0 && model->n_layer_nextn > 0 ? GENERATE_NEXTN : GENERATE_GIVEN;
}

/* Seven plans with the fork's schedule, seven with our own, and so on: seven shares no factor with
 * an axis of the grid nor with the number of orders, so each of their values, and each pair of
 * them, comes with both. The first plan, which the others are held against, has the fork's. */
static enum plan_schedule schedule_of(size_t index)
{
    return index / 7 % 2 == 0 ? PLAN_SCHEDULE_LLAMA_CPP_FORK : PLAN_SCHEDULE_LOPSIDE;
}

void plan_grid_entry(size_t index, const struct model *model, const struct plan *base,
                     struct plan_grid_entry *entry)
{
    size_t place = index % PLACES, share = index / PLACES % SHARE_COUNT;
    size_t split = index / (PLACES * SHARE_COUNT) % SPLITS;

    memset(entry, 0, sizeof *entry);
    entry->plan = *base;
    entry->plan.schedule = schedule_of(index);
    entry->devices = (uint32_t)(index / (PLACES * SHARE_COUNT * SPLITS)) + 1;
    entry->plan.split = split == 1            ? PLAN_SPLIT_TENSOR
                        : entry->devices == 1 ? PLAN_SPLIT_NONE
                                              : PLAN_SPLIT_LAYER;
    set_share(&entry->plan, (enum share)share, entry->devices);
    set_cache(entry, &cache_places[place], model);
    if (index > 0)
        take_turns(entry, index, model);
    describe(entry);
}
