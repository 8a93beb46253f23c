/* The operations behind the tasks: docs/arithmetic.md says what each computes, and the order
 * of operations in a block of each architecture is in "Blocks" there. */
#include "sim/lower_ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- appending ---- */

static int grow(struct lowering *lowering)
{
    struct program *program = lowering->program;

    if (program->op_count == lowering->op_capacity) {
        size_t capacity = lowering->op_capacity > 0 ? 2 * lowering->op_capacity : 1024;
        struct program_op *ops = realloc(program->ops, capacity * sizeof *ops);

        if (ops == NULL)
            return error_set(lowering->err, ERROR_MEMORY, "no memory for %zu operations", capacity);
        program->ops = ops;
        lowering->op_capacity = capacity;
    }
    return 0;
}

struct program_operand lower_at_host(enum op_value value)
{
    return (struct program_operand){.value = (uint8_t)value, .space = PROGRAM_AT_HOST};
}

struct program_operand lower_at(const struct lowering *lowering, uint32_t d, enum op_value value)
{
    if (lowering->on_host)
        return lower_at_host(value);
    return (struct program_operand){.value = (uint8_t)value, .space = (int16_t)d};
}

struct program_op *lower_op(struct lowering *lowering, enum op_kind kind, uint32_t d, int layer)
{
    struct program_operand none = lower_at(lowering, d, OP_VALUE_NONE);
    struct program_op *op = &lowering->spare_op;

    if (!lowering->failed && grow(lowering) != 0)
        lowering->failed = true;
    if (!lowering->failed)
        op = &lowering->program->ops[lowering->program->op_count++];
    *op = (struct program_op){.kind = kind,
                              .a = none,
                              .b = none,
                              .c = none,
                              .out = none,
                              .out2 = none,
                              .layer = layer,
                              .tensor = -1};
    return op;
}

static int32_t index_of(const struct lowering *lowering, const struct model_tensor *tensor)
{
    return tensor != NULL ? (int32_t)(tensor - lowering->model->tensors) : -1;
}

static const struct model_tensor *find(const struct lowering *lowering, int layer,
                                       enum tensor_role role)
{
    return model_find_tensor(lowering->model, layer, role);
}

static struct program_op *unary(struct lowering *lowering, enum op_kind kind, uint32_t d, int layer,
                                enum op_value a, enum op_value out)
{
    struct program_op *op = lower_op(lowering, kind, d, layer);

    op->a.value = (uint8_t)a;
    op->out.value = (uint8_t)out;
    return op;
}

static struct program_op *binary(struct lowering *lowering, enum op_kind kind, uint32_t d,
                                 int layer, enum op_value a, enum op_value b, enum op_value out)
{
    struct program_op *op = unary(lowering, kind, d, layer, a, out);

    op->b.value = (uint8_t)b;
    return op;
}

void lower_op_copy(struct lowering *lowering, int layer, struct program_operand from,
                   struct program_operand to, uint64_t width)
{
    struct program_op *op = lower_op(lowering, OP_COPY, 0, layer);

    op->a = from;
    op->out = to;
    op->width = width;
    op->segments = 1;
    op->from.row = op->to.row = width;
}

/* ---- norms and the residual stream ---- */

static void norm_rows(struct lowering *lowering, uint32_t d, int layer, enum op_value from,
                      enum op_value to, const struct model_tensor *weight, uint64_t rows,
                      uint64_t columns)
{
    struct program_op *op = unary(lowering, OP_NORM, d, layer, from, to);

    op->tensor = index_of(lowering, weight);
    op->rows = rows;
    op->columns = columns;
}

void lower_op_norm(struct lowering *lowering, uint32_t d, int layer, enum op_value from,
                   enum op_value to, enum tensor_role role)
{
    norm_rows(lowering, d, layer, from, to, find(lowering, layer, role), 1,
              lowering->model->n_embd);
}

static bool has(const struct lowering *lowering, int layer, enum tensor_role role)
{
    return find(lowering, layer, role) != NULL;
}

