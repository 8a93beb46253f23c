#include "cuda/cuda_memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda_check.h"

extern "C" {
#include "sim/lower_private.h"
}

/* Values that are not layered have a place for each slot. */
enum { SLOTS = LOWER_RING_PLACES };

struct value {
    void *bytes;
    size_t size, capacity; /* size 0: not there */
};

struct space {
    int gpu;
    struct value plain[OP_VALUE_COUNT][SLOTS];
    struct value *layered; /* (layers, OP_VALUE_COUNT) */
};

struct cuda_memory {
    uint32_t device_count, layer_count;
    bool poison;
    struct space *spaces; /* of devices */
};

struct cuda_memory *cuda_memory_new(uint32_t device_count, uint32_t layer_count, const int *gpus,
                                    bool poison, struct error *err)
{
    struct cuda_memory *memory = (struct cuda_memory *)calloc(1, sizeof *memory);

    if (memory != nullptr)
        memory->spaces = (struct space *)calloc(device_count + 1, sizeof *memory->spaces);
    if (memory == nullptr || memory->spaces == nullptr)
        goto no_memory;
    memory->device_count = device_count;
    memory->layer_count = layer_count;
    memory->poison = poison;
    for (uint32_t s = 0; s < device_count; s++) {
        memory->spaces[s].gpu = gpus[s];
        memory->spaces[s].layered = (struct value *)calloc((size_t)layer_count * OP_VALUE_COUNT + 1,
                                                           sizeof *memory->spaces[s].layered);
        if (memory->spaces[s].layered == nullptr)
            goto no_memory;
    }
    return memory;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory for the values of %u devices", device_count);
    cuda_memory_free(memory);
    return nullptr;
}

void cuda_memory_free(struct cuda_memory *memory)
{
    if (memory == nullptr)
        return;
    for (uint32_t s = 0; memory->spaces != nullptr && s < memory->device_count; s++) {
        struct space *space = &memory->spaces[s];

        cudaSetDevice(space->gpu);
        for (size_t i = 0; i < (size_t)OP_VALUE_COUNT * SLOTS; i++)
            cudaFree(space->plain[i / SLOTS][i % SLOTS].bytes);
        for (size_t i = 0;
             space->layered != nullptr && i < (size_t)memory->layer_count * OP_VALUE_COUNT; i++)
            cudaFree(space->layered[i].bytes);
        free(space->layered);
    }
    free(memory->spaces);
    free(memory);
}

static struct value *value_at(const struct cuda_memory *memory, struct program_operand operand,
                              int layer)
{
    struct space *space = &memory->spaces[operand.space];

    if (program_value_is_layered((enum op_value)operand.value))
        return &space->layered[(size_t)layer * OP_VALUE_COUNT + operand.value];
    return &space->plain[operand.value][operand.slot];
}

/* Tasks in flight may use the value: nothing moves before the GPU is idle. */
static int grow(struct value *value, size_t bytes, int device, const char *name, struct error *err)
{
    size_t capacity = (bytes + 1023) / 1024 * 1024;
    void *grown;

    if (cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0 ||
        cuda_allocate(&grown, capacity, device, name, err) != 0)
        return -1;
    if (cuda_check(cudaMemset((char *)grown + value->capacity, 0, capacity - value->capacity),
                   "cudaMemset", err) != 0 ||
        (value->capacity > 0 &&
         cuda_check(cudaMemcpy(grown, value->bytes, value->capacity, cudaMemcpyDeviceToDevice),
                    "cudaMemcpy", err) != 0) ||
        cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0) {
        cudaFree(grown);
        return -1;
    }
    cudaFree(value->bytes);
    value->bytes = grown;
    value->capacity = capacity;
    return 0;
}

void *cuda_memory_reserve(struct cuda_memory *memory, struct program_operand operand, int layer,
                          size_t bytes, struct error *err)
{
    struct value *value = value_at(memory, operand, layer);

    if (bytes > value->capacity || value->bytes == nullptr) {
        if (cuda_check(cudaSetDevice(memory->spaces[operand.space].gpu), "cudaSetDevice", err) !=
                0 ||
            grow(value, bytes > 0 ? bytes : 1, operand.space,
                 program_value_name((enum op_value)operand.value), err) != 0)
            return nullptr;
    }
    if (bytes > value->size)
        value->size = bytes;
    return value->bytes;
}

void *cuda_memory_find(const struct cuda_memory *memory, struct program_operand operand, int layer,
                       size_t bytes, struct error *err)
{
    const struct value *value = value_at(memory, operand, layer);

    if (bytes <= value->size && value->bytes != nullptr)
        return value->bytes;
    error_set(err, ERROR_USAGE, "device %d has no %s", operand.space,
              program_value_name((enum op_value)operand.value));
    return nullptr;
}

size_t cuda_memory_size(const struct cuda_memory *memory, struct program_operand operand, int layer)
{
    return value_at(memory, operand, layer)->size;
}

static void forget(const struct cuda_memory *memory, const struct space *space, struct value *value)
{
    if (memory->poison && value->size > 0) {
        cudaSetDevice(space->gpu);
        cudaMemset(value->bytes, 0xff, value->size);
        cudaDeviceSynchronize();
    }
    value->size = 0;
}

/* Graphs that are replayed do not say again what they write, so values stay unless they are
 * poisoned for a check. */
void cuda_memory_forget_step(struct cuda_memory *memory)
{
    if (!memory->poison)
        return;
    for (uint32_t s = 0; s < memory->device_count; s++)
        for (size_t i = 0; i < (size_t)OP_VALUE_COUNT * SLOTS; i++)
            forget(memory, &memory->spaces[s], &memory->spaces[s].plain[i / SLOTS][i % SLOTS]);
}

void cuda_memory_forget(struct cuda_memory *memory, struct program_operand operand, int layer)
{
    forget(memory, &memory->spaces[operand.space], value_at(memory, operand, layer));
}
