/* The engine on random schedules against a simulator that is slow and obvious:
 * one loop that looks at every task at every event. It shares nothing with the
 * engine: no order by queue, no running ahead, no rebased clock, and another way
 * to divide the links (the tightest link first, not all flows growing at once).
 * Schedules that follow each other are one long list of tasks here. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/engine.h"

#define RUNS_MAX 5
#define RUN_TASKS_MAX 24
#define TASKS_MAX (RUNS_MAX * RUN_TASKS_MAX)
#define TASK_DEPENDENCIES_MAX 3
#define LINKS_MAX 5
#define ROUTES_MAX 6
#define QUEUES 6
#define TOLERANCE_RATIO 1e-9

/* ---- random cases ---- */

struct random_case {
    struct engine_task tasks[TASKS_MAX];
    uint32_t dependencies[TASKS_MAX * TASK_DEPENDENCIES_MAX]; /* counted within the run */
    struct engine_route routes[ROUTES_MAX];
    double link_gbs[LINKS_MAX];
    uint32_t run_first[RUNS_MAX + 1], dependency_first[RUNS_MAX + 1];
    uint32_t run_count, link_count, route_count;
    uint64_t state; /* of the generator: splitmix64 */
};

static uint32_t below(struct random_case *c, uint32_t bound)
{
    uint64_t z = c->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (uint32_t)((z >> 32) * bound >> 32);
}

static bool happens(struct random_case *c, uint32_t percent)
{
    return below(c, 100) < percent;
}

/* Often 0 or a multiple of a quarter, so that many things happen at one time. */
static double random_size(struct random_case *c)
{
    if (happens(c, 15))
        return 0;
    if (happens(c, 50))
        return (1 + below(c, 8)) * 0.25;
    return (1 + below(c, 1000000)) * 2e-6;
}

static void make_routes(struct random_case *c)
{
    static const double weights[] = {1, 1, 1, 1, 2, 0.5, 0.3};

    c->link_count = 1 + below(c, LINKS_MAX);
    c->route_count = 1 + below(c, ROUTES_MAX);
    for (uint32_t l = 0; l < c->link_count; l++)
        c->link_gbs[l] = (1 + below(c, 8)) * (happens(c, 50) ? 0.25 : 0.3);
    for (uint32_t r = 0; r < c->route_count; r++) {
        struct engine_route *route = &c->routes[r];

        route->link_count = 1 + below(c, 4);
        for (uint32_t l = 0; l < route->link_count; l++) {
            route->links[l] = (uint16_t)below(c, c->link_count); /* the same again: allowed */
            route->weights[l] = weights[below(c, sizeof weights / sizeof *weights)];
        }
        if (happens(c, 30))
            route->limit_gbs = (1 + below(c, 8)) * 0.125;
    }
}

static void make_task(struct random_case *c, uint32_t run, uint32_t index, uint32_t *dependencies)
{
    struct engine_task *task = &c->tasks[index];
    uint32_t before = index - c->run_first[run];

    task->issue_s = happens(c, 50) ? 0 : 0.2 * random_size(c);
    task->work_s = random_size(c);
    task->flow_bytes = happens(c, 40) ? 1e9 * random_size(c) : 0;
    task->route = task->flow_bytes > 0 ? (uint16_t)below(c, c->route_count) : ENGINE_NO_ROUTE;
    task->queues = UINT64_C(1) << below(c, QUEUES);
    if (happens(c, 20))
        task->queues |= 1 + below(c, (1U << QUEUES) - 1);
    task->blocking = happens(c, 5);
    task->dependency_first = *dependencies - c->dependency_first[run];
    if (before > 0)
        task->dependency_count = below(c, TASK_DEPENDENCIES_MAX + 1);
    for (uint32_t d = 0; d < task->dependency_count; d++)
        c->dependencies[(*dependencies)++] = below(c, before);
}