static void norm_result(struct lowering *lowering, uint32_t d, int layer, enum tensor_role role,
                        enum op_value to)
{
    if (has(lowering, layer, role))
        lower_op_norm(lowering, d, layer, OP_VALUE_RESULT, to, role);
    else if (to != OP_VALUE_RESULT)
        lower_op_copy(lowering, layer, lower_at(lowering, d, OP_VALUE_RESULT),
                      lower_at(lowering, d, to), lowering->model->n_embd);
}

static void join_residual(struct lowering *lowering, uint32_t d, int layer)
{
    binary(lowering, OP_JOIN, d, layer, OP_VALUE_RESIDUAL, OP_VALUE_RESULT, OP_VALUE_RESIDUAL)
        ->columns = lowering->model->n_embd;
}

/* The end of a block: its last part joins, and the whole is scaled in some models. */
static void join_block(struct lowering *lowering, uint32_t d, int layer)
{
    norm_result(lowering, d, layer, TENSOR_ROLE_FFN_POST_NORM, OP_VALUE_RESULT);
    join_residual(lowering, d, layer);
    if (has(lowering, layer, TENSOR_ROLE_LAYER_OUTPUT_SCALE)) {
        struct program_op *op =
            unary(lowering, OP_SCALE, d, layer, OP_VALUE_RESIDUAL, OP_VALUE_RESIDUAL);

        op->tensor = index_of(lowering, find(lowering, layer, TENSOR_ROLE_LAYER_OUTPUT_SCALE));
        op->columns = lowering->model->n_embd;
    }
}

void lower_op_join(struct lowering *lowering, uint32_t d)
{
    int layer = (int)lowering->part_layer;
    const struct model_layer *l = &lowering->model->layers[layer];
    uint64_t n_embd = lowering->model->n_embd;

    if (lowering->part == LOWER_PART_NONE || (lowering->joined >> d & 1) != 0)
        return;
    lowering->joined |= 1u << d;
    unary(lowering, OP_FINISH, d, layer, OP_VALUE_SUMS, OP_VALUE_RESULT)->columns = n_embd;
    switch (lowering->part) {
    case LOWER_PART_MIXER:
        if (has(lowering, layer, TENSOR_ROLE_FFN_NORM))
            norm_result(lowering, d, layer, TENSOR_ROLE_ATTN_POST_NORM, OP_VALUE_RESULT);
        join_residual(lowering, d, layer);
        break;
    case LOWER_PART_DENSE:
        if (l->n_expert > 0)
            norm_result(lowering, d, layer, TENSOR_ROLE_FFN_POST_NORM_1, OP_VALUE_DENSE);
        else
            join_block(lowering, d, layer);
        break;
    default:
        if (l->n_ff_shexp > 0)
            binary(lowering, OP_JOIN, d, layer, OP_VALUE_RESULT, OP_VALUE_SHARED, OP_VALUE_RESULT)
                ->columns = n_embd;
        norm_result(lowering, d, layer, TENSOR_ROLE_FFN_POST_NORM_2, OP_VALUE_RESULT);
        if (l->n_ff > 0)
            binary(lowering, OP_JOIN, d, layer, OP_VALUE_DENSE, OP_VALUE_RESULT, OP_VALUE_RESULT)
                ->columns = n_embd;
        join_block(lowering, d, layer);
    }
}

void lower_end_part(struct lowering *lowering, enum lower_part_kind kind, uint32_t layer)
{
    lowering->part = kind;
    lowering->part_layer = layer;
    lowering->joined = 0;
}

bool lower_reads_hidden(const struct lowering *lowering)
{
    return has(lowering, 0, TENSOR_ROLE_NEXTN_EH_PROJ);
}

