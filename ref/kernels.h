/* The loops of the reference, one record of functions for each instruction set that they
 * are compiled for. All give the same bits: docs/arithmetic.md. They know nothing of plans. */
#ifndef REF_KERNELS_H
#define REF_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/program.h"
#include "sim/tensor_type.h"

/* A product with part of a weight. Columns (the axis that is summed) lie in `segments` equal
 * segments; of each, `count` columns from `first` on take part. Groups are counted from the
 * start of each segment; a part begins at a group boundary, and ends at one or at the end
 * of the segment. */
struct matmul {
    enum tensor_type type;
    const void *weight;       /* row 0 */
    uint64_t row_bytes;       /* from one row to the next */
    uint64_t row_first, rows; /* outputs */
    uint64_t segment_columns; /* columns of one segment */
    uint32_t segments;
    uint64_t first, count; /* columns of each segment */
    uint32_t group;        /* columns */
    uint64_t groups_total; /* of one output, over all parts: bounds a group's partial sum */
};

/* Rotary embedding of `heads` heads of `dim` values of each token, in place: pair i of the first
 * `turned` values turns by position x frequencies[i]. */
struct rope {
    const struct program_token *tokens;
    uint32_t token_count;
    uint32_t heads, dim, turned;
    bool halves;               /* pairs are (i, i + turned / 2), else (2i, 2i + 1) */
    const double *frequencies; /* (turned / 2) */
};

/* Softmax attention of (tokens, heads, dim_k) queries over rows of a cache. */
struct attend {
    const float *query;
    const struct program_token *tokens;
    uint32_t token_count;
    uint32_t heads, kv_heads; /* that the query and the cache's part have */
    uint32_t dim_k, dim_v;
    const void *cache_k, *cache_v;
    enum tensor_type type_k, type_v;
    uint32_t row_heads, kv_first; /* heads of a cache row; the first that takes part */
    const int32_t *cells;         /* (sequences, positions): the row of a position; -1: none */
    uint32_t positions;
    uint32_t window; /* the last so many positions take part; 0: all */
    float scale;
};

/* The recurrent state of a sequence has planes: plane p is how it was p tokens ago. A step
 * starts from plane program_token.undone. */

/* Causal convolution of (tokens, channels) in place, then silu. */
struct convolve {
    const struct program_token *tokens;
    uint32_t token_count;
    uint64_t channels;
    uint32_t taps;
    const float *weight;       /* (channels of the whole layer, taps) */
    uint64_t segment_channels; /* channels lie in segments of so many in the layer, ... */
    uint64_t first, count;     /* ... of which these take part */
    float *state;              /* (sequences, planes, taps - 1, channels) */
    uint32_t planes;
};

/* Gated delta rule: (tokens, q k v of all heads) to (tokens, v_heads, dim). */
struct delta {
    const float *mix, *beta, *alpha; /* beta and alpha: (tokens, v_heads), before activation */
    const struct program_token *tokens;
    uint32_t token_count;
    uint32_t k_heads, v_heads, dim; /* value head h goes with key head h % k_heads */
    const float *dt, *a;            /* (v_heads) */
    float eps;                      /* of the norms of q and k */
    float *state;                   /* (sequences, planes, v_heads, dim of v, dim of k) */
    uint32_t planes;
};

/* Values of a head at most. */
enum { REF_HEAD_DIM_MAX = 1024 };

struct ref_kernels {
    const char *isa; /* "base", "avx2", "avx512" */

    /**
     * Adds fixed-point sums of a product.
     *
     * @param x      (tokens, segments x count) activations, contiguous
     * @param scales (tokens) multiplies each group's partial sum in fp32; NULL: 1, no product
     * @param sums   (tokens, rows) with `sums_stride` elements from token to token; added to
     *               by arith_fixed_add(), so a flag stays
     */
    void (*matmul)(const struct matmul *matmul, const float *x, const float *scales,
                   uint32_t tokens, int64_t *sums, uint64_t sums_stride);

    /** y = x / sqrt(mean(x^2) + eps) * weight, for `rows` rows of n. `weight` NULL: 1. `y` may
     * be `x`. */
    void (*rms_norm)(const float *x, const float *weight, float eps, uint64_t rows, uint64_t n,
                     float *y);

    /** y = a row of n values of a weight, times a scale. */
    void (*embed)(enum tensor_type type, const void *row, uint64_t n, float scale, float *y);

    /** n values into a row of a cache, from its value `first` on: whole blocks of the type. */
    void (*store)(enum tensor_type type, const float *x, uint64_t n, void *row, uint64_t first);

    /** y = activation(gate) * up, of n values. `y` may be `gate`. */
    void (*glu)(const float *gate, const float *up, bool gelu, uint64_t n, float *y);

    /** y = x * sigmoid(gate), of n values; y may be x. */
    void (*gate)(const float *x, const float *gate, uint64_t n, float *y);

    /** y = cap * tanh(x / cap), of n values; y may be x. */
    void (*softcap)(const float *x, float cap, uint64_t n, float *y);

    /** y = x * silu(gate), of n values; y may be x. */
    void (*silu_gate)(const float *x, const float *gate, uint64_t n, float *y);

    void (*rope)(const struct rope *rope, float *x);

    /** These return 0, or -1 when there is no memory for what they keep meanwhile. */
    int (*attend)(const struct attend *attend, float *out);
    int (*convolve)(const struct convolve *convolve, float *x);
    int (*delta)(const struct delta *delta, float *out);
};

/** The kernels for an instruction set; NULL takes the best that this CPU has.
 *
 * @return borrowed; NULL when this CPU or this build does not have it */
const struct ref_kernels *ref_kernels_find(const char *isa);

#endif
