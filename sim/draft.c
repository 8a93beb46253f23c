#include "sim/draft.h"

#include <stdlib.h>
#include <string.h>

#include "sim/model_draft.h"

/* Vocabularies of one family differ in padding: llama.cpp lets so many tokens pass. */
enum { VOCAB_DIFFERENCE_MAX = 128 };

static uint32_t difference(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* What would draft for a target: its own block, the catalogue's drafts, or neither. */
static void say_what_works(const struct model *target, char *text, size_t size)
{
    char names[120];

    model_draft_names(target->name, names, sizeof names);
    if (target->n_layer_nextn > 0)
        snprintf(text, size, "leave -md away to draft with the model's own block%s%s",
                 names[0] != '\0' ? ", or take one of its drafts: " : "", names);
    else if (names[0] != '\0')
        snprintf(text, size, "give -md with one of its drafts: %s", names);
    else
        snprintf(text, size,
                 "give -md with a smaller model of the same family, as qwen3-0.6b "
                 "for qwen3-8b");
}

static int open_own_block(struct draft *draft, struct error *err)
{
    char works[300];

    if (draft->target->n_layer_nextn == 0) {
        say_what_works(draft->target, works, sizeof works);
        return error_set(err, ERROR_USAGE,
                         "%.90s has no next-token-prediction block to draft with; %s",
                         draft->target->name, works);
    }
    draft->kind = SPECULATION_NEXTN;
    draft->shares_head = true;
    draft->model = model_draft_from_nextn(draft->target, err);
    return draft->model != NULL ? 0 : -1;
}

/* A sidecar reads hidden rows of its target, so their width has to be the target's. */
static int open_sidecar(struct draft *draft, const char *name, struct error *err)
{
    char works[300];

    draft->kind = SPECULATION_BLOCK;
    draft->shares_head = true;
    draft->model = model_draft_from_catalogue(name, draft->target, err);
    if (draft->model == NULL)
        return -1;
    if (draft->model->n_embd == draft->target->n_embd)
        return 0;
    say_what_works(draft->target, works, sizeof works);
    return error_set(err, ERROR_USAGE,
                     "-md %.90s reads hidden rows of %u values, those of %.90s have %u; %s", name,
                     draft->model->n_embd, draft->target->name, draft->target->n_embd, works);
}

static int open_other_model(struct draft *draft, const char *name, struct error *err)
{
    const struct model *target = draft->target;
    char works[300];

    draft->kind = SPECULATION_MODEL;
    draft->model = model_open(name, err);
    if (draft->model == NULL)
        return -1;
    say_what_works(target, works, sizeof works);
    if (model_find_tensor(draft->model, -1, TENSOR_ROLE_OUTPUT) == NULL &&
        model_find_tensor(draft->model, -1, TENSOR_ROLE_TOKEN_EMBD) == NULL)
        return error_set(err, ERROR_USAGE,
                         "-md %.90s has no output head of its own, and sidecars are read from the "
                         "catalogue only; %s",
                         name, works);
    if (difference(draft->model->n_vocab, target->n_vocab) > VOCAB_DIFFERENCE_MAX)
        return error_set(
            err, ERROR_USAGE,
            "-md %.90s has a vocabulary of %u tokens, %.90s one of %u: its tokens mean "
            "others there; %s",
            name, draft->model->n_vocab, target->name, target->n_vocab, works);
    return 0;
}

int draft_open(struct draft *draft, const char *name, const struct model *target, struct error *err)
{
    int status;

    *draft = (struct draft){.target = target};
    if (name == NULL)
        status = open_own_block(draft, err);
    else if (model_draft_is_known(name))
        status = open_sidecar(draft, name, err);
    else
        status = open_other_model(draft, name, err);
    if (status != 0)
        draft_close(draft);
    return status;
}

void draft_close(struct draft *draft)
{
    model_free(draft->model);
    draft->model = NULL;
}

/* The target's block is one of its layers: cut like them, or on the device of the head. */
static void place_like_target(struct plan *plan, const struct placement *target)
{
    int owner = target->owner[target->layer_count];

    if (plan->split == PLAN_SPLIT_TENSOR) {
        plan->attn_split_count = target->plan.attn_split_count;
        memcpy(plan->attn_split, target->plan.attn_split, sizeof plan->attn_split);
        return;
    }
    plan->tensor_split_count = 0;
    if (owner < 0)
        plan->n_gpu_layers = 0;
    else if (plan->split == PLAN_SPLIT_LAYER) {
        memset(plan->tensor_split, 0, sizeof plan->tensor_split);
        plan->tensor_split[owner] = 1;
        plan->tensor_split_count = target->device_count;
    }
}

struct placement *draft_place(const struct draft *draft, const struct placement *target,
                              struct error *err)
{
    struct plan plan = plan_default();
    bool own = draft->kind == SPECULATION_NEXTN;

    plan.schedule = target->plan.schedule;
    plan.split = target->plan.split;
    if (plan.split == PLAN_SPLIT_TENSOR && !own)
        plan.split = PLAN_SPLIT_LAYER;
    plan.main_gpu = target->plan.main_gpu;
    plan.n_slots = target->plan.n_slots;
    plan.kv_unified = target->plan.kv_unified;
    if (plan.split != PLAN_SPLIT_NONE) {
        plan.tensor_split_count = target->plan.tensor_split_count;
        memcpy(plan.tensor_split, target->plan.tensor_split, sizeof plan.tensor_split);
    }
    if (own)
        place_like_target(&plan, target);
    return placement_new(draft->model, target->machine, &plan, target->n_ctx, err);
}

void draft_add_memory(const struct draft *draft, const struct placement *target,
                      const struct placement *placed, uint32_t n_max,
                      struct memory_account *account)
{
    const struct model_tensor *head = model_find_tensor(draft->model, -1, TENSOR_ROLE_OUTPUT);
    struct memory_account own;

    memory_count(placed, &own);
    for (uint32_t d = 0; d < account->device_count && d < target->device_count; d++) {
        struct memory_device *device = &account->devices[d];
        uint64_t weights = own.devices[d].weights, state = 0;

        if (draft->shares_head && head != NULL)
            weights -= placement_tensor_bytes(placed, head, d);
        if (draft->kind != SPECULATION_MODEL)
            state = n_max * device->recurrent;
        device->weights += weights;
        device->kv += own.devices[d].kv;
        device->recurrent += state + own.devices[d].recurrent;
        device->compute += own.devices[d].compute;
        device->total +=
            weights + own.devices[d].kv + state + own.devices[d].recurrent + own.devices[d].compute;
    }
    account->host_kv += own.host_kv;
    memory_judge(account);
}
