/* The arithmetic that the CPU reference and the CUDA kernels share, bit for bit: one header for
 * C11 and CUDA C++. The rules, their error bounds and why a split cannot change a result are in
 * docs/arithmetic.md.
 *
 * The code uses only operations that IEEE 754 rounds exactly: + - * /, fmaf, fma, sqrtf, rintf
 * and conversions, in the order written. Compile with -ffp-contract=off or --fmad=false, in
 * the default rounding mode, with subnormal numbers. Where a result is NaN it is ARITH_NAN_BITS,
 * unless a comment says that the NaN only travels to arith_to_fixed(). */
#ifndef REF_ARITH_H
#define REF_ARITH_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sim/tensor_type.h"

#ifdef __CUDACC__
#define ARITH_FN static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define ARITH_FN static inline __attribute__((unused))
#else
#define ARITH_FN static inline
#endif

#define ARITH_NAN_BITS UINT32_C(0x7fc00000) /* the only NaN that leaves an operation */
#define ARITH_BLOCK 32                      /* values that share one activation scale */
#define ARITH_LANES 256                     /* partial sums of arith_sum_squares() */

/* ---- bits ---- */

ARITH_FN uint32_t arith_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

ARITH_FN float arith_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

ARITH_FN uint64_t arith_double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

ARITH_FN double arith_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

ARITH_FN float arith_nan(void)
{
    return arith_float(ARITH_NAN_BITS);
}

/** The value itself, every NaN as the canonical one. */
ARITH_FN float arith_canonical(float value)
{
    return value != value ? arith_nan() : value;
}

ARITH_FN float arith_abs(float value)
{
    return arith_float(arith_bits(value) & UINT32_C(0x7fffffff));
}

ARITH_FN float arith_with_sign_of(float magnitude, float sign)
{
    return arith_float((arith_bits(magnitude) & UINT32_C(0x7fffffff)) |
                       (arith_bits(sign) & UINT32_C(0x80000000)));
}

/** value x 2^exponent with one rounding, for -252 <= exponent <= 254 when the product with
 * 2^(exponent / 2) is a normal number. */
ARITH_FN float arith_scale(float value, int32_t exponent)
{
    int32_t half = exponent >> 1;
    float first = arith_float((uint32_t)(half + 127) << 23);
    float second = arith_float((uint32_t)(exponent - half + 127) << 23);

    return value * first * second;
}

/* ---- 16-bit numbers: integer code, round half to even ---- */

ARITH_FN float arith_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & UINT32_C(0x7fff);

    if (magnitude >= 0x7c00)
        return arith_float(magnitude > 0x7c00 ? ARITH_NAN_BITS : sign | UINT32_C(0x7f800000));
    if (magnitude >= 0x0400)
        return arith_float(sign | ((magnitude << 13) + UINT32_C(0x38000000)));
    return arith_float(sign | arith_bits((float)magnitude * 0x1p-24f)); /* exact */
}

