/* The arithmetic against references of higher precision, and matmul against plain loops. The
 * bounds are those of docs/arithmetic.md. ARITH_STRIDE in the environment sets how many bit
 * patterns apart the arguments of functions of one f32 are, and with ARITH_PRINT set the largest
 * errors found are printed. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "ref/kernels.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- tools ---- */

/* ck_assert() for loops of millions: it writes a mark for each claim that holds. */
#define HOLDS(claim)                                                                               \
    do {                                                                                           \
        if (!(claim))                                                                              \
            ck_abort_msg("does not hold: %s", #claim);                                             \
    } while (0)

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 32);
}

/* -1 to 1 */
static float random_unit(void)
{
    return (float)((int32_t)random_bits() >> 8) * 0x1p-23f;
}

/* Roughly normal, at a scale of 1. */
static float random_normal(void)
{
    return random_unit() + random_unit() + random_unit();
}

static float any_float(void)
{
    return arith_float(random_bits());
}

/* The distance of neighbouring f32 at |x|. */
static double ulp_of(double x)
{
    int exponent;

    frexp(x, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static bool same(float a, float b)
{
    return arith_bits(a) == arith_bits(b);
}

static void print_measured(const char *name, double error, float at)
{
    if (getenv("ARITH_PRINT") != NULL)
        printf("%-28s %.6f at %a\n", name, error, (double)at);
}

/* ---- functions of one f32 ---- */

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double exact_silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double exact_gelu(double x)
{
    double u = sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);

    return x / (1.0 + exp(-2.0 * u));
}

static double exact_softplus(double x)
{
    return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}

static double exact_rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

/* Errors in ulp of the exact result or, where it says so, of the argument. */
static const struct {
    const char *name;
    float (*ours)(float x);
    double (*exact)(double x);
    bool ulp_of_argument;
    double bound;
} functions[] = {
    {"exp", arith_exp, exp, false, 1.01},
    {"log", arith_log, log, false, 1.0},
    {"tanh", arith_tanh, tanh, false, 1.5},
    {"rsqrt", arith_rsqrt, exact_rsqrt, false, 1.5},
    {"sigmoid", arith_sigmoid, exact_sigmoid, false, 2.5},
    {"silu", arith_silu, exact_silu, false, 3.5},
    {"gelu_tanh", arith_gelu_tanh, exact_gelu, true, 2.0},
    {"softplus", arith_softplus, exact_softplus, false, 2.5},
};

/* Error of one argument in ulp; 0 where both results are the same infinity or NaN. */
static double error_at(size_t f, float x)
{
    float ours = functions[f].ours(x);
    double exact = functions[f].exact((double)x);

    if (exact != exact)
        return same(ours, arith_nan()) ? 0.0 : INFINITY;
    if (isinf(ours) || fabs(exact) >= 0x1.ffffffp127)
        return (double)ours == (double)(float)exact ? 0.0 : INFINITY;
    return fabs((double)ours - exact) / ulp_of(functions[f].ulp_of_argument ? (double)x : exact);
}

START_TEST(functions_of_one_number_keep_their_bound)
{
    const char *text = getenv("ARITH_STRIDE");
    uint64_t stride = text != NULL ? strtoull(text, NULL, 10) : 1009;
    size_t f = (size_t)_i;
    double worst = 0.0;
    float worst_at = 0.0f;

    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) {
        float x = arith_float((uint32_t)bits);
        double error = error_at(f, x);

        if (error > worst) {
            worst = error;
            worst_at = x;
        }
    }
    print_measured(functions[f].name, worst, worst_at);
    ck_assert_msg(worst <= functions[f].bound, "%s of %a is wrong by %g ulp, not %g",
                  functions[f].name, (double)worst_at, worst, functions[f].bound);
}
END_TEST

static const float edges[] = {
    0.0f,
    -0.0f,
    0x1p-149f,
    -0x1p-149f,
    0x1p-126f,
    1.0f,
    -1.0f,
    88.72283f,
    88.7229f,
    -87.337f,
    -103.97f,
    -103.98f,
    -150.0f,
    -150.1f,
    0.625f,
    0x1.3ffffep-1f,
    20.0f,
    1e30f,
    -1e30f,
    INFINITY,
    -INFINITY,
    0x1.fffffep127f,
    -0x1.fffffep127f,
};

START_TEST(functions_of_one_number_keep_their_bound_at_edges)
{
    for (size_t f = 0; f < COUNT(functions); f++)
        for (size_t e = 0; e < COUNT(edges); e++) {
            /* the formulas of the exact values have no limit at minus infinity */
            if (isinf(edges[e]) && edges[e] < 0 &&
                (functions[f].ours == arith_silu || functions[f].ours == arith_gelu_tanh)) {
                HOLDS(same(functions[f].ours(edges[e]), -0.0f));
                continue;
            }
            ck_assert_msg(error_at(f, edges[e]) <= functions[f].bound, "%s of %a is %a",
                          functions[f].name, (double)edges[e], (double)functions[f].ours(edges[e]));
        }
}
END_TEST

START_TEST(every_nan_becomes_the_canonical_one)
{
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};
    float many[ARITH_BLOCK] = {0};

    for (size_t n = 0; n < COUNT(nans); n++) {
        float x = arith_float(nans[n]), sine, cosine;

        for (size_t f = 0; f < COUNT(functions); f++)
            ck_assert_msg(same(functions[f].ours(x), arith_nan()), "%s", functions[f].name);
        ck_assert_uint_eq(arith_f16_from_f32(x), 0x7e00);
        ck_assert_uint_eq(arith_bf16_from_f32(x), 0x7fc0);
        arith_sincos((double)x, &sine, &cosine);
        HOLDS(same(sine, arith_nan()) && same(cosine, arith_nan()));
        many[7] = x;
        HOLDS(same(arith_sum_squares(many, ARITH_BLOCK), arith_nan()));
        HOLDS(same(arith_dot8(many, many, ARITH_BLOCK), arith_nan()));
    }
    HOLDS(same(arith_f32_from_f16(0xfc01), arith_nan()));
    HOLDS(same(arith_f32_from_bf16(0xff81), arith_nan()));
}
END_TEST

