/* Products of 9 and more tokens: int8 tensor cores, fp32 chains over blocks of 32, integer sums of
 * groups.
 *
 * An output tile is 128 rows x 16, 32 or 64 tokens; a stage holds 128 columns of it. A persistent
 * grid takes whole tiles in waves; the tiles of the last wave are cut along K, and their sums meet
 * in the workspace, exactly, since integers have no order.
 *
 * On sm_90 one thread feeds a ring of stages with bulk copies and two warpgroups of 64 rows each
 * consume it with wgmma; types of 4 to 6 bits are unpacked on the way by three warps.
 * portable_kernel does the same with mma.sync and plain loads.
 *
 * A group's partial sum is converted to an integer while the first block of the next group is
 * scaled: the conversion takes one instruction, of a unit that nothing else uses. */
#include "cuda/launch.cuh"
#include "cuda/matmul_fast.h"

#include "ref/arith.h"

#define CONSUMERS 2 /* warpgroups */
#define TILE_ROWS (CONSUMERS * MATMUL_FAST_ROWS)
#define TOKENS_MAX 64 /* of a tile */
#define THREADS (CONSUMERS * 128 + 128)
#define UNPACKERS 96 /* threads */
#define STAGES_MAX 8
#define SHARED_BYTES (227 * 1024 - 1024) /* of a multiprocessor of sm_90, less static ones */
#define GRID_MAX MATMUL_FAST_GRID_MAX
#define SHARERS 6 /* blocks for each cut tile, about */
#define TILE_OUTPUTS (TILE_ROWS * TOKENS_MAX)
#define PORTABLE_THREADS 256

struct prefill {
    const uint8_t *packed;
    const uint8_t *q; /* activations */
    const float *scales, *sums;
    const float *token_scales; /* or NULL */
    uint64_t rows;
    uint32_t tokens, atoms;
    uint32_t windows, groups, group_windows, row_tiles;
    uint32_t token_tiles, tiles, whole; /* output tiles; those that are not cut */
    uint32_t sharers;                   /* blocks that share the cut ones */
    uint32_t stages;
    float limit; /* of partials times 2^30 */
    struct matmul_fast_output output;
    /* workspace */
    int64_t *partial;  /* (grid, 2, outputs of a tile): of cut tiles; need not be zero */
    uint32_t *flagged; /* (grid, 2, 256): a bit for each output of a thread; the same */
    uint32_t *counted; /* (cut tiles, warpgroups): groups added; zero */
};

static __host__ __device__ constexpr bool has_min(int type)
{
    return type == TENSOR_TYPE_Q4_K || type == TENSOR_TYPE_Q5_K;
}

/* ---- what a block computes ---- */

/* Groups [group, end) of an output tile. */
struct piece {
    uint32_t tile, group, end;
    uint32_t cut; /* which of the cut tiles */
    bool is_cut;
};

struct walk {
    uint32_t tile, unit, unit_end;
};

static __device__ __forceinline__ uint32_t cut_units(const struct prefill &prefill)
{
    return (prefill.tiles - prefill.whole) * prefill.groups;
}

/* First unit, a group of a tile, of a block's share of the cut tiles. */
static __device__ __forceinline__ uint32_t share_begin(const struct prefill &prefill,
                                                       uint32_t block)
{
    return (uint32_t)((uint64_t)cut_units(prefill) * min(block, prefill.sharers) / prefill.sharers);
}

static __device__ __forceinline__ struct walk walk_begin(const struct prefill &prefill)
{
    struct walk walk = {blockIdx.x, share_begin(prefill, blockIdx.x),
                        share_begin(prefill, blockIdx.x + 1)};

    return walk;
}

static __device__ __forceinline__ bool walk_next(const struct prefill &prefill, struct walk *walk,
                                                 struct piece *piece)
{
    if (walk->tile < prefill.whole) {
        *piece = {walk->tile, 0, prefill.groups, 0, false};
        walk->tile += gridDim.x;
        return true;
    }
    if (walk->unit >= walk->unit_end)
        return false;

    uint32_t cut = walk->unit / prefill.groups, group = walk->unit % prefill.groups;
    uint32_t left = walk->unit_end - walk->unit, count = min(prefill.groups - group, left);

    *piece = {prefill.whole + cut, group, group + count, cut, count != prefill.groups};
    walk->unit += count;
    return true;
}

/* ---- sums of a thread's outputs ---- */

/* Output 4 j + 2 i + k of a thread: row lane / 4 + 8 i of its warp's 16, token 8 j + 2 (lane % 4)
 * + k of the tile: the layout of mma's and wgmma's accumulators. */
template <int TOKENS> struct outputs {
    static constexpr int COUNT = TOKENS / 2;
    float acc[COUNT]; /* of a group, times 2^30 */
    int64_t sums[COUNT];
    uint32_t flagged; /* a bit for each output */
};

template <int TOKENS> static __device__ __forceinline__ void outputs_clear(outputs<TOKENS> &out)
{
#pragma unroll
    for (int o = 0; o < out.COUNT; o++) {
        out.acc[o] = 0.0f;
        out.sums[o] = 0;
    }
    out.flagged = 0;
}

/* Ends a group: its partial sums are final, and those that are not below the limit are flagged
 * and 0. Whether there may be any, one sum tells: it is at least as large as each of its terms,
 * NaN if one is. Two chains of additions: with one or four the whole product took 3 % longer. */
