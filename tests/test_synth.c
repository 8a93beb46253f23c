/* Synthetic tensors: what they depend on, and what their values look like. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ref/synth.h"
#include "sim/tensor_role.h"

static const enum tensor_type types[] = {
    TENSOR_TYPE_F32,  TENSOR_TYPE_F16,  TENSOR_TYPE_BF16, TENSOR_TYPE_Q8_0,
    TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_K, TENSOR_TYPE_Q5_K, TENSOR_TYPE_Q6_K,
};

#define TYPE_COUNT (sizeof types / sizeof *types)

static struct model_tensor describe(const char *name, enum tensor_type type, uint64_t ne0,
                                    uint64_t ne1)
{
    struct model_tensor tensor = {.name = name, .type = type, .ne = {ne0, ne1, 1, 1}};

    tensor.role = tensor_role_of(name, &tensor.layer);
    tensor.bytes = ne1 * tensor_type_row_bytes(type, ne0);
    return tensor;
}

/* The bytes of a tensor, for free(). */
static unsigned char *make(const struct model_tensor *tensor, bool tied, uint64_t seed)
{
    unsigned char *bytes = malloc((size_t)tensor->bytes);
    struct error err = {0};
    struct synth synth;

    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(synth_init(&synth, tensor, tied, seed, &err), 0);
    synth_bytes(&synth, 0, bytes, (size_t)tensor->bytes);
    return bytes;
}

/* ---- values, decoded as ggml/src/ggml-quants.c does, one by one ---- */

static float f16_at(const unsigned char *bytes)
{
    return arith_f32_from_f16((uint16_t)(bytes[0] | bytes[1] << 8));
}

/* Sub-scale and min of 32 values of a K-quant. */
static void k_scale(const unsigned char *packed, int sub, int *scale, int *min)
{
    if (sub < 4) {
        *scale = packed[sub] & 63;
        *min = packed[sub + 4] & 63;
    } else {
        *scale = (packed[sub + 4] & 15) | packed[sub - 4] >> 6 << 4;
        *min = packed[sub + 4] >> 4 | packed[sub] >> 6 << 4;
    }
}

static float k_value(const unsigned char *block, const unsigned char *low,
                     const unsigned char *high, int index)
{
    int sub = index / 32, scale, min;
    int q = low[index / 64 * 32 + index % 32] >> (index / 32 % 2 * 4) & 15;

    if (high)
        q |= (high[index % 32] >> sub & 1) << 4;
    k_scale(block + 4, sub, &scale, &min);
    return f16_at(block) * (float)(scale * q) - f16_at(block + 2) * (float)min;
}

static float q6_value(const unsigned char *block, int index)
{
    int half = index / 128, rest = index % 128;
    int low = block[half * 64 + rest % 64] >> (rest / 64 * 4) & 15;
    int high = block[128 + half * 32 + rest % 32] >> (rest / 32 * 2) & 3;
    int scale = (int8_t)block[192 + index / 16];

    return f16_at(block + 208) * (float)(scale * ((low | high << 4) - 32));
}

static float value_at(enum tensor_type type, const unsigned char *bytes, uint64_t index)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const unsigned char *block = bytes + index / info->block_elements * info->block_bytes;
    int i = (int)(index % info->block_elements);
    float value;

    switch (type) {
    case TENSOR_TYPE_F32:
        memcpy(&value, block, sizeof value);
        return value;
    case TENSOR_TYPE_F16:
        return f16_at(block);
    case TENSOR_TYPE_BF16:
        return arith_f32_from_bf16((uint16_t)(block[0] | block[1] << 8));
    case TENSOR_TYPE_Q8_0:
        return f16_at(block) * (float)(int8_t)block[2 + i];
    case TENSOR_TYPE_Q4_0:
        return f16_at(block) * (float)((block[2 + i % 16] >> (i / 16 * 4) & 15) - 8);
    case TENSOR_TYPE_Q4_K:
        return k_value(block, block + 16, NULL, i);
    case TENSOR_TYPE_Q5_K:
        return k_value(block, block + 48, block + 16, i);
    default:
        return q6_value(block, i);
    }
}

struct statistics {
    double mean, deviation, low, high;
};

static struct statistics measure(const struct model_tensor *tensor, bool tied, uint64_t seed)
{
    unsigned char *bytes = make(tensor, tied, seed);
    uint64_t count = tensor->ne[0] * tensor->ne[1] * tensor->ne[2];
    struct statistics result = {.low = INFINITY, .high = -INFINITY};
    double sum = 0, squares = 0;
    bool finite = true;

    for (uint64_t i = 0; i < count; i++) {
        double value = (double)value_at(tensor->type, bytes, i);

        finite &= isfinite(value) != 0;
        sum += value;
        squares += value * value;
        result.low = value < result.low ? value : result.low;
        result.high = value > result.high ? value : result.high;
    }
    free(bytes);
    ck_assert(finite);
    result.mean = sum / (double)count;
    result.deviation = sqrt(squares / (double)count - result.mean * result.mean);
    return result;
}

/* ---- what bytes depend on ---- */

