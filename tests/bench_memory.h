/* How fast all threads read memory: what products with weights are measured against. */
#ifndef TESTS_BENCH_MEMORY_H
#define TESTS_BENCH_MEMORY_H

#include <stdint.h>

/** Seconds of a clock that only moves forward. */
double bench_now_s(void);

/**
 * Time to read words once, each thread `streams` places side by side, a cache line each in turn.
 * 1, 8 and 16 are worth trying; which is best is the CPU's affair.
 */
double bench_memory_read_s(const uint64_t *words, uint64_t bytes, int64_t streams);

#endif
