#include "cli/backend.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"
#ifdef HAVE_CUDA
#include "cuda/cuda_executor.h"
#endif

#ifdef HAVE_CUDA

/* "1/0.6": a number above 0 for each device. */
static int read_numbers(const char *flag, const char *text, double most,
                        double values[MACHINE_DEVICES_MAX], struct error *err)
{
    const char *rest = text;

    for (uint32_t d = 0; text != NULL && d < MACHINE_DEVICES_MAX; d++) {
        char *end;

        values[d] = strtod(rest, &end);
        if (end == rest || !(values[d] > 0) || values[d] > most || (*end != '/' && *end != '\0'))
            break;
        if (*end == '\0')
            return 0;
        rest = end + 1;
    }
    return text == NULL
               ? 0
               : error_set(err, ERROR_USAGE,
                           "%s %s: numbers above 0 and up to %g, joined by slashes, are accepted",
                           flag, text, most);
}

static int open_cuda(const struct backend_options *options, struct backend *backend,
                     struct error *err)
{
    double speeds[MACHINE_DEVICES_MAX] = {0};
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
    cuda->arguments = options->arguments;
    cuda->argument_count = (uint32_t)options->argument_count;
    if (read_numbers("--pace-devices", options->pace_devices, 1, speeds, err) != 0 ||
        read_numbers("--pace-links", options->pace_links, 1e5, cuda->link_gbs, err) != 0)
        return -1;
    for (int d = 0; d < MACHINE_DEVICES_MAX; d++)
        cuda->slowdowns[d] = speeds[d] > 0 ? 1 / speeds[d] : 0;
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
