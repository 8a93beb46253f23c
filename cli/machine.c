/* lopside machine: lists, shows and draws machines. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_table.h"
#include "sim/machine.h"
#include "sim/machine_local.h"

static const char help_text[] =
    "Usage: lopside machine [list [profiles|gpus|links|families]]\n"
    "       lopside machine show [NAME|FILE [--variant NAME]] [-o text|json]\n"
    "       lopside machine show --gpu GPU[@LINK]... [-o text|json]\n"
    "       lopside machine tree [NAME|FILE [--variant NAME]]\n"
    "       lopside machine tree --gpu GPU[@LINK]...\n"
    "\n"
    "Lists what is built in, shows a machine with all its constants, or draws how its\n"
    "devices are joined. NAME is a built-in profile, FILE one of your own; without either,\n"
    "the GPUs of this machine are meant.\n"
    "\n"
    "  -g, --gpu GPU[@LINK]   a device from the catalogue, once for each: \"RTX 4070@gen4x16\",\n"
    "                         \"2x RTX 3090@gen4x8\", \"RTX 4090\" (the card's own link)\n"
    "  -v, --variant NAME     a variant of the profile, such as oc\n"
    "  -o, --output FORMAT    text, or json: a profile with every figure, to start one from\n"
    "  -h, --help             this text\n";

struct machine_options {
    const char *action;  /* "list", "show", "tree" */
    const char *operand; /* NULL for none */
    const char *variant; /* NULL for none */
    const char *gpus[MACHINE_DEVICES_MAX];
    size_t gpu_count;
    bool json, output_given, help;
};

/* --- lists --- */

static int list_profiles(void)
{
    const char *const *names = machine_builtin_names();

    printf("%-32s %-10s %s\n", "PROFILE", "VARIANTS", "DEVICES");
    for (size_t i = 0; names[i] != NULL; i++) {
        struct error err = {0};
        struct machine *machine = machine_open(names[i], NULL, &err);
        char variants[64] = "-";
        size_t used = 0;

        if (machine == NULL)
            return cli_fail(&err);
        for (uint32_t k = 0; k < machine->variant_count && used < sizeof variants; k++)
            used += (size_t)snprintf(variants + used, sizeof variants - used, "%s%s",
                                     k > 0 ? "," : "", machine->variants[k]);
        printf("%-32s %-10s ", machine->name, variants);
        for (uint32_t k = 0; k < machine->device_count; k++)
            printf("%s%s", k > 0 ? ", " : "", machine->devices[k].gpu);
        printf("\n");
        machine_free(machine);
    }
    return CLI_OK;
}

static double memory_mib(const struct machine_device *device)
{
    return (double)device->memory_bytes / 1048576;
}

static void print_device_head(const char *first, const char *last)
{
    printf("%-36s %-10s %4s %8s %8s %5s %6s %8s %8s %8s%s%s\n", first, "FAMILY", "CC", "MIB",
           "GB/S", "SMS", "MHZ", "FP32", "FP16", "INT8", last[0] != '\0' ? "  " : "", last);
}

static void print_device(const char *name, const char *family, const struct machine_device *device,
                         const char *last)
{
    char capability[16] = "-";

    if (device->compute_capability > 0)
        snprintf(capability, sizeof capability, "%d.%d", device->compute_capability / 10,
                 device->compute_capability % 10);
    printf("%-36s %-10s %4s %8.0f %8.5g %5u %6.0f %8.5g %8.5g %8.5g%s%s\n", name, family,
           capability, memory_mib(device), device->memory_gbs, (unsigned)device->sm_count,
           device->clock_ghz * 1e3, device->fp32_tflops, device->fp16_tflops, device->int8_tops,
           last[0] != '\0' ? "  " : "", last);
}

static int list_gpus(void)
{
    const struct machine_device *device;

    print_device_head("GPU", "LINK");
    for (size_t i = 0; (device = machine_catalogue_gpu(i)) != NULL; i++)
        print_device(device->gpu, machine_catalogue_family(device->family)->name, device,
                     machine_catalogue_gpu_link(i));
    return CLI_OK;
}

static void print_link_head(const char *first)
{
    printf("%-22s %-14s %9s %9s %9s %9s %9s\n", first, "CLASS", "DOWN", "UP", "DUPLEX", "PAGEABLE",
           "US");
}

