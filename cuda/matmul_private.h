/* What the plain kernels for products share. */
#ifndef CUDA_MATMUL_PRIVATE_H
#define CUDA_MATMUL_PRIVATE_H

#include "cuda/matmul.h"

enum {
    MATVEC_TOKENS = 8,    /* rows of a result up to which each is a matrix-vector product */
    MATVEC_ROUTES = 1024, /* the same of experts, of which each tile would have a few rows */
    MATMUL_TILE = 64,     /* rows and tokens of a tile */
};

/* Rows of a result that take the same expert: order[first], ... */
struct matmul_tile {
    uint32_t expert, first, count;
};

struct matmul_tiles {
    uint32_t *count;
    uint32_t *order; /* (tokens) rows of the result, those of an expert together */
    struct matmul_tile *list;
};

/* In the GPU's memory. */
struct matmul_inputs {
    int8_t *q;                 /* (tokens / x_divide, columns); quantised types only */
    float *scales;             /* (tokens / x_divide, blocks of 32) */
    int *block_sums;           /* the same */
    struct matmul_tiles tiles; /* experts only */
};

/** Tiles that a product has at most. */
uint32_t matmul_tile_count(const struct cuda_product *product);

/* The kernels. @return 0, or -1 with `err` set */
int matmul_float(const struct cuda_product *product, const struct matmul_inputs *inputs,
                 cudaStream_t stream, struct error *err);
int matmul_vector(const struct cuda_product *product, const struct matmul_inputs *inputs,
                  cudaStream_t stream, struct error *err);
int matmul_tiles_run(const struct cuda_product *product, const struct matmul_inputs *inputs,
                     cudaStream_t stream, struct error *err);

#endif
