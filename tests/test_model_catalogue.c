#include "sim/model.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model *open_model(const char *spec)
{
    struct error err = {0};
    struct model *model = model_from_catalogue(spec, &err);

    ck_assert_msg(model != NULL, "%s: %s", spec, err.text);
    return model;
}

/* tests/data/mix_totals.json */
static json_t *load_totals(void)
{
    const char *srcdir = getenv("srcdir");
    char path[512];
    json_error_t err;
    json_t *totals;

    snprintf(path, sizeof path, "%s/tests/data/mix_totals.json", srcdir ? srcdir : ".");
    totals = json_load_file(path, 0, &err);
    ck_assert_msg(totals != NULL, "%s: %s", path, err.text);
    return totals;
}

static uint64_t integer_at(const json_t *row, size_t index)
{
    return (uint64_t)json_integer_value(json_array_get(row, index));
}

static size_t count_type(const struct model *model, enum tensor_type type)
{
    size_t count = 0;

    for (size_t i = 0; i < model->tensor_count; i++)
        count += model->tensors[i].type == type;
    return count;
}

static uint64_t bytes_of_layers(const struct model *model, int first, int end)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].layer >= first && model->tensors[i].layer < end)
            bytes += model->tensors[i].bytes;
    return bytes;
}

/* Elements published for each model; two llamas count no rope_freqs, which has 64. */
static const struct {
    const char *name;
    uint64_t params;
    uint64_t more;
    const char *size_label;
} published[] = {
    {"Qwen3.8-27B", 27320697856, 0, "27B"},
    {"Qwen3.6-27B", 26895998464, 0, "27B"},
    {"Qwen3.5-27B", 26895998464, 0, "27B"},
    {"Ornith-1.5-35B-A3B", 35505251456, 0, "35B.A3B"},
    {"Qwen3.6-35B-A3B", 34660610688, 0, "35B.A3B"},
    {"Qwen3-0.6B", 596049920, 0, "0.6B"},
    {"Qwen3-8B", 8190735360, 0, "8B"},
    {"Qwen3-32B", 32762123264, 0, "32B"},
    {"Qwen3-30B-A3B", 30532122624, 0, "30B.A3B"},
    {"Llama-2-7B", 6738415616, 0, "7B"},
    {"Llama-3.1-8B", 8030261248, 64, "8B"},
    {"Llama-3.3-70B", 70553706496, 64, "70B"},
    {"Mistral-Small-24B-2501", 23572403200, 0, "13B"},
    {"Muse-Glimmer-30B", 27854794240, 0, "30B"},
    {"gemma-4-26B-A4B", 25233142046, 0, "26B.A4B"},
    {"gemma-4-31B", 30697345596, 0, "31B"},
    {"gpt-oss-20b", 20914757184, 0, "20B"},
    {"gpt-oss-120b", 116829156672, 0, "120B"},
    {"DeepSeek-V3", 671026419200, 0, "671B"},
    {"GLM-4.5-Air", 110468824832, 0, "106B.A12B"},
};

START_TEST(the_first_blocks_of_a_model_keep_their_tensors_and_the_globals)
{
    struct model *whole = open_model("qwen3-8b:Q8_0"), *part = open_model("qwen3-8b:Q8_0");
    uint64_t bytes = 0;

    model_keep_layers(part, 3);
    ck_assert_uint_eq(part->n_layer, 3);
    for (size_t i = 0; i < part->tensor_count; i++) {
        ck_assert_int_lt(part->tensors[i].layer, 3);
        ck_assert_str_eq(part->tensors[i].name, whole->tensors[i].name);
        bytes += part->tensors[i].bytes;
    }
    ck_assert_uint_eq(part->tensor_bytes, bytes);
    ck_assert_ptr_nonnull(model_find_tensor(part, -1, TENSOR_ROLE_OUTPUT_NORM));
    ck_assert_ptr_nonnull(model_find_tensor(part, 2, TENSOR_ROLE_FFN_DOWN));
    ck_assert_ptr_null(model_find_tensor(part, 3, TENSOR_ROLE_FFN_DOWN));
    ck_assert_int_eq(whole->tensors[part->tensor_count].layer, 3);
    model_keep_layers(part, 100);
    ck_assert_uint_eq(part->n_layer, 3);
    model_free(whole);
    model_free(part);
}
END_TEST

