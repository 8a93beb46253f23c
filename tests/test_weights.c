/* Weights from files and synthetic ones, the writer of GGUF files and the small models. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ref/gguf_write.h"
#include "ref/numbers.h"
#include "ref/model_write.h"
#include "ref/shape.h"
#include "ref/weights.h"
#include "tests/gguf_writer.h"

static const char *const specs[] = {
    "tiny-llama",     "tiny-llama:F16",      "tiny-qwen3:BF16",        "tiny-qwen35:Q4_K",
    "tiny-qwen35moe", "tiny-gemma4:Q6_K",    "tiny-muse-glimmer:Q5_K", "TINY-LLAMA:q4_0",
    "tiny-gemma4",    "tiny-qwen35moe:Q4_0", "tiny-muse-glimmer:F32",
};

#define SPEC_COUNT (sizeof specs / sizeof *specs)

static char path[] = "lopside-weights.XXXXXX";

static void make_path(void)
{
    int file = mkstemp(path);

    ck_assert_int_ge(file, 0);
    close(file);
}

static void remove_path(void)
{
    unlink(path);
}

static struct model *open_shape(const char *spec)
{
    struct error err = {0};
    struct model *model = shape_open(spec, &err);

    ck_assert_msg(model != NULL, "%s: %s", spec, err.text);
    return model;
}

static void write_shape(const char *spec, uint64_t seed)
{
    struct error err = {0};

    ck_assert_msg(shape_write_gguf(spec, seed, path, &err) == 0, "%s: %s", spec, err.text);
}

/* ---- files of synthetic weights ---- */

