/* What the parts of lowering share. */
#ifndef SIM_LOWER_PRIVATE_H
#define SIM_LOWER_PRIVATE_H

#include "sim/program.h"

struct lowering {
    struct program *program;
    const struct placement *placement;
    const struct model *model;
    struct program_step step;
    bool direct;            /* kernels are launched one by one; else parts are replayed graphs */
    uint32_t open;          /* bit d: device d's current graph part has been launched */
    size_t task_capacity, dependency_capacity;
    struct error *err;
    bool failed;
};

/**
 * Appends a task and returns its index. After a failure it does nothing, so
 * that callers need to look at `failed` only once, at the end.
 */
uint32_t lower_add(struct lowering *lowering, struct program_task task);

/** Makes the task appended last depend on an earlier one. */
void lower_depend(struct lowering *lowering, uint32_t on);

/** A kernel task of device `d` in block `layer`, launched as the step's mode says. */
void lower_kernel(struct lowering *lowering, uint32_t d, int layer, struct program_task task);

/** Ends device `d`'s current graph part: the next kernel is launched anew. */
void lower_break(struct lowering *lowering, uint32_t d);

/* Parts of block `layer` on device `d`: up to K and V, from attention to the
 * (partial) output projection, and the feed-forward part. */
void lower_mixer_head(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_mixer_tail(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_feed_forward(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_output_head(struct lowering *lowering, uint32_t d);

/** How many partial results the feed-forward part of a block leaves to be reduced. */
uint32_t lower_feed_forward_partials(const struct model_layer *layer, bool parallel_experts);

#endif
