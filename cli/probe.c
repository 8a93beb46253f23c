/* lopside probe: measures this machine, and writes a profile. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ref/host_probe.h"
#include "sim/kernel_sample_file.h"
#include "sim/machine_local.h"
#ifdef HAVE_CUDA
#include "cuda/cuda_executor.h"
#include "cuda/probe.h"
#include "cuda/probe_kernels.h"
#endif

static void print_help(void)
{
    puts("Usage: lopside probe [OPTION]...\n"
         "Measures this machine: host memory, GPUs, their links, launches and sums over them.\n"
         "The profile (json) is that of `lopside machine show` with the measured figures in it,\n"
         "and goes to --machine of the other commands.\n\n"
         "      --kernels             what the kernels of --backend cuda take as well, for\n"
         "                            --engine lopside; 1.5 minutes for each kind of GPU\n"
         "      --kernels-from FILE   with --kernels, their times from this profile of the same\n"
         "                            GPUs: only sums over GPUs are measured\n"
         "      --save-samples FILE   with --kernels, what their times are made of (JSON); with\n"
         "                            GPUs of several kinds, of the last one\n"
         "      --fit-samples FILE    measures nothing: makes the times of a profile's kernels\n"
         "                            (--kernels-from) again, of samples that were saved\n"
         "      --reduce WAY          with --kernels, how sums go over GPUs: auto, nccl,\n"
         "                            nccl-float or copies (default auto)\n"
         "  -o, --output text|json    a table (default), or a machine profile\n"
         "  -h, --help                this text");
}

struct options {
    bool json, kernels;
    const char *reduce;     /* NULL: as by default */
    const char *from;       /* profile; NULL: none */
    const char *save, *fit; /* samples; NULL: none */
};

/* ---- samples ---- */

static bool takes_any(const struct kernel_sample *sample)
{
    (void)sample;
    return true;
}

/* The table of a GPU with rows of samples in place of its own. Sums stay where none was sampled. */
static int fit_table(struct machine *machine, const char *gpu, struct kernel_samples *samples,
                     struct error *err)
{
    const struct kernel_table *known = machine_kernel_table(machine, gpu);
    struct kernel_table table = {.product_count = 0};
    double gbs = 0;
    int status = 0;

    if (known == NULL)
        return error_set(err, ERROR_INPUT, "%s: no kernels of a GPU named \"%s\"", machine->name,
                         gpu);
    snprintf(table.gpu, sizeof table.gpu, "%s", gpu);
    table.step_s = known->step_s;
    table.pace_inside_s = known->pace_inside_s;
    table.pace_behind_s = known->pace_behind_s;
    table.copy_s = known->copy_s;
    for (size_t i = 0; i < known->sum_count && status == 0; i++)
        status = kernel_table_add_sum(&table, known->sums[i], err);
    for (uint32_t d = 0; d < machine->device_count; d++)
        if (strcmp(machine->devices[d].gpu, gpu) == 0)
            gbs = machine->devices[d].memory_gbs;
    if (status == 0)
        status = kernel_samples_rows(samples, takes_any, gbs, &table, err);
    if (status == 0)
        status = machine_set_kernel_table(machine, &table, err);
    kernel_table_clear(&table);
    return status;
}

static int print_machine(const struct machine *machine, struct error *err)
{
    char *text = machine_to_json(machine, err);

    if (text == NULL)
        return -1;
    fputs(text, stdout);
    free(text);
    return 0;
}

static int fit_samples(const struct options *options)
{
    struct kernel_samples samples = {.count = 0};
    struct error err = {0};
    struct machine *machine = machine_open(options->from, NULL, &err);
    char gpu[sizeof machine->devices[0].gpu];
    int status =
        machine != NULL ? kernel_samples_read(options->fit, &samples, gpu, sizeof gpu, &err) : -1;

    if (status == 0)
        status = fit_table(machine, gpu, &samples, &err);
    if (status == 0)
        status = print_machine(machine, &err);
    kernel_samples_free(&samples);
    machine_free(machine);
    return status == 0 ? CLI_OK : cli_fail(&err);
}

