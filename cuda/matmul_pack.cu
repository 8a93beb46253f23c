/* Packing of weights and quantisation of activations: the layouts of matmul_fast.h. */
#include "cuda/activations.cuh"
#include "cuda/launch.cuh"
#include "cuda/matmul_fast.h"

#include "ref/arith.h"

#define THREADS 256

bool matmul_fast_takes(const struct matmul_fast *matmul)
{
    uint64_t groups;

    if (!arith_type_is_quantised(matmul->type) || (matmul->group != 128 && matmul->group != 256) ||
        matmul->count == 0 || matmul->count % ARITH_BLOCK != 0 || matmul->segments == 0 ||
        matmul->rows == 0)
        return false;
    groups = matmul->segments * ((matmul->count + matmul->group - 1) / matmul->group);
    return groups <= 500 && matmul->rows < UINT64_C(1) << 30; /* sums of 23-bit parts in int32 */
}

size_t matmul_fast_packed_bytes(const struct matmul_fast *matmul)
{
    return (size_t)matmul_fast_row_tiles(matmul->rows) * matmul_fast_windows(matmul) *
           matmul_fast_tile_bytes(matmul->type);
}

size_t matmul_fast_activation_bytes(const struct matmul_fast *matmul, uint32_t tokens)
{
    return (size_t)matmul_fast_windows(matmul) * (matmul_fast_padded_tokens(tokens) / 8) *
           MATMUL_FAST_RECORD;
}

/* ---- weights ---- */

/* The 16 bytes and the words of upper bits of a block of 4 to 6 bits. */
static __device__ void pack_nibbles(const uint8_t *values, uint32_t nibbles[4], uint32_t upper[2],
                                    int upper_bits)
{
    upper[0] = upper[1] = 0;
    for (int i = 0; i < 4; i++) {
        nibbles[i] = 0;
        for (int k = 0; k < 4; k++) {
            uint32_t low = values[4 * i + k], high = values[16 + 4 * i + k];

            nibbles[i] |= ((low & 15) | (high & 15) << 4) << (8 * k);
            if (upper_bits == 1) {
                upper[0] |= (low >> 4) << (i + 8 * k);
                upper[0] |= (high >> 4) << (4 + i + 8 * k);
            } else if (upper_bits == 2) {
                upper[0] |= (low >> 4) << (2 * i + 8 * k);
                upper[1] |= (high >> 4) << (2 * i + 8 * k);
            }
        }
    }
}

/* One thread packs one row's window. */
static __global__ void pack_kernel(struct matmul_fast matmul, const uint8_t *source,
                                   uint64_t row_bytes, uint64_t segment_columns, uint64_t first,
                                   uint64_t row_first, uint64_t rows, uint8_t *packed)
{
    const enum tensor_type type = matmul.type;
    const uint32_t windows = matmul_fast_windows(&matmul);
    const uint32_t segment_windows = matmul_fast_segment_windows(&matmul);
    const uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t row_in = at % ((rows + 63) / 64 * 64);
    const uint64_t window = at / ((rows + 63) / 64 * 64);
    const uint64_t row = row_first + row_in;
    const uint32_t r = (uint32_t)(row % MATMUL_FAST_ROWS);
    uint32_t words[4] = {0, 0, 0, 0}; /* scales: as they are laid out */

    if (window >= windows)
        return;

    uint8_t *tile =
        packed + (row / MATMUL_FAST_ROWS * windows + window) * matmul_fast_tile_bytes(type);
    uint8_t *scales = tile + matmul_fast_scales_at(type);

    for (uint32_t b = 0; b < 4; b++) {
        uint64_t column = window % segment_windows * MATMUL_FAST_COLUMNS + b * ARITH_BLOCK;
        bool there = row_in < rows && column < matmul.count;
        struct arith_block block;
        uint8_t values[ARITH_BLOCK];
        uint32_t nibbles[4], upper[2];
        int bias = type == TENSOR_TYPE_Q4_0 ? 8 : type == TENSOR_TYPE_Q6_K ? 32 : 0;

        memset(&block, 0, sizeof(block));
        if (there) {
            uint64_t from = window / segment_windows * segment_columns + first + column;
            uint32_t columns = arith_type_columns(type);

            arith_decode_block(
                type, source + row_in * row_bytes + from / columns * arith_type_bytes(type),
                (uint32_t)(from % columns) / ARITH_BLOCK, &block);
        }
        for (int i = 0; i < ARITH_BLOCK; i++)
            values[i] = (uint8_t)(block.values[i] + bias);

        if (type == TENSOR_TYPE_Q8_0) {
            for (uint32_t half = 0; half < 2; half++)
                memcpy(tile + r * 128 + ((2 * b + half) ^ (r & 7)) * 16, values + 16 * half, 16);
        } else {
            pack_nibbles(values, nibbles, upper,
                         type == TENSOR_TYPE_Q5_K   ? 1
                         : type == TENSOR_TYPE_Q6_K ? 2
                                                    : 0);
            memcpy(tile + b * 1024 + r * 16, nibbles, 16);
            if (type == TENSOR_TYPE_Q5_K)
                memcpy(tile + MATMUL_FAST_NIBBLES + r * 16 + b * 4, upper, 4);
            else if (type == TENSOR_TYPE_Q6_K)
                memcpy(tile + MATMUL_FAST_NIBBLES + b / 2 * 1024 + r * 16 + b % 2 * 8, upper, 8);
        }

        uint32_t d = arith_f16_from_f32(block.d), dmin = arith_f16_from_f32(block.dmin);

        if (type == TENSOR_TYPE_Q8_0 || type == TENSOR_TYPE_Q4_0) {
            words[b / 2] |= d << (16 * (b % 2));
        } else if (type == TENSOR_TYPE_Q6_K) {
            words[b / 2] |=
                ((uint32_t)(block.scale[0] & 255) | (uint32_t)(block.scale[1] & 255) << 8)
                << (16 * (b % 2));
            words[2] |= there ? d : 0;
        } else {
            words[0] |= there ? d | dmin << 16 : 0;
            words[1] |= (uint32_t)(block.scale[0] | block.min >> 4 << 6) << (8 * b);
            words[2] |= (uint32_t)(block.min & 15) << (4 * b);
        }
    }
    if (type == TENSOR_TYPE_Q4_K || type == TENSOR_TYPE_Q5_K) {
        memcpy(scales + r * 4, &words[0], 4);
        memcpy(scales + 256 + r * 4, &words[1], 4);
        memcpy(scales + 512 + r * 2, &words[2], 2);
    } else {
        memcpy(scales + r * 8, words, 8);
        if (type == TENSOR_TYPE_Q6_K)
            memcpy(scales + 512 + r * 2, &words[2], 2);
    }
}

