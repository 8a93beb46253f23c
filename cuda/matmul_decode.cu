/* Products of 1 to 8 tokens: every byte of the weight passes once through shared memory.
 *
 * A unit is 64 rows x one group. Units, columns first, are dealt evenly to the blocks, and a
 * block's share to its pairs of warps; a thread runs the fp32 chain of one row for every token.
 * Two lanes for each pair feed its part of the block's ring with bulk copies, a window each: one
 * brings weights, the other activations. A pair adds its sums of a row tile to the workspace;
 * whoever completes the tile writes the result and clears the workspace. */
#include "cuda/launch.cuh"
#include "cuda/matmul_fast.h"

#include "ref/arith.h"

#define PAIRS_MAX 8
#define STAGES_MAX 40
#define AT_ONCE 1

/* A weight whose row tiles follow those of the parts before. */
struct decode_part {
    const uint8_t *packed;
    uint64_t rows;
    uint32_t tile_first, tile_end;
    struct matmul_fast_output output;
};

struct decode {
    struct decode_part parts[MATMUL_FAST_PARTS];
    uint32_t part_count;
    const uint8_t *activations; /* (windows) records */
    const float *token_scales;  /* or NULL */
    uint32_t tokens;
    uint32_t groups, group_windows, row_tiles;
    float limit;
    /* workspace */
    unsigned long long *total; /* (tokens, rows padded to tiles) */
    uint32_t *flagged;         /* (rows padded): a bit for each token */
    uint32_t *counted;         /* (row tiles): groups added */
};

static __host__ __device__ constexpr bool has_min(int type)
{
    return type == TENSOR_TYPE_Q4_K || type == TENSOR_TYPE_Q5_K;
}

/* First unit of a share of `units` dealt to `shares`. */
static __device__ __forceinline__ uint32_t share_begin(uint32_t units, uint32_t share,
                                                       uint32_t shares)
{
    return (uint32_t)((uint64_t)units * share / shares);
}

static __device__ __forceinline__ const struct decode_part &part_of(const struct decode &decode,
                                                                    uint32_t tile)
{
    uint32_t p = 0;

    while (p + 1 < decode.part_count && tile >= decode.parts[p].tile_end)
        p++;
    return decode.parts[p];
}

/* Where the tiles of units from `unit` on lie: one after another until a part ends. */
struct weight_walk {
    const uint8_t *at;
    uint32_t left; /* windows up to the part's end */
    uint32_t part;
};

static __device__ __forceinline__ struct weight_walk walk_from(const struct decode &decode,
                                                               uint32_t unit, uint32_t tile_bytes)
{
    const uint32_t windows = decode.groups * decode.group_windows, tile = unit / decode.groups;
    const struct decode_part &part = part_of(decode, tile);
    const uint32_t begin = (unit - part.tile_first * decode.groups) * decode.group_windows;
    struct weight_walk walk;

    walk.at = part.packed + (uint64_t)begin * tile_bytes;
    walk.left = (part.tile_end - part.tile_first) * windows - begin;
    walk.part = (uint32_t)(&part - decode.parts);
    return walk;
}

static __device__ __forceinline__ void walk_on(const struct decode &decode,
                                               struct weight_walk *walk, uint32_t tile_bytes)
{
    walk->at += tile_bytes;
    if (--walk->left > 0 || walk->part + 1 == decode.part_count)
        return;
    walk->part++;
    walk->at = decode.parts[walk->part].packed;
    walk->left = (decode.parts[walk->part].tile_end - decode.parts[walk->part].tile_first) *
                 decode.groups * decode.group_windows;
}

