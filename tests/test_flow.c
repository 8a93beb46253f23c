/* Rates and ends of flows that share links, one set of flows at a time. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/flow.h"

#define LINKS_MAX 4
#define FLOWS_MAX 4
#define GB 1e9

static void add(struct flow_set *set, uint16_t route, double bytes, uint64_t sequence,
                double time_s)
{
    struct error err = {0};
    struct flow flow = {.remaining_bytes = bytes, .sequence = sequence, .route = route};

    ck_assert_int_eq(flow_set_start(set, flow, time_s, &err), 0);
}

static void init(struct flow_set *set, const double *link_rate, size_t link_count,
                 const struct engine_route *routes)
{
    struct error err = {0};

    ck_assert_int_eq(flow_set_init(set, link_rate, link_count, routes, &err), 0);
}

static const struct engine_route over_link_0 = {.link_count = 1, .weights = {1}};
static const double link_of_1_gbs[] = {1 * GB};

/* ---- rates ---- */

/* Each route carries one flow; GB/s throughout; unused links have capacity 0. */
static const struct {
    const char *name;
    double link_gbs[LINKS_MAX];
    struct engine_route routes[FLOWS_MAX];
    size_t flow_count;
    double rate_gbs[FLOWS_MAX];
} rate_cases[] = {
    {"one flow takes the tightest of its links",
     {4, 2, 3},
     {{.link_count = 3, .links = {0, 1, 2}, .weights = {1, 1, 1}}},
     1,
     {2}},
    {"one flow takes no more than its limit",
     {4},
     {{.limit_gbs = 3, .link_count = 1, .links = {0}, .weights = {1}}},
     1,
     {3}},
    {"one flow pays its weight on each link",
     {4, 3},
     {{.link_count = 2, .links = {0, 1}, .weights = {4, 0.5}}},
     1,
     {1}},
    {"flows of one link get equal parts",
     {3},
     {{.link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {0}, .weights = {1}}},
     3,
     {1, 1, 1}},
    {"flows of different links do not meet",
     {3, 5},
     {{.link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {1}, .weights = {1}}},
     2,
     {3, 5}},
    {"both directions meet at a duplex limit",
     {4, 4, 6},
     {{.link_count = 2, .links = {0, 2}, .weights = {1, 1}},
      {.link_count = 2, .links = {1, 2}, .weights = {1, 1}}},
     2,
     {3, 3}},
    {"a duplex limit of both links together limits nothing",
     {4, 4, 8},
     {{.link_count = 2, .links = {0, 2}, .weights = {1, 1}},
      {.link_count = 2, .links = {1, 2}, .weights = {1, 1}}},
     2,
     {4, 4}},
    {"what a limited flow leaves goes to the others",
     {7},
     {{.limit_gbs = 1, .link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {0}, .weights = {1}}},
     3,
     {1, 3, 3}},
    {"a long route is held by its tightest link, the rest goes to short ones",
     {1, 2, 10},
     {{.link_count = 3, .links = {0, 1, 2}, .weights = {1, 1, 1}},
      {.link_count = 1, .links = {0}, .weights = {1}},
      {.link_count = 1, .links = {1}, .weights = {1}},
      {.link_count = 1, .links = {2}, .weights = {1}}},
     4,
     {0.5, 0.5, 1.5, 9.5}},
    {"flows of unequal weight grow alike and fill the link",
     {4},
     {{.link_count = 1, .links = {0}, .weights = {3}},
      {.link_count = 1, .links = {0}, .weights = {1}}},
     2,
     {1, 1}},
    {"a heavy flow that is held elsewhere leaves its weight",
     {4, 0.5},
     {{.link_count = 2, .links = {0, 1}, .weights = {3, 1}},
      {.link_count = 1, .links = {0}, .weights = {1}}},
     2,
     {0.5, 2.5}},
    {"limits without a link hold each flow by itself",
     {1},
     {{.limit_gbs = 2}, {.limit_gbs = 5}},
     2,
     {2, 5}},
};

START_TEST(rates_are_max_min_fair)
{
    double link_rate[LINKS_MAX];
    struct flow_set set;

    for (size_t l = 0; l < LINKS_MAX; l++)
        link_rate[l] = rate_cases[_i].link_gbs[l] * 1e9;
    init(&set, link_rate, LINKS_MAX, rate_cases[_i].routes);
    for (size_t f = 0; f < rate_cases[_i].flow_count; f++)
        add(&set, (uint16_t)f, 1, f, 0);
    for (size_t f = 0; f < rate_cases[_i].flow_count; f++) {
        double rate_gbs = set.flows[f].rate / 1e9;

        ck_assert_msg(fabs(rate_gbs - rate_cases[_i].rate_gbs[f]) < 1e-12,
                      "%s: flow %zu has %.17g GB/s, not %g GB/s", rate_cases[_i].name, f, rate_gbs,
                      rate_cases[_i].rate_gbs[f]);
    }
    flow_set_close(&set);
}
END_TEST

/* ---- progress ---- */

START_TEST(an_empty_set_has_no_next_end)
{
    struct flow_set set;

    init(&set, NULL, 0, NULL);
    ck_assert(isinf(flow_set_next_end_s(&set)));
    flow_set_close(&set);
}
END_TEST

START_TEST(a_flow_keeps_what_it_has_moved_when_another_starts)
{
    struct flow_set set;

    init(&set, link_of_1_gbs, 1, &over_link_0);
    add(&set, 0, 2 * GB, 0, 0);
    ck_assert_double_eq(flow_set_next_end_s(&set), 2);
    add(&set, 0, 9 * GB, 1, 1);
    ck_assert_double_eq(flow_set_next_end_s(&set), 3);
    ck_assert_uint_eq(flow_set_finish_next(&set).sequence, 0);
    ck_assert_double_eq(flow_set_next_end_s(&set), 11);
    ck_assert_uint_eq(flow_set_finish_next(&set).sequence, 1);
    ck_assert_uint_eq(set.count, 0);
    flow_set_close(&set);
}
END_TEST

