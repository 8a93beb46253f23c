#include "sim/model_draft.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/mix_rule.h"
#include "sim/model_catalogue_private.h"
#include "sim/model_private.h"
#include "sim/word_list.h"

enum { DRAFTS_MAX = 32 };

static const json_t *drafts(struct error *err)
{
    const struct catalogue *catalogue = catalogue_load(err);

    return catalogue != NULL ? json_object_get(catalogue->root, "drafts") : NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static uint32_t number_of(const json_t *object, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(object, key));
}

const char *model_draft_find(const char *target, const char *kind)
{
    const json_t *all = drafts(NULL);

    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *draft = json_array_get(all, i);
        const char *name = text_of(draft, "name");
        size_t length = strlen(name), kind_length = strlen(kind);

        if (strcasecmp(text_of(draft, "target"), target) == 0 && length > kind_length &&
            strcasecmp(name + length - kind_length, kind) == 0)
            return name;
    }
    return NULL;
}

static const json_t *find_draft(const char *name, struct error *err)
{
    const json_t *all = drafts(err);
    const char *names[DRAFTS_MAX];
    size_t count = 0;
    char list[300];

    for (size_t i = 0; i < json_array_size(all) && count < DRAFTS_MAX; i++) {
        names[count++] = text_of(json_array_get(all, i), "name");
        if (strcasecmp(names[count - 1], name) == 0)
            return json_array_get(all, i);
    }
    word_list_text(names, count, list, sizeof list);
    error_set(err, ERROR_USAGE, "no draft model \"%.60s\"; known are %s", name, list);
    return NULL;
}

/* ["attn_q.weight", 5120, 4096], named within a block or globally. */
static int add_tensor(struct model *model, int layer, const json_t *entry, enum tensor_type type,
                      struct error *err)
{
    uint64_t ne[4] = {1, 1, 1, 1};
    char name[160];
    const char *base = json_string_value(json_array_get(entry, 0));

    for (size_t i = 1; i < json_array_size(entry) && i <= 4; i++)
        ne[i - 1] = (uint64_t)json_integer_value(json_array_get(entry, i));
    if (layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s", layer, base != NULL ? base : "");
    else
        snprintf(name, sizeof name, "%s", base != NULL ? base : "");
    if (ne[1] == 1 || ne[0] % tensor_type_info(type)->block_elements != 0)
        type = TENSOR_TYPE_F32;
    return model_add_tensor(model, name, type, ne, err);
}

static void fill_layer(struct model_layer *layer, const json_t *draft, const char *kind)
{
    layer->mixer = strcmp(kind, "swa") == 0 ? MODEL_MIXER_SLIDING_WINDOW : MODEL_MIXER_ATTENTION;
    layer->window = strcmp(kind, "swa") == 0 ? number_of(draft, "swa_window") : 0;
    layer->n_head = number_of(draft, "n_head");
    layer->n_head_kv = number_of(draft, "n_head_kv");
    layer->head_dim_k = number_of(draft, "head_dim_k");
    layer->head_dim_v = number_of(draft, "head_dim_v");
    layer->n_ff = number_of(draft, "n_ff");
}

static int fill(struct model *model, const json_t *draft, const struct model *target,
                enum tensor_type type, struct error *err)
{
    const json_t *tensors = json_object_get(draft, "tensors");
    const json_t *global = json_object_get(tensors, "global");
    const json_t *per_layer = json_object_get(tensors, "per_layer");
    const json_t *kinds = json_object_get(draft, "layer_kinds");
    const struct model_tensor *head = model_find_tensor(target, -1, TENSOR_ROLE_OUTPUT);

    if (head == NULL)
        head = model_find_tensor(target, -1, TENSOR_ROLE_TOKEN_EMBD);
    if (model_set_layers(model, number_of(draft, "n_layer"), 0, err) != 0)
        return -1;
    for (size_t i = 0; i < json_array_size(global); i++)
        if (add_tensor(model, -1, json_array_get(global, i), type, err) != 0)
            return -1;
    if (head != NULL && model_add_tensor(model, "output.weight", head->type, head->ne, err) != 0)
        return -1;
    for (uint32_t layer = 0; layer < model->n_layer; layer++) {
        fill_layer(&model->layers[layer], draft, json_string_value(json_array_get(kinds, layer)));
        for (size_t i = 0; i < json_array_size(per_layer); i++)
            if (add_tensor(model, (int)layer, json_array_get(per_layer, i), type, err) != 0)
                return -1;
    }
    return model_finish(model, err);
}

struct model *model_draft_from_catalogue(const char *name_and_quant, const struct model *target,
                                         struct error *err)
{
    const char *colon = strchr(name_and_quant, ':');
    const char *quant = colon != NULL ? colon + 1 : "Q4_K_M";
    char name[96];
    const json_t *draft;
    int mix = mix_find(quant);
    struct model *model;

