/* Products with quantised weights on a GPU, fast: the same bits as struct ref_kernels' matmul.
 *
 * A weight's part is packed once into tiles of 64 rows x 128 columns, which serve decode (1 to 8
 * tokens) and prefill alike. Columns of each segment are padded with zeros to whole groups: a
 * zero block leaves an fp32 chain as it is. Activations are quantised into the layout below.
 *
 * Nothing here allocates or synchronises; every function queues kernels on `stream` and may be
 * captured. A workspace belongs to one stream at a time. */
#ifndef CUDA_MATMUL_FAST_H
#define CUDA_MATMUL_FAST_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define MATMUL_FAST_FN static constexpr __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MATMUL_FAST_FN static inline __attribute__((unused))
#else
#define MATMUL_FAST_FN static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

#include "sim/tensor_type.h"

/* The part of a weight that a device holds: as struct matmul, without where it lies. */
struct matmul_fast {
    enum tensor_type type; /* Q8_0, Q4_0, Q4_K, Q5_K, Q6_K */
    uint32_t group;        /* columns: 128 or 256 */
    uint64_t rows;         /* outputs */
    uint64_t count;        /* columns of each segment, a multiple of 32 */
    uint32_t segments;     /* groups are counted from the start of each */
    uint64_t groups_total; /* of one output, over all parts */
};

/* Where a product goes: one of `f32` and `sums` is NULL. (tokens, rows), `stride` elements from
 * token to token, overwritten. f32 is arith_from_fixed() of the sum; `sums` has ARITH_FLAG for one
 * that is flagged. */
struct matmul_fast_output {
    float *f32;
    int64_t *sums;
    uint64_t stride;
};

/* How a kernel is launched, any of them or-ed. */
enum {
    /* Start while the kernel before on the stream drains (programmatic dependent launch): it
     * reads only the packed weight until that kernel has completed. Not when that kernel writes
     * the packed weight. */
    MATMUL_FAST_OVERLAP = 1,
    /* What cards before Hopper take: plain loads, mma.sync. Such a product never overlaps. */
    MATMUL_FAST_PORTABLE = 2,
};

#define MATMUL_FAST_DECODE_TOKENS 8 /* at most, of one decode */

/** Whether the functions below take it: others go to a plain kernel. */
bool matmul_fast_takes(const struct matmul_fast *matmul);

/** Bytes of weights that a product of up to MATMUL_FAST_DECODE_TOKENS loads at most on the current
 * GPU before the kernel before it has ended; 0 where it loads none. */
size_t matmul_fast_ahead_bytes(enum tensor_type type, uint32_t tokens);

/** Bytes of the packed part. */
size_t matmul_fast_packed_bytes(const struct matmul_fast *matmul);

/**
 * Packs rows of a weight in ggml's layout.
 *
 * @param source          device memory: row `row` of the part
 * @param row_bytes       from one row of `source` to the next, even
 * @param segment_columns columns of a segment in `source`
 * @param first           column of a segment where the part begins, a multiple of the group
 * @param row, rows       which rows to pack; `row` is a multiple of 64, so is `rows` unless they
 *                        are the last ones
 * @param packed          the whole part, aligned to 16
 */
cudaError_t matmul_fast_pack(const struct matmul_fast *matmul, const void *source,
                             uint64_t row_bytes, uint64_t segment_columns, uint64_t first,
                             uint64_t row, uint64_t rows, void *packed, cudaStream_t stream);

/** Bytes of quantised activations of `tokens`. They depend on group, count and segments alone, so
 * that weights of different types and rows may share them. */
size_t matmul_fast_activation_bytes(const struct matmul_fast *matmul, uint32_t tokens);

/**
 * Quantises activations by arith_quantise_block().
 *
 * @param x        (tokens, segments x count), aligned to 16
 * @param x_stride elements from token to token, a multiple of 4
 */
cudaError_t matmul_fast_quantise(const struct matmul_fast *matmul, const float *x,
                                 uint64_t x_stride, uint32_t tokens, void *activations,
                                 unsigned flags, cudaStream_t stream);

