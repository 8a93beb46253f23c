/* How a model is put together; for the GGUF reader and the catalogue only.
 *
 *     model = model_new(err);
 *     (fill name, arch, n_embd, ...)
 *     model_set_layers(model, n_layer, n_layer_nextn, err);
 *     (fill model->layers[i])
 *     model_add_tensor(model, "blk.0.attn_q.weight", type, ne, err);   ... once each
 *     model_finish(model, err);
 *
 * On a failure at any step, model_free() cleans up. */
#ifndef SIM_MODEL_PRIVATE_H
#define SIM_MODEL_PRIVATE_H

#include "sim/arena.h"
#include "sim/gguf.h"
#include "sim/model.h"

/* A block number at or above it is refused: no model comes near. */
#define MODEL_LAYER_LIMIT 4096

/** An empty model with its arena (`model->arena` is a struct arena), for
 * model_free(); or NULL with `err` set. */
struct model *model_new(struct error *err);

/**
 * Sets n_layer, n_layer_nextn and zeroed `layers` in the arena; the last
 * `n_layer_nextn` entries get `is_nextn`. May come before or after the tensors.
 *
 * @return 0, or -1 with `err` set (ERROR_INPUT over MODEL_LAYER_LIMIT, ERROR_MEMORY)
 */
int model_set_layers(struct model *model, uint32_t n_layer, uint32_t n_layer_nextn,
                     struct error *err);

/**
 * Appends a tensor: copies the name, reads role and layer from it, computes the
 * bytes. `model->tensors` may move: keep no pointer into it before model_finish().
 *
 * @param ne unused dimensions are 1; ne[0] is a multiple of the type's block
 * @return 0, or -1 with `err` set (ERROR_INPUT for a shape that cannot be, ERROR_MEMORY)
 */
int model_add_tensor(struct model *model, const char *name, enum tensor_type type,
                     const uint64_t ne[4], struct error *err);

/**
 * Sorts the tensors by layer (globals first, else as they were added), fills
 * tensor_first and tensor_count of the layers, and sums tensor_bytes and params.
 *
 * @return 0, or -1 with `err` set (ERROR_INPUT: a tensor of a layer that the
 *         model does not have, a sum over 2^64; ERROR_MEMORY)
 */
int model_finish(struct model *model, struct error *err);

/**
 * What model_load_gguf() does once the header is read.
 *
 * @param source the model's `source`, and the name in messages
 * @return a model for model_free(), or NULL with `err` set
 */
struct model *model_from_gguf(const struct gguf *gguf, const char *source, struct error *err);

#endif
