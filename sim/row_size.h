/* Sizes and counts that measured rows state, from the account of memory and from lowered
 * programs: what a buffer, a cache or a state takes, what one choice of a plan adds, how
 * often a graph is cut, what an all-reduce carries. */
#ifndef SIM_ROW_SIZE_H
#define SIM_ROW_SIZE_H

#include "sim/row_case.h"

/**
 * Predicts a row of ROW_KIND_SIZE or ROW_KIND_COUNT, in the unit of its metric.
 *
 * @return 0, or -1 with `err` set (ERROR_USAGE: the row lacks what its metric needs)
 */
int row_size_predict(const struct row_case *c, const struct model *model,
                     const struct machine *machine, double *value, struct error *err);

#endif
