/* The numbers of each architecture, and the keys that change them. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ref/gguf_write.h"
#include "ref/numbers.h"
#include "ref/shape.h"

/* The numbers of a small model with the keys of a writer, which is freed. */
static int numbers_with(const char *name, struct gguf_write *writer, struct numbers *numbers,
                        struct error *err)
{
    struct model *model = shape_open(name, err);
    unsigned char *header;
    struct gguf *gguf;
    size_t size;
    int result;

    ck_assert_ptr_nonnull(model);
    header = gguf_write_header(writer, &size, err);
    ck_assert_ptr_nonnull(header);
    gguf = gguf_parse(header, size, "keys.gguf", err);
    ck_assert_ptr_nonnull(gguf);
    result = numbers_of(model, gguf, numbers, err);
    gguf_free(gguf);
    free(header);
    gguf_write_free(writer);
    model_free(model);
    return result;
}

/* ---- without keys ---- */

static const struct {
    const char *name;
    struct numbers numbers;
} usual[] = {
    {"tiny-llama",
     {.norm_eps = 1e-5f,
      .embedding_scale = 1,
      .expert_scale = 1,
      .router_normalised = true,
      .activation = NUMBERS_SILU,
      .rope = NUMBERS_ROPE_PAIRS,
      .rope_base = 1e4,
      .rope_base_sliding = 1e4,
      .rope_dim = 32,
      .rope_scale = 1}},
    {"tiny-qwen3",
     {.norm_eps = 1e-6f,
      .embedding_scale = 1,
      .expert_scale = 1,
      .router_normalised = true,
      .activation = NUMBERS_SILU,
      .rope = NUMBERS_ROPE_HALVES,
      .rope_base = 1e6,
      .rope_base_sliding = 1e6,
      .rope_dim = 64,
      .rope_scale = 1}},
    {"tiny-qwen35moe",
     {.norm_eps = 1e-6f,
      .embedding_scale = 1,
      .expert_scale = 1,
      .router_normalised = true,
      .activation = NUMBERS_SILU,
      .rope = NUMBERS_ROPE_HALVES,
      .rope_base = 1e7,
      .rope_base_sliding = 1e7,
      .rope_dim = 16,
      .rope_scale = 1}},
    {"tiny-gemma4",
     {.norm_eps = 1e-6f,
      .embedding_scale = 16,
      .attention_scale = 1,
      .logit_softcap = 30,
      .expert_scale = 1,
      .router_normalised = true,
      .activation = NUMBERS_GELU_TANH,
      .rope = NUMBERS_ROPE_HALVES,
      .rope_base = 1e6,
      .rope_base_sliding = 1e4,
      .rope_dim = 64,
      .rope_dim_sliding = 32,
      .rope_scale = 1}},
    {"tiny-muse-glimmer",
     {.norm_eps = 1e-5f,
      .embedding_scale = 1,
      .expert_scale = 1,
      .router_normalised = true,
      .activation = NUMBERS_SILU,
      .rope = NUMBERS_ROPE_HALVES,
      .rope_base = 5e5,
      .rope_base_sliding = 5e5,
      .rope_dim = 32,
      .rope_dim_sliding = 32,
      .rope_scale = 1}},
};

static void check_equal(const struct numbers *found, const struct numbers *wanted)
{
    ck_assert_float_eq(found->norm_eps, wanted->norm_eps);
    ck_assert_float_eq(found->embedding_scale, wanted->embedding_scale);
    ck_assert_float_eq(found->attention_scale, wanted->attention_scale);
    ck_assert_float_eq(found->logit_softcap, wanted->logit_softcap);
    ck_assert_float_eq(found->expert_scale, wanted->expert_scale);
    ck_assert_int_eq(found->router_normalised, wanted->router_normalised);
    ck_assert_int_eq(found->activation, wanted->activation);
    ck_assert_int_eq(found->rope, wanted->rope);
    ck_assert_double_eq(found->rope_base, wanted->rope_base);
    ck_assert_double_eq(found->rope_base_sliding, wanted->rope_base_sliding);
    ck_assert_uint_eq(found->rope_dim, wanted->rope_dim);
    ck_assert_uint_eq(found->rope_dim_sliding, wanted->rope_dim_sliding);
    ck_assert_double_eq(found->rope_scale, wanted->rope_scale);
}

