/* The kernels beside products, each the twin of a loop in ref/: the same values in the same
 * order. All pointers lie in the GPU's memory; a launch returns 0, or -1 with `err` set. */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "cuda/activations.cuh"

extern "C" {
#include "ref/kernels.h"
#include "sim/error.h"
}

/* ---- kernel_norm.cu ---- */

/* A norm of rows of n values. */
struct cuda_norm {
    const float *x;
    const int64_t *sums; /* not NULL: x plus these is what the norm is of, and ... */
    float *joined;       /* ... where that goes; it may be `x` */
    const float *weight; /* (n); NULL: 1 */
    float eps;
    uint64_t n;
    float *y; /* it may be `x` */
    struct activations quantised;
};

int cuda_rms_norm(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                  struct error *err);

/* ---- kernel_norm_gate.cu ---- */

/* cuda_rms_norm() with a gate for rows of at most REF_HEAD_DIM_MAX. */
struct cuda_norm_gate {
    const float *x, *weight, *gate;
    float eps;
    uint64_t rows, n;
    float *y; /* it may be `x` */
    /* Where it has bytes, they get the result too, for a product over rows of tokens: whole rows
     * of n, which is a multiple of 32. */
    struct activations quantised;
    /* Behind cuda_delta_step() the convolution whose state takes the step's inputs, which are
     * `mix`; else it has no tokens. */
    struct convolve convolve;
    const float *mix;
};

int cuda_norm_gate(const struct cuda_norm_gate *norm, cudaStream_t stream, struct error *err);

/* ---- kernel_elementwise.cu: n values; the output may be an input ---- */

int cuda_join(const float *a, const float *b, uint64_t n, float *y, cudaStream_t stream,
              struct error *err);
/* Rows of `columns`; where `quantised` has bytes, they are written instead of y. */
int cuda_gate(const float *x, const float *gate, uint64_t n, float *y, uint64_t columns,
              const struct activations *quantised, cudaStream_t stream, struct error *err);
int cuda_glu(const float *gate, const float *up, bool gelu, uint64_t n, float *y, uint64_t columns,
             const struct activations *quantised, cudaStream_t stream, struct error *err);
int cuda_softcap(const float *x, float cap, uint64_t n, float *y, cudaStream_t stream,
                 struct error *err);
/* y = x times factors[0], or factors[i % columns] times `root` where `columns` is not 0. */
int cuda_scale(const float *x, const float *factors, uint64_t columns, float root, uint64_t n,
               float *y, cudaStream_t stream, struct error *err);
/* y = x times sigmoid(gates[i / columns]). */
int cuda_shared_gate(const float *x, const float *gates, uint64_t columns, uint64_t n, float *y,
                     cudaStream_t stream, struct error *err);
int cuda_finish(const int64_t *sums, uint64_t n, float *y, cudaStream_t stream, struct error *err);
/* Of each head 2n values: the first n to `query`, the others to `gate`. */
int cuda_split_gate(const float *x, uint64_t heads, uint64_t n, float *query, float *gate,
                    cudaStream_t stream, struct error *err);
/* Rows of n whose tokens have outputs, one behind the other. */
int cuda_select(const float *x, const struct program_token *tokens, uint32_t count, uint64_t n,
                float *y, cudaStream_t stream, struct error *err);
/* sums[t] = sum over `used` rows of `parts` (tokens, used, n), by arith_fixed_add(). */
int cuda_sum_experts(const int64_t *parts, uint32_t tokens, uint32_t used, uint64_t n,
                     int64_t *sums, cudaStream_t stream, struct error *err);

/* arith_from_fixed(), and back: rounded as no exact sum is. */
int cuda_sums_to_floats(const int64_t *sums, uint64_t n, float *floats, cudaStream_t stream,
                        struct error *err);
int cuda_floats_to_sums(const float *floats, uint64_t n, int64_t *sums, cudaStream_t stream,
                        struct error *err);

/* ---- kernel_pick.cu ---- */

/* Of each of `rows` rows of n logits the largest, and `first` plus its index: the lower one among
 * equals, a NaN before none. */
int cuda_pick(const float *logits, uint32_t rows, uint64_t n, uint64_t first,
              struct program_pick *picks, cudaStream_t stream, struct error *err);

/* ---- kernel_reduce.cu ---- */

struct cuda_members {
    const int64_t *parts[MACHINE_DEVICES_MAX];
    int64_t *totals[MACHINE_DEVICES_MAX];
    uint32_t part_count, total_count;
};

/* Each of `totals` becomes the sum of all `parts`, by plain addition; they may be the same. */
int cuda_sum_parts(const struct cuda_members *members, uint64_t n, cudaStream_t stream,
                   struct error *err);

/* ---- kernel_rope.cu ---- */

/* As struct ref_kernels; frequencies in the GPU's memory. */
int cuda_rope(const struct rope *rope, float *x, cudaStream_t stream, struct error *err);

/* ---- kernel_heads.cu ---- */

