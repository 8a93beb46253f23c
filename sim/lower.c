/* The order in which an engine issues a step: docs/time-model.md, "Issue order". */
#include <stdlib.h>
#include <string.h>

#include "sim/lower_private.h"

/* ---- appending ---- */

static int grow(struct lowering *lowering)
{
    struct program *program = lowering->program;

    if (program->task_count == lowering->task_capacity) {
        size_t capacity = lowering->task_capacity > 0 ? 2 * lowering->task_capacity : 1024;
        struct program_task *tasks = realloc(program->tasks, capacity * sizeof *tasks);

        if (tasks == NULL)
            return error_set(lowering->err, ERROR_MEMORY, "no memory for %zu tasks", capacity);
        program->tasks = tasks;
        lowering->task_capacity = capacity;
    }
    if (program->dependency_count == lowering->dependency_capacity) {
        size_t capacity =
            lowering->dependency_capacity > 0 ? 2 * lowering->dependency_capacity : 256;
        uint32_t *dependencies = realloc(program->dependencies, capacity * sizeof *dependencies);

        if (dependencies == NULL)
            return error_set(lowering->err, ERROR_MEMORY, "no memory for %zu dependencies",
                             capacity);
        program->dependencies = dependencies;
        lowering->dependency_capacity = capacity;
    }
    return 0;
}

uint32_t lower_add(struct lowering *lowering, struct program_task task)
{
    struct program *program = lowering->program;

    if (lowering->failed || grow(lowering) != 0) {
        lowering->failed = true;
        return 0;
    }
    task.dependency_first = (uint32_t)program->dependency_count;
    program->tasks[program->task_count] = task;
    return (uint32_t)program->task_count++;
}

void lower_depend(struct lowering *lowering, uint32_t on)
{
    struct program *program = lowering->program;

    if (lowering->failed || grow(lowering) != 0) {
        lowering->failed = true;
        return;
    }
    program->dependencies[program->dependency_count++] = on;
    program->tasks[program->task_count - 1].dependency_count++;
}

void lower_kernel(struct lowering *lowering, uint32_t d, int layer, struct program_task task)
{
    task.device = (int16_t)d;
    task.layer = layer;
    task.queues = UINT64_C(1) << program_queue_compute(d);
    if (lowering->direct)
        task.launches = task.kernels;
    else
        task.launches = (lowering->open >> d & 1) == 0;
    lowering->open |= 1u << d;
    lower_add(lowering, task);
}

void lower_break(struct lowering *lowering, uint32_t d)
{
    lowering->open &= ~(1u << d);
}

static uint32_t add_host(struct lowering *lowering, enum task_kind kind, int layer, double bytes,
                         uint32_t launches)
{
    return lower_add(lowering, (struct program_task){.kind = kind,
                                                     .device = PROGRAM_AT_HOST,
                                                     .layer = layer,
                                                     .tensor = -1,
                                                     .queues = UINT64_C(1) << PROGRAM_QUEUE_HOST,
                                                     .blocking = true,
                                                     .bytes = bytes,
                                                     .launches = launches});
}

/* `calls` 0: the host thread's time for it is part of a TASK_SPLIT. */
static void add_sync(struct lowering *lowering, uint32_t d, uint32_t calls)
{
    lower_add(lowering, (struct program_task){.kind = TASK_SYNC,
                                              .device = (int16_t)d,
                                              .layer = -1,
                                              .tensor = -1,
                                              .blocking = true,
                                              .launches = calls,
                                              .queues = UINT64_C(1) << program_queue_compute(d)});
    lower_break(lowering, d);
}

/* A copy between host and device that the host thread waits for. */
static struct program_task blocking_copy(enum task_kind kind, uint32_t d, int layer, double bytes)
{
    bool out = kind == TASK_KV_ROWS || kind == TASK_STATE_OUT;

    return (struct program_task){
        .kind = kind,
        .device = (int16_t)d,
        .layer = layer,
        .tensor = -1,
        .blocking = true,
        .bytes = bytes,
        .queues = UINT64_C(1) << (out ? program_queue_copy_out(d) : program_queue_copy_in(d))};
}

/* ---- layers on the host ---- */

/* Batches from this size on are computed on a device even where the weights are on the
 * host: GGML_OP_OFFLOAD_MIN_BATCH. The meta device of a tensor split cannot. */
static const uint32_t offload_tokens = 32;

