/* The engine's rules on schedules small enough to work out by hand, then on random
 * ones against a second simulator that is slow and obvious. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ON(queue) (UINT64_C(1) << (queue))
#define GB 1e9 /* bytes; a second on a link of 1 GB/s */

/* ---- short ways to say what most tests need ---- */

static struct engine_task work(uint64_t queues, double work_s)
{
    return (struct engine_task){.queues = queues, .work_s = work_s, .route = ENGINE_NO_ROUTE};
}

static struct engine_task flow(uint64_t queues, double bytes, uint16_t route)
{
    return (struct engine_task){.queues = queues, .flow_bytes = bytes, .route = route};
}

static struct engine_task issued(double issue_s, struct engine_task task)
{
    task.issue_s = issue_s;
    return task;
}

static struct engine_task blocking(struct engine_task task)
{
    task.blocking = true;
    return task;
}

/* The task with `count` dependencies from `first` on in the test's list. */
static struct engine_task after(uint32_t first, uint32_t count, struct engine_task task)
{
    task.dependency_first = first;
    task.dependency_count = count;
    return task;
}

static struct engine_schedule *schedule_of(const struct engine_task *tasks, size_t count,
                                           const uint32_t *dependencies, size_t dependency_count)
{
    struct error err = {0};
    struct engine_schedule *schedule =
        engine_schedule_new(tasks, count, dependencies, dependency_count, &err);

    ck_assert_msg(schedule != NULL, "%s", err.text);
    return schedule;
}

/* An engine with routes over links; a weight left at 0 stands for 1. */
static struct engine *engine_with(const double *link_gbs, size_t link_count,
                                  const struct engine_route *routes, size_t route_count)
{
    struct engine_route filled[16];
    struct error err = {0};
    struct engine *engine;

    ck_assert_uint_le(route_count, COUNT(filled));
    for (size_t r = 0; r < route_count; r++) {
        filled[r] = routes[r];
        for (uint32_t l = 0; l < filled[r].link_count; l++)
            if (filled[r].weights[l] <= 0)
                filled[r].weights[l] = 1;
    }
    engine = engine_new(link_gbs, link_count, filled, route_count, &err);
    ck_assert_msg(engine != NULL, "%s", err.text);
    return engine;
}

/* One link of 1 GB/s with the route 0 over it. */
static struct engine *engine_with_one_link(void)
{
    return engine_with((double[]){1}, 1, (struct engine_route[]){{.link_count = 1}}, 1);
}

static void run(struct engine *engine, const struct engine_schedule *schedule)
{
    struct error err = {0};

    ck_assert_int_eq(engine_run(engine, schedule, &err), 0);
}

static void finish(struct engine *engine)
{
    struct error err = {0};

    ck_assert_int_eq(engine_finish(engine, &err), 0);
}

static double end_s(const struct engine *engine, size_t task)
{
    size_t count;
    const double *ends = engine_last_ends(engine, &count);

    ck_assert_uint_lt(task, count);
    return ends[task];
}

static double start_s(const struct engine *engine, size_t task)
{
    size_t count;
    const double *starts = engine_last_starts(engine, &count);

    ck_assert_uint_lt(task, count);
    return starts[task];
}

/* Runs the tasks to their end on the engine and compares when each of them ends. */
static void expect_ends(struct engine *engine, const struct engine_task *tasks, size_t count,
                        const uint32_t *dependencies, size_t dependency_count, const double *ends_s)
{
    struct engine_schedule *schedule = schedule_of(tasks, count, dependencies, dependency_count);

    run(engine, schedule);
    finish(engine);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabs(end_s(engine, i) - ends_s[i]) <= 1e-12 * ends_s[i],
                      "task %zu ends at %.17g s, not %.17g s", i, end_s(engine, i), ends_s[i]);
    engine_free(engine);
    engine_schedule_free(schedule);
}

/* ---- queues and dependencies ---- */

START_TEST(tasks_on_one_queue_run_in_issue_order)
{
    const struct engine_task tasks[] = {work(ON(0), 3), work(ON(0), 1), work(ON(0), 2)};

    expect_ends(engine_with_one_link(), tasks, 3, NULL, 0, (double[]){3, 4, 6});
}
END_TEST

