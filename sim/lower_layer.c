/* The kernels of a layer, in the order of llama.cpp's graphs (docs/time-model.md
 * lists them with their sources). Work is what the device's slice needs. */
#include <string.h>

#include "sim/lower_ops.h"

static const struct model_tensor *find(const struct lowering *lowering, int layer,
                                       enum tensor_role role)
{
    return model_find_tensor(lowering->model, layer, role);
}

static struct program_task kernel_task(enum task_kind kind, uint32_t kernels)
{
    return (struct program_task){
        .kind = kind, .tensor = -1, .kernels = kernels, .experts = 1, .tokens = 1};
}

/* In llama.cpp activations are quantised by a kernel of their own before each product, never
 * shared: f32 in, q8_1 out (36 bytes for 32 values). */
static double quantising_bytes(enum tensor_type type, double values)
{
    return tensor_type_info(type)->quantised ? (4 + 36 / 32.0) * values : 0;
}

/* ---- products of our own runtime ---- */

/* The kernel that computes `value` on device `d` quantises it too. */
static void makes_activations(struct lowering *lowering, uint32_t d, enum op_value value)
{
    if (!lowering->on_host)
        lowering->activations[d].quantised = value;
}

/* Whether the product is part of the launch before: the same input and type, few tokens, and no
 * other task between. */
static bool joins_product(const struct lowering *lowering, uint32_t d, enum op_value from,
                          const struct program_task *task)
{
    const struct lower_activations *activations = &lowering->activations[d];

    return task->kind == TASK_MATMUL && task->tokens <= LOWER_FEW_TOKENS &&
           activations->product != LOWER_NO_TASK &&
           activations->product + (size_t)1 == lowering->program->task_count &&
           activations->input == from &&
           lowering->program->tasks[activations->product].type == task->type;
}

/* Activations that are not there quantised, because something else was quantised since, take a
 * kernel of their own, and serve all products behind it. */
static void count_own_kernels(struct lowering *lowering, uint32_t d, enum op_value from,
                              struct program_task *task)
{
    struct lower_activations *activations = &lowering->activations[d];
    bool quantised = tensor_type_info(task->type)->quantised;

    task->kernels = quantised && joins_product(lowering, d, from, task) ? 0 : 1;
    if (!quantised || activations->quantised == from)
        task->input_bytes = 0;
    else
        task->kernels++;
    if (quantised)
        activations->quantised = from;
    activations->input = from;
    activations->product = quantised && task->kind == TASK_MATMUL
                               ? (uint32_t)lowering->program->task_count
                               : LOWER_NO_TASK;
}

static void add_product(struct lowering *lowering, uint32_t d, int layer, enum op_value from,
                        struct program_task task)
{
    if (lowering->own && !lowering->on_host) {
        if (task.kind == TASK_MATMUL)
            task.group = share_group(lowering->model, &lowering->model->tensors[task.tensor]);
        count_own_kernels(lowering, d, from, &task);
    }
    lower_kernel(lowering, d, layer, task);
}

/* ---- products ---- */

/* The task of a product with rows x columns of a weight; nothing where the slice is empty.
 * `kernels` as llama.cpp has them. */
static void matmul_task(struct lowering *lowering, uint32_t d, int layer,
                        const struct model_tensor *weight, struct program_slice slice,
                        uint64_t rows, uint64_t columns, uint32_t tokens, enum op_value from,
                        uint32_t kernels)
{
    struct program_task task = kernel_task(TASK_MATMUL, kernels);

    if (weight == NULL || rows == 0 || columns == 0 || tokens == 0)
        return;
    task.tensor = (int32_t)(weight - lowering->model->tensors);
    task.slice = slice;
    task.type = weight->type;
    task.rows = rows;
    task.columns = columns;
    task.tokens = tokens;
    task.flops = 2.0 * (double)rows * (double)columns * tokens;
    task.bytes = (double)rows * (double)tensor_type_row_bytes(weight->type, columns) +
                 4.0 * (double)rows * tokens;
    task.input_bytes = quantising_bytes(weight->type, (double)columns * tokens);
    add_product(lowering, d, layer, from, task);
}

