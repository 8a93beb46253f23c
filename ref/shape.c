/* The small models: tables of tensors, from which a header is written and read back, so that
 * a shape, a file of it and the reader agree. Then the keys of any model.
 *
 * Names and order of tensors are those of sim/data/models.json. Widths are the least that
 * leave each of eight devices a piece: 1024 is 8 granules of 128. */
#include "ref/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ref/gguf_write.h"
#include "ref/numbers.h"
#include "ref/synth.h"
#include "sim/model_private.h"
#include "sim/word_list.h"

/* ---- tensors of blocks ---- */

struct row {
    const char *name; /* behind "blk.N." */
    uint64_t ne[3];   /* 0 for unused ones */
};

static const struct row llama_attention[] = {
    {"attn_norm.weight", {256}},
    {"ffn_norm.weight", {256}},
    {"attn_q.weight", {256, 256}},
    {"attn_k.weight", {256, 256}},
    {"attn_v.weight", {256, 256}},
    {"attn_output.weight", {256, 256}},
    {NULL, {0}},
};

static const struct row dense[] = {
    {"ffn_gate.weight", {256, 1024}},
    {"ffn_up.weight", {256, 1024}},
    {"ffn_down.weight", {1024, 256}},
    {NULL, {0}},
};

static const struct row qwen3_attention[] = {
    {"attn_norm.weight", {256}},
    {"ffn_norm.weight", {256}},
    {"attn_q.weight", {256, 512}},
    {"attn_k.weight", {256, 256}},
    {"attn_v.weight", {256, 256}},
    {"attn_output.weight", {512, 256}},
    {"attn_q_norm.weight", {64}},
    {"attn_k_norm.weight", {64}},
    {NULL, {0}},
};

/* attn_q holds a gate beside each query. */
static const struct row qwen35_attention[] = {
    {"attn_norm.weight", {256}},
    {"post_attention_norm.weight", {256}},
    {"attn_q.weight", {256, 1024}},
    {"attn_k.weight", {256, 256}},
    {"attn_v.weight", {256, 256}},
    {"attn_output.weight", {512, 256}},
    {"attn_q_norm.weight", {64}},
    {"attn_k_norm.weight", {64}},
    {NULL, {0}},
};

static const struct row qwen35_delta_net[] = {
    {"attn_norm.weight", {256}},
    {"post_attention_norm.weight", {256}},
    {"attn_qkv.weight", {256, 2048}},
    {"attn_gate.weight", {256, 1024}},
    {"ssm_conv1d.weight", {4, 2048}},
    {"ssm_dt.bias", {16}},
    {"ssm_a", {16}},
    {"ssm_beta.weight", {256, 16}},
    {"ssm_alpha.weight", {256, 16}},
    {"ssm_norm.weight", {64}},
    {"ssm_out.weight", {1024, 256}},
    {NULL, {0}},
};

static const struct row qwen35_experts[] = {
    {"ffn_gate_inp.weight", {256, 8}},
    {"ffn_gate_exps.weight", {256, 256, 8}},
    {"ffn_up_exps.weight", {256, 256, 8}},
    {"ffn_down_exps.weight", {256, 256, 8}},
    {"ffn_gate_shexp.weight", {256, 256}},
    {"ffn_up_shexp.weight", {256, 256}},
    {"ffn_down_shexp.weight", {256, 256}},
    {"ffn_gate_inp_shexp.weight", {256}},
    {NULL, {0}},
};

static const struct row qwen35_nextn[] = {
    {"nextn.eh_proj.weight", {512, 256}},
    {"nextn.enorm.weight", {256}},
    {"nextn.hnorm.weight", {256}},
    {"nextn.shared_head_norm.weight", {256}},
    {NULL, {0}},
};

static const struct row gemma4_sliding[] = {
    {"attn_norm.weight", {256}},        {"post_attention_norm.weight", {256}},
    {"ffn_norm.weight", {256}},         {"post_ffw_norm.weight", {256}},
    {"layer_output_scale.weight", {1}}, {"attn_q.weight", {256, 256}},
    {"attn_k.weight", {256, 128}},      {"attn_v.weight", {256, 128}},
    {"attn_output.weight", {256, 256}}, {"attn_q_norm.weight", {32}},
    {"attn_k_norm.weight", {32}},       {NULL, {0}},
};

static const struct row gemma4_full[] = {
    {"attn_norm.weight", {256}},
    {"post_attention_norm.weight", {256}},
    {"ffn_norm.weight", {256}},
    {"post_ffw_norm.weight", {256}},
    {"layer_output_scale.weight", {1}},
    {"attn_q.weight", {256, 512}},
    {"attn_k.weight", {256, 128}},
    {"attn_output.weight", {512, 256}},
    {"attn_q_norm.weight", {64}},
    {"attn_k_norm.weight", {64}},
    {NULL, {0}},
};

