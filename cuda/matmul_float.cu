/* Products with F32, F16 and BF16 weights. The groups of an output are chains of fma that meet as
 * fixed-point numbers only, so the warps of a block share a tile of outputs and each takes every
 * so many-th group of it, through stages of its own in shared memory: no barrier but at the end.
 * Small tiles keep all multiprocessors busy where outputs are few, large ones reuse more. */
#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"
#include "cuda/matmul_private.h"

#include <algorithm>

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" {
#include "ref/arith.h"
}

enum {
    WARPS = 8, /* at most: one for each group */
    ROW_LANES = 8,
    TOKEN_LANES = 4,
    ROWS_MAX = 4 * ROW_LANES,
    TOKENS_MAX = 4 * TOKEN_LANES,
    PAD = 16, /* bytes between lines, so that lanes find them in banks of their own */
    SHARED_USUAL = 48 << 10, /* what a launch gets unasked */
    SHARED_MAX = 98 << 10,   /* that every card since Ampere has, less the table of lines */
};

static_assert(MATMUL_TILE % TOKENS_MAX == 0, "tiles of an expert are cut into whole ones");

struct float_part {
    const uint8_t *weight;
    uint64_t rows, row_bytes;
    uint32_t columns, segment_columns, segment_groups;
    uint32_t group, groups;
    uint32_t tokens, x_divide;
    float limit;
    bool aligned; /* 16 bytes of weights or activations are in one group and aligned */
    bool weighted;
    const float *x;
    const struct program_route *routes;
    struct matmul_tiles tiles; /* where rows of a result are sorted by expert */
    uint32_t tile_rows, tile_tokens;
    int64_t *sums;
    float *out;
};

/* ---- which outputs ---- */

struct float_place {
    uint32_t expert;
    uint32_t first, count; /* tokens, or places in the order */
};

/* False: none. */
__device__ __forceinline__ bool find_place(const float_part &p, float_place *place)
{
    place->expert = 0;
    place->first = blockIdx.y * p.tile_tokens;
    place->count = min(p.tokens - place->first, p.tile_tokens);
    if (p.tiles.list != nullptr) {
        const uint32_t parts = MATMUL_TILE / p.tile_tokens;
        const uint32_t first = blockIdx.y % parts * p.tile_tokens;
        struct matmul_tile tile;

        if (blockIdx.y / parts >= *p.tiles.count)
            return false;
        tile = p.tiles.list[blockIdx.y / parts];
        if (first >= tile.count)
            return false;
        place->expert = tile.expert;
        place->first = tile.first + first;
        place->count = min(tile.count - first, p.tile_tokens);
    } else if (p.routes != nullptr) {
        place->expert = p.routes[place->first].expert;
    }
    return true;
}

/* Row of the result of token `i` of a tile; the last one's beyond. */
__device__ __forceinline__ uint32_t result_row(const float_part &p, const float_place &place,
                                               uint32_t i)
{
    uint32_t at = place.first + min(i, place.count - 1);

    return p.tiles.order != nullptr ? p.tiles.order[at] : at;
}

/* ---- which columns ---- */

/* Where a warp is: columns `at` and on of a group that ends before `end`. */
struct cursor {
    uint32_t group, at, end;
};

__device__ __forceinline__ void start_group(const float_part &p, uint32_t group, cursor *c)
{
    const uint32_t segment = group / p.segment_groups;

    c->group = group;
    c->at = segment * p.segment_columns + group % p.segment_groups * p.group;
    c->end = min(c->at + p.group, (segment + 1) * p.segment_columns);
}

__device__ __forceinline__ void advance(const float_part &p, uint32_t columns, cursor *c)
{
    c->at += columns;
    if (c->at < c->end)
        return;
    if (c->group + blockDim.x / 32 < p.groups)
        start_group(p, c->group + blockDim.x / 32, c);
    else
        c->group = p.groups;
}

