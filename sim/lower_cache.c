/* A cache and recurrent states on the host, and how the issuing thread serves them.
 * docs/time-model.md, "Issue order". */
#include "sim/lower_ops.h"

bool lower_is_delivered(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;

    return lower_computes(lowering, layer, d) && placement->slices[layer].kv_heads[d] > 0 &&
           (placement->kv_resident[layer] >> d & 1) == 0;
}

bool lower_attends_on_host(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    return lowering->placement->attn_on_host && lower_is_delivered(lowering, layer, d);
}

bool lower_visits_host_cache(const struct lowering *lowering, uint32_t layer)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (lower_is_delivered(lowering, layer, d))
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

/* With few tokens the rows of each layer have a place of their own, on the device and on the host.
 * They go there together, on the compute queue, where nothing has to wait for them, and the host
 * stores those of all layers at the end of the step: so the step is not interrupted. */
static bool keeps_rows(const struct lowering *lowering)
{
    return lowering->own && !lowering->placement->attn_on_host &&
           lowering->step.tokens <= LOWER_FEW_TOKENS;
}

enum op_value lower_new_rows(const struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    if (!lowering->on_host && keeps_rows(lowering) && lower_is_delivered(lowering, layer, d))
        return part == 'k' ? OP_VALUE_ROWS_K : OP_VALUE_ROWS_V;
    return part == 'k' ? OP_VALUE_KEY : OP_VALUE_VALUE;
}

/* A copy between a device's rows of K or V and rows of all heads on the host: `of_all` is where the
 * device's heads are in those, and `own` how its rows lie. */
static struct program_op *copy_heads(struct lowering *lowering, uint32_t layer, uint32_t d,
                                     char part, struct program_layout *of_all,
                                     struct program_layout *own)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    uint64_t dim = part == 'k' ? l->head_dim_k : l->head_dim_v;
    struct program_op *op = lower_op(lowering, OP_COPY, d, (int)layer);

    op->width = slices->kv_heads[d] * dim;
    op->segments = 1;
    *own = (struct program_layout){.row = op->width};
    *of_all = (struct program_layout){
        .row = l->n_head_kv * dim,
        .first = dim * share_first(slices->rotation, slices->kv_heads, placement->device_count, d)};
    return op;
}

static void keep_part(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    struct program_layout of_all, own;
    struct program_op *op = copy_heads(lowering, layer, d, part, &of_all, &own);

    op->a = lower_at(lowering, d, lower_new_rows(lowering, layer, d, part));
    op->out = lower_at_host((enum op_value)op->a.value);
    op->from = own;
    op->to = of_all;
}

/* The rows of all layers whose cache device `d` gets, once it has those of the last one. */
static void keep_rows(struct lowering *lowering, uint32_t last, uint32_t d)
{
    struct program_task copy = lower_blocking_copy(TASK_KV_ROWS, d, -1, 0);

    for (uint32_t layer = last + 1; layer < lowering->model->n_layer; layer++)
        if (lower_is_delivered(lowering, layer, d))
            return;
    for (uint32_t layer = 0; layer <= last; layer++) {
        uint64_t k, v;

        if (!lower_is_delivered(lowering, layer, d))
            continue;
        placement_kv_row(lowering->placement, layer, d, &k, &v);
        keep_part(lowering, layer, d, 'k');
        if (v > 0)
            keep_part(lowering, layer, d, 'v');
        copy.bytes += lowering->step.tokens * 4.0 * (double)(k + v);
    }
    copy.blocking = false;
    copy.queues = UINT64_C(1) << program_queue_compute(d);
    lowering->rows.sent[d] = lower_add(lowering, copy);
}

/* New rows go to the host: the fork casts to a quantised cache type on the device
 * first; otherwise they go as f32 and the host converts. In our runtime nothing waits for them
 * until the host stores them. */
