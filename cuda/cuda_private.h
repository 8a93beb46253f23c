/* What the files of the executor share. */
#ifndef CUDA_PRIVATE_H
#define CUDA_PRIVATE_H

#include "cuda/cuda_check.h"
#include "cuda/cuda_executor.h"
#include "cuda/cuda_memory.h"
#include "cuda/cuda_pace.h"
#include "cuda/cuda_trace.h"
#include "cuda/cuda_weights.h"
#include "cuda/kernels.h"
#include "cuda/matmul.h"

/* Queues of devices have a stream each; collectives that run beside them, one on each GPU. */
struct cuda_lane {
    int gpu; /* index into the executor's gpus */
    cudaStream_t stream;
    uint64_t *stamp;  /* pacing: when the task under way began */
    cudaEvent_t tail; /* recorded where another lane waits for this one */
};

/* Memory that operations of a device use meanwhile; they follow each other on its compute
 * stream. */
struct cuda_scratch {
    void *bytes;
    size_t capacity;
};

/* The activations that a device holds quantised. */
struct cuda_quantised {
    const float *x; /* NULL: none */
    void *bytes;
    uint32_t tokens, group, segments;
    uint64_t columns;
};

enum { CUDA_PENDING_MAX = MATMUL_FAST_PARTS };

/* Products that will be one launch. */
struct cuda_pending {
    struct cuda_product products[CUDA_PENDING_MAX];
    uint32_t count;
    cudaStream_t stream;
};

/* Events of one GPU, used anew each step. */
struct cuda_events {
    cudaEvent_t *events;
    size_t count, used;
};

/* What a task's dependents wait for. */
struct cuda_done {
    cudaEvent_t events[MACHINE_DEVICES_MAX]; /* of each GPU that takes part */
    uint32_t count;
};

/* Rotary frequencies on a GPU. */
struct cuda_frequencies {
    int gpu;
    bool sliding;
    uint32_t turned;
    int32_t tensor;
    double *values;
};

struct cuda_collective; /* cuda_collective.cu */
struct cuda_lockstep;   /* cuda_lockstep.cu */
struct cuda_graphs;     /* cuda_graph.cu */

enum { CUDA_FREQUENCIES_MAX = 64, CUDA_PINNED_MAX = 1024 };

struct cuda_executor {
    const struct placement *placement;
    const struct model *model;
    const struct numbers *numbers;
    struct layout_room room;
    struct interpreter *host; /* computes what the host does, in its memory */
    struct weights *host_weights;
    int gpus[MACHINE_DEVICES_MAX];
    uint32_t gpu_count;
    bool reaches_all;                     /* each GPU has access to the memory of all others */
    int device_gpus[MACHINE_DEVICES_MAX]; /* CUDA ordinal of each device */
    struct cuda_memory *memory;
    struct cuda_weights *weights;
    struct cuda_lane lanes[3 * MACHINE_DEVICES_MAX + MACHINE_DEVICES_MAX];
    uint32_t lane_count; /* three a device, then one a GPU */
    struct cuda_scratch scratch[MACHINE_DEVICES_MAX];
    struct cuda_scratch activations[MACHINE_DEVICES_MAX]; /* quantised */
    struct cuda_quantised quantised[MACHINE_DEVICES_MAX]; /* what is there */
    struct cuda_pending pending[MACHINE_DEVICES_MAX];
    struct cuda_scratch workspaces[MACHINE_DEVICES_MAX]; /* of products; all 0 between them */
    struct cuda_events events[MACHINE_DEVICES_MAX];      /* of each GPU */
    struct cuda_done *done;                              /* of the program's tasks */
    bool *awaited;                                       /* tasks that others depend on */
    size_t task_capacity;
    struct cuda_frequencies frequencies[CUDA_FREQUENCIES_MAX];
    uint32_t frequency_count;
    void *pinned[CUDA_PINNED_MAX]; /* memory of the host that was registered */
    uint32_t pinned_count;
    struct cuda_collective *collective;
    struct cuda_lockstep *lockstep; /* NULL: off */
    struct cuda_trace *trace;       /* NULL: off */
    struct cuda_graphs *graphs;     /* NULL: off */
    size_t captured_from;           /* tasks before it do not belong to the graph being captured */
    double slowdowns[MACHINE_DEVICES_MAX], link_gbs[MACHINE_DEVICES_MAX];
    const struct program *program; /* under way */
    struct interpret_step step;
    const struct program_task *task;
};

