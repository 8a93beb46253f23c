/* What a person is told about a JSON file that is not right. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_input.h"

static const struct json_number_rule bandwidth = {
    .noun = "a bandwidth in GB/s", .min = 0, .max = INFINITY, .above_min = true};
static const char *const split_modes[] = {"none", "layer", "tensor", "row"};
static const char *const link_keys[] = {"from", "to", "bandwidth_gbs", "latency_us"};

enum { SPLIT_MODES = 4, LINK_KEYS = 4 };

static struct json_input *load(const char *text)
{
    struct error err = {0};
    struct json_input *input = json_input_load_text(text, strlen(text), "two-gpus.json", &err);

    ck_assert_msg(input != NULL, "%s: %s", text, err.text);
    return input;
}

/* "two-gpus.json:7:39: links[0].gbs: ..." as the program prints it. */
static const char *printed(const struct error *err)
{
    static char line[700];

    snprintf(line, sizeof line, "%s:%d:%d: %s", err->source, err->line, err->column, err->text);
    return line;
}

START_TEST(a_refused_number_names_its_place_its_field_and_what_would_do)
{
    struct json_input *input =
        load("{\n  \"links\": [\n    {\"to\": \"host\", \"gbs\": -32}\n  ]\n}\n");
    struct json_cursor root = json_input_root(input), links, link;
    struct error err = {0};
    double gbs = 5;

    ck_assert_int_eq(json_input_array(&root, "links", &links, &err), 0);
    link = json_input_element(&links, 0);
    ck_assert_int_eq(json_input_number(&link, "gbs", &bandwidth, &gbs, &err), -1);
    ck_assert_str_eq(printed(&err), "two-gpus.json:3:27: links[0].gbs: -32 is not a bandwidth in "
                                    "GB/s; a number above 0 is");
    ck_assert_str_eq(err.excerpt, "    {\"to\": \"host\", \"gbs\": -32}");
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_double_eq(gbs, 5);
    json_input_free(input);
}
END_TEST

/* One number, its rule, and what is said; NULL where it is accepted. */
static const struct {
    const char *text;
    struct json_number_rule rule;
    const char *said;
} numbers[] = {
    {"{\"x\": 0.5}", {"a share", 0, 1, false, false}, NULL},
    {"{\"x\": 0}", {"a share", 0, 1, false, false}, NULL},
    {"{\"x\": 1}", {"a share", 0, 1, false, false}, NULL},
    {"{\"x\": 1.25}",
     {"a share", 0, 1, false, false},
     "x: 1.25 is not a share; a number from 0 to 1 is"},
    {"{\"x\": 0}",
     {"a share", 0, 1, true, false},
     "x: 0 is not a share; a number above 0 and up to 1 is"},
    {"{\"x\": 1}",
     {"a share", 0, 1, false, true},
     "x: 1 is not a share; a number from 0 and below 1 is"},
    {"{\"x\": 0.1}",
     {"a time", 0.25, INFINITY, false, false},
     "x: 0.1 is not a time; a number of 0.25 or more is"},
    {"{\"x\": 9}",
     {"a time", -INFINITY, 8, false, false},
     "x: 9 is not a time; a number of 8 or less is"},
    {"{\"x\": 8}",
     {"a time", -INFINITY, 8, false, true},
     "x: 8 is not a time; a number below 8 is"},
    {"{\"x\": 1e300}", {NULL, -INFINITY, INFINITY, false, false}, NULL},
    {"{\"x\": \"fast\"}", {NULL, -INFINITY, INFINITY, false, false}, "x: \"fast\" is not a number"},
    {"{\"x\": [1]}",
     {"a time", 0, INFINITY, false, false},
     "x: a list is not a time; a number of 0 or more is"},
    {"{\"x\": {}}",
     {"a time", 0, INFINITY, false, false},
     "x: an object is not a time; a number of 0 or more is"},
    {"{\"x\": null}",
     {"a time", 0, INFINITY, false, false},
     "x: null is not a time; a number of 0 or more is"},
    {"{\"x\": true}",
     {"a time", 0, INFINITY, false, false},
     "x: true is not a time; a number of 0 or more is"},
    {"{\"y\": 1}",
     {"a time", 0, INFINITY, false, false},
     "x: missing; a time (a number of 0 or more) belongs here"},
    {"{\"y\": 1}",
     {NULL, 0, INFINITY, false, false},
     "x: missing; a number of 0 or more belongs here"},
};

