/* Matrix-matrix products with quantised weights by tiles of 64 rows and 64 tokens: 256 threads,
 * each with 4 x 4 outputs whose groups it computes one after the other. */
#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"
#include "cuda/matmul_block.cuh"
#include "cuda/matmul_private.h"

enum { TILE = MATMUL_TILE, THREADS = 256, EACH = 4, STAGE_BLOCKS = 4 };

struct tile_part {
    const uint8_t *weight;
    uint64_t rows, columns, row_bytes;
    uint64_t segment_columns;
    uint32_t group;
    uint32_t tokens, x_divide;
    float limit;
    const int8_t *q;
    const float *scales;
    const int *block_sums;
    const struct program_route *routes;
    bool weighted;
    struct matmul_tiles tiles; /* where there are routes */
    int64_t *sums;
    float *out;
};

struct tile_place {
    uint32_t expert;
    uint32_t first, count; /* tokens, or places in the order */
};

/* Row `i` of the tile in the result. */
__device__ __forceinline__ uint32_t result_row(const tile_part &p, const tile_place &place,
                                               uint32_t i)
{
    uint32_t at = place.first + (i < place.count ? i : place.count - 1);

    return p.routes != nullptr ? p.tiles.order[at] : at;
}

__device__ __forceinline__ bool find_tile(const tile_part &p, tile_place *place)
{
    if (p.routes == nullptr) {
        place->expert = 0;
        place->first = blockIdx.y * TILE;
        place->count = p.tokens - place->first < TILE ? p.tokens - place->first : TILE;
        return true;
    }
    if (blockIdx.y >= *p.tiles.count)
        return false;
    place->expert = p.tiles.list[blockIdx.y].expert;
    place->first = p.tiles.list[blockIdx.y].first;
    place->count = p.tiles.list[blockIdx.y].count;
    return true;
}

struct outputs {
    float acc[EACH][EACH];
    int64_t sums[EACH][EACH];
    float weights[EACH];
};

/* The group ends: its partial sums become fixed-point numbers. */
__device__ __forceinline__ void end_group(const tile_part &p, outputs *o)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            float partial = p.weighted ? o->acc[i][j] * o->weights[j] : o->acc[i][j];

            o->sums[i][j] = arith_fixed_add(o->sums[i][j], arith_to_fixed(partial, p.limit));
            o->acc[i][j] = 0.0f;
        }
}

struct quantised_stage {
    int4 w[STAGE_BLOCKS][2][TILE], x[STAGE_BLOCKS][2][TILE];
    float d[STAGE_BLOCKS][TILE], dmin[STAGE_BLOCKS][TILE], scale[STAGE_BLOCKS][TILE];
    int scale0[STAGE_BLOCKS][TILE], scale1[STAGE_BLOCKS][TILE], min[STAGE_BLOCKS][TILE];
    int sum[STAGE_BLOCKS][TILE];
};

/* A thread brings one block of weights and one of activations. */
template <int TYPE>
__device__ __forceinline__ void load_stage(const tile_part &p, const tile_place &place,
                                           uint64_t row0, uint64_t first_block, uint64_t blocks,
                                           quantised_stage *s)
{
    uint32_t i = threadIdx.x % TILE, b = threadIdx.x / TILE;
    uint64_t block = first_block + b < blocks ? first_block + b : blocks - 1;
    uint64_t row = row0 + i < p.rows ? row0 + i : p.rows - 1;
    uint64_t at = (result_row(p, place, i) / p.x_divide * p.columns) / ARITH_BLOCK + block;
    const int4 *q = (const int4 *)p.q + 2 * at;
    weight_words words;

    load_words<TYPE>(p.weight + (place.expert * p.rows + row) * p.row_bytes, block, &words);
    s->w[b][0][i] = make_int4(words.v[0], words.v[1], words.v[2], words.v[3]);
    s->w[b][1][i] = make_int4(words.v[4], words.v[5], words.v[6], words.v[7]);
    s->d[b][i] = words.d;
    s->scale0[b][i] = words.scale0;
    s->scale1[b][i] = words.scale1;
    if (has_min<TYPE>) {
        s->dmin[b][i] = words.dmin;
        s->min[b][i] = words.min;
        s->sum[b][i] = p.block_sums[at];
    }
    s->x[b][0][i] = q[0];
    s->x[b][1][i] = q[1];
    s->scale[b][i] = p.scales[at];
}

