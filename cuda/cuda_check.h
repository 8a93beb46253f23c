/* CUDA's status codes as struct error. */
#ifndef CUDA_CHECK_H
#define CUDA_CHECK_H

#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "sim/error.h"
}

/**
 * Turns a status into an error that says what was being done.
 *
 * @return 0, or -1 with `err` set (ERROR_IO, ERROR_MEMORY): the GPU, what was done, why it failed
 */
int cuda_check(cudaError_t status, const char *doing, struct error *err);

/** Whether the launch just made was accepted. @return as cuda_check */
int cuda_launched(const char *kernel, struct error *err);

/** How often cuda_allocate() was called: what it counts may have moved since. */
uint64_t cuda_allocations(void);

/**
 * Memory of the current GPU; `device` and `what` are for the message.
 *
 * @return 0, or -1 with `err` set (ERROR_MEMORY): what was asked for, and what is free
 */
int cuda_allocate(void **bytes, size_t size, int device, const char *what, struct error *err);

/** Bytes up to where the next thing in one allocation may lie, as cuda_allocate() aligns. */
static inline size_t cuda_padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#endif
