/* A model with its values: a GGUF file, a model of the catalogue or a small one. */
#ifndef REF_SOURCE_H
#define REF_SOURCE_H

#include "ref/numbers.h"
#include "ref/vocab.h"
#include "ref/weights.h"

struct source {
    struct model *model;
    struct weights *weights; /* of the file; synthetic for models that are not files */
    struct numbers numbers;
    struct vocab *vocab; /* NULL where there is none */
};

/**
 * Opens what `spec` names: "tiny-qwen35:Q4_K" (ref/shape.h), a GGUF file, or NAME:QUANT of the
 * catalogue.
 *
 * @param seed of synthetic weights
 * @return 0, or -1 with `err` set; source_close() in either case
 */
int source_open(struct source *source, const char *spec, uint64_t seed, struct error *err);

/** As source_open() with the first `layers` blocks of a model of the catalogue alone. */
int source_open_layers(struct source *source, const char *spec, uint32_t layers, uint64_t seed,
                       struct error *err);
void source_close(struct source *source);

#endif
