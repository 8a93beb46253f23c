/* A cache and recurrent states on the host, and how the issuing thread serves them.
 * docs/time-model.md, "Issue order". */
#include "sim/lower_ops.h"

static bool is_delivered(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;

    return lower_computes(lowering, layer, d) && placement->slices[layer].kv_heads[d] > 0 &&
           (placement->kv_resident[layer] >> d & 1) == 0;
}

bool lower_attends_on_host(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    return lowering->placement->attn_on_host && is_delivered(lowering, layer, d);
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

/* What the host has of device `d`. */
static struct program_operand at_host(enum op_value value, uint32_t d)
{
    struct program_operand operand = lower_at_host(value);

    operand.slot = (uint8_t)d;
    return operand;
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

    enum op_value rows = part == 'k' ? OP_VALUE_KEY : OP_VALUE_VALUE;

    copy.launches = d > 0 && is_delivered(lowering, layer, 0);
    placement_kv_row(placement, layer, d, &k, &v);
    copy.part = part;
    copy.bytes = tokens * (cast ? cache_row(lowering, layer, d, part).bytes
                                : 4.0 * (double)(part == 'k' ? k : v));
    if (copy.bytes <= 0)
        return;
    lower_op_copy(lowering, (int)layer, lower_at(lowering, d, rows), at_host(rows, d),
                  part == 'k' ? k : v);
    lower_add(lowering, copy);
}

static struct program_task window_copy(const struct lowering *lowering, uint32_t layer, uint32_t d,
                                       char part)
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
    return copy;
}

/* Every cell of the window, the heads of device `d`, into place `place` of its ring. */
static void copy_cells(struct lowering *lowering, uint32_t layer, uint32_t d, char part,
                       uint32_t place)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    uint64_t dim = part == 'k' ? l->head_dim_k : l->head_dim_v;
    struct program_op *op = lower_op(lowering, OP_COPY, d, (int)layer);

    op->a = lower_at_host(part == 'k' ? OP_VALUE_CACHE_K : OP_VALUE_CACHE_V);
    op->out.value = part == 'k' ? OP_VALUE_WINDOW_K : OP_VALUE_WINDOW_V;
    op->out.slot = (uint8_t)place;
    op->width = slices->kv_heads[d] * dim;
    op->segments = 1;
    op->from.row = l->n_head_kv * dim;
    op->from.first =
        dim * share_first(slices->rotation, slices->kv_heads, placement->device_count, d);
    op->to.row = op->width;
    op->sliding = l->window > 0;
}

static void deliver_window(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    struct program_task copy = window_copy(lowering, layer, d, part);

    if (copy.bytes_per_cell <= 0)
        return;
    copy_cells(lowering, layer, d, part, 0);
    lower_add(lowering, copy);
}

/* ---- windows sent ahead ---- */

/* Whether device `d` has a window left to send in this step; `next_layer` becomes its layer. */
static bool find_next(struct lowering *lowering, uint32_t d)
{
    struct lower_ring *ring = &lowering->rings[d];

    while (ring->next_layer < lowering->model->n_layer &&
           !is_delivered(lowering, ring->next_layer, d))
        ring->next_layer++;
    return ring->next_layer < lowering->model->n_layer;
}

/* Sends the next window of device `d` on its copy queue, where the host thread does not
 * wait for it. Its place in the ring is free once task `after` has ended. */
static void send_ahead(struct lowering *lowering, uint32_t d, const uint32_t *after)
{
    struct lower_ring *ring = &lowering->rings[d];

    if (!find_next(lowering, d))
        return;
    for (const char *part = "kv"; *part != '\0'; part++) {
        struct program_task copy = window_copy(lowering, ring->next_layer, d, *part);

        copy.blocking = false;
        copy.launches = 1;
        if (copy.bytes_per_cell <= 0)
            continue;
        copy_cells(lowering, ring->next_layer, d, *part,
                   ring->sent_count % (lowering->placement->plan.delivery_depth + 1));
        ring->sent[ring->sent_count % LOWER_RING_PLACES] = lower_add(lowering, copy);
        if (after != NULL)
            lower_depend(lowering, *after);
    }
    ring->sent_count++;
    ring->next_layer++;
}

/* Fills the rings. The places may still be in use by the step before: a wait that holds
 * both queues of a device is over when its compute queue has come so far. */
void lower_begin_deliveries(struct lowering *lowering)
{
    uint32_t depth = lowering->placement->plan.delivery_depth;

    for (uint32_t d = 0; d < lowering->placement->device_count && depth > 0; d++) {
        if (!find_next(lowering, d))
            continue;
        lower_add(lowering,
                  (struct program_task){.kind = TASK_WAIT,
                                        .device = (int16_t)d,
                                        .layer = -1,
                                        .tensor = -1,
                                        .queues = UINT64_C(1) << program_queue_compute(d) |
                                                  UINT64_C(1) << program_queue_copy_in(d)});
        for (uint32_t place = 0; place <= depth; place++)
            send_ahead(lowering, d, NULL);
    }
}

