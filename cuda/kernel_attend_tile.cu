/* Softmax attention of many tokens: a block computes a chunk of 256 positions for a tile of rows,
 * a row being a query head of a token. K and V of the chunk are in shared memory as floats; each
 * thread has the chains of several rows and positions, or rows and values, in registers.
 *
 * Tokens of a tile that belong to different sequences are taken one sequence after the other. */
#include "cuda/attend_private.cuh"
#include "cuda/kernel_cache_value.cuh"

enum {
    CHUNK = ATTEND_CHUNK,
    THREADS = 512,
    BATCH = 8, /* loads that a thread has under way */
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

/* Eight values of a row as they lie in the cache. */
struct tile_raw {
    uint32_t words[4]; /* others than halves: a scale in the last */
};

template <int TYPE>
static __device__ __forceinline__ tile_raw load_raw(const char *row, uint32_t piece)
{
    tile_raw raw;

    if (TYPE == TENSOR_TYPE_F16) {
        *(uint4 *)raw.words = *(const uint4 *)(row + piece * 16);
        return raw;
    }

    const uint32_t block = piece / 4 * (TYPE == TENSOR_TYPE_Q8_0 ? 34 : 18);
    const uint32_t at = block + 2 + (TYPE == TENSOR_TYPE_Q8_0 ? piece % 4 : piece % 2) * 8;
    const uint32_t *words = (const uint32_t *)(row + (at & ~3u));

    raw.words[0] = words[0];
    raw.words[1] = words[1];
    raw.words[2] = words[at % 4 != 0 ? 2 : 1]; /* never behind the row */
    raw.words[3] = *(const uint16_t *)(row + block);
    return raw;
}

template <int TYPE>
static __device__ __forceinline__ void raw_values(const tile_raw &raw, uint32_t piece, float *out)
{
    if (TYPE == TENSOR_TYPE_F16) {
        attend_eight<TYPE>((const char *)raw.words, 0, out);
        return;
    }

    const bool bytes = TYPE == TENSOR_TYPE_Q8_0;
    const uint32_t at = piece / 4 * (bytes ? 34 : 18) + 2;
    const float d = __half2float(__ushort_as_half((unsigned short)raw.words[3]));

#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t four = __funnelshift_r(raw.words[half], raw.words[half + 1], at % 4 * 8);

        four = bytes ? four ^ 0x80808080u : four >> (piece & 2 ? 4 : 0) & 0x0f0f0f0fu;
#pragma unroll
        for (int l = 0; l < 4; l++)
            out[4 * half + l] = d * attend_byte(four, l, bytes ? 128.0f : 8.0f);
    }
}

/* TURNED: to (values, POSITIONS), groups of four positions in another order for each eight values,
 * which spreads them over the banks; else to (positions, values). */
template <bool TURNED, int POSITIONS>
static __device__ __forceinline__ void store_eight(float *to, uint32_t position, uint32_t piece,
                                                   uint32_t pieces, const float *eight)
{
    if (TURNED) {
        float *column = to + piece * 8 * POSITIONS + (position ^ (piece % 8 * 4));

#pragma unroll
        for (int l = 0; l < 8; l++)
            column[l * POSITIONS] = eight[l];
        return;
    }

    float4 *eights = (float4 *)(to + (position * pieces + piece) * 8);

    eights[0] = make_float4(eight[0], eight[1], eight[2], eight[3]);
    eights[1] = make_float4(eight[4], eight[5], eight[6], eight[7]);
}