/* Embedding and hidden row, each by a norm of its own, side by side into one projection. */
void lower_op_pair(struct lowering *lowering, uint32_t d)
{
    static const enum op_value values[2] = {OP_VALUE_EMBEDDED, OP_VALUE_HIDDEN};
    static const enum tensor_role roles[2] = {TENSOR_ROLE_NEXTN_ENORM, TENSOR_ROLE_NEXTN_HNORM};
    uint64_t n = lowering->model->n_embd;

    for (int i = 0; i < 2; i++) {
        struct program_op *op;

        lower_op_norm(lowering, d, 0, values[i], values[i], roles[i]);
        lower_op_copy(lowering, 0, lower_at(lowering, d, values[i]),
                      lower_at(lowering, d, OP_VALUE_PAIR), n);
        if (lowering->failed)
            return;
        op = &lowering->program->ops[lowering->program->op_count - 1];
        op->to.row = 2 * n;
        op->to.first = (uint64_t)i * n;
    }
    lower_op_matmul(lowering, d, 0, find(lowering, 0, TENSOR_ROLE_NEXTN_EH_PROJ),
                    (struct program_slice){.axis = 1}, n, OP_VALUE_PAIR, OP_VALUE_RESIDUAL);
}

/* ---- products ---- */

struct program_op *lower_op_matmul(struct lowering *lowering, uint32_t d, int layer,
                                   const struct model_tensor *weight, struct program_slice slice,
                                   uint64_t rows, enum op_value from, enum op_value to)
{
    struct program_op *op = unary(lowering, OP_MATMUL, d, layer, from, to);

    op->tensor = index_of(lowering, weight);
    op->slice = slice;
    op->rows = rows;
    op->columns = weight->ne[0];
    return op;
}

struct program_op *lower_op_partial(struct lowering *lowering, uint32_t d, int layer,
                                    const struct model_tensor *weight, struct program_slice slice,
                                    uint64_t columns, enum op_value from)
{
    struct program_op *op = unary(lowering, OP_PARTIAL, d, layer, from, OP_VALUE_SUMS);

    op->tensor = index_of(lowering, weight);
    op->slice = slice;
    op->rows = lowering->model->n_embd;
    op->columns = columns;
    return op;
}

/* ---- attention ---- */

static void turn(struct lowering *lowering, uint32_t layer, uint32_t d, enum op_value value,
                 uint32_t heads)
{
    struct program_op *op = unary(lowering, OP_ROPE, d, (int)layer, value, value);

    op->heads = heads;
    op->columns = lowering->model->layers[layer].head_dim_k;
    op->sliding = lowering->model->layers[layer].window > 0;
    op->tensor = op->sliding ? -1 : index_of(lowering, find(lowering, -1, TENSOR_ROLE_ROPE_FREQS));
}

void lower_op_rope(struct lowering *lowering, uint32_t layer, uint32_t d, bool resident)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &lowering->placement->slices[layer];
    uint32_t heads = slices->q_heads[d], kv_heads = slices->kv_heads[d];
    const struct model_tensor *q_norm = find(lowering, (int)layer, TENSOR_ROLE_ATTN_Q_NORM);
    const struct model_tensor *k_norm = find(lowering, (int)layer, TENSOR_ROLE_ATTN_K_NORM);
    const enum op_value key = lower_new_rows(lowering, layer, d, 'k');
    const enum op_value value = lower_new_rows(lowering, layer, d, 'v');

    if (l->q_gated) {
        struct program_op *op =
            unary(lowering, OP_SPLIT_GATE, d, (int)layer, OP_VALUE_QUERY_GATE, OP_VALUE_QUERY);

        op->out2.value = OP_VALUE_GATE;
        op->heads = heads;
        op->columns = l->head_dim_k;
    }
    if (l->v_from_k)
        lower_op_copy(lowering, (int)layer, lower_at(lowering, d, key),
                      lower_at(lowering, d, value), (uint64_t)kv_heads * l->head_dim_k);
    if (strcmp(lowering->model->arch, "gemma4") == 0)
        norm_rows(lowering, d, (int)layer, value, value, NULL, kv_heads, l->head_dim_v);
    if (q_norm != NULL)
        norm_rows(lowering, d, (int)layer, OP_VALUE_QUERY, OP_VALUE_QUERY, q_norm, heads,
                  l->head_dim_k);
    if (k_norm != NULL)
        norm_rows(lowering, d, (int)layer, key, key, k_norm, kv_heads, l->head_dim_k);
    turn(lowering, layer, d, OP_VALUE_QUERY, heads);
    turn(lowering, layer, d, key, kv_heads);
    if (resident)
        lower_op_store(lowering, layer, d, -1);
}