START_TEST(flows_of_equal_end_leave_in_issue_order)
{
    /* Twice: the order in which they were added must not matter. */
    static const uint64_t sequences[][3] = {{7, 8, 9}, {9, 7, 8}};
    struct flow_set set;

    init(&set, link_of_1_gbs, 1, &over_link_0);
    for (size_t i = 0; i < 3; i++)
        add(&set, 0, 1 * GB, sequences[_i][i], 0);
    for (uint64_t sequence = 7; sequence <= 9; sequence++) {
        ck_assert_double_eq(flow_set_next_end_s(&set), 3);
        ck_assert_uint_eq(flow_set_finish_next(&set).sequence, sequence);
    }
    flow_set_close(&set);
}
END_TEST

START_TEST(a_flow_comes_back_with_the_names_its_caller_gave)
{
    struct error err = {0};
    struct flow_set set;
    struct flow flow = {.remaining_bytes = 1, .run = 3, .task = 4, .sequence = 5};

    init(&set, link_of_1_gbs, 1, &over_link_0);
    ck_assert_int_eq(flow_set_start(&set, flow, 0, &err), 0);
    flow = flow_set_finish_next(&set);
    ck_assert_uint_eq(flow.run, 3);
    ck_assert_uint_eq(flow.task, 4);
    ck_assert_uint_eq(flow.sequence, 5);
    flow_set_close(&set);
}
END_TEST

START_TEST(many_flows_fit_and_all_bytes_cross_the_link)
{
    enum { FLOWS = 100 };
    struct flow_set set;
    double end_s = 0;

    init(&set, link_of_1_gbs, 1, &over_link_0);
    for (uint64_t f = 0; f < FLOWS; f++)
        add(&set, 0, (double)(f + 1) * GB, f, 0);
    for (uint64_t f = 0; f < FLOWS; f++) {
        end_s = flow_set_next_end_s(&set);
        ck_assert_uint_eq(flow_set_finish_next(&set).sequence, f);
    }
    ck_assert_double_eq_tol(end_s, FLOWS * (FLOWS + 1) / 2, 1e-9);
    ck_assert_double_eq_tol(set.busy_s[0], end_s, 1e-9);
    flow_set_close(&set);
}
END_TEST

START_TEST(a_link_is_busy_once_however_many_flows_cross_it)
{
    const struct engine_route routes[] = {
        {.link_count = 1, .links = {0}, .weights = {1}},
        {.link_count = 2, .links = {0, 1}, .weights = {1, 1}},
    };
    struct flow_set set;

    init(&set, (double[]){1 * GB, 1 * GB, 1 * GB}, 3, routes);
    add(&set, 0, 2 * GB, 0, 1);
    add(&set, 1, 1 * GB, 1, 2);
    while (set.count > 0)
        flow_set_finish_next(&set);
    add(&set, 0, 1 * GB, 2, 10);
    flow_set_finish_next(&set);
    ck_assert_double_eq(set.busy_s[0], 4);
    ck_assert_double_eq(set.busy_s[1], 2);
    ck_assert_double_eq(set.busy_s[2], 0);
    flow_set_close(&set);
}
END_TEST

START_TEST(a_rebased_clock_moves_the_next_end_and_nothing_else)
{
    struct flow_set set;

    init(&set, link_of_1_gbs, 1, &over_link_0);
    add(&set, 0, 4 * GB, 0, 8);
    flow_set_rebase(&set, 8);
    ck_assert_double_eq(flow_set_next_end_s(&set), 4);
    add(&set, 0, 1 * GB, 1, 2);
    ck_assert_double_eq(flow_set_next_end_s(&set), 4);
    ck_assert_uint_eq(flow_set_finish_next(&set).sequence, 1);
    ck_assert_double_eq(flow_set_next_end_s(&set), 5);
    flow_set_close(&set);
}
END_TEST

START_TEST(a_reset_set_is_empty_at_time_0)
{
    struct flow_set set;

    init(&set, link_of_1_gbs, 1, &over_link_0);
    add(&set, 0, 4 * GB, 0, 8);
    add(&set, 0, 4 * GB, 1, 9);
    flow_set_reset(&set);
    ck_assert(isinf(flow_set_next_end_s(&set)));
    ck_assert_double_eq(set.busy_s[0], 0);
    add(&set, 0, 1 * GB, 0, 0);
    ck_assert_double_eq(flow_set_next_end_s(&set), 1);
    flow_set_close(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *rates = tcase_create("rates"), *progress = tcase_create("progress");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(rates, rates_are_max_min_fair, 0, sizeof rate_cases / sizeof *rate_cases);
    tcase_add_test(progress, an_empty_set_has_no_next_end);
    tcase_add_test(progress, a_flow_keeps_what_it_has_moved_when_another_starts);
    tcase_add_loop_test(progress, flows_of_equal_end_leave_in_issue_order, 0, 2);
    tcase_add_test(progress, a_flow_comes_back_with_the_names_its_caller_gave);
    tcase_add_test(progress, many_flows_fit_and_all_bytes_cross_the_link);
    tcase_add_test(progress, a_link_is_busy_once_however_many_flows_cross_it);
    tcase_add_test(progress, a_rebased_clock_moves_the_next_end_and_nothing_else);
    tcase_add_test(progress, a_reset_set_is_empty_at_time_0);
    suite_add_tcase(suite, rates);
    suite_add_tcase(suite, progress);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
