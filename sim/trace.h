/* Measured rows: one JSON object a line, described field by field in traces/README.md.
 * A row says which machine, model, plan and workload gave which value of which metric. */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/arena.h"
#include "sim/error.h"

enum {
    TRACE_VERSION = 1,
    TRACE_DEVICE_LIMIT = 16, /* entries of a split, GPUs of a machine */
};

/* Fields that a row may leave open; each has a bit in `stated` and in `assumed`. */
enum trace_field {
    TRACE_FIELD_SOURCE,
    TRACE_FIELD_MACHINE, /* either form */
    TRACE_FIELD_CLOCKS,
    TRACE_FIELD_ENGINE,
    TRACE_FIELD_BUILD,
    TRACE_FIELD_MODEL,
    TRACE_FIELD_QUANT,
    TRACE_FIELD_UNIT,
    TRACE_FIELD_STDDEV,
    TRACE_FIELD_DERIVED,
    TRACE_FIELD_NOTE,
    TRACE_FIELD_SKIP,
    /* plan */
    TRACE_FIELD_SPLIT_MODE,
    TRACE_FIELD_TENSOR_SPLIT,
    TRACE_FIELD_ATTN_SPLIT,
    TRACE_FIELD_KV_ON_HOST,
    TRACE_FIELD_KV_PINNED,
    TRACE_FIELD_KV_UNIFIED,
    TRACE_FIELD_KV_GPU_LAYERS,
    TRACE_FIELD_KV_POLICY,
    TRACE_FIELD_RECURRENT_ON_DEVICE,
    TRACE_FIELD_ATTN_ON_HOST,
    TRACE_FIELD_TYPE_K,
    TRACE_FIELD_TYPE_V,
    TRACE_FIELD_N_CTX,
    TRACE_FIELD_N_BATCH,
    TRACE_FIELD_N_UBATCH,
    TRACE_FIELD_N_GPU_LAYERS,
    TRACE_FIELD_N_THREADS,
    TRACE_FIELD_FLASH_ATTN,
    TRACE_FIELD_DEVICE,
    TRACE_FIELD_OUTPUT_HEAD,
    /* workload */
    TRACE_FIELD_TOOL,
    TRACE_FIELD_N_PROMPT,
    TRACE_FIELD_N_GEN,
    TRACE_FIELD_N_DEPTH,
    TRACE_FIELD_N_SLOTS,
    TRACE_FIELD_REPS,
    TRACE_FIELD_COUNT,
};

enum trace_clocks {
    TRACE_CLOCKS_UNKNOWN,
    TRACE_CLOCKS_STOCK,
    TRACE_CLOCKS_OC,
};

enum trace_split_mode {
    TRACE_SPLIT_UNKNOWN, /* absent, or a word kept in other_plan_keys */
    TRACE_SPLIT_NONE,
    TRACE_SPLIT_LAYER,
    TRACE_SPLIT_TENSOR,
    TRACE_SPLIT_ROW,
};

enum trace_answer {
    TRACE_UNKNOWN,
    TRACE_NO,
    TRACE_YES,
};

enum trace_value_kind {
    TRACE_VALUE_NUMBER,
    TRACE_VALUE_BOOL,
    TRACE_VALUE_TEXT,
};

struct trace_value {
    enum trace_value_kind kind;
    double number;    /* also 0 or 1 for a bool */
    const char *text; /* "" unless the kind is text */
};

/* A key this reader does not turn into a field. */
struct trace_other_key {
    const char *key;
    const char *json; /* its value as JSON text: "off" comes with its quotes */
};

struct trace_split {
    double share[TRACE_DEVICE_LIMIT]; /* as written: 50, 50 or 0.75, 0.25 */
    size_t count;                     /* 0: absent */
};

/* Strings are never NULL: "" when absent. They belong to the trace. */
struct trace_row {
    uint64_t stated, assumed; /* a bit per trace_field, never both; see trace_row_is_assumed() */
    int line;                 /* 1-based, in the file */
    const char *id, *source, *note;
    const char *skip; /* why the row is left out of comparisons; "" for a row that is not */

