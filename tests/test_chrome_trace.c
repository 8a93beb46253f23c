/* Chrome traces, read back by a strict parser and held against the engine's own times. */
#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/chrome_trace.h"
#include "sim/predict.h"
#include "sim/timeline_simulate.h"
#include "tests/plan_cases.h"

#define ONE "rtx4070-gen4x16"
#define PAIR PLAN_CASES_DESKTOP
#define SMALL "qwen3-8b:q4_k_m"
#define HYBRID "qwen3.8-27b:UD-Q5_K_M"

enum { THREADS_MAX = 64, DEPTH = 2048 };

static const struct plan_row {
    const char *what, *model, *machine, *flags;
    uint32_t slots;
} plans[] = {
    {"one device", SMALL, ONE, "", 1},
    {"layer split", SMALL, PAIR, "-sm layer", 1},
    {"tensor split", HYBRID, PAIR, "-sm tensor -ts 60/40", 1},
    {"host cache", SMALL, PAIR, "-sm layer -nkvo -kvcp", 1},
    {"host cache sent ahead", HYBRID, PAIR, "-sm tensor -nkvo -kvcp -rso -kvd 2", 1},
    {"attention on the host", SMALL, ONE, "-nkvo -ah", 1},
    {"host layers", SMALL, ONE, "-ngl 20", 1},
    {"host state", HYBRID, PAIR, "-sm layer -nkvo", 1},
    {"slots", SMALL, PAIR, "-sm layer", 4},
};

enum { PLANS = sizeof plans / sizeof *plans };

/* ---- a trace, read ---- */

struct thread {
    json_int_t process, number;
    int64_t free_ns; /* end of its last slice */
};

struct read_trace {
    json_t *root;
    json_t *events; /* borrowed */
    struct thread threads[THREADS_MAX];
    size_t thread_count;
};

/* Times have three decimals, so nanoseconds are whole. */
static int64_t ns_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);

    ck_assert_msg(json_is_number(value), "an event without %s", key);
    ck_assert_double_ge(json_number_value(value), 0);
    return llround(json_number_value(value) * 1e3);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));

    ck_assert_msg(text != NULL, "an event without %s", key);
    return text;
}

static json_int_t integer_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);

    ck_assert_msg(json_is_integer(value), "an event without %s", key);
    return json_integer_value(value);
}

static bool is(const json_t *event, const char *phase)
{
    return strcmp(text_of(event, "ph"), phase) == 0;
}

static struct thread *thread_of(struct read_trace *trace, const json_t *event)
{
    json_int_t process = integer_of(event, "pid"), number = integer_of(event, "tid");

    for (size_t i = 0; i < trace->thread_count; i++)
        if (trace->threads[i].process == process && trace->threads[i].number == number)
            return &trace->threads[i];
    ck_abort_msg("thread %" JSON_INTEGER_FORMAT " of process %" JSON_INTEGER_FORMAT " has no name",
                 number, process);
    return NULL;
}

static char *write_text(const struct timeline *timeline)
{
    struct error err = {0};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(out);
    ck_assert_msg(chrome_trace_write(timeline, out, &err) == 0, "%s", err.text);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

/* Reads a trace, and its processes and threads: each has one name. */
static struct read_trace read_trace(const struct timeline *timeline)
{
    struct read_trace trace = {.root = NULL};
    char *text = write_text(timeline);
    json_error_t error;
    json_t *event;
    size_t i;

    trace.root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(trace.root != NULL, "line %d: %s", error.line, error.text);
    free(text);
    trace.events = json_object_get(trace.root, "traceEvents");
    ck_assert(json_is_array(trace.events));
    json_array_foreach(trace.events, i, event)
    {
        if (!is(event, "M") || strcmp(text_of(event, "name"), "thread_name") != 0)
            continue;
        for (size_t t = 0; t < trace.thread_count; t++)
            ck_assert(trace.threads[t].process != integer_of(event, "pid") ||
                      trace.threads[t].number != integer_of(event, "tid"));
        ck_assert_uint_lt(trace.thread_count, THREADS_MAX);
        trace.threads[trace.thread_count++] =
            (struct thread){integer_of(event, "pid"), integer_of(event, "tid"), 0};
    }
    return trace;
}

/* ---- what holds for every trace ---- */

static void check_order(struct read_trace *trace)
{
    int64_t last_ns = 0;
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        if (is(event, "M"))
            continue;
        ck_assert_int_ge(ns_of(event, "ts"), last_ns);
        last_ns = ns_of(event, "ts");
    }
}