/* A product with its operands, of all tokens. */
static void matmul(struct lowering *lowering, uint32_t d, int layer,
                   const struct model_tensor *weight, struct program_slice slice, uint64_t rows,
                   uint64_t columns, enum op_value from, enum op_value to, uint32_t kernels)
{
    if (weight == NULL || rows == 0)
        return;
    lower_op_matmul(lowering, d, layer, weight, slice, rows, from, to);
    matmul_task(lowering, d, layer, weight, slice, rows, columns, lowering->step.tokens, from,
                kernels);
}

/* The projection whose result the devices' partial sums are: in chunks of tokens if the
 * plan says so, of which this appends the first. */
static void tail_matmul(struct lowering *lowering, uint32_t d, uint32_t layer,
                        const struct model_tensor *weight, struct program_slice slice,
                        uint64_t columns, enum op_value from)
{
    uint32_t chunks = lower_chunks(lowering), tokens = lowering->step.tokens / chunks;

    if (weight == NULL || columns == 0)
        return;
    lower_op_partial(lowering, d, (int)layer, weight, slice, columns, from);
    for (size_t i = lowering->op_pending; i < lowering->program->op_count && chunks > 1; i++)
        lowering->program->ops[i].tokens = tokens;
    matmul_task(lowering, d, (int)layer, weight, slice, lowering->model->n_embd, columns, tokens,
                from, 2);
    if (!lowering->on_host)
        lowering->tail[d] = (uint32_t)lowering->program->task_count - 1;
}

/* An element-wise kernel that moves `bytes` through device memory. */
static void elementwise(struct lowering *lowering, uint32_t d, int layer, enum task_kind kind,
                        double bytes, uint32_t kernels)
{
    struct program_task task = kernel_task(kind, kernels);

    task.bytes = bytes;
    task.tokens = lowering->step.tokens;
    lower_kernel(lowering, d, layer, task);
}

static struct program_slice rows_of(uint64_t first, uint64_t count)
{
    return (struct program_slice){.axis = 1, .segments = 1, .first = first, .count = count};
}

static struct program_slice columns_of(uint64_t first, uint64_t count)
{
    return (struct program_slice){.axis = 0, .segments = 1, .first = first, .count = count};
}

/* Norms beyond the two that every block has: before and after each part, where a model has
 * such tensors. post_attention_norm is one of the two where there is no ffn_norm. */
static uint32_t extra_norms(const struct lowering *lowering, uint32_t layer)
{
    static const enum tensor_role roles[] = {
        TENSOR_ROLE_FFN_POST_NORM,   TENSOR_ROLE_FFN_PRE_NORM_2,     TENSOR_ROLE_FFN_POST_NORM_1,
        TENSOR_ROLE_FFN_POST_NORM_2, TENSOR_ROLE_LAYER_OUTPUT_SCALE,
    };
    uint32_t count = find(lowering, (int)layer, TENSOR_ROLE_FFN_NORM) != NULL &&
                     find(lowering, (int)layer, TENSOR_ROLE_ATTN_POST_NORM) != NULL;

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        count += find(lowering, (int)layer, roles[i]) != NULL;
    return count;
}

static void norm(struct lowering *lowering, uint32_t layer, uint32_t d, bool after_add)
{
    double row = 4.0 * lowering->model->n_embd * lowering->step.tokens;

    /* The add before is a kernel of its own unless it is fused into a one-column product; our
     * runtime has one kernel for the end of a part, the add and the norm. */
    elementwise(lowering, d, (int)layer, TASK_NORM, after_add ? 5 * row : 2 * row,
                after_add && !lowering->own ? 2 : 1);
    makes_activations(lowering, d, OP_VALUE_NORMED);
}

/* ---- softmax attention ---- */

