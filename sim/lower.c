/* The order in which an engine issues a step: docs/time-model.md, "Issue order". */
#include <stdlib.h>
#include <string.h>

#include "sim/lower_ops.h"

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

/* Our runtime replays everything between two places where the host acts as one graph, whatever
 * devices it is on: sums over devices, waits and copies do not end it, but for copies of memory
 * that is not pinned. */
static bool is_replayed(const struct program_task *task)
{
    enum task_class class = program_task_class(task->kind);

    return class == TASK_CLASS_KERNEL || class == TASK_CLASS_COLLECTIVE ||
           task->kind == TASK_WAIT ||
           (class == TASK_CLASS_COPY && !task->blocking && !task->pageable &&
            task->kind != TASK_WEIGHTS);
}

uint32_t lower_add(struct lowering *lowering, struct program_task task)
{
    struct program *program = lowering->program;

    if (lowering->failed || grow(lowering) != 0) {
        lowering->failed = true;
        return 0;
    }
    if (lowering->own && !is_replayed(&task))
        lowering->open = 0;
    else if (lowering->own && program_task_class(task.kind) == TASK_CLASS_COPY)
        task.launches = lower_launch(lowering, (uint32_t)task.device);
    task.dependency_first = (uint32_t)program->dependency_count;
    task.op_first = (uint32_t)lowering->op_pending;
    task.op_count = (uint32_t)(program->op_count - lowering->op_pending);
    lowering->op_pending = program->op_count;
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
    if (lowering->on_host)
        return;
    task.device = (int16_t)d;
    task.layer = layer;
    task.queues = UINT64_C(1) << program_queue_compute(d);
    if (lowering->direct)
        task.launches = task.kernels;
    else
        task.launches = lower_launch(lowering, d);
    lowering->last_kernel[d] = lower_add(lowering, task);
}

uint32_t lower_sequences(const struct lowering *lowering)
{
    return lowering->step.sequences > 1 ? lowering->step.sequences : 1;
}

uint32_t lower_streams(const struct lowering *lowering)
{
    return lowering->placement->plan.kv_unified ? 1 : lower_sequences(lowering);
}

void lower_break(struct lowering *lowering, uint32_t d)
{
    if (!lowering->own) /* whose parts lower_add() ends */
        lowering->open &= ~(1u << d);
}

uint32_t lower_launch(struct lowering *lowering, uint32_t d)
{
    uint32_t launches = (lowering->open >> d & 1) == 0;

    lowering->open |= lowering->own ? UINT32_MAX : 1u << d;
    return launches;
}

void lower_wait(struct lowering *lowering, uint32_t d, int layer, uint32_t on)
{
    lower_add(lowering, (struct program_task){.kind = TASK_WAIT,
                                              .device = (int16_t)d,
                                              .layer = layer,
                                              .tensor = -1,
                                              .queues = UINT64_C(1) << program_queue_compute(d)});
    lower_depend(lowering, on);
}

uint32_t lower_host(struct lowering *lowering, enum task_kind kind, int layer, double bytes,
                    uint32_t launches)
{
    return lower_add(lowering, (struct program_task){.kind = kind,
                                                     .device = PROGRAM_AT_HOST,
                                                     .layer = layer,
                                                     .tensor = -1,
                                                     .tokens = lowering->step.tokens,
                                                     .queues = UINT64_C(1) << PROGRAM_QUEUE_HOST,
                                                     .blocking = true,
                                                     .bytes = bytes,
                                                     .launches = launches});
}

static void sync_queues(struct lowering *lowering, uint32_t d, uint32_t calls, uint64_t queues)
{
    lower_add(lowering, (struct program_task){.kind = TASK_SYNC,
                                              .device = (int16_t)d,
                                              .layer = -1,
                                              .tensor = -1,
                                              .blocking = true,
                                              .launches = calls,
                                              .queues = queues});
    lower_break(lowering, d);
}

/* `calls` 0: the host thread's time for it is part of a TASK_SPLIT. */
void lower_sync(struct lowering *lowering, uint32_t d, uint32_t calls)
{
    sync_queues(lowering, d, calls, UINT64_C(1) << program_queue_compute(d));
}

/* A copy between host and device that the host thread waits for. */
struct program_task lower_blocking_copy(enum task_kind kind, uint32_t d, int layer, double bytes)
{
    bool out = kind == TASK_KV_ROWS || kind == TASK_STATE_OUT || kind == TASK_ACTIVATIONS;

