/* Softmax attention of many tokens: a block computes a chunk of 256 positions for a tile of rows,
 * a row being a query head of a token. K and V of the chunk are in shared memory as floats; each
 * thread has the chains of several rows and positions, or rows and values, in registers.
 *
 * Tokens of a tile that belong to different sequences are taken one sequence after the other. */
#include "cuda/attend_private.cuh"
#include "cuda/kernel_cache_value.cuh"

enum {
    CHUNK = ATTEND_CHUNK,
    THREADS = 256,
    VALUE_THREADS = 128, /* of them have values, the others sum weights */
    BATCH = 4,           /* loads that a thread has under way */
    GPUS_MAX = 64,
};

/* A row that no position takes part in: adding -0 x 0 changes nothing. */
#define NO_WEIGHT UINT32_C(0x80000000)

/* How a block is laid out in shared memory, in floats. */
struct tile_cut {
    uint32_t heads;  /* of a KV head that a block takes */
    uint32_t parts;  /* blocks of a KV head */
    uint32_t tokens; /* of a block */
    uint32_t pieces_k, pieces_v;
    uint32_t scores, staged; /* where they begin; the query is first */
};

/* What a block works on: tokens `first` to `first` + `count` of one sequence. */
struct tile_job {
    uint32_t first, count;
    uint32_t head, heads; /* the first query head, and how many */
    uint32_t kv;          /* of the cache */
    uint32_t chunk;       /* of the sequence */
    uint32_t positions;   /* of the chunk that have cells */
    float *query, *scores, *staged;
};

/* Of a row: positions that take part, as they are listed, and which of its token's chunks it is;
 * -1: it has none here. */
struct tile_row {
    int32_t from, to, part;
};

/* ---- staging ---- */

/* Eight values of a row of the cache; zeros behind its end. */
template <int TYPE>
static __device__ __forceinline__ void load_eight(const struct attend_cache &cache, uint32_t head,
                                                  uint32_t row, uint32_t piece, float *out)
{
    const uint64_t at = (uint64_t)row * cache.all + (uint64_t)head * cache.row;
    const uint64_t index = at / cache.row * cache.dim; /* of the row's first value */

    if (cache.unit >= (TYPE == TENSOR_TYPE_F16 ? 16 : 4)) {
        attend_eight<TYPE>(cache.bytes + at, piece, out);
        return;
    }
#pragma unroll
    for (uint32_t l = 0; l < 8; l++)
        out[l] = piece * 8 + l < cache.dim
                     ? cache_value((enum tensor_type)TYPE, cache.bytes, index + piece * 8 + l)
                     : 0.0f;
}

/* Rows `first` to `first` + `count` of the list, by all threads. TURNED: (values, POSITIONS),
 * groups of four positions in another order for each eight values, which spreads them over the
 * banks; else (positions, values). */
template <int TYPE, bool TURNED, int POSITIONS>
static __device__ __forceinline__ void stage_rows(const struct attend_cache &cache, uint32_t head,
                                                  const int32_t *rows, uint32_t first,
                                                  uint32_t count, uint32_t pieces, float *to)
{
    const uint32_t inverse = 0xffffffffu / pieces + 1, all = count * pieces;

    for (uint32_t begin = threadIdx.x; begin < all; begin += THREADS * BATCH) {
        float eight[BATCH][8];

#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const uint32_t u = begin + b * THREADS;
            const uint32_t r = pieces == 1 ? u : __umulhi(u, inverse);

            if (u < all)
                load_eight<TYPE>(cache, head, (uint32_t)rows[first + r], u - r * pieces, eight[b]);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const uint32_t u = begin + b * THREADS;
            const uint32_t r = pieces == 1 ? u : __umulhi(u, inverse), piece = u - r * pieces;

            if (u >= all)
                continue;
            if (TURNED) {
                float *column = to + piece * 8 * POSITIONS + (r ^ (piece % 8 * 4));

#pragma unroll
                for (int l = 0; l < 8; l++)
                    column[l * POSITIONS] = eight[b][l];
            } else {
                float4 *eights = (float4 *)(to + u * 8);

                eights[0] = make_float4(eight[b][0], eight[b][1], eight[b][2], eight[b][3]);
                eights[1] = make_float4(eight[b][4], eight[b][5], eight[b][6], eight[b][7]);
            }
        }
    }
}

