/* Synthetic weights made where they are needed: the bytes of ref/synth.h, on a GPU. */
#ifndef CUDA_SYNTH_H
#define CUDA_SYNTH_H

#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "ref/synth_block.h"
#include "sim/error.h"
}

/**
 * Makes blocks `first` to `first` + `count` of a quantised tensor, counted over all of its rows.
 *
 * @param to 16-byte aligned memory of the current GPU
 * @return 0, or -1 with `err` set
 */
int cuda_synth(const struct synth *synth, uint64_t first, uint64_t count, void *to,
               cudaStream_t stream, struct error *err);

#endif