static void check_slices(struct read_trace *trace)
{
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        struct thread *thread;

        if (!is(event, "X"))
            continue;
        thread = thread_of(trace, event);
        ck_assert_msg(ns_of(event, "ts") >= thread->free_ns, "%s overlaps what is before it",
                      text_of(event, "name"));
        thread->free_ns = ns_of(event, "ts") + ns_of(event, "dur");
        ck_assert_str_ne(text_of(event, "cat"), "");
    }
}

static void check_counters(struct read_trace *trace)
{
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        const char *key;
        json_t *value;

        if (!is(event, "C"))
            continue;
        json_object_foreach(json_object_get(event, "args"), key, value)
        {
            ck_assert_msg(json_is_number(value), "%s", key);
            ck_assert_double_ge(json_number_value(value), 0);
        }
    }
}

static bool lies_in_a_slice(struct read_trace *trace, const json_t *point)
{
    int64_t time_ns = ns_of(point, "ts");
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        if (is(event, "X") && integer_of(event, "tid") == integer_of(point, "tid") &&
            integer_of(event, "pid") == integer_of(point, "pid") && ns_of(event, "ts") <= time_ns &&
            ns_of(event, "ts") + ns_of(event, "dur") >= time_ns)
            return true;
    }
    return false;
}

/* Ids count up from 1, so a start and an end can be kept by id. Every flow is looked up among
 * slices, so long traces check one in `each`. Returns the number of flows. */
static size_t check_flows(struct read_trace *trace, size_t each)
{
    size_t events = json_array_size(trace->events), starts = 0, ends = 0;
    const json_t **open = calloc(events + 1, sizeof *open);
    json_t *event;
    size_t i;

    ck_assert_ptr_nonnull(open);
    json_array_foreach(trace->events, i, event)
    {
        size_t id;

        if (!is(event, "s") && !is(event, "f"))
            continue;
        id = (size_t)integer_of(event, "id");
        ck_assert_uint_le(id, events);
        if (is(event, "s")) {
            ck_assert_ptr_null(open[id]);
            open[id] = event;
            starts++;
        } else {
            ck_assert_msg(open[id] != NULL, "flow %zu ends before it starts", id);
            ck_assert_int_le(ns_of(open[id], "ts"), ns_of(event, "ts"));
            ck_assert_str_eq(text_of(open[id], "name"), text_of(event, "name"));
            ck_assert_str_eq(text_of(event, "bp"), "e");
            ends++;
        }
        ck_assert_msg(id % each != 0 || lies_in_a_slice(trace, event), "flow %zu hangs free", id);
    }
    ck_assert_uint_eq(starts, ends);
    free(open);
    return starts;
}

static void check_trace(struct read_trace *trace)
{
    check_order(trace);
    check_slices(trace);
    check_counters(trace);
    check_flows(trace, 1 + json_array_size(trace->events) / 100);
}

/* From the first slice's start to the last one's end. */
static int64_t span_ns(struct read_trace *trace)
{
    int64_t first_ns = INT64_MAX, last_ns = 0;
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        if (!is(event, "X"))
            continue;
        first_ns = ns_of(event, "ts") < first_ns ? ns_of(event, "ts") : first_ns;
        if (ns_of(event, "ts") + ns_of(event, "dur") > last_ns)
            last_ns = ns_of(event, "ts") + ns_of(event, "dur");
    }
    return last_ns - first_ns;
}

static double sum_ns(struct read_trace *trace, const char *category)
{
    double sum = 0;
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        if (is(event, "X") && strcmp(text_of(event, "cat"), category) == 0)
            sum += (double)ns_of(event, "dur");
    }
    return sum;
}

static size_t count_slices(struct read_trace *trace, const char *category)
{
    json_t *event;
    size_t i, count = 0;

    json_array_foreach(trace->events, i, event)
    {
        count += is(event, "X") && strcmp(text_of(event, "cat"), category) == 0;
    }
    return count;
}

/* ---- plans ---- */

struct traced {
    struct plan_case plan;
    struct timing *timing;
};

static struct traced open_row(const struct plan_row *row)
{
    struct traced traced = {.plan = plan_cases_open(row->model, row->machine, row->flags, 8192)};
    struct error err = {0};

    if (row->slots > 1) {
        struct plan plan = plan_cases_plan(row->flags);

        plan.n_slots = row->slots;
        placement_free(traced.plan.placement);
        traced.plan.placement =
            placement_new(traced.plan.model, traced.plan.machine, &plan, 8192, &err);
        ck_assert_msg(traced.plan.placement != NULL, "%s", err.text);
    }
    traced.timing = timing_new(traced.plan.placement, &err);
    ck_assert_msg(traced.timing != NULL, "%s", err.text);
    return traced;
}

