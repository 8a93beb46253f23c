/* Softmax attention: a block computes a chunk of 256 positions for one query head of one token,
 * then the chunks are merged in order. ref/kernel_attend.c has the order of additions. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_cache_value.cuh"
#include "cuda/kernels.h"

enum { CHUNK = 256, MERGE_THREADS = 128, AHEAD = 32, DIM_MAX = 1024 };

/* Scratch of one launch; more tokens than fit are more launches. */
static const size_t scratch_bytes = (size_t)64 << 20;

/* What a chunk leaves; `any` 0: it had no position. */
struct chunk_part {
    float maximum, sum;
    uint32_t any;
};

/* Some tokens of a step. */
struct attend_part {
    struct attend attend;
    uint32_t first, count; /* tokens */
    uint32_t chunks;
    struct chunk_part *parts; /* (count, heads, chunks) */
    float *values;            /* (count, heads, chunks, dim_v) */
    float *out;
};

__host__ __device__ static uint32_t first_position(const struct program_token *token,
                                                   uint32_t window)
{
    if (window == 0 || token->position + 1 <= window)
        return 0;
    return token->position + 1 - window;
}

/* arith_dot8() of a query with the row of a cache that begins at value `index`. */
__device__ float dot_row(enum tensor_type type, const void *cache, uint64_t index,
                         const float *query, uint32_t dim)
{
    float lanes[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    uint32_t i = 0;

    /* Eight f16 a load, where rows begin at multiples of eight. */
    if (type == TENSOR_TYPE_F16 && dim % 8 == 0) {
        const uint4 *row = (const uint4 *)((const uint16_t *)cache + index);

#pragma unroll 8
        for (; i < dim; i += 8) {
            uint4 eight = row[i / 8];
            uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};

#pragma unroll
            for (int l = 0; l < 8; l++)
                lanes[l] = fmaf(query[i + l], half_value((uint16_t)(words[l / 2] >> l % 2 * 16)),
                                lanes[l]);
        }
    }
    for (; i + 8 <= dim; i += 8)
#pragma unroll
        for (int l = 0; l < 8; l++)
            lanes[l] = fmaf(query[i + l], cache_value(type, cache, index + i + l), lanes[l]);
#pragma unroll
    for (int l = 0; l < 8; l++)
        if (i + l < dim)
            lanes[l] = fmaf(query[i + l], cache_value(type, cache, index + i + l), lanes[l]);
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
#pragma unroll
        for (int l = 0; l < s; l++)
            lanes[l] += lanes[l + s];
    return arith_canonical(lanes[0]);
}

/* Grid: (tokens x heads, chunks); CHUNK threads, one a position, then one a value. */
__global__ void __launch_bounds__(CHUNK) attend_chunk_kernel(attend_part p)
{
    __shared__ float query[DIM_MAX], weights[CHUNK], maxima[CHUNK];
    __shared__ int32_t rows[CHUNK]; /* of a position in the cache; -1: takes no part */
    const struct attend &a = p.attend;
    uint32_t t = p.first + blockIdx.x / a.heads, h = blockIdx.x % a.heads, j = threadIdx.x;
    uint32_t kv = a.kv_first + h / (a.heads / a.kv_heads);
    const struct program_token *token = &a.tokens[t];
    uint32_t from = first_position(token, a.window);
    uint32_t position = (from / CHUNK + blockIdx.y) * CHUNK + j;
    uint64_t part = (uint64_t)blockIdx.x * p.chunks + blockIdx.y;
    bool present = position >= from && position <= token->position && position < a.positions;
    float score = 0.0f, sum = 0.0f, maximum;

    rows[j] = present ? a.cells[(uint64_t)token->sequence * a.positions + position] : -1;
    present = rows[j] >= 0;
    for (uint32_t i = j; i < a.dim_k; i += CHUNK)
        query[i] = a.query[((uint64_t)t * a.heads + h) * a.dim_k + i];
    if (!__syncthreads_or(present)) {
        if (j == 0)
            p.parts[part].any = 0;
        return;
    }
    if (present)
        score = dot_row(a.type_k, a.cache_k, ((uint64_t)rows[j] * a.row_heads + kv) * a.dim_k,
                        query, a.dim_k) *
                a.scale;
    /* A score that is NaN is larger than none. */
    maxima[j] = present && score == score ? score : -INFINITY;
    __syncthreads();
    for (uint32_t s = CHUNK / 2; s > 0; s /= 2) {
        if (j < s)
            maxima[j] = maxima[j + s] > maxima[j] ? maxima[j + s] : maxima[j];
        __syncthreads();
    }
    maximum = maxima[0];
    weights[j] = present ? arith_exp(score - maximum) : 0.0f;
    __syncthreads();
    for (uint32_t i = j; i < a.dim_v; i += CHUNK) {
        float value = 0.0f;

        /* Loads of several positions are under way at once; row 0 stands in for none. */
        for (uint32_t k = 0; k < CHUNK; k += AHEAD) {
            float ahead[AHEAD];

#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                uint64_t row = rows[k + u] >= 0 ? (uint64_t)rows[k + u] : 0;

                ahead[u] = cache_value(a.type_v, a.cache_v, (row * a.row_heads + kv) * a.dim_v + i);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (rows[k + u] >= 0)
                    value = fmaf(weights[k + u], ahead[u], value);
        }
        p.values[part * a.dim_v + i] = value;
    }
    if (j != 0)
        return;
    for (uint32_t k = 0; k < CHUNK; k++)
        if (rows[k] >= 0)
            sum += weights[k];
    p.parts[part].maximum = maximum;
    p.parts[part].sum = sum;
    p.parts[part].any = 1;
}