START_TEST(tasks_on_different_queues_run_at_the_same_time)
{
    const struct engine_task tasks[] = {work(ON(0), 3), work(ON(1), 1), work(ON(63), 2)};

    expect_ends(engine_with_one_link(), tasks, 3, NULL, 0, (double[]){3, 1, 2});
}
END_TEST

START_TEST(a_task_waits_for_the_latest_of_its_dependencies)
{
    const struct engine_task tasks[] = {work(ON(0), 3), work(ON(1), 1),
                                        after(0, 2, work(ON(2), 1))};

    expect_ends(engine_with_one_link(), tasks, 3, (uint32_t[]){0, 1}, 2, (double[]){3, 1, 4});
}
END_TEST

START_TEST(a_dependency_named_twice_is_met_once)
{
    const struct engine_task tasks[] = {work(ON(0), 3), after(0, 3, work(ON(1), 1))};

    expect_ends(engine_with_one_link(), tasks, 2, (uint32_t[]){0, 0, 0}, 3, (double[]){3, 4});
}
END_TEST

START_TEST(a_task_that_waits_holds_back_later_ones_on_its_queue)
{
    const struct engine_task tasks[] = {work(ON(0), 5), after(0, 1, work(ON(1), 1)),
                                        work(ON(1), 1)};

    expect_ends(engine_with_one_link(), tasks, 3, (uint32_t[]){0}, 1, (double[]){5, 6, 7});
}
END_TEST

START_TEST(a_collective_waits_for_all_its_queues_and_holds_them)
{
    const struct engine_task tasks[] = {work(ON(0), 1), work(ON(1), 4), work(ON(0) | ON(1), 2),
                                        work(ON(0), 1), work(ON(1), 2), work(ON(2), 1)};

    expect_ends(engine_with_one_link(), tasks, 6, NULL, 0, (double[]){1, 4, 6, 7, 8, 1});
}
END_TEST

START_TEST(a_task_of_no_length_ends_where_it_starts)
{
    const struct engine_task tasks[] = {work(ON(0), 0), work(ON(0), 2), work(ON(0), 0),
                                        after(0, 1, work(ON(1), 0)), work(ON(1), 1)};

    expect_ends(engine_with_one_link(), tasks, 5, (uint32_t[]){1}, 1, (double[]){0, 2, 2, 2, 3});
}
END_TEST

START_TEST(an_empty_schedule_takes_no_time)
{
    struct engine *engine = engine_with(NULL, 0, NULL, 0);
    struct engine_schedule *schedule = schedule_of(NULL, 0, NULL, 0);
    size_t count;

    ck_assert_ptr_null(engine_last_ends(engine, &count));
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_eq(engine_schedule_task_count(schedule), 0);
    for (int i = 0; i < 3; i++)
        run(engine, schedule);
    finish(engine);
    engine_last_ends(engine, &count);
    ck_assert_uint_eq(count, 0);
    ck_assert_double_eq(engine_time_s(engine), 0);
    engine_free(engine);
    engine_schedule_free(schedule);
}
END_TEST

/* ---- the host thread ---- */

START_TEST(the_host_issues_tasks_one_after_the_other)
{
    const struct engine_task tasks[] = {issued(1, work(ON(0), 8)), issued(2, work(ON(1), 8)),
                                        issued(4, work(ON(2), 8))};

    expect_ends(engine_with_one_link(), tasks, 3, NULL, 0, (double[]){9, 11, 15});
}
END_TEST

START_TEST(a_blocking_task_holds_back_the_issue_of_the_next)
{
    const struct engine_task tasks[] = {
        issued(1, work(ON(0), 2)), issued(1, blocking(work(ON(1), 4))), issued(1, work(ON(0), 1))};

    expect_ends(engine_with_one_link(), tasks, 3, NULL, 0, (double[]){3, 6, 8});
}
END_TEST

START_TEST(a_blocking_flow_holds_back_the_issue_of_the_next)
{
    const struct engine_task tasks[] = {issued(1, blocking(flow(ON(0), 2 * GB, 0))),
                                        issued(1, work(ON(1), 1))};

    expect_ends(engine_with_one_link(), tasks, 2, NULL, 0, (double[]){3, 5});
}
END_TEST

