/* Values in the memories of devices: the twin of ref/memory.h, where `operand.space` is a device.
 */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

extern "C" {
#include "ref/memory.h"
}

struct cuda_memory; /* see cuda_memory.cu */

/**
 * @param gpus   (device_count) CUDA ordinal of each device
 * @param poison forgotten values are overwritten, as ref/memory.c does
 * @return memories for cuda_memory_free(), or NULL with `err` set
 */
struct cuda_memory *cuda_memory_new(uint32_t device_count, uint32_t layer_count, const int *gpus,
                                    bool poison, struct error *err);
void cuda_memory_free(struct cuda_memory *memory);

/* As memory_reserve() and memory_find(); growing waits until the GPU is idle. */
void *cuda_memory_reserve(struct cuda_memory *memory, struct program_operand operand, int layer,
                          size_t bytes, struct error *err);
void *cuda_memory_find(const struct cuda_memory *memory, struct program_operand operand, int layer,
                       size_t bytes, struct error *err);

/** Bytes of a value; 0 where there is none. */
size_t cuda_memory_size(const struct cuda_memory *memory, struct program_operand operand,
                        int layer);

void cuda_memory_forget_step(struct cuda_memory *memory);
void cuda_memory_forget(struct cuda_memory *memory, struct program_operand operand, int layer);

#endif
