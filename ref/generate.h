/* Prompts in, tokens out, and one checksum: what plans are compared by.
 *
 * The checksum is XXH64 over a slot's emitted tokens in order, for each the logits that it was
 * chosen from (n_vocab f32) and its id (32 bits), all little-endian; then XXH64 over the slots'
 * checksums. Logits of rejected drafts are not part of it, nor are any where devices pick tokens. */
#ifndef REF_GENERATE_H
#define REF_GENERATE_H

#include "ref/session.h"

/* How the next token is chosen from logits. */
struct sampling {
    float temperature; /* 0: the largest logit, the lower id among equals */
    uint64_t seed;     /* of the random numbers; each (slot, position) has its own */
};

/* What proposes tokens for a step to verify. */
enum generate_drafter {
    GENERATE_NO_DRAFTER,
    GENERATE_NGRAM, /* what followed the last tokens when they came before */
    GENERATE_GIVEN, /* what is known to come, with every third token wrong: for checks */
    GENERATE_NEXTN, /* the model's own next-token-prediction block */
};

struct generate_options {
    uint32_t tokens; /* to generate, of each slot */
    struct sampling sampling;
    bool picked; /* the session's devices pick tokens, by the largest logit */
    enum generate_drafter drafter;
    uint32_t draft_max;    /* tokens a round */
    const uint32_t *given; /* GENERATE_GIVEN: (slots, tokens); borrowed */
    struct session *nextn; /* GENERATE_NEXTN: of the drafter's placement; borrowed */
    uint32_t shift_at;     /* generated tokens after which the context is shifted; 0: never */
    uint32_t shift_keep, shift_count; /* tokens at the start that stay, and those dropped */
};

/* A slot's prompt, borrowed, and what came of it. */
struct generate_slot {
    const uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t *tokens;    /* (options.tokens), owned */
    uint64_t *checksums; /* (options.tokens): of everything up to each token, owned */
};

struct generation {
    uint64_t checksum; /* of all slots in order */
    uint32_t rounds;   /* decode steps */
    uint32_t drafted, accepted;
};

/**
 * Generates tokens for every slot together.
 *
 * @param session for a drafter other than GENERATE_NO_DRAFTER, it can undo draft_max tokens
 * @param slots   as many as the plan has; `tokens` and `checksums` are set
 * @return 0, or -1 with `err` set; generate_free_slots() in either case
 */
int generate(struct session *session, struct generate_slot *slots, uint32_t slot_count,
             struct generate_options options, struct generation *generation, struct error *err);
void generate_free_slots(struct generate_slot *slots, uint32_t slot_count);

/** Chooses a token from (n_vocab) logits. */
uint32_t generate_choose(const float *logits, uint32_t n_vocab, struct sampling sampling,
                         uint32_t slot, uint32_t position);

#endif
