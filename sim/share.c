#include "sim/share.h"

#include <stdbool.h>
#include <string.h>

static bool has_ratio(const float *weights, uint32_t count)
{
    for (uint32_t d = 0; weights != NULL && d < count; d++)
        if (weights[d] != 0)
            return true;
    return false;
}

void share_elements(uint64_t elements, uint64_t granule, const float *weights, uint32_t count,
                    uint32_t rotation, uint64_t *parts)
{
    float sums[MACHINE_DEVICES_MAX];
    bool even = !has_ratio(weights, count);
    float sum = 0;
    uint64_t before = 0;

    for (uint32_t j = 0; j < count && !even; j++) {
        sum += weights[(j + rotation) % count];
        sums[j] = sum;
    }
    for (uint32_t j = 0; j < count; j++) {
        uint64_t boundary = elements;

        if (j + 1 < count) {
            boundary = even ? elements * (j + 1) / count
                            : (uint64_t)((float)elements * sums[j] / sums[count - 1]);
            boundary -= boundary % granule;
        }
        parts[(j + rotation) % count] = boundary - before;
        before = boundary;
    }
}

void share_layers(uint32_t entries, uint32_t gpu_entries, const float *weights, uint32_t count,
                  int *owners)
{
    float sums[MACHINE_DEVICES_MAX];
    float sum = 0;
    uint32_t first = entries - gpu_entries;

    for (uint32_t d = 0; d < count; d++) {
        sum += weights[d];
        sums[d] = sum;
    }
    for (uint32_t d = 0; d < count; d++)
        sums[d] /= sum;
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t device = 0;

        if (i < first) {
            owners[i] = SHARE_ON_HOST;
            continue;
        }
        while (device + 1 < count && !(sums[device] > (float)(i - first) / (float)gpu_entries))
            device++;
        owners[i] = (int)device;
    }
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static uint64_t lcm(uint64_t a, uint64_t b)
{
    return a / gcd(a, b) * b;
}

static uint64_t block_of(const struct model *model, uint32_t layer, enum tensor_role role)
{
    const struct model_tensor *tensor = model_find_tensor(model, (int)layer, role);

    return tensor != NULL ? tensor_type_info(tensor->type)->block_elements : 1;
}

uint32_t share_rotation(const struct model *model, uint32_t layer, uint32_t count)
{
    const struct model_layer *self = &model->layers[layer];
    bool recurrent = self->mixer == MODEL_MIXER_GATED_DELTA_NET;
    uint32_t earlier = 0;

    for (uint32_t i = 0; i < layer; i++) {
        const struct model_layer *other = &model->layers[i];

        if ((other->mixer == MODEL_MIXER_GATED_DELTA_NET) == recurrent &&
            (other->window > 0) == (self->window > 0))
            earlier++;
    }
    return earlier % count;
}

uint64_t share_q_granule(const struct model *model, uint32_t layer, uint32_t count)
{
    const struct model_layer *self = &model->layers[layer];
    uint64_t group = (uint64_t)self->n_head / self->n_head_kv * self->head_dim_k;
    uint64_t block = block_of(model, layer, TENSOR_ROLE_ATTN_OUTPUT);

    while (block < 128 && block * count < group)
        block *= 2;
    return lcm(group, block);
}

uint64_t share_gdn_granule(const struct model *model, uint32_t layer)
{
    uint64_t block = block_of(model, layer, TENSOR_ROLE_SSM_OUT);

    return lcm(lcm(block, 128), model->layers[layer].gdn_state_dim);
}

uint64_t share_ff_granule(const struct model *model, uint32_t layer, enum tensor_role down)
{
    return lcm(block_of(model, layer, down), 128);
}

static void cut(uint64_t elements, uint64_t granule, const float *weights, uint32_t count,
                uint32_t rotation, uint32_t unit, uint32_t *parts)
{
    uint64_t whole[MACHINE_DEVICES_MAX];

    share_elements(elements, granule, weights, count, rotation, whole);
    for (uint32_t d = 0; d < count; d++)
        parts[d] = (uint32_t)(whole[d] / unit);
}