static void store_rows(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    const struct placement *placement = lowering->placement;
    double tokens = lowering->step.tokens;
    uint64_t k, v;
    bool cast = placement->plan.schedule == PLAN_SCHEDULE_LLAMA_CPP_FORK &&
                tensor_type_info(placement->plan.type_k)->quantised;
    struct program_task copy = lower_blocking_copy(TASK_KV_ROWS, d, (int)layer, 0);
    enum op_value rows = part == 'k' ? OP_VALUE_KEY : OP_VALUE_VALUE;

    copy.launches = d > 0 && lower_is_delivered(lowering, layer, 0);
    placement_kv_row(placement, layer, d, &k, &v);
    copy.part = part;
    copy.bytes = tokens * (cast ? cache_row(lowering, layer, d, part).bytes
                                : 4.0 * (double)(part == 'k' ? k : v));
    if (copy.bytes <= 0)
        return;
    lower_op_copy(lowering, (int)layer, lower_at(lowering, d, rows), at_host(rows, d),
                  part == 'k' ? k : v);
    if (!lowering->own) {
        lower_add(lowering, copy);
        return;
    }
    copy.blocking = false;
    lowering->rows.sent[d] = lower_add_behind(lowering, copy);
    lowering->rows.leaving |= 1u << d;
}

static struct program_task window_copy(const struct lowering *lowering, uint32_t layer, uint32_t d,
                                       char part)
{
    struct cache_row row = cache_row(lowering, layer, d, part);
    struct program_task copy = lower_blocking_copy(TASK_KV_WINDOW, d, (int)layer, 0);

    copy.part = part;
    copy.launches = d > 0 && lower_is_delivered(lowering, layer, 0);
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
    struct program_layout of_all, own;
    struct program_op *op = copy_heads(lowering, layer, d, part, &of_all, &own);

    op->a = lower_at_host(part == 'k' ? OP_VALUE_CACHE_K : OP_VALUE_CACHE_V);
    op->out.value = part == 'k' ? OP_VALUE_WINDOW_K : OP_VALUE_WINDOW_V;
    op->out.slot = (uint8_t)place;
    op->from = of_all;
    op->to = own;
    op->sliding = lowering->model->layers[layer].window > 0;
}

static void deliver_window(struct lowering *lowering, uint32_t layer, uint32_t d, char part)
{
    struct program_task copy = window_copy(lowering, layer, d, part);

    if (copy.bytes_per_cell <= 0)
        return;
    copy_cells(lowering, layer, d, part, 0);
    lower_add(lowering, copy);
}

/* A window sent ahead: the host thread does not wait, but for memory that is not pinned, whose copy
 * in our runtime is its own work. @return whether there is one */
bool lower_add_window(struct lowering *lowering, uint32_t layer, uint32_t d, char part,
                      uint32_t place, uint32_t *index)
{
    struct program_task copy = window_copy(lowering, layer, d, part);

    copy.blocking = lowering->own && copy.pageable;
    copy.launches = 1;
    if (copy.bytes_per_cell <= 0)
        return false;
    copy_cells(lowering, layer, d, part, place);
    *index = lower_add(lowering, copy);
    return true;
}

/* ---- attention on the host ---- */

static void attend_ops(struct lowering *lowering, uint32_t layer)
{
    lowering->on_host = true;
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        struct program_op *op;

        if (!lower_is_delivered(lowering, layer, d))
            continue;
        lower_op_attend(lowering, layer, d, -1);
        op = &lowering->program->ops[lowering->program->op_count - 1];
        op->a.slot = op->out.slot = (uint8_t)d;
    }
    lowering->on_host = false;
}

