/* Sums and products of sizes that a file claims: none of them wraps unseen. */
#ifndef SIM_CHECKED_H
#define SIM_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/** Sets `*product` to a b; false, leaving it alone, when 64 bits cannot hold it. */
static inline bool checked_multiply(uint64_t a, uint64_t b, uint64_t *product)
{
    if (a != 0 && b > UINT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/** Sets `*sum` to a + b; false, leaving it alone, when 64 bits cannot hold it. */
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    if (b > UINT64_MAX - a)
        return false;
    *sum = a + b;
    return true;
}

#endif
