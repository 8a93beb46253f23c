/* A schedule as the engine reads it. */
#ifndef SIM_ENGINE_PRIVATE_H
#define SIM_ENGINE_PRIVATE_H

#include "sim/engine.h"

struct engine_schedule {
    struct engine_task *tasks;
    size_t task_count;
    uint32_t *successor_first; /* task_count + 1 */
    uint32_t *successors;      /* dependencies and neighbours on queues, turned round */
    uint32_t *waits;           /* predecessors within the schedule, and 1 for the issue */
    uint32_t queue_head[ENGINE_QUEUES_MAX], queue_tail[ENGINE_QUEUES_MAX];
    uint64_t queues; /* those that any task uses */
};

#endif