/* ---- rotary ---- */

static double sine_error(double angle)
{
    float sine, cosine;
    long double exact_sine = sinl((long double)angle), exact_cosine = cosl((long double)angle);

    arith_sincos(angle, &sine, &cosine);
    return fmax(fabs((double)(sine - exact_sine)) / ulp_of((double)exact_sine),
                fabs((double)(cosine - exact_cosine)) / ulp_of((double)exact_cosine));
}

START_TEST(sine_and_cosine_are_rounded_once)
{
    double worst = 0.0;

    for (int i = 0; i < 300000; i++) {
        double size = ldexp(1.0, (int)(random_bits() % 60) - 30);
        double angle = size * ((double)random_bits() * 0x1p-31 - 1.0);
        double near_zero = floor(angle) * 1.57079632679489661923;

        worst = fmax(worst, sine_error(angle));
        if (fabs(near_zero) <= 0x1p30)
            worst = fmax(worst, sine_error(near_zero));
    }
    print_measured("sincos", worst, 0.0f);
    ck_assert_msg(worst <= 0.501, "%g ulp", worst);
}
END_TEST

START_TEST(sine_and_cosine_of_zero_and_of_too_large_angles_are_defined)
{
    float sine, cosine;

    arith_sincos(0.0, &sine, &cosine);
    HOLDS(same(sine, 0.0f) && same(cosine, 1.0f));
    arith_sincos(0x1.00001p30, &sine, &cosine);
    HOLDS(same(sine, arith_nan()) && same(cosine, arith_nan()));
    arith_sincos(-(double)INFINITY, &sine, &cosine);
    HOLDS(same(sine, arith_nan()) && same(cosine, arith_nan()));
}
END_TEST

START_TEST(powers_in_double_are_within_3e_16)
{
    double worst_pow = 0.0, worst_log = 0.0, worst_exp = 0.0;

    for (int i = 0; i < 300000; i++) {
        double base = ldexp(1.0 + (double)random_bits() * 0x1p-32, (int)(random_bits() % 60) - 30);
        double exponent = (double)random_bits() * 0x1p-31 - 1.0;
        long double power = powl((long double)base, (long double)exponent);
        long double logarithm = logl((long double)base);
        long double e = expl(20.0L * (long double)exponent);

        worst_pow =
            fmax(worst_pow, fabs((double)((arith_pow_double(base, exponent) - power) / power)));
        worst_log =
            fmax(worst_log, fabs((double)((arith_log_double(base) - logarithm) / logarithm)));
        worst_exp = fmax(worst_exp, fabs((double)((arith_exp_double(20.0 * exponent) - e) / e)));
    }
    for (int i = 0; i < 64; i++) {
        long double power = powl(10000.0L, -2.0L * i / 128.0L);

        worst_pow = fmax(worst_pow,
                         fabs((double)((arith_pow_double(1e4, -2.0 * i / 128.0) - power) / power)));
    }
    print_measured("pow_double x 1e16", worst_pow * 1e16, 0.0f);
    print_measured("log_double x 1e16", worst_log * 1e16, 0.0f);
    print_measured("exp_double x 1e16", worst_exp * 1e16, 0.0f);
    ck_assert_double_lt(worst_pow, 3e-16);
    ck_assert_double_lt(worst_log, 3e-16);
    ck_assert_double_lt(worst_exp, 3e-16);
    ck_assert_double_eq(arith_pow_double(10000.0, 0.0), 1.0);
    ck_assert_double_eq(arith_log_double(1.0), 0.0);
}
END_TEST

/* ---- 16-bit numbers ---- */

START_TEST(every_f16_and_bf16_survives_the_way_to_f32_and_back)
{
    for (uint32_t half = 0; half < 65536; half++) {
        float wide = arith_f32_from_f16((uint16_t)half);

        if (wide == wide)
            HOLDS(arith_f16_from_f32(wide) == half);
        wide = arith_f32_from_bf16((uint16_t)half);
        if (wide == wide)
            HOLDS(arith_bf16_from_f32(wide) == half);
    }
}
END_TEST

/* Nearest of the neighbours, ties to the even one: what the conversion must give. */
static bool is_nearest(double value, uint32_t half, float (*widen)(uint16_t), uint32_t infinity,
                       double beyond)
{
    uint32_t magnitude = half & 0x7fff;
    double size = fabs(value),
           own = magnitude == infinity ? beyond : fabs((double)widen((uint16_t)magnitude));
    double error = fabs(own - size);
    double below =
        magnitude == 0 ? INFINITY : fabs((double)widen((uint16_t)(magnitude - 1)) - size);
    double above = magnitude == infinity ? INFINITY
                   : magnitude + 1 == infinity
                       ? fabs(beyond - size)
                       : fabs((double)widen((uint16_t)(magnitude + 1)) - size);

    if (magnitude == infinity && size >= beyond)
        return true;
    return error <= below && error <= above &&
           ((error < below && error < above) || magnitude % 2 == 0);
}

