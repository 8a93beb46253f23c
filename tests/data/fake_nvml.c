/* Stands in for libnvidia-ml.so.1: an RTX 3060 in the first slot, an RTX 4070 in the second. */
#include <stdio.h>
#include <string.h>

struct nvml_memory {
    unsigned long long total, free, used;
};

static const struct {
    const char *name, *uuid;
    unsigned long long memory_mib;
    unsigned generation, width;
} gpus[] = {
    {"NVIDIA GeForce RTX 3060", "GPU-aaaa0000", 12288, 3, 4},
    {"NVIDIA GeForce RTX 4070", "GPU-bbbb0000", 12282, 4, 16},
};

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)&gpus[index];
    return index < 2 ? 0 : 2;
}

static unsigned index_of(void *device)
{
    return device == (void *)&gpus[1];
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    snprintf(name, size, "%s", gpus[index_of(device)].name);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    snprintf(uuid, size, "%s", gpus[index_of(device)].uuid);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->total = gpus[index_of(device)].memory_mib << 20;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
    *generation = gpus[index_of(device)].generation;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width)
{
    *width = gpus[index_of(device)].width;
    return 0;
}