static void store_ops(struct lowering *lowering, uint32_t layer)
{
    bool kept = keeps_rows(lowering);

    lowering->on_host = true;
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        size_t first = lowering->program->op_count;

        if (!lower_is_delivered(lowering, layer, d))
            continue;
        if (kept) {
            lower_op_store_rows(lowering, layer, d);
            continue;
        }
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

        if (!lower_is_delivered(lowering, layer, d))
            continue;
        lower_op_copy(lowering, (int)layer, lower_at(lowering, d, OP_VALUE_QUERY),
                      at_host(OP_VALUE_QUERY, d), (uint64_t)heads * l->head_dim_k);
        lower_to_host(lowering, lower_blocking_copy(TASK_ACTIVATIONS, d, (int)layer,
                                                    4 * heads * l->head_dim_k * tokens));
        task.bytes_per_cell +=
            (cache_row(lowering, layer, d, 'k').bytes + cache_row(lowering, layer, d, 'v').bytes) *
            lower_streams(lowering);
        task.flops_per_cell += 2.0 * (l->head_dim_k + l->head_dim_v) * heads * tokens;
    }
    lower_store_rows(lowering); /* it attends to them too */
    attend_ops(lowering, layer);
    lower_add(lowering, task);
    for (uint32_t d = 0; d < placement->device_count; d++) {
        uint64_t width = (uint64_t)placement->slices[layer].q_heads[d] * l->head_dim_v;

        if (!lower_is_delivered(lowering, layer, d))
            continue;
        lower_op_copy(lowering, (int)layer, at_host(OP_VALUE_ATTENDED, d),
                      lower_at(lowering, d, OP_VALUE_ATTENDED), width);
        lower_to_device(
            lowering, lower_blocking_copy(TASK_INPUT, d, (int)layer, 4.0 * (double)width * tokens));
    }
}

/* ---- a layer ---- */

static void send_rows(struct lowering *lowering, uint32_t layer)
{
    bool kept = keeps_rows(lowering);

    for (uint32_t d = 0; kept && d < lowering->placement->device_count; d++)
        if (lower_is_delivered(lowering, layer, d))
            keep_rows(lowering, layer, d);
    for (const char *part = "kv"; !kept && *part != '\0'; part++)
        for (uint32_t d = 0; d < lowering->placement->device_count; d++)
            if (lower_is_delivered(lowering, layer, d))
                store_rows(lowering, layer, d, *part);
}

/* Bytes that the host reads and writes for the rows of a layer. */
static double stored_bytes(const struct lowering *lowering, uint32_t layer)
{
    double row = 0;

    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (lower_is_delivered(lowering, layer, d))
            row += 2 * (cache_row(lowering, layer, d, 'k').bytes +
                        cache_row(lowering, layer, d, 'v').bytes);
    return row * lowering->step.tokens;
}

/* The host thread puts the rows of all devices into its cache. */
static void put_rows(struct lowering *lowering, uint32_t layer)
{
    store_ops(lowering, layer);
    lower_host(lowering, TASK_KV_STORE, (int)layer, stored_bytes(lowering, layer), 0);
}

/* The task appended last waits until the rows that have been sent are there. */
static void await_sent(struct lowering *lowering)
{
    struct lower_rows *rows = &lowering->rows;

    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (rows->sent[d] != LOWER_NO_TASK)
            lower_depend(lowering, rows->sent[d]);
    rows->layer = -1;
    rows->leaving = 0;
}

void lower_store_rows(struct lowering *lowering)
{
    if (lowering->rows.layer < 0)
        return;
    put_rows(lowering, (uint32_t)lowering->rows.layer);
    await_sent(lowering);
}

/* Copies of rows follow each other on a device's queue, so the last one's end is that of all. */
void lower_store_last_rows(struct lowering *lowering)
{
    double bytes = 0;

    if (lowering->rows.layer < 0 || !keeps_rows(lowering)) {
        lower_store_rows(lowering);
        return;
    }
    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++) {
        double of_layer = stored_bytes(lowering, layer);

        if (of_layer > 0)
            store_ops(lowering, layer);
        bytes += of_layer;
    }
    lower_host(lowering, TASK_KV_STORE, -1, bytes, 0);
    await_sent(lowering);
}

/* The rows' place on device `d` is written anew. */
void lower_await_rows(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    if ((lowering->rows.leaving >> d & 1) == 0)
        return;
    lowering->rows.leaving &= ~(1u << d);
    lower_wait(lowering, d, (int)layer, lowering->rows.sent[d]);
}

/* Our runtime's visit. The window has left the host, or is about to, without this step's rows,
 * which the device stores into it itself; so the rows are on their way while the device attends.
 * With many tokens the host stores them when those of the next layer want their place in its
 * memory. The issuing thread is a layer ahead by then. */