START_TEST(the_host_is_through_before_tasks_that_nobody_waited_for)
{
    const struct engine_task tasks[] = {issued(1, work(ON(0), 8)), issued(1, flow(ON(1), GB, 0))};
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *schedule = schedule_of(tasks, 2, NULL, 0);

    run(engine, schedule);
    ck_assert_double_eq(engine_time_s(engine), 2);
    ck_assert_double_nan(end_s(engine, 1));
    finish(engine);
    ck_assert_double_eq(engine_time_s(engine), 9);
    ck_assert_double_eq(end_s(engine, 1), 3);
    finish(engine);
    ck_assert_double_eq(engine_time_s(engine), 9);
    engine_free(engine);
    engine_schedule_free(schedule);
}
END_TEST

/* ---- flows ---- */

START_TEST(a_flow_begins_after_its_fixed_part)
{
    struct engine_task late = flow(ON(0), 2 * GB, 0);
    struct engine_task early = flow(ON(1), 2 * GB, 0);

    late.work_s = 1;
    expect_ends(engine_with_one_link(), (struct engine_task[]){late, early}, 2, NULL, 0,
                (double[]){4, 3});
}
END_TEST

START_TEST(two_flows_on_one_link_share_it_until_one_ends)
{
    const struct engine_task tasks[] = {flow(ON(0), 1 * GB, 0), flow(ON(1), 3 * GB, 0)};

    expect_ends(engine_with_one_link(), tasks, 2, NULL, 0, (double[]){2, 4});
}
END_TEST

START_TEST(flows_on_one_queue_follow_each_other_at_full_speed)
{
    const struct engine_task tasks[] = {flow(ON(0), 1 * GB, 0), flow(ON(0), 3 * GB, 0)};

    expect_ends(engine_with_one_link(), tasks, 2, NULL, 0, (double[]){1, 4});
}
END_TEST

START_TEST(both_directions_share_what_a_duplex_limit_allows)
{
    const double link_gbs[] = {2, 2, 3}; /* up, down, and both together */
    const struct engine_route routes[] = {{.link_count = 2, .links = {0, 2}},
                                          {.link_count = 2, .links = {1, 2}}};
    const struct engine_task tasks[] = {flow(ON(0), 3 * GB, 0), flow(ON(1), 6 * GB, 1)};

    expect_ends(engine_with(link_gbs, 3, routes, 2), tasks, 2, NULL, 0, (double[]){2, 3.5});
}
END_TEST

START_TEST(a_route_limit_leaves_the_rest_of_a_link_to_others)
{
    const struct engine_route routes[] = {{.limit_gbs = 1, .link_count = 1}, {.link_count = 1}};
    const struct engine_task tasks[] = {flow(ON(0), 2 * GB, 0), flow(ON(1), 9 * GB, 1)};

    expect_ends(engine_with((double[]){4}, 1, routes, 2), tasks, 2, NULL, 0, (double[]){2, 2.75});
}
END_TEST

START_TEST(a_route_of_a_limit_alone_needs_no_link)
{
    const struct engine_route routes[] = {{.limit_gbs = 2}};
    const struct engine_task tasks[] = {flow(ON(0), 2 * GB, 0), flow(ON(1), 4 * GB, 0)};

    expect_ends(engine_with(NULL, 0, routes, 1), tasks, 2, NULL, 0, (double[]){1, 2});
}
END_TEST

START_TEST(a_weight_of_two_puts_each_byte_on_the_link_twice)
{
    const struct engine_route routes[] = {{.link_count = 1, .weights = {2}}, {.link_count = 1}};
    const struct engine_task tasks[] = {flow(ON(0), 1 * GB, 0), flow(ON(1), 2 * GB, 1)};

    /* Both grow to 1/3 GB/s; the second goes on alone when the first has ended. */
    expect_ends(engine_with((double[]){1}, 1, routes, 2), tasks, 2, NULL, 0, (double[]){3, 4});
}
END_TEST

START_TEST(a_link_crossed_twice_counts_twice_alone_and_in_company)
{
    const struct engine_route routes[] = {{.link_count = 2, .links = {0, 0}}, {.link_count = 1}};
    const struct engine_task alone[] = {flow(ON(0), 1 * GB, 0)};
    const struct engine_task two[] = {flow(ON(0), 1 * GB, 0), flow(ON(1), 2 * GB, 1)};

    expect_ends(engine_with((double[]){1}, 1, routes, 2), alone, 1, NULL, 0, (double[]){2});
    expect_ends(engine_with((double[]){1}, 1, routes, 2), two, 2, NULL, 0, (double[]){3, 4});
}
END_TEST

