/* Norms, rotary embedding and functions of one or two values: how close they are to the same
 * formula in double, and that every variant gives the same bits. The bounds are those of
 * docs/arithmetic.md, in units of 2^-24 of a scale that each test states; with KERNELS_PRINT in
 * the environment the largest errors found are printed. */
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

/* ---- functions of one or two values ---- */

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double exact_glu_silu(double gate, double up)
{
    return gate * exact_sigmoid(gate) * up;
}

static double exact_glu_gelu(double gate, double up)
{
    double u = sqrt(2 / 3.14159265358979323846) * (gate + 0.044715 * gate * gate * gate);

    return gate * exact_sigmoid(2 * u) * up;
}

static double exact_gate(double x, double gate)
{
    return x * exact_sigmoid(gate);
}

#define CAP 30.0

static double exact_softcap(double x, double unused)
{
    (void)unused;
    return CAP * tanh(x / CAP);
}

static double exact_silu_gate(double x, double gate)
{
    return exact_glu_silu(gate, x);
}

static void run_glu_silu(const struct ref_kernels *kernels, const float *a, const float *b,
                         uint64_t n, float *y)
{
    kernels->glu(a, b, false, n, y);
}

static void run_glu_gelu(const struct ref_kernels *kernels, const float *a, const float *b,
                         uint64_t n, float *y)
{
    kernels->glu(a, b, true, n, y);
}

static void run_gate(const struct ref_kernels *kernels, const float *a, const float *b, uint64_t n,
                     float *y)
{
    kernels->gate(a, b, n, y);
}

static void run_softcap(const struct ref_kernels *kernels, const float *a, const float *b,
                        uint64_t n, float *y)
{
    (void)b;
    kernels->softcap(a, (float)CAP, n, y);
}

static void run_silu_gate(const struct ref_kernels *kernels, const float *a, const float *b,
                          uint64_t n, float *y)
{
    kernels->silu_gate(a, b, n, y);
}

/* The factor of a function that may be subnormal: the scale is 2^-126 of it, or more. */
static double factor_first(double a, double b)
{
    (void)b;
    return fabs(a);
}

static double factor_second(double a, double b)
{
    (void)a;
    return fabs(b);
}

static double factor_cap(double a, double b)
{
    (void)a;
    (void)b;
    return CAP;
}

/* Errors relative to the exact result or, for gelu, to gate x up. */
static const struct {
    const char *name;
    void (*run)(const struct ref_kernels *kernels, const float *a, const float *b, uint64_t n,
                float *y);
    double (*exact)(double a, double b);
    double (*factor)(double a, double b);
    bool of_product;
    double bound;
} functions[] = {
    {"glu silu", run_glu_silu, exact_glu_silu, factor_second, false, 5},
    {"glu gelu", run_glu_gelu, exact_glu_gelu, factor_second, true, 3.5},
    {"gate", run_gate, exact_gate, factor_first, false, 4.25},
    {"softcap", run_softcap, exact_softcap, factor_cap, false, 4.5},
    {"silu_gate", run_silu_gate, exact_silu_gate, factor_first, false, 5},
};

enum { VALUES_MAX = 30011 };
static const size_t lengths[] = {1, 2, 7, 15, 16, 17, 31, 33, 257, 4099, VALUES_MAX};

static double function_error(size_t f, const float *a, const float *b, const float *y, size_t n)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++) {
        double exact = functions[f].exact((double)a[i], (double)b[i]);
        double scale = functions[f].of_product ? fabs((double)a[i] * (double)b[i]) : fabs(exact);

        scale = fmax(scale, functions[f].factor((double)a[i], (double)b[i]) * 0x1p-126);
        worst = fmax(worst, kernel_cases_error(y[i], exact, scale));
    }
    return worst;
}

