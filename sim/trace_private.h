/* Between the files of the trace reader. */
#ifndef SIM_TRACE_PRIVATE_H
#define SIM_TRACE_PRIVATE_H

#include "sim/json_input.h"
#include "sim/trace.h"

/* A trace while its file is read. */
struct trace_draft {
    struct trace trace;
    size_t capacity;      /* of trace.rows */
    size_t bench_results; /* of llama-bench so far, for their ids */
};

/** A place for one more row, or NULL with `err` set. It moves when the next one is added. */
struct trace_row *trace_draft_add(struct trace_draft *draft, struct error *err);

/**
 * Reads the row at `root`. What it points to is copied into `arena`.
 *
 * @return 0, or -1 with `err` set and `row` in an unspecified state
 */
int trace_row_read(const struct json_cursor *root, struct arena *arena, struct trace_row *row,
                   struct error *err);

#endif