ARITH_FN uint16_t arith_f16_from_f32(float value)
{
    uint32_t sign = arith_bits(value) >> 16 & 0x8000;
    uint32_t magnitude = arith_bits(value) & UINT32_C(0x7fffffff);
    uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - UINT32_C(0x38000000)) >> 13;
    /* From 0.5 on fp32 has the steps of the least f16, 2^-24. */
    uint32_t small = arith_bits(arith_float(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    uint32_t half = magnitude < UINT32_C(0x38800000) ? small : normal; /* 2^-14 */

    /* 65520: half way to 2^16, which f16 lacks */
    half = sign | (magnitude >= UINT32_C(0x477ff000) ? UINT32_C(0x7c00) : half);
    return (uint16_t)(magnitude > UINT32_C(0x7f800000) ? UINT32_C(0x7e00) : half);
}

ARITH_FN float arith_f32_from_bf16(uint16_t half)
{
    return arith_canonical(arith_float((uint32_t)half << 16));
}

ARITH_FN uint16_t arith_bf16_from_f32(float value)
{
    uint32_t bits = arith_bits(value);

    if (value != value)
        return (uint16_t)(ARITH_NAN_BITS >> 16);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- functions of one f32 ---- */

/* e^x = p 2^n with p between 0.7 and 1.42, for |x| < 2^20. The polynomial is minimax for the
 * relative error on |r| <= ln(2) / 2: 2^-28.3. */
ARITH_FN float arith_exp_parts(float x, int32_t *n)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, held in the low bits */
    float shifted = fmaf(x, 0x1.715476p+0f, magic);
    float whole = shifted - magic;
    float r = fmaf(whole, -0x1.62e430p-1f, x);
    float p = 0x1.6a2352p-10f;

    r = fmaf(whole, 0x1.05c610p-29f, r);
    p = fmaf(p, r, 0x1.123a6cp-7f);
    p = fmaf(p, r, 0x1.5558f4p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    *n = (int32_t)(arith_bits(shifted) - arith_bits(magic));
    return p;
}

/** e^x. */
ARITH_FN float arith_exp(float x)
{
    float clamped = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x; /* infinite; zero */
    int32_t n;
    float p = arith_exp_parts(x != x ? 0.0f : clamped, &n);

    return x != x ? arith_nan() : arith_scale(p, n);
}

/** The natural logarithm; -infinity of 0, NaN below 0. */
ARITH_FN float arith_log(float x)
{
    bool subnormal = x < 0x1p-126f;
    uint32_t bits = arith_bits(subnormal ? x * 0x1p23f : x);
    uint32_t offset = bits - UINT32_C(0x3f2aaaab);                   /* 2/3 */
    int32_t exponent = (int32_t)(offset >> 23 ^ 256) - 256;          /* sign extended from 9 bits */
    float f = arith_float(bits - ((uint32_t)exponent << 23)) - 1.0f; /* -1/3 .. 1/3, exact */
    float p = -0x1.04cba2p-3f; /* log(1 + f) - f + f^2 / 2 over f^3, minimax */

    p = fmaf(p, f, 0x1.20822cp-3f);
    p = fmaf(p, f, -0x1.f4ded6p-4f);
    p = fmaf(p, f, 0x1.1e848ep-3f);
    p = fmaf(p, f, -0x1.5589b4p-3f);
    p = fmaf(p, f, 0x1.99d28ep-3f);
    p = fmaf(p, f, -0x1.ffff78p-3f);
    p = fmaf(p, f, 0x1.55550cp-2f);
    p = fmaf(p, f, -0.5f);
    p = fmaf(p, f * f, f);
    p = fmaf((float)(subnormal ? exponent - 23 : exponent), 0x1.62e430p-1f, p);

    if (x == 0.0f)
        return arith_float(UINT32_C(0xff800000));
    if (!(x > 0.0f))
        return arith_nan();
    return arith_bits(x) == UINT32_C(0x7f800000) ? x : p;
}

/** log(1 + x) for 0 <= x <= 1. */
ARITH_FN float arith_log1p(float x)
{
    float sum = 1.0f + x;

    return arith_log(sum) + (x - (sum - 1.0f)) / sum;
}

/** tanh(x): a polynomial below 5/8, 1 - 2 / (e^2x + 1) from there. */
ARITH_FN float arith_tanh(float x)
{
    float magnitude = arith_abs(x), square = x * x;
    float p = -0x1.75e1d0p-8f; /* tanh(x) / x - 1 over x^2, minimax */

    if (x != x)
        return arith_nan();
    if (!(magnitude < 0.625f))
        return arith_with_sign_of(1.0f - 2.0f / (arith_exp(2.0f * magnitude) + 1.0f), x);
    p = fmaf(p, square, 0x1.52269cp-6f);
    p = fmaf(p, square, -0x1.b83c5ap-5f);
    p = fmaf(p, square, 0x1.110726p-3f);
    p = fmaf(p, square, -0x1.555532p-2f);
    return fmaf(p * square, x, x);
}

/** 1 / sqrt(x), both rounded; infinity of 0, NaN below 0. */
ARITH_FN float arith_rsqrt(float x)
{
    return arith_canonical(1.0f / sqrtf(x));
}

/** factor x sigmoid(x), where the power of two comes last: a result that is subnormal is rounded
 * once. Below x = -150 it is 0 with the sign of the factor; for negative x from there on, the
 * factor must be below 2^126 in magnitude. */
ARITH_FN float arith_times_sigmoid(float factor, float x)
{
    float magnitude = arith_abs(x);
    int32_t n;
    float p = arith_exp_parts(magnitude < 150.0f ? -magnitude : -150.0f, &n);
    float quotient = (x > 0.0f ? factor : factor * p) / (1.0f + arith_scale(p, n));
    float result = x > 0.0f ? quotient : arith_scale(quotient, n);

    /* Chosen last, for loops over many values: no branch stays. */
    result = x < -150.0f ? arith_with_sign_of(0.0f, factor) : result;
    return x != x || factor != factor ? arith_nan() : result;
}

/** 1 / (1 + e^-x). */
ARITH_FN float arith_sigmoid(float x)
{
    return arith_times_sigmoid(1.0f, x);
}

/** x / (1 + e^-x). */
ARITH_FN float arith_silu(float x)
{
    return arith_times_sigmoid(x, x);
}

/** x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), computed as x times the sigmoid of twice
 * the argument of tanh. */
ARITH_FN float arith_gelu_tanh(float x)
{
    float inner = fmaf(0.044715f * x * x, x, x);

    return arith_times_sigmoid(x, 0x1.988454p+0f * inner); /* 2 sqrt(2 / pi) */
}

/** log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). */
ARITH_FN float arith_softplus(float x)
{
    float tail = arith_log1p(arith_exp(-arith_abs(x)));

    return arith_canonical(x > 0.0f ? x + tail : tail);
}

/* ---- rotary: angles and frequencies in double ---- */

/**
 * Sine and cosine of an angle in radians, rounded to f32.
 *
 * The angle minus n pi/2 is exact in the first step (n below 2^31, the difference below 1), so
 * what is lost is the tail of pi/2 after 106 bits. Then Taylor series up to r^13 and r^14.
 *
 * @param angle at most 2^30 in magnitude; beyond that and for NaN both results are NaN
 */
ARITH_FN void arith_sincos(double angle, float *sine, float *cosine)
{
    double turns = rint(angle * 0x1.45f306dc9c883p-1);
    double r = fma(-turns, 0x1.921fb54442d18p+0, angle);

    if (!(angle >= -0x1p30 && angle <= 0x1p30)) {
        *sine = *cosine = arith_nan();
        return;
    }
    r = fma(-turns, 0x1.1a62633145c07p-54, r);

    double z = r * r, s = 1.0 / 6227020800.0, c = -1.0 / 87178291200.0;

    s = fma(s, z, -1.0 / 39916800.0);
    s = fma(s, z, 1.0 / 362880.0);
    s = fma(s, z, -1.0 / 5040.0);
    s = fma(s, z, 1.0 / 120.0);
    s = fma(s, z, -1.0 / 6.0);
    s = fma(s * z, r, r);
    c = fma(c, z, 1.0 / 479001600.0);
    c = fma(c, z, -1.0 / 3628800.0);
    c = fma(c, z, 1.0 / 40320.0);
    c = fma(c, z, -1.0 / 720.0);
    c = fma(c, z, 1.0 / 24.0);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);

    int64_t quadrant = (int64_t)turns & 3;
    double from_sine = quadrant & 1 ? c : s, from_cosine = quadrant & 1 ? s : c;

    *sine = (float)(quadrant & 2 ? -from_sine : from_sine);
    *cosine = (float)(quadrant == 1 || quadrant == 2 ? -from_cosine : from_cosine);
}

/* log(x) as high + low, for a positive normal x: 2 atanh(f / (2 + f)) of x = 2^e (1 + f). */
ARITH_FN double arith_log_double_parts(double x, double *low)
{
    uint64_t bits = arith_double_bits(x);
    uint64_t offset = bits - UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
    double exponent = (double)((int64_t)(offset >> 52 ^ 2048) - 2048);
    double f = arith_double(bits - (offset & UINT64_C(0xfff0000000000000))) - 1.0; /* exact */
    double below = 2.0 + f, below_low = f - (below - 2.0);
    double s = f / below, s_low = (fma(-s, below, f) - s * below_low) / below;
    double z = s * s, p = 2.0 / 25.0;

    p = fma(p, z, 2.0 / 23.0);
    p = fma(p, z, 2.0 / 21.0);
    p = fma(p, z, 2.0 / 19.0);
    p = fma(p, z, 2.0 / 17.0);
    p = fma(p, z, 2.0 / 15.0);
    p = fma(p, z, 2.0 / 13.0);
    p = fma(p, z, 2.0 / 11.0);
    p = fma(p, z, 2.0 / 9.0);
    p = fma(p, z, 2.0 / 7.0);
    p = fma(p, z, 2.0 / 5.0);
    p = fma(p, z, 2.0 / 3.0);

    double a = exponent * 0x1.62e42feep-1, b = 2.0 * s; /* 32 bits of log(2): a is exact */
    double sum = a + b, b_part = sum - a;
    double lost = (a - (sum - b_part)) + (b - b_part);
    double tail = lost + fma(exponent, 0x1.a39ef35793c76p-33, fma(p * z, s, 2.0 * s_low));
    double high = sum + tail;

    *low = tail - (high - sum);
    return high;
}

/* e^(high + low) for |high| <= 700 and a `low` far smaller. */
ARITH_FN double arith_exp_double_parts(double high, double low)
{
    double n = rint(high * 0x1.71547652b82fep+0);
    double r = fma(n, -0x1.62e42feep-1, high);
    double p = 1.0 / 6227020800.0;

    r = r + fma(n, -0x1.a39ef35793c76p-33, low);
    p = fma(p, r, 1.0 / 479001600.0);
    p = fma(p, r, 1.0 / 39916800.0);
    p = fma(p, r, 1.0 / 3628800.0);
    p = fma(p, r, 1.0 / 362880.0);
    p = fma(p, r, 1.0 / 40320.0);
    p = fma(p, r, 1.0 / 5040.0);
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    return p * arith_double((uint64_t)((int64_t)n + 1023) << 52);
}

/** e^x in double, for |x| <= 700. */
ARITH_FN double arith_exp_double(double x)
{
    return arith_exp_double_parts(x, 0.0);
}

/** log(x) in double, for a positive normal x. */
ARITH_FN double arith_log_double(double x)
{
    double low, high = arith_log_double_parts(x, &low);

    return high + low;
}

/** base^exponent in double, for a positive normal base and |exponent log(base)| <= 700. */
ARITH_FN double arith_pow_double(double base, double exponent)
{
    double low, high = arith_log_double_parts(base, &low);
    double product = high * exponent;

    return arith_exp_double_parts(product, fma(low, exponent, fma(high, exponent, -product)));
}

/* ---- fixed point: sums whose order does not matter ---- */

#define ARITH_FIXED_SHIFT 30
#define ARITH_FLAG (INT64_C(1) << 60) /* a group's partial sum was not finite or too large */
#define ARITH_FLAGS_MAX 15            /* flags that plain additions may meet in one sum */

/** The bound of a group's partial sum: the largest f32 that is at most 2^29 / groups_total.
 *
 * @param groups_total of one output, over all parts and segments; 1 to 2^34 */
ARITH_FN float arith_limit(uint64_t groups_total)
{
    float limit = (float)(0x1p29 / (double)groups_total);

    if (fma((double)limit, (double)groups_total, -0x1p29) > 0.0)
        limit = arith_float(arith_bits(limit) - 1);
    return limit;
}

/** partial x 2^30 rounded half to even, or ARITH_FLAG unless |partial| < limit. */
ARITH_FN int64_t arith_to_fixed(float partial, float limit)
{
    if (!(arith_abs(partial) < limit))
        return ARITH_FLAG;
    return (int64_t)rintf(partial * 0x1p30f); /* the product is exact: a power of two */
}

/** True for a sum in which 1 to ARITH_FLAGS_MAX terms are ARITH_FLAG, the others' sum being
 * less than 2^59 in magnitude. */
ARITH_FN bool arith_fixed_is_flagged(int64_t sum)
{
    return (((uint64_t)sum + (UINT64_C(1) << 59)) >> 60 & 15) != 0;
}

/** a + b within a device: ARITH_FLAG itself when either is flagged, however often. */
ARITH_FN int64_t arith_fixed_add(int64_t a, int64_t b)
{
    if (arith_fixed_is_flagged(a) || arith_fixed_is_flagged(b))
        return ARITH_FLAG;
    return a + b;
}

/** sum / 2^30 with one rounding; NaN for a flagged sum. */
ARITH_FN float arith_from_fixed(int64_t sum)
{
    return arith_fixed_is_flagged(sum) ? arith_nan() : (float)sum * 0x1p-30f;
}

/* ---- activations in int8 ---- */

#define ARITH_SCALE_MIN 0x1p-70f     /* smaller scales of an activation block become 0 */
#define ARITH_ACTIVATION_MAX 0x1p60f /* an activation from here on counts as not finite */

/** The largest magnitude of 32 values; NaN when one of them is NaN. */
ARITH_FN float arith_block_magnitude(const float *x)
{
    uint32_t largest = 0; /* magnitudes order as their bits do, NaN above all */

    for (int i = 0; i < ARITH_BLOCK; i++) {
        uint32_t bits = arith_bits(x[i]) & UINT32_C(0x7fffffff);

        largest = bits > largest ? bits : largest;
    }
    return arith_float(largest);
}

/** Rounds half to even; the result lies within -127 and 127. |value| <= 2^21. */
ARITH_FN int8_t arith_round_to_int8(float value)
{
    float rounded = (value + 0x1.8p23f) - 0x1.8p23f;

    rounded = rounded > 127.0f ? 127.0f : rounded < -127.0f ? -127.0f : rounded;
    return (int8_t)rounded;
}

/**
 * Quantises 32 activations: q = x (127 / largest) rounded half to even, scale = largest / 127.
 *
 * A scale under ARITH_SCALE_MIN becomes 0 and so does every q, so that products of scales are
 * normal numbers, times 2^30 or not. A block with a value that is not finite, or not below
 * ARITH_ACTIVATION_MAX, gets a NaN scale and zeros, so that every group it takes part in is
 * flagged.
 *
 * @param q   (32)
 * @param sum of the 32 q
 */
ARITH_FN void arith_quantise_block(const float *x, int8_t *q, float *scale, int32_t *sum)
{
    float largest = arith_block_magnitude(x);
    bool finite = largest < ARITH_ACTIVATION_MAX;
    float ratio = largest / 127.0f;
    bool some = finite && ratio >= ARITH_SCALE_MIN;
    float inverse = some ? 127.0f / largest : 0.0f;
    int32_t total = 0;

    for (int i = 0; i < ARITH_BLOCK; i++) {
        q[i] = some ? arith_round_to_int8(x[i] * inverse) : (int8_t)0;
        total += q[i];
    }
    *scale = !finite ? arith_nan() : some ? ratio : 0.0f;
    *sum = total;
}

/* ---- blocks of weights and caches ----
 * Layouts: ggml/src/ggml-common.h of llama.cpp (August 2026). Blocks lie back to back, so they are
 * aligned to 2 bytes, Q6_K's to 2 as well. */

struct arith_q8_0 {
    uint16_t d; /* f16 */
    int8_t qs[32];
};

struct arith_q4_0 {
    uint16_t d;
    uint8_t qs[16]; /* low halves: values 0 to 15; high: 16 to 31; each plus 8 */
};

struct arith_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12]; /* 8 scales and 8 minima of 6 bits: arith_k_scale_min() */
    uint8_t qs[128];    /* of each 32 bytes, low halves: one sub-block; high: the next */
};