START_TEST(a_number_is_held_against_its_rule)
{
    struct json_input *input = load(numbers[_i].text);
    struct json_cursor root = json_input_root(input);
    struct error err = {0};
    double value;
    int result = json_input_number(&root, "x", &numbers[_i].rule, &value, &err);

    ck_assert_int_eq(result, numbers[_i].said ? -1 : 0);
    ck_assert_str_eq(err.text, numbers[_i].said ? numbers[_i].said : "");
    json_input_free(input);
}
END_TEST

static const struct {
    const char *text;
    int64_t min, max;
    const char *said;
} integers[] = {
    {"{\"x\": 16}", 1, 16, NULL},
    {"{\"x\": 4e3}", 1, 5000, NULL},
    {"{\"x\": -9223372036854775808}", INT64_MIN, INT64_MAX, NULL},
    {"{\"x\": 17}", 1, 16, "x: 17 is not a count of ranks; a whole number from 1 to 16 is"},
    {"{\"x\": 2.5}", 1, INT64_MAX,
     "x: 2.5 is not a count of ranks; a whole number of 1 or more is"},
    {"{\"x\": 1e30}", INT64_MIN, 9,
     "x: 1e+30 is not a count of ranks; a whole number of 9 or less is"},
    {"{\"x\": \"4\"}", INT64_MIN, INT64_MAX, "x: \"4\" is not a count of ranks; a whole number is"},
};

START_TEST(an_integer_is_held_against_its_rule)
{
    struct json_integer_rule rule = {"a count of ranks", integers[_i].min, integers[_i].max};
    struct json_input *input = load(integers[_i].text);
    struct json_cursor root = json_input_root(input);
    struct error err = {0};
    int64_t value;
    int result = json_input_integer(&root, "x", &rule, &value, &err);

    ck_assert_int_eq(result, integers[_i].said ? -1 : 0);
    ck_assert_str_eq(err.text, integers[_i].said ? integers[_i].said : "");
    json_input_free(input);
}
END_TEST

START_TEST(other_types_are_named_when_they_are_wrong)
{
    struct json_input *input =
        load("{\"a\": {\"flag\": \"yes\", \"name\": 3, \"list\": {}, \"map\": []}}");
    struct json_cursor root = json_input_root(input), object, other;
    struct error errors[4] = {0}, err = {0};
    const char *text;
    bool flag;

    ck_assert_int_eq(json_input_object(&root, "a", &object, &err), 0);
    ck_assert_int_eq(json_input_bool(&object, "flag", &flag, &errors[0]), -1);
    ck_assert_int_eq(json_input_string(&object, "name", "a model", &text, &errors[1]), -1);
    ck_assert_int_eq(json_input_array(&object, "list", &other, &errors[2]), -1);
    ck_assert_int_eq(json_input_object(&object, "map", &other, &errors[3]), -1);
    ck_assert_str_eq(errors[0].text, "a.flag: \"yes\" is not true or false");
    ck_assert_str_eq(errors[1].text, "a.name: 3 is not a model; a string is");
    ck_assert_str_eq(errors[2].text, "a.list: an object is not a list");
    ck_assert_str_eq(errors[3].text, "a.map: a list is not an object");
    json_input_free(input);
}
END_TEST

START_TEST(values_come_out_as_they_were_written)
{
    struct json_input *input = load(
        "{\"n\": 2.5, \"i\": 7, \"b\": true, \"s\": \"gpu0\", \"w\": \"tensor\", \"l\": [1, 2]}");
    static const struct json_number_rule number = {NULL, -INFINITY, INFINITY, false, false};
    static const struct json_integer_rule integer = {NULL, 0, 9};
    struct json_cursor root = json_input_root(input), list, element;
    struct error err = {0};
    const char *text;
    double real;
    int64_t whole;
    size_t index;
    bool flag;

    ck_assert_int_eq(json_input_number(&root, "n", &number, &real, &err), 0);
    ck_assert_double_eq(real, 2.5);
    ck_assert_int_eq(json_input_integer(&root, "i", &integer, &whole, &err), 0);
    ck_assert_int_eq(whole, 7);
    ck_assert_int_eq(json_input_bool(&root, "b", &flag, &err), 0);
    ck_assert(flag);
    ck_assert_int_eq(json_input_string(&root, "s", NULL, &text, &err), 0);
    ck_assert_str_eq(text, "gpu0");
    ck_assert_int_eq(json_input_word(&root, "w", NULL, split_modes, SPLIT_MODES, &index, &err), 0);
    ck_assert_uint_eq(index, 2);
    ck_assert_int_eq(json_input_array(&root, "l", &list, &err), 0);
    element = json_input_element(&list, 1);
    ck_assert_int_eq(json_input_as_integer(&element, &integer, &whole, &err), 0);
    ck_assert_int_eq(whole, 2);
    json_input_free(input);
}
END_TEST