static void attention_head(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    uint32_t count = placement->device_count, tokens = lowering->step.tokens;
    uint64_t q_first = share_first(slices->rotation, slices->q_heads, count, d);
    uint64_t kv_first = share_first(slices->rotation, slices->kv_heads, count, d);
    uint64_t q_rows = (uint64_t)slices->q_heads[d] * l->head_dim_k * (l->q_gated ? 2 : 1);
    uint64_t k_rows = (uint64_t)slices->kv_heads[d] * l->head_dim_k;
    uint64_t v_rows = (uint64_t)slices->kv_heads[d] * l->head_dim_v;
    uint64_t columns = lowering->model->n_embd;
    bool quantised = tensor_type_info(placement->plan.type_k)->quantised;
    struct program_task task;

    if (!lowering->on_host)
        lower_await_rows(lowering, layer, d);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_Q),
           rows_of(q_first * l->head_dim_k * (l->q_gated ? 2 : 1), q_rows), q_rows, columns,
           OP_VALUE_NORMED, l->q_gated ? OP_VALUE_QUERY_GATE : OP_VALUE_QUERY, 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_K),
           rows_of(kv_first * l->head_dim_k, k_rows), k_rows, columns, OP_VALUE_NORMED,
           lower_new_rows(lowering, layer, d, 'k'), 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_V),
           rows_of(kv_first * l->head_dim_v, v_rows), v_rows, columns, OP_VALUE_NORMED,
           lower_new_rows(lowering, layer, d, 'v'), 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_GATE),
           rows_of(q_first * l->head_dim_v, (uint64_t)slices->q_heads[d] * l->head_dim_v),
           (uint64_t)slices->q_heads[d] * l->head_dim_v, columns, OP_VALUE_NORMED, OP_VALUE_GATE,
           2);
    if (q_rows == 0)
        return;
    lower_op_rope(lowering, layer, d,
                  lowering->on_host || (placement->kv_resident[layer] >> d & 1) != 0);
    /* Our runtime has one kernel for what heads go through, into a cache of any type. */
    task =
        kernel_task(TASK_ROPE, lowering->own ? 1u : (l->q_gated ? 7u : 3u) + (quantised ? 3u : 0u));
    task.bytes = 8.0 * (double)(q_rows + k_rows + v_rows) * tokens;
    task.head_dim = l->head_dim_k;
    task.normed = find(lowering, (int)layer, TENSOR_ROLE_ATTN_Q_NORM) != NULL;
    task.tokens = lowering->step.tokens;
    lower_kernel(lowering, d, (int)layer, task);
}

static void attention(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    struct program_task task = kernel_task(TASK_ATTENTION, 2);
    uint64_t k_values, v_values;

    placement_kv_row(placement, layer, d, &k_values, &v_values);
    task.tokens = lowering->step.tokens;
    task.heads = slices->q_heads[d];
    task.heads_all = l->n_head;
    task.kv_heads = slices->kv_heads[d];
    task.head_dim = l->head_dim_k;
    task.cache_type = placement->plan.type_k;
    task.window = l->window > 0 ? PROGRAM_WINDOW_SLIDING : PROGRAM_WINDOW_BASE;
    task.flops_per_cell = 2.0 * (l->head_dim_k + l->head_dim_v) * slices->q_heads[d] * task.tokens;
    task.sequences = lower_sequences(lowering);
    task.streams = lower_streams(lowering);
    task.bytes_per_cell = (double)(tensor_type_row_bytes(placement->plan.type_k, k_values) +
                                   tensor_type_row_bytes(placement->plan.type_v, v_values)) *
                          lower_streams(lowering);
    task.bytes = 8.0 * slices->q_heads[d] * l->head_dim_v * task.tokens;
    if (task.heads == 0 || lower_attends_on_host(lowering, layer, d))
        return;
    lower_attention_ops(lowering, layer, d);
    lower_kernel(lowering, d, (int)layer, task);
    if (!lowering->on_host)
        lowering->attention[d] = (uint32_t)lowering->program->task_count - 1;
}