static bool is_offloaded(const struct lowering *lowering, uint32_t layer)
{
    return lowering->placement->owner[layer] < 0 && lowering->step.tokens >= offload_tokens &&
           lowering->placement->plan.split != PLAN_SPLIT_TENSOR;
}

/* Whether device `d` computes part of a block in this step. */
static bool computes(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    return placement_has_layer(lowering->placement, layer, d) ||
           (d == 0 && is_offloaded(lowering, layer));
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
static void compute_on_host(struct lowering *lowering, uint32_t layer)
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

static void compute_head_on_host(struct lowering *lowering)
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
static void ship_weights(struct lowering *lowering, uint32_t layer)
{
    lower_add(lowering, (struct program_task){.kind = TASK_WEIGHTS,
                                              .device = 0,
                                              .layer = (int32_t)layer,
                                              .tensor = -1,
                                              .launches = 1,
                                              .bytes = weight_bytes(lowering, layer),
                                              .queues = UINT64_C(1) << program_queue_compute(0)});
}

/* ---- inputs ---- */

static bool device_attends(const struct lowering *lowering, uint32_t d)
{
    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++)
        if (computes(lowering, layer, d) && lowering->placement->slices[layer].q_heads[d] > 0)
            return true;
    return false;
}

static bool has_window(const struct model *model, bool sliding)
{
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        if (model_layer_has_kv(&model->layers[layer]) &&
            (model->layers[layer].window > 0) == sliding)
            return true;
    return false;
}

/* The f16 mask: a value for each token and cell, one mask for each kind of window. */
static void add_masks(struct lowering *lowering, uint32_t d)
{
    for (int sliding = 0; sliding < 2; sliding++) {
        struct program_task task = blocking_copy(TASK_INPUT, d, -1, 0);

        if (!has_window(lowering->model, sliding != 0))
            continue;
        task.window = sliding != 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE;
        task.bytes_per_cell = 2.0 * lowering->step.tokens;
        task.launches = 1;
        lower_add(lowering, task);
    }
}

/* What a device needs before its first kernel: positions, indices, masks, and the
 * embeddings where the model begins. Each is a small blocking copy of its own. */
static void add_inputs(struct lowering *lowering, uint32_t d, bool embeddings)
{
    double tokens = lowering->step.tokens;
    struct program_task small = blocking_copy(TASK_INPUT, d, -1, 32 * tokens);

    if (embeddings) {
        struct program_task embed =
            blocking_copy(TASK_INPUT, d, -1, 4.0 * lowering->model->n_embd * tokens);

        embed.launches = 1;
        lower_add(lowering, embed);
    }
    small.launches = 3;
    lower_add(lowering, small);
    if (device_attends(lowering, d))
        add_masks(lowering, d);
}

static void begin_step(struct lowering *lowering)
{
    const struct placement *placement = lowering->placement;
    double tokens = lowering->step.tokens;
    struct program_task mask = {.kind = TASK_MASK,
                                .device = PROGRAM_AT_HOST,
                                .layer = -1,
                                .tensor = -1,
                                .queues = UINT64_C(1) << PROGRAM_QUEUE_HOST,
                                .blocking = true,
                                .window = PROGRAM_WINDOW_BASE,
                                .bytes_per_cell = 2 * 2.0 * tokens};

    if (lowering->step.rebuild)
        add_host(lowering, TASK_BUILD, -1, 0, 1);
    lower_add(lowering, mask);
    add_host(lowering, TASK_EMBED, -1, 8.0 * lowering->model->n_embd * tokens, 0);
    if (placement->plan.split == PLAN_SPLIT_TENSOR) {
        for (uint32_t d = 0; d < placement->device_count; d++)
            add_sync(lowering, d, 1);
        for (uint32_t d = 0; d < placement->device_count; d++)
            add_inputs(lowering, d, true);
        /* The devices' subgraphs are made when the graph is computed, behind the wait. */
        if (lowering->step.rebuild)
            add_host(lowering, TASK_BUILD, -1, 0, placement->device_count);
    }
}

/* ---- between devices ---- */

