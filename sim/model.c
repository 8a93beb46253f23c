/* Building a model and asking it. Where the facts come from is model_gguf.c and
 * model_catalogue.c. */
#include "sim/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/checked.h"
#include "sim/model_private.h"

/* ---- building ---- */

struct model *model_new(struct error *err)
{
    struct model *model = calloc(1, sizeof *model);

    if (!model) {
        error_set(err, ERROR_MEMORY, "no memory for a model");
        return NULL;
    }
    model->arena = arena_new(err);
    if (!model->arena) {
        model_free(model);
        return NULL;
    }
    return model;
}

void model_free(struct model *model)
{
    if (!model)
        return;
    free(model->tensors);
    arena_free(model->arena);
    free(model);
}

int model_set_layers(struct model *model, uint32_t n_layer, uint32_t n_layer_nextn,
                     struct error *err)
{
    uint64_t count = (uint64_t)n_layer + n_layer_nextn;
    struct model_layer *layers;

    if (count > MODEL_LAYER_LIMIT)
        return error_set(err, ERROR_INPUT, "%" PRIu64 " blocks; a model has at most %d", count,
                         MODEL_LAYER_LIMIT);
    layers = arena_alloc_array(model->arena, (size_t)count, sizeof *layers, err);
    if (!layers)
        return -1;
    for (uint64_t i = n_layer; i < count; i++)
        layers[i].is_nextn = true;
    model->layers = layers;
    model->n_layer = n_layer;
    model->n_layer_nextn = n_layer_nextn;
    return 0;
}

/* Sets `*bytes` and `*elements` of a shape; false when 64 bits cannot hold them. */
static bool size_shape(const struct tensor_type_info *info, const uint64_t ne[4], uint64_t *bytes,
                       uint64_t *elements)
{
    if (!checked_multiply(ne[0] / info->block_elements, info->block_bytes, bytes))
        return false;
    *elements = ne[0];
    for (int i = 1; i < 4; i++)
        if (!checked_multiply(*bytes, ne[i], bytes) ||
            !checked_multiply(*elements, ne[i], elements))
            return false;
    return true;
}

/* `tensors` has room for a power of two of entries, at least 16. */
static int grow(struct model *model, struct error *err)
{
    size_t count = model->tensor_count, wanted = count ? count * 2 : 16;
    struct model_tensor *moved = NULL;

    if (count != 0 && (count < 16 || (count & (count - 1)) != 0))
        return 0;
    if (wanted <= UINT32_MAX) /* tensor_first has 32 bits */
        moved = realloc(model->tensors, wanted * sizeof *moved);
    if (!moved)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tensors", wanted);
    model->tensors = moved;
    return 0;
}

int model_add_tensor(struct model *model, const char *name, enum tensor_type type,
                     const uint64_t ne[4], struct error *err)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    struct model_tensor tensor = {.type = type, .ne = {ne[0], ne[1], ne[2], ne[3]}};
    uint64_t elements;

    if (!info)
        return error_set(err, ERROR_INPUT, "tensor %.60s: type %d is unknown", name, (int)type);
    if (ne[0] == 0 || ne[1] == 0 || ne[2] == 0 || ne[3] == 0 || ne[0] % info->block_elements != 0 ||
        !size_shape(info, ne, &tensor.bytes, &elements))
        return error_set(err, ERROR_INPUT,
                         "tensor %.60s: %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         " is not a shape of %s",
                         name, ne[0], ne[1], ne[2], ne[3], info->name);
    tensor.role = tensor_role_of(name, &tensor.layer);
    if (tensor.layer >= MODEL_LAYER_LIMIT)
        return error_set(err, ERROR_INPUT, "tensor %.60s: block %d; numbers below %d are allowed",
                         name, tensor.layer, MODEL_LAYER_LIMIT);
    if (grow(model, err))
        return -1;
    tensor.name = arena_strdup(model->arena, name, err);
    if (!tensor.name)
        return -1;
    model->tensors[model->tensor_count++] = tensor;
    return 0;
}

