#include "sim/mix_rule.h"

#include <check.h>
#include <stdlib.h>

static struct mix_tensor matrix(const char *name, int layer, uint64_t row)
{
    return (struct mix_tensor){.name = name, .layer = layer, .dims = 2, .ne = {row, 256, 1, 1}};
}

/* A dense model of `n_block` blocks with grouped heads. */
static struct mix_rule dense(enum mix mix, uint32_t n_block)
{
    return (struct mix_rule){
        .mix = mix, .has_output = true, .n_block = n_block, .n_gqa = 4, .n_attn_v = n_block};
}

static const char *next(struct mix_rule *rule, const char *name, int layer)
{
    struct mix_tensor tensor = matrix(name, layer, 4096);

    return tensor_type_info(mix_rule_next(rule, &tensor))->name;
}

START_TEST(every_mix_has_a_name_that_finds_it)
{
    for (int i = 0; i < MIX_COUNT; i++)
        ck_assert_int_eq(mix_find(mix_name((enum mix)i)), i);
    ck_assert_int_eq(mix_find("q4_k_m"), MIX_Q4_K_M);
    ck_assert_int_eq(mix_find("q3_k"), MIX_Q3_K_M);
    ck_assert_int_eq(mix_find("Q4_K"), MIX_Q4_K_M);
    ck_assert_int_eq(mix_find("Q5_K"), MIX_Q5_K_M);
    ck_assert_int_eq(mix_find("Q2_"), -1);
    ck_assert_int_eq(mix_find(""), -1);
}
END_TEST

START_TEST(norms_biases_routers_and_vectors_stay_f32)
{
    static const char *const kept[] = {"attn_q_norm.weight", "ffn_gate_exps.bias",
                                       "ffn_gate_inp.weight", "ssm_conv1d.weight", "ssm_a"};
    struct mix_tensor vector = matrix("ffn_gate_inp_shexp.weight", 0, 4096);

    vector.dims = 1;
    ck_assert(!mix_quantises(&vector));
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        struct mix_rule rule = dense(MIX_Q8_0, 32);

        ck_assert_str_eq(next(&rule, kept[i], 0), "F32");
    }
}
END_TEST

START_TEST(q4_k_m_gives_the_first_and_last_eighth_and_every_third_more_bits)
{
    static const char expected[] = "66664464464464464464464464466666";
    struct mix_rule rule = dense(MIX_Q4_K_M, 32);

    for (int i = 0; i < 32; i++)
        ck_assert_int_eq(next(&rule, "ffn_down.weight", i)[1], expected[i]);
}
END_TEST

START_TEST(attn_qkv_counts_as_attn_v)
{
    struct mix_rule rule = dense(MIX_Q4_K_S, 32);

    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(next(&rule, i % 4 == 3 ? "attn_v.weight" : "attn_qkv.weight", i),
                         i < 4 ? "Q5_K" : "Q4_K");
}
END_TEST

START_TEST(experts_are_placed_by_block_where_dense_layers_are_counted)
{
    struct mix_rule rule = dense(MIX_Q4_K_M, 32);

    rule.n_expert = 64;
    ck_assert_str_eq(next(&rule, "ffn_down_exps.weight", 4), "Q4_K");
    ck_assert_str_eq(next(&rule, "ffn_down_shexp.weight", 4), "Q4_K");
    ck_assert_str_eq(next(&rule, "ffn_down_exps.weight", 6), "Q6_K");
    ck_assert_str_eq(next(&rule, "ffn_down_shexp.weight", 31), "Q6_K");
}
END_TEST

START_TEST(a_tied_embedding_is_treated_as_the_output)
{
    struct mix_rule rule = dense(MIX_Q4_K_M, 32);

    ck_assert_str_eq(next(&rule, "token_embd.weight", -1), "Q4_K");
    ck_assert_str_eq(next(&rule, "output.weight", -1), "Q6_K");
    rule.has_output = false;
    ck_assert_str_eq(next(&rule, "token_embd.weight", -1), "Q6_K");
}
END_TEST

static const struct {
    enum mix mix;
    const char *name, *type;
    const char *type_with_imatrix;
} first_layer[] = {
    {MIX_F16, "output.weight", "F16", "F16"},
    {MIX_Q8_0, "output.weight", "Q8_0", "Q8_0"},
    {MIX_Q4_0, "ffn_down.weight", "Q4_0", "Q4_1"},
    {MIX_Q5_0, "ffn_down.weight", "Q5_0", "Q5_1"},
    {MIX_IQ4_XS, "ffn_down.weight", "Q5_K", "IQ4_XS"},
    {MIX_IQ4_NL, "attn_v.weight", "Q5_K", "Q5_K"},
    {MIX_IQ3_XXS, "ffn_down.weight", "Q4_K", "IQ3_XXS"},
    {MIX_IQ3_XXS, "attn_q.weight", "IQ2_S", "IQ2_S"},
    {MIX_IQ3_XXS, "token_embd.weight", "IQ3_S", "IQ3_S"},
    {MIX_IQ3_XS, "ffn_up.weight", "IQ3_S", "IQ3_S"},
    {MIX_Q3_K_M, "ffn_down.weight", "Q5_K", "Q5_K"},
    {MIX_Q3_K_L, "attn_output.weight", "Q5_K", "Q5_K"},
    {MIX_Q2_K, "attn_v.weight", "Q4_K", "Q4_K"},
    {MIX_Q2_K_S, "ffn_down.weight", "Q4_K", "Q4_K"},
    {MIX_IQ2_M, "attn_output.weight", "IQ3_S", "IQ3_S"},
    {MIX_IQ2_XS, "attn_output.weight", "IQ2_XS", "IQ2_XS"},
    {MIX_IQ1_S, "attn_output.weight", "IQ2_XXS", "IQ2_XXS"},
    {MIX_IQ1_S, "token_embd.weight", "Q2_K", "Q2_K"},
    {MIX_TQ1_0, "token_embd.weight", "Q4_K", "Q4_K"},
    {MIX_MXFP4_MOE, "attn_q.weight", "Q8_0", "Q8_0"},
};