/* ---- stages ---- */

template <int TYPE> struct weight_value {
    typedef uint16_t bits;
};
template <> struct weight_value<TENSOR_TYPE_F32> {
    typedef uint32_t bits;
};

template <int COLUMNS, typename Bits> constexpr uint32_t line_bytes = COLUMNS * sizeof(Bits) + PAD;

/* Begins to copy up to COLUMNS values of each of `count` lines into a stage, all lanes together.
 * Values that are not aligned are stored at once, and zeros behind the last: they change no sum
 * but the sign of a zero, which no fixed-point number has. */
template <int COLUMNS, typename Bits>
__device__ __forceinline__ void load_lines(const uint8_t *const *lines, uint32_t count,
                                           const cursor &c, bool aligned, uint8_t *stage)
{
    constexpr uint32_t LINE = line_bytes<COLUMNS, Bits>, EACH = 16 / sizeof(Bits);
    constexpr uint32_t PIECES = COLUMNS / EACH;
    const uint32_t left = c.end - c.at, lane = threadIdx.x % 32;

    if (aligned) {
        for (uint32_t i = lane; i < count * PIECES; i += 32) {
            const uint32_t line = i / PIECES, column = i % PIECES * EACH;

            if (column < left)
                __pipeline_memcpy_async(stage + line * LINE + column * sizeof(Bits),
                                        (const Bits *)lines[line] + c.at + column, 16);
        }
        return;
    }
    for (uint32_t i = lane; i < count * COLUMNS; i += 32) {
        const uint32_t line = i / COLUMNS, column = i % COLUMNS;

        ((Bits *)(stage + line * LINE))[column] =
            column < left ? ((const Bits *)lines[line])[c.at + column] : (Bits)0;
    }
}

/* Weights `column` to `column` + 3 of a line. A NaN may have other bits than arith_load() gives:
 * it ends as a flag. */
template <int TYPE> __device__ __forceinline__ float4 read_weights(const uint8_t *line, int column)
{
    if constexpr (TYPE == TENSOR_TYPE_F32) {
        return *(const float4 *)(line + 4 * column);
    } else {
        const uint2 both = *(const uint2 *)(line + 2 * column);

        if constexpr (TYPE == TENSOR_TYPE_F16) {
            const float2 low = __half22float2(*(const __half2 *)&both.x);
            const float2 high = __half22float2(*(const __half2 *)&both.y);

            return make_float4(low.x, low.y, high.x, high.y);
        } else {
            return make_float4(__uint_as_float(both.x << 16), __uint_as_float(both.x & 0xffff0000u),
                               __uint_as_float(both.y << 16),
                               __uint_as_float(both.y & 0xffff0000u));
        }
    }
}

/* Four columns of the lane's lines. */
template <int TYPE, int R, int T>
__device__ __forceinline__ void multiply(const uint8_t *stage, const uint32_t (&row_at)[R],
                                         const uint32_t (&token_at)[T], int column,
                                         float (&acc)[R][T])
{
    float4 w[R], x[T];

#pragma unroll
    for (int i = 0; i < R; i++)
        w[i] = read_weights<TYPE>(stage + row_at[i], column);
#pragma unroll
    for (int j = 0; j < T; j++)
        x[j] = *(const float4 *)(stage + token_at[j] + 4 * column);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < T; j++) {
            acc[i][j] = fmaf(w[i].x, x[j].x, acc[i][j]);
            acc[i][j] = fmaf(w[i].y, x[j].y, acc[i][j]);
            acc[i][j] = fmaf(w[i].z, x[j].z, acc[i][j]);
            acc[i][j] = fmaf(w[i].w, x[j].w, acc[i][j]);
        }
}

/* ---- the kernel ---- */

