/* Inputs, variants and errors that the tests of the kernels share. */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ref/kernels.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ck_assert() for loops of millions: it writes a mark for each claim that holds. */
#define HOLDS(claim)                                                                               \
    do {                                                                                           \
        if (!(claim))                                                                              \
            ck_abort_msg("does not hold: %s", #claim);                                             \
    } while (0)

/* What random values look like; all have both signs. */
enum kernel_inputs {
    KERNEL_INPUTS_NORMAL,   /* around 1 */
    KERNEL_INPUTS_HUGE,     /* around 2^56: a sum of squares is below 2^128 */
    KERNEL_INPUTS_TINY,     /* around 2^-100: squares are 0 */
    KERNEL_INPUTS_DENORMAL, /* below 2^-126 */
    KERNEL_INPUTS_MIXED,    /* every magnitude from 2^-149 to 2^56 */
    KERNEL_INPUTS_COUNT
};

const char *kernel_inputs_name(enum kernel_inputs inputs);

/* ---- random values: the same in every run ---- */

void kernel_cases_seed(uint64_t seed);
uint32_t kernel_cases_random(void);

/** A random number below `limit`, which is 1 or more. */
uint32_t kernel_cases_below(uint32_t limit);

/** Uniform between -1 and 1. */
float kernel_cases_unit(void);

/** Any f32 that is finite. */
float kernel_cases_finite(void);

void kernel_cases_fill(enum kernel_inputs inputs, float *x, size_t n);

/** Puts NaN of several bits, infinities and zeros in the place of a few of n values. */
void kernel_cases_spoil(float *x, size_t n);

/** Mixes the order of n numbers. */
void kernel_cases_shuffle(uint32_t *order, size_t n);

/* ---- memory; a test ends where there is none ---- */

void *kernel_cases_new(size_t count, size_t size);

/** n values as kernel_cases_fill() makes them; free() them. */
float *kernel_cases_floats(enum kernel_inputs inputs, size_t n);
float *kernel_cases_copy(const float *x, size_t n);

/* ---- variants ---- */

enum { KERNEL_VARIANTS = 3 };

/** Variant 0 to KERNEL_VARIANTS - 1, 0 being base; NULL where this CPU lacks it. */
const struct ref_kernels *kernel_cases_variant(size_t index);

/* ---- comparisons ---- */

/** Ends the test unless all n values have the same bits. */
void kernel_cases_assert_same(const float *a, const float *b, size_t n, const char *what);

/** True where some of n values have other bits. */
bool kernel_cases_differ(const float *a, const float *b, size_t n);

/** Ends the test where one of n values is a NaN of other bits than the canonical one. */
void kernel_cases_assert_canonical(const float *x, size_t n, const char *what);

/**
 * |ours - exact| in units of 2^-24 of a scale, which counts as 2^-126 where it is less.
 *
 * @return 0 for an infinity where `exact` is beyond f32; infinity for another and for NaN
 */
double kernel_cases_error(float ours, double exact, double scale);

/** Ends the test unless error <= bound; with KERNELS_PRINT in the environment prints both. */
void kernel_cases_report(const char *what, enum kernel_inputs inputs, double error, double bound);

/* ---- scenes of attention ---- */

struct kernel_scene_shape {
    uint32_t heads, kv_heads, dim_k, dim_v, positions;
    enum tensor_type type_k, type_v;
    uint32_t window;
};

/* Keys and values of every position of every sequence, and where they lie in a cache that has
 * NaN everywhere else. */
struct kernel_scene {
    struct kernel_scene_shape shape;
    uint32_t sequences, cell_count;
    float *k, *v;   /* (sequences, positions, kv_heads, dim) */
    int32_t *cells; /* (sequences, positions) */
    uint8_t *cache_k, *cache_v;
};

/** Keys and values are below what F16 holds whatever the inputs, those of the small kinds are
 * subnormal numbers of F16. */
void kernel_scene_init(struct kernel_scene *scene, const struct kernel_scene_shape *shape,
                       uint32_t sequences, enum kernel_inputs inputs);
void kernel_scene_close(struct kernel_scene *scene);

/** Gives each position a cell at random, of more cells than there are positions. */
void kernel_scene_scatter(struct kernel_scene *scene);

/** Writes the caches anew, after a change of `k`, `v` or `cells`. */
void kernel_scene_store(struct kernel_scene *scene);

/** A cache of its own for `kv_heads` heads from `kv_first` on; free() it. */
uint8_t *kernel_scene_new_cache(const struct kernel_scene *scene, enum tensor_type type,
                                const float *values, uint32_t dim, uint32_t kv_first,
                                uint32_t kv_heads);

/** The row of a position in `k`, `v` and `cells`. */
uint64_t kernel_scene_row(const struct kernel_scene *scene, uint32_t sequence, uint32_t position);

/** Reads n values of a row of a cache. */
void kernel_scene_load(enum tensor_type type, const uint8_t *row, uint64_t n, float *x);

/** Queries of all heads of so many tokens; free() them. */
float *kernel_scene_new_query(const struct kernel_scene_shape *shape, uint32_t tokens,
                              enum kernel_inputs inputs);

/** A call for all heads; the caller may change it before it runs. */
struct attend kernel_scene_attend(const struct kernel_scene *scene,
                                  const struct program_token *tokens, uint32_t token_count,
                                  const float *query);

/** Values that such a call makes. */
size_t kernel_scene_out_count(const struct kernel_scene_shape *shape, uint32_t tokens);

/** What such a call makes; free() it. */
float *kernel_scene_result(const struct kernel_scene *scene, const struct ref_kernels *kernels,
                           const struct program_token *tokens, uint32_t token_count,
                           const float *query);

/* ---- recurrent layers ---- */

struct kernel_layer_shape {
    uint32_t k_heads, v_heads, dim, taps, planes;
};

enum { KERNEL_LAYER_SEQUENCES = 3 };

/* A gated delta net's weights and the states of its sequences. */
struct kernel_layer {
    struct kernel_layer_shape shape;
    float *taps;    /* (channels, taps) */
    float *dt, *a;  /* (v_heads) */
    float *history; /* (KERNEL_LAYER_SEQUENCES, planes, taps - 1, channels) */
    float *state;   /* (KERNEL_LAYER_SEQUENCES, planes, v_heads, dim, dim) */
};

/* Inputs of tokens. */
struct kernel_layer_inputs {
    uint32_t count;
    float *mix;          /* (count, channels) */
    float *beta, *alpha; /* (count, v_heads) */
};

/* Results of tokens, (count, channels) and (count, v_heads, dim). */
struct kernel_layer_results {
    float *mixed, *out;
};

/** Values of one token, of one plane of a sequence, and of a token's result. */
size_t kernel_layer_channels(const struct kernel_layer_shape *shape);
size_t kernel_layer_history_plane(const struct kernel_layer_shape *shape);
size_t kernel_layer_state_plane(const struct kernel_layer_shape *shape);
size_t kernel_layer_outputs(const struct kernel_layer_shape *shape);

/** States begin as NaN, so that a test fails which reads what no step has left. */
void kernel_layer_init(struct kernel_layer *layer, const struct kernel_layer_shape *shape);
void kernel_layer_close(struct kernel_layer *layer);

/** Makes all states NaN. */
void kernel_layer_forget(struct kernel_layer *layer);

/** A layer of the same weights and states. */
struct kernel_layer kernel_layer_copy(const struct kernel_layer *layer);

/** Values of the kind in `mix`, normal ones in `beta` and `alpha`. */
void kernel_layer_inputs_init(struct kernel_layer_inputs *inputs,
                              const struct kernel_layer_shape *shape, uint32_t count,
                              enum kernel_inputs kind);
void kernel_layer_inputs_close(struct kernel_layer_inputs *inputs);

/** Room for the results of `count` tokens. */
struct kernel_layer_results kernel_layer_new_results(const struct kernel_layer_shape *shape,
                                                     uint32_t count);
void kernel_layer_results_close(struct kernel_layer_results *results);

/** A call for `count` tokens and all channels; the caller may change it before it runs. */
struct convolve kernel_layer_convolve(const struct kernel_layer *layer,
                                      const struct program_token *tokens, uint32_t count);

/** A call for `count` tokens, whose inputs begin at token `first`. */
struct delta kernel_layer_delta(const struct kernel_layer *layer,
                                const struct kernel_layer_inputs *inputs, uint32_t first,
                                const struct program_token *tokens, uint32_t count);

/** Both kernels over tokens whose inputs begin at token `first`; each takes the inputs as they
 * are. Ends the test where they fail. */
void kernel_layer_run(const struct ref_kernels *kernels, const struct kernel_layer *layer,
                      const struct kernel_layer_inputs *inputs, uint32_t first,
                      const struct program_token *tokens, uint32_t count, float *mixed, float *out);

/** What kernel_layer_run() makes. */
struct kernel_layer_results
kernel_layer_results_of(const struct ref_kernels *kernels, const struct kernel_layer *layer,
                        const struct kernel_layer_inputs *inputs, uint32_t first,
                        const struct program_token *tokens, uint32_t count);

/** Ends the test unless `count` tokens of both have the same bits. */
void kernel_layer_assert_same_results(const struct kernel_layer_shape *shape,
                                      const struct kernel_layer_results *a, uint32_t a_first,
                                      const struct kernel_layer_results *b, uint32_t b_first,
                                      uint32_t count);

/** Ends the test unless plane `a_plane` of sequence 0 of one layer has the bits of `b_plane` of
 * `b_sequence` of the other. */
void kernel_layer_assert_same_planes(const struct kernel_layer *a, uint32_t a_plane,
                                     const struct kernel_layer *b, uint32_t b_sequence,
                                     uint32_t b_plane);

#endif