#ifdef HAVE_CUDA

static void print_device(const struct probe_device *device, uint32_t d)
{
    printf("CUDA%u %s\n", d, device->name);
    printf("  memory, reading            %9.1f GB/s\n", device->memory_gbs);
    printf("  launch                     %9.2f us\n", device->launch_s * 1e6);
    printf("  launch and wait            %9.2f us\n", device->sync_s * 1e6);
    printf("  node of a graph            %9.2f us\n", device->graph_node_s * 1e6);
    printf("  blocking copy of 64 B      %9.2f us\n", device->copy_s * 1e6);
    printf("  queued copy of 64 B        %9.2f us\n", device->copy_latency_s * 1e6);
    printf("  host to device, pinned     %9.1f GB/s\n", device->down_gbs);
    printf("  device to host, pinned     %9.1f GB/s\n", device->up_gbs);
    printf("  both directions            %9.1f GB/s\n", device->duplex_gbs);
    for (int i = 0; i < PROBE_SIZES; i++)
        printf("  pageable, %7.3f MiB      %9.1f GB/s\n", (double)probe_sizes[i] / (1 << 20),
               device->pageable_gbs[i]);
    for (int i = 0; i < PROBE_WIDTHS; i++)
        printf("  rows of %4u B              %9.1f GB/s\n", probe_widths[i],
               device->strided_gbs[i]);
}

static void print_text(const struct probe *probe)
{
    for (uint32_t d = 0; d < probe->device_count; d++)
        print_device(&probe->devices[d], d);
    if (probe->device_count < 2)
        return;
    printf("all devices\n");
    printf("  host to devices, together  %9.1f GB/s\n", probe->down_together_gbs);
    printf("  CUDA0 to CUDA1             %9.1f GB/s%s\n", probe->peer_gbs,
           probe->peer_access ? "" : ", through host memory");
    if (probe->reduce_small_s > 0) {
        printf("  sum of 20 KB               %9.2f us\n", probe->reduce_small_s * 1e6);
        printf("  sum of 10 MiB              %9.2f us\n", probe->reduce_large_s * 1e6);
    }
}

static void print_table(const struct kernel_table *table)
{
    printf("kernels of %s\n", table->gpu);
    printf("  a step's begin             %9.2f us\n", table->step_s * 1e6);
    printf("  slowed: with a kernel      %9.2f us\n", table->pace_inside_s * 1e6);
    printf("  slowed: behind a kernel    %9.2f us\n", table->pace_behind_s * 1e6);
    printf("  until weights come ahead   %9.2f us\n", table->ahead_lag_s * 1e6);
    printf("  attention alone            %9.2f\n", table->attention_alone);
    printf("  delta net alone            %9.2f\n", table->delta_net_alone);
    printf("  copy, beside its bytes     %9.2f us\n", table->copy_s * 1e6);
    for (size_t i = 0; i < table->product_count; i++) {
        const struct kernel_product *row = &table->products[i];

        printf("  %-7s %-5s of %3u, %4u tokens   %8.2f us and %7.0f GB/s, %5.1f MiB ahead\n",
               program_task_name(row->kind), tensor_type_info(row->type)->name, row->group,
               row->tokens, row->launch_s * 1e6, row->gbs, row->ahead_bytes / (double)(1 << 20));
    }
    for (size_t i = 0; i < table->other_count; i++) {
        const struct kernel_other *row = &table->others[i];

        printf("  %-13s %4u tokens, %9.3f MiB   %8.2f us\n", program_task_name(row->kind),
               row->tokens, (double)row->bytes / (1 << 20), row->time_s * 1e6);
    }
    for (size_t i = 0; i < table->attention_count; i++) {
        const struct kernel_attention *row = &table->attentions[i];

        printf("  attention %s, %2u KV heads of %u, %u tokens over %llu cells  %.2f us\n",
               tensor_type_info(row->cache_type)->name, row->kv_heads, row->head_dim, row->tokens,
               (unsigned long long)row->cells, row->time_s * 1e6);
    }
    for (size_t i = 0; i < table->sum_count; i++)
        printf("  sum over %u devices, %llu B  %.2f us\n", table->sums[i].devices,
               (unsigned long long)table->sums[i].bytes, table->sums[i].time_s * 1e6);
}