START_TEST(a_written_file_holds_the_synthetic_weights)
{
    struct error err = {0};
    struct model *model = open_shape(specs[_i]), *read;
    struct weights *made = weights_synthetic(model, 11, &err), *mapped;

    write_shape(specs[_i], 11);
    read = model_load_gguf(path, &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    mapped = weights_open_gguf(read, path, &err);
    ck_assert_msg(mapped != NULL, "%s", err.text);
    ck_assert_uint_eq(read->tensor_count, model->tensor_count);
    for (size_t i = 0; i < model->tensor_count; i++) {
        ck_assert_str_eq(read->tensors[i].name, model->tensors[i].name);
        ck_assert_uint_eq(read->tensors[i].bytes, model->tensors[i].bytes);
        ck_assert_mem_eq(weights_tensor(mapped, i, &err), weights_tensor(made, i, &err),
                         model->tensors[i].bytes);
    }
    weights_free(mapped);
    weights_free(made);
    model_free(read);
    model_free(model);
}
END_TEST

START_TEST(a_tensor_is_made_once)
{
    struct error err = {0};
    struct model *model = open_shape("tiny-llama");
    struct weights *weights = weights_synthetic(model, 0, &err);
    const void *first = weights_tensor(weights, 3, &err);

    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_eq(weights_tensor(weights, 3, &err), first);
    weights_free(weights);
    model_free(model);
}
END_TEST

START_TEST(no_weights_are_freed_without_harm)
{
    weights_free(NULL);
    gguf_write_free(NULL);
}
END_TEST

/* ---- files that are not right ---- */

START_TEST(a_file_cut_off_is_refused_with_its_name_and_a_tensor)
{
    struct error err = {0};
    struct model *model = open_shape("tiny-llama");
    const struct model_tensor *last = &model->tensors[model->tensor_count - 1];
    FILE *file;

    write_shape("tiny-llama", 0);
    file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    ck_assert_int_eq(ftruncate(fileno(file), ftell(file) - 1), 0);
    fclose(file);
    ck_assert_ptr_null(weights_open_gguf(model, path, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_str_eq(err.source, path);
    ck_assert_ptr_nonnull(strstr(err.text, last->name));
    ck_assert_ptr_nonnull(strstr(err.text, "cut off"));
    model_free(model);
}
END_TEST

START_TEST(a_file_of_another_model_is_refused)
{
    struct error err = {0};
    struct model *model = open_shape("tiny-llama"), *other = open_shape("tiny-llama:F16");

    write_shape("tiny-llama", 0);
    ck_assert_ptr_null(weights_open_gguf(other, path, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "token_embd.weight"));
    model_free(other);
    other = open_shape("tiny-qwen3");
    err = (struct error){0};
    ck_assert_ptr_null(weights_open_gguf(other, path, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    model_free(other);
    model_free(model);
}
END_TEST

START_TEST(a_missing_file_is_refused)
{
    struct error err = {0};
    struct model *model = open_shape("tiny-llama");

    ck_assert_ptr_null(weights_open_gguf(model, "no-such-file.gguf", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(err.source, "no-such-file.gguf");
    model_free(model);
}
END_TEST

START_TEST(a_file_of_the_other_byte_order_is_refused)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct model *model;

    gguf_writer_init(&writer, 3, true);
    gguf_writer_key_string(&writer, "general.architecture", "llama");
    gguf_writer_key_u32(&writer, "llama.block_count", 1);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 1);
    gguf_writer_weight(&writer, "token_embd.weight", TENSOR_TYPE_F32, 32, 32, 1);
    gguf_writer_weight(&writer, "blk.0.ffn_down.weight", TENSOR_TYPE_F32, 32, 32, 1);
    ck_assert(gguf_writer_save(&writer, path));
    model = model_load_gguf(path, &err);
    ck_assert_msg(model != NULL, "%s", err.text);
    ck_assert_ptr_null(weights_open_gguf(model, path, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "big-endian"));
    model_free(model);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(a_type_that_is_not_made_is_refused_when_weights_are_opened)
{
    struct error err = {0};
    struct model *model = model_from_catalogue("qwen3.8-27b:UD-IQ2_M", &err);

    ck_assert_ptr_nonnull(model);
    ck_assert_ptr_null(weights_synthetic(model, 0, &err));
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_int_eq(model_write_gguf(model, 0, path, &err), -1);
    model_free(model);
}
END_TEST

START_TEST(a_failed_file_is_taken_away)
{
    struct error err = {0};

    ck_assert_int_eq(shape_write_gguf("tiny-llama", 0, "no-such-folder/a.gguf", &err), -1);
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(err.source, "no-such-folder/a.gguf");
}
END_TEST

static int fail_at_second(void *context, size_t index, uint64_t offset, void *bytes, size_t size,
                          struct error *err)
{
    (void)context;
    (void)offset;
    memset(bytes, 0, size);
    return index == 1 ? error_set(err, ERROR_MEMORY, "no second tensor") : 0;
}

START_TEST(what_a_source_of_bytes_says_ends_the_writing)
{
    static const uint64_t ne[] = {32, 1, 1, 1};
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);

    ck_assert_int_eq(gguf_write_tensor(writer, "a", TENSOR_TYPE_F32, ne, &err), 0);
    ck_assert_int_eq(gguf_write_tensor(writer, "b", TENSOR_TYPE_F32, ne, &err), 0);
    ck_assert_int_eq(gguf_write_file(writer, path, fail_at_second, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_MEMORY);
    ck_assert_int_ne(access(path, F_OK), 0);
    gguf_write_free(writer);
}
END_TEST

/* ---- the writer ---- */

START_TEST(keys_of_every_type_are_read_back)
{
    static const char *const words[] = {"one", "", "three"};
    static const int16_t numbers[] = {-1, 2, 300};
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    unsigned char *header;
    struct gguf *gguf;
    const char *text;
    size_t size, length;
    uint64_t whole;
    float real;
    bool truth;

    ck_assert_int_eq(gguf_write_value(writer, "u8", GGUF_TYPE_UINT8, &(uint8_t){200}, &err), 0);
    ck_assert_int_eq(gguf_write_value(writer, "i8", GGUF_TYPE_INT8, &(int8_t){-2}, &err), 0);
    ck_assert_int_eq(gguf_write_value(writer, "u16", GGUF_TYPE_UINT16, &(uint16_t){60000}, &err),
                     0);
    ck_assert_int_eq(gguf_write_value(writer, "i32", GGUF_TYPE_INT32, &(int32_t){70000}, &err), 0);
    ck_assert_int_eq(gguf_write_value(writer, "u64", GGUF_TYPE_UINT64, &(uint64_t){1}, &err), 0);
    ck_assert_int_eq(gguf_write_value(writer, "i64", GGUF_TYPE_INT64, &(int64_t){-9}, &err), 0);
    ck_assert_int_eq(gguf_write_value(writer, "f64", GGUF_TYPE_FLOAT64, &(double){0.5}, &err), 0);
    ck_assert_int_eq(gguf_write_u32(writer, "u32", 4000000000u, &err), 0);
    ck_assert_int_eq(gguf_write_f32(writer, "f32", 0.25f, &err), 0);
    ck_assert_int_eq(gguf_write_bool(writer, "bool", true, &err), 0);
    ck_assert_int_eq(gguf_write_string(writer, "string", "text", &err), 0);
    ck_assert_int_eq(gguf_write_array(writer, "words", GGUF_TYPE_STRING, words, 3, &err), 0);
    ck_assert_int_eq(gguf_write_array(writer, "numbers", GGUF_TYPE_INT16, numbers, 3, &err), 0);
    ck_assert_int_eq(gguf_write_array(writer, "none", GGUF_TYPE_UINT32, NULL, 0, &err), 0);
    header = gguf_write_header(writer, &size, &err);
    ck_assert_ptr_nonnull(header);
    gguf = gguf_parse(header, size, "header", &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);
    ck_assert_uint_eq(gguf_key_count(gguf), 14);
    ck_assert(gguf_get_u64(gguf, "u8", &whole) && whole == 200);
    ck_assert(gguf_get_f32(gguf, "i8", &real) && real == -2);
    ck_assert(gguf_get_u64(gguf, "u16", &whole) && whole == 60000);
    ck_assert(gguf_get_u64(gguf, "i32", &whole) && whole == 70000);
    ck_assert(gguf_get_u64(gguf, "u64", &whole) && whole == 1);
    ck_assert(gguf_get_f32(gguf, "i64", &real) && real == -9);
    ck_assert(gguf_get_f32(gguf, "f64", &real) && real == 0.5f);
    ck_assert(gguf_get_u64(gguf, "u32", &whole) && whole == 4000000000u);
    ck_assert(gguf_get_f32(gguf, "f32", &real) && real == 0.25f);
    ck_assert(gguf_get_bool(gguf, "bool", &truth) && truth);
    ck_assert(gguf_get_string(gguf, "string", &text, &length));
    ck_assert(length == 4 && memcmp(text, "text", 4) == 0);
    ck_assert(gguf_get_string_at(gguf, "words", 2, &text, &length));
    ck_assert(length == 5 && memcmp(text, "three", 5) == 0);
    ck_assert(gguf_get_u64_at(gguf, "numbers", 2, &whole) && whole == 300);
    ck_assert_uint_eq(gguf_find_key(gguf, "none")->count, 0);
    gguf_free(gguf);
    free(header);
    gguf_write_free(writer);
}
END_TEST

START_TEST(what_no_file_can_hold_is_refused)
{
    static const uint64_t half_block[] = {16, 1, 1, 1};
    struct error err = {0};
    struct gguf_write *writer = gguf_write_new(&err);
    size_t before, after;

    free(gguf_write_header(writer, &before, &err));
    ck_assert_int_eq(gguf_write_tensor(writer, "a", TENSOR_TYPE_Q8_0, half_block, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_int_eq(gguf_write_u32(writer, "", 1, NULL), -1);
    ck_assert_int_eq(gguf_write_value(writer, "b", GGUF_TYPE_ARRAY, "", NULL), -1);
    free(gguf_write_header(writer, &after, &err));
    ck_assert_uint_eq(before, after);
    gguf_write_free(writer);
}
END_TEST

/* ---- the small models ---- */

/* A small model, a large one, and which blocks of it the small one's are like. */
static const struct {
    const char *small, *large;
    int blocks[5];
} likenesses[] = {
    {"tiny-llama", "llama-2-7b:Q8_0", {0, 1, 2, 3}},
    {"tiny-qwen3", "qwen3-0.6b:Q8_0", {0, 1, 2, 3}},
    {"tiny-qwen35", "qwen3.8-27b:Q8_0", {0, 1, 2, 3, 64}},
    {"tiny-qwen35moe", "ornith-1.5-35b-a3b:Q8_0", {0, 1, 2, 3, 40}},
    {"tiny-gemma4", "gemma-4-26b-a4b:Q8_0", {0, 1, 5}},
    {"tiny-muse-glimmer", "muse-glimmer-30b:Q8_0", {0, 1, 2, 3}},
};

START_TEST(a_small_model_has_the_tensors_of_the_large_one)
{
    struct error err = {0};
    struct model *small = open_shape(likenesses[_i].small);
    struct model *large = model_from_catalogue(likenesses[_i].large, &err);

    ck_assert_ptr_nonnull(large);
    ck_assert_str_eq(small->arch, large->arch);
    ck_assert_int_eq(small->tied_embeddings, large->tied_embeddings);
    for (uint32_t i = 0; i < small->n_layer + small->n_layer_nextn; i++) {
        const struct model_layer *layer = &small->layers[i];
        const struct model_layer *like = &large->layers[likenesses[_i].blocks[i]];

        ck_assert_int_eq(layer->mixer, like->mixer);
        ck_assert_int_eq(layer->q_gated, like->q_gated);
        ck_assert_int_eq(layer->v_from_k, like->v_from_k);
        ck_assert_int_eq(layer->is_nextn, like->is_nextn);
        ck_assert_int_eq(layer->window != 0, like->window != 0);
        ck_assert_uint_eq(layer->tensor_count, like->tensor_count);
        for (uint32_t t = 0; t < layer->tensor_count; t++) {
            ck_assert_int_eq(small->tensors[layer->tensor_first + t].role,
                             large->tensors[like->tensor_first + t].role);
            ck_assert_int_eq(small->tensors[layer->tensor_first + t].type,
                             large->tensors[like->tensor_first + t].type);
        }
    }
    model_free(large);
    model_free(small);
}
END_TEST

START_TEST(every_small_model_opens_with_each_type_and_has_numbers)
{
    static const char *const types[] = {"F32",  "F16",  "BF16", "Q8_0",
                                        "Q4_0", "Q4_K", "Q5_K", "Q6_K"};

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct error err = {0};
        struct numbers numbers;
        struct model *model;
        struct gguf *gguf;
        char spec[80];

        snprintf(spec, sizeof spec, "%s:%s", shape_name((size_t)_i), types[t]);
        model = open_shape(spec);
        gguf = shape_gguf(spec, &err);
        ck_assert_ptr_nonnull(gguf);
        ck_assert_str_eq(model->name, shape_name((size_t)_i));
        ck_assert_str_eq(model->quant, types[t]);
        ck_assert_uint_le(model->params, 14000000);
        ck_assert_msg(numbers_of(model, gguf, &numbers, &err) == 0, "%s", err.text);
        gguf_free(gguf);
        model_free(model);
    }
}
END_TEST

START_TEST(an_unknown_small_model_is_refused_with_the_list)
{
    struct error err = {0};

    ck_assert_ptr_null(shape_open("tiny-lama", &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "did you mean tiny-llama?"));
    ck_assert_ptr_nonnull(strstr(err.text, "tiny-muse-glimmer"));
    err = (struct error){0};
    ck_assert_ptr_null(shape_gguf("tiny-llama:IQ4_XS", &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "Q4_K"));
    ck_assert_ptr_null(shape_name(shape_count()));
}
END_TEST

START_TEST(a_model_of_the_catalogue_comes_back_from_its_file_as_it_was)
{
    struct error err = {0};
    struct model *model = model_from_catalogue("qwen3-0.6b:Q4_0", &err), *read;

    ck_assert_ptr_nonnull(model);
    ck_assert_msg(model_write_gguf(model, 0, path, &err) == 0, "%s", err.text);
    read = model_load_gguf(path, &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    ck_assert_str_eq(read->name, model->name);
    ck_assert_str_eq(read->arch, model->arch);
    ck_assert_uint_eq(read->n_vocab, model->n_vocab);
    ck_assert_uint_eq(read->tensor_bytes, model->tensor_bytes);
    ck_assert_uint_eq(read->n_ctx_train, model->n_ctx_train);
    for (uint32_t i = 0; i < model->n_layer; i++)
        ck_assert_mem_eq(&read->layers[i], &model->layers[i], sizeof read->layers[i]);
    model_free(read);
    model_free(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights");
    TCase *files = tcase_create("files"), *refusals = tcase_create("refusals");
    TCase *writer = tcase_create("writer"), *shapes = tcase_create("shapes");
    TCase *all[] = {files, refusals, writer, shapes};
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(files, a_written_file_holds_the_synthetic_weights, 0, SPEC_COUNT);
    tcase_add_test(files, a_tensor_is_made_once);
    tcase_add_test(files, no_weights_are_freed_without_harm);
    tcase_add_test(refusals, a_file_cut_off_is_refused_with_its_name_and_a_tensor);
    tcase_add_test(refusals, a_file_of_another_model_is_refused);
    tcase_add_test(refusals, a_missing_file_is_refused);
    tcase_add_test(refusals, a_file_of_the_other_byte_order_is_refused);
    tcase_add_test(refusals, a_type_that_is_not_made_is_refused_when_weights_are_opened);
    tcase_add_test(refusals, a_failed_file_is_taken_away);
    tcase_add_test(refusals, what_a_source_of_bytes_says_ends_the_writing);
    tcase_add_test(writer, keys_of_every_type_are_read_back);
    tcase_add_test(writer, what_no_file_can_hold_is_refused);
    tcase_add_loop_test(shapes, a_small_model_has_the_tensors_of_the_large_one, 0,
                        sizeof likenesses / sizeof *likenesses);
    tcase_add_loop_test(shapes, every_small_model_opens_with_each_type_and_has_numbers, 0,
                        (int)shape_count());
    tcase_add_test(shapes, an_unknown_small_model_is_refused_with_the_list);
    tcase_add_test(shapes, a_model_of_the_catalogue_comes_back_from_its_file_as_it_was);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_checked_fixture(all[i], make_path, remove_path);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(suite, all[i]);
    }
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
