/* The catalogue of GPUs, link classes and families that travels inside the program
 * (sim/data), and machines composed from it. It is read once, on first use. */
#include "sim/machine_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "sim/embedded.h"

static struct machine_catalogue the_catalogue;
static struct error catalogue_error;
static once_flag catalogue_once = ONCE_FLAG_INIT;

/* --- reading --- */

static int read_rate(const struct json_cursor *gpu, const char *key, double *rate,
                     struct error *err)
{
    const struct json_number_rule rule = {"a rate", 0, 1e6, true, false};

    return json_input_find_number(gpu, key, &rule, rate, err);
}

/* Rates of tensor cores where there are any, of ordinary units elsewhere. Without an
 * int8 figure, dp4a takes four products a lane from compute capability 6.1 on. */
static int read_gpu_rates(const struct json_cursor *gpu, struct machine_device *device,
                          struct error *err)
{
    int fp16 = read_rate(gpu, "fp16_tensor_fp32_sum_tflops", &device->fp16_tflops, err);
    int int8 = read_rate(gpu, "int8_tensor_tops", &device->int8_tops, err);

    if (fp16 < 0 || int8 < 0 || read_rate(gpu, "fp32_tflops", &device->fp32_tflops, err) < 0)
        return -1;
    device->has_fp16_tensor_cores = fp16 == 1;
    device->has_int8_tensor_cores = int8 == 1;
    if (fp16 == 0)
        fp16 = read_rate(gpu, "fp16_tflops", &device->fp16_tflops, err);
    if (int8 == 0)
        int8 = read_rate(gpu, "int8_dp4a_tops", &device->int8_tops, err);
    if (fp16 < 0 || int8 < 0)
        return -1;
    if (fp16 == 0)
        device->fp16_tflops = device->fp32_tflops;
    if (int8 == 0)
        device->int8_tops = device->fp32_tflops * (device->compute_capability >= 61 ? 4 : 1);
    return 0;
}

/* "8.9" is 89; what is not of this form ("gfx942") is 0. */
static int compute_capability_of(const char *text)
{
    int major, minor, length = 0;

    if (sscanf(text, "%2d.%1d%n", &major, &minor, &length) != 2 || text[length] != '\0')
        return 0;
    return major * 10 + minor;
}

