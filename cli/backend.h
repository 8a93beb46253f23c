/* Where plans are executed: --backend, and what only a GPU runtime has. */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include "cli/list.h"
#include "ref/executor.h"

/* As typed; NULL: not given. */
struct backend_options {
    const char *name;         /* --backend */
    const char *trace;        /* --trace FILE */
    const char *pace_devices; /* --pace-devices A/B: share of its speed that each has */
    const char *pace_links;   /* --pace-links A/B: GB/s of each device's link */
    const char *reduce;       /* --reduce WAY */
    /* Plan options of the call (plan_options_words()), for the trace; owned, for list_close() when
     * what was opened is closed. */
    struct list words;
};

struct backend {
    executor_open *open; /* NULL: the interpreter */
    void *context;       /* for `open`; owned, for free() */
};

/**
 * Opens a backend: cpu (also without a name) or cuda.
 *
 * @return 0, or -1 with `err` set: ERROR_USAGE for another name, or a figure that cannot be read;
 *         ERROR_UNSUPPORTED where the build has no CUDA runtime or the computer no GPU
 */
int backend_open(const struct backend_options *options, struct backend *backend, struct error *err);

#endif