/* 320 is no multiple of a K-quant's block, as the 704 of the large one. */
static const struct row gemma4_experts[] = {
    {"ffn_gate_inp.weight", {256, 8}},
    {"ffn_gate_up_exps.weight", {256, 640, 8}},
    {"ffn_down_exps.weight", {320, 256, 8}},
    {"ffn_gate_inp.scale", {256}},
    {"ffn_down_exps.scale", {8}},
    {"pre_ffw_norm_2.weight", {256}},
    {"post_ffw_norm_1.weight", {256}},
    {"post_ffw_norm_2.weight", {256}},
    {NULL, {0}},
};

static const struct row muse_attention[] = {
    {"attn_norm.weight", {256}},      {"post_attention_norm.weight", {256}},
    {"attn_q.weight", {256, 256}},    {"attn_k.weight", {256, 128}},
    {"attn_v.weight", {256, 128}},    {"attn_output.weight", {256, 256}},
    {"attn_q_norm.weight", {32}},     {"attn_k_norm.weight", {32}},
    {"attn_gate.weight", {256, 256}}, {"ffn_norm.weight", {256}},
    {"post_ffw_norm.weight", {256}},  {NULL, {0}},
};

/* ---- kinds of blocks ---- */

struct kind {
    struct model_layer layer; /* without its tensors */
    const struct row *rows[4];
};

#define FULL .mixer = MODEL_MIXER_ATTENTION
#define SLIDING .mixer = MODEL_MIXER_SLIDING_WINDOW, .window = 64
#define HEADS(count, kv, dim) .n_head = count, .n_head_kv = kv, .head_dim_k = dim, .head_dim_v = dim
#define DELTA_NET                                                                                  \
    .mixer = MODEL_MIXER_GATED_DELTA_NET, .gdn_k_heads = 8, .gdn_v_heads = 16,                     \
    .gdn_state_dim = 64, .gdn_conv_kernel = 4
#define DENSE .n_ff = 1024
#define EXPERTS(width) .n_expert = 8, .n_expert_used = 2, .n_ff_exp = width

static const struct kind llama = {{FULL, HEADS(8, 8, 32), DENSE}, {llama_attention, dense}};
static const struct kind qwen3 = {{FULL, HEADS(8, 4, 64), DENSE}, {qwen3_attention, dense}};
static const struct kind qwen35 = {{FULL, HEADS(8, 4, 64), .q_gated = true, DENSE},
                                   {qwen35_attention, dense}};
static const struct kind qwen35_gdn = {{DELTA_NET, DENSE}, {qwen35_delta_net, dense}};
static const struct kind qwen35_draft = {{FULL, HEADS(8, 4, 64), .q_gated = true, DENSE},
                                         {qwen35_attention, dense, qwen35_nextn}};
static const struct kind qwen35moe = {
    {FULL, HEADS(8, 4, 64), .q_gated = true, EXPERTS(256), .n_ff_shexp = 256},
    {qwen35_attention, qwen35_experts}};
static const struct kind qwen35moe_gdn = {{DELTA_NET, EXPERTS(256), .n_ff_shexp = 256},
                                          {qwen35_delta_net, qwen35_experts}};
static const struct kind qwen35moe_draft = {
    {FULL, HEADS(8, 4, 64), .q_gated = true, EXPERTS(256), .n_ff_shexp = 256},
    {qwen35_attention, qwen35_experts, qwen35_nextn}};
static const struct kind gemma4_swa = {{SLIDING, HEADS(8, 4, 32), DENSE, EXPERTS(320)},
                                       {gemma4_sliding, dense, gemma4_experts}};
static const struct kind gemma4 = {{FULL, HEADS(8, 2, 64), .v_from_k = true, DENSE, EXPERTS(320)},
                                   {gemma4_full, dense, gemma4_experts}};
static const struct kind muse_swa = {{SLIDING, HEADS(8, 4, 32), DENSE}, {muse_attention, dense}};
static const struct kind muse = {{FULL, HEADS(8, 4, 32), DENSE}, {muse_attention, dense}};

/* ---- models ---- */

#define N_EMBD 256
#define N_VOCAB 320
#define N_CTX_TRAIN 4096
#define LAYERS_MAX 5