/* ---- cuda_executor.cu ---- */

/** Launches a task; waits for it where it blocks. @return 0, or -1 with `err` set */
int cuda_run_task(struct cuda_executor *executor, size_t index, struct error *err);

/** `lane` goes on when `other` has come as far as it is now. */
int cuda_wait_for_lane(const struct cuda_lane *lane, const struct cuda_lane *other,
                       struct error *err);

/** An event of GPU `gpu` that nothing else uses in this step. */
int cuda_take_event(struct cuda_executor *executor, int gpu, cudaEvent_t *event, struct error *err);

/* ---- cuda_graph.cu ---- */

struct cuda_graphs *cuda_graphs_new(struct error *err);
void cuda_graphs_free(struct cuda_graphs *graphs);

/** A step begins. */
void cuda_graphs_begin(struct cuda_graphs *graphs);

/** Where the tasks end that can be one graph with task `first`; `first` itself where there is none.
 * To be asked once for each, in order: the rest of a run that was cut is known by where it begins.
 */
size_t cuda_graphs_run_end(const struct cuda_executor *executor, size_t first);

/** Whether a run was cut before `task`, so that those before it are a graph of their own. */
bool cuda_graphs_cut_at(const struct cuda_graphs *graphs, size_t task);

/** Runs those tasks. @return 0, or -1 with `err` set */
int cuda_graphs_run(struct cuda_executor *executor, size_t first, size_t end, struct error *err);

/* ---- cuda_operands.cu ---- */

/** Operands of a device: what is there, or room for it. NULL with `err` set on failure. */
float *cuda_in(struct cuda_executor *executor, const struct program_op *op,
               struct program_operand operand, uint64_t values, struct error *err);
float *cuda_out(struct cuda_executor *executor, const struct program_op *op,
                struct program_operand operand, uint64_t values, struct error *err);
const struct program_token *cuda_tokens_of(struct cuda_executor *executor,
                                           const struct program_op *op, struct error *err);
int64_t *cuda_sums_out(struct cuda_executor *executor, struct program_operand operand,
                       const struct program_op *op, struct error *err);

/** The step's tokens in the host's memory, for sizes of launches. */
const struct program_token *cuda_host_tokens(struct cuda_executor *executor, struct error *err);

/** Tensors of F32 on the operation's device. NULL with `err` set on failure. */
const float *cuda_f32_tensor(struct cuda_executor *executor, const struct program_op *op,
                             int32_t tensor, struct error *err);
const float *cuda_role_tensor(struct cuda_executor *executor, const struct program_op *op,
                              enum tensor_role role, struct error *err);

/** At least `bytes`, all 0 where it grows. NULL with `err` set on failure. */
void *cuda_grow_scratch(struct cuda_scratch *scratch, int device, size_t bytes, struct error *err);
void *cuda_scratch_of(struct cuda_executor *executor, int device, size_t bytes, struct error *err);

/* ---- cuda_products.cu ---- */

int cuda_matmul_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                   struct error *err);
int cuda_partial_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err);
int cuda_experts_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err);
int cuda_experts_partial_op(struct cuda_executor *executor, const struct program_op *op,
                            cudaStream_t stream, struct error *err);
int cuda_shared_gate_op(struct cuda_executor *executor, const struct program_op *op,
                        cudaStream_t stream, struct error *err);
int cuda_route_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                  struct error *err);

/** Launches the products of a device that wait. @return 0, or -1 with `err` set */
int cuda_flush_products(struct cuda_executor *executor, int device, struct error *err);

/** Whether `next` may join the products that wait behind `last`. */
bool cuda_products_go_on(const struct cuda_executor *executor, const struct program_op *last,
                         const struct program_op *next);

/**
 * Where `op`, which is about to write `x`, (tokens, columns), should write it quantised as well:
 * for the product behind it. `to->bytes` is NULL where there is none.
 *
 * @return 0, or -1 with `err` set
 */
int cuda_activations_ahead(struct cuda_executor *executor, const struct program_op *op,
                           const float *x, uint64_t columns, struct activations *to,
                           struct error *err);

