#include "ref/cells.h"

#include <stdbool.h>
#include <stdlib.h>

struct cells {
    uint32_t sequences, streams, per_stream, positions, window;
    bool *taken;    /* (streams, per_stream) */
    size_t *lowest; /* (streams): no cell before it is free */
    int32_t *table; /* (sequences, positions) */
};

struct cells *cells_new(uint32_t sequences, uint32_t streams, uint32_t per_stream,
                        uint32_t positions, uint32_t window, struct error *err)
{
    struct cells *cells = calloc(1, sizeof *cells);
    size_t entries = (size_t)sequences * positions;

    if (cells == NULL)
        goto no_memory;
    *cells = (struct cells){.sequences = sequences,
                            .streams = streams,
                            .per_stream = per_stream,
                            .positions = positions,
                            .window = window};
    cells->lowest = calloc((size_t)streams + 1, sizeof *cells->lowest);
    cells->taken = calloc((size_t)streams * per_stream + 1, sizeof *cells->taken);
    cells->table = malloc((entries + 1) * sizeof *cells->table);
    if (cells->lowest == NULL || cells->taken == NULL || cells->table == NULL)
        goto no_memory;
    for (size_t i = 0; i < entries; i++)
        cells->table[i] = -1;
    for (uint32_t stream = 0; stream < streams; stream++)
        cells->lowest[stream] = (size_t)stream * per_stream;
    return cells;

no_memory:
    error_set(err, ERROR_MEMORY, "no memory for the cells of %u sequences", sequences);
    cells_free(cells);
    return NULL;
}

void cells_free(struct cells *cells)
{
    if (cells == NULL)
        return;
    free(cells->lowest);
    free(cells->taken);
    free(cells->table);
    free(cells);
}

static int32_t *row_of(const struct cells *cells, uint32_t sequence)
{
    return cells->table + (size_t)sequence * cells->positions;
}

static void release(struct cells *cells, int32_t *entry)
{
    if (*entry >= 0) {
        size_t *lowest = &cells->lowest[(size_t)*entry / cells->per_stream];

        cells->taken[*entry] = false;
        if ((size_t)*entry < *lowest)
            *lowest = (size_t)*entry;
    }
    *entry = -1;
}

void cells_release(struct cells *cells, uint32_t sequence, uint32_t first)
{
    int32_t *row = row_of(cells, sequence);

    if (cells->window == 0)
        return;
    for (uint32_t position = 0; position + cells->window <= first; position++)
        release(cells, &row[position]);
}

int64_t cells_take(struct cells *cells, uint32_t sequence, uint32_t position)
{
    uint32_t stream = cells->streams > 1 ? sequence : 0;
    size_t end = ((size_t)stream + 1) * cells->per_stream, cell = cells->lowest[stream];

    if (position >= cells->positions)
        return -1;
    while (cell < end && cells->taken[cell])
        cell++;
    cells->lowest[stream] = cell;
    if (cell == end)
        return -1;
    cells->taken[cell] = true;
    row_of(cells, sequence)[position] = (int32_t)cell;
    return (int64_t)cell;
}

void cells_truncate(struct cells *cells, uint32_t sequence, uint32_t first)
{
    for (uint32_t position = first; position < cells->positions; position++)
        release(cells, &row_of(cells, sequence)[position]);
}

void cells_shift(struct cells *cells, uint32_t sequence, uint32_t first, uint32_t count)
{
    int32_t *row = row_of(cells, sequence);

    for (uint32_t position = first; position < first + count; position++)
        release(cells, &row[position]);
    for (uint32_t position = first; position < cells->positions; position++)
        row[position] = position + count < cells->positions ? row[position + count] : -1;
}

const int32_t *cells_table(const struct cells *cells)
{
    return cells->table;
}

uint32_t cells_used(const struct cells *cells)
{
    uint32_t used = 0;

    for (size_t cell = 0; cell < (size_t)cells->streams * cells->per_stream; cell++)
        if (cells->taken[cell] && cell % cells->per_stream >= used)
            used = (uint32_t)(cell % cells->per_stream) + 1;
    return used;
}