static void attention_tail(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    const struct model_tensor *output = find(lowering, (int)layer, TENSOR_ROLE_ATTN_OUTPUT);
    uint64_t columns = (uint64_t)slices->q_heads[d] * l->head_dim_v;
    uint64_t first =
        share_first(slices->rotation, slices->q_heads, placement->device_count, d) * l->head_dim_v;

    attention(lowering, layer, d);
    makes_activations(lowering, d, OP_VALUE_ATTENDED);
    if (lowering->own && !lowering->on_host)
        lower_send_next(lowering, layer, d);
    if (l->mixer == MODEL_MIXER_MLA && output != NULL)
        columns = output->ne[0] / l->n_head * slices->q_heads[d];
    if (columns > 0 && (l->q_gated || find(lowering, (int)layer, TENSOR_ROLE_ATTN_GATE) != NULL))
        lower_op_gate(lowering, layer, d);
    tail_matmul(lowering, d, layer, output, columns_of(first, columns), columns, OP_VALUE_ATTENDED);
}

/* ---- latent attention ---- */

/* Whole, on one device: llama.cpp has no tensor split for it. */
static void latent_head(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    static const struct {
        enum tensor_role role;
        enum op_value from;
    } products[] = {
        {TENSOR_ROLE_ATTN_Q, OP_VALUE_NORMED},  {TENSOR_ROLE_ATTN_Q_A, OP_VALUE_NORMED},
        {TENSOR_ROLE_ATTN_Q_B, OP_VALUE_QUERY}, {TENSOR_ROLE_ATTN_KV_A_MQA, OP_VALUE_NORMED},
        {TENSOR_ROLE_ATTN_K_B, OP_VALUE_QUERY}, {TENSOR_ROLE_ATTN_V_B, OP_VALUE_ATTENDED},
    };

    lowering->program->not_executable = "latent attention";
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct model_tensor *weight = find(lowering, (int)layer, products[i].role);

        if (weight != NULL)
            matmul_task(lowering, d, (int)layer, weight, (struct program_slice){.axis = 1},
                        weight->ne[1] * weight->ne[2], weight->ne[0], lowering->step.tokens,
                        products[i].from, 2);
    }
    elementwise(lowering, d, (int)layer, TASK_ROPE,
                8.0 * lowering->model->layers[layer].head_dim_k * lowering->step.tokens, 5);
}

/* ---- gated delta net ---- */

static void delta_net_head(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    uint32_t segments = 2 + l->gdn_v_heads / l->gdn_k_heads;
    uint64_t key = (uint64_t)slices->gdn_k_heads[d] * l->gdn_state_dim;
    uint64_t value = (uint64_t)slices->gdn_v_heads[d] * l->gdn_state_dim;
    uint64_t first = share_first(slices->rotation, slices->gdn_k_heads, placement->device_count, d);
    uint64_t columns = lowering->model->n_embd;
    struct program_slice qkv = {
        .axis = 1, .segments = (uint8_t)segments, .first = first * l->gdn_state_dim, .count = key};
    struct program_slice values = qkv, heads = qkv;

    values.segments = heads.segments = (uint8_t)(segments - 2);
    heads.first = first;
    heads.count = slices->gdn_k_heads[d];
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_QKV), qkv,
           2 * key + value, columns, OP_VALUE_NORMED, OP_VALUE_MIX, 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_ATTN_GATE), values,
           value, columns, OP_VALUE_NORMED, OP_VALUE_GATE, 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_SSM_BETA), heads,
           slices->gdn_v_heads[d], columns, OP_VALUE_NORMED, OP_VALUE_BETA, 2);
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_SSM_ALPHA), heads,
           slices->gdn_v_heads[d], columns, OP_VALUE_NORMED, OP_VALUE_ALPHA, 2);
}

