/* How ratios become layers, heads and granules: the worked examples, then what always holds. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/plan_cases.h"

#define QWEN_K_QUANT "qwen3.8-27b:UD-Q5_K_M"
#define QWEN_I_QUANT "qwen3.8-27b:UD-IQ2_M"
#define QWEN_BLOCKS_OF_32 "qwen3.8-27b:Q8_0"
#define GEMMA "gemma-4-26b-a4b:Q8_0"

/* Of the 27B: layers 0, 1, 2 are recurrent, 3 attends, and so on. */
enum { GDN_EVEN = 0, GDN_ODD = 1, ATTENTION_EVEN = 3, ATTENTION_ODD = 7 };
/* Of gemma-4: every sixth layer attends to the whole context. */
enum { SLIDING_EVEN = 0, SLIDING_ODD = 1, FULL_EVEN = 5, FULL_ODD = 11 };

static struct share_slices slices_of(const char *spec, uint32_t layer, const float *weights,
                                     const float *attn_weights)
{
    struct model *model = plan_cases_model(spec);
    struct share_slices slices;

    share_layer_slices(model, layer, weights, attn_weights, 2, &slices);
    model_free(model);
    return slices;
}

/* ---- layers ---- */

/* Layers of the first device; the others and the head are the second's. */
static const struct {
    const char *model; /* NULL: `entries` directly */
    uint32_t entries;  /* blocks, those behind the trunk included, and the head */
    const char *ts;
    uint32_t first;
} layer_cases[] = {
    {QWEN_I_QUANT, 66, "-ts 50/50", 33},
    {QWEN_I_QUANT, 66, "-ts 55/45", 37},
    {QWEN_I_QUANT, 66, "-ts 57/43", 38},
    {QWEN_I_QUANT, 66, "-ts 60/40", 40},
    {"qwen3-32b:Q4_K_M", 65, "-ts 50/50", 33},
    {"qwen3-32b:Q4_K_M", 65, "-ts 55/45", 36},
    {"qwen3-32b:Q4_K_M", 65, "-ts 57/43", 38},
    {"qwen3-32b:Q4_K_M", 65, "-ts 60/40", 39},
    {"muse-glimmer-30b:Q5_K_M", 53, "-ts 50/50", 27},
    {"muse-glimmer-30b:Q5_K_M", 53, "-ts 55/45", 30},
    {"muse-glimmer-30b:Q5_K_M", 53, "-ts 57/43", 31},
    {"muse-glimmer-30b:Q5_K_M", 53, "-ts 60/40", 32},
    {GEMMA, 31, "-ts 50/50", 16},
    {GEMMA, 31, "-ts 55/45", 18},
    {GEMMA, 31, "-ts 57/43", 18},
    {GEMMA, 31, "-ts 60/40", 19},
};

START_TEST(a_ratio_gives_whole_layers_and_the_head_counts_as_one)
{
    struct plan_case c =
        plan_cases_open(layer_cases[_i].model, PLAN_CASES_DESKTOP, layer_cases[_i].ts, 0);

    ck_assert_uint_eq(c.placement->layer_count + 1, layer_cases[_i].entries);
    for (uint32_t i = 0; i < layer_cases[_i].entries; i++)
        ck_assert_msg(c.placement->owner[i] == (i < layer_cases[_i].first ? 0 : 1),
                      "%s %s: entry %u is on device %d", layer_cases[_i].model, layer_cases[_i].ts,
                      i, c.placement->owner[i]);
    plan_cases_close(&c);
}
END_TEST

/* Shares whose boundary is a whole number in real arithmetic fall as float32 has them:
 * 0.7f / 1 x 10 is below 7 in real arithmetic, and 7.f / 10 is not below 0.7f. */
static const struct {
    uint32_t entries;
    float weights[3];
    uint32_t counts[3];
} tie_cases[] = {
    {10, {0.5f, 0.5f}, {5, 5}},    {10, {0.7f, 0.3f}, {7, 3}}, {65, {60, 40}, {39, 26}},
    {66, {1, 1, 1}, {22, 22, 22}}, {9, {1, 1, 1}, {3, 3, 3}},  {3, {0, 1, 0}, {0, 3, 0}},
    {8, {1, 0, 1}, {4, 0, 4}},     {8, {1, 0, 0}, {8, 0, 0}},  {100, {0.29f, 0.71f}, {29, 71}},
};