/* Where the device's heads lie in the rows of a cache: its own rows begin with them, a host's
 * hold those of all. */
static void place_heads(const struct lowering *lowering, uint32_t layer, uint32_t d,
                        struct program_op *op)
{
    const struct share_slices *slices = &lowering->placement->slices[layer];

    op->heads = slices->q_heads[d];
    op->kv_heads = op->row_heads = slices->kv_heads[d];
    op->sliding = lowering->model->layers[layer].window > 0;
    if (!lowering->on_host)
        return;
    op->row_heads = lowering->model->layers[layer].n_head_kv;
    op->kv_first = (uint32_t)share_first(slices->rotation, slices->kv_heads,
                                         lowering->placement->device_count, d);
}

void lower_op_shift(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    struct program_op *op =
        unary(lowering, OP_SHIFT, d, (int)layer, OP_VALUE_SHIFTS, OP_VALUE_CACHE_K);

    place_heads(lowering, layer, d, op);
    op->a.slot = op->sliding;
    op->columns = lowering->model->layers[layer].head_dim_k;
    op->tensor = op->sliding ? -1 : index_of(lowering, find(lowering, -1, TENSOR_ROLE_ROPE_FREQS));
}

static enum op_value cache_of(int place, char part)
{
    if (place < 0)
        return part == 'k' ? OP_VALUE_CACHE_K : OP_VALUE_CACHE_V;
    return part == 'k' ? OP_VALUE_WINDOW_K : OP_VALUE_WINDOW_V;
}

void lower_op_store(struct lowering *lowering, uint32_t layer, uint32_t d, int place)
{
    const struct model_layer *l = &lowering->model->layers[layer];

    for (const char *part = "kv"; *part != '\0'; part++) {
        struct program_op *op =
            unary(lowering, OP_STORE, d, (int)layer, lower_new_rows(lowering, layer, d, *part),
                  cache_of(place, *part));

        place_heads(lowering, layer, d, op);
        op->columns = *part == 'k' ? l->head_dim_k : l->head_dim_v;
        op->out.slot = (uint8_t)(place < 0 ? 0 : place);
    }
}

void lower_op_store_rows(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    size_t first = lowering->program->op_count;

    lower_op_store(lowering, layer, d, -1);
    for (size_t i = first; i < lowering->program->op_count; i++) {
        struct program_op *op = &lowering->program->ops[i];

        op->a.value = op->a.value == OP_VALUE_KEY ? OP_VALUE_ROWS_K : OP_VALUE_ROWS_V;
        op->from.row = op->row_heads * op->columns;
        op->from.first = op->kv_first * op->columns;
    }
}

void lower_op_attend(struct lowering *lowering, uint32_t layer, uint32_t d, int place)
{
    struct program_op *op =
        unary(lowering, OP_ATTEND, d, (int)layer, OP_VALUE_QUERY, OP_VALUE_ATTENDED);

    op->b.value = (uint8_t)cache_of(place, 'k');
    op->c.value = (uint8_t)cache_of(place, 'v');
    op->b.slot = op->c.slot = (uint8_t)(place < 0 ? 0 : place);
    place_heads(lowering, layer, d, op);
    op->columns = lowering->model->layers[layer].head_dim_k;
    op->rows = lowering->model->layers[layer].head_dim_v;
}

