/* A model from a GGUF header: names, counts, the embedding and the list of
 * tensors; the blocks are model_gguf_layer.c. Shapes of tensors win over keys.
 * A file without tensors (vocabulary only) gives the geometry of its keys. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/gguf_private.h"
#include "sim/model_gguf_private.h"

/* ---- messages and keys ---- */

#define KEY_BYTES 128

static void name_key(const struct model_reading *reading, const char *key, char *out)
{
    snprintf(out, KEY_BYTES, "%s.%s", reading->model->arch, key);
}

const struct gguf_key *model_reading_find_key(const struct model_reading *reading, const char *key)
{
    char name[KEY_BYTES];

    name_key(reading, key, name);
    return gguf_find_key(reading->gguf, name);
}

/* A key that is missing is reported at the count of keys. */
#define KEY_COUNT_OFFSET ((size_t)16)

int model_reading_fail_key(const struct model_reading *reading, const char *key, const char *format,
                           ...)
{
    const struct gguf_key *found = model_reading_find_key(reading, key);
    char name[KEY_BYTES], text[200];
    va_list arguments;

    name_key(reading, key, name);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set_at(reading->err, ERROR_INPUT, gguf_part_path(reading->gguf, 0), 0, 0,
                        "offset %zu: key \"%s\": %s", found ? found->offset : KEY_COUNT_OFFSET,
                        name, text);
}

int model_reading_fail_tensor(const struct model_reading *reading,
                              const struct model_tensor *tensor, enum error_code code,
                              const char *format, ...)
{
    const struct gguf_tensor *found = gguf_find_tensor(reading->gguf, tensor->name);
    char name[64], text[200];
    va_list arguments;

    gguf_printable(name, sizeof name, tensor->name, strlen(tensor->name));
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set_at(reading->err, code, gguf_part_path(reading->gguf, found->part), 0, 0,
                        "offset %zu: tensor \"%s\": %s", found->entry_offset, name, text);
}

int model_reading_u32(const struct model_reading *reading, const char *key, uint32_t layer,
                      uint32_t fallback, uint32_t limit, uint32_t *value)
{
    const struct gguf_key *found = model_reading_find_key(reading, key);
    uint64_t index = layer, wide;

    if (!found || found->count == 0) {
        *value = fallback;
        return 0;
    }
    if (index >= found->count)
        index = found->count - 1;
    if (!gguf_get_u64_at(reading->gguf, found->name, index, &wide))
        return model_reading_fail_key(reading, key,
                                      "a value of type %s where an integer of 0 or more belongs",
                                      gguf_type_name(found->element_type));
    if (wide > limit)
        return model_reading_fail_key(
            reading, key, "%" PRIu64 " is too much; at most %" PRIu32 " can be", wide, limit);
    *value = (uint32_t)wide;
    return 0;
}

bool model_reading_bool(const struct model_reading *reading, const char *key, uint32_t layer)
{
    const struct gguf_key *found = model_reading_find_key(reading, key);
    bool value = false;

    if (found)
        gguf_get_bool_at(reading->gguf, found->name, layer, &value);
    return value;
}

int model_reading_narrow(const struct model_reading *reading, const struct model_tensor *tensor,
                         uint64_t dimension, uint32_t limit, uint32_t *value)
{
    if (dimension > limit)
        return model_reading_fail_tensor(
            reading, tensor, ERROR_INPUT,
            "a width of %" PRIu64 " is too much; at most %" PRIu32 " can be", dimension, limit);
    *value = (uint32_t)dimension;
    return 0;
}

/* ---- names ---- */

static int read_arch(const struct model_reading *reading)
{
    const char *source = gguf_part_path(reading->gguf, 0), *text;
    const struct gguf_key *key = gguf_find_key(reading->gguf, "general.architecture");
    size_t length;

    if (!gguf_get_string(reading->gguf, "general.architecture", &text, &length))
        return error_set_at(
            reading->err, ERROR_INPUT, source, 0, 0, "offset %zu: key \"general.architecture\": %s",
            key ? key->offset : KEY_COUNT_OFFSET, key ? "is not a string" : "is missing");
    if (length == 0 || length >= sizeof reading->model->arch)
        return error_set_at(reading->err, ERROR_INPUT, source, 0, 0,
                            "offset %zu: key \"general.architecture\": %zu bytes; 1 to %zu can be",
                            key->offset, length, sizeof reading->model->arch - 1);
    gguf_printable(reading->model->arch, sizeof reading->model->arch, text, length);
    return 0;
}

/* Copies a string key; false, leaving `out` alone, without one. */
static bool copy_string(const struct gguf *gguf, const char *key, char *out, size_t size)
{
    const char *text;
    size_t length;

    if (!gguf_get_string(gguf, key, &text, &length) || length == 0)
        return false;
    gguf_printable(out, size, text, length);
    return true;
}

/* The name of a file without folders and ".gguf". */
static void name_after_file(struct model *model, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t length = strlen(base);

    if (length > 5 && strcmp(base + length - 5, ".gguf") == 0)
        length -= 5;
    gguf_printable(model->name, sizeof model->name, base, length);
}

