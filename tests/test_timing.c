/* Times of a program's tasks: routes, what the host thread pays, windows, and what limits. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cost.h"
#include "sim/predict.h"
#include "sim/timing.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"
#define MODEL "qwen3.8-27b:UD-Q5_K_M"

enum { CUDA0, CUDA1 };

#define ck_near(actual, expected) ck_assert_double_eq_tol(actual, expected, 1e-9 * (expected))

/* A placement with a timed program, opened by one call and closed by another. */
struct setting {
    struct machine *machine;
    struct model *model;
    struct placement *placement;
    struct timing *timing;
    struct timed_program *timed;
};

static const struct program_step decode = {.tokens = 1, .outputs = 1, .sync = true};
static const struct program_step prefill = {.tokens = 512, .rebuild = true};

/* Links on which every figure is another: whichever is taken shows. */
static void tell_links_apart(struct machine *machine)
{
    for (uint32_t l = 0; l < machine->link_count; l++) {
        struct machine_link *link = &machine->links[l];

        link->down_gbs = 10 + l;
        link->up_gbs = 7 + l;
        link->duplex_gbs = 12 + l;
        link->pageable_gbs = 2 + l;
        link->latency_s = 1e-6 * (3 + l);
        link->row_s = 0;
    }
}

static struct setting machine_setting(struct machine *machine, struct error *err)
{
    struct setting setting = {.machine = machine};

    ck_assert_msg(machine != NULL, "%s", err->text);
    setting.model = model_from_catalogue(MODEL, err);
    ck_assert_msg(setting.model != NULL, "%s", err->text);
    return setting;
}

static struct setting pair_setting(void)
{
    struct error err = {0};

    return machine_setting(machine_open(PAIR, NULL, &err), &err);
}

static void time_step(struct setting *setting, struct plan plan, struct program_step step,
                      uint32_t used)
{
    struct error err = {0};

    setting->placement = placement_new(setting->model, setting->machine, &plan, 65536, &err);
    ck_assert_msg(setting->placement != NULL, "%s", err.text);
    setting->timing = timing_new(setting->placement, &err);
    ck_assert_msg(setting->timing != NULL, "%s", err.text);
    setting->timed =
        timed_program_new(setting->timing, step, program_cells_at(setting->placement, used), &err);
    ck_assert_msg(setting->timed != NULL, "%s", err.text);
}

static void close_setting(struct setting *setting)
{
    timed_program_free(setting->timed);
    timing_free(setting->timing);
    placement_free(setting->placement);
    model_free(setting->model);
    machine_free(setting->machine);
}

static struct plan host_cache(enum plan_split split)
{
    struct plan plan = plan_default();

    plan.split = split;
    plan.kv_on_host = plan.kv_pinned = plan.recurrent_on_device = true;
    plan.kv_gpu_layers = 0;
    return plan;
}

static struct plan device_cache(enum plan_split split)
{
    struct plan plan = plan_default();

    plan.split = split;
    return plan;
}

/* The first task of a kind on a device. */
static size_t find(const struct setting *setting, enum task_kind kind, int device)
{
    const struct program *program = setting->timed->program;

    for (size_t i = 0; i < program->task_count; i++)
        if (program->tasks[i].kind == kind && program->tasks[i].device == device)
            return i;
    ck_abort_msg("no %s of device %d", program_task_name(kind), device);
    return 0;
}

static struct engine_task engine_task_at(const struct setting *setting, size_t index)
{
    return engine_schedule_tasks(setting->timed->schedule)[index];
}

/* Seconds that a task takes when it is alone and costs the host thread nothing. */
static double alone_s(const struct setting *setting, size_t index)
{
    struct error err = {0};
    struct engine *engine = timing_engine(setting->timing);
    struct engine_task task = engine_task_at(setting, index);
    struct engine_schedule *schedule;

    task.dependency_first = task.dependency_count = 0;
    task.issue_s = 0;
    schedule = engine_schedule_new(&task, 1, NULL, 0, &err);
    ck_assert_msg(schedule != NULL, "%s", err.text);
    engine_reset(engine);
    ck_assert_int_eq(engine_run(engine, schedule, &err), 0);
    ck_assert_int_eq(engine_finish(engine, &err), 0);
    engine_schedule_free(schedule);
    return engine_time_s(engine);
}

