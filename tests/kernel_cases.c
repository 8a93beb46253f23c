#include "tests/kernel_cases.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"

const char *kernel_inputs_name(enum kernel_inputs inputs)
{
    static const char *const names[KERNEL_INPUTS_COUNT] = {"normal", "huge", "tiny", "denormal",
                                                           "mixed"};

    return names[inputs];
}

/* ---- random values ---- */

static uint64_t random_state = 1;

void kernel_cases_seed(uint64_t seed)
{
    random_state = seed;
}

uint32_t kernel_cases_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 32);
}

uint32_t kernel_cases_below(uint32_t limit)
{
    return (uint32_t)((uint64_t)kernel_cases_random() * limit >> 32);
}

float kernel_cases_unit(void)
{
    return (float)((int32_t)kernel_cases_random() >> 8) * 0x1p-23f;
}

float kernel_cases_finite(void)
{
    float value;

    do
        value = arith_float(kernel_cases_random());
    while (!isfinite(value));
    return value;
}

static float one_value(enum kernel_inputs inputs)
{
    float normal = kernel_cases_unit() + kernel_cases_unit() + kernel_cases_unit();
    uint32_t bits = kernel_cases_random();

    switch (inputs) {
    case KERNEL_INPUTS_HUGE:
        return normal * 0x1p56f;
    case KERNEL_INPUTS_TINY:
        return normal * 0x1p-100f;
    case KERNEL_INPUTS_DENORMAL:
        return arith_float(bits & UINT32_C(0x807fffff));
    case KERNEL_INPUTS_MIXED: /* exponents 0 to 181 */
        return arith_float((bits & UINT32_C(0x807fffff)) | kernel_cases_below(182) << 23);
    default:
        return normal;
    }
}

void kernel_cases_fill(enum kernel_inputs inputs, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = one_value(inputs);
}

void kernel_cases_spoil(float *x, size_t n)
{
    static const uint32_t bits[] = {
        0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff, 0x7fc12345, /* NaN */
        0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 0x00000000, 0x80000000, 0x00000001};

    for (size_t i = 0; i < COUNT(bits); i++)
        x[kernel_cases_below((uint32_t)n)] = arith_float(bits[i]);
}

void kernel_cases_shuffle(uint32_t *order, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t other = kernel_cases_below((uint32_t)i);
        uint32_t kept = order[i - 1];

        order[i - 1] = order[other];
        order[other] = kept;
    }
}

/* ---- memory ---- */

void *kernel_cases_new(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);

    if (memory == NULL)
        ck_abort_msg("no memory for %zu x %zu bytes", count, size);
    return memory;
}

float *kernel_cases_floats(enum kernel_inputs inputs, size_t n)
{
    float *x = kernel_cases_new(n, sizeof *x);

    kernel_cases_fill(inputs, x, n);
    return x;
}

float *kernel_cases_copy(const float *x, size_t n)
{
    float *copy = kernel_cases_new(n, sizeof *copy);

    memcpy(copy, x, n * sizeof *x);
    return copy;
}

/* ---- variants ---- */

const struct ref_kernels *kernel_cases_variant(size_t index)
{
    static const char *const names[KERNEL_VARIANTS] = {"base", "avx2", "avx512"};

    return ref_kernels_find(names[index]);
}

/* ---- comparisons ---- */

void kernel_cases_assert_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (arith_bits(a[i]) != arith_bits(b[i]))
            ck_abort_msg("%s: value %zu of %zu is %a (0x%08x) and %a (0x%08x)", what, i, n,
                         (double)a[i], (unsigned)arith_bits(a[i]), (double)b[i],
                         (unsigned)arith_bits(b[i]));
}

bool kernel_cases_differ(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) != 0;
}

void kernel_cases_assert_canonical(const float *x, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]) && arith_bits(x[i]) != ARITH_NAN_BITS)
            ck_abort_msg("%s: value %zu of %zu is a NaN of bits 0x%08x", what, i, n,
                         (unsigned)arith_bits(x[i]));
}

