/* What each device holds of a placed plan: layers, heads, cache, state and memory. */
#ifndef CLI_PROGRAM_SHARES_H
#define CLI_PROGRAM_SHARES_H

#include "sim/plan.h"

/** Prints tables in Markdown to stdout; memory in MiB. @return 0, or -1 with `err` set */
int program_shares_print(const struct placement *placement, struct error *err);

#endif
