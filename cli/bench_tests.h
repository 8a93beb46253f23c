/* The tests of a call of bench: prompts and generations at depths. */
#ifndef CLI_BENCH_TESTS_H
#define CLI_BENCH_TESTS_H

#include <stdint.h>

#include "cli/list.h"

struct test {
    uint32_t n_prompt, n_gen, n_depth;
};

struct tests {
    struct test *entries; /* owned */
    size_t count;
};

/* As typed; empty lists get llama-bench's defaults. */
struct test_lists {
    struct list prompts, gens, pairs, depths;
};

/** Reads a whole number of tokens. @return CLI_OK, or CLI_USAGE after a message */
int bench_read_count(const char *flag, const char *text, uint32_t *value);

/** Makes the tests, depth by depth. @return CLI_OK, or CLI_USAGE after a message */
int bench_make_tests(struct test_lists *lists, struct tests *tests);

void bench_test_lists_close(struct test_lists *lists);

#endif
