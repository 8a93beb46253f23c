/* Who is timed by a kernel table, and how a step comes out that is. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/cost.h"
#include "sim/kernel_times.h"
#include "sim/machine_pace.h"
#include "sim/timing.h"

#define PROFILE "tests/data/kernel-tables.json"
#define ck_near(actual, expected) ck_assert_double_eq_tol(actual, expected, 1e-12 * (expected))

struct setting {
    struct machine *machine;
    struct model *model;
    struct placement *placement;
    struct timing *timing;
    struct timed_program *timed;
};

static struct machine *open_profile(void)
{
    const char *srcdir = getenv("srcdir");
    struct error err = {0};
    struct machine *machine;
    char path[400];

    snprintf(path, sizeof path, "%s/%s", srcdir != NULL ? srcdir : ".", PROFILE);
    machine = machine_open(path, NULL, &err);
    ck_assert_msg(machine != NULL, "%s", err.text);
    return machine;
}

static struct setting open_planned(struct machine *machine, const char *model, struct plan plan,
                                   uint32_t tokens)
{
    const struct program_step step = {.tokens = tokens, .outputs = 1, .sync = true};
    struct setting s = {.machine = machine};
    struct error err = {0};

    s.model = model_from_catalogue(model, &err);
    ck_assert_msg(s.model != NULL, "%s", err.text);
    s.placement = placement_new(s.model, machine, &plan, 4096, &err);
    ck_assert_msg(s.placement != NULL, "%s", err.text);
    s.timing = timing_new(s.placement, &err);
    ck_assert_msg(s.timing != NULL, "%s", err.text);
    s.timed = timed_program_new(s.timing, step, program_cells_at(s.placement, 1000), &err);
    ck_assert_msg(s.timed != NULL, "%s", err.text);
    return s;
}

static struct setting open_setting(struct machine *machine, enum plan_schedule schedule,
                                   const char *model)
{
    struct plan plan = plan_default();

    plan.split = PLAN_SPLIT_TENSOR;
    plan.schedule = schedule;
    return open_planned(machine, model, plan, 1);
}

/* A step of our own runtime on one device, whose cache is the host's. */
static struct setting open_host_cache(struct machine *machine, uint32_t tokens)
{
    struct plan plan = plan_default();

    plan.split = PLAN_SPLIT_NONE;
    plan.schedule = PLAN_SCHEDULE_LOPSIDE;
    plan.kv_on_host = plan.kv_pinned = true;
    return open_planned(machine, "qwen3-0.6b:Q8_0", plan, tokens);
}

static void close_setting(struct setting s)
{
    timed_program_free(s.timed);
    timing_free(s.timing);
    placement_free(s.placement);
    model_free(s.model);
    machine_free(s.machine);
}

static double cost_of(const struct setting *s, const struct program_task *task)
{
    const struct machine_device *device = &s->machine->devices[s->placement->devices[task->device]];

    return cost_kernel_s(s->machine, device, task, program_task_cells(task, s->timed->cells));
}

/* How many of the kernels are timed by the first device's table, and how many are not. */
static void count_kernels(const struct setting *s, unsigned *by_table, unsigned *by_cost)
{
    const struct kernel_table *measured =
        machine_kernel_table(s->machine, s->machine->devices[0].gpu);
    const struct engine_task *tasks = engine_schedule_tasks(s->timed->schedule);

    *by_table = *by_cost = 0;
    for (size_t i = 0; i < s->timed->program->task_count; i++) {
        const struct program_task *task = &s->timed->program->tasks[i];
        double time_s = -1;

        if (program_task_class(task->kind) != TASK_CLASS_KERNEL)
            continue;
        if (measured != NULL)
            time_s =
                kernel_table_s(measured, task, program_task_cells(task, s->timed->cells), NULL);
        if (time_s >= 0 && tasks[i].work_s == time_s)
            (*by_table)++;
        else if (tasks[i].work_s == cost_of(s, task))
            (*by_cost)++;
        else
            ck_abort_msg("task %zu lasts %g s", i, tasks[i].work_s);
    }
}

static const struct engine_task *first_sum(const struct setting *s)
{
    for (size_t i = 0; i < s->timed->program->task_count; i++)
        if (s->timed->program->tasks[i].kind == TASK_ALL_REDUCE)
            return &engine_schedule_tasks(s->timed->schedule)[i];
    ck_abort_msg("no sum");
    return NULL;
}

