/* A timeline: when each task of one or several steps started and ended, simulated or recorded.
 *
 * A recorded one is a file of JSON lines: a header, then for each step a line and one a task, in
 * issue order.
 *
 *     {"lopside_timeline": 1, "model": "qwen3 8B", "quant": "Q4_K_M", "n_ctx": 256,
 *      "arguments": ["-m", "qwen3-8b:q4_k_m", "-sm", "layer"],
 *      "devices": [{"name": "CUDA0", "gpu": "NVIDIA H200", "slowdown": 1, "link_gbs": 0}]}
 *     {"step": 0, "tokens": 1, "outputs": 1, "sequences": 1, "snapshots": 0, "rebuild": false,
 *      "hidden": false, "sample": false, "sync": true, "shift": false, "depth": 12, "cells": 256,
 *      "sliding_cells": 0, "start_us": 0.000, "tasks": 611}
 *     {"step": 0, "task": 12, "kind": "matmul", "queues": ["CUDA0"], "device": "CUDA0",
 *      "layer": 3, "tensor": "blk.3.attn_q.weight", "bytes": 9437184, "flops": 33554432,
 *      "tokens": 1, "after": [11], "start_us": 120.500, "end_us": 131.000}
 *
 * `arguments` are plan options of the call; with them, n_ctx and the line of a step its program
 * can be lowered again. Of a task `device`, `peer`, `layer`, `tensor`, `part`, `blocking`,
 * `bytes`, `flops`, `tokens` and `after` (tasks it depends on) may be missing. Times of tasks
 * count from the start of their step, that of a step from the start of the first. The first step
 * may have any number; the others follow. */
#ifndef SIM_TIMELINE_H
#define SIM_TIMELINE_H

#include "sim/arena.h"
#include "sim/program.h"

enum {
    TIMELINE_VERSION = 1,
    TIMELINE_DIRECTIONS_MAX = 2 * MACHINE_LINKS_MAX + MACHINE_DEVICES_MAX * MACHINE_DEVICES_MAX,
};

struct timeline_device {
    char name[16];   /* as the machine has it: "CUDA0" */
    char gpu[64];    /* on which it ran, or that was simulated */
    double slowdown; /* of its kernels, on purpose; 1: none */
    double link_gbs; /* most that its copies from and to the host were let; 0: no limit */
};

struct timeline_task {
    enum task_kind kind;
    int16_t device, peer; /* into timeline.devices; PROGRAM_AT_HOST: the host, none */
    int32_t layer;        /* -1 outside layers */
    const char *tensor;   /* name of the weight it reads; NULL */
    char part;            /* 'k', 'v' or 0 */
    bool blocking;        /* the host thread waits for its end */
    uint64_t queues;      /* that it holds: bits of sim/program.h */
    uint32_t tokens;      /* of a product or a sum; else 0 */
    double bytes, flops;  /* that it moves and computes, for the step's windows */
    uint32_t dependency_first, dependency_count; /* into the step's dependencies */
    double start_s, end_s;                       /* from the start of the step */
    double issue_from_s, issue_to_s; /* the host thread issues it; NAN where not known */
};

struct timeline_step {
    size_t number; /* in its file or simulation, from 0 */
    struct program_step step;
    bool shift;     /* a context shift: `step` then says nothing */
    uint32_t depth; /* tokens in the cache before it, of the longest sequence */
    struct program_cells cells;
    double start_s; /* from the start of the first step */
    struct timeline_task *tasks;
    size_t task_count;
    uint32_t *dependencies;
    size_t dependency_count;
};

/* From `time_s` on (of the first step's start) a direction of a link carries `gbs`. */
struct timeline_rate {
    uint32_t direction;
    double time_s, gbs;
};

struct timeline {
    char source[160]; /* file, or "simulation" */
    const char *model, *quant;
    const char **arguments; /* plan options: flags and values; borrowed or in `arena` */
    size_t argument_count;
    uint32_t n_ctx;
    struct timeline_device devices[MACHINE_DEVICES_MAX];
    uint32_t device_count;
    struct timeline_step *steps;
    size_t step_count, step_capacity;
    /* Directions of links by name ("host>CUDA1"), and what they carry, by time. */
    char (*directions)[40];
    uint32_t direction_count;
    struct timeline_rate *rates;
    size_t rate_count, rate_capacity;
    struct arena *arena;
};

/** An empty timeline for timeline_free(), or NULL with `err` set (ERROR_MEMORY). */
struct timeline *timeline_new(struct error *err);
void timeline_free(struct timeline *timeline);

/** Names model, devices and GPUs of a placement, which has to outlive the timeline. */
void timeline_set_placement(struct timeline *timeline, const struct placement *placement);

/**
 * Appends a step with the tasks of a program; their times are NAN, their tensors' names
 * borrowed from the program's model. `step`, `shift`, `depth` and `start_s` are the caller's.
 *
 * @return the step, which moves when the next one is appended, or NULL with `err` set
 */
struct timeline_step *timeline_add_step(struct timeline *timeline, const struct program *program,
                                        struct program_cells cells, struct error *err);

/** Tasks that are one launch, between whose ends no clock sees: from the first one's start to the
 * last one's end they follow each other, each for its part of the bytes. Without bytes they stay.
 */
void timeline_share_launch(struct timeline_task *tasks, size_t count);

/** Forgets all steps and rates. */
void timeline_clear(struct timeline *timeline);

/** Keeps the step of a number alone, and begins at its start. @return 0, or -1 with `err` set
 * (ERROR_USAGE) where there is none */
int timeline_keep_step(struct timeline *timeline, size_t number, struct error *err);

/** Forgets steps that are context shifts. @return how many they were */
size_t timeline_drop_shifts(struct timeline *timeline);

/** Appends a rate; times do not go back. @return 0, or -1 with `err` set (ERROR_MEMORY) */
int timeline_add_rate(struct timeline *timeline, struct timeline_rate rate, struct error *err);

/**
 * Where no rates are known, takes for each copy its bytes over its duration, on the direction
 * between its two ends. Sums over devices are left out: how they go is not known.
 *
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int timeline_estimate_rates(struct timeline *timeline, struct error *err);

/** When the last task of a step has ended, from the step's start; 0 without tasks. */
double timeline_step_end_s(const struct timeline_step *step);

/** The queue on which a task is shown: its device's, the host's or that of collectives. */
unsigned timeline_task_queue(const struct timeline_task *task);

/** "host", "workers", "collective", "beside", "CUDA0", "CUDA0 copy in", "CUDA0 copy out". */
void timeline_queue_name(const struct timeline *timeline, unsigned queue, char *text, size_t size);

/** Number of queues that tasks may hold. */
static inline unsigned timeline_queue_count(const struct timeline *timeline)
{
    return PROGRAM_QUEUE_DEVICES + 3 * timeline->device_count;
}

/** What a task does, as `lopside program` lists it. */
void timeline_task_text(const struct timeline *timeline, const struct timeline_task *task,
                        char *text, size_t size);

/** Writes the header's line, or the lines of step `index`. Failure shows in ferror(). */
void timeline_write_header(const struct timeline *timeline, FILE *out);
void timeline_write_step(const struct timeline *timeline, size_t index, FILE *out);

/**
 * Reads a recorded timeline.
 *
 * @return a timeline for timeline_free(), or NULL with `err` set: file, line, field, what was
 *         found and what would do
 */
struct timeline *timeline_load_file(const char *path, struct error *err);

/** As timeline_load_file, from memory; `source` names it in errors. */
struct timeline *timeline_parse(const char *text, size_t size, const char *source,
                                struct error *err);

#endif
