/* Machines made from the catalogue: each card on its own link to the host. Nothing of
 * such a machine is fitted; host and collective are the catalogue's defaults. */
#include "sim/machine_private.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2x RTX 3090@gen4x8" in its parts. */
struct device_request {
    size_t count;
    char gpu[64];
    char link[32]; /* "" for the card's own */
};

static void trim(char *text)
{
    size_t length = strlen(text), start = strspn(text, " ");

    while (length > start && text[length - 1] == ' ')
        length--;
    memmove(text, text + start, length - start);
    text[length - start] = '\0';
}

static int parse_request(const char *text, struct device_request *request, struct error *err)
{
    const char *gpu = text + strspn(text, " "), *at;
    size_t digits = strspn(gpu, "0123456789");

    request->count = 1;
    if (digits > 0 && digits < 4 && tolower((unsigned char)gpu[digits]) == 'x') {
        request->count = strtoul(gpu, NULL, 10);
        gpu += digits + 1;
    }
    at = strchr(gpu, '@');
    if (at == NULL)
        at = gpu + strlen(gpu);
    if (request->count < 1 || request->count > MACHINE_DEVICES_MAX)
        return error_set(err, ERROR_USAGE, "\"%.60s\": %zu devices are not a machine; 1 to %d are",
                         text, request->count, MACHINE_DEVICES_MAX);
    if ((size_t)(at - gpu) >= sizeof request->gpu || strlen(at) > sizeof request->link)
        return error_set(err, ERROR_USAGE,
                         "\"%.60s...\" is too long; a GPU and a link such as \"RTX 4070@gen4x16\" "
                         "is what is needed",
                         text);
    snprintf(request->gpu, sizeof request->gpu, "%.*s", (int)(at - gpu), gpu);
    snprintf(request->link, sizeof request->link, "%s", *at == '@' ? at + 1 : "");
    trim(request->gpu);
    trim(request->link);
    if (request->gpu[0] == '\0' || (*at == '@' && request->link[0] == '\0'))
        return error_set(err, ERROR_USAGE,
                         "\"%s\" names no %s; a GPU and a link such as \"RTX 4070@gen4x16\" is "
                         "what is needed",
                         text, request->gpu[0] == '\0' ? "GPU" : "link");
    return 0;
}

/* Index of the link class, checked against what the card can use. */
static int find_link(const struct machine_catalogue *catalogue, const char *text,
                     const struct machine_gpu *gpu, const char *name, struct error *err)
{
    const char *wanted = name[0] != '\0' ? name : gpu->link_class;
    const struct machine_link_class *class;
    char why[300];
    int index = machine_catalogue_find_link(catalogue, wanted, why, sizeof why);

    if (index < 0)
        return error_set(err, ERROR_USAGE, "\"%.60s\": \"%s\" %s", text, wanted, why);
    class = &catalogue->links[index];
    if (strcmp(class->link.class_name, gpu->link_class) == 0)
        return index;
    if (class->pcie_gen == 0 || gpu->pcie_gen == 0)
        return error_set(err, ERROR_USAGE, "\"%.60s\": %s does not join %s to the host; %s does",
                         text, class->link.class_name, gpu->device.gpu, gpu->link_class);
    if (class->pcie_gen > gpu->pcie_gen || class->pcie_lanes > gpu->pcie_lanes)
        return error_set(err, ERROR_USAGE, "\"%.60s\": %s is more than %s can use; at most %s is",
                         text, class->link.class_name, gpu->device.gpu, gpu->link_class);
    return index;
}

static int add_devices(struct machine_draft *draft, const char *text, struct error *err)
{
    const struct machine_catalogue *catalogue = draft->catalogue;
    struct machine *machine = draft->machine;
    struct device_request request = {0};
    char why[300];
    int gpu, class;

    if (parse_request(text, &request, err) != 0)
        return -1;
    gpu = machine_catalogue_find_gpu(catalogue, request.gpu, why, sizeof why);
    if (gpu < 0)
        return error_set(err, ERROR_USAGE, "\"%s\" %s", request.gpu, why);
    class = find_link(catalogue, text, &catalogue->gpus[gpu], request.link, err);
    if (class < 0)
        return -1;
    if (machine->device_count + request.count > MACHINE_DEVICES_MAX)
        return error_set(err, ERROR_USAGE, "\"%s\" makes %zu devices; at most %d are possible",
                         text, machine->device_count + request.count, MACHINE_DEVICES_MAX);
    for (size_t i = 0; i < request.count; i++) {
        struct machine_device *device = &machine->devices[machine->device_count];
        struct machine_node *node = &machine->nodes[machine->node_count];
        struct machine_link *link = &machine->links[machine->link_count++];

        *device = catalogue->gpus[gpu].device;
        device->node = machine->node_count++;
        snprintf(device->name, sizeof device->name, "CUDA%u", machine->device_count);
        node->kind = MACHINE_NODE_DEVICE;
        node->device = machine->device_count++;
        memcpy(node->name, device->name, sizeof device->name);
        memcpy(link->class_name, catalogue->links[class].link.class_name, sizeof link->class_name);
        link->from = 0;
        link->to = device->node;
    }
    return 0;
}

/* "RTX 4070@gen4x16 + RTX 3060@gen3x4", cut where it is too long. */
static void name_machine(struct machine *machine, const char *const *gpus, size_t count)
{
    size_t used = 0;

    for (size_t i = 0; i < count && used + 1 < sizeof machine->name; i++)
        used += (size_t)snprintf(machine->name + used, sizeof machine->name - used, "%s%s",
                                 i > 0 ? " + " : "", gpus[i]);
    snprintf(machine->about, sizeof machine->about,
             "made from the catalogue; vendor figures and start values, nothing fitted");
    snprintf(machine->source, sizeof machine->source, "<catalogue>");
}

struct machine *machine_compose(const char *const *gpus, size_t count, struct error *err)
{
    struct machine_draft draft = {.catalogue = machine_catalogue(err)};

    if (draft.catalogue == NULL)
        return NULL;
    if (count == 0) {
        error_set(err, ERROR_USAGE, "no GPU named; one such as \"RTX 4070@gen4x16\" is needed");
        return NULL;
    }
    draft.machine = machine_new(draft.catalogue, err);
    if (draft.machine == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (add_devices(&draft, gpus[i], err) != 0)
            goto free_machine;
    machine_draft_complete_links(&draft);
    name_machine(draft.machine, gpus, count);
    return draft.machine;

free_machine:
    machine_free(draft.machine);
    return NULL;
}