template <int TOKENS>
static __device__ __forceinline__ void
close_group(outputs<TOKENS> &out, const struct prefill &prefill, uint32_t first_token)
{
    float magnitudes[2] = {0.0f, 0.0f};

    if (prefill.token_scales != NULL) {
#pragma unroll
        for (int o = 0; o < out.COUNT; o++) {
            uint32_t token = first_token + o / 4 * 8 + threadIdx.x % 4 * 2 + o % 2;

            if (token < prefill.tokens)
                out.acc[o] = out.acc[o] * __ldg(prefill.token_scales + token);
        }
    }
#pragma unroll
    for (int o = 0; o < out.COUNT; o++)
        magnitudes[o % 2] += fabsf(out.acc[o]);
    if (!(magnitudes[0] + magnitudes[1] < prefill.limit)) {
#pragma unroll
        for (int o = 0; o < out.COUNT; o++)
            if (!(fabsf(out.acc[o]) < prefill.limit)) {
                out.flagged |= 1u << o;
                out.acc[o] = 0.0f;
            }
    }
}

/* Adds the partial sum of a closed group. */
template <int TOKENS> static __device__ __forceinline__ void convert(outputs<TOKENS> &out, int o)
{
    out.sums[o] += __float2ll_rn(out.acc[o]);
}

/* Adds what the other blocks have of a cut tile. Each leaves its sums in a slot of its own, of two:
 * for the tile where its share begins, and for the one where it ends.
 *
 * @return whether all have: only the last block to come is told so, one warpgroup at a time */
template <int TOKENS>
static __device__ __forceinline__ bool
gather(const struct prefill &prefill, const struct piece &piece, uint32_t thread,
       int64_t (&sums)[TOKENS / 2], uint32_t *flagged, volatile uint32_t *last)
{
    constexpr int STRIDE = CONSUMERS * 128;
    const uint32_t warpgroup = thread / 128;
    const uint32_t units = cut_units(prefill);
    const uint32_t first = piece.cut * prefill.groups, end = first + prefill.groups;
    const uint32_t own = 2 * blockIdx.x + (first + piece.group != share_begin(prefill, blockIdx.x));
    uint32_t *counted = prefill.counted + piece.cut * CONSUMERS + warpgroup;

#pragma unroll
    for (int o = 0; o < TOKENS / 2; o++)
        prefill.partial[((uint64_t)own * TOKENS_MAX / 2 + o) * STRIDE + thread] = sums[o];
    prefill.flagged[own * STRIDE + thread] = *flagged;
    __threadfence();
    named_barrier(1 + (int)warpgroup, 128);
    if (thread % 128 == 0)
        last[warpgroup] =
            atomicAdd(counted, piece.end - piece.group) + piece.end - piece.group == prefill.groups;
    named_barrier(1 + (int)warpgroup, 128);
    if (last[warpgroup] == 0)
        return false;
    __threadfence();
    if (thread % 128 == 0)
        *counted = 0;
    /* the block that has the tile's first unit, and those after it */
    for (uint32_t block =
             (uint32_t)((((uint64_t)first + 1) * prefill.sharers + units - 1) / units) - 1;
         block < prefill.sharers && share_begin(prefill, block) < end; block++) {
        const uint32_t begin = share_begin(prefill, block);
        const uint32_t slot = 2 * block + (begin < first);

        if (block == blockIdx.x || begin == share_begin(prefill, block + 1))
            continue;
#pragma unroll
        for (int o = 0; o < TOKENS / 2; o++)
            sums[o] += __ldcg((const long long *)prefill.partial +
                              ((uint64_t)slot * TOKENS_MAX / 2 + o) * STRIDE + thread);
        *flagged |= __ldcg(prefill.flagged + slot * STRIDE + thread);
    }
    return true;
}

/* Writes the outputs of a piece, or leaves them for the tile's other pieces.
 *
 * @param thread of the 256 consumers; its warpgroup, 128 of them, comes together
 * @param row    of output 0 of the thread */
template <int TOKENS>
static __device__ __forceinline__ void
finish(outputs<TOKENS> &out, const struct prefill &prefill, const struct piece &piece, uint64_t row,
       uint32_t first_token, uint32_t thread, volatile uint32_t *last)
{
    const uint32_t token = first_token + thread % 4 * 2;
    const int tokens = (int)prefill.tokens - (int)token; /* from the thread's first one on */
    const uint64_t stride = prefill.output.stride, at = token * stride + row;

    if (piece.is_cut && !gather<TOKENS>(prefill, piece, thread, out.sums, &out.flagged, last))
        return;
#pragma unroll
    for (int o = 0; o < TOKENS / 2; o++) {
        const int at_token = o / 4 * 8 + o % 2, at_row = o / 2 % 2 * 8;
        const uint64_t to = at + at_token * stride + at_row;

        if (at_token >= tokens || row + at_row >= prefill.rows)
            continue;
        if (prefill.output.f32 != NULL)
            prefill.output.f32[to] = out.flagged >> o & 1
                                         ? arith_nan()
                                         : (float)out.sums[o] * 0x1p-30f; /* arith_from_fixed() */
        else
            prefill.output.sums[to] = out.flagged >> o & 1 ? ARITH_FLAG : out.sums[o];
    }
}

/* ---- scaling ---- */

/* What two rows' blocks multiply by. */
struct factors {
    float d[2], dmin[2], sub[2], min[2]; /* d of all types, the others of Q4_K and Q5_K */
    int32_t subs[2][2];                  /* Q6_K: of each row, of each 16 */
};