START_TEST(an_optional_member_that_is_missing_or_null_leaves_the_default)
{
    struct json_input *input = load("{\"gbs\": null}");
    struct json_cursor root = json_input_root(input), other = root;
    static const struct json_integer_rule integer = {NULL, 0, 9};
    struct error err = {0};
    const char *text = "default";
    double gbs = 32;
    int64_t whole = 4;
    size_t index = 3;
    bool flag = true;

    ck_assert_int_eq(json_input_find_number(&root, "gbs", &bandwidth, &gbs, &err), 0);
    ck_assert_int_eq(json_input_find_integer(&root, "i", &integer, &whole, &err), 0);
    ck_assert_int_eq(json_input_find_bool(&root, "b", &flag, &err), 0);
    ck_assert_int_eq(json_input_find_string(&root, "s", NULL, &text, &err), 0);
    ck_assert_int_eq(json_input_find_word(&root, "w", NULL, split_modes, SPLIT_MODES, &index, &err),
                     0);
    ck_assert_int_eq(json_input_find_array(&root, "l", &other, &err), 0);
    ck_assert_int_eq(json_input_find_object(&root, "o", &other, &err), 0);
    ck_assert_double_eq(gbs, 32);
    ck_assert_int_eq(whole, 4);
    ck_assert(flag);
    ck_assert_str_eq(text, "default");
    ck_assert_uint_eq(index, 3);
    ck_assert_ptr_eq(other.value, root.value);
    ck_assert_int_eq(err.code, ERROR_NONE);
    json_input_free(input);
}
END_TEST

START_TEST(an_optional_member_that_is_there_is_checked)
{
    struct json_input *input = load("{\"gbs\": 0, \"mode\": \"row\", \"links\": 4}");
    struct json_cursor root = json_input_root(input), list;
    struct error first = {0}, second = {0}, err = {0};
    double gbs;
    size_t index;

    ck_assert_int_eq(json_input_find_number(&root, "gbs", &bandwidth, &gbs, &first), -1);
    ck_assert_str_eq(first.text, "gbs: 0 is not a bandwidth in GB/s; a number above 0 is");
    ck_assert_int_eq(json_input_find_array(&root, "links", &list, &second), -1);
    ck_assert_str_eq(second.text, "links: 4 is not a list");
    ck_assert_int_eq(
        json_input_find_word(&root, "mode", NULL, split_modes, SPLIT_MODES, &index, &err), 1);
    ck_assert_uint_eq(index, 3);
    json_input_free(input);
}
END_TEST

START_TEST(a_member_of_what_is_no_object_is_refused_there)
{
    struct json_input *input = load("{\"plan\": [\"tensor\"]}");
    struct json_cursor root = json_input_root(input), plan = json_input_member(&root, "plan");
    struct error err = {0};
    bool flag;

    ck_assert_int_eq(json_input_bool(&plan, "kv_on_host", &flag, &err), -1);
    ck_assert_str_eq(printed(&err), "two-gpus.json:1:10: plan: a list is not an object");
    json_input_free(input);
}
END_TEST

static const struct {
    const char *typed, *said;
} words[] = {
    {"\"tensr\"", "mode: \"tensr\" is not a split mode; did you mean \"tensor\" (known: none, "
                  "layer, tensor and row)?"},
    {"\"Layer\"", "mode: \"Layer\" is not a split mode; did you mean \"layer\" (known: none, "
                  "layer, tensor and row)?"},
    {"\"tens\"", "mode: \"tens\" is not a split mode; did you mean \"tensor\" (known: none, layer, "
                 "tensor and row)?"},
    {"\"pipeline\"", "mode: \"pipeline\" is not a split mode; known: none, layer, tensor and row"},
    {"3", "mode: 3 is not a split mode; known: none, layer, tensor and row"},
};

