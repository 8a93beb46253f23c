/* Which cell of a cache holds which position of which sequence. */
#ifndef REF_CELLS_H
#define REF_CELLS_H

#include <stdint.h>

#include "sim/error.h"

struct cells; /* see cells.c */

/**
 * @param streams   1: all sequences share the cells; else one stream a sequence
 * @param per_stream cells of a stream
 * @param window    positions that are looked back at; 0: all
 * @return cells for cells_free(), or NULL with `err` set
 */
struct cells *cells_new(uint32_t sequences, uint32_t streams, uint32_t per_stream,
                        uint32_t positions, uint32_t window, struct error *err);
void cells_free(struct cells *cells);

/** Frees cells of a sequence that no position from `first` on looks back at. */
void cells_release(struct cells *cells, uint32_t sequence, uint32_t first);

/** Takes the lowest free cell. @return its row over all streams, or -1 when there is none */
int64_t cells_take(struct cells *cells, uint32_t sequence, uint32_t position);

/** Frees the positions from `first` on. */
void cells_truncate(struct cells *cells, uint32_t sequence, uint32_t first);

/** Frees `count` positions from `first` on; those behind move up by as many. */
void cells_shift(struct cells *cells, uint32_t sequence, uint32_t first, uint32_t count);

/** (sequences, positions): the row of each position, or -1. Borrowed. */
const int32_t *cells_table(const struct cells *cells);

/** One more than the highest cell in use of any stream. */
uint32_t cells_used(const struct cells *cells);

#endif