/* Attention waits until its window is there. */
static void await_window(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    struct lower_ring *ring = &lowering->rings[d];

    lower_add(lowering, (struct program_task){.kind = TASK_WAIT,
                                              .device = (int16_t)d,
                                              .layer = (int32_t)layer,
                                              .tensor = -1,
                                              .queues = UINT64_C(1) << program_queue_compute(d)});
    lower_depend(lowering, ring->sent[ring->used_count % LOWER_RING_PLACES]);
    ring->place = ring->used_count++;
}

void lower_send_next(struct lowering *lowering, uint32_t layer)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (lowering->placement->plan.delivery_depth > 0 && is_delivered(lowering, layer, d))
            send_ahead(lowering, d, &lowering->attention[d]);
}

/* ---- attention on the host ---- */

static void attend_ops(struct lowering *lowering, uint32_t layer)
{
    lowering->on_host = true;
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        struct program_op *op;

        if (!is_delivered(lowering, layer, d))
            continue;
        lower_op_attend(lowering, layer, d, -1);
        op = &lowering->program->ops[lowering->program->op_count - 1];
        op->a.slot = op->out.slot = (uint8_t)d;
    }
    lowering->on_host = false;
}

static void store_ops(struct lowering *lowering, uint32_t layer)
{
    lowering->on_host = true;
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        size_t first = lowering->program->op_count;

        if (!is_delivered(lowering, layer, d))
            continue;
        lower_op_store(lowering, layer, d, -1);
        for (size_t i = first; i < lowering->program->op_count; i++)
            lowering->program->ops[i].a.slot = (uint8_t)d;
    }
    lowering->on_host = false;
}

/* The queries come to the host, and the results go back. The pool reads every cached row
 * once, and computes with each query head. */
static void attend_on_host(struct lowering *lowering, uint32_t layer)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    double tokens = lowering->step.tokens;
    struct program_task task = {.kind = TASK_HOST_ATTENTION,
                                .device = PROGRAM_AT_HOST,
                                .layer = (int32_t)layer,
                                .tensor = -1,
                                .blocking = true,
                                .tokens = lowering->step.tokens,
                                .queues = UINT64_C(1) << PROGRAM_QUEUE_WORKERS,
                                .window =
                                    l->window > 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE};

    for (uint32_t d = 0; d < placement->device_count; d++) {
        double heads = placement->slices[layer].q_heads[d];

        if (!is_delivered(lowering, layer, d))
            continue;
        lower_op_copy(lowering, (int)layer, lower_at(lowering, d, OP_VALUE_QUERY),
                      at_host(OP_VALUE_QUERY, d), (uint64_t)heads * l->head_dim_k);
        lower_add(lowering, lower_blocking_copy(TASK_ACTIVATIONS, d, (int)layer,
                                                4 * heads * l->head_dim_k * tokens));
        task.bytes_per_cell +=
            (cache_row(lowering, layer, d, 'k').bytes + cache_row(lowering, layer, d, 'v').bytes) *
            lower_streams(lowering);
        task.flops_per_cell += 2.0 * (l->head_dim_k + l->head_dim_v) * heads * tokens;
    }
    attend_ops(lowering, layer);
    lower_add(lowering, task);
    for (uint32_t d = 0; d < placement->device_count; d++) {
        uint64_t width = (uint64_t)placement->slices[layer].q_heads[d] * l->head_dim_v;

        if (!is_delivered(lowering, layer, d))
            continue;
        lower_op_copy(lowering, (int)layer, at_host(OP_VALUE_ATTENDED, d),
                      lower_at(lowering, d, OP_VALUE_ATTENDED), width);
        lower_add(lowering,
                  lower_blocking_copy(TASK_INPUT, d, (int)layer, 4.0 * (double)width * tokens));
    }
}

/* ---- a layer ---- */

/* Between K and V and attention: store the new rows, then deliver the windows or compute
 * here. All of it by the host thread, one device after the other, with the devices idle,
 * except for windows sent ahead. The small costs of the first device's copies are part of
 * the two splits. */
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
    store_ops(lowering, layer);
    lower_host(lowering, TASK_KV_STORE, (int)layer, stored * lowering->step.tokens, 0);
    if (lowering->placement->attn_on_host) {
        attend_on_host(lowering, layer);
        return;
    }
    if (lowering->placement->plan.delivery_depth > 0) {
        for (uint32_t d = 0; d < count; d++)
            if (is_delivered(lowering, layer, d))
                await_window(lowering, layer, d);
        return;
    }
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
    lower_op_state(lowering, layer, d, before);
    lower_add(lowering, copy);
}