/* What a profile says of a GPU's kernels. */
static int take_kernels(const char *path, const char *gpu, struct kernel_table *table,
                        struct error *err)
{
    struct machine *machine = machine_open(path, NULL, err);
    const struct kernel_table *known = NULL;
    int status;

    if (machine == NULL)
        return -1;
    known = machine_kernel_table(machine, gpu);
    status = known != NULL
                 ? kernel_table_copy_kernels(table, known, err)
                 : error_set(err, ERROR_INPUT, "%s: no kernels of a GPU named \"%s\"", path, gpu);
    machine_free(machine);
    return status;
}

static int save_samples(const struct kernel_samples *samples, const char *gpu, const char *path,
                        struct error *err)
{
    FILE *out = fopen(path, "w");
    bool failed = out == NULL;

    if (!failed) {
        kernel_samples_write(samples, gpu, out);
        failed = ferror(out) != 0;
        failed |= fclose(out) != 0;
    }
    return failed ? error_set_at(err, ERROR_IO, path, 0, 0, "cannot be written") : 0;
}

/* Tables of each kind of GPU; to the machine, or printed where `prints`. */
static int measure_kernels(struct machine *machine, const struct options *options, bool prints,
                           struct error *err)
{
    enum cuda_reduction reduction = CUDA_REDUCE_AUTO;

    if (options->reduce != NULL)
        cuda_reduction_find(options->reduce, &reduction);
    for (uint32_t d = 0; d < machine->device_count; d++) {
        struct kernel_table table = {.product_count = 0};
        struct kernel_samples samples = {.count = 0};
        int status;

        if (machine_kernel_table(machine, machine->devices[d].gpu) != NULL)
            continue;
        status = options->from != NULL
                     ? take_kernels(options->from, machine->devices[d].gpu, &table, err)
                     : 0;
        if (status == 0)
            status = probe_kernels(machine, d, reduction, &table,
                                   options->save != NULL ? &samples : NULL, err);
        if (status == 0 && options->save != NULL)
            status = save_samples(&samples, machine->devices[d].gpu, options->save, err);
        kernel_samples_free(&samples);
        if (status == 0 && prints)
            print_table(&table);
        if (status == 0)
            status = machine_set_kernel_table(machine, &table, err);
        kernel_table_clear(&table);
        if (status != 0)
            return -1;
    }
    return 0;
}

static int print_profile(const struct probe *probe, const struct machine_host *host,
                         const struct options *options, struct error *err)
{
    struct machine *machine = machine_local(err);
    int status = 0;

    if (machine == NULL)
        return -1;
    memcpy(machine->host.cpu, host->cpu, sizeof host->cpu);
    machine->host.threads = host->threads;
    machine->host.memory_gbs = host->memory_gbs;
    machine->host.thread_gbs = host->thread_gbs;
    probe_apply(probe, machine);
    snprintf(machine->about, sizeof machine->about, "measured by lopside probe");
    if (options->kernels)
        status = measure_kernels(machine, options, false, err);
    if (status == 0)
        status = print_machine(machine, err);
    machine_free(machine);
    return status;
}

static int measure_gpus(const struct machine_host *host, const struct options *options,
                        struct error *err)
{
    struct probe probe;
    struct machine *machine;
    int status = 0;