/* GB/s of a contiguous copy of `bytes` without its latency. */
static double alone_gbs(const struct setting *setting, size_t index, double bytes)
{
    return bytes / (alone_s(setting, index) - engine_task_at(setting, index).work_s) / 1e9;
}

static double window_bytes(const struct setting *setting, size_t index)
{
    const struct program_task *task = &setting->timed->program->tasks[index];

    return task->bytes + task->bytes_per_cell * setting->timed->cells.base;
}

/* ---- routes ---- */

START_TEST(a_pinned_window_goes_down_the_link_of_its_device)
{
    struct setting setting = pair_setting();

    tell_links_apart(setting.machine);
    time_step(&setting, host_cache(PLAN_SPLIT_LAYER), decode, 4096);
    for (int d = CUDA0; d <= CUDA1; d++) {
        size_t window = find(&setting, TASK_KV_WINDOW, d);

        ck_assert_double_eq(window_bytes(&setting, window), 4096 * 2048);
        ck_near(alone_gbs(&setting, window, 4096 * 2048), 10 + d);
        ck_near(engine_task_at(&setting, window).work_s, 1e-6 * (3 + d));
    }
    close_setting(&setting);
}
END_TEST

START_TEST(new_rows_go_up_the_link_of_their_device)
{
    struct setting setting = pair_setting();

    tell_links_apart(setting.machine);
    time_step(&setting, host_cache(PLAN_SPLIT_LAYER), prefill, 4096);
    for (int d = CUDA0; d <= CUDA1; d++) {
        size_t rows = find(&setting, TASK_KV_ROWS, d);

        ck_near(alone_gbs(&setting, rows, window_bytes(&setting, rows)), 7 + d);
    }
    close_setting(&setting);
}
END_TEST

START_TEST(a_pageable_window_is_held_to_the_pageable_bandwidth)
{
    struct setting setting = pair_setting();
    struct plan plan = host_cache(PLAN_SPLIT_LAYER);

    plan.kv_pinned = false;
    tell_links_apart(setting.machine);
    time_step(&setting, plan, decode, 4096);
    for (int d = CUDA0; d <= CUDA1; d++)
        ck_near(alone_gbs(&setting, find(&setting, TASK_KV_WINDOW, d), 4096 * 2048), 2 + d);
    close_setting(&setting);
}
END_TEST

/* A bridge between devices is no part of a device's way to the host. */
static const char bridged[] =
    "{\"lopside_machine\": 1, \"name\": \"m\", \"host\": {\"memory_gbs\": 40},\n"
    " \"devices\": [{\"name\": \"CUDA0\", \"gpu\": \"RTX 3090\"},\n"
    "  {\"name\": \"CUDA1\", \"gpu\": \"RTX 3090\"}],\n"
    " \"links\": [{\"from\": \"host\", \"to\": \"CUDA0\", \"link\": \"gen4x16\"},\n"
    "  {\"from\": \"host\", \"to\": \"CUDA1\", \"link\": \"gen4x8\"},\n"
    "  {\"from\": \"CUDA0\", \"to\": \"CUDA1\", \"link\": \"NVLink 3 x4\"}]}\n";

START_TEST(a_bridge_between_devices_does_not_stand_for_their_way_to_the_host)
{
    struct error err = {0};
    struct setting setting =
        machine_setting(machine_parse(bridged, strlen(bridged), "m.json", NULL, &err), &err);
    struct plan plan = host_cache(PLAN_SPLIT_LAYER);

    plan.kv_pinned = false;
    tell_links_apart(setting.machine);
    setting.machine->links[2].down_gbs = 50;
    time_step(&setting, plan, decode, 4096);
    for (int d = CUDA0; d <= CUDA1; d++)
        ck_near(alone_gbs(&setting, find(&setting, TASK_KV_WINDOW, d), 4096 * 2048), 2 + d);
    ck_near(alone_gbs(&setting, find(&setting, TASK_PEER, CUDA0), 4.0 * 5120), 14);
    close_setting(&setting);
}
END_TEST

