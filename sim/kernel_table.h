/* How long the kernels of our own runtime take on a GPU, measured: tables that `lopside probe`
 * fills and that the schedule `lopside` is timed by. docs/time-model.md, "Kernel tables". */
#ifndef SIM_KERNEL_TABLE_H
#define SIM_KERNEL_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/program.h"

/* Attention is measured with so many query heads, or as if with so many, of this many values
 * unless a row says otherwise. */
enum { KERNEL_ATTENTION_HEADS = 32, KERNEL_ATTENTION_HEAD_DIM = 128, KERNEL_GROUP = 256 };

/* A product with weights of a type, of so many tokens: launch_s + bytes of the weights / gbs, less
 * those that have come while other kernels ran between the product before and this one: at the same
 * rate, ahead_bytes at most. It computes at held_gbs with what is there. For TASK_EXPERTS, `tokens`
 * are the rows that each touched expert has on average, and the weights those of the touched ones.
 */
struct kernel_product {
    enum task_kind kind; /* TASK_MATMUL, TASK_EXPERTS */
    enum tensor_type type;
    uint32_t group;  /* columns that are summed in fp32: 256 or a part of them (sim/share.h) */
    uint32_t tokens; /* 1 or more */
    double launch_s, gbs, ahead_bytes;
    double held_gbs; /* 0: as fast as it may be */
};

/* Attention of so many tokens of one sequence over a window of so many cells, its own tokens'
 * included, with 32 query heads of `head_dim` values, or so many of them: what a device takes that
 * has a part of a model's heads is not what all of them take over a part of the window. */
struct kernel_attention {
    enum tensor_type cache_type; /* of K */
    uint32_t head_dim;           /* of K; 1 or more */
    uint32_t heads;              /* of 32; 1 to 32 */
    uint32_t kv_heads;           /* of 32 query heads; 1 to 32 */
    uint32_t tokens;             /* 1 or more */
    uint64_t cells;              /* 1 or more */
    double time_s;               /* of all its kernels */
};

/* Other kernels of a step of so many tokens that move so many bytes: program_task.bytes, for
 * TASK_DELTA_NET without state_bytes. TASK_NORM's rows serve for kernels without rows. Of the
 * host's own tasks embeddings and the storing of rows may have rows, too, and so may copies on the
 * compute queue (kernel_table_times_copy()), TASK_WAIT: what a kernel takes longer that waits for
 * another queue; and TASK_SYNC: from when a device is ready until the host goes on. */
struct kernel_other {
    enum task_kind kind;   /* TASK_NORM, TASK_ROPE, TASK_GLU, TASK_DELTA_NET, ..., TASK_EMBED */
    uint32_t head_dim;     /* of the heads that go through TASK_ROPE; 0: not told apart */
    bool normed;           /* they go through norms, too */
    enum task_kind behind; /* kernel_table_behind(); else 0 */
    uint32_t tokens;       /* of one sequence; 1 or more */
    uint64_t bytes;        /* of all of them */
    double time_s;
};

/* Sums over devices. */
struct kernel_sum {
    uint32_t devices;
    uint64_t bytes; /* of a device's part: 8 for each element */
    double time_s;
};

/* Of one GPU model; lists are owned, each sorted by its fields in order. All zero but the name is
 * a table without rows. */
struct kernel_table {
    char gpu[64];  /* as machine_device.gpu */
    double step_s; /* of the host, for each such GPU, before a step's first kernel */
    /* Where a GPU is slowed on purpose: of each kernel task, slowed with it and behind it. */
    double pace_inside_s, pace_behind_s;
    /* Before weights come beside other kernels; shares of kernels' time in which none come. */
    double ahead_lag_s, attention_alone, delta_net_alone;
    double copy_s; /* of a copy on a queue of its own, beside its bytes; 0: the link's latency */
    /* Until the host goes on that waits for a device: with each further device of the plan so much
     * more than rows of TASK_SYNC say; and all of it where it has waited for another one before. */
    double ready_each_s, ready_next_s;
    struct kernel_product *products;
    struct kernel_attention *attentions;
    struct kernel_other *others;
    struct kernel_sum *sums;
    size_t product_count, attention_count, other_count, sum_count;
};

/** Whether kernels behind such a one have rows of their own: experts and sums. A kernel begins
 * while the one before drains, or has to wait for others. */
bool kernel_table_tells_behind(enum task_kind kind);

/** What rows for a kernel of kind `kind` follow where it follows one of kind `before`; 0: not told
 * apart. Norms alone are told apart. */
enum task_kind kernel_table_behind(enum task_kind kind, enum task_kind before);

/** Whether copies of a kind may have rows: inputs, logits, and new rows of a cache. */
bool kernel_table_times_copy(enum task_kind kind);

/** Puts a row in its place; a row with the same key (all but its times) is replaced.
 * @return 0, or -1 with `err` set (ERROR_MEMORY) */
int kernel_table_add_product(struct kernel_table *table, struct kernel_product row,
                             struct error *err);
int kernel_table_add_attention(struct kernel_table *table, struct kernel_attention row,
                               struct error *err);
int kernel_table_add_other(struct kernel_table *table, struct kernel_other row, struct error *err);
int kernel_table_add_sum(struct kernel_table *table, struct kernel_sum row, struct error *err);

/** Copies all but the sums over those of `to`, which has no rows, but maybe a name.
 * @return 0, or -1 with `err` set (ERROR_MEMORY) */
int kernel_table_copy_kernels(struct kernel_table *to, const struct kernel_table *from,
                              struct error *err);

/** Frees the rows; the name stays. */
void kernel_table_clear(struct kernel_table *table);

/** Index of the first row that is not before a key, by all but times; the number of rows where all
 * are. */
size_t kernel_table_place_product(const struct kernel_table *table,
                                  const struct kernel_product *key);
size_t kernel_table_place_attention(const struct kernel_table *table,
                                    const struct kernel_attention *key);
size_t kernel_table_place_other(const struct kernel_table *table, const struct kernel_other *key);
size_t kernel_table_place_sum(const struct kernel_table *table, const struct kernel_sum *key);

#endif
