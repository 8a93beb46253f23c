/* What is on the host: whole layers, caches and recurrent states, and how the issuing
 * thread serves them. docs/time-model.md, "Issue order". */
#include "sim/lower_private.h"

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
void lower_on_host(struct lowering *lowering, uint32_t layer)
{
    const struct plan *plan = &lowering->placement->plan;
    const struct model_layer *l = &lowering->model->layers[layer];

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

void lower_head_on_host(struct lowering *lowering)
{
    const struct model_tensor *output = model_find_tensor(lowering->model, -1, TENSOR_ROLE_OUTPUT);

    if (output == NULL)
        output = model_find_tensor(lowering->model, -1, TENSOR_ROLE_TOKEN_EMBD);
    if (output == NULL || lowering->step.outputs == 0)
        return;
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

/* Weights on their way to the device that computes an offloaded block. */
void lower_ship_weights(struct lowering *lowering, uint32_t layer)
{
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

void lower_host_experts(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    double activations = 4.0 * lowering->model->n_embd * lowering->step.tokens;
    struct program_task out = lower_blocking_copy(TASK_ACTIVATIONS, d, (int)layer, activations);
    struct program_task in = lower_blocking_copy(TASK_INPUT, d, (int)layer, activations);

    lower_host(lowering, TASK_SPLIT, (int)layer, 0, 2);
    lower_sync(lowering, d, 0);
    if (lowering->step.tokens >= LOWER_OFFLOAD_TOKENS) {
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
    lower_add(lowering, out);
    lower_add(lowering, (struct program_task){.kind = TASK_HOST_LAYER,
                                              .device = PROGRAM_AT_HOST,
                                              .layer = (int32_t)layer,
                                              .tensor = -1,
                                              .blocking = true,
                                              .queues = UINT64_C(1) << PROGRAM_QUEUE_WORKERS,
                                              .bytes = expert_bytes(lowering, layer)});
    lower_add(lowering, in);
}

/* ---- a cache on the host ---- */

static bool is_delivered(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;

    return placement_has_layer(placement, layer, d) && placement->slices[layer].kv_heads[d] > 0 &&
           (placement->kv_resident[layer] >> d & 1) == 0;
}

bool lower_visits_host_cache(const struct lowering *lowering, uint32_t layer)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (is_delivered(lowering, layer, d))
            return true;
    return false;
}

struct cache_row {
    double bytes; /* of a row on the device's side */
    bool strided; /* a part of the host's row */
};

static struct cache_row cache_row(const struct lowering *lowering, uint32_t layer, uint32_t d,
                                  char part)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    uint64_t k, v;

    placement_kv_row(placement, layer, d, &k, &v);
    return (struct cache_row){
        .bytes = (double)(part == 'k' ? tensor_type_row_bytes(placement->plan.type_k, k)
                                      : tensor_type_row_bytes(placement->plan.type_v, v)),
        .strided = placement->slices[layer].kv_heads[d] < l->n_head_kv};
}

/* New rows go to the host: the fork casts to a quantised cache type on the device
 * first; otherwise they go as f32 and the host converts. */
static void store_rows(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    const struct placement *placement = lowering->placement;
    double tokens = lowering->step.tokens;
    uint64_t k, v;
    bool cast = placement->plan.schedule == PLAN_SCHEDULE_LLAMA_CPP_FORK &&
                tensor_type_info(placement->plan.type_k)->quantised;
    struct program_task copy = lower_blocking_copy(TASK_KV_ROWS, d, (int)layer, 0);

    copy.launches = d > 0 && is_delivered(lowering, layer, 0);
    placement_kv_row(placement, layer, d, &k, &v);
    copy.part = part;
    copy.bytes = tokens * (cast ? cache_row(lowering, layer, d, part).bytes
                                : 4.0 * (double)(part == 'k' ? k : v));
    if (copy.bytes > 0)
        lower_add(lowering, copy);
}

static void deliver_window(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    struct cache_row row = cache_row(lowering, layer, d, part);
    struct program_task copy = lower_blocking_copy(TASK_KV_WINDOW, d, (int)layer, 0);

    copy.part = part;
    copy.launches = d > 0 && is_delivered(lowering, layer, 0);
    copy.window =
        lowering->model->layers[layer].window > 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE;
    copy.bytes_per_cell = row.bytes * lower_streams(lowering);
    copy.row_bytes = row.strided ? row.bytes : 0;
    copy.pageable = !lowering->placement->plan.kv_pinned;
    if (row.bytes > 0)
        lower_add(lowering, copy);
}

/* Between K and V and attention: store the new rows, deliver the windows. All of it
 * by the host thread, one device after the other, with the devices idle. The small
 * costs of the first device's copies are part of the two splits. */
void lower_visit_host_cache(struct lowering *lowering, uint32_t layer)
{
    uint32_t count = lowering->placement->device_count;
    double stored = 0;

    lower_host(lowering, TASK_SPLIT, (int)layer, 0, 2);
    for (uint32_t d = 0; d < count; d++)
        if (is_delivered(lowering, layer, d))
            lower_sync(lowering, d, 0);
    for (const char *part = "kv"; *part != '\0'; part++)
        for (uint32_t d = 0; d < count; d++)
            if (is_delivered(lowering, layer, d))
                store_rows(lowering, layer, d, *part);
    for (uint32_t d = 0; d < count; d++)
        if (is_delivered(lowering, layer, d))
            stored += 2 * (cache_row(lowering, layer, d, 'k').bytes +
                           cache_row(lowering, layer, d, 'v').bytes);
    lower_host(lowering, TASK_KV_STORE, (int)layer, stored * lowering->step.tokens, 0);
    for (const char *part = "kv"; *part != '\0'; part++)
        for (uint32_t d = 0; d < count; d++)
            if (is_delivered(lowering, layer, d))
                deliver_window(lowering, layer, d, *part);
}

/* A recurrent state on the host comes to the device for its layer and goes back. What goes
 * back of the convolution is the end of its input, a strided view that is copied as the
 * contiguous block around it: the whole input of the ubatch. */
void lower_visit_host_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool before)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double sequences = lower_sequences(lowering);
    double state = 4.0 * sequences * (double)model_layer_recurrent_state(l);
    double conv = 4.0 * sequences * (double)model_layer_conv_state(l);
    double conv_input = conv / (l->gdn_conv_kernel - 1) *
                        (lowering->step.tokens / sequences + l->gdn_conv_kernel - 1);
    struct program_task copy =
        lower_blocking_copy(before ? TASK_STATE_IN : TASK_STATE_OUT, d, (int)layer,
                            state + (before ? conv : conv_input));

    copy.pageable = true;
    if (before) {
        lower_host(lowering, TASK_SPLIT, (int)layer, 0, 6);
        lower_host(lowering, TASK_HOST_STATE, (int)layer, 2 * (state + conv), 0);
    }
    lower_sync(lowering, d, 0);
    lower_add(lowering, copy);
}
