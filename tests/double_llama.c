#include "tests/double_llama.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "sim/arena.h"
#include "sim/checked.h"
#include "sim/gguf.h"

struct block {
    const double *attention_norm, *ffn_norm; /* (embedding) */
    const double *q;                         /* (heads * key_length, embedding) */
    const double *k;                         /* (kv_heads * key_length, embedding) */
    const double *v;                         /* (kv_heads * value_length, embedding) */
    const double *output;                    /* (embedding, heads * value_length) */
    const double *gate, *up;                 /* (ffn, embedding) */
    const double *down;                      /* (embedding, ffn) */
    double *keys;                            /* (context, kv_heads * key_length) */
    double *values;                          /* (context, kv_heads * value_length) */
};

struct double_llama {
    uint32_t embedding, ffn, blocks, heads, kv_heads, key_length, value_length, rope_dim, vocab;
    uint32_t context, position;
    double epsilon, rope_base, rope_scale; /* positions are multiplied by rope_scale */
    const double *rope_factors;            /* (rope_dim / 2): angles are divided by them; or NULL */
    const double *embeddings;              /* (vocab, embedding) */
    const double *norm;                    /* (embedding) */
    const double *head;                    /* (vocab, embedding) */
    struct block *block;
    double *x, *normed, *delta; /* (embedding) */
    double *query, *mixed;      /* (heads * key_length), (heads * value_length) */
    double *gated, *raised;     /* (ffn) */
    double *scores;             /* (context) */
    struct arena *arena;
};

/* ---- from the file ---- */

struct source {
    struct gguf *gguf;
    FILE *file;
    uint64_t file_bytes;
    size_t tensors_used;
    struct arena *arena;
    struct error *err;
};

static int fail(const struct source *source, enum error_code code, const char *name,
                const char *text)
{
    return error_set_at(source->err, code, gguf_part_path(source->gguf, 0), 0, 0, "\"%s\" %s", name,
                        text);
}

/* Moves the file to a tensor's values; all of them are there. */
static int find_values(struct source *source, const struct gguf_tensor *tensor)
{
    uint64_t start, end;

    if (!checked_add(gguf_data_offset(source->gguf, 0), tensor->offset, &start) ||
        !checked_add(start, tensor->bytes, &end) || end > source->file_bytes)
        return fail(source, ERROR_INPUT, tensor->name, "lies behind the end of the file");
    if (fseeko(source->file, (off_t)start, SEEK_SET))
        return fail(source, ERROR_IO, tensor->name, "cannot be read");
    return 0;
}

/* Sign, 5 bits of exponent, 10 of fraction. */
static double half_value(unsigned bits)
{
    unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value;

    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, -24);
    else
        value = ldexp(1024 + fraction, (int)exponent - 25);
    return bits >> 15 ? -value : value;
}

