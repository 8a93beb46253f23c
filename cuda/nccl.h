/* NCCL, opened at run time: it comes with neither the driver nor the toolkit. */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "sim/error.h"
}

struct nccl; /* see nccl.cu */

/**
 * Opens the library and makes a communicator over GPUs.
 *
 * @param gpus (count) CUDA ordinals, all different
 * @return NULL with `err` set: ERROR_UNSUPPORTED where there is no library, ERROR_IO
 */
struct nccl *nccl_open(const int *gpus, uint32_t count, struct error *err);
void nccl_close(struct nccl *nccl);

/** Sums n int64 over all GPUs, in place: values[i] lies on GPU i, its part runs on streams[i]. */
int nccl_sum(struct nccl *nccl, int64_t *const *values, size_t n, const cudaStream_t *streams,
             struct error *err);

#endif