struct arith_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32]; /* bit j of byte i: fifth bit of value i of sub-block j */
    uint8_t qs[128];
};

struct arith_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16]; /* of 16 values each */
    uint16_t d;
};

static_assert(sizeof(struct arith_q8_0) == 34, "ggml's block_q8_0");
static_assert(sizeof(struct arith_q4_0) == 18, "ggml's block_q4_0");
static_assert(sizeof(struct arith_q4_k) == 144, "ggml's block_q4_K");
static_assert(sizeof(struct arith_q5_k) == 176, "ggml's block_q5_K");
static_assert(sizeof(struct arith_q6_k) == 210, "ggml's block_q6_K");

/* Integer sums of a block stay exact in fp32: below 2^24. A Q4_K, Q5_K or Q6_K sub-scale is at
 * most 63, 63, 128 in magnitude, a value 15, 31, 32, an activation 127. */
static_assert(63 * 31 * 127 * 32 < 1 << 24, "Q5_K, and so Q4_K");
static_assert(128 * 32 * 127 * 32 < 1 << 24, "Q6_K");

/* 32 values of a quantised type: weight i is d scale[i / 16] values[i] - dmin min. */
struct arith_block {
    int8_t values[ARITH_BLOCK];
    int32_t scale[2]; /* of 16 values each */
    int32_t min;
    float d, dmin;
};