/* Reads one value, little-endian; false at the end of the file. */
static bool read_value(FILE *file, enum tensor_type type, double *value)
{
    unsigned char bytes[4];
    size_t count = type == TENSOR_TYPE_F32 ? 4 : 2;
    uint32_t bits = 0;
    float single;

    if (fread(bytes, 1, count, file) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        bits |= (uint32_t)bytes[i] << 8 * i;
    memcpy(&single, &bits, sizeof single);
    *value = type == TENSOR_TYPE_F32 ? (double)single : half_value(bits);
    return true;
}

/* The values of a tensor of `rows` rows of `columns`, or NULL with the error set. */
static const double *read_tensor(struct source *source, const char *name, uint64_t rows,
                                 uint64_t columns)
{
    const struct gguf_tensor *tensor = gguf_find_tensor(source->gguf, name);
    double *values;

    if (!tensor) {
        fail(source, ERROR_INPUT, name, "is not in the file");
        return NULL;
    }
    if (tensor->type != TENSOR_TYPE_F32 && tensor->type != TENSOR_TYPE_F16) {
        fail(source, ERROR_UNSUPPORTED, name, "is neither F32 nor F16");
        return NULL;
    }
    if (tensor->ne[0] != columns || tensor->ne[1] != rows || tensor->ne[2] * tensor->ne[3] != 1) {
        fail(source, ERROR_INPUT, name, "has another shape than the keys say");
        return NULL;
    }
    if (find_values(source, tensor)) /* bounds the count, too */
        return NULL;
    values =
        arena_alloc_array(source->arena, (size_t)(rows * columns), sizeof *values, source->err);
    for (size_t i = 0; values && i < rows * columns; i++)
        if (!read_value(source->file, tensor->type, &values[i])) {
            fail(source, ERROR_IO, name, "cannot be read");
            return NULL;
        }
    source->tensors_used++;
    return values;
}

static const double *read_of_block(struct source *source, uint32_t block, const char *name,
                                   uint64_t rows, uint64_t columns)
{
    char full[64];

    snprintf(full, sizeof full, "blk.%" PRIu32 ".%s.weight", block, name);
    return read_tensor(source, full, rows, columns);
}

/* Reads a key of 1 to 2^24, so that products of two stay exact; `usual` 0: it must be there. */
static int read_size(const struct source *source, const char *name, uint32_t usual, uint32_t *size)
{
    uint64_t number = usual;

    if ((usual == 0 || gguf_find_key(source->gguf, name)) &&
        (!gguf_get_u64(source->gguf, name, &number) || number == 0 || number > 1 << 24))
        return fail(source, ERROR_INPUT, name, "is no size");
    *size = (uint32_t)number;
    return 0;
}

/* Reads a key above 0; `usual` 0: it must be there. */
static int read_real(const struct source *source, const char *name, double usual, double *real)
{
    float number = 0;

    *real = usual;
    if (usual > 0 && !gguf_find_key(source->gguf, name))
        return 0;
    if (!gguf_get_f32(source->gguf, name, &number) || !(number > 0) || isinf(number))
        return fail(source, ERROR_INPUT, name, "is no number above 0");
    *real = number;
    return 0;
}

static int read_architecture(const struct source *source)
{
    const char *text;
    size_t length;

    if (!gguf_get_string(source->gguf, "general.architecture", &text, &length) || length != 5 ||
        memcmp(text, "llama", 5) != 0)
        return fail(source, ERROR_UNSUPPORTED, "general.architecture", "is not llama");
    if (gguf_is_big_endian(source->gguf) || gguf_part_count(source->gguf) != 1)
        return fail(source, ERROR_UNSUPPORTED, "general.architecture",
                    "comes in a file that is big-endian or split");
    return 0;
}

/* Only "linear" and no scaling are formulas here. */
static int read_rope(struct double_llama *llama, const struct source *source)
{
    const char *type;
    size_t length;
    double factor = 1;

    if (read_size(source, "llama.rope.dimension_count", llama->key_length, &llama->rope_dim) ||
        read_real(source, "llama.rope.freq_base", 10000, &llama->rope_base))
        return -1;
    if (llama->rope_dim > llama->key_length || llama->rope_dim % 2 != 0)
        return fail(source, ERROR_INPUT, "llama.rope.dimension_count", "does not fit a head");
    if (gguf_get_string(source->gguf, "llama.rope.scaling.type", &type, &length) &&
        !(length == 4 && memcmp(type, "none", 4) == 0)) {
        if (length != 6 || memcmp(type, "linear", 6) != 0)
            return fail(source, ERROR_UNSUPPORTED, "llama.rope.scaling.type",
                        "is neither none nor linear");
        if (read_real(source, "llama.rope.scaling.factor", 0, &factor))
            return -1;
    }
    llama->rope_scale = 1 / factor;
    return 0;
}

static int read_sizes(struct double_llama *llama, const struct source *source)
{
    const struct gguf_tensor *embeddings = gguf_find_tensor(source->gguf, "token_embd.weight");

    if (read_size(source, "llama.embedding_length", 0, &llama->embedding) ||
        read_size(source, "llama.block_count", 0, &llama->blocks) ||
        read_size(source, "llama.feed_forward_length", 0, &llama->ffn) ||
        read_size(source, "llama.attention.head_count", 0, &llama->heads) ||
        read_size(source, "llama.attention.head_count_kv", llama->heads, &llama->kv_heads) ||
        read_real(source, "llama.attention.layer_norm_rms_epsilon", 0, &llama->epsilon))
        return -1;
    if (llama->embedding < llama->heads || llama->heads % llama->kv_heads != 0)
        return fail(source, ERROR_INPUT, "llama.attention.head_count", "does not fit");
    if (read_size(source, "llama.attention.key_length", llama->embedding / llama->heads,
                  &llama->key_length) ||
        read_size(source, "llama.attention.value_length", llama->embedding / llama->heads,
                  &llama->value_length) ||
        read_rope(llama, source))
        return -1;
    if (!embeddings || embeddings->ne[1] > UINT32_MAX)
        return fail(source, ERROR_INPUT, "token_embd.weight", "is not in the file");
    llama->vocab = (uint32_t)embeddings->ne[1];
    return 0;
}

static int read_block(struct double_llama *llama, struct source *source, uint32_t index)
{
    struct block *block = &llama->block[index];
    uint64_t embedding = llama->embedding, ffn = llama->ffn;
    uint64_t key_row = (uint64_t)llama->kv_heads * llama->key_length;
    uint64_t value_row = (uint64_t)llama->kv_heads * llama->value_length;
    uint64_t query_row = (uint64_t)llama->heads * llama->key_length;
    uint64_t mixed_row = (uint64_t)llama->heads * llama->value_length;

    block->attention_norm = read_of_block(source, index, "attn_norm", 1, embedding);
    block->q = read_of_block(source, index, "attn_q", query_row, embedding);
    block->k = read_of_block(source, index, "attn_k", key_row, embedding);
    block->v = read_of_block(source, index, "attn_v", value_row, embedding);
    block->output = read_of_block(source, index, "attn_output", embedding, mixed_row);
    block->ffn_norm = read_of_block(source, index, "ffn_norm", 1, embedding);
    block->gate = read_of_block(source, index, "ffn_gate", ffn, embedding);
    block->up = read_of_block(source, index, "ffn_up", ffn, embedding);
    block->down = read_of_block(source, index, "ffn_down", embedding, ffn);
    if (!block->attention_norm || !block->q || !block->k || !block->v || !block->output ||
        !block->ffn_norm || !block->gate || !block->up || !block->down)
        return -1;
    block->keys = arena_alloc_array(source->arena, (size_t)key_row,
                                    llama->context * sizeof *block->keys, source->err);
    block->values = arena_alloc_array(source->arena, (size_t)value_row,
                                      llama->context * sizeof *block->values, source->err);
    return block->keys && block->values ? 0 : -1;
}

static int read_weights(struct double_llama *llama, struct source *source)
{
    bool tied = !gguf_find_tensor(source->gguf, "output.weight");

    llama->embeddings = read_tensor(source, "token_embd.weight", llama->vocab, llama->embedding);
    llama->norm = read_tensor(source, "output_norm.weight", 1, llama->embedding);
    if (!llama->embeddings || !llama->norm)
        return -1;
    llama->head = tied ? llama->embeddings
                       : read_tensor(source, "output.weight", llama->vocab, llama->embedding);
    if (!llama->head)
        return -1;
    if (gguf_find_tensor(source->gguf, "rope_freqs.weight")) {
        llama->rope_factors = read_tensor(source, "rope_freqs.weight", 1, llama->rope_dim / 2);
        if (!llama->rope_factors)
            return -1;
    }
    /* Each block has tensors, so a false count of blocks is no reason to allocate. */
    if (llama->blocks > gguf_tensor_count(source->gguf))
        return fail(source, ERROR_INPUT, "llama.block_count", "is more than there are tensors");
    llama->block =
        arena_alloc_array(source->arena, llama->blocks, sizeof *llama->block, source->err);
    if (!llama->block)
        return -1;
    for (uint32_t i = 0; i < llama->blocks; i++)
        if (read_block(llama, source, i))
            return -1;
    if (source->tensors_used != gguf_tensor_count(source->gguf))
        return fail(source, ERROR_UNSUPPORTED, "general.architecture",
                    "comes with tensors (biases, experts, more blocks) that are not computed");
    return 0;
}

static double *room(struct source *source, uint64_t count)
{
    return arena_alloc_array(source->arena, (size_t)count, sizeof(double), source->err);
}

static int make_room(struct double_llama *llama, struct source *source)
{
    llama->x = room(source, llama->embedding);
    llama->normed = room(source, llama->embedding);
    llama->delta = room(source, llama->embedding);
    llama->query = room(source, (uint64_t)llama->heads * llama->key_length);
    llama->mixed = room(source, (uint64_t)llama->heads * llama->value_length);
    llama->gated = room(source, llama->ffn);
    llama->raised = room(source, llama->ffn);
    llama->scores = room(source, llama->context);
    return llama->x && llama->normed && llama->delta && llama->query && llama->mixed &&
                   llama->gated && llama->raised && llama->scores
               ? 0
               : -1;
}

static int open_source(struct source *source, const char *path)
{
    off_t end = -1;

    source->gguf = gguf_load(path, source->err);
    if (!source->gguf)
        return -1;
    source->file = fopen(path, "rb");
    if (source->file && !fseeko(source->file, 0, SEEK_END))
        end = ftello(source->file);
    if (end < 0)
        return error_set_at(source->err, ERROR_IO, path, 0, 0, "cannot be read");
    source->file_bytes = (uint64_t)end;
    return 0;
}

static void close_source(struct source *source)
{
    if (source->file)
        fclose(source->file);
    gguf_free(source->gguf);
}

struct double_llama *double_llama_open(const char *path, uint32_t context, struct error *err)
{
    struct source source = {.arena = arena_new(err), .err = err};
    struct double_llama *llama;

    if (!source.arena)
        return NULL;
    llama = arena_alloc(source.arena, sizeof *llama, err);
    if (!llama)
        goto free_arena;
    *llama = (struct double_llama){.context = context, .arena = source.arena};
    if (open_source(&source, path) || read_architecture(&source) || read_sizes(llama, &source) ||
        read_weights(llama, &source) || make_room(llama, &source))
        goto free_arena;
    close_source(&source);
    return llama;

free_arena:
    close_source(&source);
    arena_free(source.arena);
    return NULL;
}

void double_llama_free(struct double_llama *llama)
{
    if (llama)
        arena_free(llama->arena);
}

uint32_t double_llama_vocab(const struct double_llama *llama)
{
    return llama->vocab;
}

void double_llama_reset(struct double_llama *llama)
{
    llama->position = 0;
}

/* ---- the formulas ---- */

/* out[i] = x[i] / sqrt(mean of x[j]^2 + epsilon) * weight[i] */
static void norm(double *out, const double *x, const double *weight, uint32_t count, double epsilon)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < count; i++)
        out[i] = x[i] / sqrt(sum / count + epsilon) * weight[i];
}