START_TEST(a_peer_copy_crosses_both_links_and_the_tighter_one_counts)
{
    static const double down_gbs[] = {5, 11}, copy_gbs[] = {5, 7}; /* up the other link: 7 */

    for (int i = 0; i < 2; i++) {
        struct setting setting = pair_setting();

        tell_links_apart(setting.machine);
        setting.machine->links[CUDA1].down_gbs = down_gbs[i];
        time_step(&setting, device_cache(PLAN_SPLIT_LAYER), prefill, 512);
        ck_near(alone_gbs(&setting, find(&setting, TASK_PEER, CUDA0), 4.0 * 5120 * 512),
                copy_gbs[i]);
        close_setting(&setting);
    }
}
END_TEST

START_TEST(a_part_row_copy_carries_its_packet_headers)
{
    struct setting setting = pair_setting();
    struct plan plan = host_cache(PLAN_SPLIT_TENSOR);
    size_t window;

    plan.type_k = plan.type_v = TENSOR_TYPE_Q8_0;
    tell_links_apart(setting.machine);
    setting.machine->links[CUDA1].row_s = 1e-9;
    time_step(&setting, plan, decode, 4096);
    window = find(&setting, TASK_KV_WINDOW, CUDA1);
    ck_assert_double_eq(setting.timed->program->tasks[window].row_bytes, 544);
    ck_near(alone_gbs(&setting, window, 4096 * 544.0),
            11 * cost_row_ratio(&setting.machine->links[CUDA1], 544));
    ck_near(engine_task_at(&setting, window).work_s, 4e-6 + 4096 * 1e-9);
    close_setting(&setting);
}
END_TEST

/* ---- all-reduce ---- */

static struct setting equal_setting(uint32_t count)
{
    struct error err = {0};
    const char *gpus[4] = {"RTX 3090@gen4x8", "RTX 3090@gen4x8", "RTX 3090@gen4x8",
                           "RTX 3090@gen4x8"};
    struct setting setting = machine_setting(machine_compose(gpus, count, &err), &err);

    tell_links_apart(setting.machine);
    for (uint32_t l = 0; l < setting.machine->link_count; l++) {
        setting.machine->links[l].down_gbs = 8;
        setting.machine->links[l].up_gbs = 8;
        setting.machine->links[l].duplex_gbs = 16;
    }
    setting.machine->collective.ratio = 0.5;
    return setting;
}

START_TEST(each_direction_carries_its_part_of_an_all_reduce)
{
    static const double parts[] = {[2] = 1, [3] = 4 / 3.0, [4] = 1.5};
    struct setting setting = equal_setting((uint32_t)_i);
    double payload = 4.0 * 5120;
    size_t task;

    time_step(&setting, device_cache(PLAN_SPLIT_TENSOR), decode, 256);
    task = find(&setting, TASK_ALL_REDUCE, CUDA0);
    ck_assert_double_eq(window_bytes(&setting, task), payload);
    ck_near(timing_flow_bytes(setting.timing, &setting.timed->program->tasks[task], payload),
            payload * parts[_i] / 0.5);
    ck_near(alone_s(&setting, task),
            setting.machine->collective.latency_s + payload * parts[_i] / 0.5 / 8e9);
    close_setting(&setting);
}
END_TEST

START_TEST(an_all_reduce_fills_both_directions_so_the_duplex_limit_counts)
{
    struct setting setting = equal_setting(2);

    setting.machine->links[CUDA1].duplex_gbs = 10;
    time_step(&setting, device_cache(PLAN_SPLIT_TENSOR), decode, 256);
    ck_near(alone_s(&setting, find(&setting, TASK_ALL_REDUCE, CUDA0)),
            setting.machine->collective.latency_s + 4.0 * 5120 / 0.5 / 5e9);
    close_setting(&setting);
}
END_TEST

