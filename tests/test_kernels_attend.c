/* Attention: how close it is to the same formula in double, and that every variant gives the same
 * bits. The bound is that of docs/arithmetic.md; with KERNELS_PRINT in the environment the largest
 * errors found are printed. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "tests/kernel_cases.h"

static const struct ref_kernels *best;

static void find_best(void)
{
    best = ref_kernels_find(NULL);
    kernel_cases_seed(1);
}

#define F16 TENSOR_TYPE_F16
#define Q8_0 TENSOR_TYPE_Q8_0
#define Q4_0 TENSOR_TYPE_Q4_0

/* ---- error ---- */

#define ATTEND_BOUND 2.25
#define EQUAL_BOUND 64

struct row_scores {
    double *weights;       /* (positions) scores, then e^(score - maximum) */
    double maximum, terms; /* of all positions: the largest score, and sum of |q k| x scale */
};

static void run(const struct ref_kernels *kernels, const struct attend *attend, float *out)
{
    ck_assert_int_eq(kernels->attend(attend, out), 0);
}

static void score_row(const struct kernel_scene *scene, const struct attend *attend, uint32_t t,
                      uint32_t h, uint32_t from, struct row_scores *scores)
{
    const struct program_token *token = &attend->tokens[t];
    uint32_t dim = attend->dim_k, kv_head = h / (attend->heads / attend->kv_heads);
    const float *query = attend->query + ((uint64_t)t * attend->heads + h) * dim;
    uint64_t bytes = tensor_type_row_bytes(attend->type_k, (uint64_t)attend->row_heads * dim);
    float k[1024];

    scores->maximum = -INFINITY;
    scores->terms = 0;
    for (uint32_t p = from; p <= token->position; p++) {
        int32_t cell = scene->cells[kernel_scene_row(scene, token->sequence, p)];
        double score = 0, terms = 0;

        if (cell < 0)
            continue;
        kernel_scene_load(attend->type_k,
                          scene->cache_k + (uint64_t)cell * bytes +
                              tensor_type_row_bytes(attend->type_k, kv_head * dim),
                          dim, k);
        for (uint32_t i = 0; i < dim; i++) {
            score += (double)query[i] * (double)k[i];
            terms += fabs((double)query[i] * (double)k[i]);
        }
        scores->weights[p] = score * (double)attend->scale;
        scores->maximum = fmax(scores->maximum, scores->weights[p]);
        scores->terms = fmax(scores->terms, terms * (double)attend->scale);
    }
}

/* Relative to the largest |v|, once more for each unit of the largest sum of |q k| x scale: an
 * error of a score is a relative error of its weight. */
static double row_error(const struct kernel_scene *scene, const struct attend *attend, uint32_t t,
                        uint32_t h, struct row_scores *scores, const float *out)
{
    const struct program_token *token = &attend->tokens[t];
    uint32_t dim = attend->dim_v, kv_head = h / (attend->heads / attend->kv_heads);
    uint32_t reach = token->position + 1;
    uint32_t from = attend->window != 0 && reach > attend->window ? reach - attend->window : 0;
    uint64_t bytes = tensor_type_row_bytes(attend->type_v, (uint64_t)attend->row_heads * dim);
    double exact[1024] = {0}, sum = 0, largest = 0, worst = 0;
    float v[1024];

    score_row(scene, attend, t, h, from, scores);
    for (uint32_t p = from; p <= token->position; p++) {
        int32_t cell = scene->cells[kernel_scene_row(scene, token->sequence, p)];
        double weight;

        if (cell < 0)
            continue;
        kernel_scene_load(attend->type_v,
                          scene->cache_v + (uint64_t)cell * bytes +
                              tensor_type_row_bytes(attend->type_v, kv_head * dim),
                          dim, v);
        weight = exp(scores->weights[p] - scores->maximum);
        sum += weight;
        for (uint32_t i = 0; i < dim; i++) {
            exact[i] += weight * (double)v[i];
            largest = fmax(largest, fabs((double)v[i]));
        }
    }
    for (uint32_t i = 0; i < dim; i++) {
        HOLDS(fabs((double)out[i]) <= largest * (1 + 0x1p-20) + 0x1p-140); /* a mean */
        worst =
            fmax(worst, kernel_cases_error(out[i], exact[i] / sum, largest * (1 + scores->terms)));
    }
    return worst;
}