double kernel_cases_error(float ours, double exact, double scale)
{
    if (isnan(ours))
        return INFINITY;
    if (isinf(ours))
        return fabs(exact) > 0x1.fffff0p127 && (ours < 0) == (exact < 0) ? 0 : INFINITY;
    return fabs((double)ours - exact) / fmax(scale, 0x1p-126) * 0x1p24;
}

void kernel_cases_report(const char *what, enum kernel_inputs inputs, double error, double bound)
{
    if (getenv("KERNELS_PRINT") != NULL) {
        printf("%-24s %-9s %8.3f of %g\n", what, kernel_inputs_name(inputs), error, bound);
        fflush(stdout);
    }
    ck_assert_msg(error <= bound, "%s of %s inputs is wrong by %g of 2^-24, not %g", what,
                  kernel_inputs_name(inputs), error, bound);
}

/* ---- scenes of attention ---- */

uint64_t kernel_scene_row(const struct kernel_scene *scene, uint32_t sequence, uint32_t position)
{
    return (uint64_t)sequence * scene->shape.positions + position;
}

static void store_row(enum tensor_type type, const float *x, uint64_t n, uint8_t *row)
{
    if (type == TENSOR_TYPE_F16)
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)row)[i] = arith_f16_from_f32(x[i]);
    else
        for (uint64_t i = 0; i < n; i += ARITH_BLOCK)
            arith_cache_block(type, x + i, row + tensor_type_row_bytes(type, i));
}

void kernel_scene_load(enum tensor_type type, const uint8_t *row, uint64_t n, float *x)
{
    if (type == TENSOR_TYPE_F16)
        for (uint64_t i = 0; i < n; i++)
            x[i] = arith_f32_from_f16(((const uint16_t *)(const void *)row)[i]);
    else
        for (uint64_t i = 0; i < n; i += ARITH_BLOCK)
            arith_dequantise_block(type, row + tensor_type_row_bytes(type, i), 0, x + i);
}

uint8_t *kernel_scene_new_cache(const struct kernel_scene *scene, enum tensor_type type,
                                const float *values, uint32_t dim, uint32_t kv_first,
                                uint32_t kv_heads)
{
    uint64_t bytes = tensor_type_row_bytes(type, (uint64_t)kv_heads * dim);
    uint8_t *cache = kernel_cases_new(scene->cell_count * bytes, 1);

    memset(cache, 0xff, scene->cell_count * bytes); /* NaN where no position lies */
    for (uint32_t s = 0; s < scene->sequences; s++)
        for (uint32_t p = 0; p < scene->shape.positions; p++) {
            uint64_t row = kernel_scene_row(scene, s, p);

            if (scene->cells[row] >= 0)
                store_row(type, values + (row * scene->shape.kv_heads + kv_first) * dim,
                          (uint64_t)kv_heads * dim, cache + (uint64_t)scene->cells[row] * bytes);
        }
    return cache;
}

void kernel_scene_store(struct kernel_scene *scene)
{
    const struct kernel_scene_shape *shape = &scene->shape;

    free(scene->cache_k);
    free(scene->cache_v);
    scene->cache_k =
        kernel_scene_new_cache(scene, shape->type_k, scene->k, shape->dim_k, 0, shape->kv_heads);
    scene->cache_v =
        kernel_scene_new_cache(scene, shape->type_v, scene->v, shape->dim_v, 0, shape->kv_heads);
}

void kernel_scene_scatter(struct kernel_scene *scene)
{
    uint32_t *order = kernel_cases_new(scene->cell_count, sizeof *order);

    for (uint32_t i = 0; i < scene->cell_count; i++)
        order[i] = i;
    kernel_cases_shuffle(order, scene->cell_count);
    for (uint32_t i = 0; i < scene->sequences * scene->shape.positions; i++)
        scene->cells[i] = (int32_t)order[i];
    free(order);
}