    /* machine: a name, or a list of GPUs (the other form), or neither */
    const char *machine;
    const char *gpus[TRACE_DEVICE_LIMIT];
    const char *links[TRACE_DEVICE_LIMIT]; /* per GPU; "" when not stated */
    size_t gpu_count, link_count;
    const char *cpu, *ram, *backend;
    enum trace_clocks clocks;

    const char *engine, *build, *model, *quant;

    /* plan */
    enum trace_split_mode split_mode;
    struct trace_split tensor_split, attn_split;
    enum trace_answer kv_on_host, kv_pinned, kv_unified, recurrent_on_device, attn_on_host,
        flash_attn;
    const char *kv_policy, *type_k, *type_v, *device, *output_head;
    int64_t kv_gpu_layers, n_ctx, n_batch, n_ubatch, n_gpu_layers, n_threads;
    const struct trace_other_key *other_plan_keys;
    size_t other_plan_key_count;

    /* workload */
    const char *tool;
    int64_t n_prompt, n_gen, n_depth, n_slots, reps;
    const struct trace_other_key *other_workload_keys;
    size_t other_workload_key_count;

    const char *metric, *unit;
    struct trace_value value;
    double stddev;
    bool derived; /* computed from other rows by whoever measured */
};

/* What a header says about the rows whose ids begin with `id`, a dash and a number. */
struct trace_table {
    const char *id;            /* "s000-bench" */
    const char *title;         /* what it varies */
    const char *mechanism;     /* what explains its figures; "" without one */
    const char *contradiction; /* where its source disagrees with itself; "" without one */
    const char *gap;           /* what its source does not say; "" without one */
};

struct trace {
    char source[160];
    const char *about; /* from the header line; "" without one */
    struct trace_table *tables;
    size_t table_count;
    struct trace_row *rows;
    size_t count;
    struct arena *arena; /* strings and lists of the rows; private */
};

/**
 * Reads a file of rows. Blank lines are skipped; a header line (`lopside_trace`)
 * may stand before the rows, or between them in joined files. The output of llama-bench
 * is recognised by its content, whatever its format; each of its results becomes a row,
 * named after the file: the second of "runs/box.csv" is "box-02".
 *
 * @return 0, or -1 with `err` set and `trace` untouched
 */
int trace_load_file(const char *path, struct trace *trace, struct error *err);

/** As trace_load_file, from memory. `source` names it in errors. */
int trace_parse(const char *text, size_t size, const char *source, struct trace *trace,
                struct error *err);

/** Releases what trace_load_file or trace_parse filled; a zeroed trace is fine. */
void trace_close(struct trace *trace);

/** Whether the row gives the field at all, stated or assumed. */
bool trace_row_has(const struct trace_row *row, enum trace_field field);

/** Whether the field was filled in by whoever wrote the row down. A key that stands in
 * its own place and in `assumed` keeps the value of the former and counts as assumed. */
bool trace_row_is_assumed(const struct trace_row *row, enum trace_field field);

/** The key of a field in a row: "n_ctx". */
const char *trace_field_name(enum trace_field field);

/** What the trace says about a table, or NULL. */
const struct trace_table *trace_find_table(const struct trace *trace, const char *id);

/** A row of `id`, or NULL. */
const struct trace_row *trace_find_row(const struct trace *trace, const char *id);

struct trace_files {
    char **paths; /* sorted by name */
    size_t count;
};

/**
 * The files that `path` means: itself, or every *.jsonl of a directory (not of the
 * folders in it). A directory without any is an error. Output of llama-bench in other
 * formats is named file by file: a folder holds much that is no trace.
 *
 * @return 0, or -1 with `err` set and `files` untouched
 */
int trace_find_files(const char *path, struct trace_files *files, struct error *err);
void trace_files_close(struct trace_files *files);

#endif