static const struct kernel_scene_shape shapes[] = {
    {1, 1, 1, 1, 3, F16, F16, 0},         {2, 2, 7, 5, 60, F16, F16, 0},
    {6, 2, 64, 64, 257, F16, F16, 0},     {4, 1, 80, 80, 255, F16, F16, 100},
    {2, 1, 192, 128, 256, F16, F16, 0},   {3, 3, 96, 64, 520, Q8_0, Q8_0, 0},
    {2, 1, 128, 128, 600, Q8_0, F16, 0},  {4, 2, 64, 96, 600, F16, Q4_0, 300},
    {2, 2, 256, 256, 520, Q4_0, Q4_0, 0}, {2, 1, 512, 512, 300, F16, F16, 256},
    {1, 1, 576, 1024, 40, F16, F16, 0},
};

static double scene_error(const struct kernel_scene *scene, const struct attend *attend,
                          const float *out)
{
    struct row_scores scores = {
        .weights = kernel_cases_new(scene->shape.positions, sizeof *scores.weights)};
    double worst = 0;

    for (uint32_t t = 0; t < attend->token_count; t++)
        for (uint32_t h = 0; h < attend->heads; h++)
            worst = fmax(worst, row_error(scene, attend, t, h, &scores,
                                          out + ((size_t)t * attend->heads + h) * attend->dim_v));
    free(scores.weights);
    return worst;
}

/* The first and the last token, and some between; sequence 1. */
enum { SOME_TOKENS = 4 };

static void some_tokens(const struct kernel_scene_shape *shape, struct program_token *tokens)
{
    memset(tokens, 0, SOME_TOKENS * sizeof *tokens);
    for (uint32_t t = 0; t < SOME_TOKENS; t++) {
        tokens[t].sequence = 1;
        tokens[t].position = t == 0   ? 0
                             : t == 1 ? shape->positions - 1
                                      : kernel_cases_below(shape->positions);
    }
}

/* Values of one sign: a sum that grows, of which every rounding counts. */
static void take_magnitudes(struct kernel_scene *scene)
{
    const struct kernel_scene_shape *shape = &scene->shape;
    size_t rows = (size_t)scene->sequences * shape->positions * shape->kv_heads;

    for (size_t i = 0; i < rows * shape->dim_v; i++)
        scene->v[i] = fabsf(scene->v[i]);
    kernel_scene_store(scene);
}

START_TEST(attention_is_within_its_bound)
{
    enum kernel_inputs inputs = (enum kernel_inputs)_i;
    double worst = 0;

    for (size_t c = 0; c < 2 * COUNT(shapes); c++) {
        const struct kernel_scene_shape *shape = &shapes[c / 2];
        struct program_token tokens[SOME_TOKENS];
        struct attend attend;
        struct kernel_scene scene;
        float *query, *out;

        kernel_scene_init(&scene, shape, 2, inputs);
        if (c % 2 == 1)
            take_magnitudes(&scene);
        some_tokens(shape, tokens);
        query = kernel_scene_new_query(shape, SOME_TOKENS, inputs);
        attend = kernel_scene_attend(&scene, tokens, SOME_TOKENS, query);
        out = kernel_scene_result(&scene, best, tokens, SOME_TOKENS, query);
        worst = fmax(worst, scene_error(&scene, &attend, out));
        free(query);
        free(out);
        kernel_scene_close(&scene);
    }
    kernel_cases_report("attend", inputs, worst, ATTEND_BOUND);
}
END_TEST

START_TEST(scores_of_any_size_are_within_the_bound)
{
    static const float sizes[] = {1e-3f, 5.0f, 50.0f, 1e12f};

    for (size_t i = 0; i < COUNT(sizes); i++) {
        const struct kernel_scene_shape *shape = &shapes[_i];
        struct program_token tokens[SOME_TOKENS];
        struct attend attend;
        struct kernel_scene scene;
        float *query = kernel_scene_new_query(shape, SOME_TOKENS, KERNEL_INPUTS_NORMAL), *out;

        for (size_t n = 0; n < (size_t)SOME_TOKENS * shape->heads * shape->dim_k; n++)
            query[n] *= sizes[i];
        kernel_scene_init(&scene, shape, 2, KERNEL_INPUTS_NORMAL);
        some_tokens(shape, tokens);
        attend = kernel_scene_attend(&scene, tokens, SOME_TOKENS, query);
        out = kernel_scene_result(&scene, best, tokens, SOME_TOKENS, query);
        kernel_cases_report("attend of some size", KERNEL_INPUTS_NORMAL,
                            scene_error(&scene, &attend, out), ATTEND_BOUND);
        free(query);
        free(out);
        kernel_scene_close(&scene);
    }
}
END_TEST