static void close_row(struct traced *traced)
{
    timing_free(traced->timing);
    plan_cases_close(&traced->plan);
}

static struct timeline *step_of(const struct traced *traced, struct program_step step,
                                struct program_cells cells)
{
    struct error err = {0};
    struct timeline *timeline =
        timeline_simulate_step(traced->timing, traced->plan.placement, step, DEPTH, cells, &err);

    ck_assert_msg(timeline != NULL, "%s", err.text);
    return timeline;
}

/* Sums of the second of two equal steps, as `lopside program --times` runs them. The engine has
 * the host's own work end where its issue ends, and no time of its own. */
struct times {
    double class_s[TASK_CLASS_COLLECTIVE + 1], last_s;
    size_t class_count[TASK_CLASS_COLLECTIVE + 1];
};

static struct times engine_times(const struct traced *traced, struct program_step step,
                                 struct program_cells cells)
{
    struct error err = {0};
    struct timed_program *timed = timed_program_new(traced->timing, step, cells, &err);
    struct engine *engine = timing_engine(traced->timing);
    const double *starts, *ends;
    struct times times = {.last_s = 0};
    size_t count;

    ck_assert_msg(timed != NULL, "%s", err.text);
    engine_reset(engine);
    ck_assert_int_eq(engine_run(engine, timed->schedule, &err), 0);
    ck_assert_int_eq(engine_run(engine, timed->schedule, &err), 0);
    ck_assert_int_eq(engine_finish(engine, &err), 0);
    starts = engine_last_starts(engine, &count);
    ends = engine_last_ends(engine, &count);
    for (size_t i = 0; i < count; i++) {
        enum task_class class = program_task_class(timed->program->tasks[i].kind);
        double issue_s = engine_schedule_tasks(timed->schedule)[i].issue_s;

        times.class_s[class] += class == TASK_CLASS_HOST ? issue_s : ends[i] - starts[i];
        times.class_count[class]++;
        times.last_s = fmax(times.last_s, ends[i]);
    }
    timed_program_free(timed);
    return times;
}

static void check_against_engine(const struct traced *traced, const char *what,
                                 struct program_step step, struct program_cells cells)
{
    struct timeline *timeline = step_of(traced, step, cells);
    struct read_trace trace = read_trace(timeline);
    struct times times = engine_times(traced, step, cells);

    check_trace(&trace);
    ck_assert_msg(llabs(span_ns(&trace) - llround(times.last_s * 1e9)) <= 1,
                  "%s: %" PRId64 " ns, the engine has %.1f", what, span_ns(&trace),
                  times.last_s * 1e9);
    for (int class = 0; class <= TASK_CLASS_COLLECTIVE; class ++) {
        const char *name = program_class_name((enum task_class) class);

        ck_assert_uint_eq(count_slices(&trace, name), times.class_count[class]);
        /* each slice is rounded at both ends */
        ck_assert_msg(fabs(sum_ns(&trace, name) - times.class_s[class] * 1e9) <=
                          (double)times.class_count[class],
                      "%s, %s: %.0f ns, the engine has %.1f", what, name, sum_ns(&trace, name),
                      times.class_s[class] * 1e9);
    }
    json_decref(trace.root);
    timeline_free(timeline);
}

/* ---- tests ---- */

START_TEST(a_decode_step_has_the_engines_times)
{
    struct traced traced = open_row(&plans[_i]);
    const struct placement *placement = traced.plan.placement;

    check_against_engine(&traced, plans[_i].what, predict_decode_step(placement, false, false),
                         predict_decode_cells(placement, DEPTH, 0, false));
    close_row(&traced);
}
END_TEST

START_TEST(a_ubatch_has_the_engines_times)
{
    struct traced traced = open_row(&plans[_i]);
    struct program_step step = {.tokens = 512, .rebuild = true};

    check_against_engine(&traced, plans[_i].what, step,
                         program_cells_at(traced.plan.placement, DEPTH + 512));
    close_row(&traced);
}
END_TEST

