/* NVML comes with the driver, so it is opened at run time: the program starts
 * on machines without one. */
#include "sim/machine_local.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifndef HAVE_NVML_H

struct machine *machine_local(struct error *err)
{
    error_set(err, ERROR_UNSUPPORTED, "this build cannot look for GPUs (no nvml.h)");
    return NULL;
}

#else

#include <dlfcn.h>
#include <nvml.h>
#include <stdio.h>
#include <string.h>

struct nvml {
    void *library;
    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    nvmlReturn_t (*count)(unsigned *);
    nvmlReturn_t (*handle)(unsigned, nvmlDevice_t *);
    nvmlReturn_t (*name)(nvmlDevice_t, char *, unsigned);
    nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlReturn_t (*generation)(nvmlDevice_t, unsigned *);
    nvmlReturn_t (*width)(nvmlDevice_t, unsigned *);
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
        load_symbol(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", &nvml->generation) != 0 ||
        load_symbol(nvml, "nvmlDeviceGetMaxPcieLinkWidth", &nvml->width) != 0 ||
        nvml->init() != NVML_SUCCESS) {
        dlclose(nvml->library);
        return -1;
    }
    return 0;
}

struct found {
    char spec[128];
    uint64_t memory_bytes;
};

/* "NVIDIA GeForce RTX 4070" is "GeForce RTX 4070" in the catalogue. */
static int read_device(const struct nvml *nvml, unsigned index, struct found *found)
{
    char name[96] = "";
    unsigned generation = 0, width = 0;
    nvmlMemory_t memory;
    nvmlDevice_t device;

    if (nvml->handle(index, &device) != NVML_SUCCESS ||
        nvml->name(device, name, sizeof name) != NVML_SUCCESS ||
        nvml->memory(device, &memory) != NVML_SUCCESS)
        return -1;
    found->memory_bytes = memory.total;
    if (nvml->generation(device, &generation) == NVML_SUCCESS &&
        nvml->width(device, &width) == NVML_SUCCESS && width > 0)
        snprintf(found->spec, sizeof found->spec, "%s@gen%ux%u",
                 strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name, generation, width);
    else
        snprintf(found->spec, sizeof found->spec, "%s",
                 strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name);
    return 0;
}

static struct machine *compose(const struct nvml *nvml, struct error *err)
{
    struct found found[MACHINE_DEVICES_MAX] = {{"", 0}};
    const char *specs[MACHINE_DEVICES_MAX];
    unsigned count = 0, used = 0;
    struct machine *machine;

    if (nvml->count(&count) != NVML_SUCCESS)
        count = 0;
    for (unsigned i = 0; i < count && used < MACHINE_DEVICES_MAX; i++) {
        if (read_device(nvml, i, &found[used]) != 0)
            continue;
        specs[used] = found[used].spec;
        used++;
    }
    if (used == 0) {
        error_set(err, ERROR_UNSUPPORTED, "NVML lists no GPU");
        return NULL;
    }
    machine = machine_compose(specs, used, err);
    for (unsigned i = 0; machine != NULL && i < used; i++)
        machine->devices[i].memory_bytes = found[i].memory_bytes;
    return machine;
}

struct machine *machine_local(struct error *err)
{
    struct nvml nvml;
    struct machine *machine;

    if (open_nvml(&nvml) != 0) {
        error_set(err, ERROR_UNSUPPORTED, "there is no NVIDIA driver here");
        return NULL;
    }
    machine = compose(&nvml, err);
    nvml.shutdown();
    dlclose(nvml.library);
    return machine;
}

#endif
