#include "ref/verify.h"

#include <stdlib.h>
#include <string.h>

#include "ref/nextn.h"

enum { DRAFT_TOKENS = 3, PROMPT_STRIDE = 4096 };

/* Unlike neighbours, so that policies which ask for the slowest link have something to find. */
static const char *const gpus[PLAN_GRID_DEVICES] = {"RTX 4070", "RTX 3060", "RTX 4070", "RTX 3060",
                                                    "RTX 3090", "RTX 4070", "RTX 3060", "RTX 3090"};

struct verifying {
    const struct verify_job *job;
    struct machine *machines[PLAN_GRID_DEVICES];
    uint32_t *prompts;  /* (slots, PROMPT_STRIDE) */
    uint64_t *expected; /* checksums of the first plan: (slots, tokens) */
    uint32_t *tokens;   /* and its tokens */
    uint64_t checksum;  /* and that of its whole output */
};

/* ---- a run ---- */

/* Everything of one plan's run; members are owned. */
struct run {
    struct placement *placement;
    struct session *session;
    struct nextn nextn;
    struct generate_slot *slots;
};

static void close_run(struct run *run, uint32_t slots)
{
    session_free(run->session);
    nextn_close(&run->nextn);
    placement_free(run->placement);
    if (run->slots != NULL)
        generate_free_slots(run->slots, slots);
    free(run->slots);
}

/* All slots have as much as the longest, which they need with a cache each. */
static uint32_t context_of(const struct verify_job *job)
{
    uint32_t longest = 0;

    for (uint32_t slot = 0; slot < job->slots; slot++)
        longest = job->prompt_lengths[slot] > longest ? job->prompt_lengths[slot] : longest;
    return job->slots * (longest + job->tokens + DRAFT_TOKENS + 1);
}

static int open_run(struct run *run, const struct verifying *v, const struct plan_grid_entry *entry,
                    struct error *err)
{
    const struct verify_job *job = v->job;
    bool drafts = entry->drafter != GENERATE_NO_DRAFTER;
    struct session_options options = {.undo_max = drafts ? DRAFT_TOKENS : 0,
                                      .hidden = entry->drafter == GENERATE_NEXTN,
                                      .shuffled = entry->shuffled,
                                      .order_seed = job->order_seed,
                                      .fault = job->fault,
                                      .open = job->open,
                                      .open_context = job->open_context};

