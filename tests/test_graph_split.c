/* How often the graph of a step is cut. */
#include <check.h>
#include <stdlib.h>

#include "sim/graph_split.h"
#include "tests/lowered.h"

#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define ONE_CARD "rtx4070-gen4x16"

static const struct {
    const char *machine, *flags;
    uint32_t splits;
} cases[] = {
    {ONE_CARD, "", 2},                    /* embedding, device */
    {ONE_CARD, "-nkvo -rso", 2 + 2 * 16}, /* each of 16 attention layers */
    {ONE_CARD, "-nkvo -rso -kvgl 6", 2 + 2 * 10},
    {ONE_CARD, "-nkvo", 2 + 2 * 16 + 6 * 48}, /* and of 48 recurrent ones */
    {PLAN_CASES_DESKTOP, "-ts 1/1", 3},       /* a device after the other */
    {PLAN_CASES_DESKTOP, "-ts 1/1 -nkvo -rso", 3 + 2 * 16},
    {PLAN_CASES_DESKTOP, "-sm tensor", 2}, /* devices are one backend */
    {PLAN_CASES_DESKTOP, "-sm tensor -nkvo", 2 + 2 * 16},
    {ONE_CARD, "-ngl 40", 2}, /* the first layers are with the embedding on the CPU */
};

START_TEST(a_graph_is_cut_where_the_backend_changes)
{
    struct plan_case c = plan_cases_open(QWEN, cases[_i].machine, cases[_i].flags, 4096);
    struct program_step step = {.tokens = 1, .outputs = 1, .sync = true};
    struct program *program = lowered_program(c.placement, step);

    ck_assert_msg(graph_split_count(program) == cases[_i].splits, "%s %s: %u", cases[_i].machine,
                  cases[_i].flags, graph_split_count(program));
    program_free(program);
    plan_cases_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph split");
    TCase *counts = tcase_create("counts");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(counts, a_graph_is_cut_where_the_backend_changes, 0,
                        (int)(sizeof cases / sizeof *cases));
    suite_add_tcase(suite, counts);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