/* ---- cuda_delta.cu ---- */

int cuda_convolve_op(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err);
int cuda_delta_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                  struct error *err);
int cuda_norm_gate_op(struct cuda_executor *executor, const struct program_op *op,
                      cudaStream_t stream, struct error *err);

enum { CUDA_DELTA_STEP_OPS = 3 }; /* CONVOLVE, DELTA, NORM_GATE */

/** Whether no sequence has more than one of the step's tokens, which are few. */
bool cuda_has_one_each(struct cuda_executor *executor);

/** Whether `op` and those behind it, of `left`, are a delta net's of such a step. */
bool cuda_is_delta_step(struct cuda_executor *executor, const struct program_op *op, uint32_t left);

/**
 * Launches these as two kernels; the convolved mix is not written.
 *
 * @param fits false: the kernels do not have this shape, nothing was launched
 * @return 0, or -1 with `err` set
 */
int cuda_delta_step_ops(struct cuda_executor *executor, const struct program_op *op,
                        cudaStream_t stream, bool *fits, struct error *err);

/* ---- cuda_fuse.cu ---- */

/**
 * Launches `op` and some of the `left` - 1 operations behind it as fewer kernels than operations,
 * where it knows how.
 *
 * @param taken how many; 0: none, and nothing but products that waited was launched
 * @return 0, or -1 with `err` set
 */
int cuda_fuse(struct cuda_executor *executor, const struct program_op *op, uint32_t left,
              cudaStream_t stream, uint32_t *taken, struct error *err);

/* ---- cuda_ops.cu ---- */

/** Chunks of positions that attention of the step's tokens covers at most. */
uint32_t cuda_attend_chunks_of(struct cuda_executor *executor, bool sliding);

/** Rotary frequencies of a ROPE on its device. NULL with `err` set on failure. */
const double *cuda_frequencies_of(struct cuda_executor *executor, const struct program_op *op,
                                  struct error *err);

/** Launches an operation of a device. @return 0, or -1 with `err` set */
int cuda_run_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err);

/* ---- cuda_copy.cu ---- */

/** Whether both ends of a copy are in the host's memory. */
bool cuda_copy_is_hosts(const struct program_op *op);

/** Whether the host's end of a copy lies where it is from its first copy on, and is pinned as far as
 * there is room for that. */
bool cuda_copy_is_pinned(const struct cuda_executor *executor, const struct program_op *op);

/** Room on the host for what a copy that is replayed brings. @return 0, or -1 with `err` set */
int cuda_copy_expect(struct cuda_executor *executor, const struct program_op *op,
                     struct error *err);
int cuda_copy(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
              struct error *err);

/** Whether all that a task does is small copies with the host, which a kernel makes. */
bool cuda_copies_by_kernel(const struct program *program, const struct program_task *task);
int cuda_copy_task(struct cuda_executor *executor, const struct program_task *task,
                   cudaStream_t stream, struct error *err);

/* ---- cuda_collective.cu ---- */

struct cuda_collective *cuda_collective_new(const struct cuda_executor *executor,
                                            enum cuda_reduction way, struct error *err);
void cuda_collective_free(struct cuda_collective *collective);

/**
 * Sums over devices.
 *
 * @param streams one of each GPU of the executor, on which its part runs
 * @param beside  it runs beside the computing streams, and so beside another one
 */
int cuda_reduce(struct cuda_executor *executor, const struct program_op *op,
                const cudaStream_t *streams, bool beside, struct error *err);

/* ---- cuda_lockstep.cu ---- */

/** `go_on`: differences are told on stderr and mended; else the first one is the error. */
struct cuda_lockstep *cuda_lockstep_new(const struct executor_setting *setting, bool go_on,
                                        struct error *err);
void cuda_lockstep_free(struct cuda_lockstep *lockstep);
void cuda_lockstep_forget_step(struct cuda_lockstep *lockstep);

/** A step begins: the host's values come to the other interpreter. */
int cuda_lockstep_begin(struct cuda_executor *executor, struct error *err);

/** Computes an operation that the GPUs have computed, and compares its operands. */
int cuda_lockstep_op(struct cuda_executor *executor, const struct program_op *op,
                     struct error *err);

#endif