/* out (rows) = matrix (rows, columns) times x (columns) */
static void multiply(double *out, const double *matrix, const double *x, size_t rows,
                     size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;

        for (size_t j = 0; j < columns; j++)
            sum += matrix[i * columns + j] * x[j];
        out[i] = sum;
    }
}

/* Turns values 2i and 2i+1 of each head by position * base^(-2i/rope_dim). */
static void rotate(const struct double_llama *llama, double *x, uint32_t heads)
{
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < llama->rope_dim / 2; i++) {
            double *pair = x + (size_t)h * llama->key_length + 2 * i, a = pair[0], b = pair[1];
            double turn = pow(llama->rope_base, -2.0 * i / llama->rope_dim);
            double factor = llama->rope_factors ? llama->rope_factors[i] : 1;
            double angle = llama->position * llama->rope_scale * turn / factor;

            pair[0] = a * cos(angle) - b * sin(angle);
            pair[1] = a * sin(angle) + b * cos(angle);
        }
}

static void softmax(double *x, uint32_t count)
{
    double largest = x[0], sum = 0;

    for (uint32_t i = 1; i < count; i++)
        largest = fmax(largest, x[i]);
    for (uint32_t i = 0; i < count; i++)
        sum += x[i] = exp(x[i] - largest);
    for (uint32_t i = 0; i < count; i++)
        x[i] /= sum;
}

