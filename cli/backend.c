#include "cli/backend.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "sim/machine_pace.h"
#ifdef HAVE_CUDA
#include "cuda/cuda_executor.h"
#endif

#ifdef HAVE_CUDA

static int open_cuda(const struct backend_options *options, struct backend *backend,
                     struct error *err)
{
    struct machine_pace pace;
    struct cuda_options *cuda;

    if (cuda_gpu_count(err) == 0)
        return -1;
    cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a backend");
    backend->open = cuda_executor_open;
    backend->context = cuda;
    if (options->reduce != NULL && !cuda_reduction_find(options->reduce, &cuda->reduction))
        return error_set(err, ERROR_USAGE,
                         "--reduce %s: auto, nccl, nccl-float and copies are accepted",
                         options->reduce);
    cuda->trace_path = options->trace;
    cuda->arguments = (const char *const *)options->words.items;
    cuda->argument_count = (uint32_t)options->words.count;
    if (machine_pace_read(&pace, options->pace_devices, options->pace_links, err) != 0)
        return -1;
    memcpy(cuda->slowdowns, pace.slowdowns, sizeof pace.slowdowns);
    memcpy(cuda->link_gbs, pace.link_gbs, sizeof pace.link_gbs);
    return 0;
}

#else

static int open_cuda(const struct backend_options *options, struct backend *backend,
                     struct error *err)
{
    (void)options;
    (void)backend;
    return error_set(err, ERROR_UNSUPPORTED,
                     "--backend cuda: this build has no CUDA runtime; configure found no nvcc");
}

#endif

int backend_open(const struct backend_options *options, struct backend *backend, struct error *err)
{
    *backend = (struct backend){.open = NULL};
    if (options->name != NULL && strcmp(options->name, "cuda") == 0)
        return open_cuda(options, backend, err);
    if (options->name != NULL && strcmp(options->name, "cpu") != 0)
        return error_set(err, ERROR_USAGE, "--backend %s: cpu and cuda are accepted",
                         options->name);
    if (options->trace != NULL || options->pace_devices != NULL || options->pace_links != NULL ||
        options->reduce != NULL)
        return error_set(
            err, ERROR_USAGE,
            "--trace, --pace-devices, --pace-links and --reduce are for --backend cuda");
    return 0;
}