/* general.file_type, and what llama.cpp prints for it.
 * Source: enum llama_ftype in include/llama.h, llama_model_ftype_name in
 * src/llama-model-loader.cpp of llama.cpp. */
static const struct {
    uint32_t file_type;
    const char *name;
} file_types[] = {
    {0, "all F32"},
    {1, "F16"},
    {2, "Q4_0"},
    {3, "Q4_1"},
    {7, "Q8_0"},
    {8, "Q5_0"},
    {9, "Q5_1"},
    {10, "Q2_K - Medium"},
    {11, "Q3_K - Small"},
    {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"},
    {14, "Q4_K - Small"},
    {15, "Q4_K - Medium"},
    {16, "Q5_K - Small"},
    {17, "Q5_K - Medium"},
    {18, "Q6_K"},
    {19, "IQ2_XXS - 2.0625 bpw"},
    {20, "IQ2_XS - 2.3125 bpw"},
    {21, "Q2_K - Small"},
    {22, "IQ3_XS - 3.3 bpw"},
    {23, "IQ3_XXS - 3.0625 bpw"},
    {24, "IQ1_S - 1.5625 bpw"},
    {25, "IQ4_NL - 4.5 bpw"},
    {26, "IQ3_S - 3.4375 bpw"},
    {27, "IQ3_S mix - 3.66 bpw"},
    {28, "IQ2_S - 2.5 bpw"},
    {29, "IQ2_M - 2.7 bpw"},
    {30, "IQ4_XS - 4.25 bpw"},
    {31, "IQ1_M - 1.75 bpw"},
    {32, "BF16"},
    {36, "TQ1_0 - 1.69 bpw ternary"},
    {37, "TQ2_0 - 2.06 bpw ternary"},
    {38, "MXFP4 MoE"},
    {39, "NVFP4"},
    {40, "Q1_0"},
    {41, "Q2_0"},
};

/* The type that most tensors have, for a file that does not say; "" without tensors. */
static void guess_quant(struct model *model)
{
    size_t counts[TENSOR_TYPE_LIMIT] = {0};
    enum tensor_type most = TENSOR_TYPE_F32;

    if (model->tensor_count == 0)
        return;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (++counts[model->tensors[i].type] > counts[most])
            most = model->tensors[i].type;
    if (counts[most] == model->tensor_count && most == TENSOR_TYPE_F32)
        snprintf(model->quant, sizeof model->quant, "all F32 (guessed)");
    else
        snprintf(model->quant, sizeof model->quant, "%s (guessed)", tensor_type_info(most)->name);
}

static void read_quant(const struct model_reading *reading)
{
    struct model *model = reading->model;
    uint64_t file_type;

    guess_quant(model);
    if (!gguf_get_u64(reading->gguf, "general.file_type", &file_type))
        return;
    for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++)
        if (file_types[i].file_type == file_type)
            snprintf(model->quant, sizeof model->quant, "%s", file_types[i].name);
}

/* ---- blocks and tensors ---- */

static int add_tensors(const struct model_reading *reading)
{
    for (size_t i = 0; i < gguf_tensor_count(reading->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(reading->gguf, i);
        int layer;

        tensor_role_of(tensor->name, &layer);
        if (layer >= MODEL_LAYER_LIMIT)
            return error_set_at(reading->err, ERROR_INPUT,
                                gguf_part_path(reading->gguf, tensor->part), 0, 0,
                                "offset %zu: a tensor of block %d; numbers below %d are allowed",
                                tensor->entry_offset, layer, MODEL_LAYER_LIMIT);
        if (model_add_tensor(reading->model, tensor->name, tensor->type, tensor->ne, reading->err))
            return -1;
    }
    return 0;
}

static bool is_nextn_role(enum tensor_role role)
{
    return role >= TENSOR_ROLE_NEXTN_EH_PROJ && role <= TENSOR_ROLE_NEXTN_SHARED_HEAD_NORM;
}

/* What the names of the tensors say about the blocks. */
struct block_claims {
    uint32_t count;        /* the highest block number, and one */
    uint32_t with_tensors; /* different block numbers */
    uint32_t nextn;        /* blocks at the end that have a nextn tensor */
};

static int count_claims(const struct model_reading *reading, struct block_claims *claims)
{
    const struct model *model = reading->model;
    struct {
        bool seen, nextn;
    } * blocks;

    *claims = (struct block_claims){0};
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].layer >= 0 && (uint32_t)model->tensors[i].layer >= claims->count)
            claims->count = (uint32_t)model->tensors[i].layer + 1;
    blocks = arena_alloc_array(model->arena, claims->count, sizeof *blocks, reading->err);
    if (!blocks)
        return -1;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].layer >= 0) {
            blocks[model->tensors[i].layer].seen = true;
            blocks[model->tensors[i].layer].nextn |= is_nextn_role(model->tensors[i].role);
        }
    for (uint32_t i = 0; i < claims->count; i++)
        claims->with_tensors += blocks[i].seen;
    while (claims->nextn < claims->count && blocks[claims->count - 1 - claims->nextn].nextn)
        claims->nextn++;
    return 0;
}

