#include "tests/lowered.h"

#include <check.h>

struct program *lowered_program(const struct placement *placement, struct program_step step)
{
    struct error err = {0};
    struct program *program = program_lower(placement, step, &err);

    ck_assert_msg(program != NULL, "%s", err.text);
    return program;
}

struct lowered lowered_open(const char *model, const char *machine, const char *flags,
                            struct program_step step)
{
    struct lowered lowered = {.c = plan_cases_open(model, machine, flags, 4096)};

    lowered.program = lowered_program(lowered.c.placement, step);
    return lowered;
}

void lowered_close(struct lowered *lowered)
{
    program_free(lowered->program);
    plan_cases_close(&lowered->c);
}

uint32_t lowered_count(const struct program *program, enum task_kind kind)
{
    uint32_t count = 0;

    for (size_t i = 0; i < program->task_count; i++)
        count += program->tasks[i].kind == kind;
    return count;
}

bool lowered_depends_on(const struct program *program, size_t task, size_t on)
{
    const struct program_task *t = &program->tasks[task];

    for (uint32_t i = 0; i < t->dependency_count; i++)
        if (program->dependencies[t->dependency_first + i] == on)
            return true;
    return false;
}
