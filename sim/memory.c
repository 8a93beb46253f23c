/* The compute buffer is the largest of three stages, since the allocator reuses what
 * earlier ones leave: feed-forward, attention, output head. Left out:
 * alignment, and what the pool keeps beside the largest quantised activations. */
#include "sim/memory.h"

#include <stdio.h>

#include "sim/program.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t weight_bytes(const struct placement *placement, uint32_t d)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < placement->model->tensor_count; i++) {
        const struct model_tensor *tensor = &placement->model->tensors[i];

        /* Blocks behind the trunk are loaded only for drafting. */
        if (tensor->layer < (int)placement->model->n_layer)
            sum += placement_tensor_bytes(placement, tensor, d);
    }
    return sum;
}

static uint64_t layer_cells(const struct placement *placement, uint32_t layer)
{
    uint32_t window = placement->model->layers[layer].window;

    return window > 0 ? program_sliding_cache_cells(placement, window) : placement->n_ctx;
}

static uint64_t row_bytes(const struct placement *placement, uint32_t layer, uint32_t d)
{
    uint64_t k, v;

    placement_kv_row(placement, layer, d, &k, &v);
    return tensor_type_row_bytes(placement->plan.type_k, k) +
           tensor_type_row_bytes(placement->plan.type_v, v);
}

static uint64_t recurrent_bytes(const struct placement *placement, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &placement->model->layers[layer];
    uint64_t state = model_layer_recurrent_state(l) + model_layer_conv_state(l);

    return l->gdn_k_heads > 0 ? 4 * placement->plan.n_slots * state / l->gdn_k_heads *
                                    placement->slices[layer].gdn_k_heads[d]
                              : 0;
}

/* Live tensors of the feed-forward part, all f32: the residual stream, its norm and the
 * result; gate, up and their product. Of experts gate and up are one tensor and live beside
 * the result of each expert that a token uses. */
static uint64_t feed_forward_stage(const struct model *model, const struct model_layer *l,
                                   uint64_t tokens)
{
    uint64_t dense = 3 * (uint64_t)l->n_ff + 3 * (uint64_t)model->n_embd;
    uint64_t experts = l->n_expert_used * (2 * (uint64_t)l->n_ff_exp + model->n_embd) +
                       2 * (uint64_t)model->n_embd;

    return 4 * tokens * (l->n_expert > 0 ? max_u64(dense, experts) : dense);
}

/* What one copy of a graph's inputs takes on a device: masks of the layers that it has. */
static uint64_t mask_bytes(const struct placement *placement, uint32_t d, uint64_t tokens)
{
    uint64_t sliding = 0, base = 0;

    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++) {
        const struct model_layer *l = &placement->model->layers[layer];

        if (!placement_has_layer(placement, layer, d) || !model_layer_has_kv(l))
            continue;
        if (l->window > 0)
            sliding = layer_cells(placement, layer);
        else
            base = placement->n_ctx;
    }
    return 2 * tokens * (base + sliding);
}

/* Query and gate, K and V, the result and the residual stream; then what follows the
 * window: the mask, f16 copies of a quantised window, a delivered window and those sent ahead. */
static uint64_t attention_stage(const struct placement *placement, uint32_t layer, uint32_t d,
                                uint64_t tokens)
{
    const struct model *model = placement->model;
    const struct model_layer *l = &model->layers[layer];
    uint64_t q = (uint64_t)l->n_head * l->head_dim_k * (l->q_gated ? 2 : 1);
    uint64_t cell = placement->pipeline ? 0 : 2 * tokens;

    bool at_host = (placement->kv_resident[layer] >> d & 1) == 0;

    if (tensor_type_info(placement->plan.type_k)->quantised &&
        !(at_host && placement->attn_on_host))
        cell += 2 * (model_layer_k_row(l) + model_layer_v_row(l));
    if (at_host && !placement->attn_on_host)
        cell += (1 + (uint64_t)placement->plan.delivery_depth) * row_bytes(placement, layer, d);
    return 4 * tokens *
               (q + (uint64_t)l->n_head * l->head_dim_v + model_layer_k_row(l) +
                model_layer_v_row(l) + 2 * (uint64_t)model->n_embd) +
           cell * layer_cells(placement, layer);
}

/* Logits, and the stream with its norm. The logits of a whole ubatch fit into no hole that
 * the masks leave, so they lie behind them. */
static uint64_t head_stage(const struct placement *placement, uint32_t d, uint64_t tokens)
{
    const struct model *model = placement->model;
    uint64_t outputs = placement->plan.all_logits ? tokens : 1;

    if (placement->output_rows[d] == 0)
        return 0;
    return 4 * outputs * (model->n_vocab + 2 * (uint64_t)model->n_embd) +
           (placement->pipeline ? 0 : mask_bytes(placement, d, tokens));
}