START_TEST(an_exact_tie_of_layers_goes_to_the_next_device)
{
    uint32_t counts[3] = {0};
    int owners[100];

    share_layers(tie_cases[_i].entries, tie_cases[_i].entries, tie_cases[_i].weights, 3, owners);
    for (uint32_t i = 0; i < tie_cases[_i].entries; i++)
        counts[owners[i]]++;
    for (uint32_t d = 0; d < 3; d++)
        ck_assert_msg(counts[d] == tie_cases[_i].counts[d], "case %d: device %u has %u, not %u", _i,
                      d, counts[d], tie_cases[_i].counts[d]);
}
END_TEST

START_TEST(layers_that_are_not_offloaded_stay_on_the_host_and_the_rest_is_shared)
{
    const float weights[] = {60, 40};
    int owners[66];

    share_layers(66, 20, weights, 2, owners);
    for (int i = 0; i < 66; i++)
        ck_assert_int_eq(owners[i], i < 46 ? SHARE_ON_HOST : i < 46 + 12 ? 0 : 1);
    share_layers(66, 0, weights, 2, owners);
    for (int i = 0; i < 66; i++)
        ck_assert_int_eq(owners[i], SHARE_ON_HOST);
}
END_TEST

/* ---- feed-forward ---- */

/* Widths of [device 0, device 1] in layers of even and of odd number of their kind. */
static const struct {
    const char *model;
    float first, second;
    uint64_t even[2], odd[2];
} width_cases[] = {
    {QWEN_K_QUANT, 0, 0, {8704, 8704}, {8704, 8704}},
    {QWEN_K_QUANT, 50, 50, {8704, 8704}, {8704, 8704}},
    {QWEN_K_QUANT, 60, 40, {10240, 7168}, {10496, 6912}},
    {QWEN_I_QUANT, 60, 40, {10240, 7168}, {10496, 6912}},
    {QWEN_BLOCKS_OF_32, 50, 50, {8704, 8704}, {8704, 8704}},
    {QWEN_BLOCKS_OF_32, 60, 40, {10368, 7040}, {10496, 6912}},
    {QWEN_K_QUANT, 55, 45, {9472, 7936}, {9728, 7680}},
    {QWEN_K_QUANT, 57, 43, {9728, 7680}, {9984, 7424}},
    {QWEN_K_QUANT, 58, 42, {9984, 7424}, {10240, 7168}},
    {QWEN_K_QUANT, 62, 38, {10752, 6656}, {11008, 6400}},
    {QWEN_K_QUANT, 40, 60, {6912, 10496}, {7168, 10240}},
    {QWEN_K_QUANT, 65, 35, {11264, 6144}, {11520, 5888}},
    {QWEN_K_QUANT, 70, 30, {12032, 5376}, {12288, 5120}},
    {QWEN_K_QUANT, 75, 25, {13056, 4352}, {13056, 4352}},
    {QWEN_K_QUANT, 45, 55, {7680, 9728}, {7936, 9472}},
    {QWEN_K_QUANT, 1, 0, {17408, 0}, {17408, 0}},
};

START_TEST(a_dense_feed_forward_is_cut_at_whole_granules_and_alternates)
{
    static const uint32_t layers[] = {GDN_EVEN, GDN_ODD, ATTENTION_EVEN, ATTENTION_ODD};
    const float weights[] = {width_cases[_i].first, width_cases[_i].second};

    for (int i = 0; i < 4; i++) {
        struct share_slices slices = slices_of(width_cases[_i].model, layers[i], weights, NULL);
        const uint64_t *expected = i % 2 == 0 ? width_cases[_i].even : width_cases[_i].odd;

        ck_assert_uint_eq(slices.rotation, (unsigned)i % 2);
        ck_assert_msg(slices.n_ff[0] == expected[0] && slices.n_ff[1] == expected[1],
                      "%g/%g, layer %u: %llu, %llu", weights[0], weights[1], layers[i],
                      (unsigned long long)slices.n_ff[0], (unsigned long long)slices.n_ff[1]);
    }
}
END_TEST

