/* Memories of an execution: the host's and one of each device. They share nothing, so a
 * value that no copy brought is not there. */
#ifndef REF_MEMORY_H
#define REF_MEMORY_H

#include <stddef.h>

#include "sim/program.h"

struct memory; /* see memory.c */

/** Empty memories of `device_count` devices and the host, for a model of `layer_count` blocks. */
struct memory *memory_new(uint32_t device_count, uint32_t layer_count, struct error *err);
void memory_free(struct memory *memory);

/* Where the host's values but caches and states lie, for an executor that copies them. */
struct memory_room {
    void *(*allocate)(size_t bytes); /* NULL on failure */
    void (*release)(void *bytes);
};

/** Whether memory_use_room() has given one. */
bool memory_has_room(const struct memory *memory);

/** Before any value is there: takes room for the host's values from `room`, and leaves them
 * as they are where a step is forgotten, but for their sizes. */
void memory_use_room(struct memory *memory, struct memory_room room);

/**
 * Room for a value that is about to be written. What it held stays where it fits; new bytes
 * are 0.
 *
 * @param layer counts for layered values only
 * @return NULL with `err` set (ERROR_MEMORY)
 */
void *memory_reserve(struct memory *memory, struct program_operand operand, int layer, size_t bytes,
                     struct error *err);

/**
 * A value of at least `bytes`.
 *
 * @return NULL with `err` set (ERROR_USAGE) when nothing has written it: "device 1 has no query"
 */
void *memory_find(const struct memory *memory, struct program_operand operand, int layer,
                  size_t bytes, struct error *err);

/** Forgets all values but caches and states, so that a step has only what
 * it brings. Their bytes are overwritten, but for those in another room. */
void memory_forget_step(struct memory *memory);

/** How often room was taken, so whether values may lie elsewhere than before. */
uint64_t memory_growths(const struct memory *memory);

/** Forgets one value. */
void memory_forget(struct memory *memory, struct program_operand operand, int layer);

#endif