/* One window of a row: 4 steps of the chains. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void window_fma(const uint8_t *tile, const uint8_t *q,
                                                  const float *scales, const float *sums,
                                                  uint32_t r, float *acc)
{
    const struct matmul_fast_row_scales row =
        matmul_fast_load_scales<TYPE>(tile + matmul_fast_scales_at((enum tensor_type)TYPE), r);
    uint4 upper[2];

    if (TYPE == TENSOR_TYPE_Q5_K || TYPE == TENSOR_TYPE_Q6_K)
        upper[0] = *(const uint4 *)(tile + MATMUL_FAST_NIBBLES + r * 16);
    if (TYPE == TENSOR_TYPE_Q6_K)
        upper[1] = *(const uint4 *)(tile + MATMUL_FAST_NIBBLES + 1024 + r * 16);

#pragma unroll
    for (int b = 0; b < 4; b++) {
        struct matmul_fast_words w;

        if (TYPE == TENSOR_TYPE_Q8_0) {
            uint4 first = *(const uint4 *)(tile + r * 128 + ((2 * b) ^ (r & 7)) * 16);
            uint4 second = *(const uint4 *)(tile + r * 128 + ((2 * b + 1) ^ (r & 7)) * 16);

            w = {{first.x, first.y, first.z, first.w}, {second.x, second.y, second.z, second.w}};
        } else {
            uint4 nibbles = *(const uint4 *)(tile + b * 1024 + r * 16);
            uint32_t u0 = 0, u1 = 0;

            if (TYPE == TENSOR_TYPE_Q5_K)
                u0 = b == 0 ? upper[0].x : b == 1 ? upper[0].y : b == 2 ? upper[0].z : upper[0].w;
            if (TYPE == TENSOR_TYPE_Q6_K) {
                u0 = b % 2 == 0 ? upper[b / 2].x : upper[b / 2].z;
                u1 = b % 2 == 0 ? upper[b / 2].y : upper[b / 2].w;
            }
            w = matmul_fast_unpack<TYPE>(nibbles, u0, u1);
        }

        const float d = matmul_fast_d<TYPE>(row, b);

#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            uint4 first = *(const uint4 *)(q + t * 128 + ((2 * b) ^ t) * 16);
            uint4 second = *(const uint4 *)(q + t * 128 + ((2 * b + 1) ^ t) * 16);
            const float a = scales[b * 8 + t];
            int32_t low = 0, high = 0, isum;

            low = __dp4a((int)w.low[0], (int)first.x, low);
            high = __dp4a((int)w.high[0], (int)second.x, high);
            low = __dp4a((int)w.low[1], (int)first.y, low);
            high = __dp4a((int)w.high[1], (int)second.y, high);
            low = __dp4a((int)w.low[2], (int)first.z, low);
            high = __dp4a((int)w.high[2], (int)second.z, high);
            low = __dp4a((int)w.low[3], (int)first.w, low);
            high = __dp4a((int)w.high[3], (int)second.w, high);
            if (TYPE == TENSOR_TYPE_Q6_K)
                isum = matmul_fast_sub<TYPE>(row, b, 0) * low +
                       matmul_fast_sub<TYPE>(row, b, 1) * high;
            else if (has_min(TYPE))
                isum = matmul_fast_sub<TYPE>(row, b, 0) * (low + high);
            else
                isum = low + high;
            acc[t] = fmaf((float)isum, d * a, acc[t]);
            if (has_min(TYPE))
                acc[t] = fmaf((float)matmul_fast_min(row, b) * sums[b * 8 + t],
                              -(matmul_fast_dmin(row) * a), acc[t]);
        }
    }
}

/* `row` is counted over all parts' tiles. */
static __device__ __forceinline__ void store(const struct decode &decode, int t, uint64_t row,
                                             int64_t sum)
{
    const struct decode_part &part = part_of(decode, (uint32_t)(row / MATMUL_FAST_ROWS));
    const uint64_t own = row - (uint64_t)part.tile_first * MATMUL_FAST_ROWS;
    const uint64_t at = t * part.output.stride + own;

    if (own >= part.rows)
        return;
    if (part.output.f32 != NULL)
        part.output.f32[at] = arith_from_fixed(sum);
    else
        part.output.sums[at] = sum;
}

/* Which pair of all blocks has a unit; none is without units where this is asked. */
static __device__ __forceinline__ uint32_t pair_of(uint32_t units, uint32_t unit, uint32_t pairs)
{
    const uint32_t blocks = gridDim.x;
    const uint32_t block = (uint32_t)((((uint64_t)unit + 1) * blocks + units - 1) / units) - 1;
    const uint32_t begin = share_begin(units, block, blocks);
    const uint32_t count = share_begin(units, block + 1, blocks) - begin;

    return block * pairs + ((unit - begin + 1) * pairs + count - 1) / count - 1;
}

