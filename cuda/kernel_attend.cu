/* Softmax attention: a block computes a chunk of 256 positions for some query heads of a KV head,
 * then the chunks are merged in order. ref/kernel_attend.c has the order of additions.
 *
 * Positions without a cell, behind the token or before its window are left out when a chunk's
 * rows are listed, so that all loops run over what takes part, in order. */
#include "cuda/attend_private.cuh"

extern "C" {
#include "sim/kernel_times.h"
}

enum {
    CHUNK = ATTEND_CHUNK,
    THREADS = CHUNK,     /* one a position */
    HEADS = 8,           /* query heads of a block, at most */
    WEIGHTS = CHUNK + 4, /* from head to head: in other banks */
    EARLY = 64,          /* rows of V that are copied beside K */
    /* Up to so many, rows come before the kernels before have ended. */
    EARLY_TOKENS = KERNEL_READS_AHEAD,
    STATIC_BYTES = 2048, /* of shared memory, at most */
    /* Blocks of one chunk leave room for one of the next product, which is loading weights. */
    BESIDE_BYTES = 32 << 10,
    DIM_MAX = 1024,
    TILE_TOKENS = 33, /* from so many on, in tiles, of heads up to TILE_DIM values, ... */
    TILE_ROWS = 8192, /* ... and of so many query heads x chunks */
    TILE_DIM = 256,
    FEW_BLOCKS = 264, /* which a GPU holds at once anyway */
    MERGE_CHUNKS = 256,
    MERGE_THREADS = MERGE_CHUNKS,
    GPUS_MAX = 64,
};

/* Scratch of one launch; more tokens than fit are more launches. */
static const size_t scratch_bytes = (size_t)64 << 20;

/* How a chunk is cut. K is copied `rows` rows at a time, V first `early` rows, then into K's
 * place as many as fit. */
struct chunk_cut {
    uint32_t heads; /* of a block */
    uint32_t parts; /* blocks of a KV head */
    uint32_t rows, early, later;
    bool ahead;     /* where all rows have room, those of earlier steps come ahead */
    uint32_t query; /* floats from head to head */
    uint32_t k_bytes, v_bytes;
};

/* What a block works on. */
struct chunk_job {
    uint32_t token; /* of the step */
    uint32_t head;  /* the first query head */
    uint32_t heads; /* that there are */
    uint32_t kv;    /* of the cache */
    uint32_t chunk; /* of the token's */
    uint32_t count; /* positions that take part */
    bool ahead;     /* the first `old` rows, those of earlier steps, are on their way */
    uint32_t old;
    const float *query;
    float *weights; /* (heads, WEIGHTS): scores first */
    char *k, *v;
    const int32_t *rows;
};

/* ---- scores ---- */

/* Scores of copied rows `first` to `first` + `count`: threads are `slots` x slices of NH heads,
 * each has NP positions, `slots` apart. */
template <int TYPE, int NP, int NH>
static __device__ __forceinline__ void scores_of(const attend_part &p, const chunk_cut &cut,
                                                 const chunk_job &job, uint32_t first,
                                                 uint32_t count, uint32_t slots)
{
    const uint32_t dim = p.k.dim, head = threadIdx.x / slots * NH, j = threadIdx.x % slots;
    const float *query = job.query + head * cut.query;
    float lanes[NP][NH][8] = {}, k[NP][8];

    if (head >= job.heads || j >= count)
        return;
#pragma unroll 2
    for (uint32_t i = 0; i < dim; i += 8) {
#pragma unroll
        for (int n = 0; n < NP; n++) {
            const uint32_t row = j + n * slots < count ? j + n * slots : j;

            attend_eight<TYPE>(job.k + row * p.k.stride, i / 8, k[n]);
            if (i + 8 > dim) /* the query has zeros there too, which add nothing */
#pragma unroll
                for (int l = 0; l < 8; l++)
                    k[n][l] = i + l < dim ? k[n][l] : 0.0f;
        }
#pragma unroll
        for (int g = 0; g < NH; g++) {
            /* A head too many is computed as the first, and not kept. */
            const float4 *eight =
                (const float4 *)(query + (head + g < job.heads ? g : 0) * cut.query + i);
            const float4 low = eight[0], high = eight[1];
            const float q[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};

#pragma unroll
            for (int n = 0; n < NP; n++)
#pragma unroll
                for (int l = 0; l < 8; l++)
                    lanes[n][g][l] = fmaf(q[l], k[n][l], lanes[n][g][l]);
        }
    }
#pragma unroll
    for (int n = 0; n < NP; n++)
#pragma unroll
        for (int g = 0; g < NH; g++) {
            float *l = lanes[n][g];
            const float score = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));

            if (head + g < job.heads && j + n * slots < count)
                job.weights[(head + g) * WEIGHTS + first + j + n * slots] =
                    arith_canonical(score) * p.attend.scale;
        }
}

