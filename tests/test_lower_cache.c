/* A cache in host memory: windows sent ahead of their use, and attention on the CPU. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/predict.h"
#include "tests/lowered.h"

#define QWEN "qwen3.8-27b:UD-Q5_K_M"
#define MUSE "muse-glimmer-30b:Q5_K_M"
#define HOST_CACHE "-nkvo -kvcp -rso -ctk q8_0 -ts 50/50 "
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct program_step decode = {.tokens = 1, .outputs = 1, .sync = true};

static double generate_tokens_per_s(const char *flags)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, flags, 60000);
    struct error err = {0};
    struct timing *timing = timing_new(c.placement, &err);
    struct prediction prediction;

    ck_assert_msg(timing != NULL, "%s", err.text);
    ck_assert_msg(predict_generation(timing, c.placement, 58368, 8, (struct predict_options){0},
                                     &prediction, &err) == 0,
                  "%s", err.text);
    timing_free(timing);
    plan_cases_close(&c);
    return prediction.tokens_per_s;
}

/* ---- windows sent ahead ---- */

static const struct {
    const char *model, *flags;
    uint32_t depth;
} rings[] = {
    {QWEN, HOST_CACHE "-kvd 1", 1},         {QWEN, HOST_CACHE "-kvd 3", 3},
    {QWEN, HOST_CACHE "-kvd 32", 32},       {QWEN, HOST_CACHE "-kvd 1 -sm tensor", 1},
    {QWEN, HOST_CACHE "-kvd 2 -kvgl 8", 2}, {MUSE, HOST_CACHE "-kvd 1 -sm tensor", 1},
};

struct window {
    uint32_t layer;
    size_t copied; /* the last of its copies */
};

/* Windows of a device in the order of their copies. */
static uint32_t windows_of(const struct program *program, int device, struct window *windows)
{
    uint32_t count = 0;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        if (task->kind != TASK_KV_WINDOW || task->device != device)
            continue;
        ck_assert(!task->blocking);
        if (count > 0 && windows[count - 1].layer == (uint32_t)task->layer)
            count--;
        windows[count++] = (struct window){(uint32_t)task->layer, i};
    }
    return count;
}

static size_t attention_of(const struct program *program, int device, uint32_t layer)
{
    for (size_t i = 0; i < program->task_count; i++)
        if (program->tasks[i].kind == TASK_ATTENTION && program->tasks[i].device == device &&
            program->tasks[i].layer == (int32_t)layer)
            return i;
    ck_abort_msg("layer %u has no attention on device %d", layer, device);
    return 0;
}

START_TEST(attention_waits_for_its_window_and_a_window_for_its_place_in_the_ring)
{
    struct plan_case c =
        plan_cases_open(rings[_i].model, PLAN_CASES_DESKTOP, rings[_i].flags, 4096);
    struct program *program = lowered_program(c.placement, decode);
    uint32_t places = rings[_i].depth + 1;

    for (int device = 0; device < 2; device++) {
        struct window windows[64];
        uint32_t count = windows_of(program, device, windows);

        for (uint32_t w = 0; w < count; w++) {
            size_t attention = attention_of(program, device, windows[w].layer);
            bool waited = false;

            ck_assert_uint_lt(windows[w].copied, attention);
            for (size_t i = windows[w].copied; i < attention; i++)
                waited |= program->tasks[i].kind == TASK_WAIT &&
                          program->tasks[i].device == device &&
                          lowered_depends_on(program, i, windows[w].copied);
            ck_assert(waited);
            if (w >= places)
                ck_assert(
                    lowered_depends_on(program, windows[w].copied,
                                       attention_of(program, device, windows[w - places].layer)));
            else
                ck_assert_uint_eq(program->tasks[windows[w].copied].dependency_count, 0);
        }
    }
    program_free(program);
    plan_cases_close(&c);
}
END_TEST

START_TEST(windows_are_the_same_whether_sent_ahead_or_not)
{
    struct plan_case ahead = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, HOST_CACHE "-kvd 2", 4096);
    struct plan_case blocking = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, HOST_CACHE, 4096);
    struct program *programs[] = {lowered_program(ahead.placement, decode),
                                  lowered_program(blocking.placement, decode)};
    double bytes[2] = {0, 0};

    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < programs[p]->task_count; i++)
            if (programs[p]->tasks[i].kind == TASK_KV_WINDOW)
                bytes[p] += programs[p]->tasks[i].bytes_per_cell;
    ck_assert_double_gt(bytes[0], 0);
    ck_assert_double_eq(bytes[0], bytes[1]);
    for (int p = 0; p < 2; p++)
        program_free(programs[p]);
    plan_cases_close(&ahead);
    plan_cases_close(&blocking);
}
END_TEST

/* 16 layers of 58624 padded cells of 2176 bytes, half of them over each link: the slow one's
 * share is the longest. */