template <int TYPE>
static __device__ __forceinline__ struct factors
factors_of(const struct matmul_fast_row_scales *rows, int b)
{
    struct factors out;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        out.d[i] = matmul_fast_d<TYPE>(rows[i], b);
        if (has_min(TYPE)) {
            out.dmin[i] = -matmul_fast_dmin(rows[i]);
            out.sub[i] = (float)matmul_fast_sub<TYPE>(rows[i], b, 0);
            out.min[i] = (float)matmul_fast_min(rows[i], b);
        }
        if (TYPE == TENSOR_TYPE_Q6_K) {
            out.subs[i][0] = matmul_fast_sub<TYPE>(rows[i], b, 0);
            out.subs[i][1] = matmul_fast_sub<TYPE>(rows[i], b, 1);
        }
    }
    return out;
}

/* One step of the chain of row i, given the block's sum of products (Q6_K: of each 16). */
template <int TYPE>
static __device__ __forceinline__ float step(const struct factors &factors, int i, int32_t dot,
                                             int32_t second, float scale, float sum, float product,
                                             float acc)
{
    if (TYPE == TENSOR_TYPE_Q6_K)
        return fmaf((float)(factors.subs[i][0] * dot + factors.subs[i][1] * second), product, acc);
    if (has_min(TYPE)) {
        /* integers below 2^24, so exact in fp32 */
        acc = fmaf((float)dot * factors.sub[i], product, acc);
        return fmaf(factors.min[i] * sum, factors.dmin[i] * scale, acc);
    }
    return fmaf((float)dot, product, acc);
}

/* ---- stages ---- */

/* Where the parts of a stage lie. Q8_0: packed tiles, padded to 1024. Others: unpacked values as
 * Q8_0's, for Q6_K once with the first 16 of each block and once with the second 16; then the
 * packed tiles. */
template <int TYPE, int TOKENS> struct stage {
    static constexpr uint32_t TILE = matmul_fast_tile_bytes((enum tensor_type)TYPE);
    static constexpr uint32_t SCALES = matmul_fast_scales_at((enum tensor_type)TYPE);
    static constexpr bool UNPACKED = TYPE != TENSOR_TYPE_Q8_0;
    static constexpr uint32_t VALUES = TYPE == TENSOR_TYPE_Q8_0   ? (TILE + 1023) / 1024 * 1024
                                       : TYPE == TENSOR_TYPE_Q6_K ? 16384
                                                                  : 8192; /* of a row tile */
    static constexpr uint32_t Q = CONSUMERS * VALUES;
    static constexpr uint32_t PACKED = UNPACKED ? Q + TOKENS * 128 : 0;
    static constexpr uint32_t PACKED_STRIDE = UNPACKED ? TILE : VALUES;
    static constexpr uint32_t FACTORS =
        UNPACKED ? PACKED + CONSUMERS * TILE : Q + TOKENS * 128; /* activations' scales */
    static constexpr uint32_t SUMS = FACTORS + TOKENS * 16;
    static constexpr uint32_t BYTES =
        (SUMS + (has_min(TYPE) ? TOKENS * 16 : 0) + 1023) / 1024 * 1024;
    static constexpr uint32_t COPIED =
        CONSUMERS * TILE + TOKENS * 128 + TOKENS * 16 + (has_min(TYPE) ? TOKENS * 16 : 0);
};

/* Values of one row's block into the swizzled layout of Q8_0's tile. */
template <int TYPE>
static __device__ __forceinline__ void unpack_block(const uint8_t *tile, uint8_t *values, int b,
                                                    uint32_t r, uint32_t second)
{
    const uint4 nibbles = *(const uint4 *)(tile + b * 1024 + r * 16);
    uint32_t upper[2] = {0, 0};

    if (TYPE == TENSOR_TYPE_Q5_K)
        upper[0] = *(const uint32_t *)(tile + MATMUL_FAST_NIBBLES + r * 16 + b * 4);
    if (TYPE == TENSOR_TYPE_Q6_K) {
        uint2 two =
            *(const uint2 *)(tile + MATMUL_FAST_NIBBLES + b / 2 * 1024 + r * 16 + b % 2 * 8);

        upper[0] = two.x;
        upper[1] = two.y;
    }

    const struct matmul_fast_words w = matmul_fast_unpack<TYPE>(nibbles, upper[0], upper[1]);

    *(uint4 *)(values + r * 128 + ((2 * b) ^ (r & 7)) * 16) =
        make_uint4(w.low[0], w.low[1], w.low[2], w.low[3]);
    *(uint4 *)(values + second + r * 128 + ((2 * b + 1) ^ (r & 7)) * 16) =
        make_uint4(w.high[0], w.high[1], w.high[2], w.high[3]);
}

/* ---- sm_90: wgmma ---- */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define USE_WGMMA 1
#else
#define USE_WGMMA 0
#endif

#if USE_WGMMA

/* Of an address in shared memory, 128-byte swizzle, atoms of 8 rows 1024 bytes apart. */
static __device__ __forceinline__ uint64_t descriptor(uint32_t address)
{
    return UINT64_C(1) << 62 | UINT64_C(64) << 32 | (1u << 16 | address >> 4);
}

/* d = a b of 64 rows x N tokens x 32 columns; asynchronous */
template <int N>
static __device__ __forceinline__ void wgmma(int32_t (&d)[N / 2], uint64_t a, uint64_t b);

template <> __device__ __forceinline__ void wgmma<16>(int32_t (&d)[8], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "%8, %9, p;\n"
                 "}\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]),
                   "=r"(d[6]), "=r"(d[7])
                 : "l"(a), "l"(b));
}