START_TEST(a_large_payload_is_halved_and_converted_by_the_slower_device)
{
    struct setting setting = pair_setting();
    double elements = 5120 * 512.0, convert_s;
    const struct machine_device *slow = &setting.machine->devices[CUDA1];
    const struct machine_family *family = &setting.machine->families[slow->family];
    size_t task;

    time_step(&setting, device_cache(PLAN_SPLIT_TENSOR), prefill, 512);
    task = find(&setting, TASK_ALL_REDUCE, CUDA0);
    convert_s =
        2 * family->kernel_s + 12 * elements / (slow->memory_gbs * 1e9 * family->memory_ratio);
    ck_assert_double_eq(window_bytes(&setting, task), 2 * elements);
    ck_near(engine_task_at(&setting, task).work_s,
            setting.machine->collective.latency_s + convert_s);
    close_setting(&setting);
}
END_TEST

/* ---- what the host thread pays ---- */

static void tell_host_costs_apart(struct machine_host *host)
{
    host->thread_gbs = 10;
    host->launch_s = 1e-6;
    host->copy_s = 2e-6;
    host->sync_s = 3e-6;
    host->split_s = 4e-6;
    host->build_s = 5e-6;
    host->collective_issue_s = 6e-6;
}

static double issue_of(const struct setting *setting, enum task_kind kind, int device)
{
    size_t index = find(setting, kind, device);

    ck_assert_uint_gt(setting->timed->program->tasks[index].launches, 0);
    return engine_task_at(setting, index).issue_s / setting->timed->program->tasks[index].launches;
}

START_TEST(the_host_thread_pays_for_each_kind_what_the_machine_says)
{
    struct setting setting = pair_setting();

    tell_host_costs_apart(&setting.machine->host);
    time_step(&setting, device_cache(PLAN_SPLIT_LAYER), prefill, 512);
    ck_near(issue_of(&setting, TASK_BUILD, PROGRAM_AT_HOST), 5e-6);
    ck_near(issue_of(&setting, TASK_INPUT, CUDA0), 2e-6);
    ck_near(issue_of(&setting, TASK_NORM, CUDA0), 1e-6);
    ck_near(issue_of(&setting, TASK_PEER, CUDA0), 1e-6);
    ck_near(engine_task_at(&setting, find(&setting, TASK_EMBED, PROGRAM_AT_HOST)).issue_s,
            8.0 * 5120 * 512 / 10e9);
    ck_near(engine_task_at(&setting, find(&setting, TASK_MASK, PROGRAM_AT_HOST)).issue_s,
            4.0 * 512 * 512 / 10e9);
    close_setting(&setting);

    setting = pair_setting();
    tell_host_costs_apart(&setting.machine->host);
    time_step(&setting, host_cache(PLAN_SPLIT_TENSOR), decode, 512);
    ck_near(issue_of(&setting, TASK_SYNC, CUDA0), 3e-6);
    ck_near(issue_of(&setting, TASK_SPLIT, PROGRAM_AT_HOST), 4e-6);
    ck_near(issue_of(&setting, TASK_ALL_REDUCE, CUDA0), 6e-6);
    ck_near(issue_of(&setting, TASK_KV_WINDOW, CUDA1), 2e-6);
    close_setting(&setting);
}
END_TEST

START_TEST(kernels_of_a_replayed_graph_are_launched_at_once)
{
    struct setting setting = pair_setting();
    double launches = 0, kernels = 0;

    time_step(&setting, device_cache(PLAN_SPLIT_LAYER), decode, 512);
    for (size_t i = 0; i < setting.timed->program->task_count; i++) {
        const struct program_task *task = &setting.timed->program->tasks[i];

        if (program_task_class(task->kind) != TASK_CLASS_KERNEL)
            continue;
        kernels += task->kernels;
        launches += engine_task_at(&setting, i).issue_s / setting.machine->host.launch_s;
    }
    ck_assert_double_gt(kernels, 1000);
    ck_near(launches, 2); /* one graph a device */
    close_setting(&setting);
}
END_TEST

/* ---- windows ---- */

