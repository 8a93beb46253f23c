/* The values of a model's tensors: from its GGUF file, or synthetic. */
#ifndef REF_WEIGHTS_H
#define REF_WEIGHTS_H

#include "ref/synth_block.h"
#include "sim/model.h"

struct weights; /* see weights.c */

/**
 * Maps the weights of a file (all parts of a split one) that `model` was read from.
 *
 * @return weights for weights_free(), or NULL with `err` set: ERROR_IO, or ERROR_INPUT for a file
 *         that is cut off or of the other byte order
 */
struct weights *weights_open_gguf(const struct model *model, const char *path, struct error *err);

/**
 * Synthetic weights: each tensor's bytes are a function of its name, type, shape, role and
 * `seed` alone (synth.h). A tensor is made when it is first asked for.
 */
struct weights *weights_synthetic(const struct model *model, uint64_t seed, struct error *err);

/**
 * The weights of a drafter made by model_draft_from_nextn(): those of the target's block and
 * head, shared.
 *
 * @param of_target has to outlive them
 */
struct weights *weights_nextn(const struct model *drafter, const struct model *target,
                              struct weights *of_target, struct error *err);

void weights_free(struct weights *weights);

/**
 * The bytes of tensor `index` of model.tensors, rows of tensor_type_row_bytes(type, ne[0])
 * one after the other, ne[1] rows, then ne[2] such matrices. Borrowed. Not for two threads at once.
 *
 * @return NULL with `err` set (ERROR_MEMORY)
 */
const void *weights_tensor(struct weights *weights, size_t index, struct error *err);

/** What the bytes of a synthetic tensor are made from, borrowed; NULL for others. */
const struct synth *weights_synth(const struct weights *weights, size_t index);

#endif
