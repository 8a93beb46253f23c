#include "sim/machine_pace.h"

#include <math.h>
#include <stdlib.h>

/* Numbers above 0 and up to `most`, joined by slashes. */
static int read_numbers(const char *flag, const char *text, double most,
                        double values[MACHINE_DEVICES_MAX], struct error *err)
{
    const char *rest = text;

    for (uint32_t d = 0; text != NULL && d < MACHINE_DEVICES_MAX; d++) {
        char *end;

        values[d] = strtod(rest, &end);
        if (end == rest || !(values[d] > 0) || values[d] > most || (*end != '/' && *end != '\0'))
            break;
        if (*end == '\0')
            return 0;
        rest = end + 1;
    }
    return text == NULL
               ? 0
               : error_set(err, ERROR_USAGE,
                           "%s %s: numbers above 0 and up to %g, joined by slashes, are accepted",
                           flag, text, most);
}

int machine_pace_read(struct machine_pace *pace, const char *devices, const char *links,
                      struct error *err)
{
    double speeds[MACHINE_DEVICES_MAX] = {0};

    *pace = (struct machine_pace){.slowdowns = {0}};
    if (read_numbers("--pace-devices", devices, 1, speeds, err) != 0 ||
        read_numbers("--pace-links", links, 1e5, pace->link_gbs, err) != 0)
        return -1;
    for (int d = 0; d < MACHINE_DEVICES_MAX; d++)
        pace->slowdowns[d] = speeds[d] > 0 ? 1 / speeds[d] : 0;
    return 0;
}

void machine_apply_pace(struct machine *machine, const struct machine_pace *pace)
{
    for (uint32_t d = 0; d < machine->device_count; d++) {
        int index = machine_device_link(machine, d);
        double gbs = pace->link_gbs[d];
        struct machine_link *link;

        if (pace->slowdowns[d] > 1)
            machine->devices[d].slowdown = pace->slowdowns[d];
        if (index < 0 || !(gbs > 0))
            continue;
        link = &machine->links[index];
        link->paced_gbs = gbs;
        link->down_gbs = fmin(link->down_gbs, gbs);
        link->up_gbs = fmin(link->up_gbs, gbs);
        link->duplex_gbs = fmin(link->duplex_gbs, 2 * gbs);
        link->pageable_gbs = fmin(link->pageable_gbs, gbs);
    }
}
