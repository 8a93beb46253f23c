/* Machines: opening, freeing, choosing devices. The parts live in machine_profile.c (the
 * format), machine_parts.c and machine_links.c (its members), machine_catalogue.c and
 * machine_compose.c (machines without a file), machine_kernels.c (kernel tables),
 * machine_constants.c and machine_json.c. */
#include "sim/machine_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/embedded.h"
#include "sim/word_list.h"

/* Built-in profiles: a name and the file of sim/data/machines. */
#define BUILTINS(BUILTIN)                                                                          \
    BUILTIN("rtx4070-gen4x16+rtx3060-gen3x4", machine_rtx4070_rtx3060_json)                        \
    BUILTIN("rtx4070-gen4x16", machine_rtx4070_json)                                               \
    BUILTIN("h200-x2", machine_h200_x2_json)                                                       \
    BUILTIN("h200-x2-host", machine_h200_x2_host_json)                                             \
    BUILTIN("h200", machine_h200_json)

static const char *const builtin_names[] = {
#define BUILTIN_NAME(name, symbol) name,
    BUILTINS(BUILTIN_NAME)
#undef BUILTIN_NAME
        NULL};

const char *const *machine_builtin_names(void)
{
    return builtin_names;
}

const char *machine_builtin_text(const char *name, size_t *size)
{
#define BUILTIN_TEXT(builtin, symbol)                                                              \
    if (strcmp(name, builtin) == 0) {                                                              \
        *size = embedded_##symbol##_size;                                                          \
        return embedded_##symbol;                                                                  \
    }
    BUILTINS(BUILTIN_TEXT)
#undef BUILTIN_TEXT
    return NULL;
}

enum machine_weight_class machine_weight_class_of(enum tensor_type type)
{
    switch ((unsigned)type) {
    case TENSOR_TYPE_Q4_0:
    case TENSOR_TYPE_Q4_1:
    case TENSOR_TYPE_Q5_0:
    case TENSOR_TYPE_Q5_1:
    case TENSOR_TYPE_Q8_0:
    case TENSOR_TYPE_Q8_1:
    case TENSOR_TYPE_Q1_0:
    case TENSOR_TYPE_Q2_0:
        return MACHINE_WEIGHT_BLOCK;
    case TENSOR_TYPE_Q2_K:
    case TENSOR_TYPE_Q3_K:
    case TENSOR_TYPE_Q4_K:
    case TENSOR_TYPE_Q5_K:
    case TENSOR_TYPE_Q6_K:
    case TENSOR_TYPE_Q8_K:
        return MACHINE_WEIGHT_K_QUANT;
    case TENSOR_TYPE_IQ1_S:
    case TENSOR_TYPE_IQ1_M:
    case TENSOR_TYPE_IQ2_XXS:
    case TENSOR_TYPE_IQ2_XS:
    case TENSOR_TYPE_IQ2_S:
    case TENSOR_TYPE_IQ3_XXS:
    case TENSOR_TYPE_IQ3_S:
    case TENSOR_TYPE_TQ1_0:
    case TENSOR_TYPE_TQ2_0:
        return MACHINE_WEIGHT_I_QUANT;
    case TENSOR_TYPE_IQ4_NL:
    case TENSOR_TYPE_IQ4_XS:
    case TENSOR_TYPE_MXFP4:
    case TENSOR_TYPE_NVFP4:
        return MACHINE_WEIGHT_I4_QUANT;
    default:
        return MACHINE_WEIGHT_FLOAT;
    }
}

/* --- making --- */

struct machine *machine_new(const struct machine_catalogue *catalogue, struct error *err)
{
    struct machine *machine = calloc(1, sizeof *machine);

