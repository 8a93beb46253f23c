/* What a product's row of a kernel table is, from measured launches (docs/time-model.md, "Kernel
 * tables"). */
#ifndef SIM_KERNEL_FIT_H
#define SIM_KERNEL_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/error.h"
#include "sim/kernel_table.h"

/* A launch of products: bytes of their weights, its time, and the times of what ran between the
 * products before and it. */
struct kernel_fit_sample {
    double bytes, time_s;
    double small_s, attention_s, delta_net_s; /* attention's with that of rope */
};

/**
 * Finds launch_s and gbs of `row`, and held_gbs where its ahead_bytes are above 0, so that the sum
 * of |log(predicted / measured)| is least. All samples of as many bytes count as one: a shape that
 * is there more often moves no more, one that is unlike the others little. What takes long is more
 * of a step: each counts by the root of its time.
 *
 * @param table has how weights come beside other kernels: ahead_lag_s, attention_alone and
 *              delta_net_alone, which are looked for as well with `common`
 * @param gbs   a bandwidth to begin with
 * @return 0, or -1 with `err` set (ERROR_UNSUPPORTED in a build without NLopt, ERROR_MEMORY)
 */
int kernel_fit_product(struct kernel_table *table, struct kernel_product *row,
                       const struct kernel_fit_sample *samples, size_t count, double gbs,
                       bool common, struct error *err);

#endif
