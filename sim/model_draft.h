/* Draft models of the catalogue: sidecars that predict blocks of tokens for a target. */
#ifndef SIM_MODEL_DRAFT_H
#define SIM_MODEL_DRAFT_H

#include "sim/model.h"

/**
 * Builds a draft model: "Qwen3.8-27B-DFlash2:Q4_K_M", case ignored; without a mix
 * Q4_K_M. Two-dimensional tensors get the mix's default type. The output head is
 * the target's.
 *
 * @param target the model it drafts for; its head's type and vocabulary are taken
 * @return a model for model_free(), or NULL with `err` set
 */
struct model *model_draft_from_catalogue(const char *name_and_quant, const struct model *target,
                                         struct error *err);

/**
 * The next-token-prediction block of a model as a drafter of its own: the block, and the
 * model's head. The projection that joins the hidden row with the embedding is counted in
 * memory, not in time.
 *
 * @return a model for model_free(), or NULL with `err` set (ERROR_USAGE: it has no such block)
 */
struct model *model_draft_from_nextn(const struct model *target, struct error *err);

/** Whether a name, with or without a mix, is one of a draft in the catalogue. */
bool model_draft_is_known(const char *name_and_quant);

/** Names of all drafts for a target: "Qwen3.8-27B-DSpark and Qwen3.8-27B-DFlash2"; "" without any.
 *
 * @param size 8 or more
 */
void model_draft_names(const char *target, char *text, size_t size);

/** The name of the first draft in the catalogue for a target and a kind ("DFlash2"), or NULL. */
const char *model_draft_find(const char *target, const char *kind);

#endif