/* The largest stage; beside it the inputs, four copies of each, where the graph is pipelined. */
static uint64_t buffer_bytes(const struct placement *placement, uint32_t d)
{
    const struct model *model = placement->model;
    uint64_t tokens =
        placement->plan.n_ubatch < placement->n_ctx ? placement->plan.n_ubatch : placement->n_ctx;
    uint64_t largest = head_stage(placement, d, tokens);

    for (uint32_t layer = 0; layer < model->n_layer; layer++) {
        const struct model_layer *l = &model->layers[layer];

        if (!placement_has_layer(placement, layer, d))
            continue;
        largest = max_u64(largest, feed_forward_stage(model, l, tokens));
        if (model_layer_has_kv(l))
            largest = max_u64(largest, attention_stage(placement, layer, d, tokens));
    }
    /* Under a tensor split every device's buffer has the size of the unsplit graph. */
    if (placement->plan.split == PLAN_SPLIT_TENSOR && placement->device_count > 1)
        for (uint32_t reach = 1; reach < placement->device_count; reach *= 2)
            largest += 4 * tokens * model->n_embd;
    if (placement->pipeline)
        largest += 4 * (mask_bytes(placement, d, tokens) + 4 * tokens * model->n_embd);
    return largest;
}

/* The pool beside the compute buffer: activations of the widest product, quantised. */
static uint64_t pool_bytes(const struct placement *placement, uint32_t d)
{
    uint64_t tokens = placement->plan.n_ubatch, widest = placement->model->n_embd;

    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++)
        widest = max_u64(widest, placement->slices[layer].n_ff[d]);
    return tokens * widest * 36 / 32;
}

/* The fork keeps, for each layer with a quantised cache on the host, a place on the device
 * where a ubatch's rows are cast to the cache type. */
static uint64_t stage_bytes(const struct placement *placement, uint32_t d)
{
    uint64_t rows = max_u64(placement->plan.n_ubatch, 16), sum = 0;

    if (placement->plan.schedule != PLAN_SCHEDULE_LLAMA_CPP_FORK ||
        !tensor_type_info(placement->plan.type_k)->quantised)
        return 0;
    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++)
        if ((placement->kv_resident[layer] >> d & 1) == 0)
            sum += rows * row_bytes(placement, layer, d);
    return sum;
}

static void count_device(const struct placement *placement, uint32_t d,
                         struct memory_device *device)
{
    const struct machine *machine = placement->machine;
    const struct machine_device *hardware = &machine->devices[placement->devices[d]];

    *device = (struct memory_device){.weights = weight_bytes(placement, d),
                                     .available = hardware->memory_bytes};
    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++) {
        if (placement->kv_resident[layer] >> d & 1)
            device->kv += layer_cells(placement, layer) * row_bytes(placement, layer, d);
        if (placement->recurrent_on_device && placement_has_layer(placement, layer, d))
            device->recurrent += recurrent_bytes(placement, layer, d);
    }
    device->buffer = buffer_bytes(placement, d);
    device->compute = device->buffer + pool_bytes(placement, d) + stage_bytes(placement, d);
    device->overhead = machine->context_bytes + hardware->other_bytes;
    if (placement->plan.split == PLAN_SPLIT_TENSOR && placement->device_count > 1)
        device->overhead += machine->collective_bytes;
    device->total =
        device->weights + device->kv + device->recurrent + device->compute + device->overhead;
}

void memory_judge(struct memory_account *account)
{
    account->fits = true;
    account->short_bytes = 0;
    for (uint32_t d = 0; d < account->device_count; d++) {
        const struct memory_device *device = &account->devices[d];

        if (device->total > device->available &&
            device->total - device->available > account->short_bytes) {
            account->fits = false;
            account->shortest = d;
            account->short_bytes = device->total - device->available;
        }
    }
}

void memory_count(const struct placement *placement, struct memory_account *account)
{
    *account = (struct memory_account){.device_count = placement->device_count};
    for (uint32_t d = 0; d < placement->device_count; d++) {
        count_device(placement, d, &account->devices[d]);
        for (uint32_t layer = 0; layer < placement->model->n_layer; layer++)
            if ((placement->kv_resident[layer] >> d & 1) == 0)
                account->host_kv += layer_cells(placement, layer) * row_bytes(placement, layer, d);
    }
    for (size_t i = 0; i < placement->model->tensor_count; i++) {
        const struct model_tensor *tensor = &placement->model->tensors[i];

        if (tensor->role == TENSOR_ROLE_TOKEN_EMBD ||
            placement->owner[tensor->layer < 0 ? (int)placement->layer_count : tensor->layer] < 0)
            account->host_weights += tensor->bytes;
    }
    memory_judge(account);
}

void memory_verdict(const struct placement *placement, const struct memory_account *account,
                    char *text, size_t size)
{
    if (account->fits)
        snprintf(text, size, "fits");
    else
        snprintf(text, size, "short %llu MiB on %s",
                 (unsigned long long)((account->short_bytes + (1 << 20) - 1) >> 20),
                 placement->machine->devices[placement->devices[account->shortest]].name);
}