/* One head: fills mixed (value_length) from the positions up to this one. */
static void attend(const struct double_llama *llama, const struct block *block, uint32_t head)
{
    uint32_t kv_head = head / (llama->heads / llama->kv_heads), seen = llama->position + 1;
    size_t key_row = (size_t)llama->kv_heads * llama->key_length;
    size_t value_row = (size_t)llama->kv_heads * llama->value_length;
    const double *query = llama->query + (size_t)head * llama->key_length;
    double *mixed = llama->mixed + (size_t)head * llama->value_length;

    for (uint32_t t = 0; t < seen; t++) {
        const double *key = block->keys + t * key_row + (size_t)kv_head * llama->key_length;
        double sum = 0;

        for (uint32_t i = 0; i < llama->key_length; i++)
            sum += query[i] * key[i];
        llama->scores[t] = sum / sqrt(llama->key_length);
    }
    softmax(llama->scores, seen);
    for (uint32_t i = 0; i < llama->value_length; i++) {
        const double *values = block->values + (size_t)kv_head * llama->value_length + i;
        double sum = 0;

        for (uint32_t t = 0; t < seen; t++)
            sum += llama->scores[t] * values[t * value_row];
        mixed[i] = sum;
    }
}

static void add_attention(struct double_llama *llama, const struct block *block)
{
    size_t key_row = (size_t)llama->kv_heads * llama->key_length;
    size_t value_row = (size_t)llama->kv_heads * llama->value_length;
    double *key = block->keys + llama->position * key_row;

    norm(llama->normed, llama->x, block->attention_norm, llama->embedding, llama->epsilon);
    multiply(llama->query, block->q, llama->normed, (size_t)llama->heads * llama->key_length,
             llama->embedding);
    multiply(key, block->k, llama->normed, key_row, llama->embedding);
    multiply(block->values + llama->position * value_row, block->v, llama->normed, value_row,
             llama->embedding);
    rotate(llama, llama->query, llama->heads);
    rotate(llama, key, llama->kv_heads);
    for (uint32_t head = 0; head < llama->heads; head++)
        attend(llama, block, head);
    multiply(llama->delta, block->output, llama->mixed, llama->embedding,
             (size_t)llama->heads * llama->value_length);
    for (uint32_t i = 0; i < llama->embedding; i++)
        llama->x[i] += llama->delta[i];
}

