/* How long tasks take by a kernel table: at, between and beyond its rows. docs/time-model.md,
 * "Kernel tables". */
#ifndef SIM_KERNEL_TIMES_H
#define SIM_KERNEL_TIMES_H

#include "sim/kernel_table.h"

/* What has run on a device since its last product that loads weights ahead. */
struct kernel_gap {
    enum task_kind last; /* of its tasks */
    double s;            /* in which weights may have come */
    bool in_product;     /* nothing has run */
    double loaded_bytes; /* that its launch found there, for all products that share it */
    double launch_bytes; /* of those before */
};

/** Something else has run on the device, of which this share of the time had it alone. */
void kernel_gap_pass(struct kernel_gap *gap, double time_s, double alone);

/** Seconds of a launch of a row's products with `bytes` of weights, behind `gap`. */
double kernel_product_s(const struct kernel_table *table, const struct kernel_product *row,
                        const struct kernel_gap *gap, double bytes);

/**
 * Seconds of a kernel task by the table: between rows of the same kind and type times are
 * interpolated over tokens (and cells, or bytes), beyond the last they grow with them; between
 * numbers of KV heads for a query head they are interpolated, too. Of head dimensions the nearest
 * one counts. A part of a model's heads takes what its multiply-adds do of all heads', times what
 * rows of such parts take longer.
 *
 * @param task as the schedule `lopside` has it
 * @param cells of the task's window
 * @param gap   before the task, then behind it; NULL where no kernel starts before another has
 * ended
 * @return below 0 where the table has no row of the task's kind and type
 */
double kernel_table_s(const struct kernel_table *table, const struct program_task *task,
                      double cells, struct kernel_gap *gap);

/* Attention of so many tokens of a sequence reads of its window while kernels before it run. */
enum { KERNEL_READS_AHEAD = 8 };

/** Bytes of the window that such an attention has; 0 for other tasks. */
double kernel_table_read_ahead(const struct program_task *task, double cells);

/** Seconds of a task that is no kernel, of so many tokens; below 0 where the table has no row of
 * its kind. */
double kernel_table_plain_s(const struct kernel_table *table, enum task_kind kind, uint32_t tokens,
                            double bytes);

/** Seconds of a sum of `bytes` a device; below 0 where there is no row of so many devices. */
double kernel_table_sum_s(const struct kernel_table *table, uint32_t devices, double bytes);

#endif
