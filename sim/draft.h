/* A drafter beside its target: which model proposes, where it lies, and what memory it takes.
 * Source: the server's loop and common/speculative.cpp of llama.cpp; docs/time-model.md,
 * "Drafts". */
#ifndef SIM_DRAFT_H
#define SIM_DRAFT_H

#include "sim/memory.h"
#include "sim/speculation.h"

struct draft {
    const struct model *target; /* borrowed */
    struct model *model;        /* owned */
    enum speculation_kind kind;
    bool shares_head; /* the output head is the target's, and takes no memory again */
};

/**
 * Opens the drafter that `name` means: a draft of the catalogue, another model of the
 * catalogue or a GGUF file; NULL takes the target's own next-token-prediction block.
 *
 * @return 0, or -1 with `err` set: ERROR_USAGE for a drafter that cannot serve this target,
 *         with the reason and what would work
 */
int draft_open(struct draft *draft, const char *name, const struct model *target,
               struct error *err);
void draft_close(struct draft *draft);

/**
 * Places the drafter on the target's devices, all its layers and its f16 cache, layer by
 * layer in the target's -ts. The target's own block lies where the target has it.
 * Its context is as long as the target's.
 *
 * @return a placement for placement_free(), or NULL with `err` set
 */
struct placement *draft_place(const struct draft *draft, const struct placement *target,
                              struct error *err);

/**
 * Adds to the target's account, in bytes: weights, cache and compute buffer of the drafter,
 * and n_max snapshots of the target's recurrent state where the drafter's kind wants them.
 * The drafter shares the target's context on each device.
 */
void draft_add_memory(const struct draft *draft, const struct placement *target,
                      const struct placement *placed, uint32_t n_max,
                      struct memory_account *account);

#endif
