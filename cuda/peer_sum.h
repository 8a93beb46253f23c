/* Small sums over GPUs that reach each other's memory: one kernel on each, which writes its part to
 * all others and adds theirs. A sum of a decode step is so small that its time is that of the
 * rounds between GPUs; this takes one. */
#ifndef CUDA_PEER_SUM_H
#define CUDA_PEER_SUM_H

#include <cuda_runtime.h>

#include "cuda/kernels.h"

struct peer_sum; /* see peer_sum.cu */

enum { PEER_SUM_MAX = 65536 }; /* values of one sum */

/** @param gpus (count) CUDA ordinals, all different; each has access to the memory of all others.
 * @return NULL with `err` set */
struct peer_sum *peer_sum_new(const int *gpus, uint32_t count, struct error *err);
void peer_sum_free(struct peer_sum *sum);

/**
 * Each of members[g].totals becomes the sum of the parts of all GPUs, by plain addition.
 *
 * Sums of one peer_sum follow each other on every GPU. A kernel waits for those of the other GPUs,
 * so nothing may come between that holds one back until another has ended.
 *
 * @param members (count) of each GPU, with at most MACHINE_DEVICES_MAX parts together
 * @param n       at most PEER_SUM_MAX
 * @param streams one of each GPU
 * @return 0, or -1 with `err` set
 */
int peer_sum_run(struct peer_sum *sum, const struct cuda_members *members, uint64_t n,
                 const cudaStream_t *streams, struct error *err);

#endif
