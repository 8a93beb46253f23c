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

enum nccl_element { NCCL_OF_INT64, NCCL_OF_FLOAT };

/** Sums n elements over all GPUs: from[i] and to[i] lie on GPU i and may be the same, its part runs
 * on streams[i]. @return 0, or -1 with `err` set */
int nccl_sum(struct nccl *nccl, enum nccl_element element, void *const *from, void *const *to,
             size_t n, const cudaStream_t *streams, struct error *err);

#endif
