/* NVML comes with the driver, so it is opened at run time: the program starts on
 * machines without one. Its header comes with the CUDA toolkit, which a machine that
 * runs llama.cpp may not have; what is needed of its stable interface is declared here. */
#include "sim/machine_local.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVML API reference, "Device Queries": nvmlReturn_t, of which 0 is success;
 * nvmlDevice_t; nvmlMemory_t. */
typedef int nvml_status;
typedef struct nvml_device_opaque *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

struct nvml {
    void *library;
    nvml_status (*init)(void);
    nvml_status (*shutdown)(void);
    nvml_status (*count)(unsigned *);
    nvml_status (*handle)(unsigned, nvml_device *);
    nvml_status (*name)(nvml_device, char *, unsigned);
    nvml_status (*uuid)(nvml_device, char *, unsigned);
    nvml_status (*memory)(nvml_device, struct nvml_memory *);
    nvml_status (*generation)(nvml_device, unsigned *);
    nvml_status (*width)(nvml_device, unsigned *);
};

/* dlsym gives a data pointer; POSIX lets it stand for a function. */
static int load_symbol(const struct nvml *nvml, const char *name, void *function)
{
    void *symbol = dlsym(nvml->library, name);

    if (symbol == NULL)
        return -1;
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

static int open_nvml(struct nvml *nvml)
{
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL)
        return -1;
    if (load_symbol(nvml, "nvmlInit_v2", &nvml->init) != 0 ||
        load_symbol(nvml, "nvmlShutdown", &nvml->shutdown) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetCount_v2", &nvml->count) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetName", &nvml->name) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetUUID", &nvml->uuid) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", &nvml->generation) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetMaxPcieLinkWidth", &nvml->width) != 0 || nvml->init() != 0) {
        dlclose(nvml->library);
        return -1;
    }
    return 0;
}

struct found {
    char spec[160], uuid[96];
    uint64_t memory_bytes;
    double fp32_tflops;
};

struct found_list {
    struct found items[MACHINE_DEVICES_MAX];
    uint32_t count;
};

/* "NVIDIA GeForce RTX 4070" is "GeForce RTX 4070" in the catalogue. */
static int read_device(const struct nvml *nvml, unsigned index, struct found *found)
{
    char name[96] = "";
    const char *known = name;
    unsigned generation = 0, width = 0;
    struct nvml_memory memory;
    nvml_device device;

    if (nvml->handle(index, &device) != 0 || nvml->name(device, name, sizeof name) != 0 ||
        nvml->memory(device, &memory) != 0 ||
        nvml->uuid(device, found->uuid, sizeof found->uuid) != 0)
        return -1;
    if (strncmp(name, "NVIDIA ", 7) == 0)
        known = name + 7;
    found->memory_bytes = memory.total;
    if (nvml->generation(device, &generation) == 0 && nvml->width(device, &width) == 0 && width > 0)
        snprintf(found->spec, sizeof found->spec, "%s@gen%ux%u", known, generation, width);
    else
        snprintf(found->spec, sizeof found->spec, "%s", known);
    return 0;
}

static struct machine *compose(const struct found_list *list, struct error *err)
{
    const char *specs[MACHINE_DEVICES_MAX];
    struct machine *machine;

    for (uint32_t i = 0; i < list->count; i++)
        specs[i] = list->items[i].spec;
    machine = machine_compose(specs, list->count, err);
    for (uint32_t i = 0; machine != NULL && i < list->count; i++)
        machine->devices[i].memory_bytes = list->items[i].memory_bytes;
    return machine;
}

/* NVML lists by PCI bus; CUDA puts the fastest first unless CUDA_DEVICE_ORDER says
 * otherwise. Equal ones keep their order. */
static int order_as_cuda(struct found_list *list, struct error *err)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    struct machine *machine;

    if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0)
        return 0;
    machine = compose(list, err);
    if (machine == NULL)
        return -1;
    for (uint32_t i = 0; i < list->count; i++)
        list->items[i].fp32_tflops = machine->devices[i].fp32_tflops;
    machine_free(machine);
    for (uint32_t i = 1; i < list->count; i++) {
        for (uint32_t j = i; j > 0; j--) {
            struct found slower = list->items[j - 1];

            if (slower.fp32_tflops >= list->items[j].fp32_tflops)
                break;
            list->items[j - 1] = list->items[j];
            list->items[j] = slower;
        }
    }
    return 0;
}

/* An entry of CUDA_VISIBLE_DEVICES: a number, or the beginning of a UUID. */
static int find_visible(const struct found_list *list, const char *entry, size_t length)
{
    char *end;
    unsigned long number = strtoul(entry, &end, 10);

    if (end == entry + length && length > 0 && entry[0] != '-')
        return number < list->count ? (int)number : -1;
    for (uint32_t i = 0; i < list->count && length >= 4; i++)
        if (strncmp(list->items[i].uuid, entry, length) == 0)
            return (int)i;
    return -1;
}

/* The first entry that is no device ends the list: CUDA Programming Guide, "CUDA
 * Environment Variables". */
static void keep_visible(struct found_list *list)
{
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    struct found_list kept = {.count = 0};

    if (entry == NULL)
        return;
    while (kept.count < MACHINE_DEVICES_MAX) {
        size_t length = strcspn(entry, ",");
        int index = find_visible(list, entry, length);

        if (index < 0)
            break;
        kept.items[kept.count++] = list->items[index];
        if (entry[length] == '\0')
            break;
        entry += length + 1;
    }
    *list = kept;
}

static struct machine *find_machine(const struct nvml *nvml, struct error *err)
{
    struct found_list list = {.count = 0};
    unsigned count = 0;

    if (nvml->count(&count) != 0)
        count = 0;
    for (unsigned i = 0; i < count && list.count < MACHINE_DEVICES_MAX; i++)
        if (read_device(nvml, i, &list.items[list.count]) == 0)
            list.count++;
    if (list.count > 0 && order_as_cuda(&list, err) != 0)
        return NULL;
    keep_visible(&list);
    if (list.count == 0) {
        error_set(err, ERROR_UNSUPPORTED, "no GPU is visible here");
        return NULL;
    }
    return compose(&list, err);
}

struct machine *machine_local(struct error *err)
{
    struct nvml nvml;
    struct machine *machine;

    if (open_nvml(&nvml) != 0) {
        error_set(err, ERROR_UNSUPPORTED, "there is no NVIDIA driver here");
        return NULL;
    }
    machine = find_machine(&nvml, err);
    nvml.shutdown();
    dlclose(nvml.library);
    return machine;
}