static const struct {
    enum plan_split split;
    bool kv_on_host;
    uint32_t tokens;
} window_cases[] = {
    {PLAN_SPLIT_NONE, false, 1},   {PLAN_SPLIT_LAYER, false, 1},    {PLAN_SPLIT_LAYER, true, 1},
    {PLAN_SPLIT_LAYER, true, 512}, {PLAN_SPLIT_TENSOR, false, 512}, {PLAN_SPLIT_TENSOR, true, 1},
};

START_TEST(setting_windows_is_the_same_as_building_anew)
{
    static const uint32_t used[] = {1, 9000, 256, 65536, 8192, 7936};
    struct error err = {0};
    struct setting setting = pair_setting();
    struct plan plan = window_cases[_i].kv_on_host ? host_cache(window_cases[_i].split)
                                                   : device_cache(window_cases[_i].split);
    struct program_step step = {.tokens = window_cases[_i].tokens, .outputs = 1};

    time_step(&setting, plan, step, 4096);
    for (size_t u = 0; u < sizeof used / sizeof *used; u++) {
        struct program_cells cells = program_cells_at(setting.placement, used[u]);
        struct timed_program *anew = timed_program_new(setting.timing, step, cells, &err);
        size_t count = setting.timed->program->task_count;

        ck_assert_msg(anew != NULL, "%s", err.text);
        ck_assert_uint_eq(anew->program->task_count, count);
        timed_program_set_cells(setting.timing, setting.timed, cells);
        for (size_t i = 0; i < count; i++) {
            struct engine_task set = engine_task_at(&setting, i);
            struct engine_task new = engine_schedule_tasks(anew->schedule)[i];

            ck_assert_mem_eq(&set.issue_s, &new.issue_s, sizeof set.issue_s);
            ck_assert_mem_eq(&set.work_s, &new.work_s, sizeof set.work_s);
            ck_assert_mem_eq(&set.flow_bytes, &new.flow_bytes, sizeof set.flow_bytes);
            ck_assert_uint_eq(set.route, new.route);
        }
        timed_program_free(anew);
    }
    close_setting(&setting);
}
END_TEST

/* ---- what limited a run ---- */

static void expect_bound(struct setting *setting, struct plan plan, bool prompt, const char *name)
{
    struct error err = {0};
    struct prediction prediction;
    struct predict_options options = {.tool = PREDICT_LLAMA_BENCH};

    time_step(setting, plan, decode, 256);
    if (prompt)
        ck_assert_int_eq(
            predict_prompt(setting->timing, setting->placement, 0, 512, options, &prediction, &err),
            0);
    else
        ck_assert_int_eq(predict_generation(setting->timing, setting->placement, 8192, 16, options,
                                            &prediction, &err),
                         0);
    ck_assert_str_eq(prediction.bound.resource, name);
    ck_assert_double_gt(prediction.bound.ratio, 0.3);
    ck_assert_double_le(prediction.bound.ratio, 1);
    close_setting(setting);
}

START_TEST(a_resident_decode_is_bound_by_the_slower_device)
{
    struct setting setting = pair_setting();

    expect_bound(&setting, device_cache(PLAN_SPLIT_LAYER), false, "CUDA1");
}
END_TEST

START_TEST(a_decode_with_a_host_cache_is_bound_by_the_slower_link)
{
    struct setting setting = pair_setting();

    expect_bound(&setting, host_cache(PLAN_SPLIT_LAYER), false, "host>CUDA1");
}
END_TEST

START_TEST(a_tensor_split_over_a_thin_link_is_bound_by_the_all_reduce)
{
    struct setting setting = pair_setting();
    struct machine_link *link = &setting.machine->links[CUDA1];

    link->down_gbs = link->up_gbs = link->duplex_gbs = 0.5;
    expect_bound(&setting, device_cache(PLAN_SPLIT_TENSOR), true, "all-reduce");
}
END_TEST

START_TEST(a_prompt_with_slow_launches_is_bound_by_the_host_thread)
{
    struct setting setting = pair_setting();

    setting.machine->host.launch_s = 1e-3;
    expect_bound(&setting, device_cache(PLAN_SPLIT_LAYER), true, "host thread");
}
END_TEST

