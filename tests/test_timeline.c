/* Timelines: simulated ones, files of them, and what a file may not hold. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predict.h"
#include "sim/timeline_simulate.h"
#include "tests/plan_cases.h"

#define MODEL "qwen3-8b:q4_k_m"

struct setting {
    struct plan_case plan;
    struct timing *timing;
};

static struct setting open_setting(const char *machine, const char *flags)
{
    struct error err = {0};
    struct setting setting = {.plan = plan_cases_open(MODEL, machine, flags, 8192)};

    setting.timing = timing_new(setting.plan.placement, &err);
    ck_assert_msg(setting.timing != NULL, "%s", err.text);
    return setting;
}

static void close_setting(struct setting *setting)
{
    timing_free(setting->timing);
    plan_cases_close(&setting->plan);
}

static struct timeline *decode_step(const struct setting *setting)
{
    const struct placement *placement = setting->plan.placement;
    struct error err = {0};
    struct timeline *timeline = timeline_simulate_step(
        setting->timing, placement, predict_decode_step(placement, false, false), 1000,
        predict_decode_cells(placement, 1000, 0, false), &err);

    ck_assert_msg(timeline != NULL, "%s", err.text);
    return timeline;
}

/* A timeline as a file, for free(). */
static char *text_of(const struct timeline *timeline)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(out);
    timeline_write_header(timeline, out);
    for (size_t i = 0; i < timeline->step_count; i++)
        timeline_write_step(timeline, i, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static struct timeline *parse(const char *text)
{
    struct error err = {0};
    struct timeline *timeline = timeline_parse(text, strlen(text), "test", &err);

    ck_assert_msg(timeline != NULL, "%d: %s", err.line, err.text);
    return timeline;
}

/* ---- files ---- */

static void check_same_task(const struct timeline_task *a, const struct timeline_task *b)
{
    ck_assert_int_eq(a->kind, b->kind);
    ck_assert_int_eq(a->device, b->device);
    ck_assert_int_eq(a->peer, b->peer);
    ck_assert_int_eq(a->layer, b->layer);
    ck_assert_int_eq(a->part, b->part);
    ck_assert_int_eq(a->blocking, b->blocking);
    ck_assert_uint_eq(a->queues, b->queues);
    ck_assert_uint_eq(a->tokens, b->tokens);
    ck_assert_uint_eq(a->dependency_count, b->dependency_count);
    ck_assert_int_eq(a->tensor == NULL, b->tensor == NULL);
    if (a->tensor != NULL)
        ck_assert_str_eq(a->tensor, b->tensor);
    ck_assert_double_eq_tol(a->bytes, b->bytes, 0.5);
    ck_assert_double_eq_tol(a->flops, b->flops, 0.5);
    ck_assert_double_eq_tol(a->start_s, b->start_s, 0.51e-9);
    ck_assert_double_eq_tol(a->end_s, b->end_s, 0.51e-9);
}

static const char *const plans[] = {"-sm layer", "-sm layer -nkvo -kvcp", "-sm layer -ngl 20"};

START_TEST(a_file_gives_back_what_was_written)
{
    struct setting setting = open_setting(PLAN_CASES_DESKTOP, plans[_i]);
    struct timeline *written = decode_step(&setting), *read;
    static const char *arguments[] = {"-m", "a \"quoted\\ name\t", "-sm", "layer"};
    char *text;

    written->arguments = arguments;
    written->argument_count = 4;
    text = text_of(written);
    read = parse(text);
    ck_assert_str_eq(read->model, written->model);
    ck_assert_uint_eq(read->n_ctx, written->n_ctx);
    ck_assert_uint_eq(read->argument_count, 4);
    ck_assert_str_eq(read->arguments[1], arguments[1]);
    ck_assert_uint_eq(read->device_count, 2);
    ck_assert_str_eq(read->devices[1].gpu, written->devices[1].gpu);
    ck_assert_uint_eq(read->step_count, 1);
    ck_assert_uint_eq(read->steps[0].depth, 1000);
    ck_assert_uint_eq(read->steps[0].cells.base, written->steps[0].cells.base);
    ck_assert_uint_eq(read->steps[0].task_count, written->steps[0].task_count);
    for (size_t i = 0; i < read->steps[0].task_count; i++)
        check_same_task(&read->steps[0].tasks[i], &written->steps[0].tasks[i]);
    ck_assert_int_eq(memcmp(read->steps[0].dependencies, written->steps[0].dependencies,
                            read->steps[0].dependency_count * sizeof(uint32_t)),
                     0);
    free(text);
    timeline_free(read);
    timeline_free(written);
    close_setting(&setting);
}
END_TEST

#define HEADER                                                                                     \
    "{\"lopside_timeline\": 1, \"model\": \"m\", \"quant\": \"q\", \"n_ctx\": 256, "               \
    "\"arguments\": [\"-m\", \"m\"], \"devices\": [{\"name\": \"CUDA0\", \"gpu\": \"G\"}]}\n"
#define STEP_OF(step, tokens, start, tasks)                                                        \
    "{\"step\": " step ", \"tokens\": " tokens                                                     \
    ", \"outputs\": 1, \"sequences\": 1, \"snapshots\": 0, \"rebuild\": false, \"hidden\": "       \
    "false, "                                                                                      \
    "\"sample\": false, \"sync\": true, \"shift\": false, \"depth\": 0, \"cells\": 256, "          \
    "\"sliding_cells\": 0, \"start_us\": " start ", \"tasks\": " tasks "}\n"
#define STEP(tasks) STEP_OF("0", "1", "0", tasks)
#define TASK(number, rest)                                                                         \
    "{\"step\": 0, \"task\": " number ", \"kind\": \"norm\", \"queues\": [\"CUDA0\"], "            \
    "\"device\": \"CUDA0\", " rest "}\n"
#define TIMES "\"start_us\": 1, \"end_us\": 2"

static const struct {
    const char *what, *text;
    int line;
    const char *message;
} refusals[] = {
    {"nothing", "", 1, "empty; a line with \"lopside_timeline\": 1 is accepted here"},
    {"no header", STEP("0"), 1, "a timeline begins with a header"},
    {"another version", "{\"lopside_timeline\": 2}", 1,
     "lopside_timeline: version 2 cannot be read; version 1 can"},
    {"no object", HEADER "[]\n", 2, "a list is not an object"},
    {"a key of the header", "{\"lopside_timeline\": 1, \"machine\": 1}", 1, "machine"},
    {"no steps", HEADER, 2, "no step; the line of step 0 is accepted here"},
    {"a task before a step", HEADER TASK("0", TIMES), 2, "a task outside a step"},
    {"tasks that are missing", HEADER STEP("2") TASK("0", TIMES), 4,
     "step 0 ends after 1 of its 2 tasks; task 1 is accepted here"},
    {"a step too early", HEADER STEP("1") STEP_OF("1", "1", "0", "0"), 3,
     "step 0 ends after 0 of its 1 tasks"},
    {"a task too many", HEADER STEP("0") TASK("0", TIMES), 3, "a task beyond the 0 of step 0"},
    {"a task out of order", HEADER STEP("1") TASK("1", TIMES), 3,
     "task: 1 is not the next task; 0 is accepted here"},
    {"a step out of order", HEADER STEP_OF("5", "1", "0", "0") STEP_OF("7", "1", "0", "0"), 3,
     "step: 7 is not the next step; 6 is accepted here"},
    {"a step before the last", HEADER STEP_OF("0", "1", "9", "0") STEP_OF("1", "1", "8", "0"), 3,
     "start_us: 8.000 is before the step before begins; 9.000 or more is accepted"},
    {"no tokens", HEADER STEP_OF("0", "0", "0", "0"), 2, "tokens: 0 tokens; 1 to"},
    {"an unknown kind",
     HEADER STEP("1") "{\"step\": 0, \"task\": 0, \"kind\": \"matmull\", \"queues\": [\"CUDA0\"]}",
     3, "kind: \"matmull\" is not a kind of task"},
    {"no queue", HEADER STEP("1") "{\"step\": 0, \"task\": 0, \"kind\": \"norm\", \"queues\": []}",
     3, "queues: no queue; a task holds at least one"},
    {"an unknown queue",
     HEADER STEP("1") "{\"step\": 0, \"task\": 0, \"kind\": \"norm\", \"queues\": [\"CUDA7\"]}", 3,
     "queues[0]: \"CUDA7\" is not a queue"},
    {"an end before the start", HEADER STEP("1") TASK("0", "\"start_us\": 3, \"end_us\": 2.5"), 3,
     "end_us: 2.500 is before the start; 3.000 or more is accepted"},
    {"a time below 0", HEADER STEP("1") TASK("0", "\"start_us\": -1, \"end_us\": 2"), 3,
     "start_us: -1 is not a time in us"},
    {"no end", HEADER STEP("1") TASK("0", "\"start_us\": 1"), 3, "end_us: missing"},
    {"a wait for itself", HEADER STEP("2") TASK("0", TIMES) TASK("1", "\"after\": [1], " TIMES), 4,
     "after[0]: 1 is not a task before this one"},
    {"a wait of the first", HEADER STEP("1") TASK("0", "\"after\": [0], " TIMES), 3,
     "after[0]: the first task of a step waits for none"},
    {"a key of a task", HEADER STEP("1") TASK("0", "\"name\": 1, " TIMES), 3, "name"},
    {"a layer below 0", HEADER STEP("1") TASK("0", "\"layer\": -1, " TIMES), 3,
     "layer: -1 is not a layer"},
    {"broken JSON", HEADER STEP("1") "{\"step\": 0, ", 3, "not JSON"},
};

START_TEST(what_a_file_may_not_hold_is_named_with_its_line)
{
    struct error err = {0};
    const char *text = refusals[_i].text;

    ck_assert_msg(timeline_parse(text, strlen(text), "test", &err) == NULL, "%s was read",
                  refusals[_i].what);
    ck_assert_str_eq(err.source, "test");
    ck_assert_msg(strstr(err.text, refusals[_i].message) != NULL, "%s: %s", refusals[_i].what,
                  err.text);
    ck_assert_msg(err.line == refusals[_i].line, "%s: line %d", refusals[_i].what, err.line);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    struct error err = {0};

    ck_assert_ptr_null(timeline_load_file("no/such/file.jsonl", &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_ptr_nonnull(strstr(err.source, "no/such/file.jsonl"));
}
END_TEST

START_TEST(a_step_can_be_kept_and_shifts_dropped)
{
    struct timeline *timeline = parse(HEADER STEP_OF("0", "1", "0", "0") STEP_OF(
        "1", "2", "50", "0") STEP_OF("2", "3", "70", "0"));
    struct error err = {0};

    timeline->steps[0].shift = true;
    ck_assert_uint_eq(timeline_drop_shifts(timeline), 1);
    ck_assert_uint_eq(timeline->step_count, 2);
    ck_assert_int_eq(timeline_keep_step(timeline, 2, &err), 0);
    ck_assert_uint_eq(timeline->step_count, 1);
    ck_assert_uint_eq(timeline->steps[0].step.tokens, 3);
    ck_assert_uint_eq(timeline->steps[0].number, 2);
    ck_assert_double_eq(timeline->steps[0].start_s, 0);
    timeline_free(timeline);
}
END_TEST

/* ---- simulations ---- */

/* GB/s over time is bytes: what is drawn is what was sent. */
START_TEST(products_of_one_launch_take_their_part_of_its_time)
{
    struct timeline_task tasks[] = {{.bytes = 10, .start_s = 1, .end_s = 5},
                                    {.bytes = 30, .start_s = 1, .end_s = 5}};
    struct timeline_task empty[] = {{.start_s = 1, .end_s = 5}, {.start_s = 2, .end_s = 5}};

    timeline_share_launch(tasks, 1);
    ck_assert_double_eq(tasks[0].end_s, 5);
    timeline_share_launch(tasks, 2);
    ck_assert_double_eq(tasks[0].start_s, 1);
    ck_assert_double_eq(tasks[0].end_s, 2);
    ck_assert_double_eq(tasks[1].start_s, 2);
    ck_assert_double_eq(tasks[1].end_s, 5);
    timeline_share_launch(empty, 2);
    ck_assert_double_eq(empty[0].end_s, 5);
    ck_assert_double_eq(empty[1].start_s, 2);
}
END_TEST

START_TEST(rates_of_links_add_up_to_the_bytes_that_cross_them)
{
    struct setting setting = open_setting("rtx4070-gen4x16", "-nkvo -kvcp");
    struct timeline *timeline = decode_step(&setting);
    const struct timeline_step *step = &timeline->steps[0];
    double carried = 0, sent = 0, gbs = 0, from_s = 0;

    ck_assert_str_eq(timeline->directions[0], "host>CUDA0");
    for (size_t i = 0; i < timeline->rate_count; i++) {
        const struct timeline_rate *rate = &timeline->rates[i];

        ck_assert(i == 0 || rate->time_s >= timeline->rates[i - 1].time_s);
        if (rate->direction != 0)
            continue;
        carried += gbs * 1e9 * (rate->time_s - from_s);
        gbs = rate->gbs;
        from_s = rate->time_s;
    }
    ck_assert_double_eq(gbs, 0);
    for (size_t i = 0; i < step->task_count; i++) {
        struct program_task task = {.kind = step->tasks[i].kind, .device = 0};

        if (task.kind == TASK_INPUT || task.kind == TASK_KV_WINDOW)
            sent += timing_flow_bytes(setting.timing, &task, step->tasks[i].bytes);
    }
    ck_assert_double_gt(sent, 1e6);
    ck_assert_double_eq_tol(carried, sent, 1e-6 * sent);
    timeline_free(timeline);
    close_setting(&setting);
}
END_TEST

START_TEST(steps_like_recorded_ones_have_their_programs_and_windows)
{
    struct setting setting = open_setting(PLAN_CASES_DESKTOP, "-sm layer");
    struct timeline_workload workload = {.depth = 510, .generated = 4};
    struct error err = {0};
    struct timeline *one =
        timeline_simulate_workload(setting.timing, setting.plan.placement, workload, &err);
    struct timeline *other;

    ck_assert_msg(one != NULL, "%s", err.text);
    ck_assert_uint_eq(one->step_count, 4);
    ck_assert_uint_eq(one->steps[3].depth, 513);
    ck_assert_uint_eq(one->steps[1].cells.base, 512);
    ck_assert_uint_eq(one->steps[2].cells.base, 768);
    ck_assert(one->steps[2].step.rebuild && !one->steps[3].step.rebuild);
    other = timeline_simulate_like(setting.timing, setting.plan.placement, one, &err);
    ck_assert_msg(other != NULL, "%s", err.text);
    ck_assert_uint_eq(other->step_count, 4);
    for (size_t s = 0; s < 4; s++) {
        ck_assert_uint_eq(other->steps[s].task_count, one->steps[s].task_count);
        for (size_t i = 0; i < one->steps[s].task_count; i++)
            check_same_task(&other->steps[s].tasks[i], &one->steps[s].tasks[i]);
    }
    timeline_free(one);
    timeline_free(other);
    close_setting(&setting);
}
END_TEST

START_TEST(the_hosts_own_work_lasts_as_long_as_its_issue)
{
    struct setting setting = open_setting("rtx4070-gen4x16", "-ngl 20");
    struct timeline *timeline = decode_step(&setting);
    double host_s = 0, layers_s = 0;

    for (size_t i = 0; i < timeline->steps[0].task_count; i++) {
        const struct timeline_task *task = &timeline->steps[0].tasks[i];

        if (program_task_class(task->kind) == TASK_CLASS_HOST)
            host_s += task->end_s - task->start_s;
        if (task->kind == TASK_HOST_LAYER)
            layers_s += task->bytes / (setting.plan.machine->host.memory_gbs * 1e9);
    }
    ck_assert_double_gt(layers_s, 0);
    ck_assert_double_ge(host_s, layers_s * (1 - 1e-9));
    timeline_free(timeline);
    close_setting(&setting);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *files = tcase_create("files"), *simulated = tcase_create("simulated");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(files, a_file_gives_back_what_was_written, 0,
                        (int)(sizeof plans / sizeof *plans));
    tcase_add_loop_test(files, what_a_file_may_not_hold_is_named_with_its_line, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(files, a_file_that_is_not_there_is_named);
    tcase_add_test(files, a_step_can_be_kept_and_shifts_dropped);
    tcase_add_test(simulated, products_of_one_launch_take_their_part_of_its_time);
    tcase_add_test(simulated, rates_of_links_add_up_to_the_bytes_that_cross_them);
    tcase_add_test(simulated, steps_like_recorded_ones_have_their_programs_and_windows);
    tcase_add_test(simulated, the_hosts_own_work_lasts_as_long_as_its_issue);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, simulated);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
