#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/gguf.h"
#include "tests/gguf_cases.h"

static struct gguf *parse(const struct gguf_writer *writer, struct error *err)
{
    return gguf_parse(writer->data, writer->size, "test.gguf", err);
}

/* ---- bytes in memory ---- */

START_TEST(each_case_reads_or_says_where_it_is_wrong)
{
    const struct gguf_case *one = &gguf_cases[_i / 4];
    uint32_t version = _i % 2 ? 2 : 3;
    bool big_endian = _i / 2 % 2;
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;

    gguf_writer_init(&writer, version, big_endian);
    one->write(&writer);
    gguf = parse(&writer, &err);
    if (one->error) {
        ck_assert_msg(!gguf, "%s is read", one->name);
        ck_assert_str_eq(err.text, one->error);
        ck_assert_str_eq(err.source, "test.gguf");
        ck_assert_int_eq(err.code, ERROR_INPUT);
    } else {
        ck_assert_msg(gguf != NULL, "%s: %s", one->name, err.text);
        ck_assert_uint_eq(gguf_version(gguf), version);
        ck_assert_int_eq(gguf_is_big_endian(gguf), big_endian);
    }
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(both_byte_orders_and_versions_read_the_same)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    const char *text;
    uint64_t number;
    size_t length;
    float real;
    bool flag;

    gguf_writer_init(&writer, _i % 2 ? 2 : 3, _i / 2);
    gguf_case_write_llama(&writer);
    gguf = parse(&writer, &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);

    ck_assert(gguf_get_u64(gguf, "test.uint8", &number) && number == 200);
    ck_assert(gguf_get_u64(gguf, "test.uint16", &number) && number == 60000);
    ck_assert(gguf_get_u64(gguf, "test.int16", &number) && number == 300);
    ck_assert(gguf_get_u64(gguf, "test.int32", &number) && number == 70000);
    ck_assert(gguf_get_u64(gguf, "test.uint64", &number) && number == UINT64_C(1) << 40);
    ck_assert(gguf_get_f32(gguf, "test.float32", &real) && real == 0.25f);
    ck_assert(gguf_get_f32(gguf, "test.float64", &real) && real == 1.5f);
    ck_assert(gguf_get_f32(gguf, "test.int8", &real) && real == -2.0f);
    ck_assert(gguf_get_f32(gguf, "test.int64", &real) && real == -1.0f);
    ck_assert(gguf_get_bool(gguf, "test.bool", &flag) && flag);
    ck_assert(gguf_get_string(gguf, "general.architecture", &text, &length));
    ck_assert(length == 5 && memcmp(text, "llama", 5) == 0);
    ck_assert(gguf_get_string_at(gguf, "tokenizer.ggml.tokens", 2, &text, &length));
    ck_assert(length == 7 && memcmp(text, "a token", 7) == 0);

    ck_assert_uint_eq(gguf_tensor_count(gguf), 9);
    ck_assert_str_eq(gguf_tensor_at(gguf, 1)->name, "output_norm.weight");
    ck_assert_uint_eq(gguf_tensor_at(gguf, 1)->offset, 128); /* 3 x 34 bytes, rounded up */
    ck_assert_uint_eq(gguf_find_tensor(gguf, "blk.0.attn_k.weight")->bytes, 16 * 18);
    ck_assert_ptr_null(gguf_find_tensor(gguf, "blk.1.attn_k.weight"));
    ck_assert_uint_eq(gguf_data_offset(gguf, 0), (writer.size + 31) / 32 * 32);
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(a_value_that_does_not_convert_is_refused)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    const char *text;
    uint64_t number = 42;
    size_t length;
    float real;
    bool flag;

    gguf_writer_init(&writer, 3, false);
    gguf_case_write_llama(&writer);
    gguf = parse(&writer, &err);
    ck_assert_ptr_nonnull(gguf);
    ck_assert(!gguf_get_u64(gguf, "test.int8", &number)); /* -2 */
    ck_assert(!gguf_get_u64(gguf, "test.float32", &number));
    ck_assert(!gguf_get_u64(gguf, "test.bool", &number));
    ck_assert(!gguf_get_u64(gguf, "general.architecture", &number));
    ck_assert(!gguf_get_u64(gguf, "no.such.key", &number));
    ck_assert(!gguf_get_u64(gguf, "tokenizer.ggml.tokens", &number));
    ck_assert(!gguf_get_f32(gguf, "test.bool", &real));
    ck_assert(!gguf_get_bool(gguf, "test.float32", &flag));
    ck_assert(!gguf_get_string(gguf, "tokenizer.ggml.tokens", &text, &length));
    ck_assert(!gguf_get_string_at(gguf, "tokenizer.ggml.tokens", 3, &text, &length));
    ck_assert_uint_eq(number, 42);
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(a_scalar_stands_for_every_element)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    uint64_t number;

    gguf_writer_init(&writer, 3, true);
    gguf_writer_key_u32(&writer, "scalar", 5);
    gguf_writer_key_u32s(&writer, "array", (uint32_t[]){6, 7}, 2);
    gguf = parse(&writer, &err);
    ck_assert_ptr_nonnull(gguf);
    ck_assert(gguf_get_u64_at(gguf, "scalar", 1000, &number) && number == 5);
    ck_assert(gguf_get_u64_at(gguf, "array", 1, &number) && number == 7);
    ck_assert(!gguf_get_u64_at(gguf, "array", 2, &number));
    ck_assert(!gguf_get_u64(gguf, "array", &number));
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(a_double_out_of_range_becomes_infinite)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    float real;

    gguf_writer_init(&writer, 3, false);
    gguf_writer_key(&writer, "big", GGUF_TYPE_FLOAT64);
    gguf_writer_u64(&writer, UINT64_C(0x7FE0000000000000));
    gguf = parse(&writer, &err);
    ck_assert_ptr_nonnull(gguf);
    ck_assert(gguf_get_f32(gguf, "big", &real) && isinf(real));
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(every_tensor_type_has_the_bytes_of_its_blocks)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    size_t types = 0;

    gguf_writer_init(&writer, 3, false);
    for (uint32_t id = 0; id < TENSOR_TYPE_LIMIT; id++)
        if (tensor_type_info(id)) {
            uint64_t ne[4] = {3 * (uint64_t)tensor_type_info(id)->block_elements, 2, 5, 7};

            gguf_writer_tensor(&writer, tensor_type_info(id)->name, id, 4, ne, 0);
            types++;
        }
    gguf = parse(&writer, &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);
    ck_assert_uint_eq(gguf_tensor_count(gguf), types);
    for (size_t i = 0; i < types; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        const struct tensor_type_info *info = tensor_type_info(tensor->type);

        ck_assert_str_eq(tensor->name, info->name);
        ck_assert_uint_eq(tensor->bytes, UINT64_C(3) * 2 * 5 * 7 * info->block_bytes);
    }
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(every_id_without_a_type_is_refused)
{
    for (uint32_t id = 0; id < 2 * TENSOR_TYPE_LIMIT; id++) {
        struct error err = {0};
        struct gguf_writer writer;

        if (tensor_type_info(id))
            continue;
        gguf_writer_init(&writer, 3, false);
        gguf_writer_tensor(&writer, "a", id, 1, (uint64_t[]){256}, 0);
        ck_assert_ptr_null(parse(&writer, &err));
        ck_assert_msg(strstr(err.text, "was removed") || strstr(err.text, "is unknown"), "%s",
                      err.text);
        gguf_writer_close(&writer);
    }
}
END_TEST

/* Cut off anywhere, the header names file, offset and field, and nothing is
 * read behind the cut: the copy has its exact size for the address sanitizer. */
START_TEST(a_header_cut_off_at_any_byte_is_refused)
{
    struct gguf_writer writer;

    gguf_writer_init(&writer, 3, _i);
    gguf_case_write_llama(&writer);
    for (size_t size = 0; size < writer.size; size++) {
        struct error err = {0};
        unsigned char *copy = malloc(size ? size : 1);
        size_t offset = SIZE_MAX;
        char field[80] = "";

        ck_assert_ptr_nonnull(copy);
        memcpy(copy, writer.data, size);
        ck_assert_ptr_null(gguf_parse(copy, size, "cut.gguf", &err));
        ck_assert_int_eq(err.code, ERROR_INPUT);
        ck_assert_str_eq(err.source, "cut.gguf");
        ck_assert_int_eq(sscanf(err.text, "offset %zu: %79[^\n]", &offset, field), 2);
        ck_assert_uint_le(offset, size);
        ck_assert_msg(strstr(err.text, "left") != NULL, "%s", err.text);
        free(copy);
    }
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(a_file_without_its_weights_reads_the_same)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *without, *with;
    static const unsigned char weights[4096];

    gguf_writer_init(&writer, 3, false);
    gguf_case_write_llama(&writer);
    without = parse(&writer, &err);
    gguf_writer_bytes(&writer, weights, sizeof weights);
    with = parse(&writer, &err);
    ck_assert_ptr_nonnull(without);
    ck_assert_ptr_nonnull(with);
    ck_assert_uint_eq(gguf_tensor_count(with), gguf_tensor_count(without));
    ck_assert_uint_eq(gguf_data_offset(with, 0), gguf_data_offset(without, 0));
    gguf_free(with);
    gguf_free(without);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(nested_arrays_are_stepped_over)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    const char *text;
    uint64_t number;
    size_t length;

    gguf_writer_init(&writer, 3, false);
    gguf_writer_key_array(&writer, "nested", GGUF_TYPE_ARRAY, 1);
    gguf_writer_u32(&writer, GGUF_TYPE_UINT32);
    gguf_writer_u64(&writer, 1);
    gguf_writer_u32(&writer, 9);
    gguf_writer_key_u32(&writer, "behind", 7);
    gguf = parse(&writer, &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);
    ck_assert(!gguf_get_u64_at(gguf, "nested", 0, &number));
    ck_assert(!gguf_get_string_at(gguf, "nested", 0, &text, &length));
    ck_assert(gguf_get_u64(gguf, "behind", &number) && number == 7);
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(an_unprintable_name_does_not_spoil_the_message)
{
    struct error err = {0};
    struct gguf_writer writer;

    gguf_writer_init(&writer, 3, false);
    gguf_writer_tensor(&writer, "line\nbreak\033[2J", 99, 1, (uint64_t[]){256}, 0);
    ck_assert_ptr_null(parse(&writer, &err));
    ck_assert_msg(strstr(err.text, "\"line?break?[2J\"") != NULL, "%s", err.text);
    gguf_writer_close(&writer);
}
END_TEST

/* ---- files ---- */

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "test_gguf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void path_of(char *path, size_t size, const char *name)
{
    ck_assert_int_lt(snprintf(path, size, "%s/%s", folder, name), (int)size);
}

static void remove_folder(void)
{
    static const char *const names[] = {"m.gguf", "m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(path, sizeof path, names[i]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

static void save(const struct gguf_writer *writer, const char *name)
{
    char path[128];

    path_of(path, sizeof path, name);
    ck_assert(gguf_writer_save(writer, path));
}

/* One part of three, with one tensor. */
static void save_part(uint32_t number, uint32_t said_number, const char *tensor)
{
    struct gguf_writer writer;
    char name[40];

    gguf_writer_init(&writer, 3, false);
    gguf_writer_key_u32(&writer, "split.count", 3);
    gguf_writer_key_u32(&writer, "split.no", said_number);
    if (number == 0) {
        gguf_writer_key_string(&writer, "general.architecture", "llama");
        gguf_writer_key_u32(&writer, "split.tensors.count", 3);
    }
    gguf_writer_weight(&writer, tensor, TENSOR_TYPE_F32, 8, 0, 0);
    snprintf(name, sizeof name, "m-%05u-of-00003.gguf", (unsigned)number + 1);
    save(&writer, name);
    gguf_writer_close(&writer);
}

static struct gguf *load(const char *name, struct error *err)
{
    char path[128];

    path_of(path, sizeof path, name);
    return gguf_load(path, err);
}

START_TEST(a_file_is_read_and_need_not_stay)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;
    char path[128];
    const char *text;
    size_t length;

    gguf_writer_init(&writer, 3, false);
    gguf_case_write_llama(&writer);
    save(&writer, "m.gguf");
    gguf_writer_close(&writer);
    gguf = load("m.gguf", &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);
    path_of(path, sizeof path, "m.gguf");
    unlink(path);
    ck_assert_str_eq(gguf_part_path(gguf, 0), path);
    ck_assert(gguf_get_string(gguf, "general.architecture", &text, &length) && length == 5);
    gguf_free(gguf);
}
END_TEST

START_TEST(an_empty_file_is_refused_by_name)
{
    struct error err = {0};
    struct gguf_writer writer = {0};

    save(&writer, "m.gguf");
    ck_assert_ptr_null(load("m.gguf", &err));
    ck_assert_str_eq(err.text, "offset 0: magic needs 4 bytes; the file has 0 left");
    ck_assert_msg(strstr(err.source, "/m.gguf") != NULL, "%s", err.source);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_an_io_error)
{
    struct error err = {0};

    ck_assert_ptr_null(load("absent.gguf", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_msg(strncmp(err.text, "cannot be opened: ", 18) == 0, "%s", err.text);
    err = (struct error){0};
    ck_assert_ptr_null(gguf_load(folder, &err));
    ck_assert_int_eq(err.code, ERROR_IO);
}
END_TEST

START_TEST(any_part_of_a_split_file_gives_the_whole)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    struct error err = {0};
    struct gguf *gguf;

    save_part(0, 0, "a");
    save_part(1, 1, "b");
    save_part(2, 2, "c");
    gguf = load(names[_i], &err);
    ck_assert_msg(gguf != NULL, "%s: %s", err.source, err.text);
    ck_assert_uint_eq(gguf_part_count(gguf), 3);
    ck_assert_uint_eq(gguf_tensor_count(gguf), 3);
    ck_assert_uint_eq(gguf_find_tensor(gguf, "c")->part, 2);
    ck_assert_uint_eq(gguf_data_offset(gguf, 2) % 32, 0);
    ck_assert_msg(strstr(gguf_part_path(gguf, 1), names[1]) != NULL, "%s", gguf_part_path(gguf, 1));
    ck_assert_ptr_nonnull(gguf_find_key(gguf, "general.architecture"));
    gguf_free(gguf);
}
END_TEST

START_TEST(a_missing_part_is_named)
{
    struct error err = {0};

    save_part(0, 0, "a");
    save_part(2, 2, "c");
    ck_assert_ptr_null(load("m-00003-of-00003.gguf", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(err.text, "part 2 of 3 of a split model is missing");
    ck_assert_msg(strstr(err.source, "m-00002-of-00003.gguf") != NULL, "%s", err.source);
}
END_TEST

START_TEST(a_part_that_says_another_number_is_refused)
{
    struct error err = {0};

    save_part(0, 0, "a");
    save_part(1, 2, "b");
    save_part(2, 2, "c");
    ck_assert_ptr_null(load("m-00001-of-00003.gguf", &err));
    ck_assert_str_eq(err.text, "offset 71: key \"split.no\": is not 1, as the file's name says");
}
END_TEST

START_TEST(a_tensor_in_two_parts_is_refused)
{
    struct error err = {0};

    save_part(0, 0, "a");
    save_part(1, 1, "b");
    save_part(2, 2, "a");
    ck_assert_ptr_null(load("m-00001-of-00003.gguf", &err));
    ck_assert_msg(strstr(err.text, "tensor \"a\": there is a tensor of this name already") != NULL,
                  "%s", err.text);
    ck_assert_msg(strstr(err.source, "m-00003-of-00003.gguf") != NULL, "%s", err.source);
}
END_TEST

START_TEST(a_renamed_part_is_refused)
{
    struct error err = {0};
    char from[128], to[128];

    save_part(0, 0, "a");
    path_of(from, sizeof from, "m-00001-of-00003.gguf");
    path_of(to, sizeof to, "m.gguf");
    ck_assert_int_eq(rename(from, to), 0);
    ck_assert_ptr_null(load("m.gguf", &err));
    ck_assert_msg(strstr(err.text, "does not end in -NNNNN-of-00003.gguf") != NULL, "%s", err.text);
}
END_TEST

/* ---- files that others made ---- */

START_TEST(real_files_are_read)
{
    static const struct {
        const char *name;
        size_t tensors;
    } files[] = {
        {"stories260K.gguf", 48},
        {"ggml-vocab-llama-spm.gguf", 0},
        {"ggml-vocab-phi-3.gguf", 0},
    };
    const char *real_folder = getenv("LOPSIDE_GGUF_DIR");
    struct error err = {0};
    struct gguf *gguf;
    char path[512];

    snprintf(path, sizeof path, "%s/%s", real_folder, files[_i].name);
    gguf = gguf_load(path, &err);
    ck_assert_msg(gguf != NULL, "%s: %s", err.source, err.text);
    ck_assert_uint_eq(gguf_tensor_count(gguf), files[_i].tensors);
    ck_assert_ptr_nonnull(gguf_find_key(gguf, "general.architecture"));
    gguf_free(gguf);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("gguf");
    TCase *memory = tcase_create("memory");
    TCase *files = tcase_create("files");

    tcase_add_loop_test(memory, each_case_reads_or_says_where_it_is_wrong, 0,
                        4 * (int)gguf_case_count);
    tcase_add_loop_test(memory, both_byte_orders_and_versions_read_the_same, 0, 4);
    tcase_add_test(memory, a_value_that_does_not_convert_is_refused);
    tcase_add_test(memory, a_scalar_stands_for_every_element);
    tcase_add_test(memory, a_double_out_of_range_becomes_infinite);
    tcase_add_test(memory, every_tensor_type_has_the_bytes_of_its_blocks);
    tcase_add_test(memory, every_id_without_a_type_is_refused);
    tcase_add_loop_test(memory, a_header_cut_off_at_any_byte_is_refused, 0, 2);
    tcase_add_test(memory, a_file_without_its_weights_reads_the_same);
    tcase_add_test(memory, nested_arrays_are_stepped_over);
    tcase_add_test(memory, an_unprintable_name_does_not_spoil_the_message);
    suite_add_tcase(all, memory);

    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, a_file_is_read_and_need_not_stay);
    tcase_add_test(files, an_empty_file_is_refused_by_name);
    tcase_add_test(files, a_file_that_is_not_there_is_an_io_error);
    tcase_add_loop_test(files, any_part_of_a_split_file_gives_the_whole, 0, 3);
    tcase_add_test(files, a_missing_part_is_named);
    tcase_add_test(files, a_part_that_says_another_number_is_refused);
    tcase_add_test(files, a_tensor_in_two_parts_is_refused);
    tcase_add_test(files, a_renamed_part_is_refused);
    if (getenv("LOPSIDE_GGUF_DIR"))
        tcase_add_loop_test(files, real_files_are_read, 0, 3);
    else
        puts("skipped without LOPSIDE_GGUF_DIR: real_files_are_read");
    suite_add_tcase(all, files);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failures;

    srunner_run_all(runner, CK_ENV);
    failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures != 0;
}