/* n_ff_exp 704 is 5.5 granules of 128: one part keeps the half. */
static const struct {
    float first, second;
    uint64_t even[2], odd[2];
} expert_cases[] = {
    {50, 50, {256, 448}, {448, 256}}, {65, 35, {384, 320}, {576, 128}},
    {55, 45, {384, 320}, {448, 256}}, {70, 30, {384, 320}, {576, 128}},
    {60, 40, {384, 320}, {448, 256}}, {75, 25, {512, 192}, {576, 128}},
    {40, 60, {256, 448}, {320, 384}}, {45, 55, {256, 448}, {320, 384}},
};

START_TEST(experts_are_cut_inside_each_expert)
{
    static const uint32_t layers[] = {SLIDING_EVEN, SLIDING_ODD, FULL_EVEN, FULL_ODD};
    const float weights[] = {expert_cases[_i].first, expert_cases[_i].second};

    for (int i = 0; i < 4; i++) {
        struct share_slices slices = slices_of(GEMMA, layers[i], weights, NULL);
        const uint64_t *expected = i % 2 == 0 ? expert_cases[_i].even : expert_cases[_i].odd;

        ck_assert_msg(slices.n_ff_exp[0] == expected[0] && slices.n_ff_exp[1] == expected[1],
                      "%g/%g, layer %u: %llu, %llu", weights[0], weights[1], layers[i],
                      (unsigned long long)slices.n_ff_exp[0],
                      (unsigned long long)slices.n_ff_exp[1]);
    }
}
END_TEST

/* ---- heads ---- */

/* Heads for every ratio from `from`/(100-from) to `to`/(100-to). */
static const struct {
    const char *model;
    uint32_t layer;
    int from, to;
    uint32_t q[2], kv[2];
} head_cases[] = {
    {QWEN_K_QUANT, ATTENTION_EVEN, 50, 50, {12, 12}, {2, 2}},
    {QWEN_K_QUANT, ATTENTION_ODD, 50, 50, {12, 12}, {2, 2}},
    {QWEN_K_QUANT, ATTENTION_EVEN, 51, 74, {12, 12}, {2, 2}},
    {QWEN_K_QUANT, ATTENTION_ODD, 51, 74, {18, 6}, {3, 1}},
    {QWEN_BLOCKS_OF_32, ATTENTION_EVEN, 51, 74, {12, 12}, {2, 2}},
    {QWEN_BLOCKS_OF_32, ATTENTION_ODD, 51, 74, {18, 6}, {3, 1}},
    {QWEN_K_QUANT, ATTENTION_EVEN, 75, 75, {18, 6}, {3, 1}},
    {QWEN_K_QUANT, ATTENTION_ODD, 75, 75, {18, 6}, {3, 1}},
    {QWEN_K_QUANT, ATTENTION_EVEN, 100, 100, {24, 0}, {4, 0}},
    {QWEN_K_QUANT, ATTENTION_ODD, 100, 100, {24, 0}, {4, 0}},
    {GEMMA, FULL_EVEN, 50, 50, {8, 8}, {1, 1}},
    {GEMMA, FULL_ODD, 50, 50, {8, 8}, {1, 1}},
    {GEMMA, FULL_EVEN, 51, 75, {8, 8}, {1, 1}},
    {GEMMA, FULL_ODD, 51, 75, {16, 0}, {2, 0}},
    {GEMMA, SLIDING_EVEN, 55, 62, {8, 8}, {4, 4}},
    {GEMMA, SLIDING_ODD, 55, 62, {10, 6}, {5, 3}},
    {GEMMA, SLIDING_EVEN, 65, 70, {10, 6}, {5, 3}},
    {GEMMA, SLIDING_ODD, 65, 70, {12, 4}, {6, 2}},
    {"muse-glimmer-30b:Q5_K_M", 0, 50, 74, {16, 16}, {1, 1}},
    {"muse-glimmer-30b:Q5_K_M", 1, 51, 75, {32, 0}, {2, 0}},
};