    snprintf(name, sizeof name, "%.*s",
             colon != NULL ? (int)(colon - name_and_quant) : (int)strlen(name_and_quant),
             name_and_quant);
    draft = find_draft(name, err);
    if (draft == NULL)
        return NULL;
    if (mix < 0) {
        error_set(err, ERROR_USAGE, "\"%.40s\" is no mix of llama.cpp; Q4_K_M is", quant);
        return NULL;
    }
    model = model_new(err);
    if (model == NULL)
        return NULL;
    snprintf(model->name, sizeof model->name, "%s", text_of(draft, "name"));
    snprintf(model->quant, sizeof model->quant, "%s", mix_name((enum mix)mix));
    snprintf(model->arch, sizeof model->arch, "%s", text_of(draft, "arch"));
    snprintf(model->source, sizeof model->source, "catalogue");
    model->n_embd = number_of(draft, "n_embd");
    model->n_vocab = target->n_vocab;
    if (fill(model, draft, target, mix_default_type((enum mix)mix), err) != 0) {
        model_free(model);
        return NULL;
    }
    return model;
}

bool model_draft_is_known(const char *name_and_quant)
{
    const json_t *all = drafts(NULL);
    size_t length = strcspn(name_and_quant, ":");

    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *name = text_of(json_array_get(all, i), "name");

        if (strlen(name) == length && strncasecmp(name, name_and_quant, length) == 0)
            return true;
    }
    return false;
}

void model_draft_names(const char *target, char *text, size_t size)
{
    const json_t *all = drafts(NULL);
    const char *names[DRAFTS_MAX];
    size_t count = 0;

    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(all) && count < DRAFTS_MAX; i++)
        if (strcasecmp(text_of(json_array_get(all, i), "target"), target) == 0)
            names[count++] = text_of(json_array_get(all, i), "name");
    if (count > 0)
        word_list_text(names, count, text, size);
}

/* ---- the target's own block ---- */

/* "blk.64.attn_q.weight" as a tensor of block 0. */
static int copy_block_tensor(struct model *model, const struct model_tensor *tensor,
                             struct error *err)
{
    const char *base = strchr(tensor->name, '.');
    char name[160];

    base = base != NULL ? strchr(base + 1, '.') : NULL;
    snprintf(name, sizeof name, "blk.0%s", base != NULL ? base : "");
    return model_add_tensor(model, name, tensor->type, tensor->ne, err);
}

static int copy_nextn(struct model *model, const struct model *target, struct error *err)
{
    const struct model_layer *block = &target->layers[target->n_layer];
    const struct model_tensor *embeddings =
        model_find_tensor(target, -1, TENSOR_ROLE_TOKEN_EMBD);
    const struct model_tensor *head = model_find_tensor(target, -1, TENSOR_ROLE_OUTPUT);

    if (head == NULL)
        head = embeddings;
    if (model_set_layers(model, 1, 0, err) != 0)
        return -1;
    model->layers[0] = *block;
    model->layers[0].is_nextn = false;
    if (head != NULL && model_add_tensor(model, "output.weight", head->type, head->ne, err) != 0)
        return -1;
    if (embeddings != NULL &&
        model_add_tensor(model, "token_embd.weight", embeddings->type, embeddings->ne, err) != 0)
        return -1;
    for (uint32_t i = 0; i < block->tensor_count; i++)
        if (copy_block_tensor(model, &target->tensors[block->tensor_first + i], err) != 0)
            return -1;
    return model_finish(model, err);
}

struct model *model_draft_from_nextn(const struct model *target, struct error *err)
{
    struct model *model;

    if (target->n_layer_nextn == 0) {
        error_set(err, ERROR_USAGE, "%.90s has no next-token-prediction block", target->name);
        return NULL;
    }
    model = model_new(err);
    if (model == NULL)
        return NULL;
    snprintf(model->name, sizeof model->name, "%s", target->name);
    snprintf(model->quant, sizeof model->quant, "%s", target->quant);
    snprintf(model->arch, sizeof model->arch, "%s", target->arch);
    snprintf(model->source, sizeof model->source, "%s", target->source);
    model->n_embd = target->n_embd;
    model->n_vocab = target->n_vocab;
    model->n_ctx_train = target->n_ctx_train;
    if (copy_nextn(model, target, err) != 0) {
        model_free(model);
        return NULL;
    }
    return model;
}
