/* One block of a synthetic tensor, for C11 and CUDA: the same bytes from both.
 *
 * A float tensor is made of units of four values, a quantised one of units of one block.
 * Unit u has the random words Philox(counter = {u, u >> 32, call, 0}, key of the tensor) for
 * call = 0, 1, ... Blocks are made with integers alone; a float value is one fmaf of an odd
 * integer below 2^24, which is exact in fp32, and so has one rounding.
 *
 * Layouts: ggml/src/ggml-common.h of llama.cpp. */
#ifndef REF_SYNTH_BLOCK_H
#define REF_SYNTH_BLOCK_H

#include <math.h>
#include <stdint.h>

#include "ref/arith.h"
#include "ref/philox.h"
#include "sim/tensor_type.h"

#define SYNTH_FN ARITH_FN

#define SYNTH_FLOATS_UNIT 4 /* values in a unit of a float type */

/* Root mean square of a block's values at d = 1:
 *
 *   Q8_0   q uniform in -127..127, 0 twice
 *   Q4_0   q uniform in -8..7, d of either sign
 *   Q4_K   q uniform in 0..15, sub-scale 15..62, a min 7.5 sub-scales, or 7.5 off that
 *   Q5_K   q uniform in 0..31, sub-scale 15..62, a min 15.5 sub-scales, or 15.5 off that
 *   Q6_K   q uniform in -32..31, sub-scale 16..47 of either sign */
#define SYNTH_RMS_Q8_0 73.47
#define SYNTH_RMS_Q4_0 4.637
#define SYNTH_RMS_Q4_K 188.4
#define SYNTH_RMS_Q5_K 377.4
#define SYNTH_RMS_Q6_K 606.6

/* What the bytes of a tensor are made from; synth_init() fills it. */
struct synth {
    uint32_t key[2];
    enum tensor_type type;
    float centre, amplitude; /* float types: uniform in centre +- amplitude */
    uint32_t scale;          /* quantised types: the smallest d, as the bits of an f16, */
    uint32_t scale_spread;   /* and below how many steps of it a block may be higher */
};

SYNTH_FN void synth_words(const struct synth *synth, uint64_t unit, uint32_t call,
                          uint32_t words[PHILOX_WORDS])
{
    words[0] = (uint32_t)unit;
    words[1] = (uint32_t)(unit >> 32);
    words[2] = call;
    words[3] = 0;
    philox(words, synth->key[0], synth->key[1]);
}

/** The four values of a unit of a float type. */
SYNTH_FN void synth_floats(const struct synth *synth, uint64_t unit,
                           float values[SYNTH_FLOATS_UNIT])
{
    uint32_t words[PHILOX_WORDS];
    /* amplitude x 2^-24, exact: amplitudes lie far above the subnormal range */
    float step = synth->amplitude * (1.0f / 16777216.0f);

    synth_words(synth, unit, 0, words);
    for (int i = 0; i < SYNTH_FLOATS_UNIT; i++) {
        int32_t odd = (int32_t)((words[i] >> 8) * 2 + 1) - 16777216;

        values[i] = fmaf((float)odd, step, synth->centre);
    }
}

SYNTH_FN void synth_put_u16(uint8_t *out, uint32_t bits)
{
    out[0] = (uint8_t)bits;
    out[1] = (uint8_t)(bits >> 8);
}

/* `calls` calls from `first` on, as 16 random bytes each. */
SYNTH_FN void synth_put_words(const struct synth *synth, uint64_t block, uint32_t first,
                              uint32_t calls, uint8_t *out)
{
    for (uint32_t call = first; call < first + calls; call++) {
        uint32_t words[PHILOX_WORDS];

        synth_words(synth, block, call, words);
        for (int i = 0; i < PHILOX_WORDS; i++, out += 4) {
            synth_put_u16(out, words[i]);
            synth_put_u16(out + 2, words[i] >> 16);
        }
    }
}

/* The bits of d for a block, from eight random bits. */
SYNTH_FN uint32_t synth_scale(const struct synth *synth, uint32_t random)
{
    return synth->scale + (((random & 0xff) * synth->scale_spread) >> 8);
}

/* The bits of half of `factor` x d, d finite and not negative, cut off to an f16. */
SYNTH_FN uint32_t synth_scale_halves(uint32_t bits, uint32_t factor)
{
    uint32_t exponent = bits >> 10 ? bits >> 10 : 1;
    uint32_t mantissa = (bits >> 10 ? bits & 0x3ff : bits) + (bits >> 10 ? 1024 : 0);

    mantissa *= factor;
    mantissa >>= 1;
    while (mantissa >= 2048) {
        mantissa >>= 1;
        exponent++;
    }
    return ((exponent - 1) << 10) + mantissa; /* the leading one carries into the exponent */
}