/* The more positions and heads a thread has, the less is read from shared memory; the fewer, the
 * sooner it is done. */
template <int TYPE>
static __device__ __forceinline__ void scores_of(const attend_part &p, const chunk_cut &cut,
                                                 const chunk_job &job, uint32_t first,
                                                 uint32_t count)
{
    if (count <= 32)
        scores_of<TYPE, 1, 1>(p, cut, job, first, count, 32);
    else if (count > 64 && job.heads == 1)
        scores_of<TYPE, 1, 1>(p, cut, job, first, count, 256);
    else if (count > 64 && job.heads == 2)
        scores_of<TYPE, 2, 1>(p, cut, job, first, count, 128);
    else if (count <= 64)
        scores_of<TYPE, 1, 2>(p, cut, job, first, count, 64);
    else if (count <= 128)
        scores_of<TYPE, 2, 2>(p, cut, job, first, count, 64);
    else if (job.heads <= 4)
        scores_of<TYPE, 2, 2>(p, cut, job, first, count, 128);
    else
        scores_of<TYPE, 4, 2>(p, cut, job, first, count, 64);
}

/* Whole numbers in the order of floats; a NaN comes before all, so that a maximum is never NaN. */
static __device__ __forceinline__ uint32_t ordered(float value)
{
    const uint32_t bits = arith_bits(value == value ? value : -INFINITY);

    return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

static __device__ __forceinline__ float from_ordered(uint32_t whole)
{
    return arith_float(whole ^ (whole >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

/* A thread a position: scores become weights. */
static __device__ __forceinline__ void weigh(const chunk_job &job, float *maxima)
{
    __shared__ uint32_t warp_maxima[HEADS][CHUNK / 32];
    const uint32_t j = threadIdx.x;
    const bool there = j < job.count;

    for (uint32_t h = 0; h < job.heads; h++) {
        const float score = there ? job.weights[h * WEIGHTS + j] : -INFINITY;
        const uint32_t highest = __reduce_max_sync(0xffffffffu, ordered(score));

        if (j % 32 == 0)
            warp_maxima[h][j / 32] = highest;
    }
    __syncthreads();
    for (uint32_t h = 0; h < job.heads; h++) {
        uint32_t highest = 0;
        float maximum;

#pragma unroll
        for (int w = 0; w < CHUNK / 32; w++)
            highest = max(highest, warp_maxima[h][w]);
        maximum = from_ordered(highest);
        if (there)
            job.weights[h * WEIGHTS + j] = arith_exp(job.weights[h * WEIGHTS + j] - maximum);
        if (j == 0)
            maxima[h] = maximum;
    }
}

/* ---- values ---- */

/* The last warp, which often has no values: a lane a head. */
static __device__ void sum_weights(const chunk_job &job, float *sums)
{
    const uint32_t head = threadIdx.x - (THREADS - 32);
    float sum = 0.0f;
    uint32_t j = 0;

    if (threadIdx.x < THREADS - 32 || head >= job.heads)
        return;

    const float *weights = job.weights + head * WEIGHTS;

#pragma unroll 4
    for (; j + 4 <= job.count; j += 4) {
        const float4 four = *(const float4 *)(weights + j);

        sum += four.x;
        sum += four.y;
        sum += four.z;
        sum += four.w;
    }
    for (; j < job.count; j++)
        sum += weights[j];
    sums[head] = sum;
}

/* Adds weighted rows to two values of NH heads, `weights` from the first row on. */
template <int TYPE, int NH>
static __device__ __forceinline__ void add_rows(const char *row, uint32_t stride, uint32_t count,
                                                const float *weights, struct attend_place place,
                                                float2 *values)
{
    uint32_t j = 0;

#pragma unroll 4
    for (; j + 4 <= count; j += 4, row += 4 * stride) {
        float2 v[4];

#pragma unroll
        for (int u = 0; u < 4; u++)
            v[u] = attend_two<TYPE>(row + u * stride, place);
#pragma unroll
        for (int g = 0; g < NH; g++) {
            const float4 four = *(const float4 *)(weights + g * WEIGHTS + j);
            const float w[4] = {four.x, four.y, four.z, four.w};

#pragma unroll
            for (int u = 0; u < 4; u++) {
                values[g].x = fmaf(w[u], v[u].x, values[g].x);
                values[g].y = fmaf(w[u], v[u].y, values[g].y);
            }
        }
    }
    for (; j < count; j++, row += stride) {
        const float2 v = attend_two<TYPE>(row, place);

#pragma unroll
        for (int g = 0; g < NH; g++) {
            values[g].x = fmaf(weights[g * WEIGHTS + j], v.x, values[g].x);
            values[g].y = fmaf(weights[g * WEIGHTS + j], v.y, values[g].y);
        }
    }
}

/* Quantises 64 columns from `i` on, of which each lane of the warp has two. */
static __device__ __forceinline__ void quantise_pairs(const attend_part &p, uint32_t token,
                                                      uint32_t h, uint32_t i, float2 pair)
{
    const uint32_t lane = threadIdx.x % 32;

#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const float even = __shfl_sync(0xffffffffu, pair.x, half * 16 + lane / 2);
        const float odd = __shfl_sync(0xffffffffu, pair.y, half * 16 + lane / 2);

        if (i + half * 32 < p.v.dim)
            activations_store(p.quantised, token, h * p.v.dim + i + half * 32 + lane,
                              lane % 2 == 0 ? even : odd);
    }
}

/* Writes columns `i` and `i` + 1 of NH heads from `head` on; a whole warp together. */
template <int NH>
static __device__ __forceinline__ void write_values(const attend_part &p, const chunk_job &job,
                                                    uint32_t head, uint32_t i, const float2 *values,
                                                    const float *sums)
{
    const struct attend &a = p.attend;

#pragma unroll
    for (int g = 0; g < NH; g++) {
        const uint32_t h = job.head + head + g;
        float2 value = values[g];
        float *to;

        if (head + g >= job.heads)
            return;
        if (p.chunks > 1) {
            to = p.values +
                 (((uint64_t)(job.token - p.first) * a.heads + h) * p.chunks + job.chunk) * a.dim_v;
        } else {
            const float sum = sums[head + g];

            value.x = arith_canonical(job.count > 0 ? value.x / sum : 0.0f);
            value.y = arith_canonical(job.count > 0 ? value.y / sum : 0.0f);
            to = p.out + ((uint64_t)job.token * a.heads + h) * a.dim_v;
            if (p.quantised.bytes != nullptr)
                quantise_pairs(p, job.token, h, i - threadIdx.x % 32 * 2, value);
        }
        if (i < a.dim_v)
            to[i] = value.x;
        if (i + 1 < a.dim_v)
            to[i + 1] = value.y;
    }
}

/* Columns `first_value` and on, in slices of NH heads, a thread two columns. The first rows of V
 * and as many of the later ones as have room have been asked for, in this order. */
template <int TYPE, int NH>
static __device__ __forceinline__ void values_of(const attend_part &p, const chunk_cut &cut,
                                                 const chunk_job &job, uint32_t first_value,
                                                 uint32_t lanes, float *sums)
{
    const uint32_t head = threadIdx.x / lanes * NH, i = first_value + threadIdx.x % lanes * 2;
    const bool active = head < job.heads;
    const struct attend_place place = attend_place_of<TYPE>(active && i < p.v.dim ? i : 0);
    const float *weights = job.weights + head * WEIGHTS;
    const uint32_t early = job.count < cut.early ? job.count : cut.early;
    float2 values[NH] = {};

    __pipeline_wait_prior(1);
    __syncthreads();
    if (first_value == 0)
        sum_weights(job, sums);
    if (active)
        add_rows<TYPE, NH>(job.v, p.v.stride, early, weights, place, values);
    for (uint32_t j = early; j < job.count; j += cut.later) {
        const uint32_t left = job.count - j, rows = left < cut.later ? left : cut.later;

        if (j > early) {
            __syncthreads();
            attend_copy(p.v, job.kv, job.rows + j, rows, job.k);
            __pipeline_commit();
        }
        __pipeline_wait_prior(0);
        __syncthreads();
        if (active)
            add_rows<TYPE, NH>(job.k, p.v.stride, rows, weights + j, place, values);
    }
    __syncthreads();
    if (active)
        write_values<NH>(p, job, head, i, values, sums);
}

template <int TYPE>
static __device__ __forceinline__ void values_of(const attend_part &p, const chunk_cut &cut,
                                                 const chunk_job &job, float *sums)
{
    /* Whole warps; as many slices of heads as fit, at least two. */
    const uint32_t lanes = p.v.dim < CHUNK ? (p.v.dim + 63) / 64 * 32 : CHUNK / 2;
    const uint32_t slices = THREADS / lanes;

    for (uint32_t first = 0; first < p.v.dim; first += CHUNK) {
        if (first > 0) {
            const uint32_t early = job.count < cut.early ? job.count : cut.early;
            const uint32_t left = job.count - early;

            attend_copy(p.v, job.kv, job.rows, early, job.v);
            __pipeline_commit();
            attend_copy(p.v, job.kv, job.rows + early, left < cut.later ? left : cut.later, job.k);
            __pipeline_commit();
        }
        if (job.heads <= slices)
            values_of<TYPE, 1>(p, cut, job, first, lanes, sums);
        else if (job.heads <= 2 * slices)
            values_of<TYPE, 2>(p, cut, job, first, lanes, sums);
        else
            values_of<TYPE, 4>(p, cut, job, first, lanes, sums);
        __syncthreads();
    }
}

/* ---- a chunk ---- */

/* How many of the listed rows no kernel of this step writes: those of positions before the
 * sequence's first token in it. Block-wide. */
static __device__ uint32_t count_old(const struct attend &a, uint32_t sequence, uint32_t first,
                                     uint32_t from, uint32_t to)
{
    const uint32_t position = first + threadIdx.x;
    uint32_t fresh = UINT32_MAX;

    for (uint32_t t = 0; t < a.token_count; t++)
        if (a.tokens[t].sequence == sequence)
            fresh = min(fresh, a.tokens[t].position);
    return (uint32_t)__syncthreads_count(position >= from && position <= to && position < fresh &&
                                         position < a.positions &&
                                         a.cells[(uint64_t)sequence * a.positions + position] >= 0);
}

/* Rows of K and V from `begin` to `end`, two copies in a row. */
static __device__ void load_rows(const attend_part &p, const chunk_job &job, uint32_t begin,
                                 uint32_t end)
{
    attend_copy(p.k, job.kv, job.rows + begin, end - begin, job.k + begin * p.k.stride);
    __pipeline_commit();
    attend_copy(p.v, job.kv, job.rows + begin, end - begin, job.v + begin * p.v.stride);
    __pipeline_commit();
}

/* Copies K and V, or what is not on its way, computes scores in `weights`, then asks for the later
 * rows of V. */
static __device__ void load_and_score(const attend_part &p, const chunk_cut &cut,
                                      const chunk_job &job)
{
    const uint32_t early = job.count < cut.early ? job.count : cut.early;
    const uint32_t left = job.count - early;

    for (uint32_t j = 0; j == 0 || j < job.count; j += cut.rows) {
        const uint32_t rows = job.count - j < cut.rows ? job.count - j : cut.rows;

        if (job.ahead) {
            load_rows(p, job, job.old, job.count);
        } else {
            attend_copy(p.k, job.kv, job.rows + j, rows, job.k);
            __pipeline_commit();
            attend_copy(p.v, job.kv, job.rows, j == 0 ? early : 0, job.v);
            __pipeline_commit();
        }
        __pipeline_wait_prior(1);
        __syncthreads();
        if (p.k.type == TENSOR_TYPE_F16)
            scores_of<TENSOR_TYPE_F16>(p, cut, job, j, rows);
        else if (p.k.type == TENSOR_TYPE_Q8_0)
            scores_of<TENSOR_TYPE_Q8_0>(p, cut, job, j, rows);
        else
            scores_of<TENSOR_TYPE_Q4_0>(p, cut, job, j, rows);
        __syncthreads();
    }
    attend_copy(p.v, job.kv, job.rows + early, left < cut.later ? left : cut.later, job.k);
    __pipeline_commit();
}

/* Grid: (chunks, KV heads x parts, tokens). */
__global__ void __launch_bounds__(THREADS, 2)
    attend_chunk_kernel(struct launch_stamp stamp, const __grid_constant__ attend_part p,
                        const __grid_constant__ chunk_cut cut)
{
    extern __shared__ __align__(16) char shared[];
    __shared__ int32_t rows[CHUNK];
    __shared__ float maxima[HEADS], sums[HEADS];
    __shared__ uint32_t warp_counts[CHUNK / 32];
    const struct attend &a = p.attend;
    const uint32_t group = a.heads / a.kv_heads;
    const uint32_t kv = blockIdx.y / cut.parts, of_group = blockIdx.y % cut.parts * cut.heads;
    float *query = (float *)shared;
    chunk_job job;

    launch_next();
    job.token = p.first + blockIdx.z;

    /* Tokens and cells are inputs of the step: copies have brought them. */
    const struct program_token *token = &a.tokens[job.token];
    const uint32_t from = attend_first(token, a.window), position = token->position;
    const uint32_t first = (from / CHUNK + blockIdx.x) * CHUNK;

    if (first > position)
        return;
    job.head = kv * group + of_group;
    job.heads = group - of_group < cut.heads ? group - of_group : cut.heads;
    job.kv = a.kv_first + kv;
    job.chunk = blockIdx.x;
    job.rows = rows;
    job.query = query;
    job.weights = query + cut.heads * cut.query;
    job.k = (char *)(job.weights + cut.heads * WEIGHTS);
    job.v = job.k + cut.k_bytes;
    job.count = attend_rows(a, token->sequence, first, from, position, rows, warp_counts, nullptr);
    job.ahead = cut.ahead && job.count <= cut.early;
    job.old = job.ahead ? count_old(a, token->sequence, first, from, position) : 0;
    if (job.ahead)
        load_rows(p, job, 0, job.old);
    launch_wait(stamp);
    for (uint32_t i = threadIdx.x; i < cut.heads * cut.query; i += THREADS) {
        const uint32_t h = i / cut.query, of_head = i % cut.query;

        query[i] = h < job.heads && of_head < a.dim_k
                       ? a.query[((uint64_t)job.token * a.heads + job.head + h) * a.dim_k + of_head]
                       : 0.0f;
    }
    load_and_score(p, cut, job);
    weigh(job, maxima);
    if (p.v.type == TENSOR_TYPE_F16)
        values_of<TENSOR_TYPE_F16>(p, cut, job, sums);
    else if (p.v.type == TENSOR_TYPE_Q8_0)
        values_of<TENSOR_TYPE_Q8_0>(p, cut, job, sums);
    else
        values_of<TENSOR_TYPE_Q4_0>(p, cut, job, sums);
    if (p.chunks > 1 && threadIdx.x < job.heads) {
        const uint32_t h = job.head + threadIdx.x;
        struct attend_chunk *part =
            p.parts + ((uint64_t)blockIdx.z * a.heads + h) * p.chunks + job.chunk;

        *part = {maxima[threadIdx.x], sums[threadIdx.x], job.count > 0, 0};
    }
}

/* ---- merge ---- */

/* What the chunks before have left, and by how much it and a chunk are multiplied. */
struct merge_state {
    float maximum;
    bool begun;
};

struct merge_scales {
    float before, chunk;
};

/* The highest of a warp's maxima up to a lane's own. */
static __device__ __forceinline__ float highest_before(float own, uint32_t lane)
{
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, own, s);

        own = lane >= s ? fmaxf(own, other) : own;
    }
    return own;
}

/* `begun`: a chunk before had positions, their highest score being `before`. */
static __device__ __forceinline__ merge_scales scales_of(bool any, bool begun, float before,
                                                         float own)
{
    const float highest = fmaxf(before, own);

    if (!any)
        return {1.0f, -0.0f};
    if (!begun)
        return {1.0f, 1.0f};
    return {arith_exp(before - highest), arith_exp(own - highest)};
}

/* Scales of up to MERGE_CHUNKS chunks, a thread each. The first chunk is taken as it is: values
 * begin as -0, to which adding changes nothing. One without positions has zeros, times -0. */
static __device__ void scale_chunks(const struct attend_chunk *parts, uint32_t count,
                                    merge_state *state, merge_scales *scales, float *sums)
{
    __shared__ float warp_maxima[MERGE_THREADS / 32];
    __shared__ uint32_t warp_begun[MERGE_THREADS / 32];
    const uint32_t c = threadIdx.x, warp = c / 32, lane = c % 32;
    const struct attend_chunk part = c < count ? parts[c] : attend_chunk{-INFINITY, 0.0f, 0, 0};
    const float own = part.any != 0 ? part.maximum : -INFINITY;
    const uint32_t there = __ballot_sync(0xffffffffu, part.any != 0);
    bool begun = state->begun || (there & ((1u << lane) - 1)) != 0;
    float before = state->maximum, so_far = highest_before(own, lane);

    if (lane == 31) {
        warp_maxima[warp] = so_far;
        warp_begun[warp] = there;
    }
    so_far = __shfl_up_sync(0xffffffffu, so_far, 1);
    if (lane > 0)
        before = fmaxf(before, so_far);
    __syncthreads();
    for (uint32_t w = 0; w < MERGE_THREADS / 32; w++) {
        if (w < warp) {
            before = fmaxf(before, warp_maxima[w]);
            begun = begun || warp_begun[w] != 0;
        }
        state->maximum = fmaxf(state->maximum, warp_maxima[w]);
        state->begun = state->begun || warp_begun[w] != 0;
    }
    scales[c] = scales_of(part.any != 0, begun, before, own);
    sums[c] = part.any != 0 ? part.sum : 0.0f;
}

/* Grid: (values / 32, heads, tokens). */
__global__ void __launch_bounds__(MERGE_THREADS)
    merge_kernel(struct launch_stamp stamp, const __grid_constant__ attend_part p)
{
    __shared__ float values[MERGE_CHUNKS][32];
    __shared__ float sums[MERGE_CHUNKS], total;
    __shared__ merge_scales scales[MERGE_CHUNKS];
    const struct attend &a = p.attend;
    const uint32_t i = blockIdx.x * 32, h = blockIdx.y, lane = threadIdx.x % 32;
    const uint64_t part = ((uint64_t)blockIdx.z * a.heads + h) * p.chunks;
    const uint32_t t = p.first + blockIdx.z;
    merge_state state = {-INFINITY, false};
    float value = -0.0f;

    launch_begin(stamp);

    const uint32_t first = attend_first(&a.tokens[t], a.window) / CHUNK;
    const uint32_t chunks = a.tokens[t].position / CHUNK - first + 1;

    for (uint32_t from = 0; from < chunks; from += MERGE_CHUNKS) {
        const uint32_t count = chunks - from < MERGE_CHUNKS ? chunks - from : MERGE_CHUNKS;

        __syncthreads();
        for (uint32_t c = threadIdx.x / 32; c < count && i + lane < a.dim_v;
             c += MERGE_THREADS / 32)
            __pipeline_memcpy_async(&values[c][lane],
                                    &p.values[(part + from + c) * a.dim_v + i + lane], 4);
        __pipeline_commit();
        scale_chunks(p.parts + part + from, count, &state, scales, sums);
        __pipeline_wait_prior(0);
        __syncthreads();
        /* One warp the values, another the sum. */
        if (threadIdx.x < 64)
#pragma unroll 16
            for (uint32_t c = 0; c < count; c++)
                value = fmaf(threadIdx.x < 32 ? values[c][lane] : sums[c], scales[c].chunk,
                             value * scales[c].before);
    }
    if (threadIdx.x == 32)
        total = value;
    __syncthreads();
    if (threadIdx.x >= 32 || i + lane >= a.dim_v)
        return;
    value = arith_canonical(state.begun ? value / total : 0.0f);
    p.out[((uint64_t)t * a.heads + h) * a.dim_v + i + lane] = value;
    if (p.quantised.bytes != nullptr)
        activations_store(p.quantised, t, h * a.dim_v + i + lane, value);
}

/* Up to 32 chunks, of a lane each: a warp a query head of a token, the block MERGE_THREADS / 32. */
__global__ void __launch_bounds__(MERGE_THREADS)
    merge_few_kernel(struct launch_stamp stamp, const __grid_constant__ attend_part p)
{
    const struct attend &a = p.attend;
    const uint32_t row = blockIdx.x * (MERGE_THREADS / 32) + threadIdx.x / 32;
    const uint32_t t = p.first + row / a.heads, h = row % a.heads, lane = threadIdx.x % 32;
    float before, so_far, sum = -0.0f;

    launch_begin(stamp);
    if (row >= p.count * a.heads)
        return;

    const uint32_t first = attend_first(&a.tokens[t], a.window) / CHUNK;
    const uint32_t chunks = a.tokens[t].position / CHUNK - first + 1;
    const struct attend_chunk part = lane < chunks ? p.parts[(uint64_t)row * p.chunks + lane]
                                                   : attend_chunk{-INFINITY, 0.0f, 0, 0};
    const uint32_t there = __ballot_sync(0xffffffffu, part.any != 0);
    const bool begun = (there & ((1u << lane) - 1)) != 0;
    const float own = part.any != 0 ? part.maximum : -INFINITY;
    const float own_sum = part.any != 0 ? part.sum : 0.0f;

    so_far = highest_before(own, lane);
    before = __shfl_up_sync(0xffffffffu, so_far, 1);

    const merge_scales scales =
        scales_of(part.any != 0, begun, lane == 0 ? -INFINITY : before, own);

    for (uint32_t c = 0; c < chunks; c++)
        sum = fmaf(__shfl_sync(0xffffffffu, own_sum, c), __shfl_sync(0xffffffffu, scales.chunk, c),
                   sum * __shfl_sync(0xffffffffu, scales.before, c));
    for (uint32_t i = lane; i < (a.dim_v + 31) / 32 * 32; i += 32) {
        const float *values = p.values + (uint64_t)row * p.chunks * a.dim_v + i;
        float value = -0.0f;

#pragma unroll 4
        for (uint32_t c = 0; c < chunks; c++)
            value = fmaf(i < a.dim_v ? values[(uint64_t)c * a.dim_v] : 0.0f,
                         __shfl_sync(0xffffffffu, scales.chunk, c),
                         value * __shfl_sync(0xffffffffu, scales.before, c));
        value = arith_canonical(there != 0 ? value / sum : 0.0f);
        if (i >= a.dim_v)
            continue;
        p.out[((uint64_t)t * a.heads + h) * a.dim_v + i] = value;
        if (p.quantised.bytes != nullptr)
            activations_store(p.quantised, t, h * a.dim_v + i, value);
    }
}

/* ---- launches ---- */

uint32_t cuda_attend_chunks(const struct program_token *tokens, uint32_t count, uint32_t window)
{
    uint32_t most = 1;

    for (uint32_t t = 0; t < count; t++) {
        uint32_t first = attend_first(&tokens[t], window) / CHUNK;
        uint32_t chunks = tokens[t].position / CHUNK - first + 1;

        most = chunks > most ? chunks : most;
    }
    return most;
}

static size_t token_bytes(const struct attend *attend, uint32_t chunks)
{
    return (size_t)attend->heads * chunks *
           (sizeof(struct attend_chunk) + attend->dim_v * sizeof(float));
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

/* Rows of halves may be read 16 bytes at once, others 4; their strides are odd multiples of what
 * is copied at once, which spreads rows over the banks. */
static struct attend_cache cache_of(const void *bytes, enum tensor_type type, uint32_t dim,
                                    uint32_t row_heads)
{
    const bool halves = type == TENSOR_TYPE_F16;
    struct attend_cache cache = {};
    uint32_t step;

    cache.bytes = (const char *)bytes;
    cache.type = type;
    cache.dim = dim;
    cache.row = (uint32_t)tensor_type_row_bytes(type, dim);
    cache.all = cache.row * row_heads;
    cache.unit = halves ? 16 : 8;
    while (((uintptr_t)bytes | cache.row) % cache.unit != 0)
        cache.unit /= 2;
    cache.units = cache.row / cache.unit;
    step = halves ? 16 : cache.unit < 4 ? 4 : cache.unit;
    cache.stride = ((cache.row + step - 1) / step | 1) * step;
    return cache;
}

static uint32_t multiple_of_16(uint32_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static uint32_t shared_bytes(const struct attend_part *p, struct chunk_cut *cut)
{
    const uint32_t v_later = cut->rows > cut->early ? cut->rows - cut->early : cut->rows;
    uint32_t v_room = multiple_of_16(v_later * p->v.stride);

    cut->k_bytes = multiple_of_16(cut->rows * p->k.stride);
    cut->k_bytes = cut->k_bytes > v_room ? cut->k_bytes : v_room;
    cut->later = cut->k_bytes / p->v.stride;
    if (cut->later > 4) /* weights are read by fours */
        cut->later -= cut->later % 4;
    cut->v_bytes = multiple_of_16(cut->early * p->v.stride);
    /* Reading the last word of a row may touch the one behind. */
    return cut->heads * (cut->query + WEIGHTS) * 4 + cut->k_bytes + cut->v_bytes + 16;
}

/* As few blocks as there are KV heads, but more where the GPU has room. */
static struct chunk_cut cut_of(const struct attend_part *p, uint32_t limit, uint32_t *bytes)
{
    const struct attend *a = &p->attend;
    const uint32_t group = a->heads / a->kv_heads;
    const uint64_t others = (uint64_t)p->count * p->chunks * a->kv_heads;
    struct chunk_cut cut = {};

    cut.parts = (group + HEADS - 1) / HEADS;
    while (cut.parts < group && others * cut.parts * 2 <= FEW_BLOCKS)
        cut.parts *= 2;
    cut.heads = (group + cut.parts - 1) / cut.parts;
    cut.parts = (group + cut.heads - 1) / cut.heads;
    cut.query = (a->dim_k + 7) / 8 * 8;
    cut.ahead =
        a->token_count <= EARLY_TOKENS && p->v.dim <= CHUNK && others * cut.parts <= FEW_BLOCKS;
    cut.rows = cut.early = CHUNK;
    if (cut.ahead && p->chunks > 1 && (*bytes = shared_bytes(p, &cut)) <= limit)
        return cut;
    if (cut.ahead && p->chunks == 1 && p->k.dim <= CHUNK && limit > BESIDE_BYTES)
        limit = BESIDE_BYTES;
    cut.early = EARLY;
    while ((*bytes = shared_bytes(p, &cut)) > limit && cut.rows > 1) {
        cut.rows /= 2;
        cut.early = cut.early > 4 && cut.early > cut.rows / 2 ? cut.early / 2 : cut.early;
    }
    return cut;
}

/* Shared memory that a block of the current GPU may ask for; 0 with `err` set. */
static uint32_t shared_limit(struct error *err)
{
    static uint32_t limits[GPUS_MAX];
    int gpu, most;

    if (cuda_check(cudaGetDevice(&gpu), "attend", err) != 0)
        return 0;
    if (gpu < GPUS_MAX && limits[gpu] != 0)
        return limits[gpu];
    if (cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu),
                   "shared memory of the GPU", err) != 0)
        return 0;
    most -= STATIC_BYTES;
    if (attend_allow_shared(attend_chunk_kernel, most, err) != 0)
        return 0;
    if (gpu < GPUS_MAX)
        limits[gpu] = (uint32_t)most;
    return (uint32_t)most;
}

/* Tiles are for much work: else the GPU has more room for the blocks of single tokens. */
static bool in_tiles(const struct attend_part *p, uint32_t limit)
{
    const struct attend *a = &p->attend;

    return a->token_count >= TILE_TOKENS &&
           (uint64_t)a->token_count * a->heads * p->chunks >= TILE_ROWS && p->k.dim <= TILE_DIM &&
           p->v.dim <= TILE_DIM && limit >= ATTEND_TILE_BYTES;
}

static int launch_part(const attend_part &p, uint32_t limit, cudaStream_t stream, struct error *err)
{
    const struct attend &a = p.attend;
    uint32_t bytes;
    const chunk_cut cut = cut_of(&p, limit, &bytes);

    if (in_tiles(&p, limit)) {
        if (attend_tiles(p, stream, err) != 0)
            return -1;
    } else {
        launch_overlapping(attend_chunk_kernel, dim3(p.chunks, a.kv_heads * cut.parts, p.count),
                           THREADS, bytes, stream, p, cut);
    }
    if (p.chunks > 1 && p.chunks <= 32 && p.count * a.heads > FEW_BLOCKS)
        launch_overlapping(
            merge_few_kernel,
            dim3((p.count * a.heads + MERGE_THREADS / 32 - 1) / (MERGE_THREADS / 32)),
            MERGE_THREADS, 0, stream, p);
    else if (p.chunks > 1)
        launch_overlapping(merge_kernel, dim3((a.dim_v + 31) / 32, a.heads, p.count), MERGE_THREADS,
                           0, stream, p);
    return cuda_launched("attend", err);
}

int cuda_attend(const struct attend *attend, uint32_t chunks, void *scratch, float *out,
                const struct activations *quantised, cudaStream_t stream, struct error *err)
{
    uint32_t each = tokens_at_once(attend, chunks), limit;
    attend_part p = {};

    if (attend->heads == 0)
        return 0;
    if (attend->dim_k > DIM_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "heads of %u values; %d at most", attend->dim_k,
                         DIM_MAX);
    limit = shared_limit(err);
    if (limit == 0)
        return -1;
    p.attend = *attend;
    p.k = cache_of(attend->cache_k, attend->type_k, attend->dim_k, attend->row_heads);
    p.v = cache_of(attend->cache_v, attend->type_v, attend->dim_v, attend->row_heads);
    p.chunks = chunks;
    p.out = out;
    if (quantised != nullptr)
        p.quantised = *quantised;
    p.parts = (struct attend_chunk *)scratch;
    p.values = (float *)(p.parts + (size_t)each * attend->heads * chunks);
    for (p.first = 0; p.first < attend->token_count; p.first += each) {
        uint32_t left = attend->token_count - p.first;

        p.count = left < each ? left : each;
        if (launch_part(p, limit, stream, err) != 0)
            return -1;
    }
    return 0;
}