template <bool TURNED, int POSITIONS>
static __device__ __forceinline__ void stage(const struct attend_cache &cache, uint32_t head,
                                             const int32_t *rows, uint32_t first, uint32_t count,
                                             uint32_t pieces, float *to)
{
    if (cache.type == TENSOR_TYPE_F16)
        stage_rows<TENSOR_TYPE_F16, TURNED, POSITIONS>(cache, head, rows, first, count, pieces, to);
    else if (cache.type == TENSOR_TYPE_Q8_0)
        stage_rows<TENSOR_TYPE_Q8_0, TURNED, POSITIONS>(cache, head, rows, first, count, pieces,
                                                        to);
    else
        stage_rows<TENSOR_TYPE_Q4_0, TURNED, POSITIONS>(cache, head, rows, first, count, pieces,
                                                        to);
}

/* The queries, (values, ROWS), with zeros behind their end. */
template <int ROWS>
static __device__ __forceinline__ void stage_query(const attend_part &p, const tile_cut &cut,
                                                   const tile_job &job)
{
    const uint32_t row = threadIdx.x % ROWS, dim = p.k.dim, token = row / job.heads;
    const float *from = p.attend.query +
                        ((uint64_t)(job.first + token) * p.attend.heads + job.head +
                         row % job.heads) *
                            dim;

#pragma unroll 4
    for (uint32_t i = threadIdx.x / ROWS * 4; i < cut.pieces_k * 8; i += THREADS / ROWS * 4) {
        float four[4] = {};

        if (token < job.count) {
            if (dim % 4 == 0 && i < dim)
                *(float4 *)four = *(const float4 *)(from + i);
            else
                for (uint32_t l = 0; l < 4; l++)
                    four[l] = i + l < dim ? from[i + l] : 0.0f;
        }
#pragma unroll
        for (int l = 0; l < 4; l++)
            job.query[(i + l) * ROWS + row] = four[l];
    }
}

/* ---- scores ---- */

/* The chains of RT rows and PT positions of a thread. A warp has 4 x 8 threads, the block 2 x 4
 * warps; fours of rows are 16 apart, those of positions 32. */