/* Rows of heads of one kind, (tokens, heads, dim), on their way from a product to attention. */
struct cuda_head_rows {
    const float *in;
    uint32_t step; /* values from one head of `in` to the next */
    float *out;    /* (tokens, heads, dim) */
    uint32_t heads, dim;
    bool normed;
    const float *norm; /* (dim); NULL: 1 */
    void *cache;       /* NULL: not stored */
    enum tensor_type cache_type;
    uint64_t cache_row, cache_first; /* values of a row; those before these heads */
};

/* Heads of a step, split, normed, turned and stored as the operations one by one would. */
struct cuda_heads {
    const struct program_token *tokens;
    uint32_t token_count;
    struct cuda_head_rows query, key, value;
    float *gate; /* (tokens, heads, dim): what lies behind each head of query.in; NULL */
    float eps;
    uint32_t turned;
    bool halves, sliding;
    const double *frequencies;
};

enum { CUDA_HEADS_DIM_MAX = 256 }; /* a multiple of 32 */

int cuda_heads(const struct cuda_heads *heads, cudaStream_t stream, struct error *err);

/* ---- kernel_cache.cu ---- */

/* Rows of `width` values into a cache, `first` values behind the start of its row. */
struct cuda_store {
    enum tensor_type type;
    const struct program_token *tokens;
    uint32_t token_count;
    bool sliding;        /* which of a token's cells */
    uint64_t width, row; /* values stored, values of a row of the cache */
    uint64_t first;
};

int cuda_store(const struct cuda_store *store, const float *x, void *cache, cudaStream_t stream,
               struct error *err);

/* Rows whose shift is not 0 are turned back by it. */
struct cuda_shift {
    enum tensor_type type;
    const uint32_t *shifts; /* (rows) */
    uint64_t rows;
    uint64_t row, first; /* values of a row; those before the heads that turn */
    uint32_t heads, dim, turned;
    bool halves;
    const double *frequencies; /* as of a rope; used with the other sign */
};

int cuda_shift(const struct cuda_shift *shift, void *cache, cudaStream_t stream, struct error *err);

/* ---- kernel_attend.cu ---- */

/* Chunks that a token touches at most, for `tokens` in the host's memory. */
uint32_t cuda_attend_chunks(const struct program_token *tokens, uint32_t count, uint32_t window);

/** Bytes of scratch; less makes more launches, each of some tokens. */
size_t cuda_attend_scratch(const struct attend *attend, uint32_t chunks);

/** `chunks` is cuda_attend_chunks() of the tokens, or more: what is launched depends on it, on
 * `attend` and on the number of tokens alone.
 *
 * @param quantised gets `out` as activations too, a row of heads x dim_v columns for each token:
 *                  dim_v is a multiple of 32; NULL, or its bytes NULL: none */
int cuda_attend(const struct attend *attend, uint32_t chunks, void *scratch, float *out,
                const struct activations *quantised, cudaStream_t stream, struct error *err);

/* ---- kernel_delta.cu ---- */

int cuda_convolve(const struct convolve *convolve, uint32_t sequences, float *x,
                  cudaStream_t stream, struct error *err);

/* `delta->dt` and `delta->a` are those of the whole layer: head h has value
 * (h / count) x total + first + h % count. */
struct cuda_delta_heads {
    uint64_t total, first, count;
};

size_t cuda_delta_scratch(const struct delta *delta);
int cuda_delta(const struct delta *delta, struct cuda_delta_heads heads, uint32_t sequences,
               void *scratch, float *out, cudaStream_t stream, struct error *err);

/* ---- kernel_delta_step.cu ---- */

enum { CUDA_DELTA_STEP_TOKENS = 8 };

/** Whether cuda_delta_step() can do it, where no sequence has more than one token. */
bool cuda_delta_step_fits(const struct convolve *convolve, const struct delta *delta);

/**
 * cuda_convolve() and cuda_delta() of a step in which no sequence has more than one token, but for
 * two things: `delta->mix` stays as it was before the convolution, and so does the convolution's
 * state until the cuda_norm_gate() behind it.
 */
int cuda_delta_step(const struct convolve *convolve, const struct delta *delta,
                    struct cuda_delta_heads heads, float *out, cudaStream_t stream,
                    struct error *err);

/* ---- kernel_router.cu ---- */

struct cuda_route {
    const float *logits; /* (tokens, experts) */
    const float *scales; /* (experts), or NULL */
    uint32_t tokens, experts, used;
    bool normalised;
    float expert_scale;
};

int cuda_route(const struct cuda_route *route, struct program_route *out, cudaStream_t stream,
               struct error *err);

/* ---- kernel_copy.cu ---- */

/* Rows of `width` bytes, a multiple of 4; less than 4 GiB. */
struct cuda_copy_part {
    const char *from;
    char *to;
    uint64_t from_row, to_row, width;
    uint32_t rows;
};

enum { CUDA_COPY_PARTS = 64 };

struct cuda_copies {
    struct cuda_copy_part parts[CUDA_COPY_PARTS];
    uint32_t count;
};

/** All parts to, or all from, pinned memory of the host. */
int cuda_copy_small(const struct cuda_copies *copies, bool to_host, cudaStream_t stream,
                    struct error *err);

#endif
