/* The keys that a model is written with: those that readers here and llama.cpp ask for. */
#include "ref/model_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ref/numbers.h"
#include "ref/synth.h"

/* ---- the keys of a model ---- */

struct keys {
    struct gguf_write *writer;
    const struct model *model;
    struct error *err;
};

#define KEY_BYTES 128

static const char *key_name(const struct keys *keys, const char *key, char name[KEY_BYTES])
{
    snprintf(name, KEY_BYTES, "%s.%s", keys->model->arch, key);
    return name;
}

static int put_u32(const struct keys *keys, const char *key, uint32_t value)
{
    char name[KEY_BYTES];

    return gguf_write_u32(keys->writer, key_name(keys, key, name), value, keys->err);
}

/* Leaves out a value of 0. */
static int put_u32_unless_0(const struct keys *keys, const char *key, uint32_t value)
{
    return value != 0 ? put_u32(keys, key, value) : 0;
}

static int put_f32_unless_0(const struct keys *keys, const char *key, float value)
{
    char name[KEY_BYTES];

    if (value == 0)
        return 0;
    return gguf_write_f32(keys->writer, key_name(keys, key, name), value, keys->err);
}

static uint32_t block_count(const struct model *model)
{
    return model->n_layer + model->n_layer_nextn;
}

/* The first block with a mixer, or NULL. */
static const struct model_layer *find_mixer(const struct model *model, enum model_mixer mixer)
{
    for (uint32_t i = 0; i < block_count(model); i++)
        if (model->layers[i].mixer == mixer)
            return &model->layers[i];
    return NULL;
}

/* A count of heads: one number where all blocks with attention have the same, else one a
 * block, 0 for those without. */
static int put_heads(const struct keys *keys, const char *key, const uint32_t *counts)
{
    uint32_t count = block_count(keys->model), same = 0;
    bool differ = false;
    char name[KEY_BYTES];

    for (uint32_t i = 0; i < count; i++) {
        if (counts[i] == 0)
            continue;
        differ |= same != 0 && counts[i] != same;
        same = counts[i];
    }
    if (!differ)
        return put_u32(keys, key, same);
    return gguf_write_array(keys->writer, key_name(keys, key, name), GGUF_TYPE_UINT32, counts,
                            count, keys->err);
}

static int put_head_counts(const struct keys *keys)
{
    const struct model *model = keys->model;
    uint32_t *counts = calloc(2 * (size_t)block_count(model) + 1, sizeof *counts), *kv_counts;
    int result;

    if (!counts)
        return error_set(keys->err, ERROR_MEMORY, "no memory for the heads of %" PRIu32 " blocks",
                         block_count(model));
    kv_counts = counts + block_count(model);
    for (uint32_t i = 0; i < block_count(model); i++) {
        counts[i] = model->layers[i].n_head;
        kv_counts[i] = model->layers[i].n_head_kv;
    }
    result = put_heads(keys, "attention.head_count", counts) ||
                     put_heads(keys, "attention.head_count_kv", kv_counts)
                 ? -1
                 : 0;
    free(counts);
    return result;
}

static int put_windows(const struct keys *keys, const struct model_layer *sliding)
{
    const struct model *model = keys->model;
    bool *slides = calloc((size_t)block_count(model) + 1, sizeof *slides);
    char name[KEY_BYTES];
    int result;

    if (!slides)
        return error_set(keys->err, ERROR_MEMORY, "no memory for the windows of %" PRIu32 " blocks",
                         block_count(model));
    for (uint32_t i = 0; i < block_count(model); i++)
        slides[i] = model->layers[i].mixer == MODEL_MIXER_SLIDING_WINDOW;
    result = put_u32(keys, "attention.sliding_window", sliding->window) ||
                     put_u32(keys, "attention.key_length_swa", sliding->head_dim_k) ||
                     put_u32(keys, "attention.value_length_swa", sliding->head_dim_v) ||
                     gguf_write_array(keys->writer,
                                      key_name(keys, "attention.sliding_window_pattern", name),
                                      GGUF_TYPE_BOOL, slides, block_count(model), keys->err)
                 ? -1
                 : 0;
    free(slides);
    return result;
}