START_TEST(a_flow_takes_what_a_slower_one_on_a_longer_route_cannot)
{
    const double link_gbs[] = {1, 2};
    const struct engine_route routes[] = {{.link_count = 1, .links = {0}},
                                          {.link_count = 2, .links = {0, 1}},
                                          {.link_count = 1, .links = {1}}};
    const struct engine_task tasks[] = {flow(ON(0), 1 * GB, 0), flow(ON(1), 1 * GB, 1),
                                        flow(ON(2), 3 * GB, 2)};

    expect_ends(engine_with(link_gbs, 2, routes, 3), tasks, 3, NULL, 0, (double[]){2, 2, 2});
}
END_TEST

/* ---- schedules that follow each other ---- */

START_TEST(an_unfinished_flow_goes_on_while_the_next_schedule_is_issued)
{
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *copy = schedule_of(
        (struct engine_task[]){issued(1, work(ON(1), 0)), flow(ON(0), 4 * GB, 0)}, 2, NULL, 0);
    struct engine_schedule *next = schedule_of(
        (struct engine_task[]){issued(1, blocking(work(ON(1), 1))), flow(ON(2), 1 * GB, 0)}, 2,
        NULL, 0);

    run(engine, copy); /* the flow runs from second 1 on, alone until second 3 */
    run(engine, next);
    ck_assert_double_eq(end_s(engine, 0), 2);
    ck_assert_double_eq(engine_time_s(engine), 3);
    finish(engine);
    ck_assert_double_eq(end_s(engine, 1), 4); /* the clock at its start was 1 */
    ck_assert_double_eq(engine_time_s(engine), 6);
    engine_free(engine);
    engine_schedule_free(copy);
    engine_schedule_free(next);
}
END_TEST

START_TEST(tasks_of_the_next_run_wait_for_their_queue)
{
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *first =
        schedule_of((struct engine_task[]){flow(ON(0), 2 * GB, 0), work(ON(1), 5)}, 2, NULL, 0);
    struct engine_schedule *second = schedule_of(
        (struct engine_task[]){work(ON(0), 1), work(ON(1), 1), blocking(work(ON(0) | ON(1), 1))}, 3,
        NULL, 0);

    run(engine, first);
    run(engine, second);
    ck_assert_double_eq(start_s(engine, 0), 2);
    ck_assert_double_eq(end_s(engine, 1), 6);
    ck_assert_double_eq(end_s(engine, 2), 7);
    ck_assert_double_eq(engine_time_s(engine), 7);
    engine_free(engine);
    engine_schedule_free(first);
    engine_schedule_free(second);
}
END_TEST

/* All of them wait on queue 0 for a flow of the first, which nobody has waited for. */
START_TEST(runs_that_wait_for_one_flow_leave_in_the_order_they_came)
{
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *first = schedule_of(
        (struct engine_task[]){issued(1, flow(ON(0), 8 * GB, 0)), work(ON(0), 1)}, 2, NULL, 0);
    struct engine_schedule *chained =
        schedule_of((struct engine_task[]){issued(1, work(ON(0), 1)), after(0, 1, work(ON(1), 2))},
                    2, (uint32_t[]){0}, 1);
    struct engine_schedule *beside =
        schedule_of((struct engine_task[]){issued(1, work(ON(2), 1))}, 1, NULL, 0);

    run(engine, first); /* ends at 9 and 10 */
    run(engine, chained);
    run(engine, beside);
    ck_assert_double_eq(end_s(engine, 0), 2); /* not on queue 0: at once */
    run(engine, chained);
    run(engine, chained);
    ck_assert_double_nan(end_s(engine, 1));
    finish(engine);
    /* Queue 0 ends at 11, 12, 13 and queue 1 at 13, 15, 17; the clock was 4. */
    ck_assert_double_eq(end_s(engine, 0), 13 - 4);
    ck_assert_double_eq(start_s(engine, 1), 15 - 4);
    ck_assert_double_eq(end_s(engine, 1), 17 - 4);
    ck_assert_double_eq(engine_time_s(engine), 17);
    ck_assert_double_eq(engine_queue_busy_s(engine, 0), 8 + 1 + 3);
    ck_assert_double_eq(engine_queue_busy_s(engine, 1), 6);
    engine_free(engine);
    engine_schedule_free(first);
    engine_schedule_free(chained);
    engine_schedule_free(beside);
}
END_TEST

