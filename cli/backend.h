/* Where plans are executed: --backend. */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include "ref/executor.h"

struct backend {
    executor_open *open; /* NULL: the interpreter */
    bool one_at_a_time;  /* several plans together would contend for it */
};

/**
 * The backend of a name: cpu or cuda.
 *
 * @return 0, or -1 with `err` set: ERROR_USAGE for another name, ERROR_UNSUPPORTED where the
 *         build has no CUDA runtime or the computer no GPU
 */
int backend_find(const char *name, struct backend *backend, struct error *err);

#endif