START_TEST(heads_are_cut_at_whole_groups)
{
    for (int first = head_cases[_i].from; first <= head_cases[_i].to; first++) {
        const float weights[] = {(float)first, (float)(100 - first)};
        struct share_slices slices =
            slices_of(head_cases[_i].model, head_cases[_i].layer, weights, NULL);

        for (int d = 0; d < 2; d++)
            ck_assert_msg(slices.q_heads[d] == head_cases[_i].q[d] &&
                              slices.kv_heads[d] == head_cases[_i].kv[d],
                          "%s, layer %u, %d/%d: device %d has %u:%u heads", head_cases[_i].model,
                          head_cases[_i].layer, first, 100 - first, d, slices.q_heads[d],
                          slices.kv_heads[d]);
    }
}
END_TEST

static const struct {
    float attn[2];
    uint32_t q[2], kv[2];
} attn_cases[] = {
    {{1, 0}, {24, 0}, {4, 0}},
    {{0, 1}, {0, 24}, {0, 4}},
    {{.75f, .25f}, {18, 6}, {3, 1}},
    {{.5f, .5f}, {12, 12}, {2, 2}},
};

START_TEST(an_attention_ratio_moves_heads_and_nothing_else)
{
    static const uint32_t layers[] = {ATTENTION_EVEN, ATTENTION_ODD, GDN_EVEN, GDN_ODD};
    const float weights[] = {60, 40};

    for (int i = 0; i < 4; i++) {
        struct share_slices slices =
            slices_of(QWEN_K_QUANT, layers[i], weights, attn_cases[_i].attn);
        struct share_slices without = slices_of(QWEN_K_QUANT, layers[i], weights, NULL);

        for (int d = 0; d < 2; d++) {
            ck_assert_uint_eq(slices.n_ff[d], without.n_ff[d]);
            ck_assert_uint_eq(slices.gdn_k_heads[d], without.gdn_k_heads[d]);
            ck_assert_uint_eq(slices.q_heads[d], i < 2 ? attn_cases[_i].q[d] : 0);
            ck_assert_uint_eq(slices.kv_heads[d], i < 2 ? attn_cases[_i].kv[d] : 0);
        }
    }
}
END_TEST

START_TEST(an_attention_ratio_of_zeros_follows_the_other)
{
    const float weights[] = {75, 25}, none[] = {0, 0};
    struct share_slices slices = slices_of(QWEN_K_QUANT, ATTENTION_EVEN, weights, none);

    ck_assert_uint_eq(slices.q_heads[0], 18);
    ck_assert_uint_eq(slices.q_heads[1], 6);
}
END_TEST

/* Key heads of 128 values; value heads are three times as many. */
static const struct {
    const char *model;
    uint32_t layer;
    float first, second;
    uint32_t k_heads[2];
} gdn_cases[] = {
    {QWEN_K_QUANT, GDN_EVEN, 50, 50, {8, 8}},
    {QWEN_K_QUANT, GDN_ODD, 50, 50, {8, 8}},
    {QWEN_K_QUANT, GDN_EVEN, 60, 40, {8, 8}},
    {QWEN_K_QUANT, GDN_ODD, 60, 40, {10, 6}},
    {QWEN_I_QUANT, GDN_EVEN, 60, 40, {8, 8}},
    {QWEN_I_QUANT, GDN_ODD, 60, 40, {10, 6}},
    {QWEN_BLOCKS_OF_32, GDN_EVEN, 50, 50, {8, 8}},
    {QWEN_BLOCKS_OF_32, GDN_ODD, 50, 50, {8, 8}},
    {QWEN_BLOCKS_OF_32, GDN_EVEN, 60, 40, {9, 7}},
    {QWEN_BLOCKS_OF_32, GDN_ODD, 60, 40, {10, 6}},
    /* ssm_out of layer 2 is Q8_0 in this mix. */
    {QWEN_K_QUANT, 2, 60, 40, {9, 7}},
};

START_TEST(key_heads_of_a_delta_net_are_cut_at_granules_of_its_output)
{
    const float weights[] = {gdn_cases[_i].first, gdn_cases[_i].second};
    struct share_slices slices = slices_of(gdn_cases[_i].model, gdn_cases[_i].layer, weights, NULL);

    for (int d = 0; d < 2; d++) {
        ck_assert_uint_eq(slices.gdn_k_heads[d], gdn_cases[_i].k_heads[d]);
        ck_assert_uint_eq(slices.gdn_v_heads[d], 3 * gdn_cases[_i].k_heads[d]);
    }
}
END_TEST

/* ---- the rule itself ---- */

