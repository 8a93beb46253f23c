/* A context shift: cells are dropped and the tokens behind them move up, so the K of each
 * moved cell is rotated by as many positions. The engine does it before the next step, with
 * a graph of its own, over every layer that has a cache.
 *
 *   rotation  values x rope_s               a cache on the host: by the CPU, but never faster
 *                                           than reading and writing K at memory_gbs
 *             2 x bytes of K / memory rate  a cache on a device
 *   shift     rotation + build_s            the rotation's graph
 *             + reserve_s                   the worst case's buffers are planned anew
 *             + a step with a new graph less a replayed one
 *
 * The rotation covers the used cells, padded to 256, or the whole allocated cache; the
 * latter is what llama.cpp does, and what its fork did before a fix, and still does with
 * several caches. Sliding-window layers count like the others, as if their cache were as
 * long as that of the rest. That is inferred: docs/time-model.md, "Windows and steps".
 *
 * Source of what is rotated: src/llama-kv-cache.cpp of llama.cpp, build_graph_shift. The
 * other terms are a model, and reserve_s is fitted. */
#ifndef SIM_CONTEXT_SHIFT_H
#define SIM_CONTEXT_SHIFT_H

#include "sim/timing.h"

/** Seconds for rotating K of `cells` cells in every layer. */
double context_shift_rotation_s(const struct placement *placement, uint32_t cells);

/** Cells that a shift covers while `used` of the cache hold a token. */
uint32_t context_shift_cells(const struct placement *placement, uint32_t used, bool whole_cache);

/**
 * What the step after a shift costs above one that replays its graph.
 *
 * @param whole_cache  the rotation covers the allocated cache, not only the used cells
 * @param cost_s       set to seconds
 * @return 0, or -1 with `err` set
 */
int context_shift_cost(struct timing *timing, const struct placement *placement, uint32_t used,
                       bool whole_cache, double *cost_s, struct error *err);

#endif