template <> __device__ __forceinline__ void wgmma<32>(int32_t (&d)[16], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, "
                 " %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "%16, %17, p;\n"
                 "}\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]),
                   "=r"(d[6]), "=r"(d[7]), "=r"(d[8]), "=r"(d[9]), "=r"(d[10]), "=r"(d[11]),
                   "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15])
                 : "l"(a), "l"(b));
}

template <> __device__ __forceinline__ void wgmma<64>(int32_t (&d)[32], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, "
                 " %8, %9, %10, %11, %12, %13, %14, %15, "
                 " %16, %17, %18, %19, %20, %21, %22, %23, "
                 " %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p;\n"
                 "}\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]),
                   "=r"(d[6]), "=r"(d[7]), "=r"(d[8]), "=r"(d[9]), "=r"(d[10]), "=r"(d[11]),
                   "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15]), "=r"(d[16]), "=r"(d[17]),
                   "=r"(d[18]), "=r"(d[19]), "=r"(d[20]), "=r"(d[21]), "=r"(d[22]), "=r"(d[23]),
                   "=r"(d[24]), "=r"(d[25]), "=r"(d[26]), "=r"(d[27]), "=r"(d[28]), "=r"(d[29]),
                   "=r"(d[30]), "=r"(d[31])
                 : "l"(a), "l"(b));
}

static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all that was committed is done. `d` is what it has written. */
template <int COUNT> static __device__ __forceinline__ void wgmma_wait(int32_t (&d)[COUNT])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int o = 0; o < COUNT; o++)
        asm volatile("" : "+r"(d[o])::"memory");
}

/* Loads that stay where they are written, between waits and wgmma. */
static __device__ __forceinline__ float4 load_float4(uint32_t address)
{
    float4 out;

    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
                 : "r"(address));
    return out;
}

template <int TYPE>
static __device__ __forceinline__ struct matmul_fast_row_scales load_row_scales(uint32_t scales,
                                                                                uint32_t r)
{
    struct matmul_fast_row_scales out = {0, 0, 0};

    if (has_min(TYPE)) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(out.a) : "r"(scales + r * 4));
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(out.b) : "r"(scales + 256 + r * 4));
    } else {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(out.a), "=r"(out.b)
                     : "r"(scales + r * 8));
    }
    if (has_min(TYPE) || TYPE == TENSOR_TYPE_Q6_K) {
        uint16_t half;

        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(scales + 512 + r * 2));
        out.c = half;
    }
    return out;
}

/* Fills stages in the order in which consumers take them. */
template <int TYPE, int TOKENS>
static __device__ void produce(const struct prefill &prefill, uint32_t ring, uint32_t full,
                               uint32_t empty)
{
    using stage = stage<TYPE, TOKENS>;
    struct walk walk = walk_begin(prefill);
    struct piece piece;
    uint32_t s = 0, phase = 1;

    while (walk_next(prefill, &walk, &piece)) {
        const uint32_t row_tile = piece.tile / prefill.token_tiles * CONSUMERS;
        const uint32_t atom = piece.tile % prefill.token_tiles * (TOKENS / 8);

        for (uint32_t w = piece.group * prefill.group_windows;
             w < piece.end * prefill.group_windows; w++) {
            const uint32_t to = ring + s * stage::BYTES;
            const uint64_t from = (uint64_t)w * prefill.atoms + atom;

            mbarrier_wait(empty + s * 8, phase);
            mbarrier_expect(full + s * 8, stage::COPIED);
#pragma unroll
            for (uint32_t c = 0; c < CONSUMERS; c++) {
                const uint32_t tile = min(row_tile + c, prefill.row_tiles - 1);

                bulk_copy(to + stage::PACKED + c * stage::PACKED_STRIDE,
                          prefill.packed + ((uint64_t)tile * prefill.windows + w) * stage::TILE,
                          stage::TILE, full + s * 8);
            }
            bulk_copy(to + stage::Q, prefill.q + from * MATMUL_FAST_ATOM, TOKENS * 128,
                      full + s * 8);
            bulk_copy(to + stage::FACTORS, prefill.scales + from * 32, TOKENS * 16, full + s * 8);
            if (has_min(TYPE))
                bulk_copy(to + stage::SUMS, prefill.sums + from * 32, TOKENS * 16, full + s * 8);
            if (++s == prefill.stages) {
                s = 0;
                phase ^= 1;
            }
        }
    }
}

template <int TYPE, int TOKENS>
static __device__ void unpack(const struct prefill &prefill, uint8_t *ring, uint32_t full,
                              uint32_t unpacked, uint32_t thread)
{
    using stage = stage<TYPE, TOKENS>;
    struct walk walk = walk_begin(prefill);
    struct piece piece;
    uint32_t s = 0, phase = 0;

    while (walk_next(prefill, &walk, &piece))
        for (uint32_t w = piece.group * prefill.group_windows;
             w < piece.end * prefill.group_windows; w++) {
            uint8_t *at = ring + s * stage::BYTES;

            mbarrier_wait(full + s * 8, phase);
            for (uint32_t task = thread; task < CONSUMERS * 256; task += UNPACKERS) {
                const uint32_t c = task / 256, b = task / 64 % 4, r = task % 64;

                unpack_block<TYPE>(at + stage::PACKED + c * stage::PACKED_STRIDE,
                                   at + c * stage::VALUES, (int)b, r,
                                   TYPE == TENSOR_TYPE_Q6_K ? 8192 : 0);
            }
            fence_async();
            __syncwarp();
            if (thread % 32 == 0)
                mbarrier_arrive(unpacked + s * 8);
            if (++s == prefill.stages) {
                s = 0;
                phase ^= 1;
            }
        }
}

