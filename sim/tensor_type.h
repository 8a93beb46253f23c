/* Tensor types of ggml: how many bytes a row of values takes. */
#ifndef SIM_TENSOR_TYPE_H
#define SIM_TENSOR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

/* name, id in a GGUF file, values in a block, bytes of a block, whether it is quantised.
 * Source: ggml/include/ggml.h and ggml/src/ggml-common.h of llama.cpp (August 2026). */
#define TENSOR_TYPES(TYPE) \
    TYPE(F32, 0, 1, 4, false) \
    TYPE(F16, 1, 1, 2, false) \
    TYPE(Q4_0, 2, 32, 18, true) \
    TYPE(Q4_1, 3, 32, 20, true) \
    TYPE(Q5_0, 6, 32, 22, true) \
    TYPE(Q5_1, 7, 32, 24, true) \
    TYPE(Q8_0, 8, 32, 34, true) \
    TYPE(Q8_1, 9, 32, 36, true) \
    TYPE(Q2_K, 10, 256, 84, true) \
    TYPE(Q3_K, 11, 256, 110, true) \
    TYPE(Q4_K, 12, 256, 144, true) \
    TYPE(Q5_K, 13, 256, 176, true) \
    TYPE(Q6_K, 14, 256, 210, true) \
    TYPE(Q8_K, 15, 256, 292, true) \
    TYPE(IQ2_XXS, 16, 256, 66, true) \
    TYPE(IQ2_XS, 17, 256, 74, true) \
    TYPE(IQ3_XXS, 18, 256, 98, true) \
    TYPE(IQ1_S, 19, 256, 50, true) \
    TYPE(IQ4_NL, 20, 32, 18, true) \
    TYPE(IQ3_S, 21, 256, 110, true) \
    TYPE(IQ2_S, 22, 256, 82, true) \
    TYPE(IQ4_XS, 23, 256, 136, true) \
    TYPE(I8, 24, 1, 1, false) \
    TYPE(I16, 25, 1, 2, false) \
    TYPE(I32, 26, 1, 4, false) \
    TYPE(I64, 27, 1, 8, false) \
    TYPE(F64, 28, 1, 8, false) \
    TYPE(IQ1_M, 29, 256, 56, true) \
    TYPE(BF16, 30, 1, 2, false) \
    TYPE(TQ1_0, 34, 256, 54, true) \
    TYPE(TQ2_0, 35, 256, 66, true) \
    TYPE(MXFP4, 39, 32, 17, true) \
    TYPE(NVFP4, 40, 64, 36, true) \
    TYPE(Q1_0, 41, 128, 18, true) \
    TYPE(Q2_0, 42, 64, 18, true)

enum tensor_type {
#define TENSOR_TYPE_ENUM(name, id, elements, bytes, quantised) TENSOR_TYPE_##name = id,
    TENSOR_TYPES(TENSOR_TYPE_ENUM)
#undef TENSOR_TYPE_ENUM
    TENSOR_TYPE_LIMIT = 64, /* every id is below */
};

struct tensor_type_info {
    const char *name; /* upper case, as in ggml; NULL for an id that no type has */
    uint32_t block_elements, block_bytes;
    bool quantised;
};

/** Facts of a type, or NULL when `id` is not a type (removed ids included). */
const struct tensor_type_info *tensor_type_info(uint32_t id);

/** Finds a type by name, case ignored ("q8_0", "Q8_0"). @return its id, or -1 */
int tensor_type_find(const char *name);

/**
 * Bytes of one row: elements / block_elements x block_bytes.
 *
 * @param elements a multiple of the type's block
 */
uint64_t tensor_type_row_bytes(enum tensor_type type, uint64_t elements);

#endif