START_TEST(functions_are_within_their_bound)
{
    static const enum kernel_inputs second[KERNEL_INPUTS_COUNT] = {
        [KERNEL_INPUTS_HUGE] = KERNEL_INPUTS_HUGE, [KERNEL_INPUTS_MIXED] = KERNEL_INPUTS_MIXED};
    size_t f = (size_t)_i;

    for (int inputs = 0; inputs < KERNEL_INPUTS_COUNT; inputs++) {
        double worst = 0;

        for (size_t l = 0; l < COUNT(lengths); l++) {
            float *a = kernel_cases_floats((enum kernel_inputs)inputs, lengths[l]);
            float *b = kernel_cases_floats(second[inputs], lengths[l]);
            float *y = kernel_cases_new(lengths[l], sizeof *y);

            for (size_t i = 0; i < lengths[l] && inputs == KERNEL_INPUTS_NORMAL; i++)
                a[i] *= 40.0f, b[i] *= 40.0f; /* where exponentials turn */
            functions[f].run(best, a, b, lengths[l], y);
            worst = fmax(worst, function_error(f, a, b, y, lengths[l]));
            free(a);
            free(b);
            free(y);
        }
        kernel_cases_report(functions[f].name, (enum kernel_inputs)inputs, worst,
                            functions[f].bound);
    }
}
END_TEST

START_TEST(functions_of_any_finite_values_are_within_their_bound)
{
    float *a = kernel_cases_new(VALUES_MAX, sizeof *a),
          *b = kernel_cases_new(VALUES_MAX, sizeof *b);
    float *y = kernel_cases_new(VALUES_MAX, sizeof *y);

    for (size_t i = 0; i < VALUES_MAX; i++) {
        a[i] = kernel_cases_finite();
        b[i] = kernel_cases_finite();
    }
    functions[_i].run(best, a, b, VALUES_MAX, y);
    kernel_cases_report(functions[_i].name, KERNEL_INPUTS_MIXED,
                        function_error((size_t)_i, a, b, y, VALUES_MAX), functions[_i].bound);
    free(a);
    free(b);
    free(y);
}
END_TEST

START_TEST(every_variant_gives_the_bits_of_functions)
{
    enum { N = 4099 };
    float a[N], b[N], expected[N], y[N];

    for (size_t i = 0; i < N; i++) {
        a[i] = i % 2 ? kernel_cases_finite() : 40.0f * kernel_cases_unit();
        b[i] = i % 3 ? kernel_cases_finite() : 40.0f * kernel_cases_unit();
    }
    kernel_cases_spoil(a, N);
    kernel_cases_spoil(b, N);
    functions[_i].run(kernel_cases_variant(0), a, b, N, expected);
    kernel_cases_assert_canonical(expected, N, functions[_i].name);
    for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
        if (kernel_cases_variant(v) == NULL)
            continue;
        functions[_i].run(kernel_cases_variant(v), a, b, N, y);
        kernel_cases_assert_same(y, expected, N, functions[_i].name);
        memcpy(y, a, sizeof y);
        functions[_i].run(kernel_cases_variant(v), y, b, N, y);
        kernel_cases_assert_same(y, expected, N, functions[_i].name);
    }
}
END_TEST

/* ---- norms ---- */

#define NORM_BOUND 5

static const struct {
    uint64_t rows, n;
    bool weighted;
    float eps;
} norms[] = {
    {1, 1, true, 1e-6f},    {5, 3, true, 1e-5f},     {2, 31, false, 1e-6f}, {3, 255, true, 1e-6f},
    {3, 256, true, 1e-6f},  {3, 257, false, 1e-6f},  {7, 128, true, 1e-6f}, {2, 1000, true, 1e-5f},
    {4, 5120, true, 1e-6f}, {1, 16385, true, 1e-6f},
};

/* Relative to the exact result, or to 2^-126 of the weight. */
static double norm_error(const float *x, const float *weight, double eps, uint64_t n,
                         const float *y)
{
    double sum = 0, worst = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint64_t i = 0; i < n; i++) {
        double w = weight != NULL ? (double)weight[i] : 1;
        double exact = (double)x[i] / sqrt(sum / (double)n + eps) * w;

        worst = fmax(worst, kernel_cases_error(y[i], exact, fmax(fabs(exact), fabs(w) * 0x1p-126)));
    }
    return worst;
}