template <int RT, int PT> struct tile_chains {
    enum { ROWS = RT * 8, POSITIONS = PT * 32 };
    float at[RT][PT];

    static __device__ __forceinline__ uint32_t row(int r)
    {
        return threadIdx.x / 32 % 2 * RT * 4 + r / 4 * 16 + threadIdx.x % 32 / 8 * 4 + r % 4;
    }

    static __device__ __forceinline__ uint32_t position(int n)
    {
        return threadIdx.x / 64 * PT * 8 + n / 4 * 32 + threadIdx.x % 8 * 4 + n % 4;
    }

    /* Lane `lane` of arith_dot8(). */
    __device__ __forceinline__ void lane_of(const float *query, const float *k, uint32_t pieces,
                                            int lane)
    {
        query += lane * ROWS + row(0);
        k += lane * POSITIONS;
#pragma unroll
        for (int r = 0; r < RT; r++)
#pragma unroll
            for (int n = 0; n < PT; n++)
                at[r][n] = 0.0f;
#pragma unroll 2
        for (uint32_t piece = 0; piece < pieces; piece++) {
            float q[RT], v[PT];

#pragma unroll
            for (int r = 0; r < RT; r += 4)
                *(float4 *)&q[r] = *(const float4 *)(query + piece * 8 * ROWS + r * 4);
#pragma unroll
            for (int n = 0; n < PT; n += 4)
                *(float4 *)&v[n] = *(const float4 *)(k + piece * 8 * POSITIONS +
                                                     (position(n) ^ (piece % 8 * 4)));
#pragma unroll
            for (int r = 0; r < RT; r++)
#pragma unroll
                for (int n = 0; n < PT; n++)
                    at[r][n] = fmaf(q[r], v[n], at[r][n]);
        }
    }

    __device__ __forceinline__ void add(const tile_chains &other)
    {
#pragma unroll
        for (int r = 0; r < RT; r++)
#pragma unroll
            for (int n = 0; n < PT; n++)
                at[r][n] += other.at[r][n];
    }

    /* To and from (positions, ROWS). */
    __device__ __forceinline__ void store(float *to) const
    {
#pragma unroll
        for (int n = 0; n < PT; n++)
#pragma unroll
            for (int r = 0; r < RT; r += 4)
                *(float4 *)(to + position(n) * ROWS + row(r)) =
                    make_float4(at[r][n], at[r + 1][n], at[r + 2][n], at[r + 3][n]);
    }

    __device__ __forceinline__ void add_stored(const float *from)
    {
#pragma unroll
        for (int n = 0; n < PT; n++)
#pragma unroll
            for (int r = 0; r < RT; r += 4) {
                const float4 four = *(const float4 *)(from + position(n) * ROWS + row(r));

                at[r][n] = four.x + at[r][n];
                at[r + 1][n] = four.y + at[r + 1][n];
                at[r + 2][n] = four.z + at[r + 2][n];
                at[r + 3][n] = four.w + at[r + 3][n];
            }
    }

    __device__ __forceinline__ void finish(float scale)
    {
#pragma unroll
        for (int r = 0; r < RT; r++)
#pragma unroll
            for (int n = 0; n < PT; n++)
                at[r][n] = at[r][n] * scale;
    }
};

/* Lanes are added as arith_dot8() does; the even ones wait among the scores for the odd ones. */
template <int RT, int PT>
static __device__ __forceinline__ void scores_of(const float *query, const float *k,
                                                 uint32_t pieces, float scale, float *scores)
{
    tile_chains<RT, PT> a, b;

    a.lane_of(query, k, pieces, 0);
    b.lane_of(query, k, pieces, 4);
    a.add(b);
    b.lane_of(query, k, pieces, 2);
    {
        tile_chains<RT, PT> c;

        c.lane_of(query, k, pieces, 6);
        b.add(c);
    }
    a.add(b);
    a.store(scores);
    a.lane_of(query, k, pieces, 1);
    b.lane_of(query, k, pieces, 5);
    a.add(b);
    b.lane_of(query, k, pieces, 3);
    {
        tile_chains<RT, PT> c;

        c.lane_of(query, k, pieces, 7);
        b.add(c);
    }
    a.add(b);
    a.add_stored(scores);
    a.finish(scale);
    a.store(scores);
}

/* ---- weights ---- */

/* All threads: scores become weights; those of positions that take no part NO_WEIGHT. */
template <int ROWS>
static __device__ __forceinline__ void weigh(const tile_job &job, const tile_row *rows,
                                             float *maxima)
{
    float *partial = job.staged; /* K is not needed any more */
    const uint32_t r = threadIdx.x % ROWS, part = threadIdx.x / ROWS;
    const int32_t from = rows[r].from, to = rows[r].to;
    float maximum = -INFINITY;

    /* A score that is NaN is larger than none. */
#pragma unroll 4
    for (int32_t j = part; j < (int32_t)job.positions; j += THREADS / ROWS)
        if (j >= from && j < to)
            maximum = fmaxf(maximum, job.scores[j * ROWS + r]);
    partial[threadIdx.x] = maximum;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / ROWS; i++)
        maximum = fmaxf(maximum, partial[i * ROWS + r]);
    if (part == 0)
        maxima[r] = maximum;