static void print_link(const char *name, const struct machine_link *link)
{
    printf("%-22s %-14s %9.5g %9.5g %9.5g %9.5g %9.5g\n", name,
           link->class_name[0] != '\0' ? link->class_name : "-", link->down_gbs, link->up_gbs,
           link->duplex_gbs, link->pageable_gbs, link->latency_s * 1e6);
}

static int list_links(void)
{
    const struct machine_link *link;

    printf("GB/s; PAGEABLE: a copy from or to pageable host memory; US: of a copy\n");
    printf("%-14s %9s %9s %9s %9s %9s\n", "CLASS", "DOWN", "UP", "DUPLEX", "PAGEABLE", "US");
    for (size_t i = 0; (link = machine_catalogue_link(i)) != NULL; i++)
        printf("%-14s %9.5g %9.5g %9.5g %9.5g %9.5g\n", link->class_name, link->down_gbs,
               link->up_gbs, link->duplex_gbs, link->pageable_gbs, link->latency_s * 1e6);
    return CLI_OK;
}

static int list_families(void)
{
    static const char *const classes[] = {
#define CLASS_NAME(class, name) name,
        MACHINE_WEIGHT_CLASSES(CLASS_NAME)
#undef CLASS_NAME
    };
    const struct machine_family *family;

    for (size_t i = 0; (family = machine_catalogue_family(i)) != NULL; i++) {
        printf("%s\n", family->name);
        printf("  memory_ratio %g, kernel_us %g, gdn_step_us %g\n", family->memory_ratio,
               family->kernel_s * 1e6, family->gdn_step_s * 1e6);
        printf("  attn_vec_ratio %g, attn_one_ratio %g, attn_mma_ratio %g\n",
               family->attn_vec_ratio, family->attn_one_ratio, family->attn_mma_ratio);
        printf("  matvec_rate ");
        for (int k = 0; k < MACHINE_WEIGHT_CLASS_COUNT; k++)
            printf(" %s %g", classes[k], family->matvec_rate[k]);
        printf("\n  matmul_ratio");
        for (int k = 0; k < MACHINE_WEIGHT_CLASS_COUNT; k++)
            printf(" %s %g", classes[k], family->matmul_ratio[k]);
        printf("\n  matmul_rate ");
        for (int k = 0; k < MACHINE_WEIGHT_CLASS_COUNT; k++)
            printf(" %s %g", classes[k], family->matmul_rate[k]);
        printf("\n");
    }
    return CLI_OK;
}

static int run_list(const struct machine_options *options)
{
    static const struct {
        const char *name;
        int (*list)(void);
    } lists[] = {{"profiles", list_profiles},
                 {"gpus", list_gpus},
                 {"links", list_links},
                 {"families", list_families}};
    const char *what = options->operand != NULL ? options->operand : "profiles";

    if (options->gpu_count > 0 || options->variant != NULL || options->output_given)
        return cli_wrong_call("machine", "list takes no options");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (strcmp(what, lists[i].name) == 0)
            return lists[i].list();
    return cli_wrong_call("machine", "cannot list \"%s\"; profiles, gpus, links or families", what);
}

/* --- one machine --- */

static struct machine *open_machine(const struct machine_options *options, struct error *err)
{
    struct machine *machine;

    if (options->gpu_count > 0)
        return machine_compose(options->gpus, options->gpu_count, err);
    if (options->operand != NULL)
        return machine_open(options->operand, options->variant, err);
    machine = machine_local(err);
    if (machine == NULL && err->code == ERROR_UNSUPPORTED) {
        *err = (struct error){0};
        error_set(err, ERROR_USAGE,
                  "no GPU can be seen here: %s takes a profile (lopside machine list profiles), or "
                  "--gpu \"RTX 4070@gen4x16\"",
                  options->action);
    }
    return machine;
}

static void print_name(const struct machine *machine)
{
    printf("%s", machine->name);
    if (strcmp(machine->variant, "stock") != 0)
        printf(" (%s)", machine->variant);
    printf("\n");
}

static void print_host(const struct machine_host *host)
{
    printf("%s, %u threads, memory %.5g GB/s, one thread %.5g",
           host->cpu[0] != '\0' ? host->cpu : "unnamed processor", (unsigned)host->threads,
           host->memory_gbs, host->thread_gbs);
}