START_TEST(changed_times_count_from_the_next_run_on)
{
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *schedule = schedule_of(
        (struct engine_task[]){flow(ON(0), 2 * GB, 0), work(ON(0), 1), flow(ON(0), 1 * GB, 0)}, 3,
        NULL, 0);
    struct engine_task *tasks = engine_schedule_tasks(schedule);

    run(engine, schedule);
    tasks[1].work_s = 10;
    tasks[2].flow_bytes = 20 * GB;
    finish(engine);
    ck_assert_double_eq(end_s(engine, 1), 3);
    ck_assert_double_eq(end_s(engine, 2), 4);
    run(engine, schedule);
    finish(engine);
    ck_assert_double_eq(end_s(engine, 1), 12);
    ck_assert_double_eq(end_s(engine, 2), 32);
    engine_free(engine);
    engine_schedule_free(schedule);
}
END_TEST

/* ---- the same bits ---- */

/* A step with awkward numbers that ends with a wait for everything. */
static struct engine_schedule *awkward_step(void)
{
    const struct engine_task tasks[] = {issued(0.1, work(ON(0), 1.0 / 3)),
                                        issued(0.1, flow(ON(1), 0.7 * GB, 0)),
                                        issued(0.1, flow(ON(2), 0.9 * GB, 1)),
                                        issued(0.1, after(0, 2, flow(ON(0) | ON(3), 0.3 * GB, 1))),
                                        issued(0.1, flow(ON(2), 1.1 * GB, 0)),
                                        issued(0.1, blocking(work(ON(0) | ON(1) | ON(2), 0.01)))};

    return schedule_of(tasks, COUNT(tasks), (uint32_t[]){0, 1}, 2);
}

static struct engine *awkward_engine(void)
{
    const struct engine_route routes[] = {{.link_count = 2, .links = {0, 1}},
                                          {.limit_gbs = 0.55, .link_count = 1, .links = {1}}};

    return engine_with((double[]){0.7, 1.3}, 2, routes, 2);
}

START_TEST(a_run_has_the_same_bits_on_another_engine_and_after_a_reset)
{
    struct engine *engine = awkward_engine(), *other = awkward_engine();
    struct engine_schedule *step = awkward_step();
    double first[6];

    run(engine, step);
    memcpy(first, engine_last_ends(engine, &(size_t){0}), sizeof first);
    run(other, step);
    ck_assert_mem_eq(first, engine_last_ends(other, &(size_t){0}), sizeof first);

    run(engine, step);
    run(engine, step);
    engine_reset(engine);
    ck_assert_double_eq(engine_time_s(engine), 0);
    ck_assert_double_eq(engine_queue_busy_s(engine, 0), 0);
    ck_assert_double_eq(engine_host_busy_s(engine), 0);
    ck_assert_double_eq(engine_link_busy_s(engine, 1), 0);
    run(engine, step);
    ck_assert_mem_eq(first, engine_last_ends(engine, &(size_t){0}), sizeof first);
    ck_assert_double_eq(engine_time_s(engine), engine_time_s(other));
    ck_assert_double_eq(engine_link_busy_s(engine, 1), engine_link_busy_s(other, 1));
    engine_free(engine);
    engine_free(other);
    engine_schedule_free(step);
}
END_TEST

START_TEST(a_reset_forgets_unfinished_tasks)
{
    struct engine *engine = engine_with_one_link();
    struct engine_schedule *schedule =
        schedule_of((struct engine_task[]){flow(ON(0), GB, 0), work(ON(0), 1)}, 2, NULL, 0);

    run(engine, schedule);
    run(engine, schedule);
    engine_reset(engine);
    run(engine, schedule);
    finish(engine);
    ck_assert_double_eq(end_s(engine, 0), 1);
    ck_assert_double_eq(engine_time_s(engine), 2);
    engine_free(engine);
    engine_schedule_free(schedule);
}
END_TEST