START_TEST(a_word_that_is_not_on_the_list_is_answered_with_the_list)
{
    char text[100];
    struct json_input *input;
    struct json_cursor root;
    struct error err = {0};
    size_t index;

    snprintf(text, sizeof text, "{\"mode\": %s}", words[_i].typed);
    input = load(text);
    root = json_input_root(input);
    ck_assert_int_eq(
        json_input_word(&root, "mode", "a split mode", split_modes, SPLIT_MODES, &index, &err), -1);
    ck_assert_str_eq(err.text, words[_i].said);
    json_input_free(input);
}
END_TEST

START_TEST(a_missing_word_is_answered_with_the_list)
{
    struct json_input *input = load("{}");
    struct json_cursor root = json_input_root(input);
    struct error err = {0};
    size_t index;

    ck_assert_int_eq(
        json_input_word(&root, "mode", "a split mode", split_modes, SPLIT_MODES, &index, &err), -1);
    ck_assert_str_eq(err.text, "mode: missing; one of none, layer, tensor and row belongs here");
    json_input_free(input);
}
END_TEST

static const struct {
    const char *key, *said;
} unknown_keys[] = {
    {"bandwidth_mbs",
     "bandwidth_mbs: unknown key; did you mean bandwidth_gbs, in GB/s (1e9 bytes per second)?"},
    {"bandwidth",
     "bandwidth: unknown key; did you mean bandwidth_gbs, in GB/s (1e9 bytes per second)?"},
    {"latency_s", "latency_s: unknown key; did you mean latency_us, in microseconds?"},
    {"banwidth_gbs",
     "banwidth_gbs: unknown key; did you mean bandwidth_gbs, in GB/s (1e9 bytes per second)?"},
    {"form", "form: unknown key; did you mean from?"},
    {"colour", "colour: unknown key; known here: from, to, bandwidth_gbs and latency_us"},
};

START_TEST(an_unknown_key_is_answered_with_the_key_that_was_meant)
{
    char text[100];
    struct json_input *input;
    struct json_cursor root;
    struct error err = {0};

    snprintf(text, sizeof text, "{\"from\": 1,\n \"%s\": 2}", unknown_keys[_i].key);
    input = load(text);
    root = json_input_root(input);
    ck_assert_int_eq(json_input_refuse_unknown_keys(&root, link_keys, LINK_KEYS, &err), -1);
    ck_assert_str_eq(err.text, unknown_keys[_i].said);
    ck_assert_int_eq(err.line, 2);
    ck_assert_int_eq(err.column, 2);
    json_input_free(input);
}
END_TEST

START_TEST(known_keys_pass)
{
    struct json_input *input = load("{\"latency_us\": 1, \"from\": 2}");
    struct json_cursor root = json_input_root(input);
    struct error err = {0};

    ck_assert_int_eq(json_input_refuse_unknown_keys(&root, link_keys, LINK_KEYS, &err), 0);
    ck_assert_int_eq(err.code, ERROR_NONE);
    json_input_free(input);
}
END_TEST

/* Texts that are not JSON, with the line and column of the offending token. */
static const struct {
    const char *text;
    int line, column;
    const char *said;
} syntax[] = {
    {"{\"a\": 1,\n \"b\": nul}", 2, 7, "not JSON: invalid token near 'nul'"},
    {"{\"a\": 1,\n \"\xc3\xa9\": ]}", 2, 8, "not JSON: unexpected token near ']'"},
    {"{\"a\": 1\n \"b\": 2}", 2, 2, "not JSON: '}' expected near '\"b\"'"},
    {"[1, 2", 1, 6, "not JSON: ']' expected near end of text"},
    {"[1, 2] 3", 1, 8, "not JSON: end of text expected near '3'"},
    {"{\"a\": 1, \"a\": 2}", 1, 10, "not JSON: duplicate object key near '\"a\"'"},
    {"", 1, 1, "not JSON: '[' or '{' expected near end of text"},
    {"7", 1, 1, "not JSON: '[' or '{' expected near '7'"},
};

START_TEST(text_that_is_not_json_is_refused_where_it_goes_wrong)
{
    struct error err = {0};

    ck_assert_ptr_null(
        json_input_load_text(syntax[_i].text, strlen(syntax[_i].text), "x.json", &err));
    ck_assert_str_eq(err.text, syntax[_i].said);
    ck_assert_int_eq(err.line, syntax[_i].line);
    ck_assert_int_eq(err.column, syntax[_i].column);
    ck_assert_str_eq(err.source, "x.json");
}
END_TEST

