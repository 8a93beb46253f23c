/* Small models with the tensors of large ones, for runs that take moments: shapes without
 * weights, and files with synthetic weights. */
#ifndef REF_SHAPE_H
#define REF_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/gguf.h"
#include "sim/model.h"

/** Names of the small models, and what is special in each; NULL from shape_count() on. */
size_t shape_count(void);
const char *shape_name(size_t index);
const char *shape_about(size_t index);

/** Whether a name is one of theirs, with a type or without. */
bool shape_is_name(const char *name_and_type);

/**
 * A small model: "tiny-qwen35:Q4_K", case ignored, Q8_0 where no type is given. The type is
 * that of weights of products, any that synth_makes_type(); rows that are not whole blocks
 * of it are Q8_0, norms and the like F32.
 *
 * @return a model for model_free(), or NULL with `err` set (ERROR_USAGE lists what is known)
 */
struct model *shape_open(const char *name_and_type, struct error *err);

/** The header that shape_open() reads its model from, for gguf_free(); or NULL with `err` set. */
struct gguf *shape_gguf(const char *name_and_type, struct error *err);

/**
 * Writes a small model with synthetic weights. Its tensors are those of weights_synthetic()
 * with the same seed.
 *
 * @return 0, or -1 with `err` set (ERROR_USAGE, ERROR_IO)
 */
int shape_write_gguf(const char *name_and_type, uint64_t seed, const char *path, struct error *err);

#endif