START_TEST(without_a_file_an_architecture_has_its_usual_numbers)
{
    struct error err = {0};
    struct model *model = shape_open(usual[_i].name, &err);
    struct numbers numbers;

    ck_assert_ptr_nonnull(model);
    ck_assert_msg(numbers_of(model, NULL, &numbers, &err) == 0, "%s", err.text);
    check_equal(&numbers, &usual[_i].numbers);
    model_free(model);
}
END_TEST

START_TEST(the_keys_of_a_small_model_give_the_same_numbers)
{
    struct error err = {0};
    struct model *model = shape_open(usual[_i].name, &err);
    struct gguf *gguf = shape_gguf(usual[_i].name, &err);
    struct numbers numbers;

    ck_assert_ptr_nonnull(model);
    ck_assert_ptr_nonnull(gguf_find_key(gguf, "general.architecture"));
    ck_assert_msg(numbers_of(model, gguf, &numbers, &err) == 0, "%s", err.text);
    check_equal(&numbers, &usual[_i].numbers);
    gguf_free(gguf);
    model_free(model);
}
END_TEST

START_TEST(models_of_the_catalogue_turn_the_values_that_they_should)
{
    struct error err = {0};
    struct model *model = model_from_catalogue("qwen3.8-27b:Q8_0", &err);
    struct numbers numbers;

    ck_assert_int_eq(numbers_of(model, NULL, &numbers, &err), 0);
    ck_assert_uint_eq(numbers.rope_dim, 64);
    model_free(model);
    model = model_from_catalogue("gemma-4-26b-a4b:Q8_0", &err);
    ck_assert_int_eq(numbers_of(model, NULL, &numbers, &err), 0);
    ck_assert_uint_eq(numbers.rope_dim, 512);
    ck_assert_uint_eq(numbers.rope_dim_sliding, 256);
    model_free(model);
    model = model_from_catalogue("qwen3-30b-a3b:Q8_0", &err);
    ck_assert_int_eq(numbers_of(model, NULL, &numbers, &err), 0);
    ck_assert_uint_eq(numbers.rope_dim, 128);
    model_free(model);
}
END_TEST

/* ---- keys ---- */

START_TEST(keys_win_over_usual_numbers)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.attention.layer_norm_rms_epsilon", 1e-3f, &err),
                     0);
    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.rope.freq_base", 5000, &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.rope.freq_base_swa", 400, &err), 0);
    ck_assert_int_eq(gguf_write_u32(writer, "gemma4.rope.dimension_count", 48, &err), 0);
    ck_assert_int_eq(gguf_write_u32(writer, "gemma4.rope.dimension_count_swa", 16, &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.final_logit_softcapping", 15, &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.attention.scale", 0.5f, &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.expert_weights_scale", 2, &err), 0);
    ck_assert_int_eq(gguf_write_bool(writer, "gemma4.expert_weights_norm", false, &err), 0);
    ck_assert_msg(numbers_with("tiny-gemma4", writer, &numbers, &err) == 0, "%s", err.text);
    ck_assert_float_eq(numbers.norm_eps, 1e-3f);
    ck_assert_double_eq(numbers.rope_base, 5000);
    ck_assert_double_eq(numbers.rope_base_sliding, 400);
    ck_assert_uint_eq(numbers.rope_dim, 48);
    ck_assert_uint_eq(numbers.rope_dim_sliding, 16);
    ck_assert_float_eq(numbers.logit_softcap, 15);
    ck_assert_float_eq(numbers.attention_scale, 0.5f);
    ck_assert_float_eq(numbers.expert_scale, 2);
    ck_assert(!numbers.router_normalised);
}
END_TEST

START_TEST(the_keys_of_another_architecture_are_not_read)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_f32(writer, "qwen3.rope.freq_base", 5000, &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), 0);
    ck_assert_double_eq(numbers.rope_base, 1e4);
}
END_TEST

START_TEST(a_linear_factor_divides_positions)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_string(writer, "llama.rope.scaling.type", "linear", &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "llama.rope.scaling.factor", 4, &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), 0);
    ck_assert_double_eq(numbers.rope_scale, 0.25);
}
END_TEST