/* The sums of all warps' groups, once no warp needs its stages. */
template <int R, int T>
__device__ __forceinline__ void store_outputs(const float_part &p, const float_place &place,
                                              uint64_t row0, const int64_t (&sums)[R][T],
                                              int64_t *shared)
{
    constexpr uint32_t OUTPUTS = R * T * 32;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    __syncthreads();
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < T; j++)
            shared[warp * OUTPUTS + (i * T + j) * 32 + lane] = sums[i][j];
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < OUTPUTS; k += blockDim.x) {
        const uint32_t row = k % ROW_LANES + k / 32 / T * ROW_LANES;
        const uint32_t token = k % 32 / ROW_LANES + k / 32 % T * TOKEN_LANES;
        int64_t sum = 0;

        if (row >= p.tile_rows || row0 + row >= p.rows || token >= place.count)
            continue;
        for (uint32_t w = 0; w < blockDim.x / 32; w++)
            sum = arith_fixed_add(sum, shared[w * OUTPUTS + k]);

        const uint64_t at = result_row(p, place, token) * p.rows + row0 + row;

        if (p.sums != nullptr)
            p.sums[at] = sum;
        else
            p.out[at] = arith_from_fixed(sum);
    }
}

/* Grid: (rows / tile_rows, tiles of tokens). A lane has R x T outputs of its warp's tile, of which
 * rows and tokens beyond tile_rows and tile_tokens repeat the last; a warp loads COLUMNS of each
 * line at a time, STAGES - 1 times ahead. */
