#include "cli/bench_tests.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/plan_options.h"

int bench_read_count(const char *flag, const char *text, uint32_t *value)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (end == text || *end != '\0' || text[0] == '-' || number > (1ul << 28))
        return cli_wrong_call("bench", "-%s %s: a whole number of tokens from 0 to %lu is accepted",
                              flag, text, 1ul << 28);
    *value = (uint32_t)number;
    return CLI_OK;
}

static int add_test(struct tests *tests, struct test test)
{
    struct test *grown;

    if (test.n_prompt == 0 && test.n_gen == 0)
        return 0;
    grown = realloc(tests->entries, (tests->count + 1) * sizeof *grown);
    if (grown == NULL)
        return -1;
    tests->entries = grown;
    grown[tests->count++] = test;
    return 0;
}

static int read_pair(const char *text, struct test *test)
{
    const char *comma = strchr(text, ',');
    char first[32];

    if (comma == NULL || comma - text >= (ptrdiff_t)sizeof first)
        return cli_wrong_call("bench", "-pg %s: two numbers with a comma are accepted, as 512,128",
                              text);
    snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
    return bench_read_count("pg", first, &test->n_prompt) != CLI_OK
               ? CLI_USAGE
               : bench_read_count("pg", comma + 1, &test->n_gen);
}

/* One kind of test at every depth. */
static int add_at_depth(const struct test_lists *lists, struct tests *tests, uint32_t depth)
{
    int status = CLI_OK;

    for (size_t i = 0; i < lists->prompts.count && status == CLI_OK; i++) {
        struct test test = {.n_depth = depth};

        status = bench_read_count("p", lists->prompts.items[i], &test.n_prompt);
        if (status == CLI_OK && add_test(tests, test) != 0)
            status = CLI_USAGE;
    }
    for (size_t i = 0; i < lists->gens.count && status == CLI_OK; i++) {
        struct test test = {.n_depth = depth};

        status = bench_read_count("n", lists->gens.items[i], &test.n_gen);
        if (status == CLI_OK && add_test(tests, test) != 0)
            status = CLI_USAGE;
    }
    for (size_t i = 0; i < lists->pairs.count && status == CLI_OK; i++) {
        const char *pair = lists->pairs.items[i];
        struct test test = {.n_depth = depth};

        if (read_pair(pair, &test) != CLI_OK)
            return CLI_USAGE;
        if (add_test(tests, test) != 0)
            status = CLI_USAGE;
    }
    return status;
}

int bench_make_tests(struct test_lists *lists, struct tests *tests)
{
    struct error err = {0};
    int status = CLI_OK;

    if (lists->prompts.count == 0 && list_add(&lists->prompts, "512") != 0)
        return CLI_USAGE;
    if (lists->gens.count == 0 && list_add(&lists->gens, "128") != 0)
        return CLI_USAGE;
    if (lists->depths.count == 0 && list_add(&lists->depths, "0") != 0)
        return CLI_USAGE;
    if (plan_options_expand("p", &lists->prompts, &err) != 0 ||
        plan_options_expand("n", &lists->gens, &err) != 0 ||
        plan_options_expand("d", &lists->depths, &err) != 0)
        return cli_fail(&err);
    for (size_t i = 0; i < lists->depths.count && status == CLI_OK; i++) {
        uint32_t depth = 0;

        status = bench_read_count("d", lists->depths.items[i], &depth);
        if (status == CLI_OK)
            status = add_at_depth(lists, tests, depth);
    }
    if (status == CLI_OK && tests->count == 0)
        return cli_wrong_call("bench", "no test: -p and -n are both 0");
    return status;
}

void bench_test_lists_close(struct test_lists *lists)
{
    list_close(&lists->prompts);
    list_close(&lists->gens);
    list_close(&lists->pairs);
    list_close(&lists->depths);
}
