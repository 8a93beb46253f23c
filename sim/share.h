/* How llama.cpp rounds a ratio to whole layers, heads and granules.
 * Source: src/llama-model.cpp of llama.cpp; docs/time-model.md has the rules in words. */
#ifndef SIM_SHARE_H
#define SIM_SHARE_H

#include <stdint.h>

#include "sim/machine.h"
#include "sim/model.h"

#define SHARE_ON_HOST (-1)

/**
 * Cuts `elements` over devices in the ratio of `weights`. Positions are devices
 * rotated by `rotation`; each boundary is rounded down to whole granules and the
 * last position takes what is left, all in float32 as the engine computes it.
 *
 * @param weights `count` of them; NULL or all zero cuts evenly
 * @param parts   set to the elements of each device; they add up to `elements`
 */
void share_elements(uint64_t elements, uint64_t granule, const float *weights, uint32_t count,
                    uint32_t rotation, uint64_t *parts);

/**
 * Layer split: the device of each of `entries` entries (the blocks, then the
 * output head). The last `gpu_entries` are on devices, those before on the host.
 *
 * @param weights not all zero
 * @param owners  set to a device, or SHARE_ON_HOST
 */
void share_layers(uint32_t entries, uint32_t gpu_entries, const float *weights, uint32_t count,
                  int *owners);

/* What each device has of one layer under a tensor split. */
struct share_slices {
    uint32_t rotation;
    uint32_t q_heads[MACHINE_DEVICES_MAX], kv_heads[MACHINE_DEVICES_MAX];
    uint32_t gdn_k_heads[MACHINE_DEVICES_MAX], gdn_v_heads[MACHINE_DEVICES_MAX];
    uint32_t n_ff[MACHINE_DEVICES_MAX], n_ff_exp[MACHINE_DEVICES_MAX];
};

/**
 * The slices of layer `layer`: whole KV-head groups, whole granules of the
 * feed-forward width, whole key heads of a gated delta net.
 *
 * @param weights      ratio of everything but attention; NULL is even
 * @param attn_weights ratio of softmax attention and its cache; NULL follows `weights`
 */
void share_layer_slices(const struct model *model, uint32_t layer, const float *weights,
                        const float *attn_weights, uint32_t count, struct share_slices *slices);

/** Rotation of a layer: earlier layers of its kind, modulo `count`. */
uint32_t share_rotation(const struct model *model, uint32_t layer, uint32_t count);

/** Granules, in elements of the cut axis. */
uint64_t share_q_granule(const struct model *model, uint32_t layer, uint32_t count);
uint64_t share_gdn_granule(const struct model *model, uint32_t layer);
uint64_t share_ff_granule(const struct model *model, uint32_t layer, enum tensor_role down);

/**
 * Elements of the cut axis before device `d`'s part, in rotated device order.
 *
 * @param parts of `count` devices
 */
uint64_t share_first(uint32_t rotation, const uint32_t *parts, uint32_t count, uint32_t d);

/**
 * Columns over which products with a tensor are summed in fp32 before they become fixed-point
 * numbers: gcd(256, the smallest granule that any number of devices cuts the columns at);
 * 256 where no tensor split cuts them.
 */
uint32_t share_group(const struct model *model, const struct model_tensor *tensor);

#endif