static int print_constants(struct machine *machine)
{
    size_t count = machine_constants(machine, NULL, 0);
    struct machine_constant *constants = calloc(count, sizeof *constants);
    struct error err = {0};

    if (constants == NULL) {
        error_set(&err, ERROR_MEMORY, "no memory for %zu constants", count);
        return cli_fail(&err);
    }
    machine_constants(machine, constants, count);
    printf("\n%-28s %10s  %-17s %-18s %s\n", "CONSTANT", "VALUE", "UNIT", "BOUNDS", "MEANING");
    for (size_t i = 0; i < count; i++) {
        const struct machine_constant *constant = &constants[i];
        char bounds[40];

        snprintf(bounds, sizeof bounds, "%.5g to %.5g", constant->min, constant->max);
        printf("%-28s %10.5g  %-17s %-18s %s\n", constant->name, *constant->value / constant->scale,
               constant->unit, bounds, constant->meaning);
    }
    free(constants);
    return CLI_OK;
}

static void print_kernel_tables(const struct machine *machine)
{
    if (machine->kernel_table_count > 0)
        printf("\nmeasured kernels\n");
    for (uint32_t i = 0; i < machine->kernel_table_count; i++) {
        const struct kernel_table *table = &machine->kernel_tables[i];

        printf("  %s: %zu rows of products, %zu of attention, %zu of others, %zu of sums\n",
               table->gpu, table->product_count, table->attention_count, table->other_count,
               table->sum_count);
    }
}

static int print_text(struct machine *machine)
{
    print_name(machine);
    if (machine->about[0] != '\0')
        printf("  %s\n", machine->about);
    for (uint32_t i = 0; i < machine->variant_count; i++)
        printf("%s%s", i == 0 ? "  variants: " : ", ", machine->variants[i]);
    printf("%s  constants fitted to %zu rows\n", machine->variant_count > 0 ? "\n" : "",
           machine->fitted_row_count);
    printf("\nhost: ");
    print_host(&machine->host);
    printf("\n\n");
    print_device_head("DEVICE", "");
    for (uint32_t i = 0; i < machine->device_count; i++) {
        const struct machine_device *device = &machine->devices[i];
        char name[100];

        snprintf(name, sizeof name, "%s  %s", device->name, device->gpu);
        print_device(name, machine->families[device->family].name, device, "");
    }
    printf("\n");
    print_link_head("LINK");
    for (uint32_t i = 0; i < machine->link_count; i++) {
        const struct machine_link *link = &machine->links[i];
        char name[64];

        snprintf(name, sizeof name, "%s-%s", machine->nodes[link->from].name,
                 machine->nodes[link->to].name);
        print_link(name, link);
    }
    print_kernel_tables(machine);
    return print_constants(machine);
}

static int run_show(const struct machine_options *options)
{
    struct error err = {0};
    struct machine *machine = open_machine(options, &err);
    int status = CLI_OK;
    char *text;

    if (machine == NULL)
        return cli_fail(&err);
    if (options->json) {
        text = machine_to_json(machine, &err);
        if (text != NULL)
            printf("%s\n", text);
        else
            status = cli_fail(&err);
        free(text);
    } else {
        status = print_text(machine);
    }
    machine_free(machine);
    return status;
}

/* --- the tree --- */

/* Which link each node hangs on, on its way from the host; -1 for the host and for
 * nodes without a way. */
static void find_parents(const struct machine *machine, int parent_link[MACHINE_NODES_MAX])
{
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];

    for (uint32_t i = 0; i < machine->node_count; i++) {
        int count = machine_route(machine, 0, i, links, down);

        parent_link[i] = count > 0 ? (int)links[count - 1] : -1;
    }
}

static bool hangs_on(const struct machine *machine, const int parent_link[MACHINE_NODES_MAX],
                     uint32_t node, uint32_t parent)
{
    return parent_link[node] >= 0 && machine->links[parent_link[node]].from == parent;
}

static void print_link_text(const struct machine_link *link)
{
    if (link->class_name[0] != '\0')
        printf("%s, ", link->class_name);
    printf("%.5g GB/s down, %.5g up", link->down_gbs, link->up_gbs);
}

