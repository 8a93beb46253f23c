#include "sim/values.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

void values_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
}

double values_median(double *values, size_t count)
{
    if (count == 0)
        return NAN;
    values_sort(values, count);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