static void make_case(struct random_case *c, uint64_t seed)
{
    uint32_t tasks = 0, dependencies = 0;

    *c = (struct random_case){.state = seed};
    make_routes(c);
    c->run_count = 1 + below(c, RUNS_MAX);
    for (uint32_t run = 0; run < c->run_count; run++) {
        uint32_t count = below(c, RUN_TASKS_MAX + 1);

        c->run_first[run] = tasks;
        c->dependency_first[run] = dependencies;
        for (uint32_t i = 0; i < count; i++)
            make_task(c, run, tasks++, &dependencies);
        c->run_first[run + 1] = tasks;
        c->dependency_first[run + 1] = dependencies;
    }
}

/* ---- the reference ---- */

enum phase { WAITING, WORKING, FLOWING, ENDED };

struct reference {
    const struct random_case *c;
    uint32_t task_count;
    enum phase phase[TASKS_MAX];
    bool issued[TASKS_MAX];
    double start_s[TASKS_MAX], work_end_s[TASKS_MAX], end_s[TASKS_MAX];
    double left_bytes[TASKS_MAX], rate[TASKS_MAX];
    uint32_t run_of[TASKS_MAX];
    double now_s;
    uint32_t issuing;           /* the task that the host issues, or waits for once it is issued */
    double issue_end_s;         /* when it will be issued */
    double host_s;              /* when the host was through with the last task */
    double run_s[RUNS_MAX + 1]; /* the host's clock at the start of each run, and at the end */
    double queue_busy_s[QUEUES], link_busy_s[LINKS_MAX];
};

static bool crosses(const struct engine_route *route, uint32_t link)
{
    for (uint32_t l = 0; l < route->link_count; l++)
        if (route->links[l] == link)
            return true;
    return false;
}

static double weight_on(const struct engine_route *route, uint32_t link)
{
    double weight = 0;

    for (uint32_t l = 0; l < route->link_count; l++)
        if (route->links[l] == link)
            weight += route->weights[l];
    return weight;
}

/* What each flow that has no rate yet would get on a link. */
static double share_on(const struct reference *ref, uint32_t link)
{
    double left = ref->c->link_gbs[link] * 1e9, weight = 0;

    for (uint32_t i = 0; i < ref->task_count; i++) {
        const struct engine_route *route;

        if (ref->phase[i] != FLOWING)
            continue;
        route = &ref->c->routes[ref->c->tasks[i].route];
        if (ref->rate[i] >= 0)
            left -= ref->rate[i] * weight_on(route, link);
        else
            weight += weight_on(route, link);
    }
    return weight > 0 ? fmax(left, 0) / weight : INFINITY;
}

/* Max-min fairness: whoever is held tightest gets a rate first, all others see what is left. */
static void divide_links(struct reference *ref)
{
    for (uint32_t i = 0; i < ref->task_count; i++)
        ref->rate[i] = -1;
    for (;;) {
        double tightest = INFINITY;
        uint32_t link = 0, flow = UINT32_MAX;

        for (uint32_t l = 0; l < ref->c->link_count; l++) {
            double share = share_on(ref, l);

            if (share < tightest) {
                tightest = share;
                link = l;
            }
        }
        for (uint32_t i = 0; i < ref->task_count; i++) {
            double limit;

            if (ref->phase[i] != FLOWING || ref->rate[i] >= 0)
                continue;
            limit = ref->c->routes[ref->c->tasks[i].route].limit_gbs * 1e9;
            if (limit > 0 && limit < tightest) {
                tightest = limit;
                flow = i;
            }
        }
        if (isinf(tightest))
            return;
        if (flow != UINT32_MAX) {
            ref->rate[flow] = tightest;
            continue;
        }
        for (uint32_t i = 0; i < ref->task_count; i++)
            if (ref->phase[i] == FLOWING && ref->rate[i] < 0 &&
                crosses(&ref->c->routes[ref->c->tasks[i].route], link))
                ref->rate[i] = tightest;
    }
}

static bool may_start(const struct reference *ref, uint32_t task)
{
    const struct engine_task *self = &ref->c->tasks[task];
    uint32_t run = ref->run_of[task];

    if (!ref->issued[task])
        return false;
    for (uint32_t d = 0; d < self->dependency_count; d++) {
        uint32_t at = ref->c->dependency_first[run] + self->dependency_first + d;

        if (ref->phase[ref->c->run_first[run] + ref->c->dependencies[at]] != ENDED)
            return false;
    }
    for (uint32_t other = 0; other < task; other++)
        if ((ref->c->tasks[other].queues & self->queues) != 0 && ref->phase[other] != ENDED)
            return false;
    return true;
}