static void print_branches(const struct machine *machine, const int parent_link[MACHINE_NODES_MAX],
                           uint32_t parent, const char *indent)
{
    uint32_t last = 0;

    for (uint32_t i = 1; i < machine->node_count; i++)
        if (hangs_on(machine, parent_link, i, parent))
            last = i;
    for (uint32_t i = 1; i < machine->node_count; i++) {
        const struct machine_node *node = &machine->nodes[i];
        const struct machine_device *device = &machine->devices[node->device];
        char deeper[4 * MACHINE_NODES_MAX + 1];

        if (!hangs_on(machine, parent_link, i, parent))
            continue;
        printf("%s%s %s  (", indent, i == last ? "`--" : "|--", node->name);
        print_link_text(&machine->links[parent_link[i]]);
        printf(")");
        if (node->kind == MACHINE_NODE_DEVICE)
            printf("  %s, %.0f MiB at %.5g GB/s", device->gpu[0] != '\0' ? device->gpu : "GPU",
                   memory_mib(device), device->memory_gbs);
        printf("\n");
        snprintf(deeper, sizeof deeper, "%s%s", indent, i == last ? "    " : "|   ");
        print_branches(machine, parent_link, i, deeper);
    }
}

static int run_tree(const struct machine_options *options)
{
    struct error err = {0};
    struct machine *machine = open_machine(options, &err);
    int parent_link[MACHINE_NODES_MAX] = {0};

    if (machine == NULL)
        return cli_fail(&err);
    print_name(machine);
    printf("host  (");
    print_host(&machine->host);
    printf(")\n");
    find_parents(machine, parent_link);
    print_branches(machine, parent_link, 0, "");
    for (uint32_t i = 0; i < machine->link_count; i++) {
        const struct machine_link *link = &machine->links[i];

        if (parent_link[link->to] == (int)i)
            continue;
        printf("%s -- %s  (", machine->nodes[link->from].name, machine->nodes[link->to].name);
        print_link_text(link);
        printf(")\n");
    }
    machine_free(machine);
    return CLI_OK;
}

/* --- the call --- */

static int parse_options(int argc, char **argv, struct machine_options *options)
{
    static const struct option long_options[] = {{"gpu", required_argument, NULL, 'g'},
                                                 {"variant", required_argument, NULL, 'v'},
                                                 {"output", required_argument, NULL, 'o'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    int option;

    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":g:v:o:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'g':
            if (options->gpu_count == MACHINE_DEVICES_MAX)
                return cli_wrong_call("machine", "more than %d times --gpu", MACHINE_DEVICES_MAX);
            options->gpus[options->gpu_count++] = optarg;
            break;
        case 'v':
            options->variant = optarg;
            break;
        case 'o':
            if (strcmp(optarg, "json") != 0 && strcmp(optarg, "text") != 0)
                return cli_wrong_call("machine", "cannot print \"%s\"; text or json", optarg);
            options->json = strcmp(optarg, "json") == 0;
            options->output_given = true;
            break;
        case 'h':
            options->help = true;
            break;
        case ':':
            return cli_wrong_call("machine", "%s needs a value", argv[optind - 1]);
        default:
            return cli_wrong_call("machine", "unknown option %s", argv[optind - 1]);
        }
    }
    options->action = optind < argc ? argv[optind++] : "list";
    options->operand = optind < argc ? argv[optind++] : NULL;
    if (optind < argc)
        return cli_wrong_call("machine", "\"%s\" is one word too many", argv[optind]);
    return CLI_OK;
}

/* What show and tree have in common. */
static int check_machine_options(const struct machine_options *options)
{
    if (options->operand != NULL && options->gpu_count > 0)
        return cli_wrong_call("machine", "%s takes a profile or --gpu, not both", options->action);
    if (options->variant != NULL && options->operand == NULL)
        return cli_wrong_call("machine", "--variant belongs to a profile%s",
                              options->gpu_count > 0 ? ", not to --gpu" : "");
    return CLI_OK;
}

int cli_machine(int argc, char **argv)
{
    struct machine_options options = {0};
    int status = parse_options(argc, argv, &options);

    if (status != CLI_OK)
        return status;
    if (options.help) {
        fputs(help_text, stdout);
        return CLI_OK;
    }
    if (strcmp(options.action, "list") == 0)
        return run_list(&options);
    if (strcmp(options.action, "show") != 0 && strcmp(options.action, "tree") != 0)
        return cli_wrong_call("machine", "unknown action \"%s\"; list, show or tree",
                              options.action);
    status = check_machine_options(&options);
    if (status != CLI_OK)
        return status;
    if (strcmp(options.action, "show") == 0)
        return run_show(&options);
    if (options.output_given)
        return cli_wrong_call("machine", "-o belongs to show");
    return run_tree(&options);
}