/* The blocks of a file: those that its tensors name, or without tensors those
 * of the key. llama.cpp counts the nextn blocks in block_count. */
static int read_blocks(const struct model_reading *reading)
{
    struct block_claims claims;
    uint32_t said, nextn;

    if (!model_reading_find_key(reading, "block_count"))
        return model_reading_fail_key(reading, "block_count", "is missing");
    if (model_reading_u32(reading, "block_count", 0, 0, MODEL_LAYER_LIMIT, &said) ||
        model_reading_u32(reading, "nextn_predict_layers", 0, 0, MODEL_LAYER_LIMIT, &nextn) ||
        count_claims(reading, &claims))
        return -1;
    if (reading->model->tensor_count == 0) {
        if (said == 0)
            return model_reading_fail_key(reading, "block_count", "0 blocks are no model");
        if (nextn > said)
            return model_reading_fail_key(reading, "nextn_predict_layers",
                                          "%" PRIu32 " of %" PRIu32 " blocks cannot be", nextn,
                                          said);
        return model_set_layers(reading->model, said - nextn, nextn, reading->err);
    }
    if (claims.count == 0)
        return model_reading_fail_key(reading, "block_count",
                                      "%" PRIu32 ", but none of the %zu tensors is of a block",
                                      said, reading->model->tensor_count);
    /* Pruned models have blocks without tensors, but then they count them. */
    if (claims.with_tensors != claims.count && claims.count > said)
        return model_reading_fail_key(reading, "block_count",
                                      "%" PRIu32 ", but there is a block %" PRIu32 ", and %" PRIu32
                                      " before it have no tensors",
                                      said, claims.count - 1, claims.count - claims.with_tensors);
    return model_set_layers(reading->model, claims.count - claims.nextn, claims.nextn,
                            reading->err);
}

/* ---- the embedding ---- */

static int read_embedding(const struct model_reading *reading)
{
    struct model *model = reading->model;
    const struct model_tensor *embd = model_find_tensor(model, -1, TENSOR_ROLE_TOKEN_EMBD);
    const struct model_tensor *output = model_find_tensor(model, -1, TENSOR_ROLE_OUTPUT);
    const struct gguf_key *tokens = gguf_find_key(reading->gguf, "tokenizer.ggml.tokens");
    const struct model_tensor *shape = embd ? embd : output;
    uint32_t token_count = 0;

    model->tied_embeddings = embd && !output;
    if (tokens && tokens->type == GGUF_TYPE_ARRAY && tokens->count <= UINT32_MAX)
        token_count = (uint32_t)tokens->count;
    if (model_reading_u32(reading, "context_length", 0, 0, UINT32_MAX, &model->n_ctx_train))
        return -1;
    if (shape)
        return model_reading_narrow(reading, shape, shape->ne[0], MODEL_GGUF_HEAD_LIMIT,
                                    &model->n_embd) ||
                       model_reading_narrow(reading, shape, shape->ne[1], UINT32_MAX,
                                            &model->n_vocab)
                   ? -1
                   : 0;
    if (!model_reading_find_key(reading, "embedding_length"))
        return model_reading_fail_key(reading, "embedding_length", "is missing");
    return model_reading_u32(reading, "embedding_length", 0, 0, MODEL_GGUF_HEAD_LIMIT,
                             &model->n_embd) ||
                   model_reading_u32(reading, "vocab_size", 0, token_count, UINT32_MAX,
                                     &model->n_vocab)
               ? -1
               : 0;
}

/* ---- the model as a whole ---- */

static int fill(const struct model_reading *reading, const char *source)
{
    struct model *model = reading->model;

    if (read_arch(reading))
        return -1;
    gguf_printable(model->source, sizeof model->source, source, strlen(source));
    if (!copy_string(reading->gguf, "general.name", model->name, sizeof model->name))
        name_after_file(model, source);
    copy_string(reading->gguf, "general.size_label", model->size_label, sizeof model->size_label);
    if (add_tensors(reading) || read_blocks(reading) || model_finish(model, reading->err) ||
        read_embedding(reading))
        return -1;
    read_quant(reading);
    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++)
        if (model_reading_layer(reading, i))
            return -1;
    return 0;
}

struct model *model_from_gguf(const struct gguf *gguf, const char *source, struct error *err)
{
    struct model *model = model_new(err);
    struct model_reading reading = {.gguf = gguf, .model = model, .err = err};

    if (!model)
        return NULL;
    if (fill(&reading, source)) {
        error_name_source(err, source);
        model_free(model);
        return NULL;
    }
    return model;
}

struct model *model_load_gguf(const char *path, struct error *err)
{
    struct gguf *gguf = gguf_load(path, err);
    struct model *model;

    if (!gguf)
        return NULL;
    model = model_from_gguf(gguf, path, err);
    gguf_free(gguf);
    return model;
}