template <int TYPE, int R, int T, int COLUMNS, int STAGES>
__global__ void __launch_bounds__(WARPS * 32, 2)
    float_kernel(struct launch_stamp stamp, const __grid_constant__ float_part p)
{
    typedef typename weight_value<TYPE>::bits bits;
    constexpr uint32_t ROW_LINE = line_bytes<COLUMNS, bits>;
    constexpr uint32_t TOKEN_LINE = line_bytes<COLUMNS, uint32_t>;
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ const uint8_t *lines[ROWS_MAX + TOKENS_MAX];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t tokens_from = p.tile_rows * ROW_LINE;
    const uint32_t stage_bytes = tokens_from + p.tile_tokens * TOKEN_LINE;
    const uint64_t row0 = (uint64_t)blockIdx.x * p.tile_rows;
    uint8_t *stages = shared + warp * STAGES * stage_bytes;
    uint32_t row_at[R], token_at[T], slot = 0;
    cursor ahead, now;
    float_place place;
    float acc[R][T], factors[T];
    int64_t sums[R][T];

    launch_next();
    if (p.routes != nullptr)
        launch_wait(stamp);
    if (!find_place(p, &place))
        return;
    for (uint32_t i = threadIdx.x; i < p.tile_rows + p.tile_tokens; i += blockDim.x)
        lines[i] =
            i < p.tile_rows
                ? p.weight + (place.expert * p.rows + min(row0 + i, p.rows - 1)) * p.row_bytes
                : (const uint8_t *)(p.x +
                                    (uint64_t)(result_row(p, place, i - p.tile_rows) / p.x_divide) *
                                        p.columns);
    __syncthreads();
    start_group(p, warp, &now);
    ahead = now;
    for (int s = 0; s < STAGES - 1 && ahead.group < p.groups; s++) {
        load_lines<COLUMNS, bits>(lines, p.tile_rows, ahead, p.aligned, stages + s * stage_bytes);
        advance(p, COLUMNS, &ahead);
    }
    if (p.routes == nullptr) /* no kernel before makes weights */
        launch_wait(stamp);
    ahead = now;
    for (int s = 0; s < STAGES - 1; s++) {
        if (ahead.group < p.groups) {
            load_lines<COLUMNS, uint32_t>(lines + p.tile_rows, p.tile_tokens, ahead, p.aligned,
                                          stages + s * stage_bytes + tokens_from);
            advance(p, COLUMNS, &ahead);
        }
        __pipeline_commit();
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        row_at[i] = min(lane % ROW_LANES + i * ROW_LANES, p.tile_rows - 1) * ROW_LINE;
#pragma unroll
    for (int j = 0; j < T; j++) {
        const uint32_t token = min(lane / ROW_LANES + j * TOKEN_LANES, p.tile_tokens - 1);

        token_at[j] = tokens_from + token * TOKEN_LINE;
        factors[j] = p.weighted ? p.routes[result_row(p, place, token)].weight : 1.0f;
#pragma unroll
        for (int i = 0; i < R; i++) {
            acc[i][j] = 0.0f;
            sums[i][j] = 0;
        }
    }
    while (now.group < p.groups) {
        const uint8_t *stage = stages + slot * stage_bytes;
        const uint32_t left = now.end - now.at;

        __pipeline_wait_prior(STAGES - 2);
        __syncwarp();
        if (ahead.group < p.groups) { /* into the stage that was multiplied before this one */
            uint8_t *next = stages + (slot == 0 ? STAGES - 1 : slot - 1) * stage_bytes;

            load_lines<COLUMNS, bits>(lines, p.tile_rows, ahead, p.aligned, next);
            load_lines<COLUMNS, uint32_t>(lines + p.tile_rows, p.tile_tokens, ahead, p.aligned,
                                          next + tokens_from);
            advance(p, COLUMNS, &ahead);
        }
        __pipeline_commit();
        if (left >= COLUMNS) {
#pragma unroll
            for (int column = 0; column < COLUMNS; column += 4)
                multiply<TYPE, R, T>(stage, row_at, token_at, column, acc);
        } else {
            for (int column = 0; column < (int)left; column += 4)
                multiply<TYPE, R, T>(stage, row_at, token_at, column, acc);
        }
        if (left <= COLUMNS) { /* the group ends */
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < T; j++) {
                    sums[i][j] = arith_fixed_add(sums[i][j],
                                                 arith_to_fixed(acc[i][j] * factors[j], p.limit));
                    acc[i][j] = 0.0f;
                }
        }
        advance(p, COLUMNS, &now);
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    store_outputs<R, T>(p, place, row0, sums, (int64_t *)shared);
}

/* ---- launches ---- */

template <int TYPE, int R, int T, int COLUMNS, int STAGES>
static int launch_tiles(const float_part &p, dim3 grid, cudaStream_t stream, struct error *err)
{
    typedef typename weight_value<TYPE>::bits bits;
    constexpr uint32_t ROW_LINE = line_bytes<COLUMNS, bits>;
    constexpr uint32_t TOKEN_LINE = line_bytes<COLUMNS, uint32_t>;
    const uint32_t warps = std::min<uint32_t>(p.groups, WARPS);
    const uint32_t stage_bytes = p.tile_rows * ROW_LINE + p.tile_tokens * TOKEN_LINE;
    const size_t shared_bytes =
        warps * std::max<size_t>(STAGES * stage_bytes, R * T * 32 * sizeof(int64_t));

    if (shared_bytes > SHARED_USUAL &&
        cuda_check(cudaFuncSetAttribute(float_kernel<TYPE, R, T, COLUMNS, STAGES>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MAX),
                   "matmul_float", err) != 0)
        return -1;
    launch_overlapping(float_kernel<TYPE, R, T, COLUMNS, STAGES>, grid, warps * 32, shared_bytes,
                       stream, p);
    return cuda_launched("matmul_float", err);
}

/* Few columns at a time where lines are many: stages fill at most SHARED_MAX, and those of the
 * smallest tiles hold a whole group of 256. */
template <int TYPE>
static int launch_type(const float_part &p, dim3 grid, cudaStream_t stream, struct error *err)
{
    constexpr int NARROW = TYPE == TENSOR_TYPE_F32 ? 16 : 32; /* sectors of 32 bytes, in pairs */

    if (p.tile_rows + p.tile_tokens <= 8 && p.tile_tokens <= TOKEN_LANES)
        return launch_tiles<TYPE, 1, 1, 64, 5>(p, grid, stream, err);
    if (p.tile_rows <= 8 && p.tile_tokens <= 8)
        return launch_tiles<TYPE, 1, 2, 32, 4>(p, grid, stream, err);
    if (p.tile_tokens <= 4)
        return launch_tiles<TYPE, 4, 1, NARROW, 4>(p, grid, stream, err);
    if (p.tile_rows <= 16 && p.tile_tokens <= 8)
        return launch_tiles<TYPE, 2, 2, 32, 3>(p, grid, stream, err);
    return launch_tiles<TYPE, 4, 4, 16, 3>(p, grid, stream, err);
}

/* The smallest tile of which every multiprocessor has one at most, or the largest. */
static int choose_tile(float_part *p, uint32_t tokens_max, struct error *err)
{
    int device, sms;

    if (cuda_check(cudaGetDevice(&device), "cudaGetDevice", err) != 0 ||
        cuda_check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
                   "cudaDeviceGetAttribute", err) != 0)
        return -1;
    p->tile_rows = p->tile_tokens = 1;
    while ((p->rows + p->tile_rows - 1) / p->tile_rows *
               ((p->tokens + p->tile_tokens - 1) / p->tile_tokens) >
           (uint64_t)sms) {
        const bool more_rows = p->tile_rows < ROWS_MAX && p->tile_rows < p->rows;
        const bool more_tokens = p->tile_tokens < tokens_max && p->tile_tokens < p->tokens;

        if (!more_rows && !more_tokens)
            break;
        if (more_rows && (!more_tokens || p->tile_rows <= p->tile_tokens))
            p->tile_rows *= 2;
        else
            p->tile_tokens *= 2;
    }
    return 0;
}