static void visit_without_waiting(struct lowering *lowering, uint32_t layer)
{
    if (!keeps_rows(lowering))
        lower_store_rows(lowering);
    for (uint32_t d = 0; lowering->rows.layer < 0 && d < MACHINE_DEVICES_MAX; d++)
        lowering->rows.sent[d] = LOWER_NO_TASK;
    lowering->rows.layer = (int32_t)layer;
    send_rows(lowering, layer);
    if (lowering->placement->attn_on_host) {
        attend_on_host(lowering, layer);
        return;
    }
    for (uint32_t d = 0; d < lowering->placement->device_count; d++)
        if (lower_is_delivered(lowering, layer, d))
            lower_await_window(lowering, layer, d);
}

/* Between K and V and attention: store the new rows, then deliver the windows or compute
 * here. All of it by the host thread, one device after the other, with the devices idle,
 * except for windows sent ahead. The small costs of the first device's copies are part of
 * the two splits. */
void lower_visit_host_cache(struct lowering *lowering, uint32_t layer)
{
    uint32_t count = lowering->placement->device_count;

    if (lowering->own) {
        visit_without_waiting(lowering, layer);
        return;
    }
    lower_host(lowering, TASK_SPLIT, (int)layer, 0, 2);
    for (uint32_t d = 0; d < count; d++)
        if (lower_is_delivered(lowering, layer, d))
            lower_sync(lowering, d, 0);
    send_rows(lowering, layer);
    put_rows(lowering, layer);
    if (lowering->placement->attn_on_host) {
        attend_on_host(lowering, layer);
        return;
    }
    if (lower_sends_ahead(lowering)) {
        for (uint32_t d = 0; d < count; d++)
            if (lower_is_delivered(lowering, layer, d))
                lower_await_window(lowering, layer, d);
        return;
    }
    for (const char *part = "kv"; *part != '\0'; part++)
        for (uint32_t d = 0; d < count; d++)
            if (lower_is_delivered(lowering, layer, d))
                deliver_window(lowering, layer, d, *part);
}

/* What goes back of the convolution is the end of its input, a strided view that llama.cpp copies
 * as the contiguous block around it: the whole input of the ubatch. Our runtime copies what it
 * needs. */
static struct program_task state_copy(const struct lowering *lowering, uint32_t layer, uint32_t d,
                                      bool to_device)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double sequences = lower_sequences(lowering);
    double state = 4.0 * sequences * (double)model_layer_recurrent_state(l);
    double conv = 4.0 * sequences * (double)model_layer_conv_state(l);
    double conv_input = conv / (l->gdn_conv_kernel - 1) *
                        (lowering->step.tokens / sequences + l->gdn_conv_kernel - 1);
    struct program_task copy =
        lower_blocking_copy(to_device ? TASK_STATE_IN : TASK_STATE_OUT, d, (int)layer,
                            state + (to_device || lowering->own ? conv : conv_input));

    copy.pageable = true;
    return copy;
}

/* A state that nobody waits for. Each layer has a place of its own on the device, so one that
 * comes has nothing to wait for either. */
void lower_add_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool to_device)
{
    struct program_task copy = state_copy(lowering, layer, d, to_device);

    copy.blocking = false;
    copy.launches = 1;
    lower_op_state(lowering, layer, d, to_device);
    if (to_device)
        lower_add(lowering, copy);
    else
        lower_add_behind(lowering, copy);
}

/* A recurrent state on the host comes to the device for its layer and goes back. */
void lower_visit_host_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool before)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double bytes = 4.0 * lower_sequences(lowering) *
                   (double)(model_layer_recurrent_state(l) + model_layer_conv_state(l));

    if (lowering->own) {
        if (before) {
            lower_await_state(lowering, layer, d);
        } else {
            lower_add_state(lowering, layer, d, false);
            lowering->states_out |= 1u << d;
        }
        return;
    }
    if (before) {
        lower_host(lowering, TASK_SPLIT, (int)layer, 0, 6);
        lower_host(lowering, TASK_HOST_STATE, (int)layer, 2 * bytes, 0);
    }
    lower_sync(lowering, d, 0);
    lower_op_state(lowering, layer, d, before);
    lower_add(lowering, state_copy(lowering, layer, d, before));
}