/* d | q: 32 x int8. -128 is left out, as ggml never makes it. */
SYNTH_FN void synth_block_q8_0(const struct synth *synth, uint64_t block, uint8_t *out)
{
    uint32_t words[PHILOX_WORDS];

    synth_words(synth, block, 0, words);
    synth_put_u16(out, synth_scale(synth, words[0]));
    synth_put_words(synth, block, 1, 2, out + 2);
    for (int i = 2; i < 34; i++)
        if (out[i] == 0x80)
            out[i] = 0;
}

/* d | q: 32 x 4 bits, 8 above the value. The sign of d makes the mean 0, not -d/2. */
SYNTH_FN void synth_block_q4_0(const struct synth *synth, uint64_t block, uint8_t *out)
{
    uint32_t words[PHILOX_WORDS];

    synth_words(synth, block, 0, words);
    synth_put_u16(out, synth_scale(synth, words[0]) | (words[1] >> 31) << 15);
    synth_put_words(synth, block, 1, 1, out + 2);
}

/* d | dmin | 8 scales and 8 mins of 6 bits. A min is its scale, one more or one less:
 * with dmin = (middle q) x d the values' mean is 0 over a tensor, not in a block. */
SYNTH_FN void synth_put_k_scales(const struct synth *synth, uint64_t block, uint32_t middle_halves,
                                 uint8_t *out)
{
    uint32_t words[PHILOX_WORDS], d;

    synth_words(synth, block, 0, words);
    d = synth_scale(synth, words[3]);
    synth_put_u16(out, d);
    synth_put_u16(out + 2, synth_scale_halves(d, middle_halves));
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t low_random = words[2] >> 2 * i & 3, high_random = words[2] >> (8 + 2 * i) & 3;
        uint32_t low = 15 + ((words[0] >> 8 * i & 0xff) * 48 >> 8);
        uint32_t high = 15 + ((words[1] >> 8 * i & 0xff) * 48 >> 8);
        uint32_t low_min = low + (low_random == 3) - (low_random == 0);
        uint32_t high_min = high + (high_random == 3) - (high_random == 0);

        out[4 + i] = (uint8_t)(low | high >> 4 << 6);
        out[8 + i] = (uint8_t)(low_min | high_min >> 4 << 6);
        out[12 + i] = (uint8_t)((high & 15) | (high_min & 15) << 4);
    }
}

/* scales as above | q: 256 x 4 bits */
SYNTH_FN void synth_block_q4_k(const struct synth *synth, uint64_t block, uint8_t *out)
{
    synth_put_k_scales(synth, block, 15, out);
    synth_put_words(synth, block, 1, 8, out + 16);
}

/* scales as above | fifth bits of q: 256 x 1 bit | q: 256 x 4 bits */
SYNTH_FN void synth_block_q5_k(const struct synth *synth, uint64_t block, uint8_t *out)
{
    synth_put_k_scales(synth, block, 31, out);
    synth_put_words(synth, block, 1, 10, out + 16);
}

/* q: 256 x 4 bits | upper bits of q: 256 x 2 bits | scales: 16 x int8 | d. The signs of
 * the scales make the mean 0, not -1/2. */
SYNTH_FN void synth_block_q6_k(const struct synth *synth, uint64_t block, uint8_t *out)
{
    uint32_t words[PHILOX_WORDS];

    synth_put_words(synth, block, 1, 13, out);
    for (int i = 192; i < 208; i++) {
        uint32_t size = 16 + (out[i] & 31u);

        out[i] = (uint8_t)(out[i] & 0x80 ? 0u - size : size);
    }
    synth_words(synth, block, 0, words);
    synth_put_u16(out + 208, synth_scale(synth, words[0]));
}

/** The bytes of block `block` of a quantised tensor, counted over all of its rows. */
SYNTH_FN void synth_block(const struct synth *synth, uint64_t block, uint8_t *out)
{
    switch (synth->type) {
    case TENSOR_TYPE_Q8_0:
        synth_block_q8_0(synth, block, out);
        break;
    case TENSOR_TYPE_Q4_0:
        synth_block_q4_0(synth, block, out);
        break;
    case TENSOR_TYPE_Q4_K:
        synth_block_q4_k(synth, block, out);
        break;
    case TENSOR_TYPE_Q5_K:
        synth_block_q5_k(synth, block, out);
        break;
    case TENSOR_TYPE_Q6_K:
        synth_block_q6_k(synth, block, out);
        break;
    default:
        break; /* synth_init() has refused it */
    }
}

#endif
