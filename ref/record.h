/* Records of runs, for finding where two of them part: a digest of what each operation computed
 * for each token, whichever device computed which part of it, and in whatever order.
 *
 *   digest = sum over elements of mix(index in the whole row, bits)   (wrapping, 64 bits)
 *
 * Parts of a row that lie on several devices add up; a row that each device computes whole
 * counts once, and devices that disagree about it spoil it. Fixed-point sums, caches and copies
 * have none: what is read from them has. A token that is computed again, after a rejected
 * draft, replaces what it was. */
#ifndef REF_RECORD_H
#define REF_RECORD_H

#include "ref/generate.h"

struct record; /* see record_private.h */

/* What a run computed. Records of runs that differ in it cannot be compared. */
struct record_run {
    const struct model *model; /* borrowed */
    bool synthetic;            /* weights, of ... */
    uint64_t seed;             /* ... this seed */
    enum tensor_type type_k, type_v;
    struct generate_options options; /* sampling and context shift count */
};

/**
 * @param slots of the plan
 * @return an empty record for record_free(), or NULL with `err` set
 */
struct record *record_new(const struct record_run *run, uint32_t slots, struct error *err);
void record_free(struct record *record);

/** Records what a session computes from now on. One session a record. */
void record_watch(struct record *record, struct session *session);

/**
 * Ends a record with what the run generated.
 *
 * @param tokens generated of each slot
 * @return 0, or -1 with `err` set (ERROR_MEMORY, also of any moment before)
 */
int record_finish(struct record *record, const struct generate_slot *slots, uint32_t tokens,
                  const struct generation *generation, struct error *err);

/**
 * Files are JSON: a person can read and cut them, and what is wrong in one is told by line and
 * field. They have 16 bytes a digest, twice as many as a binary form.
 *
 * @return 0, or -1 with `err` set (ERROR_IO)
 */
int record_save(const struct record *record, const char *path, struct error *err);

/** @return a record for record_free(), or NULL with `err` set (ERROR_IO, ERROR_INPUT) */
struct record *record_load(const char *path, struct error *err);

uint64_t record_checksum(const struct record *record);

enum record_difference {
    RECORD_EQUAL,
    RECORD_DIGEST, /* an operation yielded something else */
    RECORD_TOKEN,  /* a token was chosen otherwise, or its logits are others */
    RECORD_LENGTH, /* one goes on where the other ends */
    RECORD_ABSENT, /* an operation is in one of them alone */
};

struct record_comparison {
    enum record_difference difference;
    uint32_t slot, token;  /* where: the token's number in its slot, from 0 */
    int32_t layer;         /* RECORD_DIGEST, RECORD_ABSENT: which operation; -1 outside blocks */
    const char *operation; /* its kind, and what it wrote; borrowed from the first record */
    const char *value;
    const char *tensor;     /* that it read, or that its input came from; "" for none */
    uint64_t tokens_equal;  /* computed tokens of all slots that agree wholly, before it */
    uint64_t tokens_total;  /* that both have */
    uint64_t digests_equal; /* compared before it */
};

/**
 * Compares token by token, the slots in turn, and within a token in the order of execution: the
 * first difference is one that none before it explains. Digests that one record lacks (the last
 * block's, of a prompt's tokens without output) are passed over.
 *
 * @return 0 with `*comparison` set, or -1 with `err` set: ERROR_USAGE for records that cannot be
 *         compared, with the reason
 */
int record_compare(const struct record *a, const struct record *b,
                   struct record_comparison *comparison, struct error *err);

/** The comparison as one sentence. */
void record_comparison_text(const struct record_comparison *comparison, char *text, size_t size);

#endif