START_TEST(steps_that_end_with_a_wait_repeat_bit_by_bit)
{
    struct engine *engine = awkward_engine();
    struct engine_schedule *step = awkward_step();
    double first[6];

    run(engine, step);
    memcpy(first, engine_last_ends(engine, &(size_t){0}), sizeof first);
    for (int i = 1; i < 1000; i++) {
        run(engine, step);
        ck_assert_mem_eq(first, engine_last_ends(engine, &(size_t){0}), sizeof first);
    }
    ck_assert_double_eq_tol(engine_time_s(engine), 1000 * first[5], 1e-9);
    engine_free(engine);
    engine_schedule_free(step);
}
END_TEST

/* ---- busy times ---- */

START_TEST(busy_times_leave_out_waiting_and_count_shared_links_once)
{
    const struct engine_route routes[] = {{.link_count = 1, .links = {0}},
                                          {.link_count = 2, .links = {0, 1}}};
    const struct engine_task tasks[] = {
        issued(1, work(ON(0) | ON(1), 1)), issued(1, flow(ON(0), 1 * GB, 0)),
        issued(0, flow(ON(1), 2 * GB, 1)), issued(1, blocking(work(ON(0), 1)))};
    struct engine *engine = engine_with((double[]){1, 1, 1}, 3, routes, 2);
    struct engine_schedule *schedule = schedule_of(tasks, 4, NULL, 0);

    for (int i = 1; i <= 2; i++) {
        run(engine, schedule);
        finish(engine); /* flows run from 2 to 4 and to 5, the last task to 5 */
        ck_assert_double_eq(engine_time_s(engine), 5 * i);
        ck_assert_double_eq(engine_host_busy_s(engine), 3 * i);
        ck_assert_double_eq(engine_queue_busy_s(engine, 0), 4 * i);
        ck_assert_double_eq(engine_queue_busy_s(engine, 1), 4 * i);
        ck_assert_double_eq(engine_queue_busy_s(engine, 2), 0);
        ck_assert_double_eq(engine_link_busy_s(engine, 0), 3 * i);
        ck_assert_double_eq(engine_link_busy_s(engine, 1), 3 * i);
        ck_assert_double_eq(engine_link_busy_s(engine, 2), 0);
    }
    engine_free(engine);
    engine_schedule_free(schedule);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    struct engine_task task; /* the second of two */
    const char *text;
} bad_tasks[] = {
    {{.queues = 0}, "task 1 is on no queue"},
    {{.queues = 1, .flow_bytes = 1, .route = ENGINE_NO_ROUTE}, "task 1 moves bytes over no route"},
    {{.queues = 1, .dependency_count = 1}, "task 1 depends on task 1, which is not before it"},
    {{.queues = 1, .dependency_first = 1, .dependency_count = 1}, "task 1 depends on task 2"},
    {{.queues = 1, .dependency_first = 1, .dependency_count = 2}, "dependencies beyond the list"},
    {{.queues = 1, .dependency_first = UINT32_MAX, .dependency_count = 2}, "beyond the list"},
};

