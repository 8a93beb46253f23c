/* Measures what the runtime's own kernels take, for a kernel table (sim/kernel_table.h): layers of
 * models are executed as ever, and traced. */
#ifndef CUDA_PROBE_KERNELS_H
#define CUDA_PROBE_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/cuda_executor.h"
#include "sim/kernel_samples.h"
#include "sim/kernel_table.h"
#include "sim/machine.h"

/**
 * Fills a table: products of each weight type and attention over each cache type, from 1 to 2048
 * tokens; experts; gated delta nets; what comes between; caches on the host; and, with several
 * GPUs, sums over them all. Takes about a minute, 4 GB of the host's memory and 24 GB of the GPU's,
 * or less of a smaller one.
 *
 * @param machine   what lies here, in the order of CUDA's ordinals
 * @param device    whose kernels are measured
 * @param reduction how sums go over GPUs
 * @param table     empty, or with all but sums, which are then all that is measured; its rows are
 *                  for kernel_table_clear() in either case
 * @param kept      what rows are made of is added to it; NULL: not wanted
 * @return 0, or -1 with `err` set
 */
int probe_kernels(const struct machine *machine, uint32_t device, enum cuda_reduction reduction,
                  struct kernel_table *table, struct kernel_samples *kept, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