START_TEST(our_own_schedule_is_timed_by_the_tables)
{
    struct setting s = open_setting(open_profile(), PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    unsigned by_table, by_cost;

    count_kernels(&s, &by_table, &by_cost);
    ck_assert_uint_gt(by_table, 600);
    ck_assert_uint_eq(by_cost, 0);
    ck_near(first_sum(&s)->work_s, 20e-6); /* 1024 elements of 8 bytes */
    ck_assert_double_eq(first_sum(&s)->flow_bytes, 0);
    close_setting(s);
}
END_TEST

START_TEST(windows_that_grow_are_timed_anew_by_the_tables)
{
    struct setting s = open_setting(open_profile(), PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    unsigned by_table, by_cost;

    timed_program_set_cells(s.timing, s.timed, program_cells_at(s.placement, 3000));
    count_kernels(&s, &by_table, &by_cost);
    ck_assert_uint_gt(by_table, 600);
    ck_assert_uint_eq(by_cost, 0);
    close_setting(s);
}
END_TEST

/* The last task of a kind on a device: all of a layer's are there before it. */
static const struct engine_task *last_of(const struct setting *s, enum task_kind kind, int device)
{
    const struct program *program = s->timed->program;

    for (size_t i = program->task_count; i-- > 0;)
        if (program->tasks[i].kind == kind && program->tasks[i].device == device)
            return &engine_schedule_tasks(s->timed->schedule)[i];
    ck_abort_msg("no task of kind %d on device %d", kind, device);
    return NULL;
}

/* What the sum, the norm and so on take comes off the products behind them. */
START_TEST(a_step_has_what_products_load_ahead)
{
    struct machine *machine = open_profile();
    struct kernel_table *measured = &machine->kernel_tables[0];
    struct setting s;
    double norm_s, head_s;

    measured->products[0].ahead_bytes = 1e6; /* of 1 token, 2.5 us at 400 GB/s */
    measured->step_s = 7e-6;
    s = open_setting(machine, PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    norm_s = last_of(&s, TASK_NORM, 0)->work_s;
    head_s = last_of(&s, TASK_MATMUL, 0)->work_s;
    ck_assert_double_gt(norm_s, 1e-6);
    /* half of 151936 x 1024 weights, behind a sum of 20 us and a norm: as much as there is room for
     */
    ck_near(head_s, 2e-6 + 151936.0 / 2 * 1024 * 34 / 32 / 400e9 - 2.5e-6);
    /* before the first launch, for two devices that were measured */
    ck_assert_int_eq(s.timed->program->tasks[0].kind, TASK_EMBED);
    ck_assert_double_lt(engine_schedule_tasks(s.timed->schedule)[0].issue_s, 1e-6);
    ck_assert_int_eq(s.timed->program->tasks[1].kind, TASK_INPUT);
    ck_near(engine_schedule_tasks(s.timed->schedule)[1].issue_s, 14e-6 + machine->host.launch_s);
    close_setting(s);
}
END_TEST

START_TEST(a_slowed_device_is_held_up_behind_each_kernel)
{
    struct machine *machine = open_profile();
    struct kernel_table *measured = &machine->kernel_tables[0];
    struct setting s;
    const double head_bytes = 151936.0 / 2 * 1024 * 34 / 32;

    measured->products[0].ahead_bytes = 1e6;
    measured->pace_inside_s = 3e-6;
    measured->pace_behind_s = 1e-6;
    machine->devices[1].slowdown = 2;
    s = open_setting(machine, PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    ck_near(last_of(&s, TASK_MATMUL, 0)->work_s, 2e-6 + head_bytes / 400e9 - 2.5e-6);
    ck_near(last_of(&s, TASK_MATMUL, 1)->work_s, 2 * (2e-6 + head_bytes / 400e9 + 3e-6) + 1e-6);
    close_setting(s);
}
END_TEST

/* Over 3008 cells, of which it reads none ahead: they come as fast as memory is read. */
START_TEST(attention_of_a_slowed_device_reads_its_window_then)
{
    double work_s[2], window_s = 0;

    for (int slowed = 0; slowed < 2; slowed++) {
        struct machine *machine = open_profile();
        struct setting s;

        machine->devices[1].slowdown = slowed ? 2 : 1;
        s = open_setting(machine, PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
        timed_program_set_cells(s.timing, s.timed, program_cells_at(s.placement, 3000));
        work_s[slowed] = last_of(&s, TASK_ATTENTION, 1)->work_s;
        for (size_t i = 0; i < s.timed->program->task_count; i++)
            if (s.timed->program->tasks[i].kind == TASK_ATTENTION)
                window_s = 3008 * s.timed->program->tasks[i].bytes_per_cell /
                           (machine->devices[1].memory_gbs * 1e9);
        close_setting(s);
    }
    ck_assert_double_gt(window_s, 1e-6);
    ck_assert_double_eq_tol(work_s[1], 2 * (work_s[0] + window_s), 1e-12);
}
END_TEST

/* Embeddings and stored rows go by the step's tokens. */
START_TEST(the_hosts_own_work_has_its_rows)
{
    static const struct kernel_other rows[] = {
        {.kind = TASK_EMBED, .tokens = 1, .bytes = 5000, .time_s = 3e-6},
        {.kind = TASK_EMBED, .tokens = 512, .bytes = 5000000, .time_s = 100e-6},
        {.kind = TASK_KV_STORE, .tokens = 1, .bytes = 3000, .time_s = 1e-6},
        {.kind = TASK_KV_STORE, .tokens = 512, .bytes = 4000000, .time_s = 20e-6}};

    for (int prompt = 0; prompt < 2; prompt++) {
        struct machine *machine = open_profile();
        struct setting s;
        size_t seen = 0;

        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            ck_assert_int_eq(kernel_table_add_other(&machine->kernel_tables[0], rows[i], NULL), 0);
        s = open_host_cache(machine, prompt ? 512 : 1);
        for (size_t i = 0; i < s.timed->program->task_count; i++) {
            const struct program_task *task = &s.timed->program->tasks[i];
            const struct kernel_other *row = &rows[prompt + (task->kind == TASK_KV_STORE ? 2 : 0)];

            if (task->kind != TASK_EMBED && task->kind != TASK_KV_STORE)
                continue;
            ck_near(engine_schedule_tasks(s.timed->schedule)[i].issue_s,
                    kernel_table_plain_s(&machine->kernel_tables[0], task->kind, task->tokens,
                                         task->bytes));
            ck_near(engine_schedule_tasks(s.timed->schedule)[i].issue_s,
                    fmin(2.5e-6, row->time_s) +
                        fmax(0, row->time_s - 2.5e-6) * task->bytes / (double)row->bytes);
            seen++;
        }
        ck_assert_uint_eq(seen, prompt ? 1 + 28 : 2);
        close_setting(s);
    }
}
END_TEST

START_TEST(windows_and_waits_take_what_was_measured_of_them)
{
    const struct kernel_other wait = {.kind = TASK_WAIT, .tokens = 1, .time_s = 9e-6};
    struct machine *machine = open_profile();
    size_t windows = 0, waits = 0;
    struct setting s;

    machine->kernel_tables[0].copy_s = 6e-6;
    ck_assert_int_eq(kernel_table_add_other(&machine->kernel_tables[0], wait, NULL), 0);
    s = open_host_cache(machine, 1);
    for (size_t i = 0; i < s.timed->program->task_count; i++) {
        const struct program_task *task = &s.timed->program->tasks[i];
        double work_s = engine_schedule_tasks(s.timed->schedule)[i].work_s;

        if (task->kind == TASK_KV_WINDOW) {
            ck_near(work_s, 6e-6);
            windows++;
        } else if (task->kind == TASK_KV_ROWS || task->kind == TASK_INPUT) {
            ck_assert_double_ne(work_s, 6e-6); /* on the compute queue, by a kernel */
        } else if (task->kind == TASK_WAIT && task->queues == UINT64_C(1)
                                                                  << program_queue_compute(0)) {
            ck_near(work_s, 9e-6);
            waits++;
        }
    }
    ck_assert_uint_eq(windows, 2 * 28);
    ck_assert_uint_eq(waits, 28);
    close_setting(s);
}
END_TEST

/* Where they have rows; a link that is held back on purpose holds them for their bytes. */
START_TEST(copies_on_the_compute_queue_take_what_was_measured_of_them)
{
    static const struct kernel_other rows[] = {
        {.kind = TASK_INPUT, .tokens = 1, .bytes = 1000, .time_s = 3e-6},
        {.kind = TASK_INPUT, .tokens = 1, .bytes = 1000000, .time_s = 5e-6},
        {.kind = TASK_LOGITS, .tokens = 1, .bytes = 1000, .time_s = 1e-6},
        {.kind = TASK_LOGITS, .tokens = 1, .bytes = 1000000, .time_s = 7e-6}};

    for (int paced = 0; paced < 2; paced++) {
        struct machine_pace pace = {.link_gbs = {1}};
        struct machine *machine = open_profile();
        unsigned seen = 0;
        struct setting s;

        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            ck_assert_int_eq(kernel_table_add_other(&machine->kernel_tables[0], rows[i], NULL), 0);
        if (paced)
            machine_apply_pace(machine, &pace);
        s = open_host_cache(machine, 1);
        for (size_t i = 0; i < s.timed->program->task_count; i++) {
            const struct program_task *task = &s.timed->program->tasks[i];
            const struct engine_task *timed = &engine_schedule_tasks(s.timed->schedule)[i];
            const struct kernel_other *row = &rows[task->kind == TASK_LOGITS ? 2 : 0];
            double n = program_task_cells(task, s.timed->cells);
            double bytes = task->bytes + n * task->bytes_per_cell, share, measured_s;

            if (task->kind == TASK_KV_WINDOW || task->kind == TASK_KV_ROWS)
                ck_assert_double_gt(timed->flow_bytes, 0); /* no rows, or a queue of its own */
            if (task->kind != TASK_INPUT && task->kind != TASK_LOGITS)
                continue;
            share = (bytes - 1000) / 999000;
            measured_s = row[0].time_s + share * (row[1].time_s - row[0].time_s);
            ck_assert_double_eq(timed->flow_bytes, 0);
            ck_near(timed->work_s, paced ? fmax(measured_s, bytes / 1e9) : measured_s);
            seen |= 1u << (task->kind == TASK_LOGITS);
        }
        ck_assert_uint_eq(seen, 3);
        close_setting(s);
    }
}
END_TEST

/* The host waits for each device at the end of a step: for the first until it has news of it. */
START_TEST(waiting_for_devices_takes_what_was_measured_of_it)
{
    const struct kernel_other row = {.kind = TASK_SYNC, .tokens = 1, .time_s = 8e-6};
    struct machine *machine = open_profile();
    unsigned seen = 0;
    struct setting s;

    ck_assert_int_eq(kernel_table_add_other(&machine->kernel_tables[0], row, NULL), 0);
    machine->kernel_tables[0].ready_each_s = 5e-6;
    machine->kernel_tables[0].ready_next_s = 2e-6;
    s = open_setting(machine, PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    for (size_t i = 0; i < s.timed->program->task_count; i++) {
        if (s.timed->program->tasks[i].kind != TASK_SYNC)
            continue;
        ck_near(engine_schedule_tasks(s.timed->schedule)[i].work_s, seen == 0 ? 13e-6 : 2e-6);
        seen++;
    }
    ck_assert_uint_eq(seen, 2);
    close_setting(s);
}
END_TEST

START_TEST(types_that_were_not_measured_are_timed_as_before)
{
    struct setting s = open_setting(open_profile(), PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q4_K_M");
    unsigned by_table, by_cost;

    count_kernels(&s, &by_table, &by_cost);
    ck_assert_uint_gt(by_table, 200);
    ck_assert_uint_gt(by_cost, 200);
    close_setting(s);
}
END_TEST

START_TEST(schedules_of_others_are_never_timed_by_the_tables)
{
    static const enum plan_schedule others[] = {PLAN_SCHEDULE_LLAMA_CPP,
                                                PLAN_SCHEDULE_LLAMA_CPP_FORK};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct setting s = open_setting(open_profile(), others[i], "qwen3-0.6b:Q8_0");
        unsigned by_table, by_cost;

        count_kernels(&s, &by_table, &by_cost);
        ck_assert_uint_eq(by_table, 0);
        ck_assert_uint_gt(by_cost, 600);
        ck_assert_double_gt(first_sum(&s)->flow_bytes, 0);
        close_setting(s);
    }
}
END_TEST

START_TEST(a_sum_counts_as_measured_when_it_is_on_all_its_devices)
{
    struct machine *machine = open_profile();
    unsigned by_table, by_cost;
    struct setting s;

    memcpy(machine->devices[1].gpu, "another card", sizeof "another card");
    s = open_setting(machine, PLAN_SCHEDULE_LOPSIDE, "qwen3-0.6b:Q8_0");
    count_kernels(&s, &by_table, &by_cost);
    ck_assert_uint_gt(by_table, 300);
    ck_assert_uint_gt(by_cost, 300);
    ck_assert_double_eq(first_sum(&s)->work_s, machine->collective.latency_s);
    ck_assert_double_gt(first_sum(&s)->flow_bytes, 0);
    close_setting(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel_timing");
    TCase *use = tcase_create("use");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(use, our_own_schedule_is_timed_by_the_tables);
    tcase_add_test(use, windows_that_grow_are_timed_anew_by_the_tables);
    tcase_add_test(use, a_step_has_what_products_load_ahead);
    tcase_add_test(use, a_slowed_device_is_held_up_behind_each_kernel);
    tcase_add_test(use, attention_of_a_slowed_device_reads_its_window_then);
    tcase_add_test(use, the_hosts_own_work_has_its_rows);
    tcase_add_test(use, windows_and_waits_take_what_was_measured_of_them);
    tcase_add_test(use, copies_on_the_compute_queue_take_what_was_measured_of_them);
    tcase_add_test(use, waiting_for_devices_takes_what_was_measured_of_it);
    tcase_add_test(use, types_that_were_not_measured_are_timed_as_before);
    tcase_add_test(use, schedules_of_others_are_never_timed_by_the_tables);
    tcase_add_test(use, a_sum_counts_as_measured_when_it_is_on_all_its_devices);
    suite_add_tcase(suite, use);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