START_TEST(every_model_has_the_published_parameter_count)
{
    char spec[128];
    struct model *model;
    const struct model_card *card = model_catalogue_card((size_t)_i);

    ck_assert_uint_eq(model_catalogue_count(), sizeof published / sizeof published[0]);
    snprintf(spec, sizeof spec, "%s:Q8_0", published[_i].name);
    model = open_model(spec);
    ck_assert_uint_eq(model->params, published[_i].params + published[_i].more);
    ck_assert_str_eq(model->size_label, published[_i].size_label);
    ck_assert_str_eq(card->name, published[_i].name);
    ck_assert_uint_eq(card->params, model->params);
    ck_assert_uint_eq(card->n_layer, model->n_layer);
    ck_assert_uint_eq(card->n_layer_nextn, model->n_layer_nextn);
    model_free(model);
}
END_TEST

START_TEST(plain_mixes_have_the_published_totals_and_type_counts)
{
    json_t *totals = load_totals();
    const json_t *rows = json_object_get(totals, "totals");

    ck_assert_uint_eq(json_array_size(rows), 161);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_array_get(row, 0));
        const char *quant = json_string_value(json_array_get(row, 1));
        bool has_nextn;
        char spec[128];
        struct model *model;

        snprintf(spec, sizeof spec, "%s:%s", name, quant);
        model = open_model(spec);
        has_nextn = model->n_layer_nextn > 0;
        ck_assert_msg(model->tensor_bytes == integer_at(row, has_nextn ? 3 : 2), "%s: %llu bytes",
                      spec, (unsigned long long)model->tensor_bytes);
        for (uint32_t id = 0; id < TENSOR_TYPE_LIMIT; id++) {
            const struct tensor_type_info *info = tensor_type_info(id);
            json_t *count = info ? json_object_get(json_array_get(row, 4), info->name) : NULL;

            if (has_nextn || integer_at(row, 3) == 0)
                ck_assert_msg(count_type(model, (enum tensor_type)id) ==
                                  (size_t)json_integer_value(count),
                              "%s: tensors of type %u", spec, (unsigned)id);
        }
        model_free(model);
    }
    json_decref(totals);
}
END_TEST

START_TEST(released_files_are_the_tensors_and_a_header)
{
    json_t *totals = load_totals();
    const json_t *rows = json_object_get(totals, "released");

    ck_assert_uint_gt(json_array_size(rows), 30);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *spec = json_string_value(json_array_get(row, 0));
        struct model *model = open_model(spec);

        ck_assert_msg(model->tensor_bytes + integer_at(row, 2) == integer_at(row, 1),
                      "%s: %llu bytes", spec, (unsigned long long)model->tensor_bytes);
        model_free(model);
    }
    json_decref(totals);
}
END_TEST

/* Bits per weight of Llama-3.1-8B. Source: tools/quantize/README.md of llama.cpp. */
static const struct {
    const char *quant;
    double bits;
} bits_per_weight[] = {
    {"IQ1_S", 2.0042},  {"IQ1_M", 2.1460},  {"IQ2_XXS", 2.3824}, {"IQ2_XS", 2.5882},
    {"IQ2_S", 2.7403},  {"IQ2_M", 2.9294},  {"IQ3_XXS", 3.2548}, {"IQ3_XS", 3.4977},
    {"IQ3_S", 3.6606},  {"IQ3_M", 3.7628},  {"IQ4_XS", 4.4597},  {"IQ4_NL", 4.6818},
    {"Q2_K_S", 2.9697}, {"Q2_K", 3.1593},   {"Q3_K_S", 3.6429},  {"Q3_K_M", 3.9960},
    {"Q3_K_L", 4.2979}, {"Q4_K_S", 4.6672}, {"Q4_K_M", 4.8944},  {"Q5_K_S", 5.5704},
    {"Q5_K_M", 5.7036}, {"Q6_K", 6.5633},   {"Q8_0", 8.5008},    {"F16", 16.0005},
};

START_TEST(llama_8b_has_the_published_bits_per_weight)
{
    char spec[64];
    struct model *model;

    snprintf(spec, sizeof spec, "Llama-3.1-8B:%s", bits_per_weight[_i].quant);
    model = open_model(spec);
    ck_assert_double_eq_tol(8.0 * (double)model->tensor_bytes / (double)model->params,
                            bits_per_weight[_i].bits, 5e-5);
    model_free(model);
}
END_TEST

START_TEST(ud_iq2_m_fills_the_buffers_of_the_loader_log)
{
    struct model *model = open_model("qwen3.8-27b:ud-iq2_m");
    uint64_t embedding = model_find_tensor(model, -1, TENSOR_ROLE_TOKEN_EMBD)->bytes;
    uint64_t nextn = bytes_of_layers(model, 64, 65);

    ck_assert_str_eq(model->name, "Qwen3.8-27B");
    ck_assert_str_eq(model->quant, "UD-IQ2_M");
    ck_assert_uint_eq(embedding, 417177600);
    ck_assert_uint_eq(nextn, 215595008);
    ck_assert_uint_eq(model->tensor_bytes - embedding - nextn, 9676138496);
    ck_assert_uint_eq(model->tensor_count, 866);
    model_free(model);
}
END_TEST