void kernel_scene_init(struct kernel_scene *scene, const struct kernel_scene_shape *shape,
                       uint32_t sequences, enum kernel_inputs inputs)
{
    static const float f16_factors[KERNEL_INPUTS_COUNT] = {
        [KERNEL_INPUTS_NORMAL] = 1.0f,    [KERNEL_INPUTS_HUGE] = 0x1p-42f,
        [KERNEL_INPUTS_TINY] = 0x1p86f,   [KERNEL_INPUTS_DENORMAL] = 0x1p110f,
        [KERNEL_INPUTS_MIXED] = 0x1p-42f,
    };
    uint32_t rows = sequences * shape->positions;
    size_t k_count = (size_t)rows * shape->kv_heads * shape->dim_k;
    size_t v_count = (size_t)rows * shape->kv_heads * shape->dim_v;

    *scene = (struct kernel_scene){
        .shape = *shape, .sequences = sequences, .cell_count = rows + rows / 3 + 5};
    scene->k = kernel_cases_floats(inputs, k_count);
    scene->v = kernel_cases_floats(inputs, v_count);
    for (size_t i = 0; i < k_count; i++)
        scene->k[i] *= f16_factors[inputs];
    for (size_t i = 0; i < v_count; i++)
        scene->v[i] *= f16_factors[inputs];
    scene->cells = kernel_cases_new(rows, sizeof *scene->cells);
    kernel_scene_scatter(scene);
    kernel_scene_store(scene);
}

void kernel_scene_close(struct kernel_scene *scene)
{
    free(scene->k);
    free(scene->v);
    free(scene->cells);
    free(scene->cache_k);
    free(scene->cache_v);
}

struct attend kernel_scene_attend(const struct kernel_scene *scene,
                                  const struct program_token *tokens, uint32_t token_count,
                                  const float *query)
{
    const struct kernel_scene_shape *shape = &scene->shape;

    return (struct attend){.query = query,
                           .tokens = tokens,
                           .token_count = token_count,
                           .heads = shape->heads,
                           .kv_heads = shape->kv_heads,
                           .dim_k = shape->dim_k,
                           .dim_v = shape->dim_v,
                           .cache_k = scene->cache_k,
                           .cache_v = scene->cache_v,
                           .type_k = shape->type_k,
                           .type_v = shape->type_v,
                           .row_heads = shape->kv_heads,
                           .cells = scene->cells,
                           .positions = shape->positions,
                           .window = shape->window,
                           .scale = arith_rsqrt((float)shape->dim_k)};
}

size_t kernel_scene_out_count(const struct kernel_scene_shape *shape, uint32_t tokens)
{
    return (size_t)tokens * shape->heads * shape->dim_v;
}

float *kernel_scene_result(const struct kernel_scene *scene, const struct ref_kernels *kernels,
                           const struct program_token *tokens, uint32_t token_count,
                           const float *query)
{
    struct attend attend = kernel_scene_attend(scene, tokens, token_count, query);
    float *out = kernel_cases_new(kernel_scene_out_count(&scene->shape, token_count), sizeof *out);

    ck_assert_int_eq(kernels->attend(&attend, out), 0);
    return out;
}

float *kernel_scene_new_query(const struct kernel_scene_shape *shape, uint32_t tokens,
                              enum kernel_inputs inputs)
{
    return kernel_cases_floats(inputs, (size_t)tokens * shape->heads * shape->dim_k);
}

/* ---- recurrent layers ---- */

size_t kernel_layer_channels(const struct kernel_layer_shape *shape)
{
    return (size_t)(2 * shape->k_heads + shape->v_heads) * shape->dim;
}

size_t kernel_layer_history_plane(const struct kernel_layer_shape *shape)
{
    return kernel_layer_channels(shape) * (shape->taps - 1);
}

size_t kernel_layer_state_plane(const struct kernel_layer_shape *shape)
{
    return (size_t)shape->v_heads * shape->dim * shape->dim;
}