START_TEST(nothing_limits_a_run_without_time)
{
    struct setting setting = pair_setting();
    struct timing_busy busy = {0};
    struct timing_bound bound;

    time_step(&setting, device_cache(PLAN_SPLIT_LAYER), decode, 256);
    bound = timing_bound(setting.timing, &busy);
    ck_assert_str_eq(bound.resource, "");
    ck_assert_double_eq(bound.ratio, 0);
    ck_assert_str_eq(bound.second, "");
    close_setting(&setting);
}
END_TEST

START_TEST(busy_seconds_add_up_over_runs)
{
    struct setting setting = pair_setting();
    struct error err = {0};
    struct prediction prediction;
    struct timing_busy start = {0}, once, thrice = {0};
    struct timing_bound bound;

    time_step(&setting, host_cache(PLAN_SPLIT_LAYER), decode, 256);
    ck_assert_int_eq(predict_generation(setting.timing, setting.placement, 8192, 3,
                                        (struct predict_options){.full_stepping = true},
                                        &prediction, &err),
                     0);
    timing_read_busy(setting.timing, &once);
    ck_near(once.elapsed_s, prediction.time_s);
    timing_add_busy(&thrice, &start, &once, 3);
    ck_near(thrice.elapsed_s, 3 * once.elapsed_s);
    bound = timing_bound(setting.timing, &thrice);
    ck_assert_str_eq(bound.resource, prediction.bound.resource);
    ck_near(bound.ratio, prediction.bound.ratio);
    ck_assert_str_eq(bound.second, prediction.bound.second);
    ck_assert_str_ne(bound.second, bound.resource);
    ck_assert_double_le(bound.second_ratio, bound.ratio);
    close_setting(&setting);
}
END_TEST

static TCase *routes_case(void)
{
    TCase *routes = tcase_create("routes");

    tcase_add_test(routes, a_pinned_window_goes_down_the_link_of_its_device);
    tcase_add_test(routes, new_rows_go_up_the_link_of_their_device);
    tcase_add_test(routes, a_pageable_window_is_held_to_the_pageable_bandwidth);
    tcase_add_test(routes, a_bridge_between_devices_does_not_stand_for_their_way_to_the_host);
    tcase_add_test(routes, a_peer_copy_crosses_both_links_and_the_tighter_one_counts);
    tcase_add_test(routes, a_part_row_copy_carries_its_packet_headers);
    tcase_add_loop_test(routes, each_direction_carries_its_part_of_an_all_reduce, 2, 5);
    tcase_add_test(routes, an_all_reduce_fills_both_directions_so_the_duplex_limit_counts);
    tcase_add_test(routes, a_large_payload_is_halved_and_converted_by_the_slower_device);
    return routes;
}

int main(void)
{
    Suite *suite = suite_create("timing");
    TCase *host = tcase_create("host"), *windows = tcase_create("windows");
    TCase *bounds = tcase_create("bounds");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(host, the_host_thread_pays_for_each_kind_what_the_machine_says);
    tcase_add_test(host, kernels_of_a_replayed_graph_are_launched_at_once);
    tcase_add_loop_test(windows, setting_windows_is_the_same_as_building_anew, 0,
                        (int)(sizeof window_cases / sizeof *window_cases));
    tcase_add_test(bounds, a_resident_decode_is_bound_by_the_slower_device);
    tcase_add_test(bounds, a_decode_with_a_host_cache_is_bound_by_the_slower_link);
    tcase_add_test(bounds, a_tensor_split_over_a_thin_link_is_bound_by_the_all_reduce);
    tcase_add_test(bounds, a_prompt_with_slow_launches_is_bound_by_the_host_thread);
    tcase_add_test(bounds, nothing_limits_a_run_without_time);
    tcase_add_test(bounds, busy_seconds_add_up_over_runs);
    suite_add_tcase(suite, routes_case());
    suite_add_tcase(suite, host);
    suite_add_tcase(suite, windows);
    suite_add_tcase(suite, bounds);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