/** True for the types that arith_decode_block() and the products below know: Q8_0, Q4_0, Q4_K,
 * Q5_K, Q6_K. */
ARITH_FN bool arith_type_is_quantised(enum tensor_type type)
{
    return type == TENSOR_TYPE_Q8_0 || type == TENSOR_TYPE_Q4_0 || type == TENSOR_TYPE_Q4_K ||
           type == TENSOR_TYPE_Q5_K || type == TENSOR_TYPE_Q6_K;
}

/** True for F32, F16 and BF16. */
ARITH_FN bool arith_type_is_float(enum tensor_type type)
{
    return type == TENSOR_TYPE_F32 || type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16;
}

/** Columns and bytes of one block of a type above. */
ARITH_FN uint32_t arith_type_columns(enum tensor_type type)
{
    return arith_type_is_float(type)                              ? 1
           : type == TENSOR_TYPE_Q8_0 || type == TENSOR_TYPE_Q4_0 ? 32
                                                                  : 256;
}

ARITH_FN uint32_t arith_type_bytes(enum tensor_type type)
{
    return type == TENSOR_TYPE_F32                               ? 4
           : type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16 ? 2
           : type == TENSOR_TYPE_Q8_0                            ? 34
           : type == TENSOR_TYPE_Q4_0                            ? 18
           : type == TENSOR_TYPE_Q4_K                            ? 144
           : type == TENSOR_TYPE_Q5_K                            ? 176
                                                                 : 210;
}