static const struct shape {
    const char *name, *arch, *about;
    uint32_t n_layer, n_layer_nextn;
    const struct kind *kinds[LAYERS_MAX]; /* one a block, drafting blocks behind */
    bool tied;
    uint64_t rope_freqs; /* values; 0 without */
} shapes[] = {
    {.name = "tiny-llama",
     .arch = "llama",
     .about = "as many KV heads as heads",
     .n_layer = 4,
     .kinds = {&llama, &llama, &llama, &llama}},
    {.name = "tiny-qwen3",
     .arch = "qwen3",
     .about = "grouped heads, the head reuses the embeddings",
     .n_layer = 4,
     .tied = true,
     .kinds = {&qwen3, &qwen3, &qwen3, &qwen3}},
    {.name = "tiny-qwen35",
     .arch = "qwen35",
     .about = "three gated delta nets, one attention, one next-token block",
     .n_layer = 4,
     .n_layer_nextn = 1,
     .kinds = {&qwen35_gdn, &qwen35_gdn, &qwen35_gdn, &qwen35, &qwen35_draft}},
    {.name = "tiny-qwen35moe",
     .arch = "qwen35moe",
     .about = "as tiny-qwen35, with experts and a shared one",
     .n_layer = 4,
     .n_layer_nextn = 1,
     .kinds = {&qwen35moe_gdn, &qwen35moe_gdn, &qwen35moe_gdn, &qwen35moe, &qwen35moe_draft}},
    {.name = "tiny-gemma4",
     .arch = "gemma4",
     .about = "two sliding windows, one attention with V from K, experts",
     .n_layer = 3,
     .tied = true,
     .rope_freqs = 32,
     .kinds = {&gemma4_swa, &gemma4_swa, &gemma4}},
    {.name = "tiny-muse-glimmer",
     .arch = "muse-glimmer",
     .about = "three sliding windows, one attention, gates",
     .n_layer = 4,
     .kinds = {&muse_swa, &muse_swa, &muse_swa, &muse}},
};

#define SHAPE_COUNT (sizeof shapes / sizeof *shapes)

size_t shape_count(void)
{
    return SHAPE_COUNT;
}

const char *shape_name(size_t index)
{
    return index < SHAPE_COUNT ? shapes[index].name : NULL;
}

const char *shape_about(size_t index)
{
    return index < SHAPE_COUNT ? shapes[index].about : NULL;
}

static int refuse_name(const char *name, struct error *err)
{
    const char *names[SHAPE_COUNT], *closest;
    char list[200];

    for (size_t i = 0; i < SHAPE_COUNT; i++)
        names[i] = shapes[i].name;
    word_list_text(names, SHAPE_COUNT, list, sizeof list);
    closest = word_list_closest(name, names, SHAPE_COUNT);
    return error_set(err, ERROR_USAGE, "no small model \"%.60s\"%s%s%s there are %s", name,
                     closest ? "; did you mean " : ";", closest ? closest : "", closest ? "?" : "",
                     list);
}

/* Reads "NAME:TYPE". */
static int read_spec(const char *spec, const struct shape **shape, enum tensor_type *type,
                     struct error *err)
{
    size_t length = strcspn(spec, ":");
    int id = TENSOR_TYPE_Q8_0;
    char name[80];

    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), spec);
    *shape = NULL;
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        if (strcasecmp(shapes[i].name, name) == 0)
            *shape = &shapes[i];
    if (!*shape)
        return refuse_name(name, err);
    if (spec[length] == ':')
        id = tensor_type_find(spec + length + 1);
    if (id < 0 || !synth_makes_type((enum tensor_type)id))
        return error_set(err, ERROR_USAGE,
                         "%s:%.20s: weights can be F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K",
                         (*shape)->name, spec + length + 1);
    *type = (enum tensor_type)id;
    return 0;
}

/* The type that llama.cpp's quantisation gives a tensor, with no mix in it. */
static enum tensor_type row_type(const struct row *row, enum tensor_type type)
{
    if (row->ne[1] == 0 || strncmp(row->name, "ssm_conv1d", 10) == 0 ||
        strncmp(row->name, "ffn_gate_inp", 12) == 0)
        return TENSOR_TYPE_F32;
    if (row->ne[0] % tensor_type_info(type)->block_elements != 0)
        return TENSOR_TYPE_Q8_0;
    return type;
}

static int add_row(struct model *model, const char *prefix, const struct row *row,
                   enum tensor_type type, struct error *err)
{
    uint64_t ne[4] = {row->ne[0], row->ne[1] ? row->ne[1] : 1, row->ne[2] ? row->ne[2] : 1, 1};
    char name[80];

    snprintf(name, sizeof name, "%s%s", prefix, row->name);
    return model_add_tensor(model, name, row_type(row, type), ne, err);
}

static int add_globals(struct model *model, const struct shape *shape, enum tensor_type type,
                       struct error *err)
{
    const struct row embeddings = {"token_embd.weight", {N_EMBD, N_VOCAB}};
    const struct row norm = {"output_norm.weight", {N_EMBD}};
    const struct row output = {"output.weight", {N_EMBD, N_VOCAB}};
    const struct row freqs = {"rope_freqs.weight", {shape->rope_freqs}};

