/* How values lie in a memory: the sizes that every executor of programs agrees on. */
#ifndef REF_LAYOUT_H
#define REF_LAYOUT_H

#include "ref/numbers.h"
#include "sim/program.h"

/* Sizes of caches and tables; the same for every step. */
struct layout_room {
    uint32_t sequences; /* slots */
    uint32_t streams;   /* separate caches: 1 where sequences share one */
    uint32_t cells[2];  /* of a stream: full windows, sliding windows */
    uint32_t positions; /* that a sequence can reach */
    uint32_t planes;    /* of recurrent states: 1, and 1 for each token that may be undone */
};

/** Tokens or outputs that an operation covers. */
uint32_t layout_rows(const struct program *program, const struct program_op *op);

/** Bytes of an element of a value that is no cache. */
size_t layout_element_bytes(unsigned value);

/** Whether a value is a cache or a window of one. */
bool layout_is_cache(unsigned value);

/** The type of a cache or window. */
enum tensor_type layout_cache_type(const struct placement *placement, unsigned value);

/** Bytes of a cache or window whose rows have `row_values` values. */
size_t layout_cache_bytes(const struct placement *placement, const struct layout_room *room,
                          unsigned value, bool sliding, uint64_t row_values);

/** Rows of a recurrent value: sequences x planes, and taps of a convolution. */
uint64_t layout_state_rows(const struct model *model, const struct layout_room *room,
                           unsigned value, int layer);

/** Leading values of a head that a rotation turns. */
uint32_t layout_turned(const struct numbers *numbers, const struct program_op *op);

/** What a score is multiplied by; heads have `dim_k` values. */
float layout_attention_scale(const struct numbers *numbers, uint64_t dim_k);

#endif