/* Counts the tensors of each layer and sums what they hold. */
static int count_tensors(struct model *model, struct error *err)
{
    uint32_t layers = model->n_layer + model->n_layer_nextn;

    for (uint32_t i = 0; i < layers; i++)
        model->layers[i].tensor_count = 0;
    model->tensor_bytes = model->params = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        uint64_t elements = tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];

        if (tensor->layer >= 0 && (uint32_t)tensor->layer >= layers)
            return error_set(err, ERROR_INPUT,
                             "tensor %.60s: the model has only %" PRIu32 " blocks", tensor->name,
                             layers);
        if (!checked_add(model->tensor_bytes, tensor->bytes, &model->tensor_bytes) ||
            !checked_add(model->params, elements, &model->params))
            return error_set(err, ERROR_INPUT, "the tensors pass 2^64 bytes or values together");
        if (tensor->layer >= 0)
            model->layers[tensor->layer].tensor_count++;
    }
    return 0;
}

int model_finish(struct model *model, struct error *err)
{
    uint32_t layers = model->n_layer + model->n_layer_nextn, next = 0;
    struct model_tensor *sorted;

    if (count_tensors(model, err))
        return -1;
    if (model->tensor_count == 0)
        return 0;
    sorted = malloc(model->tensor_count * sizeof *sorted);
    if (!sorted)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tensors", model->tensor_count);
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].layer < 0)
            sorted[next++] = model->tensors[i];
    for (uint32_t i = 0; i < layers; i++) {
        model->layers[i].tensor_first = next;
        next += model->layers[i].tensor_count;
        model->layers[i].tensor_count = 0; /* counts up again below */
    }
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].layer >= 0) {
            struct model_layer *layer = &model->layers[model->tensors[i].layer];

            sorted[layer->tensor_first + layer->tensor_count++] = model->tensors[i];
        }
    memcpy(model->tensors, sorted, model->tensor_count * sizeof *sorted);
    free(sorted);
    return 0;
}

/* ---- asking ---- */

/* Tensors are sorted by layer, globals first. */
void model_keep_layers(struct model *model, uint32_t count)
{
    if (count >= model->n_layer)
        return;
    model->tensor_count = model->layers[count].tensor_first;
    model->n_layer = count;
    model->n_layer_nextn = 0;
    model->tensor_bytes = model->params = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];

        model->tensor_bytes += tensor->bytes;
        model->params += tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    }
}

const struct model_tensor *model_find_tensor(const struct model *model, int layer,
                                             enum tensor_role role)
{
    size_t first = 0, end = model->tensor_count;

    if (layer >= 0) {
        if ((uint32_t)layer >= model->n_layer + model->n_layer_nextn)
            return NULL;
        first = model->layers[layer].tensor_first;
        end = first + model->layers[layer].tensor_count;
    }
    for (size_t i = first; i < end && model->tensors[i].layer == layer; i++)
        if (model->tensors[i].role == role)
            return &model->tensors[i];
    return NULL;
}

uint64_t model_layer_k_row(const struct model_layer *layer)
{
    return (uint64_t)layer->n_head_kv * layer->head_dim_k;
}

uint64_t model_layer_v_row(const struct model_layer *layer)
{
    return layer->v_in_k ? 0 : (uint64_t)layer->n_head_kv * layer->head_dim_v;
}

bool model_layer_has_kv(const struct model_layer *layer)
{
    return layer->mixer != MODEL_MIXER_GATED_DELTA_NET && model_layer_k_row(layer) != 0;
}

/* The width of the value heads together; ssm.inner_size in a GGUF file. */
static uint64_t inner_width(const struct model_layer *layer)
{
    return (uint64_t)layer->gdn_v_heads * layer->gdn_state_dim;
}

uint64_t model_layer_conv_state(const struct model_layer *layer)
{
    uint64_t channels =
        inner_width(layer) + 2 * (uint64_t)layer->gdn_k_heads * layer->gdn_state_dim;

    return layer->gdn_conv_kernel == 0 ? 0 : (layer->gdn_conv_kernel - 1) * channels;
}

uint64_t model_layer_recurrent_state(const struct model_layer *layer)
{
    return layer->gdn_state_dim * inner_width(layer);
}

uint32_t model_widest_window(const struct model *model)
{
    uint32_t window = 0;

    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        if (model->layers[layer].window > window)
            window = model->layers[layer].window;
    return window;
}