START_TEST(ud_q5_k_m_has_the_known_counts_and_bytes)
{
    struct model *model = open_model("qwen3.8-27b:UD-Q5_K_M");

    ck_assert_uint_eq(count_type(model, TENSOR_TYPE_F32), 360);
    ck_assert_uint_eq(count_type(model, TENSOR_TYPE_Q8_0), 124);
    ck_assert_uint_eq(count_type(model, TENSOR_TYPE_Q6_K), 160);
    ck_assert_uint_eq(count_type(model, TENSOR_TYPE_Q5_K), 189);
    ck_assert_uint_eq(count_type(model, TENSOR_TYPE_Q4_K) + count_type(model, TENSOR_TYPE_IQ4_XS),
                      33);
    ck_assert_uint_eq(model->tensor_bytes, 19760513024);
    ck_assert_int_eq(model_find_tensor(model, -1, TENSOR_ROLE_OUTPUT)->type, TENSOR_TYPE_Q6_K);
    ck_assert_ptr_nonnull(strstr(model->mix_note, "inferred"));
    model_free(model);
}
END_TEST

START_TEST(ud_q5_k_m_spreads_its_types_over_the_layers)
{
    struct model *model = open_model("qwen3.8-27b:UD-Q5_K_M");
    double mean = (double)bytes_of_layers(model, 0, 64) / 8;

    for (int i = 0; i < 64; i += 8)
        ck_assert_double_eq_tol((double)bytes_of_layers(model, i, i + 8) / mean, 1, 0.006);
    model_free(model);
}
END_TEST

/* Values that a token adds to the cache: growing layers, windowed layers, nextn apart. */
static const struct {
    const char *name;
    uint64_t growing, windowed;
} cache_rows[] = {
    {"Qwen3.8-27B", 32768, 0},          {"Ornith-1.5-35B-A3B", 10240, 0},
    {"Qwen3-0.6B", 57344, 0},           {"Qwen3-32B", 131072, 0},
    {"Qwen3-30B-A3B", 49152, 0},        {"Llama-2-7B", 262144, 0},
    {"Llama-3.3-70B", 163840, 0},       {"Muse-Glimmer-30B", 6656, 19968},
    {"gemma-4-26B-A4B", 10240, 102400}, {"gemma-4-31B", 40960, 409600},
    {"gpt-oss-20b", 12288, 12288},      {"gpt-oss-120b", 18432, 18432},
    {"DeepSeek-V3", 35136, 0},          {"GLM-4.5-Air", 94208, 0},
};

START_TEST(a_token_adds_the_published_values_to_the_cache)
{
    char spec[64];
    uint64_t growing = 0, windowed = 0;
    struct model *model;

    snprintf(spec, sizeof spec, "%s:Q8_0", cache_rows[_i].name);
    model = open_model(spec);
    for (uint32_t i = 0; i < model->n_layer; i++) {
        const struct model_layer *layer = &model->layers[i];
        uint64_t values = model_layer_k_row(layer) + model_layer_v_row(layer);

        *(layer->mixer == MODEL_MIXER_SLIDING_WINDOW ? &windowed : &growing) += values;
        ck_assert_int_eq(layer->mixer == MODEL_MIXER_SLIDING_WINDOW, layer->window > 0);
    }
    ck_assert_uint_eq(growing, cache_rows[_i].growing);
    ck_assert_uint_eq(windowed, cache_rows[_i].windowed);
    model_free(model);
}
END_TEST

START_TEST(the_recurrent_state_of_qwen_has_its_size)
{
    struct model *model = open_model("Qwen3.8-27B:Q8_0");
    uint64_t values = 0;

    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++)
        values += model_layer_conv_state(&model->layers[i]) +
                  model_layer_recurrent_state(&model->layers[i]);
    ck_assert_uint_eq(values * sizeof(float), 156893184);
    model_free(model);
}
END_TEST