#pragma unroll 4
    for (int32_t j = part; j < (int32_t)job.positions; j += THREADS / ROWS) {
        float *score = &job.scores[j * ROWS + r];

        *score = j >= from && j < to ? arith_exp(*score - maximum) : arith_float(NO_WEIGHT);
    }
}

/* A thread a row, behind those with values. */
template <int ROWS>
static __device__ __forceinline__ void sum_weights(const tile_job &job, float *sums)
{
    const uint32_t r = threadIdx.x - VALUE_THREADS;
    float sum = 0.0f;

    if (r >= ROWS)
        return;
#pragma unroll 8
    for (uint32_t j = 0; j < job.positions; j++)
        sum += job.scores[j * ROWS + r];
    sums[r] = sum;
}

/* ---- values ---- */

/* Eight rows and eight values of a thread, four of them `apart`. SOME: rows leave positions
 * out. */
template <int ROWS, bool SOME>
static __device__ __forceinline__ void add_values(const float *weights, const float *v,
                                                  uint32_t stride, uint32_t apart, uint32_t count,
                                                  float (*values)[8])
{
#pragma unroll 2
    for (uint32_t j = 0; j < count; j++) {
        float w[8], eight[8];

        *(float4 *)&w[0] = *(const float4 *)(weights + j * ROWS);
        *(float4 *)&w[4] = *(const float4 *)(weights + j * ROWS + 4);
        *(float4 *)&eight[0] = *(const float4 *)(v + j * stride);
        *(float4 *)&eight[4] = *(const float4 *)(v + j * stride + apart);
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (!SOME || arith_bits(w[r]) != NO_WEIGHT)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    values[r][i] = fmaf(w[r], eight[i], values[r][i]);
    }
}

/* Values of all rows, left in `staged` as (ROWS, values). */
template <int ROWS, int POSITIONS>
static __device__ __forceinline__ void values_of(const attend_part &p, const tile_cut &cut,
                                                 const tile_job &job, const int32_t *listed,
                                                 bool some, float *sums)
{
    const uint32_t stride = cut.pieces_v * 8, apart = cut.pieces_v * 4;
    const uint32_t row = threadIdx.x / cut.pieces_v * 8, i = threadIdx.x % cut.pieces_v * 4;
    const bool active = threadIdx.x < VALUE_THREADS && row < ROWS;
    float values[8][8] = {};

    for (uint32_t j = 0; j < job.positions; j += POSITIONS) {
        const uint32_t left = job.positions - j, count = left < POSITIONS ? left : POSITIONS;

        stage<false, POSITIONS>(p.v, job.kv, listed, j, count, cut.pieces_v, job.staged);
        __syncthreads();
        if (active && some)
            add_values<ROWS, true>(job.scores + j * ROWS + row, job.staged + i, stride, apart,
                                   count, values);
        else if (active)
            add_values<ROWS, false>(job.scores + j * ROWS + row, job.staged + i, stride, apart,
                                    count, values);
        else if (threadIdx.x >= VALUE_THREADS && j == 0)
            sum_weights<ROWS>(job, sums);
        __syncthreads();
    }
    if (active)
#pragma unroll
        for (int r = 0; r < 8; r++) {
            float *to = job.staged + (row + r) * stride + i;

            *(float4 *)to =
                make_float4(values[r][0], values[r][1], values[r][2], values[r][3]);
            *(float4 *)(to + apart) =
                make_float4(values[r][4], values[r][5], values[r][6], values[r][7]);
        }
    __syncthreads();
}

