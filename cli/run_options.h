/* The call of lopside run, read. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include "cli/backend.h"
#include "cli/plan_options.h"
#include "ref/generate.h"

struct run_options {
    struct plan_options plans; /* one combination */
    const char *prompt;        /* -p, or NULL */
    const char *token_ids;     /* --tokens, or NULL */
    const char *isa;           /* NULL: the best */
    struct backend_options backend;
    const char *record, *check_against; /* files, or NULL */
    uint64_t weights_seed, order_seed;
    bool shuffled, json, help;
    struct generate_options generate; /* but for drafts */
};

/** Reads the call. @return CLI_OK, or an exit status after a message */
int run_options_parse(int argc, char **argv, struct run_options *options);
void run_options_close(struct run_options *options);

/**
 * Devices where the call names no machine: as many as its ratios have entries.
 *
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int run_options_default_machine(struct run_options *options, struct error *err);

/* The tokens of a prompt of each slot. */
struct run_prompts {
    uint32_t *tokens; /* of all, one after the other; owned */
    uint32_t *first;  /* (slots + 1): where each slot's begin; owned */
};

/** Reads --tokens: ids joined by commas, slots by slashes; one list is for all slots.
 *
 * @return 0, or -1 with `err` set; run_prompts_close() in either case */
int run_prompts_read(struct run_prompts *prompts, const char *ids, uint32_t slots, uint32_t n_vocab,
                     struct error *err);

/** The same tokens for all slots. */
int run_prompts_repeat(struct run_prompts *prompts, const uint32_t *tokens, uint32_t count,
                       uint32_t slots, struct error *err);
void run_prompts_close(struct run_prompts *prompts);

#endif
