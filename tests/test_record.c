/* Records of runs: equal for every plan, a place where a rule is broken, and files. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ref/record.h"
#include "ref/source.h"
#include "tests/plan_cases.h"

enum { SLOTS = 2, TOKENS = 6 };

static const uint32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

#define PROMPT_COUNT (sizeof prompt / sizeof *prompt)

static struct source source;
static char path[32];

static void open_model(const char *spec)
{
    struct error err = {0};

    ck_assert_msg(source_open(&source, spec, 1, &err) == 0, "%s: %s", spec, err.text);
}

static void set_up(void)
{
    int file;

    strcpy(path, "lopside-record.XXXXXX");
    file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void tear_down(void)
{
    source_close(&source);
    unlink(path);
}

/* A run of a plan, which `flags` and `how` say. */
static struct record *run(const char *flags, struct session_options how, uint32_t tokens)
{
    struct error err = {0};
    struct plan plan = plan_cases_plan(flags);
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct generate_options options = {.tokens = tokens};
    struct generate_slot slots[SLOTS] = {{.prompt = prompt, .prompt_count = PROMPT_COUNT},
                                         {.prompt = prompt + 2, .prompt_count = 5}};
    struct record_run about = {.model = source.model,
                               .synthetic = true,
                               .seed = 1,
                               .type_k = plan.type_k,
                               .type_v = plan.type_v};
    struct placement *placement;
    struct session *session;
    struct record *record;
    struct generation generation;

    plan.n_slots = SLOTS;
    if (how.undo_max > 0) {
        options.drafter = GENERATE_NGRAM;
        options.draft_max = how.undo_max;
    }
    placement = placement_new(source.model, machine, &plan, 64, &err);
    ck_assert_msg(placement != NULL, "%s: %s", flags, err.text);
    session = session_new(placement, source.weights, &source.numbers, NULL, how, &err);
    ck_assert_msg(session != NULL, "%s: %s", flags, err.text);
    about.options = options;
    record = record_new(&about, SLOTS, &err);
    ck_assert_ptr_nonnull(record);
    record_watch(record, session);
    ck_assert_msg(generate(session, slots, SLOTS, options, &generation, &err) == 0, "%s: %s", flags,
                  err.text);
    ck_assert_int_eq(record_finish(record, slots, tokens, &generation, &err), 0);
    generate_free_slots(slots, SLOTS);
    session_free(session);
    placement_free(placement);
    machine_free(machine);
    return record;
}

static struct record_comparison compare(const struct record *a, const struct record *b)
{
    struct error err = {0};
    struct record_comparison comparison;

    ck_assert_msg(record_compare(a, b, &comparison, &err) == 0, "%s", err.text);
    return comparison;
}

static void assert_equal(const struct record *a, const struct record *b, const char *flags)
{
    struct record_comparison comparison = compare(a, b);
    char text[400];

    record_comparison_text(&comparison, text, sizeof text);
    ck_assert_msg(comparison.difference == RECORD_EQUAL, "%s: %s", flags, text);
    ck_assert_uint_eq(comparison.tokens_equal, comparison.tokens_total);
    ck_assert_uint_eq(comparison.tokens_total, PROMPT_COUNT + 5 + SLOTS * (TOKENS - 1));
}

static const struct {
    const char *model, *flags;
    struct session_options how;
} plans[] = {
    {"tiny-llama", "-sm tensor -ts 2/1", {0}},
    {"tiny-llama", "-ts 1/2 -ub 4", {0}},
    {"tiny-llama", "-sm tensor -ts 1/1 -nkvo", {.shuffled = true, .order_seed = 5}},
    {"tiny-llama", "-sm tensor -ts 1/1", {.undo_max = 3}},
    {"tiny-qwen35", "-sm tensor -ts 1/2", {0}},
    {"tiny-qwen35", "-ts 1/1 -nkvo -ah", {0}},
    {"tiny-qwen35moe", "-sm tensor -ts 1/1", {0}},
    {"tiny-qwen35moe", "-ngl 2", {0}},
    {"tiny-gemma4", "-ts 1/1 -nkvo", {0}},
    {"tiny-gemma4", "-ngl 2", {0}},
};

START_TEST(another_plan_of_a_model_has_an_equal_record)
{
    struct record *one, *other;

    open_model(plans[_i].model);
    one = run("-sm none", (struct session_options){0}, TOKENS);
    other = run(plans[_i].flags, plans[_i].how, TOKENS);
    assert_equal(one, other, plans[_i].flags);
    record_free(one);
    record_free(other);
}
END_TEST

START_TEST(sums_in_floating_point_are_found_at_a_token_a_block_and_an_operation)
{
    struct record *sound, *broken;
    struct record_comparison comparison;
    char text[400];

    open_model("tiny-llama");
    sound = run("-sm tensor -ts 1/1", (struct session_options){0}, TOKENS);
    broken =
        run("-sm tensor -ts 1/1", (struct session_options){.fault = INTERPRET_FLOAT_SUMS}, TOKENS);
    comparison = compare(sound, broken);
    ck_assert_int_eq(comparison.difference, RECORD_DIGEST);
    ck_assert_uint_eq(comparison.slot, 0);
    ck_assert_uint_eq(comparison.token, 0);
    ck_assert_int_eq(comparison.layer, 0);
    ck_assert_str_eq(comparison.operation, "finish");
    ck_assert_str_eq(comparison.value, "result");
    ck_assert_str_eq(comparison.tensor, "blk.0.attn_output.weight");
    ck_assert_uint_gt(comparison.digests_equal, 0);
    record_comparison_text(&comparison, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "slot 0, token 0, block 0, finish into result"));
    record_free(sound);
    record_free(broken);
}
END_TEST