/* How many pairs add to a row tile, where that many fit the count in its sums; else 0. */
static __device__ __forceinline__ uint32_t adders_of(const struct decode &decode, uint32_t tile,
                                                     uint32_t pairs)
{
    const uint32_t units = decode.row_tiles * decode.groups, first = tile * decode.groups;
    uint32_t adders;

    if (units < gridDim.x * pairs)
        return 0;
    adders = pair_of(units, first + decode.groups - 1, pairs) - pair_of(units, first, pairs) + 1;
    return adders <= 15 ? adders : 0;
}

/* Adds a thread's sums of its row to the workspace; whoever comes last writes the output.
 *
 * Sums are below 2^59 in magnitude, so the 4 bits from 60 on count who has added. Of up to 7
 * adders 3 bits do, and the first one that is flagged sets the fourth. */
template <int TOKENS>
static __device__ __forceinline__ void flush_packed(const struct decode &decode, uint32_t adders,
                                                    const int64_t *total, uint32_t flagged,
                                                    uint64_t row)
{
    const uint64_t padded = (uint64_t)decode.row_tiles * MATMUL_FAST_ROWS;
    const bool carried = adders <= 7;
    uint32_t first = 0;
    uint64_t before[TOKENS];

    if (adders == 1) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            if (t < (int)decode.tokens)
                store(decode, t, row, flagged >> t & 1 ? ARITH_FLAG : total[t]);
        return;
    }
    if (flagged != 0) {
        first = flagged & ~atomicOr(decode.flagged + row, flagged);
        __threadfence();
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (t < (int)decode.tokens)
            before[t] = atomicAdd(decode.total + t * padded + row,
                                  (uint64_t)total[t] +
                                      ((uint64_t)(carried && first >> t & 1 ? 9 : 1) << 60));
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (t < (int)decode.tokens) {
            const uint32_t field = (uint32_t)((before[t] + (UINT64_C(1) << 59)) >> 60);
            bool is_flagged = flagged >> t & 1;

            if ((carried ? field & 7 : field) != adders - 1)
                continue;
            if (carried) {
                is_flagged |= field >> 3 & 1;
            } else {
                __threadfence();
                is_flagged |= __ldcg(decode.flagged + row) >> t & 1;
            }
            decode.total[t * padded + row] = 0;
            if (is_flagged)
                atomicAnd(decode.flagged + row, ~(1u << t));
            store(decode, t, row,
                  is_flagged ? ARITH_FLAG
                             : (int64_t)(before[t] - ((uint64_t)field << 60)) + total[t]);
        }
}

/* The same for any number of adders: groups are counted, and whoever completes the tile reads
 * its sums again. */
template <int TOKENS>
static __device__ __forceinline__ void
flush_counted(const struct decode &decode, uint32_t tile, uint32_t groups, const int64_t *total,
              uint32_t flagged, uint32_t pair, uint32_t r, volatile uint32_t *last)
{
    const uint64_t padded = (uint64_t)decode.row_tiles * MATMUL_FAST_ROWS;
    const uint64_t row = (uint64_t)tile * MATMUL_FAST_ROWS + r;

#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (t < (int)decode.tokens)
            atomicAdd(decode.total + t * padded + row, (unsigned long long)total[t]);
    if (flagged != 0)
        atomicOr(decode.flagged + row, flagged);
    __threadfence();
    named_barrier(1 + (int)pair, 64);
    if (r == 0)
        *last = atomicAdd(decode.counted + tile, groups) + groups == decode.groups;
    named_barrier(1 + (int)pair, 64);
    if (*last == 0)
        return;
    __threadfence();
    flagged = __ldcg(decode.flagged + row);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (t < (int)decode.tokens) {
            int64_t sum = (int64_t)__ldcg(decode.total + t * padded + row);

            decode.total[t * padded + row] = 0;
            store(decode, t, row, flagged >> t & 1 ? ARITH_FLAG : sum);
        }
    if (flagged != 0)
        decode.flagged[row] = 0;
    if (r == 0)
        decode.counted[tile] = 0;
}

