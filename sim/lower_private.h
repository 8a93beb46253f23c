/* What the parts of lowering share. */
#ifndef SIM_LOWER_PRIVATE_H
#define SIM_LOWER_PRIVATE_H

#include "sim/program.h"

/* Batches from this size on are computed on a device even where the weights are on the
 * host: GGML_OP_OFFLOAD_MIN_BATCH. The meta device of a tensor split cannot. */
enum { LOWER_OFFLOAD_TOKENS = 32 };

/* Up to so many tokens products wait in our runtime for others of the same input
 * (cuda/matmul_fast.h, MATMUL_FAST_DECODE_TOKENS), and the host stores new rows of a cache at the
 * end of the step. */
enum { LOWER_FEW_TOKENS = 8 };

#define LOWER_NO_TASK UINT32_MAX

/* Part of a block whose result has not been added to the residual stream yet. */
enum lower_part_kind { LOWER_PART_NONE, LOWER_PART_MIXER, LOWER_PART_DENSE, LOWER_PART_EXPERTS };

/* Windows sent ahead to a device: a ring of `delivery_depth` + 1 places. */
enum { LOWER_RING_PLACES = PLAN_DELIVERY_DEPTH_MAX + 1 };

struct lower_ring {
    uint32_t next_layer; /* the first whose window has not been sent */
    uint32_t next_state; /* the first whose recurrent state has not */
    uint32_t sent_count, used_count;
    uint32_t place;                   /* count of the window that the layer under way attends to */
    uint32_t sent[LOWER_RING_PLACES]; /* last copy of each window under way */
};

/* New rows of a layer on their way into the host's cache. */
struct lower_rows {
    int32_t layer;                      /* the last one's; -1: none are under way */
    uint32_t sent[MACHINE_DEVICES_MAX]; /* last copy from each device; LOWER_NO_TASK: none */
    uint32_t leaving; /* bit d: nothing has waited yet until device d's rows have left it */
};

/* What a device's products have of activations: our runtime quantises them where they are made. */
struct lower_activations {
    enum op_value quantised; /* OP_VALUE_NONE: none are there */
    enum op_value input;     /* of the last product ... */
    uint32_t product;        /* ... and its task */
};

struct lowering {
    struct program *program;
    const struct placement *placement;
    const struct model *model;
    struct program_step step;
    bool own;    /* our runtime issues the step: docs/time-model.md, "Our own schedule" */
    bool direct; /* kernels are launched one by one; else parts are replayed graphs */
    uint32_t tail[MACHINE_DEVICES_MAX]; /* the projection that ends a part, per device;
                                           LOWER_NO_TASK: the device has none */
    enum lower_part_kind part;          /* whose result has not joined the residual stream */
    uint32_t part_layer;
    uint32_t joined;   /* bit d: on device d it has */
    bool on_host;      /* operations work in the host's memory, and make no tasks */
    size_t op_pending; /* first operation of the task that is appended next */
    size_t op_capacity;
    struct program_op spare_op;
    uint32_t last_kernel[MACHINE_DEVICES_MAX]; /* of each device; LOWER_NO_TASK before any */
    uint32_t open; /* bit d: device d's current graph part has been launched */
    uint32_t attention[MACHINE_DEVICES_MAX]; /* the last attention of each device */
    struct lower_ring rings[MACHINE_DEVICES_MAX];
    struct lower_rows rows;
    struct lower_activations activations[MACHINE_DEVICES_MAX];
    uint32_t *states;    /* per layer: the copy that brings its recurrent state; NULL: not used */
    uint32_t states_out; /* bit d: a recurrent state is on its way from device d to the host */
    uint32_t sums_sent;  /* the last copy of the host's sums; LOWER_NO_TASK: none */
    size_t task_capacity, dependency_capacity;
    struct error *err;
    bool failed;
};

/**
 * Appends a task and returns its index. After a failure it does nothing, so
 * that callers need to look at `failed` only once, at the end.
 */
uint32_t lower_add(struct lowering *lowering, struct program_task task);

/** Makes the task appended last depend on an earlier one. */
void lower_depend(struct lowering *lowering, uint32_t on);

/** A kernel task of device `d` in block `layer`, launched as the step's mode says. */
void lower_kernel(struct lowering *lowering, uint32_t d, int layer, struct program_task task);

/** Token chunks in which the projection at the end of a part is computed; 1: at once. */
uint32_t lower_chunks(const struct lowering *lowering);

