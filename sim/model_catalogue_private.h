/* The catalogue as it is read; for model_catalogue.c only. */
#ifndef SIM_MODEL_CATALOGUE_PRIVATE_H
#define SIM_MODEL_CATALOGUE_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/mix_rule.h"
#include "sim/model.h"

/* One model of the file. Everything lives as long as the program. */
struct catalogue_entry {
    json_t *json;
    json_t **kinds;                  /* what each block is, nextn blocks last */
    json_t *globals, *nextn_tensors; /* the latter NULL without nextn blocks */
    json_t *mixes;
    uint32_t nextn_blocks;
    bool nextn_in_files;     /* unless a mix says otherwise */
    const char *llama_bench; /* "qwen35 27B" */
    const char **quants;     /* own mixes, then the plain ones */
    size_t own_count;
    struct model_card card;
};

struct catalogue {
    struct error err; /* why there are no entries */
    json_t *root;
    struct catalogue_entry *entries;
    const char **names;
    size_t count;
};

/** Reads the catalogue at the first call. @return NULL with `err` set when it is broken */
const struct catalogue *catalogue_load(struct error *err);

/** A fault of the file itself, which the tests find before a user does. @return -1 */
int catalogue_refuse(struct error *err, const char *where, const char *what);

/* Receives each tensor of a model; -1 ends the walk. Comes first in a larger struct. */
struct catalogue_visitor {
    int (*visit)(struct catalogue_visitor *visitor, const struct mix_tensor *tensor,
                 struct error *err);
};

/** Walks the tensors in file order: globals, then block by block. @return 0 or -1 */
int catalogue_visit_tensors(const struct catalogue_entry *entry, bool with_nextn,
                            struct catalogue_visitor *visitor, struct error *err);

/* What there is to know before the first tensor gets its type. */
struct catalogue_survey {
    struct catalogue_visitor visitor;
    uint64_t params;
    uint32_t n_attn_v;
    bool has_output;
};

int catalogue_survey_tensors(const struct catalogue_entry *entry, bool with_nextn,
                             struct catalogue_survey *survey, struct error *err);

#endif