/* Adds the partial sums of a group to a thread's sums. */
template <int TOKENS>
static __device__ __forceinline__ void convert(const struct decode &decode, const float *acc,
                                               const float *token_scales, int64_t *total,
                                               uint32_t *flagged)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        /* 2^30 is in the activation scales */
        float partial = decode.token_scales != NULL ? acc[t] * token_scales[t] : acc[t];

        if (arith_abs(partial) < decode.limit)
            total[t] += __float2ll_rn(partial);
        else
            *flagged |= 1u << t;
    }
}

/* Hands on a thread's sums of `groups` groups and clears them. */
template <int TOKENS>
static __device__ __forceinline__ void
flush(const struct decode &decode, uint32_t tile, uint32_t adders, uint32_t groups, int64_t *total,
      uint32_t *flagged, uint32_t pair, uint32_t r, volatile uint32_t *last)
{
    /* tokens of padding meet infinite scales, too */
    const uint32_t of_tokens = *flagged & ((1u << decode.tokens) - 1);

    if (adders != 0)
        flush_packed<TOKENS>(decode, adders, total, of_tokens,
                             (uint64_t)tile * MATMUL_FAST_ROWS + r);
    else
        flush_counted<TOKENS>(decode, tile, groups, total, of_tokens, pair, r, last);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        total[t] = 0;
    *flagged = 0;
}

template <int TOKENS>
static __device__ __forceinline__ void load_token_scales(const struct decode &decode, float *out)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        out[t] =
            decode.token_scales != NULL && t < (int)decode.tokens ? decode.token_scales[t] : 1.0f;
}

/* ---- sm_90: bulk copies ---- */

/* How a kernel is made. A stage is one window: a tile and what it needs of the activations. Of two
 * kernels that overlap, a multiprocessor of sm_90 never has room for two blocks, so that work stays
 * evenly spread: a block fills its ring as soon as the one before it has left, while small kernels
 * between the two run beside. */
template <int TYPE, int TOKENS> struct shape {
    static constexpr bool LARGE = TOKENS == 8;
    static constexpr bool SMALL = TYPE != TENSOR_TYPE_Q8_0 && TOKENS <= 2;
    static constexpr uint32_t PAIRS = LARGE ? 7 : SMALL ? 6 : 4; /* 7: 16 warps, 128 registers */
    static constexpr uint32_t THREADS = PAIRS * 64 + 64;
    static constexpr uint32_t RING = (LARGE ? 210 : 184) * 1024;
    static constexpr uint32_t TILE = matmul_fast_tile_bytes((enum tensor_type)TYPE);
    static constexpr uint32_t COPIED = 2 * MATMUL_FAST_ATOM_SCALES + TOKENS * 128;
    static constexpr uint32_t BYTES = TILE + COPIED;
    static constexpr uint32_t STAGES = RING / BYTES < STAGES_MAX ? RING / BYTES : STAGES_MAX;
};

/* The stages of a pair among those of its block: pairs without units leave theirs to others. */
struct pair_ring {
    uint32_t first, count;
};

[[maybe_unused]] static __device__ __forceinline__ struct pair_ring
ring_of(uint32_t units, uint32_t pair, uint32_t pairs, uint32_t stages)
{
    const uint32_t taking = units < pairs ? units : pairs;
    const uint32_t place = units < pairs ? share_begin(units, pair, pairs) : pair;
    struct pair_ring ring;

    ring.first = share_begin(stages, place, taking);
    ring.count = share_begin(stages, place + 1, taking) - ring.first;
    return ring;
}

/* A lane of a warp that has one for each pair. The first stages do not wait for the kernel before.
 * What that reads would queue behind all of them if they were asked for together: AT_ONCE of a
 * pair are under way, which keeps the memory busy. */
