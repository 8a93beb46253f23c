/* What the kernels of softmax attention share. */
#ifndef CUDA_ATTEND_PRIVATE_CUH
#define CUDA_ATTEND_PRIVATE_CUH

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" {
#include "sim/tensor_type.h"
}

#include "cuda/activations.cuh"
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

#define ATTEND_CHUNK 256 /* positions */

/* What a chunk leaves, 16 bytes; `any` 0: it had no position, and its values are 0. */
struct attend_chunk {
    float maximum, sum;
    uint32_t any, unused;
};

/* The K or V cache as rows of one head, and how they lie in shared memory. */
struct attend_cache {
    const char *bytes;
    enum tensor_type type;
    uint32_t dim;
    uint32_t row;    /* bytes of one head */
    uint32_t all;    /* of all heads */
    uint32_t unit;   /* bytes that a copy takes at once: all rows are aligned to so many */
    uint32_t units;  /* of a row */
    uint32_t stride; /* bytes from row to row in shared memory */
};

/* Some tokens of a step. */
struct attend_part {
    struct attend attend;
    struct attend_cache k, v;
    uint32_t first, count;        /* tokens */
    uint32_t chunks;              /* that a token has at most */
    struct attend_chunk *parts;   /* (count, heads, chunks) */
    float *values;                /* (count, heads, chunks, dim_v) */
    float *out;                   /* (tokens, heads, dim_v) */
    struct activations quantised; /* the same */
};

/* Shared memory that attend_tiles() needs of a GPU. */
#define ATTEND_TILE_BYTES (224 << 10)

/** Lets `kernel` have `bytes` of shared memory, of all that a multiprocessor has. */
template <typename Kernel>
static int attend_allow_shared(Kernel kernel, int bytes, struct error *err)
{
    if (cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "shared memory for attention", err) != 0)
        return -1;
    return cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared),
                      "shared memory for attention", err);
}

/** Chunks of many tokens: kernel_attend_tile.cu. */
int attend_tiles(const attend_part &p, cudaStream_t stream, struct error *err);

__host__ __device__ static inline uint32_t attend_first(const struct program_token *token,
                                                        uint32_t window)
{
    if (window == 0 || token->position + 1 <= window)
        return 0;
    return token->position + 1 - window;
}

/* ---- rows in shared memory ---- */

static __device__ __forceinline__ float attend_half(const char *at)
{
    return __half2float(*(const __half *)at);
}

/* Byte `l` of a word as a float, less `bias`: exact. */
static __device__ __forceinline__ float attend_byte(uint32_t word, int l, float bias)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | l)) - (0x1p23f + bias);
}

/* Values 8 `piece` and on of a row that begins at a multiple of 4. NaNs have any bits. */
template <int TYPE>
static __device__ __forceinline__ void attend_eight(const char *row, uint32_t piece, float *out)
{
    if (TYPE == TENSOR_TYPE_F16) {
        const uint4 words = *(const uint4 *)(row + piece * 16);
        const uint32_t each[4] = {words.x, words.y, words.z, words.w};

#pragma unroll
        for (int l = 0; l < 4; l++) {
            const float2 two = __half22float2(*(const __half2 *)&each[l]);

            out[2 * l] = two.x;
            out[2 * l + 1] = two.y;
        }
        return;
    }

    const bool bytes = TYPE == TENSOR_TYPE_Q8_0;
    const uint32_t block = piece / 4 * (bytes ? 34 : 18);
    const uint32_t at = block + 2 + (bytes ? piece % 4 : piece % 2) * 8;
    const uint32_t *words = (const uint32_t *)(row + (at & ~3u));
    const uint32_t shift = at % 4 * 8;
    const float d = attend_half(row + block);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t next = half == 0 || shift != 0 ? words[half + 1] : 0;
        uint32_t four = __funnelshift_r(words[half], next, shift);

        four = bytes ? four ^ 0x80808080u : four >> (piece & 2 ? 4 : 0) & 0x0f0f0f0fu;
#pragma unroll
        for (int l = 0; l < 4; l++)
            out[4 * half + l] = d * attend_byte(four, l, bytes ? 128.0f : 8.0f);
    }
}

/* Where a value of a row lies, and the scale of its block. */
struct attend_place {
    uint32_t d, q, shift;
};

