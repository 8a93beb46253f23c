/* Weights in the memories of GPUs: the parts that devices need, brought when first asked for and
 * kept. Devices on one GPU share a part that is the same. */
#ifndef CUDA_WEIGHTS_H
#define CUDA_WEIGHTS_H

#include "cuda/matmul.h"

extern "C" {
#include "ref/weights.h"
#include "sim/plan.h"
}

struct cuda_weights; /* see cuda_weights.cu */

/**
 * @param gpus  (device count of the placement) CUDA ordinal of each device
 * @param plain weights stay in ggml's layout: no fast kernels
 * @return weights for cuda_weights_free(), or NULL with `err` set
 */
struct cuda_weights *cuda_weights_new(const struct placement *placement, struct weights *weights,
                                      const int *gpus, bool plain, struct error *err);
void cuda_weights_free(struct cuda_weights *weights);

/**
 * Part of a tensor on device `device`: rows (axis 1) or columns (axis 0) of its matrices.
 *
 * @param slice as of a program_op; `rows` is what a product takes of rows where it is of axis 1
 * @return borrowed, or NULL with `err` set: ERROR_USAGE on a device that has no share of it and
 *         where it was not staged
 */
const struct cuda_weight *cuda_weights_part(struct cuda_weights *weights, int device,
                                            int32_t tensor, struct program_slice slice,
                                            uint64_t rows, struct error *err);

/** A whole tensor's bytes. @return as cuda_weights_part */
const void *cuda_weights_whole(struct cuda_weights *weights, int device, int32_t tensor,
                               struct error *err);

/* Weights of block `layer`, or of its experts, that are on the host come to a device, and those of
 * the block staged before go. First cuda_weights_stage(), then each part is asked for: it is
 * copied on `stream`. */
void cuda_weights_stage(struct cuda_weights *weights, int device, int layer, bool experts,
                        cudaStream_t stream);

/** What was staged goes; the GPUs have to be idle. */
void cuda_weights_unstage(struct cuda_weights *weights);

#endif
