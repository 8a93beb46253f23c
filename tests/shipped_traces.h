/* Traces that the project ships, and what is predicted for them. */
#ifndef TESTS_SHIPPED_TRACES_H
#define TESTS_SHIPPED_TRACES_H

#include "sim/validate.h"

enum { SHIPPED_TRACES_MAX = 4 };

struct shipped_traces {
    struct trace traces[SHIPPED_TRACES_MAX];
    size_t count;
    struct validation validation;
};

/** Reads traces/NAME of the source tree and predicts their rows; NULL ends the names. A test fails
 * where that does. */
void shipped_traces_open(struct shipped_traces *shipped, const char *const *names);
void shipped_traces_close(struct shipped_traces *shipped);

#endif