    return (struct program_task){
        .kind = kind,
        .device = (int16_t)d,
        .layer = layer,
        .tensor = -1,
        .blocking = true,
        .bytes = bytes,
        .queues = UINT64_C(1) << (out ? program_queue_copy_out(d) : program_queue_copy_in(d))};
}

uint32_t lower_add_behind(struct lowering *lowering, struct program_task copy)
{
    uint32_t last = lowering->last_kernel[copy.device], index = lower_add(lowering, copy);

    if (last != LOWER_NO_TASK)
        lower_depend(lowering, last);
    return index;
}

/* In llama.cpp's order the device is idle by now, and the small cost is part of a TASK_SPLIT. */
void lower_to_host(struct lowering *lowering, struct program_task copy)
{
    if (!lowering->own) {
        lower_add(lowering, copy);
        return;
    }
    copy.launches = 1;
    lower_add_behind(lowering, copy);
}

uint32_t lower_to_device(struct lowering *lowering, struct program_task copy)
{
    uint32_t index;

    if (!lowering->own)
        return lower_add(lowering, copy);
    copy.blocking = false;
    index = lower_add_behind(lowering, copy);
    lower_wait(lowering, (uint32_t)copy.device, copy.layer, index);
    return index;
}

/* ---- inputs ---- */

static bool device_attends(const struct lowering *lowering, uint32_t d)
{
    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++)
        if (lower_computes(lowering, layer, d) && lowering->placement->slices[layer].q_heads[d] > 0)
            return true;
    return false;
}

/* An input as it lies in the host's memory. */
static void copy_input(struct lowering *lowering, uint32_t d, enum op_value value, int slot)
{
    struct program_op *op = lower_op(lowering, OP_COPY, d, -1);

    op->a = lower_at_host(value);
    op->out.value = (uint8_t)value;
    op->a.slot = op->out.slot = (uint8_t)slot;
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
        struct program_task task = lower_blocking_copy(TASK_INPUT, d, -1, 0);

        if (!has_window(lowering->model, sliding != 0))
            continue;
        task.window = sliding != 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE;
        task.bytes_per_cell = 2.0 * lowering->step.tokens;
        task.launches = 1;
        copy_input(lowering, d, OP_VALUE_CELLS, sliding);
        lower_add(lowering, task);
    }
}

/* Where the model begins: embeddings, and for some drafters the target's hidden rows. */
static void copy_rows(struct lowering *lowering, uint32_t d)
{
    bool hidden = lower_reads_hidden(lowering);
    enum op_value first = hidden ? OP_VALUE_EMBEDDED : OP_VALUE_RESIDUAL;
    uint64_t n_embd = lowering->model->n_embd;

    lower_op_copy(lowering, -1, lower_at_host(first), lower_at(lowering, d, first), n_embd);
    if (hidden)
        lower_op_copy(lowering, -1, lower_at_host(OP_VALUE_HIDDEN),
                      lower_at(lowering, d, OP_VALUE_HIDDEN), n_embd);
}

/* What a device needs in our runtime: copies on its compute queue, so that nothing has to wait for
 * them. Kernels read tokens and cells themselves, so there are no masks. */
static void queue_inputs(struct lowering *lowering, uint32_t d, bool embeddings)
{
    const struct placement *placement = lowering->placement;
    double tokens = lowering->step.tokens;
    double cells =
        4.0 * (placement->plan.n_slots > 1 ? placement->plan.n_slots : 1) * placement->n_ctx;
    struct program_task task = lower_blocking_copy(TASK_INPUT, d, -1, 32 * tokens);

    task.blocking = false;
    task.queues = UINT64_C(1) << program_queue_compute(d);
    if (embeddings) {
        copy_rows(lowering, d);
        task.bytes += 4.0 * lowering->model->n_embd * tokens *
                      (double)(lowering->program->op_count - lowering->op_pending);
    }
    copy_input(lowering, d, OP_VALUE_TOKENS, 0);
    for (int sliding = 0; sliding < 2 && device_attends(lowering, d); sliding++)
        if (has_window(lowering->model, sliding != 0)) {
            copy_input(lowering, d, OP_VALUE_CELLS, sliding);
            task.bytes += cells;
        }
    lower_add(lowering, task);
}

/* What a device needs before its first kernel in llama.cpp: positions, indices, masks, and the
 * embeddings where the model begins. Each is a small blocking copy of its own. */