template <int TYPE>
static __device__ __forceinline__ struct attend_place attend_place_of(uint32_t i)
{
    struct attend_place place = {0, 2 * i, 0};

    if (TYPE == TENSOR_TYPE_Q8_0) {
        place.d = i / 32 * 34;
        place.q = place.d + 2 + i % 32;
    } else if (TYPE == TENSOR_TYPE_Q4_0) {
        place.d = i / 32 * 18;
        place.q = place.d + 2 + i % 16;
        place.shift = i % 32 / 16 * 4;
    }
    return place;
}

/* A value at an even place and the one behind it. */
template <int TYPE>
static __device__ __forceinline__ float2 attend_two(const char *row, struct attend_place place)
{
    if (TYPE == TENSOR_TYPE_F16)
        return __half22float2(*(const __half2 *)(row + place.q));

    const bool bytes = TYPE == TENSOR_TYPE_Q8_0;
    const float d = attend_half(row + place.d), bias = bytes ? 128.0f : 8.0f;
    uint32_t two = *(const uint16_t *)(row + place.q);

    two = bytes ? two ^ 0x8080u : two >> place.shift & 0x0f0fu;
    return make_float2(d * attend_byte(two, 0, bias), d * attend_byte(two, 1, bias));
}

template <int UNIT>
static __device__ __forceinline__ void attend_copy_units(const struct attend_cache &cache,
                                                         const char *from, const int32_t *rows,
                                                         uint32_t count, char *to)
{
    const uint32_t inverse = 0xffffffffu / cache.units + 1; /* u / units for small u */

#pragma unroll 4
    for (uint32_t u = threadIdx.x; u < count * cache.units; u += blockDim.x) {
        const uint32_t r = cache.units == 1 ? u : __umulhi(u, inverse);
        const uint32_t at = (u - r * cache.units) * UNIT;
        const char *source = from + (uint64_t)(uint32_t)rows[r] * cache.all + at;
        char *target = to + r * cache.stride + at;

        if (UNIT >= 4)
            __pipeline_memcpy_async(target, source, UNIT >= 4 ? UNIT : 4);
        else
            *(uint16_t *)target = *(const uint16_t *)source;
    }
}

/* Begins to copy `count` rows of a head into shared memory, all threads of a block together.
 * Two bytes at a time are copied at once. */
static __device__ __forceinline__ void attend_copy(const struct attend_cache &cache, uint32_t head,
                                                   const int32_t *rows, uint32_t count, char *to)
{
    const char *from = cache.bytes + (uint64_t)head * cache.row;

    if (cache.unit == 16)
        attend_copy_units<16>(cache, from, rows, count, to);
    else if (cache.unit == 8)
        attend_copy_units<8>(cache, from, rows, count, to);
    else if (cache.unit == 4)
        attend_copy_units<4>(cache, from, rows, count, to);
    else
        attend_copy_units<2>(cache, from, rows, count, to);
}

/* Block-wide: the rows of a sequence's positions `from` to `to` that have cells, in order, for
 * ATTEND_CHUNK positions from `first` on, of a thread each, or more threads. `listed_before`,
 * unless NULL: how many of them are before a position. @return how many there are */
static __device__ __forceinline__ uint32_t attend_rows(const struct attend &a, uint32_t sequence,
                                                       uint32_t first, uint32_t from, uint32_t to,
                                                       int32_t *rows, uint32_t *warp_counts,
                                                       uint16_t *listed_before)
{
    const uint32_t j = threadIdx.x, position = first + j;
    const bool asked =
        j < ATTEND_CHUNK && position >= from && position <= to && position < a.positions;
    const int32_t row = asked ? a.cells[(uint64_t)sequence * a.positions + position] : -1;
    const uint32_t there = __ballot_sync(0xffffffffu, row >= 0);
    uint32_t before = 0, all = 0;

    if (j % 32 == 0 && j < ATTEND_CHUNK)
        warp_counts[j / 32] = __popc(there);
    __syncthreads();
#pragma unroll
    for (uint32_t w = 0; w < ATTEND_CHUNK / 32; w++) {
        before += w < j / 32 ? warp_counts[w] : 0;
        all += warp_counts[w];
    }
    before += __popc(there & ((1u << j % 32) - 1));
    if (row >= 0)
        rows[before] = row;
    if (listed_before != nullptr && j < ATTEND_CHUNK)
        listed_before[j] = (uint16_t)before;
    __syncthreads();
    return all;
}

#endif
