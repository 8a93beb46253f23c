/* Equal GPUs made unlike: copies as slow as a given link, kernels as slow as a given device.
 * Nothing is computed another way; a stream waits on the device after each task. */
#ifndef CUDA_PACE_H
#define CUDA_PACE_H

#include <cuda_runtime.h>
#include <stdint.h>

/** Notes the device's clock in `stamp`, device memory, when the stream comes here. */
cudaError_t cuda_pace_start(uint64_t *stamp, cudaStream_t stream);

/**
 * Holds the stream until `slowdown` times as long has passed since the stamp as did until now, and
 * at least `least_s`. Source: the design of emulated links and devices in docs/design.md.
 *
 * @param slowdown 1 or more
 */
cudaError_t cuda_pace_stop(const uint64_t *stamp, double slowdown, double least_s,
                           cudaStream_t stream);

#endif
