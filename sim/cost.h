/* How long a kernel lasts on a device: docs/time-model.md, "Kernels". */
#ifndef SIM_COST_H
#define SIM_COST_H

#include "sim/machine.h"
#include "sim/program.h"

/**
 * Seconds of a kernel task, its fixed costs included:
 *
 *   time_s = kernels kernel_s + input_bytes / bandwidth + max(operations / rate, bytes / bandwidth)
 *
 * with the rate of the kernel that llama.cpp chooses for the shape.
 *
 * @param cells cells of the task's window
 */
double cost_kernel_s(const struct machine *machine, const struct machine_device *device,
                     const struct program_task *task, double cells);

/** Tokens up to which a product runs as matrix times vectors: ggml-cuda, mmvq.cu. */
uint32_t cost_matvec_limit(int compute_capability, enum tensor_type type);

/**
 * Share of a link's bandwidth that is left when a copy consists of rows:
 * every row is cut into packets of at most `packet_bytes`, each with a header,
 *
 *   ratio = (row / (row + packets overhead)) / (packet / (packet + overhead))
 *
 * relative to a contiguous copy, which fills its packets.
 *
 * @param row_bytes 0 for a contiguous copy: ratio 1
 */
double cost_row_ratio(const struct machine_link *link, double row_bytes);

#endif