START_TEST(conversions_to_16_bits_round_half_to_even)
{
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        /* the second argument lies on or next to a tie of bf16, the third of f16 */
        uint32_t patterns[] = {
            (uint32_t)bits, ((uint32_t)bits & 0xffff0000) | (0x7fff + (uint32_t)(bits >> 2) % 3),
            ((uint32_t)bits & 0xffffe000) | (0x0fff + (uint32_t)(bits >> 2) % 3)};

        for (size_t p = 0; p < COUNT(patterns); p++) {
            float x = arith_float(patterns[p]);

            if (x != x)
                continue;
            ck_assert_msg(
                is_nearest((double)x, arith_f16_from_f32(x), arith_f32_from_f16, 0x7c00, 65536.0),
                "f16 of %a", (double)x);
            ck_assert_msg(
                is_nearest((double)x, arith_bf16_from_f32(x), arith_f32_from_bf16, 0x7f80, 0x1p128),
                "bf16 of %a", (double)x);
            HOLDS(arith_f16_from_f32(x) >> 15 == patterns[p] >> 31);
            HOLDS(arith_bf16_from_f32(x) >> 15 == patterns[p] >> 31);
        }
    }
}
END_TEST

/* ---- fixed point ---- */

START_TEST(the_limit_is_the_largest_float_that_cannot_overflow)
{
    for (int i = 0; i < 200000; i++) {
        uint64_t groups =
            i < 5000 ? (uint64_t)i + 1 : ((uint64_t)random_bits() << 2 >> random_bits() % 34) + 1;
        float limit = arith_limit(groups), next = arith_float(arith_bits(limit) + 1);
        long double bound = 0x1p29L;

        HOLDS((long double)limit * (long double)groups <= bound);
        HOLDS((long double)next * (long double)groups > bound);
    }
}
END_TEST

START_TEST(fixed_point_rounds_half_to_even)
{
    float limit = arith_limit(1);

    for (int i = 0; i < 1000000; i++) {
        float x = any_float();
        long double scaled = (long double)x * 0x1p30L;

        if (fabsf(x) < limit)
            HOLDS(arith_to_fixed(x, limit) == (int64_t)rintl(scaled));
        else
            HOLDS(arith_to_fixed(x, limit) == ARITH_FLAG);
    }
    ck_assert_int_eq(arith_to_fixed(0x1p-31f, limit), 0);
    ck_assert_int_eq(arith_to_fixed(0x1.8p-30f, limit), 2);
    ck_assert_int_eq(arith_to_fixed(-0x1.4p-29f, limit), -2);
    ck_assert_int_eq(arith_to_fixed(-0.0f, limit), 0);
}
END_TEST

START_TEST(a_partial_sum_at_the_limit_is_flagged_and_one_below_is_not)
{
    static const uint64_t groups[] = {1, 3, 16, 100, 4097};

    for (size_t g = 0; g < COUNT(groups); g++) {
        float limit = arith_limit(groups[g]), below = arith_float(arith_bits(limit) - 1);
        int64_t sum = 0;

        ck_assert_int_eq(arith_to_fixed(limit, limit), ARITH_FLAG);
        ck_assert_int_eq(arith_to_fixed(-limit, limit), ARITH_FLAG);
        ck_assert_int_eq(arith_to_fixed(INFINITY, limit), ARITH_FLAG);
        ck_assert_int_eq(arith_to_fixed(-INFINITY, limit), ARITH_FLAG);
        ck_assert_int_eq(arith_to_fixed(arith_nan(), limit), ARITH_FLAG);
        for (uint64_t i = 0; i < groups[g]; i++)
            sum += arith_to_fixed(below, limit);
        HOLDS(!arith_fixed_is_flagged(sum) && !arith_fixed_is_flagged(-sum));
        ck_assert_int_lt(sum, INT64_C(1) << 59);
    }
}
END_TEST

START_TEST(a_flag_stays_in_a_device_and_15_of_them_survive_plain_addition)
{
    int64_t largest = (INT64_C(1) << 59) - 1;

    for (int64_t rest = -largest; rest <= largest; rest += largest / 8) {
        uint64_t sum = (uint64_t)rest;

        HOLDS(!arith_fixed_is_flagged(rest));
        ck_assert_int_eq(arith_fixed_add(rest, ARITH_FLAG), ARITH_FLAG);
        ck_assert_int_eq(arith_fixed_add(ARITH_FLAG, rest), ARITH_FLAG);
        for (int flags = 1; flags <= ARITH_FLAGS_MAX; flags++) {
            sum += (uint64_t)ARITH_FLAG;
            HOLDS(arith_fixed_is_flagged((int64_t)sum));
            HOLDS(same(arith_from_fixed((int64_t)sum), arith_nan()));
        }
    }
    ck_assert_int_eq(arith_fixed_add(ARITH_FLAG, ARITH_FLAG), ARITH_FLAG);
    ck_assert_int_eq(arith_fixed_add(3, -5), -2);
}
END_TEST

START_TEST(a_sum_returns_to_f32_with_one_rounding)
{
    for (int i = 0; i < 300000; i++) {
        int64_t sum =
            (int64_t)((uint64_t)random_bits() << 32 | random_bits()) >> (5 + random_bits() % 58);

        HOLDS(same(arith_from_fixed(sum), (float)((long double)sum * 0x1p-30L)));
    }
}
END_TEST

/* ---- quantised activations and caches ---- */

START_TEST(activations_are_within_half_a_step)
{
    for (int i = 0; i < 20000; i++) {
        float x[ARITH_BLOCK], scale, size = ldexpf(1.0f, (int)(random_bits() % 120) - 62);
        int8_t q[ARITH_BLOCK];
        int32_t sum, expected = 0;

        for (int k = 0; k < ARITH_BLOCK; k++)
            x[k] = random_normal() * size / 4.0f;
        arith_quantise_block(x, q, &scale, &sum);
        for (int k = 0; k < ARITH_BLOCK; k++) {
            expected += q[k];
            HOLDS(abs(q[k]) <= 127);
            if (scale != 0.0f)
                HOLDS(fabs((double)x[k] - (double)q[k] * (double)scale) <= 0.5001 * (double)scale);
        }
        ck_assert_int_eq(sum, expected);
        HOLDS(scale == 0.0f || scale >= ARITH_SCALE_MIN);
    }
}
END_TEST