static void add_inputs(struct lowering *lowering, uint32_t d, bool embeddings)
{
    double tokens = lowering->step.tokens;
    struct program_task small = lower_blocking_copy(TASK_INPUT, d, -1, 32 * tokens);

    if (lowering->own) {
        queue_inputs(lowering, d, embeddings);
        return;
    }
    if (embeddings) {
        struct program_task embed =
            lower_blocking_copy(TASK_INPUT, d, -1, 4.0 * lowering->model->n_embd * tokens);

        embed.launches = 1;
        copy_rows(lowering, d);
        lower_add(lowering, embed);
    }
    small.launches = 3;
    copy_input(lowering, d, OP_VALUE_TOKENS, 0);
    lower_add(lowering, small);
    if (device_attends(lowering, d))
        add_masks(lowering, d);
}

/* The residual stream begins with the tokens' embeddings. */
static void begin_residual(struct lowering *lowering)
{
    const struct model_tensor *embeddings =
        model_find_tensor(lowering->model, -1, TENSOR_ROLE_TOKEN_EMBD);
    struct program_op *op = lower_op(lowering, OP_EMBED, 0, -1);

    op->a = lower_at_host(OP_VALUE_TOKENS);
    op->out = lower_at_host(lower_reads_hidden(lowering) ? OP_VALUE_EMBEDDED : OP_VALUE_RESIDUAL);
    op->tensor = embeddings != NULL ? (int32_t)(embeddings - lowering->model->tensors) : -1;
    op->columns = lowering->model->n_embd;
}

static void begin_step(struct lowering *lowering)
{
    double tokens = lowering->step.tokens;
    struct program_task mask = {.kind = TASK_MASK,
                                .device = PROGRAM_AT_HOST,
                                .layer = -1,
                                .tensor = -1,
                                .queues = UINT64_C(1) << PROGRAM_QUEUE_HOST,
                                .blocking = true,
                                .window = PROGRAM_WINDOW_BASE,
                                .bytes_per_cell = 2 * 2.0 * tokens};

    /* Our runtime builds no graph, and its kernels need no mask. */
    if (lowering->step.rebuild && !lowering->own)
        lower_host(lowering, TASK_BUILD, -1, 0, 1);
    if (!lowering->own)
        lower_add(lowering, mask);
    begin_residual(lowering);
    lower_host(lowering, TASK_EMBED, -1, 8.0 * lowering->model->n_embd * tokens, 0);
}

/* All devices of a tensor split begin together, behind the blocks that are on the host. */
static void begin_tensor_split(struct lowering *lowering)
{
    uint32_t count = lowering->placement->device_count;

    for (uint32_t d = 0; d < count && !lowering->own; d++)
        lower_sync(lowering, d, 1);
    for (uint32_t d = 0; d < count; d++)
        add_inputs(lowering, d, true);
    /* The devices' subgraphs are made when the graph is computed, behind the wait. */
    if (lowering->step.rebuild && !lowering->own)
        lower_host(lowering, TASK_BUILD, -1, 0, count);
}

/* ---- between devices ---- */

/* The residual stream goes from device to device, on the sender's queue. */
static void send_residual(struct lowering *lowering, uint32_t from, uint32_t to)
{
    uint32_t peer;

    lower_op_join(lowering, from);
    lowering->part = LOWER_PART_NONE;
    lower_op_copy(lowering, -1, lower_at(lowering, from, OP_VALUE_RESIDUAL),
                  lower_at(lowering, to, OP_VALUE_RESIDUAL), lowering->model->n_embd);
    peer = lower_add(lowering, (struct program_task){
                                   .kind = TASK_PEER,
                                   .device = (int16_t)from,
                                   .peer = (int16_t)to,
                                   .layer = -1,
                                   .tensor = -1,
                                   .bytes = 4.0 * lowering->model->n_embd * lowering->step.tokens,
                                   .launches = 1,
                                   .queues = UINT64_C(1) << program_queue_compute(from)});
    lower_break(lowering, from);
    lower_wait(lowering, to, -1, peer);
}

/* The residual stream moves on to the next device of a layer split. Our runtime waits for no
 * device, and puts the inputs before the residual stream, so that they are there when it comes. */
static void move_to(struct lowering *lowering, int from, uint32_t to)
{
    bool waits = !lowering->own && !lowering->placement->pipeline;

    if (waits)
        lower_sync(lowering, to, 1);
    if (from < 0 || lowering->own)
        add_inputs(lowering, to, from < 0);
    if (from < 0)
        return;
    send_residual(lowering, (uint32_t)from, to);
    if (waits)
        lower_sync(lowering, to, 1);
    if (!lowering->own)
        add_inputs(lowering, to, false);
}

