/* Blocks of 32 weights as eight words of four int8, for dp4a. The values are those of
 * arith_decode_block(). */
#ifndef CUDA_MATMUL_BLOCK_CUH
#define CUDA_MATMUL_BLOCK_CUH

#include "cuda/matmul.h"

extern "C" {
#include "ref/arith.h"
}

struct weight_words {
    int v[8];
    int scale0, scale1, min;
    float d, dmin;
};

/* Blocks are aligned to 2 bytes. */
__device__ __forceinline__ int load_word(const uint8_t *bytes)
{
    const uint16_t *halves = (const uint16_t *)bytes;

    return (int)(halves[0] | (uint32_t)halves[1] << 16);
}

/* Block `index` of 32 columns of a row. */
template <int TYPE>
__device__ __forceinline__ void load_words(const uint8_t *row, uint64_t index, weight_words *w)
{
    w->scale0 = w->scale1 = 1;
    w->min = 0;
    w->dmin = 0.0f;
    if (TYPE == TENSOR_TYPE_Q8_0) {
        const arith_q8_0 *block = (const arith_q8_0 *)row + index;

        for (int i = 0; i < 8; i++)
            w->v[i] = load_word((const uint8_t *)block->qs + 4 * i);
        w->d = arith_f32_from_f16(block->d);
    } else if (TYPE == TENSOR_TYPE_Q4_0) {
        const arith_q4_0 *block = (const arith_q4_0 *)row + index;

        for (int i = 0; i < 4; i++) {
            uint32_t both = (uint32_t)load_word(block->qs + 4 * i);

            w->v[i] = (int)__vsub4(both & 0x0f0f0f0fu, 0x08080808u);
            w->v[i + 4] = (int)__vsub4(both >> 4 & 0x0f0f0f0fu, 0x08080808u);
        }
        w->d = arith_f32_from_f16(block->d);
    } else if (TYPE == TENSOR_TYPE_Q4_K) {
        const arith_q4_k *block = (const arith_q4_k *)row + index / 8;
        uint32_t which = (uint32_t)(index % 8), shift = 4 * (which & 1);

        for (int i = 0; i < 8; i++)
            w->v[i] = (int)((uint32_t)load_word(block->qs + 32 * (which / 2) + 4 * i) >> shift &
                            0x0f0f0f0fu);
        arith_k_scale_min(block->scales, which, &w->scale0, &w->min);
        w->scale1 = w->scale0;
        w->d = arith_f32_from_f16(block->d);
        w->dmin = arith_f32_from_f16(block->dmin);
    } else if (TYPE == TENSOR_TYPE_Q5_K) {
        const arith_q5_k *block = (const arith_q5_k *)row + index / 8;
        uint32_t which = (uint32_t)(index % 8), shift = 4 * (which & 1);

        for (int i = 0; i < 8; i++) {
            uint32_t low = (uint32_t)load_word(block->qs + 32 * (which / 2) + 4 * i) >> shift;
            uint32_t high = (uint32_t)load_word(block->qh + 4 * i) >> which;

            w->v[i] = (int)((low & 0x0f0f0f0fu) | (high & 0x01010101u) << 4);
        }
        arith_k_scale_min(block->scales, which, &w->scale0, &w->min);
        w->scale1 = w->scale0;
        w->d = arith_f32_from_f16(block->d);
        w->dmin = arith_f32_from_f16(block->dmin);
    } else {
        const arith_q6_k *block = (const arith_q6_k *)row + index / 8;
        uint32_t which = (uint32_t)(index % 8);
        uint32_t low_shift = which & 2 ? 4 : 0, high_shift = 2 * (which & 3);
        const uint8_t *ql = block->ql + 64 * (which / 4) + 32 * (which & 1);
        const uint8_t *qh = block->qh + 32 * (which / 4);

        for (int i = 0; i < 8; i++) {
            uint32_t low = (uint32_t)load_word(ql + 4 * i) >> low_shift & 0x0f0f0f0fu;
            uint32_t high = (uint32_t)load_word(qh + 4 * i) >> high_shift & 0x03030303u;

            w->v[i] = (int)__vsub4(low | high << 4, 0x20202020u);
        }
        w->scale0 = block->scales[2 * which];
        w->scale1 = block->scales[2 * which + 1];
        w->d = arith_f32_from_f16(block->d);
    }
}

template <int TYPE> constexpr bool has_min = TYPE == TENSOR_TYPE_Q4_K || TYPE == TENSOR_TYPE_Q5_K;

/* arith_decoded_fma() of 32 weights and the words of 32 activations. */
template <int TYPE>
__device__ __forceinline__ float words_fma(const weight_words *w, int4 low, int4 high, float scale,
                                           int sum, float acc)
{
    int first = 0, second = 0;

    first = __dp4a(w->v[0], low.x, first);
    first = __dp4a(w->v[1], low.y, first);
    first = __dp4a(w->v[2], low.z, first);
    first = __dp4a(w->v[3], low.w, first);
    second = __dp4a(w->v[4], high.x, second);
    second = __dp4a(w->v[5], high.y, second);
    second = __dp4a(w->v[6], high.z, second);
    second = __dp4a(w->v[7], high.w, second);
    acc = fmaf((float)(w->scale0 * first + w->scale1 * second), w->d * scale, acc);
    if (has_min<TYPE>)
        acc = fmaf((float)(w->min * sum), -(w->dmin * scale), acc);
    return acc;
}

/* Runs a statement with the quantised type as a constant. */
#define FOR_QUANTISED_TYPE(type, statement)                                                        \
    switch (type) {                                                                                \
    case TENSOR_TYPE_Q8_0: {                                                                       \
        constexpr int TYPE = TENSOR_TYPE_Q8_0;                                                     \
        statement;                                                                                 \
    } break;                                                                                       \
    case TENSOR_TYPE_Q4_0: {                                                                       \
        constexpr int TYPE = TENSOR_TYPE_Q4_0;                                                     \
        statement;                                                                                 \
    } break;                                                                                       \
    case TENSOR_TYPE_Q4_K: {                                                                       \
        constexpr int TYPE = TENSOR_TYPE_Q4_K;                                                     \
        statement;                                                                                 \
    } break;                                                                                       \
    case TENSOR_TYPE_Q5_K: {                                                                       \
        constexpr int TYPE = TENSOR_TYPE_Q5_K;                                                     \
        statement;                                                                                 \
    } break;                                                                                       \
    default: {                                                                                     \
        constexpr int TYPE = TENSOR_TYPE_Q6_K;                                                     \
        statement;                                                                                 \
    } break;                                                                                       \
    }

#endif