    if (add_row(model, "", &embeddings, type, err) || add_row(model, "", &norm, type, err))
        return -1;
    if (!shape->tied && add_row(model, "", &output, type, err))
        return -1;
    return shape->rope_freqs ? add_row(model, "", &freqs, type, err) : 0;
}

static int add_block(struct model *model, uint32_t index, const struct kind *kind,
                     enum tensor_type type, struct error *err)
{
    bool is_nextn = model->layers[index].is_nextn;
    char prefix[24];

    model->layers[index] = kind->layer;
    model->layers[index].is_nextn = is_nextn;
    snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".", index);
    for (const struct row *const *rows = kind->rows; *rows; rows++)
        for (const struct row *row = *rows; row->name; row++)
            if (add_row(model, prefix, row, type, err))
                return -1;
    return 0;
}

static int fill_model(struct model *model, const struct shape *shape, enum tensor_type type,
                      struct error *err)
{
    snprintf(model->name, sizeof model->name, "%s", shape->name);
    snprintf(model->arch, sizeof model->arch, "%s", shape->arch);
    snprintf(model->quant, sizeof model->quant, "%s", tensor_type_info(type)->name);
    snprintf(model->source, sizeof model->source, "%s", shape->name);
    model->n_embd = N_EMBD;
    model->n_vocab = N_VOCAB;
    model->n_ctx_train = N_CTX_TRAIN;
    model->tied_embeddings = shape->tied;
    if (model_set_layers(model, shape->n_layer, shape->n_layer_nextn, err) ||
        add_globals(model, shape, type, err))
        return -1;
    for (uint32_t i = 0; i < shape->n_layer + shape->n_layer_nextn; i++)
        if (add_block(model, i, shape->kinds[i], type, err))
            return -1;
    return model_finish(model, err);
}

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
static struct gguf_write *describe(const struct model *model, struct error *err)
{
    struct gguf_write *writer = gguf_write_new(err);
    struct keys keys = {.writer = writer, .model = model, .err = err};

    if (writer && put_model(&keys)) {
        gguf_write_free(writer);
        return NULL;
    }
    return writer;
}

/* ---- opening ---- */

static struct gguf *parse_header(const struct model *model, struct error *err)
{
    struct gguf_write *writer = describe(model, err);
    unsigned char *header = NULL;
    struct gguf *gguf = NULL;
    size_t size;

    if (!writer)
        return NULL;
    header = gguf_write_header(writer, &size, err);
    if (header)
        gguf = gguf_parse(header, size, model->source, err);
    free(header);
    gguf_write_free(writer);
    return gguf;
}

struct gguf *shape_gguf(const char *name_and_type, struct error *err)
{
    const struct shape *shape;
    enum tensor_type type;
    struct model *model;
    struct gguf *gguf = NULL;

    if (read_spec(name_and_type, &shape, &type, err))
        return NULL;
    model = model_new(err);
    if (model && fill_model(model, shape, type, err) == 0)
        gguf = parse_header(model, err);
    model_free(model);
    return gguf;
}

struct model *shape_open(const char *name_and_type, struct error *err)
{
    const struct shape *shape;
    enum tensor_type type;
    struct model *model;
    struct gguf *gguf;

    if (read_spec(name_and_type, &shape, &type, err))
        return NULL;
    gguf = shape_gguf(name_and_type, err);
    if (!gguf)
        return NULL;
    model = model_from_gguf(gguf, shape->name, err);
    if (model)
        snprintf(model->quant, sizeof model->quant, "%s", tensor_type_info(type)->name);
    gguf_free(gguf);
    return model;
}

/* ---- writing ---- */

static int fill_synthetic(void *context, size_t index, uint64_t offset, void *bytes, size_t size,
                          struct error *err)
{
    const struct synth *synths = context;

    (void)err;
    synth_bytes(&synths[index], offset, bytes, size);
    return 0;
}

int shape_write_model(const struct model *model, uint64_t seed, const char *path, struct error *err)
{
    struct synth *synths = calloc(model->tensor_count + 1, sizeof *synths);
    struct gguf_write *writer = NULL;
    int result = -1;

    if (!synths)
        return error_set(err, ERROR_MEMORY, "no memory for a list of %zu tensors",
                         model->tensor_count);
    for (size_t i = 0; i < model->tensor_count; i++)
        if (synth_init(&synths[i], &model->tensors[i], seed, err))
            goto free_synths;
    writer = describe(model, err);
    if (writer)
        result = gguf_write_file(writer, path, fill_synthetic, synths, err);

free_synths:
    gguf_write_free(writer);
    free(synths);
    return result;
}

int shape_write_gguf(const char *name_and_type, uint64_t seed, const char *path, struct error *err)
{
    struct model *model = shape_open(name_and_type, err);
    int result;

    if (!model)
        return -1;
    result = shape_write_model(model, seed, path, err);
    model_free(model);
    return result;
}