    run->placement = placement_new(job->source->model, v->machines[entry->devices - 1],
                                   &entry->plan, context_of(job), err);
    if (run->placement == NULL)
        return -1;
    if (entry->drafter == GENERATE_NEXTN &&
        nextn_open(&run->nextn, job->source, run->placement, job->kernels,
                   (struct session_options){.undo_max = DRAFT_TOKENS,
                                            .open = job->open,
                                            .open_context = job->open_context},
                   err) != 0)
        return -1;
    run->session = session_new(run->placement, job->source->weights, &job->source->numbers,
                               job->kernels, options, err);
    run->slots = calloc(job->slots, sizeof *run->slots);
    if (run->session == NULL || run->slots == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %u slots", job->slots);
    for (uint32_t slot = 0; slot < job->slots; slot++) {
        run->slots[slot].prompt = v->prompts + (size_t)slot * PROMPT_STRIDE;
        run->slots[slot].prompt_count = job->prompt_lengths[slot];
    }
    return 0;
}

static void compare(const struct verifying *v, const struct run *run, struct verify_result *result)
{
    uint32_t tokens = v->job->tokens;

    for (uint32_t i = 0; i < v->job->slots * tokens; i++)
        if (run->slots[i / tokens].checksums[i % tokens] != v->expected[i]) {
            result->first_difference = i;
            return;
        }
}

static void run_plan(struct verifying *v, size_t index, bool first, struct verify_result *result)
{
    const struct verify_job *job = v->job;
    struct plan base = plan_default();
    struct plan_grid_entry entry;
    struct run run = {.placement = NULL};
    struct generate_options options = {
        .tokens = job->tokens, .sampling = job->sampling, .draft_max = DRAFT_TOKENS};
    struct generation generation;

    memset(result, 0, sizeof *result);
    result->index = index;
    base.type_k = job->type_k;
    base.type_v = job->type_v;
    base.n_slots = job->slots;
    base.kv_unified = true;
    plan_grid_entry(index, job->source->model, &base, &entry);
    if (job->shift) {
        entry.drafter = GENERATE_NO_DRAFTER;
        options.shift_at = job->tokens / 2;
        options.shift_keep = 2;
        options.shift_count = 5;
    }
    options.drafter = entry.drafter;
    result->failed = open_run(&run, v, &entry, &result->error) != 0;
    options.nextn = run.nextn.session;
    options.given = v->tokens;
    if (!result->failed)
        result->failed =
            generate(run.session, run.slots, job->slots, options, &generation, &result->error) != 0;
    if (!result->failed) {
        result->checksum = generation.checksum;
        result->rounds = generation.rounds;
        result->accepted = generation.accepted;
        for (uint32_t i = 0; first && i < job->slots * job->tokens; i++) {
            v->expected[i] = run.slots[i / job->tokens].checksums[i % job->tokens];
            v->tokens[i] = run.slots[i / job->tokens].tokens[i % job->tokens];
        }
        if (first)
            v->checksum = generation.checksum;
        compare(v, &run, result);
    }
    result->expected = v->checksum;
    close_run(&run, job->slots);
}

/* ---- all of them ---- */

static void close_verifying(struct verifying *v)
{
    for (uint32_t d = 0; d < PLAN_GRID_DEVICES; d++)
        machine_free(v->machines[d]);
    free(v->prompts);
    free(v->expected);
    free(v->tokens);
}

/* Token ids that repeat in part, so that an n-gram drafter finds something. */
static void fill_prompts(struct verifying *v)
{
    uint32_t n_vocab = v->job->source->model->n_vocab;

    for (uint32_t slot = 0; slot < v->job->slots; slot++)
        for (uint32_t t = 0; t < v->job->prompt_lengths[slot]; t++)
            v->prompts[(size_t)slot * PROMPT_STRIDE + t] =
                (t % 11 * 7919 + t / 23 * 31 + slot * 101 + 3) % n_vocab;
}

static int open_verifying(struct verifying *v, const struct verify_job *job, struct error *err)
{
    *v = (struct verifying){.job = job};
    for (uint32_t slot = 0; slot < job->slots; slot++)
        if (job->prompt_lengths[slot] == 0 || job->prompt_lengths[slot] > PROMPT_STRIDE)
            return error_set(err, ERROR_USAGE, "a prompt of %u tokens; 1 to %d are possible",
                             job->prompt_lengths[slot], PROMPT_STRIDE);
    v->prompts = calloc((size_t)job->slots * PROMPT_STRIDE + 1, sizeof *v->prompts);
    v->expected = calloc((size_t)job->slots * job->tokens + 1, sizeof *v->expected);
    v->tokens = calloc((size_t)job->slots * job->tokens + 1, sizeof *v->tokens);
    if (v->prompts == NULL || v->expected == NULL || v->tokens == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for prompts");
    fill_prompts(v);
    for (uint32_t d = 0; d < PLAN_GRID_DEVICES; d++) {
        v->machines[d] = machine_compose(gpus, d + 1, err);
        if (v->machines[d] == NULL)
            return -1;
    }
    /* Weights are made on first use, by one thread only. */
    for (size_t i = 0; i < job->source->model->tensor_count; i++)
        if (weights_tensor(job->source->weights, i, err) == NULL)
            return -1;
    return 0;
}

/* The plan that says what is expected, on the interpreter. */
static void run_first(struct verifying *v, const struct verify_job *job, size_t index,
                      struct verify_result *result)
{
    struct verify_job on_host = *job;

    on_host.open = NULL;
    v->job = &on_host;
    run_plan(v, index, true, result);
    v->job = job;
}

int verify_plans(const struct verify_job *job, const size_t *indices, size_t count,
                 struct verify_result *results, struct error *err)
{
    struct verifying v;

    if (open_verifying(&v, job, err) != 0) {
        close_verifying(&v);
        return -1;
    }
    if (count > 0)
        run_first(&v, job, indices[0], &results[0]);
    if (count > 0 && job->open != NULL && results[0].failed) {
        error_set(err, results[0].error.code, "plan %zu on the CPU: %s", indices[0],
                  results[0].error.text);
        close_verifying(&v);
        return -1;
    }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) if (job->open == NULL)
#endif
    for (size_t i = job->open == NULL ? 1 : 0; i < count; i++)
        run_plan(&v, indices[i], false, &results[i]);
    close_verifying(&v);
    return 0;
}
