/* Programs for tests: lowered from plans, and what is in them. */
#ifndef TESTS_LOWERED_H
#define TESTS_LOWERED_H

#include "sim/program.h"
#include "tests/plan_cases.h"

struct lowered {
    struct plan_case c;
    struct program *program;
};

/** Lowers a step; fails the test when that is refused. */
struct program *lowered_program(const struct placement *placement, struct program_step step);

/** The program of a plan with room for 4096 tokens; see plan_cases_open(). */
struct lowered lowered_open(const char *model, const char *machine, const char *flags,
                            struct program_step step);
void lowered_close(struct lowered *lowered);

/** Tasks of a kind. */
uint32_t lowered_count(const struct program *program, enum task_kind kind);

/** Whether a task names another one as what it waits for. */
bool lowered_depends_on(const struct program *program, size_t task, size_t on);

#endif