START_TEST(a_record_that_goes_on_has_another_length)
{
    struct record *one, *longer;
    struct record_comparison comparison;

    open_model("tiny-llama");
    one = run("-sm none", (struct session_options){0}, TOKENS);
    longer = run("-sm none", (struct session_options){0}, TOKENS + 1);
    comparison = compare(one, longer);
    ck_assert_int_eq(comparison.difference, RECORD_LENGTH);
    ck_assert_uint_eq(comparison.token, PROMPT_COUNT + TOKENS);
    record_free(one);
    record_free(longer);
}
END_TEST

START_TEST(records_of_other_cache_types_do_not_compare)
{
    struct error err = {0};
    struct record *one, *other;
    struct record_comparison comparison;

    open_model("tiny-llama");
    one = run("-sm none", (struct session_options){0}, TOKENS);
    other = run("-sm none -ctk q8_0", (struct session_options){0}, TOKENS);
    ck_assert_int_eq(record_compare(one, other, &comparison, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "cache"));
    record_free(one);
    record_free(other);
}
END_TEST

/* ---- files ---- */

START_TEST(a_record_is_the_same_after_saving_and_loading)
{
    struct error err = {0};
    struct record *record, *loaded;

    open_model("tiny-qwen35moe");
    record = run("-ts 1/1", (struct session_options){0}, TOKENS);
    ck_assert_msg(record_save(record, path, &err) == 0, "%s", err.text);
    loaded = record_load(path, &err);
    ck_assert_msg(loaded != NULL, "%s", err.text);
    ck_assert_uint_eq(record_checksum(record), record_checksum(loaded));
    assert_equal(record, loaded, "saved");
    assert_equal(loaded, record, "loaded");
    record_free(record);
    record_free(loaded);
}
END_TEST

/* What is put in place of the first `from` in a file, and what its refusal says. */
static const struct {
    const char *from, *to, *text;
} damages[] = {
    {"\"lopside_record\": 1", "\"lopside_record\": 2", "lopside_record"},
    {"\"lopside_record\": 1", "\"lopside\": 1", "lopside_record"},
    {"\"checksum\": \"", "\"checksum\": \"x", "is not a checksum"},
    {"\"operation\": \"embed\"", "\"operation\": \"embbed\"", "operations[0].operation"},
    {"\"layer\": -1", "\"layer\": -2", "operations[0].layer"},
    {"\"inputs\": [\n", "\"inputs\": [\n 7,", "slots[0].digests: there are"},
    {"\"digests\": [\n", "\"digests\": [\n \"0\",", "slots[0].digests"},
    {"\"digests\": [\n    \"", "\"digests\": [\n    \"0", "characters for"},
    {"\"tokens\": [\n", "\"tokens\": [\n -1,", "slots[0].tokens[0]"},
    {"\"slots\": [", "\"slots\": {", ""},
    {"\"cache\": \"", "\"cash\": \"", "cache"},
};

static void damage(const char *from, const char *to)
{
    enum { ROOM = 1 << 21 };
    char *text = calloc(ROOM, 1), *at;
    FILE *file = fopen(path, "r");
    size_t size;

    ck_assert(text != NULL && file != NULL);
    size = fread(text, 1, ROOM - 64, file);
    ck_assert_uint_lt(size, ROOM - 64);
    at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    fclose(file);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(file);
    free(text);
}

START_TEST(a_damaged_file_is_refused_by_line_and_field)
{
    struct error err = {0};
    struct record *record;

    open_model("tiny-llama");
    record = run("-sm none", (struct session_options){0}, TOKENS);
    ck_assert_int_eq(record_save(record, path, &err), 0);
    record_free(record);
    damage(damages[_i].from, damages[_i].to);
    ck_assert_ptr_null(record_load(path, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_str_eq(err.source, path);
    ck_assert_int_gt(err.line, 0);
    ck_assert_msg(strstr(err.text, damages[_i].text) != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    struct error err = {0};

    ck_assert_ptr_null(record_load("no-such-record.json", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(err.source, "no-such-record.json");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("record");
    TCase *cases = tcase_create("records");
    SRunner *runner;
    int failed;

    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, another_plan_of_a_model_has_an_equal_record, 0,
                        sizeof plans / sizeof *plans);
    tcase_add_test(cases, sums_in_floating_point_are_found_at_a_token_a_block_and_an_operation);
    tcase_add_test(cases, a_record_that_goes_on_has_another_length);
    tcase_add_test(cases, records_of_other_cache_types_do_not_compare);
    tcase_add_test(cases, a_record_is_the_same_after_saving_and_loading);
    tcase_add_loop_test(cases, a_damaged_file_is_refused_by_line_and_field, 0,
                        sizeof damages / sizeof *damages);
    tcase_add_test(cases, a_file_that_is_not_there_is_named);
    suite_add_tcase(suite, cases);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