/* Equal values, and equal scores but for one: every addition may round the same way. Of a chunk's
 * 256 additions each loses 2^-24 of the sum so far at most, and a merge of chunks a little more. */
START_TEST(a_mean_of_equal_values_is_within_a_rounding_of_each_addition)
{
    const struct kernel_scene_shape shape = {1, 1, 32, 256, 900, F16, F16, 0};
    size_t rows = 2 * (size_t)shape.positions;
    struct program_token token = {.position = shape.positions - 1};
    float *query = kernel_cases_new(shape.dim_k, sizeof *query), *out;
    struct kernel_scene scene;
    double worst = 0;

    kernel_scene_init(&scene, &shape, 2, KERNEL_INPUTS_NORMAL);
    for (size_t i = 0; i < shape.dim_v; i++)
        scene.v[i] = arith_f32_from_f16(arith_f16_from_f32(scene.v[i]));
    for (size_t i = shape.dim_v; i < rows * shape.dim_v; i++)
        scene.v[i] = scene.v[i % shape.dim_v];
    for (size_t i = 0; i < shape.dim_k; i++)
        query[i] = 0.1f;
    for (size_t i = 0; i < rows * shape.dim_k; i++)
        scene.k[i] = i < shape.dim_k ? 0.5f : 0.1f;
    kernel_scene_store(&scene);
    out = kernel_scene_result(&scene, best, &token, 1, query);
    for (size_t i = 0; i < shape.dim_v; i++)
        worst =
            fmax(worst, kernel_cases_error(out[i], (double)scene.v[i], fabs((double)scene.v[i])));
    kernel_cases_report("attend of equal values", KERNEL_INPUTS_NORMAL, worst, EQUAL_BOUND);
    free(query);
    free(out);
    kernel_scene_close(&scene);
}
END_TEST

/* ---- variants ---- */

static void spoil_scene(struct kernel_scene *scene)
{
    const struct kernel_scene_shape *shape = &scene->shape;
    size_t rows = (size_t)scene->sequences * shape->positions * shape->kv_heads;

    kernel_cases_spoil(scene->k, rows * shape->dim_k);
    kernel_cases_spoil(scene->v, rows * shape->dim_v);
    kernel_scene_store(scene);
}

START_TEST(every_variant_gives_the_bits_of_attention)
{
    const struct kernel_scene_shape *shape = &shapes[_i];
    size_t n = kernel_scene_out_count(shape, SOME_TOKENS);
    float *expected = kernel_cases_new(n, sizeof *expected),
          *out = kernel_cases_new(n, sizeof *out);

    for (int spoilt = 0; spoilt < 2; spoilt++) {
        enum kernel_inputs kind = spoilt ? KERNEL_INPUTS_NORMAL : KERNEL_INPUTS_MIXED;
        struct program_token tokens[SOME_TOKENS];
        float *query = kernel_scene_new_query(shape, SOME_TOKENS, kind);
        struct attend attend;
        struct kernel_scene scene;

        kernel_scene_init(&scene, shape, 2, kind);
        if (spoilt) {
            spoil_scene(&scene);
            query[kernel_cases_below(shape->heads * shape->dim_k)] = -arith_nan();
            query[kernel_cases_below(SOME_TOKENS * shape->heads * shape->dim_k)] = INFINITY;
        }
        some_tokens(shape, tokens);
        attend = kernel_scene_attend(&scene, tokens, SOME_TOKENS, query);
        run(kernel_cases_variant(0), &attend, expected);
        kernel_cases_assert_canonical(expected, n, "attend");
        for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
            if (kernel_cases_variant(v) == NULL)
                continue;
            run(kernel_cases_variant(v), &attend, out);
            kernel_cases_assert_same(out, expected, n, kernel_cases_variant(v)->isa);
        }
        free(query);
        kernel_scene_close(&scene);
    }
    free(expected);
    free(out);
}
END_TEST

static Suite *attend_suite(void)
{
    Suite *suite = suite_create("kernels: attention");
    TCase *attention = tcase_create("attention");
    int count = (int)COUNT(shapes);

    tcase_add_loop_test(attention, attention_is_within_its_bound, 0, KERNEL_INPUTS_COUNT);
    tcase_add_loop_test(attention, scores_of_any_size_are_within_the_bound, 0, count);
    tcase_add_test(attention, a_mean_of_equal_values_is_within_a_rounding_of_each_addition);
    tcase_add_loop_test(attention, every_variant_gives_the_bits_of_attention, 0, count);
    tcase_add_checked_fixture(attention, find_best, NULL);
    tcase_set_timeout(attention, 60);
    suite_add_tcase(suite, attention);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(attend_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