/* Bytes at the start of a workspace that need not be zero: two sums for each output of a tile of
 * prefill, and their flags, for each block of the grid. */
#define MATMUL_FAST_GRID_MAX 256
#define MATMUL_FAST_SCRATCH (MATMUL_FAST_GRID_MAX * 2 * (128 * 64 * 8 + 256 * 4))

/** Bytes of a workspace for products of up to `rows` rows, aligned to 16. From MATMUL_FAST_SCRATCH
 * on all zero before its first use; every product leaves it so. */
size_t matmul_fast_workspace_bytes(uint64_t rows);

/**
 * A product of 1 to 8 tokens.
 *
 * @param activations of just so many tokens
 * @param scales      (tokens) multiplies each group's partial sum; NULL: none
 */
cudaError_t matmul_fast_decode(const struct matmul_fast *matmul, const void *packed,
                               const void *activations, uint32_t tokens, const float *scales,
                               struct matmul_fast_output output, void *workspace, unsigned flags,
                               cudaStream_t stream);

/* One of several weights of one launch. */
struct matmul_fast_part {
    const void *packed;
    uint64_t rows;
    struct matmul_fast_output output;
};

#define MATMUL_FAST_PARTS 4 /* at most */

/**
 * Products of the same 1 to 8 tokens with weights that differ in nothing but their rows.
 *
 * @param matmul    its rows are not read
 * @param workspace for rows in whole tiles of 64 of all parts
 */
cudaError_t matmul_fast_decode_parts(const struct matmul_fast *matmul,
                                     const struct matmul_fast_part *parts, uint32_t part_count,
                                     const void *activations, uint32_t tokens, const float *scales,
                                     void *workspace, unsigned flags, cudaStream_t stream);

/** A product of 9 and more tokens; else as matmul_fast_decode(). */
cudaError_t matmul_fast_prefill(const struct matmul_fast *matmul, const void *packed,
                                const void *activations, uint32_t tokens, const float *scales,
                                struct matmul_fast_output output, void *workspace, unsigned flags,
                                cudaStream_t stream);

