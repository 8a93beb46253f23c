/* What the files of a record share. */
#ifndef REF_RECORD_PRIVATE_H
#define REF_RECORD_PRIVATE_H

#include "ref/record.h"

/* An operation as every plan has it. */
struct record_op {
    int32_t layer;
    enum op_kind kind;
    enum op_value value;  /* that it writes */
    char tensor[80];      /* that it reads, or that its input came from */
    int32_t tensor_index; /* in the model; of a record under way only */
    size_t order;         /* place in the program that had it first */
    uint32_t next;        /* the next of its layer */
};

#define RECORD_NO_OP UINT32_MAX

struct record_entry {
    uint64_t digest;
    uint32_t step;    /* the one it is of, from 1 */
    uint32_t covered; /* elements in it; 0: there is none */
};

/* A computed token. */
struct record_row {
    uint32_t token;
    uint32_t count; /* of entries */
    struct record_entry *entries;
};

struct record_slot {
    struct record_row *rows;
    uint32_t row_count, row_capacity;
    uint32_t *prompt, *tokens;
    uint64_t *checksums;
    uint32_t prompt_count, token_count;
    uint32_t reached; /* positions that the slot had */
    bool shifted;
};

/* What two runs have to share, as text. */
enum record_term {
    RECORD_MODEL,
    RECORD_WEIGHTS,
    RECORD_CACHE,
    RECORD_SAMPLING,
    RECORD_SHIFT,
    RECORD_TERMS
};
extern const char *const record_term_names[RECORD_TERMS];

/* How the row of a value lies in the whole one: `count` elements from `first` on in each of
 * `segments` segments. */
struct record_held {
    uint64_t segments, segment, first, count;
    int32_t origin; /* the tensor of the last product that went into it; -1 */
};

struct record {
    char terms[RECORD_TERMS][160];
    const struct model *model; /* NULL in a loaded one */
    uint32_t shift_count;
    struct record_op *ops;
    uint32_t op_count, op_capacity;
    uint32_t *of_layer; /* the first operation of each layer, from -1 on */
    uint32_t *order;    /* operations in the order of execution */
    struct record_slot *slots;
    uint32_t slot_count;
    uint64_t checksum;
    struct record_held *held;
    uint64_t step; /* the last one seen, from 1 */
    struct error err;
};

/** An empty record: ERROR_MEMORY in `err` when there is none. */
struct record *record_empty(uint32_t slots, struct error *err);

/** Room for one more operation; NULL without memory. It has the index record.op_count - 1. */
struct record_op *record_add_op(struct record *record, struct error *err);

/** The entries of a token, at least `count`, new ones empty; NULL without memory. */
struct record_row *record_row(struct record_slot *slot, uint32_t number, uint32_t count,
                              struct error *err);

/** Fills in record.order. */
int record_sort(struct record *record, struct error *err);

#endif
