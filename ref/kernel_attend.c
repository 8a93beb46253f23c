/* Softmax attention over chunks of positions: docs/arithmetic.md, "Attention". A chunk's
 * maximum, sum and weighted values depend on its positions alone; chunks are merged in order. */
#include "ref/kernels_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"

enum { CHUNK = 256 };

/* What a query head has gathered over the chunks before: `sum` 0 means nothing. */
struct gathered {
    float maximum, sum;
    bool begun;
    float *values; /* (dim_v) */
};

/* Rows of a chunk in f32. */
struct chunk {
    float *k, *v; /* (CHUNK, dim) */
    bool present[CHUNK];
    uint32_t first; /* position */
};

static void load_row(const void *cache, enum tensor_type type, uint64_t row, uint32_t row_heads,
                     uint32_t head, uint32_t dim, float *out)
{
    uint64_t index = (row * row_heads + head) * dim;

    if (type == TENSOR_TYPE_F16) {
        const uint16_t *values = (const uint16_t *)cache + index;

        for (uint32_t i = 0; i < dim; i++)
            out[i] = arith_f32_from_f16(values[i]);
        return;
    }
    for (uint32_t i = 0; i < dim; i += ARITH_BLOCK)
        arith_dequantise_block(type, (const char *)cache + tensor_type_row_bytes(type, index + i),
                               0, out + i);
}

static void load_chunk(const struct attend *attend, uint32_t sequence, uint32_t head,
                       struct chunk *chunk, uint32_t last)
{
    const int32_t *cells = attend->cells + (uint64_t)sequence * attend->positions;

    for (uint32_t j = 0; j < CHUNK; j++) {
        uint32_t position = chunk->first + j;

        chunk->present[j] =
            position <= last && position < attend->positions && cells[position] >= 0;
        if (!chunk->present[j])
            continue;
        load_row(attend->cache_k, attend->type_k, (uint64_t)cells[position], attend->row_heads,
                 attend->kv_first + head, attend->dim_k, chunk->k + (uint64_t)j * attend->dim_k);
        load_row(attend->cache_v, attend->type_v, (uint64_t)cells[position], attend->row_heads,
                 attend->kv_first + head, attend->dim_v, chunk->v + (uint64_t)j * attend->dim_v);
    }
}

static void merge(struct gathered *all, float maximum, float sum, const float *values, uint32_t dim)
{
    float higher, a, b;

    if (!all->begun) {
        all->begun = true;
        all->maximum = maximum;
        all->sum = sum;
        memcpy(all->values, values, dim * sizeof *values);
        return;
    }
    higher = maximum > all->maximum ? maximum : all->maximum;
    a = arith_exp(all->maximum - higher);
    b = arith_exp(maximum - higher);
    all->maximum = higher;
    all->sum = fmaf(sum, b, all->sum * a);
    for (uint32_t i = 0; i < dim; i++)
        all->values[i] = fmaf(values[i], b, all->values[i] * a);
}

/* One query head over positions `from` to `to` of a chunk. */
static void attend_chunk(const struct attend *attend, const struct chunk *chunk, const float *query,
                         uint32_t from, uint32_t to, struct gathered *all)
{
    float scores[CHUNK], values[REF_HEAD_DIM_MAX] = {0};
    float maximum = -INFINITY, sum = 0;
    bool any = false;

    for (uint32_t j = from - chunk->first; j <= to - chunk->first; j++) {
        if (!chunk->present[j])
            continue;
        scores[j] = arith_dot8(query, chunk->k + (uint64_t)j * attend->dim_k, attend->dim_k) *
                    attend->scale;
        maximum = scores[j] > maximum ? scores[j] : maximum;
        any = true;
    }
    for (uint32_t j = from - chunk->first; j <= to - chunk->first; j++) {
        const float *v = chunk->v + (uint64_t)j * attend->dim_v;
        float weight;

        if (!chunk->present[j])
            continue;
        weight = arith_exp(scores[j] - maximum);
        sum += weight;
        for (uint32_t i = 0; i < attend->dim_v; i++)
            values[i] = fmaf(weight, v[i], values[i]);
    }
    if (any)
        merge(all, maximum, sum, values, attend->dim_v);
}

