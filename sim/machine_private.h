/* What the files of the machine module share. */
#ifndef SIM_MACHINE_PRIVATE_H
#define SIM_MACHINE_PRIVATE_H

#include "sim/machine.h"

#include "sim/json_input.h"
#include "sim/machine_fields.h"

#define MACHINE_MIB_BYTES UINT64_C(1048576)

/* A list of keys and its length, as two arguments. */
#define MACHINE_KEYS(...)                                                                          \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

/* --- the catalogue (machine_catalogue.c) --- */

struct machine_gpu {
    struct machine_device device; /* without name and node */
    char link_class[24];          /* the widest link it can use */
    int pcie_gen, pcie_lanes;     /* 0 for a card without PCI Express */
};

struct machine_link_class {
    struct machine_link link; /* complete, but between no nodes */
    char short_name[16];      /* "gen4x16" */
    double peak_gbs;          /* theory, one direction */
    int pcie_gen, pcie_lanes; /* 0 for other kinds */
};

struct machine_catalogue {
    struct machine_gpu *gpus;
    size_t gpu_count;
    struct machine_link_class *links;
    size_t link_count;
    struct machine_family families[MACHINE_FAMILIES_MAX];
    uint32_t family_count;
    struct machine_host host;
    struct machine_collective collective;
    struct machine_link packet; /* packet and row figures of any link */
    uint64_t context_bytes, collective_bytes;
};

/** The catalogue, read once, for the life of the program; NULL with `err` set. */
const struct machine_catalogue *machine_catalogue(struct error *err);

/**
 * Finds a GPU by any unambiguous part of its name.
 *
 * @param why  what is wrong and what would do, when nothing is found
 * @return its index, or -1
 */
int machine_catalogue_find_gpu(const struct machine_catalogue *catalogue, const char *name,
                               char *why, size_t why_size);

/** Finds a link class: "PCIe 4.0 x16", "gen4x16", case and spaces ignored. As above. */
int machine_catalogue_find_link(const struct machine_catalogue *catalogue, const char *name,
                                char *why, size_t why_size);

/* --- a machine in the making --- */

struct machine_draft {
    struct machine *machine;
    const struct machine_catalogue *catalogue;
    uint32_t
        links_given[MACHINE_LINKS_MAX]; /* bit i: row i of machine_link_fields is not a default */
    bool variant_found;                 /* the wanted variant has been applied */
};

/** A machine without devices: the host node, and the catalogue's families and defaults. */
struct machine *machine_new(const struct machine_catalogue *catalogue, struct error *err);

/** Fills the link figures that were not given: from the class, then by rule. */
void machine_draft_complete_links(struct machine_draft *draft);

/** What both directions together move, where it was not measured. */
double machine_duplex_gbs(double down_gbs, double up_gbs);

/** As machine_keep_devices; `origin[i]`, where not NULL, is the former index of link i. */
int machine_keep(struct machine *machine, const uint32_t *order, size_t count, uint32_t *origin,
                 struct error *err);

/** The name of a link in constants and profiles, 31 bytes or fewer; see machine_constants(). */
void machine_link_label(const struct machine *machine, uint32_t link, char *label, size_t size);

/** The number of links from the host, or -1 when there is no way. */
int machine_distance(const struct machine *machine, uint32_t node);

/** Fills a draft from a document. @return 0, or -1 with `err` set */
int machine_profile_read(struct machine_draft *draft, const struct json_cursor *profile,
                         const char *variant, int depth, struct error *err);

/* --- parts of a profile (machine_parts.c); each returns 0, or -1 with `err` set --- */

/** @param partial  memory_gbs may be missing: a profile that changes another */
int machine_read_host(struct machine_draft *draft, const struct json_cursor *host, bool partial,
                      struct error *err);
int machine_read_devices(struct machine_draft *draft, const struct json_cursor *devices,
                         struct error *err);
int machine_read_switches(struct machine_draft *draft, const struct json_cursor *switches,
                          struct error *err);
int machine_read_links(struct machine_draft *draft, const struct json_cursor *links,
                       struct error *err);
int machine_read_families(struct machine_draft *draft, const struct json_cursor *families,
                          struct error *err);
int machine_read_memory(struct machine_draft *draft, const struct json_cursor *memory,
                        struct error *err);
int machine_read_collective(struct machine_draft *draft, const struct json_cursor *collective,
                            struct error *err);

/** Kernel tables by the names of GPUs; each replaces the one that a GPU has (machine_kernels.c). */
int machine_read_kernels(struct machine_draft *draft, const struct json_cursor *kernels,
                         struct error *err);

/** Changes figures of devices by name: {"CUDA0": {"memory_gbs": 540}}. */
int machine_change_devices(struct machine_draft *draft, const struct json_cursor *devices,
                           struct error *err);

/** Changes figures of links by the names of machine_link_label(). */
int machine_change_links(struct machine_draft *draft, const struct json_cursor *links,
                         struct error *err);

/** Text of a built-in profile, or NULL. */
const char *machine_builtin_text(const char *name, size_t *size);

/** Copies a string member into `text`, refusing one that does not fit. 1, 0 or -1 as
 * json_input_find_string. */
int machine_read_text(const struct json_cursor *object, const char *key, const char *noun,
                      char *text, size_t size, struct error *err);

/* --- writing (machine_json.c, machine_kernels.c) --- */

/** Adds the fields of a record to an object; groups become objects. Not 0 without memory. */
int machine_add_fields(json_t *object, struct machine_fields fields, const void *record);

/** The machine's kernel tables as machine_read_kernels() reads them; NULL without memory. */
json_t *machine_kernels_json(const struct machine *machine);

/* --- kernel tables (machine_kernels.c) --- */

void machine_free_kernel_tables(struct machine *machine);

/** Frees those of GPUs that no device is. */
void machine_drop_kernel_tables(struct machine *machine);

#endif
