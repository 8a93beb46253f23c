/* Memory that lives and dies together: many small pieces, freed at once. */
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include <stddef.h>

#include "sim/error.h"

struct arena; /* a chain of blocks; see arena.c */

/** Returns an empty arena, owned by the caller, or NULL with `err` set. */
struct arena *arena_new(struct error *err);

/**
 * `size` zeroed bytes, aligned for any type; they live until arena_free().
 *
 * @param size 0 gives a valid pointer to nothing
 * @return NULL with `err` set (ERROR_MEMORY)
 */
void *arena_alloc(struct arena *arena, size_t size, struct error *err);

/** As arena_alloc for `count` elements; a product that overflows is a failure. */
void *arena_alloc_array(struct arena *arena, size_t count, size_t element_bytes, struct error *err);

/** A copy of `text`, or NULL with `err` set. */
char *arena_strdup(struct arena *arena, const char *text, struct error *err);

/** A copy of `length` bytes with a zero behind them, or NULL with `err` set. */
char *arena_strndup(struct arena *arena, const char *text, size_t length, struct error *err);

/** Frees everything that came from it. */
void arena_free(struct arena *arena);

#endif
