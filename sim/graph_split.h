/* Parts of a graph: the engine's scheduler cuts a step's graph wherever the backend
 * changes, and starts each part by itself. Source of the rule: ggml/src/ggml-backend.cpp,
 * ggml_backend_sched_split_graph. */
#ifndef SIM_GRAPH_SPLIT_H
#define SIM_GRAPH_SPLIT_H

#include "sim/program.h"

/**
 * Counts the parts of a step. The first one is the embedding's look-up on the CPU; the
 * devices of a tensor split are one backend. Work on the host in the middle of a layer
 * adds what its TASK_SPLIT says: the part on the CPU and the one behind it.
 */
uint32_t graph_split_count(const struct program *program);

#endif
