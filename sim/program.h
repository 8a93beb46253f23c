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

#include "sim/op_kinds.h"
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

/* A token of a step: what TOKENS holds. */
struct program_token {
    uint32_t token;
    uint32_t position;
    uint32_t sequence;  /* slot */
    uint32_t cell[2];   /* where its K and V rows go: full windows, sliding windows */
    uint32_t output;    /* 1 where logits are wanted */
    uint32_t undone;    /* tokens of its sequence that the recurrent state goes back by, first */
    uint32_t from_zero; /* 1 where its sequence begins: the recurrent state is zero */
};

/* A chosen expert of a token. */
struct program_route {
    uint32_t expert;
    float weight;
};

/* The likeliest token of a row of logits, or of a device's part of it. */
struct program_pick {
    uint32_t token;
    float logit;
};

/* Where an operand lies: a value in a device's memory, or the host's. */
struct program_operand {
    uint8_t value; /* enum op_value */
    uint8_t slot;  /* ring place of a window, kind of CELLS */
    int16_t space; /* device, or PROGRAM_AT_HOST */
};

/* How rows of an operand lie for OP_COPY, and those that OP_STORE takes a part of: a part of
 * `segments` equal segments, each `segment` elements after the one before. */
struct program_layout {
    uint64_t row, segment, first; /* elements */
};

/* An operation of a task. Which fields count depends on the kind: sim/op_kinds.h. */
struct program_op {
    enum op_kind kind;
    struct program_operand a, b, c, out, out2;
    int32_t layer;                /* -1 outside layers */
    int32_t tensor;               /* into model.tensors; -1 */
    struct program_slice slice;   /* of the tensor; count 0: all */
    uint64_t rows, columns;       /* of a product; NORM, GLU: rows a token, columns a row */
    uint32_t heads, kv_heads;     /* that the operand holds */
    uint32_t kv_first;            /* STORE, ATTEND: the first KV head within the cache's rows */
    uint32_t row_heads;           /* KV heads of a row of the cache */
    uint32_t token_first, tokens; /* tokens it covers; 0: all */
    uint32_t members;             /* REDUCE: bit d: device d has a part of the sum */
    bool outputs;                 /* its rows are those with outputs, not all tokens */
    bool sliding;                 /* the window's kind */
    /* COPY: of `width` elements in each of `segments` segments of each row */
    uint64_t width;
    uint32_t segments;
    struct program_layout from, to;
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
    uint32_t op_first, op_count; /* what it computes, in order */
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
    uint32_t group; /* MATMUL of our own: columns that are summed in fp32 (sim/share.h); else 0 */
    double state_bytes; /* DELTA_NET: the recurrent state, once */
    /* ATTENTION and DELTA_NET */
    uint32_t heads, kv_heads, head_dim;
    uint32_t heads_all; /* ATTENTION: query heads of all devices */
    bool normed;        /* ROPE: heads go through norms, too */
    uint32_t sequences;
    uint32_t streams; /* of an attention: windows, each of as many cells; 0 means 1 */
    enum tensor_type cache_type;
};

struct program {
    const struct placement *placement; /* borrowed */
    struct program_task *tasks;
    size_t task_count;
    uint32_t *dependencies;
    size_t dependency_count;
    struct program_op *ops;
    size_t op_count;
    uint32_t tokens, outputs;
    const char *not_executable; /* why its operations are not complete; NULL: they are */
};

/* What a step does. */
struct program_step {
    uint32_t tokens;    /* of the ubatch */
    uint32_t outputs;   /* rows of logits; 0 for a ubatch that yields none */
    uint32_t sequences; /* that the tokens belong to, evenly; 0 means 1 */
    uint32_t snapshots; /* of the recurrent state, for undoing a rejected draft */
    bool rebuild;       /* the graph is built anew and launched kernel by kernel */
    bool hidden;        /* the residual rows of all tokens come to the host, for a drafter */
    bool sample;        /* the host samples from the logits */
    bool picks;         /* of logits only the likeliest token of each part comes to the host */
    bool sync;          /* the host waits for everything at the end */
};

/**
 * Lowers a step. This is the only place that knows what plans mean.
 *
 * @return a program for program_free(), or NULL with `err` set
 */
struct program *program_lower(const struct placement *placement, struct program_step step,
                              struct error *err);

/**
 * Lowers a context shift: the cached K of moved positions is turned where it lies.
 *
 * @return a program for program_free(), or NULL with `err` set
 */
struct program *program_lower_shift(const struct placement *placement, struct error *err);
void program_free(struct program *program);

enum { PROGRAM_WINDOW_UNIT = 64 }; /* cells, in our own schedule */

/**
 * Cells that a window covers, of a cache of `cells` of which `used` are: a multiple of 256 in
 * llama.cpp's schedules (llama-kv-cache.cpp, get_n_kv()), of 64 in our own, whose kernels read no
 * cell that is not used: there it is what is delivered.
 */
uint32_t program_window_cells(const struct placement *placement, uint32_t cells, uint32_t used);

/* Of windows over caches of all tokens, and over those of sliding windows. */
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

/** Whether it holds a device's compute queue, and nothing else. */
static inline bool program_task_is_on_compute(const struct program_task *task)
{
    return task->device >= 0 &&
           task->queues == UINT64_C(1) << program_queue_compute((uint32_t)task->device);
}

/** Bytes of the weights of MATMUL and EXPERTS, those of touched experts. */
double program_task_weight_bytes(const struct program_task *task);

/** Rows of the activations that meet each of these weights. */
double program_task_product_tokens(const struct program_task *task);

const char *program_op_name(enum op_kind kind);
const char *program_value_name(enum op_value value);
bool program_value_is_layered(enum op_value value);
const char *program_task_name(enum task_kind kind);
enum task_class program_task_class(enum task_kind kind);

/** Words for the classes: "host", "wait", "copy", "kernel", "collective". */
const char *program_class_name(enum task_class which);

/** The queue of a task for people: "host", "CUDA0", "CUDA0 copy in", "all devices". */
void program_queue_name(const struct program_task *task, const struct placement *placement,
                        char *text, size_t size);

/**
 * What a task does, for people: "matmul blk.3.attn_q.weight", "kv-window k blk.3",
 * "peer to CUDA1".
 *
 * @param part   as the task's
 * @param tensor name of its weight, or NULL
 * @param layer  below 0 outside layers
 * @param peer   name of the other device of a TASK_PEER, or NULL
 */
void program_what_text(enum task_kind kind, char part, const char *tensor, int32_t layer,
                       const char *peer, char *text, size_t size);

/** Prints a line an operation of a task. */
void program_print_operations(const struct program *program, size_t task, FILE *out);

/** Prints a line a task: number, queue, what, work, dependencies. */
void program_print(const struct program *program, struct program_cells cells, FILE *out);

#endif
