/* Timelines of simulated steps. */
#ifndef SIM_TIMELINE_SIMULATE_H
#define SIM_TIMELINE_SIMULATE_H

#include "sim/timeline.h"
#include "sim/timing.h"

/**
 * A step behind one equal to it, as `lopside program --times` has it. What the first leaves
 * unfinished is under way, but not shown.
 *
 * @param timing of `placement`, which has to outlive the timeline
 * @param depth  tokens in the cache before, for people
 * @return a timeline for timeline_free(), or NULL with `err` set
 */
struct timeline *timeline_simulate_step(struct timing *timing, const struct placement *placement,
                                        struct program_step step, uint32_t depth,
                                        struct program_cells cells, struct error *err);

struct timeline_workload {
    uint32_t depth;     /* tokens of each slot in the cache before */
    uint32_t prompt;    /* tokens of a prompt, in its ubatches; 0: none */
    uint32_t generated; /* steps of a token of each slot behind it; 0: none */
    bool sample;        /* the host chooses each token from its logits */
};

/** The steps of a workload, of a prompt, generation or both, as `lopside bench` predicts it.
 * @return as timeline_simulate_step() */
struct timeline *timeline_simulate_workload(struct timing *timing,
                                            const struct placement *placement,
                                            struct timeline_workload workload, struct error *err);

/**
 * The steps of another timeline, with its tokens, outputs and windows.
 *
 * @param like without context shifts
 * @return as timeline_simulate_step()
 */
struct timeline *timeline_simulate_like(struct timing *timing, const struct placement *placement,
                                        const struct timeline *like, struct error *err);

#endif
