/* A model at work on a plan: slots with their tokens, the cells of their caches, and steps.
 * The output depends on tokens alone: not on the plan, the ubatch, or which slots share a step. */
#ifndef REF_SESSION_H
#define REF_SESSION_H

#include "ref/executor.h"

struct session; /* see session.c */

struct session_options {
    uint32_t undo_max;   /* tokens at the end of a step that session_undo() may take back */
    bool hidden;         /* session_hidden() is wanted */
    bool picks;          /* session_picked() is wanted instead of session_logits() */
    bool shuffled;       /* tasks of each program in a random order that its edges allow, ... */
    uint64_t order_seed; /* ... chosen by this */
    enum interpret_fault fault;
    executor_open *open; /* NULL: the interpreter */
    void *open_context;
};

/* A token to be computed: the next of its slot. */
struct session_token {
    uint32_t token, slot;
    bool output; /* logits are wanted */
};

/**
 * Slots are those of the placement's plan, and so are batch, ubatch and cache types.
 *
 * @param kernels NULL: the best that this CPU has
 * @return a session for session_free(), or NULL with `err` set
 */
struct session *session_new(const struct placement *placement, struct weights *weights,
                            const struct numbers *numbers, const struct ref_kernels *kernels,
                            struct session_options options, struct error *err);
void session_free(struct session *session);

/** The interpreter, where the session runs on it. */
struct interpreter *session_interpreter(struct session *session);
const struct model *session_model(const struct session *session);

/**
 * Computes tokens, in ubatches. Tokens of a slot are in order; slots may be mixed.
 *
 * @return 0, or -1 with `err` set (ERROR_USAGE: a context is full, a token is not in the
 *         vocabulary)
 */
int session_decode(struct session *session, const struct session_token *tokens, uint32_t count,
                   struct error *err);

/**
 * As session_decode, for a drafter that reads the target's hidden rows.
 *
 * @param hidden (count, n_embd), one row a token; NULL for models that read none
 */
int session_decode_hidden(struct session *session, const struct session_token *tokens,
                          const float *hidden, uint32_t count, struct error *err);

/** The residual row of the `index`-th token of the last session_decode(): (n_embd), where
 * options.hidden asked for it. Borrowed, as are logits. */
const float *session_hidden(const struct session *session, uint32_t index);

/** Logits of the `row`-th token with output of the last session_decode(): (n_vocab). Borrowed, and
 * gone with the next step, a shift among them. */
const float *session_logits(const struct session *session, uint32_t row);

/** The token of the largest logit of that row, the lower id among equals, where options.picks asked
 * devices for it. */
uint32_t session_picked(const struct session *session, uint32_t row);

/**
 * Gives the first `slots` slots tokens up to `length` that nothing is computed of: their rows of a
 * cache, and the states of recurrent layers, are what they were, at first zero. For what takes as
 * long whatever the values are.
 *
 * @return 0, or -1 with `err` set (ERROR_USAGE: the context is full)
 */
int session_fill(struct session *session, uint32_t slots, uint32_t length, struct error *err);

/** Tokens of a slot. */
uint32_t session_length(const struct session *session, uint32_t slot);

/** Takes back the last tokens of a slot: at most undo_max, and fewer than its last step had. */
void session_undo(struct session *session, uint32_t slot, uint32_t count);

/**
 * Keeps the first `length` tokens of a slot: none, or any number where nothing that they left has
 * been given up since, as the states of recurrent layers and rows before a window are.
 *
 * @return 0, or -1 with `err` set (ERROR_UNSUPPORTED)
 */
int session_truncate(struct session *session, uint32_t slot, uint32_t length, struct error *err);

/**
 * Drops `count` tokens of a slot from position `first` on; those behind move up, and their K
 * is rotated. The state of recurrent layers stays.
 *
 * @return 0, or -1 with `err` set
 */
int session_shift(struct session *session, uint32_t slot, uint32_t first, uint32_t count,
                  struct error *err);

#endif
