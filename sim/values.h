/* What is the same of many measured values. */
#ifndef SIM_VALUES_H
#define SIM_VALUES_H

#include <stddef.h>

/** Sorts them, the least first. */
void values_sort(double *values, size_t count);

/** Sorts them. @return the one in the middle, or the mean of two; NAN without any */
double values_median(double *values, size_t count);

#endif
