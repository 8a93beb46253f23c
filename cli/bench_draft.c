#include "cli/bench_draft.h"

#include <string.h>

int bench_draft_open(struct bench_draft *draft, const struct plan_options *options, size_t index,
                     const struct model *target, const struct plan *plan, struct error *err)
{
    memset(draft, 0, sizeof *draft);
    if (plan_options_draft(options, index, &draft->asked, err) != 0)
        return -1;
    if (draft->asked.n_max == 0)
        return 0;
    if (plan->n_slots > 1)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "drafts are modelled for one sequence, not for -np %u; use -np 1, or leave "
            "-md and --draft-max away",
            plan->n_slots);
    return draft_open(&draft->draft, draft->asked.name, target, err);
}

void bench_draft_close(struct bench_draft *draft)
{
    draft_close(&draft->draft);
}

void bench_draft_note(const struct bench_draft *draft, struct bench_result *result)
{
    bool drafts = draft->asked.n_max > 0;

    result->draft_max = draft->asked.n_max;
    result->draft_acceptance = drafts ? draft->asked.acceptance : 0;
    result->model_draft = !drafts                     ? ""
                          : draft->asked.name != NULL ? draft->asked.name
                                                      : "own block";
}

int bench_draft_memory(const struct bench_draft *draft, const struct placement *target,
                       struct memory_account *account, struct error *err)
{
    struct placement *placed;

    if (draft->asked.n_max == 0)
        return 0;
    placed = draft_place(&draft->draft, target, err);
    if (placed == NULL)
        return -1;
    draft_add_memory(&draft->draft, target, placed, draft->asked.n_max, account);
    placement_free(placed);
    return 0;
}

int bench_draft_generate(const struct bench_draft *draft, struct timing *timing,
                         const struct placement *target, uint32_t depth, uint32_t tokens,
                         struct predict_options options, struct prediction *prediction,
                         struct error *err)
{
    struct speculation speculation = {.kind = draft->draft.kind,
                                      .n_max = draft->asked.n_max,
                                      .acceptance = draft->asked.acceptance};
    struct placement *placed;
    int status;

    if (draft->asked.n_max == 0)
        return predict_generation(timing, target, depth, tokens, options, prediction, err);
    placed = draft_place(&draft->draft, target, err);
    if (placed == NULL)
        return -1;
    speculation.draft = placed;
    status =
        speculation_predict(timing, target, &speculation, depth, tokens, options, prediction, err);
    placement_free(placed);
    return status;
}
