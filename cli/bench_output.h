/* Results in the shapes of llama-bench: md, csv, json, jsonl and sql. */
#ifndef CLI_BENCH_OUTPUT_H
#define CLI_BENCH_OUTPUT_H

#include <stdio.h>
#include <time.h>

#include "sim/memory.h"
#include "sim/predict.h"

enum bench_format {
    BENCH_MARKDOWN,
    BENCH_CSV,
    BENCH_JSON,
    BENCH_JSONL,
    BENCH_SQL,
};

/* One test of one plan. */
struct bench_result {
    const struct model *model;
    const struct machine *machine;
    const char *model_filename; /* as given to -m */
    struct plan plan;           /* as asked, shares as typed */
    uint32_t n_ctx;
    const char *tensor_split, *attn_split, *devices, *kv_resident; /* as typed; "" when not */
    const char *model_draft;               /* as typed, or "own block"; "" without a draft */
    uint32_t draft_max;                    /* tokens drafted a round; 0: no draft */
    double draft_acceptance;               /* 0 to 1 */
    const char *pace_devices, *pace_links; /* as typed; NULL: not given */
    bool samples;                          /* generated tokens are sampled, where the plan says */
    uint32_t rules;                        /* of feasibility_check() */
    bool is_default; /* llama.cpp's own default, added beside the asked plans */
    uint32_t n_prompt, n_gen, n_depth, reps;
    double time_s;     /* predicted */
    double *samples_s; /* (reps) measured; NULL: not. Owned by the run */
    time_t measured_at;
    bool on_cpu;       /* they are what a CPU took to execute the devices' parts */
    struct timing_bound bound;
    struct memory_account memory;
    double device_mib[MACHINE_DEVICES_MAX]; /* by device of the whole machine; below 0: not used */
    char verdict[64];
};

/* Which columns differ from llama-bench's defaults in any row, so that md shows them. */
struct bench_columns {
    bool n_batch, n_ubatch, type_k, type_v, split, main_gpu, nkvo, kv_gpu_layers, kv_policy,
        kv_pinned, delivery_depth, attn_on_host, recurrent, flash_attn, tensor_split, attn_split,
        devices, n_ctx, kv_resident, is_default, slots, kv_unified, n_cpu_moe, engine, pipeline,
        output_mirrored, all_reduce, ff_exp_rows, samples, draft, rules, measured;
};

struct bench_output {
    FILE *out;
    enum bench_format format;
    struct bench_columns columns;
    const struct machine *machine; /* the whole one: a column of memory a device */
    size_t rows;                   /* printed so far */
};

/** Notes what a result shows, so that the head can be printed before all rows. */
void bench_columns_note(struct bench_columns *columns, const struct bench_result *result);

void bench_output_begin(struct bench_output *output);
void bench_output_row(struct bench_output *output, const struct bench_result *result);
void bench_output_end(struct bench_output *output);

#endif
