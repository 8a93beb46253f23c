/* A comparison as Markdown tables, JSON or CSV. */
#ifndef CLI_COMPARE_OUTPUT_H
#define CLI_COMPARE_OUTPUT_H

#include "sim/compare.h"

enum compare_format { COMPARE_MARKDOWN, COMPARE_JSON, COMPARE_CSV };

struct compare_output {
    enum compare_format format;
    const struct timeline *measured, *predicted;
    const char *machine; /* that was simulated; NULL for two recorded timelines */
    const struct comparison *comparison;
};

/** Prints to stdout. */
void compare_output_print(const struct compare_output *output);

#endif