START_TEST(the_excerpt_of_broken_text_is_its_line)
{
    struct error err = {0};
    static const char text[] = "{\n  \"a\": [1 2]\n}\n";

    ck_assert_ptr_null(json_input_load_text(text, strlen(text), "x.json", &err));
    ck_assert_str_eq(err.excerpt, "  \"a\": [1 2]");
    ck_assert_int_eq(err.excerpt[err.column - 1], '2');
}
END_TEST

START_TEST(lines_cut_out_of_a_file_keep_their_numbers)
{
    static const char text[] = "\n{\"gbs\": 0}";
    struct error err = {0};
    struct json_input *input = json_input_load_lines(text, strlen(text), "rows.jsonl", 41, &err);
    struct json_cursor root = json_input_root(input);
    double gbs;

    ck_assert_int_eq(json_input_number(&root, "gbs", &bandwidth, &gbs, &err), -1);
    ck_assert_int_eq(err.line, 42);
    json_input_free(input);
}
END_TEST

START_TEST(the_first_failure_stays)
{
    struct json_input *input = load("{\"gbs\": 0}");
    struct json_cursor root = json_input_root(input);
    struct error err = {0};
    double gbs;

    ck_assert_int_eq(json_input_refuse(&root, &err, "no %s here", "links"), -1);
    ck_assert_int_eq(json_input_number(&root, "gbs", &bandwidth, &gbs, &err), -1);
    ck_assert_str_eq(err.text, "no links here");
    ck_assert_int_eq(json_input_number(&root, "gbs", &bandwidth, &gbs, NULL), -1);
    json_input_free(input);
}
END_TEST

START_TEST(long_strings_are_shortened_and_stay_on_one_line)
{
    struct json_input *input =
        load("{\"gbs\": \"a\\nb\xc3\xa9 0123456789 0123456789 0123456789 0123456789 0123456789\"}");
    struct json_cursor root = json_input_root(input);
    struct error err = {0};
    double gbs;

    ck_assert_int_eq(json_input_number(&root, "gbs", &bandwidth, &gbs, &err), -1);
    ck_assert_str_eq(err.text,
                     "gbs: \"a\\nb\xc3\xa9 0123456789 0123456789 0123456789 01...\" is not a "
                     "bandwidth in GB/s; a number above 0 is");
    json_input_free(input);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_named)
{
    struct error missing = {0}, folder = {0};

    ck_assert_ptr_null(json_input_load_file("no-such-file.json", &missing));
    ck_assert_int_eq(missing.code, ERROR_IO);
    ck_assert_str_eq(missing.source, "no-such-file.json");
    ck_assert_ptr_null(json_input_load_file(".", &folder));
    ck_assert_int_eq(folder.code, ERROR_IO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_input");
    TCase *tests = tcase_create("json_input");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, a_refused_number_names_its_place_its_field_and_what_would_do);
    tcase_add_loop_test(tests, a_number_is_held_against_its_rule, 0,
                        sizeof numbers / sizeof numbers[0]);
    tcase_add_loop_test(tests, an_integer_is_held_against_its_rule, 0,
                        sizeof integers / sizeof integers[0]);
    tcase_add_test(tests, other_types_are_named_when_they_are_wrong);
    tcase_add_test(tests, values_come_out_as_they_were_written);
    tcase_add_test(tests, an_optional_member_that_is_missing_or_null_leaves_the_default);
    tcase_add_test(tests, an_optional_member_that_is_there_is_checked);
    tcase_add_test(tests, a_member_of_what_is_no_object_is_refused_there);
    tcase_add_loop_test(tests, a_word_that_is_not_on_the_list_is_answered_with_the_list, 0,
                        sizeof words / sizeof words[0]);
    tcase_add_test(tests, a_missing_word_is_answered_with_the_list);
    tcase_add_loop_test(tests, an_unknown_key_is_answered_with_the_key_that_was_meant, 0,
                        sizeof unknown_keys / sizeof unknown_keys[0]);
    tcase_add_test(tests, known_keys_pass);
    tcase_add_loop_test(tests, text_that_is_not_json_is_refused_where_it_goes_wrong, 0,
                        sizeof syntax / sizeof syntax[0]);
    tcase_add_test(tests, the_excerpt_of_broken_text_is_its_line);
    tcase_add_test(tests, lines_cut_out_of_a_file_keep_their_numbers);
    tcase_add_test(tests, the_first_failure_stays);
    tcase_add_test(tests, long_strings_are_shortened_and_stay_on_one_line);
    tcase_add_test(tests, a_file_that_cannot_be_read_is_named);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
