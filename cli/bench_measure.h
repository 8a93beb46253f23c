/* Tests of lopside bench that are executed, and timed. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include "cli/backend.h"
#include "cli/bench_tests.h"
#include "ref/source.h"

/* Where tests are executed, and the model that is open. */
struct bench_measure {
    struct backend_options options;
    struct backend backend;
    bool wanted; /* --backend was given */
    struct source source;
    const char *spec; /* of the source; NULL: none is open. Borrowed */
};

/** Opens the backend if one is wanted. @return 0, or -1 with `err` set */
int bench_measure_open(struct bench_measure *measure, struct error *err);
void bench_measure_close(struct bench_measure *measure);

/**
 * Runs a test as llama-bench does: first to warm up, then `reps` times, each from its depth on. A
 * window that grows while tokens are generated makes kernels and graphs anew, which is timed.
 *
 * @param spec      the model's name; it stays open until another one comes
 * @param placement of that model, with room for depth, prompt and generation
 * @param times_s   (reps) set
 * @return 0, or -1 with `err` set
 */
int bench_measure_test(struct bench_measure *measure, const char *spec,
                       const struct placement *placement, struct test test, uint32_t reps,
                       double *times_s, struct error *err);

#endif