/* Examples that no catalogue model has, and float32's own roundings: 248320 x 0.7f is
 * 173823.997 in real arithmetic and 173824 in float32. */
static const struct {
    uint64_t elements, granule;
    float weights[3];
    uint32_t count, rotation;
    uint64_t parts[3];
} element_cases[] = {
    {248320, 1, {50, 50}, 2, 0, {124160, 124160}},    {248320, 1, {60, 40}, 2, 0, {148992, 99328}},
    {248320, 1, {0.7f, 0.3f}, 2, 0, {173824, 74496}}, {1024, 256, {60, 40}, 2, 1, {768, 256}},
    {12288, 3072, {60, 40}, 2, 1, {9216, 3072}},      {6144, 1536, {60, 40}, 2, 0, {3072, 3072}},
    {8192, 4096, {51, 49}, 2, 1, {8192, 0}},          {100, 1, {0, 0, 0}, 3, 0, {33, 33, 34}},
    {100, 1, {0, 0, 0}, 3, 1, {34, 33, 33}},          {100, 32, {1, 1, 1}, 3, 2, {32, 36, 32}},
    {100, 1, {0, 1, 0}, 3, 0, {0, 100, 0}},           {7, 1, {5}, 1, 0, {7}},
};

START_TEST(boundaries_are_rounded_down_and_the_last_position_takes_the_rest)
{
    uint64_t parts[3];

    share_elements(element_cases[_i].elements, element_cases[_i].granule, element_cases[_i].weights,
                   element_cases[_i].count, element_cases[_i].rotation, parts);
    for (uint32_t d = 0; d < element_cases[_i].count; d++)
        ck_assert_msg(parts[d] == element_cases[_i].parts[d], "case %d: device %u has %llu", _i, d,
                      (unsigned long long)parts[d]);
}
END_TEST

static uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 1;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % limit;
}

START_TEST(random_parts_add_up_and_only_the_last_position_is_not_whole_granules)
{
    for (int i = 0; i < 20000; i++) {
        uint64_t parts[8], granule = 1u << random_below(11), sum = 0, position = 0;
        uint64_t elements = random_below(300000);
        uint32_t count = 1 + random_below(8), rotation = random_below(count);
        float weights[8];

        for (uint32_t d = 0; d < count; d++)
            weights[d] = random_below(4) == 0 ? 0 : (float)random_below(1000) / 8;
        share_elements(elements, granule, weights, count, rotation, parts);
        for (uint32_t j = 0; j < count; j++) {
            uint32_t d = (j + rotation) % count;

            if (j + 1 < count)
                ck_assert_uint_eq(parts[d] % granule, 0);
            position += parts[d];
            ck_assert_uint_le(position, elements);
            sum += parts[d];
        }
        ck_assert_uint_eq(sum, elements);
    }
}
END_TEST

/* The count is ceil(share x entries), and float32 decides only where that product is
 * within rounding of a whole number. */
START_TEST(random_layers_go_in_order_and_a_device_has_its_share_rounded_up)
{
    for (int i = 0; i < 5000; i++) {
        uint32_t entries = 1 + random_below(120), count = 1 + random_below(6);
        float weights[6];
        double before = 0, total = 0;
        int owners[120];

        for (uint32_t d = 0; d < count; d++)
            total += weights[d] = d == 0 ? 1 : (float)random_below(100);
        share_layers(entries, entries, weights, count, owners);
        for (uint32_t e = 1; e < entries; e++)
            ck_assert_int_ge(owners[e], owners[e - 1]);
        for (uint32_t d = 0; d + 1 < count; d++) {
            double boundary = (before += weights[d]) / total * entries;
            uint32_t have = 0;

            while (have < entries && owners[have] <= (int)d)
                have++;
            if (fabs(boundary - round(boundary)) > 1e-3)
                ck_assert_uint_eq(have, (uint32_t)ceil(boundary));
        }
    }
}
END_TEST