    if (probe_run(&probe, err) != 0)
        return -1;
    if (options->json)
        return print_profile(&probe, host, options, err);
    print_text(&probe);
    if (!options->kernels)
        return 0;
    machine = machine_local(err);
    status = machine != NULL ? measure_kernels(machine, options, true, err) : -1;
    machine_free(machine);
    return status;
}

#else

static int measure_gpus(const struct machine_host *host, const struct options *options,
                        struct error *err)
{
    (void)host;
    (void)options;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this build has no CUDA runtime; configure found no nvcc. `lopside machine "
                     "show` says what the driver knows of GPUs");
}

#endif

/* The host is measured in any case; without a GPU that is all there is to say. */
static int measure(const struct options *options)
{
    struct machine_host host = {.cpu = "unknown"};
    struct error err = {0};

    if (host_probe_run(&host, &err) != 0)
        return cli_fail(&err);
    if (!options->json)
        printf("host %s, %u threads\n  memory, all threads        %9.1f GB/s\n"
               "  memory, one thread         %9.1f GB/s\n",
               host.cpu, host.threads, host.memory_gbs, host.thread_gbs);
    return measure_gpus(&host, options, &err) == 0 ? CLI_OK : cli_fail(&err);
}

int cli_probe(int argc, char **argv)
{
    enum {
        OPTION_KERNELS = 256,
        OPTION_KERNELS_FROM,
        OPTION_SAVE_SAMPLES,
        OPTION_FIT_SAMPLES,
        OPTION_REDUCE
    };
    static const struct option longs[] = {
        {"kernels", no_argument, NULL, OPTION_KERNELS},
        {"kernels-from", required_argument, NULL, OPTION_KERNELS_FROM},
        {"save-samples", required_argument, NULL, OPTION_SAVE_SAMPLES},
        {"fit-samples", required_argument, NULL, OPTION_FIT_SAMPLES},
        {"reduce", required_argument, NULL, OPTION_REDUCE},
        {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    struct options options = {.reduce = NULL};
    int option;

    while ((option = getopt_long_only(argc, argv, "ho:", longs, NULL)) != -1) {
        switch (option) {
        case 'h':
            print_help();
            return CLI_OK;
        case OPTION_KERNELS:
            options.kernels = true;
            break;
        case OPTION_KERNELS_FROM:
            options.from = optarg;
            break;
        case OPTION_SAVE_SAMPLES:
            options.save = optarg;
            break;
        case OPTION_FIT_SAMPLES:
            options.fit = optarg;
            break;
        case OPTION_REDUCE:
            if (strcmp(optarg, "auto") != 0 && strcmp(optarg, "nccl") != 0 &&
                strcmp(optarg, "nccl-float") != 0 && strcmp(optarg, "copies") != 0)
                return cli_wrong_call("probe", "--reduce %s: auto, nccl, nccl-float or copies",
                                      optarg);
            options.reduce = optarg;
            break;
        case 'o':
            options.json = strcmp(optarg, "json") == 0;
            if (!options.json && strcmp(optarg, "text") != 0)
                return cli_wrong_call("probe", "-o %s: text or json", optarg);
            break;
        default:
            return cli_unknown_option("probe");
        }
    }
    if (optind < argc)
        return cli_wrong_call("probe", "unexpected argument %s", argv[optind]);
    if (options.fit != NULL) {
        if (options.kernels || options.from == NULL || !options.json)
            return cli_wrong_call("probe", "--fit-samples measures nothing: it goes with "
                                           "--kernels-from PROFILE and -o json");
        return fit_samples(&options);
    }
    if ((options.reduce != NULL || options.from != NULL || options.save != NULL) &&
        !options.kernels)
        return cli_wrong_call("probe", "%s is for --kernels",
                              options.reduce != NULL ? "--reduce"
                              : options.from != NULL ? "--kernels-from"
                                                     : "--save-samples");
    return measure(&options);
}
