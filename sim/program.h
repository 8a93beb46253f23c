/* A program: one step of a plan as tasks in issue order. It is the contract
 * between lowering, which makes it, and the simulator and the runtimes, which
 * run it: everything that a plan means is in here.
 *
 * A program is made for a number of tokens and outputs. What grows with the
 * attention window is kept as a factor, so one program serves all windows. */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/plan.h"
#include "sim/task_kinds.h"

/* Queues: two of the host, two of collectives, then three a device. */
enum {
    PROGRAM_QUEUE_HOST = 0,       /* the issuing thread's own work */
    PROGRAM_QUEUE_WORKERS = 1,    /* its pool */
    PROGRAM_QUEUE_COLLECTIVE = 2, /* held by collectives beside their members' streams */
    PROGRAM_QUEUE_BESIDE = 3,     /* held by collectives that run beside their members' streams */
    PROGRAM_QUEUE_DEVICES = 4,    /* first device queue */
};

static inline unsigned program_queue_compute(uint32_t device)
{
    return PROGRAM_QUEUE_DEVICES + 3 * device;
}

static inline unsigned program_queue_copy_in(uint32_t device)
{
    return PROGRAM_QUEUE_DEVICES + 3 * device + 1;
}

static inline unsigned program_queue_copy_out(uint32_t device)
{
    return PROGRAM_QUEUE_DEVICES + 3 * device + 2;
}

/* Which window a task's work grows with. */
enum program_window { PROGRAM_WINDOW_NONE, PROGRAM_WINDOW_BASE, PROGRAM_WINDOW_SLIDING };

enum { PROGRAM_AT_HOST = -1 };

/* A slice of a tensor's rows or columns: `count` from `first` in each of `segments`
 * equal parts of the cut axis. Axis 1 is rows (outputs), axis 0 columns (inputs). */
struct program_slice {
    uint8_t axis;
    uint8_t segments;
    uint64_t first, count; /* elements of the axis in one segment; count 0: all of it */
};

struct program_task {
    enum task_kind kind;
    int16_t device; /* index into the placement's devices; PROGRAM_AT_HOST */
    int16_t peer;   /* PEER: the other device */
    int32_t layer;  /* block; -1 outside layers */
    int32_t tensor; /* weight it reads, into model.tensors; -1 */
    char part;      /* KV tasks: 'k' or 'v'; else 0 */
    struct program_slice slice;
    uint64_t queues;
    bool blocking;     /* the issuing thread waits for its end */
    bool pageable;     /* COPY: the host side is pageable memory */
    uint32_t launches; /* launches that the host thread pays for it */
    uint32_t kernels;  /* kernels in it */
    uint32_t dependency_first, dependency_count;
    /* work, for a window of n cells: x + n * x_per_cell */
    enum program_window window;
    double flops, flops_per_cell;
    double bytes, bytes_per_cell; /* device or host memory; COPY: over the link */
    double input_bytes; /* MATMUL and EXPERTS: moved by quantising the activations first */
    double row_bytes;   /* COPY: width of the rows of a strided copy; 0: contiguous */
    /* MATMUL and EXPERTS: (rows x columns) times (columns x tokens), once for each of `experts` */
    uint64_t rows, columns;
    uint32_t tokens;
    double experts; /* expected number touched; 1 for MATMUL */
    enum tensor_type type;
    double state_bytes; /* DELTA_NET: the recurrent state, once */
    /* ATTENTION and DELTA_NET */
    uint32_t heads, kv_heads, head_dim;
    uint32_t sequences;
    enum tensor_type cache_type;
};

struct program {
    const struct placement *placement; /* borrowed */
    struct program_task *tasks;
    size_t task_count;
    uint32_t *dependencies;
    size_t dependency_count;
    uint32_t tokens, outputs;
};

/* What a step does. */
struct program_step {
    uint32_t tokens;    /* of the ubatch */
    uint32_t outputs;   /* rows of logits; 0 for a ubatch that yields none */
    uint32_t sequences; /* that the tokens belong to, evenly; 0 means 1 */
    uint32_t snapshots; /* of the recurrent state, for undoing a rejected draft */
    bool rebuild;       /* the graph is built anew and launched kernel by kernel */
    bool sample;        /* the host samples from the logits */
    bool sync;          /* the host waits for everything at the end */
};

/**
 * Lowers a step. This is the only place that knows what plans mean.
 *
 * @return a program for program_free(), or NULL with `err` set
 */
struct program *program_lower(const struct placement *placement, struct program_step step,
                              struct error *err);
void program_free(struct program *program);

/** Cells that a window covers: the padded number of used cells. */
struct program_cells {
    uint32_t base, sliding;
};

/** Windows of a step that ends at position `used` (tokens in the cache after it). */
struct program_cells program_cells_at(const struct placement *placement, uint32_t used);

/** Cells of the cache of a sliding-window layer. */
uint32_t program_sliding_cache_cells(const struct placement *placement, uint32_t window);

static inline double program_task_cells(const struct program_task *task, struct program_cells cells)
{
    return task->window == PROGRAM_WINDOW_BASE      ? cells.base
           : task->window == PROGRAM_WINDOW_SLIDING ? cells.sliding
                                                    : 0;
}

const char *program_task_name(enum task_kind kind);
enum task_class program_task_class(enum task_kind kind);

/** Prints a line a task: number, queue, what, work, dependencies. */
void program_print(const struct program *program, struct program_cells cells, FILE *out);

#endif
