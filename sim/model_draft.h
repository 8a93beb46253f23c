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

/** The name of the first draft in the catalogue for a target and a kind ("DFlash2"), or NULL. */
const char *model_draft_find(const char *target, const char *kind);

#endif
