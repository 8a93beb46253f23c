/* Layers and experts on the host, and how the issuing thread serves them.
 * docs/time-model.md, "Issue order". */
#include "sim/lower_ops.h"

/* ---- layers on the host ---- */

bool lower_is_offloaded(const struct lowering *lowering, uint32_t layer)
{
    return lowering->placement->owner[layer] < 0 && lowering->step.tokens >= LOWER_OFFLOAD_TOKENS &&
           lowering->placement->plan.split != PLAN_SPLIT_TENSOR;
}

/* Whether device `d` computes part of a block in this step. */
bool lower_computes(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    return placement_has_layer(lowering->placement, layer, d) ||
           (d == 0 && lower_is_offloaded(lowering, layer));
}

/* Bytes that a block reads of its weights: of experts, those that the tokens choose. */
static double weight_bytes(const struct lowering *lowering, uint32_t layer)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double sum = 0;

    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const struct model_tensor *tensor = &lowering->model->tensors[l->tensor_first + i];
        double share = 1;

        if (tensor->ne[2] > 1 && l->n_expert > 0)
            share = (double)l->n_expert_used * lowering->step.tokens / l->n_expert;
        sum += (share < 1 ? share : 1) * (double)tensor->bytes;
    }
    return sum;
}

/* A block on the CPU, which the issuing thread runs with its pool. */
/* The operations of a block in the host's memory; its slices are whole, those of device 0. */
static void block_ops(struct lowering *lowering, uint32_t layer)
{
    const struct model_layer *l = &lowering->model->layers[layer];

    lowering->on_host = true;
    lower_mixer_head(lowering, layer, 0);
    lower_mixer_tail(lowering, layer, 0);
    lower_end_part(lowering, LOWER_PART_MIXER, layer);
    if (l->n_ff > 0) {
        lower_dense(lowering, layer, 0);
        lower_end_part(lowering, LOWER_PART_DENSE, layer);
    }
    if (l->n_expert > 0) {
        lower_experts(lowering, layer, 0);
        lower_end_part(lowering, LOWER_PART_EXPERTS, layer);
    }
    lower_op_join(lowering, 0);
    lowering->part = LOWER_PART_NONE;
    lowering->on_host = false;
}

void lower_on_host(struct lowering *lowering, uint32_t layer)
{
    const struct plan *plan = &lowering->placement->plan;
    const struct model_layer *l = &lowering->model->layers[layer];

    block_ops(lowering, layer);
    lower_add(
        lowering,
        (struct program_task){
            .kind = TASK_HOST_LAYER,
            .device = PROGRAM_AT_HOST,
            .layer = (int32_t)layer,
            .tensor = -1,
            .blocking = true,
            .queues = UINT64_C(1) << PROGRAM_QUEUE_WORKERS,
            .bytes = weight_bytes(lowering, layer) +
                     8.0 * (double)(model_layer_recurrent_state(l) + model_layer_conv_state(l)),
            .window = !model_layer_has_kv(l) ? PROGRAM_WINDOW_NONE
                      : l->window > 0        ? PROGRAM_WINDOW_SLIDING
                                             : PROGRAM_WINDOW_BASE,
            .bytes_per_cell = (double)(tensor_type_row_bytes(plan->type_k, model_layer_k_row(l)) +
                                       tensor_type_row_bytes(plan->type_v, model_layer_v_row(l)))});
}

/* In our runtime on the compute queue: the part that ends here may have been joined by the copy of
 * the hidden rows, which is there too. */
static void residual_to_host(struct lowering *lowering, uint32_t d)
{
    struct program_task copy = lower_blocking_copy(
        TASK_ACTIVATIONS, d, -1, 4.0 * lowering->model->n_embd * lowering->step.tokens);

    if (lowering->own) {
        copy.launches = 1;
        copy.queues = UINT64_C(1) << program_queue_compute(d);
    } else {
        lower_sync(lowering, d, 1);
    }
    lower_op_join(lowering, d);
    lowering->part = LOWER_PART_NONE;
    lower_op_copy(lowering, -1, lower_at(lowering, d, OP_VALUE_RESIDUAL),
                  lower_at_host(OP_VALUE_RESIDUAL), lowering->model->n_embd);
    lower_add(lowering, copy);
}

