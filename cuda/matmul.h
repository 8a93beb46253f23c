/* Products with weights on a GPU: docs/arithmetic.md, "Products of quantised weights". */
#ifndef CUDA_MATMUL_H
#define CUDA_MATMUL_H

#include <cuda_runtime.h>

#include "cuda/activations.cuh"

extern "C" {
#include "sim/program.h"
#include "sim/tensor_type.h"
}

/* The part of a weight that a device has, packed: (experts, rows, columns) in ggml's layout. Its
 * columns lie in `segments` equal segments; groups are counted from the start of each. */
struct cuda_weight {
    enum tensor_type type;
    uint32_t experts;
    uint64_t rows, columns;
    uint64_t row_bytes;
    uint32_t segments;
    uint32_t group;        /* columns */
    uint64_t groups_total; /* of one output over all devices: bounds a group's partial sum */
    const void *data;      /* in the GPU's memory; 256 bytes aligned; NULL where it is packed */
    const void *packed;    /* the same in the layout of cuda/matmul_fast.h; NULL */
};

/* A product. Row t of the result is x[t / x_divide] times the matrix. */
struct cuda_product {
    const struct cuda_weight *weight;
    const float *x; /* (tokens / x_divide, columns) */
    uint32_t tokens, x_divide;
    /* Experts: row t takes matrix routes[t].expert. NULL: the only one, and weight 1. */
    const struct program_route *routes;
    bool weighted; /* routes[t].weight multiplies each group's partial sum in fp32 */
    float limit;   /* arith_limit() of all terms of an output */
    /* One of the two is set: (tokens, rows) fixed-point sums, or those rounded to f32. */
    int64_t *sums;
    float *out;
};

/** Whether a weight can be packed for the fast kernels: quantised ones but experts. */
bool cuda_matmul_packs(const struct cuda_weight *weight);
size_t cuda_matmul_packed_bytes(const struct cuda_weight *weight);

/** Packs weight->data, on `stream`. @return 0, or -1 with `err` set */
int cuda_matmul_pack(const struct cuda_weight *weight, void *packed, cudaStream_t stream,
                     struct error *err);

/* ---- with packed weights ---- */

/** Bytes of quantised activations of a product with `weight`. */
size_t cuda_matmul_activation_bytes(const struct cuda_weight *weight, uint32_t tokens);

/** The same for kernels that quantise what they compute; segments of `weight` are whole groups. */
struct activations cuda_matmul_activations(const struct cuda_weight *weight, uint32_t tokens,
                                           void *bytes);

/** Quantises the product's x. @return 0, or -1 with `err` set */
int cuda_matmul_quantise(const struct cuda_product *product, void *activations, cudaStream_t stream,
                         struct error *err);

/** Bytes that cuda_matmul_packed() needs beside: one workspace of each stream, all 0 at first. */
size_t cuda_matmul_workspace(const struct cuda_product *products, uint32_t count);

/**
 * Computes products with packed weights: one, or up to MATMUL_FAST_PARTS of the same few tokens
 * with weights that differ in nothing but their rows.
 *
 * @return 0, or -1 with `err` set
 */
int cuda_matmul_packed(const struct cuda_product *products, uint32_t count, const void *activations,
                       void *workspace, cudaStream_t stream, struct error *err);

/* ---- with others ---- */

/** Bytes of scratch that cuda_matmul() needs. */
size_t cuda_matmul_scratch(const struct cuda_product *product);

/**
 * Computes a product. Flags stay flags: an output that a flagged group takes part in is
 * ARITH_FLAG, or NaN.
 *
 * @param scratch of cuda_matmul_scratch() bytes, 256 bytes aligned, in use until the stream is
 *                behind this call
 * @return 0, or -1 with `err` set
 */
int cuda_matmul(const struct cuda_product *product, void *scratch, cudaStream_t stream,
                struct error *err);

#endif