/* A thread's scale or sum that output `o` takes, of (pairs of atoms). */
static __device__ __forceinline__ float of_output(const float4 *pairs, int o)
{
    const float4 &four = pairs[o / 8];
    const float2 two = o / 4 % 2 == 0 ? make_float2(four.x, four.y) : make_float2(four.z, four.w);

    return o % 2 == 0 ? two.x : two.y;
}

/* One warpgroup's part: while it waits for a block from the tensor cores, the other one scales. A
 * second buffer for a block ahead would take registers and gain nothing. No wgmma is in flight
 * where a loop goes back. Stages are released by groups, for each release waits for all loads. */
template <int TYPE, int TOKENS, int WINDOWS>
static __device__ __forceinline__ void consume(const struct prefill &prefill, uint32_t ring,
                                               uint32_t full, uint32_t unpacked, uint32_t empty,
                                               volatile uint32_t *last)
{
    using stage = stage<TYPE, TOKENS>;
    constexpr int BLOCKS = 4 * WINDOWS, PAIRS = TOKENS / 16; /* of a group; atoms of a tile */
    constexpr bool TWO_DOTS = TYPE == TENSOR_TYPE_Q6_K;
    const uint32_t thread = threadIdx.x, lane = thread % 32;
    const uint32_t warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);
    const uint32_t r = thread % 128 / 32 * 16 + lane / 4; /* of the row tile */
    const uint64_t values = descriptor(ring + warpgroup * stage::VALUES);
    const uint64_t q = descriptor(ring + stage::Q);
    const uint32_t row_scales =
        ring + stage::PACKED + warpgroup * stage::PACKED_STRIDE + stage::SCALES;
    const uint32_t token_scales = ring + stage::FACTORS + lane % 4 * 16;
    struct walk walk = walk_begin(prefill);
    struct piece piece;
    uint32_t s = 0, phase = 0;
    outputs<TOKENS> out;

    while (walk_next(prefill, &walk, &piece)) {
        const uint32_t row_tile = piece.tile / prefill.token_tiles * CONSUMERS + warpgroup;
        const uint32_t first_token = piece.tile % prefill.token_tiles * TOKENS;

        outputs_clear(out);
        for (uint32_t group = piece.group; group < piece.end; group++) {
            const uint32_t first_s = s;
            uint32_t at = 0;
            struct matmul_fast_row_scales rows[2];

#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                int32_t dot[TOKENS / 2], second[TWO_DOTS ? TOKENS / 2 : 1];
                float4 scales[PAIRS], sums[PAIRS];

                if (b % 4 == 0) {
                    if (b > 0 && ++s == prefill.stages) {
                        s = 0;
                        phase ^= 1;
                    }
                    at = s * stage::BYTES;
                    mbarrier_wait(full + s * 8, phase);
                    if (stage::UNPACKED)
                        mbarrier_wait(unpacked + s * 8, phase);
                    rows[0] = load_row_scales<TYPE>(row_scales + at, r);
                    rows[1] = load_row_scales<TYPE>(row_scales + at, r + 8);
                }
                wgmma_fence();
                wgmma<TOKENS>(dot, values + (at / 16 + b % 4 * 2), q + (at / 16 + b % 4 * 2));
                if constexpr (TWO_DOTS)
                    wgmma<TOKENS>(second, values + ((at + 8192) / 16 + b % 4 * 2),
                                  q + (at / 16 + b % 4 * 2));
                wgmma_commit();
#pragma unroll
                for (int j = 0; j < PAIRS; j++)
                    scales[j] = load_float4(token_scales + at + j * 256 + b % 4 * 64);
                if (has_min(TYPE))
#pragma unroll
                    for (int j = 0; j < PAIRS; j++)
                        sums[j] = load_float4(token_scales + (stage::SUMS - stage::FACTORS) + at +
                                              j * 256 + b % 4 * 64);

                const struct factors factors = factors_of<TYPE>(rows, b % 4);

                wgmma_wait(dot);
                if (TWO_DOTS)
                    wgmma_wait(second);
                if (b + 1 == BLOCKS) { /* the stages have been read */
                    fence_async();
                    __syncwarp();
                    if (lane == 0) {
                        if (WINDOWS == 2)
                            mbarrier_arrive(empty + first_s * 8);
                        mbarrier_arrive(empty + s * 8);
                    }
                }
#pragma unroll
                for (int o = 0; o < TOKENS / 2; o++) {
                    const int i = o / 2 % 2;
                    const float a = of_output(scales, o);
                    float sum = 0.0f;

                    if (has_min(TYPE))
                        sum = of_output(sums, o);
                    if (b == 0) {
                        convert(out, o); /* of the group before */
                        out.acc[o] = 0.0f;
                    }
                    out.acc[o] = step<TYPE>(factors, i, dot[o], TWO_DOTS ? second[o] : 0, a, sum,
                                            factors.d[i] * a, out.acc[o]);
                }
            }
            close_group(out, prefill, first_token);
            if (++s == prefill.stages) {
                s = 0;
                phase ^= 1;
            }
        }
#pragma unroll
        for (int o = 0; o < out.COUNT; o++)
            convert(out, o);
        finish(out, prefill, piece, (uint64_t)row_tile * MATMUL_FAST_ROWS + r, first_token, thread,
               last);
    }
}