/** Scale and minimum of sub-block j (0 to 7) of Q4_K and Q5_K. */
ARITH_FN void arith_k_scale_min(const uint8_t *scales, uint32_t j, int32_t *scale, int32_t *min)
{
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (scales[j + 4] & 15) | scales[j - 4] >> 6 << 4;
        *min = scales[j + 4] >> 4 | scales[j] >> 6 << 4;
    }
}

ARITH_FN void arith_decode_q8_0(const struct arith_q8_0 *block, struct arith_block *out)
{
    memcpy(out->values, block->qs, sizeof(block->qs));
    out->scale[0] = out->scale[1] = 1;
    out->min = 0;
    out->d = arith_f32_from_f16(block->d);
    out->dmin = 0.0f;
}

ARITH_FN void arith_decode_q4_0(const struct arith_q4_0 *block, struct arith_block *out)
{
    for (int i = 0; i < 16; i++) {
        out->values[i] = (int8_t)((block->qs[i] & 15) - 8);
        out->values[i + 16] = (int8_t)((block->qs[i] >> 4) - 8);
    }
    out->scale[0] = out->scale[1] = 1;
    out->min = 0;
    out->d = arith_f32_from_f16(block->d);
    out->dmin = 0.0f;
}

ARITH_FN void arith_decode_q4_k(const struct arith_q4_k *block, uint32_t which,
                                struct arith_block *out)
{
    const uint8_t *qs = block->qs + 32 * (which / 2);
    uint32_t shift = 4 * (which & 1);

