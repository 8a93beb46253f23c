/* The draft of a combination of bench: opened once, placed beside each test's plan. */
#ifndef CLI_BENCH_DRAFT_H
#define CLI_BENCH_DRAFT_H

#include "cli/bench_output.h"
#include "cli/plan_options.h"
#include "sim/draft.h"

struct bench_draft {
    struct plan_draft asked; /* n_max 0: no drafting, and nothing is open */
    struct draft draft;
};

/**
 * Opens what -md and --draft-max of a combination ask for.
 *
 * @return 0, or -1 with `err` set
 */
int bench_draft_open(struct bench_draft *draft, const struct plan_options *options, size_t index,
                     const struct model *target, const struct plan *plan, struct error *err);
void bench_draft_close(struct bench_draft *draft);

/** Writes the draft's name, and its numbers, into a result; "own block" without -md. */
void bench_draft_note(const struct bench_draft *draft, struct bench_result *result);

/** Adds the memory of the draft beside a placed target. @return 0, or -1 with `err` set */
int bench_draft_memory(const struct bench_draft *draft, const struct placement *target,
                       struct memory_account *account, struct error *err);

/** Generation as predict_generation() says it, with the draft where there is one. */
int bench_draft_generate(const struct bench_draft *draft, struct timing *timing,
                         const struct placement *target, uint32_t depth, uint32_t tokens,
                         struct predict_options options, struct prediction *prediction,
                         struct error *err);

#endif