/** Sequences of the step, and separate windows: one for each sequence unless they share it. */
uint32_t lower_sequences(const struct lowering *lowering);
uint32_t lower_streams(const struct lowering *lowering);

/** Ends device `d`'s current graph part: the next kernel is launched anew. */
void lower_break(struct lowering *lowering, uint32_t d);

/** What the host thread pays for one more task of device `d`'s graph part: 1 where it begins. */
uint32_t lower_launch(struct lowering *lowering, uint32_t d);

/** Device `d`'s compute queue goes on when task `on` has ended. */
void lower_wait(struct lowering *lowering, uint32_t d, int layer, uint32_t on);

/** A step of the host thread itself, over `bytes` of host memory. */
uint32_t lower_host(struct lowering *lowering, enum task_kind kind, int layer, double bytes,
                    uint32_t launches);

/** The host thread waits until device `d` is idle. `calls` 0: its time for that is part of a
 * TASK_SPLIT. */
void lower_sync(struct lowering *lowering, uint32_t d, uint32_t calls);

/** A copy between host and device that the host thread waits for, not appended yet. */
struct program_task lower_blocking_copy(enum task_kind kind, uint32_t d, int layer, double bytes);

/**
 * Appends a copy behind its device's last kernel, which made what is copied, or was the last to
 * read what the copy overwrites.
 */
uint32_t lower_add_behind(struct lowering *lowering, struct program_task copy);

/** A copy of what the host thread computes with next. */
void lower_to_host(struct lowering *lowering, struct program_task copy);

/** A copy of what the host has computed; the device's next kernel works with it. */
uint32_t lower_to_device(struct lowering *lowering, struct program_task copy);

/* Layers on the host (lower_host.c): whether a large batch computes block `layer` on device
 * 0 all the same; whether device `d` computes part of it in this step; the block, or the
 * head, on the CPU; its weights on their way to the device. */
bool lower_is_offloaded(const struct lowering *lowering, uint32_t layer);
bool lower_computes(const struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_on_host(struct lowering *lowering, uint32_t layer);
void lower_head_on_host(struct lowering *lowering, int at);
void lower_ship_weights(struct lowering *lowering, uint32_t layer);

/* Experts on the host (lower_host.c): for a large batch the chosen ones come to the device,
 * else the CPU computes them. */
void lower_host_experts(struct lowering *lowering, uint32_t layer, uint32_t d);

/* Windows and recurrent states that are sent ahead (lower_ahead.c): the first of them at the
 * start of a step, the next behind each layer's attention. */
bool lower_sends_ahead(const struct lowering *lowering);
void lower_begin_deliveries(struct lowering *lowering);
void lower_await_window(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_await_state(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_send_next(struct lowering *lowering, uint32_t layer, uint32_t d);

/* A cache or a recurrent state on the host (lower_cache.c). */
bool lower_is_delivered(const struct lowering *lowering, uint32_t layer, uint32_t d);
bool lower_attends_on_host(const struct lowering *lowering, uint32_t layer, uint32_t d);
bool lower_add_window(struct lowering *lowering, uint32_t layer, uint32_t d, char part,
                      uint32_t place, uint32_t *index);
void lower_add_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool to_device);

/** Where device `d`, or the host where it computes, has the new rows of K or V of a block. */
enum op_value lower_new_rows(const struct lowering *lowering, uint32_t layer, uint32_t d,
                             char part);

/* The host stores the rows of a layer that have been sent; at the end of a step all that are left.
 */
void lower_store_rows(struct lowering *lowering);
void lower_store_last_rows(struct lowering *lowering);
void lower_await_rows(struct lowering *lowering, uint32_t layer, uint32_t d);
bool lower_visits_host_cache(const struct lowering *lowering, uint32_t layer);
void lower_visit_host_cache(struct lowering *lowering, uint32_t layer);
void lower_visit_host_state(struct lowering *lowering, uint32_t layer, uint32_t d, bool before);

/* Parts of block `layer` on device `d`: up to K and V, from attention to the
 * (partial) output projection, the dense feed-forward part and the experts. The
 * last three each end in a partial result under a tensor split. */
void lower_mixer_head(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_mixer_tail(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_dense(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_experts(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_expert_products(struct lowering *lowering, uint32_t layer, uint32_t d);
void lower_output_head(struct lowering *lowering, uint32_t d);

#endif