START_TEST(small_activations_become_zero_and_those_that_are_not_finite_flag_their_group)
{
    static const struct {
        float largest;
        bool zero, flagged;
    } cases[] = {
        {0.0f, true, false},
        {0x1p-149f, true, false},
        {126.9f * 0x1p-70f, true, false},
        {127.1f * 0x1p-70f, false, false},
        {0x1.fffffep59f, false, false},
        {0x1p60f, true, true},
        {INFINITY, true, true},
        {-INFINITY, true, true},
        {NAN, true, true},
    };

    for (size_t c = 0; c < COUNT(cases); c++) {
        float x[ARITH_BLOCK] = {0}, scale;
        int8_t q[ARITH_BLOCK];
        int32_t sum;
        struct arith_q8_0 weight = {.d = 0x3c00};

        x[19] = cases[c].largest;
        arith_quantise_block(x, q, &scale, &sum);
        ck_assert_int_eq(q[19], cases[c].zero ? 0 : 127);
        ck_assert_int_eq(sum, q[19]);
        ck_assert_int_eq(scale != scale, cases[c].flagged);
        ck_assert_int_eq(scale == 0.0f, cases[c].zero && !cases[c].flagged);
        ck_assert_int_eq(
            arith_to_fixed(arith_block_fma(TENSOR_TYPE_Q8_0, &weight, 0, q, scale, sum, 1.0f),
                           arith_limit(1)) == ARITH_FLAG,
            cases[c].flagged);
    }
}
END_TEST

START_TEST(cache_blocks_hold_values_within_half_a_step)
{
    for (int i = 0; i < 20000; i++) {
        float x[ARITH_BLOCK], y[ARITH_BLOCK], largest = 0.0f;
        float size = ldexpf(1.0f, (int)(random_bits() % 24) - 12);
        uint16_t block[ARITH_BLOCK];

        for (int k = 0; k < ARITH_BLOCK; k++) {
            x[k] = random_normal() * size;
            largest = fmaxf(largest, fabsf(x[k]));
        }
        arith_cache_block(TENSOR_TYPE_F16, x, block);
        arith_dequantise_block(TENSOR_TYPE_F16, block, 0, y);
        for (int k = 0; k < ARITH_BLOCK; k++)
            HOLDS(fabsf(x[k] - y[k]) <= fmaxf(fabsf(x[k]) * 0x1p-11f, 0x1p-25f));
        /* half a step, and the rounding of the scale to f16 times the value */
        arith_cache_block(TENSOR_TYPE_Q8_0, x, block);
        arith_dequantise_block(TENSOR_TYPE_Q8_0, block, 0, y);
        for (int k = 0; k < ARITH_BLOCK; k++)
            HOLDS(fabsf(x[k] - y[k]) <=
                  largest / 127.0f * 0.501f + fmaxf(largest * 0x1p-11f, 127.0f * 0x1p-25f));
        arith_cache_block(TENSOR_TYPE_Q4_0, x, block);
        arith_dequantise_block(TENSOR_TYPE_Q4_0, block, 0, y);
        for (int k = 0; k < ARITH_BLOCK; k++)
            HOLDS(fabsf(x[k] - y[k]) <= /* a whole step at the end where 16 would be due */
                  largest / 8.0f * 1.001f + largest * 0x1p-11f);
    }
}
END_TEST

START_TEST(cache_blocks_of_zeros_are_zeros_and_of_infinities_are_nan)
{
    static const struct {
        float value;
        bool is_nan;
    } cases[] = {{0.0f, false}, {1e-9f, false}, {-1e-9f, false}, {INFINITY, true},
                 {NAN, true},   {1e30f, true},  {-1e30f, true}};
    static const enum tensor_type cache_types[] = {TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0};

    for (size_t c = 0; c < COUNT(cases); c++)
        for (size_t t = 0; t < COUNT(cache_types); t++) {
            float x[ARITH_BLOCK] = {0}, y[ARITH_BLOCK];
            uint16_t block[ARITH_BLOCK];

            x[3] = cases[c].value;
            arith_cache_block(cache_types[t], x, block);
            arith_dequantise_block(cache_types[t], block, 0, y);
            for (int k = 0; k < ARITH_BLOCK; k++)
                HOLDS(cases[c].is_nan ? same(y[k], arith_nan()) : y[k] == 0.0f);
        }
}
END_TEST

/* ---- packed blocks ---- */

static const enum tensor_type all_types[] = {
    TENSOR_TYPE_F32,  TENSOR_TYPE_F16,  TENSOR_TYPE_BF16, TENSOR_TYPE_Q8_0,
    TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_K, TENSOR_TYPE_Q5_K, TENSOR_TYPE_Q6_K,
};

/* Random bytes, with scales of a size that models have. */
static void fill_block(enum tensor_type type, uint8_t *block)
{
    uint16_t d = arith_f16_from_f32(0.01f * random_unit());
    uint16_t dmin = arith_f16_from_f32(0.01f * random_unit());
    float value = random_normal();

    for (uint32_t i = 0; i < arith_type_bytes(type); i++)
        block[i] = (uint8_t)random_bits();
    switch (type) {
    case TENSOR_TYPE_F32:
        memcpy(block, &value, sizeof(value));
        break;
    case TENSOR_TYPE_F16:
        d = arith_f16_from_f32(value);
        memcpy(block, &d, sizeof(d));
        break;
    case TENSOR_TYPE_BF16:
        d = arith_bf16_from_f32(value);
        memcpy(block, &d, sizeof(d));
        break;
    case TENSOR_TYPE_Q6_K:
        memcpy(block + 208, &d, sizeof(d));
        break;
    case TENSOR_TYPE_Q4_K:
    case TENSOR_TYPE_Q5_K:
        memcpy(block, &d, sizeof(d));
        memcpy(block + 2, &dmin, sizeof(dmin));
        break;
    default:
        memcpy(block, &d, sizeof(d));
    }
}