#endif

template <int TYPE, int TOKENS, int WINDOWS>
static __global__ void __launch_bounds__(THREADS, 1)
    wgmma_kernel(struct launch_stamp stamp, const __grid_constant__ struct prefill prefill)
{
#if USE_WGMMA
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ uint64_t full[STAGES_MAX], unpacked[STAGES_MAX], empty[STAGES_MAX];
    __shared__ uint32_t last[CONSUMERS];

    uint32_t filled = matmul_fast_shared(full), emptied = matmul_fast_shared(empty);
    uint32_t ready = matmul_fast_shared(unpacked), stages = matmul_fast_shared(ring);

    /* kept in registers, not made again for each use */
    asm volatile("" : "+r"(filled), "+r"(emptied), "+r"(ready), "+r"(stages));

    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < prefill.stages; s++) {
            mbarrier_init(filled + s * 8, 1);
            mbarrier_init(ready + s * 8, UNPACKERS / 32);
            mbarrier_init(emptied + s * 8, CONSUMERS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (TYPE == TENSOR_TYPE_Q6_K) /* half of each of its two copies of the values stays zero */
        for (uint32_t s = 0; s < prefill.stages; s++)
            for (uint32_t i = threadIdx.x; i < CONSUMERS * 1024; i += THREADS)
                *(uint4 *)(ring + s * stage<TYPE, TOKENS>::BYTES + i * 16) = make_uint4(0, 0, 0, 0);
    fence_async();
    __syncthreads();
    launch_next();
    launch_wait(stamp);

    if (threadIdx.x >= CONSUMERS * 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == CONSUMERS * 128)
            produce<TYPE, TOKENS>(prefill, stages, filled, emptied);
        else if (stage<TYPE, TOKENS>::UNPACKED && threadIdx.x >= CONSUMERS * 128 + 32)
            unpack<TYPE, TOKENS>(prefill, ring, filled, ready, threadIdx.x - CONSUMERS * 128 - 32);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume<TYPE, TOKENS, WINDOWS>(prefill, stages, filled, ready, emptied, last);
    }
#else
    __trap(); /* not compiled for sm_90a: portable_kernel is for other cards */
#endif
}

/* ---- any card from sm_80 on: mma.sync ---- */

static __device__ __forceinline__ void load_matrices(uint32_t (&out)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(matmul_fast_shared(row))
                 : "memory");
}

static __device__ __forceinline__ void mma_32(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

static __device__ __forceinline__ void mma_16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5}, {%6}, {%7, %7, %7, %7};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

template <int TYPE>
static __global__ void __launch_bounds__(PORTABLE_THREADS, 2)
    portable_kernel(struct launch_stamp stamp, const struct prefill prefill)
{
    constexpr int TOKENS = TOKENS_MAX;
    constexpr uint32_t TILE = matmul_fast_tile_bytes((enum tensor_type)TYPE);
    constexpr uint32_t SCALES = matmul_fast_scales_at((enum tensor_type)TYPE);
    __shared__ __align__(128) uint8_t values[CONSUMERS][8192];
    __shared__ __align__(128) uint8_t row_scales[CONSUMERS][640];
    __shared__ __align__(128) uint8_t q[TOKENS * 128];
    __shared__ __align__(128) float factors_shared[TOKENS * 4], sums_shared[TOKENS * 4];
    __shared__ uint32_t last[CONSUMERS];
    const uint32_t thread = threadIdx.x, warpgroup = thread / 128, lane = thread % 32;
    const uint32_t warp_row = thread % 128 / 32 * 16, r = warp_row + lane / 4;
    struct walk walk = walk_begin(prefill);
    struct piece piece;
    outputs<TOKENS> out;

    launch_begin(stamp);
    while (walk_next(prefill, &walk, &piece)) {
        const uint32_t row_tile = piece.tile / prefill.token_tiles * CONSUMERS;
        const uint32_t first_token = piece.tile % prefill.token_tiles * TOKENS;
        const uint32_t atom = first_token / 8;

        outputs_clear(out);
        for (uint32_t w = piece.group * prefill.group_windows;
             w < piece.end * prefill.group_windows; w++) {
            const uint64_t from = (uint64_t)w * prefill.atoms + atom;

            __syncthreads();
#pragma unroll
            for (uint32_t c = 0; c < CONSUMERS; c++) {
                const uint32_t at = min(row_tile + c, prefill.row_tiles - 1);
                const uint8_t *tile = prefill.packed + ((uint64_t)at * prefill.windows + w) * TILE;

                if (TYPE == TENSOR_TYPE_Q8_0)
                    for (uint32_t i = thread; i < 512; i += PORTABLE_THREADS)
                        ((uint4 *)values[c])[i] = ((const uint4 *)tile)[i];
                else
                    unpack_block<TYPE>(tile, values[c], (int)(thread / 64), thread % 64, 0);
                if (thread < (TILE - SCALES) / 16)
                    ((uint4 *)row_scales[c])[thread] = ((const uint4 *)(tile + SCALES))[thread];
            }
            /* tokens may be padded to fewer than 64 */
            for (uint32_t i = thread; i < TOKENS * 8; i += PORTABLE_THREADS)
                if (atom + i / 64 < prefill.atoms)
                    ((uint4 *)q)[i] = ((const uint4 *)(prefill.q + from * MATMUL_FAST_ATOM))[i];
            if (atom + thread / 32 < prefill.atoms) {
                factors_shared[thread] = prefill.scales[from * 32 + thread];
                if (has_min(TYPE))
                    sums_shared[thread] = prefill.sums[from * 32 + thread];
            }
            __syncthreads();

            const struct matmul_fast_row_scales rows[2] = {
                matmul_fast_load_scales<TYPE>(row_scales[warpgroup], r),
                matmul_fast_load_scales<TYPE>(row_scales[warpgroup], r + 8)};

#pragma unroll
            for (int b = 0; b < 4; b++) {
                const struct factors factors = factors_of<TYPE>(rows, b);
                /* matrices: rows 0 to 7 and 8 to 15 of the first 16 columns, then of the others */
                const uint32_t a_row = warp_row + lane % 16;
                uint32_t a[4];

                load_matrices(a, values[warpgroup] + a_row * 128 +
                                     ((2 * b + lane / 16) ^ (a_row & 7)) * 16);
#pragma unroll
                for (int j = 0; j < TOKENS / 8; j += 2) {
                    /* the two halves of 8 tokens, then of the next 8 */
                    const uint32_t b_row = j * 8 + lane / 16 * 8 + lane % 8;
                    uint32_t both[4];

                    load_matrices(both,
                                  q + b_row * 128 + ((2 * b + lane / 8 % 2) ^ (b_row & 7)) * 16);
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        const uint32_t at = j / 2 * 64 + b * 16 + lane % 4 * 4 + n * 2;
                        const float2 scale = *(const float2 *)(factors_shared + at);
                        const float2 sum = *(const float2 *)(sums_shared + at);
                        int32_t first[4], second[4] = {0, 0, 0, 0};

                        if (TYPE == TENSOR_TYPE_Q6_K) {
                            mma_16(first, a[0], a[1], both[2 * n]);
                            mma_16(second, a[2], a[3], both[2 * n + 1]);
                        } else {
                            mma_32(first, a, both[2 * n], both[2 * n + 1]);
                        }
#pragma unroll
                        for (int o = 0; o < 4; o++) {
                            const float x = o % 2 == 0 ? scale.x : scale.y;
                            float &acc = out.acc[4 * (j + n) + o];

                            acc = step<TYPE>(factors, o / 2, first[o], second[o], x,
                                             o % 2 == 0 ? sum.x : sum.y, factors.d[o / 2] * x, acc);
                        }
                    }
                }
            }
            if ((w + 1) % prefill.group_windows == 0) {
                close_group(out, prefill, first_token);
#pragma unroll
                for (int o = 0; o < out.COUNT; o++) {
                    convert(out, o);
                    out.acc[o] = 0.0f;
                }
            }
        }
        finish(out, prefill, piece, (uint64_t)(row_tile + warpgroup) * MATMUL_FAST_ROWS + r,
               first_token, thread, last);
    }
}