START_TEST(the_first_layer_follows_the_table)
{
    struct mix_rule rule = dense(first_layer[_i].mix, 32);

    ck_assert_str_eq(next(&rule, first_layer[_i].name, 0), first_layer[_i].type);
    rule = dense(first_layer[_i].mix, 32);
    rule.imatrix = true;
    ck_assert_str_eq(next(&rule, first_layer[_i].name, 0), first_layer[_i].type_with_imatrix);
}
END_TEST

START_TEST(few_query_heads_per_kv_head_save_bits_on_attn_v)
{
    struct mix_rule rule = dense(MIX_Q2_K, 32);

    rule.n_gqa = 1;
    ck_assert_str_eq(next(&rule, "attn_v.weight", 0), "Q3_K");
    rule.mix = MIX_IQ2_M;
    ck_assert_str_eq(next(&rule, "attn_v.weight", 0), "IQ3_S");
    rule.n_expert = 4;
    ck_assert_str_eq(next(&rule, "attn_v.weight", 0), "Q4_K");
}
END_TEST

START_TEST(the_70b_llama_and_eight_experts_have_their_exceptions)
{
    struct mix_rule rule = dense(MIX_Q4_K_M, 80);

    rule.is_llama_70b = true;
    for (int i = 0; i < 10; i++)
        next(&rule, "attn_v.weight", i);
    ck_assert_str_eq(next(&rule, "attn_v.weight", 10), "Q5_K");

    rule = dense(MIX_Q4_K_M, 32);
    rule.n_expert = 8;
    ck_assert_str_eq(next(&rule, "attn_v.weight", 0), "Q8_0");
    ck_assert_str_eq(next(&rule, "attn_k.weight", 0), "Q8_0");
    ck_assert_str_eq(next(&rule, "attn_output.weight", 0), "Q5_K");
    rule.mix = MIX_Q6_K;
    ck_assert_str_eq(next(&rule, "attn_output.weight", 0), "Q6_K");
}
END_TEST

static const struct {
    enum tensor_type type;
    uint64_t row;
    enum tensor_type expected;
} rows[] = {
    {TENSOR_TYPE_Q4_K, 4096, TENSOR_TYPE_Q4_K},   {TENSOR_TYPE_Q4_K, 2880, TENSOR_TYPE_Q5_0},
    {TENSOR_TYPE_Q5_K, 2880, TENSOR_TYPE_Q5_1},   {TENSOR_TYPE_Q6_K, 2880, TENSOR_TYPE_Q8_0},
    {TENSOR_TYPE_Q3_K, 2880, TENSOR_TYPE_Q4_0},   {TENSOR_TYPE_IQ2_S, 128, TENSOR_TYPE_IQ4_NL},
    {TENSOR_TYPE_IQ4_XS, 32, TENSOR_TYPE_IQ4_NL}, {TENSOR_TYPE_Q8_0, 33, TENSOR_TYPE_F16},
    {TENSOR_TYPE_Q6_K, 48, TENSOR_TYPE_F16},      {TENSOR_TYPE_F32, 33, TENSOR_TYPE_F32},
};

START_TEST(a_row_that_no_block_divides_takes_another_type)
{
    ck_assert_int_eq(mix_type_that_fits(rows[_i].type, rows[_i].row), rows[_i].expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mix_rule");
    TCase *rule = tcase_create("rule");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(rule, every_mix_has_a_name_that_finds_it);
    tcase_add_test(rule, norms_biases_routers_and_vectors_stay_f32);
    tcase_add_test(rule, q4_k_m_gives_the_first_and_last_eighth_and_every_third_more_bits);
    tcase_add_test(rule, attn_qkv_counts_as_attn_v);
    tcase_add_test(rule, experts_are_placed_by_block_where_dense_layers_are_counted);
    tcase_add_test(rule, a_tied_embedding_is_treated_as_the_output);
    tcase_add_loop_test(rule, the_first_layer_follows_the_table, 0,
                        (int)(sizeof first_layer / sizeof first_layer[0]));
    tcase_add_test(rule, few_query_heads_per_kv_head_save_bits_on_attn_v);
    tcase_add_test(rule, the_70b_llama_and_eight_experts_have_their_exceptions);
    tcase_add_loop_test(rule, a_row_that_no_block_divides_takes_another_type, 0,
                        (int)(sizeof rows / sizeof rows[0]));
    suite_add_tcase(suite, rule);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