static void delta_net_tail(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    struct program_task task = kernel_task(TASK_DELTA_NET, lowering->own ? 2 : 10);
    double share = (double)slices->gdn_k_heads[d] / l->gdn_k_heads;
    uint64_t value = (uint64_t)slices->gdn_v_heads[d] * l->gdn_state_dim;
    uint64_t key = (uint64_t)slices->gdn_k_heads[d] * l->gdn_state_dim;

    task.tokens = lowering->step.tokens;
    task.heads = slices->gdn_v_heads[d];
    task.head_dim = l->gdn_state_dim;
    task.flops = 7.0 * (double)value * l->gdn_state_dim * task.tokens;
    task.sequences = lower_sequences(lowering);
    task.state_bytes = 4.0 * share * task.sequences *
                       (double)(model_layer_recurrent_state(l) + model_layer_conv_state(l));
    task.bytes = 24.0 * (double)(2 * key + 2 * value) * task.tokens +
                 lowering->step.snapshots * task.state_bytes;
    if (task.heads > 0) {
        lower_op_delta_net(lowering, layer, d);
        lower_kernel(lowering, d, (int)layer, task);
        makes_activations(lowering, d, OP_VALUE_ATTENDED);
    }
    tail_matmul(lowering, d, layer, find(lowering, (int)layer, TENSOR_ROLE_SSM_OUT),
                (struct program_slice){.axis = 0,
                                       .segments = (uint8_t)(l->gdn_v_heads / l->gdn_k_heads),
                                       .first = share_first(slices->rotation, slices->gdn_k_heads,
                                                            placement->device_count, d) *
                                                l->gdn_state_dim,
                                       .count = key},
                value, OP_VALUE_ATTENDED);
}

/* Projections that no role names: a drafter's own. */
static void other_projections(struct lowering *lowering, int layer, uint32_t d, uint32_t tokens)
{
    for (size_t i = 0; i < lowering->model->tensor_count; i++) {
        const struct model_tensor *tensor = &lowering->model->tensors[i];

        if (tensor->layer == layer && tensor->role == TENSOR_ROLE_OTHER && tensor->ne[1] > 1)
            matmul_task(lowering, d, layer, tensor, (struct program_slice){.axis = 1},
                        tensor->ne[1], tensor->ne[0], tokens, OP_VALUE_HIDDEN, 2);
    }
}

void lower_mixer_head(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    uint32_t extra = extra_norms(lowering, layer);

    lower_op_join(lowering, d);
    if (layer == 0 && lower_reads_hidden(lowering))
        lower_op_pair(lowering, d);
    lower_op_norm(lowering, d, (int)layer, OP_VALUE_RESIDUAL, OP_VALUE_NORMED,
                  TENSOR_ROLE_ATTN_NORM);
    norm(lowering, layer, d, layer > 0);
    if (extra > 0)
        elementwise(lowering, d, (int)layer, TASK_NORM,
                    8.0 * extra * lowering->model->n_embd * lowering->step.tokens, extra);
    if (strcmp(lowering->model->arch, "dflash") == 0)
        other_projections(lowering, (int)layer, d, lowering->step.tokens);
    switch (lowering->model->layers[layer].mixer) {
    case MODEL_MIXER_GATED_DELTA_NET:
        delta_net_head(lowering, layer, d);
        break;
    case MODEL_MIXER_MLA:
        latent_head(lowering, layer, d);
        break;
    default:
        attention_head(lowering, layer, d);
    }
}

void lower_mixer_tail(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    if (lowering->model->layers[layer].mixer == MODEL_MIXER_GATED_DELTA_NET)
        delta_net_tail(lowering, layer, d);
    else
        attention_tail(lowering, layer, d);
}

/* ---- feed-forward ---- */

/* gate, up, activation and down of width `width` (this device's part). At one token the
 * two products and the activation are one kernel in llama.cpp; in our runtime the products are
 * one launch, and the activation quantises its result for the last one. What the devices hold
 * parts of ends in sums; shared experts, which each has whole, in a result. */
