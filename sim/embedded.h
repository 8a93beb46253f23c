/* Data files that travel inside the program, as text with a zero behind it. */
#ifndef SIM_EMBEDDED_H
#define SIM_EMBEDDED_H

#include <stddef.h>

/* Symbol and path from the top of the source tree, one line a file. Each gives
 * `embedded_SYMBOL` and `embedded_SYMBOL_size`, which leaves the zero out. */
#define EMBEDDED_FILES(FILE)                                                                       \
    FILE(models_json, "sim/data/models.json")                                                      \
    FILE(gpus_json, "sim/data/gpus.json")                                                          \
    FILE(links_json, "sim/data/links.json")                                                        \
    FILE(families_json, "sim/data/families.json")                                                  \
    FILE(machine_rtx4070_rtx3060_json, "sim/data/machines/rtx4070-gen4x16+rtx3060-gen3x4.json")    \
    FILE(machine_rtx4070_json, "sim/data/machines/rtx4070-gen4x16.json")                           \
    FILE(machine_h200_x2_json, "sim/data/machines/h200-x2.json")                                   \
    FILE(machine_h200_x2_host_json, "sim/data/machines/h200-x2-host.json")                         \
    FILE(machine_h200_json, "sim/data/machines/h200.json")

#define EMBEDDED_DECLARE(symbol, path)                                                             \
    extern const char embedded_##symbol[];                                                         \
    extern const size_t embedded_##symbol##_size;
EMBEDDED_FILES(EMBEDDED_DECLARE)
#undef EMBEDDED_DECLARE

#endif