START_TEST(any_range_of_bytes_is_the_same_as_when_all_are_made)
{
    static const size_t sizes[] = {1, 3, 16, 34, 200, 1000, 4096};
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", types[_i], 512, 7);
    unsigned char *whole = make(&tensor, false, 7), *part = malloc(8192);
    struct error err = {0};
    struct synth synth;

    ck_assert_ptr_nonnull(part);
    ck_assert_int_eq(synth_init(&synth, &tensor, false, 7, &err), 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t offset = 0; offset + sizes[k] <= tensor.bytes; offset += sizes[k] / 2 + 1) {
            memset(part, 0xee, 8192);
            synth_bytes(&synth, offset, part, sizes[k]);
            ck_assert_mem_eq(part, whole + offset, sizes[k]);
            ck_assert_uint_eq(part[sizes[k]], 0xee);
        }
    free(whole);
    free(part);
}
END_TEST

/* A change of these numbers changes every checksum that anybody has written down. */
START_TEST(bytes_stay_what_they_were_in_earlier_versions)
{
    static const uint64_t expected[TYPE_COUNT] = {
        UINT64_C(0x755fbb9aab147915), UINT64_C(0x441f77fdc9d7c5b1), UINT64_C(0xb2a24f71eee880e3),
        UINT64_C(0x23884b264a60fb16), UINT64_C(0x582f18c0f5052280), UINT64_C(0xb9afda618eb79e9c),
        UINT64_C(0x268d660f295d111f), UINT64_C(0x130356832c0d34fe),
    };
    struct model_tensor tensor = describe("blk.3.ffn_down.weight", types[_i], 1024, 4);
    unsigned char *bytes = make(&tensor, false, 42);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint64_t i = 0; i < tensor.bytes; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    free(bytes);
    ck_assert_msg(hash == expected[_i], "%s: 0x%016llx", tensor_type_info(types[_i])->name,
                  (unsigned long long)hash);
}
END_TEST

START_TEST(another_name_or_seed_gives_other_bytes)
{
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", types[_i], 256, 4);
    struct model_tensor other = describe("blk.1.ffn_up.weight", types[_i], 256, 4);
    unsigned char *bytes = make(&tensor, false, 1), *again = make(&tensor, false, 1);
    unsigned char *seeded = make(&tensor, false, 2), *named = make(&other, false, 1);

    ck_assert_mem_eq(bytes, again, tensor.bytes);
    ck_assert_mem_ne(bytes, seeded, tensor.bytes);
    ck_assert_mem_ne(bytes, named, tensor.bytes);
    free(bytes);
    free(again);
    free(seeded);
    free(named);
}
END_TEST

START_TEST(blocks_of_a_tensor_are_unlike)
{
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", types[_i], 256, 64);
    size_t row = (size_t)tensor_type_row_bytes(types[_i], 256);
    unsigned char *bytes = make(&tensor, false, 1);
    size_t alike = 0;

    for (size_t a = 0; a < 64; a++)
        for (size_t b = 0; b < a; b++)
            alike += memcmp(bytes + a * row, bytes + b * row, row) == 0;
    free(bytes);
    ck_assert_uint_eq(alike, 0);
}
END_TEST

/* ---- what values look like ---- */

/* 2^18 values: five deviations of their mean are a hundredth of a deviation. In blocks the
 * values share a scale, which widens that a little. */
START_TEST(weights_have_mean_0_and_deviation_of_one_by_the_root_of_a_row)
{
    static const uint64_t rows[] = {256, 1024, 16384};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_tensor tensor =
            describe("blk.0.ffn_up.weight", types[_i], rows[i], (1 << 18) / rows[i]);
        struct statistics found = measure(&tensor, false, i);
        double wanted = 1 / sqrt((double)rows[i]);

        ck_assert_double_lt(fabs(found.mean), 0.015 * wanted);
        ck_assert_double_lt(fabs(found.deviation - wanted), 0.015 * wanted);
    }
}
END_TEST

static const struct {
    const char *name;
    bool tied; /* token_embd is the output head, too */
    double deviation;
} deviations[] = {
    {"token_embd.weight", false, 1},
    {"token_embd.weight", true, 1.0 / 32},
    {"output.weight", false, 1.0 / 32},
    {"blk.0.attn_output.weight", false, 1.0 / 128},
    {"blk.0.ssm_out.weight", false, 1.0 / 128},
    {"blk.0.ffn_down_exps.weight", false, 1.0 / 32},
};

/* So that what a token has of its own decides which experts it goes to. */
START_TEST(embeddings_outweigh_what_attention_brings_from_other_tokens)
{
    struct model_tensor tensor = describe(deviations[_i].name, TENSOR_TYPE_Q8_0, 1024, 256);
    struct statistics found = measure(&tensor, deviations[_i].tied, 3);

    ck_assert_double_lt(fabs(found.deviation - deviations[_i].deviation),
                        0.015 * deviations[_i].deviation);
}
END_TEST

