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

/* Acceptance of the first drafted token where none is stated, and what that of each further
 * one is of the one before: what rows s002-h3-03 and -07 yield, 2 and 8 drafted tokens. */
#define SPECULATION_USUAL_ACCEPTANCE 0.77
#define SPECULATION_ACCEPTANCE_DECAY 0.86

/* A drafter that proposes n_max tokens a round. */
struct speculation {
    enum speculation_kind kind;
    const struct placement *draft; /* of the draft model; NULL: no drafting cost (n-gram) */
    uint32_t n_max;
    double acceptance; /* probability that the first drafted token is kept */
};

/**
 * Tokens that a round yields on average: the accepted ones and the target's own next,
 *
 *   1 + a + a (a d) + a (a d) (a d^2) + ...                     n + 1 terms
 *
 * where a d^i is the probability that token i + 1 is kept if those before it were: the
 * further ahead, the less a drafter knows. d is SPECULATION_ACCEPTANCE_DECAY.
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