static void end_task(struct reference *ref, uint32_t task)
{
    ref->phase[task] = ENDED;
    ref->end_s[task] = ref->now_s;
    for (uint32_t q = 0; q < QUEUES; q++)
        if (ref->c->tasks[task].queues >> q & 1)
            ref->queue_busy_s[q] += ref->now_s - ref->start_s[task];
}

/* Takes one step of a task that is due now; false when there is none. */
static bool step_task(struct reference *ref, uint32_t task)
{
    switch (ref->phase[task]) {
    case WAITING:
        if (!may_start(ref, task))
            return false;
        ref->phase[task] = WORKING;
        ref->start_s[task] = ref->now_s;
        ref->work_end_s[task] = ref->now_s + ref->c->tasks[task].work_s;
        return true;
    case WORKING:
        if (ref->work_end_s[task] > ref->now_s)
            return false;
        if (ref->c->tasks[task].flow_bytes > 0) {
            ref->phase[task] = FLOWING;
            ref->left_bytes[task] = ref->c->tasks[task].flow_bytes;
        } else {
            end_task(ref, task);
        }
        return true;
    case FLOWING:
        if (ref->left_bytes[task] > 0)
            return false;
        end_task(ref, task);
        return true;
    case ENDED:
        break;
    }
    return false;
}

static bool step_host(struct reference *ref)
{
    uint32_t task = ref->issuing;

    if (task == ref->task_count || ref->issue_end_s > ref->now_s)
        return false;
    if (!ref->issued[task]) {
        ref->issued[task] = true;
        ref->host_s = ref->now_s;
        return true;
    }
    if (ref->c->tasks[task].blocking) {
        if (ref->phase[task] != ENDED)
            return false;
        ref->host_s = ref->now_s;
    }
    for (uint32_t run = 0; run < ref->c->run_count; run++)
        if (ref->c->run_first[run + 1] == task + 1)
            ref->run_s[run + 1] = ref->host_s;
    ref->issuing++;
    if (ref->issuing < ref->task_count)
        ref->issue_end_s = ref->now_s + ref->c->tasks[ref->issuing].issue_s;
    return true;
}

/* Moves the clock to the next thing that is due; false when there is none. */
static bool advance(struct reference *ref)
{
    double next_s = INFINITY;

    divide_links(ref);
    if (ref->issuing < ref->task_count && !ref->issued[ref->issuing])
        next_s = ref->issue_end_s;
    for (uint32_t i = 0; i < ref->task_count; i++) {
        if (ref->phase[i] == WORKING)
            next_s = fmin(next_s, ref->work_end_s[i]);
        if (ref->phase[i] == FLOWING)
            next_s = fmin(next_s, ref->now_s + ref->left_bytes[i] / ref->rate[i]);
    }
    if (isinf(next_s))
        return false;
    for (uint32_t l = 0; l < ref->c->link_count; l++) {
        bool busy = false;

        for (uint32_t i = 0; i < ref->task_count; i++)
            busy |= ref->phase[i] == FLOWING && crosses(&ref->c->routes[ref->c->tasks[i].route], l);
        if (busy)
            ref->link_busy_s[l] += next_s - ref->now_s;
    }
    for (uint32_t i = 0; i < ref->task_count; i++) {
        if (ref->phase[i] != FLOWING)
            continue;
        ref->left_bytes[i] -= (next_s - ref->now_s) * ref->rate[i];
        if (ref->left_bytes[i] <= 1e-12 * ref->c->tasks[i].flow_bytes)
            ref->left_bytes[i] = 0;
        if (next_s + ref->left_bytes[i] / ref->rate[i] <= next_s)
            ref->left_bytes[i] = 0; /* less than the clock can tell */
    }
    ref->now_s = next_s;
    return true;
}