/* Limits of values, and their least spread. */
static const struct {
    const char *name;
    double low, high;
} ranges[] = {
    {"blk.0.attn_norm.weight", 0.9, 1.1},
    {"blk.0.nextn.hnorm.weight", 0.9, 1.1},
    {"blk.0.ssm_a", -1, -0.05},
    {"blk.0.ssm_dt.bias", -1, 1},
    {"blk.0.attn_q.bias", -0.06, 0.06},
    {"blk.0.layer_output_scale.weight", 0.5, 1},
    {"blk.0.ffn_gate_inp.scale", 0.9, 1.1},
    {"blk.0.ffn_down_exps.scale", 0.9, 1.1},
    {"rope_freqs.weight", 1, 4},
};

START_TEST(values_of_a_role_lie_in_its_range)
{
    struct model_tensor tensor = describe(ranges[_i].name, TENSOR_TYPE_F32, 4096, 1);
    struct statistics found = measure(&tensor, false, 5);
    double width = ranges[_i].high - ranges[_i].low;

    ck_assert_double_ge(found.low, ranges[_i].low);
    ck_assert_double_le(found.high, ranges[_i].high);
    ck_assert_double_gt(found.high - found.low, 0.8 * width);
}
END_TEST

START_TEST(a_convolution_has_deviation_one_half)
{
    struct model_tensor tensor = describe("blk.0.ssm_conv1d.weight", TENSOR_TYPE_F32, 4, 65536);
    struct statistics found = measure(&tensor, false, 6);

    ck_assert_double_lt(fabs(found.mean), 0.01);
    ck_assert_double_lt(fabs(found.deviation - 0.5), 0.01);
}
END_TEST

START_TEST(scales_of_blocks_vary_a_little)
{
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", TENSOR_TYPE_Q8_0, 1024, 64);
    unsigned char *bytes = make(&tensor, false, 8);
    float low = INFINITY, high = 0;

    for (size_t block = 0; block < 2048; block++) {
        float d = f16_at(bytes + 34 * block);

        low = d < low ? d : low;
        high = d > high ? d : high;
    }
    free(bytes);
    ck_assert_float_gt(low, 0);
    ck_assert_float_gt(high, 1.04f * low);
    ck_assert_float_lt(high, 1.13f * low);
}
END_TEST

START_TEST(a_block_of_8_bits_never_holds_minus_128)
{
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", TENSOR_TYPE_Q8_0, 1024, 64);
    unsigned char *bytes = make(&tensor, false, 9);
    size_t found = 0;

    for (size_t block = 0; block < 2048; block++)
        for (size_t i = 2; i < 34; i++)
            found += bytes[34 * block + i] == 0x80;
    free(bytes);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(other_types_are_refused_by_name)
{
    struct model_tensor tensor = describe("blk.0.ffn_up.weight", TENSOR_TYPE_IQ4_XS, 256, 1);
    struct error err = {0};
    struct synth synth;

    ck_assert_int_eq(synth_init(&synth, &tensor, false, 0, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "blk.0.ffn_up.weight"));
    ck_assert_ptr_nonnull(strstr(err.text, "IQ4_XS"));
    ck_assert(!synth_makes_type(TENSOR_TYPE_IQ4_XS));
}
END_TEST

START_TEST(a_quantised_norm_is_refused)
{
    struct model_tensor tensor = describe("output_norm.weight", TENSOR_TYPE_Q8_0, 256, 1);
    struct error err = {0};
    struct synth synth;

    ck_assert_int_eq(synth_init(&synth, &tensor, false, 0, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "output_norm.weight"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synth");
    TCase *bytes = tcase_create("bytes"), *values = tcase_create("values");
    TCase *refusals = tcase_create("refusals");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(bytes, any_range_of_bytes_is_the_same_as_when_all_are_made, 0, TYPE_COUNT);
    tcase_add_loop_test(bytes, bytes_stay_what_they_were_in_earlier_versions, 0, TYPE_COUNT);
    tcase_add_loop_test(bytes, another_name_or_seed_gives_other_bytes, 0, TYPE_COUNT);
    tcase_add_loop_test(bytes, blocks_of_a_tensor_are_unlike, 0, TYPE_COUNT);
    tcase_add_loop_test(values, weights_have_mean_0_and_deviation_of_one_by_the_root_of_a_row, 0,
                        TYPE_COUNT);
    tcase_add_loop_test(values, values_of_a_role_lie_in_its_range, 0,
                        sizeof ranges / sizeof *ranges);
    tcase_add_loop_test(values, embeddings_outweigh_what_attention_brings_from_other_tokens, 0,
                        (int)(sizeof deviations / sizeof *deviations));
    tcase_add_test(values, a_convolution_has_deviation_one_half);
    tcase_add_test(values, scales_of_blocks_vary_a_little);
    tcase_add_test(values, a_block_of_8_bits_never_holds_minus_128);
    tcase_add_test(refusals, other_types_are_refused_by_name);
    tcase_add_test(refusals, a_quantised_norm_is_refused);
    suite_add_tcase(suite, bytes);
    suite_add_tcase(suite, values);
    suite_add_tcase(suite, refusals);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