/* `count` rows of the list, by all threads; the last of them is loaded in place of those behind. */
template <int TYPE, bool TURNED, int POSITIONS>
static __device__ __forceinline__ void stage_rows(const struct attend_cache &cache, uint32_t head,
                                                  const int32_t *rows, uint32_t count,
                                                  uint32_t pieces, float *to)
{
    const uint32_t inverse = 0xffffffffu / pieces + 1, all = count * pieces;
    const char *from = cache.bytes + (uint64_t)head * cache.row;

    for (uint32_t begin = threadIdx.x; begin < all; begin += THREADS * BATCH) {
        tile_raw raw[BATCH];

#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const uint32_t u = min(begin + b * THREADS, all - 1);
            const uint32_t r = pieces == 1 ? u : __umulhi(u, inverse);

            raw[b] = load_raw<TYPE>(from + (uint64_t)(uint32_t)rows[r] * cache.all, u - r * pieces);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const uint32_t u = min(begin + b * THREADS, all - 1);
            const uint32_t r = pieces == 1 ? u : __umulhi(u, inverse);
            float eight[8];

            raw_values<TYPE>(raw[b], u - r * pieces, eight);
            store_eight<TURNED, POSITIONS>(to, r, u - r * pieces, pieces, eight);
        }
    }
}

/* The same value by value, with zeros behind the end of a row. */
template <bool TURNED, int POSITIONS>
static __device__ __noinline__ void stage_slowly(const struct attend_cache &cache, uint32_t head,
                                                 const int32_t *rows, uint32_t count,
                                                 uint32_t pieces, float *to)
{
    for (uint32_t u = threadIdx.x; u < count * pieces; u += THREADS) {
        const uint32_t r = u / pieces, piece = u % pieces;
        const uint64_t row = (uint64_t)(uint32_t)rows[r] * (cache.all / cache.row) + head;
        float eight[8];

        for (uint32_t l = 0; l < 8; l++)
            eight[l] = piece * 8 + l < cache.dim
                           ? cache_value(cache.type, cache.bytes, row * cache.dim + piece * 8 + l)
                           : 0.0f;
        store_eight<TURNED, POSITIONS>(to, r, piece, pieces, eight);
    }
}

template <bool TURNED, int POSITIONS>
static __device__ __forceinline__ void stage(const struct attend_cache &cache, uint32_t head,
                                             const int32_t *rows, uint32_t count, uint32_t pieces,
                                             float *to)
{
    if (cache.unit < (cache.type == TENSOR_TYPE_F16 ? 16 : 4))
        stage_slowly<TURNED, POSITIONS>(cache, head, rows, count, pieces, to);
    else if (cache.type == TENSOR_TYPE_F16)
        stage_rows<TENSOR_TYPE_F16, TURNED, POSITIONS>(cache, head, rows, count, pieces, to);
    else if (cache.type == TENSOR_TYPE_Q8_0)
        stage_rows<TENSOR_TYPE_Q8_0, TURNED, POSITIONS>(cache, head, rows, count, pieces, to);
    else
        stage_rows<TENSOR_TYPE_Q4_0, TURNED, POSITIONS>(cache, head, rows, count, pieces, to);
}

