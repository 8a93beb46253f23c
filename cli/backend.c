#include "cli/backend.h"

#include <string.h>

#include "config.h"
#ifdef HAVE_CUDA
#include "cuda/cuda_executor.h"
#endif

static int find_cuda(struct backend *backend, struct error *err)
{
#ifdef HAVE_CUDA
    if (cuda_gpu_count(err) == 0)
        return -1;
    *backend = (struct backend){.open = cuda_executor_open, .one_at_a_time = true};
    return 0;
#else
    (void)backend;
    return error_set(err, ERROR_UNSUPPORTED,
                     "--backend cuda: this build has no CUDA runtime; configure found no nvcc");
#endif
}

int backend_find(const char *name, struct backend *backend, struct error *err)
{
    *backend = (struct backend){.open = NULL};
    if (strcmp(name, "cpu") == 0)
        return 0;
    if (strcmp(name, "cuda") == 0)
        return find_cuda(backend, err);
    return error_set(err, ERROR_USAGE, "--backend %s: cpu and cuda are accepted", name);
}