    for (int i = 0; i < ARITH_BLOCK; i++)
        out->values[i] = (int8_t)(qs[i] >> shift & 15);
    arith_k_scale_min(block->scales, which, &out->scale[0], &out->min);
    out->scale[1] = out->scale[0];
    out->d = arith_f32_from_f16(block->d);
    out->dmin = arith_f32_from_f16(block->dmin);
}

ARITH_FN void arith_decode_q5_k(const struct arith_q5_k *block, uint32_t which,
                                struct arith_block *out)
{
    const uint8_t *qs = block->qs + 32 * (which / 2);
    uint32_t shift = 4 * (which & 1);

    for (int i = 0; i < ARITH_BLOCK; i++)
        out->values[i] = (int8_t)((qs[i] >> shift & 15) | (block->qh[i] >> which & 1) << 4);
    arith_k_scale_min(block->scales, which, &out->scale[0], &out->min);
    out->scale[1] = out->scale[0];
    out->d = arith_f32_from_f16(block->d);
    out->dmin = arith_f32_from_f16(block->dmin);
}

ARITH_FN void arith_decode_q6_k(const struct arith_q6_k *block, uint32_t which,
                                struct arith_block *out)
{
    const uint8_t *ql = block->ql + 64 * (which / 4) + 32 * (which & 1);
    const uint8_t *qh = block->qh + 32 * (which / 4);
    uint32_t low_shift = which & 2 ? 4 : 0, high_shift = 2 * (which & 3);

    for (int i = 0; i < ARITH_BLOCK; i++)
        out->values[i] =
            (int8_t)(((ql[i] >> low_shift & 15) | (qh[i] >> high_shift & 3) << 4) - 32);
    out->scale[0] = block->scales[2 * which];
    out->scale[1] = block->scales[2 * which + 1];
    out->min = 0;
    out->d = arith_f32_from_f16(block->d);
    out->dmin = 0.0f;
}

/** Unpacks 32 values of a quantised block.
 *
 * @param block the whole block of the type
 * @param which of its 32s: 0, or 0 to 7 for the K types */
ARITH_FN void arith_decode_block(enum tensor_type type, const void *block, uint32_t which,
                                 struct arith_block *out)
{
    if (type == TENSOR_TYPE_Q8_0)
        arith_decode_q8_0((const struct arith_q8_0 *)block, out);
    else if (type == TENSOR_TYPE_Q4_0)
        arith_decode_q4_0((const struct arith_q4_0 *)block, out);
    else if (type == TENSOR_TYPE_Q4_K)
        arith_decode_q4_k((const struct arith_q4_k *)block, which, out);
    else if (type == TENSOR_TYPE_Q5_K)
        arith_decode_q5_k((const struct arith_q5_k *)block, which, out);
    else
        arith_decode_q6_k((const struct arith_q6_k *)block, which, out);
}

/** True where a block has a minimum to subtract: Q4_K, Q5_K. */
ARITH_FN bool arith_type_has_min(enum tensor_type type)
{
    return type == TENSOR_TYPE_Q4_K || type == TENSOR_TYPE_Q5_K;
}