/* ---- launches ---- */

static cudaError_t launch(const void *kernel, const struct prefill *prefill, uint32_t grid,
                          uint32_t threads, size_t shared, unsigned flags, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    struct launch_attributes attributes =
        launch_attributes_of(1, (flags & MATMUL_FAST_OVERLAP) != 0);
    struct launch_stamp stamp = launch_take_stamp();
    void *arguments[] = {&stamp, (void *)prefill};

    config.gridDim = dim3(grid);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes.list;
    config.numAttrs = attributes.count;
    return cudaLaunchKernelExC(&config, kernel, arguments);
}

static void cut(struct prefill *prefill, uint32_t tile_tokens, uint32_t grid)
{
    prefill->token_tiles = (prefill->tokens + tile_tokens - 1) / tile_tokens;
    prefill->tiles = (prefill->row_tiles + CONSUMERS - 1) / CONSUMERS * prefill->token_tiles;
    prefill->whole = prefill->tiles / grid * grid;
    if ((prefill->tiles - prefill->whole) * 16 >= grid * 15) /* cutting would cost more */
        prefill->whole = prefill->tiles;
    /* whoever comes last reads what the others of its tile have, one after another */
    prefill->sharers = grid;
    if ((prefill->tiles - prefill->whole) * SHARERS < grid)
        prefill->sharers = (prefill->tiles - prefill->whole) * SHARERS;
    if (prefill->sharers == 0)
        prefill->sharers = 1;
}

template <int TYPE, int TOKENS, int WINDOWS>
static cudaError_t launch_wgmma(struct prefill *prefill, uint32_t grid, unsigned flags,
                                cudaStream_t stream)
{
    static bool ready[64];
    constexpr uint32_t bytes = stage<TYPE, TOKENS>::BYTES;
    constexpr uint32_t stages =
        SHARED_BYTES / bytes < STAGES_MAX ? SHARED_BYTES / bytes : STAGES_MAX;
    int device;
    cudaError_t error = cudaGetDevice(&device);

    static_assert(stages >= 3, "a group of 256 holds two");
    if (error != cudaSuccess)
        return error;
    if (device >= 64 || !ready[device]) {
        error = cudaFuncSetAttribute(wgmma_kernel<TYPE, TOKENS, WINDOWS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, stages * bytes);
        if (error != cudaSuccess)
            return error;
        if (device < 64)
            ready[device] = true;
    }
    cut(prefill, TOKENS, grid);
    prefill->stages = stages;
    return launch((const void *)wgmma_kernel<TYPE, TOKENS, WINDOWS>, prefill, grid, THREADS,
                  stages * bytes, flags & MATMUL_FAST_OVERLAP, stream);
}