void lower_attention_ops(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    bool resident = lowering->on_host || (placement->kv_resident[layer] >> d & 1) != 0;
    uint32_t places = placement->plan.delivery_depth + 1;

    if (resident) {
        lower_op_attend(lowering, layer, d, -1);
        return;
    }
    if (!lower_sends_ahead(lowering)) {
        lower_op_attend(lowering, layer, d, 0);
        return;
    }
    /* The window left the host before this step's rows came there. */
    lower_op_store(lowering, layer, d, (int)(lowering->rings[d].place % places));
    lower_op_attend(lowering, layer, d, (int)(lowering->rings[d].place % places));
}

void lower_op_gate(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &lowering->model->layers[layer];

    binary(lowering, OP_GATE, d, (int)layer, OP_VALUE_ATTENDED, OP_VALUE_GATE, OP_VALUE_ATTENDED)
        ->columns = (uint64_t)lowering->placement->slices[layer].q_heads[d] * l->head_dim_v;
}

/* ---- feed-forward ---- */

enum tensor_role lower_ffn_norm(const struct lowering *lowering, uint32_t layer)
{
    return has(lowering, (int)layer, TENSOR_ROLE_FFN_NORM) ? TENSOR_ROLE_FFN_NORM
                                                           : TENSOR_ROLE_ATTN_POST_NORM;
}

void lower_op_glu(struct lowering *lowering, uint32_t layer, uint32_t d, uint32_t rows,
                  uint64_t width)
{
    struct program_op *op =
        binary(lowering, OP_GLU, d, (int)layer, OP_VALUE_FF_GATE, OP_VALUE_FF_UP, OP_VALUE_FF_GATE);

    op->rows = rows;
    op->columns = width;
}

void lower_op_shared(struct lowering *lowering, uint32_t layer, uint32_t d,
                     const struct model_tensor *down)
{
    const struct model_tensor *gate = find(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_INP_SHEXP);
    struct program_op *op;

    lower_op_matmul(lowering, d, (int)layer, down, (struct program_slice){.axis = 1},
                    lowering->model->n_embd, OP_VALUE_FF_GATE, OP_VALUE_SHARED);
    if (gate == NULL)
        return;
    op = binary(lowering, OP_SHARED_GATE, d, (int)layer, OP_VALUE_SHARED, OP_VALUE_NORMED,
                OP_VALUE_SHARED);
    op->tensor = index_of(lowering, gate);
    op->columns = lowering->model->n_embd;
}

/* ---- gated delta net ---- */

void lower_op_delta_net(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &lowering->placement->slices[layer];
    uint32_t ratio = l->gdn_v_heads / l->gdn_k_heads;
    struct program_slice heads = {.axis = 1,
                                  .segments = (uint8_t)(2 + ratio),
                                  .first = share_first(slices->rotation, slices->gdn_k_heads,
                                                       lowering->placement->device_count, d),
                                  .count = slices->gdn_k_heads[d]};
    struct program_op *op = unary(lowering, OP_CONVOLVE, d, (int)layer, OP_VALUE_MIX, OP_VALUE_MIX);

    op->b.value = OP_VALUE_CONV;
    op->tensor = index_of(lowering, find(lowering, (int)layer, TENSOR_ROLE_SSM_CONV1D));
    op->slice = heads;
    op->slice.first *= l->gdn_state_dim;
    op->slice.count *= l->gdn_state_dim;
    op->columns = op->slice.count * (2 + ratio);

    op = binary(lowering, OP_DELTA, d, (int)layer, OP_VALUE_MIX, OP_VALUE_BETA, OP_VALUE_ATTENDED);
    op->c.value = OP_VALUE_ALPHA;
    op->out2.value = OP_VALUE_STATE;
    op->slice = heads;
    op->slice.segments = (uint8_t)ratio;
    op->heads = slices->gdn_v_heads[d];
    op->kv_heads = slices->gdn_k_heads[d];
    op->columns = l->gdn_state_dim;

    op = binary(lowering, OP_NORM_GATE, d, (int)layer, OP_VALUE_ATTENDED, OP_VALUE_GATE,
                OP_VALUE_ATTENDED);
    op->tensor = index_of(lowering, find(lowering, (int)layer, TENSOR_ROLE_SSM_NORM));
    op->heads = slices->gdn_v_heads[d];
    op->columns = l->gdn_state_dim;
}