size_t kernel_layer_outputs(const struct kernel_layer_shape *shape)
{
    return (size_t)shape->v_heads * shape->dim;
}

void kernel_layer_forget(struct kernel_layer *layer)
{
    const struct kernel_layer_shape *shape = &layer->shape;

    for (size_t i = 0;
         i < KERNEL_LAYER_SEQUENCES * shape->planes * kernel_layer_history_plane(shape); i++)
        layer->history[i] = arith_nan();
    for (size_t i = 0; i < KERNEL_LAYER_SEQUENCES * shape->planes * kernel_layer_state_plane(shape);
         i++)
        layer->state[i] = arith_nan();
}

void kernel_layer_init(struct kernel_layer *layer, const struct kernel_layer_shape *shape)
{
    size_t planes = KERNEL_LAYER_SEQUENCES * (size_t)shape->planes;

    layer->shape = *shape;
    layer->taps =
        kernel_cases_floats(KERNEL_INPUTS_NORMAL, kernel_layer_channels(shape) * shape->taps);
    layer->dt = kernel_cases_floats(KERNEL_INPUTS_NORMAL, shape->v_heads);
    layer->a = kernel_cases_floats(KERNEL_INPUTS_NORMAL, shape->v_heads);
    for (uint32_t h = 0; h < shape->v_heads; h++)
        layer->a[h] = -fabsf(layer->a[h]);
    layer->history = kernel_cases_new(planes * kernel_layer_history_plane(shape), sizeof(float));
    layer->state = kernel_cases_new(planes * kernel_layer_state_plane(shape), sizeof(float));
    kernel_layer_forget(layer);
}

void kernel_layer_close(struct kernel_layer *layer)
{
    free(layer->taps);
    free(layer->dt);
    free(layer->a);
    free(layer->history);
    free(layer->state);
}

void kernel_layer_inputs_init(struct kernel_layer_inputs *inputs,
                              const struct kernel_layer_shape *shape, uint32_t count,
                              enum kernel_inputs kind)
{
    inputs->count = count;
    inputs->mix = kernel_cases_floats(kind, count * kernel_layer_channels(shape));
    inputs->beta = kernel_cases_floats(KERNEL_INPUTS_NORMAL, (size_t)count * shape->v_heads);
    inputs->alpha = kernel_cases_floats(KERNEL_INPUTS_NORMAL, (size_t)count * shape->v_heads);
}

void kernel_layer_inputs_close(struct kernel_layer_inputs *inputs)
{
    free(inputs->mix);
    free(inputs->beta);
    free(inputs->alpha);
}

struct convolve kernel_layer_convolve(const struct kernel_layer *layer,
                                      const struct program_token *tokens, uint32_t count)
{
    const struct kernel_layer_shape *shape = &layer->shape;

    return (struct convolve){.tokens = tokens,
                             .token_count = count,
                             .channels = kernel_layer_channels(shape),
                             .taps = shape->taps,
                             .weight = layer->taps,
                             .segment_channels = (uint64_t)shape->k_heads * shape->dim,
                             .count = (uint64_t)shape->k_heads * shape->dim,
                             .state = layer->history,
                             .planes = shape->planes};
}

struct delta kernel_layer_delta(const struct kernel_layer *layer,
                                const struct kernel_layer_inputs *inputs, uint32_t first,
                                const struct program_token *tokens, uint32_t count)
{
    const struct kernel_layer_shape *shape = &layer->shape;

    return (struct delta){.mix = inputs->mix + first * kernel_layer_channels(shape),
                          .beta = inputs->beta + (size_t)first * shape->v_heads,
                          .alpha = inputs->alpha + (size_t)first * shape->v_heads,
                          .tokens = tokens,
                          .token_count = count,
                          .k_heads = shape->k_heads,
                          .v_heads = shape->v_heads,
                          .dim = shape->dim,
                          .dt = layer->dt,
                          .a = layer->a,
                          .eps = 1e-6f,
                          .state = layer->state,
                          .planes = shape->planes};
}

