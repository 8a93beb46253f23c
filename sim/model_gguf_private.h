/* What model_gguf.c (the model as a whole) and model_gguf_layer.c (one block)
 * share while a GGUF header becomes a model. */
#ifndef SIM_MODEL_GGUF_PRIVATE_H
#define SIM_MODEL_GGUF_PRIVATE_H

#include "sim/gguf.h"
#include "sim/model_private.h"

/* Heads, their widths and n_embd reach it at most, so that no product of three
 * of them passes 2^64. */
#define MODEL_GGUF_HEAD_LIMIT (UINT32_C(1) << 20)

struct model_reading {
    const struct gguf *gguf;
    struct model *model;
    struct error *err;
};

/** Fails with file, byte offset and name of "<arch>.<key>"; returns -1. */
int model_reading_fail_key(const struct model_reading *reading, const char *key, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));

/** Fails with file, byte offset and name of a tensor; returns -1. */
int model_reading_fail_tensor(const struct model_reading *reading,
                              const struct model_tensor *tensor, enum error_code code,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/** The key "<arch>.<key>", or NULL. */
const struct gguf_key *model_reading_find_key(const struct model_reading *reading, const char *key);

/**
 * Reads "<arch>.<key>": a scalar, or element `layer` of an array (the last one
 * where the array is shorter).
 *
 * @param fallback the value when there is no such key
 * @param limit    the largest value allowed
 * @return 0, or -1 with `err` set when the value is no integer from 0 to `limit`
 */
int model_reading_u32(const struct model_reading *reading, const char *key, uint32_t layer,
                      uint32_t fallback, uint32_t limit, uint32_t *value);

/** Whether "<arch>.<key>" is true for a layer; a missing key or element is false. */
bool model_reading_bool(const struct model_reading *reading, const char *key, uint32_t layer);

/** Narrows a dimension of a tensor; 0, or -1 with `err` set above `limit`. */
int model_reading_narrow(const struct model_reading *reading, const struct model_tensor *tensor,
                         uint64_t dimension, uint32_t limit, uint32_t *value);

/**
 * Fills the layer of a block: from the shapes of its tensors, helped by the
 * keys; from the keys alone when the file has no tensors.
 */
int model_reading_layer(const struct model_reading *reading, uint32_t index);

#endif