template <typename shape>
static __device__ __forceinline__ void
bring_weights(const struct decode &decode, uint32_t begin, uint32_t count, uint32_t pair,
              const uint8_t *ring, const uint64_t *full, const uint64_t *empty)
{
    const struct pair_ring own = ring_of(count, pair, shape::PAIRS, shape::STAGES);
    const uint32_t first = share_begin(count, pair, shape::PAIRS);
    const uint32_t units = share_begin(count, pair + 1, shape::PAIRS) - first;
    const uint32_t filled = matmul_fast_shared(full + own.first);
    const uint32_t emptied = matmul_fast_shared(empty + own.first);
    const uint32_t stages = matmul_fast_shared(ring) + own.first * shape::BYTES;
    const uint64_t policy = read_once_policy();
    struct weight_walk weights = walk_from(decode, begin + first, shape::TILE);
    uint32_t s = 0, phase = 0;

    for (uint32_t step = 0; step < units * decode.group_windows; step++) {
        if (step >= own.count)
            mbarrier_wait(emptied + s * 8, phase ^ 1);
        else if (step >= AT_ONCE)
            mbarrier_wait(filled + (step - AT_ONCE) * 8, 0);
        mbarrier_expect(filled + s * 8, shape::TILE);
        bulk_copy_once(stages + s * shape::BYTES, weights.at, shape::TILE, filled + s * 8, policy);
        walk_on(decode, &weights, shape::TILE);
        if (++s == own.count) {
            s = 0;
            phase ^= 1;
        }
    }
}

/* The same for the activations, which the kernel before makes. */
template <typename shape>
static __device__ __forceinline__ void
bring_activations(struct launch_stamp stamp, const struct decode &decode, uint32_t begin,
                  uint32_t count, uint32_t pair, const uint8_t *ring, const uint64_t *ready,
                  const uint64_t *empty)
{
    const struct pair_ring own = ring_of(count, pair, shape::PAIRS, shape::STAGES);
    const uint32_t row_windows = decode.groups * decode.group_windows;
    const uint32_t first = share_begin(count, pair, shape::PAIRS);
    const uint32_t units = share_begin(count, pair + 1, shape::PAIRS) - first;
    const uint32_t arrived = matmul_fast_shared(ready + own.first);
    const uint32_t emptied = matmul_fast_shared(empty + own.first);
    const uint32_t stages = matmul_fast_shared(ring) + own.first * shape::BYTES;
    uint32_t window = (begin + first) % decode.groups * decode.group_windows, s = 0, phase = 0;

    launch_wait(stamp);
    for (uint32_t step = 0; step < units * decode.group_windows; step++) {
        if (step >= own.count)
            mbarrier_wait(emptied + s * 8, phase ^ 1);
        mbarrier_expect(arrived + s * 8, shape::COPIED);
        bulk_copy(stages + s * shape::BYTES + shape::TILE,
                  decode.activations + (uint64_t)window * MATMUL_FAST_RECORD, shape::COPIED,
                  arrived + s * 8);
        if (++window == row_windows)
            window = 0;
        if (++s == own.count) {
            s = 0;
            phase ^= 1;
        }
    }
}