START_TEST(a_workload_takes_as_long_as_bench_says)
{
    struct traced traced = open_row(&plans[_i]);
    struct predict_options how = {.tool = PREDICT_LLAMA_BENCH};
    struct timeline_workload workload = {.depth = DEPTH, .prompt = 1100, .generated = 3};
    struct prediction prompt, generation;
    struct error err = {0};
    struct timeline *timeline =
        timeline_simulate_workload(traced.timing, traced.plan.placement, workload, &err);
    struct read_trace trace;
    double bench_s;

    ck_assert_msg(timeline != NULL, "%s", err.text);
    trace = read_trace(timeline);
    check_trace(&trace);
    ck_assert_int_eq(
        predict_prompt(traced.timing, traced.plan.placement, DEPTH, 1100, how, &prompt, &err), 0);
    ck_assert_int_eq(predict_generation(traced.timing, traced.plan.placement, DEPTH + 1100, 3, how,
                                        &generation, &err),
                     0);
    bench_s = prompt.time_s + generation.time_s;
    ck_assert_uint_eq(timeline->step_count, prompt.steps + generation.steps);
    ck_assert_msg(llabs(span_ns(&trace) - llround(bench_s * 1e9)) <= 1,
                  "%s: %" PRId64 " ns, bench has %.1f", plans[_i].what, span_ns(&trace),
                  bench_s * 1e9);
    json_decref(trace.root);
    timeline_free(timeline);
    close_row(&traced);
}
END_TEST

START_TEST(a_sum_is_held_on_the_compute_thread_of_each_member)
{
    struct traced traced = open_row(&plans[2]);
    const struct placement *placement = traced.plan.placement;
    struct timeline *timeline = step_of(&traced, predict_decode_step(placement, false, false),
                                        predict_decode_cells(placement, DEPTH, 0, false));
    struct read_trace trace = read_trace(timeline);
    size_t sums = count_slices(&trace, "collective");

    ck_assert_uint_gt(sums, 0);
    ck_assert_uint_eq(count_slices(&trace, "held"), 2 * sums);
    ck_assert_double_eq_tol(sum_ns(&trace, "held"), 2 * sum_ns(&trace, "collective"), 0.5);
    json_decref(trace.root);
    timeline_free(timeline);
    close_row(&traced);
}
END_TEST

START_TEST(a_host_cache_shows_waits_and_the_use_of_its_link)
{
    struct traced traced = open_row(&plans[3]);
    const struct placement *placement = traced.plan.placement;
    struct timeline *timeline = step_of(&traced, predict_decode_step(placement, false, false),
                                        predict_decode_cells(placement, DEPTH, 0, false));
    struct read_trace trace = read_trace(timeline);
    double most_gbs = 0;
    json_t *event;
    size_t i;

    ck_assert_uint_gt(count_slices(&trace, "blocked"), 0);
    ck_assert_uint_gt(check_flows(&trace, 1), 0);
    json_array_foreach(trace.events, i, event)
    {
        if (is(event, "C") && strcmp(text_of(event, "name"), "host>CUDA0") == 0)
            most_gbs =
                fmax(most_gbs,
                     json_number_value(json_object_get(json_object_get(event, "args"), "GB/s")));
    }
    ck_assert_double_gt(most_gbs, 1);
    ck_assert_double_le(most_gbs, traced.plan.machine->links[0].down_gbs * (1 + 1e-9));
    json_decref(trace.root);
    timeline_free(timeline);
    close_row(&traced);
}
END_TEST

START_TEST(the_same_timeline_gives_the_same_bytes)
{
    struct traced traced = open_row(&plans[4]);
    const struct placement *placement = traced.plan.placement;
    struct timeline *one = step_of(&traced, predict_decode_step(placement, false, false),
                                   predict_decode_cells(placement, DEPTH, 0, false));
    struct timeline *other = step_of(&traced, predict_decode_step(placement, false, false),
                                     predict_decode_cells(placement, DEPTH, 0, false));
    char *text = write_text(one), *same = write_text(other);

    ck_assert_str_eq(text, same);
    free(text);
    free(same);
    timeline_free(one);
    timeline_free(other);
    close_row(&traced);
}
END_TEST

static struct timeline *recorded(const char *lines)
{
    struct error err = {0};
    struct timeline *timeline = timeline_parse(lines, strlen(lines), "test", &err);

    ck_assert_msg(timeline != NULL, "%d: %s", err.line, err.text);
    ck_assert_int_eq(timeline_estimate_rates(timeline, &err), 0);
    return timeline;
}

#define HEADER                                                                                     \
    "{\"lopside_timeline\": 1, \"model\": \"m\", \"quant\": \"q\", \"n_ctx\": 256, "               \
    "\"arguments\": [], \"devices\": [{\"name\": \"CUDA0\", \"gpu\": \"A \\\"quoted\\\" GPU\"}, "  \
    "{\"name\": \"CUDA1\", \"gpu\": \"B\"}]}\n"