/* The queries, (values, ROWS), with zeros behind their end. */
template <int ROWS>
static __device__ __forceinline__ void stage_query(const attend_part &p, const tile_cut &cut,
                                                   const tile_job &job)
{
    const uint32_t row = threadIdx.x % ROWS, dim = p.k.dim, token = row / job.heads;
    const float *from =
        p.attend.query +
        ((uint64_t)(job.first + token) * p.attend.heads + job.head + row % job.heads) * dim;

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

/* Where a row's score of a position lies in (positions, rows): fours of rows are in another order
 * for each four positions, which spreads what a warp stores over the banks. */
static __device__ __forceinline__ uint32_t score_at(uint32_t position, uint32_t row, uint32_t rows)
{
    return position * rows + (row ^ (position / 4 % 8 * 4));
}

/* The chains of RT rows and PT positions of a thread. A warp has 4 x 8 threads, the block WR x
 * 16 / WR warps; fours of rows are 16 apart, those of positions 32. Two positions: pairs. */
template <int RT, int PT, int WR> struct tile_chains {
    enum { ROWS = RT * 4 * WR, POSITIONS = PT * 8 * (THREADS / 32 / WR) };
    float at[RT][PT];

    static __device__ __forceinline__ uint32_t row(int r)
    {
        return threadIdx.x / 32 % WR * RT * 4 + r / 4 * 16 + threadIdx.x % 32 / 8 * 4 + r % 4;
    }

    static __device__ __forceinline__ uint32_t position(int n)
    {
        if (PT == 2)
            return threadIdx.x / 32 / WR * 16 + threadIdx.x % 8 * 2 + n;
        return threadIdx.x / 32 / WR * PT * 8 + n / 4 * 32 + threadIdx.x % 8 * 4 + n % 4;
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
            for (int n = 0; n < PT; n += 4) {
                const float *from = k + piece * 8 * POSITIONS + (position(n) ^ (piece % 8 * 4));

                if (PT == 2)
                    *(float2 *)&v[n] = *(const float2 *)from;
                else
                    *(float4 *)&v[n] = *(const float4 *)from;
            }
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
                *(float4 *)(to + score_at(position(n), row(r), ROWS)) =
                    make_float4(at[r][n], at[r + 1][n], at[r + 2][n], at[r + 3][n]);
    }

    __device__ __forceinline__ void add_stored(const float *from)
    {
#pragma unroll
        for (int n = 0; n < PT; n++)
#pragma unroll
            for (int r = 0; r < RT; r += 4) {
                const float4 four = *(const float4 *)(from + score_at(position(n), row(r), ROWS));

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

/* Lanes are added as arith_dot8() does; what is not needed yet waits among the scores. */
template <int RT, int PT, int WR>
static __device__ __forceinline__ void scores_of(const float *query, const float *k,
                                                 uint32_t pieces, float scale, float *scores)
{
    tile_chains<RT, PT, WR> a, b;

    a.lane_of(query, k, pieces, 0);
    b.lane_of(query, k, pieces, 4);
    a.add(b);
    a.store(scores);
    a.lane_of(query, k, pieces, 2);
    b.lane_of(query, k, pieces, 6);
    a.add(b);
    a.add_stored(scores);
    a.store(scores);
    a.lane_of(query, k, pieces, 1);
    b.lane_of(query, k, pieces, 5);
    a.add(b);
    b.lane_of(query, k, pieces, 3);
    {
        tile_chains<RT, PT, WR> c;

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
            maximum = fmaxf(maximum, job.scores[score_at(j, r, ROWS)]);
    partial[threadIdx.x] = maximum;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / ROWS; i++)
        maximum = fmaxf(maximum, partial[i * ROWS + r]);
    if (part == 0)
        maxima[r] = maximum;
    for (int32_t j = part; j < CHUNK; j += 4 * (THREADS / ROWS)) {
        float four[4];

#pragma unroll
        for (int u = 0; u < 4; u++)
            four[u] = job.scores[score_at(j + u * (THREADS / ROWS), r, ROWS)];
#pragma unroll
        for (int u = 0; u < 4; u++)
            four[u] = arith_exp(four[u] - maximum);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int32_t at = j + u * (THREADS / ROWS);

            job.scores[score_at(at, r, ROWS)] =
                at >= from && at < to ? four[u] : arith_float(NO_WEIGHT);
        }
    }
}

/* The last threads: one a row. */
template <int ROWS>
static __device__ __forceinline__ void sum_weights(const tile_job &job, float *sums)
{
    const uint32_t r = threadIdx.x - (THREADS - ROWS);
    float sum = 0.0f;

    if (threadIdx.x < THREADS - ROWS)
        return;
#pragma unroll 8
    for (uint32_t j = 0; j < job.positions; j++)
        sum += job.scores[score_at(j, r, ROWS)];
    sums[r] = sum;
}

/* ---- values ---- */

/* Four rows from `row` on and four values of a thread: positions `first` to `first` + `count`,
 * those of `v` from 0 on. SOME: rows leave positions out. */
template <int ROWS, bool SOME>
static __device__ __forceinline__ void add_values(const float *scores, uint32_t first,
                                                  uint32_t count, uint32_t row, const float *v,
                                                  uint32_t stride, float (*values)[4])
{
#pragma unroll 8
    for (uint32_t j = 0; j < count; j++) {
        const float4 weights = *(const float4 *)(scores + score_at(first + j, row, ROWS));
        const float4 four = *(const float4 *)(v + j * stride);
        const float w[4] = {weights.x, weights.y, weights.z, weights.w};

#pragma unroll
        for (int r = 0; r < 4; r++)
            if (!SOME || arith_bits(w[r]) != NO_WEIGHT) {
                values[r][0] = fmaf(w[r], four.x, values[r][0]);
                values[r][1] = fmaf(w[r], four.y, values[r][1]);
                values[r][2] = fmaf(w[r], four.z, values[r][2]);
                values[r][3] = fmaf(w[r], four.w, values[r][3]);
            }
    }
}

/* Values of all rows, left in `staged` as (ROWS, values). ITEMS: fours by fours of a thread. */
template <int ROWS, int POSITIONS, int ITEMS>
static __device__ __forceinline__ void values_of(const attend_part &p, const tile_cut &cut,
                                                 const tile_job &job, const int32_t *listed,
                                                 bool some, float *sums)
{
    const uint32_t stride = cut.pieces_v * 8, fours = cut.pieces_v * 2;
    float values[ITEMS][4][4] = {};

    for (uint32_t j = 0; j < job.positions; j += POSITIONS) {
        const uint32_t left = job.positions - j, count = left < POSITIONS ? left : POSITIONS;

        stage<false, POSITIONS>(p.v, job.kv, listed + j, count, cut.pieces_v, job.staged);
        __syncthreads();
        if (j == 0)
            sum_weights<ROWS>(job, sums);
#pragma unroll
        for (int n = 0; n < ITEMS; n++) {
            const uint32_t item = threadIdx.x + n * THREADS, row = item / fours * 4;
            const float *v = job.staged + item % fours * 4;

            if (row < ROWS && some)
                add_values<ROWS, true>(job.scores, j, count, row, v, stride, values[n]);
            else if (row < ROWS)
                add_values<ROWS, false>(job.scores, j, count, row, v, stride, values[n]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        const uint32_t item = threadIdx.x + n * THREADS, row = item / fours * 4;

        if (row < ROWS)
#pragma unroll
            for (int r = 0; r < 4; r++)
                *(float4 *)(job.staged + (row + r) * stride + item % fours * 4) =
                    make_float4(values[n][r][0], values[n][r][1], values[n][r][2], values[n][r][3]);
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

template <int RT, int PT, int WR>
static __device__ __forceinline__ void tile_chunk(const attend_part &p, const tile_cut &cut,
                                                  tile_job &job, uint32_t from, uint32_t to)
{
    enum { ROWS = RT * 4 * WR, POSITIONS = PT * 8 * (THREADS / 32 / WR) };
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

        stage<true, POSITIONS>(p.k, job.kv, listed + j, count, cut.pieces_k, job.staged);
        __syncthreads();
        if (tile_chains<RT, PT, WR>::position(0) / (PT * 8) * (PT * 8) < count)
            scores_of<RT, PT, WR>(job.query, job.staged, cut.pieces_k, p.attend.scale,
                                  job.scores + j * ROWS);
        __syncthreads();
    }
    weigh<ROWS>(job, rows, maxima);
    __syncthreads();
    values_of<ROWS, POSITIONS, PT == 2 ? 2 : 1>(p, cut, job, listed, some, sums);
    write_rows(p, cut, job, rows, maxima, sums);
    __syncthreads();
}

/* Each warp for itself: the tokens of one sequence from job->first on, at most up to `end`, and the
 * lowest and the highest of their positions. */
static __device__ __forceinline__ void find_run(const struct attend &a, uint32_t end, tile_job *job,
                                                uint32_t *lowest, uint32_t *highest)
{
    const uint32_t sequence = a.tokens[job->first].sequence, lane = threadIdx.x % 32;

    *lowest = UINT32_MAX;
    *highest = 0;
    for (job->count = 0; job->first + job->count < end;) {
        const uint32_t t = job->first + job->count + lane;
        const struct program_token *token = &a.tokens[t < end ? t : job->first];
        const bool other = t >= end || token->sequence != sequence;
        const uint32_t others = __ballot_sync(0xffffffffu, other);
        const uint32_t same = others != 0 ? (uint32_t)__ffs((int)others) - 1 : 32;
        const uint32_t from = lane < same ? attend_first(token, a.window) : UINT32_MAX;

        *lowest = min(*lowest, __reduce_min_sync(0xffffffffu, from));
        *highest =
            max(*highest, __reduce_max_sync(0xffffffffu, lane < same ? token->position : 0u));
        job->count += same;
        if (same < 32)
            return;
    }
}

/* Grid: (chunks, KV heads x parts, tiles of tokens). */
template <int RT, int PT, int WR>
__global__ void __launch_bounds__(THREADS, 1)
    tile_kernel(struct launch_stamp stamp, const __grid_constant__ attend_part p,
                const __grid_constant__ tile_cut cut)
{
    extern __shared__ __align__(16) float shared[];
    const struct attend &a = p.attend;
    const uint32_t group = a.heads / a.kv_heads, kv = blockIdx.y / cut.parts;
    const uint32_t of_group = blockIdx.y % cut.parts * cut.heads;
    const uint32_t first = p.first + blockIdx.z * cut.tokens;
    const uint32_t left = p.first + p.count - first;
    const uint32_t end = first + (left < cut.tokens ? left : cut.tokens);
    tile_job job;

    launch_begin(stamp);
    job.head = kv * group + of_group;
    job.heads = group - of_group < cut.heads ? group - of_group : cut.heads;
    job.kv = a.kv_first + kv;
    job.query = shared;
    job.scores = shared + cut.scores;
    job.staged = shared + cut.staged;
    for (job.first = first; job.first < end; job.first += job.count) {
        uint32_t lowest, highest;

        find_run(a, end, &job, &lowest, &highest);
        job.chunk = lowest / CHUNK + blockIdx.x;
        if (job.chunk > highest / CHUNK)
            continue;
        stage_query<RT * 4 * WR>(p, cut, job);
        for (; job.chunk <= highest / CHUNK; job.chunk += gridDim.x)
            tile_chunk<RT, PT, WR>(p, cut, job, lowest, highest);
    }
}

/* ---- launch ---- */

static uint32_t more(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

template <int RT, int PT, int WR>
static int launch_tiles(const attend_part &p, cudaStream_t stream, struct error *err)
{
    static bool ready[GPUS_MAX];
    const uint32_t rows = RT * 4 * WR, positions = PT * 8 * (THREADS / 32 / WR);
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
        if (attend_allow_shared(tile_kernel<RT, PT, WR>, ATTEND_TILE_BYTES, err) != 0)
            return -1;
        if (gpu < GPUS_MAX)
            ready[gpu] = true;
    }
    launch_overlapping(
        tile_kernel<RT, PT, WR>,
        dim3(p.chunks, p.attend.kv_heads * cut.parts, (p.count + cut.tokens - 1) / cut.tokens),
        THREADS, bytes, stream, p, cut);
    return cuda_launched("attend in tiles", err);
}

int attend_tiles(const attend_part &p, cudaStream_t stream, struct error *err)
{
    const uint32_t dim = more(p.k.dim, p.v.dim);

    return dim <= 128 ? launch_tiles<4, 8, 4>(p, stream, err)
                      : launch_tiles<4, 2, 4>(p, stream, err);
}
