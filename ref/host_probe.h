/* Measures the host: processor, threads, and how fast they read memory. */
#ifndef REF_HOST_PROBE_H
#define REF_HOST_PROBE_H

#include <stdint.h>

#include "sim/machine.h"

/** Seconds of a clock that only moves forward. */
double host_probe_now_s(void);

/**
 * Time to read words once, each thread `streams` places side by side, a cache line each in turn.
 * 1, 8 and 16 are worth trying; which is best is the CPU's affair.
 *
 * @param one_thread the calling thread alone
 */
double host_probe_read_s(const uint64_t *words, uint64_t bytes, int64_t streams, bool one_thread);

/**
 * Fills in cpu, threads, memory_gbs and thread_gbs, the best of several readings of 1 GiB; the
 * rest stays.
 *
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int host_probe_run(struct machine_host *host, struct error *err);

#endif
