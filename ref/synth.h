/* Synthetic tensors: bytes that are a function of a tensor's name, type, shape, role and a
 * seed alone. Any part of a tensor can be made by itself, in any order, on any machine. */
#ifndef REF_SYNTH_H
#define REF_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ref/synth_block.h"
#include "sim/model.h"

/** Whether values of a type can be made: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K. */
bool synth_makes_type(enum tensor_type type);

/**
 * Prepares a tensor. What its values look like depends on its role:
 *
 *   weights of products     mean 0, standard deviation 1 / sqrt(ne[0])
 *   attn_output, ssm_out    a quarter of that: what a layer brings from other tokens must not drown
 *                           what a token has of its own, or all choose the same experts
 *   token_embd              deviation 1, for the same reason; where it is the output head as well,
 *                           that of a product: else a token would mostly be followed by itself
 *   norms                   1 +- 0.09
 *   ssm_a                   -1 .. -0.05 (it holds -exp(A_log))
 *   and so on, see synth.c; all but the first are float types
 *
 * @param tied whether the model's token_embd is its output head (model.tied_embeddings)
 * @return 0, or -1 with `err` set (ERROR_UNSUPPORTED names tensor and type)
 */
int synth_init(struct synth *synth, const struct model_tensor *tensor, bool tied, uint64_t seed,
               struct error *err);

/**
 * Makes `size` bytes of a tensor from byte `offset` on. The bytes do not depend on how a
 * tensor is cut into calls; calls may come from several threads.
 *
 * @param bytes aligned as the values of the type are
 */
void synth_bytes(const struct synth *synth, uint64_t offset, void *bytes, size_t size);

#endif