/* The residual stream moves on to the next device of a layer split. */
static void move_to(struct lowering *lowering, int from, uint32_t to)
{
    const struct placement *placement = lowering->placement;
    double bytes = 4.0 * lowering->model->n_embd * lowering->step.tokens;
    uint32_t peer;

    if (from < 0) {
        if (!placement->pipeline)
            add_sync(lowering, to, 1);
        add_inputs(lowering, to, true);
        return;
    }
    if (!placement->pipeline)
        add_sync(lowering, to, 1);
    peer = lower_add(lowering, (struct program_task){
                                   .kind = TASK_PEER,
                                   .device = (int16_t)from,
                                   .peer = (int16_t)to,
                                   .layer = -1,
                                   .tensor = -1,
                                   .bytes = bytes,
                                   .launches = 1,
                                   .queues = UINT64_C(1) << program_queue_compute((uint32_t)from)});
    lower_break(lowering, (uint32_t)from);
    lower_add(lowering, (struct program_task){.kind = TASK_WAIT,
                                              .device = (int16_t)to,
                                              .layer = -1,
                                              .tensor = -1,
                                              .queues = UINT64_C(1) << program_queue_compute(to)});
    lower_depend(lowering, peer);
    if (!placement->pipeline)
        add_sync(lowering, to, 1);
    add_inputs(lowering, to, false);
}

static void all_reduce(struct lowering *lowering, int layer)
{
    const struct placement *placement = lowering->placement;
    uint32_t count = placement->device_count;
    uint64_t elements = (uint64_t)lowering->model->n_embd * lowering->step.tokens;
    /* From a size on the payload is bf16: ggml-cuda.cu, ggml_backend_cuda_comm_allreduce. */
    uint64_t half_from = count == 2 ? 32768 : count == 3 ? 131072 : 262144;
    bool half = elements >= half_from;
    struct program_task task = {.kind = TASK_ALL_REDUCE,
                                .device = 0,
                                .layer = layer,
                                .tensor = -1,
                                .launches = 1,
                                .kernels = half ? 2 : 0,
                                .tokens = lowering->step.tokens,
                                .bytes = (double)elements * (half ? 2 : 4)};

    if (count < 2)
        return;
    task.queues = UINT64_C(1) << PROGRAM_QUEUE_COLLECTIVE;
    for (uint32_t d = 0; d < count; d++) {
        task.queues |= UINT64_C(1) << program_queue_compute(d);
        lower_break(lowering, d);
    }
    lower_add(lowering, task);
}

/* ---- a cache on the host ---- */

static bool is_delivered(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;

    return placement_has_layer(placement, layer, d) && placement->slices[layer].kv_heads[d] > 0 &&
           (placement->kv_resident[layer] >> d & 1) == 0;
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
    struct program_task copy = blocking_copy(TASK_KV_ROWS, d, (int)layer, 0);

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
    struct program_task copy = blocking_copy(TASK_KV_WINDOW, d, (int)layer, 0);

    copy.part = part;
    copy.launches = d > 0 && is_delivered(lowering, layer, 0);
    copy.window =
        lowering->model->layers[layer].window > 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE;
    copy.bytes_per_cell = row.bytes;
    copy.row_bytes = row.strided ? row.bytes : 0;
    copy.pageable = !lowering->placement->plan.kv_pinned;
    if (row.bytes > 0)
        lower_add(lowering, copy);
}

/* Between K and V and attention: store the new rows, deliver the windows. All of it
 * by the host thread, one device after the other, with the devices idle. The small
 * costs of the first device's copies are part of the two splits. */
static void visit_host_cache(struct lowering *lowering, uint32_t layer)
{
    uint32_t count = lowering->placement->device_count;
    double stored = 0;

    add_host(lowering, TASK_SPLIT, (int)layer, 0, 2);
    for (uint32_t d = 0; d < count; d++)
        if (is_delivered(lowering, layer, d))
            add_sync(lowering, d, 0);
    for (const char *part = "kv"; *part != '\0'; part++)
        for (uint32_t d = 0; d < count; d++)
            if (is_delivered(lowering, layer, d))
                store_rows(lowering, layer, d, *part);
    for (uint32_t d = 0; d < count; d++)
        if (is_delivered(lowering, layer, d))
            stored += 2 * (cache_row(lowering, layer, d, 'k').bytes +
                           cache_row(lowering, layer, d, 'v').bytes);
    add_host(lowering, TASK_KV_STORE, (int)layer, stored * lowering->step.tokens, 0);
    for (const char *part = "kv"; *part != '\0'; part++)
        for (uint32_t d = 0; d < count; d++)
            if (is_delivered(lowering, layer, d))
                deliver_window(lowering, layer, d, *part);
}

