/* A machine as a profile: what was read, composed or fitted, with every figure in full. */
#include "sim/machine_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 12 }; /* of numbers: more would print the rounding of unit conversions */

int machine_add_fields(json_t *object, struct machine_fields fields, const void *record)
{
    int failed = 0;

    for (size_t i = 0; i < fields.count; i++) {
        const struct machine_field *field = &fields.rows[i];
        json_t *owner = object;
        double value = machine_field_get(field, record) / field->scale;

        if (field->group != NULL && json_object_get(object, field->group) == NULL)
            failed |= json_object_set_new(object, field->group, json_object());
        if (field->group != NULL)
            owner = json_object_get(object, field->group);
        failed |= json_object_set_new(owner, field->key, json_real(value));
    }
    return failed;
}

static int add_text(json_t *object, const char *key, const char *text)
{
    return text[0] != '\0' ? json_object_set_new(object, key, json_string(text)) : 0;
}

static json_t *host_json(const struct machine_host *host)
{
    json_t *object = json_object();
    int failed = add_text(object, "cpu", host->cpu);

    failed |= json_object_set_new(object, "threads", json_integer(host->threads));
    failed |= machine_add_fields(object, machine_host_fields, host);
    return failed ? (json_decref(object), NULL) : object;
}

static json_t *device_json(const struct machine *machine, const struct machine_device *device)
{
    json_t *object = json_object();
    char capability[16];
    int failed = add_text(object, "name", device->name);

    failed |= add_text(object, "gpu", device->gpu);
    failed |= add_text(object, "family", machine->families[device->family].name);
    snprintf(capability, sizeof capability, "%d.%d", device->compute_capability / 10,
             device->compute_capability % 10);
    if (device->compute_capability > 0)
        failed |= add_text(object, "compute_capability", capability);
    failed |= json_object_set_new(
        object, "memory_mib", json_integer((json_int_t)(device->memory_bytes / MACHINE_MIB_BYTES)));
    if (device->other_bytes > 0)
        failed |= json_object_set_new(
            object, "other_mib",
            json_integer((json_int_t)(device->other_bytes / MACHINE_MIB_BYTES)));
    if (device->l2_bytes > 0)
        failed |= json_object_set_new(
            object, "l2_mib", json_integer((json_int_t)(device->l2_bytes / MACHINE_MIB_BYTES)));
    failed |= json_object_set_new(object, "sm_count", json_integer(device->sm_count));
    failed |= machine_add_fields(object, machine_device_fields, device);
    failed |= json_object_set_new(object, "int8_tensor_cores",
                                  json_boolean(device->has_int8_tensor_cores));
    failed |= json_object_set_new(object, "fp16_tensor_cores",
                                  json_boolean(device->has_fp16_tensor_cores));
    return failed ? (json_decref(object), NULL) : object;
}

static json_t *link_json(const struct machine *machine, const struct machine_link *link)
{
    json_t *object = json_object();
    int failed = add_text(object, "from", machine->nodes[link->from].name);

    failed |= add_text(object, "to", machine->nodes[link->to].name);
    failed |= add_text(object, "link", link->class_name);
    failed |= machine_add_fields(object, machine_link_fields, link);
    return failed ? (json_decref(object), NULL) : object;
}

static json_t *families_json(const struct machine *machine)
{
    json_t *families = json_object();
    int failed = 0;

    for (uint32_t i = 0; i < machine->device_count; i++) {
        const struct machine_family *family = &machine->families[machine->devices[i].family];
        json_t *object = json_object();

        failed |= machine_add_fields(object, machine_family_fields, family);
        failed |= json_object_set_new(families, family->name, object);
    }
    return failed ? (json_decref(families), NULL) : families;
}

static int add_topology(json_t *profile, const struct machine *machine)
{
    json_t *devices = json_array(), *switches = json_array(), *links = json_array();
    int failed = json_object_set_new(profile, "devices", devices);

    failed |= json_object_set_new(profile, "switches", switches);
    failed |= json_object_set_new(profile, "links", links);
    for (uint32_t i = 0; i < machine->device_count; i++)
        failed |= json_array_append_new(devices, device_json(machine, &machine->devices[i]));
    for (uint32_t i = 0; i < machine->node_count; i++)
        if (machine->nodes[i].kind == MACHINE_NODE_SWITCH)
            failed |= json_array_append_new(switches, json_string(machine->nodes[i].name));
    for (uint32_t i = 0; i < machine->link_count; i++)
        failed |= json_array_append_new(links, link_json(machine, &machine->links[i]));
    return failed;
}

static int add_memory(json_t *profile, const struct machine *machine)
{
    json_t *memory = json_object();
    int failed = json_object_set_new(profile, "memory", memory);

    failed |=
        json_object_set_new(memory, "context_mib",
                            json_real((double)machine->context_bytes / (double)MACHINE_MIB_BYTES));
    failed |= json_object_set_new(
        memory, "collective_mib",
        json_real((double)machine->collective_bytes / (double)MACHINE_MIB_BYTES));
    return failed;
}

static int add_fitted(json_t *profile, const struct machine *machine)
{
    json_t *fitted = json_object(), *rows = json_array();
    int failed = json_object_set_new(profile, "fitted", fitted);

    failed |= json_object_set_new(fitted, "rows", rows);
    for (size_t i = 0; i < machine->fitted_row_count; i++)
        failed |= json_array_append_new(rows, json_string(machine->fitted_rows[i]));
    return failed;
}

char *machine_to_json(const struct machine *machine, struct error *err)
{
    json_t *profile = json_object(), *collective = json_object();
    char *text = NULL;
    int failed = json_object_set_new(profile, "lopside_machine", json_integer(1));

    failed |= add_text(profile, "name", machine->name);
    failed |= add_text(profile, "about", machine->about);
    failed |= json_object_set_new(profile, "host", host_json(&machine->host));
    failed |= add_topology(profile, machine);
    failed |= machine_add_fields(collective, machine_collective_fields, &machine->collective);
    failed |= json_object_set_new(profile, "collective", collective);
    failed |= json_object_set_new(profile, "families", families_json(machine));
    failed |= add_memory(profile, machine);
    if (machine->fitted_row_count > 0)
        failed |= add_fitted(profile, machine);
    if (machine->kernel_table_count > 0)
        failed |= json_object_set_new(profile, "kernels", machine_kernels_json(machine));
    if (!failed)
        text = json_dumps(profile, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    json_decref(profile);
    if (text == NULL)
        error_set(err, ERROR_MEMORY, "no memory for the profile of %s", machine->name);
    return text;
}