/* A warp a row: what values_of() has left goes to the chunk's part, or is the result. */
static __device__ __forceinline__ void write_rows(const attend_part &p, const tile_cut &cut,
                                                  const tile_job &job, const tile_row *rows,
                                                  const float *maxima, const float *sums)
{
    const struct attend &a = p.attend;
    const uint32_t lane = threadIdx.x % 32;

    for (uint32_t r = threadIdx.x / 32; r < job.count * job.heads; r += THREADS / 32) {
        const uint32_t token = job.first + r / job.heads, h = job.head + r % job.heads;
        const float *values = job.staged + r * cut.pieces_v * 8;
        const bool any = rows[r].to > rows[r].from;
        const uint64_t part =
            ((uint64_t)(token - p.first) * a.heads + h) * p.chunks + (uint32_t)rows[r].part;

        if (rows[r].part < 0)
            continue;
        if (p.chunks > 1 && lane == 0)
            p.parts[part] = {maxima[r], sums[r], any, 0};
        for (uint32_t i = lane; i < a.dim_v; i += 32) {
            float value = any ? values[i] : 0.0f;

            if (p.chunks > 1) {
                p.values[part * a.dim_v + i] = value;
                continue;
            }
            value = arith_canonical(any ? value / sums[r] : 0.0f);
            p.out[((uint64_t)token * a.heads + h) * a.dim_v + i] = value;
            if (p.quantised.bytes != nullptr)
                activations_store(p.quantised, token, h * a.dim_v + i, value);
        }
    }
}

/* ---- a chunk ---- */

/* Which of the listed positions take part in a row. @return whether a row leaves some out */
template <int ROWS>
static __device__ __forceinline__ bool describe_rows(const attend_part &p, const tile_job &job,
                                                     const uint16_t *listed_before, tile_row *rows)
{
    const uint32_t r = threadIdx.x, begin = job.chunk * CHUNK;
    tile_row row = {0, 0, -1};
    bool some = false;

    if (r < job.count * job.heads) {
        const struct program_token *token = &p.attend.tokens[job.first + r / job.heads];
        const uint32_t from = attend_first(token, p.attend.window), position = token->position;

        if (position >= begin && from < begin + CHUNK) {
            row.part = (int32_t)(job.chunk - from / CHUNK);
            row.from = from > begin ? listed_before[from - begin] : 0;
            row.to = position - begin < CHUNK - 1 ? listed_before[position - begin + 1]
                                                  : (int32_t)job.positions;
        }
        some = row.from > 0 || row.to < (int32_t)job.positions;
    }
    if (r < ROWS)
        rows[r] = row;
    return __syncthreads_or(some) != 0;
}

template <int RT, int PT>
static __device__ __forceinline__ void tile_chunk(const attend_part &p, const tile_cut &cut,
                                                  tile_job &job, uint32_t from, uint32_t to)
{
    enum { ROWS = RT * 8, POSITIONS = PT * 32 };
    __shared__ int32_t listed[CHUNK];
    __shared__ uint16_t listed_before[CHUNK]; /* of a position */
    __shared__ uint32_t warp_counts[CHUNK / 32];
    __shared__ tile_row rows[ROWS];
    __shared__ float maxima[ROWS], sums[ROWS];
    const uint32_t sequence = p.attend.tokens[job.first].sequence;
    bool some;

    job.positions = attend_rows(p.attend, sequence, job.chunk * CHUNK, from, to, listed,
                                warp_counts, listed_before);
    some = describe_rows<ROWS>(p, job, listed_before, rows);
    for (uint32_t j = 0; j < job.positions; j += POSITIONS) {
        const uint32_t left = job.positions - j, count = left < POSITIONS ? left : POSITIONS;

        stage<true, POSITIONS>(p.k, job.kv, listed, j, count, cut.pieces_k, job.staged);
        __syncthreads();
        if (tile_chains<RT, PT>::position(0) / (PT * 8) * (PT * 8) < count)
            scores_of<RT, PT>(job.query, job.staged, cut.pieces_k, p.attend.scale,
                              job.scores + j * ROWS);
        __syncthreads();
    }
    weigh<ROWS>(job, rows, maxima);
    __syncthreads();
    values_of<ROWS, POSITIONS>(p, cut, job, listed, some, sums);
    write_rows(p, cut, job, rows, maxima, sums);
    __syncthreads();
}

