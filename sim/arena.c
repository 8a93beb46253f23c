/* A bump arena: each block is filled front to back, a full one is followed by a
 * new one. Nothing is given back before the end. */
#include "sim/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT _Alignof(max_align_t)
#define BLOCK_BYTES ((size_t)16384) /* room of an ordinary block; a larger request gets its own */

struct block {
    struct block *next;
    size_t used, capacity;
    max_align_t room[]; /* aligned for any type */
};

struct arena {
    struct block *blocks; /* the one being filled first */
};

struct arena *arena_new(struct error *err)
{
    struct arena *arena = calloc(1, sizeof *arena);

    if (!arena)
        error_set(err, ERROR_MEMORY, "no memory for an arena");
    return arena;
}

static struct block *block_new(size_t capacity, struct error *err)
{
    struct block *block = NULL;

    if (capacity <= SIZE_MAX - sizeof *block)
        block = calloc(1, sizeof *block + capacity);
    if (!block) {
        error_set(err, ERROR_MEMORY, "no memory for %zu bytes", capacity);
        return NULL;
    }
    block->capacity = capacity;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size, struct error *err)
{
    struct block *block = arena->blocks;
    size_t padded;

    if (size > SIZE_MAX - ALIGNMENT) {
        error_set(err, ERROR_MEMORY, "no memory for %zu bytes", size);
        return NULL;
    }
    padded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!block || padded > block->capacity - block->used) {
        block = block_new(padded > BLOCK_BYTES ? padded : BLOCK_BYTES, err);
        if (!block)
            return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    block->used += padded;
    return (char *)block->room + (block->used - padded);
}

void *arena_alloc_array(struct arena *arena, size_t count, size_t element_bytes, struct error *err)
{
    if (element_bytes != 0 && count > SIZE_MAX / element_bytes) {
        error_set(err, ERROR_MEMORY, "no memory for %zu entries of %zu bytes", count,
                  element_bytes);
        return NULL;
    }
    return arena_alloc(arena, count * element_bytes, err);
}

char *arena_strdup(struct arena *arena, const char *text, struct error *err)
{
    return arena_strndup(arena, text, strlen(text), err);
}

char *arena_strndup(struct arena *arena, const char *text, size_t length, struct error *err)
{
    char *copy;

    if (length == SIZE_MAX) {
        error_set(err, ERROR_MEMORY, "no memory for %zu bytes", length);
        return NULL;
    }
    copy = arena_alloc(arena, length + 1, err);
    if (copy && length != 0)
        memcpy(copy, text, length);
    return copy;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    while (arena->blocks) {
        struct block *next = arena->blocks->next;

        free(arena->blocks);
        arena->blocks = next;
    }
    free(arena);
}
