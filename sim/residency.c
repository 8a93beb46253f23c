#include "sim/residency.h"

#include <stdlib.h>
#include <string.h>

/* Devices whose links differ by less than this serve as one group: in turn. */
static const double same_speed_ratio = 0.15;

static uint32_t all_devices(const struct placement *placement)
{
    return (uint32_t)((1u << placement->device_count) - 1);
}

static double host_bandwidth_gbs(const struct placement *placement, uint32_t d)
{
    const struct machine *machine = placement->machine;
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];
    int count =
        machine_route(machine, 0, machine->devices[placement->devices[d]].node, links, down);
    double least = 0;

    for (int i = 0; i < count; i++) {
        const struct machine_link *link = &machine->links[links[i]];
        double gbs = down[i] ? link->down_gbs : link->up_gbs;

        least = i == 0 || gbs < least ? gbs : least;
    }
    return least;
}

/* The next layer of device `d` that owns a cache and is not resident yet, or -1. */
static int next_layer_of(const struct placement *placement, uint32_t d)
{
    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++)
        if (model_layer_has_kv(&placement->model->layers[layer]) &&
            placement->owner[layer] == (int)d && placement->kv_resident[layer] == 0)
            return (int)layer;
    return -1;
}

/* Spends the budget on the layers of a group of devices, one layer of each in turn. */
static void spend_in_turn(struct placement *placement, const uint32_t *group, uint32_t group_size,
                          int32_t *budget)
{
    bool found = true;

    while (*budget > 0 && found) {
        found = false;
        for (uint32_t i = 0; i<group_size && * budget> 0; i++) {
            int layer = next_layer_of(placement, group[i]);

            if (layer < 0)
                continue;
            placement->kv_resident[layer] = all_devices(placement);
            (*budget)--;
            found = true;
        }
    }
}

static void spend_slowest_first(struct placement *placement, int32_t *budget)
{
    uint32_t order[MACHINE_DEVICES_MAX];
    double gbs[MACHINE_DEVICES_MAX];
    uint32_t count = placement->device_count;

    for (uint32_t d = 0; d < count; d++) {
        uint32_t at = d;

        gbs[d] = host_bandwidth_gbs(placement, d);
        for (; at > 0 && gbs[order[at - 1]] > gbs[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (uint32_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count; end++)
            if (gbs[order[end]] > gbs[order[first]] * (1 + same_speed_ratio))
                break;
        spend_in_turn(placement, order + first, end - first, budget);
    }
}

static void spend_in_layer_order(struct placement *placement, int32_t *budget)
{
    for (uint32_t layer = 0; layer<placement->model->n_layer && * budget> 0; layer++) {
        if (model_layer_has_kv(&placement->model->layers[layer]) && placement->owner[layer] >= 0) {
            placement->kv_resident[layer] = all_devices(placement);
            (*budget)--;
        }
    }
}

static void spend(struct placement *placement, int32_t budget)
{
    uint32_t all[MACHINE_DEVICES_MAX];

    for (uint32_t d = 0; d < placement->device_count; d++)
        all[d] = d;
    /* Under a tensor split every layer belongs to all devices: one group, in layer order. */
    if (placement->plan.split == PLAN_SPLIT_TENSOR ||
        placement->plan.kv_policy == PLAN_KV_LAYER_ORDER)
        spend_in_layer_order(placement, &budget);
    else if (placement->plan.kv_policy == PLAN_KV_ROUND_ROBIN)
        spend_in_turn(placement, all, placement->device_count, &budget);
    else
        spend_slowest_first(placement, &budget);
}

/* An explicit set counts the machine's devices; the placement those that the plan uses. */
static uint32_t used_devices(const struct placement *placement, uint32_t of_machine)
{
    uint32_t used = 0;

    for (uint32_t d = 0; d < placement->device_count; d++)
        used |= (of_machine >> placement->devices[d] & 1) << d;
    return used;
}

int residency_choose(struct placement *placement, struct error *err)
{
    const struct plan *plan = &placement->plan;

    for (uint32_t layer = 0; layer < placement->layer_count; layer++) {
        bool has_kv = model_layer_has_kv(&placement->model->layers[layer]);

        if (plan->kv_resident != NULL && layer < plan->kv_resident_count) {
            if (plan->kv_resident[layer] != 0 && !has_kv)
                return error_set(err, ERROR_USAGE,
                                 "layer %u owns no KV cache that could be resident", layer);
            placement->kv_resident[layer] = used_devices(placement, plan->kv_resident[layer]);
        } else if (!plan->kv_on_host && placement->owner[layer] >= 0) {
            placement->kv_resident[layer] = all_devices(placement);
        }
    }
    if (plan->kv_on_host && plan->kv_resident == NULL && plan->kv_gpu_layers > 0)
        spend(placement, plan->kv_gpu_layers);
    return 0;
}

static int parse_devices(const char *text, const struct machine *machine, uint32_t *mask,
                         struct error *err)
{
    *mask = 0;
    for (;;) {
        size_t length = strcspn(text, "+");
        char name[16];
        int device;

        if (length == 0 || length >= sizeof name)
            return error_set(err, ERROR_USAGE, "'%s' is not a list of devices; CUDA0+CUDA1 is",
                             text);
        memcpy(name, text, length);
        name[length] = '\0';
        device = machine_find_device(machine, name);
        if (device < 0)
            return error_set(err, ERROR_USAGE, "%s is not a device of %s; CUDA0 to CUDA%u are",
                             name, machine->name, machine->device_count - 1);
        *mask |= 1u << device;
        if (text[length] == '\0')
            return 0;
        text += length + 1;
    }
}

static int parse_item(char *item, const struct model *model, const struct machine *machine,
                      uint32_t *resident, uint32_t count, struct error *err)
{
    uint32_t mask = (uint32_t)((1u << machine->device_count) - 1);
    char *devices = strchr(item, '@');
    char *end;
    unsigned long first, last, step = 1;

    if (devices != NULL) {
        *devices = '\0';
        if (parse_devices(devices + 1, machine, &mask, err) != 0)
            return -1;
    }
    first = last = strtoul(item, &end, 10);
    if (end != item && *end == '-' && end[1] >= '0' && end[1] <= '9')
        last = strtoul(end + 1, &end, 10);
    if (end != item && *end == '+' && end[1] >= '1' && end[1] <= '9')
        step = strtoul(end + 1, &end, 10);
    if (end == item || *end != '\0' || last < first || last >= count)
        return error_set(err, ERROR_USAGE,
                         "'%s' is not a layer or a range of layers; 3, 0-%u and 3-%u+4 are", item,
                         count - 1, count - 1);
    for (unsigned long layer = first; layer <= last; layer += step) {
        if (model_layer_has_kv(&model->layers[layer]))
            resident[layer] |= mask;
        else if (first == last)
            return error_set(err, ERROR_USAGE, "layer %lu owns no KV cache that could be resident",
                             layer);
    }
    return 0;
}

int residency_parse(const char *text, const struct model *model, const struct machine *machine,
                    uint32_t *resident, uint32_t count, struct error *err)
{
    char *copy = strdup(text);
    char *rest = NULL;
    int status = 0;

    if (copy == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of layers");
    memset(resident, 0, count * sizeof *resident);
    if (*text == '\0')
        status = error_set(err, ERROR_USAGE, "no layers given; 3-31@CUDA1 is a list of layers");
    for (char *item = strtok_r(copy, ",", &rest); item != NULL && status == 0;
         item = strtok_r(NULL, ",", &rest))
        status = parse_item(item, model, machine, resident, count, err);
    free(copy);
    return status;
}