template <int TYPE, int TOKENS>
static __global__ void __launch_bounds__(shape<TYPE, TOKENS>::THREADS)
    decode_kernel(struct launch_stamp stamp, const struct decode decode)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    using shape = shape<TYPE, TOKENS>;
    constexpr uint32_t PAIRS = shape::PAIRS, STAGES = shape::STAGES;
    extern __shared__ __align__(128) uint8_t ring[]; /* (stages) */
    __shared__ uint64_t full[STAGES_MAX], ready[STAGES_MAX], empty[STAGES_MAX];
    __shared__ uint32_t last[PAIRS_MAX];
    const uint32_t windows = decode.group_windows;
    const uint32_t units = decode.row_tiles * decode.groups;
    const uint32_t begin = share_begin(units, blockIdx.x, gridDim.x);
    const uint32_t count = share_begin(units, blockIdx.x + 1, gridDim.x) - begin;

    if (threadIdx.x < STAGES) {
        mbarrier_init(matmul_fast_shared(&full[threadIdx.x]), 1);
        mbarrier_init(matmul_fast_shared(&ready[threadIdx.x]), 1);
        mbarrier_init(matmul_fast_shared(&empty[threadIdx.x]), 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    launch_next();

    if (threadIdx.x >= PAIRS * 64) {
        const uint32_t pair = threadIdx.x % 32;

        if (pair < PAIRS && threadIdx.x < PAIRS * 64 + 32)
            bring_weights<shape>(decode, begin, count, pair, ring, full, empty);
        else if (pair < PAIRS)
            bring_activations<shape>(stamp, decode, begin, count, pair, ring, ready, empty);
        return;
    }

    const uint32_t pair = threadIdx.x / 64, r = threadIdx.x % 64;
    const uint32_t pair_begin = share_begin(count, pair, PAIRS);
    const uint32_t pair_count = share_begin(count, pair + 1, PAIRS) - pair_begin;
    const struct pair_ring own = ring_of(count, pair, PAIRS, STAGES);
    const uint32_t filled = matmul_fast_shared(full + own.first);
    const uint32_t arrived = matmul_fast_shared(ready + own.first);
    const uint32_t emptied = matmul_fast_shared(empty + own.first);
    const uint8_t *stages = ring + own.first * shape::BYTES;
    uint32_t tile = (begin + pair_begin) / decode.groups;
    uint32_t group = (begin + pair_begin) % decode.groups, s = 0, phase = 0;
    uint32_t adders = pair_count == 0 ? 0 : adders_of(decode, tile, PAIRS);
    int64_t total[TOKENS] = {};
    uint32_t flagged = 0, held = 0;
    float token_scales[TOKENS];

    /* Outputs and the workspace are free once the kernel before has completed. */
    launch_wait(stamp);
    load_token_scales<TOKENS>(decode, token_scales);
    for (uint32_t k = 0; k < pair_count; k++) {
        float acc[TOKENS] = {};

        for (uint32_t w = 0; w < windows; w++) {
            const uint8_t *stage = stages + s * shape::BYTES;
            const float *scales = (const float *)(stage + shape::TILE);

            mbarrier_wait(filled + s * 8, phase);
            mbarrier_wait(arrived + s * 8, phase);
            window_fma<TYPE, TOKENS>(stage, (const uint8_t *)(scales + 64), scales, scales + 32, r,
                                     acc);
            fence_async();
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                mbarrier_arrive(emptied + s * 8);
            if (++s == own.count) {
                s = 0;
                phase ^= 1;
            }
        }
        convert<TOKENS>(decode, acc, token_scales, total, &flagged);
        held++;
        group++;
        if (group == decode.groups || k + 1 == pair_count) {
            flush<TOKENS>(decode, tile, adders, held, total, &flagged, pair, r, &last[pair]);
            held = group = 0;
            tile++;
            if (k + 1 < pair_count)
                adders = adders_of(decode, tile, PAIRS);
        }
    }
#else
    __trap(); /* not compiled for this card: portable_kernel is */
#endif
}

/* ---- any card: plain loads ---- */

#define PORTABLE_PAIRS 4

template <int TYPE, int TOKENS>
static __global__ void __launch_bounds__(PORTABLE_PAIRS * 64)
    portable_kernel(struct launch_stamp stamp, const struct decode decode)
{
    constexpr uint32_t TILE = matmul_fast_tile_bytes((enum tensor_type)TYPE);
    __shared__ uint32_t last[PORTABLE_PAIRS];
    const uint32_t windows = decode.group_windows;
    const uint32_t units = decode.row_tiles * decode.groups;
    const uint32_t begin = share_begin(units, blockIdx.x, gridDim.x);
    const uint32_t count = share_begin(units, blockIdx.x + 1, gridDim.x) - begin;
    const uint32_t pair = threadIdx.x / 64, r = threadIdx.x % 64;
    const uint32_t pair_begin = share_begin(count, pair, PORTABLE_PAIRS);
    const uint32_t pair_count = share_begin(count, pair + 1, PORTABLE_PAIRS) - pair_begin;
    struct weight_walk weights = walk_from(decode, begin + pair_begin, TILE);
    uint32_t tile = (begin + pair_begin) / decode.groups;
    uint32_t group = (begin + pair_begin) % decode.groups, held = 0, flagged = 0;
    int64_t total[TOKENS] = {};
    float token_scales[TOKENS];

    launch_begin(stamp);
    load_token_scales<TOKENS>(decode, token_scales);
    for (uint32_t k = 0; k < pair_count; k++) {
        float acc[TOKENS] = {};

        for (uint32_t w = 0; w < windows; w++) {
            const float *record =
                (const float *)(decode.activations +
                                ((uint64_t)group * windows + w) * MATMUL_FAST_RECORD);

            window_fma<TYPE, TOKENS>(weights.at, (const uint8_t *)(record + 64), record,
                                     record + 32, r, acc);
            walk_on(decode, &weights, TILE);
        }
        convert<TOKENS>(decode, acc, token_scales, total, &flagged);
        held++;
        group++;
        if (group == decode.groups || k + 1 == pair_count) {
            flush<TOKENS>(decode, tile, adders_of(decode, tile, PORTABLE_PAIRS), held, total,
                          &flagged, pair, r, &last[pair]);
            held = group = 0;
            tile++;
        }
    }
}

template <int TYPE, int TOKENS>
static cudaError_t launch(struct decode *decode, int sms, unsigned flags, cudaStream_t stream)
{
    using shape = shape<TYPE, TOKENS>;
    static bool ready[64];
    constexpr uint32_t bytes = shape::STAGES * shape::BYTES;
    const uint32_t units = decode->row_tiles * decode->groups;
    cudaLaunchConfig_t config = {};
    struct launch_attributes attributes =
        launch_attributes_of(1, (flags & MATMUL_FAST_OVERLAP) != 0);
    int device;
    cudaError_t error = cudaGetDevice(&device);

    if (error != cudaSuccess)
        return error;
    if (flags & MATMUL_FAST_PORTABLE) {
        const uint32_t room = 2 * (uint32_t)sms;

        config.gridDim = dim3(units < room ? units : room);
        config.blockDim = dim3(PORTABLE_PAIRS * 64);
        config.stream = stream;
        return cudaLaunchKernelEx(&config, portable_kernel<TYPE, TOKENS>, launch_take_stamp(),
                                  (const struct decode) * decode);
    }
    if (device >= 64 || !ready[device]) {
        error = cudaFuncSetAttribute(decode_kernel<TYPE, TOKENS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (error != cudaSuccess)
            return error;
        if (device < 64)
            ready[device] = true;
    }
    config.gridDim = dim3(units < (uint32_t)sms ? units : (uint32_t)sms);
    config.blockDim = dim3(shape::THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = attributes.list;
    config.numAttrs = attributes.count;
    return cudaLaunchKernelEx(&config, decode_kernel<TYPE, TOKENS>, launch_take_stamp(),
                              (const struct decode) * decode);
}

template <int TYPE>
static cudaError_t launch_tokens(struct decode *decode, int sms, unsigned flags,
                                 cudaStream_t stream)
{
    if (decode->tokens == 1)
        return launch<TYPE, 1>(decode, sms, flags, stream);
    if (decode->tokens == 2)
        return launch<TYPE, 2>(decode, sms, flags, stream);
    if (decode->tokens <= 4)
        return launch<TYPE, 4>(decode, sms, flags, stream);
    return launch<TYPE, 8>(decode, sms, flags, stream);
}

template <int TYPE> static size_t ahead_of(uint32_t tokens)
{
    const uint32_t stages = tokens == 1   ? shape<TYPE, 1>::STAGES
                            : tokens == 2 ? shape<TYPE, 2>::STAGES
                            : tokens <= 4 ? shape<TYPE, 4>::STAGES
                                          : shape<TYPE, 8>::STAGES;

    return (size_t)stages * shape<TYPE, 1>::TILE;
}

size_t matmul_fast_ahead_bytes(enum tensor_type type, uint32_t tokens)
{
    int device, sms;

    if (tokens > MATMUL_FAST_DECODE_TOKENS || !launch_is_hopper() ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return 0;
    switch (type) {
    case TENSOR_TYPE_Q8_0:
        return (size_t)sms * ahead_of<TENSOR_TYPE_Q8_0>(tokens);
    case TENSOR_TYPE_Q4_0:
        return (size_t)sms * ahead_of<TENSOR_TYPE_Q4_0>(tokens);
    case TENSOR_TYPE_Q4_K:
        return (size_t)sms * ahead_of<TENSOR_TYPE_Q4_K>(tokens);
    case TENSOR_TYPE_Q5_K:
        return (size_t)sms * ahead_of<TENSOR_TYPE_Q5_K>(tokens);
    case TENSOR_TYPE_Q6_K:
        return (size_t)sms * ahead_of<TENSOR_TYPE_Q6_K>(tokens);
    default:
        return 0;
    }
}

cudaError_t matmul_fast_decode_parts(const struct matmul_fast *matmul,
                                     const struct matmul_fast_part *parts, uint32_t part_count,
                                     const void *activations, uint32_t tokens, const float *scales,
                                     void *workspace, unsigned flags, cudaStream_t stream)
{
    const uint32_t windows = matmul_fast_windows(matmul);
    struct decode decode = {};
    uint64_t padded;
    int device, sms;
    cudaError_t error;

    if (!matmul_fast_takes(matmul) || tokens == 0 || tokens > MATMUL_FAST_DECODE_TOKENS ||
        part_count == 0 || part_count > MATMUL_FAST_PARTS)
        return cudaErrorInvalidValue;
    if ((error = cudaGetDevice(&device)) != cudaSuccess ||
        (error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)) !=
            cudaSuccess)
        return error;
    if (!launch_is_hopper())
        flags |= MATMUL_FAST_PORTABLE;
    for (uint32_t p = 0; p < part_count; p++) {
        struct decode_part *part = &decode.parts[p];

        if (parts[p].rows == 0 || (parts[p].output.f32 == NULL) == (parts[p].output.sums == NULL))
            return cudaErrorInvalidValue;
        part->packed = (const uint8_t *)parts[p].packed;
        part->rows = parts[p].rows;
        part->output = parts[p].output;
        part->tile_first = decode.row_tiles;
        decode.row_tiles += matmul_fast_row_tiles(parts[p].rows);
        part->tile_end = decode.row_tiles;
    }
    padded = (uint64_t)decode.row_tiles * MATMUL_FAST_ROWS;
    decode.part_count = part_count;
    decode.activations = (const uint8_t *)activations;
    decode.token_scales = scales;
    decode.tokens = tokens;
    decode.group_windows = matmul->group / MATMUL_FAST_COLUMNS;
    decode.groups = windows / decode.group_windows;
    decode.limit = arith_limit(matmul->groups_total) * 0x1p30f;
    decode.total = (unsigned long long *)((uint8_t *)workspace + MATMUL_FAST_SCRATCH);
    decode.flagged = (uint32_t *)(decode.total + MATMUL_FAST_DECODE_TOKENS * padded);
    decode.counted = decode.flagged + padded;

    switch (matmul->type) {
    case TENSOR_TYPE_Q8_0:
        return launch_tokens<TENSOR_TYPE_Q8_0>(&decode, sms, flags, stream);
    case TENSOR_TYPE_Q4_0:
        return launch_tokens<TENSOR_TYPE_Q4_0>(&decode, sms, flags, stream);
    case TENSOR_TYPE_Q4_K:
        return launch_tokens<TENSOR_TYPE_Q4_K>(&decode, sms, flags, stream);
    case TENSOR_TYPE_Q5_K:
        return launch_tokens<TENSOR_TYPE_Q5_K>(&decode, sms, flags, stream);
    default:
        return launch_tokens<TENSOR_TYPE_Q6_K>(&decode, sms, flags, stream);
    }
}

cudaError_t matmul_fast_decode(const struct matmul_fast *matmul, const void *packed,
                               const void *activations, uint32_t tokens, const float *scales,
                               struct matmul_fast_output output, void *workspace, unsigned flags,
                               cudaStream_t stream)
{
    struct matmul_fast_part part = {};

    part.packed = packed;
    part.rows = matmul->rows;
    part.output = output;
    return matmul_fast_decode_parts(matmul, &part, 1, activations, tokens, scales, workspace, flags,
                                    stream);
}