static void reference_run(struct reference *ref, const struct random_case *c)
{
    *ref = (struct reference){.c = c, .task_count = c->run_first[c->run_count]};
    for (uint32_t run = 0; run < c->run_count; run++)
        for (uint32_t i = c->run_first[run]; i < c->run_first[run + 1]; i++)
            ref->run_of[i] = run;
    ref->issue_end_s = ref->task_count > 0 ? c->tasks[0].issue_s : 0;
    do {
        bool moved = true;

        while (moved) {
            moved = step_host(ref);
            for (uint32_t i = 0; i < ref->task_count; i++)
                moved |= step_task(ref, i);
        }
    } while (advance(ref));
    for (uint32_t run = 0; run < c->run_count; run++)
        if (c->run_first[run + 1] == c->run_first[run]) /* an empty one takes no time */
            ref->run_s[run + 1] = ref->run_s[run];
}

/* ---- the comparison ---- */

static void expect_near(double found_s, double wanted_s, const char *what, uint32_t index)
{
    ck_assert_msg(fabs(found_s - wanted_s) <= TOLERANCE_RATIO * fmax(wanted_s, 1e-3),
                  "%s %u is %.17g s, the reference has %.17g s", what, index, found_s, wanted_s);
}

/* Compares what is known of the last run; how many ends are not. */
static uint32_t compare_run(const struct engine *engine, const struct reference *ref, uint32_t run)
{
    size_t count;
    const double *ends = engine_last_ends(engine, &count);
    const double *starts = engine_last_starts(engine, &count);
    uint32_t first = ref->c->run_first[run], unknown = 0;

    ck_assert_uint_eq(count, ref->c->run_first[run + 1] - first);
    for (uint32_t i = 0; i < count; i++) {
        if (!isnan(starts[i]))
            expect_near(ref->run_s[run] + starts[i], ref->start_s[first + i], "start of task",
                        first + i);
        if (isnan(ends[i]))
            unknown++;
        else
            expect_near(ref->run_s[run] + ends[i], ref->end_s[first + i], "end of task", first + i);
    }
    return unknown;
}

static void compare_case(const struct random_case *c, const struct reference *ref)
{
    struct engine_schedule *schedules[RUNS_MAX];
    struct error err = {0};
    struct engine *engine = engine_new(c->link_gbs, c->link_count, c->routes, c->route_count, &err);

    ck_assert_msg(engine != NULL, "%s", err.text);
    for (uint32_t run = 0; run < c->run_count; run++) {
        uint32_t first = c->run_first[run], dependencies = c->dependency_first[run];

        schedules[run] = engine_schedule_new(c->tasks + first, c->run_first[run + 1] - first,
                                             c->dependencies + dependencies,
                                             c->dependency_first[run + 1] - dependencies, &err);
        ck_assert_msg(schedules[run] != NULL, "%s", err.text);
        ck_assert_int_eq(engine_run(engine, schedules[run], &err), 0);
        expect_near(engine_time_s(engine), ref->run_s[run + 1], "host clock after run", run);
        compare_run(engine, ref, run);
    }
    ck_assert_int_eq(engine_finish(engine, &err), 0);
    expect_near(engine_time_s(engine), fmax(ref->now_s, ref->host_s), "clock at the end of", 0);
    ck_assert_uint_eq(compare_run(engine, ref, c->run_count - 1), 0);
    for (uint32_t q = 0; q < QUEUES; q++)
        expect_near(engine_queue_busy_s(engine, q), ref->queue_busy_s[q], "time of queue", q);
    for (uint32_t l = 0; l < c->link_count; l++)
        expect_near(engine_link_busy_s(engine, l), ref->link_busy_s[l], "time of link", l);
    engine_free(engine);
    for (uint32_t run = 0; run < c->run_count; run++)
        engine_schedule_free(schedules[run]);
}

/* The loop counts the seeds. */
START_TEST(random_schedules_take_the_time_of_the_obvious_simulator)
{
    static struct random_case c;
    static struct reference ref;

    make_case(&c, (uint64_t)_i);
    reference_run(&ref, &c);
    for (uint32_t i = 0; i < ref.task_count; i++)
        ck_assert_int_eq(ref.phase[i], ENDED);
    compare_case(&c, &ref);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_random");
    TCase *random = tcase_create("random");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(random, 60);
    tcase_add_loop_test(random, random_schedules_take_the_time_of_the_obvious_simulator, 0, 400);
    suite_add_tcase(suite, random);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