static int put_attention(const struct keys *keys)
{
    const struct model_layer *sliding = find_mixer(keys->model, MODEL_MIXER_SLIDING_WINDOW);
    const struct model_layer *latent = find_mixer(keys->model, MODEL_MIXER_MLA);
    const struct model_layer *full = find_mixer(keys->model, MODEL_MIXER_ATTENTION);

    if (!full)
        full = latent ? latent : sliding;
    if (put_head_counts(keys) || (sliding && put_windows(keys, sliding)))
        return -1;
    if (latent && (put_u32(keys, "attention.kv_lora_rank", latent->head_dim_v) ||
                   put_u32(keys, "rope.dimension_count", latent->head_dim_k - latent->head_dim_v)))
        return -1;
    if (!full)
        return 0;
    return put_u32(keys, "attention.key_length", full->head_dim_k) ||
                   put_u32(keys, "attention.value_length", full->head_dim_v)
               ? -1
               : 0;
}

/* llama.cpp counts from one attention block to the next. */
static uint32_t attention_interval(const struct model *model)
{
    uint32_t interval = 1;

    while (interval <= model->n_layer &&
           model->layers[interval - 1].mixer == MODEL_MIXER_GATED_DELTA_NET)
        interval++;
    return interval;
}

static int put_delta_net(const struct keys *keys)
{
    const struct model_layer *net = find_mixer(keys->model, MODEL_MIXER_GATED_DELTA_NET);

    if (!net)
        return 0;
    return put_u32(keys, "ssm.conv_kernel", net->gdn_conv_kernel) ||
                   put_u32(keys, "ssm.state_size", net->gdn_state_dim) ||
                   put_u32(keys, "ssm.group_count", net->gdn_k_heads) ||
                   put_u32(keys, "ssm.time_step_rank", net->gdn_v_heads) ||
                   put_u32(keys, "ssm.inner_size", net->gdn_v_heads * net->gdn_state_dim) ||
                   put_u32(keys, "full_attention_interval", attention_interval(keys->model))
               ? -1
               : 0;
}

static int put_feed_forward(const struct keys *keys)
{
    const struct model_layer *layers = keys->model->layers, *experts = NULL;
    uint32_t count = block_count(keys->model), width = 0, dense_blocks = 0;

    while (dense_blocks < count && layers[dense_blocks].n_expert == 0)
        dense_blocks++;
    if (dense_blocks < count)
        experts = &layers[dense_blocks];
    for (uint32_t i = 0; i < count; i++)
        width = layers[i].n_ff > width ? layers[i].n_ff : width;
    if (put_u32_unless_0(keys, "feed_forward_length", width))
        return -1;
    if (!experts)
        return 0;
    return put_u32_unless_0(keys, "leading_dense_block_count", dense_blocks) ||
                   put_u32(keys, "expert_count", experts->n_expert) ||
                   put_u32(keys, "expert_used_count", experts->n_expert_used) ||
                   put_u32(keys, "expert_feed_forward_length", experts->n_ff_exp) ||
                   put_u32_unless_0(keys, "expert_shared_feed_forward_length", experts->n_ff_shexp)
               ? -1
               : 0;
}

