/* A context shift: each memory turns the cached K that lies in it. The engine's time for it
 * is in context_shift.c. */
#include <stdlib.h>

#include "sim/lower_ops.h"

static bool lies_on(const struct placement *placement, uint32_t layer, uint32_t d)
{
    return placement_has_layer(placement, layer, d) && placement->slices[layer].kv_heads[d] > 0 &&
           (placement->kv_resident[layer] >> d & 1) != 0;
}

/* By how much each row of a cache moves. */
static void send_shifts(struct lowering *lowering, uint32_t d)
{
    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++) {
        bool sliding = lowering->model->layers[layer].window > 0, sent = false;

        for (uint32_t before = 0; before < layer && !sent; before++)
            sent = lies_on(lowering->placement, before, d) &&
                   (lowering->model->layers[before].window > 0) == sliding;
        if (!sent && lies_on(lowering->placement, layer, d)) {
            struct program_op *op = lower_op(lowering, OP_COPY, d, -1);

            op->a = lower_at_host(OP_VALUE_SHIFTS);
            op->out.value = OP_VALUE_SHIFTS;
            op->a.slot = op->out.slot = op->sliding = sliding;
            lower_add(lowering, lower_blocking_copy(TASK_INPUT, d, -1, 0));
        }
    }
}

/* The part of a layer's cache that is in the host's memory: that of a layer of its own, whole. */
static void shift_on_host(struct lowering *lowering, uint32_t layer)
{
    const struct placement *placement = lowering->placement;
    bool owned = placement->owner[layer] < 0, any = false;

    lowering->on_host = true;
    for (uint32_t d = 0; d < placement->device_count; d++) {
        bool here = owned ? d == 0
                          : placement_has_layer(placement, layer, d) &&
                                !lies_on(placement, layer, d) &&
                                placement->slices[layer].kv_heads[d] > 0;

        if (here)
            lower_op_shift(lowering, layer, d);
        any = any || here;
    }
    lowering->on_host = false;
    if (any)
        lower_host(lowering, TASK_KV_STORE, (int)layer, 0, 0);
}

struct program *program_lower_shift(const struct placement *placement, struct error *err)
{
    struct lowering lowering = {.placement = placement,
                                .model = placement->model,
                                .step = {.tokens = 1},
                                .direct = true,
                                .err = err};

    lowering.program = calloc(1, sizeof *lowering.program);
    if (lowering.program == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a program");
        return NULL;
    }
    lowering.program->placement = placement;
    for (uint32_t d = 0; d < placement->device_count; d++)
        send_shifts(&lowering, d);
    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++) {
        if (!model_layer_has_kv(&placement->model->layers[layer]))
            continue;
        shift_on_host(&lowering, layer);
        for (uint32_t d = 0; d < placement->device_count; d++)
            if (lies_on(placement, layer, d)) {
                lower_op_shift(&lowering, layer, d);
                lower_kernel(&lowering, d, (int)layer,
                             (struct program_task){
                                 .kind = TASK_ROPE, .tensor = -1, .kernels = 1, .tokens = 1});
            }
    }
    for (uint32_t d = 0; d < placement->device_count; d++)
        lower_sync(&lowering, d, 1);
    if (lowering.failed) {
        program_free(lowering.program);
        return NULL;
    }
    return lowering.program;
}