static uint32_t first_position(const struct attend *attend, const struct program_token *token)
{
    if (attend->window == 0 || token->position + 1 <= attend->window)
        return 0;
    return token->position + 1 - attend->window;
}

static bool takes_part(const struct attend *attend, uint32_t sequence)
{
    for (uint32_t t = 0; t < attend->token_count; t++)
        if (attend->tokens[t].sequence == sequence)
            return true;
    return false;
}

/* All tokens of a sequence over one KV head, chunk by chunk. */
static void attend_head(const struct attend *attend, uint32_t sequence, uint32_t head,
                        struct chunk *chunk, struct gathered *all)
{
    uint32_t group = attend->heads / attend->kv_heads;
    uint32_t lowest = UINT32_MAX, highest = 0;

    for (uint32_t t = 0; t < attend->token_count; t++) {
        const struct program_token *token = &attend->tokens[t];
        uint32_t first = first_position(attend, token);

        if (token->sequence != sequence)
            continue;
        lowest = first < lowest ? first : lowest;
        highest = token->position > highest ? token->position : highest;
    }
    for (chunk->first = lowest / CHUNK * CHUNK; chunk->first <= highest; chunk->first += CHUNK) {
        load_chunk(attend, sequence, head, chunk, highest);
        for (uint32_t t = 0; t < attend->token_count; t++) {
            const struct program_token *token = &attend->tokens[t];
            uint32_t from = first_position(attend, token), to = token->position;

            from = from > chunk->first ? from : chunk->first;
            to = to < chunk->first + CHUNK - 1 ? to : chunk->first + CHUNK - 1;
            for (uint32_t g = 0; g < group && token->sequence == sequence && from <= to; g++) {
                uint64_t index = (uint64_t)t * attend->heads + head * group + g;

                attend_chunk(attend, chunk, attend->query + index * attend->dim_k, from, to,
                             &all[index]);
            }
        }
    }
}

int REF_NAME(attend)(const struct attend *attend, float *out)
{
    uint64_t rows = (uint64_t)attend->token_count * attend->heads;
    size_t scratch_k = (size_t)CHUNK * attend->dim_k, scratch_v = (size_t)CHUNK * attend->dim_v;
    struct gathered *all = calloc(rows + 1, sizeof *all);
    float *scratch = malloc(attend->kv_heads * (scratch_k + scratch_v) * sizeof *scratch);
    uint32_t sequences = 0;

    if (all == NULL || scratch == NULL) {
        free(all);
        free(scratch);
        return -1;
    }
    for (uint32_t t = 0; t < attend->token_count; t++)
        if (attend->tokens[t].sequence >= sequences)
            sequences = attend->tokens[t].sequence + 1;
    for (uint64_t i = 0; i < rows; i++)
        all[i].values = out + i * attend->dim_v;
    REF_PARALLEL_FOR(rows * attend->positions * attend->dim_k)
    for (uint32_t head = 0; head < attend->kv_heads; head++) {
        struct chunk chunk = {.k = scratch + head * (scratch_k + scratch_v)};

        chunk.v = chunk.k + scratch_k;
        for (uint32_t sequence = 0; sequence < sequences; sequence++)
            if (takes_part(attend, sequence))
                attend_head(attend, sequence, head, &chunk, all);
    }
    for (uint64_t i = 0; i < rows; i++)
        for (uint32_t d = 0; d < attend->dim_v; d++)
            out[i * attend->dim_v + d] =
                arith_canonical(all[i].begun ? out[i * attend->dim_v + d] / all[i].sum : 0.0f);
    free(all);
    free(scratch);
    return 0;
}