/* One copy for the state, one for the convolution's: (slots and planes, segments of heads). */
void lower_op_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool to_device)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &lowering->placement->slices[layer];
    uint64_t first =
        share_first(slices->rotation, slices->gdn_k_heads, lowering->placement->device_count, d);
    uint64_t count = slices->gdn_k_heads[d], all = l->gdn_k_heads;
    uint32_t ratio = l->gdn_v_heads / l->gdn_k_heads;

    for (int conv = 0; conv < 2; conv++) {
        uint64_t unit = conv ? l->gdn_state_dim : (uint64_t)l->gdn_state_dim * l->gdn_state_dim;
        uint32_t segments = conv ? 2 + ratio : ratio;
        enum op_value value = conv ? OP_VALUE_CONV : OP_VALUE_STATE;
        struct program_layout host = {
            .row = all * unit * segments, .segment = all * unit, .first = first * unit};
        struct program_layout device = {.row = count * unit * segments, .segment = count * unit};
        struct program_op *op = lower_op(lowering, OP_COPY, d, (int)layer);

        op->a = to_device ? lower_at_host(value) : lower_at(lowering, d, value);
        op->out = to_device ? lower_at(lowering, d, value) : lower_at_host(value);
        op->from = to_device ? host : device;
        op->to = to_device ? device : host;
        op->width = count * unit;
        op->segments = segments;
    }
}

/* ---- experts ---- */

void lower_op_route(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    struct program_op *op =
        unary(lowering, OP_ROUTE, d, (int)layer, OP_VALUE_ROUTER, OP_VALUE_ROUTE);

    op->columns = l->n_expert;
    op->rows = l->n_expert_used;
    op->tensor = index_of(lowering, find(lowering, (int)layer, TENSOR_ROLE_FFN_DOWN_EXPS_SCALE));
}

/* The router of gemma4 reads the residual stream by a norm and a scale of its own. */
enum op_value lower_router_input(const struct lowering *lowering, uint32_t layer)
{
    return has(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_INP_SCALE) ? OP_VALUE_ROUTER_IN
                                                                     : OP_VALUE_NORMED;
}

void lower_op_experts_norm(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    uint64_t n_embd = lowering->model->n_embd;
    struct program_op *op;

    lower_op_norm(lowering, d, (int)layer, OP_VALUE_RESIDUAL, OP_VALUE_NORMED,
                  has(lowering, (int)layer, TENSOR_ROLE_FFN_PRE_NORM_2)
                      ? TENSOR_ROLE_FFN_PRE_NORM_2
                      : lower_ffn_norm(lowering, layer));
    if (lower_router_input(lowering, layer) == OP_VALUE_NORMED)
        return;
    norm_rows(lowering, d, (int)layer, OP_VALUE_RESIDUAL, OP_VALUE_ROUTER_IN, NULL, 1, n_embd);
    op = unary(lowering, OP_SCALE_ROW, d, (int)layer, OP_VALUE_ROUTER_IN, OP_VALUE_ROUTER_IN);
    op->tensor = index_of(lowering, find(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_INP_SCALE));
    op->columns = n_embd;
}

void lower_op_experts(struct lowering *lowering, uint32_t layer, uint32_t d,
                      const struct model_tensor *weight, struct program_slice slice, uint64_t rows,
                      uint64_t columns)
{
    static const enum op_value outputs[2] = {OP_VALUE_FF_GATE, OP_VALUE_FF_UP};
    const struct model_layer *l = &lowering->model->layers[layer];
    uint32_t segments = slice.segments;

    if (slice.axis == 0) {
        struct program_op *op = binary(lowering, OP_EXPERTS_PARTIAL, d, (int)layer,
                                       OP_VALUE_FF_GATE, OP_VALUE_ROUTE, OP_VALUE_SUMS);

        op->tensor = index_of(lowering, weight);
        op->slice = slice;
        op->rows = rows;
        op->columns = columns;
        return;
    }
    for (uint32_t i = 0; i < segments; i++) {
        bool up = i > 0 || weight->role == TENSOR_ROLE_FFN_UP_EXPS;
        struct program_op *op = binary(lowering, OP_EXPERTS, d, (int)layer, OP_VALUE_NORMED,
                                       OP_VALUE_ROUTE, outputs[up]);

        op->tensor = index_of(lowering, weight);
        op->slice = slice;
        op->slice.segments = 1;
        op->slice.first += (uint64_t)i * l->n_ff_exp;
        op->rows = rows / segments;
        op->columns = columns;
    }
}

