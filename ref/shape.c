/* The small models: tables of tensors, from which a header is written and read back, so that
 * a shape, a file of it and the reader agree.
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
#include "ref/model_write.h"
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

bool shape_is_name(const char *name_and_type)
{
    for (size_t i = 0; i < shape_count(); i++) {
        size_t length = strlen(shape_name(i));

        if (strncasecmp(name_and_type, shape_name(i), length) == 0 &&
            (name_and_type[length] == '\0' || name_and_type[length] == ':'))
            return true;
    }
    return false;
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

/* ---- opening ---- */

static struct gguf *parse_header(const struct model *model, struct error *err)
{
    struct gguf_write *writer = model_write_describe(model, err);
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

int shape_write_gguf(const char *name_and_type, uint64_t seed, const char *path, struct error *err)
{
    struct model *model = shape_open(name_and_type, err);
    int result;

    if (!model)
        return -1;
    result = model_write_gguf(model, seed, path, err);
    model_free(model);
    return result;
}
