/* Samples of a kernel table in a file, so that rows can be made of them again without the GPU:
 * `lopside probe --save-samples` and `--fit-samples`. A JSON object: the GPU's name and a list. */
#ifndef SIM_KERNEL_SAMPLE_FILE_H
#define SIM_KERNEL_SAMPLE_FILE_H

#include <stdio.h>

#include "sim/kernel_samples.h"

/** Writes all, as kernel_samples_read() reads them, to as many digits as a float has; `gpu`: as
 * machine_device.gpu. */
void kernel_samples_write(const struct kernel_samples *samples, const char *gpu, FILE *out);

/**
 * Reads a file.
 *
 * @param samples what is added to; for kernel_samples_free() in either case
 * @param gpu     holds `gpu_size` bytes
 * @return 0, or -1 with `err` set: file, line, field and what would do
 */
int kernel_samples_read(const char *path, struct kernel_samples *samples, char *gpu,
                        size_t gpu_size, struct error *err);

#endif
