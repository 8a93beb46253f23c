/* Models written as GGUF files with synthetic weights. */
#ifndef REF_MODEL_WRITE_H
#define REF_MODEL_WRITE_H

#include "ref/gguf_write.h"
#include "sim/model.h"

/**
 * The keys and tensors of a model, without weights.
 *
 * @return for gguf_write_free(), or NULL with `err` set
 */
struct gguf_write *model_write_describe(const struct model *model, struct error *err);

/**
 * Writes any model, one of the catalogue too. The file has the keys that model_load_gguf() reads,
 * and those of numbers_of() for the architectures it knows; no vocabulary. Memory does not grow
 * with the weights, which are those of weights_synthetic() with the same seed.
 *
 * @return 0, or -1 with `err` set (ERROR_UNSUPPORTED for a type that synth.h does not make,
 * ERROR_IO)
 */
int model_write_gguf(const struct model *model, uint64_t seed, const char *path, struct error *err);

#endif