    if (machine == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a machine");
        return NULL;
    }
    machine->node_count = 1;
    snprintf(machine->nodes[0].name, sizeof machine->nodes[0].name, "host");
    memcpy(machine->families, catalogue->families, sizeof machine->families);
    machine->family_count = catalogue->family_count;
    machine->host = catalogue->host;
    machine->collective = catalogue->collective;
    machine->context_bytes = catalogue->context_bytes;
    machine->collective_bytes = catalogue->collective_bytes;
    snprintf(machine->variant, sizeof machine->variant, "stock");
    return machine;
}

void machine_free(struct machine *machine)
{
    if (machine == NULL)
        return;
    machine_free_kernel_tables(machine);
    free(machine->fitted_rows);
    free(machine);
}

static int refuse_variant(const struct machine *machine, const char *variant, struct error *err)
{
    const char *names[MACHINE_VARIANTS_MAX + 1] = {"stock"};
    char list[240];

    for (uint32_t i = 0; i < machine->variant_count; i++)
        names[i + 1] = machine->variants[i];
    word_list_text(names, machine->variant_count + 1, list, sizeof list);
    error_set_at(err, ERROR_USAGE, machine->source, 0, 0,
                 "\"%.40s\" is no variant of this machine; known: %s", variant, list);
    return -1;
}

static struct machine *read_machine(const struct json_input *input, const char *variant,
                                    struct error *err)
{
    struct machine_draft draft = {.catalogue = machine_catalogue(err)};
    struct json_cursor root = json_input_root(input);

    if (variant != NULL && strcmp(variant, "stock") == 0)
        variant = NULL;
    if (draft.catalogue == NULL)
        return NULL;
    draft.machine = machine_new(draft.catalogue, err);
    if (draft.machine == NULL)
        return NULL;
    snprintf(draft.machine->source, sizeof draft.machine->source, "%s", input->source);
    if (machine_profile_read(&draft, &root, variant, 0, err) != 0)
        goto free_machine;
    if (variant != NULL && !draft.variant_found) {
        refuse_variant(draft.machine, variant, err);
        goto free_machine;
    }
    return draft.machine;

free_machine:
    machine_free(draft.machine);
    return NULL;
}

struct machine *machine_parse(const char *text, size_t size, const char *source,
                              const char *variant, struct error *err)
{
    struct json_input *input = json_input_load_text(text, size, source, err);
    struct machine *machine = input != NULL ? read_machine(input, variant, err) : NULL;

    json_input_free(input);
    return machine;
}

/* Whether a name can only be that of a built-in profile. */
static bool is_bare_name(const char *name)
{
    return strchr(name, '/') == NULL && strstr(name, ".json") == NULL;
}

/* The shortest name that begins with what was typed, else the closest one, or NULL. */
static const char *closest_builtin(const char *typed, size_t count)
{
    const char *shortest = NULL;

    for (size_t i = 0; i < count && typed[0] != '\0'; i++)
        if (strncasecmp(builtin_names[i], typed, strlen(typed)) == 0 &&
            (shortest == NULL || strlen(builtin_names[i]) < strlen(shortest)))
            shortest = builtin_names[i];
    return shortest != NULL ? shortest : word_list_closest(typed, builtin_names, count);
}

struct machine *machine_open(const char *name_or_path, const char *variant, struct error *err)
{
    const size_t count = sizeof builtin_names / sizeof builtin_names[0] - 1;
    struct error unread = {0};
    struct json_input *input;
    struct machine *machine;
    const char *text;
    char list[260];
    size_t size;

    text = machine_builtin_text(name_or_path, &size);
    if (text != NULL)
        return machine_parse(text, size, name_or_path, variant, err);
    input = json_input_load_file(name_or_path, &unread);
    if (input == NULL && unread.code == ERROR_IO && is_bare_name(name_or_path)) {
        const char *closest = closest_builtin(name_or_path, count);

        word_list_text(builtin_names, count, list, sizeof list);
        error_set(err, ERROR_IO,
                  "\"%.80s\" is neither a built-in machine nor a file;%s%s%s built in: %s",
                  name_or_path, closest != NULL ? " did you mean " : "",
                  closest != NULL ? closest : "", closest != NULL ? "?" : "", list);
        return NULL;
    }
    if (input == NULL) {
        if (err != NULL && err->code == ERROR_NONE)
            *err = unread;
        return NULL;
    }
    machine = read_machine(input, variant, err);
    json_input_free(input);
    return machine;
}

