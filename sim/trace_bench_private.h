/* Between the readers of llama-bench's formats and what turns a result into a row. */
#ifndef SIM_TRACE_BENCH_PRIVATE_H
#define SIM_TRACE_BENCH_PRIVATE_H

#include "sim/trace_bench.h"

/* What a column tells. trace_bench_row.c has the names that files use for it. */
enum trace_bench_column {
    /* the measurement */
    TRACE_BENCH_MODEL_TYPE,
    TRACE_BENCH_MODEL_FILENAME,
    TRACE_BENCH_TEST, /* "pp512 @ d4096"; or the three counts */
    TRACE_BENCH_N_PROMPT,
    TRACE_BENCH_N_GEN,
    TRACE_BENCH_N_DEPTH,
    TRACE_BENCH_N_PARALLEL, /* of `lopside bench` */
    TRACE_BENCH_KV_UNIFIED,
    TRACE_BENCH_SPEED,      /* "14073.00 ± 115.16" in a table */
    TRACE_BENCH_SPEED_STDDEV,
    TRACE_BENCH_FITS,
    TRACE_BENCH_NOTE,
    /* the machine and the program */
    TRACE_BENCH_MACHINE,
    TRACE_BENCH_GPU_INFO,
    TRACE_BENCH_CPU_INFO,
    TRACE_BENCH_BACKENDS,
    TRACE_BENCH_ENGINE,
    TRACE_BENCH_BUILD_COMMIT,
    /* the plan */
    TRACE_BENCH_SPLIT_MODE,
    TRACE_BENCH_MAIN_GPU,
    TRACE_BENCH_TENSOR_SPLIT,
    TRACE_BENCH_ATTN_SPLIT,
    TRACE_BENCH_NO_KV_OFFLOAD,
    TRACE_BENCH_KV_CPU_PINNED,
    TRACE_BENCH_KV_GPU_LAYERS,
    TRACE_BENCH_KV_POLICY,
    TRACE_BENCH_KV_RESIDENT,
    TRACE_BENCH_RECURRENT_STATE_OFFLOAD,
    TRACE_BENCH_TYPE_K,
    TRACE_BENCH_TYPE_V,
    TRACE_BENCH_N_CTX,
    TRACE_BENCH_N_BATCH,
    TRACE_BENCH_N_UBATCH,
    TRACE_BENCH_N_GPU_LAYERS,
    TRACE_BENCH_N_THREADS,
    TRACE_BENCH_FLASH_ATTN,
    TRACE_BENCH_DEVICES,
    TRACE_BENCH_N_CPU_MOE,
    TRACE_BENCH_TENSOR_BUFT_OVERRIDES,
    TRACE_BENCH_EMBEDDINGS,
    TRACE_BENCH_NO_OP_OFFLOAD,
    /* of `lopside bench` */
    TRACE_BENCH_KV_DELIVERY_DEPTH,
    TRACE_BENCH_ATTN_ON_HOST,
    TRACE_BENCH_ALL_REDUCE,
    TRACE_BENCH_PACE_DEVICES,
    TRACE_BENCH_PACE_LINKS,
    TRACE_BENCH_COLUMN_COUNT,
};

/** The column of a name, or -1: it says nothing that a row could hold. */
int trace_bench_find_column(const char *name, size_t length);

/* One result, as texts. */
struct trace_bench_record {
    const char *values[TRACE_BENCH_COLUMN_COUNT]; /* NULL: the file has no such column */
    const char *names[TRACE_BENCH_COLUMN_COUNT];  /* as the file calls it */
    size_t offsets[TRACE_BENCH_COLUMN_COUNT];     /* of the values, in the text */
    size_t offset;                                /* of the result */
    int line;
    int64_t reps; /* 0: not told */

    /* either a JSON object, or a place in a text */
    const struct json_cursor *object;
    const char *text;
    size_t size;
};

/**
 * Adds the row of a result. One without a speed, because its plan does not fit, is
 * counted and left out.
 *
 * @return 0, or -1 with `err` set
 */
int trace_bench_add_row(const struct trace_bench_record *record, struct trace_draft *draft,
                        struct error *err);

/* --- for writing a row; see trace_bench_plan.c --- */

/* A result on its way to a row. A failed allocation sets `failed`, which is asked once. */
struct trace_bench_writing {
    const struct trace_bench_record *record;
    json_t *row, *plan, *workload;
    bool failed;
};

void trace_bench_put(struct trace_bench_writing *writing, json_t *object, const char *key,
                     json_t *value);

/** `text` is UTF-8, as trace_bench_add_row() has seen to. */
void trace_bench_put_text(struct trace_bench_writing *writing, json_t *object, const char *key,
                          const char *text);

/** Fills `writing->plan`. @return 0, or -1 with `err` set */
int trace_bench_put_plan(struct trace_bench_writing *writing, struct error *err);

/** @return 1 with the value, 0 when nothing is told, -1 with `err` set */
int trace_bench_read_integer(const struct trace_bench_record *record,
                             enum trace_bench_column column, int64_t *value, struct error *err);

/** Whether `text` begins with a finite number; `*end` is behind it. */
bool trace_bench_is_number(const char *text, double *number, const char **end);

/** Refuses a value, or the lack of one, by the name of its column. @return -1 */
int trace_bench_refuse_value(const struct trace_bench_record *record,
                             enum trace_bench_column column, struct error *err, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));

/* --- for reading texts --- */

/** Refuses a place in a text. @return -1 */
int trace_bench_refuse(const char *text, size_t size, size_t offset, struct error *err,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The formats that are no JSON; each reads from `start.offset` to the end of the text. */
int trace_bench_read_markdown(const char *text, size_t size, struct trace_bench_start start,
                              struct trace_draft *draft, struct error *err);
int trace_bench_read_csv(const char *text, size_t size, struct trace_bench_start start,
                         struct trace_draft *draft, struct error *err);
int trace_bench_read_sql(const char *text, size_t size, struct trace_bench_start start,
                         struct trace_draft *draft, struct error *err);

#endif