START_TEST(rotation_counts_earlier_layers_of_the_same_kind)
{
    struct model *gemma = plan_cases_model(GEMMA), *qwen = plan_cases_model(QWEN_K_QUANT);

    ck_assert_uint_eq(share_rotation(gemma, 4, 2), 0);
    ck_assert_uint_eq(share_rotation(gemma, 5, 2), 0);
    ck_assert_uint_eq(share_rotation(gemma, 6, 2), 1);
    ck_assert_uint_eq(share_rotation(gemma, 11, 2), 1);
    ck_assert_uint_eq(share_rotation(gemma, 4, 3), 1);
    ck_assert_uint_eq(share_rotation(qwen, 4, 2), 1);
    ck_assert_uint_eq(share_rotation(qwen, 63, 4), 3);
    model_free(qwen);
    model_free(gemma);
}
END_TEST

START_TEST(granules_follow_the_type_of_the_tensor_that_is_cut_along_its_rows)
{
    struct model *k = plan_cases_model(QWEN_K_QUANT), *q8 = plan_cases_model(QWEN_BLOCKS_OF_32);
    struct model *gemma = plan_cases_model(GEMMA), *llama = plan_cases_model("llama-2-7b:Q4_K_M");

    ck_assert_uint_eq(share_q_granule(k, ATTENTION_EVEN, 2), 1536);
    ck_assert_uint_eq(share_q_granule(q8, ATTENTION_EVEN, 2), 1536);
    ck_assert_uint_eq(share_q_granule(gemma, FULL_EVEN, 2), 4096);
    ck_assert_uint_eq(share_q_granule(gemma, SLIDING_EVEN, 2), 512);
    ck_assert_uint_eq(share_q_granule(llama, 0, 2), 256); /* two heads: blocks stay whole */
    ck_assert_uint_eq(share_gdn_granule(k, GDN_EVEN), 256);
    ck_assert_uint_eq(share_gdn_granule(k, 2), 128);
    ck_assert_uint_eq(share_gdn_granule(q8, GDN_EVEN), 128);
    ck_assert_uint_eq(share_ff_granule(k, 0, TENSOR_ROLE_FFN_DOWN), 256);
    ck_assert_uint_eq(share_ff_granule(q8, 0, TENSOR_ROLE_FFN_DOWN), 128);
    ck_assert_uint_eq(share_ff_granule(gemma, 0, TENSOR_ROLE_FFN_DOWN_EXPS), 128);
    model_free(llama);
    model_free(gemma);
    model_free(q8);
    model_free(k);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

int main(void)
{
    Suite *suite = suite_create("share");
    TCase *examples = tcase_create("examples"), *rules = tcase_create("rules");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(examples, 60);
    tcase_set_timeout(rules, 60);
    tcase_add_loop_test(examples, a_ratio_gives_whole_layers_and_the_head_counts_as_one, 0,
                        COUNT(layer_cases));
    tcase_add_loop_test(examples, a_dense_feed_forward_is_cut_at_whole_granules_and_alternates, 0,
                        COUNT(width_cases));
    tcase_add_loop_test(examples, experts_are_cut_inside_each_expert, 0, COUNT(expert_cases));
    tcase_add_loop_test(examples, heads_are_cut_at_whole_groups, 0, COUNT(head_cases));
    tcase_add_loop_test(examples, an_attention_ratio_moves_heads_and_nothing_else, 0,
                        COUNT(attn_cases));
    tcase_add_loop_test(examples, key_heads_of_a_delta_net_are_cut_at_granules_of_its_output, 0,
                        COUNT(gdn_cases));
    tcase_add_test(rules, an_attention_ratio_of_zeros_follows_the_other);
    tcase_add_loop_test(rules, an_exact_tie_of_layers_goes_to_the_next_device, 0, COUNT(tie_cases));
    tcase_add_test(rules, layers_that_are_not_offloaded_stay_on_the_host_and_the_rest_is_shared);
    tcase_add_loop_test(rules, boundaries_are_rounded_down_and_the_last_position_takes_the_rest, 0,
                        COUNT(element_cases));
    tcase_add_test(rules, random_parts_add_up_and_only_the_last_position_is_not_whole_granules);
    tcase_add_test(rules, random_layers_go_in_order_and_a_device_has_its_share_rounded_up);
    tcase_add_test(rules, rotation_counts_earlier_layers_of_the_same_kind);
    tcase_add_test(rules, granules_follow_the_type_of_the_tensor_that_is_cut_along_its_rows);
    suite_add_tcase(suite, examples);
    suite_add_tcase(suite, rules);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