static void dense(struct lowering *lowering, uint32_t layer, uint32_t d,
                  const enum tensor_role roles[3], uint64_t first, uint64_t width, bool shared)
{
    const struct model_tensor *down = find(lowering, (int)layer, roles[2]);
    uint32_t tokens = lowering->step.tokens;
    uint64_t n_embd = lowering->model->n_embd;
    const struct model_tensor *up = find(lowering, (int)layer, roles[1]);
    bool fused = tokens == 1 && !lowering->own;

    if (width == 0 || up == NULL || down == NULL)
        return;
    matmul(lowering, d, (int)layer, find(lowering, (int)layer, roles[0]), rows_of(first, width),
           width, n_embd, OP_VALUE_NORMED, OP_VALUE_FF_GATE, 2);
    lower_op_matmul(lowering, d, (int)layer, up, rows_of(first, width), width, OP_VALUE_NORMED,
                    OP_VALUE_FF_UP);
    if (fused)
        lower_op_glu(lowering, layer, d, 1, width);
    matmul_task(lowering, d, (int)layer, up, rows_of(first, width), width, n_embd, tokens,
                OP_VALUE_NORMED, fused ? 0 : 2);
    if (!fused) {
        lower_op_glu(lowering, layer, d, 1, width);
        elementwise(lowering, d, (int)layer, TASK_GLU, 12.0 * (double)width * tokens, 1);
    }
    makes_activations(lowering, d, OP_VALUE_FF_GATE);
    if (!shared) {
        tail_matmul(lowering, d, layer, down, columns_of(first, width), width, OP_VALUE_FF_GATE);
        return;
    }
    lower_op_shared(lowering, layer, d, down);
    matmul_task(lowering, d, (int)layer, down, columns_of(first, width), n_embd, width, tokens,
                OP_VALUE_FF_GATE, 2);
}

/* Experts that a batch touches when the router chooses them evenly. */
static double touched(const struct model_layer *l, uint32_t tokens)
{
    double missed = 1;

    for (uint32_t t = 0; t < tokens && missed > 1e-9; t++)
        missed *= 1 - (double)l->n_expert_used / l->n_expert;
    return l->n_expert * (1 - missed);
}

static void expert_product(struct lowering *lowering, uint32_t layer, uint32_t d,
                           const struct model_tensor *weight, struct program_slice slice,
                           uint64_t rows, uint64_t columns, enum op_value from)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    struct program_task task = kernel_task(TASK_EXPERTS, 2);

    if (weight == NULL || rows == 0 || columns == 0)
        return;
    lower_op_experts(lowering, layer, d, weight, slice, rows, columns);
    task.tensor = (int32_t)(weight - lowering->model->tensors);
    task.slice = slice;
    task.type = weight->type;
    task.rows = rows;
    task.columns = columns;
    task.tokens = lowering->step.tokens;
    task.experts = touched(l, task.tokens);
    task.flops = 2.0 * (double)rows * (double)columns * task.tokens * l->n_expert_used;
    task.bytes =
        task.experts * (double)rows * (double)tensor_type_row_bytes(weight->type, columns) +
        4.0 * (double)rows * task.tokens * l->n_expert_used;
    task.input_bytes = quantising_bytes(weight->type, (double)columns * task.tokens);
    add_product(lowering, d, (int)layer, from, task);
}

static void experts(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &lowering->model->layers[layer];
    double tokens = lowering->step.tokens;

    matmul(lowering, d, (int)layer, find(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_INP),
           (struct program_slice){.axis = 1}, l->n_expert, lowering->model->n_embd,
           lower_router_input(lowering, layer), OP_VALUE_ROUTER, 1);
    lower_op_route(lowering, layer, d);
    elementwise(lowering, d, (int)layer, TASK_ROUTER, 8.0 * l->n_expert * tokens,
                lowering->step.tokens == 1 ? 1 : 3);
    if (!lowering->on_host && placement_has_experts_on_host(lowering->placement, layer)) {
        lower_host_experts(lowering, layer, d);
        if (lowering->step.tokens < LOWER_OFFLOAD_TOKENS)
            return;
    }
    lower_expert_products(lowering, layer, d);
}

/* Weighted and added in f32 by llama.cpp; our products have weighted fixed-point sums, which their
 * own task adds. */
static void sum_experts(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    double values = (double)lowering->model->n_embd * lowering->step.tokens;
    uint32_t used = lowering->model->layers[layer].n_expert_used;

    if (!lowering->own)
        elementwise(lowering, d, (int)layer, TASK_ADD, 4.0 * values * (2 * used + 1), 2);
}

