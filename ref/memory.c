#include "ref/memory.h"

#include <stdlib.h>
#include <string.h>

#include "sim/lower_private.h"

/* Values that are not layered have a place for each slot. */
enum { SLOTS = LOWER_RING_PLACES };

struct value {
    void *bytes;
    size_t size, capacity; /* size 0: not there */
};

struct space {
    struct value plain[OP_VALUE_COUNT][SLOTS];
    struct value *layered; /* (layers, OP_VALUE_COUNT) */
};

struct memory {
    uint32_t device_count, layer_count;
    struct memory_room host_room; /* `allocate` NULL: the heap */
    uint64_t growths;
    struct space *spaces; /* the host's, then the devices' */
};

struct memory *memory_new(uint32_t device_count, uint32_t layer_count, struct error *err)
{
    struct memory *memory = calloc(1, sizeof *memory);

    if (memory != NULL)
        memory->spaces = calloc(device_count + 1, sizeof *memory->spaces);
    if (memory == NULL || memory->spaces == NULL)
        goto no_memory;
    memory->device_count = device_count;
    memory->layer_count = layer_count;
    for (uint32_t s = 0; s <= device_count; s++) {
        memory->spaces[s].layered =
            calloc((size_t)layer_count * OP_VALUE_COUNT, sizeof *memory->spaces[s].layered);
        if (memory->spaces[s].layered == NULL)
            goto no_memory;
    }
    return memory;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory for the values of %u devices", device_count);
    memory_free(memory);
    return NULL;
}

void memory_use_room(struct memory *memory, struct memory_room room)
{
    memory->host_room = room;
}

bool memory_has_room(const struct memory *memory)
{
    return memory->host_room.allocate != NULL;
}

static bool is_in_room(const struct memory *memory, uint32_t space)
{
    return space == 0 && memory_has_room(memory);
}

/* These outlast a step, and lie on the heap whatever room there is for the rest. */
static bool lasts(enum op_value value)
{
    return value == OP_VALUE_CACHE_K || value == OP_VALUE_CACHE_V || value == OP_VALUE_STATE ||
           value == OP_VALUE_CONV;
}

static void release(const struct memory *memory, uint32_t space, enum op_value value, void *bytes)
{
    if (bytes != NULL && is_in_room(memory, space) && !lasts(value))
        memory->host_room.release(bytes);
    else
        free(bytes);
}

void memory_free(struct memory *memory)
{
    if (memory == NULL)
        return;
    for (uint32_t s = 0; memory->spaces != NULL && s <= memory->device_count; s++) {
        struct space *space = &memory->spaces[s];

        for (size_t i = 0; i < (size_t)OP_VALUE_COUNT * SLOTS; i++)
            release(memory, s, (enum op_value)(i / SLOTS),
                    space->plain[i / SLOTS][i % SLOTS].bytes);
        for (size_t i = 0;
             space->layered != NULL && i < (size_t)memory->layer_count * OP_VALUE_COUNT; i++)
            release(memory, s, (enum op_value)(i % OP_VALUE_COUNT), space->layered[i].bytes);
        free(space->layered);
    }
    free(memory->spaces);
    free(memory);
}

static struct value *value_at(const struct memory *memory, struct program_operand operand,
                              int layer)
{
    struct space *space = &memory->spaces[operand.space + 1];

    if (program_value_is_layered(operand.value))
        return &space->layered[(size_t)layer * OP_VALUE_COUNT + operand.value];
    return &space->plain[operand.value][operand.slot];
}

static void *grow(struct memory *memory, struct program_operand operand, struct value *value,
                  size_t bytes)
{
    void *grown;

    memory->growths++;
    if (!is_in_room(memory, (uint32_t)(operand.space + 1)) || lasts(operand.value))
        return realloc(value->bytes, bytes);
    grown = memory->host_room.allocate(bytes);
    if (grown == NULL)
        return NULL;
    if (value->bytes != NULL) {
        memcpy(grown, value->bytes, value->capacity);
        memory->host_room.release(value->bytes);
    }
    return grown;
}

void *memory_reserve(struct memory *memory, struct program_operand operand, int layer, size_t bytes,
                     struct error *err)
{
    struct value *value = value_at(memory, operand, layer);

    if (bytes > value->capacity) {
        void *grown = grow(memory, operand, value, bytes);

        if (grown == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for %zu bytes of %s", bytes,
                      program_value_name(operand.value));
            return NULL;
        }
        memset((char *)grown + value->capacity, 0, bytes - value->capacity);
        value->bytes = grown;
        value->capacity = bytes;
    }
    if (bytes > value->size)
        value->size = bytes;
    return value->bytes;
}

void *memory_find(const struct memory *memory, struct program_operand operand, int layer,
                  size_t bytes, struct error *err)
{
    const struct value *value = value_at(memory, operand, layer);

    if (bytes <= value->size && value->bytes != NULL)
        return value->bytes;
    if (operand.space < 0)
        error_set(err, ERROR_USAGE, "the host has no %s", program_value_name(operand.value));
    else
        error_set(err, ERROR_USAGE, "device %d has no %s", operand.space,
                  program_value_name(operand.value));
    return NULL;
}

static void forget(struct value *value, bool overwritten)
{
    if (value->size > 0 && overwritten)
        memset(value->bytes, 0xff, value->size);
    value->size = 0;
}

void memory_forget_step(struct memory *memory)
{
    for (uint32_t s = 0; s <= memory->device_count; s++) {
        struct space *space = &memory->spaces[s];

        for (size_t i = 0; i < (size_t)OP_VALUE_COUNT * SLOTS; i++)
            forget(&space->plain[i / SLOTS][i % SLOTS], !is_in_room(memory, s));
        for (size_t i = 0;
             space->layered != NULL && i < (size_t)memory->layer_count * OP_VALUE_COUNT; i++)
            if (!lasts((enum op_value)(i % OP_VALUE_COUNT)))
                forget(&space->layered[i], !is_in_room(memory, s));
    }
}

uint64_t memory_growths(const struct memory *memory)
{
    return memory->growths;
}

void memory_forget(struct memory *memory, struct program_operand operand, int layer)
{
    forget(value_at(memory, operand, layer), true);
}