#define STEP(tasks)                                                                                \
    "{\"step\": 0, \"tokens\": 1, \"outputs\": 1, \"sequences\": 1, \"snapshots\": 0, "            \
    "\"rebuild\": false, \"hidden\": false, \"sample\": false, \"sync\": true, \"shift\": false, " \
    "\"depth\": 0, \"cells\": 256, \"sliding_cells\": 0, \"start_us\": 0, \"tasks\": " tasks "}\n"

START_TEST(clocks_that_disagree_are_cut_and_names_are_escaped)
{
    struct timeline *timeline = recorded(HEADER STEP(
        "3") "{\"step\": 0, \"task\": 0, \"kind\": \"all-reduce\", \"queues\": "
             "[\"collective\", \"CUDA0\", \"CUDA1\"], \"start_us\": 1, \"end_us\": 5}\n"
             "{\"step\": 0, \"task\": 1, \"kind\": \"matmul\", \"queues\": [\"CUDA1\"], "
             "\"device\": \"CUDA1\", \"tensor\": \"a\\\\b\\\"\\n\", \"after\": [0], "
             "\"start_us\": 4.5, \"end_us\": 7}\n"
             "{\"step\": 0, \"task\": 2, \"kind\": \"norm\", \"queues\": [\"CUDA0\"], "
             "\"device\": \"CUDA0\", \"after\": [1], \"start_us\": 5, \"end_us\": 6}\n");
    struct read_trace trace = read_trace(timeline);

    check_trace(&trace);
    ck_assert_double_eq(sum_ns(&trace, "kernel"), 3000);
    ck_assert_uint_eq(check_flows(&trace, 1),
                      1); /* task 1 ends behind task 2, which waits for it */
    json_decref(trace.root);
    timeline_free(timeline);
}
END_TEST

START_TEST(a_recorded_copy_carries_its_bytes_over_its_duration)
{
    struct timeline *timeline = recorded(HEADER STEP(
        "2") "{\"step\": 0, \"task\": 0, \"kind\": \"kv-window\", \"queues\": [\"CUDA0 "
             "copy in\"], \"device\": \"CUDA0\", \"blocking\": true, \"bytes\": 8000, "
             "\"start_us\": 1, \"end_us\": 2}\n"
             "{\"step\": 0, \"task\": 1, \"kind\": \"kv-rows\", \"queues\": [\"CUDA0 copy "
             "out\"], \"device\": \"CUDA0\", \"bytes\": 4000, \"start_us\": 2, "
             "\"end_us\": 4}\n");
    struct read_trace trace = read_trace(timeline);

    check_trace(&trace);
    ck_assert_uint_eq(timeline->direction_count, 2);
    ck_assert_str_eq(timeline->directions[0], "host>CUDA0");
    ck_assert_str_eq(timeline->directions[1], "CUDA0>host");
    ck_assert_uint_eq(timeline->rate_count, 4);
    ck_assert_double_eq_tol(timeline->rates[0].gbs, 8, 1e-9);
    ck_assert_double_eq(timeline->rates[3].gbs, 0);
    ck_assert_uint_eq(check_flows(&trace, 1), 1); /* the next task waited for the blocking one */
    json_decref(trace.root);
    timeline_free(timeline);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_an_error)
{
    struct timeline *timeline = recorded(HEADER STEP("0"));
    FILE *out = fopen("/dev/full", "w");
    struct error err = {0};

    if (out != NULL) {
        ck_assert_int_eq(chrome_trace_write(timeline, out, &err), -1);
        ck_assert_int_eq(err.code, ERROR_IO);
        fclose(out);
    }
    timeline_free(timeline);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chrome_trace");
    TCase *simulated = tcase_create("simulated"), *files = tcase_create("recorded");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(simulated, 120);
    tcase_add_loop_test(simulated, a_decode_step_has_the_engines_times, 0, PLANS);
    tcase_add_loop_test(simulated, a_ubatch_has_the_engines_times, 0, PLANS);
    tcase_add_loop_test(simulated, a_workload_takes_as_long_as_bench_says, 0, PLANS);
    tcase_add_test(simulated, a_sum_is_held_on_the_compute_thread_of_each_member);
    tcase_add_test(simulated, a_host_cache_shows_waits_and_the_use_of_its_link);
    tcase_add_test(simulated, the_same_timeline_gives_the_same_bytes);
    tcase_add_test(files, clocks_that_disagree_are_cut_and_names_are_escaped);
    tcase_add_test(files, a_recorded_copy_carries_its_bytes_over_its_duration);
    tcase_add_test(files, a_file_that_cannot_be_written_is_an_error);
    suite_add_tcase(suite, simulated);
    suite_add_tcase(suite, files);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