/* A recurrent state on the host comes to the device for its layer and goes back. */
static void visit_host_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool before)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double bytes = 4.0 * (double)(model_layer_recurrent_state(l) + model_layer_conv_state(l));
    struct program_task copy =
        blocking_copy(before ? TASK_STATE_IN : TASK_STATE_OUT, d, (int)layer, bytes);

    copy.pageable = true;
    if (before) {
        add_host(lowering, TASK_SPLIT, (int)layer, 0, 6);
        add_host(lowering, TASK_HOST_STATE, (int)layer, 2 * bytes, 0);
    }
    add_sync(lowering, d, 0);
    lower_add(lowering, copy);
}

/* ---- layers ---- */

static bool visits_host(const struct lowering *lowering, uint32_t layer)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (is_delivered(lowering, layer, d))
            return true;
    return false;
}

static void lower_layer(struct lowering *lowering, uint32_t layer)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    bool host_cache = visits_host(lowering, layer);
    bool host_state = l->mixer == MODEL_MIXER_GATED_DELTA_NET && !placement->recurrent_on_device;
    bool parallel_experts = strcmp(lowering->model->arch, "gemma4") == 0;
    uint32_t partials = lower_feed_forward_partials(l, parallel_experts);

    if (placement->owner[layer] < 0)
        ship_weights(lowering, layer);
    for (uint32_t d = 0; d < placement->device_count; d++) {
        if (!computes(lowering, layer, d))
            continue;
        lower_mixer_head(lowering, layer, d);
        if (host_state)
            visit_host_state(lowering, layer, d, true);
        if (!host_cache)
            lower_mixer_tail(lowering, layer, d);
        if (host_state)
            visit_host_state(lowering, layer, d, false);
    }
    if (host_cache) {
        visit_host_cache(lowering, layer);
        for (uint32_t d = 0; d < placement->device_count; d++)
            if (computes(lowering, layer, d))
                lower_mixer_tail(lowering, layer, d);
    }
    if (placement->plan.split == PLAN_SPLIT_TENSOR)
        all_reduce(lowering, (int)layer);
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (computes(lowering, layer, d))
            lower_feed_forward(lowering, layer, d);
    for (uint32_t i = 0; placement->plan.split == PLAN_SPLIT_TENSOR && i < partials; i++)
        all_reduce(lowering, (int)layer);
}

static void lower_layers(struct lowering *lowering)
{
    const struct placement *placement = lowering->placement;
    bool tensor_split = placement->plan.split == PLAN_SPLIT_TENSOR;
    int head = placement->owner[placement->layer_count], at = -1;

    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++) {
        int owner = is_offloaded(lowering, layer) ? 0 : placement->owner[layer];

        if (owner < 0) {
            compute_on_host(lowering, layer);
            continue;
        }
        if (!tensor_split && owner != at) {
            move_to(lowering, at, (uint32_t)owner);
            at = owner;
        }
        lower_layer(lowering, layer);
    }
    if (head < 0)
        compute_head_on_host(lowering);
    else if (!tensor_split && head != at && lowering->step.outputs > 0)
        move_to(lowering, at, (uint32_t)head);
}

static void end_step(struct lowering *lowering)
{
    const struct placement *placement = lowering->placement;

    for (uint32_t d = 0; d < placement->device_count; d++)
        lower_output_head(lowering, d);
    for (uint32_t d = 0; d < placement->device_count && lowering->step.outputs > 0; d++) {
        if (placement->output_rows[d] == 0)
            continue;
        lower_add(lowering,
                  (struct program_task){.kind = TASK_LOGITS,
                                        .device = (int16_t)d,
                                        .layer = -1,
                                        .tensor = -1,
                                        .launches = 1,
                                        .bytes = 4.0 * (double)placement->output_rows[d] *
                                                 lowering->step.outputs,
                                        .queues = UINT64_C(1) << program_queue_compute(d)});
    }
    for (uint32_t d = 0; d < placement->device_count && lowering->step.sync; d++)
        add_sync(lowering, d, 1);
}

struct program *program_lower(const struct placement *placement, struct program_step step,
                              struct error *err)
{
    struct lowering lowering = {.placement = placement,
                                .model = placement->model,
                                .step = step,
                                .direct = step.rebuild,
                                .err = err};

    lowering.program = calloc(1, sizeof *lowering.program);
    if (lowering.program == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a program");
        return NULL;
    }
    lowering.program->placement = placement;
    lowering.program->tokens = step.tokens;
    lowering.program->outputs = step.outputs;
    begin_step(&lowering);
    lower_layers(&lowering);
    end_step(&lowering);
    if (lowering.failed) {
        program_free(lowering.program);
        return NULL;
    }
    return lowering.program;
}