START_TEST(sending_ahead_hides_computing_behind_the_slowest_link)
{
    struct error err = {0};
    struct machine *machine = machine_open(PLAN_CASES_DESKTOP, NULL, &err);
    double slow_link_s = 8 * 58624.0 * 2176 / (machine->links[1].down_gbs * 1e9);

    for (int tensor = 0; tensor < 2; tensor++) {
        const char *split = tensor ? HOST_CACHE "-sm tensor" : HOST_CACHE;
        char flags[100];
        double blocking = generate_tokens_per_s(split), ahead;

        snprintf(flags, sizeof flags, "%s -kvd 1", split);
        ahead = generate_tokens_per_s(flags);
        ck_assert_double_gt(ahead, 1.2 * blocking);
        ck_assert_double_lt(ahead, 1 / slow_link_s);
        ck_assert_double_gt(ahead, 0.9 / slow_link_s);
    }
    machine_free(machine);
}
END_TEST

START_TEST(each_place_of_the_ring_takes_a_window_of_memory)
{
    /* with 60000 cells the window is what the buffer is made of */
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, HOST_CACHE, 60000);
    struct plan_case three = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, HOST_CACHE "-kvd 3", 60000);
    struct memory_account before, after;

    memory_count(c.placement, &before);
    memory_count(three.placement, &after);
    for (int d = 0; d < 2; d++)
        ck_assert_uint_eq(after.devices[d].compute - before.devices[d].compute,
                          UINT64_C(3) * 2176 * c.placement->n_ctx);
    plan_cases_close(&c);
    plan_cases_close(&three);
}
END_TEST

/* ---- attention on the CPU ---- */

static const struct {
    const char *flags;
    bool on_host;
} places[] = {
    {"-nkvo", false},
    {"-nkvo -ah", true},
    {"-nkvo -kvcp -ah", true},
    {"-nkvo -fa 0", true},
    {"-nkvo -fa 0 -kvcp", false},
    {"-nkvo -fa 0 -kvgl 4", false},
    {"-nkvo -fa 0 -engine llama.cpp", true},
    {"-fa 0", false},
};

START_TEST(the_cpu_attends_when_asked_and_without_flash_attention)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, places[_i].flags, 4096);
    struct program *program = lowered_program(c.placement, decode);
    uint32_t host_layers = lowered_count(program, TASK_KV_STORE);

    ck_assert_uint_eq(lowered_count(program, TASK_HOST_ATTENTION),
                      places[_i].on_host ? host_layers : 0);
    if (places[_i].on_host) {
        ck_assert_uint_eq(lowered_count(program, TASK_KV_WINDOW), 0);
        ck_assert_uint_eq(lowered_count(program, TASK_ATTENTION), 16 - host_layers);
    }
    program_free(program);
    plan_cases_close(&c);
}
END_TEST

START_TEST(threads_share_the_computing_but_not_the_memory)
{
    struct error err = {0};
    struct machine *machine = machine_open(PLAN_CASES_DESKTOP, NULL, &err);
    struct model *model = plan_cases_model(QWEN);
    double tokens_per_s[2];

    for (int i = 0; i < 2; i++) {
        struct plan plan = plan_cases_plan(HOST_CACHE "-ah");
        struct placement *placement;
        struct timing *timing;
        struct prediction prediction;

        plan.n_threads = i == 0 ? 8 : 16;
        placement = placement_new(model, machine, &plan, 60000, &err);
        timing = timing_new(placement, &err);
        ck_assert(timing != NULL);
        ck_assert(predict_generation(timing, placement, 58368, 4, (struct predict_options){0},
                                     &prediction, &err) == 0);
        tokens_per_s[i] = prediction.tokens_per_s;
        timing_free(timing);
        placement_free(placement);
    }
    ck_assert_double_gt(tokens_per_s[1], 1.5 * tokens_per_s[0]);
    ck_assert_double_lt(tokens_per_s[1], 2 * tokens_per_s[0]);
    model_free(model);
    machine_free(machine);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    const char *flags, *text;
} refusals[] = {
    {"-kvd 1", "-nkvo"},
    {"-ah", "-nkvo"},
    {"-nkvo -ah -kvd 1", "-kvd"},
    {"-nkvo -kvd 33", "at most 32"},
    {"-nkvo -kvd 1 -engine llama.cpp", "llama.cpp-fork"},
    {"-nkvo -ah -engine llama.cpp", "llama.cpp-fork"},
};

START_TEST(plans_that_cannot_be_say_what_would_work)
{
    struct error err = plan_cases_refusal(QWEN, refusals[_i].flags, 4096);

    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_msg(strstr(err.text, refusals[_i].text) != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lower_cache");
    TCase *ring = tcase_create("sent ahead"), *cpu = tcase_create("attention on the CPU");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(ring, attention_waits_for_its_window_and_a_window_for_its_place_in_the_ring,
                        0, COUNT(rings));
    tcase_add_test(ring, windows_are_the_same_whether_sent_ahead_or_not);
    tcase_add_test(ring, sending_ahead_hides_computing_behind_the_slowest_link);
    tcase_add_test(ring, each_place_of_the_ring_takes_a_window_of_memory);
    tcase_add_loop_test(cpu, the_cpu_attends_when_asked_and_without_flash_attention, 0,
                        COUNT(places));
    tcase_add_test(cpu, threads_share_the_computing_but_not_the_memory);
    tcase_add_loop_test(cpu, plans_that_cannot_be_say_what_would_work, 0, COUNT(refusals));
    suite_add_tcase(suite, ring);
    suite_add_tcase(suite, cpu);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
