/* lopside probe: measures this machine, and writes a profile. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ref/host_probe.h"
#include "sim/machine_local.h"
#ifdef HAVE_CUDA
#include "cuda/probe.h"
#endif

static void print_help(void)
{
    puts("Usage: lopside probe [-o text|json]\n"
         "Measures this machine: host memory, GPUs, their links, launches and sums over them.\n"
         "The profile (json) is that of `lopside machine show` with the measured figures in it,\n"
         "and goes to --machine of the other commands.\n\n"
         "  -o, --output text|json    a table (default), or a machine profile\n"
         "  -h, --help                this text");
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

static int print_profile(const struct probe *probe, const struct machine_host *host,
                         struct error *err)
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
    text = machine_to_json(machine, err);
    machine_free(machine);
    if (text == NULL)
        return -1;
    fputs(text, stdout);
    free(text);
    return 0;
}

static int measure_gpus(const struct machine_host *host, bool json, struct error *err)
{
    struct probe probe;

    if (probe_run(&probe, err) != 0)
        return -1;
    if (json)
        return print_profile(&probe, host, err);
    print_text(&probe);
    return 0;
}

#else

static int measure_gpus(const struct machine_host *host, bool json, struct error *err)
{
    (void)host;
    (void)json;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this build has no CUDA runtime; configure found no nvcc. `lopside machine "
                     "show` says what the driver knows of GPUs");
}

#endif

/* The host is measured in any case; without a GPU that is all there is to say. */
static int measure(bool json)
{
    struct machine_host host = {.cpu = "unknown"};
    struct error err = {0};

    if (host_probe_run(&host, &err) != 0)
        return cli_fail(&err);
    if (!json)
        printf("host %s, %u threads\n  memory, all threads        %9.1f GB/s\n"
               "  memory, one thread         %9.1f GB/s\n",
               host.cpu, host.threads, host.memory_gbs, host.thread_gbs);
    return measure_gpus(&host, json, &err) == 0 ? CLI_OK : cli_fail(&err);
}

int cli_probe(int argc, char **argv)
{
    static const struct option longs[] = {{"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    bool json = false;
    int option;

    while ((option = getopt_long_only(argc, argv, "ho:", longs, NULL)) != -1) {
        if (option == 'h') {
            print_help();
            return CLI_OK;
        }
        if (option != 'o')
            return cli_unknown_option("probe");
        json = strcmp(optarg, "json") == 0;
        if (!json && strcmp(optarg, "text") != 0)
            return cli_wrong_call("probe", "-o %s: text or json", optarg);
    }
    if (optind < argc)
        return cli_wrong_call("probe", "unexpected argument %s", argv[optind]);
    return measure(json);
}