/* Grid: (tokens x heads); a thread a value. */
__global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(attend_part p)
{
    const struct attend &a = p.attend;
    const struct chunk_part *parts = p.parts + (uint64_t)blockIdx.x * p.chunks;
    const float *values = p.values + (uint64_t)blockIdx.x * p.chunks * a.dim_v;
    float *out = p.out + ((uint64_t)p.first * a.heads + blockIdx.x) * a.dim_v;

    for (uint32_t i = threadIdx.x; i < a.dim_v; i += MERGE_THREADS) {
        float maximum = 0.0f, sum = 0.0f, value = 0.0f;
        bool begun = false;

        for (uint32_t c = 0; c < p.chunks; c++) {
            float chunk_value, higher, scale, chunk_scale;

            if (parts[c].any == 0)
                continue;
            chunk_value = values[(uint64_t)c * a.dim_v + i];
            if (!begun) {
                begun = true;
                maximum = parts[c].maximum;
                sum = parts[c].sum;
                value = chunk_value;
                continue;
            }
            higher = parts[c].maximum > maximum ? parts[c].maximum : maximum;
            scale = arith_exp(maximum - higher);
            chunk_scale = arith_exp(parts[c].maximum - higher);
            maximum = higher;
            sum = fmaf(parts[c].sum, chunk_scale, sum * scale);
            value = fmaf(chunk_value, chunk_scale, value * scale);
        }
        out[i] = arith_canonical(begun ? value / sum : 0.0f);
    }
}

uint32_t cuda_attend_chunks(const struct program_token *tokens, uint32_t count, uint32_t window)
{
    uint32_t most = 1;

    for (uint32_t t = 0; t < count; t++) {
        uint32_t first = first_position(&tokens[t], window) / CHUNK;
        uint32_t chunks = tokens[t].position / CHUNK - first + 1;

        most = chunks > most ? chunks : most;
    }
    return most;
}

static size_t token_bytes(const struct attend *attend, uint32_t chunks)
{
    return (size_t)attend->heads * chunks *
           (sizeof(struct chunk_part) + attend->dim_v * sizeof(float));
}

/* Tokens of one launch. */
static uint32_t tokens_at_once(const struct attend *attend, uint32_t chunks)
{
    size_t fit = scratch_bytes / token_bytes(attend, chunks);

    return fit == 0 ? 1 : fit < attend->token_count ? (uint32_t)fit : attend->token_count;
}

size_t cuda_attend_scratch(const struct attend *attend, uint32_t chunks)
{
    return tokens_at_once(attend, chunks) * token_bytes(attend, chunks) + 256;
}

int cuda_attend(const struct attend *attend, uint32_t chunks, void *scratch, float *out,
                cudaStream_t stream, struct error *err)
{
    uint32_t each = tokens_at_once(attend, chunks);
    attend_part p = {};

    if (attend->heads == 0)
        return 0;
    if (attend->dim_k > DIM_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "heads of %u values; %d at most", attend->dim_k,
                         DIM_MAX);
    p.attend = *attend;
    p.chunks = chunks;
    p.out = out;
    p.values = (float *)scratch;
    p.parts = (struct chunk_part *)((float *)scratch +
                                    (size_t)each * attend->heads * chunks * attend->dim_v);
    for (p.first = 0; p.first < attend->token_count; p.first += each) {
        uint32_t left = attend->token_count - p.first;

        p.count = left < each ? left : each;

        dim3 grid(p.count * attend->heads, chunks);

        attend_chunk_kernel<<<grid, CHUNK, 0, stream>>>(p);
        merge_kernel<<<grid.x, MERGE_THREADS, 0, stream>>>(p);
        if (cuda_launched("attend", err) != 0)
            return -1;
    }
    return 0;
}