START_TEST(a_factor_of_no_scaling_is_left_alone)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_string(writer, "llama.rope.scaling.type", "none", &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "llama.rope.scaling.factor", 4, &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), 0);
    ck_assert_double_eq(numbers.rope_scale, 1);
}
END_TEST

/* ---- refusals ---- */

START_TEST(an_architecture_that_is_not_computed_is_refused_naming_those_that_are)
{
    struct error err = {0};
    struct model *model = model_from_catalogue("gpt-oss-20b:Q8_0", &err);
    struct numbers numbers = {.rope_dim = 7};

    ck_assert_ptr_nonnull(model);
    ck_assert_int_eq(numbers_of(model, NULL, &numbers, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "gpt-oss"));
    ck_assert_ptr_nonnull(strstr(err.text, "llama"));
    ck_assert_ptr_nonnull(strstr(err.text, "qwen35moe"));
    ck_assert_ptr_nonnull(strstr(err.text, "muse-glimmer"));
    ck_assert_uint_eq(numbers.rope_dim, 7);
    model_free(model);
}
END_TEST

START_TEST(another_scaling_of_positions_is_refused_by_name)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_string(writer, "llama.rope.scaling.type", "yarn", &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "yarn"));
    ck_assert_ptr_nonnull(strstr(err.text, "linear"));
    ck_assert_str_eq(err.source, "keys.gguf");
}
END_TEST

START_TEST(a_linear_factor_beside_sliding_windows_is_refused)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_f32(writer, "gemma4.rope.scaling.factor", 8, &err), 0);
    ck_assert_int_eq(numbers_with("tiny-gemma4", writer, &numbers, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
}
END_TEST

/* A key of "llama." and a number that it cannot have. */
static const struct {
    const char *key;
    float value;
} impossible[] = {
    {"llama.attention.layer_norm_rms_epsilon", 0},
    {"llama.attention.layer_norm_rms_epsilon", NAN},
    {"llama.rope.freq_base", 1},
    {"llama.rope.freq_base", INFINITY},
    {"llama.attention.scale", -1},
    {"llama.rope.dimension_count", 2.5f},
    {"llama.rope.scaling.factor", -2},
};

START_TEST(a_number_that_cannot_be_is_refused_with_its_key)
{
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_f32(writer, impossible[_i].key, impossible[_i].value, &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), -1);
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, impossible[_i].key));
}
END_TEST

START_TEST(values_that_cannot_turn_in_pairs_are_refused)
{
    static const uint32_t counts[] = {31, 34};
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    struct numbers numbers;

    ck_assert_int_eq(gguf_write_u32(writer, "llama.rope.dimension_count", counts[_i], &err), 0);
    ck_assert_int_eq(numbers_with("tiny-llama", writer, &numbers, &err), -1);
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "llama.rope.dimension_count"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numbers");
    TCase *usually = tcase_create("usual"), *keys = tcase_create("keys");
    TCase *refusals = tcase_create("refusals");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(usually, without_a_file_an_architecture_has_its_usual_numbers, 0,
                        sizeof usual / sizeof *usual);
    tcase_add_loop_test(usually, the_keys_of_a_small_model_give_the_same_numbers, 0,
                        sizeof usual / sizeof *usual);
    tcase_add_test(usually, models_of_the_catalogue_turn_the_values_that_they_should);
    tcase_add_test(keys, keys_win_over_usual_numbers);
    tcase_add_test(keys, the_keys_of_another_architecture_are_not_read);
    tcase_add_test(keys, a_linear_factor_divides_positions);
    tcase_add_test(keys, a_factor_of_no_scaling_is_left_alone);
    tcase_add_test(refusals, an_architecture_that_is_not_computed_is_refused_naming_those_that_are);
    tcase_add_test(refusals, another_scaling_of_positions_is_refused_by_name);
    tcase_add_test(refusals, a_linear_factor_beside_sliding_windows_is_refused);
    tcase_add_loop_test(refusals, a_number_that_cannot_be_is_refused_with_its_key, 0,
                        sizeof impossible / sizeof *impossible);
    tcase_add_loop_test(refusals, values_that_cannot_turn_in_pairs_are_refused, 0, 2);
    suite_add_tcase(suite, usually);
    suite_add_tcase(suite, keys);
    suite_add_tcase(suite, refusals);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
