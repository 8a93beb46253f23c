/* The numbers of a machine and its kernel tables, one row each: the key in a profile, the unit, the
 * bounds and the place in the struct. Read by the profile reader, the writer and the list of
 * constants, so that the three cannot drift apart. */
#ifndef SIM_MACHINE_FIELDS_H
#define SIM_MACHINE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"
#include "sim/json_input.h"

struct machine_field {
    const char *group;   /* object around the key ("matvec_rate"); NULL for none */
    const char *key;     /* "memory_gbs" */
    const char *noun;    /* what errors call it, with its article */
    const char *unit;    /* "GB/s" */
    const char *meaning; /* a line for people */
    double min, max;     /* bounds in `unit` */
    bool above_min;      /* min itself is refused */
    double scale;        /* value in the struct = value in `unit` x scale */
    size_t offset;       /* of the double in its struct */
};

struct machine_fields {
    const struct machine_field *rows;
    size_t count; /* 32 or fewer */
};

extern const struct machine_fields machine_host_fields;       /* struct machine_host */
extern const struct machine_fields machine_device_fields;     /* struct machine_device */
extern const struct machine_fields machine_link_fields;       /* struct machine_link */
extern const struct machine_fields machine_collective_fields; /* struct machine_collective */
extern const struct machine_fields machine_family_fields;     /* struct machine_family */
extern const struct machine_fields kernel_table_fields;       /* struct kernel_table */
extern const struct machine_fields kernel_product_fields;     /* struct kernel_product */
extern const struct machine_fields kernel_attention_fields;   /* struct kernel_attention */
extern const struct machine_fields kernel_other_fields;       /* struct kernel_other */
extern const struct machine_fields kernel_sum_fields;         /* struct kernel_sum */

/** The field within `record`, a struct of the kind the row belongs to. */
double *machine_field_at(const struct machine_field *field, void *record);
double machine_field_get(const struct machine_field *field, const void *record);

/** Index of the row with this key, which has to be there. */
size_t machine_field_index(struct machine_fields fields, const char *key);

/**
 * Reads the fields that `object` has into `record`; the others keep their value.
 *
 * @param given  bit i is set when row i was there; other bits stay
 * @return 0, or -1 with `err` set
 */
int machine_fields_read(const struct json_cursor *object, struct machine_fields fields,
                        void *record, uint32_t *given, struct error *err);

/** Refuses the first row that is not in `given`, as missing from `object`. */
int machine_fields_require(const struct json_cursor *object, struct machine_fields fields,
                           uint32_t given, struct error *err);

/** Refuses keys of `object` that are neither fields nor in `extra`, within groups too. */
int machine_fields_refuse_unknown(const struct json_cursor *object, struct machine_fields fields,
                                  const char *const extra[], size_t extra_count, struct error *err);

#endif