/* The pairs of a head that turn with each of the positions of M-RoPE, for qwen35. */
static int put_rope_sections(const struct keys *keys, uint32_t rope_dim)
{
    int32_t pairs = (int32_t)(rope_dim / 2);
    int32_t sections[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    char name[KEY_BYTES];

    if (strncmp(keys->model->arch, "qwen35", 6) != 0)
        return 0;
    return gguf_write_array(keys->writer, key_name(keys, "rope.dimension_sections", name),
                            GGUF_TYPE_INT32, sections, 4, keys->err);
}

/* Nothing for architectures that numbers_of() does not know. */
static int put_numbers(const struct keys *keys)
{
    struct error ignored = {0};
    struct numbers numbers;
    float sliding_base;

    if (numbers_of(keys->model, NULL, &numbers, &ignored))
        return 0;
    sliding_base = numbers.rope_dim_sliding ? (float)numbers.rope_base_sliding : 0;
    return put_f32_unless_0(keys, "attention.layer_norm_rms_epsilon", numbers.norm_eps) ||
                   put_f32_unless_0(keys, "attention.scale", numbers.attention_scale) ||
                   put_f32_unless_0(keys, "final_logit_softcapping", numbers.logit_softcap) ||
                   put_f32_unless_0(keys, "rope.freq_base", (float)numbers.rope_base) ||
                   put_f32_unless_0(keys, "rope.freq_base_swa", sliding_base) ||
                   put_u32_unless_0(keys, "rope.dimension_count", numbers.rope_dim) ||
                   put_u32_unless_0(keys, "rope.dimension_count_swa", numbers.rope_dim_sliding) ||
                   put_rope_sections(keys, numbers.rope_dim)
               ? -1
               : 0;
}

/* general.file_type, of the nearest mix for K-quants without one. Source: enum llama_ftype
 * in include/llama.h of llama.cpp. */
static const struct {
    const char *quant;
    uint32_t file_type;
} file_types[] = {
    {"F32", 0},     {"F16", 1},   {"Q4_0", 2},    {"Q8_0", 7},    {"Q4_K", 14}, {"Q4_K_S", 14},
    {"Q4_K_M", 15}, {"Q5_K", 16}, {"Q5_K_S", 16}, {"Q5_K_M", 17}, {"Q6_K", 18}, {"BF16", 32},
};

static int put_general(const struct keys *keys)
{
    const struct model *model = keys->model;
    struct gguf_write *writer = keys->writer;

    if (gguf_write_string(writer, "general.architecture", model->arch, keys->err) ||
        gguf_write_string(writer, "general.name", model->name, keys->err) ||
        gguf_write_u32(writer, "general.quantization_version", 2, keys->err))
        return -1;
    if (model->size_label[0] != '\0' &&
        gguf_write_string(writer, "general.size_label", model->size_label, keys->err))
        return -1;
    for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++)
        if (strcasecmp(file_types[i].quant, model->quant) == 0)
            return gguf_write_u32(writer, "general.file_type", file_types[i].file_type, keys->err);
    return 0;
}

static int put_model(const struct keys *keys)
{
    const struct model *model = keys->model;

    if (put_general(keys) || put_u32(keys, "block_count", block_count(model)) ||
        put_u32_unless_0(keys, "nextn_predict_layers", model->n_layer_nextn) ||
        put_u32(keys, "context_length", model->n_ctx_train) ||
        put_u32(keys, "embedding_length", model->n_embd) ||
        put_u32(keys, "vocab_size", model->n_vocab) || put_attention(keys) || put_delta_net(keys) ||
        put_feed_forward(keys) || put_numbers(keys))
        return -1;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (gguf_write_tensor(keys->writer, model->tensors[i].name, model->tensors[i].type,
                              model->tensors[i].ne, keys->err))
            return -1;
    return 0;
}

/* A writer that holds a model's keys and tensors, for gguf_write_free(). */
struct gguf_write *model_write_describe(const struct model *model, struct error *err)
{
    struct gguf_write *writer = gguf_write_new(err);
    struct keys keys = {.writer = writer, .model = model, .err = err};

    if (writer && put_model(&keys)) {
        gguf_write_free(writer);
        return NULL;
    }
    return writer;
}

/* ---- the file ---- */

static int fill_synthetic(void *context, size_t index, uint64_t offset, void *bytes, size_t size,
                          struct error *err)
{
    const struct synth *synths = context;

    (void)err;
    synth_bytes(&synths[index], offset, bytes, size);
    return 0;
}

int model_write_gguf(const struct model *model, uint64_t seed, const char *path, struct error *err)
{
    struct synth *synths = calloc(model->tensor_count + 1, sizeof *synths);
    struct gguf_write *writer = NULL;
    int result = -1;

    if (!synths)
        return error_set(err, ERROR_MEMORY, "no memory for a list of %zu tensors",
                         model->tensor_count);
    for (size_t i = 0; i < model->tensor_count; i++)
        if (synth_init(&synths[i], &model->tensors[i], model->tied_embeddings, seed, err))
            goto free_synths;
    writer = model_write_describe(model, err);
    if (writer)
        result = gguf_write_file(writer, path, fill_synthetic, synths, err);

free_synths:
    gguf_write_free(writer);
    free(synths);
    return result;
}
