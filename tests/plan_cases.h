/* Plans for tests, written as on the command line, and what they stand on. */
#ifndef TESTS_PLAN_CASES_H
#define TESTS_PLAN_CASES_H

#include "sim/plan.h"

#define PLAN_CASES_DESKTOP "rtx4070-gen4x16+rtx3060-gen3x4"

struct plan_case {
    struct model *model;
    struct machine *machine;
    struct placement *placement;
};

/**
 * Reads "-sm tensor -ts 60/40 -nkvo -ctk q8_0": lopside's flags, except that -nkvo, -kvcp,
 * -rso, -ah and -logits (buffers for the logits of every token) are switches without a value,
 * and that -ctk sets both types where -ctv does not follow. Fails the test on any other word.
 */
struct plan plan_cases_plan(const char *flags);

/** A model of the catalogue; fails the test when there is none of that name. */
struct model *plan_cases_model(const char *spec);

/** A built-in machine, or with "@" one made from the catalogue: "3x RTX 3090@gen4x16". */
struct machine *plan_cases_machine(const char *name);

/** Places `flags`; fails the test on a refusal. `context`: tokens that must fit. */
struct plan_case plan_cases_open(const char *model, const char *machine, const char *flags,
                                 uint32_t context);
void plan_cases_close(struct plan_case *plan_case);

/** Why `flags` cannot be placed on the desktop; fails the test when they can. */
struct error plan_cases_refusal(const char *model, const char *flags, uint32_t context);

#endif