START_TEST(geometry_of_each_kind_is_read)
{
    struct model *model = open_model("Qwen3.8-27B:Q8_0");
    const struct model_layer *layer = &model->layers[3];

    ck_assert_int_eq(model->layers[0].mixer, MODEL_MIXER_GATED_DELTA_NET);
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_ATTENTION);
    ck_assert(layer->q_gated);
    ck_assert_uint_eq(layer->n_head, 24);
    ck_assert_uint_eq(layer->n_ff, 17408);
    ck_assert(model->layers[64].is_nextn);
    ck_assert_uint_eq(model->layers[64].head_dim_k, 256);
    model_free(model);

    model = open_model("gemma-4-26B-A4B:Q8_0");
    layer = &model->layers[5];
    ck_assert(layer->v_from_k && model->tied_embeddings);
    ck_assert_uint_eq(layer->head_dim_v, 512);
    ck_assert_uint_eq(layer->n_ff, 2112);
    ck_assert_uint_eq(layer->n_expert, 128);
    ck_assert_uint_eq(layer->n_ff_exp, 704);
    ck_assert_uint_eq(model->layers[0].window, 1024);
    model_free(model);

    model = open_model("DeepSeek-V3:Q8_0");
    ck_assert_int_eq(model->layers[0].mixer, MODEL_MIXER_MLA);
    ck_assert(model->layers[0].v_in_k);
    ck_assert_uint_eq(model->layers[0].n_expert, 0);
    ck_assert_uint_eq(model->layers[3].n_ff, 0);
    ck_assert_uint_eq(model->layers[3].n_ff_shexp, 2048);
    model_free(model);
}
END_TEST

START_TEST(a_mix_says_whether_the_nextn_block_is_there)
{
    struct model *without = open_model("Ornith-1.5-35B-A3B:Q4_K_M");
    struct model *with = open_model("Qwen3.6-35B-A3B:Q8_0-nextn");

    ck_assert_uint_eq(without->n_layer_nextn, 0);
    ck_assert_uint_eq(with->n_layer_nextn, 1);
    model_free(without);
    model_free(with);
}
END_TEST

START_TEST(a_mix_known_by_its_size_only_says_so)
{
    struct model *model = open_model("Muse-Glimmer-30B:UD-Q5_K_M");

    ck_assert_uint_eq(model->tensor_bytes, 19798262016);
    ck_assert_str_eq(model->quant, "UD-Q5_K_M");
    ck_assert_ptr_nonnull(strstr(model->mix_note, "19194274848 bytes (0.969"));
    model_free(model);
}
END_TEST

START_TEST(patterns_and_fallbacks_work_together)
{
    struct model *model = open_model("GLM-4.5-Air:q4_k_m-GGML-ORG");

    ck_assert_int_eq(model_find_tensor(model, 1, TENSOR_ROLE_FFN_DOWN_EXPS)->type,
                     TENSOR_TYPE_Q4_0);
    ck_assert_int_eq(model_find_tensor(model, 1, TENSOR_ROLE_ATTN_K)->type, TENSOR_TYPE_Q8_0);
    ck_assert_int_eq(model_find_tensor(model, 1, TENSOR_ROLE_ATTN_NORM)->type, TENSOR_TYPE_F32);
    ck_assert_int_eq(model_find_tensor(model, 0, TENSOR_ROLE_FFN_DOWN)->type, TENSOR_TYPE_Q5_0);
    model_free(model);
}
END_TEST

START_TEST(every_mix_of_every_model_builds)
{
    const struct model_card *card = model_catalogue_card((size_t)_i);

    for (size_t i = 0; i < card->quant_count; i++) {
        char spec[160];
        struct model *model;

        snprintf(spec, sizeof spec, "%s:%s", card->name, card->quants[i]);
        model = open_model(spec);
        ck_assert_str_eq(model->quant, card->quants[i]);
        ck_assert_uint_lt(strlen(model->mix_note), sizeof model->mix_note - 1);
        ck_assert_uint_eq(model->n_layer, card->n_layer);
        for (uint32_t j = 0; j < model->n_layer + model->n_layer_nextn; j++)
            ck_assert_uint_gt(model->layers[j].tensor_count, 0);
        for (size_t j = 0; j < model->tensor_count; j++)
            ck_assert_msg(model->tensors[j].role != TENSOR_ROLE_OTHER, "%s: %s", spec,
                          model->tensors[j].name);
        for (size_t j = i + 1; j < card->quant_count; j++)
            ck_assert_str_ne(card->quants[i], card->quants[j]);
        model_free(model);
    }
}
END_TEST