/* ---- the head ---- */

uint64_t lower_head_first(const struct lowering *lowering, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    uint32_t count = placement->device_count, rotation = lowering->model->n_layer % count;
    uint64_t first = 0;

    if (placement->output_rows[d] == lowering->model->n_vocab)
        return 0;
    for (uint32_t j = 0; j < count && (j + rotation) % count != d; j++)
        first += placement->output_rows[(j + rotation) % count];
    return first;
}

void lower_op_head_norm(struct lowering *lowering, uint32_t d)
{
    lower_op_join(lowering, d);
    unary(lowering, OP_SELECT, d, -1, OP_VALUE_RESIDUAL, OP_VALUE_LAST)->columns =
        lowering->model->n_embd;
    if (has(lowering, -1, TENSOR_ROLE_OUTPUT_NORM))
        lower_op_norm(lowering, d, -1, OP_VALUE_LAST, OP_VALUE_NORMED, TENSOR_ROLE_OUTPUT_NORM);
    else
        lower_op_norm(lowering, d, 0, OP_VALUE_LAST, OP_VALUE_NORMED,
                      TENSOR_ROLE_NEXTN_SHARED_HEAD_NORM);
    lowering->program->ops[lowering->program->op_count - 1].outputs = true;
}

void lower_op_head(struct lowering *lowering, uint32_t d, const struct model_tensor *output,
                   struct program_slice slice, uint64_t rows)
{
    struct program_op *op =
        lower_op_matmul(lowering, d, -1, output, slice, rows, OP_VALUE_NORMED, OP_VALUE_LOGITS);

    op->outputs = true;
    op = unary(lowering, OP_SOFTCAP, d, -1, OP_VALUE_LOGITS, OP_VALUE_LOGITS);
    op->columns = rows;
    op->outputs = true;
    if (!lowering->step.picks)
        return;
    op = unary(lowering, OP_PICK, d, -1, OP_VALUE_LOGITS, OP_VALUE_PICKS);
    op->columns = rows;
    op->rows = lowering->on_host ? lowering->placement->device_count : 1;
    op->slice.first = lowering->on_host ? 0 : lower_head_first(lowering, d);
    op->outputs = true;
}

/* A device's picks go to its column of the host's. */
static void send_picks(struct lowering *lowering, uint32_t d)
{
    struct program_op *op = lower_op(lowering, OP_COPY, d, -1);

    op->a.value = op->out.value = OP_VALUE_PICKS;
    op->out.space = PROGRAM_AT_HOST;
    op->width = op->segments = 1;
    op->from.row = 1;
    op->to.row = lowering->placement->device_count;
    op->to.first = d;
    op->outputs = true;
}

void lower_op_logits(struct lowering *lowering, uint32_t d)
{
    uint64_t rows = lowering->placement->output_rows[d], all = lowering->model->n_vocab;
    struct program_op *op;

    if (!placement_gives_logits(lowering->placement, d))
        return;
    if (lowering->step.picks) {
        send_picks(lowering, d);
        return;
    }
    op = lower_op(lowering, OP_COPY, d, -1);
    op->a.value = op->out.value = OP_VALUE_LOGITS;
    op->out.space = PROGRAM_AT_HOST;
    op->width = rows;
    op->segments = 1;
    op->from.row = rows;
    op->to.row = all;
    op->to.first = lower_head_first(lowering, d);
    op->outputs = true;
}
