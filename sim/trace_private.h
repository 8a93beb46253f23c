/* Between the files of the trace reader. */
#ifndef SIM_TRACE_PRIVATE_H
#define SIM_TRACE_PRIVATE_H

#include "sim/json_input.h"
#include "sim/trace.h"

/**
 * Reads the row at `root`. What it points to is copied into `arena`.
 *
 * @return 0, or -1 with `err` set and `row` in an unspecified state
 */
int trace_row_read(const struct json_cursor *root, struct arena *arena, struct trace_row *row,
                   struct error *err);

#endif