/* The head on the CPU; `at` is the device that has the residual stream, below 0 for the host. */
void lower_head_on_host(struct lowering *lowering, int at)
{
    const struct model_tensor *output = model_find_tensor(lowering->model, -1, TENSOR_ROLE_OUTPUT);

    if (output == NULL)
        output = model_find_tensor(lowering->model, -1, TENSOR_ROLE_TOKEN_EMBD);
    if (output == NULL || lowering->step.outputs == 0)
        return;
    if (at >= 0)
        residual_to_host(lowering, (uint32_t)at);
    lowering->on_host = true;
    lower_op_head_norm(lowering, 0);
    lower_op_head(lowering, 0, output, (struct program_slice){.axis = 1}, output->ne[1]);
    lowering->on_host = false;
    lower_add(lowering,
              (struct program_task){.kind = TASK_HOST_LAYER,
                                    .device = PROGRAM_AT_HOST,
                                    .layer = -1,
                                    .tensor = (int32_t)(output - lowering->model->tensors),
                                    .type = output->type,
                                    .rows = output->ne[1],
                                    .columns = output->ne[0],
                                    .tokens = lowering->step.outputs,
                                    .blocking = true,
                                    .queues = UINT64_C(1) << PROGRAM_QUEUE_WORKERS,
                                    .bytes = (double)output->bytes});
}

/* The weights of a block, or of its experts, come to device `d`. */
static void stage(struct lowering *lowering, uint32_t d, uint32_t layer, bool experts)
{
    struct program_op *op = lower_op(lowering, OP_STAGE, d, (int)layer);

    op->rows = experts;
}

/* Weights on their way to the device that computes an offloaded block. */
void lower_ship_weights(struct lowering *lowering, uint32_t layer)
{
    /* The block before may join by a norm of its own, whose weight the next ones replace. */
    lower_op_join(lowering, 0);
    lowering->part = LOWER_PART_NONE;
    stage(lowering, 0, layer, false);
    lower_add(lowering, (struct program_task){.kind = TASK_WEIGHTS,
                                              .device = 0,
                                              .layer = (int32_t)layer,
                                              .tensor = -1,
                                              .launches = 1,
                                              .bytes = weight_bytes(lowering, layer),
                                              .queues = UINT64_C(1) << program_queue_compute(0)});
}

/* ---- experts on the host ---- */

/* Bytes of the experts of a block that the step's tokens choose. */
static double expert_bytes(const struct lowering *lowering, uint32_t layer)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double share = (double)l->n_expert_used * lowering->step.tokens / l->n_expert, sum = 0;

    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const struct model_tensor *tensor = &lowering->model->tensors[l->tensor_first + i];

        if (tensor->ne[2] > 1)
            sum += (share < 1 ? share : 1) * (double)tensor->bytes;
    }
    return sum;
}

static void copy_route(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    lower_op_copy(lowering, (int)layer, lower_at(lowering, d, OP_VALUE_ROUTE),
                  lower_at_host(OP_VALUE_ROUTE), lowering->model->layers[layer].n_expert_used);
}

void lower_host_experts(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    double activations = 4.0 * lowering->model->n_embd * lowering->step.tokens;
    struct program_task out = lower_blocking_copy(TASK_ACTIVATIONS, d, (int)layer, activations);
    struct program_task in = lower_blocking_copy(TASK_INPUT, d, (int)layer, activations);
    uint32_t index;

    if (!lowering->own) {
        lower_host(lowering, TASK_SPLIT, (int)layer, 0, 2);
        lower_sync(lowering, d, 0);
    }
    if (lowering->step.tokens >= LOWER_OFFLOAD_TOKENS) {
        stage(lowering, d, layer, true);
        lower_add(lowering,
                  (struct program_task){.kind = TASK_WEIGHTS,
                                        .device = (int16_t)d,
                                        .layer = (int32_t)layer,
                                        .tensor = -1,
                                        .launches = 1,
                                        .bytes = expert_bytes(lowering, layer),
                                        .queues = UINT64_C(1) << program_queue_compute(d)});
        return;
    }
    lower_op_copy(lowering, (int)layer, lower_at(lowering, d, OP_VALUE_NORMED),
                  lower_at_host(OP_VALUE_NORMED), lowering->model->n_embd);
    copy_route(lowering, layer, d);
    lower_to_host(lowering, out);
    lowering->on_host = true;
    lower_expert_products(lowering, layer, d);
    lowering->on_host = false;
    lower_add(lowering, (struct program_task){.kind = TASK_HOST_LAYER,
                                              .device = PROGRAM_AT_HOST,
                                              .layer = (int32_t)layer,
                                              .tensor = -1,
                                              .blocking = true,
                                              .queues = UINT64_C(1) << PROGRAM_QUEUE_WORKERS,
                                              .bytes = expert_bytes(lowering, layer)});
    if (lowering->sums_sent != LOWER_NO_TASK)
        lower_depend(lowering, lowering->sums_sent); /* the sums have left for the device before */
    if (lowering->placement->slices[layer].n_ff_exp[d] > 0) {
        lower_op_copy(lowering, (int)layer, lower_at_host(OP_VALUE_SUMS),
                      lower_at(lowering, d, OP_VALUE_SUMS), lowering->model->n_embd);
        lowering->tail[d] = (uint32_t)lowering->program->task_count;
    }
    index = lower_to_device(lowering, in);
    if (lowering->own)
        lowering->sums_sent = index;
}
