/* Rows of a kernel table from tasks that were measured (docs/time-model.md, "Kernel tables"). */
#ifndef SIM_KERNEL_SAMPLES_H
#define SIM_KERNEL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/kernel_fit.h"
#include "sim/kernel_table.h"

/* A task, or several that are one launch. */
struct kernel_sample {
    enum task_kind kind;
    enum tensor_type type; /* of weights, or of a cache */
    uint32_t tokens;       /* of an expert: rows that it has on average */
    uint32_t group;        /* of a product: as program_task.group */
    uint32_t kernels;
    uint32_t devices;            /* of a sum */
    uint32_t head_dim;           /* of attention and rope */
    bool normed;                 /* of rope: heads have norms, too */
    enum task_kind behind;       /* as kernel_other.behind */
    uint32_t heads, kv_heads;    /* of attention: of 32 (0: all), and of 32 query heads */
    uint64_t cells;              /* with as many multiply-adds as there were */
    double bytes, time_s;
    double ahead_bytes;              /* of a product, at most */
    struct kernel_fit_sample before; /* of a product: other kernels since the product before */
};

/* Zeroed: none. */
struct kernel_samples {
    struct kernel_sample *list;
    size_t count, capacity;
    bool failed; /* there was no memory for one */
};

void kernel_samples_add(struct kernel_samples *samples, struct kernel_sample sample);

/**
 * Makes rows of those that are of such a kind, and forgets all.
 *
 * Products are fitted (kernel_fit.h); where the table has none yet, what they have in common is
 * found with those of Q8_0 and one token. Of attention the median counts; of sums and waits, which
 * may have had to wait for others, the first behind the quicker quarter. Of other kinds each size
 * has a row, the mean of the middle half.
 *
 * @param gbs of the GPU's memory, to begin with
 * @return 0, or -1 with `err` set (ERROR_MEMORY, ERROR_UNSUPPORTED)
 */
int kernel_samples_rows(struct kernel_samples *samples, bool (*takes)(const struct kernel_sample *),
                        double gbs, struct kernel_table *table, struct error *err);

void kernel_samples_free(struct kernel_samples *samples);

#endif