/* What is computed with the chosen experts, wherever they are. */
void lower_expert_products(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_layer *l = &lowering->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    uint64_t n_embd = lowering->model->n_embd, width = slices->n_ff_exp[d];
    uint64_t first = share_first(slices->rotation, slices->n_ff_exp, placement->device_count, d);
    struct program_slice rows = rows_of(first, width), fused = rows;
    double tokens = lowering->step.tokens;

    fused.segments = 2;
    expert_product(lowering, layer, d, find(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_EXPS), rows,
                   width, n_embd, OP_VALUE_NORMED);
    expert_product(lowering, layer, d, find(lowering, (int)layer, TENSOR_ROLE_FFN_UP_EXPS), rows,
                   width, n_embd, OP_VALUE_NORMED);
    expert_product(lowering, layer, d, find(lowering, (int)layer, TENSOR_ROLE_FFN_GATE_UP_EXPS),
                   fused, 2 * width, n_embd, OP_VALUE_NORMED);
    if (width > 0) {
        lower_op_glu(lowering, layer, d, l->n_expert_used, width);
        elementwise(lowering, d, (int)layer, TASK_GLU,
                    12.0 * (double)width * l->n_expert_used * tokens, 1);
        makes_activations(lowering, d, OP_VALUE_FF_GATE);
    }
    expert_product(lowering, layer, d, find(lowering, (int)layer, TENSOR_ROLE_FFN_DOWN_EXPS),
                   columns_of(first, width), n_embd, width, OP_VALUE_FF_GATE);
    if (width > 0 && !lowering->on_host)
        lowering->tail[d] = (uint32_t)lowering->program->task_count - 1;
    sum_experts(lowering, layer, d);
}

void lower_dense(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    static const enum tensor_role roles[3] = {TENSOR_ROLE_FFN_GATE, TENSOR_ROLE_FFN_UP,
                                              TENSOR_ROLE_FFN_DOWN};
    const struct placement *placement = lowering->placement;
    const struct share_slices *slices = &placement->slices[layer];

    lower_op_join(lowering, d);
    lower_op_norm(lowering, d, (int)layer, OP_VALUE_RESIDUAL, OP_VALUE_NORMED,
                  lower_ffn_norm(lowering, layer));
    norm(lowering, layer, d, true);
    dense(lowering, layer, d, roles,
          share_first(slices->rotation, slices->n_ff, placement->device_count, d), slices->n_ff[d],
          false);
}

void lower_experts(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    static const enum tensor_role shared[3] = {TENSOR_ROLE_FFN_GATE_SHEXP, TENSOR_ROLE_FFN_UP_SHEXP,
                                               TENSOR_ROLE_FFN_DOWN_SHEXP};

    lower_op_join(lowering, d);
    lower_op_experts_norm(lowering, layer, d);
    norm(lowering, layer, d, true);
    experts(lowering, layer, d);
    dense(lowering, layer, d, shared, 0, lowering->model->layers[layer].n_ff_shexp,
          true); /* mirrored */
}

void lower_output_head(struct lowering *lowering, uint32_t d)
{
    const struct placement *placement = lowering->placement;
    const struct model_tensor *output = find(lowering, -1, TENSOR_ROLE_OUTPUT);
    uint64_t rows = placement->output_rows[d], first = 0;

    if (rows == 0 || lowering->step.outputs == 0)
        return;
    if (output == NULL)
        output = find(lowering, -1, TENSOR_ROLE_TOKEN_EMBD);
    first = lower_head_first(lowering, d);
    if (strcmp(lowering->model->arch, "dflash") == 0)
        other_projections(lowering, -1, d, lowering->step.outputs);
    lower_op_head_norm(lowering, d);
    elementwise(lowering, d, -1, TASK_NORM, 20.0 * lowering->model->n_embd * lowering->step.outputs,
                2);
    makes_activations(lowering, d, OP_VALUE_NORMED);
    lower_op_head(lowering, d, output, rows_of(first, rows), rows);
    matmul_task(lowering, d, -1, output, rows_of(first, rows), rows, lowering->model->n_embd,
                lowering->step.outputs, OP_VALUE_NORMED, 2);
}
