/* Throughput of a workload under a placement: steps are simulated one after the
 * other, with what one leaves unfinished going on in the next. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include "sim/timing.h"

/* Which tool a workload imitates: they differ in when logits are wanted. */
enum predict_tool {
    PREDICT_LLAMA_BENCH,      /* logits at the end of each batch of -b tokens */
    PREDICT_LLAMA_COMPLETION, /* logits at the end of the prompt */
};

struct predict_options {
    enum predict_tool tool;
    bool shared_prompt; /* slots share the cells of the prompt (unified cache) */
    bool full_stepping; /* simulate every decode step, even when steps repeat exactly */
};

struct prediction {
    double time_s;
    uint32_t tokens;
    double tokens_per_s;
    struct timing_bound bound;
    uint64_t steps, simulated_steps, tasks; /* tasks: simulated ones */
};

/** The ubatch of a prompt of `tokens` tokens that begins behind `done` of them. Batches of -b
 * tokens are cut into ubatches. */
struct program_step predict_prompt_step(const struct placement *placement, uint32_t tokens,
                                        uint32_t done, enum predict_tool tool);

/** A token of each slot; with `rebuild` the first in a window, whose graph is built anew. */
struct program_step predict_decode_step(const struct placement *placement, bool sample,
                                        bool rebuild);

/** The windows of the `step`-th such step (from 0) behind `depth` tokens a slot. */
struct program_cells predict_decode_cells(const struct placement *placement, uint32_t depth,
                                          uint32_t step, bool shared_prompt);

/**
 * Processing `tokens` prompt tokens behind `depth` tokens that are in the cache.
 *
 * @return 0, or -1 with `err` set
 */
int predict_prompt(struct timing *timing, const struct placement *placement, uint32_t depth,
                   uint32_t tokens, struct predict_options options, struct prediction *prediction,
                   struct error *err);

/** Generating `tokens` tokens in each slot of the plan, one a step and slot, behind `depth`
 * tokens each. Tokens of the prediction are those of all slots. */
int predict_generation(struct timing *timing, const struct placement *placement, uint32_t depth,
                       uint32_t tokens, struct predict_options options,
                       struct prediction *prediction, struct error *err);

/**
 * Cells that a test of llama-bench's needs where no context is given: slots are filled to `n_depth`
 * and generate `n_gen` tokens each, a prompt is of one of them. With a cache each they have equal
 * parts.
 */
uint32_t predict_context(const struct plan *plan, uint32_t n_prompt, uint32_t n_gen,
                         uint32_t n_depth);

#endif