START_TEST(norms_are_within_their_bound)
{
    enum kernel_inputs inputs = (enum kernel_inputs)_i;
    double worst = 0;

    for (size_t c = 0; c < COUNT(norms); c++) {
        uint64_t n = norms[c].n, size = norms[c].rows * n;
        float *x = kernel_cases_floats(inputs, size), *y = kernel_cases_new(size, sizeof *y);
        float *weight = kernel_cases_floats(KERNEL_INPUTS_NORMAL, n);
        const float *used = norms[c].weighted ? weight : NULL;

        best->rms_norm(x, used, norms[c].eps, norms[c].rows, n, y);
        for (uint64_t row = 0; row < norms[c].rows; row++)
            worst =
                fmax(worst, norm_error(x + row * n, used, (double)norms[c].eps, n, y + row * n));
        free(x);
        free(y);
        free(weight);
    }
    kernel_cases_report("rms_norm", inputs, worst, NORM_BOUND);
}
END_TEST

START_TEST(a_row_whose_squares_are_beyond_f32_becomes_zeros)
{
    float x[40], y[40];

    for (size_t i = 0; i < 40; i++)
        x[i] = 0x1p65f;
    best->rms_norm(x, NULL, 1e-6f, 1, 40, y);
    for (size_t i = 0; i < 40; i++)
        HOLDS(arith_bits(y[i]) == 0);
}
END_TEST

START_TEST(every_variant_gives_the_bits_of_norms)
{
    for (size_t c = 0; c < COUNT(norms); c++)
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            enum kernel_inputs kind = spoilt ? KERNEL_INPUTS_NORMAL : KERNEL_INPUTS_MIXED;
            uint64_t n = norms[c].n, size = norms[c].rows * n;
            float *x = kernel_cases_floats(kind, size), *y = kernel_cases_new(size, sizeof *y);
            float *weight = kernel_cases_floats(KERNEL_INPUTS_NORMAL, n);
            float *expected = kernel_cases_new(size, sizeof *expected);

            if (spoilt) {
                kernel_cases_spoil(x, size);
                kernel_cases_spoil(weight, n);
            }
            kernel_cases_variant(0)->rms_norm(x, norms[c].weighted ? weight : NULL, norms[c].eps,
                                              norms[c].rows, n, expected);
            kernel_cases_assert_canonical(expected, size, "rms_norm");
            for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
                if (kernel_cases_variant(v) == NULL)
                    continue;
                memcpy(y, x, size * sizeof *y);
                kernel_cases_variant(v)->rms_norm(y, norms[c].weighted ? weight : NULL,
                                                  norms[c].eps, norms[c].rows, n, y);
                kernel_cases_assert_same(y, expected, size, "rms_norm");
            }
            free(x);
            free(y);
            free(weight);
            free(expected);
        }
}
END_TEST

START_TEST(rows_do_not_touch_each_other)
{
    enum { ROWS = 5, N = 700 };
    float *x = kernel_cases_floats(KERNEL_INPUTS_NORMAL, ROWS * N);
    float *weight = kernel_cases_floats(KERNEL_INPUTS_NORMAL, N);
    float whole[ROWS * N], one[N];

    kernel_cases_spoil(x, N); /* the first row */
    best->rms_norm(x, weight, 1e-6f, ROWS, N, whole);
    for (size_t row = 0; row < ROWS; row++) {
        best->rms_norm(x + row * N, weight, 1e-6f, 1, N, one);
        kernel_cases_assert_same(one, whole + row * N, N, "a row alone");
    }
    free(x);
    free(weight);
}
END_TEST