START_TEST(type_sizes_are_those_of_the_table)
{
    for (size_t t = 0; t < COUNT(all_types); t++) {
        const struct tensor_type_info *info = tensor_type_info(all_types[t]);

        ck_assert_uint_eq(arith_type_columns(all_types[t]), info->block_elements);
        ck_assert_uint_eq(arith_type_bytes(all_types[t]), info->block_bytes);
        ck_assert_int_eq(arith_type_is_quantised(all_types[t]), info->quantised);
    }
}
END_TEST

/* ggml's own loops, value by value, for one block of 256. */
static void plain_q4_k(const uint8_t *block, bool five, float *y)
{
    const uint8_t *scales = block + 4, *qh = block + 16, *qs = block + (five ? 48 : 16);
    uint16_t halves[2];
    uint8_t high = 1;

    memcpy(halves, block, sizeof(halves));
    for (int j = 0, is = 0; j < 256; j += 64, is += 2, qs += 32) {
        for (int part = 0; part < 2; part++, high = (uint8_t)(high << 1)) {
            int k = is + part;
            int scale = k < 4 ? scales[k] & 63 : (scales[k + 4] & 15) | (scales[k - 4] >> 6) << 4;
            int min = k < 4 ? scales[k + 4] & 63 : scales[k + 4] >> 4 | (scales[k] >> 6) << 4;
            float d = arith_f32_from_f16(halves[0]) * (float)scale;
            float m = arith_f32_from_f16(halves[1]) * (float)min;

            for (int l = 0; l < 32; l++) {
                int q = part == 0 ? qs[l] & 15 : qs[l] >> 4;

                if (five && (qh[l] & high) != 0)
                    q += 16;
                *y++ = d * (float)q - m;
            }
        }
    }
}