static int find_family(const struct machine_catalogue *catalogue, const char *name)
{
    for (uint32_t i = 0; i < catalogue->family_count; i++)
        if (strcmp(catalogue->families[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* Share of the memory's bandwidth that is left to programs where ECC bits are kept in the
 * memory itself, which shows in its size: 15/16 of the chips'. GDDR5: 0.8 is NVIDIA's
 * figure (CUDA C++ Best Practices Guide, "Theoretical Bandwidth Calculation"). Newer cards
 * move the bits along, 1/16 of the traffic. HBM has places of its own for them. */
static double ecc_bandwidth_ratio(const char *memory_type, double memory_mib, double reported_mib)
{
    if (strncmp(memory_type, "GDDR", 4) != 0 || reported_mib > 0.945 * memory_mib)
        return 1;
    return strcmp(memory_type, "GDDR5") == 0 ? 0.8 : 15.0 / 16;
}

static int read_gpu(struct machine_catalogue *catalogue, const struct json_cursor *row,
                    struct machine_gpu *gpu, struct error *err)
{
    struct machine_device *device = &gpu->device;
    const struct json_number_rule positive = {"a figure", 0, 1e7, true, false};
    const struct json_integer_rule count = {"a count", 1, 1 << 24};
    const char *family, *capability, *memory_type;
    int64_t mib, multiprocessors, gen = 0, lanes = 0;
    double clock_mhz, memory_gb, l2_mb = 0;
    int index;

    if (machine_read_text(row, "name", "a name", device->gpu, sizeof device->gpu, err) < 0 ||
        json_input_string(row, "family", "a family", &family, err) != 0 ||
        json_input_string(row, "compute_capability", "a version", &capability, err) != 0 ||
        json_input_integer(row, "memory_reported_mib", &count, &mib, err) != 0 ||
        json_input_string(row, "memory_type", "a memory type", &memory_type, err) != 0 ||
        json_input_number(row, "memory_gb", &positive, &memory_gb, err) != 0 ||
        json_input_integer(row, "sm_count", &count, &multiprocessors, err) != 0 ||
        json_input_number(row, "memory_gbs", &positive, &device->memory_gbs, err) != 0 ||
        json_input_number(row, "clock_mhz", &positive, &clock_mhz, err) != 0 ||
        json_input_find_number(row, "l2_mb", &positive, &l2_mb, err) < 0 ||
        json_input_find_integer(row, "pcie_gen", &count, &gen, err) < 0 ||
        json_input_find_integer(row, "pcie_lanes", &count, &lanes, err) < 0)
        return -1;
    index = find_family(catalogue, family);
    if (index < 0)
        return json_input_refuse(row, err, "\"%s\" is not a family of families.json", family);
    device->family = (uint32_t)index;
    device->compute_capability = compute_capability_of(capability);
    device->memory_gbs *= ecc_bandwidth_ratio(memory_type, memory_gb * 1024, (double)mib);
    device->memory_bytes = (uint64_t)mib * MACHINE_MIB_BYTES;
    device->l2_bytes = (uint64_t)(l2_mb * (double)MACHINE_MIB_BYTES); /* vendors' MB are MiB */
    device->sm_count = (uint32_t)multiprocessors;
    device->clock_ghz = clock_mhz * 1e-3;
    gpu->pcie_gen = (int)gen;
    gpu->pcie_lanes = (int)lanes;
    if (gen > 0)
        snprintf(gpu->link_class, sizeof gpu->link_class, "PCIe %d.0 x%d", (int)gen, (int)lanes);
    else
        snprintf(gpu->link_class, sizeof gpu->link_class, "NVLink-C2C");
    return read_gpu_rates(row, device, err);
}

static int read_gpus(struct machine_catalogue *catalogue, const struct json_cursor *document,
                     struct error *err)
{
    struct json_cursor rows;

    if (json_input_array(document, "gpus", &rows, err) != 0)
        return -1;
    catalogue->gpu_count = json_array_size(rows.value);
    catalogue->gpus = calloc(catalogue->gpu_count + 1, sizeof *catalogue->gpus);
    if (catalogue->gpus == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu GPUs", catalogue->gpu_count);
    for (size_t i = 0; i < catalogue->gpu_count; i++) {
        struct json_cursor row = json_input_element(&rows, i);

        if (read_gpu(catalogue, &row, &catalogue->gpus[i], err) != 0)
            return -1;
    }
    return 0;
}

static int read_link_class(const struct machine_catalogue *catalogue, const struct json_cursor *row,
                           struct machine_link_class *class, struct error *err)
{
    const struct json_number_rule bandwidth = {"a bandwidth in GB/s", 0, 1e6, true, false};
    const struct json_number_rule time = {"a time in microseconds", 0, 1e6, false, false};
    struct machine_link *link = &class->link;
    double latency_us;
    int pageable, duplex;

    if (machine_read_text(row, "name", "a name", link->class_name, sizeof link->class_name, err) <
            0 ||
        machine_read_text(row, "short_name", "a name", class->short_name, sizeof class->short_name,
                          err) < 0 ||
        json_input_number(row, "pinned_gbs", &bandwidth, &link->down_gbs, err) != 0 ||
        json_input_number(row, "peak_gbs", &bandwidth, &class->peak_gbs, err) != 0 ||
        json_input_number(row, "latency_us", &time, &latency_us, err) != 0)
        return -1;
    link->packet_bytes = catalogue->packet.packet_bytes;
    link->packet_overhead_bytes = catalogue->packet.packet_overhead_bytes;
    link->row_s = catalogue->packet.row_s;
    link->up_gbs = link->pageable_gbs = link->down_gbs;
    link->duplex_gbs = machine_duplex_gbs(link->down_gbs, link->up_gbs);
    pageable = json_input_find_number(row, "pageable_gbs", &bandwidth, &link->pageable_gbs, err);
    duplex = json_input_find_number(row, "duplex_gbs", &bandwidth, &link->duplex_gbs, err);
    if (pageable < 0 || duplex < 0)
        return -1;
    link->latency_s = latency_us * 1e-6;
    if (sscanf(class->short_name, "gen%2dx%2d", &class->pcie_gen, &class->pcie_lanes) != 2)
        class->pcie_gen = class->pcie_lanes = 0;
    return json_input_refuse_unknown_keys(row,
                                          MACHINE_KEYS("name", "short_name", "pinned_gbs",
                                                       "pageable_gbs", "peak_gbs", "duplex_gbs",
                                                       "latency_us", "basis"),
                                          err);
}

static int read_defaults(struct machine_catalogue *catalogue, const struct json_cursor *document,
                         struct error *err)
{
    struct machine_draft draft = {.catalogue = catalogue};
    struct json_cursor defaults, host, collective, memory, packet;
    struct machine *machine = calloc(1, sizeof *machine);
    uint32_t given = 0;
    int result = -1;

    if (machine == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the catalogue");
    draft.machine = machine;
    if (json_input_object(document, "defaults", &defaults, err) != 0 ||
        json_input_object(&defaults, "host", &host, err) != 0 ||
        json_input_object(&defaults, "collective", &collective, err) != 0 ||
        json_input_object(&defaults, "memory", &memory, err) != 0 ||
        json_input_object(&defaults, "packet", &packet, err) != 0)
        goto free_machine;
    if (machine_read_host(&draft, &host, false, err) != 0 ||
        machine_read_collective(&draft, &collective, err) != 0 ||
        machine_read_memory(&draft, &memory, err) != 0 ||
        machine_fields_read(&packet, machine_link_fields, &catalogue->packet, &given, err) != 0)
        goto free_machine;
    catalogue->host = machine->host;
    catalogue->collective = machine->collective;
    catalogue->context_bytes = machine->context_bytes;
    catalogue->collective_bytes = machine->collective_bytes;
    result = 0;

free_machine:
    free(machine);
    return result;
}

static int read_links(struct machine_catalogue *catalogue, const struct json_cursor *document,
                      struct error *err)
{
    struct json_cursor rows;

    if (read_defaults(catalogue, document, err) != 0 ||
        json_input_array(document, "classes", &rows, err) != 0)
        return -1;
    catalogue->link_count = json_array_size(rows.value);
    catalogue->links = calloc(catalogue->link_count + 1, sizeof *catalogue->links);
    if (catalogue->links == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu links", catalogue->link_count);
    for (size_t i = 0; i < catalogue->link_count; i++) {
        struct json_cursor row = json_input_element(&rows, i);

        if (read_link_class(catalogue, &row, &catalogue->links[i], err) != 0)
            return -1;
    }
    return 0;
}

static int read_families(struct machine_catalogue *catalogue, const struct json_cursor *document,
                         struct error *err)
{
    struct json_cursor families;
    const char *name;
    json_t *value;

    if (json_input_object(document, "families", &families, err) != 0)
        return -1;
    json_object_foreach(families.value, name, value)
    {
        struct machine_family *family = &catalogue->families[catalogue->family_count];
        struct json_cursor member = json_input_member(&families, name);
        uint32_t given = 0;

        if (catalogue->family_count == MACHINE_FAMILIES_MAX || strlen(name) >= sizeof family->name)
            return json_input_refuse(&member, err, "one family too many, or too long a name");
        memcpy(family->name, name, strlen(name));
        if (machine_fields_refuse_unknown(&member, machine_family_fields, MACHINE_KEYS("basis"),
                                          err) != 0 ||
            machine_fields_read(&member, machine_family_fields, family, &given, err) != 0 ||
            machine_fields_require(&member, machine_family_fields, given, err) != 0)
            return -1;
        catalogue->family_count++;
    }
    return 0;
}

static int read_document(const char *text, size_t size, const char *source, const char *version_key,
                         int (*read)(struct machine_catalogue *, const struct json_cursor *,
                                     struct error *),
                         struct error *err)
{
    const struct json_integer_rule version_rule = {"a version that this program reads", 1, 1};
    struct json_input *input = json_input_load_text(text, size, source, err);
    struct json_cursor root;
    int64_t version;
    int result;

    if (input == NULL)
        return -1;
    root = json_input_root(input);
    result = json_input_integer(&root, version_key, &version_rule, &version, err);
    if (result == 0)
        result = read(&the_catalogue, &root, err);
    json_input_free(input);
    return result;
}

static void load_catalogue(void)
{
    struct error *err = &catalogue_error;

    if (read_document(embedded_families_json, embedded_families_json_size, "families.json",
                      "lopside_families", read_families, err) == 0 &&
        read_document(embedded_links_json, embedded_links_json_size, "links.json", "lopside_links",
                      read_links, err) == 0)
        read_document(embedded_gpus_json, embedded_gpus_json_size, "gpus.json", "lopside_gpus",
                      read_gpus, err);
}

const struct machine_catalogue *machine_catalogue(struct error *err)
{
    call_once(&catalogue_once, load_catalogue);
    if (catalogue_error.code == ERROR_NONE)
        return &the_catalogue;
    if (err != NULL && err->code == ERROR_NONE)
        *err = catalogue_error;
    return NULL;
}

/* --- listing --- */

const struct machine_device *machine_catalogue_gpu(size_t index)
{
    const struct machine_catalogue *catalogue = machine_catalogue(NULL);

    return catalogue != NULL && index < catalogue->gpu_count ? &catalogue->gpus[index].device
                                                             : NULL;
}

const char *machine_catalogue_gpu_link(size_t index)
{
    const struct machine_catalogue *catalogue = machine_catalogue(NULL);

    return catalogue != NULL && index < catalogue->gpu_count ? catalogue->gpus[index].link_class
                                                             : NULL;
}

const struct machine_link *machine_catalogue_link(size_t index)
{
    const struct machine_catalogue *catalogue = machine_catalogue(NULL);

    return catalogue != NULL && index < catalogue->link_count ? &catalogue->links[index].link
                                                              : NULL;
}

const struct machine_family *machine_catalogue_family(size_t index)
{
    const struct machine_catalogue *catalogue = machine_catalogue(NULL);

    return catalogue != NULL && index < catalogue->family_count ? &catalogue->families[index]
                                                                : NULL;
}
