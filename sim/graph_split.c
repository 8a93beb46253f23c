#include "sim/graph_split.h"

enum { BACKEND_CPU = -1, NO_LAYER = -2 };

uint32_t graph_split_count(const struct program *program)
{
    const struct placement *placement = program->placement;
    bool one_backend = placement->plan.split == PLAN_SPLIT_TENSOR;
    int backend = BACKEND_CPU, split_layer = NO_LAYER;
    uint32_t count = 1;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];
        int next = backend;

        if (task->kind == TASK_SPLIT) {
            count += task->launches;
            split_layer = task->layer;
        } else if (task->kind == TASK_HOST_LAYER && task->layer != split_layer) {
            next = BACKEND_CPU;
        } else if (program_task_class(task->kind) == TASK_CLASS_KERNEL) {
            next = one_backend ? 0 : task->device;
        }
        count += next != backend;
        backend = next;
    }
    return count;
}