/* Sums `tokens` columns of the devices' partial results: fixed-point ones in our runtime. */
static struct program_task all_reduce_task(struct lowering *lowering, int layer,
                                           uint32_t token_first, uint32_t tokens)
{
    struct program_op *op = lower_op(lowering, OP_REDUCE, 0, layer);
    uint32_t count = lowering->placement->device_count;
    uint64_t elements = (uint64_t)lowering->model->n_embd * tokens;
    /* From a size on the payload is bf16: ggml-cuda.cu, ggml_backend_cuda_comm_allreduce. */
    uint64_t half_from = count == 2 ? 32768 : count == 3 ? 131072 : 262144;
    bool half = !lowering->own && elements >= half_from;

    op->a = op->out = lower_at(lowering, 0, OP_VALUE_SUMS);
    op->columns = lowering->model->n_embd;
    op->token_first = token_first;
    op->tokens = tokens;
    for (uint32_t d = 0; d < count; d++)
        if (lowering->tail[d] != LOWER_NO_TASK)
            op->members |= 1u << d;
    return (struct program_task){.kind = TASK_ALL_REDUCE,
                                 .device = 0,
                                 .layer = layer,
                                 .tensor = -1,
                                 .launches = lowering->own ? lower_launch(lowering, 0) : 1,
                                 .kernels = half ? 2 : 0,
                                 .tokens = tokens,
                                 .bytes = (double)elements * (lowering->own ? 8
                                                              : half        ? 2
                                                                            : 4),
                                 .queues = UINT64_C(1) << PROGRAM_QUEUE_COLLECTIVE};
}

static void all_reduce(struct lowering *lowering, int layer)
{
    struct program_task task = all_reduce_task(lowering, layer, 0, lowering->step.tokens);

    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        task.queues |= UINT64_C(1) << program_queue_compute(d);
        lower_break(lowering, d);
    }
    lower_add(lowering, task);
}

/* ---- projections in chunks ---- */

/* Two halves, for batches that are worth it. */
uint32_t lower_chunks(const struct lowering *lowering)
{
    const struct plan *plan = &lowering->placement->plan;

    return plan->split == PLAN_SPLIT_TENSOR && plan->all_reduce >= PLAN_ALL_REDUCE_CHUNKED &&
                   lowering->step.tokens >= 32
               ? 2
               : 1;
}

/* Tokens of a chunk; the last one takes what is left. */
static uint32_t chunk_tokens(const struct lowering *lowering, uint32_t chunk)
{
    uint32_t chunks = lower_chunks(lowering), each = lowering->step.tokens / chunks;

    return chunk + 1 < chunks ? each : lowering->step.tokens - chunk * each;
}

/* The next chunk of each device's projection; `ends` gets the tasks. */
static void next_chunk(struct lowering *lowering, uint32_t layer, uint32_t chunk, uint32_t *ends)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        struct program_task task;

        if (lowering->failed)
            return;
        if (lowering->tail[d] == LOWER_NO_TASK)
            continue;
        task = lowering->program->tasks[lowering->tail[d]];
        task.dependency_count = 0;
        for (uint32_t i = 0; i < task.op_count; i++) {
            struct program_op *op = lower_op(lowering, OP_PARTIAL, d, (int)layer);

            *op = lowering->program->ops[task.op_first + i];
            op->token_first = chunk * task.tokens;
            op->tokens = chunk_tokens(lowering, chunk);
        }
        lower_kernel(lowering, d, (int)layer, task);
        ends[d] = (uint32_t)lowering->program->task_count - 1;
    }
}

/* A chunk's sum beside the computing streams: on the collective's own queue. */
static uint32_t reduce_chunk(struct lowering *lowering, uint32_t layer, uint32_t chunk,
                             const uint32_t *ends)
{
    uint32_t first = chunk * (lowering->step.tokens / lower_chunks(lowering));
    struct program_task task =
        all_reduce_task(lowering, (int)layer, first, chunk_tokens(lowering, chunk));
    uint32_t index;

    task.queues = UINT64_C(1) << PROGRAM_QUEUE_BESIDE;
    index = lower_add(lowering, task);

    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (ends[d] != LOWER_NO_TASK)
            lower_depend(lowering, ends[d]);
        else if (lowering->last_kernel[d] != LOWER_NO_TASK)
            lower_depend(lowering, lowering->last_kernel[d]); /* it reads the sums before */
    return index;
}

/* The sums of a part whose projections are chunked: in one at the end, or each beside the
 * next chunk's projection. */