static void plain_q6_k(const uint8_t *block, float *y)
{
    const uint8_t *ql = block, *qh = block + 128;
    const int8_t *scales = (const int8_t *)block + 192;
    uint16_t half;
    float d;

    memcpy(&half, block + 208, sizeof(half));
    d = arith_f32_from_f16(half);
    for (int n = 0; n < 256; n += 128, y += 128, ql += 64, qh += 32, scales += 8)
        for (int l = 0; l < 32; l++) {
            int is = l / 16;
            int q1 = ((ql[l] & 15) | (qh[l] & 3) << 4) - 32;
            int q2 = ((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32;
            int q3 = (ql[l] >> 4 | (qh[l] >> 4 & 3) << 4) - 32;
            int q4 = (ql[l + 32] >> 4 | (qh[l] >> 6) << 4) - 32;

            y[l] = d * (float)scales[is] * (float)q1;
            y[l + 32] = d * (float)scales[is + 2] * (float)q2;
            y[l + 64] = d * (float)scales[is + 4] * (float)q3;
            y[l + 96] = d * (float)scales[is + 6] * (float)q4;
        }
}

START_TEST(blocks_of_256_hold_the_values_that_ggml_reads)
{
    static const enum tensor_type types[] = {TENSOR_TYPE_Q4_K, TENSOR_TYPE_Q5_K, TENSOR_TYPE_Q6_K};

    for (int i = 0; i < 200; i++)
        for (size_t t = 0; t < COUNT(types); t++) {
            uint16_t words[105];
            uint8_t *block = (uint8_t *)words;
            float expected[256], y[ARITH_BLOCK];

            fill_block(types[t], block);
            if (types[t] == TENSOR_TYPE_Q6_K)
                plain_q6_k(block, expected);
            else
                plain_q4_k(block, types[t] == TENSOR_TYPE_Q5_K, expected);
            for (uint32_t which = 0; which < 8; which++) {
                arith_dequantise_block(types[t], block, which, y);
                for (uint32_t k = 0; k < ARITH_BLOCK; k++)
                    HOLDS(same(y[k], expected[which * ARITH_BLOCK + k]));
            }
        }
}
END_TEST

START_TEST(a_block_product_is_that_of_the_values_it_holds)
{
    double worst = 0.0;

    for (int i = 0; i < 20000; i++) {
        enum tensor_type type = all_types[3 + random_bits() % 5];
        uint32_t which = arith_type_columns(type) == 256 ? random_bits() % 8 : 0;
        uint16_t words[105];
        float x[ARITH_BLOCK], y[ARITH_BLOCK], scale, ours;
        int8_t q[ARITH_BLOCK];
        int32_t sum;
        double exact = 0.0, size = 0.0;

        fill_block(type, (uint8_t *)words);
        for (int k = 0; k < ARITH_BLOCK; k++)
            x[k] = random_normal();
        arith_quantise_block(x, q, &scale, &sum);
        ours = arith_block_fma(type, words, which, q, scale, sum, 0.0f);
        arith_dequantise_block(type, words, which, y);
        for (int k = 0; k < ARITH_BLOCK; k++) {
            exact += (double)y[k] * (double)q[k] * (double)scale;
            size += fabs((double)y[k] * (double)q[k] * (double)scale);
        }
        /* Q4_K and Q5_K subtract two sums that may each be larger than the values */
        worst = fmax(worst, fabs((double)ours - exact) / fmax(size, 1e-3) * 0x1p24);
    }
    print_measured("block product x 2^24", worst, 0.0f);
    ck_assert_double_lt(worst, 64.0);
}
END_TEST

START_TEST(the_largest_integer_sums_are_exact)
{
    struct arith_q6_k block;
    int8_t q[ARITH_BLOCK];

    memset(&block, 0, sizeof(block)); /* every value is -32 */
    memset(block.scales, 0x80, sizeof(block.scales));
    memset(q, 127, sizeof(q));
    block.d = 0x3c00;
    HOLDS(same(arith_block_fma(TENSOR_TYPE_Q6_K, &block, 5, q, 1.0f, 0, 0.0f),
               128.0f * 32.0f * 127.0f * 32.0f));
}
END_TEST

/* ---- sums ---- */

START_TEST(sums_are_close_to_exact_ones)
{
    static float a[5000], b[5000];
    double worst_squares = 0.0, worst_dot = 0.0;

    for (int i = 0; i < 200; i++) {
        uint64_t n = random_bits() % 5000 + 1;
        double squares = 0.0, dot = 0.0, size = 0.0;

        for (uint64_t k = 0; k < n; k++) {
            a[k] = random_normal();
            b[k] = random_normal();
            squares += (double)a[k] * (double)a[k];
            dot += (double)a[k] * (double)b[k];
            size += fabs((double)a[k] * (double)b[k]);
        }
        worst_squares =
            fmax(worst_squares, fabs((double)arith_sum_squares(a, n) - squares) / squares);
        n = n % 256 + 1;
        dot = size = 0.0;
        for (uint64_t k = 0; k < n; k++) {
            dot += (double)a[k] * (double)b[k];
            size += fabs((double)a[k] * (double)b[k]);
        }
        worst_dot = fmax(worst_dot, fabs((double)arith_dot8(a, b, n) - dot) / size);
    }
    print_measured("sum_squares x 2^24", worst_squares * 0x1p24, 0.0f);
    print_measured("dot8 x 2^24", worst_dot * 0x1p24, 0.0f);
    ck_assert_double_lt(worst_squares * 0x1p24, 28.0); /* 20 in a lane and 8 in the tree */
    ck_assert_double_lt(worst_dot * 0x1p24, 35.0);     /* 32 and 3 */
    HOLDS(same(arith_sum_squares(a, 0), 0.0f));
    HOLDS(same(arith_dot8(a, b, 0), 0.0f));
}
END_TEST

START_TEST(sums_take_lanes_and_then_a_halving_tree)
{
    float a[11] = {0x1p24f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, one[11];

    for (int i = 0; i < 11; i++)
        one[i] = 1.0f;
    /* lane 0 is 2^24 + 1, rounded to 2^24; lanes 1 and 2 are 2; the tree adds lanes 4, 2, 1 */
    float lane0 = 0x1p24f + 1.0f, left = (lane0 + 1.0f) + (2.0f + 1.0f);
    float right = (2.0f + 1.0f) + (1.0f + 1.0f);

    HOLDS(same(arith_dot8(a, one, 11), left + right));
}
END_TEST

/* ---- matmul ---- */

static const char *const variants[] = {"base", "avx2", "avx512"};

#define CASE_ROWS 37
#define CASE_TOKENS 19
#define CASE_COLUMNS 1536

static const struct {
    uint64_t row_first, rows, segment_columns, first, count;
    uint32_t segments, group, tokens;
    bool scaled;
} cases[] = {
    {0, 1, 256, 0, 256, 1, 256, 1, false},
    {0, CASE_ROWS, 1536, 0, 1536, 1, 256, 1, false},
    {3, 21, 1536, 512, 768, 1, 256, 1, true},
    {0, 8, 768, 256, 512, 2, 128, 1, false},
    {1, 16, 1408, 1024, 384, 1, 256, 1, false}, /* a short last group */
    {0, 5, 1536, 0, 1536, 1, 256, 2, true},
    {2, CASE_ROWS - 2, 1280, 256, 1024, 1, 256, 7, false},
    {0, 3, 512, 0, 512, 3, 32, 16, true},
    {0, 9, 768, 384, 384, 2, 128, CASE_TOKENS, true},
};

struct operands {
    uint8_t *weight;
    float *x, *scales;
};

static void free_operands(struct operands *operands)
{
    free(operands->weight);
    free(operands->x);
    free(operands->scales);
}

/* Weights of `rows` rows and activations of which one block is not finite, one is large, and one
 * is tiny. */
static struct operands new_operands(enum tensor_type type, uint64_t rows, uint64_t columns,
                                    uint64_t x_columns, uint32_t tokens)
{
    uint64_t blocks = rows * (columns / arith_type_columns(type));
    struct operands out = {.weight = malloc(blocks * arith_type_bytes(type)),
                           .x = malloc(sizeof(float) * x_columns * tokens),
                           .scales = malloc(sizeof(float) * tokens)};

    HOLDS(out.weight != NULL && out.x != NULL && out.scales != NULL);
    for (uint64_t b = 0; b < blocks; b++)
        fill_block(type, out.weight + b * arith_type_bytes(type));
    for (uint64_t i = 0; i < x_columns * tokens; i++)
        out.x[i] = random_normal();
    for (uint32_t t = 0; t < tokens; t++)
        out.scales[t] = random_unit();
    if (tokens > 4) {
        out.x[1 * x_columns + 5] = INFINITY;
        out.x[2 * x_columns + 77] = 3e9f;
        for (int i = 0; i < ARITH_BLOCK; i++)
            out.x[3 * x_columns + 32 + (uint64_t)i] *= 1e-30f;
    }
    return out;
}

/* The definition: one chain per row, token and group. */
static void plain_matmul(const struct matmul *m, const float *x, const float *scales,
                         uint32_t tokens, int64_t *sums, uint64_t stride)
{
    uint32_t columns = arith_type_columns(m->type), bytes = arith_type_bytes(m->type);

    for (uint32_t t = 0; t < tokens; t++)
        for (uint64_t r = 0; r < m->rows; r++)
            for (uint32_t s = 0; s < m->segments; s++)
                for (uint64_t g = 0; g < m->count; g += m->group) {
                    const uint8_t *row =
                        (const uint8_t *)m->weight + (m->row_first + r) * m->row_bytes;
                    const float *from = x + (t * m->segments + s) * m->count;
                    uint64_t end = g + m->group < m->count ? g + m->group : m->count;
                    float partial = 0.0f;

                    for (uint64_t i = g; i < end; i += columns == 1 ? 1 : ARITH_BLOCK) {
                        uint64_t column = s * m->segment_columns + m->first + i;
                        const uint8_t *block = row + column / columns * bytes;
                        int8_t q[ARITH_BLOCK];
                        float scale;
                        int32_t sum;

                        if (columns == 1) {
                            partial = fmaf(arith_load(m->type, block, 0), from[i], partial);
                            continue;
                        }
                        arith_quantise_block(from + i, q, &scale, &sum);
                        partial = arith_block_fma(m->type, block, (uint32_t)(column % columns) / 32,
                                                  q, scale, sum, partial);
                    }
                    if (scales != NULL)
                        partial = partial * scales[t];
                    sums[t * stride + r] =
                        arith_fixed_add(sums[t * stride + r],
                                        arith_to_fixed(partial, arith_limit(m->groups_total)));
                }
}

static void assert_same_sums(const struct matmul *m, const struct operands *operands,
                             const float *scales, uint32_t tokens, const char *name)
{
    uint64_t stride = m->rows + 3;
    size_t size = stride * tokens * sizeof(int64_t);
    int64_t *expected = malloc(size), *sums = malloc(size);

    HOLDS(expected != NULL && sums != NULL);
    memset(expected, 0, size);
    expected[0] = ARITH_FLAG;
    plain_matmul(m, operands->x, scales, tokens, expected, stride);
    for (size_t v = 0; v < COUNT(variants); v++) {
        const struct ref_kernels *kernels = ref_kernels_find(variants[v]);

        if (kernels == NULL)
            continue;
        memset(sums, 0, size);
        sums[0] = ARITH_FLAG; /* stays */
        kernels->matmul(m, operands->x, scales, tokens, sums, stride);
        ck_assert_msg(memcmp(sums, expected, size) == 0, "%s %s: %s differs",
                      tensor_type_info(m->type)->name, name, variants[v]);
    }
    free(expected);
    free(sums);
}

START_TEST(every_variant_of_matmul_equals_the_plain_loop)
{
    for (size_t t = 0; t < COUNT(all_types); t++) {
        enum tensor_type type = all_types[t];
        uint64_t columns = cases[_i].segments * cases[_i].segment_columns;
        uint64_t padded = (columns + 255) / 256 * 256;
        struct operands operands = new_operands(
            type, CASE_ROWS, padded, cases[_i].segments * cases[_i].count, cases[_i].tokens);
        struct matmul matmul = {
            .type = type,
            .weight = operands.weight,
            .row_bytes = tensor_type_row_bytes(type, padded),
            .row_first = cases[_i].row_first,
            .rows = cases[_i].rows,
            .segment_columns = cases[_i].segment_columns,
            .segments = cases[_i].segments,
            .first = cases[_i].first,
            .count = cases[_i].count,
            .group = cases[_i].group,
            .groups_total = columns / cases[_i].group + cases[_i].segments,
        };
        char name[32];

        snprintf(name, sizeof(name), "case %d", _i);
        assert_same_sums(&matmul, &operands, cases[_i].scaled ? operands.scales : NULL,
                         cases[_i].tokens, name);
        free_operands(&operands);
    }
}
END_TEST

START_TEST(float_weights_may_have_any_number_of_columns)
{
    static const enum tensor_type types[] = {TENSOR_TYPE_F32, TENSOR_TYPE_F16, TENSOR_TYPE_BF16};
    static const uint32_t tokens[] = {1, 6};

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t n = 0; n < COUNT(tokens); n++) {
            struct operands operands = new_operands(types[t], 11, 301, 301, tokens[n]);
            struct matmul matmul = {.type = types[t],
                                    .weight = operands.weight,
                                    .row_bytes = tensor_type_row_bytes(types[t], 301),
                                    .rows = 11,
                                    .segment_columns = 301,
                                    .segments = 1,
                                    .count = 301,
                                    .group = 256,
                                    .groups_total = 2};

            assert_same_sums(&matmul, &operands, NULL, tokens[n], "301 columns");
            free_operands(&operands);
        }
}
END_TEST

START_TEST(rows_longer_than_one_pass_give_the_same_sums)
{
    static const struct {
        enum tensor_type type;
        uint64_t columns;
        uint32_t tokens;
    } long_rows[] = {
        {TENSOR_TYPE_Q4_0, 66560, 1}, {TENSOR_TYPE_Q8_0, 4864, 18}, {TENSOR_TYPE_Q6_K, 4864, 3},
        {TENSOR_TYPE_F16, 16640, 1},  {TENSOR_TYPE_F32, 2432, 18},
    };

    for (size_t c = 0; c < COUNT(long_rows); c++) {
        struct operands operands = new_operands(long_rows[c].type, 3, long_rows[c].columns,
                                                long_rows[c].columns, long_rows[c].tokens);
        struct matmul matmul = {.type = long_rows[c].type,
                                .weight = operands.weight,
                                .row_bytes =
                                    tensor_type_row_bytes(long_rows[c].type, long_rows[c].columns),
                                .rows = 3,
                                .segment_columns = long_rows[c].columns,
                                .segments = 1,
                                .count = long_rows[c].columns,
                                .group = 256,
                                .groups_total = long_rows[c].columns / 256 + 1};

        assert_same_sums(&matmul, &operands, NULL, long_rows[c].tokens, "long rows");
        free_operands(&operands);
    }
}
END_TEST

/* Columns first to first + count of (tokens, columns) activations, contiguous. */
static void slice_columns(const float *x, uint64_t columns, uint32_t tokens, uint64_t first,
                          uint64_t count, float *out)
{
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(out + t * count, x + t * columns + first, count * sizeof(*out));
}

START_TEST(devices_that_each_take_some_groups_sum_to_the_same_integers)
{
    static const uint64_t cuts[][4] = {
        {0, 1536, 1536, 1536}, {0, 256, 512, 1536}, {0, 1280, 1408, 1536}, {0, 128, 640, 1536}};
    static const uint32_t tokens_of[] = {1, 5};
    static float part_x[CASE_COLUMNS * 5];

    for (size_t t = 0; t < COUNT(all_types); t++)
        for (size_t n = 0; n < COUNT(tokens_of); n++) {
            uint32_t tokens = tokens_of[n];
            struct operands operands =
                new_operands(all_types[t], 10, CASE_COLUMNS, CASE_COLUMNS, tokens);
            struct matmul matmul = {.type = all_types[t],
                                    .weight = operands.weight,
                                    .row_bytes = tensor_type_row_bytes(all_types[t], CASE_COLUMNS),
                                    .rows = 10,
                                    .segment_columns = CASE_COLUMNS,
                                    .segments = 1,
                                    .count = CASE_COLUMNS,
                                    .group = 128,
                                    .groups_total = CASE_COLUMNS / 128};
            int64_t whole[50] = {0};

            plain_matmul(&matmul, operands.x, NULL, tokens, whole, 10);
            for (size_t c = 0; c < COUNT(cuts); c++) {
                uint64_t total[50] = {0};

                for (int device = 0; device < 3; device++) {
                    const struct ref_kernels *kernels =
                        ref_kernels_find(variants[(c + (size_t)device) % COUNT(variants)]);
                    int64_t sums[50] = {0};

                    if (kernels == NULL)
                        kernels = ref_kernels_find("base");
                    matmul.first = cuts[c][device];
                    matmul.count = cuts[c][device + 1] - matmul.first;
                    slice_columns(operands.x, CASE_COLUMNS, tokens, matmul.first, matmul.count,
                                  part_x);
                    kernels->matmul(&matmul, part_x, NULL, tokens, sums, 10);
                    for (size_t i = 0; i < COUNT(total); i++)
                        total[i] += (uint64_t)sums[i];
                }
                for (size_t i = 0; i < COUNT(total); i++) {
                    bool flagged = arith_fixed_is_flagged(whole[i]);

                    ck_assert_int_eq(arith_fixed_is_flagged((int64_t)total[i]), flagged);
                    if (!flagged)
                        ck_assert_int_eq((int64_t)total[i], whole[i]);
                    HOLDS(same(arith_from_fixed((int64_t)total[i]), arith_from_fixed(whole[i])));
                }
            }
            free_operands(&operands);
        }
}
END_TEST

static Suite *arith_suite(void)
{
    Suite *suite = suite_create("arith");
    TCase *functions_case = tcase_create("functions");
    TCase *blocks = tcase_create("blocks");
    TCase *products = tcase_create("matmul");

    tcase_set_timeout(functions_case, 3600);
    tcase_add_loop_test(functions_case, functions_of_one_number_keep_their_bound, 0,
                        (int)COUNT(functions));
    tcase_add_test(functions_case, functions_of_one_number_keep_their_bound_at_edges);
    tcase_add_test(functions_case, every_nan_becomes_the_canonical_one);
    tcase_add_test(functions_case, sine_and_cosine_are_rounded_once);
    tcase_add_test(functions_case, sine_and_cosine_of_zero_and_of_too_large_angles_are_defined);
    tcase_add_test(functions_case, powers_in_double_are_within_3e_16);
    tcase_add_test(functions_case, every_f16_and_bf16_survives_the_way_to_f32_and_back);
    tcase_add_test(functions_case, conversions_to_16_bits_round_half_to_even);
    tcase_add_test(functions_case, sums_are_close_to_exact_ones);
    tcase_add_test(functions_case, sums_take_lanes_and_then_a_halving_tree);
    tcase_set_timeout(blocks, 60);
    tcase_add_test(blocks, the_limit_is_the_largest_float_that_cannot_overflow);
    tcase_add_test(blocks, fixed_point_rounds_half_to_even);
    tcase_add_test(blocks, a_partial_sum_at_the_limit_is_flagged_and_one_below_is_not);
    tcase_add_test(blocks, a_flag_stays_in_a_device_and_15_of_them_survive_plain_addition);
    tcase_add_test(blocks, a_sum_returns_to_f32_with_one_rounding);
    tcase_add_test(blocks, activations_are_within_half_a_step);
    tcase_add_test(blocks,
                   small_activations_become_zero_and_those_that_are_not_finite_flag_their_group);
    tcase_add_test(blocks, cache_blocks_hold_values_within_half_a_step);
    tcase_add_test(blocks, cache_blocks_of_zeros_are_zeros_and_of_infinities_are_nan);
    tcase_add_test(blocks, type_sizes_are_those_of_the_table);
    tcase_add_test(blocks, blocks_of_256_hold_the_values_that_ggml_reads);
    tcase_add_test(blocks, a_block_product_is_that_of_the_values_it_holds);
    tcase_add_test(blocks, the_largest_integer_sums_are_exact);
    tcase_set_timeout(products, 60);
    tcase_add_loop_test(products, every_variant_of_matmul_equals_the_plain_loop, 0,
                        (int)COUNT(cases));
    tcase_add_test(products, float_weights_may_have_any_number_of_columns);
    tcase_add_test(products, rows_longer_than_one_pass_give_the_same_sums);
    tcase_add_test(products, devices_that_each_take_some_groups_sum_to_the_same_integers);
    suite_add_tcase(suite, functions_case);
    suite_add_tcase(suite, blocks);
    suite_add_tcase(suite, products);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(arith_suite());

    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
