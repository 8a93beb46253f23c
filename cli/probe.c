/* lopside probe: measures this machine, and writes a profile. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ref/host_probe.h"
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
         "                            --engine lopside; a minute for each kind of GPU\n"
         "      --kernels-from FILE   with --kernels, their times from this profile of the same\n"
         "                            GPUs: only sums over GPUs are measured\n"
         "      --reduce WAY          with --kernels, how sums go over GPUs: auto, nccl,\n"
         "                            nccl-float or copies (default auto)\n"
         "  -o, --output text|json    a table (default), or a machine profile\n"
         "  -h, --help                this text");
}

struct options {
    bool json, kernels;
    const char *reduce; /* NULL: as by default */
    const char *from;   /* profile; NULL: none */
};

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

        printf("  %-7s %-5s %4u tokens   %8.2f us and %7.0f GB/s, %5.1f MiB ahead\n",
               program_task_name(row->kind), tensor_type_info(row->type)->name, row->tokens,
               row->launch_s * 1e6, row->gbs, row->ahead_bytes / (double)(1 << 20));
    }
    for (size_t i = 0; i < table->other_count; i++) {
        const struct kernel_other *row = &table->others[i];

        printf("  %-13s %4u tokens   %8.2f us and %7.0f GB/s\n", program_task_name(row->kind),
               row->tokens, row->launch_s * 1e6, row->gbs);
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

/* Tables of each kind of GPU; to the machine, or printed where `prints`. */
static int measure_kernels(struct machine *machine, const struct options *options, bool prints,
                           struct error *err)
{
    enum cuda_reduction reduction = CUDA_REDUCE_AUTO;

    if (options->reduce != NULL)
        cuda_reduction_find(options->reduce, &reduction);
    for (uint32_t d = 0; d < machine->device_count; d++) {
        struct kernel_table table = {.product_count = 0};
        int status;

        if (machine_kernel_table(machine, machine->devices[d].gpu) != NULL)
            continue;
        status = options->from != NULL
                     ? take_kernels(options->from, machine->devices[d].gpu, &table, err)
                     : 0;
        if (status == 0)
            status = probe_kernels(machine, d, reduction, &table, err);
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
    char *text;

    if (machine == NULL)
        return -1;
    memcpy(machine->host.cpu, host->cpu, sizeof host->cpu);
    machine->host.threads = host->threads;
    machine->host.memory_gbs = host->memory_gbs;
    machine->host.thread_gbs = host->thread_gbs;
    probe_apply(probe, machine);
    snprintf(machine->about, sizeof machine->about, "measured by lopside probe");
    text = options->kernels && measure_kernels(machine, options, false, err) != 0
               ? NULL
               : machine_to_json(machine, err);
    machine_free(machine);
    if (text == NULL)
        return -1;
    fputs(text, stdout);
    free(text);
    return 0;
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
    enum { OPTION_KERNELS = 256, OPTION_KERNELS_FROM, OPTION_REDUCE };
    static const struct option longs[] = {
        {"kernels", no_argument, NULL, OPTION_KERNELS},
        {"kernels-from", required_argument, NULL, OPTION_KERNELS_FROM},
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
    if ((options.reduce != NULL || options.from != NULL) && !options.kernels)
        return cli_wrong_call("probe", "%s is for --kernels",
                              options.reduce != NULL ? "--reduce" : "--kernels-from");
    if (optind < argc)
        return cli_wrong_call("probe", "unexpected argument %s", argv[optind]);
    return measure(&options);
}
