/* The output of llama-bench as rows of a trace: tables (md), csv, json, jsonl and sql,
 * with the column names of its older and newer releases, of the fork with the placement
 * flags, and of `lopside bench`. trace_parse() calls this; nothing else has to. */
#ifndef SIM_TRACE_BENCH_H
#define SIM_TRACE_BENCH_H

#include "sim/trace_private.h"

enum trace_bench_format {
    TRACE_BENCH_NONE, /* no output of llama-bench */
    TRACE_BENCH_MARKDOWN,
    TRACE_BENCH_CSV,
    TRACE_BENCH_JSON,
    TRACE_BENCH_JSONL,
    TRACE_BENCH_SQL,
};

/* Where the results begin: text that an engine logs may stand before. */
struct trace_bench_start {
    enum trace_bench_format format;
    size_t offset;
    int line; /* 1-based, of that offset */
};

/** Recognises a format by the first line that can belong to one. For TRACE_BENCH_NONE
 * the start is that of the text. */
struct trace_bench_start trace_bench_recognise(const char *text, size_t size);

/**
 * Reads a whole text of any format but TRACE_BENCH_JSONL, whose lines go to
 * trace_bench_read_object() one by one.
 *
 * @return 0, or -1 with `err` set
 */
int trace_bench_read(const char *text, size_t size, struct trace_bench_start start,
                     struct trace_draft *draft, struct error *err);

/** Whether a JSON object is a result of llama-bench rather than a row of our own. */
bool trace_bench_is_result(const struct json_cursor *object);

/** Reads one result. @return 0, or -1 with `err` set */
int trace_bench_read_object(const struct json_cursor *object, int line, struct trace_draft *draft,
                            struct error *err);

#endif