static void reduce_in_chunks(struct lowering *lowering, uint32_t layer)
{
    bool overlapped = lowering->placement->plan.all_reduce == PLAN_ALL_REDUCE_OVERLAPPED;
    uint32_t ends[MACHINE_DEVICES_MAX], last = 0;

    memcpy(ends, lowering->tail, sizeof ends);
    for (uint32_t chunk = 0; chunk < lower_chunks(lowering); chunk++) {
        if (chunk > 0)
            next_chunk(lowering, layer, chunk, ends);
        if (overlapped)
            last = reduce_chunk(lowering, layer, chunk, ends);
    }
    if (!overlapped) {
        all_reduce(lowering, (int)layer);
        return;
    }
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        lower_wait(lowering, d, (int)layer, last);
}

/* The devices' partial results of a part become one result on each. */
static void reduce(struct lowering *lowering, uint32_t layer, bool ends_in_projection)
{
    const struct plan *plan = &lowering->placement->plan;

    if (plan->split != PLAN_SPLIT_TENSOR || lowering->placement->device_count < 2 ||
        plan->all_reduce == PLAN_ALL_REDUCE_SKIPPED)
        return;
    if (lower_chunks(lowering) > 1 && ends_in_projection)
        reduce_in_chunks(lowering, layer);
    else
        all_reduce(lowering, (int)layer);
}

/* ---- layers ---- */

/* A part of a block on every device that computes it. Under a tensor split each part ends
 * in partial results, which are then summed. */
static void lower_part(struct lowering *lowering, uint32_t layer, enum lower_part_kind kind,
                       void (*part)(struct lowering *, uint32_t, uint32_t))
{
    for (uint32_t d = 0; d < MACHINE_DEVICES_MAX; d++)
        lowering->tail[d] = LOWER_NO_TASK;
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (lower_computes(lowering, layer, d))
            part(lowering, layer, d);
    reduce(lowering, layer, part != lower_experts);
    lower_end_part(lowering, kind, layer);
}

static void lower_mixer(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    bool host_state = lowering->model->layers[layer].mixer == MODEL_MIXER_GATED_DELTA_NET &&
                      placement_has_state_on_host(lowering->placement, layer);

    lower_mixer_head(lowering, layer, d);
    if (host_state)
        lower_visit_host_state(lowering, layer, d, true);
    lower_mixer_tail(lowering, layer, d);
    if (host_state)
        lower_visit_host_state(lowering, layer, d, false);
}

static void lower_layer(struct lowering *lowering, uint32_t layer)
{
    const struct model_layer *l = &lowering->model->layers[layer];

    if (lowering->placement->owner[layer] < 0)
        lower_ship_weights(lowering, layer);
    if (lower_visits_host_cache(lowering, layer)) {
        for (uint32_t d = 0; d < lowering->placement->device_count; d++)
            if (lower_computes(lowering, layer, d))
                lower_mixer_head(lowering, layer, d);
        lower_visit_host_cache(lowering, layer);
        lower_part(lowering, layer, LOWER_PART_MIXER, lower_mixer_tail);
        /* Our runtime sends it right behind the attention. */
        for (uint32_t d = 0; d < lowering->placement->device_count && !lowering->own; d++)
            lower_send_next(lowering, layer, d);
    } else {
        lower_part(lowering, layer, LOWER_PART_MIXER, lower_mixer);
    }
    if (l->n_ff > 0)
        lower_part(lowering, layer, LOWER_PART_DENSE, lower_dense);
    if (l->n_expert > 0)
        lower_part(lowering, layer, LOWER_PART_EXPERTS, lower_experts);
}

/* The residual rows of all tokens for a drafter, from a device that has them all. Our runtime
 * has the copy on the compute queue, as that of the logits. */
static void send_hidden(struct lowering *lowering)
{
    struct program_task copy;
    const struct placement *placement = lowering->placement;
    int d = placement->owner[lowering->model->n_layer - 1];

    if (d < 0) {
        if (!lower_is_offloaded(lowering, lowering->model->n_layer - 1))
            return; /* the host has them */
        d = 0;
    }
    copy = lower_blocking_copy(TASK_ACTIVATIONS, (uint32_t)d, -1,
                               4.0 * lowering->model->n_embd * lowering->step.tokens);
    if (lowering->own) {
        copy.blocking = false;
        copy.launches = 1;
        copy.queues = UINT64_C(1) << program_queue_compute((uint32_t)d);
    } else {
        lower_sync(lowering, (uint32_t)d, 1);
    }
    lower_op_join(lowering, (uint32_t)d);
    lower_op_copy(lowering, -1, lower_at(lowering, (uint32_t)d, OP_VALUE_RESIDUAL),
                  lower_at_host(OP_VALUE_RESIDUAL), lowering->model->n_embd);
    lower_add(lowering, copy);
}

