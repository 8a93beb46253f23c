/* Generation with a draft model: draft a block, verify it in one step of the
 * target, keep what the target agrees with. Source: the server's loop in llama.cpp;
 * docs/time-model.md, "Drafts". */
#ifndef SIM_SPECULATION_H
#define SIM_SPECULATION_H

#include "sim/predict.h"

/* How a drafter proposes n tokens, and what it does with the n + 1 verified ones. */
enum speculation_kind {
    SPECULATION_BLOCK, /* one step of n + 1 tokens; then the verified rows go into its cache */
    SPECULATION_NEXTN, /* n steps of the target's own prediction block, one token each; as above */
    SPECULATION_MODEL, /* n steps of a smaller model, one token each; as above. The target keeps
                          no snapshots of a recurrent state; its checkpoints are not modelled */
};

/* Acceptance where none is stated: what the first row of s002-h3 with drafting yields. */
#define SPECULATION_USUAL_ACCEPTANCE 0.70

/* A drafter that proposes n_max tokens a round. */
struct speculation {
    enum speculation_kind kind;
    const struct placement *draft; /* of the draft model; NULL: no drafting cost (n-gram) */
    uint32_t n_max;
    double acceptance; /* probability that a drafted token is kept, given those before it were */
};

/**
 * Tokens that a round yields on average: the accepted ones and the target's own next,
 *
 *   (1 - a^(n+1)) / (1 - a)
 *
 * for independent acceptances a of n tokens.
 */
double speculation_tokens_per_round(double acceptance, uint32_t n_max);

/**
 * Predicts generation of `tokens` tokens behind `depth`, of one sequence. Each round costs
 * the drafter's steps by its kind, a verify step of n_max + 1 tokens with logits, and a step
 * that gives the verified rows to the drafter's cache; none of them overlap.
 *
 * @return 0, or -1 with `err` set
 */
int speculation_predict(struct timing *timing, const struct placement *placement,
                        const struct speculation *speculation, uint32_t depth, uint32_t tokens,
                        struct predict_options options, struct prediction *prediction,
                        struct error *err);

#endif
