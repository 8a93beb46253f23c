/* The configuration of a measured row as cells: one column a choice, in plain words with
 * the flag that makes it. */
#ifndef CLI_ROW_COLUMNS_H
#define CLI_ROW_COLUMNS_H

#include "sim/validate.h"

enum row_cell_kind {
    ROW_CELL_APART,    /* the choice does not exist for the row: no text */
    ROW_CELL_UNSTATED, /* it does, and the row leaves it open: the column's word for that */
    ROW_CELL_STATED,
};

struct row_cell {
    enum row_cell_kind kind;
    bool assumed; /* the source does not say it */
    char text[160];
};

struct row_column {
    char heading[64];
    const char *unstated; /* what stands for a choice that is left open beside stated ones */
    void (*read)(const struct validate_row *row, struct row_cell *cell);
    const char *key; /* of plan or workload, for a choice without a field; else NULL */
};

/**
 * The columns that some of the rows could differ in, in the order of reading.
 *
 * @return 0 with `columns` for free(), or -1 with `err` set
 */
int row_columns_new(const struct validate_row *const rows[], size_t row_count,
                    struct row_column **columns, size_t *count, struct error *err);

void row_columns_read(const struct row_column *column, const struct validate_row *row,
                      struct row_cell *cell);

#endif