/* Grid: (chunks, KV heads x parts, tiles of tokens). */
template <int RT, int PT>
__global__ void __launch_bounds__(THREADS, 1)
    tile_kernel(const __grid_constant__ attend_part p, const __grid_constant__ tile_cut cut)
{
    extern __shared__ __align__(16) float shared[];
    const struct attend &a = p.attend;
    const uint32_t group = a.heads / a.kv_heads, kv = blockIdx.y / cut.parts;
    const uint32_t of_group = blockIdx.y % cut.parts * cut.heads;
    const uint32_t first = p.first + blockIdx.z * cut.tokens;
    const uint32_t left = p.first + p.count - first;
    const uint32_t end = first + (left < cut.tokens ? left : cut.tokens);
    tile_job job;

    launch_begin();
    job.head = kv * group + of_group;
    job.heads = group - of_group < cut.heads ? group - of_group : cut.heads;
    job.kv = a.kv_first + kv;
    job.query = shared;
    job.scores = shared + cut.scores;
    job.staged = shared + cut.staged;
    for (job.first = first; job.first < end; job.first += job.count) {
        uint32_t lowest = UINT32_MAX, highest = 0;

        for (job.count = 0; job.first + job.count < end; job.count++) {
            const struct program_token *token = &a.tokens[job.first + job.count];
            const uint32_t from = attend_first(token, a.window);

            if (token->sequence != a.tokens[job.first].sequence)
                break;
            lowest = from < lowest ? from : lowest;
            highest = token->position > highest ? token->position : highest;
        }
        job.chunk = lowest / CHUNK + blockIdx.x;
        if (job.chunk > highest / CHUNK)
            continue;
        stage_query<RT * 8>(p, cut, job);
        for (; job.chunk <= highest / CHUNK; job.chunk += gridDim.x)
            tile_chunk<RT, PT>(p, cut, job, lowest, highest);
    }
}

/* ---- launch ---- */

static uint32_t more(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

template <int RT, int PT>
static int launch_tiles(const attend_part &p, cudaStream_t stream, struct error *err)
{
    static bool ready[GPUS_MAX];
    const uint32_t rows = RT * 8, positions = PT * 32;
    const uint32_t group = p.attend.heads / p.attend.kv_heads;
    tile_cut cut = {};
    uint32_t bytes;
    int gpu;

    cut.parts = (group + rows - 1) / rows;
    cut.heads = (group + cut.parts - 1) / cut.parts;
    cut.tokens = rows / cut.heads;
    cut.pieces_k = (p.k.dim + 7) / 8;
    cut.pieces_v = (p.v.dim + 7) / 8;
    cut.scores = cut.pieces_k * 8 * rows;
    cut.staged = cut.scores + CHUNK * rows;
    bytes = (cut.staged + more(cut.pieces_k, cut.pieces_v) * 8 * more(positions, rows)) * 4;
    if (cuda_check(cudaGetDevice(&gpu), "attend", err) != 0)
        return -1;
    if (gpu >= GPUS_MAX || !ready[gpu]) {
        if (cuda_check(cudaFuncSetAttribute(tile_kernel<RT, PT>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            ATTEND_TILE_BYTES),
                       "shared memory for attention", err) != 0)
            return -1;
        if (gpu < GPUS_MAX)
            ready[gpu] = true;
    }
    launch_overlapping(
        tile_kernel<RT, PT>,
        dim3(p.chunks, p.attend.kv_heads * cut.parts, (p.count + cut.tokens - 1) / cut.tokens),
        THREADS, bytes, stream, p, cut);
    return cuda_launched("attend in tiles", err);
}

int attend_tiles(const attend_part &p, cudaStream_t stream, struct error *err)
{
    const uint32_t dim = more(p.k.dim, p.v.dim);

    return dim <= 128 ? launch_tiles<8, 8>(p, stream, err) : launch_tiles<4, 4>(p, stream, err);
}
