/* Places in JSON text, told by a caret: each case draws its text with the place marked. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_locate.h"

/* `marked` holds a text with one ^ in front of the place that `path` means. */
static const struct {
    const char *marked, *path;
    bool exact;
} values[] = {
    {"^{\"a\": 1}", "", true},
    {" \n^[1]", "", true},
    {"{\"a\": ^1}", "a", true},
    {"{\"a\" : \n\t ^-1.5e3 , \"b\": 2}", "a", true},
    {"{\"a\": 1, \"b\": ^\"x\"}", "b", true},
    {"{\"links\": [{\"to\": \"host\", \"gbs\": ^-32}]}", "links[0].gbs", true},
    {"{\"links\": [{}, [1, {\"a\": [2]}], ^3]}", "links[2]", true},
    {"[[1, 2], [3, ^4]]", "[1][1]", true},
    {"[[], [[^5]]]", "[1][0][0]", true},
    {"{\"a\": {\"b\": {\"c\": ^true}}}", "a.b.c", true},
    {"{\"x\": \"}],{[\\\"\", \"a\": ^1}", "a", true},
    {"{\"x\\\\\": \"\\\\\", \"a\": ^1}", "a", true},
    {"{\"b\": {\"a\": 1}, \"a\": ^2}", "a", true},
    {"{\"device order\": ^1}", "[\"device order\"]", true},
    {"{\"p\": {\"a.b\": ^1}}", "p[\"a.b\"]", true},
    {"{\"say \\\"hi\\\"\": ^1}", "[\"say \\\"hi\\\"\"]", true},
    {"{\"\\u0061b\": ^1}", "ab", true},
    {"{\"\\u00e9\\u20ac\\ud83d\\ude00\": ^1}", "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"]", true},
    {"{\"\xc3\xa9\": ^1}", "[\"\\u00E9\"]", true},
    {"{\"tab\\t\": ^1}", "[\"tab\\u0009\"]", true},
    {"{\"\": ^1}", "[\"\"]", true},
    /* what is missing is looked for in what should hold it */
    {"{\"links\": [^{\"to\": \"host\"}]}", "links[0].gbs", false},
    {"{\"links\": ^[]}", "links[0].gbs", false},
    {"{\"links\": ^[1]}", "links[1]", false},
    {"{\"links\": ^7}", "links[0]", false},
    {"^{\"a\": 1}", "b.c.d", false},
    {"^[1]", "a", false},
};

/* Copies `marked` without its mark. @return the offset of the mark */
static size_t unmark(const char *marked, char *text)
{
    const char *mark = strchr(marked, '^');

    ck_assert_ptr_nonnull(mark);
    memcpy(text, marked, (size_t)(mark - marked));
    strcpy(text + (mark - marked), mark + 1);
    return (size_t)(mark - marked);
}

START_TEST(a_path_leads_to_its_value)
{
    char text[200];
    size_t offset = unmark(values[_i].marked, text);
    struct json_location location;

    ck_assert_msg(json_locate_value(text, strlen(text), values[_i].path, &location),
                  "%s is not found in %s", values[_i].path, text);
    ck_assert_msg(location.offset == offset, "%s is found at byte %zu of %s", values[_i].path,
                  location.offset, text);
    ck_assert_int_eq(location.exact, values[_i].exact);
}
END_TEST

static const struct {
    const char *marked, *path;
} keys[] = {
    {"{^\"a\": 1}", "a"},
    {"{\"a\": {\"b\": 1, ^\"gbps\" : 2}}", "a.gbps"},
    {"{\"a\": ^{\"b\": 1}}", "a.c"},
    {"{\"a\": [1, ^2]}", "a[1]"},
    {"^{\"a\": 1}", ""},
};

START_TEST(a_path_leads_to_its_key)
{
    char text[200];
    size_t offset = unmark(keys[_i].marked, text);
    struct json_location location;

    ck_assert(json_locate_key(text, strlen(text), keys[_i].path, &location));
    ck_assert_uint_eq(location.offset, offset);
}
END_TEST

START_TEST(lines_and_columns_count_from_one_and_the_excerpt_is_the_line)
{
    static const char text[] = "{\n  \"links\": [\n\t{\"gbs\": -32}\r\n  ]\n}\n";
    struct json_location location;

    ck_assert(json_locate_value(text, strlen(text), "links[0].gbs", &location));
    ck_assert_int_eq(location.line, 3);
    ck_assert_int_eq(location.column, 10);
    ck_assert_str_eq(location.excerpt, " {\"gbs\": -32}");
    ck_assert_int_eq(location.excerpt[location.column - 1], '-');
}
END_TEST

START_TEST(an_excerpt_that_cannot_show_the_column_is_left_out)
{
    char text[600];
    struct json_location location;

    memset(text, ' ', sizeof text);
    memcpy(text, "{\"a\": 1,", 8);
    memcpy(text + 400, "\"b\": 2}", 7);
    ck_assert(json_locate_value(text, sizeof text, "a", &location));
    ck_assert_str_eq(location.excerpt, "{\"a\": 1,");
    ck_assert(json_locate_value(text, sizeof text, "b", &location));
    ck_assert_int_eq(location.column, 406);
    ck_assert_str_eq(location.excerpt, "");
}
END_TEST

START_TEST(an_excerpt_is_cut_between_characters)
{
    char text[400] = "[\"";
    struct json_location location;

    for (size_t i = 0; i < 99; i++)
        strcat(text, "\xe2\x82\xac");
    strcat(text, "\"]");
    ck_assert(json_locate_value(text, strlen(text), "[0]", &location));
    ck_assert_uint_eq(strlen(location.excerpt) % 3, 2);
    ck_assert_uint_ge(strlen(location.excerpt), 157);
}
END_TEST