/* --- devices --- */

int machine_find_device(const struct machine *machine, const char *name)
{
    for (uint32_t i = 0; i < machine->device_count; i++)
        if (strcmp(machine->devices[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int check_order(const struct machine *machine, const uint32_t *order, size_t count,
                       struct error *err)
{
    bool used[MACHINE_DEVICES_MAX] = {false};

    if (count == 0 || count > machine->device_count)
        return error_set(err, ERROR_USAGE, "%zu devices cannot stay of %u; 1 to %u can", count,
                         machine->device_count, machine->device_count);
    for (size_t i = 0; i < count; i++) {
        if (order[i] >= machine->device_count)
            return error_set(err, ERROR_USAGE, "no device %u in %s, which has %u", order[i],
                             machine->name, machine->device_count);
        if (used[order[i]])
            return error_set(err, ERROR_USAGE, "%s is kept twice; once is possible",
                             machine->devices[order[i]].name);
        used[order[i]] = true;
    }
    return 0;
}

/* A switch that happens to have the name a device is about to get. */
static int check_switch_names(const struct machine *machine, size_t count, struct error *err)
{
    for (uint32_t i = 0; i < machine->node_count; i++) {
        const struct machine_node *node = &machine->nodes[i];
        unsigned number;
        int length = 0;

        if (node->kind == MACHINE_NODE_SWITCH &&
            sscanf(node->name, "CUDA%3u%n", &number, &length) == 1 && node->name[length] == '\0' &&
            number < count)
            return error_set(err, ERROR_USAGE, "the switch %s has the name of a device",
                             node->name);
    }
    return 0;
}

int machine_keep(struct machine *machine, const uint32_t *order, size_t count, uint32_t *origin,
                 struct error *err)
{
    struct machine_device devices[MACHINE_DEVICES_MAX] = {0};
    uint32_t new_node[MACHINE_NODES_MAX], nodes = 0, links = 0;
    const uint32_t gone = UINT32_MAX;

    if (check_order(machine, order, count, err) != 0 ||
        check_switch_names(machine, count, err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        devices[i] = machine->devices[order[i]];
        snprintf(devices[i].name, sizeof devices[i].name, "CUDA%u", (unsigned)i);
    }
    for (uint32_t i = 0; i < machine->node_count; i++) {
        struct machine_node node = machine->nodes[i];
        size_t kept = 0;

        while (node.kind == MACHINE_NODE_DEVICE && kept < count && order[kept] != node.device)
            kept++;
        new_node[i] = node.kind == MACHINE_NODE_DEVICE && kept == count ? gone : nodes;
        if (new_node[i] == gone)
            continue;
        if (node.kind == MACHINE_NODE_DEVICE) {
            node.device = (uint32_t)kept;
            devices[kept].node = nodes;
            memcpy(node.name, devices[kept].name, sizeof devices[kept].name);
        }
        machine->nodes[nodes++] = node;
    }
    for (uint32_t i = 0; i < machine->link_count; i++) {
        struct machine_link link = machine->links[i];

        link.from = new_node[link.from];
        link.to = new_node[link.to];
        if (link.from == gone || link.to == gone)
            continue;
        if (origin != NULL)
            origin[links] = i;
        machine->links[links++] = link;
    }
    memcpy(machine->devices, devices, sizeof machine->devices);
    machine->device_count = (uint32_t)count;
    machine->node_count = nodes;
    machine->link_count = links;
    machine_drop_kernel_tables(machine);
    return 0;
}

int machine_keep_devices(struct machine *machine, const uint32_t *order, size_t count,
                         struct error *err)
{
    return machine_keep(machine, order, count, NULL, err);
}