cudaError_t matmul_fast_pack(const struct matmul_fast *matmul, const void *source,
                             uint64_t row_bytes, uint64_t segment_columns, uint64_t first,
                             uint64_t row, uint64_t rows, void *packed, cudaStream_t stream)
{
    uint64_t threads = (rows + 63) / 64 * 64 * matmul_fast_windows(matmul);

    if (!matmul_fast_takes(matmul) || row % MATMUL_FAST_ROWS != 0 || row + rows > matmul->rows ||
        first % matmul->group != 0)
        return cudaErrorInvalidValue;
    if (arith_type_columns(matmul->type) == 256 && segment_columns % MATMUL_FAST_COLUMNS != 0)
        return cudaErrorInvalidValue; /* a window would meet two blocks */
    if (rows == 0)
        return cudaSuccess;
    pack_kernel<<<(unsigned)((threads + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        *matmul, (const uint8_t *)source, row_bytes, segment_columns, first, row, rows,
        (uint8_t *)packed);
    return cudaGetLastError();
}

/* ---- activations ---- */

/* 8 lanes quantise a block, 4 values each. blockIdx.y: a token. */
static __global__ void __launch_bounds__(THREADS)
    quantise_kernel(struct launch_stamp stamp, const float *x, uint64_t x_stride, uint32_t tokens,
                    struct activations to, uint32_t segment_windows, uint64_t count)
{
    const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) * 4; /* of a token, with padding */
    const uint32_t token = blockIdx.y, window = at / MATMUL_FAST_COLUMNS;
    const uint64_t column =
        (uint64_t)(window % segment_windows) * MATMUL_FAST_COLUMNS + at % MATMUL_FAST_COLUMNS;
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    launch_begin(stamp);
    if (window < to.windows && token < tokens && column < count)
        value = *(const float4 *)(x + token * x_stride + window / segment_windows * count + column);
    activations_store_four(to, token, at, value, window < to.windows);
}

cudaError_t matmul_fast_quantise(const struct matmul_fast *matmul, const float *x,
                                 uint64_t x_stride, uint32_t tokens, void *activations,
                                 unsigned flags, cudaStream_t stream)
{
    const struct activations to = activations_of(matmul, tokens, activations);

    if (!matmul_fast_takes(matmul) || tokens == 0 || x_stride % 4 != 0)
        return cudaErrorInvalidValue;

    dim3 grid((to.windows * MATMUL_FAST_COLUMNS / 4 + THREADS - 1) / THREADS, to.atoms * 8);

    if (flags & MATMUL_FAST_OVERLAP)
        launch_overlapping(quantise_kernel, grid, THREADS, 0, stream, x, x_stride, tokens, to,
                           matmul_fast_segment_windows(matmul), matmul->count);
    else
        quantise_kernel<<<grid, THREADS, 0, stream>>>(launch_take_stamp(), x, x_stride, tokens, to,
                                                      matmul_fast_segment_windows(matmul),
                                                      matmul->count);
    return cudaGetLastError();
}