START_TEST(a_schedule_refuses_a_task_that_could_never_start)
{
    const struct engine_task tasks[] = {work(ON(0), 1), bad_tasks[_i].task, work(ON(0), 1)};
    struct error err = {0};

    ck_assert_ptr_null(engine_schedule_new(tasks, 3, (uint32_t[]){1, 2}, 2, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_msg(strstr(err.text, bad_tasks[_i].text) != NULL, "%s", err.text);
}
END_TEST

static const struct {
    double gbs; /* of the only link */
    struct engine_route route;
    const char *text;
} bad_routes[] = {
    {0, {.link_count = 1, .weights = {1}}, "link 0 has a bandwidth of 0 GB/s"},
    {-1, {.link_count = 1, .weights = {1}}, "link 0 has a bandwidth of -1 GB/s"},
    {NAN, {.link_count = 1, .weights = {1}}, "link 0 has a bandwidth of"},
    {INFINITY, {.link_count = 1, .weights = {1}}, "link 0 has a bandwidth of inf GB/s"},
    {1, {.link_count = 0}, "route 0 crosses no link and has no limit"},
    {1, {.link_count = ENGINE_ROUTE_LINKS_MAX + 1}, "links; at most"},
    {1, {.link_count = 1, .links = {1}, .weights = {1}}, "route 0: its link 0 does not exist"},
    {1, {.link_count = 1, .weights = {0}}, "route 0: the weight 0 of its link 0"},
    {1, {.link_count = 1, .weights = {INFINITY}}, "route 0: the weight inf of its link 0"},
    {1, {.limit_gbs = NAN, .link_count = 1, .weights = {1}}, "route 0 has a limit of"},
    {1, {.limit_gbs = INFINITY}, "route 0 has a limit of inf GB/s"},
    {1, {.limit_gbs = -1, .link_count = 1, .weights = {1}}, "route 0 has a limit of -1 GB/s"},
};

START_TEST(an_engine_refuses_a_link_or_route_that_moves_nothing)
{
    struct error err = {0};

    ck_assert_ptr_null(engine_new(&bad_routes[_i].gbs, 1, &bad_routes[_i].route, 1, &err));
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_msg(strstr(err.text, bad_routes[_i].text) != NULL, "%s", err.text);
}
END_TEST

/* ---- the watcher ---- */

struct watched {
    double issued_s[2][3][2], timed_s[2][3][2]; /* run, task: from, to */
    double rate_s[8], gbs[8];
    size_t rates;
    const struct engine *engine;
};

static void watch_issued(void *context, uint64_t run, uint32_t task, double from_s, double to_s)
{
    struct watched *watched = context;

    watched->issued_s[run][task][0] = from_s;
    watched->issued_s[run][task][1] = to_s;
}

static void watch_timed(void *context, uint64_t run, uint32_t task, double from_s, double to_s)
{
    struct watched *watched = context;

    watched->timed_s[run][task][0] = from_s;
    watched->timed_s[run][task][1] = to_s;
}

static void watch_rates(void *context, double time_s)
{
    struct watched *watched = context;

    ck_assert_uint_lt(watched->rates, COUNT(watched->rate_s));
    watched->rate_s[watched->rates] = time_s;
    watched->gbs[watched->rates++] = engine_link_use_gbs(watched->engine, 0);
}

/* Issued at 1 and 2, flows of 4 GB from 1 and 2 on over 2 GB/s: the first ends at 4 after having
 * the link alone for a second, the second at 5. The next run begins at 2. */
START_TEST(a_watcher_is_told_issues_times_and_rates_across_runs)
{
    const double link = 2;
    const struct engine_route route = {.link_count = 1, .weights = {1}};
    const struct engine_task first[] = {issued(1, flow(ON(0), 4 * GB, 0)),
                                        issued(1, flow(ON(1), 4 * GB, 0))};
    const struct engine_task second[] = {issued(0.5, work(ON(0), 1))};
    struct engine_schedule *one = schedule_of(first, 2, NULL, 0);
    struct engine_schedule *two = schedule_of(second, 1, NULL, 0);
    struct error err = {0};
    struct engine *engine = engine_new(&link, 1, &route, 1, &err);
    struct watched watched = {.engine = engine};
    const struct engine_watcher watcher = {watch_issued, watch_timed, watch_rates, &watched};

    engine_watch(engine, &watcher);
    ck_assert_int_eq(engine_run(engine, one, &err), 0);
    ck_assert_int_eq(engine_run(engine, two, &err), 0);
    ck_assert_int_eq(engine_finish(engine, &err), 0);
    ck_assert_double_eq(watched.issued_s[0][1][0], 1);
    ck_assert_double_eq(watched.issued_s[0][1][1], 2);
    ck_assert_double_eq(watched.issued_s[1][0][0], 2);
    ck_assert_double_eq(watched.issued_s[1][0][1], 2.5);
    ck_assert_double_eq(watched.timed_s[0][0][0], 1);
    ck_assert_double_eq(watched.timed_s[0][0][1], 4);
    ck_assert_double_eq(watched.timed_s[0][1][1], 5);
    ck_assert_double_eq(watched.timed_s[1][0][0], 4);
    ck_assert_double_eq(watched.timed_s[1][0][1], 5);
    ck_assert_uint_eq(watched.rates, 4);
    ck_assert_double_eq(watched.rate_s[0], 1);
    ck_assert_double_eq(watched.gbs[0], 2);
    ck_assert_double_eq(watched.rate_s[2], 4);
    ck_assert_double_eq(watched.gbs[2], 2);
    ck_assert_double_eq(watched.rate_s[3], 5);
    ck_assert_double_eq(watched.gbs[3], 0);
    engine_watch(engine, NULL);
    engine_reset(engine);
    ck_assert_int_eq(engine_run(engine, one, &err), 0);
    ck_assert_uint_eq(watched.rates, 4);
    engine_schedule_free(one);
    engine_schedule_free(two);
    engine_free(engine);
}
END_TEST

START_TEST(nothing_is_freed_where_nothing_was_made)
{
    engine_free(NULL);
    engine_schedule_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *queues = tcase_create("queues"), *host = tcase_create("host");
    TCase *flows = tcase_create("flows"), *runs = tcase_create("runs");
    TCase *bits = tcase_create("bits"), *refusals = tcase_create("refusals");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(queues, tasks_on_one_queue_run_in_issue_order);
    tcase_add_test(queues, tasks_on_different_queues_run_at_the_same_time);
    tcase_add_test(queues, a_task_waits_for_the_latest_of_its_dependencies);
    tcase_add_test(queues, a_dependency_named_twice_is_met_once);
    tcase_add_test(queues, a_task_that_waits_holds_back_later_ones_on_its_queue);
    tcase_add_test(queues, a_collective_waits_for_all_its_queues_and_holds_them);
    tcase_add_test(queues, a_task_of_no_length_ends_where_it_starts);
    tcase_add_test(queues, an_empty_schedule_takes_no_time);
    tcase_add_test(host, the_host_issues_tasks_one_after_the_other);
    tcase_add_test(host, a_blocking_task_holds_back_the_issue_of_the_next);
    tcase_add_test(host, a_blocking_flow_holds_back_the_issue_of_the_next);
    tcase_add_test(host, the_host_is_through_before_tasks_that_nobody_waited_for);
    tcase_add_test(flows, a_flow_begins_after_its_fixed_part);
    tcase_add_test(flows, two_flows_on_one_link_share_it_until_one_ends);
    tcase_add_test(flows, flows_on_one_queue_follow_each_other_at_full_speed);
    tcase_add_test(flows, both_directions_share_what_a_duplex_limit_allows);
    tcase_add_test(flows, a_route_limit_leaves_the_rest_of_a_link_to_others);
    tcase_add_test(flows, a_route_of_a_limit_alone_needs_no_link);
    tcase_add_test(flows, a_weight_of_two_puts_each_byte_on_the_link_twice);
    tcase_add_test(flows, a_link_crossed_twice_counts_twice_alone_and_in_company);
    tcase_add_test(flows, a_flow_takes_what_a_slower_one_on_a_longer_route_cannot);
    tcase_add_test(runs, an_unfinished_flow_goes_on_while_the_next_schedule_is_issued);
    tcase_add_test(runs, tasks_of_the_next_run_wait_for_their_queue);
    tcase_add_test(runs, runs_that_wait_for_one_flow_leave_in_the_order_they_came);
    tcase_add_test(runs, changed_times_count_from_the_next_run_on);
    tcase_add_test(runs, busy_times_leave_out_waiting_and_count_shared_links_once);
    tcase_add_test(runs, a_watcher_is_told_issues_times_and_rates_across_runs);
    tcase_add_test(bits, a_run_has_the_same_bits_on_another_engine_and_after_a_reset);
    tcase_add_test(bits, a_reset_forgets_unfinished_tasks);
    tcase_add_test(bits, steps_that_end_with_a_wait_repeat_bit_by_bit);
    tcase_add_loop_test(refusals, a_schedule_refuses_a_task_that_could_never_start, 0,
                        COUNT(bad_tasks));
    tcase_add_loop_test(refusals, an_engine_refuses_a_link_or_route_that_moves_nothing, 0,
                        COUNT(bad_routes));
    tcase_add_test(refusals, nothing_is_freed_where_nothing_was_made);
    suite_add_tcase(suite, queues);
    suite_add_tcase(suite, host);
    suite_add_tcase(suite, flows);
    suite_add_tcase(suite, runs);
    suite_add_tcase(suite, bits);
    suite_add_tcase(suite, refusals);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