static void lower_layers(struct lowering *lowering)
{
    const struct placement *placement = lowering->placement;
    bool tensor_split = placement->plan.split == PLAN_SPLIT_TENSOR;
    bool begun = false;
    int head = placement->owner[placement->layer_count], at = -1;

    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++) {
        int owner = lower_is_offloaded(lowering, layer) ? 0 : placement->owner[layer];

        if (owner < 0) {
            lower_on_host(lowering, layer);
            continue;
        }
        if (!tensor_split && owner != at) {
            move_to(lowering, at, (uint32_t)owner);
            at = owner;
        }
        if (!begun && tensor_split)
            begin_tensor_split(lowering);
        if (!begun)
            lower_begin_deliveries(lowering);
        begun = true;
        lower_layer(lowering, layer);
    }
    if (lowering->step.hidden)
        send_hidden(lowering);
    if (head < 0)
        lower_head_on_host(lowering, at);
    else if (tensor_split && !begun && lowering->step.outputs > 0)
        begin_tensor_split(lowering);
    else if (!tensor_split && head != at && lowering->step.outputs > 0)
        move_to(lowering, at, (uint32_t)head);
}

/* The host waits where the step asks for it, and in our runtime for what it may read itself in
 * the next step: recurrent states on their way to it. */
static void sync_devices(struct lowering *lowering)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        uint64_t queues = 0;

        if (lowering->step.sync)
            queues |= UINT64_C(1) << program_queue_compute(d);
        if ((lowering->states_out >> d & 1) != 0)
            queues |= UINT64_C(1) << program_queue_copy_out(d);
        if (queues != 0)
            sync_queues(lowering, d, 1, queues);
    }
}

static void end_step(struct lowering *lowering)
{
    const struct placement *placement = lowering->placement;

    for (uint32_t d = 0; d < placement->device_count; d++)
        lower_output_head(lowering, d);
    for (uint32_t d = 0; d < placement->device_count && lowering->step.outputs > 0; d++) {
        double row_bytes = lowering->step.picks ? sizeof(struct program_pick)
                                                : 4.0 * (double)placement->output_rows[d];

        if (placement->output_rows[d] == 0)
            continue;
        lower_op_logits(lowering, d);
        lower_add(lowering,
                  (struct program_task){.kind = TASK_LOGITS,
                                        .device = (int16_t)d,
                                        .layer = -1,
                                        .tensor = -1,
                                        .launches = 1,
                                        .bytes = row_bytes * lowering->step.outputs,
                                        .queues = UINT64_C(1) << program_queue_compute(d)});
    }
    lower_store_last_rows(lowering);
    sync_devices(lowering);
    if (lowering->step.sample && !placement->plan.backend_sampling)
        lower_host(lowering, TASK_SAMPLE, -1, 0, lowering->step.outputs);
}

struct program *program_lower(const struct placement *placement, struct program_step step,
                              struct error *err)
{
    bool own = placement->plan.schedule == PLAN_SCHEDULE_LOPSIDE;
    struct lowering lowering = {.placement = placement,
                                .model = placement->model,
                                .step = step,
                                .own = own,
                                .direct = step.rebuild && !own,
                                .rows = {.layer = -1},
                                .sums_sent = LOWER_NO_TASK,
                                .err = err};

    lowering.program = calloc(1, sizeof *lowering.program);
    if (lowering.program == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a program");
        return NULL;
    }
    lowering.program->placement = placement;
    lowering.program->tokens = step.tokens;
    lowering.program->outputs = step.outputs;
    lowering.states = calloc(placement->model->n_layer + 1, sizeof *lowering.states);
    if (lowering.states == NULL)
        lowering.failed = error_set(err, ERROR_MEMORY, "no memory for a program") != 0;
    for (uint32_t d = 0; d < MACHINE_DEVICES_MAX; d++)
        lowering.last_kernel[d] = lowering.activations[d].product = LOWER_NO_TASK;
    begin_step(&lowering);
    lower_layers(&lowering);
    end_step(&lowering);
    free(lowering.states);
    if (lowering.failed) {
        program_free(lowering.program);
        return NULL;
    }
    return lowering.program;
}