START_TEST(an_offset_behind_the_end_means_the_end)
{
    struct json_location location;

    json_locate_offset("[1,\n", 4, 99, &location);
    ck_assert_uint_eq(location.offset, 4);
    ck_assert_int_eq(location.line, 2);
    ck_assert_int_eq(location.column, 1);
}
END_TEST

/* Each of these cannot be followed: broken text, or a broken path. */
static const struct {
    const char *text, *path;
} dead_ends[] = {
    {"", ""},
    {"  ", "a"},
    {"{", "a"},
    {"{\"a", "a"},
    {"{\"a\"", "a"},
    {"{\"a\":", "a"},
    {"{\"a\":  ", "a"},
    {"{\"b\": \"", "a"},
    {"{\"b\": [[[", "a"},
    {"{\"b\" 1}", "a"},
    {"{\"b\": 1 \"a\": 2}", "a"},
    {"{b: 1}", "a"},
    {"{,}", "a"},
    {"[1, 2", "[2]"},
    {"[1,", "[1]"},
    {"[", "[0]"},
    {"[:", "[1]"},
    {"{\"a\\", "a"},
    {"{\"a\": 1}", "."},
    {"{\"a\": 1}", "a..b"},
    {"{\"a\": 1}", "a."},
    {"{\"a\": 1}", ".a"},
    {"[1]", "[x]"},
    {"[1]", "["},
    {"[1]", "[0"},
    {"[1]", "[]"},
    {"[1]", "[-1]"},
    {"[1]", "[99999999999999999999999]"},
    {"[1]", "[\"a"},
    {"[1]", "[\"a\""},
    {"[1]", "[\"a\\"},
    {"[[1]]", "[0]x"},
};

START_TEST(a_dead_end_is_false_and_touches_nothing)
{
    struct json_location location = {.line = 77};
    const char *text = dead_ends[_i].text;

    ck_assert_msg(!json_locate_value(text, strlen(text), dead_ends[_i].path, &location),
                  "%s is found in %s", dead_ends[_i].path, text);
    ck_assert_int_eq(location.line, 77);
}
END_TEST

START_TEST(depth_costs_no_stack)
{
    size_t depth = 2000000;
    char *text = malloc(depth + 16);
    struct json_location location;

    ck_assert_ptr_nonnull(text);
    memset(text, '[', depth);
    ck_assert(!json_locate_value(text, depth, "[1]", &location));
    text[0] = '[';
    memset(text + 1, '[', depth / 2);
    memset(text + 1 + depth / 2, ']', depth / 2);
    memcpy(text + 1 + depth / 2 * 2, ",7]", 3);
    ck_assert(json_locate_value(text, depth + 4, "[1]", &location));
    ck_assert_int_eq(text[location.offset], '7');
    free(text);
}
END_TEST

START_TEST(appended_steps_make_a_path_that_is_found)
{
    static const char text[] = "{\"a-b\": [{\"x\": 1}, {\"odd \\\"key\\\"\\n\": {\"\": [7]}}]}";
    char path[64] = "";
    struct json_location location;

    ck_assert(json_locate_append_key(path, sizeof path, "a-b"));
    ck_assert(json_locate_append_index(path, sizeof path, 1));
    ck_assert(json_locate_append_key(path, sizeof path, "odd \"key\"\n"));
    ck_assert(json_locate_append_key(path, sizeof path, ""));
    ck_assert(json_locate_append_index(path, sizeof path, 0));
    ck_assert_str_eq(path, "a-b[1][\"odd \\\"key\\\"\\u000a\"][\"\"][0]");
    ck_assert(json_locate_value(text, strlen(text), path, &location));
    ck_assert_int_eq(text[location.offset], '7');
}
END_TEST

START_TEST(a_path_that_does_not_fit_ends_in_dots_and_finds_nothing)
{
    char path[12] = "";
    struct json_location location;

    ck_assert(json_locate_append_key(path, sizeof path, "links"));
    ck_assert(!json_locate_append_key(path, sizeof path, "bandwidth"));
    ck_assert_str_eq(path, "links....");
    ck_assert(!json_locate_append_index(path, sizeof path, 1234567));
    ck_assert(strlen(path) < sizeof path);
    ck_assert(!json_locate_value("{\"links\": 1}", 12, path, &location));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_locate");
    TCase *tests = tcase_create("json_locate");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_loop_test(tests, a_path_leads_to_its_value, 0, sizeof values / sizeof values[0]);
    tcase_add_loop_test(tests, a_path_leads_to_its_key, 0, sizeof keys / sizeof keys[0]);
    tcase_add_test(tests, lines_and_columns_count_from_one_and_the_excerpt_is_the_line);
    tcase_add_test(tests, an_excerpt_that_cannot_show_the_column_is_left_out);
    tcase_add_test(tests, an_excerpt_is_cut_between_characters);
    tcase_add_test(tests, an_offset_behind_the_end_means_the_end);
    tcase_add_loop_test(tests, a_dead_end_is_false_and_touches_nothing, 0,
                        sizeof dead_ends / sizeof dead_ends[0]);
    tcase_add_test(tests, depth_costs_no_stack);
    tcase_add_test(tests, appended_steps_make_a_path_that_is_found);
    tcase_add_test(tests, a_path_that_does_not_fit_ends_in_dots_and_finds_nothing);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
