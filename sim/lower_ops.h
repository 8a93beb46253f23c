/* The operations of a part of a layer, and where their operands lie. */
#ifndef SIM_LOWER_OPS_H
#define SIM_LOWER_OPS_H

#include "sim/lower_private.h"

/**
 * Appends an operation to those of the task that is appended next. All operands start as
 * OP_VALUE_NONE in the memory that device `d` computes in: the host's while a block is
 * lowered for it.
 *
 * @return the operation to fill in; a spare one after a failure
 */
struct program_op *lower_op(struct lowering *lowering, enum op_kind kind, uint32_t d, int layer);

/** An operand of device `d`, or of the host while a block is lowered for it. */
struct program_operand lower_at(const struct lowering *lowering, uint32_t d, enum op_value value);

/** An operand of the host. */
struct program_operand lower_at_host(enum op_value value);

/** Rows of `width` f32 from one memory to another, all tokens. */
void lower_op_copy(struct lowering *lowering, int layer, struct program_operand from,
                   struct program_operand to, uint64_t width);

/** The last part's sums become a result that joins the residual stream on device `d`. */
void lower_op_join(struct lowering *lowering, uint32_t d);

/** RMS norm of rows of n_embd by the tensor of a role. */
void lower_op_norm(struct lowering *lowering, uint32_t d, int layer, enum op_value from,
                   enum op_value to, enum tensor_role role);

/** A part ends: its result is to join. */
void lower_end_part(struct lowering *lowering, enum lower_part_kind kind, uint32_t layer);

/** A product with rows of a weight; `slice.axis` 1. */
struct program_op *lower_op_matmul(struct lowering *lowering, uint32_t d, int layer,
                                   const struct model_tensor *weight, struct program_slice slice,
                                   uint64_t rows, enum op_value from, enum op_value to);

/** A product over some columns, left as sums; `slice.axis` 0. */
struct program_op *lower_op_partial(struct lowering *lowering, uint32_t d, int layer,
                                    const struct model_tensor *weight, struct program_slice slice,
                                    uint64_t columns, enum op_value from);

/** Norms and rotation of query and key behind their projections; rows into the cache where it
 * lies in the memory that computes. */
void lower_op_rope(struct lowering *lowering, uint32_t layer, uint32_t d, bool resident);

/** Cached K of device `d`'s heads turned, in its memory or the host's. */
void lower_op_shift(struct lowering *lowering, uint32_t layer, uint32_t d);

/** What a drafter that reads the target's hidden rows computes before its first block. */
void lower_op_pair(struct lowering *lowering, uint32_t d);
bool lower_reads_hidden(const struct lowering *lowering);

/** Attention over the cache, or over window `place` of the ring if it is not below 0. */
void lower_op_attend(struct lowering *lowering, uint32_t layer, uint32_t d, int place);

/** New rows of K and V into a cache: that of the memory that computes, or a window. */
void lower_op_store(struct lowering *lowering, uint32_t layer, uint32_t d, int place);

/** The layer's kept rows of device `d`'s heads into the host's cache. */
void lower_op_store_rows(struct lowering *lowering, uint32_t layer, uint32_t d);

/** Attention of a task on device `d`: over its cache, or the window that was delivered. */
void lower_attention_ops(struct lowering *lowering, uint32_t layer, uint32_t d);

/** The attention's result times its gate. */
void lower_op_gate(struct lowering *lowering, uint32_t layer, uint32_t d);

/** Activation of gate times up: `rows` rows of `width` a token. */
void lower_op_glu(struct lowering *lowering, uint32_t layer, uint32_t d, uint32_t rows,
                  uint64_t width);

/** The shared experts' last product, and their gate. */
void lower_op_shared(struct lowering *lowering, uint32_t layer, uint32_t d,
                     const struct model_tensor *down);

/** The norm before a dense feed-forward part. */
enum tensor_role lower_ffn_norm(const struct lowering *lowering, uint32_t layer);

/** Convolution, delta rule and gated norm. */
void lower_op_delta_net(struct lowering *lowering, uint32_t layer, uint32_t d);

/** What the experts part computes behind the router's product. */
void lower_op_route(struct lowering *lowering, uint32_t layer, uint32_t d);

enum op_value lower_router_input(const struct lowering *lowering, uint32_t layer);
void lower_op_experts_norm(struct lowering *lowering, uint32_t layer, uint32_t d);

/** Products with the chosen experts: rows of a weight, or columns of the last one. */
void lower_op_experts(struct lowering *lowering, uint32_t layer, uint32_t d,
                      const struct model_tensor *weight, struct program_slice slice, uint64_t rows,
                      uint64_t columns);

/** The head: the first of device `d`'s rows, norm, product, and the way to the host. */
uint64_t lower_head_first(const struct lowering *lowering, uint32_t d);
void lower_op_head_norm(struct lowering *lowering, uint32_t d);
void lower_op_head(struct lowering *lowering, uint32_t d, const struct model_tensor *output,
                   struct program_slice slice, uint64_t rows);
void lower_op_logits(struct lowering *lowering, uint32_t d);

/** Recurrent state of device `d`'s heads between its memory and the host's. */
void lower_op_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool to_device);

#endif
