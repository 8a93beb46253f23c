/* The numbers of a machine that calibration may change, with bounds that hardware sets. */
#include "sim/machine_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A constant that has to be above 0 is at least this, in its unit. */
#define ABOVE_ZERO 1e-3

struct constant_list {
    struct machine_constant *constants;
    size_t capacity, count;
};

static void add(struct constant_list *list, const char *owner, const struct machine_field *field,
                void *record, double min, double max)
{
    struct machine_constant *constant;

    if (list->constants != NULL && list->count < list->capacity) {
        constant = &list->constants[list->count];
        snprintf(constant->name, sizeof constant->name, "%s.%s%s%s", owner,
                 field->group != NULL ? field->group : "", field->group != NULL ? "." : "",
                 field->key);
        constant->unit = field->unit;
        constant->meaning = field->meaning;
        constant->min = min;
        constant->max = max;
        constant->scale = field->scale;
        constant->value = machine_field_at(field, record);
    }
    list->count++;
}

static void add_all(struct constant_list *list, const char *owner, struct machine_fields fields,
                    void *record)
{
    for (size_t i = 0; i < fields.count; i++) {
        const struct machine_field *field = &fields.rows[i];

        add(list, owner, field, record, field->above_min ? ABOVE_ZERO : field->min, field->max);
    }
}

/* A link cannot carry more than its class in theory; both directions together carry at
 * least what one does alone, and at most what both do. */
static void add_link(struct constant_list *list, struct machine *machine, uint32_t index)
{
    const struct machine_catalogue *catalogue = machine_catalogue(NULL);
    struct machine_link *link = &machine->links[index];
    const double *down = &link->down_gbs, *up = &link->up_gbs, *duplex = &link->duplex_gbs;
    double peak = 0;
    char label[32];

    machine_link_label(machine, index, label, sizeof label);
    for (size_t i = 0; catalogue != NULL && i < catalogue->link_count; i++)
        if (strcmp(catalogue->links[i].link.class_name, link->class_name) == 0)
            peak = catalogue->links[i].peak_gbs;
    for (size_t i = 0; i < machine_link_fields.count; i++) {
        const struct machine_field *field = &machine_link_fields.rows[i];
        const double *value = machine_field_at(field, link);
        double min = field->above_min ? ABOVE_ZERO : field->min, max = field->max;

        if (value == duplex) {
            min = fmax(*down, *up);
            max = *down + *up;
        } else if ((value == down || value == up || value == &link->pageable_gbs) && peak > 0) {
            max = fmax(peak, *value);
        }
        add(list, label, field, link, min, fmax(min, max));
    }
}

static bool family_is_used(const struct machine *machine, uint32_t family)
{
    for (uint32_t i = 0; i < machine->device_count; i++)
        if (machine->devices[i].family == family)
            return true;
    return false;
}

size_t machine_constants(struct machine *machine, struct machine_constant *constants,
                         size_t capacity)
{
    struct constant_list list = {constants, capacity, 0};

    for (uint32_t i = 0; i < machine->family_count; i++)
        if (family_is_used(machine, i))
            add_all(&list, machine->families[i].name, machine_family_fields, &machine->families[i]);
    for (uint32_t i = 0; i < machine->link_count; i++)
        add_link(&list, machine, i);
    add_all(&list, "collective", machine_collective_fields, &machine->collective);
    add_all(&list, "host", machine_host_fields, &machine->host);
    return list.count;
}