void kernel_layer_run(const struct ref_kernels *kernels, const struct kernel_layer *layer,
                      const struct kernel_layer_inputs *inputs, uint32_t first,
                      const struct program_token *tokens, uint32_t count, float *mixed, float *out)
{
    size_t channels = kernel_layer_channels(&layer->shape);
    struct convolve convolve = kernel_layer_convolve(layer, tokens, count);
    struct delta delta = kernel_layer_delta(layer, inputs, first, tokens, count);

    memcpy(mixed, inputs->mix + first * channels, count * channels * sizeof *mixed);
    ck_assert_int_eq(kernels->convolve(&convolve, mixed), 0);
    ck_assert_int_eq(kernels->delta(&delta, out), 0);
}

struct kernel_layer_results kernel_layer_new_results(const struct kernel_layer_shape *shape,
                                                     uint32_t count)
{
    return (struct kernel_layer_results){
        .mixed = kernel_cases_new(count * kernel_layer_channels(shape), sizeof(float)),
        .out = kernel_cases_new(count * kernel_layer_outputs(shape), sizeof(float))};
}

void kernel_layer_results_close(struct kernel_layer_results *results)
{
    free(results->mixed);
    free(results->out);
}

struct kernel_layer_results
kernel_layer_results_of(const struct ref_kernels *kernels, const struct kernel_layer *layer,
                        const struct kernel_layer_inputs *inputs, uint32_t first,
                        const struct program_token *tokens, uint32_t count)
{
    struct kernel_layer_results results = kernel_layer_new_results(&layer->shape, count);

    kernel_layer_run(kernels, layer, inputs, first, tokens, count, results.mixed, results.out);
    return results;
}

void kernel_layer_assert_same_results(const struct kernel_layer_shape *shape,
                                      const struct kernel_layer_results *a, uint32_t a_first,
                                      const struct kernel_layer_results *b, uint32_t b_first,
                                      uint32_t count)
{
    kernel_cases_assert_same(a->mixed + a_first * kernel_layer_channels(shape),
                             b->mixed + b_first * kernel_layer_channels(shape),
                             count * kernel_layer_channels(shape), "convolution");
    kernel_cases_assert_same(a->out + a_first * kernel_layer_outputs(shape),
                             b->out + b_first * kernel_layer_outputs(shape),
                             count * kernel_layer_outputs(shape), "delta rule");
}

void kernel_layer_assert_same_planes(const struct kernel_layer *a, uint32_t a_plane,
                                     const struct kernel_layer *b, uint32_t b_sequence,
                                     uint32_t b_plane)
{
    const struct kernel_layer_shape *shape = &a->shape;
    size_t other = (size_t)b_sequence * shape->planes + b_plane;

    kernel_cases_assert_same(a->history + a_plane * kernel_layer_history_plane(shape),
                             b->history + other * kernel_layer_history_plane(shape),
                             kernel_layer_history_plane(shape), "a plane of the convolution");
    kernel_cases_assert_same(a->state + a_plane * kernel_layer_state_plane(shape),
                             b->state + other * kernel_layer_state_plane(shape),
                             kernel_layer_state_plane(shape), "a plane of the delta rule");
}

struct kernel_layer kernel_layer_copy(const struct kernel_layer *layer)
{
    const struct kernel_layer_shape *shape = &layer->shape;
    size_t planes = KERNEL_LAYER_SEQUENCES * (size_t)shape->planes;

    return (struct kernel_layer){
        .shape = *shape,
        .taps = kernel_cases_copy(layer->taps, kernel_layer_channels(shape) * shape->taps),
        .dt = kernel_cases_copy(layer->dt, shape->v_heads),
        .a = kernel_cases_copy(layer->a, shape->v_heads),
        .history = kernel_cases_copy(layer->history, planes * kernel_layer_history_plane(shape)),
        .state = kernel_cases_copy(layer->state, planes * kernel_layer_state_plane(shape))};
}
