/* Rules of an engine that a plan breaks, as warnings and as words of a row. */
#ifndef CLI_RULE_WARNINGS_H
#define CLI_RULE_WARNINGS_H

#include <stddef.h>

#include "sim/feasibility.h"

/** Warns on stderr of each of `rules`: what happens, why, and what would work. */
void cli_warn_rules(uint32_t rules);

/**
 * Warns of those that a refusal of the plan leaves open: whether it would abort or be wrong.
 * What the engine itself refuses, the refusal says.
 */
void cli_warn_rules_of_refused(uint32_t rules);

/** Short names of `rules`, joined by commas; "" for none. */
void cli_rule_names(uint32_t rules, char *text, size_t size);

#endif