/* Without this the sum might be exact, and the tests of its order say nothing. */
START_TEST(a_norm_depends_on_the_order_of_its_sum)
{
    enum { N = 1024, ROWS = 400 };
    float *x = kernel_cases_floats(KERNEL_INPUTS_NORMAL, ROWS * N);
    float *mixed = kernel_cases_new(ROWS * N, sizeof *mixed);
    uint32_t order[N];
    size_t changed = 0;

    for (uint32_t i = 0; i < N; i++)
        order[i] = i;
    kernel_cases_shuffle(order, N);
    for (size_t i = 0; i < ROWS * N; i++)
        mixed[i] = x[i / N * N + order[i % N]];
    best->rms_norm(x, NULL, 1e-6f, ROWS, N, x);
    best->rms_norm(mixed, NULL, 1e-6f, ROWS, N, mixed);
    for (size_t i = 0; i < ROWS * N; i++)
        changed += arith_bits(mixed[i]) != arith_bits(x[i / N * N + order[i % N]]);
    ck_assert_uint_gt(changed, 0);
    free(x);
    free(mixed);
}
END_TEST

/* ---- rotary embedding ---- */

#define ROPE_BOUND 3.5
#define ROPE_TOKENS 11

static const struct {
    uint32_t heads, dim, turned;
    double base;
} ropes[] = {
    {1, 2, 2, 10000},   {3, 64, 64, 10000}, {2, 80, 32, 10000}, {5, 96, 90, 1e6},
    {4, 128, 128, 5e5}, {2, 256, 64, 1e7},  {1, 512, 512, 1e6}, {1, 1024, 1024, 1e4},
};

struct rope_case {
    struct rope rope;
    struct program_token tokens[ROPE_TOKENS];
    double frequencies[512];
};

static void rope_init(struct rope_case *rope, size_t c, bool halves)
{
    *rope = (struct rope_case){.rope = {.token_count = ROPE_TOKENS,
                                        .heads = ropes[c].heads,
                                        .dim = ropes[c].dim,
                                        .turned = ropes[c].turned,
                                        .halves = halves}};
    rope->rope.tokens = rope->tokens;
    rope->rope.frequencies = rope->frequencies;
    for (uint32_t t = 1; t < ROPE_TOKENS; t++)
        rope->tokens[t].position = kernel_cases_random() >> (8 + 2 * t);
    for (uint32_t i = 0; i < ropes[c].turned / 2; i++)
        rope->frequencies[i] = pow(ropes[c].base, -2.0 * i / ropes[c].turned);
}

/* Relative to the length of the pair, which a turn keeps. */
static double rope_head_error(const struct rope *rope, uint32_t position, const float *x,
                              const float *y)
{
    uint32_t pairs = rope->turned / 2;
    double worst = 0;

    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t first = rope->halves ? i : 2 * i, second = rope->halves ? i + pairs : 2 * i + 1;
        double a = (double)x[first], b = (double)x[second];
        double angle = (double)position * rope->frequencies[i], length = hypot(a, b);

        worst = fmax(worst, kernel_cases_error(y[first], a * cos(angle) - b * sin(angle), length));
        worst = fmax(worst, kernel_cases_error(y[second], a * sin(angle) + b * cos(angle), length));
    }
    kernel_cases_assert_same(x + rope->turned, y + rope->turned, rope->dim - rope->turned,
                             "values that do not turn");
    return worst;
}

START_TEST(turned_pairs_are_within_their_bound)
{
    for (int inputs = 0; inputs < KERNEL_INPUTS_COUNT; inputs++) {
        double worst = 0;

        for (size_t c = 0; c < COUNT(ropes); c++) {
            size_t row = (size_t)ropes[c].heads * ropes[c].dim, size = ROPE_TOKENS * row;
            float *x = kernel_cases_floats((enum kernel_inputs)inputs, size);
            float *y = kernel_cases_copy(x, size);
            struct rope_case rope;

            rope_init(&rope, c, _i);
            best->rope(&rope.rope, y);
            for (size_t h = 0; h < (size_t)ROPE_TOKENS * ropes[c].heads; h++)
                worst = fmax(worst,
                             rope_head_error(&rope.rope, rope.tokens[h / ropes[c].heads].position,
                                             x + h * ropes[c].dim, y + h * ropes[c].dim));
            free(x);
            free(y);
        }
        kernel_cases_report(_i ? "rope of halves" : "rope of pairs", (enum kernel_inputs)inputs,
                            worst, ROPE_BOUND);
    }
}
END_TEST