int matmul_float(const struct cuda_product *product, const struct matmul_inputs *inputs,
                 cudaStream_t stream, struct error *err)
{
    const struct cuda_weight *weight = product->weight;
    const uint32_t whole = 16 / arith_type_bytes(weight->type); /* values of 16 bytes */
    const bool one_by_one = product->routes != nullptr && inputs->tiles.list == nullptr;
    float_part p = {};

    p.weight = (const uint8_t *)weight->data;
    p.rows = weight->rows;
    p.row_bytes = weight->row_bytes;
    p.columns = (uint32_t)weight->columns;
    p.segment_columns = p.columns / weight->segments;
    p.group = weight->group;
    p.segment_groups = (p.segment_columns + p.group - 1) / p.group;
    p.groups = p.segment_groups * weight->segments;
    p.tokens = product->tokens;
    p.x_divide = product->x_divide;
    p.limit = product->limit;
    p.aligned = p.row_bytes % 16 == 0 && p.segment_columns % whole == 0 && p.group % whole == 0 &&
                (uintptr_t)product->x % 16 == 0;
    p.weighted = product->weighted;
    p.x = product->x;
    p.routes = product->routes;
    p.tiles = inputs->tiles;
    p.sums = product->sums;
    p.out = product->out;
    if (choose_tile(&p, one_by_one ? 1 : TOKENS_MAX, err) != 0)
        return -1;

    const uint32_t tiles = p.tiles.list != nullptr
                               ? matmul_tile_count(product) * (MATMUL_TILE / p.tile_tokens)
                               : (p.tokens + p.tile_tokens - 1) / p.tile_tokens;
    const dim3 grid((unsigned)((p.rows + p.tile_rows - 1) / p.tile_rows), tiles);

    if (weight->type == TENSOR_TYPE_F32)
        return launch_type<TENSOR_TYPE_F32>(p, grid, stream, err);
    if (weight->type == TENSOR_TYPE_F16)
        return launch_type<TENSOR_TYPE_F16>(p, grid, stream, err);
    return launch_type<TENSOR_TYPE_BF16>(p, grid, stream, err);
}