template <int TYPE, int WINDOWS>
static cudaError_t launch_tokens(struct prefill *prefill, uint32_t grid, unsigned flags,
                                 cudaStream_t stream)
{
    if (prefill->tokens <= 16)
        return launch_wgmma<TYPE, 16, WINDOWS>(prefill, grid, flags, stream);
    if (prefill->tokens <= 32)
        return launch_wgmma<TYPE, 32, WINDOWS>(prefill, grid, flags, stream);
    return launch_wgmma<TYPE, 64, WINDOWS>(prefill, grid, flags, stream);
}

template <int TYPE>
static cudaError_t launch_type(struct prefill *prefill, bool portable, int sms, unsigned flags,
                               cudaStream_t stream)
{
    if (portable) {
        uint32_t grid = 2 * sms < GRID_MAX ? 2 * sms : GRID_MAX;

        cut(prefill, TOKENS_MAX, grid);
        return launch((const void *)portable_kernel<TYPE>, prefill, grid, PORTABLE_THREADS, 0, 0,
                      stream);
    }
    if (prefill->group_windows == 1)
        return launch_tokens<TYPE, 1>(prefill, (uint32_t)sms, flags, stream);
    return launch_tokens<TYPE, 2>(prefill, (uint32_t)sms, flags, stream);
}

size_t matmul_fast_workspace_bytes(uint64_t rows)
{
    uint64_t padded = (uint64_t)matmul_fast_row_tiles(rows) * MATMUL_FAST_ROWS;
    size_t decode = padded * (MATMUL_FAST_DECODE_TOKENS * 8 + 4) + padded / MATMUL_FAST_ROWS * 4;
    size_t prefill = (size_t)GRID_MAX * CONSUMERS * 4;

    static_assert(MATMUL_FAST_SCRATCH ==
                      GRID_MAX * 2 *
                          (TILE_OUTPUTS * sizeof(int64_t) + CONSUMERS * 128 * sizeof(uint32_t)),
                  "partial and flagged");
    return MATMUL_FAST_SCRATCH + (decode > prefill ? decode : prefill);
}

cudaError_t matmul_fast_prefill(const struct matmul_fast *matmul, const void *packed,
                                const void *activations, uint32_t tokens, const float *scales,
                                struct matmul_fast_output output, void *workspace, unsigned flags,
                                cudaStream_t stream)
{
    const uint32_t windows = matmul_fast_windows(matmul);
    const uint32_t atoms = matmul_fast_padded_tokens(tokens) / 8;
    struct prefill prefill = {};
    bool portable = (flags & MATMUL_FAST_PORTABLE) != 0;
    int device, sms;
    cudaError_t error;

    if (!matmul_fast_takes(matmul) || tokens <= MATMUL_FAST_DECODE_TOKENS ||
        (output.f32 == NULL) == (output.sums == NULL))
        return cudaErrorInvalidValue;
    if ((error = cudaGetDevice(&device)) != cudaSuccess ||
        (error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)) !=
            cudaSuccess)
        return error;
    if (!launch_is_hopper())
        portable = true;
    if (sms > GRID_MAX)
        sms = GRID_MAX;
    prefill.packed = (const uint8_t *)packed;
    prefill.q = (const uint8_t *)activations;
    prefill.scales = (const float *)(prefill.q + (uint64_t)windows * atoms * MATMUL_FAST_ATOM);
    prefill.sums = prefill.scales + (uint64_t)windows * atoms * 32;
    prefill.token_scales = scales;
    prefill.rows = matmul->rows;
    prefill.tokens = tokens;
    prefill.atoms = atoms;
    prefill.windows = windows;
    prefill.group_windows = matmul->group / MATMUL_FAST_COLUMNS;
    prefill.groups = windows / prefill.group_windows;
    prefill.row_tiles = matmul_fast_row_tiles(matmul->rows);
    prefill.limit = arith_limit(matmul->groups_total) * 0x1p30f;
    prefill.output = output;
    prefill.partial = (int64_t *)workspace;
    prefill.flagged = (uint32_t *)(prefill.partial + (size_t)GRID_MAX * 2 * TILE_OUTPUTS);
    prefill.counted = (uint32_t *)((uint8_t *)workspace + MATMUL_FAST_SCRATCH);

    switch (matmul->type) {
    case TENSOR_TYPE_Q8_0:
        return launch_type<TENSOR_TYPE_Q8_0>(&prefill, portable, sms, flags, stream);
    case TENSOR_TYPE_Q4_0:
        return launch_type<TENSOR_TYPE_Q4_0>(&prefill, portable, sms, flags, stream);
    case TENSOR_TYPE_Q4_K:
        return launch_type<TENSOR_TYPE_Q4_K>(&prefill, portable, sms, flags, stream);
    case TENSOR_TYPE_Q5_K:
        return launch_type<TENSOR_TYPE_Q5_K>(&prefill, portable, sms, flags, stream);
    default:
        return launch_type<TENSOR_TYPE_Q6_K>(&prefill, portable, sms, flags, stream);
    }
}

cudaError_t matmul_fast_product(const struct matmul_fast *matmul, const void *packed,
                                const void *activations, uint32_t tokens, const float *scales,
                                struct matmul_fast_output output, void *workspace, unsigned flags,
                                cudaStream_t stream)
{
    return tokens <= MATMUL_FAST_DECODE_TOKENS
               ? matmul_fast_decode(matmul, packed, activations, tokens, scales, output, workspace,
                                    flags, stream)
               : matmul_fast_prefill(matmul, packed, activations, tokens, scales, output, workspace,
                                     flags, stream);
}