static void add_feed_forward(struct double_llama *llama, const struct block *block)
{
    norm(llama->normed, llama->x, block->ffn_norm, llama->embedding, llama->epsilon);
    multiply(llama->gated, block->gate, llama->normed, llama->ffn, llama->embedding);
    multiply(llama->raised, block->up, llama->normed, llama->ffn, llama->embedding);
    for (uint32_t i = 0; i < llama->ffn; i++)
        llama->gated[i] *= llama->raised[i] / (1 + exp(-llama->gated[i]));
    multiply(llama->delta, block->down, llama->gated, llama->embedding, llama->ffn);
    for (uint32_t i = 0; i < llama->embedding; i++)
        llama->x[i] += llama->delta[i];
}

int double_llama_step(struct double_llama *llama, uint32_t token, double *logits)
{
    if (token >= llama->vocab || llama->position >= llama->context)
        return -1;
    memcpy(llama->x, llama->embeddings + (size_t)token * llama->embedding,
           llama->embedding * sizeof *llama->x);
    for (uint32_t i = 0; i < llama->blocks; i++) {
        add_attention(llama, &llama->block[i]);
        add_feed_forward(llama, &llama->block[i]);
    }
    llama->position++;
    if (!logits)
        return 0;
    norm(llama->normed, llama->x, llama->norm, llama->embedding, llama->epsilon);
    multiply(logits, llama->head, llama->normed, llama->vocab, llama->embedding);
    return 0;
}
