/* Which parts of a KV cache get device memory. */
#ifndef SIM_RESIDENCY_H
#define SIM_RESIDENCY_H

#include "sim/plan.h"

/**
 * Fills placement->kv_resident: everything without -nkvo; else the layers that
 * -kvgl buys under the plan's policy, or the explicit set.
 *
 * @return 0, or -1 with `err` set (an explicit set that names a layer without cache)
 */
int residency_choose(struct placement *placement, struct error *err);

/**
 * Reads an explicit set: "3-31,35@CUDA0+CUDA1,39@CUDA1": layers or ranges of
 * layers, each with the devices that keep their part; without "@" all do. In a
 * range, layers that own no cache are passed over.
 *
 * @param resident one mask a block, `count` of them; cleared first
 */
int residency_parse(const char *text, const struct model *model, const struct machine *machine,
                    uint32_t *resident, uint32_t count, struct error *err);

#endif