template <int TYPE>
__device__ __forceinline__ void multiply_block(const quantised_stage *s, uint32_t b, uint32_t ty,
                                               uint32_t tx, outputs *o)
{
    int4 low[EACH], high[EACH];
    float scale[EACH];
    int sum[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++) {
        low[j] = s->x[b][0][tx + 16 * j];
        high[j] = s->x[b][1][tx + 16 * j];
        scale[j] = s->scale[b][tx + 16 * j];
        sum[j] = has_min<TYPE> ? s->sum[b][tx + 16 * j] : 0;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint32_t r = ty + 16 * i;
        int4 a = s->w[b][0][r], c = s->w[b][1][r];
        weight_words words = {{a.x, a.y, a.z, a.w, c.x, c.y, c.z, c.w},
                              s->scale0[b][r],
                              s->scale1[b][r],
                              has_min<TYPE> ? s->min[b][r] : 0,
                              s->d[b][r],
                              has_min<TYPE> ? s->dmin[b][r] : 0.0f};

#pragma unroll
        for (int j = 0; j < EACH; j++)
            o->acc[i][j] = words_fma<TYPE>(&words, low[j], high[j], scale[j], sum[j], o->acc[i][j]);
    }
}

template <int TYPE>
__device__ __forceinline__ void multiply_quantised(const tile_part &p, const tile_place &place,
                                                   uint64_t row0, outputs *o)
{
    __shared__ quantised_stage stage;
    uint64_t blocks = p.columns / ARITH_BLOCK, segment_blocks = p.segment_columns / ARITH_BLOCK;
    uint64_t group_blocks = p.group / ARITH_BLOCK;

    for (uint64_t first = 0; first < blocks; first += STAGE_BLOCKS) {
        load_stage<TYPE>(p, place, row0, first, blocks, &stage);
        __syncthreads();
        for (uint32_t b = 0; b < STAGE_BLOCKS && first + b < blocks; b++) {
            uint64_t in_segment = (first + b) % segment_blocks + 1;

            multiply_block<TYPE>(&stage, b, threadIdx.x / 16, threadIdx.x % 16, o);
            if (in_segment % group_blocks == 0 || in_segment == segment_blocks)
                end_group(p, o);
        }
        __syncthreads();
    }
}

/* Grid: (rows / TILE, tiles of tokens). */
template <int TYPE>
__global__ void __launch_bounds__(THREADS) tile_kernel(struct launch_stamp stamp, tile_part p)
{
    uint64_t row0 = (uint64_t)blockIdx.x * TILE;
    uint32_t ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    tile_place place;
    outputs o;

    launch_begin(stamp);
    if (!find_tile(p, &place))
        return;
    for (int j = 0; j < EACH; j++) {
        o.weights[j] = p.weighted ? p.routes[result_row(p, place, tx + 16 * j)].weight : 1.0f;
        for (int i = 0; i < EACH; i++) {
            o.acc[i][j] = 0.0f;
            o.sums[i][j] = 0;
        }
    }
    multiply_quantised<TYPE>(p, place, row0, &o);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            uint64_t row = row0 + ty + 16 * i;
            uint64_t at = result_row(p, place, tx + 16 * j) * p.rows + row;

            if (row >= p.rows || tx + 16 * j >= place.count)
                continue;
            if (p.sums != nullptr)
                p.sums[at] = o.sums[i][j];
            else
                p.out[at] = arith_from_fixed(o.sums[i][j]);
        }
}

int matmul_tiles_run(const struct cuda_product *product, const struct matmul_inputs *inputs,
                     cudaStream_t stream, struct error *err)
{
    const struct cuda_weight *weight = product->weight;
    tile_part p = {};

    p.weight = (const uint8_t *)weight->data;
    p.rows = weight->rows;
    p.columns = weight->columns;
    p.row_bytes = weight->row_bytes;
    p.segment_columns = weight->columns / weight->segments;
    p.group = weight->group;
    p.tokens = product->tokens;
    p.x_divide = product->x_divide;
    p.limit = product->limit;
    p.q = inputs->q;
    p.scales = inputs->scales;
    p.block_sums = inputs->block_sums;
    p.routes = product->routes;
    p.weighted = product->weighted;
    p.tiles = inputs->tiles;
    p.sums = product->sums;
    p.out = product->out;

    dim3 grid((unsigned)((p.rows + TILE - 1) / TILE), matmul_tile_count(product));

    FOR_QUANTISED_TYPE(weight->type,
                       (launch_overlapping(tile_kernel<TYPE>, grid, THREADS, 0, stream, p)));
    return cuda_launched("matmul_tiles", err);
}