static void cut_attention(const struct model *model, uint32_t layer, const float *weights,
                          uint32_t count, struct share_slices *slices)
{
    const struct model_layer *self = &model->layers[layer];
    uint64_t granule = share_q_granule(model, layer, count);
    uint32_t group = self->n_head / self->n_head_kv;

    cut((uint64_t)self->n_head * self->head_dim_k, granule, weights, count, slices->rotation,
        self->head_dim_k, slices->q_heads);
    cut((uint64_t)self->n_head_kv * self->head_dim_k, granule / group, weights, count,
        slices->rotation, self->head_dim_k, slices->kv_heads);
}

static void cut_delta_net(const struct model *model, uint32_t layer, const float *weights,
                          uint32_t count, struct share_slices *slices)
{
    const struct model_layer *self = &model->layers[layer];
    uint32_t ratio = self->gdn_v_heads / self->gdn_k_heads;

    cut((uint64_t)self->gdn_k_heads * self->gdn_state_dim, share_gdn_granule(model, layer), weights,
        count, slices->rotation, self->gdn_state_dim, slices->gdn_k_heads);
    for (uint32_t d = 0; d < count; d++)
        slices->gdn_v_heads[d] = slices->gdn_k_heads[d] * ratio;
}

void share_layer_slices(const struct model *model, uint32_t layer, const float *weights,
                        const float *attn_weights, uint32_t count, struct share_slices *slices)
{
    const struct model_layer *self = &model->layers[layer];

    memset(slices, 0, sizeof *slices);
    slices->rotation = share_rotation(model, layer, count);
    if (self->mixer == MODEL_MIXER_GATED_DELTA_NET)
        cut_delta_net(model, layer, weights, count, slices);
    else
        cut_attention(model, layer, has_ratio(attn_weights, count) ? attn_weights : weights, count,
                      slices);
    if (self->n_ff > 0)
        cut(self->n_ff, share_ff_granule(model, layer, TENSOR_ROLE_FFN_DOWN), weights, count,
            slices->rotation, 1, slices->n_ff);
    if (self->n_ff_exp > 0)
        cut(self->n_ff_exp, share_ff_granule(model, layer, TENSOR_ROLE_FFN_DOWN_EXPS), weights,
            count, slices->rotation, 1, slices->n_ff_exp);
}

uint64_t share_first(uint32_t rotation, const uint32_t *parts, uint32_t count, uint32_t d)
{
    uint64_t first = 0;

    for (uint32_t j = 0; j < count; j++) {
        uint32_t device = (j + rotation) % count;

        if (device == d)
            break;
        first += parts[device];
    }
    return first;
}

uint32_t share_group(const struct model *model, const struct model_tensor *tensor)
{
    enum { GROUP = 256 };
    uint64_t group = GROUP;

    switch (tensor->role) {
    case TENSOR_ROLE_ATTN_OUTPUT:
        if (model->layers[tensor->layer].n_head_kv == 0)
            return GROUP;
        for (uint32_t count = 1; count <= MACHINE_DEVICES_MAX; count++)
            group = gcd(group, share_q_granule(model, (uint32_t)tensor->layer, count) /
                                   model->layers[tensor->layer].head_dim_k *
                                   model->layers[tensor->layer].head_dim_v);
        break;
    case TENSOR_ROLE_SSM_OUT:
        group = gcd(group, share_gdn_granule(model, (uint32_t)tensor->layer));
        break;
    case TENSOR_ROLE_FFN_DOWN:
    case TENSOR_ROLE_FFN_DOWN_EXPS:
        group = gcd(group, share_ff_granule(model, (uint32_t)tensor->layer, tensor->role));
        break;
    default:
        break;
    }
    return (uint32_t)group;
}