/** matmul_fast_decode() or matmul_fast_prefill(), by the number of tokens. */
cudaError_t matmul_fast_product(const struct matmul_fast *matmul, const void *packed,
                                const void *activations, uint32_t tokens, const float *scales,
                                struct matmul_fast_output output, void *workspace, unsigned flags,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif

/* ---- layouts ---- */

#define MATMUL_FAST_ROWS 64     /* of a tile */
#define MATMUL_FAST_COLUMNS 128 /* of a tile: a window, 4 blocks */

/** Windows of 128 columns of one segment, padded to whole groups. */
MATMUL_FAST_FN uint32_t matmul_fast_segment_windows(const struct matmul_fast *matmul)
{
    uint64_t groups = (matmul->count + matmul->group - 1) / matmul->group;

    return (uint32_t)(groups * (matmul->group / MATMUL_FAST_COLUMNS));
}

MATMUL_FAST_FN uint32_t matmul_fast_windows(const struct matmul_fast *matmul)
{
    return matmul->segments * matmul_fast_segment_windows(matmul);
}

MATMUL_FAST_FN uint32_t matmul_fast_row_tiles(uint64_t rows)
{
    return (uint32_t)((rows + MATMUL_FAST_ROWS - 1) / MATMUL_FAST_ROWS);
}

/* A tile, (row tiles, windows) of them one after another. Bytes from its start, by type:
 *
 *   Q8_0  q (64, 128) int8, the 16-byte chunk c of row r at c ^ (r % 8): wgmma's 128-byte
 *         swizzle; then d (64, 4) f16
 *   others  nibbles (4 blocks, 64, 16): byte j of a block is value j | value 16 + j << 4
 *   Q4_0  then d (64, 4) f16; values plus 8
 *   Q4_K  then d, dmin (64, 2) f16; (64) u32, byte j: sub-scale j | minimum j >> 4 << 6;
 *         (64) u16, nibble j: minimum j & 15
 *   Q5_K  after the nibbles (64, 4) u32: bit i + 8 k of word j is the fifth bit of value 4 i + k
 *         of block j, bit 4 + i + 8 k of value 16 + 4 i + k; then as Q4_K
 *   Q6_K  after the nibbles (2, 64, 4) u32: two words for each block: bits 2 i + 8 k and the next
 * of the first are the upper bits of value 4 i + k, of the second of value 16 + 4 i + k; then (64,
 * 8) int8 sub-scales; d (64) f16; values plus 32 */
#define MATMUL_FAST_NIBBLES 4096

/** Where the scales begin. */
MATMUL_FAST_FN uint32_t matmul_fast_scales_at(enum tensor_type type)
{
    return type == TENSOR_TYPE_Q8_0   ? 8192
           : type == TENSOR_TYPE_Q5_K ? MATMUL_FAST_NIBBLES + 1024
           : type == TENSOR_TYPE_Q6_K ? MATMUL_FAST_NIBBLES + 2048
                                      : MATMUL_FAST_NIBBLES;
}

MATMUL_FAST_FN uint32_t matmul_fast_tile_bytes(enum tensor_type type)
{
    return matmul_fast_scales_at(type) +
           (type == TENSOR_TYPE_Q4_K || type == TENSOR_TYPE_Q5_K || type == TENSOR_TYPE_Q6_K ? 640
                                                                                             : 512);
}

/* Activations: tokens are padded to whole atoms of 8. An atom has
 *
 *   q      (8, 128) int8, chunk c of token t at c ^ t
 *   scales (4 blocks, 8) f32, times 2^30
 *   sums   (4 blocks, 8) f32, of the block's q
 *
 * Of up to 8 tokens: (windows) of scales, sums, q together, so that one copy has what a window
 * needs. Else all q (windows, atoms), then all scales, then all sums, where two atoms have theirs
 * together as (4 blocks, 4, 2 atoms, 2): what a thread with two neighbouring tokens of each atom
 * reads at once. */
#define MATMUL_FAST_ATOM 1024       /* bytes of q */
#define MATMUL_FAST_ATOM_SCALES 128 /* bytes of scales, and of sums */
#define MATMUL_FAST_RECORD (2 * MATMUL_FAST_ATOM_SCALES + MATMUL_FAST_ATOM)

MATMUL_FAST_FN uint32_t matmul_fast_padded_tokens(uint32_t tokens)
{
    return tokens <= 8 ? 8 : tokens <= 16 ? 16 : tokens <= 32 ? 32 : (tokens + 63) / 64 * 64;
}

/** Of the scales, and of the sums, of more than 8 tokens: where one lies, in floats. */
MATMUL_FAST_FN uint64_t matmul_fast_scale_at(uint32_t window, uint32_t atoms, uint32_t token,
                                             uint32_t b)
{
    return ((uint64_t)window * atoms + token / 16 * 2) * (MATMUL_FAST_ATOM_SCALES / 4) + b * 16 +
           token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

/* ---- what the kernels share ---- */

#ifdef __CUDACC__

#include <cuda_fp16.h>

struct matmul_fast_words {
    uint32_t low[4], high[4]; /* values 0 to 15 and 16 to 31 of a block, int8 */
};

/** Adds a negative `bias` to bytes of 0 to 63. */
static __device__ __forceinline__ uint32_t matmul_fast_lower(uint32_t bytes, uint32_t bias)
{
    return ((bytes | 0x80808080u) - bias * 0x01010101u) ^ 0x80808080u;
}

/** Values of a block from its nibbles and upper bits: Q4_0, Q4_K, Q5_K, Q6_K. */
template <int TYPE>
static __device__ __forceinline__ struct matmul_fast_words
matmul_fast_unpack(uint4 nibbles, uint32_t upper0, uint32_t upper1)
{
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    struct matmul_fast_words out;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        out.low[i] = words[i] & 0x0f0f0f0fu;
        out.high[i] = words[i] >> 4 & 0x0f0f0f0fu;
        if (TYPE == TENSOR_TYPE_Q5_K) {
            out.low[i] |= upper0 << (4 - i) & 0x10101010u;
            out.high[i] |= upper0 >> i & 0x10101010u;
        } else if (TYPE == TENSOR_TYPE_Q6_K) {
            out.low[i] |= (i < 3 ? upper0 << (4 - 2 * i) : upper0 >> 2) & 0x30303030u;
            out.high[i] |= (i < 3 ? upper1 << (4 - 2 * i) : upper1 >> 2) & 0x30303030u;
            out.low[i] = matmul_fast_lower(out.low[i], 32);
            out.high[i] = matmul_fast_lower(out.high[i], 32);
        } else if (TYPE == TENSOR_TYPE_Q4_0) {
            out.low[i] = matmul_fast_lower(out.low[i], 8);
            out.high[i] = matmul_fast_lower(out.high[i], 8);
        }
    }
    return out;
}

/* Scales of a row's window as they lie in a tile. */
struct matmul_fast_row_scales {
    uint32_t a, b, c;
};

template <int TYPE>
static __device__ __forceinline__ struct matmul_fast_row_scales
matmul_fast_load_scales(const uint8_t *scales, uint32_t r)
{
    struct matmul_fast_row_scales out;

    if (TYPE == TENSOR_TYPE_Q4_K || TYPE == TENSOR_TYPE_Q5_K) {
        out.a = *(const uint32_t *)(scales + r * 4);
        out.b = *(const uint32_t *)(scales + 256 + r * 4);
        out.c = *(const uint16_t *)(scales + 512 + r * 2);
    } else {
        uint2 two = *(const uint2 *)(scales + r * 8);

        out.a = two.x;
        out.b = two.y;
        out.c = TYPE == TENSOR_TYPE_Q6_K ? *(const uint16_t *)(scales + 512 + r * 2) : 0;
    }
    return out;
}

static __device__ __forceinline__ float matmul_fast_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Of block b (0 to 3, a constant) of the window. */
template <int TYPE>
static __device__ __forceinline__ float matmul_fast_d(struct matmul_fast_row_scales s, int b)
{
    if (TYPE == TENSOR_TYPE_Q6_K)
        return matmul_fast_half(s.c);
    if (TYPE == TENSOR_TYPE_Q4_K || TYPE == TENSOR_TYPE_Q5_K)
        return matmul_fast_half(s.a & 0xffff);
    return matmul_fast_half((b < 2 ? s.a : s.b) >> (16 * (b % 2)) & 0xffff);
}

/* Q4_K, Q5_K */
static __device__ __forceinline__ float matmul_fast_dmin(struct matmul_fast_row_scales s)
{
    return matmul_fast_half(s.a >> 16);
}

/* Q4_K, Q5_K: the sub-scale; Q6_K: of the first or the second 16 */
template <int TYPE>
static __device__ __forceinline__ int32_t matmul_fast_sub(struct matmul_fast_row_scales s, int b,
                                                          int half)
{
    if (TYPE == TENSOR_TYPE_Q6_K)
        return (int8_t)((b < 2 ? s.a : s.b) >> (16 * (b % 2) + 8 * half) & 255);
    return (int32_t)(s.b >> (8 * b) & 63);
}

/* Q4_K, Q5_K */
static __device__ __forceinline__ int32_t matmul_fast_min(struct matmul_fast_row_scales s, int b)
{
    return (int32_t)((s.c >> (4 * b) & 15) | (s.b >> (8 * b + 6) & 3) << 4);
}

/* ---- barriers in shared memory and bulk copies: sm_90 ---- */

static __device__ __forceinline__ uint32_t matmul_fast_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* Barriers and destinations are addresses in shared memory: matmul_fast_shared(). */

static __device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* 16-byte aligned; completes on `barrier`. */
static __device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The same of what is read once: it is the first to leave the L2 cache, so that activations, norms
 * and code stay there while weights pass. */
static __device__ __forceinline__ void bulk_copy_once(uint32_t to, const void *from, uint32_t bytes,
                                                      uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ uint64_t read_once_policy(void)
{
    uint64_t policy;

    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Before a thread that has read (or written) shared memory lets bulk copies or wgmma at it. */
static __device__ __forceinline__ void fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

static __device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif

#endif