/** Element `index` of F32, F16 or BF16 data as f32, exactly. */
ARITH_FN float arith_load(enum tensor_type type, const void *data, uint64_t index)
{
    if (type == TENSOR_TYPE_F32)
        return ((const float *)data)[index];
    if (type == TENSOR_TYPE_F16)
        return arith_f32_from_f16(((const uint16_t *)data)[index]);
    return arith_f32_from_bf16(((const uint16_t *)data)[index]);
}

/** Values of 32 weights: d scale q - dmin min, where every product but Q6_K's last is exact and
 * the result is rounded once. Float types: `block` is the first value, `which` counts 32s. */
ARITH_FN void arith_dequantise_block(enum tensor_type type, const void *block, uint32_t which,
                                     float *y)
{
    struct arith_block decoded;

    if (arith_type_is_float(type)) {
        for (uint32_t i = 0; i < ARITH_BLOCK; i++)
            y[i] = arith_canonical(arith_load(type, block, which * ARITH_BLOCK + i));
        return;
    }
    arith_decode_block(type, block, which, &decoded);
    for (int half = 0; half < 2; half++) {
        const int8_t *values = decoded.values + 16 * half;
        const float scale = decoded.d * (float)decoded.scale[half];
        const float least = arith_type_has_min(type) ? decoded.dmin * (float)decoded.min : 0.0f;

        /* Without a minimum nothing is subtracted, so that a -0 stays. */
        for (int i = 0; i < 16; i++) {
            float product = scale * (float)values[i];

            y[16 * half + i] =
                arith_canonical(arith_type_has_min(type) ? product - least : product);
        }
    }
}

/** Sum of 16 products, exact. */
ARITH_FN int32_t arith_dot_16(const int8_t *a, const int8_t *b)
{
    int32_t sum = 0;

    for (int i = 0; i < 16; i++)
        sum += a[i] * b[i];
    return sum;
}

/**
 * Adds one block's product to a group's partial sum: isum is the integer sum of scale x value x q.
 *
 *   acc = fmaf(isum, d x scale, acc), then Q4_K, Q5_K: acc = fmaf(min x sum, -(dmin x scale), acc)
 *
 * A NaN in the result has any bits; arith_to_fixed() makes it a flag.
 *
 * @param q, scale, sum of the 32 activations: arith_quantise_block()
 */
ARITH_FN float arith_decoded_fma(enum tensor_type type, const struct arith_block *block,
                                 const int8_t *q, float scale, int32_t sum, float acc)
{
    int32_t isum = block->scale[0] * arith_dot_16(block->values, q) +
                   block->scale[1] * arith_dot_16(block->values + 16, q + 16);

    acc = fmaf((float)isum, block->d * scale, acc);
    if (arith_type_has_min(type))
        acc = fmaf((float)(block->min * sum), -(block->dmin * scale), acc);
    return acc;
}

/** arith_decoded_fma() of 32 values of a packed block: `which` as in arith_decode_block(). */
ARITH_FN float arith_block_fma(enum tensor_type type, const void *block, uint32_t which,
                               const int8_t *q, float scale, int32_t sum, float acc)
{
    struct arith_block decoded;

    arith_decode_block(type, block, which, &decoded);
    return arith_decoded_fma(type, &decoded, q, scale, sum, acc);
}

/** acc = fmaf(w[i], x[i], acc) in index order: the partial sum of F32, F16 and BF16 weights.
 * A NaN in the result has any bits. */
ARITH_FN float arith_float_fma(enum tensor_type type, const void *w, const float *x, uint64_t n,
                               float acc)
{
    for (uint64_t i = 0; i < n; i++)
        acc = fmaf(arith_load(type, w, i), x[i], acc);
    return acc;
}

/* ---- choosing ---- */

/** Whether a value is chosen before `best`, which has a lower index: the larger one, and none
 * before a NaN. */
ARITH_FN bool arith_is_larger(float value, float best)
{
    return value > best || (best != best && value == value);
}

/** The index of the value that is chosen of n, of which there is one. */
ARITH_FN uint64_t arith_largest(const float *values, uint64_t n)
{
    uint64_t best = 0;

    for (uint64_t i = 1; i < n; i++)
        if (arith_is_larger(values[i], values[best]))
            best = i;
    return best;
}

/* ---- key and value caches ---- */

#define ARITH_F16_NAN UINT16_C(0x7e00)

/* A block whose scale is not finite in f16 holds a NaN scale, which makes its 32 values NaN; one
 * whose scale rounds to 0 in f16 holds zeros. `inverse` is 0 in both cases. */