START_TEST(every_variant_gives_the_bits_of_turned_pairs)
{
    for (size_t c = 0; c < COUNT(ropes); c++)
        for (int inputs = 0; inputs <= KERNEL_INPUTS_COUNT; inputs++) {
            bool spoilt = inputs == KERNEL_INPUTS_COUNT;
            enum kernel_inputs kind = spoilt ? KERNEL_INPUTS_NORMAL : (enum kernel_inputs)inputs;
            size_t size = (size_t)ROPE_TOKENS * ropes[c].heads * ropes[c].dim;
            float *x = kernel_cases_floats(kind, size), *expected;
            struct rope_case rope;

            rope_init(&rope, c, _i);
            if (spoilt)
                kernel_cases_spoil(x, size);
            expected = kernel_cases_copy(x, size);
            kernel_cases_variant(0)->rope(&rope.rope, expected);
            if (ropes[c].turned == ropes[c].dim)
                kernel_cases_assert_canonical(expected, size, "rope");
            for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
                float *y = kernel_cases_copy(x, size);

                if (kernel_cases_variant(v) != NULL) {
                    kernel_cases_variant(v)->rope(&rope.rope, y);
                    kernel_cases_assert_same(y, expected, size, "rope");
                }
                free(y);
            }
            free(x);
            free(expected);
        }
}
END_TEST

START_TEST(heads_turn_alike_in_one_call_or_in_several)
{
    enum { C = 3 };
    size_t dim = ropes[C].dim, heads = ropes[C].heads;
    float *x = kernel_cases_floats(KERNEL_INPUTS_NORMAL, ROPE_TOKENS * heads * dim);
    float *whole = kernel_cases_copy(x, ROPE_TOKENS * heads * dim);
    struct rope_case rope;

    rope_init(&rope, C, _i);
    best->rope(&rope.rope, whole);
    rope.rope.heads = 1;
    rope.rope.token_count = 1;
    for (size_t h = 0; h < ROPE_TOKENS * heads; h++) {
        rope.rope.tokens = &rope.tokens[h / heads];
        best->rope(&rope.rope, x + h * dim);
    }
    kernel_cases_assert_same(x, whole, ROPE_TOKENS * heads * dim, "a head alone");
    free(x);
    free(whole);
}
END_TEST

static Suite *kernels_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *each = tcase_create("functions"), *norm = tcase_create("norms");
    TCase *rope = tcase_create("rope");
    TCase *all[] = {each, norm, rope};

    tcase_add_loop_test(each, functions_are_within_their_bound, 0, (int)COUNT(functions));
    tcase_add_loop_test(each, functions_of_any_finite_values_are_within_their_bound, 0,
                        (int)COUNT(functions));
    tcase_add_loop_test(each, every_variant_gives_the_bits_of_functions, 0, (int)COUNT(functions));
    tcase_add_loop_test(norm, norms_are_within_their_bound, 0, KERNEL_INPUTS_COUNT);
    tcase_add_test(norm, a_row_whose_squares_are_beyond_f32_becomes_zeros);
    tcase_add_test(norm, every_variant_gives_the_bits_of_norms);
    tcase_add_test(norm, rows_do_not_touch_each_other);
    tcase_add_test(norm, a_norm_depends_on_the_order_of_its_sum);
    tcase_add_loop_test(rope, turned_pairs_are_within_their_bound, 0, 2);
    tcase_add_loop_test(rope, every_variant_gives_the_bits_of_turned_pairs, 0, 2);
    tcase_add_loop_test(rope, heads_turn_alike_in_one_call_or_in_several, 0, 2);
    for (size_t i = 0; i < COUNT(all); i++) {
        tcase_add_checked_fixture(all[i], find_best, NULL);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(suite, all[i]);
    }
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(kernels_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