static const struct {
    const char *spec, *text;
} refusals[] = {
    {"qwen3.8-27:Q8_0", "no model \"qwen3.8-27\"; did you mean Qwen3.8-27B? known are "
                        "Qwen3.8-27B, Qwen3.6-27B, "},
    {"", "no model \"\"; known are Qwen3.8-27B, "},
    {"Qwen3.8-27B", "Qwen3.8-27B needs a mix behind a colon, as in Qwen3.8-27B:UD-Q5_K_M; "
                    "known are UD-Q5_K_M, UD-IQ2_M, UD-Q4_K_XL, UD-Q5_K_XL, "},
    {"qwen3-8b:", "Qwen3-8B needs a mix behind a colon, as in Qwen3-8B:Q4_K_M; "
                  "known are the plain mixes of llama.cpp: F32, F16, "},
    {"Qwen3-8B:Q4_K_N", "Qwen3-8B has no mix \"Q4_K_N\"; did you mean Q4_K_M? known are "},
    {"Qwen3-8B:nonsense", "Qwen3-8B has no mix \"nonsense\"; known are the plain mixes"},
};

START_TEST(a_refusal_lists_what_is_known)
{
    struct error err = {0};

    ck_assert_ptr_null(model_from_catalogue(refusals[_i].spec, &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_msg(strncmp(err.text, refusals[_i].text, strlen(refusals[_i].text)) == 0,
                  "unexpected: %s", err.text);
    ck_assert_uint_lt(strlen(err.text), sizeof err.text - 1);
}
END_TEST

START_TEST(the_list_of_models_is_whole)
{
    struct error err = {0};

    ck_assert_ptr_null(
        model_from_catalogue("nothing like these forty letters or even more of them", &err));
    for (size_t i = 0; i < model_catalogue_count(); i++)
        ck_assert_msg(strstr(err.text, model_catalogue_card(i)->name) != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_spec_that_is_no_file_opens_from_the_catalogue)
{
    struct error err = {0};
    struct model *model = model_open("qwen3-0.6B:q4_k_m", &err);

    ck_assert_ptr_nonnull(model);
    ck_assert_str_eq(model->source, "catalogue");
    ck_assert_str_eq(model->arch, "qwen3");
    model_free(model);
    ck_assert_ptr_null(model_open("no-such-file.gguf", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
}
END_TEST

START_TEST(an_alias_of_a_mix_is_that_mix)
{
    struct error err = {0};
    struct model *model = model_from_catalogue("qwen3-0.6B:q4_k", &err);

    ck_assert_msg(model != NULL, "%s", err.text);
    ck_assert_str_eq(model->quant, "Q4_K_M");
    model_free(model);
}
END_TEST

START_TEST(a_card_behind_the_last_is_nothing)
{
    ck_assert_ptr_null(model_catalogue_card(model_catalogue_count()));
}
END_TEST

#define ROWS(table) (int)(sizeof table / sizeof table[0])

int main(void)
{
    Suite *suite = suite_create("model_catalogue");
    TCase *figures = tcase_create("figures"), *lookup = tcase_create("lookup");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(figures, 120);
    tcase_add_test(figures, the_first_blocks_of_a_model_keep_their_tensors_and_the_globals);
    tcase_add_loop_test(figures, every_model_has_the_published_parameter_count, 0, ROWS(published));
    tcase_add_test(figures, plain_mixes_have_the_published_totals_and_type_counts);
    tcase_add_test(figures, released_files_are_the_tensors_and_a_header);
    tcase_add_loop_test(figures, llama_8b_has_the_published_bits_per_weight, 0,
                        ROWS(bits_per_weight));
    tcase_add_test(figures, ud_iq2_m_fills_the_buffers_of_the_loader_log);
    tcase_add_test(figures, ud_q5_k_m_has_the_known_counts_and_bytes);
    tcase_add_test(figures, ud_q5_k_m_spreads_its_types_over_the_layers);
    tcase_add_loop_test(figures, a_token_adds_the_published_values_to_the_cache, 0,
                        ROWS(cache_rows));
    tcase_add_test(figures, the_recurrent_state_of_qwen_has_its_size);
    tcase_add_test(figures, geometry_of_each_kind_is_read);
    tcase_add_test(figures, a_mix_says_whether_the_nextn_block_is_there);
    tcase_add_test(figures, a_mix_known_by_its_size_only_says_so);
    tcase_add_test(figures, patterns_and_fallbacks_work_together);
    tcase_add_loop_test(figures, every_mix_of_every_model_builds, 0, ROWS(published));
    tcase_add_loop_test(lookup, a_refusal_lists_what_is_known, 0, ROWS(refusals));
    tcase_add_test(lookup, the_list_of_models_is_whole);
    tcase_add_test(lookup, a_spec_that_is_no_file_opens_from_the_catalogue);
    tcase_add_test(lookup, an_alias_of_a_mix_is_that_mix);
    tcase_add_test(lookup, a_card_behind_the_last_is_nothing);
    suite_add_tcase(suite, figures);
    suite_add_tcase(suite, lookup);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