ARITH_FN uint16_t arith_cache_scale(float scale, float *inverse)
{
    uint16_t half = arith_f16_from_f32(scale);
    uint16_t magnitude = half & 0x7fff;
    bool some = magnitude != 0 && magnitude < 0x7c00;

    *inverse = some ? 1.0f / scale : 0.0f;
    return magnitude >= 0x7c00 ? ARITH_F16_NAN : some ? half : (uint16_t)0;
}

/** As ggml's q8_0: scale = largest / 127, q = x (1 / scale) rounded half to even, where the
 * inverse is of the scale before it is rounded to f16. */
ARITH_FN void arith_cache_q8_0(const float *x, struct arith_q8_0 *block)
{
    float inverse;

    block->d = arith_cache_scale(arith_block_magnitude(x) / 127.0f, &inverse);
    for (int i = 0; i < ARITH_BLOCK; i++)
        block->qs[i] = inverse == 0.0f ? (int8_t)0 : arith_round_to_int8(x[i] * inverse);
}

/** As ggml's q4_0: scale = m / -8 where m is the first value of the largest magnitude, and
 * q = x (1 / scale) + 8.5 cut to an integer of 0 to 15. A zero value is 8. */
ARITH_FN void arith_cache_q4_0(const float *x, struct arith_q4_0 *block)
{
    float largest = arith_block_magnitude(x), inverse, signed_largest = largest;
    uint8_t q[ARITH_BLOCK];

    for (int i = ARITH_BLOCK - 1; i >= 0; i--)
        if (arith_abs(x[i]) == largest)
            signed_largest = x[i];
    block->d = arith_cache_scale(signed_largest / -8.0f, &inverse);
    for (int i = 0; i < ARITH_BLOCK; i++) {
        int32_t whole = inverse == 0.0f ? 8 : (int32_t)(x[i] * inverse + 8.5f);

        q[i] = (uint8_t)(whole < 15 ? whole : 15);
    }
    for (int i = 0; i < 16; i++)
        block->qs[i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

/** Writes 32 values to a cache of type F16, Q8_0 or Q4_0; arith_dequantise_block() reads them.
 *
 * @param block 64, 34 or 18 bytes, aligned to 2 */
ARITH_FN void arith_cache_block(enum tensor_type type, const float *x, void *block)
{
    if (type == TENSOR_TYPE_Q8_0)
        arith_cache_q8_0(x, (struct arith_q8_0 *)block);
    else if (type == TENSOR_TYPE_Q4_0)
        arith_cache_q4_0(x, (struct arith_q4_0 *)block);
    else
        for (int i = 0; i < ARITH_BLOCK; i++)
            ((uint16_t *)block)[i] = arith_f16_from_f32(x[i]);
}

/* ---- sums with a fixed order ---- */

/** Sum of squares: lane l of 256 takes x[l], x[l + 256], ... by fmaf in this order from 0; then
 * lane[l] += lane[l + s] for s = 128, 64, ..., 1. A lane without values is 0. */
ARITH_FN float arith_sum_squares(const float *x, uint64_t n)
{
    float lanes[ARITH_LANES];

    for (int l = 0; l < ARITH_LANES; l++)
        lanes[l] = 0.0f;
    for (uint64_t first = 0; first < n; first += ARITH_LANES) {
        uint64_t count = n - first < ARITH_LANES ? n - first : ARITH_LANES;

        for (uint64_t l = 0; l < count; l++)
            lanes[l] = fmaf(x[first + l], x[first + l], lanes[l]);
    }
    for (int s = ARITH_LANES / 2; s > 0; s /= 2)
        for (int l = 0; l < s; l++)
            lanes[l] += lanes[l + s];
    return arith_canonical(lanes[0]);
}

/** Dot product: lane l of 8 takes products l, l + 8, ... by fmaf in this order from 0; then
 * lane[l] += lane[l + s] for s = 4, 2, 1. */
ARITH_FN float arith_dot8(const float *a, const float *b, uint64_t n)
{
    float lanes[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lanes[l] = fmaf(a[i + (uint64_t)l], b[i + (uint64_t)l], lanes[l]);
    for (int l = 0; i + (uint64_t)l < n; l++)
        lanes[l] = fmaf(a[i + (uint64_t)l], b[i + (uint64_t)l], lanes[l]);
    for (int s = 4; s > 0; s /= 2)
        for (int l = 0; l < s; l++)
            lanes[l] += lanes[l + s];
    return arith_canonical(lanes[0]);
}

#endif
